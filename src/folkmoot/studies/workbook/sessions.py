"""One session: its state, and what everybody is told beforehand as the system message. `asking`
puts its tasks to the speakers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER
from folkmoot.engine.session.session import Scope
from folkmoot.models.images import find_image_references, replace_images
from folkmoot.provenance import Source, SourcedText, cell_id, enclose_text, join_texts, quote_value
from folkmoot.studies.workbook.answers import (
    GivenAnswer,
)
from folkmoot.studies.workbook.config import (
    FACILITATOR,
    SPECIAL_ROLES,
    Computed,
    Role,
    Scalar,
)
from folkmoot.studies.workbook.expressions import (
    MissingValue,
    Scene,
    evaluate_for,
    known_after,
)
from folkmoot.studies.workbook.participants import (
    Experiment,
    SessionParticipant,
    SessionPlan,
    TaskInPlay,
    name_of,
    profile_of,
)
from folkmoot.studies.workbook.placeholders import (
    Figure,
    render_text,
    with_source,
)

# What expressions know of a participant and of a session beside the names of the workbook.
PERSONAL_NAMES = ("role",)
SHARED_NAMES = ("treatment", "session", "members")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?")

NOT_AVAILABLE = MissingValue("not available")
SOMEBODY_ELSES = MissingValue("…")  # in a question as those hear it to whom it is not put
Prompts = Callable[..., str]  # (name, **variables) → the prompt of that name, filled in
POSER = Speaker(FACILITATOR, FACILITATOR, "facilitator")  # of the questions in the sheet's words
CUT, CUT_ROUNDS = "conversation_length", "rounds"  # why a session ended before its end
EMPTY_PROMPT = "empty_prompt"  # why somebody was not asked: nothing remained of the task's text


@dataclass(frozen=True)
class Response:
    """What one speaker answered in one task, and how it was had. `said` is the id of the answer in
    the table `utterances`."""

    task: TaskInPlay
    place: int  # of the task in this session's order, from 1
    speaker_id: str
    role: str
    given: GivenAnswer | Missing
    said: str = ""
    reasks: int = 0
    order: tuple[str, ...] = ()
    score: int | None = None
    finish: str | None = None  # how the reply ended; None where nobody was asked


@dataclass
class SessionState:
    """The state of one session. `reasks`: how often an answer may be asked for again;
    without `sends_images` a placeholder replaces each image.

    `computed` comes in dependency order. Each value is calculated once, after the task that gives
    the last answer it rests on, and stored.
    """

    experiment: Experiment
    plan: SessionPlan
    order: Sequence[TaskInPlay]
    computed: Sequence[Computed]
    reasks: int
    sends_images: bool = True
    speakers: dict[str, Speaker] = field(default_factory=dict)
    heard: dict[str, Transcript] = field(default_factory=dict)
    responses: list[Response] = field(default_factory=list)
    special_replies: list[Response] = field(default_factory=list)
    turns: int = 0
    messages: int = 0
    rounds: int = 0
    ended: str = "completed"
    stopped_in: str = ""
    _answers: dict[tuple[str, str], Response] = field(default_factory=dict)
    _calculated: dict[tuple[str, str | None], Scalar | Missing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tasks = {task.var_name: task for task in self.order}
        self._seats = {seat.id: seat for seat in self.plan.seats}
        self._personal, self._shared = self._names_in_expressions()
        self._places = {task.var_name: place for place, task in enumerate(self.order)}
        ready = known_after(self.computed, self._places)
        self._waiting: dict[int, list[Computed]] = {}
        for item in self.computed:
            self._waiting.setdefault(ready[item.name], []).append(item)
            not_yet = dict.fromkeys(self._value_holders(item), Missing("not_yet"))
            self._calculated |= {(item.name, holder): why for holder, why in not_yet.items()}
        self._calculate_waiting(-1)

    @property
    def taken_seats(self) -> tuple[SessionParticipant, ...]:
        return self.plan.seats

    @property
    def special_roles(self) -> list[str]:
        """Special roles that this experiment defines."""
        return [
            special_role
            for special_role in SPECIAL_ROLES
            if self.experiment.find_special_role(special_role)
        ]

    def in_play(self, task: TaskInPlay) -> list[SessionParticipant | str]:
        """Who speaks in a task, in order: seats, and the labels of special roles."""
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
        """Whether private answers are told to everybody when their round is over."""
        return self.experiment.workbook.settings.reveal_private

    def left(self) -> int:
        """How many more messages the session may hold."""
        limit = self.experiment.workbook.settings.max_conversation_length
        return limit - self.messages if limit is not None else 1_000_000

    def stop_session(self, task: TaskInPlay, why: str) -> None:
        """The session ends here; what was not asked stays missing."""
        if self.ended == "completed":
            self.ended, self.stopped_in = why, task.task.task_id

    def add_to_history(self, ids: Sequence[str], utterance: Utterance) -> None:
        """These hear it."""
        for who in ids:
            self.heard[who] = self.heard.get(who, EMPTY_TRANSCRIPT) + utterance

    def note(self, response: Response) -> None:
        """Keep a participant's answer."""
        self.responses.append(response)
        self._answers[(response.task.var_name, response.speaker_id)] = response

    def finish_task(self, task: TaskInPlay) -> None:
        """Calculate the values that needed this task as their last answer."""
        self._calculate_waiting(self._places[task.var_name])

    def finish(self) -> None:
        """Calculate the values that rest on answers which a limit kept from being asked for."""
        for place in sorted(self._waiting):
            self._calculate_waiting(place)

    def _calculate_waiting(self, place: int) -> None:
        scene = self.expression_scene()
        for item in self._waiting.pop(place, []):
            holders = self._value_holders(item)
            values = evaluate_for(item.expression, scene, holders)
            for holder, value in zip(holders, values, strict=True):
                self._calculated[item.name, holder] = value

    def _value_holders(self, item: Computed) -> list[str | None]:
        """Who has a value of this kind: every participant, or the session (None)."""
        return [*self._seats] if item.scope == "participant" else [None]

    def expression_scene(self) -> Scene:
        """What expressions can see now."""
        return Scene(
            participants=[session_participant.id for session_participant in self.taken_seats],
            personal=self._personal,
            shared=self._shared,
            constants=self.experiment.constants,
            value=self.value,
        )

    def _names_in_expressions(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names that differ between participants, and those that are one for the session.

        A variable, constant or computed value of the workbook goes before a name that is always
        there, and that before a column of the profiles.
        """
        own = {
            *self._tasks,
            *self.experiment.constants,
            *(computed.name for computed in self.computed),
        }
        columns = set(self.experiment.workbook.profiles.names) - own - {*SHARED_NAMES}
        personal = {computed.name for computed in self.computed if computed.scope == "participant"}
        shared = {computed.name for computed in self.computed if computed.scope == "session"}
        return (
            frozenset({*self._tasks, *personal, *columns} | ({*PERSONAL_NAMES} - own)),
            frozenset(shared | ({*SHARED_NAMES} - own)),
        )

    def value(self, name: str, participant: str | None) -> Scalar | Missing | None:
        """A variable or another value that expressions know; None for who was never meant to have
        one. `participant` is None for a value of the session."""
        if (name, participant) in self._calculated:
            return self._calculated[name, participant]
        if name in self._shared:
            always: dict[str, Scalar] = {
                "treatment": self.plan.treatment,
                "session": parse_cell(self.plan.label),
                "members": len(self.taken_seats),
            }
            return always[name]
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
        if response is None:
            return Missing("not_yet" if self.ended == "completed" else CUT)
        given = response.given
        if isinstance(given, Missing):
            return None if given.reason == EMPTY_PROMPT else given
        if not given.is_usable:
            return Missing("invalid")
        if task.task.var_type in ("integer", "float") and isinstance(given.value, str):
            return Missing("not_a_number")
        return given.value

    def applies_to(self, item: Computed, participant: str) -> bool:
        """Whether a participant has a value of this kind: it was asked what the value rests on."""
        value = self.value(item.name, participant)
        return not (isinstance(value, Missing) and value.reason == "not_asked")

    def placeholder_values(
        self, who: SessionParticipant | str, names: Collection[str]
    ) -> dict[str, object]:
        """Return values for these placeholders of a prompt, with their sources, as this speaker may
        know them.

        `who` is a seat, or the label of a role when nobody in particular is spoken to.
        """
        label = who.role if isinstance(who, SessionParticipant) else who
        role = self.experiment.roles.get(label) or self.experiment.find_special_role(label)
        values = known_beforehand(self.experiment, self.plan.treatment, role)
        seat = who.id if isinstance(who, SessionParticipant) else None
        shared = {computed.name for computed in self.computed if computed.scope == "session"}
        for name in names:
            if name in values:
                continue
            holder = None if name in shared else seat
            if holder is None and name not in shared:
                values[name] = SOMEBODY_ELSES
            else:
                values[name] = format_value(
                    self.value(name, holder), self._value_source(name, holder)
                )
        return values

    def _value_source(self, name: str, holder: str | None) -> Source:
        """Where a value is recorded: an answer in what was said, a computed one in its table."""
        answer = self._answers.get((name, holder or ""))
        if answer is not None:
            return Source("utterance", answer.said, answer.speaker_id)
        where = (self.experiment.id, self.plan.label, name, holder)
        return Source("value", cell_id("computed.value", *where))

    def record_utterance(
        self,
        scope: Scope,
        task: TaskInPlay | None,
        who: Speaker,
        text: str,
        address: str = "",
        *,
        turn: int | None = None,
        **more: Any,
    ) -> Utterance:
        """Record that somebody said something in a task. `turn` is the place in the talk of the
        session; what has none is told to one participant alone, or written by it for itself."""
        more.setdefault("public", turn is not None)
        return scope.say(
            who,
            text,
            address=address,
            stage=task.task.task_id if task else None,
            experiment_id=self.experiment.id,
            session=self.plan.label,
            treatment=self.plan.treatment,
            task_id=task.task.task_id if task else None,
            turn=turn,
            **more,
        )


def parse_cell(text: str) -> Scalar:
    """A cell of the profiles as a number if it is written as one; `007` and `10%` are texts."""
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def known_beforehand(
    experiment: Experiment, treatment: str, role: Role | None
) -> dict[str, object]:
    """What placeholders can mean before anybody has answered."""
    told = {"treatment": experiment.treatments.get(treatment), "role": role}
    attributes = {
        f"{space}.{name}": text
        for space, part in told.items()
        if part
        for name, text in part.placeholder_attributes.items()
    }
    return {**experiment.named, **attributes}


def format_value(value: Scalar | Missing | None, source: Source) -> object:
    """A value as a prompt shows it: numbers in plain decimals, words for what is not there."""
    if value is None or isinstance(value, Missing):
        return NOT_AVAILABLE
    if isinstance(value, (str, bool)):
        return with_source(str(value), source, str(value).strip())
    return Figure(value, source)


async def brief_speakers(scope: Scope, state: SessionState) -> None:
    """Give every speaker its system message. Backstories are written where the workbook wants them.

    The special roles get a message of their own, for the tasks in which the workbook gives them
    words.
    """
    settings = state.experiment.workbook.settings

    async def ask_backstory(inner: Scope, seat: SessionParticipant) -> str:
        profile = profile_of(state.experiment, seat)
        writer = Speaker(seat.id, seat.name, "biographer")
        prompt = inner.prompt("backstory", profile=[*profile.values()])
        told = await inner.ask(writer, prompt, about="the story of this person")
        if isinstance(told, Missing):
            return ""
        said = state.record_utterance(inner, None, writer, told, inner.address)
        return quote_value(str(told), "persona", cell_id("utterances.text", said.id), seat.id)

    stories: dict[str, str] = {}
    own = {seat.id for seat in state.taken_seats if scope.speaks_as_self(seat.id)}
    if settings.include_backstories:
        # Two names deep, so that no task_id can have the same address.
        drawn = [seat for seat in state.taken_seats if seat.id not in own]
        stories = await scope.child("before", "backstories").map(drawn, ask_backstory)
    for seat in state.taken_seats:
        state.speakers[seat.id] = (
            participant_speaker(
                scope.prompt,
                state,
                seat,
                SourcedText(f"You are {SELF_DESCRIPTION_PLACEHOLDER}"),
                profile=False,
            )
            if seat.id in own
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
    """A participant with its system message: persona, role, treatment, context. Without `profile`
    nothing of what the workbook says of this person is told."""
    role, treatment, context = _system_message(state, seat, state.experiment.roles[seat.role])
    shows_profile = profile and state.experiment.workbook.settings.show_profile
    told = [*profile_of(state.experiment, seat).values()] if shows_profile else []
    # Without a profile it is the name that tells people apart, and not the treatment.
    is_persona = not told and not story
    system = prompt(
        "system",
        called=name_of(state.experiment, seat, "persona" if is_persona else "value"),
        profile=told,
        backstory=story,
        role=role,
        treatment=treatment,
        context=context,
        facilitator=SourcedText(FACILITATOR),
    )
    images = tuple(
        image.words for text in (role, treatment, context) for image in find_image_references(text)
    )
    return Speaker(seat.id, seat.name, "participant", system, images=images)


def special_speaker(prompt: Prompts, state: SessionState, label: str) -> Speaker:
    """A special role with its system message."""
    told = state.experiment.find_special_role(label)
    assert told is not None
    role, treatment, context = _system_message(state, label, told)
    called = SourcedText(label)
    system = prompt("special", label=called, role=role, treatment=treatment, context=context)
    images = tuple(
        image.words for text in (role, treatment, context) for image in find_image_references(text)
    )
    return Speaker(label, label, label.lower(), system, images=images)


def _system_message(
    state: SessionState, who: SessionParticipant | str, role: Role
) -> tuple[str, str, str]:
    """What a speaker is told before anything else: its role, the treatment, the context."""
    treatment = state.experiment.treatments.get(state.plan.treatment)
    in_system = treatment and state.experiment.workbook.settings.treatment_in_system
    texts = (
        _role_of(state, who, role),
        treatment.description if treatment and in_system else "",
        _speaker_context(state, who),
    )
    if state.sends_images:
        return texts
    told, treated, context = map(replace_images, texts)
    return told, treated, context


def _role_of(state: SessionState, who: SessionParticipant | str, role: Role) -> SourcedText:
    """The description of a role; what of it depends on the treatment is filled in now."""
    filled = render_text(role.description, state.placeholder_values(who, ()))
    if filled is role.description:
        return filled
    recorded = cell_id("roles.description", state.experiment.id, role.label)
    return quote_material(filled, role.description, recorded)


def quote_material(filled: SourcedText, template: str, recorded: str) -> SourcedText:
    """Return a filled text of the workbook with its cell as the source."""
    return enclose_text(filled, Source("material", recorded, altered=filled != template))


def _speaker_context(state: SessionState, who: SessionParticipant | str) -> str:
    """All contexts meant for this speaker, in the session's order."""
    texts: list[str] = []
    for task in state.experiment.tasks.values():
        if task.task.type != "context":
            continue
        label = who.role if isinstance(who, SessionParticipant) else who
        by_special = {key.casefold(): prompt for key, prompt in task.prompts.items()}
        text = task.prompts.get(label) or by_special.get(label.casefold())
        if text is None and task.shared:
            text = next(iter(task.prompts.values()), None)  # plain text is meant for all
        if text is not None:
            texts.append(
                quote_material(
                    render_text(text, state.placeholder_values(who, ())), text, task.cell
                )
            )
    return join_texts("\n\n", texts)
