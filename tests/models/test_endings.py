"""Finish reasons of each vendor, reasoning that is no part of a reply, and errors in replies."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.seats import seat_manager
from folkmoot.engine.session.repeated_protocol import NOT_REPEATED
from folkmoot.errors import ModelError, RateLimitedError, RejectedError, TransientError
from folkmoot.models.request import (
    KINDS_OF_MISSING_REPLY,
    Completion,
    read_usage,
    strip_reasoning,
)
from folkmoot.models.wire import anthropic_messages, gemini, openai_chat


def openai(finish: object, text: str = "Yes", **more: object) -> Completion:
    choice = {"message": {"content": text}, "finish_reason": finish, **more}
    return openai_chat.decode_reply(200, {}, json.dumps({"choices": [choice]}).encode())


def anthropic(finish: object, text: str = "Yes") -> Completion:
    data = {"content": [{"type": "text", "text": text}], "stop_reason": finish}
    return anthropic_messages.decode_reply(200, {}, json.dumps(data).encode())


def google(finish: object, text: str = "Yes") -> Completion:
    candidate = {"content": {"parts": [{"text": text}]}, "finishReason": finish}
    return gemini.decode_reply(200, {}, json.dumps({"candidates": [candidate]}).encode())


# https://platform.openai.com/docs/api-reference/chat/object, platform.claude.com/docs/en/
# build-with-claude/handling-stop-reasons, ai.google.dev/api/generate-content#FinishReason; and
# DeepSeek, Mistral, Zhipu, OpenRouter, vLLM, text-generation-inference in OpenAI's format.
ENDS: list[tuple[Callable[..., Completion], object, str]] = [
    (openai, "stop", "stop"),
    (openai, "eos", "stop"),
    (openai, "eos_token", "stop"),
    (openai, "length", "length"),
    (openai, "model_length", "length:model"),
    (openai, "content_filter", "refused:filtered"),
    (openai, "sensitive", "refused:filtered"),
    (openai, None, "unknown"),
    (openai, "", "unknown"),
    (openai, 7, "unknown"),
    (openai, "tool_calls", "unknown:tool_calls"),
    (openai, "a word of tomorrow", "unknown:a word of tomorrow"),
    (anthropic, "end_turn", "stop"),
    (anthropic, "stop_sequence", "stop"),
    (anthropic, "max_tokens", "length"),
    (anthropic, "model_context_window_exceeded", "length:model"),
    (anthropic, "refusal", "refused:refused"),
    (anthropic, "pause_turn", "unknown:pause_turn"),
    (anthropic, None, "unknown"),
    (google, "STOP", "stop"),
    (google, "MAX_TOKENS", "length"),
    (google, "RECITATION", "refused:filtered"),
    (google, "SPII", "refused:filtered"),
    (google, "LANGUAGE", "refused:language"),
    (google, "OTHER", "unknown:other"),
    (google, "MALFORMED_FUNCTION_CALL", "unknown:malformed_function_call"),
    (google, "FINISH_REASON_UNSPECIFIED", "unknown"),
    (google, None, "unknown"),
]


@pytest.mark.parametrize(("wire", "word", "finish"), ENDS)
def test_finish_reason_of_every_vendor_is_recognised(
    wire: Callable[..., Completion], word: object, finish: str
) -> None:
    reply = wire(word)
    assert (reply.text, reply.finish) == ("Yes", finish)


def test_every_reason_without_a_reply_has_a_kind() -> None:
    reasons = {
        *(end.removeprefix("refused:") for _, _, end in ENDS if end.startswith("refused:")),
        *(seat_manager.TIMED_OUT, seat_manager.DECLINED, seat_manager.SEAT_CLOSED),
        *(seat_manager.WITHDRAWN, seat_manager.SCREENED_OUT, DROPPED),
        NOT_REPEATED.removeprefix("refused:"),
        RejectedError("no").reason,
    }
    assert reasons <= KINDS_OF_MISSING_REPLY.keys()


def test_missing_finish_reason_is_unknown() -> None:
    bare = {"choices": [{"message": {"content": "Yes"}}]}
    assert openai_chat.decode_reply(200, {}, json.dumps(bare).encode()).finish == "unknown"
    claude = {"content": [{"type": "text", "text": "Yes"}]}
    assert anthropic_messages.decode_reply(200, {}, json.dumps(claude).encode()).finish == "unknown"
    google = {"candidates": [{"content": {"parts": [{"text": "Yes"}]}}]}
    assert gemini.decode_reply(200, {}, json.dumps(google).encode()).finish == "unknown"
    assert Completion("Yes").finish == "unknown"  # of a provider without finish reasons


@pytest.mark.parametrize(
    "word",
    [
        *("error", "ERROR", "network_error", "insufficient_system_resource", "abort"),
        *("failed", "timeout", "timed_out", "server_error", "canceled"),
    ],
)
@pytest.mark.parametrize("wire", [openai, anthropic, google])
def test_error_of_a_vendor_during_generation_is_retried(
    wire: Callable[..., Completion], word: str
) -> None:
    with pytest.raises(TransientError, match="upstream"):
        wire(word, "Half an answ")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 502, "message": "Provider disconnected"}, TransientError),
        ({"code": "429", "message": "slow down"}, RateLimitedError),
        ({"code": 400, "message": "Provider returned error"}, TransientError),
        ({"code": "server_error", "message": "oops"}, TransientError),
        ("something broke", TransientError),
    ],
)
def test_error_beside_a_reply_is_an_error(error: object, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        openai("stop", "Half an answ", error=error)


def test_error_beside_empty_choices_is_an_error() -> None:
    for choices in ([], None, [{"message": {"content": "Half"}, "finish_reason": "stop"}]):
        body = {"choices": choices, "error": {"code": 503, "message": "overloaded"}}
        with pytest.raises(TransientError, match="overloaded"):
            openai_chat.decode_reply(200, {}, json.dumps(body).encode())
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(TransientError, match="Overloaded"):
        anthropic_messages.decode_reply(200, {}, json.dumps(overloaded).encode())
    limited = {"error": {"code": 429, "message": "RESOURCE_EXHAUSTED"}}
    with pytest.raises(RateLimitedError):
        gemini.decode_reply(200, {}, json.dumps(limited).encode())


@pytest.mark.parametrize("wire", [openai, anthropic, google])
@pytest.mark.parametrize(
    ("raw_text", "text"),
    [
        ("<think>No? Yes.</think>\n\nYes", "Yes"),
        ("No? Yes.\n</think>\n\nYes", "Yes"),  # the prompt template opened the tag
        ("</think>Yes", "Yes"),
        ("<think>No? Or", ""),  # cut during the reasoning: no reply
        ("<think>a</think><think>b</think> Yes", "Yes"),
        ("<THINK>a</THINK>Yes", "Yes"),
        ("<thinking>a</thinking>\nYes", "Yes"),
        ("[THINK]a[/THINK]Yes", "Yes"),
        ("Yes <think>or no", "Yes"),
        ("<think>first</think>second</think>Yes", "Yes"),
        ("I think so.", "I think so."),
        ("[THINK]a, cut", ""),
        ("[thinking] Hmm. I'd say yes.", "[thinking] Hmm. I'd say yes."),
        ("[think]No?[/think]Yes", "Yes"),
        ("People [think] it is fine.", "People [think] it is fine."),
    ],
)
def test_reasoning_is_removed(wire: Callable[..., Completion], raw_text: str, text: str) -> None:
    assert wire("stop", raw_text).text == text


@given(st.text(max_size=40), st.text(max_size=40))
def test_text_after_the_reasoning_is_kept(thoughts: str, reply: str) -> None:
    if "think" in (thoughts + reply).lower():
        return
    for raw_text in (f"<think>{thoughts}</think>{reply}", f"{thoughts}</think>{reply}"):
        assert strip_reasoning(raw_text) == reply.strip()
    assert strip_reasoning(reply) == reply


def test_part_without_text_is_ignored() -> None:
    parts = [{"type": "text", "text": None}]
    claude = {"content": parts, "stop_reason": "end_turn"}
    assert anthropic_messages.decode_reply(200, {}, json.dumps(claude).encode()).text == ""
    google = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    assert gemini.decode_reply(200, {}, json.dumps(google).encode()).text == ""
    for content, text in ((parts, ""), ({"text": "Yes"}, "Yes"), ({}, "")):
        choice = {"message": {"content": content}, "finish_reason": "stop"}
        assert (
            openai_chat.decode_reply(200, {}, json.dumps({"choices": [choice]}).encode()).text
            == text
        )


def test_usage_of_zero_tokens_is_unknown() -> None:
    for text, tokens in (("Yes", None), ("", 0)):
        usage = {"prompt_tokens": 9, "completion_tokens": 0}
        chat = {"choices": [{"message": {"content": text}}], "usage": usage}
        got = openai_chat.decode_reply(200, {}, json.dumps(chat).encode()).usage
        assert (got.input_tokens, got.output_tokens) == (9, tokens)
        usage = {"input_tokens": 9, "output_tokens": 0}
        claude = {"content": [{"type": "text", "text": text}], "usage": usage}
        got = anthropic_messages.decode_reply(200, {}, json.dumps(claude).encode()).usage
        assert (got.input_tokens, got.output_tokens) == (9, tokens)


def test_embeddings_without_numbers_are_retried() -> None:
    chat = {"data": [{"index": 0, "embedding": [0.5, None]}]}
    with pytest.raises(TransientError, match="numbers are missing"):
        openai_chat.decode_embeddings(200, {}, json.dumps(chat).encode(), 1)
    google = {"embeddings": [{"values": [0.5, None]}]}
    with pytest.raises(TransientError, match="numbers are missing"):
        gemini.decode_embeddings(200, {}, json.dumps(google).encode(), 1)


def test_cached_tokens_never_exceed_the_input_tokens() -> None:
    cached = {"cached_tokens": 500}
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": cached}
    chat = {"choices": [{"message": {"content": "Yes"}}], "usage": usage}
    got = read_usage(openai_chat.decode_reply(200, {}, json.dumps(chat).encode()).usage)
    assert (got.input_tokens, got.cached_tokens) == (50, None)
    counts = {"promptTokenCount": 50, "candidatesTokenCount": 5, "cachedContentTokenCount": 500}
    google = {"candidates": [{"content": {"parts": []}}], "usageMetadata": counts}
    got = read_usage(gemini.decode_reply(200, {}, json.dumps(google).encode()).usage)
    assert (got.input_tokens, got.cached_tokens) == (50, None)
