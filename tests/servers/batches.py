"""The vendors' batch interfaces at the model server, with their states, delays, limits and faults.

OpenAI: POST /v1/files, POST and GET /v1/batches, GET /v1/files/ID/content; Anthropic: POST and GET
/v1/messages/batches and …/ID/results; Gemini: POST …:batchGenerateContent, GET /v1beta/batches.
As their documentation has it (the addresses stand in `folkmoot/models/wire/batches.py`).
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
    """What goes wrong, and how long a batch takes. Numbers in sets count batches from 0."""

    looks: int = 1  # times that somebody asks before a batch is over
    expire: frozenset[int] = frozenset()  # batches of which every second request expires
    cancel: frozenset[int] = frozenset()  # batches that somebody cancels by hand
    fail: str = ""  # error code with which batches of more than `most_calls` calls fail
    most_calls: int = 50_000
    processed: int = 0  # requests that a batch had processed before it failed
    upload: int = 0  # the HTTP status with which every file is refused
    swallow: frozenset[int] = frozenset()  # taken, but the connection is dropped before the answer
    errors: frozenset[int] = frozenset()  # batches whose first request ends in an error
    stall: bool = False  # taken, but never answered
    hold: bool = False  # nothing is over until the plan is another one
    interface: bool = True  # 404 without
    reject: int = 0  # the HTTP status with which every batch that is handed in is refused


@dataclass
class Job:
    """One batch: its items as (key, body), and how often it was looked at."""

    id: str
    number: int
    items: list[tuple[str, dict[str, Any]]]
    name: str = ""
    model: str = ""
    made: float = field(default_factory=time.time)
    looks: int = 0
    results: list[tuple[str, str, Any]] | None = None  # key, how it ended, status and body


class Inside:
    """A request that a batch makes of the server itself."""

    def __init__(self, body: dict[str, Any], headers: Any, call: str = "") -> None:
        self.headers = headers
        self.match_info = {"call": call}
        self.transport = None
        self._body = body

    async def json(self) -> dict[str, Any]:
        return self._body


class BatchDesk:
    """The three interfaces over one list of jobs; `answers` are the handlers of single calls."""

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
        """All requests of all batches."""
        return sum(len(job.items) for job in self.jobs)

    # OpenAI

    async def upload(self, request: web.Request) -> web.Response:
        if not self.plan.interface:
            return _missing()
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
        asked = await request.json()
        assert asked["completion_window"] == "24h"
        lines = [json.loads(line) for line in self.files[asked["input_file_id"]].splitlines()]
        assert {line["url"] for line in lines} == {asked["endpoint"]} == {"/v1/chat/completions"}
        assert {line["method"] for line in lines} == {"POST"}
        items = [(line["custom_id"], line["body"]) for line in lines]
        job = self._made("batch_", items, asked["metadata"]["name"])
        return await self._answered(request, job, self._openai(job))

    async def openai_list(self, request: web.Request) -> web.Response:
        """Newest first, a page of two."""
        listed = self.jobs[::-1]
        after = request.query.get("after")
        start = 1 + next((i for i, j in enumerate(listed) if j.id == after), -1)
        page = listed[start : start + 2]
        more = start + 2 < len(listed)
        return web.json_response({"data": [self._openai(j) for j in page], "has_more": more})

    async def openai_look(self, request: web.Request) -> web.Response:
        job = self._job(request)
        if job is None:
            return _missing()
        if await self._over(job, request, self._chat) and f"out-{job.id}" not in self.files:
            good = [self._openai_line(*r) for r in job.results or () if r[1] == "succeeded"]
            bad = [self._openai_line(*r) for r in job.results or () if r[1] != "succeeded"]
            self.files[f"out-{job.id}"] = _lines(good[::-1])
            self.files[f"err-{job.id}"] = _lines(bad)
        return web.json_response(self._openai(job))

    def _openai(self, job: Job) -> dict[str, Any]:
        failed = self._failed(job)
        over = job.results is not None
        state = "completed" if over else "in_progress" if job.looks else "validating"
        for word, numbers in (("expired", self.plan.expire), ("cancelled", self.plan.cancel)):
            state = word if over and job.number in numbers else state
        errors = [{"code": self.plan.fail, "message": "no more tokens", "line": None}]
        return {
            "id": job.id,
            "object": "batch",
            "status": "failed" if failed else state,
            "errors": {"object": "list", "data": errors} if failed else None,
            "created_at": int(job.made),
            "in_progress_at": None if failed and not self.plan.processed else int(job.made),
            "metadata": {"name": job.name},
            "output_file_id": f"out-{job.id}" if over and not failed else None,
            "error_file_id": f"err-{job.id}" if over and not failed else None,
            "request_counts": {
                "total": len(job.items),
                "completed": self.plan.processed if failed else 0,
                "failed": 0,
            },
        }

    def _openai_line(self, key: str, how: str, answer: Any) -> dict[str, Any]:
        if how in ("expired", "canceled"):
            code = {"expired": "batch_expired", "canceled": "batch_cancelled"}[how]
            return {"custom_id": key, "response": None, "error": {"code": code, "message": how}}
        status, body = answer
        response = {"status_code": status, "request_id": f"req_{key[:6]}", "body": body}
        return {"id": f"batch_req_{key[:6]}", "custom_id": key, "response": response, "error": None}

    # Anthropic

    async def anthropic_create(self, request: web.Request) -> web.Response:
        if not self.plan.interface:
            return _missing()
        asked = await request.json()
        items = [(r["custom_id"], r["params"]) for r in asked["requests"]]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", key) for key, _ in items)
        job = self._made("msgbatch_", items)
        return await self._answered(request, job, self._message_batch(job))

    async def anthropic_list(self, request: web.Request) -> web.Response:
        data = [self._message_batch(job) for job in self.jobs[::-1]]
        return web.json_response({"data": data, "has_more": False})

    async def anthropic_look(self, request: web.Request) -> web.Response:
        job = self._job(request)
        if job is None:
            return _missing()
        await self._over(job, request, self._anthropic)
        return web.json_response(self._message_batch(job))

    async def anthropic_results(self, request: web.Request) -> web.Response:
        job = self._job(request)
        assert job is not None and job.results is not None
        lines = []
        for key, how, answer in job.results[::-1]:
            result: dict[str, Any] = {"type": how}
            if how == "succeeded":
                result["message"] = answer[1]
            elif how == "errored":
                kind = {400: "invalid_request_error", 429: "rate_limit_error"}
                inner = {**answer[1]["error"], "type": kind.get(answer[0], "api_error")}
                result["error"] = {"type": "error", "error": inner}
            lines.append({"custom_id": key, "result": result})
        return web.Response(body=_lines(lines))

    def _message_batch(self, job: Job) -> dict[str, Any]:
        over = job.results is not None
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if not over:
            counts["processing"] = len(job.items)
        for _, how, _ in job.results or ():
            counts[how] += 1
        cancelled = over and job.number in self.plan.cancel
        return {
            "id": job.id,
            "type": "message_batch",
            "processing_status": "ended" if over else "in_progress",
            "request_counts": counts,
            "created_at": _time(job.made),
            "expires_at": _time(job.made + 86400),
            "cancel_initiated_at": _time(job.made) if cancelled else None,
            "results_url": f"/v1/messages/batches/{job.id}/results" if over else None,
        }

    # Gemini

    async def gemini_create(self, request: web.Request, model: str) -> web.Response:
        if not self.plan.interface:
            return _missing()
        asked = (await request.json())["batch"]
        requests = asked["inputConfig"]["requests"]["requests"]
        items = [(r["metadata"]["key"], r["request"]) for r in requests]
        job = self._made("batches/", items, asked["displayName"], model)
        return await self._answered(request, job, self._operation(job))

    async def gemini_list(self, request: web.Request) -> web.Response:
        """A page of one."""
        start = int(request.query.get("pageToken", "0"))
        page = {"operations": [self._operation(job) for job in self.jobs[start : start + 1]]}
        more = {"nextPageToken": str(start + 1)} if start + 1 < len(self.jobs) else {}
        return web.json_response({**page, **more})

    async def gemini_look(self, request: web.Request) -> web.Response:
        job = self._job(request)
        if job is None:
            return _missing()
        await self._over(job, request, self._gemini)
        return web.json_response(self._operation(job))

    def _operation(self, job: Job) -> dict[str, Any]:
        over, state = job.results is not None, "BATCH_STATE_RUNNING"
        if over:
            cancelled = job.number in self.plan.cancel
            state = "BATCH_STATE_CANCELLED" if cancelled else "BATCH_STATE_SUCCEEDED"
        if self._failed(job):
            state = "BATCH_STATE_FAILED"
        said: dict[str, Any] = {
            "name": job.id,
            "metadata": {"state": state, "displayName": job.name},
            "done": over or self._failed(job),
        }
        if self._failed(job):
            said["error"] = {"code": 3, "message": self.plan.fail}
            # As text, and without a count of zero.
            counts = {"requestCount": len(job.items), "successfulRequestCount": self.plan.processed}
            stats = {name: str(count) for name, count in counts.items() if count}
            said["metadata"]["batchStats"] = stats
        elif over:
            rows = []
            for key, how, answer in job.results or ():
                codes = {400: 3, 429: 8, 500: 13}
                row: dict[str, Any] = {"metadata": {"key": key}}
                if how == "succeeded":
                    row["response"] = answer[1]
                elif how == "errored":
                    message = answer[1]["error"]["message"]
                    row["error"] = {"code": codes.get(answer[0], 13), "message": message}
                else:
                    row["error"] = {"code": 4 if how == "expired" else 1, "message": how}
                rows.append(row)
            said["response"] = {"inlinedResponses": {"inlinedResponses": rows}}
        return said

    # All three

    def _made(
        self, prefix: str, items: list[tuple[str, dict[str, Any]]], name: str = "", model: str = ""
    ) -> Job:
        assert len({key for key, _ in items}) == len(items) > 0
        job = Job(f"{prefix}{len(self.jobs)}", len(self.jobs), items, name, model)
        self.jobs.append(job)
        return job

    async def _answered(self, request: web.Request, job: Job, said: Any) -> web.Response:
        if self.plan.reject:
            self.jobs.remove(job)
            said = {"error": {"message": "Invalid batch", "code": "invalid_request_error"}}
            return web.json_response(said, status=self.plan.reject)
        if job.number in self.plan.swallow:
            assert request.transport is not None
            request.transport.abort()
        if self.plan.stall:
            await asyncio.Event().wait()
        return web.json_response(said)

    def _job(self, request: web.Request) -> Job | None:
        wanted = request.match_info["id"]
        return next((j for j in self.jobs if j.id in (wanted, f"batches/{wanted}")), None)

    def _failed(self, job: Job) -> bool:
        return bool(self.plan.fail) and len(job.items) > self.plan.most_calls and job.looks > 0

    async def _over(self, job: Job, request: web.Request, answer: Handler) -> bool:
        """Whether a batch is over; its requests are answered the moment it is."""
        job.looks += 1
        if self.plan.hold or job.looks <= self.plan.looks or self._failed(job):
            return False
        if job.results is None:
            job.results = [
                (key, *await self._one(job, i, body, request, answer))
                for i, (key, body) in enumerate(job.items)
            ]
        return True

    async def _one(
        self, job: Job, index: int, body: dict[str, Any], request: web.Request, answer: Handler
    ) -> tuple[str, Any]:
        if job.number in self.plan.expire and index % 2:
            return "expired", None
        if job.number in self.plan.cancel and index % 2:
            return "canceled", None
        if job.number in self.plan.errors and index == 0:
            return "errored", (500, {"error": {"message": "it went wrong", "code": 500}})
        made = await answer(Inside(body, request.headers, f"{job.model}:generateContent"))
        assert isinstance(made, web.Response) and isinstance(made.body, bytes)
        said = made.status, json.loads(made.body)
        return ("succeeded" if made.status == 200 else "errored"), said


def _lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _missing() -> web.Response:
    return web.json_response({"error": {"message": "Not Found", "code": "not_found"}}, status=404)
