"""The batch APIs of the vendors at the model server, with their states, delays, limits and faults.

OpenAI: POST /v1/files, POST and GET /v1/batches, GET /v1/files/ID/content; Anthropic: POST and GET
/v1/messages/batches and …/ID/results; Gemini: POST …:batchGenerateContent, GET /v1beta/batches.
They follow the documentation of the vendors (addresses in `folkmoot/models/wire/batches.py`).
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

Handler = Callable[[Any], Awaitable[web.StreamResponse]]


@dataclass
class BatchPlan:
    """The faults and the duration of batches. Numbers in sets count batches from 0."""

    looks: int = 1  # status requests before a batch ends
    expire: frozenset[int] = frozenset()  # batches in which every second request expires
    cancel: frozenset[int] = frozenset()  # batches that are cancelled at the vendor
    fail: str = ""  # error code with which batches of more than `most_calls` calls fail
    most_calls: int = 50_000
    processed: int = 0  # requests that a batch had processed before it failed
    upload: int = 0  # HTTP status with which every upload is refused
    swallow: frozenset[int] = frozenset()  # accepted, but the connection drops before the answer
    errors: frozenset[int] = frozenset()  # batches in which the first request ends in an error
    omit: frozenset[int] = frozenset()  # batches without a result of the first request
    stall: bool = False  # accepted, but never answered
    hold: bool = False  # no batch ends until the plan is replaced
    interface: bool = True  # if False, all requests get 404
    reject: int = 0  # HTTP status with which every submitted batch is refused


@dataclass
class Job:
    """One batch: its items as (key, body), and the number of its status requests."""

    id: str
    number: int
    items: list[tuple[str, dict[str, Any]]]
    name: str = ""
    model: str = ""
    created_at: float = field(default_factory=time.time)
    looks: int = 0
    results: list[tuple[str, str, Any]] | None = None  # key, outcome, status and body


class InternalRequest:
    """A request that a batch sends to a handler of the same server."""

    def __init__(self, body: dict[str, Any], headers: Any, call: str = "") -> None:
        self.headers = headers
        self.match_info = {"call": call}
        self.transport = None
        self._body = body

    async def json(self) -> dict[str, Any]:
        return self._body


class BatchEndpoints:
    """The batch APIs of three vendors over one list of jobs, with the handlers of single calls."""

    def __init__(self, chat: Handler, anthropic: Handler, gemini: Handler) -> None:
        self.plan = BatchPlan()
        self.jobs: list[Job] = []
        self.files: dict[str, bytes] = {}
        self._chat, self._anthropic, self._gemini = chat, anthropic, gemini

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/files", self.upload)
        app.router.add_get("/v1/files/{id}/content", self.content)
        app.router.add_post("/v1/batches", self.openai_create)
        app.router.add_get("/v1/batches", self.openai_list)
        app.router.add_get("/v1/batches/{id}", self.openai_look)
        app.router.add_post("/v1/messages/batches", self.anthropic_create)
        app.router.add_get("/v1/messages/batches", self.anthropic_list)
        app.router.add_get("/v1/messages/batches/{id}", self.anthropic_look)
        app.router.add_get("/v1/messages/batches/{id}/results", self.anthropic_results)
        app.router.add_get("/v1beta/batches", self.gemini_list)
        app.router.add_get("/v1beta/batches/{id}", self.gemini_look)

    @property
    def calls(self) -> int:
        """The number of requests in all batches."""
        return sum(len(job.items) for job in self.jobs)

    # OpenAI

    async def upload(self, request: web.Request) -> web.Response:
        if not self.plan.interface:
            return _not_found_response()
        if self.plan.upload:
            return web.json_response({"error": {"message": "no"}}, status=self.plan.upload)
        form = await request.post()
        file = form["file"]
        assert form["purpose"] == "batch"
        assert isinstance(file, web.FileField)
        name = f"file-{len(self.files)}"
        self.files[name] = file.file.read()
        return web.json_response({"id": name, "object": "file", "purpose": "batch"})

    async def content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]])

    async def openai_create(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["completion_window"] == "24h"
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert {line["url"] for line in lines} == {body["endpoint"]} == {"/v1/chat/completions"}
        assert {line["method"] for line in lines} == {"POST"}
        items = [(line["custom_id"], line["body"]) for line in lines]
        job = self._add_job("batch_", items, body["metadata"]["name"])
        return await self._respond(request, job, self._format_openai_batch(job))

    async def openai_list(self, request: web.Request) -> web.Response:
        page, has_more = self._page_after(request.query.get("after"))
        return web.json_response(
            {"data": [self._format_openai_batch(job) for job in page], "has_more": has_more}
        )

    def _page_after(self, after: str | None) -> tuple[list[Job], bool]:
        # Two batches on a page, newest first, and whether there are more.
        newest_jobs = self.jobs[::-1]
        start = 1 + next((i for i, job in enumerate(newest_jobs) if job.id == after), -1)
        return newest_jobs[start : start + 2], start + 2 < len(newest_jobs)

    async def openai_look(self, request: web.Request) -> web.Response:
        job = self._find_job(request)
        if job is None:
            return _not_found_response()
        if await self._has_ended(job, request, self._chat) and f"out-{job.id}" not in self.files:
            succeeded_lines = [
                self._format_openai_line(*result)
                for result in job.results or ()
                if result[1] == "succeeded"
            ]
            other_lines = [
                self._format_openai_line(*result)
                for result in job.results or ()
                if result[1] != "succeeded"
            ]
            self.files[f"out-{job.id}"] = _format_json_lines(succeeded_lines[::-1])
            self.files[f"err-{job.id}"] = _format_json_lines(other_lines)
        return web.json_response(self._format_openai_batch(job))

    def _format_openai_batch(self, job: Job) -> dict[str, Any]:
        is_failed = self._has_failed(job)
        is_ended = job.results is not None
        state = "completed" if is_ended else "in_progress" if job.looks else "validating"
        for status, job_numbers in (("expired", self.plan.expire), ("cancelled", self.plan.cancel)):
            state = status if is_ended and job.number in job_numbers else state
        errors = [{"code": self.plan.fail, "message": "no more tokens", "line": None}]
        return {
            "id": job.id,
            "object": "batch",
            "status": "failed" if is_failed else state,
            "errors": {"object": "list", "data": errors} if is_failed else None,
            "created_at": int(job.created_at),
            "in_progress_at": None
            if is_failed and not self.plan.processed
            else int(job.created_at),
            "metadata": {"name": job.name},
            "output_file_id": f"out-{job.id}" if is_ended and not is_failed else None,
            "error_file_id": f"err-{job.id}" if is_ended and not is_failed else None,
            "request_counts": {
                "total": len(job.items),
                "completed": self.plan.processed if is_failed else 0,
                "failed": 0,
            },
        }

    def _format_openai_line(self, key: str, outcome: str, answer: Any) -> dict[str, Any]:
        if outcome in ("expired", "canceled"):
            code = {"expired": "batch_expired", "canceled": "batch_cancelled"}[outcome]
            return {"custom_id": key, "response": None, "error": {"code": code, "message": outcome}}
        status, body = answer
        response = {"status_code": status, "request_id": f"req_{key[:6]}", "body": body}
        return {"id": f"batch_req_{key[:6]}", "custom_id": key, "response": response, "error": None}

    # Anthropic

    async def anthropic_create(self, request: web.Request) -> web.Response:
        if not self.plan.interface:
            return _not_found_response()
        body = await request.json()
        items = [(item["custom_id"], item["params"]) for item in body["requests"]]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", key) for key, _ in items)
        job = self._add_job("msgbatch_", items)
        return await self._respond(request, job, self._format_message_batch(job))

    async def anthropic_list(self, request: web.Request) -> web.Response:
        page, has_more = self._page_after(request.query.get("after_id"))
        return web.json_response(
            {"data": [self._format_message_batch(job) for job in page], "has_more": has_more}
        )

    async def anthropic_look(self, request: web.Request) -> web.Response:
        job = self._find_job(request)
        if job is None:
            return _not_found_response()
        await self._has_ended(job, request, self._anthropic)
        return web.json_response(self._format_message_batch(job))

    async def anthropic_results(self, request: web.Request) -> web.Response:
        job = self._find_job(request)
        assert job is not None and job.results is not None
        lines = []
        for key, outcome, answer in job.results[::-1]:
            result: dict[str, Any] = {"type": outcome}
            if outcome == "succeeded":
                result["message"] = answer[1]
            elif outcome == "errored":
                kind = {400: "invalid_request_error", 429: "rate_limit_error"}
                error = {**answer[1]["error"], "type": kind.get(answer[0], "api_error")}
                result["error"] = {"type": "error", "error": error}
            lines.append({"custom_id": key, "result": result})
        return web.Response(body=_format_json_lines(lines))

    def _format_message_batch(self, job: Job) -> dict[str, Any]:
        is_ended = job.results is not None
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if not is_ended:
            counts["processing"] = len(job.items)
        for _, outcome, _ in job.results or ():
            counts[outcome] += 1
        is_cancelled = is_ended and job.number in self.plan.cancel
        return {
            "id": job.id,
            "type": "message_batch",
            "processing_status": "ended" if is_ended else "in_progress",
            "request_counts": counts,
            "created_at": _format_time(job.created_at),
            "expires_at": _format_time(job.created_at + 86400),
            "cancel_initiated_at": _format_time(job.created_at) if is_cancelled else None,
            "results_url": f"/v1/messages/batches/{job.id}/results" if is_ended else None,
        }

    # Gemini

    async def gemini_create(self, request: web.Request, model: str) -> web.Response:
        if not self.plan.interface:
            return _not_found_response()
        batch = (await request.json())["batch"]
        requests = batch["inputConfig"]["requests"]["requests"]
        items = [(item["metadata"]["key"], item["request"]) for item in requests]
        job = self._add_job("batches/", items, batch["displayName"], model)
        return await self._respond(request, job, self._format_operation(job))

    async def gemini_list(self, request: web.Request) -> web.Response:
        """List batches, one on a page."""
        start = int(request.query.get("pageToken", "0"))
        page = {"operations": [self._format_operation(job) for job in self.jobs[start : start + 1]]}
        next_page = {"nextPageToken": str(start + 1)} if start + 1 < len(self.jobs) else {}
        return web.json_response({**page, **next_page})

    async def gemini_look(self, request: web.Request) -> web.Response:
        job = self._find_job(request)
        if job is None:
            return _not_found_response()
        await self._has_ended(job, request, self._gemini)
        return web.json_response(self._format_operation(job))

    def _format_operation(self, job: Job) -> dict[str, Any]:
        is_ended, state = job.results is not None, "BATCH_STATE_RUNNING"
        if is_ended:
            is_cancelled = job.number in self.plan.cancel
            state = "BATCH_STATE_CANCELLED" if is_cancelled else "BATCH_STATE_SUCCEEDED"
        if self._has_failed(job):
            state = "BATCH_STATE_FAILED"
        operation: dict[str, Any] = {
            "name": job.id,
            "metadata": {"state": state, "displayName": job.name},
            "done": is_ended or self._has_failed(job),
        }
        if self._has_failed(job):
            operation["error"] = {"code": 3, "message": self.plan.fail}
            # Gemini sends counts as text and leaves out zeros.
            counts = {"requestCount": len(job.items), "successfulRequestCount": self.plan.processed}
            stats = {name: str(count) for name, count in counts.items() if count}
            operation["metadata"]["batchStats"] = stats
        elif is_ended:
            rows = []
            for key, outcome, answer in job.results or ():
                codes = {400: 3, 429: 8, 500: 13}
                row: dict[str, Any] = {"metadata": {"key": key}}
                if outcome == "succeeded":
                    row["response"] = answer[1]
                elif outcome == "errored":
                    message = answer[1]["error"]["message"]
                    row["error"] = {"code": codes.get(answer[0], 13), "message": message}
                else:
                    row["error"] = {"code": 4 if outcome == "expired" else 1, "message": outcome}
                rows.append(row)
            operation["response"] = {"inlinedResponses": {"inlinedResponses": rows}}
        return operation

    # All three

    def _add_job(
        self, prefix: str, items: list[tuple[str, dict[str, Any]]], name: str = "", model: str = ""
    ) -> Job:
        assert len({key for key, _ in items}) == len(items) > 0
        job = Job(f"{prefix}{len(self.jobs)}", len(self.jobs), items, name, model)
        self.jobs.append(job)
        return job

    async def _respond(self, request: web.Request, job: Job, body: Any) -> web.Response:
        if self.plan.reject:
            self.jobs.remove(job)
            body = {"error": {"message": "Invalid batch", "code": "invalid_request_error"}}
            return web.json_response(body, status=self.plan.reject)
        if job.number in self.plan.swallow:
            assert request.transport is not None
            request.transport.abort()
        if self.plan.stall:
            await asyncio.Event().wait()
        return web.json_response(body)

    def _find_job(self, request: web.Request) -> Job | None:
        job_id = request.match_info["id"]
        return next((job for job in self.jobs if job.id in (job_id, f"batches/{job_id}")), None)

    def _has_failed(self, job: Job) -> bool:
        return bool(self.plan.fail) and len(job.items) > self.plan.most_calls and job.looks > 0

    async def _has_ended(self, job: Job, request: web.Request, answer: Handler) -> bool:
        """Return whether a batch has ended. Its requests are answered when it ends."""
        job.looks += 1
        if self.plan.hold or job.looks <= self.plan.looks or self._has_failed(job):
            return False
        if job.results is None:
            job.results = [
                (key, *await self._answer_item(job, i, body, request, answer))
                for i, (key, body) in enumerate(job.items)
            ][job.number in self.plan.omit :]
        return True

    async def _answer_item(
        self, job: Job, index: int, body: dict[str, Any], request: web.Request, answer: Handler
    ) -> tuple[str, Any]:
        if job.number in self.plan.expire and index % 2:
            return "expired", None
        if job.number in self.plan.cancel and index % 2:
            return "canceled", None
        if job.number in self.plan.errors and index == 0:
            return "errored", (500, {"error": {"message": "it went wrong", "code": 500}})
        response = await answer(
            InternalRequest(body, request.headers, f"{job.model}:generateContent")
        )
        assert isinstance(response, web.Response) and isinstance(response.body, bytes)
        result = response.status, json.loads(response.body)
        return ("succeeded" if response.status == 200 else "errored"), result


def _format_json_lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _not_found_response() -> web.Response:
    return web.json_response({"error": {"message": "Not Found", "code": "not_found"}}, status=404)
