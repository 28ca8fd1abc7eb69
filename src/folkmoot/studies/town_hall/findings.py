"""The findings of a town-hall run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import polars as pl

from folkmoot.hints import join_words
from folkmoot.kit import coding
from folkmoot.kit.claims import (
    LEVELS,
    claims_chart,
    claims_finding,
    describe_claims,
    read_results,
    result_cells,
)
from folkmoot.kit.exposure import exposure_finding
from folkmoot.kit.findings import (
    Row,
    all_largest,
    category_shares,
    collect_findings,
    estimate_cells,
    estimate_from_json,
    finite_or_none,
    format_change,
    format_mean_value,
    format_share,
    format_signed,
    interaction_matrix,
    interval_chart,
    join_clauses,
    list_values,
)
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import Estimate, format_count, format_percent
from folkmoot.measures.inference.families import judge_families
from folkmoot.measures.wording import EXPLORATORY, Sentence, join_sentences, word
from folkmoot.storage.findings import BarChart, Finding, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers.options import CHANGES
from folkmoot.studies.town_hall.config import (
    GAP,
    INCLUSION,
    SATISFACTION,
    Level,
    TownHallConfig,
    declare_claims,
)
from folkmoot.studies.town_hall.measures import (
    CodedConcern,
    compare_levels,
    concern_sides,
    read_coded_concerns,
)
from folkmoot.studies.town_hall.quality import answer_quality_finding, quality_of_run
from folkmoot.studies.town_hall.recording import CONCERN
from folkmoot.studies.town_hall.tables import GROUPS, SPECTRUM

SCORE = "weighted_inclusivity_score"
SAID_ALOUD = "weighted_inclusivity_score_said_aloud"
SCALE = "Weighted inclusivity score, 0 (ignored) to 4 (agreed with)"
INTERVALS = (
    "95 % intervals over sets on the log-odds scale, not adjusted for the number of rows. If all "
    "sets are equal, the interval allows for sets that were not observed. There is no interval "
    "with fewer than five sets, or with few sets of unequal size."
)
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


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings of a run, the headline first."""
    comparison = compare_levels(run)
    main, supplementary = comparison["main"], comparison["supplementary"]
    levels: Levels = main["levels"]
    results = read_results(run, TownHallConfig, declare_claims)
    # Claims that compare two main levels. The others compare groups or a supplementary level.
    between_levels = [result for result in results if {*result.claim.contrast} <= levels.keys()]
    # Supplementary levels have a separate finding and must not enter the pooled tables.
    reactions, rounds = (
        run.read_table(table).filter(part="main") for table in ("reactions", "rounds")
    )
    # A study file may list no vulnerable residents.
    has_vulnerable = bool(rounds["is_vulnerable"].any())
    return collect_findings(
        inclusion_finding(levels, results, comparison["sets"], has_vulnerable=has_vulnerable)
        if levels
        else None,
        step_finding(between_levels, main["differences"], comparison["sets"]),
        concerns_finding(run),
        spectrum_finding(reactions),
        response_findings(reactions, run.read_table("residents")),
        [
            outcome_finding(levels, comparison["sets"], has_vulnerable=has_vulnerable),
            satisfaction_finding(levels, results, comparison["sets"]),
            all_measures_finding(levels, comparison),
        ]
        if levels
        else None,
        # Without supplementary levels there is nothing to report apart.
        replication_finding(
            supplementary, levels, _between_parts(results, between_levels), comparison["sets"]
        )
        if supplementary["levels"]
        else None,
        stance_finding(rounds),
        answer_quality_finding(quality_of_run(run)) if run.has_table("quality") else None,
        coding.coding_finding(run),
        exposure_finding(run, "level {}".format),
    )


def _between_parts(results: Sequence[Result], between: Sequence[Result]) -> list[Result]:
    # `between` holds the results on pairs of main levels, which are left out.
    return [result for result in results if result.claim.measure == GAP and result not in between]


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
    if not (switches["vulnerable"] and has_vulnerable):
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
    # They are outside the main comparison.
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
        elif not has_vulnerable:
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


def satisfaction_finding(levels: Levels, results: Sequence[Result], sets: int) -> Finding:
    """Build the finding on satisfaction before and after a discussion."""
    claimed = {level: _within_level(results, SATISFACTION, level) for level in levels}
    # A group without data keeps its row, so that tables of all runs have the same shape.
    unknown = Estimate(math.nan, math.nan, math.nan, 0)
    changes = {
        f"{group}, level {level}": claimed[level].get(group, unknown)
        for group in ("vulnerable", "general")
        for level in levels
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
            "Before and after: means over the residents who answered then. Change: over those who "
            "answered both times.",
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


def concerns_finding(run: RunFolder) -> list[Finding]:
    """Build the findings on how the closing text treats residents' concerns.

    The result is empty if no concern was coded.
    """
    # Codes of the embedded respondent do not count.
    codings = coding.read_codings(run).get(CONCERN)
    if codings is None or not codings.supports_findings:
        return []
    concerns = read_coded_concerns(run, codings)
    if not concerns:
        return []
    table: list[Row] = []
    shares_by_level: dict[str, list[tuple[str, float, Result]]] = {}
    sides = {
        _concern_claim(level, code): concern_sides(
            [concern for concern in concerns if concern.level == level], code
        )
        for level in dict.fromkeys(concern.level for concern in concerns)
        for code in (code.name for code in codings.book.codes)
    }
    results = judge_families(
        list(sides), lambda claim: (claim, *sides[claim]) if sides[claim][0].units else NO_SET
    )
    for result in results:
        level, code = (str(value) for _, (value,) in result.claim.where)
        level_concerns = [concern for concern in concerns if concern.level == level]
        groups = {
            group: fmean(code in concern.codes for concern in group_concerns)
            for group in ("vulnerable", "general")
            if (group_concerns := [concern for concern in level_concerns if concern.group == group])
        }
        values: Row = {f"{group}_share": value for group, value in groups.items()}
        count_cells: Row = {"concerns": len(level_concerns)}
        labels: Row = {"level": level, "code": code}
        table.append(labels | values | result_cells(result, "gap_points", "_points") | count_cells)
        if "vulnerable" in groups:
            shares_by_level.setdefault(level, []).append((code, groups["vulnerable"], result))
    gaps = {
        f"level {level}, {_describe_code(code)}": result.estimate
        for level, level_shares in shares_by_level.items()
        for code, _, result in level_shares
    }
    return [
        Finding(
            "heard",
            "What became of concerns",
            " ".join(
                f"At level {level}, of the concerns that vulnerable residents voiced, "
                + join_clauses(
                    f"{format_percent(share)} were {_describe_code(code)}" + _gap_to_others(result)
                    for code, share, result in level_shares
                )
                for level, level_shares in shares_by_level.items()
            ),
            ResultTable.from_records(
                table, "Share of voiced concerns; gap: vulnerable minus general"
            ),
            interval_chart(gaps, "gap in the share of concerns", zero=0.0, percent=True),
            notes=(
                codings.note,
                "Each resident has one concern: the points of the resident's public statements. "
                "Residents who never spoke are left out. Gaps are differences of means over sets "
                "that have both groups.",
                LEVELS,
                GAPS,
            ),
            headline=True,
            unit="set",
            units=len({concern.set_no for concern in concerns}),
        ),
        _quotes_finding(
            codings,
            [concern for concern in concerns if concern.set_no == concerns[0].set_no],
        ),
    ]


NO_SET = "no set has concerns of both groups"


def _gap_to_others(result: Result) -> str:
    if not math.isfinite(result.estimate.value):
        return ""
    return f", a gap to the others of {result.value_text} ({result.interval_text})"


def _concern_claim(level: str, code: str) -> Claim:
    return Claim(
        "codes.code",
        ("vulnerable", "general"),
        unit="set",
        estimand=(
            "Among simulated sets of residents like those drawn for this run: the share of voiced "
            f"concerns that were {_describe_code(code)}, of vulnerable minus that of general "
            "residents at "
            f"level {level}, within sets; independent unit: set."
        ),
        where=(("level", (level,)), ("code", (code,))),
        outcome=f"concerns {_describe_code(code)} at level {level}",
    )


def _quotes_finding(read: coding.CodebookResults, rows: Sequence[CodedConcern]) -> Finding:
    # Researchers check the codes by these quotes.
    quoted: list[Row] = [
        {
            "where": coded_concern.id,
            "concern": json.loads(read.texts[coded_concern.id]["about"])["concern"],
            "became": _describe_code(code),
            "quote": quote,
        }
        for coded_concern in rows
        for code, quote in (coded_concern.codes or {"not heard": ""}).items()
    ]
    return Finding(
        "heard_quotes",
        "Concerns and the quotes that respond to them",
        f"The quotes on which the codes of set {rows[0].set_no} are based. The table codes has the "
        "quotes of all sets.",
        ResultTable.from_records(quoted),
        notes=(read.note,),
        section="Concerns",
    )


def _describe_code(code: str) -> str:
    return code.replace("_", " ")


def spectrum_finding(reactions: pl.DataFrame) -> Finding | None:
    """Build the finding on reactions to vulnerable and to general residents.

    Returns None if no reaction has a known type.
    """
    # References of unknown type have no level.
    reactions = reactions.filter(pl.col("reaction").is_not_null())
    if reactions.is_empty():
        return None
    rows: list[Row] = []
    bars, ignored_shares = [], []
    partitions = reactions.group_by("target_vulnerable", "level", maintain_order=True)
    # Vulnerable residents first. Sorting is stable, so levels keep their order.
    for (vulnerable, level), group_reactions in sorted(partitions, key=lambda part: not part[0][0]):
        group = "vulnerable" if vulnerable else "general"
        shares, estimate, columns = _category_columns(
            group_reactions, "reaction", SPECTRUM, "ignore"
        )
        rows.append({"to": group, "level": str(level), **columns})
        # The bars leave out `ignore`, which would dwarf the other levels.
        bars += [
            (f"{group}, level {level}", text, value or 0.0)
            for text, value in shares.items()
            if text != "ignore"
        ]
        ignored_shares += [f"{format_share(estimate)} at level {level}"] * bool(vulnerable)
    return Finding(
        "spectrum",
        "How others react",
        word(
            "description",
            "values",
            what="The vulnerable residents got no reaction in these shares of cases",
            values="; ".join(ignored_shares),
        ),
        ResultTable.from_records(
            rows, "Share of possible reactions. Low and high: interval of the share ignored."
        ),
        BarChart(tuple(bars), unit="share of possible reactions", percent=True),
        notes=(
            "Five-level reaction spectrum after Park & Lee (2016). No reference counts as "
            "`ignore`.",
            INTERVALS,
        ),
        unit="set",
        units=reactions["set"].n_unique(),
    )


def _category_columns(
    rows: pl.DataFrame, column: str, categories: Sequence[str], main: str
) -> tuple[Mapping[str, float | None], Estimate, Row]:
    # (share by category, estimate of the share of `main`, cells of a table with both)
    counts = Counter(rows[column].to_list())
    shares = category_shares({name: counts[name] for name in categories})
    estimate = clustered_share((rows[column] == main).to_list(), rows["set"].to_list())
    bounds = estimate_cells(estimate, main, "_share")
    cells: Row = {f"{name}_share": value for name, value in shares.items()}
    cells.update((key, value) for key, value in bounds.items() if key != main)
    return shares, estimate, {**cells, "n": rows.height}


def stance_finding(rounds: pl.DataFrame) -> Finding | None:
    """Build the finding on changes of stances.

    Returns None if no change is known.
    """
    with_change = rounds.filter(pl.col("change_type").is_not_null())
    if with_change.is_empty():
        return None
    rows: list[Row] = []
    kept_shares = []
    for (level,), level_rows in with_change.group_by("level", maintain_order=True):
        _, estimate, columns = _category_columns(level_rows, "change_type", CHANGES, "maintain")
        rows.append({"level": str(level), **columns})
        kept_shares.append(f"{format_share(estimate)} at level {level}")
    return Finding(
        "stances",
        "How stances move between rounds",
        word(
            "description",
            "values",
            what="The share of reflections in which a stance was kept",
            values="; ".join(kept_shares),
        ),
        ResultTable.from_records(
            rows, "Share of reflections. Low and high: interval of the share kept."
        ),
        notes=(INTERVALS,),
        unit="set",
        units=with_change["set"].n_unique(),
    )


def response_findings(reactions: pl.DataFrame, residents: pl.DataFrame) -> list[Finding]:
    """Build the findings on who responded to whom in the first set of residents.

    The result is empty if there are no reactions.
    """
    # There is one heat map per level. Rows are speakers, and columns are targets. A response is any
    # reaction except `ignore`.
    if reactions.is_empty():
        return []
    # One set is shown, because residents with the same id differ between sets.
    first_set = min(reactions["set"].to_list())
    first_reactions = reactions.filter(set=first_set)
    names = {
        row["id"]: f"{row['id']}*" if row["is_vulnerable"] else row["id"]
        for row in residents.filter(set=first_set).sort("id").iter_rows(named=True)
    }
    note = (
        f"* vulnerable resident. Shown is set {first_set}; the table reactions has all sets. A "
        "response refutes, asks, cites or agrees."
    )
    findings = []
    for level in sorted(first_reactions["level"].unique()):
        # A reference of unknown type is a response, too.
        is_response = (pl.col("reaction") != "ignore").fill_null(True)
        responses = first_reactions.filter(pl.col("level") == level, is_response)
        counts = Counter(responses.select("speaker", "target").iter_rows())
        rows = [
            {
                "who": names[resident_id],
                **{
                    names[other]: None if resident_id == other else counts[resident_id, other]
                    for other in names
                },
                "given": sum(counts[resident_id, other] for other in names),
                "received": sum(counts[other, resident_id] for other in names),
            }
            for resident_id in names
        ]
        caption = "Responses over all rounds, of residents in rows to residents in columns"
        findings.append(
            Finding(
                f"who_responded_{level}",
                f"Who responded to whom, level {level}",
                _describe_responses(counts, names),
                ResultTable.from_records(rows, caption),
                interaction_matrix(counts, names, "responses"),
                notes=(note,),
                section="Who responded to whom",
            )
        )
    return findings


def _describe_responses(counts: Counter[tuple[str, str]], names: Mapping[str, str]) -> str:
    if not counts:
        return "No resident responded to another."
    if not names:
        return (
            f"{format_count(counts.total(), 'response')} between residents who are not in the "
            "table of residents."
        )
    received = {
        label: sum(counts[speaker, resident_id] for speaker in names)
        for resident_id, label in names.items()
    }
    most_answered = all_largest(received, lambda name: received[name])
    each = " each" if len(most_answered) > 1 else ""
    unheard = [name for name, count in received.items() if not count]
    unheard_text = (
        f"{format_count(len(unheard), 'resident')} got no response ({', '.join(unheard)})"
        if unheard
        else "Every resident got a response"
    )
    most = (
        f"{join_words(most_answered)} got the most responses ({received[most_answered[0]]}{each})"
    )
    return join_sentences(
        [
            word(
                "description",
                "responses",
                responses=format_count(counts.total(), "response"),
                residents=format_count(len(names), "resident"),
            ),
            word("description", "observed", what=most),
            word("description", "list", values=unheard_text),
        ]
    )
