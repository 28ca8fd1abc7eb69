"""The HTTP client of the wire formats, and typed errors from responses."""

# The client never retries, because the gateway retries.

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
from folkmoot.hints import collapse_spaces, shorten
from folkmoot.models.api_keys import MIN_KEY_CHARACTERS, REDACTED_KEY, redact_keys
from folkmoot.models.request import Completion, FloatArray, JsonObject, ProviderSettings, Usage
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

# The fields and comments that may begin an event stream (WHATWG HTML, section 9.2).
_EVENT_STREAM = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry):|:)")
_MAX_EXCERPT_CHARACTERS = 300
# Statuses of a gateway that waited in vain for the model server: HTTP's, and Cloudflare's.
GATEWAY_TIMEOUTS = (504, 524)
# Batches transfer files of hundreds of megabytes. The limits of single calls would stop them.
BULK_TIMEOUT_SECONDS = 900.0
MAX_BULK_BYTES = 2_000_000_000

# The patterns below cover the error texts of the vendors and of common servers (vLLM, TGI, Ollama).
# An error status alone does not tell the cause: 400 may mean an empty account, a too long prompt, a
# filter or a bad key.
_QUOTA_PATTERN = re.compile(
    r"insufficient_quota|exceeded_current_quota|billing_hard_limit|credit balance is too low|"
    r"insufficient (?:balance|credits|funds)|exceeded your current quota|"
    r"suspended due to insufficient",
    re.IGNORECASE,
)
_TOO_LONG_PATTERN = re.compile(
    r"context[ _](?:window|length|size|limit)|context_exceeded|string_above_max_length|"
    r"maximum (?:model|prompt) length|max_prompt_tokens|request_too_large|"
    r"(?:prompt|input) is too long|reduce the length of the|range of input length|"
    r"input token(?: count|s exceed)|too many (?:input )?tokens|exceeds? (?:the )?token limit|"
    r"exceeds the maximum number of tokens|maximum number of input tokens|"
    r"[`']inputs[`'] (?:tokens \+|must have less than)",
    re.IGNORECASE,
)
_FILTERED_PATTERN = re.compile(
    r"content_filter|content_policy|content management policy|responsible ?ai|moderation|"
    r"flagged|safety (?:system|setting|filter)|prohibited_content|blocked by",
    re.IGNORECASE,
)
_BAD_KEY_PATTERN = re.compile(
    r"api[ _-]?key|authenticat|\bunauthorized\b|permission[ _-]?(?:denied|error)|"
    r"(?:no|have|lacks?|insufficient|required) permission|invalid x-api-key",
    re.IGNORECASE,
)
_NO_MODEL_PATTERN = re.compile(
    r"model_not_found|(?:unknown|invalid|no such|unsupported|not a valid) model|"
    r"\bmodel\b[^.]{0,80}(?:not found|not exist|not a valid|not available|decommissioned)",
    re.IGNORECASE,
)


class HttpClient:
    """A client that sends JSON to one server.

    Raises InputError if a header has invalid characters or the key would be sent unencrypted.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str], settings: ProviderSettings
    ) -> None:
        self.base_url = base_url
        self._settings = settings
        self._secrets = [settings.api_key, *find_secrets(base_url), *settings.secrets]
        # Headers of the study file replace ours. Header names ignore case.
        custom_names = {name.lower() for name in settings.headers}
        default_headers = {
            name: value for name, value in headers.items() if name.lower() not in custom_names
        }
        headers = {**default_headers, **settings.headers}
        self._proxy = proxy_for(base_url)
        require_encryption(settings.api_key or next(iter(settings.secrets), None), base_url)
        if any(self._secrets) and base_url.lower().startswith("http:"):
            # An unencrypted request passes through the proxy in the clear, so the proxy must be on
            # a private network as well.
            require_encryption("any key", self._proxy)
        # A line break in a header would allow header injection, and is mostly a copying error.
        if any(not value.isprintable() for value in headers.values()):
            raise InputError(
                "the API key or a header contains a line break or another control character; "
                "copy it again"
            )
        self._connections = HttpConnections(
            headers, settings.timeout, settings.max_reply_bytes, settings.reached_hosts
        )

    def post_json(
        self, path: str, body: Mapping[str, object]
    ) -> Coroutine[object, object, HttpResponse]:
        """Post a JSON body and return the response.

        Raises TransientError for a time-out, or for an unreachable server that answered earlier.
        Raises FatalModelError if no server ever answered at the base URL. Raises RefusedError for a
        response that is too large.
        """
        return self._send_request("POST", path, json_text.encode_json(body))

    async def send_bulk(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> HttpResponse:
        """Send or receive a batch file, with limits of 15 minutes and 2 GB.

        Raises the errors of `post_json`, and a ModelError for any status other than 2xx.
        """
        response = await self._send_request(
            method, path, body, content_type, BULK_TIMEOUT_SECONDS, MAX_BULK_BYTES
        )
        if response[0] >= 300:
            raise self.read(error_from_response, response)
        return response

    async def _send_request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str = "application/json",
        seconds: float | None = None,
        limit: int | None = None,
    ) -> HttpResponse:
        try:
            url = join_url(self.base_url, path)
        except ValueError:
            raise FatalModelError(self.redact_key(f"{self.base_url!r} is not a base URL")) from None
        http_request = HttpRequest(
            method, url, body, {"Content-Type": content_type}, seconds, limit
        )
        try:
            return await self._connections.send_request(http_request, self._proxy)
        except TransferError as error:
            raise self._to_model_error(error) from None

    def _to_model_error(self, error: TransferError) -> ModelError:
        # The vendor may bill a reply that it was writing when the time was over.
        may_be_billed = error.may_be_processed
        match error.failure:
            case Failure.TIMED_OUT:
                seconds = self._settings.timeout
                return TransientError(
                    f"no response within {seconds:g} s", may_be_billed=may_be_billed
                )
            case Failure.TOO_LARGE:
                too_large = RefusedError(f"{error} (max_reply_mb)", reason="too_large")
                # The vendor bills the reply, whose token counts were not read.
                too_large.may_be_billed = True
                return too_large
            case Failure.UNREACHABLE:
                return FatalModelError(
                    self.redact_key(f"the model server cannot be reached: {error}")
                )
            case Failure.BAD_ADDRESS:
                return FatalModelError(
                    self.redact_key(f"{self.base_url!r} is not a base URL: {error}")
                )
        return TransientError(
            self.redact_key(f"connection failed: {error}"), may_be_billed=may_be_billed
        )

    async def close(self) -> None:
        await self._connections.close()

    def redact_key(self, text: str) -> str:
        """Return a text without the key of this server."""
        return redact_keys(text, self._secrets)

    def redact_reply(self, reply: Completion) -> Completion:
        """Return a reply without the key of this server."""
        # Some proxies repeat the key. Only exact keys are replaced, because a model may write texts
        # that look like keys. The key of a local server may be an ordinary word, such as
        # "anything", which a reply may contain as well.
        texts = {name: getattr(reply, name) for name in ("text", "model_served", "request_id")}
        for secret in filter(None, self._secrets):
            if len(secret) >= MIN_KEY_CHARACTERS and not _WORDS.fullmatch(secret):
                texts = {name: text.replace(secret, REDACTED_KEY) for name, text in texts.items()}
        return reply._replace(**texts)

    def read(
        self, decode: Callable[[int, Mapping[str, str], bytes], R], response: HttpResponse
    ) -> R:
        """Decode a response, and remove API keys from any error message."""
        # The errors are those that `decode` raises.
        try:
            return decode(*response)
        except ModelError as error:
            error.args = (self.redact_key(str(error)),)
            raise


_WORDS = re.compile(r"[^\W\d]+(?:-[^\W\d]+)*")
# Pairs of header and our name. The first form is OpenAI's, the second Anthropic's.
_RATE_HEADERS = tuple(
    (name.format(what=resource, part=part), f"{resource}_{part}")
    for name in ("x-ratelimit-{part}-{what}", "anthropic-ratelimit-{what}-{part}")
    for resource in ("requests", "tokens")
    for part in ("limit", "remaining", "reset")
)


def read_json(body: bytes) -> JsonObject:
    """Return the JSON object in a response body.

    Raises TransientError for a broken or truncated body, and FatalModelError for an event stream.
    """
    # A server that sends an event stream would answer every call with one.
    try:
        data = json_text.decode_json(body)
    except (ValueError, RecursionError):
        if _EVENT_STREAM.match(body):
            raise _streamed_reply_error(body) from None
        raise unreadable_reply_error(
            f"a body that is not valid JSON: {_excerpt_of_body(body)}"
        ) from None
    if not isinstance(data, dict):
        raise unreadable_reply_error(
            f"something other than a JSON object: {_excerpt_of_body(body)}"
        )
    return data


def unreadable_reply_error(description: str) -> TransientError:
    """Return the error for a successful response without a readable reply."""
    # The vendor may bill the reply.
    return TransientError(f"the server sent {description}", may_be_billed=True)


def _streamed_reply_error(body: bytes) -> FatalModelError:
    error = FatalModelError(
        "the server sent a stream of events (server-sent events) to a request that did not ask for "
        "one, and Folkmoot reads whole replies. Turn streaming off at the server: "
        f"{_excerpt_of_body(body)}"
    )
    error.may_be_billed = True
    return error


def parse_vectors(rows: Callable[[], Sequence[object]], expected: int) -> FloatArray:
    """Return embeddings, shape (expected, d), from the rows of a response.

    - `rows`: a function that returns the rows.

    Raises TransientError if the rows do not have this shape.
    """
    try:
        vectors = np.array(rows(), dtype=np.float32)
    except (KeyError, TypeError, ValueError):
        raise unreadable_reply_error("embeddings that cannot be read") from None
    if vectors.ndim != 2 or len(vectors) != expected:
        raise unreadable_reply_error(f"{len(vectors)} embeddings for {expected} texts")
    # numpy reads null as NaN.
    if not np.isfinite(vectors).all():
        raise unreadable_reply_error("embeddings in which numbers are missing")
    return vectors


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """Return the error for a response with a status other than 2xx."""
    error_text = _error_message(status, body)
    message = f"HTTP {status}: {error_text or _excerpt_of_body(body) or 'no explanation'}"
    body_text = body.decode("utf-8", "replace")
    retry_after = retry_after_seconds(headers, body)
    # The order matters: quota errors share their status with rate limits, and too long or filtered
    # prompts share theirs with bad requests.
    if 300 <= status < 400:
        new_location = headers.get("location", "elsewhere")
        return FatalModelError(f"HTTP {status}: the base URL has moved ({new_location})")
    if status == 402 or (status in (400, 403, 429) and _is_quota_exhausted(body_text)):
        return QuotaError(message)
    if status == 429:
        return RateLimitedError(message, retry_after=retry_after)
    if status in (408, 409, 425) or status >= 500:
        may_be_billed = status in GATEWAY_TIMEOUTS
        return TransientError(message, retry_after=retry_after, may_be_billed=may_be_billed)
    if status == 413 or (status in (400, 422) and _TOO_LONG_PATTERN.search(body_text)):
        return RefusedError(message, reason="too_long")
    if status in (400, 403, 422) and _FILTERED_PATTERN.search(body_text):
        return RefusedError(message, reason="filtered")
    if status in (401, 403) or (status == 400 and _BAD_KEY_PATTERN.search(error_text)):
        return FatalModelError(f"the server rejected the key ({message})")
    if status == 404:
        return NotFoundError(f"unknown model or base URL ({message})")
    if status in (400, 422) and not _NO_MODEL_PATTERN.search(error_text):
        return RejectedError(f"the server rejected the request ({message})")
    return FatalModelError(f"the server rejected the request ({message})")


def error_in_success_response(
    error: object, headers: Mapping[str, str], *, has_reply: bool, usage: Usage
) -> ModelError:
    """Return the error that a server sent in a response with status 200.

    - `has_reply`: True if the response also contains a reply or the beginning of one.
    - `usage`: the usage that the response states.
    """
    # The status of the result is the code in `error`, or 502 if there is no code. A server that
    # had begun a reply, or that counted tokens, had accepted the request and may bill it.
    reply_had_started = has_reply or bool(usage.input_tokens)
    code = error.get("code") if isinstance(error, Mapping) else None
    status = int(str(code)) if re.fullmatch(r"[45]\d\d", str(code)) else 502
    # The request was valid, so 400 describes a failure upstream.
    if reply_had_started and status in (400, 422):
        status = 502
    model_error = error_from_response(status, headers, json_text.encode_json({"error": error}))
    model_error.may_be_billed = reply_had_started
    if isinstance(model_error, RefusedError):
        model_error.usage = usage
    return model_error


def _is_quota_exhausted(body: str) -> bool:
    # Google also uses "exceeded your quota" for limits per minute, which are transient.
    if "PerDay" in body:
        return True
    return (
        bool(_QUOTA_PATTERN.search(body)) and "PerMinute" not in body and "retryDelay" not in body
    )


def retry_after_seconds(headers: Mapping[str, str], body: bytes = b"") -> float | None:
    """Return the number of seconds that the server asks the client to wait, or None."""
    # The sources are the headers retry-after-ms and Retry-After (seconds or a date), and Google's
    # RetryInfo in the body.
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
    match = re.search(rb'"retryDelay"\s*:\s*"([0-9.]+)s"', body)
    return _parse_number(match[1].decode()) if match else None


def parse_rate_limit_headers(headers: Mapping[str, str]) -> dict[str, float]:
    """Return the rate limits in the headers of a response, with times in seconds."""
    # The names begin with `requests` or `tokens` and end with `_limit`, `_remaining` or `_reset`
    # (seconds until the full limit is available).
    hints: dict[str, float] = {}
    # Most servers send no such headers. This spares them twelve look-ups.
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
    # None for a text that is no finite number.
    try:
        number = math.nan if value is None else float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parse_duration(value: str | None) -> float | None:
    # In seconds, from a text such as `6m0s`, `20ms` or `1.5`. An ISO time gives the seconds until
    # then.
    if not value:
        return None
    # Try a number first: `20261129` would also be an ISO date.
    if (number := _parse_number(value)) is not None:
        return number
    # The lookbehind keeps the time linear in a long run of digits.
    parts = re.findall(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ms|h|m|s)", value)
    if parts and "".join(amount + unit for amount, unit in parts) == value:
        scale = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
        return sum(float(amount) * scale[unit] for amount, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp() - time.time())
    except ValueError:
        return None


def _error_message(status: int, body: bytes) -> str:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    # Google wraps some errors in a list.
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return ""
    error = data.get("error", data)
    if isinstance(error, str):
        return shorten(error, _MAX_EXCERPT_CHARACTERS)
    if not isinstance(error, dict):
        return ""
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    # Callers state the HTTP status already, so it is no code.
    codes = (str(error.get(key) or "") for key in ("code", "status", "type"))
    code = next((code for code in codes if code not in ("", str(status))), "")
    text = f"{code}: {message}" if code and code not in str(message) else str(message)
    return shorten(text, _MAX_EXCERPT_CHARACTERS)


def _excerpt_of_body(body: bytes) -> str:
    return shorten(collapse_spaces(body.decode("utf-8", "replace")), _MAX_EXCERPT_CHARACTERS)
