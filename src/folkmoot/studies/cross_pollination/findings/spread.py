"""How spread the votes are before and after, and how that compares with people's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from folkmoot.kit.findings import Row, beside_people, cells, intervals, rates
from folkmoot.measures.bands import Band, human_band, place, place_interval, show
from folkmoot.measures.diversity import (
    effective_number,
    esteban_ray,
    jensen_shannon,
    normalised_entropy,
    polarisation,
    total_variation,
)
from folkmoot.measures.estimates import Estimate
from folkmoot.randomness import generator
from folkmoot.storage.findings import Bars, Finding, Grid
from folkmoot.studies.cross_pollination.findings.data import Arm, Votes

DRAWS = 1_000
FEWEST = 10  # participants below whom a bootstrap says nothing
SHORT = {
    "top_choice_changed": "changed their choice",
    "effective_number_ratio": "options after over before",
    "normalised_entropy": "evenness",
}


def diversity(votes: Votes) -> Finding | None:
    """Effective number of options, entropy and polarisation before and after, per condition."""
    if not votes.twice:
        return None
    rows: list[Row] = []
    bars = []
    parts = []
    for arm in votes.twice:
        numbers = []
        for when, counts in zip(("before", "after"), _counts(votes, arm), strict=True):
            numbers.append(effective_number(counts))
            rows.append(
                {
                    "condition": arm.name,
                    "vote": when,
                    "n": arm.n,
                    "effective_options": numbers[-1],
                    "evenness": normalised_entropy(counts),
                    "esteban_ray": esteban_ray(counts),
                    "van_der_eijk_polarisation": polarisation(counts),
                }
            )
            bars.append((arm.name, when, numbers[-1]))
        parts.append(f"{arm.name} from {numbers[0]:.2f} to {numbers[1]:.2f}")
    ratios = {a.name: effective_ratio(votes, a) for a in votes.twice}
    closer = [name for name, r in ratios.items() if r.has_interval and r.high < 1]
    wider = [name for name, r in ratios.items() if r.has_interval and r.low > 1]
    says = [f"Effective number of the {len(votes.options)} options: {'; '.join(parts)}."]
    if closer:
        says.append(f"Votes came closer together in: {', '.join(closer)}.")
    if wider:
        says.append(f"Votes spread further in: {', '.join(wider)}.")
    if not closer and not wider:
        says.append("In no condition is the change more than chance could explain.")
    return Finding(
        "diversity",
        "How spread the votes are",
        " ".join(says),
        Grid.of(rows, "Esteban–Ray at unit distance (largest: .25 for two equal camps)."),
        Bars(tuple(bars), unit="effective number of options"),
        notes=(
            "The effective number of options is how many equally liked options would be as "
            "diverse. Evenness is entropy over its maximum. Van der Eijk's polarisation, "
            "(1 − A)/2, reads the options as an ordered scale from the first to the last of the "
            "study file: for options without an order, ignore it.",
        ),
        section="Diversity",
        **votes.given_these,
    )


def shift(votes: Votes) -> Finding | None:
    """How far the distribution of votes moved in each condition."""
    if not votes.twice:
        return None
    rows: list[Row] = []
    moved = {}
    for arm in votes.twice:
        before, after = _counts(votes, arm)
        moved[arm.name] = total_variation(before, after)
        rows.append(
            {
                "condition": arm.name,
                "changed_rate": arm.changed / arm.n,
                "total_variation_share": moved[arm.name],
                "jensen_shannon_bits": jensen_shannon(before, after),
            }
        )
    far = max(moved, key=lambda name: moved[name])
    return Finding(
        "outcome_shift",
        "How far the outcome moved",
        f"The outcome moved most in {far}: at least {100 * moved[far]:.0f} % of the votes would "
        "have to be moved to turn the first result into the final one. Where far more people "
        "changed than that, their moves cancelled out."
        if moved[far]
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
    if arm.n < FEWEST:
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
    of = rates({a.name: (a.changed, a.n) for a in votes.informed})
    ratios = {a.name: effective_ratio(votes, a) for a in votes.informed}
    first = votes.counts(r["initial_choice"] for r in votes.people)
    even = (
        {"all first votes": Estimate(normalised_entropy(first), math.nan, math.nan, sum(first))}
        if sum(first)
        else {}
    )
    every = ((change, of), (ratio, ratios), (level, even))
    told = [(band, values) for band, values in every if values]
    if not told:
        return None
    bands = (change, ratio, level)
    return Finding(
        "human_bands",
        "Compared with people",
        " ".join(_band_aloud(band, values) for band, values in told),
        Grid.of(
            [_band_row(what, band, e) for band, values in told for what, e in values.items()],
            "Ranges over cases with real people; see the notes for who they were.",
        ),
        intervals(of, change.label, percent=True, bands=(("people", change.low, change.high),)),
        notes=(
            *(f"{SHORT[b.key].capitalize()}: {b.range}. {b.caveat}" for b in bands),
            *dict.fromkeys(f"Source: {b.source}." for b in bands),
        ),
        section="Human bands",
        **votes.basis,
    )


def _band_aloud(band: Band, values: Mapping[str, Estimate]) -> str:
    """One band and all values that belong to it, in one sentence."""
    people = f"{show(band.low, band)} to {show(band.high, band)} in people"
    placed = "; ".join(f"{what} {beside_people(e, band)}" for what, e in values.items())
    return f"{band.label.capitalize()}: {people}; {placed}."


def _band_row(what: str, band: Band, e: Estimate) -> Row:
    whole = place_interval(e.low, e.high, band) if e.has_interval else None
    return {
        "what": f"{what}: {SHORT[band.key]}",
        **cells(e, "simulated"),
        "people_low": band.low,
        "people_high": band.high,
        "people_centre": band.centre,
        "place": place(e.value, band),
        "clearly_outside": whole in ("below", "above") if whole else None,
    }


def _counts(votes: Votes, arm: Arm) -> tuple[list[int], list[int]]:
    return votes.counts(arm.column("initial_choice")), votes.counts(arm.column("final_choice"))
