"""Schemas for strict modes, and capabilities that are reduced after an error."""

from __future__ import annotations

import jsonschema
import pytest
from pydantic import BaseModel

from folkmoot.models.request import Message, ModelRequest
from folkmoot.models.wire.capabilities import (
    Capabilities,
    CapabilityCache,
    adapt_messages,
    close_schema,
    inline_schema,
    reduce_capabilities,
)

MODES = ("schema", "json", "prompt")


class Inner(BaseModel):
    title: str = "x"
    level: int


class Outer(BaseModel):
    default: str
    inner: list[Inner] = []
    note: str | None = None


SCHEMA = Outer.model_json_schema()
REQUEST = ModelRequest("m", (Message("user", "Hi"),), temperature=0.3, max_tokens=5, schema=SCHEMA)


def test_closed_schema_accepts_exactly_the_complete_values() -> None:
    closed_schema, is_strict = close_schema(SCHEMA)
    assert is_strict
    complete_value = Outer(default="a", inner=[Inner(level=1)], note=None).model_dump()
    jsonschema.validate(complete_value, closed_schema)
    for invalid_value in ({**complete_value, "more": 1}, {"default": "a"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(invalid_value, closed_schema)
    # Property names are not schema keywords.
    assert set(closed_schema["properties"]) == {"default", "inner", "note"}


def test_free_form_mapping_cannot_be_closed() -> None:
    class Free(BaseModel):
        scores: dict[str, int]

    assert not close_schema(Free.model_json_schema())[1]


def test_references_are_resolved() -> None:
    flat = inline_schema(SCHEMA)
    assert "$defs" not in flat
    assert flat["properties"]["inner"]["items"]["properties"]["level"]["type"] == "integer"


@pytest.mark.parametrize(
    "message",
    [
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported",
        "Unknown name responseJsonSchema",
        "output_config: Extra inputs are not permitted",
        "Invalid schema: additionalProperties is required",
    ],
)
def test_error_about_the_format_reduces_the_mode_by_one_step(message: str) -> None:
    first_reduction = reduce_capabilities(Capabilities(), REQUEST, message, MODES)
    assert first_reduction == Capabilities(structured_output_mode="json")
    second_reduction = reduce_capabilities(first_reduction, REQUEST, message, MODES)
    assert second_reduction == Capabilities(structured_output_mode="prompt")
    assert reduce_capabilities(second_reduction, REQUEST, message, MODES) is None
    plain_request = ModelRequest("m", REQUEST.messages)
    assert reduce_capabilities(Capabilities(), plain_request, message, MODES) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'.",
            Capabilities(uses_max_completion_tokens=True),
        ),
        (
            "Unsupported value: 'temperature' does not support 0.3",
            Capabilities(accepts_temperature=False),
        ),
        ("This model does not support the system role", Capabilities(system=False)),
        ("temperature must be at most 2", None),
        # The type of an error does not name its subject.
        ('{"message": "temperature is too high", "type": "invalid_request_error"}', None),
        ('{"message": "max_tokens is too large: 99999", "type": "invalid_request_error"}', None),
        ("messages: must not be empty", None),
    ],
)
def test_errors_about_other_capabilities_are_recognised(
    message: str, expected: Capabilities | None
) -> None:
    assert (
        reduce_capabilities(
            Capabilities(), ModelRequest("m", REQUEST.messages, 0.3, 5), message, MODES
        )
        == expected
    )


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "System role not supported",
        "System role is not supported by this model",
        "This model doesn't accept system messages.",
        "System prompts are disabled for this deployment",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "Only user and assistant roles are supported!",
        "Only user, assistant and tool roles are supported, got system.",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Unexpected message role.",
        'Unexpected role "system". The Messages API accepts a top-level `system` parameter.',
        "Invalid role: system",
        "Please use a valid role: user, model.",
        "messages.0.role: Input should be 'user' or 'assistant'",
        "'system' is not one of ['assistant', 'user'] - 'messages.0.role'",
        'Invalid JSON payload received. Unknown name "systemInstruction": Cannot find field.',
        "The system_instruction field is not supported for this model",
        "First message must be from user",
    ],
)
def test_error_about_the_system_message_is_recognised(message: str) -> None:
    plain_request = ModelRequest("m", (Message("system", "Be Ann."), Message("user", "Hi")))
    assert reduce_capabilities(Capabilities(), plain_request, message, MODES) == Capabilities(
        system=False
    )
    assert reduce_capabilities(Capabilities(system=False), plain_request, message, MODES) is None


@pytest.mark.parametrize(
    "message",
    [
        "The system is overloaded",
        "Internal server error",
        "the prompt was rejected by the operator of this deployment",
        "[{'role': 'system', 'content': 'You are Ann.'}]: content must be shorter",
        "you must not exceed 100 messages",
    ],
)
def test_other_errors_keep_the_system_message(message: str) -> None:
    plain_request = ModelRequest("m", (Message("system", "Be Ann."), Message("user", "Hi")))
    assert reduce_capabilities(Capabilities(), plain_request, message, MODES) is None


def test_only_chat_template_errors_of_the_server_change_capabilities() -> None:
    learnt = CapabilityCache(lambda _: Capabilities(), MODES)
    plain_request = ModelRequest("m", (Message("system", "Be Ann."), Message("user", "Hi")), 0.5)
    capabilities = learnt.get(plain_request)
    assert not learnt.update_from_error(
        plain_request, capabilities, b"temperature is not supported", 500
    )
    assert not learnt.update_from_error(
        plain_request, capabilities, b"System role not supported", 401
    )
    assert learnt.update_from_error(plain_request, capabilities, b"System role not supported", 500)
    assert not learnt.get(plain_request).system


def test_two_calls_with_the_same_error_reduce_the_mode_once() -> None:
    learnt = CapabilityCache(lambda _: Capabilities(), MODES)
    capabilities = learnt.get(REQUEST)
    assert learnt.update_from_error(REQUEST, capabilities, b"response_format not supported")
    # Both calls were sent at the same time.
    assert learnt.update_from_error(REQUEST, capabilities, b"response_format not supported")
    assert learnt.get(REQUEST).structured_output_mode == "json"
    assert learnt.get(ModelRequest("other", REQUEST.messages)).structured_output_mode == "schema"
    assert len(learnt.notes) == 1


def test_unsupported_system_prompt_is_put_before_the_first_question() -> None:
    request = ModelRequest("m", (Message("system", "Be Ann."), Message("user", "Hi")))
    assert adapt_messages(request, Capabilities(system=False)) == [Message("user", "Be Ann.\n\nHi")]


def test_refused_temperature_is_reported_once() -> None:
    learnt = CapabilityCache(lambda _: Capabilities(accepts_temperature=False), MODES)
    for _ in range(3):
        assert not learnt.get(REQUEST).accepts_temperature
    assert len(learnt.notes) == 1 and "temperature" in learnt.notes[0]
    quiet = CapabilityCache(lambda _: Capabilities(accepts_temperature=False), MODES)
    quiet.get(ModelRequest("m", REQUEST.messages))
    assert not quiet.notes
