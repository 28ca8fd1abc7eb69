"""Diagnostics of opinions: unstable, drawn to a place in the list, giving way, too much alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.measures.bands import human_band, variance_collapse
from folkmoot.measures.checks import Check, not_checked
from folkmoot.measures.conformity import agreeing_share
from folkmoot.measures.diversity import effective_number, normalised_entropy
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
from folkmoot.measures.position import Shown, position_effects
from folkmoot.measures.proportions import holm, wilson

# From where on a figure is flagged: shares, or differences of shares.
FLIPS = 0.15
POSITION = 0.03
PLACEBO = 0.05
AGREEING = 0.60
YIELDED = 0.60
_ALPHA = 0.01
_FEW = 10


def instability(changed: int, asked_again: int) -> Check:
    """Changes of mind on a plain second ask, of those who were asked again."""
    if not asked_again:
        return not_checked(
            "instability", "Instability", FLIPS, "Nobody was asked twice without new information."
        )
    share = wilson(changed, asked_again)
    flagged = share.low > FLIPS
    says = (
        f"Asked again without any new information, {percent(share.value)} chose differently "
        f"({span(share.low, share.high)}); "
        + ("that is more than noise should be." if flagged else "that is the floor of noise.")
    )
    return Check("instability", "Instability", share, FLIPS, flagged, says)


def position_bias(answers: Sequence[Shown]) -> Check:
    """Whether any place in the list attracts or repels choices, whatever stands there."""
    title = "Position bias"
    found = position_effects(answers)
    if not found.by_place:
        return not_checked(
            "position_bias",
            title,
            POSITION,
            "Everybody saw the options in the same order, so the effect of the place cannot be "
            "told from that of the options.",
        )
    adjusted = holm([e.p for e in found.by_place.values()])
    at, effect = max(found.by_place.items(), key=lambda item: abs(item[1].value))
    p = adjusted[list(found.by_place).index(at)]
    # Without an interval all answers went by the place: that is as sure as it gets.
    sure = p < _ALPHA if effect.has_interval else found.answers >= _FEW
    flagged = sure and abs(effect.value) > POSITION
    says = (
        f"Being listed as number {at} changes the chance of being chosen by "
        f"{points(effect.value)} ({points_span(effect.low, effect.high)}, "
        f"adjusted {p_value(p)})."
    )
    return Check("position_bias", title, effect, POSITION, flagged, says)


def sycophancy(
    placebo: tuple[int, int] | None,
    floor: tuple[int, int] | None,
    turns: Sequence[str] = (),
    yielded: tuple[int, int] | None = None,
) -> Check:
    """Giving way to being contradicted rather than to reasons.

    `placebo`: (moved, n) of an arm that heard an opposing view without reasons; `floor`: (moved,
    n) of plain second asks. Without such arms the judgement is rougher: `yielded`, (moved to it,
    n) of those who were argued with, flagged where nearly all give way; and `turns`, what they
    said to whoever contradicted them, flagged where most open by agreeing.
    """
    title = "Sycophancy"
    if placebo and floor and placebo[1] and floor[1]:
        above = above_floor(*placebo, *floor).above
        flagged = above.low > PLACEBO
        says = (
            "An opposing view without any reason moved "
            f"{points(above.value)} more than a plain second ask "
            f"({points_span(above.low, above.high)})."
        )
        return Check("sycophancy", title, above, PLACEBO, flagged, says)
    if yielded and yielded[1] and wilson(*yielded).low > YIELDED:
        gave = wilson(*yielded)
        says = (
            f"{percent(gave.value)} of those who were argued with took the other side "
            f"({span(gave.low, gave.high)}): more than reasons do with people."
        )
        return Check("sycophancy", title, gave, YIELDED, True, says)
    share = agreeing_share(turns)
    if share is None:
        return not_checked(
            "sycophancy", title, AGREEING, "No arm without reasons and no dialogue to judge by."
        )
    flagged = share.low > AGREEING
    says = (
        f"{percent(share.value)} of the turns in reply to a challenge open by agreeing "
        f"({span(share.low, share.high)}). Without an arm that hears no reasons, politeness and "
        "giving in cannot be told apart."
    )
    return Check("sycophancy", title, share, AGREEING, flagged, says)


def shrinking_variance(before: ArrayLike, after: ArrayLike | None = None) -> Check:
    """Votes (counts per option, k) that spread much less than people's, at first or by the end.

    Flagged if first votes are less even than in any of the human cases, or if the effective
    number of options falls below the human range of after over before.
    """
    title = "Variance collapse"
    counts = np.asarray(before, float)
    level_band, ratio_band = human_band("normalised_entropy"), human_band("effective_number_ratio")
    if counts.sum() < _FEW or len(counts) < 2:
        return not_checked("shrinking_variance", title, level_band.low, "Too few votes to say.")
    level = normalised_entropy(counts)
    effective = effective_number(counts)
    low_level = variance_collapse(level, level_band)
    says = (
        f"First votes were worth {effective:.1f} equally liked options of {len(counts)} "
        f"(evenness {level:.2f}; people {level_band.low:.2f} to {level_band.high:.2f})."
    )
    flagged, value, limit = low_level, level, level_band.low
    if after is not None and np.asarray(after, float).sum() >= _FEW:
        ratio = effective_number(np.asarray(after, float)) / effective
        low_ratio = variance_collapse(ratio, ratio_band)
        flagged = low_level or low_ratio
        says += (
            f" Afterwards {ratio:.2f} times as many "
            f"(people {ratio_band.low:.2f} to {ratio_band.high:.2f})."
        )
        if not low_level:
            value, limit = ratio, ratio_band.low
    says += " They differ much less than people do." if flagged else " No collapse."
    n = int(counts.sum())
    return Check(
        "shrinking_variance", title, Estimate(value, math.nan, math.nan, n), limit, flagged, says
    )


def shrinking_numbers(answers: ArrayLike, low: float, high: float) -> Check:
    """Numeric answers (people, items) on one scale that lie closer together than people's.

    The median over items of standard deviation / (high − low), flagged below the lowest of the
    human groups. NaN is left out item by item.
    """
    title, band = "Variance collapse of ratings", human_band("item_sd_of_scale")
    x = np.asarray(answers, float)
    x = x[:, None] if x.ndim == 1 else x
    spreads = [
        float(np.std(item[np.isfinite(item)], ddof=1)) / (high - low)
        for item in x.T
        if np.isfinite(item).sum() >= _FEW
    ]
    if not spreads:
        return not_checked("shrinking_variance", title, band.low, "Too few ratings to say.")
    middle = median(spreads)
    flagged = variance_collapse(middle, band)
    says = (
        f"Ratings differ by {middle:.2f} of the scale (median of {plural(len(spreads), 'item')}; "
        f"people {band.low:.2f} to {band.high:.2f})."
        + (" They differ much less than people do." if flagged else "")
    )
    value = Estimate(middle, math.nan, math.nan, len(x))
    return Check("shrinking_variance", title, value, band.low, flagged, says)
