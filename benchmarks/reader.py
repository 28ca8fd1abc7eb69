"""Measure `folkmoot view` over a run: the slowest kind of page, and the memory."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil

TURNS = 5


def run(folder: str) -> dict[str, float]:
    """Serve the run in `folder`, read its pages, and measure the slowest kind of page.

    Returns the seconds to the first and to the last byte (medians without the very first turn) and
    the memory of the server in MB.
    """
    words = (sys.executable, "-m", "folkmoot", "view", folder, "--port", "0")
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        told = re.search(r"http://\S+", server.stdout.readline())
        assert told is not None
        port = urlsplit(told[0]).port
        assert port is not None
        firsts, pages = [], []
        for path in _paths(port, Path(folder).name):
            turns = sorted(_get(port, path)[:2] for _ in range(TURNS + 1))
            first, whole = turns[len(turns) // 2]
            firsts.append(first)
            pages.append(whole)
        memory = psutil.Process(server.pid).memory_info().rss / 2**20
        return {"first_s": max(firsts), "page_s": max(pages), "server_mb": memory}
    finally:
        server.terminate()
        server.wait()


def _paths(port: int, name: str) -> Iterator[str]:
    base = f"/run/{quote(name)}/-"
    yield f"{base}/"
    people = _get(port, f"{base}/people")[2]
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+)"', people)]
    yield f"{base}/people?q={quote('acp safety')}"
    yield f"{base}/people?sort=-demographic_age&start=5000"
    yield from [link for link in links if "/person?" in link][50:52]
    while "of the run is indexed" in _get(port, f"{base}/search?q=park")[2]:
        time.sleep(1)
    yield f"{base}/search?q=park"
    yield f"{base}/search?q={quote('neighbours together')}"


def _get(port: int, path: str) -> tuple[float, float, str]:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    start = time.perf_counter()
    asked.request("GET", path)
    got = asked.getresponse()
    first = time.perf_counter() - start
    text = got.read().decode()
    whole = time.perf_counter() - start
    asked.close()
    assert got.status == 200, (path, got.status)
    return first, whole, text
