"""The wire format of Gemini."""

from __future__ import annotations

import json

import numpy as np
import pytest
from aiohttp.test_utils import TestServer

from folkmoot.errors import FatalModelError, QuotaError, RateLimitedError
from folkmoot.models.request import Message, ModelRequest, ProviderSettings
from folkmoot.models.wire.gemini import decode_reply, encode_request, provider
from tests.servers.answers import create_embedding
from tests.servers.faults import FaultPlan
from tests.servers.model_server import ModelServer

MESSAGES = (
    Message("system", "You are Ann."),
    Message("user", "One?"),
    Message("assistant", "Two."),
    Message("user", "Three?"),
)
SCHEMA = {
    "type": "object",
    "properties": {"vote": {"$ref": "#/$defs/Vote"}},
    "$defs": {"Vote": {"type": "string", "enum": ["yes", "no"]}},
}


def test_history_becomes_user_and_model_turns() -> None:
    body = encode_request(
        ModelRequest("gemini-3-flash-preview", MESSAGES, temperature=0.5, max_tokens=10)
    )
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "One?"}]},
        {"role": "model", "parts": [{"text": "Two."}]},
        {"role": "user", "parts": [{"text": "Three?"}]},
    ]
    assert body["systemInstruction"] == {"parts": [{"text": "You are Ann."}]}
    assert body["generationConfig"]["temperature"] == 0.5
    # Reasoning counts towards the same limit.
    assert body["generationConfig"]["maxOutputTokens"] > 10


def test_schema_is_sent_without_references() -> None:
    config = encode_request(ModelRequest("m", MESSAGES, schema=SCHEMA))["generationConfig"]
    assert config["responseJsonSchema"]["properties"]["vote"]["enum"] == ["yes", "no"]
    assert "$ref" not in json.dumps(config)


def test_reply_excludes_reasoning_and_usage_includes_it() -> None:
    data = {
        "candidates": [
            {
                "content": {"parts": [{"text": "hm", "thought": True}, {"text": "Yes"}]},
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 4,
            "candidatesTokenCount": 1,
            "thoughtsTokenCount": 9,
        },
    }
    reply = decode_reply(200, {}, json.dumps(data).encode())
    assert (reply.text, reply.usage.output_tokens) == ("Yes", 10)


@pytest.mark.parametrize(
    "data",
    [
        {"promptFeedback": {"blockReason": "SAFETY"}},
        {"candidates": [{"finishReason": "SAFETY"}]},
        {"candidates": [{"finishReason": "PROHIBITED_CONTENT", "content": {}}]},
    ],
)
def test_blocked_prompts_and_replies_are_results(data: object) -> None:
    assert decode_reply(200, {}, json.dumps(data).encode()).finish == "refused:filtered"


def test_quota_per_minute_and_per_day_are_distinguished() -> None:
    def answer(quota: str) -> bytes:
        details = [
            {"violations": [{"quotaId": quota}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"},
        ]
        message = "You exceeded your current quota, please check your plan and billing details."
        error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message}
        return json.dumps({"error": {**error, "details": details}}).encode()

    with pytest.raises(RateLimitedError) as caught:
        decode_reply(429, {}, answer("GenerateRequestsPerMinutePerProjectPerModel"))
    assert caught.value.retry_after == 7.0
    with pytest.raises(QuotaError):
        decode_reply(429, {}, answer("GenerateRequestsPerDayPerProjectPerModel"))


def test_invalid_key_is_recognised_with_status_400() -> None:
    error = {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}
    with pytest.raises(FatalModelError, match="rejected the key"):
        decode_reply(400, {}, json.dumps(error).encode())


async def test_requests_to_a_server() -> None:
    server = ModelServer(FaultPlan(schema="refuse"), 0.0, "hash")
    async with TestServer(server.app()) as running:
        url = str(running.make_url("/"))
        model = provider(ProviderSettings(base_url=url, api_key="k"))
        reply = await model.complete_request(
            ModelRequest("m", MESSAGES, schema=SCHEMA), address="a"
        )
        assert reply.text.startswith("reply-") and reply.model_served == "m-served"
        vectors, _ = await model.embed_texts("e", ["a", "b"], address="a")
        np.testing.assert_allclose(
            vectors, [create_embedding("a"), create_embedding("b")], rtol=1e-6
        )
        await model.close()
    assert server.counts["format_refused"] == 1
