"""How large a design is, read from a study's settings: for power before a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a design.

    independent  `arms` of `units` participants each, who did not talk to each other
    paired       every one of `units` sets, groups or replications passes through all `arms`
    clustered    `arms` of `units` sessions each, with `size` participants who talk
    """

    kind: Literal["independent", "paired", "clustered"]
    arms: int
    units: int
    size: int = 1
    unit_name: str = "participant"

    @property
    def comparisons(self) -> int:
        """Pairs of arms."""
        return self.arms * (self.arms - 1) // 2


def layout_of(config: Any) -> Layout | None:
    """The size of a design from the settings that study types share; None if it has none.

    Looks for `participants_per_condition` with `conditions`; `sets` with `levels`; groups of
    `group_types` with `conditions`; `replications` with `stimuli`; a workbook's sessions. A study
    type of one's own may give its config a `layout` of this class instead.
    """
    own = getattr(config, "layout", None)
    if isinstance(own, Layout):
        return own
    if hasattr(config, "participants_per_condition"):
        arms = len(getattr(config, "conditions", ())) or 2
        return Layout("independent", arms, int(config.participants_per_condition))
    if hasattr(config, "sets") and hasattr(config, "levels"):
        people = int(getattr(getattr(config, "residents", None), "general", 16)) + 4
        return Layout("paired", len(config.levels), int(config.sets), people, "set")
    if hasattr(config, "groups_per_type"):
        return Layout("paired", len(config.conditions), _groups(config), 6, "group")
    if hasattr(config, "replications"):
        stimuli = getattr(config, "stimuli", None) or ()
        people = int(getattr(config, "num_personas", 8))
        return Layout("paired", max(2, len(stimuli)), int(config.replications), people, "group")
    return _workbook(getattr(config, "workbook", None))


def _groups(config: Any) -> int:
    own = getattr(config, "groups", None)
    if own is not None and not isinstance(own, str):
        return len(own)
    return int(config.groups_per_type) * len(getattr(config, "group_types", ()) or (1,))


def _workbook(book: Any) -> Layout | None:
    settings = getattr(book, "settings", None)
    sessions = getattr(settings, "num_sessions", None)
    if settings is None or sessions is None:
        return None
    arms = max(2, len(getattr(book, "treatments", ()) or ()))
    size = int(settings.num_agents_per_session)
    if size == 1:
        return Layout("independent", arms, int(sessions) // arms)
    return Layout("clustered", arms, int(sessions) // arms, size, "session")
