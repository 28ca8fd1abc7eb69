"""Persona sources are found by entry point; each gives as many different people as asked for."""

from __future__ import annotations

import numpy as np
import pytest

from folkmoot.errors import InputError
from folkmoot.people.sources import find_persona_source, installed_sources


@pytest.mark.parametrize("name", sorted(installed_sources()))
def test_every_registered_source_makes_different_people_reproducibly(name: str) -> None:
    make = find_persona_source(name)
    people = make(30, np.random.default_rng(1))
    assert len({p.text for p in people}) == 30
    assert [p.text for p in make(30, np.random.default_rng(1))] == [p.text for p in people]
    assert [p.text for p in make(30, np.random.default_rng(2))] != [p.text for p in people]


def test_an_unknown_source_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"'nobody'.*grounded, quota"):
        find_persona_source("nobody")
