"""Does it pay to be listed first? Effects of the order in which options were shown."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from folkmoot.measures.inference.clustered import clustered_coefficient
from folkmoot.measures.inference.estimates import Estimate


@dataclass(frozen=True, slots=True)
class Shown:
    """One choice: the options in the order in which they were shown, the one chosen, by whom."""

    options: tuple[str, ...]
    chosen: str
    who: Hashable


@dataclass(frozen=True, slots=True)
class PositionEffects:
    """Effect of each place in the list (1, 2, …) on the chance of being chosen, in shares.

    Empty where it cannot be told apart from the options themselves, because everybody saw the
    same order (`orders` == 1).
    """

    by_place: dict[int, Estimate]
    orders: int
    answers: int

    @property
    def first(self) -> Estimate | None:
        return self.by_place.get(1)


def shown_in(answers: Iterable[Mapping[str, object]]) -> list[Shown]:
    """Choices of the `answers` table (rows of any study) that were made and had an order.

    Columns read: `options` (JSON list as shown), `value`, `speaker_id`.
    """
    found = []
    for row in answers:
        if row.get("options") and row.get("value") is not None:
            options = _options_in_order(row["options"])
            if row["value"] in options:
                found.append(Shown(options, str(row["value"]), row.get("speaker_id")))
    return found


@lru_cache(maxsize=1024)
def _options_in_order(listed: str) -> tuple[str, ...]:
    """The options of a cell; one tuple for all who saw them in this order."""
    return tuple(json.loads(listed))


def position_effects(answers: Sequence[Shown]) -> PositionEffects:
    """How much likelier an option is chosen in a given place than in the others.

    Least squares of "this option was chosen" over all options shown, on one indicator per option
    (its popularity) and one for the place; clustered by person. Orders need not be balanced, but
    must vary. With random orders this is the causal effect of the place.
    """
    orders = {a.options for a in answers}
    if len(orders) < 2:
        return PositionEffects({}, len(orders), len(answers))
    names = sorted({option for a in answers for option in a.options})
    index = {name: i for i, name in enumerate(names)}
    option = np.array([index[option] for a in answers for option in a.options])
    place = np.array([k for a in answers for k in range(1, len(a.options) + 1)])
    chosen = np.array([float(option == a.chosen) for a in answers for option in a.options])
    who = [a.who for a in answers for _ in a.options]
    popularity = np.eye(len(names))[option]
    found: dict[int, Estimate] = {}
    for k in range(1, int(place.max()) + 1):
        here = (place == k).astype(float)
        seen_both = [len(set(here[option == i].tolist())) == 2 for i in range(len(names))]
        if any(seen_both):
            design = np.column_stack([popularity, here])
            estimate = clustered_coefficient(chosen, design, len(names), who)
            found[k] = replace(estimate, low=max(estimate.low, -1.0), high=min(estimate.high, 1.0))
    return PositionEffects(found, len(orders), len(answers))
