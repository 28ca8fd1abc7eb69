"""The order of tasks in one session: by `task_order`, ties drawn anew for each session."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from folkmoot.studies.workbook.model import Task


def realised_order(tasks: Sequence[Task], rng: np.random.Generator) -> tuple[Task, ...]:
    """The tasks as one session plays them. Contexts come first, whatever is drawn."""
    ordered = sorted(tasks, key=lambda t: (t.task_order, t.type != "context"))
    out: list[Task] = []
    for _, tied in groupby(ordered, key=lambda t: (t.task_order, t.type != "context")):
        group = list(tied)
        out.extend(group[i] for i in rng.permutation(len(group)))
    return tuple(out)
