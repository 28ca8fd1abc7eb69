"""Context: what everybody is told before anything is asked, as the system message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript, Utterance
from folkmoot.engine.session import Scope
from folkmoot.models.images import images_in
from folkmoot.studies.workbook.answers import Given
from folkmoot.studies.workbook.config import (
    FACILITATOR,
    SPECIAL_ROLES,
    Computed,
    Role,
    Scalar,
)
from folkmoot.studies.workbook.experiments import Experiment, TaskInPlay
from folkmoot.studies.workbook.participants import Seat, SessionPlan, profile_of
from folkmoot.studies.workbook.placeholders import NotThere, Scene, evaluate, render
from folkmoot.studies.workbook.sheets import number_text

NOT_AVAILABLE = NotThere("not available")
SOMEBODY_ELSES = NotThere("…")  # in a question as those hear it to whom it is not put
Prompts = Callable[..., str]  # (name, **variables) → the prompt of that name, filled in
CUT, CUT_ROUNDS = "conversation_length", "rounds"  # why a session ended before its end


@dataclass(frozen=True)
class Response:
    """What one speaker answered in one task, and how it was had."""

    task: TaskInPlay
    place: int  # of the task in this session's order, from 1
    speaker_id: str
    role: str
    given: Given | Missing
    reasks: int = 0
    order: tuple[str, ...] = ()
    score: int | None = None
    finish: str | None = None  # how the reply ended; None where nobody was asked


@dataclass
class Room:
    """The state of one session. `reasks`: how often an answer may be asked for again."""

    experiment: Experiment
    plan: SessionPlan
    order: Sequence[TaskInPlay]
    computed: Sequence[Computed]
    reasks: int
    speakers: dict[str, Speaker] = field(default_factory=dict)
    heard: dict[str, Transcript] = field(default_factory=dict)
    responses: list[Response] = field(default_factory=list)
    special_replies: list[Response] = field(default_factory=list)
    said: list[Utterance] = field(default_factory=list)
    messages: int = 0
    rounds: int = 0
    ended: str = "completed"
    stopped_in: str = ""
    _values: dict[tuple[str, str], Given | Missing] = field(default_factory=dict)
    _memo: dict[tuple[str, str | None], Scalar | Missing | None] = field(default_factory=dict)

    @property
    def seats(self) -> tuple[Seat, ...]:
        return self.plan.seats

    @property
    def specials(self) -> list[str]:
        """Special roles that this experiment defines."""
        return [r for r in SPECIAL_ROLES if self.experiment.special(r)]

    def in_play(self, task: TaskInPlay) -> list[Seat | str]:
        """Who speaks in a task, in order: seats, and the labels of special roles."""
        order: list[Seat | str] = []
        for label in task.prompts:
            role = self.experiment.roles.get(label)
            if role is not None and role.special:
                order.append(role.special)
            else:
                order.extend(s for s in self.seats if s.role == label)
        return order

    def left(self) -> int:
        """How many more messages the session may hold."""
        limit = self.experiment.workbook.settings.max_conversation_length
        return limit - self.messages if limit is not None else 1_000_000

    def stop(self, task: TaskInPlay, why: str) -> None:
        """The session ends here; what was not asked stays missing."""
        if self.ended == "completed":
            self.ended, self.stopped_in = why, task.task.task_id
            self._memo.clear()

    def tell(self, ids: Sequence[str], utterance: Utterance) -> None:
        """These hear it."""
        for who in ids:
            self.heard[who] = self.heard.get(who, EMPTY) + utterance

    def note(self, response: Response) -> None:
        """Keep a participant's answer; computed values that rest on it are made anew."""
        self.responses.append(response)
        self._values[(response.task.var_name, response.speaker_id)] = response.given
        self._memo.clear()

    def scene(self) -> Scene:
        """What expressions can see now."""
        return Scene(
            participants=[s.id for s in self.seats],
            personal=frozenset(
                {t.var_name for t in self.order}
                | {c.name for c in self.computed if c.scope == "participant"}
            ),
            shared=frozenset(c.name for c in self.computed if c.scope == "session"),
            constants=self.experiment.constants,
            value=self.value,
        )

    def value(self, name: str, participant: str | None) -> Scalar | Missing | None:
        """A variable or computed value; None for who was never meant to have one."""
        key = (name, participant)
        if key not in self._memo:
            self._memo[key] = self._find(name, participant)
        return self._memo[key]

    def _find(self, name: str, participant: str | None) -> Scalar | Missing | None:
        item = next((c for c in self.computed if c.name == name), None)
        if item is not None:
            who = participant if item.scope == "participant" else None
            return evaluate(item.expression, self.scene(), who)
        task = next((t for t in self.order if t.var_name == name), None)
        seat = next((s for s in self.seats if s.id == participant), None)
        if task is None or seat is None or seat.role not in task.prompts:
            return None
        given = self._values.get((name, seat.id))
        if given is None:
            return Missing("not_yet" if self.ended == "completed" else CUT)
        if isinstance(given, Missing):
            return given
        if not given.usable:
            return Missing("invalid")
        if task.task.var_type in ("integer", "float") and isinstance(given.value, str):
            return Missing("not_a_number")
        return given.value

    def applies(self, item: Computed, participant: str) -> bool:
        """Whether a participant has a value of this kind: it was asked what the value rests on."""
        value = self.value(item.name, participant)
        return not (isinstance(value, Missing) and value.reason == "not_asked")

    def fillings(self, who: Seat | str, names: Collection[str]) -> dict[str, object]:
        """Values for these placeholders of a prompt, as this speaker may know them.

        `who` is a seat, or the label of a role when nobody in particular is spoken to.
        """
        label = who.role if isinstance(who, Seat) else who
        role = self.experiment.roles.get(label) or self.experiment.special(label)
        values = known_beforehand(self.experiment, self.plan.treatment, role)
        seat = who.id if isinstance(who, Seat) else None
        shared = {c.name for c in self.computed if c.scope == "session"}
        for name in names:
            if name in values:
                continue
            if name in shared:
                values[name] = shown(self.value(name, None))
            else:
                values[name] = SOMEBODY_ELSES if seat is None else shown(self.value(name, seat))
        return values


def known_beforehand(
    experiment: Experiment, treatment: str, role: Role | None
) -> dict[str, object]:
    """What placeholders can mean before anybody has answered."""
    told = experiment.treatments.get(treatment)
    return {
        **experiment.constants,
        "constant": dict(experiment.constants),
        "treatment": told.attributes if told else {},
        "role": role.attributes if role else {},
    }


def shown(value: Scalar | Missing | None) -> object:
    """A value as a prompt shows it: numbers in plain decimals, words for what is not there."""
    if value is None or isinstance(value, Missing):
        return NOT_AVAILABLE
    if isinstance(value, (str, bool)):
        return str(value)
    return Figure(value)


class Figure(float):
    """A number that prints as a person writes it and still rounds and compares as a number."""

    def __str__(self) -> str:
        return number_text(float(self))

    __repr__ = __str__

    def __round__(self, digits: int | None = None) -> Figure:  # type: ignore[override]
        return Figure(round(float(self), digits or 0))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


async def open_room(scope: Scope, room: Room) -> None:
    """Give every speaker its system message. Backstories are written where the workbook wants them.

    The special roles get a message of their own, for the tasks in which the workbook gives them
    words.
    """
    settings = room.experiment.workbook.settings

    async def backstory(inner: Scope, seat: Seat) -> str:
        prompt = inner.prompt("backstory", profile=profile_of(room.experiment.workbook, seat.row))
        told = await inner.ask(Speaker(seat.id, seat.name, "biographer"), prompt)
        return "" if isinstance(told, Missing) else told

    stories: dict[str, str] = {}
    if settings.include_backstories:
        # Two names deep, so that no task_id can have the same address.
        stories = await scope.at("before", "backstories").each(room.seats, backstory)
    for seat in room.seats:
        room.speakers[seat.id] = participant(scope.prompt, room, seat, stories.get(seat.id, ""))
    for label in room.specials:
        room.speakers[label] = special(scope.prompt, room, label)


def participant(prompt: Prompts, room: Room, seat: Seat, story: str) -> Speaker:
    """A participant with its system message: persona, role, treatment, context."""
    workbook = room.experiment.workbook
    role, treatment, context = _told(room, seat, room.experiment.roles[seat.role])
    profile = profile_of(workbook, seat.row) if workbook.settings.show_profile else []
    system = prompt(
        "system",
        called=seat.name,
        profile=profile,
        backstory=story,
        role=role,
        treatment=treatment,
        context=context,
        facilitator=FACILITATOR,
    )
    images = tuple(image.words for text in (role, treatment, context) for image in images_in(text))
    # Without a profile it is the name that tells people apart, and not the treatment.
    persona = "\n".join(filter(None, [*(line["answer"] for line in profile), story])) or seat.name
    return Speaker(seat.id, seat.name, "participant", system, images=images, persona=persona)


def special(prompt: Prompts, room: Room, label: str) -> Speaker:
    """A special role with its system message."""
    told = room.experiment.special(label)
    assert told is not None
    role, treatment, context = _told(room, label, told)
    system = prompt("special", label=label, role=role, treatment=treatment, context=context)
    images = tuple(image.words for text in (role, treatment, context) for image in images_in(text))
    return Speaker(label, label, label.lower(), system, images=images)


def _told(room: Room, who: Seat | str, role: Role) -> tuple[str, str, str]:
    """What a speaker is told before anything else: its role, the treatment, the context."""
    treatment = room.experiment.treatments.get(room.plan.treatment)
    in_system = treatment and room.experiment.workbook.settings.treatment_in_system
    return (
        render(role.description, room.fillings(who, ())).strip(),
        treatment.description if treatment and in_system else "",
        _context(room, who),
    )


def _context(room: Room, who: Seat | str) -> str:
    """All contexts meant for this speaker, in the session's order."""
    texts: list[str] = []
    for task in room.experiment.tasks.values():
        if task.task.type != "context":
            continue
        label = who.role if isinstance(who, Seat) else who
        by_special = {k.casefold(): v for k, v in task.prompts.items()}
        text = task.prompts.get(label) or by_special.get(label.casefold())
        if text is None and task.shared:
            text = next(iter(task.prompts.values()), None)  # plain text is meant for all
        if text is not None:
            texts.append(render(text, room.fillings(who, ())).strip())
    return "\n\n".join(texts)
