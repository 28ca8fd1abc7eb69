"""`python -m benchmarks.scale 1000 5000 20000`: the pilot at sizes, and what a million would take.

Each size is a `folkmoot run` with the embedded respondent in a process of its own: seconds of CPU,
peak memory, bytes on disk. From the largest the needs of 1,000,000 participants are calculated.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.pilot import PILOT

FOLKMOOT = str(Path(sys.executable).with_name("folkmoot"))
CONDITIONS = 4
CALLS = 7.7  # of a participant of the pilot, on average over the conditions
PEOPLE = 1_000_000
CPU_OF_HTTP = 0.0003  # seconds of a core for a call over HTTP (benchmarks/README.md)
TOKENS_IN, TOKENS_OUT = 690, 46  # of a call; real models write more than the respondent
DOLLARS_IN, DOLLARS_OUT = 0.15, 0.60  # a million tokens of a small model; yours: `folkmoot check`


def measured(people: int) -> tuple[float, float, float]:
    """Seconds of CPU, peak memory (MB), and KB on disk for each participant."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        size = f"participants_per_condition={people // CONDITIONS}"
        command = [FOLKMOOT, "run", PILOT, "--model", "synthetic", "--set", size]
        subprocess.run([*command, "--out", f"{folder}/run"], check=True, capture_output=True)
        disk = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    # The largest child so far: sizes are measured in rising order.
    return cpu, used.ru_maxrss / 1024, disk / people / 1024


def calculated(disk_kb: float, hours: float = 24) -> str:
    """What the pilot of a million people needs of a paid model within so many hours."""
    calls = PEOPLE * CALLS
    tokens = calls * TOKENS_IN / 1e6, calls * TOKENS_OUT / 1e6
    dollars = tokens[0] * DOLLARS_IN + tokens[1] * DOLLARS_OUT
    return (
        f"{calls:,.0f} calls; in {hours:g} h {calls / hours / 60:,.0f} requests and "
        f"{(tokens[0] + tokens[1]) / hours / 60:,.1f} million tokens a minute; "
        f"{calls * CPU_OF_HTTP / 3600:.1f} hours of one core for the calls; "
        f"{PEOPLE * disk_kb / 1e6:,.0f} GB on disk; ${dollars:,.0f}"
    )


def main() -> None:
    print("| participants | CPU, s | ms each | peak, MB | KB on disk each |\n|---|---|---|---|---|")
    disk = 0.0
    for people in sorted(map(int, sys.argv[1:])):
        cpu, peak, disk = measured(people)
        line = f"| {people:,} | {cpu:.0f} | {1000 * cpu / people:.1f} | {peak:.0f} | {disk:.0f} |"
        print(line, flush=True)
    print(f"\n{PEOPLE:,} participants: {calculated(disk)}")


if __name__ == "__main__":
    main()
