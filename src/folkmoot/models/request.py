"""Requests to a model and its replies: the types that every provider uses.

A provider is anything with `complete_request` and `embed_texts`; it registers under the entry-point
group `folkmoot.providers`. The gateway is the only caller. What every call makes several of is a
NamedTuple: as immutable as a frozen dataclass, and made in a fifth of the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from folkmoot import json_text
from folkmoot.errors import TransientError
from folkmoot.provenance import Span
from folkmoot.randomness import digest

FINISH_UNKNOWN = "unknown"  # how a reply ended, where nobody says
FINISH_LENGTH = "length"  # at the token limit
# How the embedded respondent ends what it answered by form alone, with no relation to its matter.
FINISH_UNREAD = "stop:unread"
# … and what it answered after a text in which it knows no argument.
FINISH_UNMOVED = "stop:unmoved"
Role = Literal["system", "user", "assistant"]
FloatArray = NDArray[np.float32]
JsonObject = dict[
    str, Any
]  # an object as a wire format has it; whoever reads one checks what it holds
MAX_REPLY_BYTES = 8_000_000


class Message(NamedTuple):
    """One message of a request."""

    role: Role
    content: str

    def to_json(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}


class RespondentHints(NamedTuple):
    """What the embedded respondent is told of a question besides its messages and their sources.

    All of it follows from the speaker, the answer type and the author's `about`. It is in no
    fingerprint, in no journal and on no wire.
    """

    role: str = ""  # of the speaker who is asked
    kind: str = ""  # of the answer, as `AnswerType.kind` has it
    # The options of a choice, the bounds of a number, or the option whose view a text is to give.
    offered: tuple[str, ...] = ()
    signal: str = ""  # the word with which a text may end a conversation
    about: str = ""  # the matter that is asked about, in the words of the study
    speaker: str = ""  # the id of who is asked, which tells own words from those of others
    total: float | None = None  # what the numbers of a JSON object add up to
    # What the speakers of the history are called there, as pairs of id and name.
    names: tuple[tuple[str, str], ...] = ()


NO_HINTS = RespondentHints()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a chat model, free of any provider's wire format.

    `model` is `provider/model`. `schema` is a JSON schema (title included) when a structured answer
    is wanted; the provider sends it as well as the endpoint can take it, and the reply is validated
    by us in any case. `images`: the words of the messages that are sent as images
    (`models.images`). Not part of what is said: `asked`, and `cache_breakpoints`, where the
    messages' text, as if it were one, may go on otherwise in a further request of this speaker
    (characters, in ascending order): what stands before may come again, which a vendor's cache may
    be told. `spans`: the sources of the texts in the messages; in no fingerprint and on no wire.
    """

    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    max_tokens: int | None = None
    schema: JsonObject | None = None
    images: tuple[str, ...] = ()
    asked: RespondentHints = NO_HINTS
    cache_breakpoints: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()

    def to_json(self) -> JsonObject:
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
        """The request that `to_json` gave. Raises KeyError or TypeError for other data."""
        messages = tuple(Message(m["role"], m["content"]) for m in data["messages"])
        how = {key: data[key] for key in ("temperature", "max_tokens", "schema")}
        return cls(data["model"], messages, **how, images=tuple(data.get("images", ())))

    def fingerprint(self) -> bytes:
        """16 bytes that change when anything that the model is sent changes."""
        schema = json.dumps(self.schema, sort_keys=True) if self.schema is not None else ""
        said = [part for message in self.messages for part in (message.role, message.content)]
        # One hash of one piece of text: of a long conversation's parts it would take five times
        # as long.
        whole = [self.model, self.temperature, self.max_tokens, schema, *said, *self.images]
        return digest(json_text.encode_json(whole))


class Usage(NamedTuple):
    """Tokens as the provider counted them; None where it did not say. Part of the input tokens are
    those that came from the vendor's cache or were written into it, each at a price of its own."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


NO_USAGE = Usage(0, 0, 0)  # used by what was turned down before any model saw it


def byte_count(*texts: str) -> int:
    """Bytes of texts in UTF-8: no tokenizer of today makes more tokens of them."""
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts
    )


def estimate_tokens(*texts: str) -> int:
    """About how many tokens texts are: four bytes of UTF-8 a token, which is near for English and
    for scripts of three bytes a character. The one estimate where nobody has counted."""
    return (byte_count(*texts) + 3) // 4


def parse_token_count(value: object) -> int | None:
    """A count of tokens as a server sent it; None if it is not a count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def part_text(part: object) -> str:
    """The text of one part of a message; empty where it holds none, or null."""
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else ""


# How a reply ended, by the word of the vendor, in lower case. What no larger limit would cure (the
# model's own end) is distinguished from a limit that was set.
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


def normalise_finish_reason(word: object) -> str:
    """A vendor's finish reason as `Completion.finish`. Raises TransientError where the word says
    that the vendor failed while it wrote."""
    said = word.strip().lower() if isinstance(word, str) else ""
    if _VENDOR_FAILURE_PATTERN.search(said):
        raise TransientError(
            f"the reply was interrupted upstream (finish reason {said!r})", may_be_billed=True
        )
    if said in _UNSTATED_REASONS:
        return FINISH_UNKNOWN
    return _FINISH_REASONS.get(said) or f"{FINISH_UNKNOWN}:{said[:40]}"


# Each closed block, one that is never closed, and what comes before a closing mark without an
# opening one: chat templates often open the block in the prompt.
_REASONING_TAG = r"[<\[◁]{}think(?:ing)?[>\]▷]"
_REASONING_PATTERN = re.compile(
    rf"{_REASONING_TAG.format('')}.*?(?:{_REASONING_TAG.format('/')}|\Z)|\A.*{_REASONING_TAG.format('/')}",
    re.DOTALL | re.I,
)


def strip_reasoning(text: str) -> str:
    """The text of a reply without the thoughts that a server left in it."""
    if "think" not in text.lower():
        return text
    kept = _REASONING_PATTERN.sub("", text)
    return kept if kept == text else _REASONING_PATTERN.sub("", kept).strip()


class Completion(NamedTuple):
    """One answer. `finish` is `stop`, `length` (cut by a token limit; `length:model` where the
    limit is the model's own), `refused:<reason>` or `unknown`, with the vendor's word if any;
    `stop:unread` or `stop:unmoved` by the embedded respondent."""

    text: str
    usage: Usage = Usage()
    model_served: str = ""
    request_id: str = ""
    finish: str = FINISH_UNKNOWN
    # Filled in by the gateway from the journal, so that a replay says the same (seconds, USD).
    latency_s: float = 0.0
    started_at: float = 0.0
    cost_usd: float | None = None
    replayed: bool = False  # for progress only, never for a study
    # Rate-limit headers and the like, for the limiter; never journaled.
    rate_limit_hints: Mapping[str, float] = MappingProxyType({})


class StudyPart(NamedTuple):
    """A study's own part of the embedded respondent (`folkmoot.respondent.RespondentPart`) with the
    study's settings."""

    part: object
    config: object


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a provider's factory gets: `provider(settings) -> Provider`.

    `model` is the name on the wire of the model that it is opened for; `base_url` None means the
    provider's own; `api_key` never leaves the process (its repr hides it), nor do `headers`, which
    go with every request, and `secrets`, values in them and in the URL; `options` are the study
    file's settings for this provider (the respondent's knobs); `timeout` is in seconds.
    `reached_hosts` is shared by the providers of a run: the servers that have answered, which may
    fail for a while without being at a wrong address. `study` is what the study tells the embedded
    respondent.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 120.0
    max_reply_bytes: int = MAX_REPLY_BYTES
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    reached_hosts: set[str] = field(default_factory=set, repr=False)
    model: str = ""
    study: StudyPart | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Provider(Protocol):
    """What the gateway needs of a provider.

    `complete_request` and `embed_texts` raise the ModelError that fits and never retry: retrying is
    the gateway's. `address` is where in the run the call is made; wire providers ignore it, the
    embedded respondent seeds its draws with it.
    """

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion: ...

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]: ...

    async def close(self) -> None: ...
