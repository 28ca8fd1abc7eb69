"""call_llm and the list of models."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.errors import FatalModelError, InputError, RefusedError, TransientError
from folkmoot.models import call_llm as simple_call
from folkmoot.models.call_llm import build_messages, call_llm, list_models, try_models
from folkmoot.models.request import Completion, Message
from folkmoot.models.scripted import ScriptedProvider
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

MEMORY = [{"question": "One?", "answer": "Two."}]


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(FaultPlan()) as running:
        yield running


@pytest.fixture(autouse=True)
def disable_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simple_call, "BASE_BACKOFF_SECONDS", 0.001)
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI", "MOONSHOT_API_KEY", "MOONSHOT", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_history_is_sent_before_the_question() -> None:
    assert build_messages(MEMORY, "Three?", "Be Ann.") == (
        Message("system", "Be Ann."),
        Message("user", "One?"),
        Message("assistant", "Two."),
        Message("user", "Three?"),
    )
    with pytest.raises(InputError, match="memory entry 2"):
        build_messages([*MEMORY, {"question": "x"}], "y")


@pytest.mark.parametrize(
    "model", ["gpt-5-mini", "kimi-k2", "exaone-4.0", "claude-haiku-4.5", "gemini-3-flash"]
)
def test_five_models_answer(model: str, server: ServerThread) -> None:
    url = server.url if model in ("claude-haiku-4.5", "gemini-3-flash") else server.openai
    first_reply = call_llm(model, [], "Hello", base_url=url)
    assert first_reply.startswith("reply-")
    assert call_llm(model, [], "Hello", base_url=url) == first_reply
    assert call_llm(model, MEMORY, "Hello", base_url=url) != first_reply  # the history was sent


def test_call_works_inside_a_running_loop(server: ServerThread) -> None:
    async def call_in_running_loop() -> str:
        return call_llm("gpt-4o", [], "Hello", base_url=server.openai)

    assert asyncio.run(call_in_running_loop()).startswith("reply-")
    assert threading.active_count() < 10


def test_refusal_in_the_words_of_a_vendor_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ScriptedProvider(
        lambda _request, _address: Completion("I cannot help.", finish="content_filter")
    )
    monkeypatch.setattr(simple_call, "open_provider", lambda _spec, _settings: provider)
    with pytest.raises(RefusedError, match="I cannot help"):
        call_llm("synthetic", [], "Hello")


def test_transient_errors_are_retried_three_times(
    server: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    server.model.plan = FaultPlan(server_error=1.0)
    with pytest.raises(TransientError):
        call_llm("gpt-4o", [], "Hello", base_url=server.openai)
    assert server.model.counts["received"] == 4
    server.model.plan = FaultPlan(server_error=0.3, seed=1)
    with caplog.at_level(logging.INFO, logger="folkmoot"):
        for i in range(5):
            call_llm("gpt-4o", [], f"Hello {i}", base_url=server.openai)
    assert "tokens in" in caplog.text and "trying again" in caplog.text


def test_empty_reply_is_an_error_and_a_cut_reply_gives_a_warning(
    server: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    replies = iter([{"text": ""}, {"text": "I think that", "finish": "length"}])
    server.model.says = lambda messages, body: next(replies)
    with caplog.at_level(logging.WARNING, logger="folkmoot"):
        assert call_llm("gpt-4o", [], "Hello", base_url=server.openai) == "I think that"
    assert "cut by the token limit" in caplog.text
    server.model.says = lambda messages, body: {"text": " "}
    with pytest.raises(TransientError, match="empty"):
        call_llm("gpt-4o", [], "Hello", base_url=server.openai)


def test_wrong_key_is_permanent(server: ServerThread) -> None:
    server.model.plan = FaultPlan(key="right")
    with pytest.raises(FatalModelError):
        call_llm("gpt-4o", [], "Hello", base_url=server.openai, api_key="wrong")
    assert server.model.counts["received"] == 1
    assert call_llm("gpt-4o", [], "Hello", base_url=server.openai, api_key="right")


def test_unknown_models_and_missing_keys_are_input_errors() -> None:
    with pytest.raises(InputError, match="did you mean"):
        call_llm("gpt-5-minni", [], "Hello")
    with pytest.raises(InputError, match="MOONSHOT_API_KEY"):
        call_llm("kimi-k2", [], "Hello")


def test_model_list_says_which_key_is_needed_and_whether_it_is_set(
    server: ServerThread, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(
        f"OPENAI_API_KEY=a-key\nOPENAI_BASE_URL={server.openai}\nMOONSHOT=\n"
    )
    names = ("gpt-5-mini", "kimi-k2")
    openai, kimi = list_models(names)
    assert (openai.key_variable, openai.key_set, openai.usable) == ("OPENAI_API_KEY", True, True)
    assert openai.base_url == server.openai
    assert (kimi.key_variable, kimi.key_set, kimi.usable) == ("MOONSHOT_API_KEY", False, False)
    tried, untried = try_models(names)
    assert tried.ok is True and tried.latency_s is not None and untried.ok is None
    assert server.model.counts["received"] == 1
    assert "a-key" not in repr((openai, kimi, tried, untried))
    server.model.plan = FaultPlan(key="right")
    (refused,) = try_models(("gpt-5-mini",))
    assert refused.ok is False and "key" in refused.error and "a-key" not in refused.error
