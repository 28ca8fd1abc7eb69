"""The model server in a thread of the test process. It starts fast and can be inspected."""

from __future__ import annotations

import asyncio
import threading

from aiohttp import web

from tests.servers.faults import FaultPlan
from tests.servers.model_server import ModelServer
from tests.waiting import wait_until


class ServerThread:
    """A model server in a thread. `model` is the server itself; its plan may be replaced."""

    def __init__(self, plan: FaultPlan, latency: float = 0.0, answers: str = "hash") -> None:
        self.model = ModelServer(plan, latency, answers)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(10)
        self.url = f"http://127.0.0.1:{self._port}"
        self.openai = f"{self.url}/v1"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._runner = runner = web.AppRunner(
            self.model.app(), access_log=None, shutdown_timeout=0.05
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    def wait_until_quiet(self) -> None:
        """Wait until there are no connections and no running handlers, so that no request of an
        ended client can arrive later."""
        server = self._runner.server
        wait_until(
            lambda: not server.connections and not self.model.answering,
            lambda: f"{len(server.connections)} connections, {self.model.answering} answering",
        )

    def __enter__(self) -> ServerThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
