"""The persona engine: people drawn from a population whose figures are cited beside them.

`PersonaGenerator` is the way in; `Profile` is one person; every figure is in `us.yaml`.
"""

from __future__ import annotations

import numpy as np

from folkmoot.people.persona import Persona
from folkmoot.people.sources.grounded.generator import PersonaGenerator
from folkmoot.people.sources.grounded.profile import (
    TRAITS,
    ConsumerProfile,
    Opinion,
    Profile,
    Traits,
    VoiceProfile,
)

__all__ = [
    "TRAITS",
    "ConsumerProfile",
    "Opinion",
    "PersonaGenerator",
    "Profile",
    "Traits",
    "VoiceProfile",
    "make",
]


def make(count: int, rng: np.random.Generator) -> list[Persona]:
    """n people of the default population (the maker that is registered as `grounded`)."""
    return PersonaGenerator().personas(count, rng)
