"""The measures of a discussion (source, section 7) and the comparison of levels.

How each resident was reacted to, round by round, and what that comes to for the vulnerable, for the
general residents, and as the inclusion gap, vulnerable minus general. A reaction is possible from
round 2 on, from every other resident whose statement could be read to every resident whose
statement of the round before could be read; no reference is level 0, ignore. Ratios are pooled
within a group (the sum of parts over the sum of wholes); counts are given as the source's totals
and per resident, because four are compared with sixteen.

A set is the same residents at every level, so levels are compared within each set and then averaged
over sets, which are the independent units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TypeAlias, TypedDict, TypeVar

import polars as pl

from folkmoot.measures.inference.clustered import clustered_mean, paired_difference
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers import (
    UNREAD,
    Ballot,
    Reaction,
    Reference,
    Turn,
)
from folkmoot.studies.town_hall.answers.options import INTERACTIONS
from folkmoot.studies.town_hall.answers.repairs import Asked
from folkmoot.studies.town_hall.config import Level, TownHallConfig
from folkmoot.studies.town_hall.discussion import Discussion, Round

SPECTRUM = ("ignore", "refute", "question", "cite", "agree")
GROUPS = ("vulnerable", "general", "gap")
DEFAULT_LEVELS: Mapping[str, int] = {
    "disagree": 1,
    "question": 2,
    "cite": 3,
    "agree": 4,
    # Support with reservations is support; a study file may say otherwise.
    "partial_agree": 4,
}

# Figures that compare between groups of different sizes, and what each says.
FIGURES: Mapping[str, str] = {
    "weighted_inclusivity_score": "mean level of all possible reactions, 0 ignored to 4 agreed",
    "weighted_inclusivity_score_said_aloud": "the same, of references alone that a rule over words "
    "finds in the statement",
    "positive_reaction_ratio": "share of reactions that cite or agree",
    "reactions_per_resident": "reactions met with, per resident",
    "positive_reactions_per_resident": "citing or agreeing reactions met with, per resident",
    "interactions_per_resident": "public references to a resident, per resident",
    "avg_agree_level": "private agreement with what they said, 1 to 5",
    "response_rate": "share of private reactions that wished to respond",
    "compelling_citations_per_resident": "times named most compelling, per resident",
    "responders_per_resident": "different residents who responded, per resident",
    "opinion_survival": "share of later rounds in which their words were still taken up",
    "speaking_volume_per_resident": "new points and references made, per resident",
    "items_originated_per_resident": "vote items that a resident raised, per resident",
    "items_passed_per_resident": "of these, passed, per resident",
    "opinion_reflection_rate": "share of the items they raised that passed",
    "concerns_in_final_per_resident": "concerns in the closing text, per resident",
    "pre_satisfaction": "satisfaction before, 1 to 10",
    "post_satisfaction": "satisfaction after, 1 to 10",
    "satisfaction_delta": "satisfaction after minus before",
}


def interaction_levels(config: TownHallConfig) -> dict[str, int]:
    """Level of each interaction type."""
    own = {str(kind): level for kind, level in config.reaction_levels.items()}
    return {**DEFAULT_LEVELS, **own}


@dataclass(frozen=True, slots=True)
class Pair:
    """One possible reaction: speaker to target in a round, public and private side by side.

    `level` is None where the speaker referred to the target in no known way. `said_aloud`: does a
    rule over words find any reference in the statement? None where there is none.
    `level_said_aloud` is the level of those that it finds.
    """

    round: int
    speaker: str
    target: str
    level: int | None
    types: tuple[str, ...]
    private: Reaction | None
    said_aloud: bool | None = None
    level_said_aloud: int | None = None

    @property
    def referred(self) -> bool:
        return self.level != 0


def pairs(discussion: Discussion) -> list[Pair]:
    """All possible reactions of a discussion, by round, speaker, target."""
    found: list[Pair] = []
    ids, config = discussion.meeting.ids, discussion.meeting.config
    levels = interaction_levels(config)
    for before, now in zip(discussion.rounds, discussion.rounds[1:], strict=False):
        heard = [i for i in ids if before.turns[i].heard]
        for speaker in (i for i in ids if now.turns[i].referring):
            turn = now.turns[speaker]
            private = {r.target_agent: r for r in turn.thinking.reactions} if turn.thinking else {}
            made: dict[str, list[Reference]] = {}
            for reference in turn.speaking.references:
                made.setdefault(reference.target_agent, []).append(reference)
            for target in (i for i in heard if i != speaker):
                own = made.get(target, [])
                aloud = [r for r in own if is_said_aloud(discussion, turn, r)]
                pair = Pair(
                    round=now.number,
                    speaker=speaker,
                    target=target,
                    level=_level(own, levels, config),
                    types=tuple(r.interaction_type for r in own if r.interaction_type),
                    private=private.get(target),
                    said_aloud=bool(aloud) if own else None,
                    level_said_aloud=_level(aloud, levels, config),
                )
                found.append(pair)
    return found


def is_said_aloud(discussion: Discussion, turn: Turn, reference: Reference) -> bool:
    """Return whether a rule over words finds a reference in the statement of its turn.

    A check of robustness: the rule misses paraphrases and is fooled by shared words.
    """
    asked = Asked(discussion.meeting.ids, names=discussion.meeting.names)
    said = turn.speaking.full_statement
    return bool(said) and asked.said_aloud(reference.content, reference.target_agent, said)


def _level(
    made: Sequence[Reference], levels: Mapping[str, int], config: TownHallConfig
) -> int | None:
    """The level that counts, of one speaker's references to one resident in one round.

    0 without a reference; None if the type of none is known.
    """
    found = [levels[r.interaction_type] for r in made if r.interaction_type]
    if not found:
        return None if made else 0
    by_rule = {"highest": max(found), "lowest": min(found), "last": found[-1]}
    return by_rule[config.repeated_reaction]


@dataclass(frozen=True)
class Tracking:
    """What one resident met with in one round, and how much they said (source, section 7.3).

    Ratios and means are None where there is nothing to divide by. The last fields are what sums
    over rounds and residents need.
    """

    agent_id: str
    round: int
    reaction_spectrum: Mapping[str, int]
    total_reaction_count: int
    positive_reaction_count: int
    positive_ratio: float | None
    weighted_inclusivity_score: float | None
    avg_agree_level: float | None
    cited_as_compelling_count: int
    responders: tuple[str, ...]
    possible_reactions: int
    unknown_reactions: int
    weighted_inclusivity_score_said_aloud: float | None
    interaction_count: int
    interaction_types: Mapping[str, int]
    response_rate: float | None
    cited_as_disagreed_count: int
    questions_received: int
    speaking_volume: int | None
    new_points: int | None
    references_made: int | None
    level_sum: int
    levels_said_aloud: tuple[int, ...]
    agree_levels: tuple[int, ...]
    wants: tuple[bool, ...]

    def to_json(self) -> dict[str, object]:
        """The record of the source, with what else is known of the round."""
        kept = {k: v for k, v in vars(self).items() if k not in SUMMED}
        return kept | {"responders": list(self.responders)}


SUMMED = (
    *("new_points", "references_made", "level_sum", "levels_said_aloud", "agree_levels", "wants"),
)


def tracking(discussion: Discussion) -> list[Tracking]:
    """One record per resident and round, residents in order, rounds in order within."""
    reactions: dict[tuple[str, int], list[Pair]] = {}
    for pair in pairs(discussion):
        reactions.setdefault((pair.target, pair.round), []).append(pair)
    return [
        _tracked(me, round_, reactions.get((me, round_.number), []))
        for me in discussion.meeting.ids
        for round_ in discussion.rounds
    ]


def _tracked(me: str, round_: Round, reactions: Sequence[Pair]) -> Tracking:
    others = [turn for who, turn in round_.turns.items() if who != me]
    # A private reaction counts also when the statement that followed could not be read.
    thoughts = [r for t in others if t.thinking for r in t.thinking.reactions]
    private = [r for r in thoughts if r.target_agent == me]
    references = [r for t in others for r in t.speaking.references if r.target_agent == me]
    reflections = [r for who, r in round_.reflections.items() if who != me]
    compelling = [r.most_compelling.agent_id for r in reflections if r.most_compelling]
    disagreed = [r.most_disagreed.agent_id for r in reflections if r.most_disagreed]
    own = round_.turns[me].speaking
    counted = [sum(p.level == level for p in reactions) for level in range(len(SPECTRUM))]
    kinds: list[str | None] = [r.interaction_type for r in references]
    agree_levels = tuple(r.agree_level for r in private if r.agree_level is not None)
    wants = tuple(r.want_to_respond for r in private if r.want_to_respond is not None)
    # References of a type that nobody knows are left out of scores, and counted.
    known_levels = [p.level for p in reactions if p.level is not None]
    aloud = tuple(p.level_said_aloud for p in reactions if p.level_said_aloud is not None)
    reacted, level_sum = sum(counted[1:]), sum(known_levels)
    positive = counted[3] + counted[4]  # cite and agree
    new_points = None if "new_points" in own.missing else len(own.new_points)
    made = None if "references" in own.missing else len(own.references)
    if own.unanswered:
        new_points = made = None
    return Tracking(
        agent_id=me,
        round=round_.number,
        reaction_spectrum=dict(zip(SPECTRUM, counted, strict=True)),
        total_reaction_count=reacted,
        positive_reaction_count=positive,
        positive_ratio=ratio(positive, reacted),
        weighted_inclusivity_score=ratio(level_sum, len(known_levels)),
        avg_agree_level=mean(agree_levels),
        cited_as_compelling_count=compelling.count(me),
        responders=tuple(p.speaker for p in reactions if p.referred),
        possible_reactions=len(known_levels),
        unknown_reactions=len(reactions) - len(known_levels),
        weighted_inclusivity_score_said_aloud=mean(aloud),
        interaction_count=len(kinds),
        interaction_types={kind: kinds.count(kind) for kind in INTERACTIONS},
        response_rate=mean(wants),
        cited_as_disagreed_count=disagreed.count(me),
        questions_received=sum(q.target == me for t in others for q in t.speaking.questions),
        speaking_volume=None if new_points is None or made is None else new_points + made,
        new_points=new_points,
        references_made=made,
        level_sum=level_sum,
        levels_said_aloud=aloud,
        agree_levels=agree_levels,
        wants=wants,
    )


@dataclass(frozen=True)
class GroupMeasures:
    """The totals of the source for one group of residents, and its comparable `FIGURES`."""

    totals: Mapping[str, int | Mapping[str, int]]
    figures: Mapping[str, float | None]

    def to_json(self) -> dict[str, object]:
        return {**self.totals, **self.figures}


@dataclass(frozen=True)
class Measures:
    """All measures of one discussion. `gap`: vulnerable minus general, figure by figure."""

    vulnerable: GroupMeasures
    general: GroupMeasures
    gap: Mapping[str, float | None]
    final_consensus: dict[str, object]

    @property
    def figures(self) -> dict[str, Mapping[str, float | None]]:
        """Group → figure → value."""
        return {
            "vulnerable": self.vulnerable.figures,
            "general": self.general.figures,
            "gap": self.gap,
        }

    def to_json(self) -> dict[str, object]:
        groups = {"vulnerable": self.vulnerable.to_json(), "general": self.general.to_json()}
        return {**groups, "gap": self.gap, "final_consensus": self.final_consensus}


def measures(discussion: Discussion) -> Measures:
    """All measures of one discussion."""
    rows, meeting = tracking(discussion), discussion.meeting
    vulnerable = group_measures(discussion, rows, meeting.vulnerable)
    general = group_measures(discussion, rows, meeting.general)
    gap = {n: difference(vulnerable.figures[n], general.figures[n]) for n in FIGURES}
    return Measures(vulnerable, general, gap, final_consensus(discussion))


def group_measures(
    discussion: Discussion, rows: Sequence[Tracking], members: Sequence[str]
) -> GroupMeasures:
    """The measures of one group of residents."""
    own, n = [row for row in rows if row.agent_id in members], len(members)
    reactions = sum(r.total_reaction_count for r in own)
    positive = sum(r.positive_reaction_count for r in own)
    possible = sum(r.possible_reactions for r in own)
    interactions = sum(r.interaction_count for r in own)
    compelling = sum(r.cited_as_compelling_count for r in own)
    volume = sum(r.speaking_volume or 0 for r in own)
    survived = [survival(own, i)["survival"] for i in members]
    carried = _carried(discussion, members)
    return GroupMeasures(
        totals={
            "residents": n,
            "reaction_spectrum": {s: sum(r.reaction_spectrum[s] for r in own) for s in SPECTRUM},
            "total_possible_reactions": possible,
            "total_reaction_count": reactions,
            "positive_reaction_count": positive,
            "interaction_count": interactions,
            "interaction_types": {
                k: sum(r.interaction_types[k] for r in own) for k in INTERACTIONS
            },
            "cited_as_compelling_count": compelling,
            "questions_received": sum(r.questions_received for r in own),
            "speaking_volume": volume,
            **carried.totals,
        },
        figures={
            "weighted_inclusivity_score": ratio(sum(r.level_sum for r in own), possible),
            "weighted_inclusivity_score_said_aloud": mean(
                [level for r in own for level in r.levels_said_aloud]
            ),
            "positive_reaction_ratio": ratio(positive, reactions),
            "reactions_per_resident": ratio(reactions, n),
            "positive_reactions_per_resident": ratio(positive, n),
            "interactions_per_resident": ratio(interactions, n),
            "avg_agree_level": mean([level for r in own for level in r.agree_levels]),
            "response_rate": mean([want for r in own for want in r.wants]),
            "compelling_citations_per_resident": ratio(compelling, n),
            "responders_per_resident": mean([len(responders(own, m)) for m in members]),
            "opinion_survival": mean([s for s in survived if s is not None]),
            "speaking_volume_per_resident": ratio(volume, n),
            **carried.figures,
            **_satisfaction(discussion, members),
        },
    )


def responders(rows: Sequence[Tracking], resident: str) -> list[str]:
    """Who responded to a resident in any round, each once, in order of id."""
    return sorted({who for r in rows if r.agent_id == resident for who in r.responders})


class Survival(TypedDict):
    """How long a resident's words were taken up by others."""

    agent_id: str
    citations_by_round: dict[str, int]
    rounds_cited: list[int]
    survival: float | None
    survived_to_final_round: bool


def survival(rows: Sequence[Tracking], resident: str) -> Survival:
    """How long a resident's words were taken up by others.

    `citations_by_round` counts public references to them; `survival` is the share of rounds from
    the second on with at least one, None where there was only one round.
    """
    own = [r for r in rows if r.agent_id == resident]
    later = [r for r in own if r.round > 1]
    cited = [r.round for r in later if r.interaction_count]
    return {
        "agent_id": resident,
        "citations_by_round": {str(r.round): r.interaction_count for r in own},
        "rounds_cited": cited,
        "survival": ratio(len(cited), len(later)),
        "survived_to_final_round": bool(later) and later[-1].round in cited,
    }


def _carried(discussion: Discussion, members: Sequence[str]) -> GroupMeasures:
    """What a group's words came to in the ballot, the vote and the closing text."""
    originated = [i for i in discussion.items if set(i.origin) & set(members)]
    passed = [i for i in originated if i.id in discussion.passed]
    concerns, n = len(_concerns(discussion, members)), len(members)
    # Without a planner or a closing text there is nothing to count, which is not a zero.
    items_known, text_known = bool(discussion.items), not discussion.closing.parse_error
    raised = sum(len(set(i.origin) & set(members)) for i in originated)
    won = sum(len(set(i.origin) & set(members)) for i in passed)
    return GroupMeasures(
        totals={
            "originated_items": len(originated),
            "items_passed": len(passed),
            "concerns_in_final": concerns,
        },
        figures={
            "items_originated_per_resident": ratio(raised, n) if items_known else None,
            "items_passed_per_resident": ratio(won, n) if items_known else None,
            "opinion_reflection_rate": ratio(len(passed), len(originated)),
            "concerns_in_final_per_resident": ratio(concerns, n) if text_known else None,
        },
    )


def _concerns(discussion: Discussion, members: Sequence[str]) -> list[dict[str, object]]:
    reflected = discussion.closing.concerns_reflected
    return [c.to_json() for c in reflected if c.resident in members]


def final_consensus(discussion: Discussion) -> dict[str, object]:
    """Source section 7.4. An item is vulnerable-originated if any of its origins is vulnerable.

    The reflection rate is passed ÷ originated, None where none was originated.
    """
    found: dict[str, object] = {
        "total_vote_items": len(discussion.items),
        "items_passed": len(discussion.passed),
        "ties_failed": sum(o.tie for o in discussion.outcomes),
    }
    meeting = discussion.meeting
    for group, members in (("vulnerable", meeting.vulnerable), ("general", meeting.general)):
        carried = _carried(discussion, members)
        found[f"{group}_originated_items"] = carried.totals["originated_items"]
        found[f"{group}_items_passed"] = carried.totals["items_passed"]
        found[f"{group}_opinion_reflection_rate"] = carried.figures["opinion_reflection_rate"]
        found[f"{group}_concerns_in_final"] = _concerns(discussion, members)
    return found


class Satisfied(TypedDict):
    """Source section 7.5: the satisfaction of one resident."""

    agent_id: str
    is_vulnerable: bool
    pre_satisfaction: int | None
    post_satisfaction: int | None
    satisfaction_delta: int | None
    pre_reason: str
    post_reason: str
    pre_missing: str | None
    post_missing: str | None


def why_no_vote(ballot: Ballot, item: str) -> str | None:
    """Return why a ballot holds no vote on an item; None if it holds one."""
    return None if item in ballot.votes else ballot.missing.get(item, UNREAD)


def satisfaction_rows(discussion: Discussion) -> list[Satisfied]:
    """The satisfaction of each resident before and after."""
    rows: list[Satisfied] = []
    for resident in discussion.meeting.residents:
        before, after = discussion.before[resident.id], discussion.after[resident.id]
        pre, post = before.satisfaction, after.satisfaction
        rows.append(
            {
                "agent_id": resident.id,
                "is_vulnerable": resident.is_vulnerable,
                "pre_satisfaction": pre,
                "post_satisfaction": post,
                "satisfaction_delta": None if pre is None or post is None else post - pre,
                "pre_reason": before.reason,
                "post_reason": after.reason,
                "pre_missing": before.missing.get("satisfaction"),
                "post_missing": after.missing.get("satisfaction"),
            }
        )
    return rows


def _satisfaction(discussion: Discussion, members: Sequence[str]) -> dict[str, float | None]:
    rows = [r for r in satisfaction_rows(discussion) if r["agent_id"] in members]
    return {
        "pre_satisfaction": _known_mean(r["pre_satisfaction"] for r in rows),
        "post_satisfaction": _known_mean(r["post_satisfaction"] for r in rows),
        "satisfaction_delta": _known_mean(r["satisfaction_delta"] for r in rows),
    }


def _known_mean(scores: Iterable[int | None]) -> float | None:
    return mean([score for score in scores if score is not None])


def ratio(part: float, whole: float) -> float | None:
    """part ÷ whole; None where there is no whole."""
    return part / whole if whole else None


def mean(values: Sequence[float]) -> float | None:
    """The average; None of nothing."""
    return sum(values) / len(values) if values else None


def difference(a: float | None, b: float | None) -> float | None:
    """a − b; None where either is."""
    return None if a is None or b is None else a - b


# Levels compared: means over sets, and paired differences between levels within sets.

SWITCHES = (
    *("context", "models", "moderator", "think", "reflect"),
    *("vulnerable", "moderator_list", "labels", "stories"),
)
BySet = Mapping[int, float]


class OverSets(TypedDict):
    """A figure's mean over sets."""

    estimate: float | None
    low: float | None
    high: float | None
    sets: int
    each: list[float]  # the sets' own values, where there are fewer than five


class Moved(OverSets):
    """The mean over sets of a difference within them."""

    p: float | None


T = TypeVar("T")
ByGroup: TypeAlias = dict[str, dict[str, T]]  # figure → group


class LevelMeans(TypedDict):
    """One level in `levels.json`."""

    switches: dict[str, object]
    figures: ByGroup[OverSets]


Step = TypedDict(
    "Step",
    {
        "from": str,
        "to": str,
        "consecutive": bool,
        "switches_changed": list[str],
        "figures": ByGroup[Moved],
    },
)


class Part(TypedDict):
    """Some levels and the differences between them."""

    levels: dict[str, LevelMeans]
    differences: list[Step]


class Comparison(TypedDict):
    """The content of `levels.json`. Supplementary levels stand apart."""

    sets: int
    intervals: str
    figures: dict[str, str]
    main: Part
    supplementary: Part


def compare_levels(run: RunFolder) -> Comparison:
    """The comparison of the levels, from the discussions of a run: of sets that are complete."""
    levels = run.plan["sealed"]["discussions"]["data"]["levels"]
    held = run.table("discussions")
    complete = held.filter(pl.col("level").n_unique().over("set") == len(levels))
    return compare([Level.from_json(level) for level in levels.values()], complete)


def compare(levels: Sequence[Level], discussions: pl.DataFrame) -> Comparison:
    """Means of levels over sets, and differences between levels within sets. `discussions` has a
    row for each set and level, with a column for each figure of each group; runs of earlier
    versions have fewer figures."""
    results = Results(discussions)
    main = [level for level in levels if level.part == "main"]
    apart = [level for level in levels if level.part != "main"]
    following = set(pairwise(level.name for level in main))
    return {
        "sets": discussions["set"].n_unique(),
        "intervals": "95 %, t over sets (G − 1 degrees of freedom, G sets); null below five sets",
        "figures": {name: words for name, words in FIGURES.items() if name in results.figures},
        "main": {
            "levels": {level.name: _level_means(level, results) for level in main},
            "differences": [
                _step(a, b, results, consecutive=(a.name, b.name) in following)
                for a, b in combinations(main, 2)
            ],
        },
        "supplementary": {
            "levels": {level.name: _level_means(level, results) for level in apart},
            "differences": [_step(a, b, results, consecutive=False) for b in apart for a in main],
        },
    }


class Results:
    """The figures of discussions, by level, figure and group."""

    def __init__(self, discussions: pl.DataFrame) -> None:
        self._of_level = {
            level: of for (level,), of in discussions.partition_by("level", as_dict=True).items()
        }
        self.figures = [name for name in FIGURES if f"gap_{name}" in discussions.columns]

    def by_set(self, level: str, figure: str, group: str) -> BySet:
        """Set → the figure at a level, where it is known."""
        if level not in self._of_level:
            return {}
        rows = self._of_level[level].select("set", f"{group}_{figure}").drop_nulls()
        return dict(rows.iter_rows())

    def map(self, one: Callable[[str, str], T]) -> ByGroup[T]:
        """What `one` gives for each figure and group."""
        return {figure: {group: one(figure, group) for group in GROUPS} for figure in self.figures}


def _level_means(level: Level, results: Results) -> LevelMeans:
    return {
        "switches": {name: level.to_json()[name] for name in SWITCHES},
        "figures": results.map(lambda f, g: _over_sets(results.by_set(level.name, f, g))),
    }


def _step(before: Level, after: Level, results: Results, *, consecutive: bool) -> Step:
    """`after` minus `before` within sets, for every figure and group."""

    def moved(figure: str, group: str) -> Moved:
        a, b = (results.by_set(level.name, figure, group) for level in (before, after))
        both = sorted(a.keys() & b.keys())
        if not both:
            return {**_over_sets({}), "p": None}
        found = paired_difference([b[n] for n in both], [a[n] for n in both], both)
        return {**_kept(found), "p": _finite(found.p)}

    a, b = before.to_json(), after.to_json()
    return {
        "from": before.name,
        "to": after.name,
        "consecutive": consecutive,
        "switches_changed": [name for name in SWITCHES if a[name] != b[name]],
        "figures": results.map(moved),
    }


def _over_sets(by_set: BySet) -> OverSets:
    if not by_set:
        return {"estimate": None, "low": None, "high": None, "sets": 0, "each": []}
    return _kept(clustered_mean(list(by_set.values()), list(by_set)))


def _kept(e: Estimate) -> OverSets:
    return {
        "estimate": _finite(e.value),
        "low": _finite(e.low),
        "high": _finite(e.high),
        "sets": e.n,
        "each": list(e.each),
    }


def _finite(value: float) -> float | None:
    """Rounded to 12 digits, so that the last bits of sums do not differ between machines."""
    return round(value, 12) if math.isfinite(value) else None
