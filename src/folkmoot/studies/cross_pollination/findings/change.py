"""How many changed their minds, by condition: the headline, its differences, and the floor."""

from __future__ import annotations

import math
from collections.abc import Iterable

from folkmoot.measures.estimates import (
    Estimate,
    p_value,
    percent,
    plural,
    points,
    points_span,
    span,
)
from folkmoot.measures.persuasion import above_floor
from folkmoot.measures.proportions import Pair, all_pairs, wilson
from folkmoot.records.findings import Cell, Finding, Grid, Intervals
from folkmoot.studies.cross_pollination.findings.data import PLACEBOS, Arm, Votes, label

ONE_POOL = (
    "Everybody was shown the same summaries, so the intervals tell how sure the rates are for this "
    "set of summaries, not for another draw of them."
)


def position_change(votes: Votes) -> Finding:
    """The share of each condition whose final vote differs from the first."""
    rates = {a.condition: wilson(a.changed, a.n) for a in votes.twice}
    rows = [_summary_row(a, rates.get(a.condition)) for a in votes.arms]
    return Finding(
        "position_change",
        "Who changed their choice",
        _rates_aloud(votes, rates),
        Grid.of(rows, "Participants whose final vote differs from their first; 95 % Wilson."),
        Intervals(
            tuple((a.name, *_triple(rates[a.condition])) for a in votes.twice),
            unit="changed their choice",
            percent=True,
        )
        if rates
        else None,
        notes=(ONE_POOL,) if votes.informed else (),
        headline=True,
    )


def _summary_row(arm: Arm, rate: Estimate | None) -> dict[str, Cell]:
    """The whole arm by how it ended; who voted twice stands in the words ("23 of 300")."""
    row = _rate_row(arm, rate)
    del row["voted_twice"]
    status = [r["status"] for r in arm.rows]
    return {
        "condition": row.pop("condition"),
        "completed": status.count("complete"),
        "failed": status.count("failed"),
        "skipped": status.count("skipped"),
        **row,
    }


def _rate_row(arm: Arm, rate: Estimate | None) -> dict[str, Cell]:
    return {
        "condition": arm.name,
        "voted_twice": arm.n,
        "changed": arm.changed if arm.n else None,
        "changed_rate": rate.value if rate else None,
        "low_rate": rate.low if rate else None,
        "high_rate": rate.high if rate else None,
    }


def _rates_aloud(votes: Votes, rates: dict[str, Estimate]) -> str:
    if votes.terminated:
        return f"The study ended before anybody could change: {votes.terminated}." + (
            f" {_listed(votes, rates)}" if rates else ""
        )
    if not rates:
        return "Nobody voted twice, so there is no change to report."
    if not any(a.changed for a in votes.twice):
        return f"Nobody changed their choice. {_listed(votes, rates)}"
    return _listed(votes, rates)


def _listed(votes: Votes, rates: dict[str, Estimate]) -> str:
    parts = [
        f"{a.name}: {a.changed} of {a.n} changed, {percent(rates[a.condition].value)} "
        f"({span(rates[a.condition].low, rates[a.condition].high)})"
        for a in votes.twice
    ]
    return "; ".join(parts) + "."


def differences(votes: Votes) -> Finding | None:
    """All pairs of conditions; None with fewer than two that voted twice."""
    pairs = all_pairs({a.condition: (a.changed, a.n) for a in votes.twice})
    if not pairs:
        return None
    clear = [p for p in pairs if p.holm_p < 0.05]
    if clear:
        says = "Told apart from chance: " + "; ".join(_pair_aloud(p) for p in clear) + "."
        rest = len(pairs) - len(clear)
        if rest:
            says += (
                " The other difference may be chance."
                if rest == 1
                else f" The other {rest} differences may be chance."
            )
    else:
        says = (
            "No two conditions differ by more than chance could explain "
            f"({plural(len(pairs), 'comparison')})."
        )
    return Finding(
        "change_differences",
        "Differences between conditions",
        says,
        Grid.of([_pair_row(p) for p in pairs], "First minus second; 95 % Newcombe intervals."),
        Intervals(
            tuple((f"{label(p.first)} − {label(p.second)}", *_triple(p.difference)) for p in pairs),
            unit="difference in the share that changed",
            zero=0.0,
            percent=True,
        ),
        notes=(
            "p: Pearson's χ², or Fisher's exact test with small counts. Holm's adjustment keeps "
            "the chance of even one false alarm among all these comparisons at 5 %. Intervals are "
            "not adjusted.",
        ),
    )


def _pair_aloud(p: Pair) -> str:
    d = p.difference
    return (
        f"{label(p.first)} against {label(p.second)} {points(d.value)} "
        f"({points_span(d.low, d.high)}, adjusted {p_value(p.holm_p)})"
    )


def _pair_row(p: Pair) -> dict[str, Cell]:
    return {
        "first": label(p.first),
        "second": label(p.second),
        "difference_rate": p.difference.value,
        "low_rate": p.difference.low,
        "high_rate": p.difference.high,
        "p": _number(p.difference.p),
        "holm_p": _number(p.holm_p),
    }


def persuasion(votes: Votes) -> Finding | None:
    """Each rate raw and above the rate at which people change when merely asked again.

    None if nobody voted twice.
    """
    if not votes.twice:
        return None
    floor = votes.floor
    others = [a for a in votes.twice if a is not floor]
    if floor is None or not others:
        return Finding(
            "persuasion",
            "Persuasion apart from noise",
            "This run cannot tell persuasion from noise: nobody was asked again without being told "
            "anything. Set `revote: true` to give simple voting a second vote."
            if floor is None
            else "Only the condition that measures noise voted twice; nothing to set against it.",
            Grid.of([_rate_row(a, wilson(a.changed, a.n)) for a in votes.twice]),
            section="Noise",
        )
    found = {a: above_floor(a.changed, a.n, floor.changed, floor.n) for a in others}
    rows: list[dict[str, Cell]] = [
        {
            "condition": a.name,
            "changed_rate": f.raw.value,
            "floor_rate": f.floor.value,
            "above_floor_rate": f.above.value,
            "low_rate": f.above.low,
            "high_rate": f.above.high,
            "p": _number(f.above.p),
        }
        for a, f in found.items()
    ]
    base = wilson(floor.changed, floor.n)
    says = (
        f"Merely asked again, {percent(base.value)} choose differently "
        f"({span(base.low, base.high)}): that is noise. Above it: "
        + "; ".join(
            f"{a.name} {points(f.above.value)} ({points_span(f.above.low, f.above.high)})"
            for a, f in found.items()
        )
        + "."
    )
    says += _placebos_aloud(found)
    return Finding(
        "persuasion",
        "Persuasion apart from noise",
        says,
        Grid.of(rows, "The floor is simple voting asked a second time; 95 % Newcombe intervals."),
        Intervals(
            tuple((a.name, *_triple(f.above)) for a, f in found.items()),
            unit="changed, above the floor of noise",
            zero=0.0,
            percent=True,
        ),
        notes=("The floor is estimated from its own participants; its uncertainty is included.",),
        section="Noise",
        headline=True,
    )


def _placebos_aloud(found: Iterable[Arm]) -> str:
    named = [a.name.lower() for a in found if a.condition in PLACEBOS]
    if not named:
        return ""
    return (
        f" {' and '.join(named).capitalize()} hold no argument: what they move is attention "
        "or giving in, not reasons."
    )


def _triple(e: Estimate) -> tuple[float, float, float]:
    return e.value, e.low, e.high


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None
