"""The persona engine: people drawn from a population whose figures are cited beside them.

`PersonaGenerator` is the way in; `Profile` is one person; every figure stands in `us.yaml`.
"""

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
]
