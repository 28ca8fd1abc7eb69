"""Position effects: the influence of an option's place in the list on the choices."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from folkmoot.measures.inference.clustered import clustered_coefficient, encode_labels
from folkmoot.measures.inference.estimates import Estimate


@dataclass(frozen=True, slots=True)
class Shown:
    """One choice: the options in the order of the list, the chosen option, and the participant."""

    options: tuple[str, ...]
    chosen: str
    # The unit for which the order was drawn, usually the participant. None: not known,
    # so that the choice counts as independent of all others.
    who: Hashable
    # The independent unit of the choice, such as a group of participants who talk to each other.
    # None: the same unit as `who`.
    unit: Hashable = None


@dataclass(frozen=True, slots=True)
class PositionEffects:
    """The effect of each place in the list on the chance that the option there is chosen."""

    # Places count from 1.

    # The effects by place, as differences of shares. Empty if all participants saw the options in
    # one order, because place and popularity cannot be separated then.
    by_place: dict[int, Estimate]
    # Number of different orders.
    orders: int
    # Number of choices.
    answers: int
    # The places of the chosen options. A single place decided all choices.
    chosen_places: frozenset[int] = frozenset()

    @property
    def first(self) -> Estimate | None:
        """The effect of the first place, or None if this effect could not be estimated."""
        return self.by_place.get(1)


def shown_in(
    answers: Iterable[Mapping[str, Any]],
    part_of: Callable[[Mapping[str, Any]], Hashable] = lambda row: None,
) -> list[Shown]:
    """Return the choices in rows of the table `answers`.

    - `part_of`: returns the group of a row. Needed if speakers of different groups have the same
      id.

    Rows without an answer or without a list of options are skipped.
    """
    # Columns read: `options` (JSON list in the order of the list), `value`, `speaker_id`.
    found = []
    for row in answers:
        if row.get("options") and row.get("value") is not None:
            options = parse_options(row["options"])
            if row["value"] in options:
                speaker, part = row.get("speaker_id"), part_of(row)
                who = None if speaker is None else (part, speaker)
                found.append(Shown(options, str(row["value"]), who, part))
    return found


@lru_cache(maxsize=1024)
def parse_options(listed: str) -> tuple[str, ...]:
    """Return the options in a table cell, in the order in which a prompt listed them."""
    # Calls with the same text return the same tuple, which saves memory.
    return tuple(json.loads(listed))


def position_effects(answers: Sequence[Shown]) -> PositionEffects:
    """Return the effect of each place in the list on the chance that the option there is chosen."""
    # Only options that were listed in several orders count. The effect is adjusted for the
    # popularity of the options. Participants are the independent units.
    orders_of_set: dict[frozenset[str], set[tuple[str, ...]]] = defaultdict(set)
    for a in answers:
        orders_of_set[frozenset(a.options)].add(a.options)
    answers = [a for a in answers if len(orders_of_set[frozenset(a.options)]) > 1]
    orders = {a.options for a in answers}
    if not answers:
        return PositionEffects({}, min(1, len(orders_of_set)), 0)
    names = sorted({option for a in answers for option in a.options})
    index = {name: i for i, name in enumerate(names)}
    option = np.array([index[option] for a in answers for option in a.options])
    place = np.array([k for a in answers for k in range(1, len(a.options) + 1)])
    chosen = np.array([float(option == a.chosen) for a in answers for option in a.options])
    # The rows of one answer belong together, also if it is not known who answered.
    sizes = [len(a.options) for a in answers]
    who = np.repeat(encode_labels([a.who for a in answers]), sizes).tolist()
    # A least-squares fit of "this option was chosen" on the option and its place. With random
    # orders, the estimate is the causal effect of the place.
    popularity = np.eye(len(names))[option]
    found: dict[int, Estimate] = {}
    for k in range(1, int(place.max()) + 1):
        here = (place == k).astype(float)
        # The effect of a place is identified only if some option was both in this place and
        # elsewhere.
        seen_both = [len(set(here[option == i].tolist())) == 2 for i in range(len(names))]
        if any(seen_both):
            design = np.column_stack([popularity, here])
            estimate = clustered_coefficient(chosen, design, len(names), who)
            # A difference of shares cannot exceed 1, but the linear fit does not know this limit.
            found[k] = replace(estimate, low=max(estimate.low, -1.0), high=min(estimate.high, 1.0))
    chosen_places = frozenset(a.options.index(a.chosen) + 1 for a in answers)
    return PositionEffects(found, len(orders), len(answers), chosen_places)
