"""Runs of the scripted town hall that several tests read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from folkmoot import Run
from folkmoot.models.scripted import ScriptedProvider
from tests.studies.town_hall.hall_script import (
    answer_in_one_session,
    answer_plainly,
    make_model,
    run_hall,
    small_hall,
)


@pytest.fixture(scope="session")
def plain_hall(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], tuple[Run, ScriptedProvider]]:
    """Return a function of the level: the small hall with plain answers, and its model with all
    requests. A process runs each level once. Tests only read it."""

    @cache
    def run_level(level: str) -> tuple[Run, ScriptedProvider]:
        folder = tmp_path_factory.mktemp(f"plain_{level}")
        model = make_model(answer_in_one_session() if level == "1" else answer_plainly, keep=True)
        return run_hall(folder, small_hall(folder) | {"levels": [level]}, model), model

    return run_level
