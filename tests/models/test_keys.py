"""Keys: their sources, and that no text contains one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError
from folkmoot.models.api_keys import (
    REDACTED_KEY,
    find_key,
    load_environment,
    redact_keys,
    resolve_key,
)
from folkmoot.models.call_llm import call_llm, try_models
from folkmoot.models.catalog import resolve_model
from folkmoot.models.request import ProviderSettings
from folkmoot.models.urls import find_unencrypted_host, require_encryption
from folkmoot.models.wire.http_client import HttpClient

OPENAI = resolve_model("gpt-4o", environ={})
KEYS = {"OPENAI_API_KEY": "from-here"}


def test_nearest_env_file_is_read_and_the_environment_has_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".env").write_text("OPENAI_API_KEY=far\nMOONSHOT_API_KEY=far\n")
    (tmp_path / "a" / ".env").write_text("OPENAI_API_KEY='near'\nEXAONE=plain\nANTHROPIC=\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("MOONSHOT_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC", raising=False)
    environment = load_environment(inner)
    assert (environment["OPENAI_API_KEY"], environment["EXAONE"]) == ("near", "plain")
    assert "MOONSHOT_API_KEY" not in environment and "ANTHROPIC" not in environment
    monkeypatch.setenv("OPENAI_API_KEY", "set")
    assert load_environment(inner)["OPENAI_API_KEY"] == "set"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_an_env_file_in_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    """PowerShell writes UTF-16. The file may be in any folder above."""
    file = tmp_path / ".env"
    file.write_bytes("OPENAI_API_KEY=schlüssel\n".encode(encoding))
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match="UTF-8") as error:
        load_environment(tmp_path / "a")
    assert str(file) in str(error.value)


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
def test_variables_of_each_model_are_known(model: str, variable: str) -> None:
    spec = resolve_model(model, environ={})
    assert find_key(spec, {variable: " k "}) == (variable, "k")
    assert find_key(spec, {"OTHER_API_KEY": "k"}) is None


def test_explicit_key_has_priority() -> None:
    assert resolve_key(OPENAI, "given", KEYS) == "given"
    assert resolve_key(OPENAI, None, KEYS) == "from-here"


def test_missing_key_is_named_with_the_solution() -> None:
    with pytest.raises(InputError, match=r"OPENAI_API_KEY.*\.env.*synthetic"):
        resolve_key(OPENAI, None, {})
    assert (
        resolve_key(resolve_model("gpt-4o", {"gpt-4o": "http://localhost/v1"}, {}), None, {})
        is None
    )


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
def test_text_that_looks_like_a_key_is_removed(key: str) -> None:
    text = redact_keys(f"header {key}, url ?key={key}&x=1, Authorization: Bearer {key}")
    assert key not in text and "x=1" in text and REDACTED_KEY in text


def test_known_keys_are_removed_in_any_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "plain-words-only")
    assert (
        redact_keys("say plain-words-only and secret!", ["secret!"])
        == f"say {REDACTED_KEY} and {REDACTED_KEY}"
    )


def test_a_short_key_of_a_local_server_leaves_words_and_numbers_as_they_are() -> None:
    text = "first_vote: 1 of 2 done, nonetheless; the key none is wrong"
    assert redact_keys(text, ["1", "x", "e"]) == text
    assert redact_keys(text, ["none"]) == text.replace("none is", f"{REDACTED_KEY} is")


def test_ordinary_texts_are_unchanged() -> None:
    text = "A task-force on risk-sharing met; sk-learn was used. Key points follow."
    assert redact_keys(text) == text


class FakeResolver:
    """A resolver with fixed names that counts its lookups."""

    def __init__(self, **known: list[str]) -> None:
        self.known = {name.replace("_", "-"): addresses for name, addresses in known.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, *_: object, **__: object) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        if host not in self.known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in self.known[host]]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/v1",
        "http://localhost:8000/v1",
        "http://LocalHost.:8000/v1",
        "http://my.localhost/v1",
        "http://127.0.0.1:1",
        "http://127.9.9.9",
        "http://0.0.0.0:8000/v1",
        "http://[::1]:8000/v1",
        "http://10.1.2.3/v1",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1",
        "http://169.254.1.1",
        "http://[fe80::1%25eth0]:80/",
        "http://[fd12:3456::1]/v1",
        "http://[::ffff:10.0.0.1]/v1",
        "http://gpu-box:8000/v1",
        "http://lab.local/v1",
        "http://[::1",  # no address: another check reports it
        "",
    ],
)
def test_key_may_be_sent_over_http_to_this_machine_and_private_networks(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = FakeResolver(gpu_box=["10.0.0.7", "fd00::7"], **{"lab.local": ["192.168.0.9"]})
    monkeypatch.setattr(socket, "getaddrinfo", names)
    assert find_unencrypted_host(url) is None
    require_encryption("secret", url)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://api.example.org/v1", "api.example.org"),
        ("HTTP://API.Example.org:8080", "api.example.org"),
        ("http://8.8.8.8/v1", "8.8.8.8"),
        ("http://172.32.0.1/v1", "172.32.0.1"),
        ("http://192.169.1.1/v1", "192.169.1.1"),
        ("http://11.0.0.1", "11.0.0.1"),
        ("http://[2001:4860:4860::8888]/v1", "2001:4860:4860::8888"),
        ("http://[::ffff:8.8.8.8]/v1", "::ffff:8.8.8.8"),
        ("http://134744072/v1", "134744072"),  # 8.8.8.8 as a number
        ("http://localhost.example.org/v1", "localhost.example.org"),
        ("http://10.0.0.1.example.org/v1", "10.0.0.1.example.org"),
        ("http://localhost@example.org/v1", "example.org"),
        ("http://half:8000/v1", "half"),  # one of its addresses is public
        ("http://nowhere/v1", "nowhere"),
    ],
)
def test_key_is_never_sent_over_http_to_public_hosts(
    url: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = FakeResolver(half=["10.0.0.1", "8.8.8.8"], **{"134744072": ["8.8.8.8"]})
    monkeypatch.setattr(socket, "getaddrinfo", names)
    assert find_unencrypted_host(url) == host
    with pytest.raises(InputError, match=r"unencrypted.*https://") as caught:
        require_encryption("secret-key", url, "openai/m")
    assert host in str(caught.value) and "openai/m" in str(caught.value)
    assert "secret-key" not in str(caught.value)
    require_encryption(None, url)  # no key is needed, so nothing must be encrypted
    assert "api.example.org" not in names.asked  # such a name is not looked up


@pytest.mark.parametrize(
    "url",
    ["http://ann:pass@example.org/v1", "http://example.org/v1?key=k", "http://h.org?a=1&api-key=k"],
)
def test_key_in_the_url_counts_as_a_key(url: str) -> None:
    with pytest.raises(InputError, match="unencrypted"):
        require_encryption(None, url)
    require_encryption(None, "http://example.org/v1?api-version=2024-10-21")


@pytest.mark.parametrize("seat", ["model", "embedding_model", "models"])
def test_every_model_of_a_study_is_checked_before_any_request(seat: str) -> None:
    remote_endpoints = {"openai/far": "http://api.example.org/v1"}
    model_settings = {"model": "openai/far", "embedding_model": "synthetic", "models": {}}
    if seat != "model":
        model_settings["model"] = "openai/near"
        model_settings[seat] = (
            "openai/far" if seat == "embedding_model" else {"moderator": "openai/far"}
        )
    config = StudyConfig(
        endpoints={**remote_endpoints, "openai/near": "http://127.0.0.1:1/v1"}, **model_settings
    )
    # Without a key, nothing must be protected.
    ModelRouter(config, None).check_models(uses_embeddings=True)
    with pytest.raises(InputError, match=r"openai/far.*api\.example\.org"):
        ModelRouter(config, None, key="a-key").check_models(uses_embeddings=True)


def test_wire_code_and_single_calls_refuse_it_as_well() -> None:
    remote_url = "http://api.example.org/v1"
    with pytest.raises(InputError, match="unencrypted"):
        HttpClient(remote_url, {"Authorization": "Bearer k"}, ProviderSettings(remote_url, "k"))
    with pytest.raises(InputError, match="unencrypted"):
        call_llm("gpt-4o", [], "Hello", base_url=remote_url, api_key="k")


def test_model_tests_report_it_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-mine")
    (tried,) = try_models(["gpt-4o"], {"gpt-4o": "http://api.example.org/v1"})
    assert tried.ok is False and "unencrypted" in tried.error and "a-key" not in tried.error
