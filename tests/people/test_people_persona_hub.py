"""Reading, sampling and fetching of persona-hub files, broken and foreign lines included."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from folkmoot.errors import InputError
from folkmoot.people.sources.persona_hub import cache_path, fetch_file, is_english, sample_lines
from folkmoot.randomness import generator

FOREIGN = [
    "一位热爱登山的退休历史老师，经常在周末带学生去郊外远足。",
    "Una profesora jubilada que cuida su jardín y escribe cartas a sus antiguos alumnos.",
    "Пенсионер, который всю жизнь проработал на железной дороге и любит шахматы.",
    "Ein pensionierter Lehrer, der seit vielen Jahren einen kleinen Garten am Stadtrand pflegt.",
]
ENGLISH = [
    "a café owner in São Paulo who collects football shirts",
    "A naïve young baker from Kraków with a passion for pâté",
    "A retired school teacher who volunteers at the public library",
    "a Ukrainian coal miner",
]


def write(path: Path, lines: Sequence[str | bytes]) -> Path:
    path.write_bytes(b"\n".join(x.encode() if isinstance(x, str) else x for x in lines) + b"\n")
    return path


def persona(text: str) -> str:
    return json.dumps({"persona": text}, ensure_ascii=False)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    good = [persona(f"A teacher of subject number {i} in a small town") for i in range(60)]
    broken: list[str | bytes] = [
        "{not json",
        '{"persona": 7}',
        '["persona"]',
        '{"person": "x"}',
        '{"persona": "  "}',
        b'{"persona": "\xff\xfe"}',
    ]
    foreign = [persona(t) for t in FOREIGN]
    return write(tmp_path / "hub.jsonl", [*good[:30], *broken, "", *foreign, *good[30:], good[0]])


def test_broken_foreign_and_repeated_lines_are_counted_and_left_out(mixed: Path) -> None:
    lines, reading = sample_lines(mixed, 60, generator(1, ("hub",)))
    assert len(set(lines)) == 60
    assert all(line.startswith("A teacher") for line in lines)
    assert (reading.lines, reading.broken) == (71, 6)
    assert reading.first_broken == (31, 32, 33, 34, 35)
    assert reading.not_english + reading.repeated + len(lines) <= 65
    assert "6 broken and skipped (line 31, 32, 33, 34, 35, …)" in str(reading)


def test_too_few_usable_lines_says_how_many_there_are(mixed: Path) -> None:
    with pytest.raises(InputError, match="61 personas are needed, 60 are usable"):
        sample_lines(mixed, 61, generator(1, ("hub",)))


def test_language_not_alphabet_decides() -> None:
    assert [is_english(t) for t in ENGLISH] == [True] * len(ENGLISH)
    assert [is_english(t) for t in FOREIGN] == [False] * len(FOREIGN)


def test_same_seed_same_lines_and_excluded_ones_never_come(mixed: Path) -> None:
    first, _ = sample_lines(mixed, 20, generator(5, ("hub",)))
    again, _ = sample_lines(mixed, 20, generator(5, ("hub",)))
    other, _ = sample_lines(mixed, 20, generator(6, ("hub",)))
    assert first == again
    assert set(first) != set(other)
    rest, _ = sample_lines(mixed, 40, generator(5, ("hub",)), exclude={x.casefold() for x in first})
    assert not set(first) & set(rest)


def test_every_line_is_as_likely(tmp_path: Path) -> None:
    path = write(tmp_path / "h.jsonl", [persona(f"gardener number {i}") for i in range(10)])
    seen = Counter[str]()
    for seed in range(800):
        lines, _ = sample_lines(path, 3, generator(seed, ("hub",)), english_only=False)
        seen.update(lines)
    assert len(seen) == 10
    for count in seen.values():
        assert abs(count - 240) < 5 * (800 * 0.3 * 0.7) ** 0.5


def test_mending_a_broken_line_moves_no_other(tmp_path: Path) -> None:
    lines = [persona(f"A nurse on ward number {i}") for i in range(50)]
    whole, _ = sample_lines(write(tmp_path / "a.jsonl", lines), 10, generator(3, ("h",)))
    lines[49] = "{broken"
    cut, _ = sample_lines(write(tmp_path / "b.jsonl", lines), 10, generator(3, ("h",)))
    kept = [x for x in whole if not x.endswith(" 49")]
    assert cut[: len(kept)] == kept


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        sample_lines(tmp_path / "nowhere.jsonl", 1, generator(1, ()))


class Hub:
    """A loopback server of one file that can be told to break off."""

    def __init__(self) -> None:
        self.hits = 0
        self.status = 200
        self.cut = False
        self.body = (persona("A farmer who likes chess") + "\n").encode() * 5000

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.hits += 1
        if self.status != 200:
            return web.Response(status=self.status)
        response = web.StreamResponse(headers={"Content-Length": str(len(self.body))})
        await response.prepare(request)
        await response.write(self.body[: len(self.body) // 2])
        if self.cut:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(self.body[len(self.body) // 2 :])
        return response


@pytest.fixture
async def hub() -> AsyncIterator[tuple[Hub, str]]:
    server = Hub()
    app = web.Application()
    app.router.add_get("/persona.jsonl", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield server, f"http://127.0.0.1:{port}/persona.jsonl"
    await runner.cleanup()


async def test_fetch_reports_progress_and_caches(hub: tuple[Hub, str], tmp_path: Path) -> None:
    server, url = hub
    seen: list[tuple[int, int | None]] = []
    path = await fetch_file(url, cache_dir=tmp_path, progress=lambda a, b: seen.append((a, b)))
    assert path.read_bytes() == server.body
    assert seen[-1] == (len(server.body), len(server.body))
    assert [a for a, _ in seen] == sorted(a for a, _ in seen)
    assert await fetch_file(url, cache_dir=tmp_path) == path
    assert server.hits == 1
    await fetch_file(url, cache_dir=tmp_path, refresh=True)
    assert server.hits == 2


@pytest.mark.parametrize("fault", ["cut", "404"])
async def test_a_failed_fetch_leaves_nothing_and_says_the_ways_out(
    hub: tuple[Hub, str], tmp_path: Path, fault: str
) -> None:
    server, url = hub
    server.cut, server.status = fault == "cut", 404 if fault == "404" else 200
    with pytest.raises(InputError, match="quota"):
        await fetch_file(url, cache_dir=tmp_path)
    assert not cache_path(url, tmp_path).exists()
    assert list(tmp_path.iterdir()) == []


async def test_nobody_listening_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot download"):
        await fetch_file("http://127.0.0.1:9/x.jsonl", cache_dir=tmp_path)
