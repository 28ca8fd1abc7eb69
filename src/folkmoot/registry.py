"""What other packages add: study types, persona sources, model providers.

They register under entry-point groups. Packages are searched once per process, which takes
longer than most commands do; what is installed later is found by the next process.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

STUDIES = "folkmoot.studies"
PERSONAS = "folkmoot.personas"
PROVIDERS = "folkmoot.providers"


def installed_entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, in order of name, none of them imported yet."""
    return {point.name: point for point in sorted(_installed_entry_points().select(group=group))}


@lru_cache(maxsize=1)
def _installed_entry_points() -> Any:  # of one type before Python 3.12 and of another since
    return entry_points()
