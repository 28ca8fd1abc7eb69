"""The state of one session, and the system prompts of its speakers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER
from folkmoot.engine.session.session import Scope
from folkmoot.hints import shorten
from folkmoot.models.images import find_image_references, replace_images
from folkmoot.provenance import (
    Source,
    SourcedText,
    cell_id,
    concatenate_texts,
    enclose_text,
    join_texts,
    quote_value,
)
from folkmoot.studies.workbook.answers import GivenAnswer, scalar_text
from folkmoot.studies.workbook.config import (
    CELL_NUMBER,
    FACILITATOR,
    SPECIAL_ROLES,
    Computed,
    Role,
    Scalar,
)
from folkmoot.studies.workbook.language.expressions import (
    EvaluationContext,
    MissingValue,
    evaluate_for,
    known_after,
)
from folkmoot.studies.workbook.language.placeholders import (
    SourcedNumber,
    render_text,
    with_source,
)
from folkmoot.studies.workbook.participants import (
    Experiment,
    SessionParticipant,
    SessionPlan,
    TaskInPlay,
    name_of,
    profile_of,
)

# Names that expressions may use beside those of the workbook: of a participant, and of a session.
PERSONAL_NAMES = ("role",)
SHARED_NAMES = ("treatment", "session", "members")

NOT_AVAILABLE = MissingValue("not available")
# Maximum number of speakers or values that a note names.
MAX_NAMED = 5
# Replaces a participant's value in a question as other speakers hear it.
VALUE_OF_ANOTHER = MissingValue("…")
# Prompt name and variables → the rendered prompt.
Prompts = Callable[..., str]
# The speaker of questions in the words of the sheet.
POSER = Speaker(FACILITATOR, FACILITATOR, "facilitator")
# Reasons why a session ended early: the limit of messages, or of tasks.
CUT, CUT_ROUNDS = "conversation_length", "rounds"
# The reason of a missing computed share if the calculated value is not from 0 to 1.
NOT_A_SHARE = "not_a_share"
ROUNDING = 1e-9
# The reason of a missing answer if the task's text was empty for this participant.
EMPTY_PROMPT = "empty_prompt"


@dataclass(frozen=True)
class Response:
    """The answer of one speaker to one task, and how the answer was obtained."""

    task: TaskInPlay
    # The position of the task in this session, from 1.
    place: int
    speaker_id: str
    role: str
    given: GivenAnswer | Missing
    # The id of the answer in the table `utterances`.
    utterance_id: str = ""
    reasks: int = 0
    # The options in the order shown.
    order: tuple[str, ...] = ()
    # The speculation score, 0 to 100.
    score: int | None = None
    # The finish reason of the reply, or None if there was no question.
    finish: str | None = None


@dataclass
class SessionState:
    """The state of one session while it runs."""

    experiment: Experiment
    plan: SessionPlan
    order: Sequence[TaskInPlay]
    # Each value comes after the values that it uses.
    computed: Sequence[Computed]
    # The maximum number of re-asks per answer.
    reasks: int
    # If False, a placeholder replaces each image.
    sends_images: bool = True
    speakers: dict[str, Speaker] = field(default_factory=dict)
    histories: dict[str, Transcript] = field(default_factory=dict)
    responses: list[Response] = field(default_factory=list)
    special_replies: list[Response] = field(default_factory=list)
    turns: int = 0
    messages: int = 0
    rounds: int = 0
    ended: str = "completed"
    stopped_in: str = ""
    # (task_id, expression, reason) → the speakers for whom the expression had no value.
    _unfilled: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    _answers: dict[tuple[str, str], Response] = field(default_factory=dict)
    _calculated: dict[tuple[str, str | None], Scalar | Missing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tasks = {task.var_name: task for task in self.order}
        self._seats = {seat.id: seat for seat in self.plan.seats}
        self._personal, self._shared = self._names_in_expressions()
        self._places = {task.var_name: place for place, task in enumerate(self.order)}
        # Values without answers are ready before the first task (place -1).
        ready = known_after(self.computed, self._places)
        self._waiting: dict[int, list[Computed]] = {}
        for item in self.computed:
            self._waiting.setdefault(ready[item.name], []).append(item)
            # Until it is computed, a value reads as missing with the reason "not_yet".
            not_yet = dict.fromkeys(self._value_holders(item), Missing("not_yet"))
            self._calculated |= {
                (item.name, holder): missing for holder, missing in not_yet.items()
            }
        self._calculate_waiting(-1)

    @property
    def taken_seats(self) -> tuple[SessionParticipant, ...]:
        return self.plan.seats

    @property
    def special_roles(self) -> list[str]:
        """The special roles that this experiment defines."""
        return [
            special_role
            for special_role in SPECIAL_ROLES
            if self.experiment.find_special_role(special_role)
        ]

    def in_play(self, task: TaskInPlay) -> list[SessionParticipant | str]:
        """Return the speakers of a task in order."""
        # They are participants, or labels of special roles.
        order: list[SessionParticipant | str] = []
        for label in task.prompts:
            role = self.experiment.roles.get(label)
            if role is not None and role.special_name:
                order.append(role.special_name)
            else:
                order.extend(
                    session_participant
                    for session_participant in self.taken_seats
                    if session_participant.role == label
                )
        return order

    @property
    def reveals_private(self) -> bool:
        """True if all speakers hear private answers after a private question ends."""
        return self.experiment.workbook.settings.reveal_private

    def messages_left(self) -> int:
        """Return how many more messages the session allows."""
        limit = self.experiment.workbook.settings.max_conversation_length
        # Without a limit, return a number above the length of any session.
        return limit - self.messages if limit is not None else 1_000_000

    def stop_session(self, task: TaskInPlay, why: str) -> None:
        """End the session at this task for the reason `why`."""
        # Questions that were not asked get missing answers.
        if self.ended == "completed":
            self.ended, self.stopped_in = why, task.task.task_id

    def add_to_history(self, ids: Sequence[str], utterance: Utterance) -> None:
        """Add an utterance to the histories of the speakers with `ids`."""
        for speaker_id in ids:
            self.histories[speaker_id] = (
                self.histories.get(speaker_id, EMPTY_TRANSCRIPT) + utterance
            )

    def note(self, response: Response) -> None:
        """Store a participant's response for later expressions."""
        self.responses.append(response)
        self._answers[(response.task.var_name, response.speaker_id)] = response

    def note_unfilled(
        self, task: TaskInPlay, speaker_id: str, expression: str, reason: str
    ) -> None:
        """Store that an expression in the prompt of a task had no value for one speaker."""
        # A prompt is filled in several times, so the speakers are a set.
        key = (task.task.task_id, expression, reason)
        self._unfilled.setdefault(key, set()).add(speaker_id)

    def unfilled_notes(self) -> list[str]:
        """Return one note for each expression of a prompt that could not be calculated."""
        return [
            f"task {task_id}: {shorten(expression, 60)} could not be calculated for "
            f"{', '.join(sorted(speakers)[:MAX_NAMED])}"
            f"{', …' if len(speakers) > MAX_NAMED else ''} ({reason}): the prompt says "
            f"“{NOT_AVAILABLE}”, and a condition counts as false"
            for (task_id, expression, reason), speakers in sorted(self._unfilled.items())
        ]

    def share_notes(self) -> list[str]:
        """Return one note for each computed share with values that are no shares."""
        details: dict[str, list[str]] = {}
        for item in self.computed:
            for holder in self._value_holders(item):
                value = self._calculated[item.name, holder]
                if isinstance(value, Missing) and value.reason == NOT_A_SHARE:
                    details.setdefault(item.name, []).append(value.detail)
        return [
            f"the computed share {name} is not from 0 to 1 ({', '.join(found[:MAX_NAMED])}"
            f"{', …' if len(found) > MAX_NAMED else ''}), so it counts as missing: divide by the "
            "largest possible value, or leave its kind blank"
            for name, found in details.items()
        ]

    def finish_task(self, task: TaskInPlay) -> None:
        """Calculate the computed values for which this task gave the last missing answer."""
        self._calculate_waiting(self._places[task.var_name])

    def finish(self) -> None:
        """Calculate the remaining computed values."""
        # A limit has ended the session early.
        for place in sorted(self._waiting):
            self._calculate_waiting(place)

    def _calculate_waiting(self, place: int) -> None:
        # Compute at a fixed place of the session and not on demand, so that all speakers see one
        # value.
        context = self.evaluation_context()
        for item in self._waiting.pop(place, []):
            holders = self._value_holders(item)
            values = evaluate_for(item.expression, context, holders)
            for holder, value in zip(holders, values, strict=True):
                self._calculated[item.name, holder] = check_share(item, value)

    def _value_holders(self, item: Computed) -> list[str | None]:
        # A value of the whole session has the single holder None.
        return [*self._seats] if item.scope == "participant" else [None]

    def evaluation_context(self) -> EvaluationContext:
        """Return the names and values that expressions can use now."""
        return EvaluationContext(
            participants=[session_participant.id for session_participant in self.taken_seats],
            personal=self._personal,
            shared=self._shared,
            constants=self.experiment.constants,
            value=self.value,
        )

    def _names_in_expressions(self) -> tuple[frozenset[str], frozenset[str]]:
        # Names of the workbook hide built-in names, and built-in names hide columns of the
        # profiles.
        own_names = {
            *self._tasks,
            *self.experiment.constants,
            *(computed.name for computed in self.computed),
        }
        columns = set(self.experiment.workbook.profiles.names) - own_names - {*SHARED_NAMES}
        personal = {computed.name for computed in self.computed if computed.scope == "participant"}
        shared = {computed.name for computed in self.computed if computed.scope == "session"}
        return (
            frozenset({*self._tasks, *personal, *columns} | ({*PERSONAL_NAMES} - own_names)),
            frozenset(shared | ({*SHARED_NAMES} - own_names)),
        )

    def value(self, name: str, participant: str | None) -> Scalar | Missing | None:
        """Return the value that a name has for a participant.

        `participant`: None for a value of the whole session.

        Returns Missing if an expected value is missing. Returns None if the study has no such value
        for the participant.
        """
        if (name, participant) in self._calculated:
            return self._calculated[name, participant]
        if name in self._shared:
            session_values: dict[str, Scalar] = {
                "treatment": self.plan.treatment,
                "session": parse_cell(self.plan.label),
                "members": len(self.taken_seats),
            }
            return session_values[name]
        seat = self._seats.get(participant or "")
        if name not in self._personal or seat is None:
            return None
        task = self._tasks.get(name)
        if task is not None:
            return self._answer_value(task, seat)
        if name in PERSONAL_NAMES:
            return seat.role
        profiles = self.experiment.workbook.profiles
        cell = profiles.rows[seat.row][profiles.names.index(name)]
        return parse_cell(cell) if cell else Missing("blank")

    def _answer_value(self, task: TaskInPlay, seat: SessionParticipant) -> Scalar | Missing | None:
        if seat.role not in task.prompts:
            return None
        response = self._answers.get((task.var_name, seat.id))
        # In a session that was cut, the question will not be asked any more.
        if response is None:
            return Missing("not_yet" if self.ended == "completed" else CUT)
        given = response.given
        if isinstance(given, Missing):
            return None if given.reason == EMPTY_PROMPT else given
        return given.value if given.is_usable else Missing("invalid")

    def applies_to(self, item: Computed, participant: str) -> bool:
        """Return whether a participant was asked the questions that a computed value needs."""
        value = self.value(item.name, participant)
        return not (isinstance(value, Missing) and value.reason == "not_asked")

    def placeholder_values(
        self, speaker: SessionParticipant | str, names: Collection[str]
    ) -> dict[str, object]:
        """Return the values of placeholders for one speaker."""
        # Each value records its source.
        # A speaker sees no values of other participants.
        label = speaker.role if isinstance(speaker, SessionParticipant) else speaker
        role = self.experiment.roles.get(label) or self.experiment.find_special_role(label)
        values = known_beforehand(self.experiment, self.plan.treatment, role)
        seat = speaker.id if isinstance(speaker, SessionParticipant) else None
        shared = {computed.name for computed in self.computed if computed.scope == "session"}
        for name in names:
            if name in values:
                continue
            holder = None if name in shared else seat
            if holder is None and name not in shared:
                values[name] = VALUE_OF_ANOTHER
            else:
                values[name] = format_value(
                    self.value(name, holder), self._value_source(name, holder)
                )
        return values

    def _value_source(self, name: str, holder: str | None) -> Source:
        # The source is an answer's utterance, or the row of a computed value.
        answer = self._answers.get((name, holder or ""))
        if answer is not None:
            return Source("utterance", answer.utterance_id, answer.speaker_id)
        where = (self.experiment.id, self.plan.label, name, holder)
        return Source("value", cell_id("computed.value", *where))

    def record_utterance(
        self,
        scope: Scope,
        task: TaskInPlay | None,
        speaker: Speaker,
        text: str,
        address: str = "",
        *,
        turn: int | None = None,
        **columns: Any,
    ) -> Utterance:
        """Record an utterance that belongs to a task, and return the utterance."""
        # `turn` is the position in the session's transcript. Without it the utterance is private: a
        # prompt to one participant, or a participant's reply in its raw form.
        columns.setdefault("public", turn is not None)
        return scope.say(
            speaker,
            text,
            address=address,
            stage=task.task.task_id if task else None,
            experiment_id=self.experiment.id,
            session=self.plan.label,
            treatment=self.plan.treatment,
            task_id=task.task.task_id if task else None,
            turn=turn,
            **columns,
        )


def check_share(item: Computed, value: Scalar | Missing) -> Scalar | Missing:
    """Return the computed value, or Missing for a share that is not from 0 to 1."""
    if item.kind != "share" or isinstance(value, Missing):
        return value
    # Rounding may leave the range, as in 0.1 + 0.2 + 0.7.
    if isinstance(value, (int, float)) and -ROUNDING <= value <= 1 + ROUNDING:
        return value
    return Missing(NOT_A_SHARE, shorten(scalar_text(value), 40))


def parse_cell(text: str) -> Scalar:
    """Return the text of a profile cell, converted to a number if it looks like a number."""
    # `007` and `10%` stay texts.
    if not CELL_NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def known_beforehand(
    experiment: Experiment, treatment: str, role: Role | None
) -> dict[str, object]:
    """Return the values that placeholders have before the first answer."""
    parts = {"treatment": experiment.treatments.get(treatment), "role": role}
    attributes = {
        f"{space}.{name}": text
        for space, part in parts.items()
        if part
        for name, text in part.placeholder_attributes.items()
    }
    return {**experiment.named, **attributes}


def format_value(value: Scalar | Missing | None, source: Source) -> object:
    """Return a value as a prompt shows it."""
    # A missing value is shown in words.
    if value is None or isinstance(value, Missing):
        return NOT_AVAILABLE
    if isinstance(value, (str, bool)):
        return with_source(str(value), source, str(value).strip())
    return SourcedNumber(value, source)


async def brief_speakers(scope: Scope, state: SessionState) -> None:
    """Create all speakers with their system prompts."""
    # If the workbook wants backstories, models write them first.
    settings = state.experiment.workbook.settings

    async def ask_backstory(seat_scope: Scope, seat: SessionParticipant) -> str:
        profile = profile_of(state.experiment, seat)
        writer = Speaker(seat.id, seat.name, "biographer")
        prompt = seat_scope.prompt("backstory", profile=[*profile.values()])
        story = await seat_scope.ask(writer, prompt, about="the story of this person")
        if isinstance(story, Missing):
            return ""
        utterance = state.record_utterance(seat_scope, None, writer, story, seat_scope.address)
        return quote_value(str(story), "persona", cell_id("utterances.text", utterance.id), seat.id)

    stories: dict[str, str] = {}
    self_speakers = {seat.id for seat in state.taken_seats if scope.speaks_as_self(seat.id)}
    if settings.include_backstories:
        # Use two names, so that no task_id can have the same address.
        played = [seat for seat in state.taken_seats if seat.id not in self_speakers]
        stories = await scope.child("before", "backstories").map(played, ask_backstory)
    for seat in state.taken_seats:
        state.speakers[seat.id] = (
            participant_speaker(
                scope.prompt,
                state,
                seat,
                # The placeholder keeps its source. Other parts may contain the same word.
                concatenate_texts(("You are ", SELF_DESCRIPTION_PLACEHOLDER), plain=None),
                profile=False,
            )
            if seat.id in self_speakers
            else participant_speaker(scope.prompt, state, seat, stories.get(seat.id, ""))
        )
    for label in state.special_roles:
        state.speakers[label] = special_speaker(scope.prompt, state, label)


def participant_speaker(
    prompt: Prompts,
    state: SessionState,
    seat: SessionParticipant,
    story: str,
    *,
    profile: bool = True,
) -> Speaker:
    """Return a participant as a speaker, with persona, role, treatment and context.

    - `story`: the life story of the participant, or "".
    - `profile`: False for humans who answer for themselves.
    """
    # Humans who answer for themselves get nothing from the profiles sheet, because the profile
    # describes another person.
    role, treatment, context = render_system_texts(state, seat, state.experiment.roles[seat.role])
    shows_profile = profile and state.experiment.workbook.settings.show_profile
    profile_lines = [*profile_of(state.experiment, seat).values()] if shows_profile else []
    # Without a profile the name has to serve as the persona, so that participants differ by more
    # than their treatment.
    is_persona = not profile_lines and not story
    system = prompt(
        "system",
        called=name_of(state.experiment, seat, "persona" if is_persona else "value"),
        profile=profile_lines,
        backstory=story,
        role=role,
        treatment=treatment,
        context=context,
        facilitator=SourcedText(FACILITATOR),
        as_self=not profile,
    )
    # The images of the system prompt go with every request of this speaker.
    images = tuple(
        image.words for text in (role, treatment, context) for image in find_image_references(text)
    )
    return Speaker(seat.id, seat.name, "participant", system, images=images)


def special_speaker(prompt: Prompts, state: SessionState, label: str) -> Speaker:
    """Return the speaker for a special role, including the system prompt.

    `label`: the label of the special role.
    """
    special = state.experiment.find_special_role(label)
    assert special is not None
    role, treatment, context = render_system_texts(state, label, special)
    quoted_label = SourcedText(label)
    system = prompt("special", label=quoted_label, role=role, treatment=treatment, context=context)
    images = tuple(
        image.words for text in (role, treatment, context) for image in find_image_references(text)
    )
    return Speaker(label, label, label.lower(), system, images=images)


def render_system_texts(
    state: SessionState, speaker: SessionParticipant | str, role: Role
) -> tuple[str, str, str]:
    """Return the texts of a system prompt in the order role, treatment, context."""
    treatment = state.experiment.treatments.get(state.plan.treatment)
    is_in_system = treatment and state.experiment.workbook.settings.treatment_in_system
    texts = (
        _role_of(state, speaker, role),
        treatment.description if treatment and is_in_system else "",
        _speaker_context(state, speaker),
    )
    if state.sends_images:
        return texts
    role_text, treatment_text, context = map(replace_images, texts)
    return role_text, treatment_text, context


def _role_of(state: SessionState, speaker: SessionParticipant | str, role: Role) -> SourcedText:
    text = render_text(role.description, state.placeholder_values(speaker, ()))
    # It was filled in when the experiment was built, and its cell is its source already.
    if text is role.description:
        return text
    source_id = cell_id("roles.description", state.experiment.id, role.label)
    return quote_material(text, role.description, source_id)


def quote_material(text: SourcedText, template: str, source_id: str) -> SourcedText:
    """Return `text` marked as coming from a cell of the workbook.

    - `template`: the text of the cell before its placeholders are filled in.
    - `source_id`: the id of the cell.
    """
    # The source is marked as altered if `text` differs from the cell's `template`.
    return enclose_text(text, Source("material", source_id, altered=text != template))


def _speaker_context(state: SessionState, speaker: SessionParticipant | str) -> str:
    texts: list[str] = []
    for task in state.experiment.tasks.values():
        if task.task.type != "context":
            continue
        label = speaker.role if isinstance(speaker, SessionParticipant) else speaker
        # Labels of special roles may be written in any case.
        by_special = {label_key.casefold(): prompt for label_key, prompt in task.prompts.items()}
        text = task.prompts.get(label) or by_special.get(label.casefold())
        if text is None and task.shared:
            # A plain text is meant for all roles, special ones included.
            text = next(iter(task.prompts.values()), None)
        if text is not None:
            texts.append(
                quote_material(
                    render_text(text, state.placeholder_values(speaker, ())), text, task.cell
                )
            )
    return join_texts("\n\n", texts)
