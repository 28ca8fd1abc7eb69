"""What the three wire formats share: one HTTP session, and errors typed by what a server said.

Used by openai_chat, anthropic_messages and gemini. Never retries: that is the gateway's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import numpy as np

from folkmoot import json_text
from folkmoot.errors import (
    FatalModelError,
    InputError,
    ModelError,
    NotFoundError,
    QuotaError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from folkmoot.models.api_keys import redact_keys
from folkmoot.models.request import FloatArray, JsonObject, ProviderSettings
from folkmoot.models.urls import find_secrets, join_url, require_encryption
from folkmoot.transport import (
    Failure,
    HttpConnections,
    HttpRequest,
    HttpResponse,
    TransferError,
    proxy_for,
)

R = TypeVar("R")

# The fields and the comments with which an event stream may begin (WHATWG HTML, section 9.2).
_EVENT_STREAM = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry):|:)")
_MAX_EXCERPT_CHARACTERS = 300
BULK_SECONDS = 900.0
BULK_BYTES = 2_000_000_000

_QUOTA = re.compile(
    r"insufficient_quota|exceeded_current_quota|billing_hard_limit|credit balance is too low|"
    r"insufficient (?:balance|credits|funds)|exceeded your current quota|"
    r"suspended due to insufficient",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[ _](?:window|length|size|limit)|context_exceeded|string_above_max_length|"
    r"maximum (?:model|prompt) length|max_prompt_tokens|request_too_large|"
    r"(?:prompt|input) is too long|reduce the length of the|range of input length|"
    r"input token(?: count|s exceed)|too many (?:input )?tokens|exceeds? (?:the )?token limit|"
    r"exceeds the maximum number of tokens|maximum number of input tokens|"
    r"[`']inputs[`'] (?:tokens \+|must have less than)",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content_filter|content_policy|content management policy|responsible ?ai|moderation|"
    r"flagged|safety (?:system|setting|filter)|prohibited_content|blocked by",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"api[ _-]?key|authenticat|\bunauthorized\b|permission[ _-]?(?:denied|error)|"
    r"(?:no|have|lacks?|insufficient|required) permission|invalid x-api-key",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|(?:unknown|invalid|no such|unsupported|not a valid) model|"
    r"\bmodel\b[^.]{0,80}(?:not found|not exist|not a valid|not available|decommissioned)",
    re.IGNORECASE,
)


class HttpClient:
    """One server: posts JSON, gives (status, headers, body).

    Raises InputError for a key that cannot be sent, or would leave unencrypted; see
    `urls.require_encryption`.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str], settings: ProviderSettings
    ) -> None:
        self.base_url = base_url
        self._settings = settings
        self._secrets = [settings.api_key, *find_secrets(base_url), *settings.secrets]
        given = {name.lower() for name in settings.headers}
        kept = {name: value for name, value in headers.items() if name.lower() not in given}
        headers = {**kept, **settings.headers}
        self._proxy = proxy_for(base_url)
        require_encryption(settings.api_key or next(iter(settings.secrets), None), base_url)
        if any(self._secrets) and base_url.lower().startswith("http:"):
            require_encryption("whatever it is", self._proxy)  # the way there is open, too
        if any(not value.isprintable() for value in headers.values()):
            raise InputError("the key contains a line break or another control character")
        self._connections = HttpConnections(
            headers, settings.timeout, settings.max_reply_bytes, settings.reached_hosts
        )

    async def post_json(self, path: str, body: Mapping[str, object]) -> HttpResponse:
        """Post a JSON body.

        Raises TransientError for time-outs and failing connections to a server that answered
        before; FatalModelError for a base URL at which no server could ever be reached;
        RefusedError for an answer that is too long.
        """
        return await self._send_request("POST", path, json_text.encode_json(body))

    async def send_bulk(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> HttpResponse:
        """Send and receive what belongs to a batch: hundreds of megabytes, and minutes. Raises as
        `post_json`, and the error of any status but 2xx."""
        answer = await self._send_request(method, path, body, kind, BULK_SECONDS, BULK_BYTES)
        if answer[0] >= 300:
            raise self.read(error_from_response, answer)
        return answer

    async def _send_request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        kind: str = "application/json",
        seconds: float | None = None,
        limit: int | None = None,
    ) -> HttpResponse:
        try:
            url = join_url(self.base_url, path)
        except ValueError:
            raise FatalModelError(self.redact_key(f"{self.base_url!r} is not a base URL")) from None
        exchange = HttpRequest(method, url, body, {"Content-Type": kind}, seconds, limit)
        try:
            return await self._connections.send_request(exchange, self._proxy)
        except TransferError as error:
            raise self._to_model_error(error) from None

    def _to_model_error(self, error: TransferError) -> ModelError:
        """The error for a failed transfer."""
        begun = error.answer_began
        match error.failure:
            case Failure.TIMED_OUT:
                seconds = self._settings.timeout
                return TransientError(f"no answer within {seconds:g} s", may_be_billed=begun)
            case Failure.TOO_LARGE:
                return RefusedError(f"{error} (max_reply_mb)", reason="too_large")
            case Failure.UNREACHABLE:
                return FatalModelError(self.redact_key(f"no model server was reached: {error}"))
            case Failure.BAD_ADDRESS:
                return FatalModelError(
                    self.redact_key(f"{self.base_url!r} is not a base URL: {error}")
                )
        return TransientError(self.redact_key(f"connection failed: {error}"), may_be_billed=begun)

    async def close(self) -> None:
        await self._connections.close()

    def redact_key(self, text: str) -> str:
        """The text without this server's key."""
        return redact_keys(text, self._secrets)

    def read(self, decode: Callable[[int, Mapping[str, str], bytes], R], answer: HttpResponse) -> R:
        """The decoded answer; errors are raised without the key."""
        try:
            return decode(*answer)
        except ModelError as error:
            error.args = (self.redact_key(str(error)),)
            raise


# (header, our name for it), as OpenAI and its like and as Anthropic call them.
_RATE_HEADERS = tuple(
    (name.format(what=what, part=part), f"{what}_{part}")
    for name in ("x-ratelimit-{part}-{what}", "anthropic-ratelimit-{what}-{part}")
    for what in ("requests", "tokens")
    for part in ("limit", "remaining", "reset")
)


def read_json(body: bytes) -> JsonObject:
    """The object in a reply's body. Raises TransientError for a broken or truncated one, and
    FatalModelError for a stream of events: the server would send one to every call."""
    try:
        data = json_text.decode_json(body)
    except (ValueError, RecursionError):
        if _EVENT_STREAM.match(body):
            raise _streamed_reply_error(body) from None
        raise unreadable_reply_error(f"a broken body: {_excerpt_of_body(body)}") from None
    if not isinstance(data, dict):
        raise unreadable_reply_error(
            f"something other than a JSON object: {_excerpt_of_body(body)}"
        )
    return data


def unreadable_reply_error(what: str) -> TransientError:
    """The error for an answer of success that holds no reply. The vendor may bill it."""
    return TransientError(f"the server sent {what}", may_be_billed=True)


def _streamed_reply_error(body: bytes) -> FatalModelError:
    error = FatalModelError(
        "the server sent a stream of events (server-sent events) to a request that did not ask for "
        "one, and Folkmoot reads whole replies. Turn streaming off at the server: "
        f"{_excerpt_of_body(body)}"
    )
    error.may_be_billed = True
    return error


def parse_vectors(rows: Callable[[], Sequence[object]], expected: int) -> FloatArray:
    """Embeddings (expected, d) from the rows of a reply. Raises TransientError for other rows."""
    try:
        vectors = np.array(rows(), dtype=np.float32)
    except (KeyError, TypeError, ValueError):
        raise unreadable_reply_error("embeddings that cannot be read") from None
    if vectors.ndim != 2 or len(vectors) != expected:
        raise unreadable_reply_error(f"{len(vectors)} embeddings for {expected} texts")
    if not np.isfinite(vectors).all():  # null, among others
        raise unreadable_reply_error("embeddings that hold no number at places")
    return vectors


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error for an answer other than 2xx."""
    said = _error_message(body)
    message = f"HTTP {status}: {said or _excerpt_of_body(body) or 'no explanation'}"
    everything = body.decode("utf-8", "replace")
    retry_after = retry_after_seconds(headers, body)
    if 300 <= status < 400:
        there = headers.get("location", "elsewhere")
        return FatalModelError(f"HTTP {status}: the base URL has moved ({there})")
    if status == 402 or (status in (400, 403, 429) and _is_quota_exhausted(everything)):
        return QuotaError(message)
    if status == 429:
        return RateLimitedError(message, retry_after=retry_after)
    if status in (408, 409, 425) or status >= 500:
        return TransientError(message, retry_after=retry_after)
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(everything)):
        return RefusedError(message, reason="too_long")
    if status in (400, 403, 422) and _FILTERED.search(everything):
        return RefusedError(message, reason="filtered")
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(said)):
        return FatalModelError(f"the server rejected the key ({message})")
    if status == 404:
        return NotFoundError(f"unknown model or base URL ({message})")
    if status in (400, 422) and not _NO_MODEL.search(said):
        return RejectedError(f"the server rejected the request ({message})")
    return FatalModelError(f"the server rejected the request ({message})")


def error_in_success_response(
    error: object, headers: Mapping[str, str], *, reply_had_started: bool = False
) -> ModelError:
    """The error that a server put into a 200 answer: by its own code, else as a 502. Where the
    reply had `reply_had_started`, the request itself had been taken."""
    code = error.get("code") if isinstance(error, Mapping) else None
    status = int(str(code)) if re.fullmatch(r"[45]\d\d", str(code)) else 502
    if reply_had_started and status in (400, 422):
        status = 502
    found = error_from_response(status, headers, json_text.encode_json({"error": error}))
    found.may_be_billed = reply_had_started
    return found


def _is_quota_exhausted(body: str) -> bool:
    """Whether the account is empty. Google says "exceeded your quota" of a minute's limit too."""
    if "PerDay" in body:
        return True
    return bool(_QUOTA.search(body)) and "PerMinute" not in body and "retryDelay" not in body


def retry_after_seconds(headers: Mapping[str, str], body: bytes = b"") -> float | None:
    """Seconds to wait as a server put them: retry-after-ms, Retry-After (seconds or a date),
    or Google's RetryInfo in the body."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            return max(0.0, float(value) * scale)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            continue
    found = re.search(rb'"retryDelay"\s*:\s*"([0-9.]+)s"', body)
    return float(found[1]) if found else None


def parse_rate_limit_headers(headers: Mapping[str, str]) -> dict[str, float]:
    """Rate limits from a provider's headers, under names of ours: requests and tokens, each with
    `_limit`, `_remaining` and `_reset` (seconds until full)."""
    hints: dict[str, float] = {}
    if not any("ratelimit" in name for name in headers):
        return hints
    for name, key in _RATE_HEADERS:
        value = headers.get(name)
        if value is not None:
            number = _parse_duration(value) if key.endswith("reset") else _parse_number(value)
            if number is not None:
                hints[key] = number
    return hints


def _parse_number(value: str | None) -> float | None:
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


def _parse_duration(value: str | None) -> float | None:
    """`6m0s`, `20ms`, `1.5`, or an ISO time, as seconds from now."""
    if not value:
        return None
    parts = re.findall(r"([0-9.]+)(ms|h|m|s)", value)
    if parts and "".join(a + b for a, b in parts) == value:
        scale = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
        return sum(float(amount) * scale[unit] for amount, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp() - time.time())
    except ValueError:
        return _parse_number(value)


def _error_message(body: bytes) -> str:
    """The server's own words in an error body, with its code, in any of the usual shapes."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return ""
    error = data.get("error", data)
    if isinstance(error, str):
        return error[:_MAX_EXCERPT_CHARACTERS]
    if not isinstance(error, dict):
        return ""
    words = error.get("message") or error.get("detail") or error.get("error") or ""
    code = error.get("code") or error.get("status") or error.get("type") or ""
    text = f"{code}: {words}" if code and str(code) not in str(words) else str(words)
    return text[:_MAX_EXCERPT_CHARACTERS]


def _excerpt_of_body(body: bytes) -> str:
    text = " ".join(body.decode("utf-8", "replace").split())
    return text if len(text) <= _MAX_EXCERPT_CHARACTERS else text[:_MAX_EXCERPT_CHARACTERS] + "…"
