"""Statistical power: which effects a study of this size can detect.

The study type states how large the design is (`Study.size`): arms of independent participants, the
same sets at every level, or sessions of several who talk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from folkmoot.engine.claims import TABLES as HYPOTHESES_IN
from folkmoot.engine.hypotheses import Hypothesis
from folkmoot.engine.study_file import StudyFile
from folkmoot.kit.findings import ALPHA, Row, known
from folkmoot.measures.estimates import FEWEST_UNITS, percent, plural, points
from folkmoot.measures.power import (
    POWER,
    DesignSize,
    design_effect,
    detectable_share,
    effective_n,
    n_two_shares,
    power_beyond,
    power_two_shares,
    smallest_d,
    smallest_d_paired,
    smallest_h,
)
from folkmoot.storage.findings import Finding, Grid, Lines
from folkmoot.storage.rows import declared

SECTION = "Power"
BASE = 0.10  # people change their choice for no reason, too
BASES = (0.05, 0.10, 0.20, 0.30, 0.50)
DIFFERENCES = (0.05, 0.10, 0.15, 0.20, 0.30)
ICCS = (0.0, 0.02, 0.05, 0.10, 0.20)


def power_of(found: StudyFile, iccs: Sequence[float] = ()) -> list[Finding]:
    """Findings on what the design of this study file can detect, its hypotheses first."""
    size = found.study.size(found.config, found.folder)
    findings = power_report(size, found.study.title, iccs=tuple(iccs) or ICCS)
    if found.config.hypotheses:
        tables = declared(found.study.tables)
        findings.insert(0, hypothesis_power(found.config.hypotheses, size, tables, iccs))
    return findings


def power_report(
    size: DesignSize | None, title: str = "", *, iccs: Sequence[float] = ICCS
) -> list[Finding]:
    """Findings for a design of this size: what it can detect, and what it would need.

    `iccs` are the intraclass correlations assumed in turn.
    """
    title = title.split(":", maxsplit=1)[0] or "This design"
    if size is None:
        return [_unknown(title)]
    if size.kind == "paired":
        return _paired(size, title, iccs)
    if size.kind == "clustered":
        return [_clustered(size, title, iccs)]
    return [_shares(size, title), _chances(size, title), _needed(size, title)]


def hypothesis_power(
    hypotheses: Sequence[Hypothesis],
    size: DesignSize | None,
    tables: Mapping[str, Mapping[str, str]],
    iccs: Sequence[float] = (),
) -> Finding:
    """The power of each hypothesis of a study file, by the rule that decides it after the run.

    `tables`: table → column → kind. A share starts from `BASE` in the second arm; a mean is
    computed in standard deviations, because nobody knows its spread before the run.
    """
    alpha = ALPHA / len(hypotheses)
    rows: list[Row] = []
    said = []
    for h in hypotheses:
        kind = _kind(h.measure, tables)
        row: Row = {"hypothesis": h.says, "expected": h.expected, "power_rate": None}
        if size is None or kind not in ("bool", "float", "int"):
            why = "its table" if size else "the size of the design"
            says = f"{why} is known only after a run: use --simulate"
        elif size.units < FEWEST_UNITS:
            says = f"not tested: {plural(size.units, size.unit_name)} are an illustration"
        elif kind == "bool" and size.kind != "paired":
            row["power_rate"], says = _power_of_share(h, size, alpha, iccs)
        else:
            says = _least_mean(size, alpha)
        said.append(f"{h.says}: {says}.")
        rows.append(row)
    return Finding(
        "power_hypotheses",
        "The hypotheses of this study",
        " ".join(said),
        Grid.of(rows, f"Intervals at a level of {percent(1 - alpha, 1)}, as in the report."),
        notes=(
            "A hypothesis is supported when the whole interval lies beyond the smallest difference "
            "that matters. Write `expected:` beside it for the difference that you expect. "
            "`--simulate` counts how often runs of the study support it.",
        ),
        section=SECTION,
        headline=True,
    )


def _kind(measure: str, tables: Mapping[str, Mapping[str, str]]) -> str | None:
    """ "bool", "int", "float" or "text"; None where no declared table has the measure."""
    named, _, column = measure.rpartition(".")
    order = [named] if named else [*HYPOTHESES_IN, *tables]
    return next((tables[t][column] for t in order if column in tables.get(t, {})), None)


def _power_of_share(
    h: Hypothesis, size: DesignSize, alpha: float, iccs: Sequence[float]
) -> tuple[float | None, str]:
    """Power where `expected` is stated, else the least true difference with a power of 80 %."""
    sign = -1 if h.direction == "less" else 1
    base = BASE if sign > 0 else 1 - BASE  # a fall needs a rate from which to fall
    n = float(size.units)
    if size.kind == "clustered":
        n = effective_n(size.units * size.size, size.size, _assumed(iccs))

    def power(difference: float) -> float:
        other = base + sign * difference
        if not 0 < other < 1:
            return math.nan
        se = math.sqrt((base * (1 - base) + other * (1 - other)) / n)
        equivalent = h.direction == "equivalent"
        return power_beyond(difference, se, h.smallest, alpha, equivalent=equivalent)

    start = f"from {percent(base)} in {h.contrast[1]}"
    if h.expected is not None or h.direction == "equivalent":
        expected = h.expected or 0.0
        toward = abs(expected) if h.direction == "different" else sign * expected
        chance = power(toward)
        if not math.isfinite(chance):
            return None, f"{points(expected)} {start} is not a rate"
        return chance, f"a power of {percent(chance)} at {points(expected)} {start}"
    steps = (k / 1000 for k in range(1, 1000))
    least = next((d for d in steps if power(d) >= POWER), None)
    if least is None:
        return None, f"no difference {start} reaches a power of {percent(POWER)}"
    return None, f"a power of {percent(POWER)} from {points(sign * least)} on, {start}"


def _least_mean(size: DesignSize, alpha: float) -> str:
    """How far a mean must lie beyond the smallest difference, in standard deviations."""
    if size.kind == "paired":
        least, of = smallest_d_paired(size.units, alpha=alpha), f"differences of {size.unit_name}s"
    else:
        least, of = smallest_d(size.units, alpha=alpha), f"{size.unit_name}s"
    return (
        f"a power of {percent(POWER)} if the true difference lies {least:.2f} standard deviations "
        f"of the {of} beyond the smallest that matters"
    )


def _shares(size: DesignSize, title: str) -> Finding:
    """Smallest differences between two arms, by base rate."""
    n, strict = size.units, ALPHA / max(1, size.comparisons)
    if n < 2:
        return _too_small(title, size)
    rows = []
    for rate in BASES:
        plain, safe = detectable_share(rate, n), detectable_share(rate, n, alpha=strict)
        rows.append(
            {
                "base_rate": rate,
                "seen_from_rate": known(plain),
                "difference_rate": known(plain - rate),
                "holm_from_rate": known(safe),
                "holm_difference_rate": known(safe - rate),
            }
        )
    seen, safe = detectable_share(BASE, n), detectable_share(BASE, n, alpha=strict)
    says = (
        f"{title}: {plural(size.arms, 'condition')} of {plural(n, 'participant')}. If "
        f"{percent(BASE)} change in one condition, a difference is detected with a power of "
        f"{percent(POWER)} when {_rate(seen)} or more change in another"
    )
    if size.comparisons > 1:
        says += (
            f"; when all {size.comparisons} pairs are compared and adjusted for, from "
            f"{_rate(safe)} on"
        )
    return Finding(
        "power_differences",
        "Smallest detectable difference",
        says + ".",
        Grid.of(rows, f"Two-sided, α = .05, power {percent(POWER)}, {n} per condition."),
        notes=(
            f"Cohen's h of {smallest_h(n):.4f} at α = .05. “holm” takes the strictest level "
            f"that Holm's method asks for, α / {max(1, size.comparisons)}.",
            "Participants are independent of each other here; arms that read the same summaries "
            "share those summaries, which no number of participants makes up for.",
        ),
        section=SECTION,
        headline=True,
    )


def _chances(size: DesignSize, title: str) -> Finding:
    """Power by base rate and true difference."""
    n = size.units
    rows = []
    for rate in BASES:
        row: Row = {"base_rate": rate}
        for difference in DIFFERENCES:
            other = rate + difference
            chance = power_two_shares(rate, other, n) if other < 1 else None
            row[f"plus_{100 * difference:.0f}_points_rate"] = chance
        rows.append(row)
    chance = power_two_shares(0.10, 0.20, n)
    return Finding(
        "power_chances",
        "Power",
        f"A true change from 10 % to 20 % is detected with a power of {percent(chance)} "
        f"at {n} per condition.",
        Grid.of(rows, f"{title}: power of a two-sided test at α = .05."),
        Lines(
            tuple(
                (f"from {percent(rate)}", difference, power_two_shares(rate, rate + difference, n))
                for rate in BASES
                for difference in DIFFERENCES
                if rate + difference < 1
            ),
            x="true difference",
            y="power",
        ),
        section=SECTION,
    )


def _needed(size: DesignSize, title: str) -> Finding:
    """Participants per arm for a given difference."""
    rows = [
        {
            "base_rate": rate,
            **{
                f"plus_{100 * d:.0f}_points": math.ceil(n_two_shares(rate, rate + d))
                if rate + d < 1
                else None
                for d in DIFFERENCES
            },
        }
        for rate in BASES
    ]
    need = math.ceil(n_two_shares(0.10, 0.20))
    return Finding(
        "power_needed",
        "Participants needed per condition",
        f"To detect a change from 10 % to 20 % with a power of {percent(POWER)}, "
        f"{need} participants per condition are needed; this design has {size.units}.",
        Grid.of(rows, f"{title}: power {percent(POWER)}, two-sided, α = .05."),
        section=SECTION,
    )


def _paired(size: DesignSize, title: str, iccs: Sequence[float]) -> list[Finding]:
    """Designs in which every unit passes through all arms: differences within units."""
    n = size.units
    strict = ALPHA / max(1, size.comparisons)
    plain, safe = smallest_d_paired(n), smallest_d_paired(n, alpha=strict)
    name = size.unit_name
    if not math.isfinite(plain):
        return [_too_small(title, size)]
    rows = [
        {
            name + "s": units,
            "smallest_difference_in_sd": smallest_d_paired(units),
            "holm_in_sd": smallest_d_paired(units, alpha=strict),
        }
        for units in sorted({5, 10, 20, 40, 80, n})
    ]
    first = Finding(
        "power_paired",
        "Smallest detectable difference",
        f"{title}: {plural(n, name)}, each under all {size.arms} conditions. A difference "
        f"between two conditions is detected with a power of {percent(POWER)} from {plain:.2f} "
        f"standard deviations of the differences between {name}s on"
        + (
            f" ({safe:.2f} when all {size.comparisons} pairs are adjusted for)."
            if size.comparisons > 1
            else "."
        ),
        Grid.of(rows, "Paired t test, two-sided, α = .05; .2 is small, .5 medium, .8 large."),
        notes=(
            f"The {name} is the unit: people who talked to each other are not independent, so "
            f"more people in each {name} help less than more {name}s.",
        ),
        section=SECTION,
        headline=True,
    )
    return [first, _worth(size, title, iccs)] if size.size > 1 else [first]


def _worth(size: DesignSize, title: str, iccs: Sequence[float]) -> Finding:
    """The effective number of participants of an arm, by intraclass correlation."""
    people = size.units * size.size
    rows = [
        {
            "icc": icc,
            "design_effect": design_effect(size.size, icc),
            "worth_participants": effective_n(people, size.size, icc),
        }
        for icc in iccs
    ]
    icc = _assumed(iccs)
    typical = effective_n(people, size.size, icc)
    return Finding(
        "power_clusters",
        "Effective number of participants",
        f"{plural(people, 'participant')} per condition in {plural(size.units, size.unit_name)}"
        f" of about {size.size} are worth {typical:.0f} independent ones at an ICC of {icc:g} "
        "(the similarity of people in one conversation).",
        Grid.of(rows, f"{title}: design effect 1 + (m − 1) ICC."),
        section=SECTION,
    )


def _clustered(size: DesignSize, title: str, iccs: Sequence[float]) -> Finding:
    """Arms of sessions: shares compared at the effective number of participants."""
    people = size.units * size.size
    if size.units < 2:
        return _too_small(title, size)
    rows = []
    for icc in iccs:
        worth = effective_n(people, size.size, icc)
        seen = detectable_share(BASE, worth)
        rows.append(
            {
                "icc": icc,
                "design_effect": design_effect(size.size, icc),
                "worth_participants": worth,
                "base_rate": BASE,
                "seen_from_rate": known(seen),
            }
        )
    icc = _assumed(iccs)
    worth = effective_n(people, size.size, icc)
    return Finding(
        "power_clustered",
        "Smallest detectable difference",
        f"{title}: {plural(size.arms, 'condition')} of {plural(size.units, size.unit_name)} "
        f"with {size.size} participants. At an ICC of {icc:g} (how alike people in one "
        f"conversation are) {people} participants are worth {worth:.0f}, and a change "
        f"from {percent(BASE)} to {_rate(detectable_share(BASE, worth))} is detected with a power "
        f"of {percent(POWER)}.",
        Grid.of(rows, "Two-sided, α = .05; design effect 1 + (m − 1) ICC."),
        section=SECTION,
        headline=True,
    )


def _too_small(title: str, size: DesignSize) -> Finding:
    return Finding(
        "power_none",
        "No effect can be detected",
        f"{title}: {plural(size.units, size.unit_name)} per condition. Differences need at "
        f"least two; with one, an effect cannot be distinguished from chance.",
        Grid((), ()),
        section=SECTION,
        headline=True,
    )


def _unknown(title: str) -> Finding:
    rows = [
        {
            "participants_per_condition": n,
            "smallest_h": smallest_h(n),
            "seen_from_10_percent_rate": known(detectable_share(0.10, n)),
        }
        for n in (20, 50, 100, 200, 300, 500, 1000)
    ]
    return Finding(
        "power_table",
        "Smallest difference by size",
        f"{title}: the settings do not say how many take part in each condition, so here is what "
        "two groups of a given size can detect.",
        Grid.of(rows, f"Two-sided, α = .05, power {percent(POWER)}."),
        section=SECTION,
        headline=True,
    )


def _assumed(iccs: Sequence[float]) -> float:
    """The intraclass correlation used in sentences: .05 if given, else the first."""
    return 0.05 if 0.05 in iccs or not iccs else iccs[0]


def _rate(share: float) -> str:
    return percent(share) if math.isfinite(share) else "no rate at all"
