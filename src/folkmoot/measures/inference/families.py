"""Judge all claims of a report, with a correction for the number of claims in each family.

The families are primary, secondary and exploratory claims.
"""

# Start with `judge_families`. Claims outside of the primary family get Holm-adjusted p-values. The
# primary claims also get joint intervals that agree with their verdicts.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from folkmoot.measures.inference.claims import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Claim,
    ClaimVerdict,
    Family,
    Result,
    evaluate,
    judge,
    make_interval_function,
    without_result,
)
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.inference.estimates import ALPHA, FEWEST_UNITS, Estimate
from folkmoot.measures.inference.proportions import holm
from folkmoot.measures.inference.simultaneous import (
    DirectionalTests,
    JointResult,
    decide_jointly,
    p_above_value,
    p_below_value,
)

# The data of a claim: the claim with its unit, and both sides. A string is the reason if there are
# no data.
Read = tuple[Claim, Side, Side] | str


def judge_families(claims: Sequence[Claim], read: Callable[[Claim], Read]) -> list[Result]:
    """Return the results of claims in order, corrected for the number of claims in each family.

    - `read`: returns the data of a claim, or the reason why the claim has no data.
    """
    # A claim is corrected for the other claims of its family: primary, secondary or exploratory.
    # Primary claims that cannot be tested count too, because the number was fixed in advance. The
    # interval of each estimate stays at 95 %, without a correction.
    results: list[Result] = []
    data_of_primary: dict[int, tuple[Side, Side]] = {}
    for index, claim in enumerate(claims):
        sides = read(claim)
        if isinstance(sides, str):
            results.append(without_result(claim, sides))
            continue
        results.append(evaluate(*sides, ALPHA))
        if claim.family == "primary":
            data_of_primary[index] = sides[1:]
    adjusted = adjust_families(results, ALPHA)
    primary = [index for index, claim in enumerate(claims) if claim.family == "primary"]
    if len(primary) < 2:
        return adjusted
    tests = [
        _directional_tests(results[index], *data_of_primary[index])
        if index in data_of_primary
        else None
        for index in primary
    ]
    for index, joint in zip(primary, decide_jointly(tests, ALPHA), strict=True):
        if joint is not None:
            adjusted[index] = replace(
                results[index],
                adjusted_p=joint.adjusted_p,
                joint=joint.interval,
                verdict=_judge_joint(results[index].claim, joint),
            )
    return adjusted


def _directional_tests(result: Result, first: Side, second: Side) -> DirectionalTests | None:
    claim, estimate = result.claim, result.estimate
    if not result.is_tested or not estimate.has_interval:
        return None

    interval_at = make_interval_function(claim, first, second)
    if claim.needs_both_bounds:
        return DirectionalTests(0.0, 0.0, 1.0, 1.0, interval_at, keeps_share=True)
    null = -claim.margin if claim.direction == "less" else claim.margin
    if claim.margin:
        p_above, p_below = p_above_value(null, interval_at), p_below_value(null, interval_at)
    else:
        smaller = estimate.p / 2
        is_positive = estimate.value > 0
        p_above, p_below = (smaller, 1 - smaller) if is_positive else (1 - smaller, smaller)
    return DirectionalTests(
        null, null, p_above, p_below, interval_at, is_mirrored=claim.direction == "less"
    )


def _judge_joint(claim: Claim, joint: JointResult) -> ClaimVerdict:
    if claim.needs_both_bounds:
        low, high, *_ = joint.interval
        return judge(claim.direction, claim.margin, Estimate(math.nan, low, high, FEWEST_UNITS))
    if claim.direction == "different":
        return SUPPORTED if joint.is_above or joint.is_below else UNDECIDED
    is_less = claim.direction == "less"
    stated, opposite = (
        (joint.is_below, joint.is_above) if is_less else (joint.is_above, joint.is_below)
    )
    return SUPPORTED if stated else CONTRADICTED if opposite else UNDECIDED


def adjust_families(results: Sequence[Result], alpha: float = ALPHA) -> list[Result]:
    """Return the results with Holm-adjusted p-values and new verdicts.

    - `results`: unadjusted results. Each was judged as if its claim were the only one.
    """
    # For primary claims, `judge_families` later replaces these p-values, so that they agree with
    # the joint intervals.
    size = Counter(result.claim.family for result in results)
    ps = {family: iter(_adjust_in_family(results, family)) for family in size}
    return [_within_family(r, next(ps[r.claim.family]), size, alpha) for r in results]


def _adjust_in_family(results: Sequence[Result], family: Family) -> list[float]:
    return holm([r.unadjusted_p for r in results if r.claim.family == family])


def _within_family(result: Result, p: float, size: Counter[Family], alpha: float) -> Result:
    claim, several = result.claim, size[result.claim.family] > 1
    if not several or result.why:
        return replace(result, adjusted_p=p if several else math.nan)
    verdict = judge(claim.direction, claim.margin, replace(result.estimate, p=p), alpha)
    # `judge` decides equivalence by the interval alone, which is not adjusted.
    verdict = UNDECIDED if verdict == SUPPORTED and p >= alpha else verdict
    return replace(result, adjusted_p=p, verdict=verdict)
