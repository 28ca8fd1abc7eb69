"""Rates of change run by run: the rates, their differences, and whether effects agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from folkmoot.measures.bands import human_band, sentence
from folkmoot.measures.estimates import Estimate, p_value, points, points_span, span
from folkmoot.measures.proportions import between, holm, newcombe, wilson
from folkmoot.records.findings import Cell, Finding, Grid, Intervals
from folkmoot.report.samples import EVERYBODY, Sample, condition_name, split

SECTION = "Comparison"
SAME = 0.05  # differences in shares within this are called practically the same
Counts = tuple[int, int]


def change_rates(found: Sequence[Sample]) -> Finding | None:
    """The share that changed, per condition and run, and differences to the first run."""
    rates = [rates_of(s) for s in found]
    base = rates[0]
    rows: list[dict[str, Cell]] = []
    tests: list[tuple[str, str, Estimate]] = []
    for condition in dict.fromkeys(c for r in rates for c in r):
        for s, own in zip(found, rates, strict=True):
            if condition in own:
                rows.append(_rate_row(condition, s, own[condition]))
    for s, own in zip(found[1:], rates[1:], strict=True):
        tests += [
            (condition, s.name, newcombe(*there, *here))
            for condition, here, there in paired(base, own)
        ]
    if not tests:
        return None
    adjusted = holm([d.p for _, _, d in tests])
    verdicts = [
        f"{condition_name(c)}: {_verdict(run, found[0].name, d, p)}"
        for (c, run, d), p in zip(tests, adjusted, strict=True)
    ]
    for (c, run, d), p in zip(tests, adjusted, strict=True):
        rows.append(
            {
                "condition": condition_name(c),
                "run": f"{run} − {found[0].name}",
                "n": d.n,
                "changed_rate": d.value,
                "low_rate": d.low,
                "high_rate": d.high,
                "holm_p": p,
            }
        )
    return Finding(
        "compare_change",
        "Share that changed their choice, run by run",
        " ".join(verdicts),
        Grid(
            ("condition", "run", "n", "changed_rate", "low_rate", "high_rate", "holm_p"),
            tuple(tuple(r.values()) for r in rows),
            "95 % Wilson intervals; for differences Newcombe, p adjusted over all of them.",
        ),
        Intervals(
            tuple((f"{condition_name(c)}: {run}", d.value, d.low, d.high) for c, run, d in tests),
            unit=f"difference to {found[0].name}",
            zero=0.0,
            percent=True,
        ),
        notes=(
            f"“Practically the same”: the whole interval within ±{100 * SAME:.0f} points. Not to "
            "be told apart is not the same as equal: look at the width of the interval.",
        ),
        section=SECTION,
        headline=True,
    )


def paired(
    base: Mapping[str, Counts], own: Mapping[str, Counts]
) -> list[tuple[str, Counts, Counts]]:
    """What is set against what: (condition, in the first run, in the other).

    A sample without conditions (a survey, say) is set against every condition of the other.
    """
    if set(own) == {EVERYBODY}:
        return [(c, counts, own[EVERYBODY]) for c, counts in base.items()]
    if set(base) == {EVERYBODY}:
        return [(c, base[EVERYBODY], counts) for c, counts in own.items()]
    return [(c, base[c], own[c]) for c in base if c in own]


def _rate_row(condition: str, s: Sample, counts: Counts) -> dict[str, Cell]:
    rate = wilson(*counts)
    return {
        "condition": condition_name(condition),
        "run": s.name,
        "n": counts[1],
        "changed_rate": rate.value,
        "low_rate": rate.low,
        "high_rate": rate.high,
        "holm_p": None,
    }


def _verdict(run: str, base: str, d: Estimate, p: float) -> str:
    measured = f"{points(d.value)}, {points_span(d.low, d.high)}"
    if p < 0.05:
        more = "more" if d.value > 0 else "fewer"
        return f"in {run} {more} change than in {base} ({measured}, adjusted {p_value(p)})."
    if d.low > -SAME and d.high < SAME:
        return f"{run} and {base} are practically the same ({measured})."
    return f"{run} and {base} cannot be told apart ({measured})."


def effects(found: Sequence[Sample]) -> Finding | None:
    """Each condition against the first one within a run, and whether runs agree on that effect."""
    rates = [rates_of(s) for s in found]
    shared = [c for c in rates[0] if all(c in r for r in rates)]
    if len(shared) < 2:
        return None
    floor, rest = shared[0], shared[1:]
    rows: list[dict[str, Cell]] = []
    lines = []
    said = []
    for condition in rest:
        own = [newcombe(*r[condition], *r[floor]) for r in rates]
        for s, e in zip(found, own, strict=True):
            rows.append(_effect_row(condition, s.name, e))
            lines.append((f"{condition_name(condition)}: {s.name}", e.value, e.low, e.high))
        for s, e in zip(found[1:], own[1:], strict=True):
            gap = between(e, own[0])
            rows.append(_effect_row(condition, f"{s.name} − {found[0].name}", gap))
            said.append(
                f"{condition_name(condition)}: {_agreement(s.name, found[0].name, e, own[0], gap)}"
            )
    orders = {tuple(sorted(shared, key=lambda c: (-r[c][0] / r[c][1], c))) for r in rates}
    said.append(
        "All runs put the conditions in the same order."
        if len(orders) == 1
        else "The runs do not put the conditions in the same order."
    )
    return Finding(
        "compare_effects",
        f"Effects against {condition_name(floor).lower()}, run by run",
        " ".join(said),
        Grid.of(rows, "Differences of rates (Newcombe); between runs by MOVER, not adjusted."),
        Intervals(
            tuple(lines), unit=f"against {condition_name(floor).lower()}", zero=0.0, percent=True
        ),
        section=SECTION,
    )


def _effect_row(condition: str, run: str, e: Estimate) -> dict[str, Cell]:
    return {
        "condition": condition_name(condition),
        "run": run,
        "effect_rate": e.value,
        "low_rate": e.low,
        "high_rate": e.high,
    }


def _agreement(run: str, base: str, own: Estimate, first: Estimate, gap: Estimate) -> str:
    sizes = f"{points(first.value)} in {base}, {points(own.value)} in {run}"
    if gap.excludes_zero:
        return f"the effects differ ({sizes})."
    if own.excludes_zero and first.excludes_zero and own.value * first.value > 0:
        return f"both show the effect ({sizes})."
    return f"no difference in effect that chance could not explain ({sizes})."


def beside_people(found: Sequence[Sample]) -> Finding | None:
    """Rates of change beside published human figures, unless people are in the comparison."""
    if any(s.human for s in found):
        return None
    band = human_band("top_choice_changed")
    rows: list[dict[str, Cell]] = []
    said = []
    for s in found:
        rates = rates_of(s)
        if not rates:
            continue
        condition, counts = max(rates.items(), key=lambda item: item[1][0] / item[1][1])
        rate = wilson(*counts)
        said.append(sentence(f"{s.name}, {condition_name(condition)}", rate.value, band))
        rows.append(
            {
                "run": s.name,
                "condition": condition_name(condition),
                "changed_rate": rate.value,
                "interval": span(rate.low, rate.high),
                "people_low_rate": band.low,
                "people_high_rate": band.high,
            }
        )
    if not rows:
        return None
    return Finding(
        "compare_people",
        "Beside human figures",
        " ".join(said),
        Grid.of(rows, "Of each run the condition in which most changed."),
        notes=(f"{band.range.capitalize()}. {band.caveat} Source: {band.source}.",),
        section=SECTION,
    )


def rates_of(s: Sample) -> dict[str, Counts]:
    """Condition → (changed, voted twice)."""
    table = s.tables.get("participants")
    if table is None or "position_changed" not in table.columns:
        return {}
    found = {}
    if "status" in table.columns:
        table = table.filter(pl.col("status") == "complete")
    for condition, part in split(table).items():
        known = part["position_changed"].drop_nulls()
        if len(known):
            found[condition] = (int(known.sum()), len(known))
    return found
