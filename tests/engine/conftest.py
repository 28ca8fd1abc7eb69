"""Fixtures that several tests of the engine use."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from tests.conftest import SharedFolder

# Two participants in each of two conditions: many tests replay this run.
SMALL_PILOT = """
study: cross_pollination
pilot_id: small
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, acp]
participants_per_condition: 2
min_responses_for_threshold: 1
revote: true
personas: {source: quota}
"""


@pytest.fixture(scope="session")
def small_pilot(shared_folder: SharedFolder) -> Path:
    """Return the folder of a finished run of SMALL_PILOT. A test that writes into it must copy it.

    The study file is `../study/cross_pollination.yaml`.
    """

    def make(folder: Path) -> None:
        source = folder / "study" / "cross_pollination.yaml"
        source.parent.mkdir()
        source.write_text(SMALL_PILOT, "utf-8")
        folkmoot.run(source, model="synthetic", out=folder / "run")

    return shared_folder("small/pilot", make) / "run"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set an API key for each vendor in the environment."""
    for vendor in ("OPENAI", "ANTHROPIC", "GOOGLE"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "key")
