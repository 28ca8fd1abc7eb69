"""Change apart from noise: what an intervention adds to people simply being asked again."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.measures.estimates import Estimate
from folkmoot.measures.proportions import newcombe, wilson


@dataclass(frozen=True, slots=True)
class Persuasion:
    """The share that changed, raw and above the floor of noise, with the floor itself."""

    raw: Estimate
    floor: Estimate
    above: Estimate


def above_floor(changed: int, n: int, floor_changed: int, floor_n: int) -> Persuasion:
    """The rate changed/n minus the rate at which people change when merely asked again.

    The floor is an arm of its own, so the two are independent and the interval is Newcombe's. A
    floor estimated from few people makes for a wide interval: that is honest. Raises ValueError
    for an empty arm.
    """
    return Persuasion(
        wilson(changed, n),
        wilson(floor_changed, floor_n),
        newcombe(changed, n, floor_changed, floor_n),
    )
