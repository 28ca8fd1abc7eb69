"""The seven slots in their fixed order, the eight decisions they hold, and the usual options.

A *topic* is one decision: a slot, or one of the two halves of lodging. Everything in this study
is keyed by topic; dialogue intents and the planner's payload name the slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from folkmoot.files import packaged_yaml

SLOTS = (
    "traveler_type",
    "travel_purpose",
    "spending_preference",
    "cuisine",
    "attraction",
    "event",
    "lodging",
)
LODGING = ("room_type", "house_rule")
TOPICS = (*SLOTS[:-1], *LODGING)
SUBGROUP_SLOTS = ("cuisine", "attraction", "event")


def slot_of(topic: str) -> str:
    """The slot that a topic belongs to; both halves of lodging belong to `lodging`."""
    return "lodging" if topic in LODGING else topic


@dataclass(frozen=True, slots=True)
class Topic:
    """How a topic is spoken of: its plain name, the question put to members, its options."""

    id: str
    label: str
    question: str
    options: tuple[str, ...]

    @property
    def slot(self) -> str:
        return slot_of(self.id)


def topics(overrides: Mapping[str, Sequence[str]] | None = None) -> tuple[Topic, ...]:
    """The eight topics in order; `overrides` replaces the options of the topics it names."""
    own = overrides or {}
    return tuple(
        Topic(t.id, t.label, t.question, tuple(own[t.id])) if t.id in own else t
        for t in _catalogue()
    )


@cache
def _catalogue() -> tuple[Topic, ...]:
    data = packaged_yaml(__file__, "options.yaml")
    if tuple(data) != TOPICS:
        raise ValueError(f"options.yaml must hold exactly {', '.join(TOPICS)}, in this order")
    return tuple(
        Topic(topic, row["label"], row["question"], tuple(row["options"]))
        for topic, row in data.items()
    )
