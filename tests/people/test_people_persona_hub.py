"""Reading, sampling and fetching of Persona Hub files, also with broken and foreign lines."""

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

FOREIGN_TEXTS = [
    "一位热爱登山的退休历史老师，经常在周末带学生去郊外远足。",
    "Una profesora jubilada que cuida su jardín y escribe cartas a sus antiguos alumnos.",
    "Пенсионер, который всю жизнь проработал на железной дороге и любит шахматы.",
    "Ein pensionierter Lehrer, der seit vielen Jahren einen kleinen Garten am Stadtrand pflegt.",
]
ENGLISH_TEXTS = [
    "a café owner in São Paulo who collects football shirts",
    "A naïve young baker from Kraków with a passion for pâté",
    "A retired school teacher who volunteers at the public library",
    "a Ukrainian coal miner",
]


def write_lines(path: Path, lines: Sequence[str | bytes]) -> Path:
    path.write_bytes(
        b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\n"
    )
    return path


def create_line(text: str) -> str:
    return json.dumps({"persona": text}, ensure_ascii=False)


@pytest.fixture
def mixed_file(tmp_path: Path) -> Path:
    good_lines = [
        create_line(f"A teacher of subject number {i} in a small town") for i in range(60)
    ]
    broken_lines: list[str | bytes] = [
        "{not json",
        '{"persona": 7}',
        '["persona"]',
        '{"person": "x"}',
        '{"persona": "  "}',
        b'{"persona": "\xff\xfe"}',
    ]
    foreign_lines = [create_line(text) for text in FOREIGN_TEXTS]
    return write_lines(
        tmp_path / "hub.jsonl",
        [*good_lines[:30], *broken_lines, "", *foreign_lines, *good_lines[30:], good_lines[0]],
    )


def test_broken_foreign_and_repeated_lines_are_counted_and_skipped(mixed_file: Path) -> None:
    lines, reading = sample_lines(mixed_file, 60, generator(1, ("hub",)))
    assert len(set(lines)) == 60
    assert all(line.startswith("A teacher") for line in lines)
    assert (reading.lines, reading.broken) == (71, 6)
    assert reading.first_broken == (31, 32, 33, 34, 35)
    assert reading.not_english + reading.repeated + len(lines) <= 65
    assert "6 broken and skipped (line 31, 32, 33, 34, 35, …)" in str(reading)


def test_too_few_usable_lines_are_reported_with_their_number(mixed_file: Path) -> None:
    with pytest.raises(InputError, match="61 personas are needed, 60 are usable"):
        sample_lines(mixed_file, 61, generator(1, ("hub",)))


def test_english_is_recognised_by_language_not_by_alphabet() -> None:
    assert [is_english(text) for text in ENGLISH_TEXTS] == [True] * len(ENGLISH_TEXTS)
    assert [is_english(text) for text in FOREIGN_TEXTS] == [False] * len(FOREIGN_TEXTS)


def test_equal_seeds_give_equal_lines_and_excluded_lines_are_never_drawn(mixed_file: Path) -> None:
    first, _ = sample_lines(mixed_file, 20, generator(5, ("hub",)))
    repeated, _ = sample_lines(mixed_file, 20, generator(5, ("hub",)))
    with_other_seed, _ = sample_lines(mixed_file, 20, generator(6, ("hub",)))
    assert first == repeated
    assert set(first) != set(with_other_seed)
    remaining_lines, _ = sample_lines(
        mixed_file, 40, generator(5, ("hub",)), exclude={line.casefold() for line in first}
    )
    assert not set(first) & set(remaining_lines)


def test_every_line_is_equally_likely(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "h.jsonl", [create_line(f"gardener number {i}") for i in range(10)]
    )
    line_counts = Counter[str]()
    for seed in range(800):
        lines, _ = sample_lines(path, 3, generator(seed, ("hub",)), english_only=False)
        line_counts.update(lines)
    assert len(line_counts) == 10
    for count in line_counts.values():
        assert abs(count - 240) < 5 * (800 * 0.3 * 0.7) ** 0.5


def test_a_broken_line_does_not_change_the_other_drawn_lines(tmp_path: Path) -> None:
    lines = [create_line(f"A nurse on ward number {i}") for i in range(50)]
    complete_sample, _ = sample_lines(
        write_lines(tmp_path / "a.jsonl", lines), 10, generator(3, ("h",))
    )
    lines[49] = "{broken"
    sample_with_broken_line, _ = sample_lines(
        write_lines(tmp_path / "b.jsonl", lines), 10, generator(3, ("h",))
    )
    remaining_lines = [line for line in complete_sample if not line.endswith(" 49")]
    assert sample_with_broken_line[: len(remaining_lines)] == remaining_lines


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        sample_lines(tmp_path / "nowhere.jsonl", 1, generator(1, ()))


class HubServer:
    """A loopback server of one file that can abort its response."""

    def __init__(self) -> None:
        self.hits = 0
        self.status = 200
        self.is_cut = False
        self.body = (create_line("A farmer who likes chess") + "\n").encode() * 5000

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.hits += 1
        if self.status != 200:
            return web.Response(status=self.status)
        response = web.StreamResponse(headers={"Content-Length": str(len(self.body))})
        await response.prepare(request)
        await response.write(self.body[: len(self.body) // 2])
        if self.is_cut:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(self.body[len(self.body) // 2 :])
        return response


@pytest.fixture
async def hub() -> AsyncIterator[tuple[HubServer, str]]:
    server = HubServer()
    app = web.Application()
    app.router.add_get("/persona.jsonl", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield server, f"http://127.0.0.1:{port}/persona.jsonl"
    await runner.cleanup()


async def test_fetch_reports_progress_and_caches(
    hub: tuple[HubServer, str], tmp_path: Path
) -> None:
    server, url = hub
    progress_reports: list[tuple[int, int | None]] = []
    path = await fetch_file(
        url,
        cache_dir=tmp_path,
        progress=lambda received, total: progress_reports.append((received, total)),
    )
    assert path.read_bytes() == server.body
    assert progress_reports[-1] == (len(server.body), len(server.body))
    assert [received for received, _ in progress_reports] == sorted(
        received for received, _ in progress_reports
    )
    assert await fetch_file(url, cache_dir=tmp_path) == path
    assert server.hits == 1
    await fetch_file(url, cache_dir=tmp_path, refresh=True)
    assert server.hits == 2


@pytest.mark.parametrize("fault", ["cut", "404"])
async def test_a_failed_fetch_leaves_no_file_and_names_alternatives(
    hub: tuple[HubServer, str], tmp_path: Path, fault: str
) -> None:
    server, url = hub
    server.is_cut, server.status = fault == "cut", 404 if fault == "404" else 200
    with pytest.raises(InputError, match="quota"):
        await fetch_file(url, cache_dir=tmp_path)
    assert not cache_path(url, tmp_path).exists()
    assert list(tmp_path.iterdir()) == []


async def test_a_refused_connection_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot download"):
        await fetch_file("http://127.0.0.1:9/x.jsonl", cache_dir=tmp_path)
