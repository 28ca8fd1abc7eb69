"""The measures of a discussion, and the comparison of levels."""

# The measures say how residents react to each other, by round. There is one result for vulnerable
# and one for general residents. The gap is vulnerable minus general.
# From round 2 on, a resident with a readable statement can react to every resident who made a
# statement in the round before. If the resident does not refer to one of them, that reaction has
# level 0 (ignore).
# A set has the same residents at every level. So levels are compared within sets, and the
# differences are averaged over sets.

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

import orjson
import polars as pl
import polars.selectors as cs

from folkmoot.kit.coding import CodebookResults
from folkmoot.kit.reply_units import drop_humans
from folkmoot.kit.retest import pair_answers
from folkmoot.measures.inference.clustered import clustered_mean, clustered_share
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.estimates import Estimate, difference_or_none, finite_or_none
from folkmoot.measures.position import Shown
from folkmoot.measures.retest import Repeat
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.table_buffer import DTYPES
from folkmoot.studies.town_hall.answers.options import INTERACTIONS
from folkmoot.studies.town_hall.config import Level
from folkmoot.studies.town_hall.tables import (
    FIGURES,
    GROUPS,
    SHARES,
    SPECTRUM,
    DifferenceRow,
    ItemRow,
    LevelRow,
    OptionOrderRow,
    ReactionRow,
    ReferenceRow,
    RoundRow,
    SatisfactionRow,
    TypedAnswerRow,
)

# Table name → rows of one discussion, or of one of its rounds.
Tables: TypeAlias = Mapping[str, pl.DataFrame]
Json: TypeAlias = dict[str, Any]
# The tables that the measures read. `build_tables` skips rows of all others.
MEASURED = (ItemRow, ReactionRow, ReferenceRow, RoundRow, SatisfactionRow, TypedAnswerRow)


def build_tables(rows: Iterable[Row]) -> Tables:
    """Return the tables that the measures need, as data frames."""
    # Rows of other tables are ignored.
    # A table without rows still gets a frame with its columns, so that queries do not fail.
    by_table: dict[str, list[Row]] = {row.table: [] for row in MEASURED}
    for row in rows:
        if row.table in by_table:
            by_table[row.table].append(row)
    return {row.table: _build_frame(row, by_table[row.table]) for row in MEASURED}


def _build_frame(row: type[Row], rows: Sequence[Row]) -> pl.DataFrame:
    columns = row.columns()
    cells = {column: list(map(attrgetter(column), rows)) for column in columns}
    return pl.DataFrame(cells, schema={column: DTYPES[kind] for column, kind in columns.items()})


def read_answers(tables: Tables, stage: str) -> list[tuple[int | None, str, Json]]:
    """Return the round, speaker and fields of each answer of a stage, in order.

    The round is None for an answer that belongs to no round.
    """
    answers = tables["typed_answers"].filter(stage=stage).select("round", "agent_id", "answer")
    return [
        (round_, resident_id, orjson.loads(answer))
        for round_, resident_id, answer in answers.iter_rows()
    ]


def read_concerns(tables: Tables) -> list[Json]:
    """Return the residents' concerns that the closing text mentions."""
    return [
        concern
        for _, _, answer in read_answers(tables, "consensus")
        for concern in answer["concerns_reflected"] or ()
    ]


def _read_remarks(tables: Tables) -> pl.DataFrame:
    # One row per remark of a resident about another resident, `target`. `kind` is reaction,
    # question, compelling or disagreed.
    remarks: list[tuple[str, str, int | None, bool | None]] = [
        ("reaction", reaction["target_agent"], reaction["agree_level"], reaction["want_to_respond"])
        for _, _, thoughts in read_answers(tables, "think")
        for reaction in thoughts["reactions"] or ()
    ]
    for _, _, speaking in read_answers(tables, "speak"):
        remarks += [
            ("question", question["target"], None, None) for question in speaking["questions"] or ()
        ]
    for _, _, reflection in read_answers(tables, "reflect"):
        for kind in ("compelling", "disagreed"):
            if opinion := reflection[f"most_{kind}"]:
                remarks.append((kind, opinion["agent_id"], None, None))
    schema = {"kind": pl.String, "target": pl.String, "agree_level": pl.Int64}
    return pl.DataFrame(remarks, schema=schema | {"want_to_respond": pl.Boolean}, orient="row")


def measure_round(tables: Tables, residents: Sequence[str]) -> dict[str, Json]:
    """Return how other residents reacted to each resident in a round.

    The result maps each resident id to the values of columns of `RoundRow`. A ratio or mean is None
    if there are no data.
    """
    # References of unknown type count in the number of references, but not in the scores.
    level, kind = pl.col("reaction_level"), pl.col("kind")
    reacted = (
        tables["reactions"]
        .group_by(agent_id="target")
        .agg(
            total_reaction_count=(level > 0).sum(),
            positive_reaction_count=(level >= SPECTRUM.index("cite")).sum(),
            positive_ratio=(level.filter(level > 0) >= SPECTRUM.index("cite")).mean(),
            weighted_inclusivity_score=level.mean(),
            weighted_inclusivity_score_said_aloud=pl.col("reaction_level_said_aloud").mean(),
            possible_reactions=level.count(),
            unknown_reactions=level.null_count(),
            # An unknown level is a response, too, so only level 0 is left out.
            responders=pl.col("speaker").filter(level.ne_missing(0)).str.join("|"),
            **{f"reactions_{name}": (level == n).sum() for n, name in enumerate(SPECTRUM)},
        )
    )
    referred = tables["references"].group_by(agent_id="target").agg(interaction_count=pl.len())
    remarked = (
        _read_remarks(tables)
        .group_by(agent_id="target")
        .agg(
            avg_agree_level=pl.col("agree_level").mean(),
            response_rate=pl.col("want_to_respond").mean(),
            questions_received=(kind == "question").sum(),
            cited_as_compelling_count=(kind == "compelling").sum(),
            cited_as_disagreed_count=(kind == "disagreed").sum(),
        )
    )
    measures = pl.DataFrame({"agent_id": residents}, schema={"agent_id": pl.String})
    for table in (reacted, referred, remarked):
        measures = measures.join(table, on="agent_id", how="left", maintain_order="left")
    # A resident without rows got nothing, so the counts are 0. Ratios and means stay null.
    filled = measures.with_columns(cs.integer().fill_null(0), cs.string().fill_null(""))
    return {str(row["agent_id"]): row for row in filled.iter_rows(named=True)}


def measure_survival(tables: Tables) -> pl.DataFrame:
    """Return in which rounds other residents referred to each resident.

    The table has one row per resident, with these columns among others:
    - `citations`: the number of references to the resident, for each round.
    - `survival`: the share of rounds with at least one such reference. Round 1 does not count, and
      neither does a round after one in which the resident made no readable statement.

    `survival` is null if no round counts.
    """
    is_cited = (pl.col("interaction_count") > 0).filter(pl.col("round") > 1)
    is_possible = pl.col("possible_reactions") + pl.col("unknown_reactions") > 0
    return (
        tables["rounds"]
        .group_by("agent_id", maintain_order=True)
        .agg(
            rounds="round",
            citations="interaction_count",
            rounds_cited=pl.col("round").filter(
                pl.col("round") > 1, pl.col("interaction_count") > 0
            ),
            survival=(pl.col("interaction_count") > 0)
            .filter(pl.col("round") > 1, is_possible)
            .mean(),
            survived_to_final_round=is_cited.last().fill_null(value=False),
        )
    )


# Columns of `rounds` that are summed over the rounds and residents of a group.
SUMMED = (
    *(f"reactions_{name}" for name in SPECTRUM),
    *("possible_reactions", "total_reaction_count", "positive_reaction_count"),
    *("interaction_count", "cited_as_compelling_count", "questions_received", "speaking_volume"),
)
# Totals of the source, in the order of `metrics_summary.json`.
TOTALS = (
    *("residents", "reaction_spectrum", "total_possible_reactions", "total_reaction_count"),
    *("positive_reaction_count", "interaction_count", "interaction_types"),
    *("cited_as_compelling_count", "questions_received", "speaking_volume"),
    *("originated_items", "items_passed", "concerns_in_final"),
)
# Figure → the total of a group that is divided by the group's number of residents.
PER_RESIDENT = {
    "reactions_per_resident": "total_reaction_count",
    "positive_reactions_per_resident": "positive_reaction_count",
    "interactions_per_resident": "interaction_count",
    "compelling_citations_per_resident": "cited_as_compelling_count",
    "responders_per_resident": "responders",
    "speaking_volume_per_resident": "speaking_volume",
    "items_originated_per_resident": "raised",
    "items_passed_per_resident": "won",
    "concerns_in_final_per_resident": "concerns_in_final",
}


def measure(tables: Tables, by: str) -> dict[Any, Json]:
    """Return the counts and rates of each group of residents.

    `by`: `is_vulnerable`, or `agent_id` to measure each resident separately.

    A value is None if it depends on an answer that could not be read.
    """
    rounds = tables["rounds"]
    members = rounds.select("agent_id", group=by).unique(maintain_order=True)
    # Both groups are listed, because a discussion may have no vulnerable residents.
    groups = (
        pl.DataFrame({"group": [True, False]}) if by == "is_vulnerable" else members.select("group")
    )

    def pool(
        table: pl.DataFrame, column: str, *sums: pl.Expr, **aggregates: pl.Expr
    ) -> pl.DataFrame:
        with_groups = table.join(
            members, left_on=column, right_on="agent_id", maintain_order="left"
        )
        return with_groups.group_by("group").agg(*sums, **aggregates)

    level, kind = pl.col("reaction_level"), pl.col("interaction_type")
    responses = tables["reactions"].filter(level.ne_missing(0))
    # A resident who responded in several rounds is one responder.
    responders = responses.group_by("target").agg(responders=pl.col("speaker").n_unique())
    # An item that several residents raised counts once for each of them.
    origins = tables["items"].with_columns(pl.col("origin").str.split("|")).explode("origin")
    passed = pl.col("item_id").filter(pl.col("passed"))
    decided = pl.col("item_id").filter(pl.col("passed").is_not_null())
    reflected = pl.DataFrame(
        {"resident": [concern["resident"] for concern in read_concerns(tables)]},
        schema={"resident": pl.String},
    )
    measures = groups
    for table in (
        pool(rounds, "agent_id", pl.col(SUMMED).sum(), residents=pl.col("agent_id").n_unique()),
        pool(
            tables["reactions"],
            "target",
            weighted_inclusivity_score=level.mean(),
            weighted_inclusivity_score_said_aloud=pl.col("reaction_level_said_aloud").mean(),
        ),
        pool(
            tables["references"], "target", **{name: (kind == name).sum() for name in INTERACTIONS}
        ),
        pool(
            _read_remarks(tables),
            "target",
            avg_agree_level=pl.col("agree_level").mean(),
            response_rate=pl.col("want_to_respond").mean(),
        ),
        pool(responders, "target", pl.col("responders").sum()),
        pool(measure_survival(tables), "agent_id", pl.col("survival").drop_nulls()),
        pool(
            origins,
            "origin",
            originated_items=pl.col("item_id").n_unique(),
            items_passed=passed.n_unique(),
            decided_items=decided.n_unique(),
            raised=pl.len(),
            won=passed.count(),
        ),
        pool(reflected, "resident", concerns_in_final=pl.len()),
        pool(
            tables["satisfaction"],
            "agent_id",
            pl.col("pre_satisfaction", "post_satisfaction", "satisfaction_delta").mean(),
        ),
    ):
        measures = measures.join(table, on="group", how="left", maintain_order="left")
    # Sums of nothing are 0. Means of nothing stay null.
    counted = measures.with_columns(cs.integer().fill_null(0))
    has_items = not tables["items"].is_empty()
    has_text = any(
        not answer.keys() & {"_parse_error", "_dropped"}
        and answer["concerns_reflected"] is not None
        for _, _, answer in read_answers(tables, "consensus")
    )
    return {
        row["group"]: _name_measures(row, has_items=has_items, has_text=has_text)
        for row in counted.iter_rows(named=True)
    }


def _name_measures(row: Json, *, has_items: bool, has_text: bool) -> Json:
    survivals, residents = row["survival"] or [], row["residents"]
    measures = {
        **row,
        **{figure: ratio_or_none(row[total], residents) for figure, total in PER_RESIDENT.items()},
        "reaction_spectrum": {name: row[f"reactions_{name}"] for name in SPECTRUM},
        "total_possible_reactions": row["possible_reactions"],
        "interaction_types": {name: row[name] for name in INTERACTIONS},
        "positive_reaction_ratio": ratio_or_none(
            row["positive_reaction_count"], row["total_reaction_count"]
        ),
        "opinion_survival": ratio_or_none(math.fsum(survivals), len(survivals)),
        "opinion_reflection_rate": ratio_or_none(row["items_passed"], row["decided_items"]),
    }
    if not has_items:
        measures |= dict.fromkeys(("items_originated_per_resident", "items_passed_per_resident"))
    if not has_text:
        measures["concerns_in_final_per_resident"] = None
    return {name: measures[name] for name in (*TOTALS, *FIGURES)}


def compare_groups(tables: Tables) -> dict[str, Json]:
    """Return the measures of vulnerable residents and of general residents, and the differences."""
    groups = measure(tables, "is_vulnerable")
    vulnerable, general = groups[True], groups[False]
    gap = {name: difference_or_none(vulnerable[name], general[name]) for name in FIGURES}
    return {"vulnerable": vulnerable, "general": general, "gap": gap}


def final_consensus(tables: Tables, groups: Mapping[str, Json]) -> Json:
    """Return which ballot items passed and which concerns the closing text mentions.

    Vulnerable and general residents are counted separately. The rate of a group without items is
    None.
    """
    # An item counts as vulnerable-originated if at least one vulnerable resident raised it. The
    # reflection rate of a group is the share of its items that passed, of those with a vote of yes
    # or no.
    items = tables["items"]
    vulnerable = find_vulnerable(tables)
    outcome: Json = {
        "total_vote_items": items.height,
        "items_passed": int(items["passed"].sum()),
        "ties_failed": int(items["tie"].sum()),
    }
    for name in ("vulnerable", "general"):
        group = groups[name]
        outcome[f"{name}_originated_items"] = group["originated_items"]
        outcome[f"{name}_items_passed"] = group["items_passed"]
        outcome[f"{name}_opinion_reflection_rate"] = group["opinion_reflection_rate"]
        outcome[f"{name}_concerns_in_final"] = [
            concern
            for concern in read_concerns(tables)
            if (concern["resident"] in vulnerable) == (name == "vulnerable")
        ]
    return outcome


def find_vulnerable(tables: Tables) -> set[str]:
    """Return the ids of the vulnerable residents."""
    return set(tables["rounds"].filter("is_vulnerable")["agent_id"])


def ratio_or_none(part: float, whole: float) -> float | None:
    """Return `part` divided by `whole`.

    Returns None if `whole` is 0.
    """
    return part / whole if whole else None


# The switches in which levels are compared, in the order of `levels.json`.
SWITCHES = (
    *("context", "models", "moderator", "think", "reflect"),
    *("vulnerable", "moderator_list", "labels", "stories"),
)


def compare_levels(run: RunFolder) -> Json:
    """Return the comparison of a run's levels."""
    levels = run.plan["sealed"]["discussions"]["data"]["levels"]
    discussions = run.read_table("discussions")
    # A set that lacks a level cannot be compared within itself, so it is left out of all means.
    complete = discussions.filter(pl.col("level").n_unique().over("set") == len(levels))
    return compare_all_levels([Level.from_json(level) for level in levels.values()], complete)


def compare_all_levels(levels: Sequence[Level], discussions: pl.DataFrame) -> Json:
    """Return the figures of each level and the differences between levels.

    `discussions`: a table with one row per discussion. There is one discussion for each level and
    each set of residents.
    """
    # This is the content of `levels.json`. All values are means over sets.
    names = [name for name in FIGURES if f"gap_{name}" in discussions.columns]
    columns = {name: {group: f"{group}_{name}" for group in GROUPS} for name in names}
    # (level, column) → set number → value.
    by_set: dict[tuple[str, str], dict[int, float]] = {}
    for row in discussions.iter_rows(named=True):
        for column in (column for by_group in columns.values() for column in by_group.values()):
            values = by_set.setdefault((row["level"], column), {})
            if row[column] is not None:
                values[row["set"]] = row[column]

    def estimate_each(estimate: Callable[[str, str], Json]) -> Json:
        return {
            name: {group: estimate(name, group) for group in of} for name, of in columns.items()
        }

    def describe_level(level: Level) -> Json:
        def estimate(name: str, group: str) -> Json:
            own = by_set.get((level.name, columns[name][group]), {})
            return _over_sets(own, _find_bounds(name, difference=group == "gap"))

        switches = level.to_json()
        switch_values = {name: switches[name] for name in SWITCHES}
        return {"switches": switch_values, "figures": estimate_each(estimate)}

    def compare_two(before: Level, after: Level) -> Json:
        def estimate(name: str, group: str) -> Json:
            column = columns[name][group]
            # Only sets that have the figure at both levels enter, so that each difference is within
            # a set.
            before_values, after_values = (
                by_set.get((level.name, column), {}) for level in (before, after)
            )
            steps = {
                n: after_values[n] - before_values[n]
                for n in sorted(before_values.keys() & after_values.keys())
            }
            return _over_sets(steps, _find_bounds(name, difference=True), tested=True)

        old, new = before.to_json(), after.to_json()
        return {
            "from": before.name,
            "to": after.name,
            "consecutive": (before.name, after.name) in following,
            "switches_changed": [name for name in SWITCHES if old[name] != new[name]],
            "figures": estimate_each(estimate),
        }

    main_levels = [level for level in levels if level.part == "main"]
    supplementary_levels = [level for level in levels if level.part != "main"]
    following = set(pairwise(level.name for level in main_levels))
    return {
        "sets": discussions["set"].n_unique(),
        "intervals": (
            "95 % intervals over sets: for shares on the log-odds scale, otherwise t intervals "
            "(G − 1 degrees of freedom, G sets). Null with fewer than five sets, and if a share is "
            "0 or 1 in all sets"
        ),
        "figures": {name: FIGURES[name] for name in names},
        "main": {
            "levels": {level.name: describe_level(level) for level in main_levels},
            "differences": [
                compare_two(level, later) for level, later in combinations(main_levels, 2)
            ],
        },
        "supplementary": {
            "levels": {level.name: describe_level(level) for level in supplementary_levels},
            "differences": [
                compare_two(main_level, level)
                for level in supplementary_levels
                for main_level in main_levels
            ],
        },
    }


# The least and the greatest value that a figure can have.
Bounds: TypeAlias = tuple[float, float]
SHARE: Bounds = (0.0, 1.0)
SHARE_DIFFERENCE: Bounds = (-1.0, 1.0)
UNBOUNDED: Bounds = (-math.inf, math.inf)


def _find_bounds(name: str, *, difference: bool) -> Bounds:
    if name not in SHARES:
        return UNBOUNDED
    return SHARE_DIFFERENCE if difference else SHARE


def _over_sets(by_set: Mapping[int, float], bounds: Bounds, *, tested: bool = False) -> Json:
    # `by_set` maps a set number to a value. Use `tested` only for differences within sets.
    mean = NO_ESTIMATE
    if by_set:
        mean = _estimate_mean(tuple(by_set.values()), tuple(by_set), bounds)
    limits = {"estimate": mean.value, "low": mean.low, "high": mean.high}
    p_cell = {"p": _round_finite(mean.p)} if tested else {}
    rounded = {name: _round_finite(value) for name, value in limits.items()}
    return {**rounded, "sets": mean.n, "each": list(mean.each), **p_cell}


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan, 0, 0)


# The derived tables, `levels.json` and the findings all compute the same estimates. The arguments
# are tuples of numbers, so a cached value cannot be out of date.
@lru_cache(maxsize=4096)
def _estimate_mean(values: tuple[float, ...], sets: tuple[int, ...], bounds: Bounds) -> Estimate:
    # Near 0 or 1 the t interval of a few sets reaches beyond 0 or 1, and is too short
    # on the other side.
    if bounds == SHARE:
        return clustered_share(values, sets)
    return clustered_mean(values, sets, bounds=bounds)


def _round_finite(value: float) -> float | None:
    # The last bits of sums differ between machines, but equal runs must give equal files.
    return finite_or_none(round(value, 12))


def comparison_rows(comparison: Json) -> Iterator[Row]:
    """Yield the rows of the tables `levels` and `differences`."""
    for part in ("main", "supplementary"):
        for level, summary in comparison[part]["levels"].items():
            for cells in _iterate_estimates(summary["figures"]):
                yield LevelRow(part=part, level=level, **cells)
        for step in comparison[part]["differences"]:
            labels = {
                "part": part,
                "from_level": step["from"],
                "to_level": step["to"],
                "consecutive": step["consecutive"],
                "switches_changed": "|".join(step["switches_changed"]),
            }
            for cells in _iterate_estimates(step["figures"]):
                yield DifferenceRow(**labels, **cells)


def _iterate_estimates(figures: Json) -> Iterator[Json]:
    for figure, groups in figures.items():
        for group, estimates in groups.items():
            cells = {name: value for name, value in estimates.items() if name != "each"}
            yield {"figure": figure, "group": group, **cells}


class CodedConcern(NamedTuple):
    """One resident's concern, with the codes that the coder assigned."""

    id: str
    level: str
    set_no: int
    group: str
    # Each assigned code → the quote that supports it.
    codes: Mapping[str, str]


def read_coded_concerns(run: RunFolder, codings: CodebookResults) -> list[CodedConcern]:
    """Return the coded concerns of a run."""
    vulnerable = {
        (row["discussion_id"], row["agent_id"]): row["is_vulnerable"]
        for row in run.read_table("rounds").iter_rows(named=True)
    }
    levels = {
        row["discussion_id"]: (row["level"], row["set"])
        for row in run.read_table("discussions").iter_rows(named=True)
    }
    concerns: list[CodedConcern] = []
    # A text that could not be coded is left out, since an empty list of codes means "not heard".
    for text_id in codings.texts:
        discussion, _, resident_id = text_id.rpartition("/")
        if (codes := codings.codes_of(text_id)) is not None:
            level, number = levels[discussion]
            group = "vulnerable" if vulnerable[discussion, resident_id] else "general"
            concerns.append(CodedConcern(text_id, level, number, group, codes))
    return concerns


def concern_sides(concerns: Sequence[CodedConcern], code: str) -> tuple[Side, Side]:
    """Return which concerns have a code.

    The first element is for the concerns of vulnerable residents, the second for those of general
    residents.
    """
    # Only sets with coded concerns of both groups count.
    common_sets = set.intersection(
        *(
            {coded_concern.set_no for coded_concern in concerns if coded_concern.group == group}
            for group in ("vulnerable", "general")
        )
    )
    vulnerable, general = (
        Side.from_values(
            [code in coded_concern.codes for coded_concern in group_concerns],
            [coded_concern.set_no for coded_concern in group_concerns],
        )
        for group in ("vulnerable", "general")
        for group_concerns in [
            [
                coded_concern
                for coded_concern in concerns
                if coded_concern.group == group and coded_concern.set_no in common_sets
            ]
        ]
    )
    return vulnerable, general


def set_of_answer(row: Mapping[str, Any]) -> Hashable:
    """Return the name of the set of residents in which an answer was given.

    `row`: a row of the table `answers`.
    """
    # A discussion is named by its set and its level.
    return str(row["stage"]).partition("_")[0]


# Table, column of the resident, and column of a choice from a list → the field of `option_orders`
# with the list.
_LISTS_OF_CHOICES = {
    ("rounds", "agent_id", "overall_stance"): "stances",
    ("rounds", "agent_id", "stance_after"): "stances",
    ("reactions", "speaker", "my_feeling"): "feelings",
    ("references", "speaker", "interaction_type"): "interactions",
    ("votes", "agent_id", "vote"): "votes",
}


def listed_choices(run: RunFolder) -> list[Shown]:
    """Return the choices of residents in JSON answers, with the options in the order shown."""
    # `change_type` is left out, because two stances determine it. The order is drawn for a set, and
    # not for each resident, so the set is the unit.
    options: dict[tuple[int, str], tuple[str, ...]] = {}
    lists = run.read_rows(OptionOrderRow).sort("position")
    for set_number, field, option in lists.select("set", "field", "option").iter_rows():
        options[set_number, field] = (*options.get((set_number, field), ()), option)
    return [
        Shown(options[set_number, field], chosen, f"set{set_number:02d}")
        for (table, resident, column), field in _LISTS_OF_CHOICES.items()
        if options and run.has_table(table)
        for set_number, chosen in _read_models(run, table, resident)
        .select("set", column)
        .iter_rows()
        if chosen is not None
    ]


def _read_models(run: RunFolder, table: str, resident: str) -> pl.DataFrame:
    # A human takes part in one discussion. In the others a model plays the same resident.
    discussion_of = itemgetter("stage")
    rows = run.read_table(table)
    return drop_humans(run, rows, "discussion_id", resident, unit_of=discussion_of)


def repeated_satisfaction(run: RunFolder) -> list[Repeat]:
    """Return pairs of satisfaction ratings by the same resident."""
    # A pair has ratings before and after a discussion. Or it has the ratings before two
    # discussions, at levels where the resident has the same model.
    seats = run.read_table("rounds").group_by("discussion_id", "agent_id", maintain_order=True)
    models = seats.agg(pl.col("seat_model").first())
    satisfaction = _read_models(run, "satisfaction", "agent_id").join(
        models, on=["discussion_id", "agent_id"], how="left", maintain_order="left"
    )
    pairs = combinations(satisfaction["level"].unique(maintain_order=True).to_list(), 2)
    before, after = (
        satisfaction.with_columns(
            answer=pl.col(f"{when}_satisfaction").cast(pl.Float64), when=pl.lit(when)
        )
        for when in ("pre", "post")
    )
    # Before a discussion the levels ask the same resident of the same model the same question, so a
    # difference is noise.
    by_level = before.with_columns(occasion="level")
    before_and_after = pl.concat([before, after]).with_columns(occasion="when")
    resident = ["set", "agent_id"]
    return [
        *pair_answers(by_level, pairs, [*resident, "seat_model"], unit=resident, untouched=True),
        *pair_answers(
            before_and_after,
            [("pre", "post")],
            ["discussion_id", "agent_id"],
            unit=["set"],
            question=["level"],
        ),
    ]
