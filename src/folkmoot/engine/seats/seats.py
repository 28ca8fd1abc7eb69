"""Seats: the participants whom people play. Which there are, which are taken, whose call is whose.

A study type lists its participants as `Playable`s; a study file's `seats:` or `--seat` takes some
of them. The draw depends on the seed alone and is sealed into the plan before the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from folkmoot.conversation.answer_types import pin_schema
from folkmoot.conversation.prompts import Prompt
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats.utterances import SELF_DESCRIPTIONS
from folkmoot.errors import InputError, Problem
from folkmoot.field_notes import Word, about
from folkmoot.hints import did_you_mean
from folkmoot.provenance import (
    Quoted,
    Replacement,
    Source,
    SourcedText,
    Span,
    cell,
    concatenate,
    find_exactly,
    replace_parts,
    shift_offset,
    with_sources,
)
from folkmoot.randomness import generator

SPOKEN_FOR = "participant"  # the role in which a participant's own calls are made


@dataclass(frozen=True, slots=True)
class Playable:
    """One participant of one session, whom a person could play.

    `id` is the speaker's; `scopes` are components of scope paths, one of which is in every call of
    this participant's (empty: the id is nobody else's). `closed` says why nobody can sit here: the
    protocol lets others speak for this participant.
    """

    id: str
    scopes: tuple[str, ...] = ()
    role: str = SPOKEN_FOR
    condition: str = ""
    closed: str = ""

    @property
    def name(self) -> str:
        """How a study file, `--seat` and the plan name this place."""
        return f"{self.scopes[0]}/{self.id}" if self.scopes else self.id

    def holds(self, who: Speaker, path: Sequence[str]) -> bool:
        """Whether a call to this speaker, in a scope of this path, is this participant's own."""
        own = who.id == self.id and who.role == SPOKEN_FOR
        return own and (not self.scopes or not set(self.scopes).isdisjoint(path))


class Seats(BaseModel):
    """Who is played by people, and what people are told; `seats:` of a study file."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True
    )

    ids: tuple[str, ...] = Field((), description="participants, by name")
    count: int | None = Field(None, ge=1, description="number of seats, drawn by lot", examples=[1])
    role: str | None = Field(None, description="only seats of this role")
    condition: str | None = Field(None, description="only seats of this condition")
    as_: Literal["persona", "self"] = Field(
        "persona",
        alias="as",
        description="play the description of a participant (`persona`), or speak for oneself "
        "(`self`)",
    )
    consent: str | None = Field(None, description="text that a person must agree to first")
    debriefing: str | None = Field(None, description="text shown at the end")
    completion_code: str | None = Field(None, description="code shown at the end")
    query: tuple[str, ...] = Field(
        ("PROLIFIC_PID",), description="parts of the link's query that are kept, apart from the run"
    )
    minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="time for one answer, after which it is missing",
        json_schema_extra=about(unit="minutes"),
    )
    arrive_minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="time to arrive, after which the seat is closed",
        json_schema_extra=about(unit="minutes"),
    )


class OwnCard(BaseModel):
    """What people say of themselves where they speak for themselves."""

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
    def told(self) -> str:
        """The card in words, as it stands in the place of a persona."""
        said = {k: str(v).strip() for k, v in self.model_dump(exclude={"about"}).items() if v}
        facts = "; ".join(f"{k}: {v}" for k, v in said.items())
        return " ".join(filter(None, [YOURSELF, facts and f"{facts}.", self.about.strip()]))


# What a prompt shows in place of a drawn persona where people speak for themselves. It is a persona
# without a source, until the person has said who they are.
YOURSELF = Quoted("yourself.", Source("persona", "seats.self"))

OWN_CARD = SourcedText(
    "In this study you speak for yourself. Please say a few things about yourself, as far as you "
    "like; they take the place of the description that other participants have."
)


def own_card_at(place: Playable) -> str:
    """The address at which a person is asked about themselves."""
    return f"seats/{place.name.replace('/', '.')}/self"


def describe_oneself(place: Playable, card: str) -> Quoted:
    """Return what a person says of themselves, with its row of `self_descriptions` as source."""
    id = cell(f"{SELF_DESCRIPTIONS}.text", place.name)
    return Quoted(card, Source("persona", id, place.id))


def as_oneself(who: Speaker, card: Quoted) -> Speaker:
    """Return the speaker with a self-description in place of the persona in the system prompt.

    The persona is what the prompt quotes as one of this speaker; all of it is replaced. A prompt
    that was written without a template says `YOURSELF` there. If there is neither, the description
    comes first.
    """
    system = with_sources(who.system)
    shown = [span for span in system.spans if _is_persona(span, who.id)]
    if not shown and YOURSELF in system:
        shown = find_exactly(system, [YOURSELF])
    parts: list[Replacement] = []
    for start, end, *_ in sorted(shown):
        if not parts or start >= parts[-1].end:  # not one inside another
            parts.append(Replacement(start, end, "" if parts else card))
    if not parts:
        parts = [Replacement(0, 0, concatenate(("You are ", card, "\n\n"), plain=None))]
    changed = replace_parts(system, parts)
    begins = (shift_offset(offset, parts) for offset in getattr(who.system, "begins", ()))
    return replace(who, system=Prompt(changed, changed.spans, begins))


def _is_persona(span: Span, speaker: str) -> bool:
    return span.source == YOURSELF.source or span.source[::2] == ("persona", speaker)


def _as_mapping(given: object) -> object:
    """`seats: 3` and `seats: [p_0003]` in full."""
    if isinstance(given, bool) or given is None:
        return given
    if isinstance(given, int):
        return {"count": given}
    if isinstance(given, str):
        return {"ids": (given,)}
    if isinstance(given, (list, tuple)):
        return {"ids": tuple(given)}
    if isinstance(given, dict):  # a study file knows no tuples
        return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    return given


_GivenSeats = Seats | Annotated[int, Field(ge=1)] | Word | list[str] | None
SeatsKey = Annotated[Seats | None, BeforeValidator(_as_mapping, json_schema_input_type=_GivenSeats)]


def taken(seats: Seats, places: Sequence[Playable], seed: int) -> tuple[Playable, ...]:
    """The places that people take, in the study's order.

    `places` empty: the study type does not list its participants, and names are taken as given.
    Raises InputError with a problem for each name that means no place, several, or a closed one.
    """
    if seats.ids:
        found = [_named(name, places) for name in dict.fromkeys(seats.ids)]
        problems = [f for f in found if isinstance(f, Problem)]
        if problems:
            raise InputError(problems)
        named = [f for f in found if isinstance(f, Playable)]
        return tuple(sorted(named, key=places.index) if places else named)
    if not places:
        raise InputError(
            Problem(
                "this study type does not list its participants, so no seat can be drawn",
                key="seats",
                hint="name participants, e.g. --seat p_0003",
            )
        )
    fit = [
        p for p in places if seats.role in (None, p.role) and seats.condition in (None, p.condition)
    ]
    open_ = [p for p in fit if not p.closed]
    if not open_ or len(open_) < (seats.count or 1):
        raise InputError(_too_few(seats, places, fit, open_))
    wanted = seats.count or len(open_)
    order = generator(seed, ("seats",)).permutation(len(open_))[:wanted]
    return tuple(open_[i] for i in sorted(order))


def _named(name: str, places: Sequence[Playable]) -> Playable | Problem:
    if not places:
        *within, id = name.split("/")
        return Playable(id, tuple(within))
    found = [p for p in places if name in (p.name, p.id)]
    if not found:
        likely = did_you_mean(name, [p.name for p in places], _listed(places))
        return Problem(f"there is no participant {name!r}", key="seats", hint=likely)
    if len(found) > 1:
        what = f"{name} is a participant of {len(found)} sessions"
        return Problem(what, key="seats", hint=f"name one: {_listed(found)}")
    if found[0].closed:
        return Problem(f"nobody can sit at {found[0].name}: {found[0].closed}", key="seats")
    return found[0]


def _too_few(
    seats: Seats, places: Sequence[Playable], fit: Sequence[Playable], open_: Sequence[Playable]
) -> Problem:
    for word, given in (("role", seats.role), ("condition", seats.condition)):
        known = sorted({str(getattr(p, word)) for p in places})
        if given is not None and given not in known:
            hint = did_you_mean(given, known, f"known are {', '.join(known)}")
            return Problem(
                f"no participant has the {word} {given!r}", key=f"seats.{word}", hint=hint
            )
    if fit and not open_:
        return Problem(f"nobody can sit at {fit[0].name}: {fit[0].closed}", key="seats")
    return Problem(
        f"{seats.count or 1} seats are wanted, and people can take {len(open_)}",
        key="seats.count" if seats.count else "seats",
        hint="lower the number, or leave out role or condition",
    )


def _listed(places: Sequence[Playable], most: int = 5) -> str:
    names = [p.name for p in places]
    return ", ".join(names[:most]) + (f" … {names[-1]}" if len(names) > most else "")
