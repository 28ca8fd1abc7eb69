"""How a study makes its findings: one estimate read as cells, as a line of a chart and as words.

A finding shows the same numbers three times: in its table, in its chart, in its sentence. The
currency is `Estimate` (a value, its interval, its p): from the tables of the run by `rates` or by
`folkmoot.measures`, or from a study's own JSON file by `estimate_of`.

    rates(counts)                       group → (count, n)  to  group → Estimate (Wilson)
    cells(e, "changed_rate", "_rate")   the cells of a row: value and bounds
    intervals(estimates, "unit")        the chart
    share(e) points(e) mean(e) change(e)  the words: "16 % (9 to 23 %)"
    significant(e)                      whether chance is ruled out; None where it isn't known
    differences(...) beside_people(...)   whole findings, or parts of them, that studies share

What isn't known stays unknown: a blank cell, "no interval", no line in a chart, no finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from folkmoot.measures import estimates
from folkmoot.measures.bands import Band, place, place_interval, show
from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.diagnostics import Check
from folkmoot.measures.estimates import Estimate, p_value, percent, plural
from folkmoot.measures.proportions import Pair, all_pairs, wilson
from folkmoot.storage.findings import Cell, Finding, Grid, Heat, Intervals

Row = dict[str, Cell]

ALPHA = 0.05
FITNESS = "respondent_checks"  # the key of the finding on whether the model is fit
FEW_UNITS = 12  # below this many independent units, t intervals and their p are shaky


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


def clustered_share(hits: Sequence[bool], clusters: Sequence[Hashable]) -> Estimate:
    """The share of `hits` (n,) among units that came in `clusters` (n,), bounds within [0, 1].

    A single cluster has no interval: its units heard each other, and there is nothing to tell how
    another one would come out.
    """
    e = clustered_mean([float(hit) for hit in hits], clusters)
    # With few clusters the t interval can reach past what a share can be.
    return replace(e, low=max(0.0, e.low), high=min(1.0, e.high)) if e.has_interval else e


def estimate_of(kept: Mapping[str, Any], clusters: str = "") -> Estimate:
    """An estimate that a JSON file keeps under `estimate`, `low`, `high`, `p` and `n`.

    `clusters`: the key that counts the independent units ("sets"), if there is one.
    """
    value, low, high, p = (unknown_as_nan(kept.get(k)) for k in ("estimate", "low", "high", "p"))
    return Estimate(value, low, high, kept.get("n") or 0, kept.get(clusters) or 0, p)


def unknown_as_nan(number: float | None) -> float:
    return math.nan if number is None else float(number)


def known(number: float) -> float | None:
    """The number as a cell: None where it isn't finite."""
    return number if math.isfinite(number) else None


def significant(e: Estimate) -> bool | None:
    """Whether a difference is statistically significant at 5 %; None where nothing tells.

    By its p where one was computed (with few clusters it is exact, and the interval is not),
    else by whether its interval excludes zero.
    """
    if math.isfinite(e.p):
        return e.p < ALPHA
    return e.excludes_zero if e.has_interval else None


# --- cells and charts --------------------------------------------------------------------------


def cells(e: Estimate | None, name: str, suffix: str = "") -> Row:
    """The cells `name`, `low` and `high`; `suffix` marks the bounds of shares ("_rate")."""
    low, high = f"low{suffix}", f"high{suffix}"
    if e is None:
        return {name: None, low: None, high: None}
    return {name: known(e.value), low: known(e.low), high: known(e.high)}


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
    return Intervals(lines, unit, zero, bands, percent) if lines else None


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


def share(e: Estimate, aside: str = "") -> str:
    """ "16 % (9 to 23 %)"; `aside` is added within the brackets, as in all of these."""
    return _worded(e, percent(e.value), estimates.span(e.low, e.high), aside)


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


def number(value: float | None) -> str:
    """A mean with two decimals; "unknown"."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{value:.2f}".replace("-", "−")


def signed(value: float | None) -> str:
    """A difference with its sign and two decimals; "unknown"."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{value:+.2f}".replace("-", "−")


def verdict(e: Estimate) -> str:
    """ "statistically significant" or its negation; empty where nothing tells."""
    clear = significant(e)
    if clear is None:
        return ""
    return "statistically significant" if clear else "not statistically significant"


def listed(parts: Iterable[str]) -> str:
    """Parts of one sentence: "a; b; c."."""
    return "; ".join(parts) + "."


def over_units(unit: str, n: int) -> str:
    """The caveat that names the independent unit and says whether there are enough of them."""
    if n < 2:
        return f"Only one {unit}: no interval can be computed. Add replications."
    if n < FEW_UNITS:
        return (
            f"The {unit} is the independent unit, and there are only {n}: even large differences "
            "can be chance."
        )
    return f"The {unit} is the independent unit; there are {n}."


# --- findings that studies share ---------------------------------------------------------------


def differences(
    key: str,
    counts: Mapping[str, tuple[int, int]],
    unit: str,
    label: Callable[[str], str] = str,
    difference: Callable[[str, str], Estimate] | None = None,
) -> Finding | None:
    """All pairs of groups compared in one share; None with fewer than two groups.

    `counts`: group → (count, n); `unit`: the axis ("difference in …"); `difference`: of two groups
    by name, where their units are not independent.
    """
    pairs = all_pairs(counts, difference)
    if not pairs:
        return None
    rows: list[Row] = [
        {
            "first": label(p.first),
            "second": label(p.second),
            **cells(p.difference, "difference_rate", "_rate"),
            "p": known(p.difference.p),
            "holm_p": known(p.holm_p),
        }
        for p in pairs
    ]
    lines = {f"{label(p.first)} − {label(p.second)}": p.difference for p in pairs}
    return Finding(
        key,
        "Differences between conditions",
        _pairs_aloud(pairs, label),
        Grid.of(rows, "First minus second; 95 % Newcombe intervals."),
        intervals(lines, unit, zero=0.0, percent=True),
        notes=(
            "p: Pearson's χ², or Fisher's exact test with small counts. Holm's adjustment keeps "
            "the chance of even one false alarm among all these comparisons at 5 %. Intervals are "
            "not adjusted.",
        ),
    )


def _pairs_aloud(pairs: list[Pair], label: Callable[[str], str]) -> str:
    clear = [p for p in pairs if p.holm_p < ALPHA]
    if not clear:
        return (
            "No two conditions differ by more than chance could explain "
            f"({plural(len(pairs), 'comparison')})."
        )
    said = (
        f"{label(p.first)} against {label(p.second)} "
        f"{points(p.difference, f'adjusted {p_value(p.holm_p)}')}"
        for p in clear
    )
    rest = len(pairs) - len(clear)
    others = {0: "", 1: " The other difference may be chance."}
    tail = others.get(rest, f" The other {rest} differences may be chance.")
    return f"Statistically significant: {listed(said)}{tail}"


def beside_people(e: Estimate, band: Band) -> str:
    """ "24 %, inside", "8 %, outside (below, but within its uncertainty)" of people's range."""
    value, where = show(e.value, band), place(e.value, band)
    if where == "no range":
        return value
    if where == "inside":
        return f"{value}, inside"
    near = e.has_interval and place_interval(e.low, e.high, band) == "inside"
    return f"{value}, outside ({where}{', but within its uncertainty' if near else ''})"


def fitness(checks: Sequence[Check]) -> Finding:
    """Signs that the model is unfit to stand in for people, one row a check."""
    flagged = [c for c in checks if c.flagged]
    unknown = [c.title.lower() for c in checks if c.flagged is None]
    says = (
        " ".join(f"{c.title}: {c.says}" for c in flagged)
        if flagged
        else f"None of {plural(len(checks) - len(unknown), 'check')} raised a flag."
    )
    words = {True: "flagged", False: "clear", None: "not checked"}
    return Finding(
        FITNESS,
        "Is the model fit to answer?",
        f"{says} Not checked: {', '.join(unknown)}." if unknown else says,
        Grid.of(
            [
                {
                    "check": c.title,
                    "value": c.value.value if c.value else None,
                    "limit": c.limit,
                    "flag": words[c.flagged],
                    "says": c.says,
                }
                for c in checks
            ],
            "Each check looks for one known way in which models answer unlike people.",
        ),
        section="Noise",
        headline=bool(flagged),
    )
