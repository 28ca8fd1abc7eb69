"""Seats: the participants that humans can play. Settings say which of the seats humans take."""

# A study type lists its participants as `Seat` objects. `seats:` of a study file or `--seat`
# selects some of them. A random selection depends on the seed only. `plan.json` holds the selection
# before the first call.

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from folkmoot.conversation.answer_types import pin_schema
from folkmoot.conversation.prompts import replace_in_prompt
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats.questionnaire import AfterwardsQuestions, Checks
from folkmoot.engine.seats.utterances import SELF_DESCRIPTIONS
from folkmoot.errors import InputError, Problem
from folkmoot.field_notes import Word, field_notes
from folkmoot.hints import did_you_mean
from folkmoot.provenance import (
    UNKNOWN,
    Quoted,
    Replacement,
    Source,
    SourcedText,
    Span,
    cell_id,
    concatenate_texts,
)
from folkmoot.randomness import generator

# The role of a participant's own calls. The same speaker may also be asked in other roles, for
# example as a summarizer, and a human in the seat does not answer those.
PARTICIPANT_ROLE = "participant"
# The word for an open entry, in `seats:` of a study file and in `--seat`.
OPEN = "open"
# A hint names at most this many seats, and the last one.
MAX_LISTED_SEATS = 5


@dataclass(frozen=True, slots=True)
class Seat:
    """One participant of one session. A human can play this participant in place of a model."""

    # The id of the speaker.
    id: str
    # Every call of this participant has one of these names in its scope path. Empty if the id is
    # unique in the run.
    scopes: tuple[str, ...] = ()
    role: str = PARTICIPANT_ROLE
    condition: str = ""
    # Empty if a human can take the seat. Otherwise it gives the reason, for example that other
    # speakers answer for the participant.
    closed_reason: str = ""
    # The part of the run that holds the rows of the seat, as the plan names it
    # (`ExpectedRows.part`). If it is empty, the part is the session or the participant.
    part: str = ""

    @property
    def name(self) -> str:
        """The name of the seat in study files, in `--seat` and in the plan."""
        return f"{self.scopes[0]}/{self.id}" if self.scopes else self.id

    @property
    def address(self) -> str:
        """The address prefix of this seat's questions outside the protocol, such as checks."""
        return f"seats/{self.name.replace('/', '.')}"

    @property
    def analysed_part(self) -> str:
        """The part of the run that is not analysed if the human in the seat is excluded."""
        return self.part or self.group

    @property
    def group(self) -> str:
        """The session that this participant shares with others.

        A participant without a session forms a group alone. The group then has the participant's
        id.
        """
        return self.scopes[0] if self.scopes else self.id

    def stages_of(self, path: Sequence[str]) -> tuple[str, ...]:
        """Return the stages to which a question to this seat belongs, the outermost first."""
        # They are the names in `path` that do not identify the seat.
        return tuple(part for part in path if part != self.id and part not in self.scopes)

    def owns_call(self, speaker: Speaker, path: Sequence[str]) -> bool:
        """Return whether the human in this seat answers a call to `speaker`.

        `path`: the scope of the call.
        """
        is_own = speaker.id == self.id and speaker.role == PARTICIPANT_ROLE
        return is_own and (not self.scopes or not set(self.scopes).isdisjoint(path))


class SeatSettings(BaseModel):
    """The key `seats` of a study file: which seats humans take, and which texts the humans see."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True
    )

    open: bool = Field(
        False,
        description="one link for all: it gives the next free seat",
        json_schema_extra=field_notes(label="One link for all"),
    )
    lobby_minutes: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="with `open`: time from the first arrival until models take the free seats",
        json_schema_extra=field_notes(unit="minutes", label="Time in the lobby"),
    )
    ids: tuple[str, ...] = Field(
        (),
        description="names of the participants",
        json_schema_extra=field_notes(label="Names of participants"),
    )
    count: int | None = Field(
        None,
        ge=1,
        description="number of seats, drawn by the seed",
        examples=[1],
        json_schema_extra=field_notes(label="Number of seats"),
    )
    role: str | None = Field(None, description="only seats of this role")
    condition: str | None = Field(None, description="only seats of this condition")
    as_: Literal["persona", "self"] = Field(
        "persona",
        alias="as",
        description="play the description of a participant (`persona`), or answer as oneself "
        "(`self`)",
        json_schema_extra=field_notes(label="Play a persona, or oneself"),
    )
    consent: str | None = Field(None, description="text that a human must agree to first")
    debriefing: str | None = Field(None, description="text shown at the end")
    completion_code: str | None = Field(
        None,
        description="code shown at the end",
        json_schema_extra=field_notes(label="Code at the end"),
    )
    screen_out_code: str | None = Field(
        None,
        description="code shown to a human after a failed check has ended their part",
        json_schema_extra=field_notes(label="Code after a failed check"),
    )
    checks: Checks = Field(
        (), description="questions with a right answer, before or during the study"
    )
    review: bool = Field(
        False,
        description="show humans their answers at the end, with a box for a comment",
        json_schema_extra=field_notes(label="Review of one's answers"),
    )
    afterwards: AfterwardsQuestions = Field(
        (),
        description="questions to humans after the protocol",
        json_schema_extra=field_notes(label="Questions afterwards"),
    )
    afterwards_minutes: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="time limit of each of them, if `minutes` is unset",
        json_schema_extra=field_notes(unit="minutes", label="Time for a question afterwards"),
    )
    query: tuple[str, ...] = Field(
        ("PROLIFIC_PID",),
        description="parts of the link's query that are kept apart; with `open`, the first one "
        "says who returns",
        json_schema_extra=field_notes(label="Parts of the link to keep"),
    )
    minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="time limit for one answer, after which it is missing",
        json_schema_extra=field_notes(unit="minutes", label="Time for an answer"),
    )
    arrive_minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="time limit for arrival; then the seat is closed",
        json_schema_extra=field_notes(unit="minutes", label="Time to arrive"),
    )

    @model_validator(mode="after")
    def _check_open(self) -> SeatSettings:
        if self.open and self.arrive_minutes is not None:
            raise ValueError(
                "`arrive_minutes` is for links to single seats; with `open`, set `lobby_minutes`"
            )
        return self


class SelfDescription(BaseModel):
    """The self-description of a human who plays no persona. Every field is optional."""

    # The name and the description are pinned: they are part of the fingerprint of the question.
    model_config = pin_schema(
        "OwnCard", "What people say of themselves where they speak for themselves."
    )

    age: int | None = Field(None, ge=16, le=120)
    gender: str = Field("", max_length=100)
    education: str = Field("", max_length=100)
    occupation: str = Field("", max_length=100)
    home: str = Field("", max_length=100, description="where you live: city, town or countryside")
    about: str = Field("", description="what matters to you, in a few sentences")

    @property
    def as_prompt_text(self) -> str:
        """The self-description as a text that replaces a persona in prompts."""
        fields = {
            key: str(value).strip()
            for key, value in self.model_dump(exclude={"about"}).items()
            if value
        }
        facts = "; ".join(f"{key}: {value}" for key, value in fields.items())
        return " ".join(
            filter(None, [SELF_DESCRIPTION_PLACEHOLDER, facts and f"{facts}.", self.about.strip()])
        )


# The text in place of a drawn persona in the prompts of a human who answers as themselves. It has
# no row of a table as its source, because the human has not described themselves yet.
SELF_DESCRIPTION_PLACEHOLDER = Quoted("yourself.", Source("persona", "seats.self"))

SELF_DESCRIPTION_QUESTION = SourcedText(
    "In this study you speak for yourself. Please say a few things about yourself, as far as you "
    "like; they take the place of the description that other participants have."
)


def self_description_address(seat: Seat) -> str:
    """Return the address of the question for a self-description."""
    # The address is outside all scopes, because all scopes of the run use the answer.
    return f"{seat.address}/self"


def describe_oneself(seat: Seat, text: str) -> Quoted:
    """Return the text of a self-description as a string with a source."""
    # The source is its row in `self_descriptions`.
    source_id = cell_id(f"{SELF_DESCRIPTIONS}.text", seat.name)
    return Quoted(text, Source("persona", source_id, seat.id))


def with_self_description(speaker: Speaker, self_description: Quoted) -> Speaker:
    """Return the speaker with a self-description in place of the persona."""
    # It replaces all text that describes this speaker's persona. A prompt that was written without
    # a template contains `SELF_DESCRIPTION_PLACEHOLDER` instead. If the prompt contains neither,
    # the self-description is put at its beginning.
    find_parts = partial(_self_description_parts, speaker.id, self_description)
    return replace(speaker, system=replace_in_prompt(speaker.system, find_parts))


def _self_description_parts(
    speaker_id: str, self_description: Quoted, system: SourcedText
) -> list[Replacement]:
    persona_spans = [span for span in system.spans if _is_persona(span, speaker_id)]
    if not persona_spans:
        persona_spans = _find_placeholder(system)
    parts: list[Replacement] = []
    for start, end, *_ in sorted(persona_spans):
        # Spans may be nested, and the outer one covers the inner ones. The first one gets the
        # self-description, and all others are removed.
        if not parts or start >= parts[-1].end:
            parts.append(Replacement(start, end, "" if parts else self_description))
    return parts or [
        Replacement(0, 0, concatenate_texts(("You are ", self_description, "\n\n"), plain=None))
    ]


def _find_placeholder(system: SourcedText) -> list[Span]:
    # An f-string loses the source of the placeholder. A prompt may hold the same word elsewhere, so
    # the first place counts. A text with another source, such as material, is no placeholder.
    known = [span for span in system.spans if span.source != UNKNOWN]
    places = re.finditer(rf"\b{re.escape(SELF_DESCRIPTION_PLACEHOLDER)}", system)
    source = SELF_DESCRIPTION_PLACEHOLDER.source
    free_spans = (
        Span(*place.span(), source)
        for place in places
        if all(place.end() <= span.start or span.end <= place.start() for span in known)
    )
    return [*itertools.islice(free_spans, 1)]


def _is_persona(span: Span, speaker: str) -> bool:
    return span.source == SELF_DESCRIPTION_PLACEHOLDER.source or span.source[::2] == (
        "persona",
        speaker,
    )


def _expand_shorthand(given: object) -> object:
    # The short forms are `seats: 3`, `seats: [p_0003]` and `seats: open`.

    # `True` is an integer in Python, but `seats: true` is a mistake that pydantic should report.
    if isinstance(given, bool) or given is None:
        return given
    if isinstance(given, int):
        return {"count": given}
    if given == OPEN:
        return {"open": True}
    if isinstance(given, str):
        return {"ids": (given,)}
    if isinstance(given, (list, tuple)):
        return {"ids": tuple(given)}
    # YAML has lists only, but the fields are tuples.
    if isinstance(given, dict):
        return {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }
    return given


_GivenSeats = SeatSettings | Annotated[int, Field(ge=1)] | Word | list[str] | None
SeatSettingsField = Annotated[
    SeatSettings | None, BeforeValidator(_expand_shorthand, json_schema_input_type=_GivenSeats)
]


def select_seats(seats: SeatSettings, available: Sequence[Seat], seed: int) -> tuple[Seat, ...]:
    """Return the seats that humans take, in the order of the study.

    Raises InputError if a name does not fit exactly one seat, or if too few seats are open.
    """
    # If `available` is empty, the study type does not list its participants. Then every name is
    # accepted.
    if seats.ids:
        seats_or_problems = [_find_seat(name, available) for name in dict.fromkeys(seats.ids)]
        problems = [
            seat_or_problem
            for seat_or_problem in seats_or_problems
            if isinstance(seat_or_problem, Problem)
        ]
        if problems:
            raise InputError(problems)
        named = [
            seat_or_problem
            for seat_or_problem in seats_or_problems
            if isinstance(seat_or_problem, Seat)
        ]
        return tuple(sorted(named, key=available.index) if available else named)
    if not available:
        raise InputError(
            Problem(
                "this study type does not list its participants, so no seat can be drawn",
                key="seats",
                hint="name participants, e.g. --seat p_0003",
            )
        )
    matching = [
        seat
        for seat in available
        if seats.role in (None, seat.role) and seats.condition in (None, seat.condition)
    ]
    open_seats = [seat for seat in matching if not seat.closed_reason]
    if not open_seats or len(open_seats) < (seats.count or 1):
        raise InputError(_too_few_seats_error(seats, available, matching, open_seats))
    seat_count = seats.count or len(open_seats)
    # A random stream for this purpose alone, so that seats do not change any other draw.
    order = generator(seed, ("seats",)).permutation(len(open_seats))[:seat_count]
    return tuple(open_seats[index] for index in sorted(order))


def entry_order(seats: Sequence[Seat], seed: int) -> list[Seat]:
    """Return the seats in the order in which arriving people get them."""
    # One group is filled before the next group begins, so that humans meet humans. Groups are in
    # random order within their condition, and the conditions alternate in random order (permuted
    # blocks). So the time of arrival does not decide the condition. The seats of a group are in
    # random order.
    rng = generator(seed, ("seats", "entry"))
    groups: dict[str, list[Seat]] = {}
    for seat in seats:
        groups.setdefault(seat.group, []).append(seat)
    waiting: dict[str, list[list[Seat]]] = {}
    for number in rng.permutation(len(groups)):
        members = list(groups.values())[number]
        waiting.setdefault(members[0].condition, []).append(members)
    order: list[Seat] = []
    while waiting:
        conditions = sorted(waiting)
        for position in rng.permutation(len(conditions)):
            members = waiting[conditions[position]].pop()
            order += [members[index] for index in rng.permutation(len(members))]
        waiting = {name: groups_left for name, groups_left in waiting.items() if groups_left}
    return order


def _find_seat(name: str, seats: Sequence[Seat]) -> Seat | Problem:
    if not seats:
        *scopes, participant_id = name.split("/")
        return Seat(participant_id, tuple(scopes))
    found = [seat for seat in seats if name in (seat.name, seat.id)]
    if not found:
        hint = did_you_mean(name, [seat.name for seat in seats], _list_seats(seats))
        return Problem(f"there is no participant {name!r}", key="seats", hint=hint)
    if len(found) > 1:
        problem = f"{name} is a participant of {len(found)} sessions"
        return Problem(problem, key="seats", hint=f"name one: {_list_seats(found)}")
    if found[0].closed_reason:
        return Problem(
            f"a human cannot take the seat {found[0].name}: {found[0].closed_reason}", key="seats"
        )
    return found[0]


def _too_few_seats_error(
    seats: SeatSettings,
    available: Sequence[Seat],
    matching: Sequence[Seat],
    open_seats: Sequence[Seat],
) -> Problem:
    # The most specific reason comes first: a wrong role, a wrong condition, only closed seats.
    for field_name, given in (("role", seats.role), ("condition", seats.condition)):
        known = sorted({str(getattr(seat, field_name)) for seat in available})
        if given is not None and given not in known:
            hint = did_you_mean(given, known, f"known: {', '.join(known)}")
            return Problem(
                f"no participant has the {field_name} {given!r}",
                key=f"seats.{field_name}",
                hint=hint,
            )
    if matching and not open_seats:
        return Problem(
            f"a human cannot take the seat {matching[0].name}: {matching[0].closed_reason}",
            key="seats",
        )
    return Problem(
        (
            f"{seats.count or 1} seats are requested, but only {len(open_seats)} can be taken "
            "by humans"
        ),
        key="seats.count" if seats.count else "seats",
        hint="lower the number, or leave out role or condition",
    )


def _list_seats(seats: Sequence[Seat]) -> str:
    names = [seat.name for seat in seats]
    rest = f" … {names[-1]}" if len(names) > MAX_LISTED_SEATS else ""
    return ", ".join(names[:MAX_LISTED_SEATS]) + rest
