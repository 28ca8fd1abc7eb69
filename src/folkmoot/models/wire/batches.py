"""The vendors' batch APIs: many requests in one job, results within 24 hours, half the price.

There is one class for each vendor.
"""

# OpenAI: https://platform.openai.com/docs/guides/batch and /docs/api-reference/batch. Anthropic:
# https://docs.claude.com/en/docs/build-with-claude/batch-processing. Gemini:
# https://ai.google.dev/gemini-api/docs/batch-api and https://ai.google.dev/api/batch-api. A result
# has the form of a response to a single call (status, headers, body), so the wire formats decode
# results and errors as usual.

from __future__ import annotations

import io
import re
import secrets
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
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
    """One request of a batch."""

    # Folkmoot's name of the request, at most 64 letters and digits.
    key: str
    # The JSON body of the request.
    body: JsonObject


class BatchStatus(NamedTuple):
    """The state of a batch at the vendor."""

    is_finished: bool
    # Files or names under which the results of a finished batch are found.
    result_locations: tuple[str, ...] = ()
    # The reason why the vendor did not start the batch, or empty.
    problem: str = ""
    # True if too many tokens were waiting in the vendor's queue.
    queue_was_full: bool = False
    # True if the batch was cancelled at the vendor.
    is_cancelled: bool = False
    # True if the vendor states that it processed no request of a batch that failed. Then the vendor
    # has nothing to bill.
    processed_nothing: bool = False
    # True if the vendor processed the batch to its end. A request without a result may then be
    # billed.
    processed_all: bool = False


class BatchApi(Protocol):
    """The batch API of a vendor at one server."""

    # All methods raise the errors of `HttpClient.send_bulk`.

    # The limits of one batch: the number of its requests, and the sum of their bodies in bytes.
    max_calls: int
    max_bytes: int
    # True if the vendor charges extra for writing to its prompt cache.
    bills_cache_writes: bool

    async def prepare_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> object:
        """Upload or arrange the requests of a batch, and return what `submit_batch` needs.

        No batch exists yet, so the vendor has nothing to bill.
        """

    async def submit_batch(self, name: str, path: str, prepared: object) -> str:
        """Submit a batch of requests to `path` and return the vendor's id.

        - `prepared`: the result of `prepare_batch`.
        """

    async def find_submitted_batch(
        self, name: str, submitted_at: float, calls: int, excluded: Collection[str] = ()
    ) -> str | None:
        """Return the id of the batch that was submitted as `name`.

        - `submitted_at`: the time of the submission in seconds since 1970.
        - `calls`: the number of requests.
        - `excluded`: ids of batches that are known to be others.

        Returns None if the vendor has no such batch.
        """

    async def get_status(self, batch: str) -> BatchStatus:
        """Return the current state of a batch."""

    async def fetch_results(
        self, batch: str, status: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        """Return the key and the response of each processed request, in any order."""


class OpenAIBatchApi:
    """The batch API of OpenAI."""

    # A file with requests is uploaded, and a batch is created from it. The results are a file of
    # replies and a file of errors.

    max_calls = 50_000
    # The limit is 200 MB. The rest is left for the JSON around each body.
    max_bytes = 190_000_000
    bills_cache_writes = False

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def prepare_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> object:
        url = self._request_url(path)
        lines = _encode_json_lines(
            {"custom_id": key, "method": "POST", "url": url, "body": body} for key, body in items
        )
        content_type, form_body = _encode_multipart({"purpose": "batch"}, f"{name}.jsonl", lines)
        file_data = read_json(
            (await self._wire.send_bulk("POST", "/files", form_body, content_type))[2]
        )
        return file_data.get("id")

    async def submit_batch(self, name: str, path: str, prepared: object) -> str:
        batch_request = {
            "input_file_id": prepared,
            "endpoint": self._request_url(path),
            "completion_window": f"{PROMISED_HOURS}h",
            "metadata": {"name": name},
        }
        return _read_id(
            await self._wire.send_bulk("POST", "/batches", json_text.encode_json(batch_request)),
            "id",
        )

    async def find_submitted_batch(
        self, name: str, submitted_at: float, calls: int, excluded: Collection[str] = ()
    ) -> str | None:
        async for page in _list_pages(self._wire, "/batches?limit=100", "after", _last_id):
            batches = _dict_items(page.get("data"))
            for batch in batches:
                is_named = (batch.get("metadata") or {}).get("name") == name
                if is_named and batch["id"] not in excluded:
                    return str(batch["id"])
            # The list is sorted from new to old. Batches before the submission cannot be the one.
            reached_older = any(
                batch.get("created_at", submitted_at) < submitted_at - LOST_BATCH_SECONDS
                for batch in batches
            )
            if reached_older:
                return None
        return None

    async def get_status(self, batch: str) -> BatchStatus:
        batch_data = read_json((await self._wire.send_bulk("GET", f"/batches/{batch}"))[2])
        status = batch_data.get("status")
        errors = _dict_items((batch_data.get("errors") or {}).get("data"))
        files = (batch_data.get("output_file_id"), batch_data.get("error_file_id"))
        problem = ""
        if status == "failed":
            problem = (
                "; ".join(f"{error.get('code')}: {error.get('message')}" for error in errors[:3])
                or "no reason was given"
            )
        return BatchStatus(
            status in ("completed", "failed", "expired", "cancelled"),
            tuple(str(file) for file in files if file),
            problem,
            any(error.get("code") == "token_limit_exceeded" for error in errors),
            status == "cancelled",
            # A batch fails in the validation of its file, before the vendor processes requests.
            status == "failed"
            and not batch_data.get("in_progress_at")
            and not (batch_data.get("request_counts") or {}).get("completed"),
            processed_all=status == "completed",
        )

    @staticmethod
    def _request_url(path: str) -> str:
        # The batch file states paths below the host, not below the base URL.
        return f"/v1{path}"

    async def fetch_results(
        self, batch: str, status: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        files = [
            (await self._wire.send_bulk("GET", f"/files/{location}/content"))[2]
            for location in status.result_locations
        ]
        return (_parse_openai_result(line) for body in files for line in _decode_json_lines(body))


class AnthropicBatchApi:
    """The batch API of Anthropic."""

    # One call submits all requests, and the results are one file.

    max_calls = 100_000
    # The limit is 256 MB. The rest is left for the JSON around each body.
    max_bytes = 240_000_000
    bills_cache_writes = True

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def prepare_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> object:
        return {"requests": [{"custom_id": key, "params": body} for key, body in items]}

    async def submit_batch(self, name: str, path: str, prepared: object) -> str:
        response = await self._wire.send_bulk(
            "POST", "/messages/batches", json_text.encode_json(prepared)
        )
        return _read_id(response, "id")

    async def find_submitted_batch(
        self, name: str, submitted_at: float, calls: int, excluded: Collection[str] = ()
    ) -> str | None:
        """Return the id of a batch that may be the one submitted as `name`.

        Batches have no names at Anthropic. A batch matches if it has `calls` requests, was not
        created long before `submitted_at` and is not in `excluded`.

        Returns None if no batch matches.
        """
        # The result may be a batch of another run. The caller can tell by the keys in the results,
        # because keys are unique to a run, and looks for the next one.
        earliest, path = submitted_at - LOST_BATCH_SECONDS, "/messages/batches?limit=100"
        async for page in _list_pages(self._wire, path, "after_id", _last_id):
            for batch in _dict_items(page.get("data")):
                counts = (batch.get("request_counts") or {}).values()
                created_at = _parse_timestamp(batch.get("created_at"))
                if created_at is None:
                    continue
                # The list is sorted from new to old.
                if created_at < earliest:
                    return None
                if sum(counts) == calls and batch["id"] not in excluded:
                    return str(batch["id"])
        return None

    async def get_status(self, batch: str) -> BatchStatus:
        batch_data = read_json((await self._wire.send_bulk("GET", f"/messages/batches/{batch}"))[2])
        is_finished = batch_data.get("processing_status") == "ended"
        # Also a cancelled or expired batch has a result for each request.
        return BatchStatus(
            is_finished,
            is_cancelled=bool(batch_data.get("cancel_initiated_at")),
            processed_all=is_finished,
        )

    async def fetch_results(
        self, batch: str, status: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        body = (await self._wire.send_bulk("GET", f"/messages/batches/{batch}/results"))[2]
        return (_parse_anthropic_result(line) for line in _decode_json_lines(body))


class GeminiBatchApi:
    """The batch API of Gemini."""

    # One call submits all requests and returns an operation. The finished operation contains the
    # replies.

    max_calls = 50_000
    # The limit for requests inside the call is 20 MB in total.
    max_bytes = 18_000_000
    bills_cache_writes = False

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def prepare_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> object:
        requests = [{"request": body, "metadata": {"key": key}} for key, body in items]
        return {"displayName": name, "inputConfig": {"requests": {"requests": requests}}}

    async def submit_batch(self, name: str, path: str, prepared: object) -> str:
        batch_path = path.replace(":generateContent", ":batchGenerateContent")
        response = await self._wire.send_bulk(
            "POST", batch_path, json_text.encode_json({"batch": prepared})
        )
        return _read_id(response, "name")

    async def find_submitted_batch(
        self, name: str, submitted_at: float, calls: int, excluded: Collection[str] = ()
    ) -> str | None:
        async for page in _list_pages(
            self._wire,
            "/batches?pageSize=100",
            "pageToken",
            lambda page: str(page.get("nextPageToken") or ""),
        ):
            for operation in _dict_items(page.get("operations")):
                is_named = (operation.get("metadata") or {}).get("displayName") == name
                if is_named and operation["name"] not in excluded:
                    return str(operation["name"])
        return None

    async def get_status(self, batch: str) -> BatchStatus:
        operation = read_json((await self._wire.send_bulk("GET", f"/{batch}"))[2])
        metadata = operation.get("metadata") or {}
        # The prefix is BATCH_STATE_, or JOB_STATE_ in older versions of the API.
        state = str(metadata.get("state") or "").rpartition("STATE_")[2]
        has_failed = state == "FAILED" or (bool(operation.get("error")) and state != "EXPIRED")
        reason = (operation.get("error") or {}).get("message") or "no reason was given"
        counts = metadata.get("batchStats")
        return BatchStatus(
            state in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"),
            problem=str(reason) if has_failed else "",
            is_cancelled=state == "CANCELLED",
            # The counts are text, and the API leaves a count of zero out.
            processed_nothing=has_failed
            and isinstance(counts, Mapping)
            and all(counts.get(name, "0") in ("0", 0) for name in _GEMINI_PROCESSED),
            processed_all=state == "SUCCEEDED",
        )

    async def fetch_results(
        self, batch: str, status: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        operation = read_json((await self._wire.send_bulk("GET", f"/{batch}"))[2])
        output = operation.get("response") or (operation.get("metadata") or {}).get("output") or {}
        inlined = (output.get("inlinedResponses") or {}).get("inlinedResponses")
        return (_parse_gemini_result(line) for line in _dict_items(inlined))


def batch_start_error(model: str, problem: str) -> FolkmootError:
    """Return the error for a batch that the vendor did not start."""
    # The error pauses the run if the account lacks money. Any other error stops the run.
    is_unpaid = re.search(r"billing|quota|credit", problem, re.IGNORECASE)
    error_type = QuotaExhaustedError if is_unpaid else FatalModelError
    return error_type(f"{model} refused the batch ({problem})")


def _parse_openai_result(line: JsonObject) -> tuple[str, HttpResponse]:
    key, response, error = str(line.get("custom_id")), line.get("response"), line.get("error")
    if isinstance(response, Mapping) and response.get("body") is not None:
        headers = {"x-request-id": str(response.get("request_id") or "")}
        status = int(response.get("status_code") or 200)
        return key, (status, headers, json_text.encode_json(response["body"]))
    status = int(response.get("status_code") or 500) if isinstance(response, Mapping) else 500
    # A request that the vendor did not process in time is not an error of the request.
    if isinstance(error, Mapping) and error.get("code") in ("batch_expired", "batch_cancelled"):
        status = EXPIRED
    return key, _error_response(status, error or response)


# Results state only the type of an error. These are the statuses of single calls, from
# https://docs.claude.com/en/api/errors
_ANTHROPIC_STATUS = {
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
        return key, _error_response(_ANTHROPIC_STATUS.get(str(error.get("type")), 500), error)
    return key, _error_response(EXPIRED, {"message": str(result.get("type"))})


# The counts of processed requests in `batchStats`, by https://ai.google.dev/api/batch-api
_GEMINI_PROCESSED = ("successfulRequestCount", "failedRequestCount")
# google.rpc.Code as HTTP statuses, by https://cloud.google.com/apis/design/errors
_GOOGLE_STATUS = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 14: 503, 16: 401}


def _parse_gemini_result(line: JsonObject) -> tuple[str, HttpResponse]:
    key = str((line.get("metadata") or {}).get("key"))
    if line.get("response") is not None:
        return key, (200, {}, json_text.encode_json(line["response"]))
    error = line.get("error") or {}
    code = int(error.get("code") or 0)
    # 1 is CANCELLED, 4 is DEADLINE_EXCEEDED.
    is_expired = code in (1, 4)
    return key, _error_response(EXPIRED if is_expired else _GOOGLE_STATUS.get(code, 500), error)


def _error_response(status: int, error: object) -> HttpResponse:
    return status, {}, json_text.encode_json({"error": error})


def _read_id(response: HttpResponse, field: str) -> str:
    batch_id = read_json(response[2]).get(field)
    if not isinstance(batch_id, str) or not batch_id:
        raise TransientError("the server accepted a batch but returned no id")
    return batch_id


async def _list_pages(
    wire: HttpClient, path: str, parameter: str, next_of: Callable[[JsonObject], str]
) -> AsyncIterator[JsonObject]:
    # Yields the pages of a list. `next_of` returns the mark of the page after one, or "", the mark
    # of the first page, after the last. A server that ignores marks repeats the first page.
    mark, read_marks = "", set[str]()
    while mark not in read_marks:
        read_marks.add(mark)
        address = f"{path}&{parameter}={mark}" if mark else path
        page = read_json((await wire.send_bulk("GET", address))[2])
        yield page
        mark = next_of(page)


def _last_id(page: JsonObject) -> str:
    batches = _dict_items(page.get("data"))
    return str(batches[-1]["id"]) if batches and page.get("has_more") else ""


def _dict_items(items: object) -> list[JsonObject]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _parse_timestamp(text: object) -> float | None:
    # RFC 3339, in seconds since 1970.
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def _encode_json_lines(rows: Iterable[JsonObject]) -> bytes:
    return b"".join(json_text.encode_json(row) + b"\n" for row in rows)


def _decode_json_lines(body: bytes) -> Iterator[JsonObject]:
    # A broken line is skipped, so its request counts as one without a result.
    for line in io.BytesIO(body):
        try:
            row = json_text.decode_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _encode_multipart(fields: Mapping[str, str], name: str, file: bytes) -> tuple[str, bytes]:
    # A form with one file (RFC 7578): the content type and the body.
    # A random boundary cannot occur in the file.
    boundary = f"folkmoot-{secrets.token_hex(16)}"
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return (
        f"multipart/form-data; boundary={boundary}",
        head.encode() + file + f"\r\n--{boundary}--\r\n".encode(),
    )
