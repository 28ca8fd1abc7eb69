"""How each resident was reacted to, round by round: the five-level reaction spectrum and what hangs
on it (source, section 7.1–7.3). Computed for all residents, so that the general ones stand beside.

A reaction is possible from round 2 on, from every other resident whose statement could be read to
every resident whose statement of the round before could be read; no reference is level 0, ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from folkmoot.studies.town_hall.cognition import INTERACTIONS, Reaction
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.records import Discussion, Round

SPECTRUM = ("ignore", "refute", "question", "cite", "agree")
POSITIVE = 3  # cite and agree
DEFAULT_LEVELS: Mapping[str, int] = {
    "disagree": 1,
    "question": 2,
    "cite": 3,
    "agree": 4,
    # Support with reservations is support; a study file may say otherwise.
    "partial_agree": 4,
}
Repeated = Literal["highest", "lowest", "last"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Level of each interaction type, and which counts when one statement has several."""

    levels: Mapping[str, int]
    repeated: Repeated = "highest"

    @classmethod
    def of(cls, config: TownHallConfig) -> Scale:
        own = {str(kind): level for kind, level in config.reaction_levels.items()}
        return cls({**DEFAULT_LEVELS, **own}, config.repeated_reaction)

    def level(self, types: Sequence[str]) -> int:
        """0–4 for the references of one speaker to one resident in one round."""
        found = [self.levels[t] for t in types]
        if not found:
            return 0
        return {"highest": max(found), "lowest": min(found), "last": found[-1]}[self.repeated]


@dataclass(frozen=True, slots=True)
class Pair:
    """One possible reaction: speaker to target in a round, public and private side by side."""

    round: int
    speaker: str
    target: str
    level: int
    types: tuple[str, ...]
    private: Reaction | None

    def to_row(self) -> dict[str, Any]:
        private = self.private
        return {
            "round": self.round,
            "speaker": self.speaker,
            "target": self.target,
            "reaction_level": self.level,
            "reaction": SPECTRUM[self.level],
            "interaction_types": "|".join(self.types),
            "agree_level": private.agree_level if private else None,
            "my_feeling": private.my_feeling if private else None,
            "want_to_respond": private.want_to_respond if private else None,
        }


def pairs(discussion: Discussion, scale: Scale) -> list[Pair]:
    """All possible reactions of a discussion, by round, speaker, target."""
    found: list[Pair] = []
    for before, now in zip(discussion.rounds, discussion.rounds[1:], strict=False):
        heard = [r.id for r in discussion.residents if before.turns[r.id].heard]
        for speaker in discussion.residents:
            if now.turns[speaker.id].heard:
                found.extend(_pairs_of(now, speaker.id, heard, scale))
    return found


def _pairs_of(now: Round, speaker: str, heard: Sequence[str], scale: Scale) -> list[Pair]:
    turn = now.turns[speaker]
    reactions = turn.thinking.reactions if turn.thinking else ()
    private = {reaction.target_agent: reaction for reaction in reactions}
    found = []
    for target in heard:
        if target == speaker:
            continue
        references = turn.speaking.references
        types = tuple(r.interaction_type for r in references if r.target_agent == target)
        found.append(
            Pair(now.number, speaker, target, scale.level(types), types, private.get(target))
        )
    return found


@dataclass(frozen=True)
class Tracking:
    """What one resident met with in one round, and how much they said.

    `possible` counts possible reactions; ratios are None where there is nothing to divide by.
    """

    agent_id: str
    round: int
    spectrum: Mapping[str, int]
    possible: int
    score_sum: int
    interactions: Mapping[str, int]
    agree_levels: tuple[int, ...]
    wants: tuple[bool, ...]
    cited_as_compelling_count: int
    cited_as_disagreed_count: int
    responders: tuple[str, ...]
    questions_received: int
    new_points: int
    references_made: int

    @property
    def total_reaction_count(self) -> int:
        return self.possible - self.spectrum["ignore"]

    @property
    def positive_reaction_count(self) -> int:
        return self.spectrum["cite"] + self.spectrum["agree"]

    @property
    def interaction_count(self) -> int:
        return sum(self.interactions.values())

    @property
    def speaking_volume(self) -> int:
        return self.new_points + self.references_made

    def to_json(self) -> dict[str, Any]:
        """The record of source section 7.3, with what else is known of the round."""
        return {
            "agent_id": self.agent_id,
            "round": self.round,
            "reaction_spectrum": dict(self.spectrum),
            "total_reaction_count": self.total_reaction_count,
            "positive_reaction_count": self.positive_reaction_count,
            "positive_ratio": ratio(self.positive_reaction_count, self.total_reaction_count),
            "weighted_inclusivity_score": ratio(self.score_sum, self.possible),
            "avg_agree_level": mean(self.agree_levels),
            "cited_as_compelling_count": self.cited_as_compelling_count,
            "responders": list(self.responders),
            "possible_reactions": self.possible,
            "interaction_count": self.interaction_count,
            "interaction_types": dict(self.interactions),
            "response_rate": mean(self.wants),
            "cited_as_disagreed_count": self.cited_as_disagreed_count,
            "questions_received": self.questions_received,
            "speaking_volume": self.speaking_volume,
        }


def tracking(discussion: Discussion, scale: Scale) -> list[Tracking]:
    """One record per resident and round, residents in order, rounds in order within."""
    reactions: dict[tuple[str, int], list[Pair]] = {}
    for pair in pairs(discussion, scale):
        reactions.setdefault((pair.target, pair.round), []).append(pair)
    return [
        _tracked(resident.id, round_, reactions.get((resident.id, round_.number), []))
        for resident in discussion.residents
        for round_ in discussion.rounds
    ]


def _tracked(me: str, round_: Round, reactions: Sequence[Pair]) -> Tracking:
    others = [turn for turn in round_.turns.values() if turn.resident != me]
    # A private reaction counts also when the statement that followed could not be read.
    private = [
        reaction
        for turn in others
        for reaction in (turn.thinking.reactions if turn.thinking else ())
        if reaction.target_agent == me
    ]
    references = [r for t in others for r in t.speaking.references if r.target_agent == me]
    own = round_.turns[me].speaking
    reflections = [r for who, r in round_.reflections.items() if who != me]
    return Tracking(
        agent_id=me,
        round=round_.number,
        spectrum={name: sum(p.level == i for p in reactions) for i, name in enumerate(SPECTRUM)},
        possible=len(reactions),
        score_sum=sum(p.level for p in reactions),
        interactions={
            kind: sum(r.interaction_type == kind for r in references) for kind in INTERACTIONS
        },
        agree_levels=tuple(r.agree_level for r in private if r.agree_level is not None),
        wants=tuple(r.want_to_respond for r in private if r.want_to_respond is not None),
        cited_as_compelling_count=sum(
            r.most_compelling is not None and r.most_compelling.agent_id == me for r in reflections
        ),
        cited_as_disagreed_count=sum(
            r.most_disagreed is not None and r.most_disagreed.agent_id == me for r in reflections
        ),
        responders=tuple(p.speaker for p in reactions if p.types),
        questions_received=sum(q.target == me for t in others for q in t.speaking.questions),
        new_points=len(own.new_points),
        references_made=len(own.references),
    )


def ratio(part: float, whole: float) -> float | None:
    """part ÷ whole; None where there is no whole."""
    return part / whole if whole else None


def mean(values: Sequence[float]) -> float | None:
    """The average; None of nothing."""
    return sum(values) / len(values) if values else None
