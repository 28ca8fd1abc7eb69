"""What several tests of the engine need."""

from __future__ import annotations

import pytest


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key for each vendor, as if they stood in the environment."""
    for vendor in ("OPENAI", "ANTHROPIC", "GOOGLE"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "key")
