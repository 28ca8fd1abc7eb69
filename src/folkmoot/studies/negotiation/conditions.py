"""The five conditions of the ablation, as the table in the method describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

ConditionId = Literal["C1", "C2", "C3", "C4", "C5"]


@dataclass(frozen=True, slots=True)
class Condition:
    """What a condition does. `synthesis`: none, raw (plain reasoning), or canonical (locked)."""

    id: str
    title: str
    synthesis: Literal["none", "raw", "canonical"] = "none"
    one_member: bool = False
    feedback: bool = False

    @property
    def locked(self) -> bool:
        """Strategy lock, votes and subgroup assignment come with canonical synthesis."""
        return self.synthesis == "canonical"


CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        c.id: c
        for c in (
            Condition("C1", "single user", one_member=True),
            Condition("C2", "all preferences, no mediation"),
            Condition("C3", "raw synthesis", "raw"),
            Condition("C4", "guided synthesis", "canonical"),
            Condition("C5", "active mediator", "canonical", feedback=True),
        )
    }
)
