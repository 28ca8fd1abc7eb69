"""Models and keys of a run are checked before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError
from folkmoot.models.api_keys import _KEY_NAME

SEATS = ("gemini-3-flash", "claude-haiku-4.5", "kimi-k2", "no-such-model-at-all")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if _KEY_NAME.search(name):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def list_problems(config: StudyConfig, seats: tuple[str, ...] = SEATS) -> list[str]:
    with pytest.raises(InputError) as caught:
        ModelRouter(config, None, extra_models=seats).check_models()
    return [str(problem) for problem in caught.value.problems]


def test_every_model_without_a_key_is_named_at_once() -> None:
    problem_texts = list_problems(StudyConfig(study="x", model="gpt-5-mini"))
    variables = ("OPENAI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY", "MOONSHOT_API_KEY")
    assert len(problem_texts) == 5
    assert all(sum(key in problem_text for problem_text in problem_texts) == 1 for key in variables)
    assert sum("no-such-model-at-all" in problem_text for problem_text in problem_texts) == 1


def test_same_problem_is_reported_once() -> None:
    config = StudyConfig(study="x", model="kimi-k2", models={"moderator": "kimi-k2"})
    assert len(list_problems(config, ("kimi-k2",))) == 1


def test_keys_that_are_set_cause_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONSHOT_API_KEY", "m" * 20)
    Path(".env").write_text("GOOGLE=" + "g" * 20 + "\n", encoding="utf-8")
    problem_texts = list_problems(StudyConfig(study="x", model="gpt-5-mini"))
    assert len(problem_texts) == 3
    assert not any(
        "MOONSHOT" in problem_text or "GOOGLE" in problem_text for problem_text in problem_texts
    )


def test_model_override_replaces_every_seat() -> None:
    ModelRouter(
        StudyConfig(study="x", model="gpt-5-mini"), "synthetic", extra_models=SEATS
    ).check_models()
