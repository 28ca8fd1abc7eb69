"""Measure how many humans one process can serve: scripted clients answer a whole study.

    python -m benchmarks.seats [PEOPLE]

Each client opens the link, agrees, and answers at once. A waiting client asks each second for news,
as the page does. Prints the times of pages and of answers (until they are on disk), and the memory.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import aiohttp
import psutil

STUDY = """
study: cross_pollination
pilot_id: seats
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: {share}
conditions: [simple_voting, clarified_passive]
max_clarification_exchanges: 2
personas: {{source: quota}}
seats: {people}
"""
POLL_SECONDS = 1.0  # as in seat.js
SHOWS, QUESTION = re.compile(r'data-shows="(\w*)"'), re.compile(r'name="question" value="(\w+)"')


async def person(
    session: aiohttp.ClientSession, link: str, option: str, took: dict[str, list[float]]
) -> None:
    """Play one human from the link to the end, who always chooses the same option."""
    while True:
        began = time.perf_counter()
        async with session.get(link) as reply:
            page = await reply.text()
        took["page"].append(time.perf_counter() - began)
        shows = SHOWS.search(page)
        assert shows is not None, page
        if shows[1] == "end":
            return
        if shows[1] == "welcome":
            await session.post(f"{link}/agree", allow_redirects=False)
        elif asked := QUESTION.search(page):
            words = (
                option
                if 'type="radio" name="a"' in page
                else "Children could walk to school alone."
            )
            began = time.perf_counter()
            sent = {"question": asked[1], "a": words}
            async with session.post(f"{link}/answer", data=sent, allow_redirects=False) as reply:
                assert reply.status == 303, await reply.text()
            took["answer"].append(time.perf_counter() - began)
        else:
            await wait_for_news(session, link, shows[1])


async def wait_for_news(session: aiohttp.ClientSession, link: str, shows: str) -> None:
    """Ask for news as a page does, until it would show something else."""
    tag, news = "", shows
    while news == shows:
        async with session.get(f"{link}/news", headers={"If-None-Match": tag}) as reply:
            if reply.status == 200:
                tag, news = reply.headers["ETag"], (await reply.json())["shows"]
        if news == shows:
            await asyncio.sleep(POLL_SECONDS)


async def sit(links: list[str]) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {"page": [], "answer": []}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(
            *(person(session, link, str(n % 2), took) for n, link in enumerate(links))
        )
    return took


def main(people: int = 200) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "seats.yaml"
        study.write_text(STUDY.format(share=people // 2, people=people), "utf-8")
        command = [sys.executable, "-m", "folkmoot", "run", str(study), "--model", "synthetic"]
        run = subprocess.Popen(
            [*command, "--out", f"{folder}/run"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert run.stderr is not None
        links = []
        for line in run.stderr:
            if line.startswith("All seats"):
                break
            if line.startswith("Seat "):
                links.append(line.split(": ", 1)[1].strip())
        threading.Thread(target=run.stderr.read, daemon=True).start()
        most = 0

        def watch() -> None:
            nonlocal most
            process = psutil.Process(run.pid)
            while run.poll() is None:
                try:
                    most = max(most, process.memory_info().rss)
                except psutil.Error:
                    return
                time.sleep(0.2)

        threading.Thread(target=watch, daemon=True).start()
        began = time.perf_counter()
        took = asyncio.run(sit(links))
        seconds = time.perf_counter() - began
        run.wait()
        for what, times in took.items():
            times.sort()
            half, most_of = times[len(times) // 2], times[int(len(times) * 0.95)]
            print(
                f"{what}: {len(times):,}, median {half * 1000:.0f} ms, 95 % below "
                f"{most_of * 1000:.0f} ms, longest {times[-1] * 1000:.0f} ms"
            )
        print(f"{people} people, {seconds:.0f} s, {most / 1e6:.0f} MB, exit {run.returncode}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
