"""The findings that compare the levels of a town hall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from folkmoot.kit.claims import (
    claims_chart,
    claims_finding,
    describe_claims,
)
from folkmoot.kit.findings import (
    estimate_cells,
    estimate_from_json,
    finite_or_none,
    format_change,
    format_mean_value,
    format_share,
    format_signed,
    interval_chart,
    join_clauses,
    list_values,
)
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.wording import EXPLORATORY, Sentence, join_sentences, word
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.studies.town_hall.config import (
    INCLUSION,
    Level,
)
from folkmoot.studies.town_hall.findings.reactions import INTERVALS
from folkmoot.studies.town_hall.tables import GROUPS

SCORE = "weighted_inclusivity_score"
SAID_ALOUD = "weighted_inclusivity_score_said_aloud"
SCALE = "Weighted inclusivity score, 0 (ignored) to 4 (agreed with)"
GAPS = f"{EXPLORATORY} Each interval is at 95 % by itself, clustered by set."
NOT_PEOPLE = (
    "Differences between levels are differences between ways of running models, not between people."
)
OUTCOMES = {
    "items_originated_per_resident": "items originated",
    "items_passed_per_resident": "items passed",
    "opinion_reflection_rate": "reflection rate",
    "concerns_in_final_per_resident": "concerns in the final text",
}

# A part of `levels.json` or `quality.json`.
Json = Mapping[str, Any]
# Level → its part of `levels.json`.
Levels = Mapping[str, Json]


def inclusion_finding(
    levels: Levels, results: Sequence[Result], sets: int, *, has_vulnerable: bool
) -> Finding:
    """Build the finding that states how strongly residents respond to each other at each level."""
    # The gap is the inclusivity score of vulnerable residents minus that of general residents.
    estimates_by_level = {
        level: _level_figures(summary, SCORE) | _within_level(results, INCLUSION, level)
        for level, summary in levels.items()
    }
    # Runs of earlier versions counted only references that the rule finds, and have one score.
    has_public_scores = all(SAID_ALOUD in summary["figures"] for summary in levels.values())
    public_estimates = {
        level: _level_figures(levels[level], SAID_ALOUD) if has_public_scores else {}
        for level in estimates_by_level
    }
    rows = [
        {
            "level": level,
            **_figure_values(levels[level], SCORE),
            **estimate_cells(estimates["gap"], "gap"),
            **{
                f"{group}_said_aloud": finite_or_none(estimate.value)
                for group, estimate in public_estimates[level].items()
            },
            "sets": estimates["gap"].clusters,
        }
        for level, estimates in estimates_by_level.items()
    ]
    sentences = [
        _describe_scores(level, levels[level]["switches"], estimates, has_vulnerable=has_vulnerable)
        for level, estimates in estimates_by_level.items()
    ]
    if has_public_scores:
        sentences.append(_compare_scores(estimates_by_level, public_estimates))
    # Without intervals (fewer than five sets) no reader would conclude anything from a gap.
    if any(estimates["gap"].has_interval for estimates in estimates_by_level.values()):
        sentences.append(word("description", "gaps"))
    gaps = {f"level {level}": estimates["gap"] for level, estimates in estimates_by_level.items()}
    return Finding(
        "inclusion",
        "Who is heard",
        join_sentences(sentences),
        ResultTable.from_records(rows, SCALE),
        interval_chart(gaps, "inclusion gap (vulnerable minus general)", zero=0.0),
        notes=(
            "Mean level over all possible reactions of others, from the second round on. "
            "References are those that the speakers stated.",
            "said aloud: the same score, only from references that a text rule finds in the "
            "statement. This check misses paraphrases and is misled by shared words.",
            GAPS,
        ),
        headline=True,
        unit="set",
        units=sets,
    )


def _describe_scores(
    name: str, switches: Json, estimates: Mapping[str, Estimate], *, has_vulnerable: bool
) -> Sentence:
    # The values have the digits of the gap beside them.
    level = Level.from_json({"name": name, **switches}).label
    general = format_mean_value(estimates["general"].value)
    if not (has_vulnerable and switches["vulnerable"]):
        return word("description", "no vulnerable", level=level, general=general)
    if finite_or_none(estimates["vulnerable"].value) is None:
        return word("description", "no score", level=level, general=general)
    group_text = "the vulnerable residents"
    if switches["labels"] == "shuffled":
        group_text = "the residents drawn at random as vulnerable"
    return word(
        "description",
        "gap",
        level=level,
        group=group_text,
        vulnerable=format_mean_value(estimates["vulnerable"].value),
        general=general,
        kind="placebo gap" if switches["labels"] == "shuffled" else "gap",
        gap=format_change(estimates["gap"]),
    )


def _compare_scores(
    estimates_by_level: Mapping[str, Mapping[str, Estimate]],
    public_estimates: Mapping[str, Mapping[str, Estimate]],
) -> Sentence:
    # The public score counts only references that a text rule finds in the statement.
    pairs = {
        level: (estimates_by_level[level]["gap"].value, public_estimates[level]["gap"].value)
        for level in estimates_by_level
    }
    known_pairs = {
        name: pair
        for name, pair in pairs.items()
        if finite_or_none(pair[0]) is not None and finite_or_none(pair[1]) is not None
    }
    if not known_pairs:
        return join_sentences([])
    gaps = [
        f"{format_signed(public_gap)} instead of {format_signed(score_gap)} at level {name}"
        for name, (score_gap, public_gap) in known_pairs.items()
        if format_signed(score_gap) != format_signed(public_gap)
    ]
    if not gaps:
        return word("description", "same gaps")
    reversed_levels = [
        name for name, (score_gap, public_gap) in known_pairs.items() if score_gap * public_gap < 0
    ]
    levels = "; ".join(reversed_levels)
    return join_sentences(
        [
            word("description", "other gaps", gaps="; ".join(gaps)),
            word("description", "other direction", levels=levels) if reversed_levels else None,
        ]
    )


def step_finding(
    results: Sequence[Result], differences: Sequence[Json], sets: int
) -> Finding | None:
    """Build the finding on how the inclusion gap changes between levels.

    The inclusion gap is the value for vulnerable residents minus the value for all others.

    Returns None if no levels are compared.
    """
    if not results:
        return None
    changes = [
        f"level {difference['to']} − level {difference['from']}: "
        f"{', '.join(difference['switches_changed'])}"
        for difference in differences
        if difference["consecutive"]
    ]
    return claims_finding(
        "steps",
        "What each step changes",
        results,
        axis="change of the inclusion gap",
        notes=(
            f"What changes: {join_clauses(changes)}",
            "Both levels have the same residents. Intervals are clustered by set.",
            NOT_PEOPLE,
        ),
        units=sets,
    )


def replication_finding(
    supplementary: Json, main: Levels, results: Sequence[Result], sets: int
) -> Finding:
    """Build the finding on the supplementary levels, which the main comparison excludes."""
    rows = [
        {"level": level, **_figure_values(summary, SCORE), "part": part}
        for part, levels in (("supplementary", supplementary["levels"]), ("main", main))
        for level, summary in levels.items()
    ]
    names = ", ".join(supplementary["levels"])
    available = [result for result in results if result.counts != (0, 0)]
    gaps = describe_claims(available, "Inclusion gap") if available else None
    return Finding(
        "replication",
        "Replication on another model",
        join_sentences([word("description", "apart", levels=names), gaps]),
        ResultTable.from_records(rows, "Weighted inclusivity score"),
        claims_chart(available, "difference of the inclusion gap"),
        section="Replication",
        headline=not main,
        unit="set",
        units=sets,
    )


def outcome_finding(levels: Levels, sets: int, *, has_vulnerable: bool) -> Finding:
    """Build the finding on how far ballot, votes and closing text take up residents' points."""
    rows = [
        {"figure": label, "level": level, **_figure_values(summary, name)}
        for name, label in OUTCOMES.items()
        for level, summary in levels.items()
    ]
    rates = {
        level: _level_figures(summary, "opinion_reflection_rate")
        for level, summary in levels.items()
    }
    pass_rates = {
        f"{group}, level {level}": estimates[group]
        for group in ("vulnerable", "general")
        for level, estimates in rates.items()
    }
    clauses = []
    for level, estimates in rates.items():
        passed = estimates["vulnerable"]
        raised = _level_figures(levels[level], "items_originated_per_resident")["vulnerable"]
        if finite_or_none(passed.value) is not None:
            share = format_share(passed)
        elif not (has_vulnerable and levels[level]["switches"]["vulnerable"]):
            share = "none (no vulnerable residents took part)"
        elif finite_or_none(raised.value) is None:
            share = "not known (no ballot could be read)"
        else:
            share = "none (no such item with a vote)" if raised.value else "none (no such item)"
        clauses.append(f"{share} at level {level}")
    return Finding(
        "outcome",
        "Which points enter the outcome",
        word("description", "passed items", values="; ".join(clauses)),
        ResultTable.from_records(rows, "Per resident, except for the rate; means over sets"),
        interval_chart(pass_rates, "share of the items raised that passed", percent=True),
        notes=(
            "An item that several residents raised counts for each.",
            "Reflection rate: the share of the items raised that passed. An item without a vote of "
            "yes or no has no outcome and is left out.",
            INTERVALS,
        ),
        headline=True,
        unit="set",
        units=sets,
    )


def satisfaction_finding(levels: Levels, sets: int) -> Finding:
    """Build the finding on satisfaction before and after a discussion."""
    # Means over sets, as all figures of a level. The claim on the change weighs residents alike, so
    # it differs where residents of some sets gave no answer.
    changes = {
        f"{group}, level {level}": _level_figures(summary, "satisfaction_delta")[group]
        for group in ("vulnerable", "general")
        for level, summary in levels.items()
    }
    rows = [
        {
            "level": level,
            "group": group,
            "before": _figure_values(summary, "pre_satisfaction")[group],
            "after": _figure_values(summary, "post_satisfaction")[group],
            **estimate_cells(changes[f"{group}, level {level}"], "change"),
        }
        for level, summary in levels.items()
        for group in ("vulnerable", "general")
    ]
    estimates = list_values(
        (f"level {level}", format_change(changes[f"vulnerable, level {level}"])) for level in levels
    )
    return Finding(
        "satisfaction",
        "Satisfaction before and after",
        word(
            "estimate",
            "listed of a measure",
            about="Change of the satisfaction of the vulnerable residents",
            estimates=estimates,
        ),
        ResultTable.from_records(rows, "Scale 1 to 10"),
        interval_chart(changes, "satisfaction after minus before", zero=0.0),
        notes=(
            "Means over sets of the mean in each set. Before and after: of the residents who "
            "answered then. Change: of those who answered both times.",
            GAPS,
        ),
        unit="set",
        units=sets,
    )


def all_measures_finding(levels: Levels, comparison: Json) -> Finding:
    """Build the finding that lists all figures at all levels."""
    meanings: Mapping[str, str] = comparison["figures"]
    rows = []
    for name in meanings:
        for level, summary in levels.items():
            rows.append({"figure": name, "level": level, **_figure_values(summary, name)})
    return Finding(
        "all_measures",
        "All measures",
        word("description", "all measures"),
        ResultTable.from_records(rows),
        notes=(
            "Means over sets, for reference. Gaps are differences of means, and none is tested "
            "here. “What was tested” has the claims of the study.",
            *(f"{name}: {meaning}" for name, meaning in meanings.items()),
        ),
        section="All measures",
        unit="set",
        units=comparison["sets"],
    )


def _within_level(results: Sequence[Result], measure: str, level: str) -> dict[str, Estimate]:
    # The groups are "vulnerable", "general" and "gap" (their difference). A group without data is
    # left out.
    groups: dict[object, str] = {(True,): "vulnerable", (False,): "general"}
    estimates = {}
    for result in results:
        where = dict(result.claim.where)
        if result.claim.measure == measure and where["level"] == (level,) and any(result.counts):
            group = where.get("is_vulnerable")
            estimates["gap" if group is None else groups[group]] = result.estimate
    return estimates


def _level_figures(summary: Json, figure: str) -> dict[str, Estimate]:
    return {
        group: estimate_from_json(summary["figures"][figure][group], "sets") for group in GROUPS
    }


def _figure_values(summary: Json, figure: str) -> dict[str, float | None]:
    return {
        group: finite_or_none(estimate.value)
        for group, estimate in _level_figures(summary, figure).items()
    }
