"""Compute statistical power: which effects a study of this size can detect."""
# A design has conditions of independent participants, the same units in every condition, or
# sessions of several participants. `Study.size` states which.

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from folkmoot.engine.settings.hypotheses import UNKNOWN_UNIT
from folkmoot.engine.study.study import claims_of
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.kit.findings import ALPHA, Row, finite_or_none
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    format_count,
    format_percent,
    format_points,
)
from folkmoot.measures.inference.power import (
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
    smallest_margin,
    smallest_margin_paired,
)
from folkmoot.measures.inference.rectified import people_needed
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.storage.findings import Finding, LineChart, ResultTable
from folkmoot.storage.tables import DRAWS, DRAWS_OR_OWN

SECTION = "Power"
# The assumed rate of change without treatment: some people change their choice for no reason.
BASE = 0.10
# Rates of change for the tables, differences of rates, and intraclass correlations (ICC).
BASES = (0.05, 0.10, 0.20, 0.30, 0.50)
DIFFERENCES = (0.05, 0.10, 0.15, 0.20, 0.30)
ICCS = (0.0, 0.02, 0.05, 0.10, 0.20)
# Width of an interval for a share: five points to each side.
WIDTH = 0.10
# Correlations between human answers and simulated ones.
FITS = (0.0, 0.3, 0.5, 0.7, 0.9)
# Means have no natural unit before a run. The sample sizes for means detect half a standard
# deviation, a medium effect by Cohen.
HALF_SD = 0.5
# Below this number of units in each condition, the normal approximation says too much.
FEWEST_NORMAL = 100
NORMAL_NOTE = (
    "Powers of shares are those of the normal approximation. Below about "
    f"{FEWEST_NORMAL} units in each condition they are too high, with few units and shares near "
    "0 % or 100 % by 10 points and more, so that more units are needed than stated. `--simulate` "
    "counts runs instead."
)
# The search for a sample size ends here.
MAX_UNITS = 1_000_000


def power_of(
    study_file: StudyFile, iccs: Sequence[float] = (), width: float = WIDTH
) -> list[Finding]:
    """Return findings on the effects that a study can detect, primary claims first.

    - `iccs`: the assumed intraclass correlations.
    - `width`: the wanted width of the interval when an estimate combines human and simulated
      answers.
    """
    size = study_file.study.size(study_file.config, study_file.study_folder)
    claims, expected = primary_claims(study_file)
    findings = power_report(
        size, study_file.study.title, iccs=tuple(iccs) or ICCS, claim_count=len(claims)
    )
    if claims:
        findings.insert(0, claim_power(claims, size, expected, iccs))
    return [*findings, people_power(width, size, iccs)]


def primary_claims(study_file: StudyFile) -> tuple[list[Claim], list[float | None]]:
    """Return the primary claims of a study file, and the expected difference of each claim.

    The difference is None for claims that the study type declares.
    """
    claims = [
        claim
        for claim in claims_of(study_file.study, study_file.config)
        if claim.family == "primary"
    ]
    stated = [hypothesis.expected for hypothesis in study_file.config.hypotheses]
    return claims, stated or [None] * len(claims)


def power_report(
    size: DesignSize | None,
    title: str = "",
    *,
    iccs: Sequence[float] = ICCS,
    claim_count: int = 1,
) -> list[Finding]:
    """Return findings on what a design can detect, and on the required size.

    - `iccs`: the assumed intraclass correlations.
    - `claim_count`: the number of primary claims, which Holm's method adjusts for.
    """
    title = title.split(":", maxsplit=1)[0] or "This design"
    if size is None:
        return [_unknown_size_finding(title)]
    if size.kind == "paired":
        first, *others = _paired_power_findings(size, title, iccs, claim_count)
    elif size.kind == "clustered":
        first, others = _clustered_power_finding(size, title, iccs), []
    else:
        first = _share_power_finding(size, title, claim_count)
        others = [_power_table(size, title), _needed_participants_finding(size, title)]
    if size.arms < 2:
        first = replace(first, says=f"{first.says} {word('power', 'one condition')}")
    return [first, *others]


def claim_power(
    claims: Sequence[Claim],
    size: DesignSize | None,
    expected: Sequence[float | None] = (),
    iccs: Sequence[float] = (),
) -> Finding:
    """Return the finding on the power of each primary claim and on the number of units needed.

    - `expected`: the expected difference of each claim, or None.
    - `iccs`: the assumed intraclass correlations.
    """
    # With several claims, power is a range, because each claim may be tested at a stricter level.
    # The number of units suffices at the strictest level. Without an expected difference, the
    # margin of the claim decides the number. Differences of means are in standard deviations,
    # because the spread is unknown before the run.
    alpha = ALPHA / len(claims)
    rows: list[Row] = []
    sentences = []
    for claim, expected_difference in zip(claims, expected or [None] * len(claims), strict=True):
        row: Row = {
            "claim": claim.says,
            "unit": claim.unit,
            "margin": claim.size(claim.margin) if claim.margin else None,
            "expected": None
            if expected_difference is None
            else claim.format_signed(expected_difference),
            "power_rate": None,
            **({"power_at_most_rate": None} if len(claims) > 1 else {}),
            "units_in_design": None if size is None else size.units,
            "units_needed": None,
        }
        if size is None or claim.unit == UNKNOWN_UNIT:
            says = word("power", "after a run" if size else "no size")
        elif claim.unit in (DRAWS, DRAWS_OR_OWN):
            says = word("power", "draws")
            # The size of the design counts participants.
            row["units_in_design"] = None
        elif size.units < FEWEST_UNITS:
            units_text = format_count(size.units, size.unit_name)
            says = word("power", "few units", units=units_text)
            row["units_needed"] = _units_needed(claim, size, expected_difference, alpha, iccs)
        elif claim.kind == "share" and not claim.paired and size.kind != "paired":
            last = _levels_of_last_step(claim, claims, expected_difference)
            row["power_rate"], most, says = _power_of_share(
                claim, size, expected_difference, (alpha, last), iccs
            )
            if len(claims) > 1:
                row["power_at_most_rate"] = most
            row["units_needed"] = _units_needed(claim, size, expected_difference, alpha, iccs)
        else:
            says = _least_mean(claim, size, expected_difference, alpha)
            row["units_needed"] = _units_needed(claim, size, expected_difference, alpha, iccs)
        needed = _tell_needed(row, size)
        sentences.append(word("power", "claim", claim=claim.says, power=says, needed=needed))
        rows.append(row)
    return Finding(
        "power_claims",
        "The primary claims of this study",
        join_sentences(sentences),
        ResultTable.from_records(
            rows,
            f"{_describe_rule(len(claims))} Units needed in "
            f"each arm for a power of {format_percent(POWER)}. For shares, the assumed difference "
            "is the expected one. Without an expected one it is twice the margin, or zero for an "
            "equivalence. For means it is half a standard deviation beyond the margin. An "
            "equivalence of means has a margin of half a standard deviation here.",
        ),
        notes=(
            "A claim is supported when the whole interval (of several claims: the joint one) lies "
            "beyond its margin, or within it if it is an equivalence. Write "
            "`expected:` beside a hypothesis for the difference that you expect. `--simulate` "
            "counts how often runs of the study support each claim.",
            *((NORMAL_NOTE,) if any(claim.kind == "share" for claim in claims) else ()),
        ),
        section=SECTION,
        headline=True,
    )


def _describe_rule(claim_count: int) -> str:
    if claim_count == 1:
        return "95 % interval, as in the report."
    return (
        "Holm's method, as in the report: power is that at the level of the first step "
        f"({format_percent(ALPHA / claim_count, 1)}), and power at most that of the last step, "
        "after the other claims were supported in their directions. An equivalence needs both "
        "directions, and another claim leaves it the level of one."
    )


def _tell_needed(row: Row, size: DesignSize | None) -> str:
    needed_units = row["units_needed"]
    if size is None or not isinstance(needed_units, int):
        return ""
    needed_text = format_count(needed_units, size.unit_name)
    return word("power", "needed", units=needed_text, planned=size.units)


def _standard_error(base: float, other: float, sample_size: float) -> float:
    return math.sqrt((base * (1 - base) + other * (1 - other)) / sample_size)


def _starting_rate(claim: Claim, difference: float | None) -> float:
    # The assumed share in the second condition. A share that falls starts high, and one that rises
    # starts low, also if the claim states the other direction.
    falls = claim.direction == "less" if not difference else difference < 0
    return 1 - BASE if falls else BASE


def _levels_of_last_step(
    claim: Claim, claims: Sequence[Claim], expected: float | None
) -> list[tuple[float, float]]:
    # The levels of the lower and the upper bound after all other claims that can be supported are.
    # A claim that is decided by both bounds never leaves its level to the others. A claim with a
    # direction leaves it in one direction only, so that one bound of an equivalence keeps its own.
    # A claim of any difference leaves it in either direction: one pair of levels for each division.
    keeping = sum(other.needs_both_bounds for other in claims) - claim.needs_both_bounds
    directed = sum(other.direction in ("greater", "less") for other in claims)
    either = len(claims) - keeping - directed - 1
    if claim.direction in ("greater", "less"):
        return [(ALPHA / (1 + keeping),) * 2]
    stated, opposite = (
        [ALPHA / (1 + keeping + left) for left in range(start, start + either + 1)]
        for start in (0, directed)
    )
    if claim.direction == "equivalent":
        return list(zip(stated, reversed(opposite), strict=True))
    return [(opposite[0] if (expected or 0.0) < 0 else stated[0],) * 2]


def _power_of_difference(
    claim: Claim,
    difference: float,
    sample_size: float,
    alpha: float,
    upper_alpha: float | None = None,
    base: float | None = None,
) -> float:
    # `difference` is the true one, first minus second condition. `sample_size` counts the
    # independent units in each condition. `base` is the share of the second condition, if it does
    # not follow from the difference. NaN if the share of the first condition would not be between
    # 0 and 1.
    base = _starting_rate(claim, difference) if base is None else base
    other = base + difference
    if not 0 <= other <= 1:
        return math.nan
    claimed = {"less": -difference, "different": abs(difference)}.get(claim.direction, difference)
    equivalent = claim.direction == "equivalent"
    se = _standard_error(base, other, sample_size)
    return power_beyond(
        claimed, se, claim.margin, alpha, equivalent=equivalent, upper_alpha=upper_alpha
    )


def _power_of_share(
    claim: Claim,
    size: DesignSize,
    expected: float | None,
    levels: tuple[float, Sequence[tuple[float, float]]],
    iccs: Sequence[float],
) -> tuple[float | None, float | None, Sentence]:
    # `levels` are the level of the first step and the possible levels of both bounds at the last
    # one. The powers are in the same order. Without an expected difference they are None, and the
    # sentence gives the smallest detectable difference.
    alpha, last_levels = levels
    base = _starting_rate(claim, expected)
    n = float(size.units)
    if size.kind == "clustered":
        n = effective_n(size.units * size.size, size.size, _assumed_icc(iccs))
    start = {"base": format_percent(base), "arm": claim.arm_labels[1]}
    if expected is not None or claim.direction == "equivalent":
        expected = expected or 0.0
        chance = _power_of_difference(claim, expected, n, alpha)
        most = max(_power_of_difference(claim, expected, n, *pair) for pair in last_levels)
        if not math.isfinite(chance):
            return None, None, word("power", "no rate", difference=format_points(expected), **start)
        says = word(
            "power",
            "at, up to" if max(map(max, last_levels)) > alpha else "at",
            power=format_percent(chance),
            most=format_percent(most),
            difference=format_points(expected),
            **start,
        )
        return chance, most, says
    # The smallest difference is searched, because the rule of a claim has no simple inverse.
    sign = -1 if claim.direction == "less" else 1
    steps = (sign * thousandth / 1000 for thousandth in range(1, 1000))
    smallest_difference = next(
        (step for step in steps if _power_of_difference(claim, step, n, alpha, base=base) >= POWER),
        None,
    )
    if smallest_difference is None:
        return None, None, word("power", "none", power=format_percent(POWER), **start)
    least = format_points(smallest_difference)
    return None, None, word("power", "from", power=format_percent(POWER), difference=least, **start)


def _units_needed(
    claim: Claim,
    size: DesignSize,
    expected: float | None,
    alpha: float,
    iccs: Sequence[float],
) -> int | None:
    # Units in each condition for a power of 80 %, or None if no number suffices. Also None for
    # shares without expected difference and margin.
    if claim.kind == "share" and not claim.paired and size.kind != "paired":
        if expected is None and not claim.margin:
            return None
        # Without an expected difference, twice the margin is assumed, or zero for an equivalence.
        aim = {"equivalent": 0.0, "less": -2 * claim.margin}.get(claim.direction, 2 * claim.margin)
        if expected is not None:
            aim = expected
        # Each unit counts as one independent unit, or a session as its effective number of
        # participants.
        effective_units = 1.0
        if size.kind == "clustered":
            effective_units = effective_n(size.size, size.size, _assumed_icc(iccs))

        def has_enough_power(units: int) -> bool:
            return _power_of_difference(claim, aim, units * effective_units, alpha) >= POWER
    else:
        # For means and paired designs, half a standard deviation is assumed.
        def has_enough_power(units: int) -> bool:
            return _smallest_effect(claim, size, units, expected, alpha) <= HALF_SD

    return next((n for n in _growing_sizes() if has_enough_power(n)), None)


def _growing_sizes() -> Iterator[int]:
    # The smallest sufficient number is exact up to 200, and within one percent above.
    units = FEWEST_UNITS
    while units <= MAX_UNITS:
        yield units
        units += max(1, units // 100)


def _smallest_effect(
    claim: Claim, size: DesignSize, units: int, expected: float | None, alpha: float
) -> float:
    # In standard deviations: the smallest distance of the true difference from the margin, or the
    # smallest margin of an equivalence. NaN if the expected difference is not within this margin.
    is_paired = size.kind == "paired"
    if claim.direction == "equivalent":
        ratio = (expected or 0.0) / claim.margin if claim.margin else math.inf
        return (smallest_margin_paired if is_paired else smallest_margin)(units, ratio, alpha)
    return (smallest_d_paired if is_paired else smallest_d)(units, alpha)


def _least_mean(claim: Claim, size: DesignSize, expected: float | None, alpha: float) -> Sentence:
    smallest_effect = _smallest_effect(claim, size, size.units, expected, alpha)
    case = "mean"
    if claim.direction == "equivalent":
        case = "mean, equivalent" if math.isfinite(smallest_effect) else "mean, not equivalent"
    return word(
        "power",
        case,
        power=format_percent(POWER),
        size=f"{smallest_effect:.2f}",
        quantity=f"{'differences of ' * (size.kind == 'paired')}{size.unit_name}s",
        difference=claim.format_signed(expected or 0.0),
    )


def people_power(
    width: float, size: DesignSize | None = None, iccs: Sequence[float] = ()
) -> Finding:
    """Return the finding on how many humans must take part for a wanted interval width.

    `width`: the wanted width. The unit is a difference of shares, or the standard deviation of
    human answers.
    """
    # The estimate combines human and simulated answers. The result depends on their correlation.
    group_size = size.size if size is not None and size.kind != "independent" else 1
    icc = _assumed_icc(iccs) if group_size > 1 else 0.0
    effect_of_groups = design_effect(group_size, icc)
    rows: list[Row] = [
        {
            "fit_r": fit,
            "people_for_a_share": people_needed(width, 0.5, fit, design_effect=effect_of_groups),
            "for_an_effect_on_it": people_needed(
                # The variance of a difference of two conditions is twice that of one, so each needs
                # an interval narrower by √2.
                width / math.sqrt(2),
                0.5,
                fit,
                design_effect=effect_of_groups,
            ),
            "people_for_a_mean": people_needed(width, 1.0, fit, design_effect=effect_of_groups),
        }
        for fit in FITS
    ]
    group_text = f" in groups of {group_size} (ICC {icc:g})" if group_size > 1 else ""
    half_width = f"{100 * width / 2:g}"
    return Finding(
        "power_people",
        "People to ask beside the simulation",
        word(
            "power",
            "people",
            width=half_width,
            most=rows[0]["people_for_a_share"],
            groups=group_text,
            fewest=rows[-1]["people_for_a_share"],
            fit=f"{FITS[-1]:g}",
        ),
        ResultTable.from_records(
            rows,
            f"People in each arm{group_text}; width {width:g}, of means in standard deviations. "
            "The "
            "effect is the difference of two arms with an interval of the same width.",
        ),
        notes=(
            "For corrected estimates of `folkmoot compare RUN --people FILE`: the people are a "
            "random sample of many more simulated ones. With few simulated participants, more "
            "people are needed, or no number of them is enough. A share of one half is assumed, "
            "which needs the most people.",
        ),
        section=SECTION,
    )


def _share_power_finding(size: DesignSize, title: str, claim_count: int) -> Finding:
    # `strict` is the level of the first and strictest step of Holm's method.
    n, strict = size.units, ALPHA / max(1, claim_count)
    if n < 2:
        return _too_small(title, size)
    rows = []
    for rate in BASES:
        unadjusted, adjusted = detectable_share(rate, n), detectable_share(rate, n, alpha=strict)
        rows.append(
            {
                "base_rate": rate,
                "seen_from_rate": finite_or_none(unadjusted),
                "difference_points": finite_or_none(unadjusted - rate),
                **(
                    {
                        "holm_from_rate": finite_or_none(adjusted),
                        "holm_difference_points": finite_or_none(adjusted - rate),
                    }
                    if claim_count > 1
                    else {}
                ),
            }
        )
    detectable, adjusted = detectable_share(BASE, n), detectable_share(BASE, n, alpha=strict)
    detected = _describe_detectable("rate", detectable)
    # A difference that is not detected at 5 % is not detected at a stricter level either.
    if claim_count > 1 and math.isfinite(detectable):
        case = "strictest rate" if math.isfinite(adjusted) else "no strictest rate"
        least = format_percent(adjusted)
        detected = word("power", case, detected=detected, claims=claim_count, adjusted=least)
    says = word(
        "power",
        "shares",
        title=title,
        conditions=format_count(size.arms, "condition"),
        participants=format_count(n, "participant"),
        base=format_percent(BASE),
        detected=detected,
    )
    return Finding(
        "power_differences",
        "Smallest detectable difference",
        says,
        ResultTable.from_records(
            rows, f"Two-sided, α = .05, power {format_percent(POWER)}, {n} per condition."
        ),
        notes=(
            f"Cohen's h of {smallest_h(n):.4f} at α = .05."
            + (
                " “holm” takes the strictest level that Holm's method asks for, "
                f"α / {claim_count} for {claim_count} primary claims."
                if claim_count > 1
                else ""
            ),
            "Participants are independent of each other here; arms that read the same summaries "
            "share those summaries, which no number of participants makes up for.",
            *((NORMAL_NOTE,) if n < FEWEST_NORMAL else ()),
        ),
        section=SECTION,
        headline=True,
    )


def _power_table(size: DesignSize, title: str) -> Finding:
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
        word("power", "chance", power=format_percent(chance), units=n),
        ResultTable.from_records(rows, f"{title}: power of a two-sided test at α = .05."),
        LineChart(
            tuple(
                (
                    f"from {format_percent(rate)}",
                    difference,
                    power_two_shares(rate, rate + difference, n),
                )
                for rate in BASES
                for difference in DIFFERENCES
                if rate + difference < 1
            ),
            x="true difference",
            y="power",
        ),
        section=SECTION,
    )


def _needed_participants_finding(size: DesignSize, title: str) -> Finding:
    rows = [
        {
            "base_rate": rate,
            **{
                f"plus_{100 * difference:.0f}_points": math.ceil(
                    n_two_shares(rate, rate + difference)
                )
                if rate + difference < 1
                else None
                for difference in DIFFERENCES
            },
        }
        for rate in BASES
    ]
    needed_participants = math.ceil(n_two_shares(0.10, 0.20))
    return Finding(
        "power_needed",
        "Participants needed per condition",
        word(
            "power",
            "participants",
            power=format_percent(POWER),
            needed=needed_participants,
            units=size.units,
        ),
        ResultTable.from_records(
            rows, f"{title}: power {format_percent(POWER)}, two-sided, α = .05."
        ),
        section=SECTION,
    )


def _paired_power_findings(
    size: DesignSize, title: str, iccs: Sequence[float], claim_count: int
) -> list[Finding]:
    n = size.units
    strict = ALPHA / max(1, claim_count)
    unadjusted, adjusted = smallest_d_paired(n), smallest_d_paired(n, alpha=strict)
    name = size.unit_name
    if not math.isfinite(unadjusted):
        return [_too_small(title, size)]
    rows = [
        {
            name + "s": units,
            "smallest_difference_in_sd": smallest_d_paired(units),
            **({"holm_in_sd": smallest_d_paired(units, alpha=strict)} if claim_count > 1 else {}),
        }
        for units in sorted({5, 10, 20, 40, 80, n})
    ]
    first = Finding(
        "power_paired",
        "Smallest detectable difference",
        word(
            "power",
            "paired, several claims" if claim_count > 1 else "paired",
            title=title,
            units=format_count(n, name),
            conditions=f"all {size.arms} conditions" if size.arms > 1 else "1 condition",
            power=format_percent(POWER),
            size=f"{unadjusted:.2f}",
            unit=name,
            adjusted=f"{adjusted:.2f}",
            claims=claim_count,
        ),
        ResultTable.from_records(
            rows, "Paired t test, two-sided, α = .05; .2 is small, .5 medium, .8 large."
        ),
        notes=(
            f"The {name} is the unit: people who talked to each other are not independent, so "
            f"more people in each {name} help less than more {name}s.",
        ),
        section=SECTION,
        headline=True,
    )
    return [first, _effective_n_finding(size, title, iccs)] if size.size > 1 else [first]


def _effective_n_finding(size: DesignSize, title: str, iccs: Sequence[float]) -> Finding:
    people = size.units * size.size
    rows = [
        {
            "icc": icc,
            "design_effect": design_effect(size.size, icc),
            "worth_participants": effective_n(people, size.size, icc),
        }
        for icc in iccs
    ]
    icc = _assumed_icc(iccs)
    typical = effective_n(people, size.size, icc)
    return Finding(
        "power_clusters",
        "Effective number of participants",
        word(
            "power",
            "effective",
            people=format_count(people, "participant"),
            units=format_count(size.units, size.unit_name),
            members=size.size,
            worth=f"{typical:.0f}",
            icc=f"{icc:g}",
        ),
        ResultTable.from_records(rows, f"{title}: design effect 1 + (m − 1) ICC."),
        section=SECTION,
    )


def _clustered_power_finding(size: DesignSize, title: str, iccs: Sequence[float]) -> Finding:
    people = size.units * size.size
    # One unit per condition gives no variance between units.
    if size.units < 2:
        return _too_small(title, size)
    rows = []
    for icc in iccs:
        worth = effective_n(people, size.size, icc)
        detectable = detectable_share(BASE, worth)
        rows.append(
            {
                "icc": icc,
                "design_effect": design_effect(size.size, icc),
                "worth_participants": worth,
                "base_rate": BASE,
                "seen_from_rate": finite_or_none(detectable),
            }
        )
    icc = _assumed_icc(iccs)
    worth = effective_n(people, size.size, icc)
    return Finding(
        "power_clustered",
        "Smallest detectable difference",
        word(
            "power",
            "clusters",
            title=title,
            conditions=format_count(size.arms, "condition"),
            units=format_count(size.units, size.unit_name),
            members=size.size,
            icc=f"{icc:g}",
            people=people,
            worth=f"{worth:.0f}",
            detected=_describe_detectable("change", detectable_share(BASE, worth)),
        ),
        ResultTable.from_records(rows, "Two-sided, α = .05; design effect 1 + (m − 1) ICC."),
        section=SECTION,
        headline=True,
    )


def _too_small(title: str, size: DesignSize) -> Finding:
    return Finding(
        "power_none",
        "No effect can be detected",
        word(
            "power",
            "too small",
            title=title,
            units=format_count(size.units, size.unit_name),
        ),
        ResultTable((), ()),
        section=SECTION,
        headline=True,
    )


def _unknown_size_finding(title: str) -> Finding:
    rows = [
        {
            "participants_per_condition": n,
            "smallest_h": smallest_h(n),
            "seen_from_10_percent_rate": finite_or_none(detectable_share(0.10, n)),
        }
        for n in (20, 50, 100, 200, 300, 500, 1000)
    ]
    return Finding(
        "power_table",
        "Smallest difference by size",
        word("power", "unknown size", title=title),
        ResultTable.from_records(rows, f"Two-sided, α = .05, power {format_percent(POWER)}."),
        section=SECTION,
        headline=True,
    )


def _assumed_icc(iccs: Sequence[float]) -> float:
    return 0.05 if 0.05 in iccs or not iccs else iccs[0]


def _describe_detectable(case: str, share: float) -> Sentence:
    # `share` is NaN if no share is large enough. It is the smallest one that differs from `BASE`.
    case = case if math.isfinite(share) else f"no detectable {case}"
    rate, base, power = map(format_percent, (share, BASE, POWER))
    return word("power", case, rate=rate, base=base, power=power)
