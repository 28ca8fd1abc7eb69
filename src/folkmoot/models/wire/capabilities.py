"""How a structured answer is asked for: JSON schema → JSON mode → the prompt alone.

Also the other things in which servers of one wire format differ. What an endpoint refuses is
remembered per model by its provider; the logical request, and so its fingerprint, never changes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from folkmoot.models.request import JsonObject, Message, ModelRequest

SCHEMA, JSON_MODE, PROMPT = "schema", "json", "prompt"
REASONING_HEADROOM_TOKENS = 8192  # tokens for thoughts on top of the reply's own limit

_log = logging.getLogger(__name__)

_FORMAT = re.compile(
    r"response_?format|json_?schema|response_?schema|response_?json_?schema|response_?mime_?type|"
    r"output_?(?:config|format)|structured output|guided|additionalProperties|json mode|grammar",
    re.IGNORECASE,
)
_UNSUPPORTED_PATTERN = re.compile(
    r"unsupported|not support|does not|doesn't|deprecated|unknown|unexpected|unrecognized|"
    r"only the default|not permitted|not allowed|extra (?:inputs|fields)|invalid(?!_)",
    re.IGNORECASE,
)
# Servers and chat templates have many ways to say that they take no system message.
_NEGATION = r"(?:\bnot?\b|n't\b|unsupported|disabled|only|must|cannot|unknown|unexpected|invalid)"
_SYSTEM = r"(?:system|developer)\W{0,3}_?(?:role|message|prompt|instruction)"
_NO_SYSTEM = re.compile(
    rf"{_SYSTEM}.{{0,60}}?{_NEGATION}|{_NEGATION}.{{0,60}}?{_SYSTEM}|"  # System role not supported
    # role does not support 'system'
    rf"\brole\b.{{0,60}}?{_NEGATION}.{{0,60}}?\b(?:system|developer)\b|"
    # 'system' does not match … role
    rf"\b(?:system|developer)\b.{{0,60}}?{_NEGATION}.{{0,80}}?\brole\b|"
    r"(?:valid|invalid|unexpected|unknown|unsupported)\s(?:\w+\s)?role|"  # Unexpected message role
    r"\brole.{0,40}?\buser\b.{0,20}?(?:assistant|model)|"  # role: Input should be 'user' or 'model'
    r"\buser\b.{0,30}?\b(?:assistant|model)\b.{0,30}?\broles?\b|"  # Only user and assistant roles
    r"roles must alternate|first message must|must start with (?:a )?user",
    re.IGNORECASE | re.DOTALL,
)
_CACHE = re.compile(r"prompt_?cache_?key|cache_?control", re.IGNORECASE)
_ECHOED_ROLE_PATTERN = re.compile(
    r"role\W{3,8}(?:system|developer|user|assistant|model)\b"
)  # of what was sent


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one model at one endpoint turned out to accept."""

    structured_output_mode: str = SCHEMA
    accepts_temperature: bool = True
    uses_max_completion_tokens: bool = False  # max_completion_tokens in place of max_tokens
    system: bool = True
    accepts_cache_control: bool = True  # the words by which a vendor's cache is addressed


def reduce_capabilities(
    capabilities: Capabilities, request: ModelRequest, error_text: str, modes: Sequence[str]
) -> Capabilities | None:
    """Capabilities without what a 400 complained about; None if nothing can be given up.

    `modes` are the ways of asking for structure that the wire format has, best first.
    """
    if request.schema is not None and _FORMAT.search(error_text):
        below = list(modes)[modes.index(capabilities.structured_output_mode) + 1 :]
        return replace(capabilities, structured_output_mode=below[0]) if below else None
    if capabilities.accepts_cache_control and _CACHE.search(error_text):
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
    if capabilities.system and _NO_SYSTEM.search(_ECHOED_ROLE_PATTERN.sub("", error_text)):
        return replace(capabilities, system=False)
    return None


class CapabilityCache:
    """What the models of one endpoint turned out to accept; one for each provider instance.

    `notes` says what was given up.
    """

    def __init__(self, first: Callable[[str], Capabilities], modes: Sequence[str]) -> None:
        self.notes: list[str] = []
        self._first = first
        self._modes = tuple(modes)
        self._known: dict[str, Capabilities] = {}

    def get(self, request: ModelRequest) -> Capabilities:
        """What is known of the model of this request."""
        known = self._known.get(request.model)
        if known is None:
            known = self._known[request.model] = self._first(request.model)
            if request.temperature is not None and not known.accepts_temperature:
                self._add_note(request.model, replace(known, accepts_temperature=True), known)
        return known

    def update_from_error(
        self, request: ModelRequest, used: Capabilities, body: bytes, status: int = 400
    ) -> bool:
        """Whether an answer complained about a capability, so that the request should go again.

        A chat template that takes no system message often ends in a 500.
        """
        if status not in (400, 422, 500):
            return False
        if self.get(request) != used:
            return True  # another call has learnt it meanwhile
        better = reduce_capabilities(used, request, body.decode("utf-8", "replace"), self._modes)
        if better is None or (status == 500 and better.system == used.system):
            return False
        self._known[request.model] = better
        self._add_note(request.model, used, better)
        return True

    def _add_note(self, model: str, used: Capabilities, better: Capabilities) -> None:
        self.notes.append(f"{model} {_describe_reduction(used, better)}")
        _log.info("%s", self.notes[-1])


def _describe_reduction(used: Capabilities, better: Capabilities) -> str:
    if used.structured_output_mode != better.structured_output_mode:
        refused = "JSON schema" if used.structured_output_mode == SCHEMA else "JSON mode"
        instead = "JSON mode" if better.structured_output_mode == JSON_MODE else "the prompt alone"
        return f"takes no {refused}; structured answers are asked for by {instead}"
    if used.accepts_temperature != better.accepts_temperature:
        return "takes no temperature; its own default holds"
    if used.system != better.system:
        return "takes no system message; it goes before the first question"
    if used.accepts_cache_control != better.accepts_cache_control:
        return "does not know of its vendor's cache; nothing is said about it"
    return "wants max_completion_tokens in place of max_tokens"


def adapt_messages(request: ModelRequest, capabilities: Capabilities) -> list[Message]:
    """The messages as this endpoint takes them: the schema spelt out where it must be."""
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
    told = (
        "Reply with one JSON object and nothing else. It must fit this JSON schema:\n"
        + json.dumps(schema, ensure_ascii=False)
    )
    if messages and messages[-1].role == "user":
        last = messages[-1]
        return [*messages[:-1], Message("user", f"{last.content}\n\n{told}")]
    return [*messages, Message("user", told)]


def close_schema(schema: JsonObject) -> tuple[JsonObject, bool]:
    """The schema with every object closed and every property required, as strict modes want it,
    and whether that could be done (a free-form mapping cannot be closed)."""
    strict = True

    def close(node: Any) -> Any:
        nonlocal strict
        if isinstance(node, list):
            return [close(name) for name in node]
        if not isinstance(node, dict):
            return node
        kept = {key: close(value) for key, value in node.items() if key not in ("default", "title")}
        if "properties" in node:
            # Property names may be `title` or `default` too: they are no keywords there.
            kept["properties"] = {key: close(value) for key, value in node["properties"].items()}
            kept["required"] = list(node["properties"])
            kept["additionalProperties"] = False
        elif node.get("type") == "object":
            strict = False
        return kept

    return close(schema), strict


def inline_schema(schema: JsonObject) -> JsonObject:
    """The schema with its `$ref`s put in place (a recursive one is left open)."""
    definitions = schema.get("$defs", {})

    def inline_node(node: Any, seen: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [inline_node(name, seen) for name in node]
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
