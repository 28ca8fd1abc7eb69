"""The shipped codebooks can be read, and stand beside the study that uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot.studies
from folkmoot.kit import coding

CODEBOOKS = sorted(Path(folkmoot.studies.__path__[0]).glob("*/codebooks/*.yaml"))


@pytest.mark.parametrize("path", CODEBOOKS, ids=lambda p: p.stem)
def test_a_codebook_is_sound(path: Path) -> None:
    book = coding.read_codebook(path)
    assert book.name == path.stem
    for code in book.codes:
        assert code.definition.strip().endswith("."), code.name
        # A counter-example of one code may be an example of another, never of the same.
        assert not set(code.examples) & set(code.counter_examples)
