"""Persona sources are found by entry point and give the requested number of personas."""

from __future__ import annotations

import numpy as np
import pytest

from folkmoot.errors import InputError
from folkmoot.people.sources import find_persona_source, installed_sources


@pytest.mark.parametrize("name", sorted(installed_sources()))
def test_every_registered_source_gives_different_reproducible_personas(name: str) -> None:
    persona_source = find_persona_source(name)
    personas = persona_source(30, np.random.default_rng(1))
    assert len({persona.text for persona in personas}) == 30
    assert [persona.text for persona in persona_source(30, np.random.default_rng(1))] == [
        persona.text for persona in personas
    ]
    assert [persona.text for persona in persona_source(30, np.random.default_rng(2))] != [
        persona.text for persona in personas
    ]


def test_an_unknown_source_is_reported_with_the_installed_ones() -> None:
    with pytest.raises(InputError, match=r"'nobody'.*grounded, quota"):
        find_persona_source("nobody")
