"""Sources of personas: `persona_hub`, `quota`, `table`, `grounded`, and sources that packages add.

To add a source, a package registers a function `(n, rng) -> list[Persona]` in the entry-point
group `folkmoot.personas`.

The engine, study types, comparisons and the command line import this folder.
"""
# Sources that read files or ask models (`table`, `persona_hub`) have other settings, and their
# functions are called directly.

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
    """Return the installed sources of personas, as a map from name to entry point."""
    # No source is imported for this.
    return installed_entry_points(PERSONAS)


def find_persona_source(name: str) -> PersonaSource:
    """Return the source of personas with this name.

    Raises InputError if there is no such source.
    """
    sources = installed_sources()
    if name not in sources:
        names = f"the sources are {', '.join(sources)}"
        raise InputError(f"unknown persona source {name!r}; {did_you_mean(name, sources, names)}")
    maker: PersonaSource = sources[name].load()
    return maker
