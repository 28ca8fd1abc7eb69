"""How a study makes its findings: one estimate read as cells, as a line of a chart and as words.

A finding shows the same numbers three times: in its table, in its chart, in its sentence. The
currency is `Estimate` (a value, its interval, its p): from the tables of the run by `rates` or by
`folkmoot.measures`, or from a study's own JSON file by `estimate_of`.

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
than five units (`Estimate.units`: its clusters, or n where units are independent), and no study
looks at `low`, `high` or `p` itself. The units are shown as points: `clustered_mean` keeps their
values in `Estimate.each`, `intervals` draws them; a JSON file keeps them under `each`, from which
`estimate_of` reads them.

Test and interval are one method (CR2 with Satterthwaite's degrees of freedom for clusters,
Newcombe's interval and the level at which it touches zero for two shares), so that an interval
excludes zero exactly where p is below .05: take both from one `Estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from pydantic import JsonValue

from folkmoot.engine.journal.journal import name_in
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, Check
from folkmoot.measures.inference import estimates
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, p_value, percent, plural
from folkmoot.measures.inference.proportions import holm, wilson
from folkmoot.storage.findings import Cell, Finding, Grid, Heat, Intervals

Row = dict[str, Cell]
K = TypeVar("K", bound=Hashable)
known = estimates.known
ALPHA = estimates.ALPHA

FITNESS = "respondent_checks"  # the key of the finding on whether the model is fit
HOLM = (
    "holm p: adjusted for all comparisons of this table by Holm's method, which keeps the chance "
    "of even one false alarm among them at 5 %; words go by it. p and 95 % intervals are not "
    "adjusted and agree with each other: an interval that excludes zero beside a holm p above .05 "
    "is a difference that would count if it were the only one looked at."
)


def split_address(address: str) -> list[str]:
    """Return the names in an address: those of its scopes, then the effect with its count."""
    return [name_in(part) for part in address.split("/")]


def found(*some: Finding | Iterable[Finding | None] | None) -> list[Finding]:
    """Findings in the order given, without those that had nothing to say."""
    flat: list[Finding] = []
    for one in some:
        flat += [one] if isinstance(one, Finding) else [f for f in one or () if f is not None]
    return flat


# --- estimates ---------------------------------------------------------------------------------


def rates(counts: Mapping[str, tuple[int, int]]) -> dict[str, Estimate]:
    """Shares with Wilson intervals. `counts`: group → (count, n); groups of nobody are left out."""
    return {group: wilson(count, n) for group, (count, n) in counts.items() if n}


def shares(counts: Mapping[str, int]) -> dict[str, float | None]:
    """What share each category has of the total; None for all of them if the total is 0."""
    total = sum(counts.values())
    return {name: n / total if total else None for name, n in counts.items()}


def estimate_of(kept: Mapping[str, JsonValue], clusters: str = "n") -> Estimate:
    """An estimate that a JSON file keeps under `estimate`, `low`, `high`, `p`, `n` and `each`.

    `clusters`: the key that counts the independent units ("sets").
    """
    value, low, high, p = (_number(kept.get(k)) for k in ("estimate", "low", "high", "p"))
    n, units = (int(_number(kept.get(k) or 0)) for k in ("n", clusters))
    own = kept.get("each")
    each = tuple(map(_number, own)) if isinstance(own, list) else ()
    return Estimate(value, low, high, n, units, p, each=each)


def _number(kept: JsonValue) -> float:
    return float(kept) if isinstance(kept, int | float) else math.nan


def significant(e: Estimate) -> bool | None:
    """Whether a difference is statistically significant at 5 %; None where nothing tells.

    By its p where one was computed, else by whether its interval excludes zero. Never of fewer
    than five independent units.
    """
    if e.units < FEWEST_UNITS:
        return None
    if math.isfinite(e.p):
        return e.p < ALPHA
    return e.excludes_zero if e.has_interval else None


def adjusted(some: Mapping[K, Estimate]) -> dict[K, float]:
    """Holm's p of each of the comparisons of one table, by label; NaN where none was tested."""
    ps = [e.p if e.units >= FEWEST_UNITS else math.nan for e in some.values()]
    return dict(zip(some, holm(ps), strict=True))


# --- cells and charts --------------------------------------------------------------------------


def cells(e: Estimate | None, name: str, suffix: str = "") -> Row:
    """The cells `name`, `low` and `high`; `suffix` marks the bounds of shares ("_rate")."""
    low, high = f"low{suffix}", f"high{suffix}"
    if e is None:
        return {name: None, low: None, high: None}
    bounds = (e.low, e.high) if e.has_interval else (None, None)
    return dict(zip((name, low, high), (known(e.value), *bounds), strict=True))


def p(e: Estimate) -> float | None:
    """The cell of an estimate's p: None where nothing was tested."""
    return known(e.p) if e.units >= FEWEST_UNITS else None


def p_cells(e: Estimate, holm: float = math.nan) -> Row:
    """The cells `p` and `holm_p` of one of the comparisons of a table (see `adjusted`)."""
    return {"p": p(e), "holm_p": known(holm)}


def interval(label: str, e: Estimate) -> tuple[str, float, float, float]:
    """A line of a chart of intervals; a point where there is no interval."""
    if e.has_interval:
        return label, e.value, e.low, e.high
    return label, e.value, e.value, e.value


def intervals(
    some: Mapping[str, Estimate],
    unit: str = "",
    *,
    percent: bool = False,
    zero: float | None = None,
    bands: tuple[tuple[str, float, float], ...] = (),
) -> Intervals | None:
    """The chart of estimates by label; None if none of them is known."""
    lines = tuple(interval(label, e) for label, e in some.items() if math.isfinite(e.value))
    each = tuple((label, value) for label, e in some.items() for value in e.each)
    return Intervals(lines, unit, zero, bands, percent, each) if lines else None


def who_to_whom(
    counts: Mapping[tuple[str, str], int], people: Mapping[str, str], unit: str
) -> Heat:
    """The matrix of who turned to whom: `counts` by (id, id), `people` id → name, in order."""
    return Heat(
        tuple(
            (people[a], people[b], float(counts.get((a, b), 0)))
            for a in people
            for b in people
            if a != b
        ),
        row="who",
        column="to whom",
        unit=unit,
    )


# --- words -------------------------------------------------------------------------------------


def share(e: Estimate, aside: str = "", digits: int = 0) -> str:
    """ "16 % (9 to 23 %)"; `aside` is added within the brackets, as in all of these. With one digit
    more beside a difference, as in `number`."""
    return _worded(e, percent(e.value, digits), estimates.span(e.low, e.high), aside)


def points(e: Estimate, aside: str = "") -> str:
    """ "+12 points (+3 to +20)": the difference of two shares."""
    return _worded(e, estimates.points(e.value), estimates.points_span(e.low, e.high), aside)


def mean(e: Estimate, aside: str = "") -> str:
    """ "1.24 (0.90 to 1.58)"."""
    return _worded(e, number(e.value), f"{number(e.low)} to {number(e.high)}", aside)


def change(e: Estimate, aside: str = "") -> str:
    """ "+0.31 (−0.05 to +0.67)": a difference of means."""
    return _worded(e, signed(e.value), f"{signed(e.low)} to {signed(e.high)}", aside)


def _worded(e: Estimate, value: str, span: str, aside: str) -> str:
    if not math.isfinite(e.value):
        return "unknown"
    return (
        f"{value} ({', '.join(filter(None, (span if e.has_interval else 'no interval', aside)))})"
    )


def number(value: float | None, digits: int = 2) -> str:
    """A mean with two decimals; "unknown". Beside a difference, means have one digit more than it,
    so that the difference is seen to be theirs."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign and two decimals; "unknown". See `number` for `digits`."""
    if value is None or not math.isfinite(value):
        return "unknown"
    rounded = round(value, digits) + 0.0  # −0 becomes 0
    return f"{rounded:{'+' if rounded else ''}.{digits}f}".replace("-", "−")


def chance(e: Estimate, holm: float | None = None) -> str:
    """ "p = .043", or with Holm's "adjusted p = .012"; both where they disagree, for then the
    interval agrees with the first alone. Empty where nothing was tested."""
    if p(e) is None:
        return ""
    if holm is None:
        return p_value(e.p)
    alone = f"{p_value(e.p)} by itself, " if e.p < ALPHA <= holm else ""
    return f"{alone}adjusted {p_value(holm)}"


def listed(parts: Iterable[str]) -> str:
    """Parts of one sentence: "a; b; c."."""
    return "; ".join(parts) + "."


# --- findings that studies share ---------------------------------------------------------------


def fitness(checks: Sequence[Check]) -> Finding:
    """Signs that the model is unfit to stand in for people, one row a check."""
    failed = [c for c in checks if c.verdict == FAILED]
    unknown = [c.title.lower() for c in checks if c.verdict == NOT_KNOWN]
    passed = len(checks) - len(failed) - len(unknown)
    said = [f"{c.title}: {c.says}" for c in failed]
    said.append(f"{plural(passed, 'check')} of {len(checks)} passed.")
    if unknown:
        said.append(f"Not known: {', '.join(unknown)}.")
    return Finding(
        FITNESS,
        "Is the model fit to answer?",
        " ".join(said),
        Grid.of(
            [
                {
                    "check": c.title,
                    "value": known(c.value.value) if c.value else None,
                    "interval": _interval_in_words(c.value),
                    "margin": str(c.margin),
                    "verdict": c.verdict,
                    "says": c.says,
                }
                for c in checks
            ],
            "Each check looks for one known way in which models answer unlike people. Passed: the "
            "whole 95 % interval lies inside the margin; failed: all of it lies outside.",
        ),
        section="Noise",
        headline=bool(failed),
    )


def _interval_in_words(e: Estimate | None) -> str:
    return f"{e.low:.3g} to {e.high:.3g}".replace("-", "−") if e and e.has_interval else ""
