"""Requests to models and their completions: the types that every provider uses.

A provider is an object with `complete_request` and `embed_texts`. Providers are registered under
the entry-point group `folkmoot.providers`.
"""

# Types that every call creates several times are NamedTuples. A NamedTuple is as immutable as a
# frozen dataclass and is created in a fifth of the time.

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkmoot import json_text
from folkmoot.errors import FatalModelError, InputError, Problem, TransientError
from folkmoot.provenance import Span
from folkmoot.randomness import digest, uniform_values

# The finish reason if the server states none.
FINISH_UNKNOWN = "unknown"
# The start of the finish reasons of a reply that ended by itself.
FINISH_STOP = "stop"
# The finish reason of a reply that reached the token limit.
FINISH_LENGTH = "length"
# The start of the finish reason if there is no reply. The reason follows, such as "timed_out".
FINISH_REFUSED = "refused:"
# Kinds of reasons why there is no reply. The speaker or the provider refused, there was nothing to
# read, or the provider could not process the request or its reply.
REFUSED, NO_REPLY, TECHNICAL = "refused", "no_reply", "technical"
# Every reason that follows `FINISH_REFUSED` → its kind.
KINDS_OF_MISSING_REPLY: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("declined", "refused", "filtered", "language"), REFUSED),
        **dict.fromkeys(("timed out", "seat closed", "screened out", "withdrawn"), NO_REPLY),
        **dict.fromkeys(("dropped", "not_repeated"), NO_REPLY),
        **dict.fromkeys(("too_long", "too_large", "rejected"), TECHNICAL),
    }
)
# Words in reasons of a refusal that earlier versions and providers of study authors give.
_WORDS_OF_REFUSALS = ("refus", "filter", "declin", "safety")
# The finish reason if a human chose not to answer.
FINISH_DECLINED = f"{FINISH_REFUSED}declined"
# The embedded respondent understood only the answer type of the question, not its subject.
FINISH_UNREAD = "stop:unread"
# The embedded respondent found no argument that it knows in the text before the question.
FINISH_UNMOVED = "stop:unmoved"
Role = Literal["system", "user", "assistant"]
FloatArray = NDArray[np.float32]
# An object of a wire format. Its readers check each value, because servers send anything.
JsonObject = dict[str, Any]
MAX_REPLY_BYTES = 8_000_000
MAX_BACKOFF_SECONDS = 60.0
# No request can have so many tokens, so a server that reports more has not counted. SQLite cannot
# store or add up much larger numbers.
MAX_TOKEN_COUNT = 1_000_000_000


def is_reply_of_human(finish: str) -> bool:
    """Return whether the human in a seat has replied, by the finish reason.

    A human who declined has replied. Without a human, or after the time is over, there is no reply.
    """
    return finish == FINISH_DECLINED or not reason_of_missing_reply(finish)


def reason_of_missing_reply(finish: str) -> str:
    """Return the reason why there is no reply, by the finish reason. "" if there is a reply."""
    return finish.removeprefix(FINISH_REFUSED) if finish.startswith(FINISH_REFUSED) else ""


def kind_of_missing_reply(reason: str) -> str:
    """Return the kind of a reason why there is no reply. "" for any other reason."""
    if kind := KINDS_OF_MISSING_REPLY.get(reason):
        return kind
    return REFUSED if any(word in reason for word in _WORDS_OF_REFUSALS) else ""


class Message(NamedTuple):
    """One message of a request: the role of the author, and the text."""

    role: Role
    content: str

    def to_json(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


class RespondentHints(NamedTuple):
    """Facts about a question, as a help for the rule-based embedded respondent."""

    # All hints follow from the speaker, the answer type and the study author's `about`. Hints are
    # not sent to servers, not journaled and not fingerprinted.

    # Role of the speaker who is asked.
    role: str = ""
    # Answer kind (`AnswerType.kind`).
    kind: str = ""
    # Options of a choice, bounds of a number, or the option that a text should argue for.
    offered: tuple[str, ...] = ()
    # The reply that ends the conversation.
    signal: str = ""
    # Subject of the question, in the words of the study.
    about: str = ""
    # Id of the speaker who is asked.
    speaker: str = ""
    # Required sum of the numbers in a JSON object, or None.
    total: float | None = None
    # Pairs of id and name of the speakers in the history.
    names: tuple[tuple[str, str], ...] = ()


NO_HINTS = RespondentHints()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a chat model, in a form that suits every vendor."""

    # The provider and the model, such as `openai/gpt-4o`.
    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    # The JSON schema of a structured answer, with a title. The provider sends it in the best form
    # that the endpoint accepts. Folkmoot validates the reply in any case.
    schema: JsonObject | None = None
    # Phrases of the messages that are sent as images (`models.images`).
    images: tuple[str, ...] = ()
    # This field and the fields below are not part of the fingerprint, the hash that identifies a
    # request. Hints for the embedded respondent.
    hints: RespondentHints = NO_HINTS
    # Ascending character offsets into the concatenated message texts. The text before an offset may
    # be repeated in a later request, so the provider may ask the vendor to cache it.
    cache_breakpoints: tuple[int, ...] = ()
    # Sources of the texts in the messages.
    spans: tuple[Span, ...] = ()

    def to_json(self) -> JsonObject:
        # This form is written to the journal, and `verify` recomputes fingerprints from it. So its
        # keys must not change.
        return {
            "model": self.model,
            "messages": [message.to_json() for message in self.messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "schema": self.schema,
            **({"images": list(self.images)} if self.images else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelRequest:
        """Return the request that `to_json` converted to `data`.

        Raises KeyError or TypeError if `data` does not come from `to_json`.
        """
        messages = tuple(
            Message(message["role"], message["content"]) for message in data["messages"]
        )
        parameters = {key: data[key] for key in ("temperature", "max_tokens", "schema")}
        return cls(data["model"], messages, **parameters, images=tuple(data.get("images", ())))

    def fingerprint(self) -> bytes:
        """Return a 16-byte hash of everything that is sent to the model."""
        schema = json.dumps(self.schema, sort_keys=True) if self.schema is not None else ""
        message_texts = [
            part for message in self.messages for part in (message.role, message.content)
        ]
        # Encode everything first and hash it once. Hashing the parts of a long conversation one by
        # one takes five times as long.
        fingerprinted = [
            self.model,
            self.temperature,
            self.max_tokens,
            schema,
            *message_texts,
            *self.images,
        ]
        return digest(json_text.encode_json(fingerprinted))


class Usage(NamedTuple):
    """The token counts that the provider reported. A count that was not reported is None."""

    # `input_tokens` includes `cached_tokens` and `cache_write_tokens`. Cached tokens and tokens
    # that are written to the vendor's cache have separate prices.

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


# The usage of a request that was rejected before a model read it.
NO_USAGE = Usage(0, 0, 0)


def byte_count(*texts: str) -> int:
    """Return the number of bytes of the texts in UTF-8."""
    # The number is an upper bound for the tokens, because no current tokenizer produces more tokens
    # than bytes.
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts
    )


def estimate_tokens(*texts: str) -> int:
    """Return an estimate of the tokens of the texts, at four UTF-8 bytes per token."""
    # The estimate is close for English and for scripts with three bytes per character. It is used
    # only if the vendor reported no token count.
    return (byte_count(*texts) + 3) // 4


def parse_token_count(value: object) -> int | None:
    """Return a token count that a server sent, or None if the value is not a count."""
    # True and False are no counts, although they are instances of int.
    if isinstance(value, np.integer):
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TOKEN_COUNT else None


def read_usage(usage: object) -> Usage:
    """Return the usage that a provider reported, with None for each value that is no count."""
    # Providers of other packages may report anything.
    if not isinstance(usage, Usage):
        return Usage()
    counts = Usage(*map(parse_token_count, usage))
    input_tokens, cached = counts.input_tokens, counts.cached_tokens
    if input_tokens is not None and cached is not None and cached > input_tokens:
        # More cached tokens than input tokens would give a discount on tokens that were not sent.
        return counts._replace(cached_tokens=None)
    return counts


def part_text(part: object) -> str:
    """Return the text of one part of a message.

    Returns an empty string if the part has no text.
    """
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else ""


# Our finish reasons by the vendors' words in lower case. `length:model` is a limit of the model
# itself. It is distinguished from the limit of the request, which a study can raise.
_FINISH_REASONS = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens"), FINISH_LENGTH),
    **dict.fromkeys(("model_length", "model_context_window_exceeded"), f"{FINISH_LENGTH}:model"),
    **dict.fromkeys(("content_filter", "sensitive", "safety", "image_safety"), "refused:filtered"),
    **dict.fromkeys(("prohibited_content", "blocklist", "spii"), "refused:filtered"),
    **dict.fromkeys(("recitation", "filter"), "refused:filtered"),
    **dict.fromkeys(("refusal", "refused"), "refused:refused"),
    "language": "refused:language",
}
_VENDOR_FAILURE_PATTERN = re.compile(
    r"error|fail|time[d_-]*out|^abort|^cancel|^insufficient_system_resource$"
)
_UNSTATED_REASONS = frozenset({"", "null", "none", "unknown", "finish_reason_unspecified"})


def translate_finish_reason(finish: str) -> str:
    """Return our finish reason for a vendor's word. Any other text is returned unchanged."""
    return _FINISH_REASONS.get(finish.strip().lower(), finish)


def normalise_finish_reason(word: object) -> str:
    """Translate a vendor's finish reason into Folkmoot's terms.

    Raises TransientError if the vendor failed while the model was writing.
    """
    vendor_reason = word.strip().lower() if isinstance(word, str) else ""
    if vendor_reason in _FINISH_REASONS:
        return translate_finish_reason(vendor_reason)
    if _VENDOR_FAILURE_PATTERN.search(vendor_reason):
        raise TransientError(
            f"the reply was interrupted upstream (finish reason {vendor_reason!r})",
            may_be_billed=True,
        )
    if vendor_reason in _UNSTATED_REASONS:
        return FINISH_UNKNOWN
    return f"{FINISH_UNKNOWN}:{vendor_reason[:40]}"


# Match each closed block, a block without an end, and the text before an end without a start. The
# last case occurs because chat templates often open the block in the prompt.
_REASONING_TAG = r"[<\[◁]{}think(?:ing)?[>\]▷]"
_END_OF_REASONING = _REASONING_TAG.format("/")
_REASONING_PATTERN = re.compile(
    rf"(?P<start>{_REASONING_TAG.format('')}).*?(?:(?P<end>{_END_OF_REASONING})|\Z)|\A.*{_END_OF_REASONING}",
    re.DOTALL | re.I,
)
# Without an end, these are words of the speaker: "[thinking] I'd say yes". The tag is "[THINK]".
_WORD_IN_BRACKETS = re.compile(r"\[(?!THINK\])")


def strip_reasoning(text: str) -> str:
    """Return the text of a reply without the reasoning that a server included."""
    if "think" not in text.lower():
        return text
    visible_text = _REASONING_PATTERN.sub(_keep_bracketed_word, text)
    # The second pass removes end tags that only the first pass uncovered, as in nested blocks.
    return (
        visible_text
        if visible_text == text
        else _REASONING_PATTERN.sub(_keep_bracketed_word, visible_text).strip()
    )


def _keep_bracketed_word(block: re.Match[str]) -> str:
    has_end = block["end"] is not None or not block["start"]
    return "" if has_end or not _WORD_IN_BRACKETS.match(block[0]) else block[0]


class Completion(NamedTuple):
    """The reply of a model to one request."""

    text: str
    usage: Usage = Usage()
    model_served: str = ""
    request_id: str = ""
    # `stop`, `length`, `refused:<reason>` or `unknown`. An unfamiliar reason is appended, as in
    # `unknown:<reason>`. `length:model` means that the reply reached the maximum of the model. The
    # embedded respondent adds `stop:unread` if it did not recognise the subject of the question,
    # and `stop:unmoved` if it recognised no argument before the question.
    finish: str = FINISH_UNKNOWN
    # The gateway fills these in from the journal, so that a replay has the same values. Units are
    # seconds and USD.
    latency_s: float = 0.0
    started_at: float = 0.0
    cost_usd: float | None = None
    # For progress displays only. A study that read this would differ between a run and its replay.
    replayed: bool = False
    # Values from rate-limit headers, for the limiter. They are never journaled.
    rate_limit_hints: Mapping[str, float] = MappingProxyType({})


class StudyPart(NamedTuple):
    """A study type's rules for the embedded respondent, and the settings of the study."""

    # A `folkmoot.respondent.RespondentPart`.
    part: object
    config: object


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The settings with which a provider is opened."""

    # The factory of a provider is called as `provider(settings) -> Provider`.

    # The address of the server. None means the provider's default.
    base_url: str | None = None
    # Hidden from the repr, like `headers` and `secrets`.
    api_key: str | None = field(default=None, repr=False)
    # In seconds.
    timeout: float = 120.0
    max_reply_bytes: int = MAX_REPLY_BYTES
    seed: int = 0
    # The study file's settings for this provider.
    options: Mapping[str, Any] = field(default_factory=dict)
    # Servers that have answered in this run. All providers of a run share this set. A failure of a
    # server in this set is transient. Any other server may have a wrong address.
    reached_hosts: set[str] = field(default_factory=set, repr=False)
    # The API model ID of the model for which the provider is opened.
    model: str = ""
    # The study's information for the embedded respondent.
    study: StudyPart | None = None
    # Sent with every request.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # The secret values in headers and URL.
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Provider(ABC):
    """The base class of providers, which call models for the gateway.

    `complete_request` and `embed_texts` raise a ModelError and never retry. The parameter
    `address` identifies the call in the run.
    """

    # The error tells the gateway whether to retry. The embedded respondent seeds its random draws
    # with the address. Other providers ignore it.

    @abstractmethod
    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        """Return the reply of the model to one request."""

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Return one embedding for each text, shape (n, dimensions), float32."""
        raise FatalModelError(
            f"{model} has no embeddings: set embedding_model to another provider's model, or to "
            "synthetic"
        )

    def max_output_tokens(self, request: ModelRequest) -> int | None:
        """Return the largest number of output tokens that a reply can be billed for.

        Reasoning tokens are included. Returns None if no limit is sent.
        """
        return request.max_tokens

    @property
    def notes(self) -> Sequence[str]:
        """Messages for the user about the models so far, such as features that one lacks."""
        return ()

    # Not abstract, because most providers open nothing.
    async def close(self) -> None:  # noqa: B027
        """Close connections and end processes that the provider has opened."""


def check_provider(provider: object, origin: str) -> Provider:
    """Return `provider`. Raises InputError if its class is not derived from `Provider`.

    - `origin`: where the provider comes from, for the message.
    """
    if isinstance(provider, Provider):
        return provider
    hint = "derive its class from folkmoot.models.request.Provider"
    raise InputError(Problem(f"{origin} is no provider: {type(provider).__name__}", hint=hint))


def check_completion(reply: object, provider: Provider) -> Completion:
    """Return a reply of a provider. Raises FatalModelError if it is no `Completion`."""
    if isinstance(reply, Completion):
        return reply
    raise FatalModelError(
        f"{type(provider).__name__}.complete_request gave {type(reply).__name__}; return "
        "Completion(text)"
    )


def check_embeddings(result: object, count: int, provider: Provider) -> tuple[FloatArray, Usage]:
    """Return the embeddings of a provider as an array of float32, and their usage.

    Raises FatalModelError if they are not one vector for each of `count` texts.
    """
    if isinstance(result, tuple) and len(result) == 2:
        with suppress(TypeError, ValueError):
            vectors = np.asarray(result[0], dtype=np.float32)
            if vectors.ndim == 2 and len(vectors) == count:
                return vectors, result[1]
    raise FatalModelError(
        f"{type(provider).__name__}.embed_texts gave no embeddings of {count} texts; return "
        "(vectors, Usage(…)) with one vector for each text"
    )


def longest_backoff_seconds(base_seconds: float, failures: int) -> float:
    """Return the longest wait before a request is sent again, in seconds.

    - `base_seconds`: the longest wait after the first failure. Further failures double this wait.
    """
    # At most 2**10, so that many failures do not overflow.
    return min(MAX_BACKOFF_SECONDS, base_seconds * 2.0 ** min(max(failures, 1) - 1, 10))


def backoff_seconds(base_seconds: float, failures: int, seed: int, *draw: str | int) -> float:
    """Return a random number of seconds to wait before a failed call is sent again.

    The wait is at most `longest_backoff_seconds`. It is random, so that calls that failed together
    are not sent again at the same moment.

    - `draw`: identifies the random draw, for example by the address of the call.
    """
    # The package uses no global random state, so that a wait can be repeated.
    return longest_backoff_seconds(base_seconds, failures) * uniform_values(seed, *draw)
