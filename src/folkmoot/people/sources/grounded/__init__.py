"""Grounded personas, drawn from a simulated population that agrees with published statistics.

Start with `PersonaGenerator`. All statistics are in `us.yaml`.

`people.sources`, two study types and the command line import this folder.
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
    """Return `count` personas, drawn from the packaged population."""
    # This function is registered as the source `grounded`.
    return PersonaGenerator().personas(count, rng)
