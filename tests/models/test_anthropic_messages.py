"""The wire format of Anthropic."""

from __future__ import annotations

import json

import pytest
from aiohttp.test_utils import TestServer

from folkmoot.errors import FatalModelError, QuotaError, TransientError
from folkmoot.models.request import Message, ModelRequest, ProviderSettings
from folkmoot.models.wire.anthropic_messages import decode_reply, encode_request, provider
from folkmoot.models.wire.capabilities import Capabilities
from tests.servers.faults import FaultPlan
from tests.servers.model_server import ModelServer

MESSAGES = (
    Message("system", "You are Ann."),
    Message("user", "One?"),
    Message("assistant", "Two."),
    Message("user", "Three?"),
)
SCHEMA = {"type": "object", "properties": {"choice": {"type": "string"}}, "required": ["choice"]}


def test_system_prompt_is_separate_and_a_limit_is_always_set() -> None:
    body = encode_request(ModelRequest("claude-haiku-4-5", MESSAGES, temperature=0.2))
    assert body["system"] == "You are Ann."
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["max_tokens"] > 0 and body["temperature"] == 0.2


def test_conversation_never_starts_with_the_assistant() -> None:
    body = encode_request(
        ModelRequest("m", (Message("assistant", "I said."), Message("user", "And?")))
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


def test_unsupported_system_message_is_sent_in_one_place_only() -> None:
    free_form_schema = {"type": "object", "properties": {"m": {"type": "object"}}}
    for request in (
        ModelRequest("m", MESSAGES),
        ModelRequest("m", MESSAGES, schema=free_form_schema),
    ):
        body = encode_request(request, Capabilities(system=False))
        assert "system" not in body
        assert body["messages"][0]["content"].startswith("You are Ann.\n\n")


def test_free_form_mapping_is_requested_in_the_prompt() -> None:
    free_form_schema = {"type": "object", "properties": {"m": {"type": "object"}}}
    body = encode_request(ModelRequest("m", MESSAGES, schema=free_form_schema))
    assert "output_config" not in body and "JSON schema" in str(body["messages"][-1]["content"])
    assert "output_config" in encode_request(ModelRequest("m", MESSAGES, schema=SCHEMA))


def test_reply_is_decoded() -> None:
    data = {
        "id": "msg_1",
        "type": "message",
        "model": "claude-haiku-4-5-2025",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 2},
    }
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2001-01-01T00:00:00Z",
    }
    reply = decode_reply(200, headers, json.dumps(data).encode())
    assert (reply.text, reply.finish, reply.request_id) == ("Yes", "length", "msg_1")
    assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (12, 7)
    assert reply.rate_limit_hints == {
        "requests_limit": 50,
        "requests_remaining": 49,
        "requests_reset": 0.0,  # a time in the past
    }


def test_refusal_is_a_result() -> None:
    data = {"content": [], "stop_reason": "refusal"}
    assert decode_reply(200, {}, json.dumps(data).encode()).finish == "refused:refused"


def test_exhausted_quota_and_overload_are_distinguished() -> None:
    body = {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}
    with pytest.raises(QuotaError):
        decode_reply(400, {}, json.dumps(body).encode())
    with pytest.raises(TransientError):
        decode_reply(529, {}, b'{"error": {"type": "overloaded_error", "message": "Overloaded"}}')


async def test_requests_to_a_server() -> None:
    server = ModelServer(FaultPlan(schema="refuse", key="right"), 0.0, "hash")
    async with TestServer(server.app()) as running:
        url = str(running.make_url("/"))
        model = provider(ProviderSettings(base_url=url, api_key="right"))
        request = ModelRequest("m", MESSAGES, schema=SCHEMA)
        replies = [await model.complete_request(request, address="a") for _ in range(2)]
        assert replies[0].text == replies[1].text != ""
        assert server.counts["format_refused"] == 1
        with pytest.raises(FatalModelError, match="embedding_model"):
            await model.embed_texts("m", ["a"], address="a")
        await model.close()
        provider_with_wrong_key = provider(ProviderSettings(base_url=url, api_key="wrong"))
        with pytest.raises(FatalModelError, match="key"):
            await provider_with_wrong_key.complete_request(request, address="a")
        await provider_with_wrong_key.close()
