"""Keys: where they come from, and that no text keeps one."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.errors import InputError
from folkmoot.models.catalog import resolve
from folkmoot.models.keys import HIDDEN, environment, find_key, key_for, scrub

OPENAI = resolve("gpt-4o", environ={})
KEYS = {"OPENAI_API_KEY": "from-here"}


def test_the_nearest_env_file_is_read_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".env").write_text("OPENAI_API_KEY=far\nMOONSHOT_API_KEY=far\n")
    (tmp_path / "a" / ".env").write_text("OPENAI_API_KEY='near'\nEXAONE=plain\nANTHROPIC=\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("MOONSHOT_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC", raising=False)
    found = environment(inner)
    assert (found["OPENAI_API_KEY"], found["EXAONE"]) == ("near", "plain")
    assert "MOONSHOT_API_KEY" not in found and "ANTHROPIC" not in found
    monkeypatch.setenv("OPENAI_API_KEY", "set")
    assert environment(inner)["OPENAI_API_KEY"] == "set"


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("gemini-3-flash", "GOOGLE_API_KEY"),
        ("gemini-3-flash", "GEMINI_API_KEY"),
        ("gemini-3-flash", "GOOGLE"),
        ("gpt-5-mini", "OPENAI_API_KEY"),
        ("gpt-5-mini", "OPENAI"),
        ("claude-haiku-4.5", "ANTHROPIC_API_KEY"),
        ("claude-haiku-4.5", "ANTHROPIC"),
        ("kimi-k2", "MOONSHOT_API_KEY"),
        ("kimi-k2", "MOONSHOT"),
        ("exaone-4.0", "EXAONE_API_KEY"),
        ("exaone-4.0", "EXAONE"),
        ("exaone-4.0", "FRIENDLI_TOKEN"),
    ],
)
def test_the_variables_of_each_model(model: str, variable: str) -> None:
    spec = resolve(model, environ={})
    assert find_key(spec, {variable: " k "}) == (variable, "k")
    assert find_key(spec, {"OTHER_API_KEY": "k"}) is None


def test_an_explicit_key_comes_first() -> None:
    assert key_for(OPENAI, "given", KEYS) == "given"
    assert key_for(OPENAI, None, KEYS) == "from-here"


def test_a_missing_key_is_named_with_the_mend() -> None:
    with pytest.raises(InputError, match=r"OPENAI_API_KEY.*\.env.*synthetic"):
        key_for(OPENAI, None, {})
    assert key_for(resolve("gpt-4o", {"gpt-4o": "http://localhost/v1"}, {}), None, {}) is None


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcdefghijklmnop_1234567890",
        "sk-ant-api03-abcdefghijklmnop",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "hf_abcdefghijklmnopqrst",
        "flp_abcdefghijklmnopqrstuv",
    ],
)
def test_what_looks_like_a_key_is_removed(key: str) -> None:
    text = scrub(f"header {key}, url ?key={key}&x=1, Authorization: Bearer {key}")
    assert key not in text and "x=1" in text and HIDDEN in text


def test_known_keys_are_removed_whatever_they_look_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "plain-words-only")
    assert scrub("say plain-words-only and secret!", ["secret!"]) == f"say {HIDDEN} and {HIDDEN}"


def test_ordinary_texts_stay_as_they_are() -> None:
    text = "A task-force on risk-sharing met; sk-learn was used. Key points follow."
    assert scrub(text) == text
