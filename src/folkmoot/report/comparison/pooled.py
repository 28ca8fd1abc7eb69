"""Join the runs of a grid: which claims hold, pooled estimates, and sources of variance."""
# `specification_curve` judges primary claims over all cells together. If the study file has
# hypotheses, they are the primary claims. All other estimates with an interval are pooled over the
# cells and described without a verdict. Their independent unit is the repeat, because cells of one
# repeat share their participants.

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from folkmoot.engine.run.fork_repeats import has_forks
from folkmoot.engine.run.grid import GridCell, RunGrid, cell_folder
from folkmoot.engine.settings.claims import evaluate_claims, read_sides
from folkmoot.engine.settings.hypotheses import KEY as STATED
from folkmoot.engine.study.study import claims_of_run, find_study_of_run
from folkmoot.errors import InputError, Problem
from folkmoot.hints import command_line
from folkmoot.kit.controls.across import effect_and_drift_over_cells
from folkmoot.kit.findings import (
    HOLM_NOTE,
    Row,
    collect_findings,
    finite_or_none,
    format_mean_value,
    format_signed,
)
from folkmoot.kit.named_controls import findings_with_controls
from folkmoot.measures.inference.claims import CONTRADICTED, SUPPORTED, Claim, Result
from folkmoot.measures.inference.clustered import clustered_mean
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.estimates import (
    ALPHA,
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_p_value,
    format_percent,
    format_points,
    points_span,
)
from folkmoot.measures.inference.proportions import holm
from folkmoot.measures.inference.specification_curve import (
    FEWEST_SPECIFICATIONS,
    Curve,
    specification_curve,
)
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.report.comparison.figures import Figure, MeasuredFigure
from folkmoot.report.comparison.forks import effect_of_reply
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable, without_p_values
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import join_unit_names

SECTION = "Pooled over runs"
# The key of the finding on the primary claims over a grid.
GRID_CLAIMS = "grid_claims"
NO_SECOND_P = (
    "Primary claims have no p here: “Primary claims over the grid” judges them over all cells."
)
SHARED_PEOPLE = (
    "Settings of one repeat share their people, so the share that holds is not a probability."
)
NOT_DRAWN = (
    "Differences that no finding draws with an interval are not listed, such as secondary claims "
    "beside primary ones. The report of each cell has all claims in “What was tested”."
)
# Most specifications that one curve draws.
MAX_LINES = 60
# A caveat names this many figures and counts the rest.
MAX_NAMES = 6


CellFindings = Mapping[str, Sequence[Finding] | None]
Cells = Mapping[str, tuple[GridCell, RunFolder]]


def findings_of_cells(grid: RunGrid) -> CellFindings:
    """Return the findings of each run of a grid.

    The value is None for a run without usable results.
    """
    return {
        name: None if run.unusable_reason else findings_with_controls(find_study_of_run(run), run)
        for name, (_, run) in grid.finished_cells().items()
    }


def pooled_findings(grid: RunGrid, cells: CellFindings | None = None) -> list[Finding]:
    """Return the findings from all finished runs of a grid together.

    `cells`: the findings of each finished run, if the caller has computed them.
    Raises InputError if no run has finished, or if all finished runs lack usable results.
    """
    cells = findings_of_cells(grid) if cells is None else cells
    if not cells:
        started = next((cell for cell in grid.cells if grid.run(cell)), None)
        hint = "resume the grid with --resume"
        if started is not None:
            folder = cell_folder(grid.path, started)
            hint += f", or report what a cell has so far: {command_line('report', folder)}"
        raise InputError(Problem(f"{grid.path}: no cell has finished yet", hint=hint))
    usable = [
        (cell, cell_findings)
        for cell in grid.cells
        if (cell_findings := cells.get(cell.name)) is not None
    ]
    if not usable:
        raise InputError(f"{grid.path}: no cell has a usable result")
    figures = _collect_figures(usable)
    # All forks have the same participants, so repeats add no participants to generalise over.
    if has_forks(grid):
        return collect_findings(effect_of_reply(grid, figures))
    usable_names = {cell.name for cell, _ in usable}
    is_complete = len(cells) == len(grid.cells)
    findings = collect_findings(
        _overview_finding(grid, len(cells), len(usable)),
        judge_claims(
            {
                name: cell_and_run
                for name, cell_and_run in grid.finished_cells().items()
                if name in usable_names
            },
            is_complete=is_complete,
        ),
        effect_and_drift_over_cells(
            (cell.settings_text, cell_findings) for cell, cell_findings in usable
        ),
        _standing_finding(figures, grid.repeats, len(usable)),
        *(
            _curve_finding(figure)
            for figure in figures
            if figure.zero is not None and len(figure.cells) > 1
        ),
        _variance_finding(figures, grid),
    )
    return findings if is_complete else [without_p_values(finding) for finding in findings]


def _collect_figures(usable: Sequence[tuple[GridCell, Sequence[Finding]]]) -> list[Figure]:
    figures: dict[tuple[str, str], Figure] = {}
    cells: dict[tuple[str, str], list[MeasuredFigure]] = defaultdict(list)
    for cell, findings in usable:
        for finding in findings:
            chart = finding.chart
            if not isinstance(chart, IntervalChart) or finding.key == STATED:
                continue
            # Bounds are about estimates of another finding. Pooled again, these would count twice
            # in Holm's method, and leave out cells where nothing is missing.
            if chart.are_bounds:
                continue
            # Ratios are averaged on the log scale, where 0 means no effect.
            unit, zero = (", log odds ratio", 0.0) if chart.ratios else ("", chart.reference_line)
            for name, *values in chart.items:
                label = name + unit
                key = finding.key, label
                figure_fields = (finding.key, finding.title, label, chart.percent, zero, ())
                known = figures.setdefault(key, Figure(*figure_fields, finding.unit, finding.units))
                figures[key] = replace(known, is_primary=known.is_primary or finding.primary)
                cells[key].append(
                    MeasuredFigure(cell, *map(math.log, values) if chart.ratios else values)
                )
    return [replace(figure, cells=tuple(cells[key])) for key, figure in figures.items()]


def overall_estimate(figure: Figure) -> Estimate:
    """Return the mean over the runs of a grid, with an interval over repeats.

    The interval is NaN with fewer than five repeats.
    """
    return clustered_mean(
        [measured.value for measured in figure.cells],
        [measured.cell.repeat for measured in figure.cells],
    )


def specification_estimates(figure: Figure) -> dict[str, Estimate]:
    """Return the mean over repeats for each combination of settings."""
    cells_by_specification: dict[str, list[MeasuredFigure]] = defaultdict(list)
    for measured in figure.cells:
        cells_by_specification[
            measured.cell.settings_text or f"repeat {measured.cell.repeat}"
        ].append(measured)
    return {name: _of_repeats(cells) for name, cells in cells_by_specification.items()}


def _of_repeats(cells: Sequence[MeasuredFigure]) -> Estimate:
    # A t interval over independent repeats. With fewer than five repeats, or with equal values, the
    # intervals within the cells are used instead. They do not include the variance between repeats.
    n = len(cells)
    if n >= FEWEST_UNITS and len({measured_figure.value for measured_figure in cells}) > 1:
        return clustered_mean(
            [measured_figure.value for measured_figure in cells],
            [measured_figure.cell.repeat for measured_figure in cells],
        )
    value = math.fsum(measured_figure.value for measured_figure in cells) / n
    if not all(measured_figure.high > measured_figure.low for measured_figure in cells):
        return Estimate(value, math.nan, math.nan, n)
    low = (
        math.sqrt(
            math.fsum(
                (measured_figure.value - measured_figure.low) ** 2 for measured_figure in cells
            )
        )
        / n
    )
    high = (
        math.sqrt(
            math.fsum(
                (measured_figure.high - measured_figure.value) ** 2 for measured_figure in cells
            )
        )
        / n
    )
    # The interval comes from within the cells, so the number of repeats does not forbid it.
    return Estimate(value, value - low, value + high, FEWEST_UNITS)


def sign_agreement(figure: Figure) -> tuple[float, float]:
    """Return two shares of the combinations of settings.

    - First: the share that agrees with the sign of the pooled estimate.
    - Second: the share that agrees and has an interval without the value for "no effect".
    """
    zero, sign = figure.zero or 0.0, np.sign(overall_estimate(figure).value - (figure.zero or 0.0))
    estimates = list(specification_estimates(figure).values())
    have_same_sign = [np.sign(estimate.value - zero) == sign != 0 for estimate in estimates]
    are_clear = [
        has_same_sign and estimate.has_interval and not estimate.low <= zero <= estimate.high
        for has_same_sign, estimate in zip(have_same_sign, estimates, strict=True)
    ]
    return float(np.mean(have_same_sign)), float(np.mean(are_clear))


def _format_figure(figure: Figure, value: float) -> str:
    if not figure.percent:
        return format_mean_value(value) if figure.zero is None else format_signed(value)
    return format_percent(value) if figure.zero is None else format_points(value)


def _format_span(figure: Figure, estimate: Estimate) -> str:
    if figure.percent:
        return points_span(estimate.low, estimate.high)
    return f"{_format_figure(figure, estimate.low)} to {_format_figure(figure, estimate.high)}"


def _overview_finding(grid: RunGrid, finished: int, usable: int) -> Finding:
    rows: list[Row] = [{"axis": key, "values": ", ".join(axis)} for key, axis in grid.axes.items()]
    first, last = grid.cells[0].seed, grid.cells[-1].seed
    seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
    rows.append({"axis": "repeat", "values": f"{grid.repeats} ({seeds})"})
    unusable = finished - usable
    sentences = [word("grid", "design", finished=finished, cells=len(grid.cells))]
    if unusable:
        case = "unusable, one" if unusable == 1 else "unusable, several"
        sentences.append(word("grid", case, number=unusable))
    if grid.repeats < FEWEST_UNITS:
        repeats = format_count(grid.repeats, "repeat")
        sentences.append(word("grid", "few repeats", repeats=repeats, fewest=FEWEST_UNITS))
    return Finding(
        "grid_design",
        "The grid",
        join_sentences(sentences),
        ResultTable.from_records(rows),
        notes=("Figures cover only the cells that have finished.",)
        if finished < len(grid.cells)
        else (),
        section=SECTION,
        headline=True,
    )


def judge_claims(runs: Cells, *, is_complete: bool = True) -> Finding | None:
    """Judge each primary claim over all combinations of settings together.

    - `is_complete`: False if some cells of the grid have not finished. Nothing is tested then.

    Returns None if there are no claims.
    """
    # The level of each test is 5 % divided by the number of claims. So the chance that a false
    # claim is called robust is at most 5 % over all claims.

    # The results of a cell are those of its report: all primary claims of the cell are one family.
    results_by_cell = {name: _judge_cell(run) for name, (_, run) in runs.items()}
    # A setting may change what a study type calls a condition or a measure. Such claims are one
    # comparison, and it gets the words of the cell that has names for most parts.
    worded: dict[Claim, Claim] = {}
    for comparison, result in (pair for cell in results_by_cell.values() for pair in cell.items()):
        known = worded.setdefault(comparison, result.claim)
        worded[comparison] = max(known, result.claim, key=lambda claim: claim.named_parts)
    curves_or_none = [
        _curve_of(comparison, claim, runs, results_by_cell, ALPHA / len(worded))
        for comparison, claim in worded.items()
    ]
    curves = [
        curve_and_verdicts if is_complete else _as_interim(*curve_and_verdicts)
        for curve_and_verdicts in curves_or_none
        if curve_and_verdicts is not None
    ]
    # A claim was fixed beforehand, so it is named although no cell could test it.
    untested = [
        word(
            "comparison",
            "statement",
            claim=claim.says,
            verdict=next(
                cell[comparison].verdict for cell in results_by_cell.values() if comparison in cell
            ),
            numbers="",
        )
        for (comparison, claim), curve in zip(worded.items(), curves_or_none, strict=True)
        if curve is None
    ]
    if not curves:
        return _untested_finding(untested) if untested else None
    rows: list[Row] = []
    lines = []
    # Shares and means have different units, so columns in points hold shares alone.
    points = "_points" if all(curve.claim.in_points for curve, _ in curves) else ""
    for curve, verdicts in curves:
        claim, values = curve.claim, curve.estimates.values()
        low, high = curve.predicted
        rows.append(
            {
                "claim": claim.says,
                "over_the_grid": _judgement_word(curve, verdicts),
                f"median{points}": finite_or_none(curve.median),
                f"least{points}": min(values),
                f"most{points}": max(values),
                "specifications": len(values),
                "on_its_side_share": curve.on_the_side,
                "median_p": finite_or_none(curve.p_median),
                "count_p": finite_or_none(curve.p_count),
                "z_p": finite_or_none(curve.p_z),
                f"a_further_one_from{points}": finite_or_none(low),
                f"a_further_one_to{points}": finite_or_none(high),
                "cells_supporting": verdicts.count("supported"),
                "cells_contradicting": verdicts.count("contradicted"),
                "units": curve.units,
            }
        )
        lines.append((claim.says, curve.median, min(values), max(values)))
    return Finding(
        GRID_CLAIMS,
        "Primary claims over the grid",
        join_sentences([*(_describe_curve(*curve) for curve in curves), *untested]),
        ResultTable.from_records(
            rows,
            "Median, least and most: differences over specifications. Joint p values: the chance "
            "of such a median, of as many specifications with p below .05, and of such a mean z, "
            "if no specification had an effect beyond the margin. A further one: 95 % prediction "
            "interval for one more specification of this kind.",
        ),
        IntervalChart(
            tuple(lines), "difference, least to most specification", 0.0, percent=bool(points)
        ),
        notes=(
            *(
                _explain_judgement(curves[0][0].alpha)
                if any(curve.is_judged for curve, _ in curves)
                else ()
            ),
            "Specifications with the same data count once.",
            f"Fewer than {FEWEST_SPECIFICATIONS} specifications (in a grid of repeats alone, "
            "repeats) are not judged: with random signs, all four would be on the claimed side "
            "in one of 16 grids, and all five in one of 32.",
        ),
        section=SECTION,
        headline=True,
        unit=join_unit_names(curve.claim.unit for curve, _ in curves),
        units=max(curve.units for curve, _ in curves),
    )


def _as_interim(curve: Curve, verdicts: list[str]) -> tuple[Curve, list[str]]:
    # The joint tests are made once, when all cells have finished.
    return replace(curve, p_median=math.nan, p_count=math.nan, p_z=math.nan), verdicts


def _explain_judgement(alpha: float) -> tuple[str, str]:
    return (
        "Robust: the estimates of all specifications are on the claimed side, beyond the margin, "
        f"and all three joint tests reject at {format_percent(alpha, 1)} (5 % divided by the "
        "number of claims). Fragile: no test rejects, or fewer than 80 % of the estimates are on "
        "this side. Mixed: all other cases.",
        "Joint tests draw people with all their answers in all specifications (bootstrap under no "
        "effect). Simonsohn, Simmons and Nelson (2020), doi:10.1038/s41562-020-0912-z.",
    )


def _untested_finding(untested: Sequence[Sentence]) -> Finding:
    return Finding(
        GRID_CLAIMS,
        "Primary claims over the grid",
        join_sentences(untested),
        ResultTable((), ()),
        section=SECTION,
        headline=True,
    )


def _judge_cell(run: RunFolder) -> dict[Claim, Result]:
    # The primary claims of a run with their results, by comparison.
    claims = claims_of_run(find_study_of_run(run), run)
    primary = [claim for claim in claims if claim.family == "primary"]
    results = evaluate_claims(run, primary)
    return {claim.without_wording: result for claim, result in zip(primary, results, strict=True)}


def _curve_of(
    comparison: Claim,
    worded: Claim,
    runs: Cells,
    results: Mapping[str, Mapping[Claim, Result]],
    level: float,
) -> tuple[Curve, list[str]] | None:
    # (curve, verdict in each cell that states the claim). `worded`: the comparison in words.
    # `results`: by the cell's name and the comparison. `level`: of the joint tests. None if no cell
    # can test the claim.
    parts: dict[str, list[tuple[Side, Side]]] = defaultdict(list)
    verdicts: dict[str, list[str]] = defaultdict(list)
    claim = None
    for name, (cell, run) in runs.items():
        result = results[name].get(comparison)
        sides_or_problem = read_sides(run, worded) if result is not None else ""
        if result is None or isinstance(sides_or_problem, str):
            continue
        claim, first, second = sides_or_problem
        specification = cell.settings_text or f"repeat {cell.repeat}"
        verdicts[specification].append(result.verdict)
        # Different repeats draw different participants, even if their ids are equal.
        arms = tuple(
            replace(side, units=tuple((cell.repeat, unit) for unit in side.units))
            for side in (first, second)
        )
        parts[specification].append((arms[0], arms[1]))
    if claim is None:
        return None
    sides = {
        name: (
            _join_sides(side for side, _ in arm_sides),
            _join_sides(side for _, side in arm_sides),
        )
        for name, arm_sides in parts.items()
    }
    # In a grid of repeats alone, the specifications are its repeats.
    is_of_repeats = not any(cell.settings_text for cell, _ in runs.values())
    curve = replace(specification_curve(claim, sides, level), is_of_repeats=is_of_repeats)
    # Specifications with the same data count once, and their cells too.
    return curve, [verdict for name in curve.estimates for verdict in verdicts[name]]


def _join_sides(sides: Iterable[Side]) -> Side:
    side_list = list(sides)
    return Side(
        np.concatenate([side.values for side in side_list]),
        tuple(unit for side in side_list for unit in side.units),
    )


def _judgement_word(curve: Curve, verdicts: Sequence[str]) -> str:
    # A claim that every cell refutes depends on no setting, so "fragile" would be the wrong word.
    refuted = curve.is_judged and all(verdict == CONTRADICTED for verdict in verdicts)
    return CONTRADICTED if refuted else curve.robustness_word


def _describe_curve(curve: Curve, verdicts: Sequence[str]) -> Sentence:
    claim, values = curve.claim, curve.estimates.values()
    cells = format_count(len(verdicts), "cell")
    copies = format_count(curve.merged, "identical specification")
    least, most = _format_ends(claim, (min(values), max(values)))
    # A single estimate is printed with its unit. A range has the unit only at its end.
    least = least if len(values) > 1 else most
    low, high = _format_ends(claim, curve.predicted)
    details = [
        word(
            "grid",
            "cells, contradicted" if CONTRADICTED in verdicts else "cells",
            supporting=verdicts.count(SUPPORTED),
            contradicting=verdicts.count(CONTRADICTED),
            cells=cells,
        ),
        word("grid", "span" if len(values) > 1 else "one estimate", least=least, most=most),
        word("grid", "further", least=low, most=high)
        if math.isfinite(curve.predicted[0])
        else None,
        # The level is not 5 % if there are several claims.
        word(
            "grid",
            "joint",
            p=format_p_value(max(curve.p_median, curve.p_count, curve.p_z)),
            level=format_percent(curve.alpha, 1),
        )
        if curve.is_judged
        else None,
        word("grid", "merged", specifications=copies) if curve.merged else None,
    ]
    noun = "repeat" if curve.is_of_repeats else "specification"
    over = format_count(len(values), noun)
    result = word("grid", _judgement_word(curve, verdicts), over=over, fewest=FEWEST_SPECIFICATIONS)
    return word(
        "grid", "curve", claim=claim.says, result=result, details=join_sentences(details, ", ")
    )


def _format_ends(claim: Claim, ends: tuple[float, float]) -> tuple[str, str]:
    low, high = map(claim.format_signed, ends)
    return low.removesuffix("s").removesuffix(" point"), high


def _standing_finding(figures: Sequence[Figure], repeats: int, usable: int) -> Finding | None:
    effects = [figure for figure in figures if figure.zero is not None and len(figure.cells) > 1]
    if not effects:
        return None
    rows: list[Row] = []
    pooled_effects = [overall_estimate(figure) for figure in effects]
    # The finding on the primary claims judges these. A second p-value would compete with it.
    ps = [
        math.nan if figure.is_primary else estimate.p
        for figure, estimate in zip(effects, pooled_effects, strict=True)
    ]
    # Holm's method needs the p-values of all differences at once.
    holms = holm(ps)
    for figure, estimate, p, adjusted in zip(effects, pooled_effects, ps, holms, strict=True):
        same_sign_share, clear_share = sign_agreement(figure)
        rows.append(
            {
                "finding": figure.title,
                "figure": figure.label,
                "pooled": _format_figure(figure, estimate.value),
                "interval": _format_span(figure, estimate) if estimate.has_interval else None,
                "p": finite_or_none(p),
                "holm_p": finite_or_none(adjusted),
                "cells": f"{len(figure.cells)} of {usable}",
                "distinct_estimates": _count_distinct(figure),
                "same_sign_share": same_sign_share,
                "clear_share": clear_share,
            }
        )
    # An axis of the grid with one value is no second specification.
    settings = {measured.cell.settings_text for figure in effects for measured in figure.cells}
    several_rows = [row for row in rows if row["distinct_estimates"] != 1]
    equal_count = len(rows) - len(several_rows)
    same_sign_count = sum(row["same_sign_share"] == 1 for row in several_rows)
    differences = format_count(len(several_rows), "difference")
    case = "same sign, one" if same_sign_count == 1 else "same sign, several"
    equal_case = "equal, one" if equal_count == 1 else "equal, several"
    sentences = [
        word("grid", case, differences=differences, number=same_sign_count)
        if several_rows
        else None,
        word(
            "grid",
            equal_case if len(settings) > 1 else "repeat by repeat",
            differences=format_count(equal_count, "difference"),
        )
        if equal_count
        else None,
        word("grid", "described"),
    ]
    return Finding(
        "grid_standing",
        "Differences over the grid (exploratory)",
        join_sentences(sentences),
        ResultTable.from_records(
            rows, "Pooled: mean over cells; 95 % t intervals over repeats, from five on."
        ),
        notes=(
            "A specification is a combination of settings, or a repeat in a grid of repeats alone. "
            "Those with equal estimates in all repeats count once. "
            "Same sign: the share of specifications with the sign of the pooled estimate. Clear: "
            "the share that also has an interval without zero effect.",
            NOT_DRAWN,
            *((SHARED_PEOPLE,) if len(settings) > 1 else ()),
            *((HOLM_NOTE,) if any(map(math.isfinite, holms)) else ()),
            *((NO_SECOND_P,) if any(figure.is_primary for figure in effects) else ()),
            *_some_lack(effects, usable),
        ),
        section=SECTION,
        unit="repeat",
        units=repeats,
    )


def _count_distinct(figure: Figure) -> int:
    # Combinations of settings with equal values count once. Values are equal if no condition uses
    # the setting that differs.
    parts: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for measured in figure.cells:
        # Equal figures differ by rounding.
        values = (measured.cell.repeat, round(measured.value, 12) + 0.0)
        parts[measured.cell.settings_text].append(values)
    if list(parts) == [""]:
        return len(specification_estimates(figure))
    return len({tuple(sorted(values)) for values in parts.values()})


def _some_lack(effects: Sequence[Figure], usable: int) -> tuple[str, ...]:
    incomplete_labels = [figure.label for figure in effects if len(figure.cells) < usable]
    if not incomplete_labels:
        return ()
    further_text = (
        f" and {len(incomplete_labels) - MAX_NAMES} more"
        if len(incomplete_labels) > MAX_NAMES
        else ""
    )
    listed_labels = "; ".join(incomplete_labels[:MAX_NAMES])
    return (
        "Not in every cell, so pooled over fewer cells, which may differ from the rest: "
        f"{listed_labels}{further_text}.",
    )


def _curve_finding(figure: Figure) -> Finding | None:
    estimates = specification_estimates(figure)
    if len(estimates) < 2:
        return None
    order = sorted(estimates, key=lambda name: estimates[name].value)
    # A curve with too many lines is thinned evenly, so that its ends and its shape stay.
    positions = np.linspace(0, len(order) - 1, min(len(order), MAX_LINES)).round().astype(int)
    shown_names = [order[position] for position in positions]
    notes = [f"From the finding “{figure.title}”."]
    if len(shown_names) < len(order):
        specifications = format_count(len(order), "specification")
        notes.append(
            f"The chart draws {len(shown_names)} of {specifications}, spread evenly over the curve."
        )
    lines = tuple(
        (name, estimates[name].value, estimates[name].low, estimates[name].high)
        if estimates[name].has_interval
        else (name, estimates[name].value, estimates[name].value, estimates[name].value)
        for name in shown_names
    )
    unit = "percentage points" if figure.percent else "difference"
    return Finding(
        f"grid_curve_{figure.finding}_{figure.label}",
        f"Specification curve: {figure.label}",
        _say_range(figure, estimates, order),
        ResultTable((), ()),
        IntervalChart(lines, unit, figure.zero, (), figure.percent),
        section="Specification curves",
        unit=figure.unit,
        units=figure.units,
        notes=tuple(notes),
    )


def _say_range(figure: Figure, estimates: Mapping[str, Estimate], order: Sequence[str]) -> Sentence:
    least, most = (_format_figure(figure, estimates[name].value) for name in (order[0], order[-1]))
    if math.isclose(estimates[order[0]].value, estimates[order[-1]].value, abs_tol=1e-12):
        specifications = format_count(len(order), "specification")
        return word("grid", "all equal", value=least, specifications=specifications)
    return word("grid", "range", least=least, first=order[0], most=most, last=order[-1])


def _variance_finding(figures: Sequence[Figure], grid: RunGrid) -> Finding | None:
    # The share is η². None if no effect is known in all cells, or if the grid has no axis.
    factors = [key for key, values in grid.axes.items() if len(values) > 1]
    complete_figures = [
        figure
        for figure in figures
        if figure.zero is not None and len(figure.cells) == len(grid.cells) > 1
    ]
    # With as many settings and repeats as cells, they would explain all of the variation.
    settings = sum(len(grid.axes[factor]) - 1 for factor in factors) + grid.repeats - 1
    if not complete_figures or not factors or settings >= len(grid.cells) - 1:
        return None
    rows: list[Row] = []
    for figure in complete_figures:
        values = np.array([measured_figure.value for measured_figure in figure.cells])
        total = float(((values - values.mean()) ** 2).sum())
        # Several findings can have a figure of the same name.
        row: Row = {
            "figure": figure.label,
            "finding": figure.title,
            "sd": float(values.std(ddof=1)),
        }
        explained = 0.0
        for factor in [*factors, *(["repeat"] if grid.repeats > 1 else [])]:
            levels = [
                _factor_level(measured_figure.cell, factor) for measured_figure in figure.cells
            ]
            part = sum(
                levels.count(level)
                * (values[[x == level for x in levels]].mean() - values.mean()) ** 2
                # A set would have another order, and so another rounding, in each process.
                for level in dict.fromkeys(levels)
            )
            share = float(part) / total if total else None
            row[f"{factor}_share"] = share
            explained += share or 0.0
        row["rest_share"] = max(0.0, 1 - explained) if total else None
        rows.append(row)
    return Finding(
        "grid_variance",
        "Where the variation between runs comes from",
        word("grid", "variance"),
        ResultTable.from_records(
            rows, "Shares of the sum of squares between cells (η²); SD over cells."
        ),
        section=SECTION,
    )


def _factor_level(cell: GridCell, factor: str) -> str:
    return str(cell.repeat) if factor == "repeat" else cell.settings[factor]
