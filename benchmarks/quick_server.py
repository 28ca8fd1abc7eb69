"""A server that uses little CPU time, so that a benchmark measures the client.

It supports only the parts of HTTP and of OpenAI's API that the benchmarks need. Each request is
answered after a fixed latency. The embedded respondent answers new requests, and repeated ones are
answered from memory. `GET /latency/0.1` sets the latency. `start()` runs it in a separate process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tests.servers.answers import RespondentAnswers, calculate_digest

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


class Answers:
    """Map the body of a request to the bytes of the whole response."""

    def __init__(self) -> None:
        self.latency = 0.0
        self.thinking: RespondentAnswers | None = None
        self.known: dict[bytes, bytes] = {}

    async def think(self, body: bytes) -> bytes:
        if self.thinking is None:
            self.thinking = RespondentAnswers()
        asked = json.loads(body)
        schema = asked.get("response_format", {}).get("json_schema", {}).get("schema")
        text = await self.thinking.answer(asked["messages"], schema, calculate_digest(asked))
        message = {"role": "assistant", "content": text}
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": len(body) // 4, "completion_tokens": len(text) // 4},
        }
        data = json.dumps(answer).encode()
        self.known[body] = HEAD % (len(data), data)
        return self.known[body]


class Connection(asyncio.Protocol):
    """One connection, with one request at a time, as HTTP/1.1 clients send them."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._received = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        if head.startswith(b"GET /latency/"):
            self._answers.latency = float(head.split(b" ", 2)[1].rpartition(b"/")[2])
            self._received = b""
            self._transport.write(HEAD % (2, b"{}"))
            return
        at = head.lower().index(b"content-length:") + 15
        length = int(head[at : at + 12].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._received = b""
        known = self._answers.known.get(body)
        if known is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(self._answers.latency, self._transport.write, known)
        else:
            task = asyncio.ensure_future(self._new(body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _new(self, body: bytes) -> None:
        self._transport.write(await self._answers.think(body))


class QuickServer:
    """A running server: its base URL, and its latency."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.openai = f"{url}/v1"

    def set_latency(self, seconds: float) -> None:
        urllib.request.urlopen(f"{self.url}/latency/{seconds}", timeout=10).read(2)


@contextlib.contextmanager
def start() -> Iterator[QuickServer]:
    """Start a server in a separate process, and stop it at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.quick_server"],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield QuickServer(process.stdout.readline().strip())
    finally:
        process.terminate()
        process.wait(10)


async def _serve() -> None:
    answers = Answers()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
