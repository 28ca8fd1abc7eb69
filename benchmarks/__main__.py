"""Measure, print the table, and write it into benchmarks/README.md.

python -m benchmarks            all but the longest ones (about half an hour)
python -m benchmarks --quick    without the longer ones (five minutes)
python -m benchmarks --long     100,000 participants and a million personas as well (two hours)
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import scale
from benchmarks.measure import alone

README = Path(__file__).with_name("README.md")
Row = tuple[str, str, str, str]
HEADER: Row = ("what", "measured", "target", "met")


def rows(quick: bool, long: bool) -> Iterator[Row]:
    """Yield one row per measurement, as soon as it is made."""
    engine = alone("benchmarks.engine_cost.run")
    yield _row(
        "engine cost of a call (journal, limiter, parsing, record), model in the process",
        f"{engine['cpu_us']:.0f} µs of CPU",
        "≤ 150 µs",
        engine["cpu_us"] <= 150,
    )
    http = alone("benchmarks.http_cost.run")
    yield _row(
        "CPU of a call over HTTP, over that of plain aiohttp doing the same",
        f"{http['ratio']:.2f} × ({http['engine_us']:.0f} against {http['plain_us']:.0f} µs)",
        "≤ 2 ×",
        http["ratio"] <= 2,
    )
    fresh = alone("benchmarks.fresh_run.run")
    yield _row(
        "a fresh `folkmoot run` of 300 personas, one question, 100 ms, 64 in flight, over a bare "
        "script of aiohttp and SQLite, start-up included",
        f"{fresh['ratio']:.2f} × ({fresh['folkmoot_s']:.2f} against {fresh['bare_s']:.2f} s)",
        "≤ 1.40 ×",
        fresh["ratio"] <= 1.40,
    )
    help_ = alone("benchmarks.fresh_run.help_seconds")
    yield _row("`folkmoot --help`", f"{help_['wall_s']:.2f} s", "< 0.3 s", help_["wall_s"] < 0.3)
    with tempfile.TemporaryDirectory() as folder:
        for concurrency, target in ((256, 1.20), (32, 1.08)):
            if quick and concurrency == 32:
                continue
            where = f"{folder}/http{concurrency}"
            yield _makespan(
                f"pilot of 1,200 over HTTP, 1 s, {concurrency} in flight",
                alone("benchmarks.pilot.pilot_makespan", folder=where, concurrency=concurrency),
                target,
            )
        for mixed, latency in ((False, 1.0), (True, 1.0), (True, 0.2)):
            where = f"{folder}/hall{mixed:d}{latency:g}"
            yield _makespan(
                f"8 town-hall discussions ({'four levels' if mixed else 'level 2-1'}) over HTTP, "
                f"{latency * 1000:.0f} ms, concurrency 64",
                alone(
                    "benchmarks.pilot.town_hall_makespan",
                    folder=where,
                    mixed=mixed,
                    latency=latency,
                ),
            )
        pilot = alone("benchmarks.pilot.synthetic", folder=f"{folder}/pilot")
        yield _row(
            "pilot of 1,200 with the embedded respondent: peak memory",
            f"{pilot['peak_mb']:.0f} MB ({pilot['calls']:.0f} calls in {pilot['wall_s']:.1f} s)",
            "< 400 MB",
            pilot["peak_mb"] < 400,
        )
        replay = alone("benchmarks.pilot.replay", folder=f"{folder}/pilot")
        yield _row(
            "replay of that run, all files written again",
            f"{replay['wall_s']:.1f} s ({replay['cpu_s']:.1f} s of CPU)",
            "< 3 s",
            replay["wall_s"] < 3,
        )
        if not quick:
            many = alone("benchmarks.pilot.synthetic", folder=f"{folder}/many", per_condition=5000)
            yield _row(
                "20,000 participants with the embedded respondent: peak memory",
                f"{many['peak_mb']:,.0f} MB ({many['calls']:,.0f} calls in "
                f"{many['wall_s'] / 60:.1f} min)",
                "< 500 MB",
                many["peak_mb"] < 500,
            )
            for what, used in scale.reading(f"{folder}/many", folder):
                yield _row(
                    f"`folkmoot {what}` of that run",
                    f"{used.cpu_s:.0f} s of CPU, {used.peak_mb:,.0f} MB",
                    "< 1 GB",
                    used.peak_mb < 1000,
                )
            reader = alone("benchmarks.reader.run", folder=f"{folder}/many")
            yield _row(
                "`folkmoot view` over that run: slowest kind of page, memory of the server",
                f"first byte {reader['first_s']:.2f} s, page {reader['page_s']:.2f} s, "
                f"{reader['server_mb']:.0f} MB",
                "< 0.3 s, < 0.5 s, < 300 MB",
                reader["first_s"] < 0.3 and reader["page_s"] < 0.5 and reader["server_mb"] < 300,
            )

        if not quick:
            wave = alone("benchmarks.batches.run")
            yield _row(
                "50,001 calls by a batch interface: waves, peak memory",
                f"{wave['batches']:.0f} batches, {wave['peak_mb']:,.0f} MB, {wave['cpu_s']:.0f} s "
                "of CPU",
                "2 batches, < 1.5 GB",
                wave["batches"] == 2 and wave["peak_mb"] < 1500,
            )
        if long:
            for study, people, most in (
                (scale.pilot, 100_000, 1000),
                (scale.one_question, 1_000_000, 2000),
            ):
                with tempfile.TemporaryDirectory() as own:
                    used, disk = study(people, own)
                yield _row(
                    f"{people:,} participants, {study.__name__.replace('_', ' ')}: peak memory",
                    f"{used.peak_mb:,.0f} MB ({used.cpu_s / 60:.0f} min of CPU, {disk:.1f} KB on "
                    "disk each)",
                    f"< {most:,} MB",
                    used.peak_mb < most,
                )


def _makespan(what: str, found: dict[str, float], target: float = 1.20) -> Row:
    medians = f"medians of {found['turns']:.0f} turns; " if found["turns"] > 1 else ""
    return _row(
        f"{what}: makespan over the ideal",
        f"{found['ratio']:.2f} ×, from first call to last reply {found['calls_ratio']:.2f} ×, "
        f"plain aiohttp {found['plain_ratio']:.2f} × ({medians}{found['wall_s']:.1f} s; ideal "
        f"{found['ideal_s']:.2f} s for {found['calls']:.0f} calls, chain of {found['chain']:.0f}; "
        f"{found['cpu_s']:.1f} s of CPU)",
        f"≤ {target:.2f} ×",
        found["ratio"] <= target,
    )


def _row(what: str, measured: str, target: str, met: bool) -> Row:
    return what, measured, target, "yes" if met else "no"


def machine() -> str:
    """Describe the machine in one line: cores, processor, load average, Python, versions."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        model = found[1] if found else model
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "numpy"))
    return (
        f"{os.cpu_count()} cores, {model}, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, {libraries}; load average before: {load:.1f}"
    )


def main() -> None:
    """Measure, print the table and rewrite it in the README."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true", help="leave the long ones out")
    parser.add_argument("--long", action="store_true", help="add the longest")
    args = parser.parse_args()
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    lines = [f"Measured {when} on {machine()}.", "", _line(HEADER), "|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for row in rows(args.quick, args.long):
        lines.append(_line(row))
        print(lines[-1], flush=True)
    if not args.quick:
        text = README.read_text("utf-8")
        table = "<!-- table -->\n" + "\n".join(lines) + "\n<!-- end -->"
        README.write_text(re.sub(r"<!-- table -->.*<!-- end -->", table, text, flags=re.S), "utf-8")


def _line(row: Row) -> str:
    return "| " + " | ".join(row) + " |"


if __name__ == "__main__":
    main()
