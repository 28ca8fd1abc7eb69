"""How a study makes its findings: one estimate read as cells, as a line of a chart and as words.

A finding shows the same numbers three times: in its table, in its chart, in its sentence. The
currency is `Estimate` (a value, its interval, its p): from the tables of the run by `wilson_rates`
or by `folkmoot.measures`, or from a study's own JSON file by `estimate_from_json`.

    rates(counts)                       group → (count, n)  to  group → Estimate (Wilson)
    cells(e, "changed_rate", "_rate")   the cells of a row: value and bounds
    p(e) chance(e)                      its p as a cell and in words
    adjusted(estimates)                 Holm's p of all comparisons of one table, with the note HOLM
    intervals(estimates, "unit")        the chart
    share(e) points(e) mean(e) change(e)  the words: "16 % (9 to 23 %)"
    significant(e)                      whether chance is ruled out; None where it isn't known
    fitness(...)                        the finding on whether the model is fit to answer

What isn't known stays unknown: a blank cell, "no interval", no line in a chart, no finding.

Few units are few. Every finding with an interval names what is independent of each other, once:

    Finding(key, title, says, grid, chart, unit="group", units=groups)

The report prints it. With fewer than five units the finding makes itself an illustration ("An
illustration, not evidence: 3 groups."): bounds and p leave its table and chart. For that the words
must come from the functions above, which give no interval and no verdict of an estimate with fewer
than five units (`Estimate.unit_count`: its clusters, or n where units are independent), and no
study looks at `low`, `high` or `p_value_cell` itself. The units are shown as points:
`clustered_mean` keeps their values in `Estimate.each`, `interval_chart` draws them; a JSON file
keeps them under `each`, from which `estimate_from_json` reads them.

Test and interval are one method (CR2 with Satterthwaite's degrees of freedom for clusters,
Newcombe's interval and the level at which it touches zero for two shares), so that an interval
excludes zero exactly where p is below .05: take both from one `Estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from pydantic import JsonValue

from folkmoot.engine.journal.journal import unescape_address_part
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, Check
from folkmoot.measures.inference import estimates
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_p_value,
    format_percent,
)
from folkmoot.measures.inference.proportions import holm, wilson
from folkmoot.storage.findings import Finding, Heatmap, IntervalChart, ResultTable, TableCell

Row = dict[str, TableCell]
K = TypeVar("K", bound=Hashable)
known = estimates.finite_or_none
ALPHA = estimates.ALPHA

RESPONDENT_CHECKS_KEY = "respondent_checks"  # the key of the finding on whether the model is fit
HOLM_NOTE = (
    "holm p: adjusted for all comparisons of this table by Holm's method, which keeps the chance "
    "of even one false alarm among them at 5 %; words go by it. p and 95 % intervals are not "
    "adjusted and agree with each other: an interval that excludes zero beside a holm p above .05 "
    "is a difference that would count if it were the only one looked at."
)


def split_address(address: str) -> list[str]:
    """Return the names in an address: those of its scopes, then the effect with its count."""
    return [unescape_address_part(part) for part in address.split("/")]


def collect_findings(*some: Finding | Iterable[Finding | None] | None) -> list[Finding]:
    """Findings in the order given, without those that had nothing to say."""
    flat: list[Finding] = []
    for one in some:
        flat += (
            [one]
            if isinstance(one, Finding)
            else [finding for finding in one or () if finding is not None]
        )
    return flat


# --- estimates ---------------------------------------------------------------------------------


def wilson_rates(counts: Mapping[str, tuple[int, int]]) -> dict[str, Estimate]:
    """Shares with Wilson intervals. `counts`: group → (count, n); groups of nobody are left out."""
    return {group: wilson(count, n) for group, (count, n) in counts.items() if n}


def category_shares(counts: Mapping[str, int]) -> dict[str, float | None]:
    """What share each category has of the total; None for all of them if the total is 0."""
    total = sum(counts.values())
    return {name: n / total if total else None for name, n in counts.items()}


def estimate_from_json(kept: Mapping[str, JsonValue], clusters: str = "n") -> Estimate:
    """An estimate that a JSON file keeps under `estimate`, `low`, `high`, `p_value`, `n` and
    `each`.

    `clusters`: the key that counts the independent units ("sets").
    """
    value, low, high, p_value = (
        _number_or_nan(kept.get(key)) for key in ("estimate", "low", "high", "p")
    )
    n, units = (int(_number_or_nan(kept.get(key) or 0)) for key in ("n", clusters))
    own = kept.get("each")
    each = tuple(map(_number_or_nan, own)) if isinstance(own, list) else ()
    return Estimate(value, low, high, n, units, p_value, each=each)


def _number_or_nan(kept: JsonValue) -> float:
    return float(kept) if isinstance(kept, int | float) else math.nan


def is_significant(estimate: Estimate) -> bool | None:
    """Whether a difference is statistically significant at 5 %; None where nothing tells.

    By its p where one was computed, else by whether its interval excludes zero. Never of fewer
    than five independent units.
    """
    if estimate.unit_count < FEWEST_UNITS:
        return None
    if math.isfinite(estimate.p):
        return estimate.p < ALPHA
    return estimate.excludes_zero if estimate.has_interval else None


def with_adjusted_p(estimates: Mapping[K, Estimate]) -> dict[K, float]:
    """Holm's p of each of the comparisons of one table, by label; NaN where none was tested."""
    ps = [
        estimate.p if estimate.unit_count >= FEWEST_UNITS else math.nan
        for estimate in estimates.values()
    ]
    return dict(zip(estimates, holm(ps), strict=True))


# --- cells and charts --------------------------------------------------------------------------


def estimate_cells(estimate: Estimate | None, name: str, suffix: str = "") -> Row:
    """The cells `name`, `low` and `high`; `suffix` marks the bounds of shares ("_rate")."""
    low, high = f"low{suffix}", f"high{suffix}"
    if estimate is None:
        return {name: None, low: None, high: None}
    bounds = (estimate.low, estimate.high) if estimate.has_interval else (None, None)
    return dict(zip((name, low, high), (known(estimate.value), *bounds), strict=True))


def p_value_cell(estimate: Estimate) -> float | None:
    """The cell of an estimate's p: None where nothing was tested."""
    return known(estimate.p) if estimate.unit_count >= FEWEST_UNITS else None


def p_value_cells(estimate: Estimate, holm: float = math.nan) -> Row:
    """The cells `p_value_cell` and `holm_p` of one of the comparisons of a table (see
    `with_adjusted_p`)."""
    return {"p": p_value_cell(estimate), "holm_p": known(holm)}


def interval_line(label: str, estimate: Estimate) -> tuple[str, float, float, float]:
    """A line of a chart of intervals; a point where there is no interval."""
    if estimate.has_interval:
        return label, estimate.value, estimate.low, estimate.high
    return label, estimate.value, estimate.value, estimate.value


def interval_chart(
    estimates: Mapping[str, Estimate],
    unit: str = "",
    *,
    percent: bool = False,
    zero: float | None = None,
    bands: tuple[tuple[str, float, float], ...] = (),
) -> IntervalChart | None:
    """The chart of estimates by label; None if none of them is known."""
    lines = tuple(
        interval_line(label, estimate)
        for label, estimate in estimates.items()
        if math.isfinite(estimate.value)
    )
    each = tuple((label, value) for label, estimate in estimates.items() for value in estimate.each)
    return IntervalChart(lines, unit, zero, bands, percent, each) if lines else None


def interaction_matrix(
    counts: Mapping[tuple[str, str], int], people: Mapping[str, str], unit: str
) -> Heatmap:
    """The matrix of who turned to whom: `counts` by (id, id), `people` id → name, in order."""
    return Heatmap(
        tuple(
            (people[person], people[b], float(counts.get((person, b), 0)))
            for person in people
            for b in people
            if person != b
        ),
        row="who",
        column="to whom",
        unit=unit,
    )


# --- words -------------------------------------------------------------------------------------


def format_share(estimate: Estimate, extra: str = "", digits: int = 0) -> str:
    """ "16 % (9 to 23 %)"; `extra` is added within the brackets, as in all of these. With one digit
    more beside a difference, as in `format_mean_value`."""
    return _format_estimate(
        estimate,
        format_percent(estimate.value, digits),
        estimates.format_span(estimate.low, estimate.high),
        extra,
    )


def format_points(estimate: Estimate, aside: str = "") -> str:
    """ "+12 points (+3 to +20)": the difference of two shares."""
    return _format_estimate(
        estimate,
        estimates.format_points(estimate.value),
        estimates.points_span(estimate.low, estimate.high),
        aside,
    )


def format_mean(estimate: Estimate, aside: str = "") -> str:
    """ "1.24 (0.90 to 1.58)"."""
    return _format_estimate(
        estimate,
        format_mean_value(estimate.value),
        f"{format_mean_value(estimate.low)} to {format_mean_value(estimate.high)}",
        aside,
    )


def format_change(estimate: Estimate, aside: str = "") -> str:
    """ "+0.31 (−0.05 to +0.67)": a difference of means."""
    return _format_estimate(
        estimate,
        format_signed(estimate.value),
        f"{format_signed(estimate.low)} to {format_signed(estimate.high)}",
        aside,
    )


def _format_estimate(estimate: Estimate, value: str, span: str, aside: str) -> str:
    if not math.isfinite(estimate.value):
        return "unknown"
    return (
        f"{value} "
        f"({', '.join(filter(None, (span if estimate.has_interval else 'no interval', aside)))})"
    )


def format_mean_value(value: float | None, digits: int = 2) -> str:
    """A mean with two decimals; "unknown". Beside a difference, means have one digit more than it,
    so that the difference is seen to be theirs."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def format_signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign and two decimals; "unknown". See `format_mean_value` for
    `digits`."""
    if value is None or not math.isfinite(value):
        return "unknown"
    rounded = round(value, digits) + 0.0  # −0 becomes 0
    return f"{rounded:{'+' if rounded else ''}.{digits}f}".replace("-", "−")


def p_value_words(estimate: Estimate, holm: float | None = None) -> str:
    """ "p = .043", or with Holm's "adjusted p = .012"; both where they disagree, for then the
    interval agrees with the first alone. Empty where nothing was tested."""
    if p_value_cell(estimate) is None:
        return ""
    if holm is None:
        return format_p_value(estimate.p)
    alone = f"{format_p_value(estimate.p)} by itself, " if estimate.p < ALPHA <= holm else ""
    return f"{alone}adjusted {format_p_value(holm)}"


def join_clauses(parts: Iterable[str]) -> str:
    """Parts of one sentence: "a; b; c."."""
    return "; ".join(parts) + "."


# --- findings that studies share ---------------------------------------------------------------


def respondent_checks_finding(checks: Sequence[Check]) -> Finding:
    """Signs that the model is unfit to stand in for people, one row a check."""
    failed = [check for check in checks if check.verdict == FAILED]
    unknown = [check.title.lower() for check in checks if check.verdict == NOT_KNOWN]
    passed = len(checks) - len(failed) - len(unknown)
    said = [f"{check.title}: {check.says}" for check in failed]
    said.append(f"{format_count(passed, 'check')} of {len(checks)} passed.")
    if unknown:
        said.append(f"Not known: {', '.join(unknown)}.")
    return Finding(
        RESPONDENT_CHECKS_KEY,
        "Is the model fit to answer?",
        " ".join(said),
        ResultTable.from_records(
            [
                {
                    "check": check.title,
                    "value": known(check.value.value) if check.value else None,
                    "interval": _interval_in_words(check.value),
                    "margin": str(check.margin),
                    "verdict": check.verdict,
                    "says": check.says,
                }
                for check in checks
            ],
            "Each check looks for one known way in which models answer unlike people. Passed: the "
            "whole 95 % interval lies inside the margin; failed: all of it lies outside.",
        ),
        section="Noise",
        headline=bool(failed),
    )


def _interval_in_words(estimate: Estimate | None) -> str:
    return (
        f"{estimate.low:.3g} to {estimate.high:.3g}".replace("-", "−")
        if estimate and estimate.has_interval
        else ""
    )
