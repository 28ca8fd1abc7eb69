"""Extensions by other packages: study types, persona sources and model providers."""
# Extensions are registered under entry-point groups. The installed packages are searched once per
# process, because the search takes longer than most commands. A package that is installed during a
# process is found only by later processes.

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

STUDIES = "folkmoot.studies"
PERSONAS = "folkmoot.personas"
PROVIDERS = "folkmoot.providers"


def installed_entry_points(group: str) -> dict[str, EntryPoint]:
    """Return a map from name to entry point for one group, in alphabetical order."""
    # None of them is imported.
    return dict(_entry_points_of(group))


@lru_cache(maxsize=8)
def _entry_points_of(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(_installed_entry_points().select(group=group))}


@lru_cache(maxsize=1)
def _installed_entry_points() -> Any:
    # The type of the result changed in Python 3.12.
    return entry_points()
