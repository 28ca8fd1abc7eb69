"""Random assignment of participants to conditions in equal numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from folkmoot.errors import InputError


def assign_conditions(
    ids: Sequence[str], conditions: Sequence[str], rng: np.random.Generator
) -> dict[str, str]:
    """Return a random condition for each id. The sizes of the conditions differ by at most one.

    Raises InputError if an id or condition is repeated, or if there are no conditions.
    """
    if not conditions or len(set(conditions)) != len(conditions):
        raise InputError("conditions: name at least one, and each only once")
    if len(set(ids)) != len(ids):
        raise InputError("participants: duplicate id")
    group_size, rest = divmod(len(ids), len(conditions))
    # Draw the conditions with one more participant, so that the first ones are not favoured.
    extra_conditions = [conditions[int(index)] for index in rng.permutation(len(conditions))[:rest]]
    condition_slots = [
        condition for condition in conditions for _ in range(group_size)
    ] + extra_conditions
    order = rng.permutation(len(ids))
    return {participant_id: condition_slots[int(order[i])] for i, participant_id in enumerate(ids)}
