"""Measure the CPU time per call over HTTP, and that of plain aiohttp with the same requests.

Both run in this process in turns, so that other load on the machine affects both.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import aiohttp

import folkmoot
from benchmarks.small_study import STUDY, question, speaker
from tests.servers.process import ServerProcess

MODEL = "test-model"
LATENCY = 0.02


def run(participants: int = 400, turns: int = 10, concurrency: int = 64) -> dict[str, float]:
    """Return the CPU microseconds per call of the engine and of aiohttp, medians of five turns."""
    engine: list[float] = []
    plain: list[float] = []
    with ServerProcess(latency=LATENCY) as server, tempfile.TemporaryDirectory() as folder:
        _engine(server.openai, Path(folder) / "warm", 20, 2, concurrency)
        plain_run(server.openai, 20, 2, concurrency)
        for i in range(5):
            plain.append(plain_run(server.openai, participants, turns, concurrency))
            out = Path(folder) / str(i)
            engine.append(_engine(server.openai, out, participants, turns, concurrency))
    ours, theirs = statistics.median(engine), statistics.median(plain)
    return {
        "calls": participants * turns,
        "engine_us": ours,
        "plain_us": theirs,
        "ratio": statistics.median(e / p for e, p in zip(engine, plain, strict=True)),
    }


def _engine(url: str, out: Path, participants: int, turns: int, concurrency: int) -> float:
    settings = {
        "participants": participants,
        "turns": turns,
        "choose": False,
        "concurrency": concurrency,
        "model": f"openai/{MODEL}",
        "endpoints": {f"openai/{MODEL}": url},
    }
    began = time.process_time()
    folkmoot.run(STUDY, settings, out=out)
    return (time.process_time() - began) / (participants * turns) * 1e6


def plain_run(url: str, participants: int, turns: int, concurrency: int) -> float:
    """CPU microseconds per call of what anybody would write: one session, a semaphore,
    JSON in and out."""

    async def main() -> None:
        gate = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def talk(n: int) -> list[str]:
                said = []
                for turn in range(turns):
                    messages = [
                        {"role": "system", "content": speaker(n).system},
                        {"role": "user", "content": question(turn)},
                    ]
                    body = {"model": MODEL, "messages": messages}
                    async with gate, session.post(f"{url}/chat/completions", json=body) as reply:
                        data = json.loads(await reply.read())
                        said.append(data["choices"][0]["message"]["content"])
                return said

            await asyncio.gather(*(talk(n) for n in range(participants)))

    began = time.process_time()
    asyncio.run(main())
    return (time.process_time() - began) / (participants * turns) * 1e6
