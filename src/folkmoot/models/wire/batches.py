"""The vendors' batch APIs: many requests in one job, results within 24 hours, half the price.

There is one class for each vendor. `batch_queue.py` of the engine uses them.

  OpenAI: https://platform.openai.com/docs/guides/batch and /docs/api-reference/batch
  Anthropic: https://docs.claude.com/en/docs/build-with-claude/batch-processing
  Gemini: https://ai.google.dev/gemini-api/docs/batch-api and https://ai.google.dev/api/batch-api

Each result is returned like the response to a single call (status, headers, body). So each wire
format decodes results and errors as usual.
"""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from folkmoot import json_text
from folkmoot.errors import FatalModelError, FolkmootError, QuotaExhaustedError, TransientError
from folkmoot.models.request import JsonObject
from folkmoot.models.wire.http_client import HttpClient, read_json
from folkmoot.transport import HttpResponse

# The upper limit that all three vendors state.
PROMISED_HOURS = 24
# The tolerance for different clocks when a batch is searched by its age.
LOST_BATCH_SECONDS = 300
# The status given to a request that was not answered in time. The engine retries this status.
EXPIRED = 408


class BatchItem(NamedTuple):
    """One request of a batch: our key (at most 64 letters and digits) and the body."""

    key: str
    body: JsonObject


class BatchStatus(NamedTuple):
    """The state of a batch.

    - `result_locations`: files or names under which the results of a finished batch are found.
    - `wrong`: why the vendor did not start the batch, or empty.
    - `queue_was_full`: True if the reason is that too many tokens are already enqueued.
    - `is_cancelled`: True if the batch was cancelled at the vendor.
    """

    is_finished: bool
    result_locations: tuple[str, ...] = ()
    wrong: str = ""
    queue_was_full: bool = False
    is_cancelled: bool = False


class BatchApi(Protocol):
    """The batch API of a vendor at one server.

    `most_calls` and `most_bytes` limit one batch. `most_bytes` counts the bodies.
    `bills_cache_writes` is true if the vendor charges extra for writing to its prompt cache. The
    methods raise errors like `HttpClient.send_bulk`.
    """

    most_calls: int
    most_bytes: int
    bills_cache_writes: bool

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
        """Submit a batch of requests to `path` and return the vendor's id."""

    async def find_submitted_batch(self, name: str, begun: float, calls: int) -> str | None:
        """Return the id of a batch that was submitted as `name`, or None if the vendor has none.

        It is called if a submission failed with an unknown outcome. `begun` is the time of the
        submission in seconds since 1970, `calls` the number of requests.
        """

    async def get_status(self, batch: str) -> BatchStatus:
        """Return the current state of a batch."""

    async def fetch_results(
        self, batch: str, look: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        """Return the key and the response of each processed request, in any order."""


class OpenAIBatchApi:
    """The batch API of OpenAI.

    A file with requests is uploaded, and a batch is created from it. The results are a file of
    replies and a file of errors.
    """

    most_calls = 50_000
    # The limit is 200 MB. The rest is left for the JSON around each body.
    most_bytes = 190_000_000
    bills_cache_writes = False

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
        # The batch file states paths below the host, not below the base URL.
        url = f"/v1{path}"
        lines = _encode_json_lines(
            {"custom_id": key, "method": "POST", "url": url, "body": body} for key, body in items
        )
        kind, form = _encode_multipart({"purpose": "batch"}, f"{name}.jsonl", lines)
        file = read_json((await self._wire.send_bulk("POST", "/files", form, kind))[2])
        asked = {
            "input_file_id": file.get("id"),
            "endpoint": url,
            "completion_window": f"{PROMISED_HOURS}h",
            "metadata": {"name": name},
        }
        return _read_id(
            await self._wire.send_bulk("POST", "/batches", json_text.encode_json(asked)), "id"
        )

    async def find_submitted_batch(self, name: str, begun: float, calls: int) -> str | None:
        after = ""
        while True:
            page = read_json((await self._wire.send_bulk("GET", f"/batches?limit=100{after}"))[2])
            listed = _dict_items(page.get("data"))
            for one in listed:
                if (one.get("metadata") or {}).get("name") == name:
                    return str(one["id"])
            # The list is sorted from new to old. Batches before the submission cannot be the one.
            old = any(one.get("created_at", begun) < begun - LOST_BATCH_SECONDS for one in listed)
            if old or not listed or not page.get("has_more"):
                return None
            after = f"&after={listed[-1]['id']}"

    async def get_status(self, batch: str) -> BatchStatus:
        said = read_json((await self._wire.send_bulk("GET", f"/batches/{batch}"))[2])
        status = said.get("status")
        errors = _dict_items((said.get("errors") or {}).get("data"))
        files = (said.get("output_file_id"), said.get("error_file_id"))
        wrong = ""
        if status == "failed":
            wrong = (
                "; ".join(f"{error.get('code')}: {error.get('message')}" for error in errors[:3])
                or "no reason was given"
            )
        return BatchStatus(
            status in ("completed", "failed", "expired", "cancelled"),
            tuple(str(file) for file in files if file),
            wrong,
            any(error.get("code") == "token_limit_exceeded" for error in errors),
            status == "cancelled",
        )

    async def fetch_results(
        self, batch: str, look: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        files = [
            (await self._wire.send_bulk("GET", f"/files/{result_location}/content"))[2]
            for result_location in look.result_locations
        ]
        return (_parse_openai_result(line) for body in files for line in _decode_json_lines(body))


class AnthropicBatchApi:
    """The batch API of Anthropic. One call submits all requests, and the results are one file."""

    most_calls = 100_000
    # The limit is 256 MB. The rest is left for the JSON around each body.
    most_bytes = 240_000_000
    bills_cache_writes = True

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
        asked = {"requests": [{"custom_id": key, "params": body} for key, body in items]}
        sent = await self._wire.send_bulk("POST", "/messages/batches", json_text.encode_json(asked))
        return _read_id(sent, "id")

    async def find_submitted_batch(self, name: str, begun: float, calls: int) -> str | None:
        """Return the id of the batch with the fitting age and number of requests, or None.

        Batches have no names at Anthropic. If the batch belongs to another run, its results show
        that, because keys are unique to a run.
        """
        page = read_json((await self._wire.send_bulk("GET", "/messages/batches?limit=100"))[2])
        for one in _dict_items(page.get("data")):
            counts = (one.get("request_counts") or {}).values()
            made = _parse_timestamp(one.get("created_at"))
            if made is not None and made >= begun - LOST_BATCH_SECONDS and sum(counts) == calls:
                return str(one["id"])
        return None

    async def get_status(self, batch: str) -> BatchStatus:
        said = read_json((await self._wire.send_bulk("GET", f"/messages/batches/{batch}"))[2])
        over = said.get("processing_status") == "ended"
        return BatchStatus(over, is_cancelled=bool(said.get("cancel_initiated_at")))

    async def fetch_results(
        self, batch: str, look: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        body = (await self._wire.send_bulk("GET", f"/messages/batches/{batch}/results"))[2]
        return (_parse_anthropic_result(line) for line in _decode_json_lines(body))


class GeminiBatchApi:
    """The batch API of Gemini.

    One call submits all requests, and the operation contains the replies.
    """

    most_calls = 50_000
    # The limit for requests inside the call is 20 MB in total.
    most_bytes = 18_000_000
    bills_cache_writes = False

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
        requests = [{"request": body, "metadata": {"key": key}} for key, body in items]
        batch = {"displayName": name, "inputConfig": {"requests": {"requests": requests}}}
        where = path.replace(":generateContent", ":batchGenerateContent")
        sent = await self._wire.send_bulk("POST", where, json_text.encode_json({"batch": batch}))
        return _read_id(sent, "name")

    async def find_submitted_batch(self, name: str, begun: float, calls: int) -> str | None:
        after = ""
        while True:
            page = read_json(
                (await self._wire.send_bulk("GET", f"/batches?pageSize=100{after}"))[2]
            )
            for one in _dict_items(page.get("operations")):
                if (one.get("metadata") or {}).get("displayName") == name:
                    return str(one["name"])
            if not page.get("nextPageToken"):
                return None
            after = f"&pageToken={page['nextPageToken']}"

    async def get_status(self, batch: str) -> BatchStatus:
        said = read_json((await self._wire.send_bulk("GET", f"/{batch}"))[2])
        facts = said.get("metadata") or {}
        # The prefix is BATCH_STATE_, or JOB_STATE_ in older versions of the API.
        state = str(facts.get("state") or "").rpartition("STATE_")[2]
        failed = state == "FAILED" or (bool(said.get("error")) and state != "EXPIRED")
        why = (said.get("error") or {}).get("message") or "no reason was given"
        return BatchStatus(
            state in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"),
            wrong=str(why) if failed else "",
            is_cancelled=state == "CANCELLED",
        )

    async def fetch_results(
        self, batch: str, look: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        said = read_json((await self._wire.send_bulk("GET", f"/{batch}"))[2])
        output = said.get("response") or (said.get("metadata") or {}).get("output") or {}
        inlined = (output.get("inlinedResponses") or {}).get("inlinedResponses")
        return (_parse_gemini_result(line) for line in _dict_items(inlined))


def batch_start_error(model: str, wrong: str) -> FolkmootError:
    """Return the error for a batch that the vendor did not start.

    The error pauses the run if the account lacks money, and stops it otherwise.
    """
    unpaid = re.search(r"billing|quota|credit", wrong, re.IGNORECASE)
    kind = QuotaExhaustedError if unpaid else FatalModelError
    return kind(f"{model} refused the batch ({wrong})")


def _parse_openai_result(line: JsonObject) -> tuple[str, HttpResponse]:
    key, answer, error = str(line.get("custom_id")), line.get("response"), line.get("error")
    if isinstance(answer, Mapping) and answer.get("body") is not None:
        headers = {"x-request-id": str(answer.get("request_id") or "")}
        status = int(answer.get("status_code") or 200)
        return key, (status, headers, json_text.encode_json(answer["body"]))
    status = int(answer.get("status_code") or 500) if isinstance(answer, Mapping) else 500
    # A request that the vendor did not process in time is not an error of the request.
    if isinstance(error, Mapping) and error.get("code") in ("batch_expired", "batch_cancelled"):
        status = EXPIRED
    return key, _error_response(status, error or answer)


# Results state only the type of an error. These are the statuses of single calls, from
# https://docs.claude.com/en/api/errors
_ANTHROPIC = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def _parse_anthropic_result(line: JsonObject) -> tuple[str, HttpResponse]:
    key, result = str(line.get("custom_id")), line.get("result") or {}
    if result.get("type") == "succeeded":
        return key, (200, {}, json_text.encode_json(result.get("message")))
    error = result.get("error") or {}
    # The error is nested in an object of type `error`.
    error = error.get("error") or error
    if result.get("type") == "errored":
        return key, _error_response(_ANTHROPIC.get(str(error.get("type")), 500), error)
    return key, _error_response(EXPIRED, {"message": str(result.get("type"))})


# google.rpc.Code as HTTP statuses, by https://cloud.google.com/apis/design/errors
_GOOGLE = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 14: 503, 16: 401}


def _parse_gemini_result(line: JsonObject) -> tuple[str, HttpResponse]:
    key = str((line.get("metadata") or {}).get("key"))
    if line.get("response") is not None:
        return key, (200, {}, json_text.encode_json(line["response"]))
    error = line.get("error") or {}
    code = int(error.get("code") or 0)
    # 1 is CANCELLED, 4 is DEADLINE_EXCEEDED.
    expired = code in (1, 4)
    return key, _error_response(EXPIRED if expired else _GOOGLE.get(code, 500), error)


def _error_response(status: int, error: object) -> HttpResponse:
    return status, {}, json_text.encode_json({"error": error})


def _read_id(answer: HttpResponse, field: str) -> str:
    found = read_json(answer[2]).get(field)
    if not isinstance(found, str) or not found:
        raise TransientError("the server took a batch and gave it no id")
    return found


def _dict_items(listed: object) -> list[JsonObject]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _parse_timestamp(when: object) -> float | None:
    """Return an RFC 3339 time in seconds since 1970, or None for other values."""
    try:
        return datetime.fromisoformat(str(when)).timestamp()
    except ValueError:
        return None


def _encode_json_lines(rows: Iterable[JsonObject]) -> bytes:
    return b"".join(json_text.encode_json(row) + b"\n" for row in rows)


def _decode_json_lines(body: bytes) -> Iterator[JsonObject]:
    """Yield the objects of a JSON Lines file.

    A broken line is skipped, so its request counts as unanswered and is sent again.
    """
    for line in io.BytesIO(body):
        try:
            row = json_text.decode_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _encode_multipart(fields: Mapping[str, str], name: str, file: bytes) -> tuple[str, bytes]:
    """Return the content type and the body of a form with one file (RFC 7578)."""
    # A random boundary cannot occur in the file.
    mark = f"folkmoot-{secrets.token_hex(16)}"
    said = "".join(
        f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    )
    said += (
        f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return (
        f"multipart/form-data; boundary={mark}",
        said.encode() + file + f"\r\n--{mark}--\r\n".encode(),
    )
