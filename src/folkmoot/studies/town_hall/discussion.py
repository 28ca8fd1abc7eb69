"""One discussion as immutable data: what is fixed before its first call and what happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from folkmoot.conversation.answers import Repair
from folkmoot.studies.town_hall.answers import (
    MINIMAL_CLOSING,
    Closing,
    Moderation,
    Reflection,
    Turn,
)
from folkmoot.studies.town_hall.ballots import Ballot, Item, Satisfaction
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.levels import Level, deal
from folkmoot.studies.town_hall.participants import (
    Resident,
    ResidentSet,
    shuffled,
    with_stories,
)


@dataclass(frozen=True)
class Meeting:
    """One discussion before it starts. `seats`: resident id → model, None for the run's own.

    `residents` bear the labels by which they are listed and counted (vulnerable or not, and what
    of); `people` are who they are, and differ from them only where labels are shuffled.
    """

    id: str
    set: ResidentSet
    level: Level
    seats: Mapping[str, str | None]
    config: TownHallConfig
    people: tuple[Resident, ...]
    residents: tuple[Resident, ...]
    orders: tuple[tuple[str, ...], ...]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents)

    @cached_property
    def vulnerable(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents if r.is_vulnerable)

    @cached_property
    def general(self) -> tuple[str, ...]:
        return tuple(r.id for r in self.residents if not r.is_vulnerable)

    @property
    def topic(self) -> dict[str, str]:
        topic = self.config.topic
        return {"title": topic.title.strip(), "background": topic.background.strip()}

    @property
    def rounds(self) -> int:
        return self.config.rounds

    @property
    def one_model(self) -> str | None:
        """The model of a shared session; None for the run's own."""
        return self.level.models[0] if self.level.models else None

    @cached_property
    def names(self) -> dict[str, str]:
        return {r.id: r.name for r in self.residents}

    def concerning(self, resident: Resident, said: Mapping[str, Any]) -> list[Any]:
        """What the topic says of a resident: for all, by ownership, vulnerable type, label."""
        keys = ("all", resident.ownership, resident.vulnerable_type or "", resident.label)
        return [said[k] for k in keys if k in said]

    def statements(self, round_: Round, *, but: str = "") -> list[dict[str, str]]:
        """What was said in a round, in its order of speaking, without one resident's and the
        silent."""
        turns = [(i, one_line(round_.turns[i].speaking.full_statement)) for i in round_.order]
        return self.lines((i, words) for i, words in turns if i != but)

    def history(self, rounds: Sequence[Round], *, but: str = "") -> list[dict[str, Any]]:
        """All that was said in public, round by round."""
        return [
            {
                "round": r.number,
                "statements": self.statements(r, but=but),
                "moderator": one_line(r.moderation.spoken) if r.moderation else "",
            }
            for r in rounds
        ]

    def remembered(self, rounds: Sequence[Round]) -> Sequence[Round]:
        """The rounds that residents still have before them; the same at every level."""
        return rounds if self.config.history == "all" else rounds[-1:]

    def questions(
        self, rounds: Sequence[Round], *asked: str, but: str = ""
    ) -> list[dict[str, str]]:
        """Questions that were put to any of `asked`, without one resident's own."""
        return [
            self._line(i, one_line(q.content)) | {"target": q.target}
            for r in rounds
            for i in r.order
            for q in r.turns[i].speaking.questions
            if q.target in asked and i != but
        ]

    def lines(self, said: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
        """Who said what, without the silent, as prompts list it."""
        return [self._line(i, words) for i, words in said if words]

    def _line(self, resident: str, text: str) -> dict[str, str]:
        return {"id": resident, "name": self.names[resident], "text": text}


def make_meeting(config: TownHallConfig, of: ResidentSet, level: Level, seed: int) -> Meeting:
    """The meeting of one set at one level."""
    people, orders = of.residents, of.orders
    general = [r.id for r in people if not r.is_vulnerable]
    vulnerable = [r.id for r in people if r.is_vulnerable]
    seats = deal(level.models, general, vulnerable, seed, of.number)
    if not level.vulnerable:
        instead = dict(zip(vulnerable, of.stand_ins, strict=True))
        people = tuple(instead.get(p.id, p) for p in people)
        orders = tuple(tuple(instead[i].id if i in instead else i for i in o) for o in orders)
        seats = {instead[i].id if i in instead else i: model for i, model in seats.items()}
    if level.stories != "vulnerable":
        people = with_stories(people, level.stories, seed, of.number)
    residents = shuffled(people, seed, of.number) if level.labels == "shuffled" else people
    name = f"set{of.number:02d}_lv{level.name}"
    return Meeting(name, of, level, seats, config, people, residents, orders)


@dataclass(frozen=True, slots=True)
class Call:
    """One answer of one seat, or of the shared session: for quality counts and logs.

    `residents` are those whose words it holds. `rung` is the step of the ladder at which it was
    read, `minimal` counts the residents for whom the minimal structure stands. `at` is seconds
    since the epoch; times, tokens and cost are as journaled, so a replay gives the same.
    """

    stage: str
    round: int | None
    agent: str
    residents: tuple[str, ...]
    question: str
    response: str
    rung: str
    reasks: int = 0
    missing: str = ""
    minimal: int = 0
    mends: tuple[Repair, ...] = ()
    memory_length: int = 0
    model: str = ""
    at: float | None = None
    latency_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `order` is the order in which statements are listed to those who hear them."""

    number: int
    order: tuple[str, ...]
    turns: Mapping[str, Turn]
    moderation: Moderation | None = None
    reflections: Mapping[str, Reflection] = field(default_factory=dict)
    parts: int = 0  # calls that a shared session took for this round; 0 for separate ones


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an item came out. A tie fails; votes that could not be read are counted apart."""

    item: str
    yes: int
    no: int
    uncast: int

    @property
    def passed(self) -> bool:
        return self.yes > self.no

    @property
    def tie(self) -> bool:
        return self.yes == self.no


@dataclass(frozen=True)
class Discussion:
    """A meeting as far as it has come, from the first survey to the last."""

    meeting: Meeting
    rounds: tuple[Round, ...] = ()
    items: tuple[Item, ...] = ()
    ballots: Mapping[str, Ballot] = field(default_factory=dict)
    closing: Closing = MINIMAL_CLOSING
    before: Mapping[str, Satisfaction] = field(default_factory=dict)
    after: Mapping[str, Satisfaction] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def plus(self, calls: Sequence[Call], **stage: Any) -> Discussion:
        """The same with one stage more."""
        return replace(self, calls=(*self.calls, *calls), **stage)

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How each item came out: the majority decides, a tie fails."""
        found = []
        for item in self.items:
            votes = [b.votes.get(item.id) for b in self.ballots.values()]
            outcome = Outcome(item.id, votes.count("yes"), votes.count("no"), votes.count(None))
            found.append(outcome)
        return tuple(found)

    @cached_property
    def passed(self) -> frozenset[str]:
        return frozenset(o.item for o in self.outcomes if o.passed)


def own_statements(rounds: Sequence[Round], resident: str) -> list[dict[str, Any]]:
    """What one resident has said so far."""
    said = {r.number: one_line(r.turns[resident].speaking.full_statement) for r in rounds}
    return [{"round": number, "text": words} for number, words in said.items() if words]


def one_line(text: str) -> str:
    """A statement without line breaks, so that nobody's words can pass for another's line."""
    return " ".join(text.split())
