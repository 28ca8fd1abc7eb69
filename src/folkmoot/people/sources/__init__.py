"""Where personas come from: `persona_hub`, `quota`, `table`, `grounded`, and other packages.

A source that makes personas from nothing but a number and a generator is found by entry point.

A package outside this project registers `make(n, rng) -> list[Persona]` under the group
`folkmoot.personas` and its name works as `personas: {source: NAME}` and
`folkmoot personas build --source NAME`. Sources that read files or ask models (`table`,
`persona_hub`) have settings of their own and are called by name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint

import numpy as np

from folkmoot.errors import InputError
from folkmoot.hints import did_you_mean
from folkmoot.people.persona import Persona
from folkmoot.registry import PERSONAS, installed_entry_points

PersonaSource = Callable[[int, np.random.Generator], list[Persona]]


def installed_sources() -> dict[str, EntryPoint]:
    """The makers that are installed, by name, none of them imported yet."""
    return installed_entry_points(PERSONAS)


def find_persona_source(name: str) -> PersonaSource:
    """The maker of that name. Raises InputError that lists those there are."""
    found = installed_sources()
    if name not in found:
        known = f"known are {', '.join(found)}"
        raise InputError(f"unknown persona source {name!r}; {did_you_mean(name, found, known)}")
    maker: PersonaSource = found[name].load()
    return maker
