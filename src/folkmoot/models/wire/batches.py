"""The vendors' batch interfaces: many requests handed in at once, answered within a day at half the
price. One class for each vendor; the engine's outbox (`batch_queue.py`) is their user.

OpenAI: https://platform.openai.com/docs/guides/batch and /docs/api-reference/batch
Anthropic: https://docs.claude.com/en/docs/build-with-claude/batch-processing
Gemini: https://ai.google.dev/gemini-api/docs/batch-api and https://ai.google.dev/api/batch-api

Results are handed on as answers to single calls (status, headers, body), so that each wire format
reads them, and their errors, as it reads any other.
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

PROMISED_HOURS = 24  # what all three promise, at the latest
LOST_BATCH_SECONDS = 300  # by which clocks may differ, when a batch is looked for by its age
EXPIRED = 408  # as the status of a request that was not answered in time: worth another try


class BatchItem(NamedTuple):
    """One request of a batch: a key of ours (at most 64 letters and digits), and its body."""

    key: str
    body: JsonObject


class BatchStatus(NamedTuple):
    """The state of a batch. `result_locations` is where they are once it is over; `wrong` says why
    the vendor did not start it, `queue_was_full` whether that is because too much is under way
    already. `is_cancelled`: somebody ended it by hand."""

    is_finished: bool
    result_locations: tuple[str, ...] = ()
    wrong: str = ""
    queue_was_full: bool = False
    is_cancelled: bool = False


class BatchApi(Protocol):
    """A vendor's batch interface at one server. All calls raise as `HttpClient.send_bulk` does."""

    most_calls: int
    most_bytes: int  # of the bodies of one batch
    bills_cache_writes: bool  # whether it costs extra to have the beginning of a prompt kept

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
        """Hand a batch in, its requests as they would be posted to `path`; the vendor's id."""

    async def find_submitted_batch(self, name: str, begun: float, calls: int) -> str | None:
        """The id of a batch that was handed in as `name` after `begun` (seconds since 1970), when
        nobody knows whether that arrived."""

    async def get_status(self, batch: str) -> BatchStatus:
        """How it stands."""

    async def fetch_results(
        self, batch: str, look: BatchStatus
    ) -> Iterator[tuple[str, HttpResponse]]:
        """Key and answer of each request that was dealt with, in any order."""


class OpenAIBatchApi:
    """A file of requests, a batch made of it, a file of replies and one of errors."""

    most_calls = 50_000
    most_bytes = 190_000_000  # 200 MB, with the words around each body
    bills_cache_writes = False

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
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
    """One request with all requests in it, and a file of results."""

    most_calls = 100_000
    most_bytes = 240_000_000  # 256 MB, with the words around each body
    bills_cache_writes = True

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    async def submit_batch(self, name: str, path: str, items: Sequence[BatchItem]) -> str:
        asked = {"requests": [{"custom_id": key, "params": body} for key, body in items]}
        sent = await self._wire.send_bulk("POST", "/messages/batches", json_text.encode_json(asked))
        return _read_id(sent, "id")

    async def find_submitted_batch(self, name: str, begun: float, calls: int) -> str | None:
        """By age and size: a batch has no name here. Keys are ours alone, so that another run's
        batch would be recognised by its results."""
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
    """One request with all requests in it, whose operation holds the replies in the end."""

    most_calls = 50_000
    most_bytes = 18_000_000  # requests that stand in the request itself: 20 MB in all
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
        state = str(facts.get("state") or "").rpartition("STATE_")[2]  # JOB_STATE_… in older ones
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
    """The error for a batch that a vendor did not start; for want of money the run pauses."""
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
    if isinstance(error, Mapping) and error.get("code") in ("batch_expired", "batch_cancelled"):
        status = EXPIRED
    return key, _error_response(status, error or answer)


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
    error = error.get("error") or error  # the error stands in an answer of the type error
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
    expired = code in (1, 4)  # cancelled, deadline exceeded
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
    """Seconds since 1970 of an RFC 3339 time."""
    try:
        return datetime.fromisoformat(str(when)).timestamp()
    except ValueError:
        return None


def _encode_json_lines(rows: Iterable[JsonObject]) -> bytes:
    return b"".join(json_text.encode_json(row) + b"\n" for row in rows)


def _decode_json_lines(body: bytes) -> Iterator[JsonObject]:
    """The objects of a JSON Lines file; a broken line is left out, and what it answered asked
    again."""
    for line in io.BytesIO(body):
        try:
            row = json_text.decode_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _encode_multipart(fields: Mapping[str, str], name: str, file: bytes) -> tuple[str, bytes]:
    """Content type and body of a form with one file (RFC 7578)."""
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
