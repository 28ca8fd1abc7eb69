"""Build findings: format one estimate as table cells, as a chart line and as words.

An `Estimate` comes from `wilson_rates`, `folkmoot.measures` or `estimate_from_json`.

    wilson_rates(counts)                the share of each group
    estimate_cells(e, "changed_rate", "_rate")   the cells of a row: value and bounds
    p_value_cell(e), p_value_words(e)   its p as a cell and in words
    with_adjusted_p(estimates)          Holm's p of all comparisons of one table
    interval_chart(estimates, "unit")   the chart
    format_share(e), format_points(e), format_mean(e), format_change(e)
                                        the words: "16 % (9 to 23 %)"
    is_significant(e)                   whether a difference is significant, None if unknown
    respondent_checks_finding(...)      the finding on whether the model is fit to answer

Every finding with an interval names its unit of analysis:

    Finding(key, title, statement, table, chart, unit="group", units=group_count)

A finding with fewer than five units shows no interval and no p. If rows have different units, each
is judged by its own: `fewest_units(estimates)` is the number of the finding, and a column `units`
has the others.
Format `low`, `high` and `p` with these functions only, so that sentences follow this rule, too.
"""
# An unknown value becomes a blank cell, "no interval", or a chart without the line.

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from pydantic import JsonValue

from folkmoot.engine.journal.journal import unescape_address_part
from folkmoot.hints import capitalise
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, Check
from folkmoot.measures.inference import estimates
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_p_value,
    format_percent,
    round_half_away,
)
from folkmoot.measures.inference.proportions import holm, wilson
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.storage.findings import Finding, Heatmap, IntervalChart, ResultTable, TableCell

Row = dict[str, TableCell]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
finite_or_none = estimates.finite_or_none
format_signed = estimates.format_signed
ALPHA = estimates.ALPHA

# Reports look this finding up by its key, and add it if the study type has none.
RESPONDENT_CHECKS_KEY = "respondent_checks"
# The section of findings that compare the run with people. Rows with a column `verdict` enter the
# validity card of the report.
HUMAN_BENCHMARK_SECTION = "Comparison with people"
HOLM_NOTE = (
    "Adjusted p: for all comparisons of this table by Holm's method, which limits the chance "
    "of even one false alarm among them to 5 %. The wording of the finding uses the adjusted p. p "
    "and 95 % intervals are not adjusted and agree with each other. If an interval excludes zero "
    "and the adjusted p is above .05, the difference would count only as the single comparison."
)


def split_address(address: str) -> list[str]:
    """Return the parts of an address: the scope names, then the call, such as `ask2`."""
    return [unescape_address_part(part) for part in address.split("/")]


def collect_findings(*groups: Finding | Iterable[Finding | None] | None) -> list[Finding]:
    """Return the given findings as one flat list in order, without None."""
    flat: list[Finding] = []
    for group in groups:
        flat += (
            [group]
            if isinstance(group, Finding)
            else [finding for finding in group or () if finding is not None]
        )
    return flat


# --- estimates ---------------------------------------------------------------------------------


def wilson_rates(counts: Mapping[str, tuple[int, int]]) -> dict[str, Estimate]:
    """Return the share of each group with its Wilson interval.

    `counts`: the count and the total of each group. Groups with a total of 0 are left out.
    """
    return {group: wilson(count, n) for group, (count, n) in counts.items() if n}


def condition_name(condition: str) -> str:
    """Return a readable name for a condition."""
    named = {"acp": "Adversarial (ACP)"}
    return named.get(condition) or capitalise(condition.replace("_", " "))


def category_shares(counts: Mapping[str, int]) -> dict[str, float | None]:
    """Return the share of each category in the total. All shares are None if the total is 0."""
    total = sum(counts.values())
    return {name: n / total if total else None for name, n in counts.items()}


def estimate_from_json(fields: Mapping[str, JsonValue], clusters: str = "n") -> Estimate:
    """Return an estimate from a JSON object with `estimate`, `low`, `high`, `p`, `n` and `each`.

    `clusters`: the key of the number of independent units, such as "sets".
    A missing or non-numeric value becomes NaN, and a missing count becomes 0.
    """
    value, low, high, p_value = (
        _number_or_nan(fields.get(key)) for key in ("estimate", "low", "high", "p")
    )
    n, units = (int(_number_or_nan(fields.get(key) or 0)) for key in ("n", clusters))
    unit_values = fields.get("each")
    each = tuple(map(_number_or_nan, unit_values)) if isinstance(unit_values, list) else ()
    return Estimate(value, low, high, n, units, p_value, each=each)


def _number_or_nan(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def is_significant(estimate: Estimate) -> bool | None:
    """Return whether a difference is statistically significant at 5 %, or None if unknown.

    The result is None for fewer than five independent units.
    """
    # The p-value decides, or else the interval.

    # Fewer than five units are shown as an illustration, without a verdict.
    if estimate.unit_count < FEWEST_UNITS:
        return None
    if math.isfinite(estimate.p):
        return estimate.p < ALPHA
    return estimate.excludes_zero if estimate.has_interval else None


def with_adjusted_p(estimates: Mapping[K, Estimate]) -> dict[K, float]:
    """Return a map from label to p-value, adjusted by Holm's method.

    `estimates`: a map from label to estimate, with all comparisons of one table.
    The p-value is NaN for a comparison without a test.
    """
    # With too few units there is no test. `holm` ignores NaN, so such a comparison does not make
    # the others stricter.
    ps = [
        estimate.p if estimate.unit_count >= FEWEST_UNITS else math.nan
        for estimate in estimates.values()
    ]
    return dict(zip(estimates, holm(ps), strict=True))


def all_largest(items: Iterable[V], value: Callable[[V], float]) -> list[V]:
    """Return all items with the largest value, in order.

    A sentence that names one of several equal items as the largest would be false.
    """
    listed = list(items)
    largest = max(map(value, listed), default=math.nan)
    return [item for item in listed if value(item) == largest]


def fewest_units(estimates: Iterable[Estimate]) -> int:
    """Return the number of independent units of a finding with an estimate in each row.

    It is the smallest number of the rows that have five units or more, and that of all rows if none
    has so many. Unknown estimates do not count. The result is 0 without a known estimate.
    """
    # Each row is judged by its own units. A row of fewer than five is an illustration. It takes no
    # interval from the others, so it does not make the whole finding one.
    # A difference of constants in standard deviations is infinite, and known.
    counts = [estimate.unit_count for estimate in estimates if not math.isnan(estimate.value)]
    enough = [count for count in counts if count >= FEWEST_UNITS]
    return min(enough or counts, default=0)


def name_few_units(estimate: Estimate, all_rows: Iterable[Estimate], unit: str) -> str:
    """Return words for an estimate from fewer than five units, beside rows from more.

    Returns "" for an estimate from five or more. Returns "" also if no row has so many, because
    then the label of the finding says it.

    - `unit`: the noun of the independent unit.
    """
    if estimate.unit_count >= FEWEST_UNITS or fewest_units(all_rows) < FEWEST_UNITS:
        return ""
    return word("description", "few units", units=format_count(estimate.unit_count, unit))


# --- cells and charts --------------------------------------------------------------------------


def estimate_cells(estimate: Estimate | None, name: str, suffix: str = "") -> Row:
    """Return the cells `name`, `low` and `high` of a row.

    `suffix`: added to the names `low` and `high`. With "_rate" the report formats them as shares.
    """
    low, high = f"low{suffix}", f"high{suffix}"
    if estimate is None:
        return {name: None, low: None, high: None}
    bounds = (estimate.low, estimate.high) if estimate.has_interval else (None, None)
    return dict(zip((name, low, high), (finite_or_none(estimate.value), *bounds), strict=True))


def p_value_cell(estimate: Estimate) -> float | None:
    """Return an estimate's p-value for a table cell, or None if there are too few units."""
    return finite_or_none(estimate.p) if estimate.unit_count >= FEWEST_UNITS else None


def p_value_cells(estimate: Estimate, holm: float) -> Row:
    """Return the cells `p` and `holm_p` for one comparison.

    `holm`: the p-value adjusted by Holm's method.
    """
    return {"p": p_value_cell(estimate), "holm_p": finite_or_none(holm)}


def interval_line(label: str, estimate: Estimate) -> tuple[str, float, float, float]:
    """Return a chart line: label, value, low and high.

    The line is a point if the estimate has no interval.
    """
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
    """Return a chart with one line per labelled estimate, or None if no estimate is known.

    - `zero`: the value that means no effect.
    - `bands`: results of human studies to draw behind the lines, as (label, low, high).
    """
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
    """Return the heatmap of how often speakers refer to each other.

    - `counts`: how often one speaker refers to another, by (speaker id, other speaker's id).
    - `people`: the name of each id, in display order.
    """
    # Pairs without a count are 0, and self-references are left out.
    return Heatmap(
        tuple(
            (people[speaker], people[other], float(counts.get((speaker, other), 0)))
            for speaker in people
            for other in people
            if speaker != other
        ),
        row="speaker",
        column="refers to",
        unit=unit,
    )


# --- words -------------------------------------------------------------------------------------


def format_share(estimate: Estimate, aside: str = "", *, digits: int = 0) -> str:
    """Return a share as text, such as "16 % (9 to 23 %)".

    `aside`: words to add within the brackets.
    """
    return _format_estimate(
        estimate,
        format_percent(estimate.value, digits),
        estimates.format_span(estimate.low, estimate.high, digits),
        aside,
    )


def format_points(estimate: Estimate, aside: str = "") -> str:
    """Return a difference of shares as text, such as "+12 points (+3 to +20)".

    `aside`: words to add within the brackets.
    """
    # The value has the digits of its interval.
    ends = (100 * estimate.low, 100 * estimate.high) if estimate.has_interval else ()
    return _format_estimate(
        estimate,
        estimates.format_points(estimate.value, estimates.needed_digits(ends)),
        estimates.points_span(estimate.low, estimate.high),
        aside,
    )


def format_mean(estimate: Estimate) -> str:
    """Return a mean as text, such as "1.24 (0.90 to 1.58)"."""
    return _format_estimate(
        estimate,
        format_mean_value(estimate.value),
        f"{format_mean_value(estimate.low)} to {format_mean_value(estimate.high)}",
    )


def format_change(estimate: Estimate) -> str:
    """Return a difference of means as text, such as "+0.31 (−0.05 to +0.67)"."""
    return _format_estimate(
        estimate,
        format_signed(estimate.value),
        f"{format_signed(estimate.low)} to {format_signed(estimate.high)}",
    )


def _format_estimate(estimate: Estimate, value: str, span: str, aside: str = "") -> str:
    if not math.isfinite(estimate.value):
        return "unknown"
    return (
        f"{value} "
        f"({', '.join(filter(None, (span if estimate.has_interval else 'no interval', aside)))})"
    )


def format_mean_value(value: float | None) -> str:
    """Return a mean with two decimals, or "unknown"."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{round_half_away(value, 2):.2f}".replace("-", "−")


def p_value_words(estimate: Estimate, holm: float | None = None) -> str:
    """Return a p-value as text, such as "p = .043", or an empty text if no test was made.

    `holm`: the p-value adjusted by Holm's method. If given, the text is "adjusted p = .012".
    """
    # If only the unadjusted p is below 5 %, the text gives both p-values, because the interval
    # agrees with the unadjusted p.
    if p_value_cell(estimate) is None:
        return ""
    if holm is None:
        return format_p_value(estimate.p)
    alone = f"{format_p_value(estimate.p)} by itself, " if estimate.p < ALPHA <= holm else ""
    return f"{alone}adjusted {format_p_value(holm)}"


def list_values(values: Iterable[tuple[str, str]]) -> Sentence:
    """Return names with their values as clauses, such as "name value; name value"."""
    return join_sentences(
        (word("description", "value", name=name, value=value) for name, value in values), "; "
    )


def describe_values(what: str, values: Iterable[tuple[str, str]]) -> Sentence:
    """Return a sentence such as "what: name value; name value"."""
    return word("description", "values", what=what, values=list_values(values))


def join_clauses(parts: Iterable[str]) -> str:
    """Join clauses with semicolons into one sentence that ends with a full stop."""
    return "; ".join(parts) + "."


# --- findings that studies share ---------------------------------------------------------------


def respondent_checks_finding(checks: Sequence[Check]) -> Finding:
    """Return the finding on whether the model is fit to answer for people."""
    # A row per check.
    failed = [check for check in checks if check.verdict == FAILED]
    unknown = [check.title.lower() for check in checks if check.verdict == NOT_KNOWN]
    passed = len(checks) - len(failed) - len(unknown)
    sentences = [
        *(word("check", "of model", title=check.title, says=check.says) for check in failed),
        word("check", "summary", passed=format_count(passed, "check"), checks=len(checks)),
    ]
    if unknown:
        sentences.append(word("check", "summary, not known", titles=", ".join(unknown)))
    return Finding(
        RESPONDENT_CHECKS_KEY,
        "Is the model fit to answer?",
        join_sentences(sentences),
        ResultTable.from_records(
            [
                {
                    "check": check.title,
                    "value": finite_or_none(check.value.value) if check.value else None,
                    "interval": _interval_in_words(check.value),
                    "margin": str(check.margin),
                    "verdict": check.verdict,
                    "says": check.says,
                }
                for check in checks
            ],
            "Each check looks for one known difference between answers of models and of people. "
            "Passed: the whole 95 % interval is inside the margin. Failed: the whole interval is "
            "outside. Cut replies are counted, and a single one fails. If a check cannot pass by "
            "its interval alone, its sentence gives the reason.",
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
