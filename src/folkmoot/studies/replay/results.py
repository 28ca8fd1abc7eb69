"""Findings of a replay: simulated changes compared with the changes of the humans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from folkmoot.kit.findings import (
    HUMAN_BENCHMARK_SECTION,
    Row,
    collect_findings,
    estimate_cells,
    finite_or_none,
    format_mean_value,
    format_signed,
    is_significant,
)
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN
from folkmoot.measures.inference.estimates import format_count, format_percent
from folkmoot.measures.inference.rectified import rectified_mean
from folkmoot.measures.replayed import Fit, adjusted_changes, fidelity, fit_of_changes
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.replay.asking import ReplayRow

# With fewer items a correlation of effects is not reported.
MIN_ITEMS = 5
# An item with a single answer has no effect apart from the noise of that answer.
MIN_ANSWERS_PER_ITEM = 2
# Attributes with more levels are not used for subgroups, because each subgroup would be small.
MAX_LEVELS = 6
MIN_IN_SUBGROUP = 5
SECTION = HUMAN_BENCHMARK_SECTION


def describe_people(run: RunFolder) -> dict[tuple[str, ...], str]:
    """Return the attributes and the first answer of each human, by person and item."""
    # The sealed assignment holds only ids, items and conditions.
    columns = ("person", "item", "attributes", "people_before")
    rows = run.read_rows(ReplayRow).select(columns).iter_rows()
    return {(person, item): f"{attributes} {before}" for person, item, attributes, before in rows}


def findings(run: RunFolder) -> list[Finding]:
    """Return all findings of a replay."""
    # If nothing can be compared, a single finding says so.
    table = run.read_table(ReplayRow.table)
    scale = (float(run.config["scale"][0]), float(run.config["scale"][1]))
    # Rows with missing answers count for the order of the conditions. Otherwise a missing answer in
    # the first row would turn every effect around, because effects are compared with the first one.
    arms = table["arm"].unique(maintain_order=True).to_list()
    table = table.sort(pl.col("arm").replace_strict(arms, range(len(arms))), maintain_order=True)
    answered = table.drop_nulls(["before", "after"])
    both = answered.drop_nulls("people_after")
    if both.is_empty():
        return [_no_comparison_finding(table)]
    fits = {str(arm): _fit(rows, scale) for (arm,), rows in _group_rows(both, "arm")}
    subgroup_fits = _fit_subgroups(both, scale)
    return collect_findings(
        _arms(both, table, fits),
        _moves(both, {**fits, **subgroup_fits}),
        _subgroups(both, subgroup_fits),
        _fidelity(both),
        _rectified(answered),
    )


def _no_comparison_finding(table: pl.DataFrame) -> Finding:
    statement = f"None of {format_count(table.height, 'answer')} can be compared with a person's."
    return Finding(
        "replay", "Change, arm by arm", statement, ResultTable.from_records([]), section=SECTION
    )


def _fit(rows: pl.DataFrame, scale: tuple[float, float]) -> Fit:
    people = rows["people_before"].to_numpy(), rows["people_after"].to_numpy()
    simulated = rows["before"].to_numpy(), rows["after"].to_numpy()
    return fit_of_changes(people, simulated, rows["person"].to_list(), scale)


def _arms(both: pl.DataFrame, table: pl.DataFrame, fits: Mapping[str, Fit]) -> Finding:
    # No margin is stated within which changes would count as equal, so no arm can pass.
    rows = [
        {
            **_fit_cells("arm", arm, fit),
            "verdict": FAILED if is_significant(fit.gap) else NOT_KNOWN,
        }
        for arm, fit in fits.items()
    ]
    lines = tuple(
        (arm, fit.gap.value, fit.gap.low, fit.gap.high)
        for arm, fit in fits.items()
        if fit.gap.has_interval
    )
    statement = "; ".join(
        f"{arm}: people {format_signed(fit.people_change)}, simulated {format_signed(fit.change)} "
        f"(individual r {format_mean_value(finite_or_none(fit.correlation))})"
        for arm, fit in fits.items()
    )
    notes = _missing_note(table)
    is_first_given = (both["before"] == both["people_before"]).all()
    if is_first_given:
        notes.append("The first answers are the people's own, so only changes are simulated.")
    return Finding(
        "replay",
        "Change, arm by arm",
        f"Mean change: {statement}.",
        ResultTable.from_records(
            rows,
            f"{_FIT_CAPTION} Verdict: failed if the gap excludes zero.",
        ),
        IntervalChart(lines, "simulated minus people's mean change", 0.0) if lines else None,
        notes=tuple(notes),
        section=SECTION,
        headline=True,
        unit="person",
        units=both["person"].n_unique(),
    )


def _fit_cells(name: str, value: str, fit: Fit) -> Row:
    return {
        name: value,
        "answers": fit.n,
        "people_change": fit.people_change,
        "simulated_change": fit.change,
        **estimate_cells(fit.gap, "gap"),
        "r": finite_or_none(fit.correlation),
        "slope": finite_or_none(fit.slope),
        "distance_share": fit.distance,
    }


_FIT_CAPTION = (
    "Changes in units of the scale; gap: simulated minus people's, 95 % interval over people. "
    "Slope: of people's change on the simulated one (1: calibrated). Distance: how far final "
    "answers would have to be moved, as a share of the scale."
)


def _missing_note(table: pl.DataFrame) -> list[str]:
    missing = table.filter(pl.col("after").is_null())
    if missing.is_empty():
        return []
    counts = missing["missing"].fill_null("unknown").value_counts(sort=True, name="count")
    reasons = ", ".join(f"{reason} {count}" for reason, count in counts.iter_rows())
    return [f"{format_count(missing.height, 'answer')} of the model are missing: {reasons}."]


def _moves(both: pl.DataFrame, fits: Mapping[str, Fit]) -> Finding:
    rows = [
        {
            "group": name,
            "answers": fit.n,
            "people_moved_share": fit.people_moved,
            "moved_share": fit.moved,
            "people_crossed_share": fit.people_crossed,
            "crossed_share": fit.crossed,
            "people_regression": finite_or_none(fit.people_regression),
            "regression": finite_or_none(fit.regression),
        }
        for name, fit in fits.items()
    ]
    statement = "; ".join(
        f"{name}: people {format_percent(fit.people_moved)} moved, simulated "
        f"{format_percent(fit.moved)}"
        for name, fit in list(fits.items())[: both["arm"].n_unique()]
    )
    return Finding(
        "replay_moves",
        "Who moved, and where to",
        f"{statement}.",
        ResultTable.from_records(
            rows,
            "Moved: the answer changed. Crossed: it ended on the other side of the middle. "
            "Regression: slope of the change on the first answer; below 0 answers move towards the "
            "mean, and at −1 final answers do not depend on first ones.",
        ),
        section=SECTION,
        unit="person",
        units=both["person"].n_unique(),
    )


def _fit_subgroups(both: pl.DataFrame, scale: tuple[float, float]) -> dict[str, Fit]:
    # A subgroup has a name such as "age group: 18-29". Subgroups with few answers and attributes
    # with more than MAX_LEVELS levels are left out.
    fits: dict[str, Fit] = {}
    for name, values in _attributes(both).items():
        levels = both.with_columns(pl.Series("level", values)).drop_nulls("level")
        if not 1 < levels["level"].n_unique() <= MAX_LEVELS:
            continue
        for (level,), level_rows in _group_rows(levels, "level"):
            if level_rows.height >= MIN_IN_SUBGROUP:
                fits[f"{name.replace('_', ' ')}: {level}"] = _fit(level_rows, scale)
    return fits


def _subgroups(both: pl.DataFrame, fits: Mapping[str, Fit]) -> Finding | None:
    if not fits:
        return None
    return Finding(
        "replay_subgroups",
        "Change, by subgroup",
        f"{format_count(len(fits), 'subgroup')} of at least {MIN_IN_SUBGROUP} answers; intervals "
        "are not adjusted for their number.",
        ResultTable.from_records(
            [_fit_cells("subgroup", name, fit) for name, fit in fits.items()], _FIT_CAPTION
        ),
        section=SECTION,
        unit="person",
        units=both["person"].n_unique(),
    )


def _attributes(both: pl.DataFrame) -> dict[str, list[str | None]]:
    attributes = [json.loads(text) for text in both["attributes"]]
    names = dict.fromkeys(name for row in attributes for name in row)
    return {
        name: [None if row.get(name) is None else str(row[name]) for row in attributes]
        for name in names
    }


def _fidelity(both: pl.DataFrame) -> Finding:
    # An effect is the change of the answers in one arm, or the difference between the changes in
    # two arms.
    arms = both["arm"].unique(maintain_order=True).to_list()
    rows: list[Row] = []
    effects = {arm: _effects(both.filter(arm=arm)) for arm in arms}
    for arm in arms:
        rows.append(_fidelity_cells(f"change in {arm}", list(effects[arm].values())))
    for arm in arms[1:]:
        shared = [item for item in effects[arm] if item in effects[arms[0]]]
        gaps = [
            (
                effects[arm][item][0] - effects[arms[0]][item][0],
                effects[arm][item][1] - effects[arms[0]][item][1],
            )
            for item in shared
        ]
        rows.append(_fidelity_cells(f"{arm} − {arms[0]}", gaps))
    measured = [row for row in rows if row["r"] is not None]
    correlations = "; ".join(
        f"{row['effect']}: r {format_mean_value(_float(row['r']))}" for row in measured
    )
    return Finding(
        "causal_fidelity",
        "Are the effects alike?",
        f"Over items, {correlations}." if correlations else "Too few items to compare effects.",
        ResultTable.from_records(
            rows,
            f"Effects of single items, each of at least {MIN_ANSWERS_PER_ITEM} answers, adjusted "
            "for first answers: both sets regress to the mean, and would look alike. Slope: of "
            "people's effects on simulated ones. Same sign: share of items. r and slope from "
            f"{MIN_ITEMS} items on.",
        ),
        notes=(
            "This is apart from how far answers look alike: a model can give plausible answers and "
            "wrong effects.",
        ),
        section=SECTION,
        headline=bool(correlations),
    )


def _effects(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    # Returns mean human change and mean simulated change by item, adjusted for first answers.
    people, simulated = (
        adjusted_changes(rows[before].to_numpy(), rows[after].to_numpy())
        for before, after in (("people_before", "people_after"), ("before", "after"))
    )
    means = (
        rows.select("item", people=pl.Series(people), simulated=pl.Series(simulated))
        .group_by("item", maintain_order=True)
        .agg(
            pl.col("people").mean(),
            pl.col("simulated").mean(),
            pl.len().alias("answers"),
        )
        .filter(pl.col("answers") >= MIN_ANSWERS_PER_ITEM)
    )
    return {
        item: (people_change, simulated_change)
        for item, people_change, simulated_change, _ in means.iter_rows()
    }


def _fidelity_cells(name: str, effects: Sequence[tuple[float, float]]) -> Row:
    result = fidelity([real for real, _ in effects], [simulated for _, simulated in effects])
    is_enough = result.items >= MIN_ITEMS
    return {
        "effect": name,
        "items": result.items,
        "r": finite_or_none(result.correlation) if is_enough else None,
        "slope": finite_or_none(result.slope) if is_enough else None,
        "same_sign_share": finite_or_none(result.same_sign) if is_enough else None,
    }


def _rectified(answered: pl.DataFrame) -> Finding | None:
    # Simulated answers fill the gaps of humans without a final answer. Their bias is estimated from
    # the known human answers and removed.
    rows: list[Row] = []
    for (arm,), arm_rows in _group_rows(answered, "arm"):
        with_people = arm_rows.drop_nulls("people_after")
        others = arm_rows.filter(pl.col("people_after").is_null())
        if with_people.height < 2 or others.height < 2:
            continue
        change = pl.col("after") - pl.col("before")
        real = with_people["people_after"] - with_people["people_before"]
        rectified = rectified_mean(
            real.to_numpy(),
            with_people.select(change).to_series().to_numpy(),
            others.select(change).to_series().to_numpy(),
            clusters=with_people["person"].to_list(),
        )
        rows.append(
            {
                "arm": str(arm),
                "people": rectified.person_count,
                "simulated_others": others.height,
                "people_alone": rectified.people.value,
                "corrected": rectified.corrected.value,
                "low": finite_or_none(rectified.corrected.low),
                "high": finite_or_none(rectified.corrected.high),
                "weight": rectified.weight,
                "refused": rectified.refused,
            }
        )
    if not rows:
        return None
    return Finding(
        "replay_rectified",
        "Mean change, corrected by the people who answered",
        f"{format_count(len(rows), 'arm')} in which some final answers of people are not known.",
        ResultTable.from_records(
            rows, "Weight 0: the simulation adds nothing, or too few people answered."
        ),
        section=SECTION,
        unit="person",
        units=answered.drop_nulls("people_after")["person"].n_unique(),
    )


def _group_rows(
    rows: pl.DataFrame, column: str
) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    return iter(rows.group_by(column, maintain_order=True))


def _float(value: object) -> float | None:
    return value if isinstance(value, float) else None
