"""A model that answers at random: the report is red, although every reply has the right form."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.models.request import Request
from folkmoot.models.scripted import Scripted
from folkmoot.randomness import generator
from folkmoot.report.document import document
from folkmoot.storage.run_folder import RunFolder
from tests.studies.cross_pollination.test_protocol import SETTINGS, Cast


def answered_by_lot(folder: Path, **settings: object) -> RunFolder:
    """A run of 150 participants in each condition who draw each vote."""
    cast = Cast()

    def reply(request: Request, address: str) -> object:
        options = request.asked.offered
        if request.asked.kind == "choice" and len(options) > 1:
            return generator(0, ("coin", address)).choice(options).item()
        return cast(request, address)

    config = {**SETTINGS, "participants_per_condition": 150, **settings}
    config |= {
        "disagreement_threshold": 1.0,
        "conditions": ["simple_voting", "simple_passive", "clarified_passive"],
    }
    provider = Scripted(reply)  # type: ignore[arg-type]
    return folkmoot.run("cross_pollination", config, out=folder / "run", provider=provider).folder


@pytest.mark.parametrize("revote", [True, False])
def test_a_coin_is_red(revote: bool, tmp_path: Path) -> None:
    made = document(answered_by_lot(tmp_path, revote=revote))
    assert made.front is not None and made.front.colour == "red"
    reasons = [light.reason for light in made.front.lights if light.colour == "red"]
    assert any(r.startswith("Failed checks") and "instability" in r for r in reasons), reasons
