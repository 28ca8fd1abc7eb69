"""The model server in a separate process, for tests and benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.default_signals import add_default_signals
from tests.servers.faults import FaultPlan

ROOT = Path(__file__).parents[2]


class ServerProcess:
    """Start a model server, read its URL, and stop it at exit. Use as a context manager."""

    def __init__(
        self, plan: FaultPlan | None = None, *, latency: float = 0.0, answers: str = "hash"
    ) -> None:
        args = ["--latency", str(latency), "--answers", answers, *(plan or FaultPlan()).to_args()]
        self._process = subprocess.Popen(
            add_default_signals(sys.executable, "-m", "tests.servers.model_server", *args),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the model server did not start")
        self.url: str = json.loads(line)["url"]

    @property
    def openai(self) -> str:
        """Base URL for the OpenAI format."""
        return f"{self.url}/v1"

    def stats(self) -> dict[str, int]:
        counts: dict[str, int] = self._get("/stats")
        return counts

    def log(self) -> list[str]:
        """Return the digests of all answered requests, in order."""
        digests: list[str] = self._get("/log")
        return digests

    def change(self, **plan: Any) -> None:
        """Change parts of the fault plan of the running server, or its `latency`."""
        data = json.dumps(plan).encode()
        request = urllib.request.Request(f"{self.url}/plan", data=data)
        urllib.request.urlopen(request, timeout=10).close()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)
