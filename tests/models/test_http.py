"""Which error a response means, and how long a server asks to wait."""

from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest

from folkmoot.errors import (
    FatalModelError,
    ModelError,
    NotFoundError,
    QuotaError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from folkmoot.models.wire.http_client import (
    error_from_response,
    parse_rate_limit_headers,
    retry_after_seconds,
)

CASES: list[tuple[int, dict[str, object], type[ModelError]]] = [
    (401, {"message": "Incorrect API key"}, FatalModelError),
    (403, {"message": "Country not supported"}, FatalModelError),
    (404, {"message": "The model `x` does not exist", "code": "model_not_found"}, NotFoundError),
    (400, {"message": "'messages' must not be empty"}, RejectedError),
    (422, {"message": "messages.0.content: Input should be shorter"}, RejectedError),
    (400, {"message": "cannot read 'They ask for permission to build'"}, RejectedError),
    (400, {"message": "You do not have permission to use it"}, FatalModelError),
    (400, {"message": "x", "status": "PERMISSION_DENIED"}, FatalModelError),
    (400, {"message": "acme/x-9 is not a valid model ID"}, FatalModelError),
    (400, {"message": "The model `x-9` does not exist or is not available"}, FatalModelError),
    (429, {"message": "Rate limit", "code": "rate_limit_exceeded"}, RateLimitedError),
    (429, {"message": "no credit", "code": "insufficient_quota"}, QuotaError),
    (429, {"message": "x", "type": "exceeded_current_quota_error"}, QuotaError),
    (402, {"message": "Insufficient Balance"}, QuotaError),
    (408, {}, TransientError),
    (409, {}, TransientError),
    (500, {"message": "oops"}, TransientError),
    (502, {}, TransientError),
    (503, {"message": "overloaded"}, TransientError),
    (529, {"message": "overloaded"}, TransientError),
    (400, {"message": "maximum context length is 8192", "code": "context_length_exceeded"},
     RefusedError),
    (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}, RefusedError),
    (413, {}, RefusedError),
    (400, {"message": "filtered by the content management policy", "code": "content_filter"},
     RefusedError),
]  # fmt: skip


@pytest.mark.parametrize(("status", "error", "kind"), CASES)
def test_every_kind_of_error_is_recognised(
    status: int, error: dict[str, object], kind: type[ModelError]
) -> None:
    decoded_error = error_from_response(status, {}, json.dumps({"error": error}).encode())
    assert type(decoded_error) is kind
    assert str(error.get("message", status)) in str(decoded_error)


@pytest.mark.parametrize(
    ("error", "expected_text"),
    [
        ({"code": 402, "message": "no credits"}, "HTTP 402: no credits"),
        (
            {"code": 402, "message": "no credits", "status": "RESOURCE_EXHAUSTED"},
            "HTTP 402: RESOURCE_EXHAUSTED: no credits",
        ),
        ({"code": "no_money", "message": "no credits"}, "HTTP 402: no_money: no credits"),
    ],
)
def test_status_is_reported_once(error: dict[str, object], expected_text: str) -> None:
    assert str(error_from_response(402, {}, json.dumps({"error": error}).encode())) == expected_text


def test_refusals_contain_a_reason() -> None:
    too_long = error_from_response(400, {}, b'{"error": {"code": "context_length_exceeded"}}')
    filtered = error_from_response(400, {}, b'{"error": {"code": "content_filter"}}')
    assert isinstance(too_long, RefusedError) and too_long.reason == "too_long"
    assert isinstance(filtered, RefusedError) and filtered.reason == "filtered"


@pytest.mark.parametrize(
    "message",
    [  # messages of servers and vendors, as reported by users
        {"message": "request (4152 tokens) exceeds the available context size (4096 tokens), try "
         "increasing it", "type": "exceed_context_size_error", "n_ctx": 4096},
        {"message": "Prompt tokens (900) exceeds context size (512)", "type": "context_exceeded"},
        {"message": "the request exceeds the available context size. try increasing the context "
         "size or enable context shift"},
        {"message": "Trying to keep the first 5000 tokens when context overflows. However, the "
         "model is loaded with context length of only 4096 tokens"},
        {"message": "This model's maximum context length is 8192 tokens. However, you requested "
         "8500 tokens"},
        {"message": "The decoder prompt (length 5000) is longer than the maximum model length of "
         "4096."},
        {"message": "This model's maximum prompt length is 131072 but the request contains 150000 "
         "tokens."},
        {"message": "Input tokens exceed the configured limit of 272000 tokens."},
        {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed "
         "(1048576)."},
        {"message": "Input is too long for requested model."},
        {"message": "Please reduce the length of the messages or completion."},
        {"message": "Range of input length should be [1, 129024]", "type": "invalid_parameter"},
        {"message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"},
        {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"},
        {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"},
    ],
)  # fmt: skip
def test_prompt_that_is_too_long_is_recognised_for_every_server(
    message: dict[str, object],
) -> None:
    error = error_from_response(400, {}, json.dumps({"error": message}).encode())
    assert isinstance(error, RefusedError) and error.reason == "too_long"


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "temperature exceeds the maximum of 2",
        "Invalid input: messages must alternate",
    ],
)
def test_setting_that_is_too_large_is_no_prompt_that_is_too_long(message: str) -> None:
    error = error_from_response(400, {}, json.dumps({"error": {"message": message}}).encode())
    assert isinstance(error, RejectedError)


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b'{"detail": "no"}', b"[1]"])
def test_errors_of_any_structure_are_decoded(body: bytes) -> None:
    assert isinstance(error_from_response(502, {}, body), TransientError)


def test_wait_times_are_read_in_all_formats() -> None:
    assert retry_after_seconds({"retry-after": "2"}) == 2.0
    assert retry_after_seconds({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    date = formatdate(time.time() + 30, usegmt=True)
    in_half_a_minute = retry_after_seconds({"retry-after": date})
    assert in_half_a_minute is not None and 25 < in_half_a_minute <= 30
    wait_until_past_time = retry_after_seconds({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert wait_until_past_time == 0.0
    assert retry_after_seconds({"retry-after": "soon"}) is None
    assert retry_after_seconds({}) is None
    delay = b'{"error": {"details": [{"retryDelay": "%b"}]}}'
    assert retry_after_seconds({}, delay % b"1.5s") == 1.5
    assert retry_after_seconds({}, delay % b"1.2.3s") is None


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("20ms", 0.02), ("1h0m1.5s", 3601.5), (".5s", 0.5), ("90", 90), ("20261129", 20_261_129),
        ("1.2.3s", None), ("nan", None), ("inf", None), ("soon", None), ("", None),
    ],
)  # fmt: skip
def test_only_durations_are_read_as_times_of_a_rate_limit(
    reset: str, seconds: float | None
) -> None:
    hints = parse_rate_limit_headers({"x-ratelimit-reset-requests": reset})
    assert [*hints.values()] == ([] if seconds is None else [pytest.approx(seconds)])
