"""The wire format of OpenAI: request bodies, replies and errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
from aiohttp.test_utils import TestServer

from folkmoot.errors import FatalModelError, QuotaError, RateLimitedError, TransientError
from folkmoot.models.request import Message, ModelRequest, ProviderSettings
from folkmoot.models.wire.capabilities import JSON_MODE, PROMPT, Capabilities
from folkmoot.models.wire.openai_chat import (
    decode_embeddings,
    decode_reply,
    default_capabilities,
    encode_request,
    provider,
)
from tests.servers.answers import create_embedding
from tests.servers.faults import FaultPlan
from tests.servers.model_server import ModelServer

MESSAGES = (Message("system", "You are Ann."), Message("user", "Yes or no?"))
SCHEMA = {
    "title": "Vote",
    "type": "object",
    "properties": {"choice": {"type": "string"}, "why": {"type": "string", "default": ""}},
    "required": ["choice"],
}


def encode_success(message: object, **more: object) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], **more}).encode()


def test_body_of_a_plain_request_is_correct() -> None:
    body = encode_request(ModelRequest("gpt-4o", MESSAGES, temperature=0.7, max_tokens=50))
    assert body == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "You are Ann."},
            {"role": "user", "content": "Yes or no?"},
        ],
        "prompt_cache_key": body["prompt_cache_key"],
        "temperature": 0.7,
        "max_tokens": 50,
    }


@pytest.mark.parametrize("model", ["gpt-5-mini", "o3", "o1-pro", "openai/gpt-5.2"])
def test_reasoning_models_get_no_temperature_and_a_larger_limit(model: str) -> None:
    body = encode_request(ModelRequest(model, MESSAGES, temperature=0.7, max_tokens=50))
    assert "temperature" not in body and "max_tokens" not in body
    assert body["max_completion_tokens"] > 50


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "kimi-k2-0905"])
def test_other_models_keep_their_temperature(model: str) -> None:
    assert encode_request(ModelRequest(model, MESSAGES, temperature=0.0))["temperature"] == 0.0
    assert default_capabilities(model) == Capabilities()


def test_structured_answers_fall_back_from_schema_to_json_mode_to_the_prompt() -> None:
    request = ModelRequest("m", MESSAGES, schema=SCHEMA)
    by_schema = encode_request(request)
    sent_schema = by_schema["response_format"]["json_schema"]
    assert sent_schema["strict"] is True and sent_schema["schema"]["required"] == ["choice", "why"]
    assert sent_schema["schema"]["additionalProperties"] is False
    assert by_schema["messages"] == encode_request(ModelRequest("m", MESSAGES))["messages"]
    by_mode = encode_request(request, Capabilities(structured_output_mode=JSON_MODE))
    assert by_mode["response_format"] == {"type": "json_object"}
    by_prompt = encode_request(request, Capabilities(structured_output_mode=PROMPT))
    assert "response_format" not in by_prompt
    for body in (by_mode, by_prompt):
        assert '"choice"' in body["messages"][-1]["content"]
    assert request == ModelRequest("m", MESSAGES, schema=SCHEMA)


@pytest.mark.parametrize(
    ("counts", "output_tokens"),
    [
        # xAI: 94 reasoning tokens, not included in the 9 completion tokens.
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}, 103),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 41}, 9),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 0}, 9),
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": "135"}, 9),
        ({"prompt_tokens": 32, "total_tokens": 135}, None),
        ({"completion_tokens": 9, "total_tokens": 135}, None),
    ],
)
def test_reasoning_tokens_count_as_output(
    counts: dict[str, object], output_tokens: int | None
) -> None:
    assert decode_reply(
        200, {}, encode_success({"content": "Yes"}, usage=counts)
    ).usage.output_tokens == (output_tokens)


def test_reply_with_usage_and_hints_is_decoded() -> None:
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-reset-tokens": "6m1.5s",
    }
    body = encode_success({"content": "Yes"}, usage=usage, model="gpt-4o-2024", id="c1")
    reply = decode_reply(200, headers, body)
    assert (reply.text, reply.finish, reply.model_served, reply.request_id) == (
        "Yes",
        "stop",
        "gpt-4o-2024",
        "c1",
    )
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (
        12,
        3,
        8,
    )
    assert reply.rate_limit_hints == {
        "requests_limit": 500,
        "requests_remaining": 499,
        "requests_reset": 0.12,
        "tokens_reset": 361.5,
    }


def test_refusal_and_filter_are_results_with_a_reason() -> None:
    completion = decode_reply(200, {}, encode_success({"content": None, "refusal": "I can't."}))
    assert (completion.text, completion.finish) == ("I can't.", "refused:refused")
    body = {"choices": [{"message": {"content": "par"}, "finish_reason": "content_filter"}]}
    assert decode_reply(200, {}, json.dumps(body).encode()).finish == "refused:filtered"


def test_reasoning_in_the_reply_is_removed() -> None:
    assert (
        decode_reply(200, {}, encode_success({"content": "<think>No? Yes.</think>\n\nYes"})).text
        == "Yes"
    )
    parts = [{"type": "text", "text": "Y"}, {"type": "text", "text": "es"}]
    assert decode_reply(200, {}, encode_success({"content": parts})).text == "Yes"


@pytest.mark.parametrize(
    "body", [b"", b'{"choices": [{"mess', b"<html>", b"[]", b'{"choices": []}', b"{}", b"\xff\xfe"]
)
def test_invalid_bodies_are_transient_errors(body: bytes) -> None:
    with pytest.raises(TransientError):
        decode_reply(200, {}, body)


def test_error_inside_a_200_response_is_an_error() -> None:
    body = json.dumps({"error": {"code": 429, "message": "slow down"}}).encode()
    with pytest.raises(RateLimitedError):
        decode_reply(200, {}, body)


def test_embeddings_are_in_the_order_of_the_texts() -> None:
    rows = [{"index": 1, "embedding": [0.0, 1.0]}, {"index": 0, "embedding": [1.0, 0.0]}]
    body = json.dumps({"data": rows, "usage": {"prompt_tokens": 4}}).encode()
    vectors, usage = decode_embeddings(200, {}, body, 2)
    assert vectors.tolist() == [[1.0, 0.0], [0.0, 1.0]] and usage.input_tokens == 4
    with pytest.raises(TransientError, match="2 embeddings for 3"):
        decode_embeddings(200, {}, body, 3)


async def test_refused_capability_is_remembered() -> None:
    server = ModelServer(FaultPlan(schema="refuse", no_temperature=True), 0.0, "hash")
    async with TestServer(server.app()) as running:
        model = provider(ProviderSettings(base_url=str(running.make_url("/v1"))))
        request = ModelRequest("m", MESSAGES, temperature=0.5, schema=SCHEMA)
        for _ in range(3):
            assert (await model.complete_request(request, address="a")).text
        await model.close()
    assert server.counts["received"] == 2 + 3  # one attempt for each, then never again
    assert server.counts["answered"] == 3
    assert len(model.notes) == 2


async def test_embeddings_are_sent_in_batches() -> None:
    server = ModelServer(FaultPlan(), 0.0, "hash")
    texts = [f"text {i}" for i in range(250)]
    async with TestServer(server.app()) as running:
        model = provider(ProviderSettings(base_url=str(running.make_url("/v1"))))
        vectors, _ = await model.embed_texts("e", texts, address="a")
        await model.close()
    assert (server.counts["received"], server.counts["largest_batch"]) == (5, 50)
    np.testing.assert_allclose(vectors, [create_embedding(text) for text in texts], rtol=1e-6)


async def test_timeouts_and_closed_ports_are_transient() -> None:
    server = ModelServer(FaultPlan(stall=1.0, stall_seconds=5.0), 0.0, "hash")
    async with TestServer(server.app()) as running:
        url = str(running.make_url("/v1"))
        model = provider(ProviderSettings(base_url=url, timeout=0.1))
        with pytest.raises(TransientError, match=r"within 0\.1 s"):
            await model.complete_request(ModelRequest("m", MESSAGES), address="a")
        await model.close()
    never = provider(ProviderSettings(base_url=url))
    with pytest.raises(FatalModelError, match="the model server cannot be reached"):
        await never.complete_request(ModelRequest("m", MESSAGES), address="a")
    await never.close()
    provider_after_shutdown = provider(
        ProviderSettings(base_url=url, reached_hosts={url.removesuffix("/v1")})
    )
    with pytest.raises(TransientError, match="connection failed"):
        await provider_after_shutdown.complete_request(ModelRequest("m", MESSAGES), address="a")
    await provider_after_shutdown.close()


async def test_no_error_contains_the_key() -> None:
    key = "a-key-of-no-usual-shape-1234"

    async def error_from_echo(status: int, text: str) -> Exception:
        from aiohttp import web

        async def handler(request: web.Request) -> web.Response:
            return web.Response(status=status, text=text)

        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        async with TestServer(app) as running:
            url = str(running.make_url("/v1"))
            model = provider(ProviderSettings(base_url=url, api_key=key))
            try:
                await model.complete_request(ModelRequest("m", MESSAGES), address="a")
            except Exception as error:
                return error
            finally:
                await model.close()
        raise AssertionError("no error")

    refused = await error_from_echo(401, json.dumps({"error": {"message": f"bad key {key}"}}))
    error_of_invalid_body = await error_from_echo(200, f"garbage {key}")
    error_of_quota = await error_from_echo(
        429, json.dumps({"error": {"code": "insufficient_quota", "message": key}})
    )
    assert isinstance(refused, FatalModelError) and isinstance(
        error_of_invalid_body, TransientError
    )
    assert isinstance(error_of_quota, QuotaError)
    for error in (refused, error_of_invalid_body, error_of_quota):
        assert key not in str(error) and key not in repr(error)
