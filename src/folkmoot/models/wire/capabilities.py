"""What a model at an endpoint accepts, and how requests are adapted.

A provider remembers for each model which parameters the endpoint rejected.
"""

# Structured answers are requested by JSON schema, by JSON mode, or by the prompt alone. Only the
# encoded request changes. The `ModelRequest` and its fingerprint do not change.

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from folkmoot.models.request import JsonObject, Message, ModelRequest

SCHEMA, JSON_MODE, PROMPT = "schema", "json", "prompt"
# Reasoning models count reasoning toward the output limit. This number is added to the limit of the
# reply, so that reasoning does not truncate the reply.
REASONING_HEADROOM_TOKENS = 8192

_log = logging.getLogger(__name__)

# Names of the parameters for structured output in error messages of vendors and servers.
_FORMAT_PATTERN = re.compile(
    r"response_?format|json_?schema|response_?schema|response_?json_?schema|response_?mime_?type|"
    r"output_?(?:config|format)|structured output|guided|additionalProperties|json mode|grammar",
    re.IGNORECASE,
)
# Phrases which state that a parameter is not supported. A parameter name alone is not enough,
# because a server may also complain about its value.
_UNSUPPORTED_PATTERN = re.compile(
    r"unsupported|not support|does not|doesn't|deprecated|unknown|unexpected|unrecognized|"
    r"only the default|not permitted|not allowed|extra (?:inputs|fields)|invalid(?!_)",
    re.IGNORECASE,
)
# Servers and chat templates state in many ways that they accept no system message.
_NEGATION = r"(?:\bnot?\b|n't\b|unsupported|disabled|only|must|cannot|unknown|unexpected|invalid)"
_SYSTEM = r"(?:system|developer)\W{0,3}_?(?:role|message|prompt|instruction)"
_NO_SYSTEM_PATTERN = re.compile(
    # "System role not supported"
    rf"{_SYSTEM}.{{0,60}}?{_NEGATION}|{_NEGATION}.{{0,60}}?{_SYSTEM}|"
    # "role does not support 'system'"
    rf"\brole\b.{{0,60}}?{_NEGATION}.{{0,60}}?\b(?:system|developer)\b|"
    # "'system' does not match … role"
    rf"\b(?:system|developer)\b.{{0,60}}?{_NEGATION}.{{0,80}}?\brole\b|"
    # "Unexpected message role"
    r"(?:valid|invalid|unexpected|unknown|unsupported)\s(?:\w+\s)?role|"
    # "role: Input should be 'user' or 'model'"
    r"\brole.{0,40}?\buser\b.{0,20}?(?:assistant|model)|"
    # "Only user and assistant roles"
    r"\buser\b.{0,30}?\b(?:assistant|model)\b.{0,30}?\broles?\b|"
    r"roles must alternate|first message must|must start with (?:a )?user",
    re.IGNORECASE | re.DOTALL,
)
_CACHE_PATTERN = re.compile(r"prompt_?cache_?key|cache_?control", re.IGNORECASE)
# Some servers repeat the request in their error. Its message roles say nothing about support.
_ECHOED_ROLE_PATTERN = re.compile(r"role\W{3,8}(?:system|developer|user|assistant|model)\b")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one model at one endpoint accepts."""

    # `SCHEMA`, `JSON_MODE` or `PROMPT`.
    structured_output_mode: str = SCHEMA
    accepts_temperature: bool = True
    # True if the parameter for the output limit is called max_completion_tokens and not max_tokens.
    uses_max_completion_tokens: bool = False
    # True if the model accepts a system message.
    system: bool = True
    # True if the endpoint accepts the parameters of the vendor's prompt cache.
    accepts_cache_control: bool = True


def reduce_capabilities(
    capabilities: Capabilities, request: ModelRequest, error_text: str, modes: Sequence[str]
) -> Capabilities | None:
    """Return the capabilities without the capability that the server rejected.

    - `error_text`: the error message of the server.
    - `modes`: the structured output modes of the wire format, best first.

    Returns None if the message names no capability.
    """
    # The order matters: a complaint about the output format often contains words that match the
    # later patterns.
    if request.schema is not None and _FORMAT_PATTERN.search(error_text):
        simpler_modes = list(modes)[modes.index(capabilities.structured_output_mode) + 1 :]
        return (
            replace(capabilities, structured_output_mode=simpler_modes[0])
            if simpler_modes
            else None
        )
    if capabilities.accepts_cache_control and _CACHE_PATTERN.search(error_text):
        return replace(capabilities, accepts_cache_control=False)
    refused = bool(_UNSUPPORTED_PATTERN.search(error_text))
    if (
        refused
        and "max_tokens" in error_text
        and request.max_tokens
        and not capabilities.uses_max_completion_tokens
    ):
        return replace(capabilities, uses_max_completion_tokens=True)
    if (
        refused
        and "temperature" in error_text
        and request.temperature is not None
        and capabilities.accepts_temperature
    ):
        return replace(capabilities, accepts_temperature=False)
    if capabilities.system and _NO_SYSTEM_PATTERN.search(_ECHOED_ROLE_PATTERN.sub("", error_text)):
        return replace(capabilities, system=False)
    return None


class CapabilityCache:
    """The known capabilities of the models at one endpoint.

    - `default_capabilities`: function that returns the initial capabilities of a model.
    - `notes`: one sentence for each feature that a model was found to lack.
    """

    def __init__(
        self, default_capabilities: Callable[[str], Capabilities], modes: Sequence[str]
    ) -> None:
        self.notes: list[str] = []
        self._first = default_capabilities
        self._modes = tuple(modes)
        self._known: dict[str, Capabilities] = {}

    def get(self, request: ModelRequest) -> Capabilities:
        """Return the known capabilities of the model of this request."""
        capabilities = self._known.get(request.model)
        if capabilities is None:
            capabilities = self._known[request.model] = self._first(request.model)
            if request.temperature is not None and not capabilities.accepts_temperature:
                self._add_note(
                    request.model, replace(capabilities, accepts_temperature=True), capabilities
                )
        return capabilities

    def update_from_error(
        self, request: ModelRequest, used: Capabilities, body: bytes, status: int = 400
    ) -> bool:
        """Learn from an error response what a model does not accept.

        - `used`: the capabilities with which the request was encoded.

        Returns True if the request should be sent again.
        """
        # Status 500 counts as an error about capabilities too, because chat templates without a
        # system message often cause it.
        if status not in (400, 422, 500):
            return False
        if self.get(request) != used:
            # A concurrent call has updated the capabilities since this request was encoded.
            return True
        reduced = reduce_capabilities(used, request, body.decode("utf-8", "replace"), self._modes)
        # Status 500 has many causes, so it is trusted only as a sign of a missing system message.
        if reduced is None or (status == 500 and reduced.system == used.system):
            return False
        self._known[request.model] = reduced
        self._add_note(request.model, used, reduced)
        return True

    def _add_note(self, model: str, used: Capabilities, reduced: Capabilities) -> None:
        self.notes.append(f"{model} {_describe_reduction(used, reduced)}")
        _log.info("%s", self.notes[-1])


def _describe_reduction(used: Capabilities, reduced: Capabilities) -> str:
    if used.structured_output_mode != reduced.structured_output_mode:
        refused_mode = "JSON schema" if used.structured_output_mode == SCHEMA else "JSON mode"
        replacement = (
            "JSON mode" if reduced.structured_output_mode == JSON_MODE else "the prompt alone"
        )
        return f"does not accept {refused_mode}; structured answers are requested by {replacement}"
    if used.accepts_temperature != reduced.accepts_temperature:
        return "does not accept a temperature; its default temperature is used"
    if used.system != reduced.system:
        return (
            "does not accept a system message; its text is sent at the start of the first user "
            "message"
        )
    if used.accepts_cache_control != reduced.accepts_cache_control:
        return "does not accept parameters for the vendor's prompt cache; they are not sent"
    return "needs max_completion_tokens instead of max_tokens"


def adapt_messages(request: ModelRequest, capabilities: Capabilities) -> list[Message]:
    """Return the messages in the form that the endpoint accepts."""
    # If the schema cannot be sent as a parameter, it is added to the last message. If system
    # messages are not supported, the system prompt becomes part of the first user message.
    messages = list(request.messages)
    if request.schema is not None and capabilities.structured_output_mode != SCHEMA:
        messages = _append_schema(messages, request.schema)
    if not capabilities.system and messages and messages[0].role == "system":
        head, *rest = messages
        if rest and rest[0].role == "user":
            rest[0] = Message("user", f"{head.content}\n\n{rest[0].content}")
            messages = rest
        else:
            messages = [Message("user", head.content), *rest]
    return messages


def _append_schema(messages: list[Message], schema: JsonObject) -> list[Message]:
    instruction = (
        "Reply with one JSON object and nothing else. It must fit this JSON schema:\n"
        + json.dumps(schema, ensure_ascii=False)
    )
    if messages and messages[-1].role == "user":
        last = messages[-1]
        return [*messages[:-1], Message("user", f"{last.content}\n\n{instruction}")]
    return [*messages, Message("user", instruction)]


def close_schema(schema: JsonObject) -> tuple[JsonObject, bool]:
    """Return a strict version of a schema, and whether the version is strict everywhere.

    In a strict schema, each object requires all its listed properties and forbids all others. An
    object with free keys cannot be made strict.
    """
    # The strict output modes of the vendors accept only such schemas.
    is_strict = True

    def close_node(node: Any) -> Any:
        nonlocal is_strict
        if isinstance(node, list):
            return [close_node(item) for item in node]
        if not isinstance(node, dict):
            return node
        closed = {
            key: close_node(value) for key, value in node.items() if key not in ("default", "title")
        }
        if "properties" in node:
            # A property may be called `title` or `default`. Here these are names and not keywords.
            closed["properties"] = {
                key: close_node(value) for key, value in node["properties"].items()
            }
            closed["required"] = list(node["properties"])
            closed["additionalProperties"] = False
        elif node.get("type") == "object":
            is_strict = False
        return closed

    return close_node(schema), is_strict


def inline_schema(schema: JsonObject) -> JsonObject:
    """Return the schema with each `$ref` replaced by its definition."""
    # A recursive reference becomes an object without restrictions.
    definitions = schema.get("$defs", {})

    def inline_node(node: Any, seen: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [inline_node(item, seen) for item in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).rpartition("/")[2]
        if name and name in definitions:
            return (
                {"type": "object"}
                if name in seen
                else inline_node(definitions[name], (*seen, name))
            )
        return {key: inline_node(value, seen) for key, value in node.items() if key != "$defs"}

    result: JsonObject = inline_node(schema, ())
    return result
