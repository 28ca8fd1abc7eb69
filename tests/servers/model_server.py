"""A local model server that speaks the three wire formats and misbehaves on request.

    python -m tests.servers.model_server --port 8765 --answers respondent --latency 0.1 \\
        --rate-limit 0.1 --server-error 0.05

Formats: /v1/chat/completions and /v1/embeddings (OpenAI), /v1/messages (Anthropic),
/v1beta/models/MODEL:generateContent and :batchEmbedContents (Gemini). GET /stats counts what
happened, GET /log lists every request that was answered, POST /plan changes the fault plan.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from aiohttp import web

from tests.servers.answers import HashAnswers, RespondentAnswers, calculate_digest, create_embedding
from tests.servers.batches import BatchEndpoints
from tests.servers.faults import FaultPlan

# The answer that a test prescribes for a conversation: `text`, `finish` (the vendor's word; None
# leaves it out), `error` (inside the answer), or `status` and `message` of a failure. If empty, the
# server answers by its plan.
Says = Callable[[list[dict[str, str]], dict[str, Any]], dict[str, Any]]


class ModelServer:
    """State of one server: its fault plan, its counts and its answered requests."""

    says: Says = staticmethod(lambda messages, body: {})
    # Runs between a request and its handler; a test may replace it.
    between: Any = staticmethod(lambda request, handler: handler(request))

    def __init__(self, plan: FaultPlan, latency: float, answers: str) -> None:
        self.plan = plan
        self.latency = latency
        self.answers = RespondentAnswers() if answers == "respondent" else HashAnswers()
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self._times: Counter[str] = Counter()
        self.answering = 0  # requests with a running handler
        self.authorizations: set[str] = set()  # the header of all requests so far
        self._in_flight = 0
        self.batches = BatchEndpoints(self.chat, self.anthropic, self.gemini)

    def app(self) -> web.Application:
        middlewares = [self._count_request, self._call_between]
        app = web.Application(client_max_size=64 * 2**20, middlewares=middlewares)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/embeddings", self.embeddings)
        app.router.add_post("/v1/messages", self.anthropic)
        app.router.add_post("/v1beta/models/{call}", self.gemini)
        self.batches.add_routes(app)
        app.router.add_get("/stats", self.show_stats)
        app.router.add_get("/log", self.show_log)
        app.router.add_post("/plan", self.change_plan)
        return app

    @web.middleware
    async def _count_request(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.answering += 1
        self.authorizations.add(request.headers.get("Authorization", ""))
        try:
            response: web.StreamResponse = await handler(request)
            return response
        finally:
            self.answering -= 1

    @web.middleware
    async def _call_between(self, request: web.Request, handler: Any) -> web.StreamResponse:
        response: web.StreamResponse = await self.between(request, handler)
        return response

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        fault_response = await self._apply_faults(request, body)
        if fault_response is not None:
            return fault_response
        response_format = body.get("response_format") or {}
        if response_format and (
            self.plan.schema == "none"
            or (self.plan.schema == "refuse" and response_format["type"] == "json_schema")
        ):
            self.counts["format_refused"] += 1
            return _error_response(
                400, "response_format of this type is not supported", "invalid_request"
            )
        if self.plan.no_temperature and "temperature" in body:
            return _error_response(
                400, "Unsupported value: temperature is not supported", "unsupported"
            )
        schema = (response_format.get("json_schema") or {}).get("schema")
        prescribed = self.says(body["messages"], body)
        if "status" in prescribed:
            return _error_response(
                prescribed["status"], prescribed["message"], "invalid_request_error"
            )
        text = await self._create_text(body["messages"], schema, body, prescribed)
        return self._answered(
            body,
            {
                "id": f"chatcmpl-{calculate_digest(body)}",
                "object": "chat.completion",
                "model": f"{body['model']}-served",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": text},
                        **_finish_field(prescribed, "finish_reason", "stop"),
                        **({"error": prescribed["error"]} if "error" in prescribed else {}),
                    }
                ],
                "usage": {
                    "prompt_tokens": sum(len(message["content"]) for message in body["messages"])
                    // 4,
                    "completion_tokens": max(1, len(text) // 4),
                },
            },
        )

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        fault_response = await self._apply_faults(request, body)
        if fault_response is not None:
            return fault_response
        texts = body["input"]
        self.counts["embedded_texts"] += len(texts)
        self.counts["largest_batch"] = max(self.counts["largest_batch"], len(texts))
        rows = [
            {"object": "embedding", "index": i, "embedding": create_embedding(text)}
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": sum(map(len, texts)) // 4}
        return self._answered(body, {"data": rows[::-1], "usage": usage, "model": body["model"]})

    async def anthropic(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        fault_response = await self._apply_faults(request, body)
        if fault_response is not None:
            return fault_response
        if "max_tokens" not in body:
            return _error_response(400, "max_tokens: Field required", "invalid_request_error")
        output_config = body.get("output_config") or {}
        if output_config and self.plan.schema in ("refuse", "none"):
            self.counts["format_refused"] += 1
            return _error_response(
                400, "output_config: Extra inputs are not permitted", "invalid_request"
            )
        messages = [
            {**message, "content": _read_content(message["content"])}
            for message in body["messages"]
        ]
        if body.get("system"):
            messages.insert(0, {"role": "system", "content": _read_content(body["system"])})
        schema = (output_config.get("format") or {}).get("schema")
        prescribed = self.says(messages, body)
        if "status" in prescribed:
            return _error_response(
                prescribed["status"], prescribed["message"], "invalid_request_error"
            )
        text = await self._create_text(messages, schema, body, prescribed)
        return self._answered(
            body,
            {
                "id": f"msg_{calculate_digest(body)}",
                "type": "message",
                "model": f"{body['model']}-served",
                "content": [{"type": "text", "text": text}],
                **_finish_field(prescribed, "stop_reason", "end_turn"),
                "usage": {"input_tokens": 10, "output_tokens": max(1, len(text) // 4)},
            },
        )

    async def gemini(self, request: web.Request) -> web.StreamResponse:
        model_name, _, kind = request.match_info["call"].partition(":")
        if kind == "batchGenerateContent":
            return await self.batches.gemini_create(request, model_name)
        body = await request.json()
        fault_response = await self._apply_faults(request, body)
        if fault_response is not None:
            return fault_response
        model, _, call = request.match_info["call"].partition(":")
        if call == "batchEmbedContents":
            texts = [
                embed_request["content"]["parts"][0]["text"] for embed_request in body["requests"]
            ]
            embeddings = [{"values": create_embedding(text)} for text in texts]
            usage = {"promptTokenCount": sum(map(len, texts)) // 4}
            return self._answered(body, {"embeddings": embeddings, "usageMetadata": usage})
        config = body.get("generationConfig") or {}
        if "responseJsonSchema" in config and self.plan.schema in ("refuse", "none"):
            self.counts["format_refused"] += 1
            return _error_response(400, "Unknown name responseJsonSchema", "INVALID_ARGUMENT")
        roles = {"user": "user", "model": "assistant"}
        messages = [
            {"role": roles[content["role"]], "content": content["parts"][0]["text"]}
            for content in body["contents"]
        ]
        system = body.get("systemInstruction")
        if system:
            messages.insert(0, {"role": "system", "content": system["parts"][0]["text"]})
        prescribed = self.says(messages, body)
        if "status" in prescribed:
            return _error_response(prescribed["status"], prescribed["message"], "INVALID_ARGUMENT")
        text = await self._create_text(messages, config.get("responseJsonSchema"), body, prescribed)
        return self._answered(
            body,
            {
                "candidates": [
                    {
                        "content": {"role": "model", "parts": [{"text": text}]},
                        **_finish_field(prescribed, "finishReason", "STOP"),
                    }
                ],
                "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5},
                "modelVersion": f"{model}-served",
                "responseId": calculate_digest(body),
            },
        )

    async def show_stats(self, _: web.Request) -> web.Response:
        return web.json_response(dict(self.counts))

    async def show_log(self, _: web.Request) -> web.Response:
        return web.json_response(self.log)

    async def change_plan(self, request: web.Request) -> web.Response:
        changes = await request.json()
        self.latency = changes.pop("latency", self.latency)
        self.plan = replace(self.plan, **changes)
        return web.json_response({})

    async def _apply_faults(self, request: web.Request, body: Any) -> web.StreamResponse | None:
        """Apply latency and faults before an answer. Return a response if a fault replaces it."""
        self.counts["received"] += 1
        self._in_flight += 1
        self.counts["most_in_flight"] = max(self.counts["most_in_flight"], self._in_flight)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
        finally:
            self._in_flight -= 1
        if self.plan.key is not None and self.plan.key not in _read_keys(request):
            self.counts["bad_key"] += 1
            return _error_response(401, "Incorrect API key provided", "invalid_api_key")
        if self.plan.quota_after is not None and self.counts["answered"] >= self.plan.quota_after:
            self.counts["quota"] += 1
            return _error_response(429, "You have no credit left", "insufficient_quota")
        while self.plan.hold_after is not None and len(self.log) >= self.plan.hold_after:
            await asyncio.sleep(0.005)
        digest = calculate_digest(body)
        self._times[digest] += 1
        fault = self.plan.fault(digest, self._times[digest])
        return await self._misbehave(fault, request) if fault else None

    async def _misbehave(self, fault: str, request: web.Request) -> web.StreamResponse | None:
        self.counts[fault] += 1
        if fault == "rate_limit":
            answer = _error_response(429, "Rate limit reached", "rate_limit_exceeded")
            answer.headers["Retry-After"] = f"{self.plan.retry_after:g}"
            return answer
        if fault == "server_error":
            return _error_response(
                self.plan.error_status, "The server had an error", "server_error"
            )
        if fault == "malformed":
            return web.Response(text='{"choices": [{"mess', content_type="application/json")
        if fault == "half":
            reply = web.StreamResponse(headers={"Content-Length": "4000"})
            reply.content_type = "application/json"
            await reply.prepare(request)
            await reply.write(b'{"choices": [{"message": {"role": "assistant", "content": "I wo')
            assert request.transport is not None
            request.transport.abort()
            return reply
        if fault == "drop":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        await asyncio.sleep(self.plan.stall_seconds)
        return web.Response(text="{}", content_type="application/json")

    async def _create_text(
        self, messages: list[dict[str, str]], schema: Any, body: Any, prescribed: dict[str, Any]
    ) -> str:
        if "text" in prescribed:
            return str(prescribed["text"])
        if self.plan.schema == "ignore":
            schema = None
        return await self.answers.answer(messages, schema, calculate_digest(body))

    def _answered(self, body: Any, data: Any) -> web.Response:
        self.counts["answered"] += 1
        if self.plan.usage != "full":
            for key in ("usage", "usageMetadata"):
                usage = data.pop(key, {})
                if self.plan.usage == "absurd":
                    data[key] = dict.fromkeys(usage, 2**63)
                if self.plan.usage == "input":
                    output_keys = ("completion_tokens", "output_tokens", "candidatesTokenCount")
                    data[key] = {
                        name: count for name, count in usage.items() if name not in output_keys
                    }
                if self.plan.usage == "apart" and usage:
                    data[key] = {**usage, "total_tokens": sum(usage.values()) + 50}
        self.log.append(calculate_digest(body))
        return web.json_response(data)


def _read_content(content: Any) -> str:
    """Return the text of a message in Anthropic's format, with or without blocks."""
    return (
        content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    )


def _finish_field(prescribed: dict[str, Any], field: str, default: str) -> dict[str, Any]:
    """Return the finish reason in the field of this format; None leaves the field out."""
    finish = prescribed.get("finish", default)
    return {} if finish is None else {field: finish}


def _read_keys(request: web.Request) -> set[str]:
    headers = request.headers
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return {bearer, headers.get("x-api-key", ""), headers.get("x-goog-api-key", "")}


def _error_response(status: int, message: str, code: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status)


def main(argv: list[str] | None = None) -> None:
    """Serve until killed. The first line printed is a JSON object with the base URL."""
    parser = argparse.ArgumentParser(description="A local model server that misbehaves on request")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--answers", choices=["hash", "respondent"], default="hash")
    for plan_field in fields(FaultPlan):
        flag = f"--{plan_field.name.replace('_', '-')}"
        if plan_field.name == "key" or isinstance(plan_field.default, str):
            parser.add_argument(flag, default=plan_field.default)
        elif plan_field.name == "no_temperature":
            parser.add_argument(flag, action="store_true")
        else:
            is_integer = plan_field.name in ("seed", "quota_after")
            parser.add_argument(flag, type=int if is_integer else float, default=plan_field.default)
    args = vars(parser.parse_args(argv))
    port, latency, answers = args.pop("port"), args.pop("latency"), args.pop("answers")
    server = ModelServer(FaultPlan(**args), latency, answers)
    asyncio.run(_serve_forever(server, port))


async def _serve_forever(server: ModelServer, port: int) -> None:
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
