"""Measure runs of several sizes, and calculate the needs of a million participants.

    python -m benchmarks.scale 1000 10000 100000

Each size is a `folkmoot run` of the pilot with the embedded respondent in a separate process. The
measures are seconds of CPU, peak memory and bytes on disk. The needs of 1,000,000 participants are
calculated from the largest size.

`--question 1000000` runs the study with one question instead (`one_question.py`). `--read RUN`
measures the commands that read a run: report, comparison with itself, export and verify.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Used, used_by
from benchmarks.pilot import PILOT

QUESTION = Path(__file__).with_name("one_question.py")
CONDITIONS = 4
CALLS = 7.7  # of a participant of the pilot, on average over the conditions
PEOPLE = 1_000_000
CPU_OF_HTTP = 0.0003  # seconds of a core for a call over HTTP (benchmarks/README.md)
TOKENS_IN, TOKENS_OUT = 690, 46  # of a call; real models write more than the respondent
DOLLARS_IN, DOLLARS_OUT = 0.15, 0.60  # a million tokens of a small model; yours: `folkmoot check`


def pilot(people: int, folder: str) -> tuple[Used, float]:
    """Run the pilot; return the resources used, and the KB on disk for each participant."""
    size = f"participants_per_condition={people // CONDITIONS}"
    used = used_by("run", PILOT, "--model", "synthetic", "--set", size, "--out", f"{folder}/run")
    return used, _disk(folder) / people / 1024


def one_question(people: int, folder: str) -> tuple[Used, float]:
    """Ask one question; return the resources used, and the KB on disk for each participant."""
    study = Path(folder, "study.yaml")
    study.write_text(f"study: {QUESTION}\nmodel: synthetic\nparticipants: {people}\n")
    used = used_by("run", study, "--out", f"{folder}/run")
    return used, _disk(folder) / people / 1024


def reading(run: str, folder: str) -> Iterator[tuple[str, Used]]:
    """Yield each command that reads a finished run, and the resources that it used."""
    yield "report", used_by("report", run)
    yield "compare with itself", used_by("compare", run, run)
    yield "export to JSON", used_by("export", run, "--to", "json", "--out", f"{folder}/export")
    yield "verify", used_by("verify", run)


def calculated(disk_kb: float, hours: float = 24) -> str:
    """Describe what the pilot of a million people needs from a paid model within `hours`."""
    calls = PEOPLE * CALLS
    tokens = calls * TOKENS_IN / 1e6, calls * TOKENS_OUT / 1e6
    dollars = tokens[0] * DOLLARS_IN + tokens[1] * DOLLARS_OUT
    return (
        f"{calls:,.0f} calls; in {hours:g} h {calls / hours / 60:,.0f} requests and "
        f"{(tokens[0] + tokens[1]) / hours / 60:,.1f} million tokens a minute; "
        f"{calls * CPU_OF_HTTP / 3600:.1f} hours of one core for the calls; "
        f"{PEOPLE * disk_kb / 1e6:,.0f} GB on disk; ${dollars:,.0f}"
    )


def _disk(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        print("| what | CPU, s | peak, MB |\n|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for what, used in reading(sys.argv[2], folder):
                print(f"| {what} | {used.cpu_s:.0f} | {used.peak_mb:.0f} |", flush=True)
        return
    study = one_question if sys.argv[1:2] == ["--question"] else pilot
    print("| participants | CPU, s | ms each | peak, MB | KB on disk each |\n|---|---|---|---|---|")
    disk = 0.0
    for people in sorted(map(int, sys.argv[1 + (study is one_question) :])):
        with tempfile.TemporaryDirectory() as folder:
            used, disk = study(people, folder)
        each = 1000 * used.cpu_s / people
        line = f"| {people:,} | {used.cpu_s:.0f} | {each:.1f} | {used.peak_mb:.0f} | {disk:.0f} |"
        print(line, flush=True)
    if study is pilot:
        print(f"\n{PEOPLE:,} participants: {calculated(disk)}")


if __name__ == "__main__":
    main()
