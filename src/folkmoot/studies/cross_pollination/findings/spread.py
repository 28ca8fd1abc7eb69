"""How spread the votes are before and after, and how that compares with people's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from folkmoot.measures.bands import Band, human_band, place, place_interval, show
from folkmoot.measures.diversity import (
    effective_number,
    jensen_shannon,
    normalised_entropy,
    total_variation,
)
from folkmoot.measures.estimates import Estimate
from folkmoot.measures.polarisation import esteban_ray, polarisation
from folkmoot.measures.proportions import wilson
from folkmoot.randomness import generator
from folkmoot.records.findings import Bars, Cell, Finding, Grid, Intervals
from folkmoot.studies.cross_pollination.findings.data import Arm, Votes

DRAWS = 1_000
SHORT = {
    "top_choice_changed": "changed their choice",
    "effective_number_ratio": "options after over before",
    "normalised_entropy": "evenness",
}


def diversity(votes: Votes) -> Finding | None:
    """Effective number of options, entropy and polarisation before and after, per condition."""
    rows: list[dict[str, Cell]] = []
    bars = []
    ratios: dict[str, Estimate] = {}
    for arm in votes.twice:
        before, after = _counts(votes, arm)
        ratios[arm.name] = effective_ratio(votes, arm)
        for when, counts in (("before", before), ("after", after)):
            rows.append(
                {
                    "condition": arm.name,
                    "vote": when,
                    "n": arm.n,
                    "effective_options": effective_number(counts),
                    "evenness": normalised_entropy(counts),
                    "esteban_ray": esteban_ray(counts),
                    "van_der_eijk_polarisation": polarisation(counts),
                }
            )
            bars.append((arm.name, when, effective_number(counts)))
    if not rows:
        return None
    return Finding(
        "diversity",
        "How spread the votes are",
        _spread_aloud(votes, ratios),
        Grid.of(rows, "Esteban–Ray at unit distance (largest: .25 for two equal camps)."),
        Bars(tuple(bars), unit="effective number of options"),
        notes=(
            "The effective number of options is how many equally liked options would be as "
            "diverse. Evenness is entropy over its maximum. Van der Eijk's polarisation, "
            "(1 − A)/2, reads the options as an ordered scale from the first to the last of the "
            "study file: for options without an order, ignore it.",
        ),
        section="Diversity",
    )


def _spread_aloud(votes: Votes, ratios: dict[str, Estimate]) -> str:
    closer = [n for n, r in ratios.items() if r.has_interval and r.high < 1]
    wider = [n for n, r in ratios.items() if r.has_interval and r.low > 1]
    parts = []
    for arm in votes.twice:
        before, after = _counts(votes, arm)
        parts.append(
            f"{arm.name} from {effective_number(before):.2f} to {effective_number(after):.2f}"
        )
    says = f"Effective number of the {len(votes.options)} options: {'; '.join(parts)}."
    if closer:
        says += f" Votes came closer together in: {', '.join(closer)}."
    if wider:
        says += f" Votes spread further in: {', '.join(wider)}."
    if not closer and not wider:
        says += " In no condition is the change more than chance could explain."
    return says


def shift(votes: Votes) -> Finding | None:
    """How far the distribution of votes moved in each condition."""
    rows: list[dict[str, Cell]] = []
    for arm in votes.twice:
        before, after = _counts(votes, arm)
        rows.append(
            {
                "condition": arm.name,
                "changed_rate": arm.changed / arm.n,
                "total_variation_share": total_variation(before, after),
                "jensen_shannon_bits": jensen_shannon(before, after),
            }
        )
    if not rows:
        return None
    far = max(rows, key=lambda r: float(str(r["total_variation_share"])))
    moved = 100 * float(str(far["total_variation_share"]))
    return Finding(
        "outcome_shift",
        "How far the outcome moved",
        f"The outcome moved most in {far['condition']}: at least {moved:.0f} % of the votes would "
        "have to be moved to turn the first result into the final one. Where far more people "
        "changed than that, their moves cancelled out."
        if moved
        else "In no condition did the result change: every option kept its number of votes.",
        Grid.of(rows, "Total variation and Jensen–Shannon divergence of first and final votes."),
        section="Diversity",
    )


def effective_ratio(votes: Votes, arm: Arm) -> Estimate:
    """Effective number of options after over before, with a bootstrap interval over people."""
    index = {o: i for i, o in enumerate(votes.options)}
    k = len(index)
    pairs = np.zeros(k * k)
    for r in arm.moved:
        pairs[index[r["initial_choice"]] * k + index[r["final_choice"]]] += 1
    table = pairs.reshape(k, k)
    value = effective_number(table.sum(axis=0)) / effective_number(table.sum(axis=1))
    if arm.n < 10:
        return Estimate(value, math.nan, math.nan, arm.n)
    rng = generator(0, ("diversity", arm.condition))
    drawn = rng.multinomial(arm.n, pairs / pairs.sum(), DRAWS).reshape(DRAWS, k, k)
    after, before = _numbers(drawn.sum(axis=1)), _numbers(drawn.sum(axis=2))
    low, high = np.quantile(after / before, [0.025, 0.975])
    return Estimate(value, float(low), float(high), arm.n, method="bootstrap")


def _numbers(counts: np.ndarray) -> np.ndarray:
    """Effective numbers (draws,) of counts (draws, k)."""
    p = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(np.where(p > 0, p, 1.0))
    return np.asarray(np.exp(-(p * logs).sum(axis=1)))


def human_bands(votes: Votes) -> Finding | None:
    """Simulated values beside what people have been seen to do, in words."""
    change, ratio = human_band("top_choice_changed"), human_band("effective_number_ratio")
    level = human_band("normalised_entropy")
    rates = {a.name: wilson(a.changed, a.n) for a in votes.informed}
    ratios = {a.name: effective_ratio(votes, a) for a in votes.informed}
    first = votes.counts(r["initial_choice"] for r in votes.people)
    even = (
        {"all first votes": Estimate(normalised_entropy(first), math.nan, math.nan, sum(first))}
        if sum(first)
        else {}
    )
    told = [(change, rates), (ratio, ratios), (level, even)]
    rows = [_band_row(what, band, e) for band, values in told for what, e in values.items()]
    if not rows:
        return None
    return Finding(
        "human_bands",
        "Beside human figures",
        " ".join(_beside(band, values) for band, values in told if values),
        Grid.of(rows, "Ranges over cases with real people; see the notes for who they were."),
        Intervals(
            tuple((name, r.value, r.low, r.high) for name, r in rates.items()),
            unit=change.label,
            percent=True,
            bands=(("people", change.low, change.high),),
        )
        if rates
        else None,
        notes=_sources([change, ratio, level]),
        section="Human bands",
    )


def _beside(band: Band, values: Mapping[str, Estimate]) -> str:
    """One band and all values that belong to it, in one sentence."""
    people = (
        f"{band.label.capitalize()}: {show(band.low, band)} to {show(band.high, band)} in people"
    )
    return f"{people}; {'; '.join(_placed(what, e, band) for what, e in values.items())}."


def _placed(what: str, e: Estimate, band: Band) -> str:
    value, found = f"{what} {show(e.value, band)}", place(e.value, band)
    if found == "inside":
        return f"{value}, inside"
    near = e.has_interval and place_interval(e.low, e.high, band) == "inside"
    return f"{value}, outside ({found}{', but within its uncertainty' if near else ''})"


def _band_row(what: str, band: Band, value: Estimate) -> dict[str, Cell]:
    whole = place_interval(value.low, value.high, band) if value.has_interval else None
    return {
        "what": f"{what}: {SHORT[band.key]}",
        "simulated": value.value,
        "low": value.low if value.has_interval else None,
        "high": value.high if value.has_interval else None,
        "people_low": band.low,
        "people_high": band.high,
        "people_centre": band.centre,
        "place": place(value.value, band),
        "clearly_outside": whole in ("below", "above") if whole else None,
    }


def _sources(bands: list[Band]) -> tuple[str, ...]:
    """What each range spans, then every source once."""
    ranges = [f"{SHORT[b.key].capitalize()}: {b.range}. {b.caveat}" for b in bands]
    return (*ranges, *dict.fromkeys(f"Source: {b.source}." for b in bands))


def _counts(votes: Votes, arm: Arm) -> tuple[list[int], list[int]]:
    return votes.counts(arm.column("initial_choice")), votes.counts(arm.column("final_choice"))
