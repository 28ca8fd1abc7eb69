"""A cluster that somebody else started, by its address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import folkmoot
from tests.default_signals import add_default_signals
from tests.engine.cluster.runs import KEY, ROOT, play, study_file, the_same
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.nightly(part="kills")]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """The environment, without what leads to another cluster or to keys."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "OPENAI_API_KEY")}
    return {**kept, **TOKEN, **more}


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """The address of a cluster that was started in a folder."""
    clients, said = free_port(), folder / "said"
    line = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--num-cpus=2"]
    ports = [f"--port={free_port()}", f"--ray-client-server-port={clients}"]
    agents = [f"--dashboard-agent-listen-port={free_port()}"]
    small = ["--include-dashboard=false", "--object-store-memory=100000000", "--block"]
    with said.open("w") as file:
        cluster = subprocess.Popen(
            add_default_signals(*line, *ports, *agents, *small),
            env=environment(),
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "Ray runtime started" in said.read_text(), said.read_text)
        yield f"ray://127.0.0.1:{clients}"
    finally:
        cluster.terminate()
        cluster.wait()


def run_at(
    address: str, study: Path, out: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "folkmoot", "run", str(study), "--out", str(out)]
    return subprocess.run(
        [*line, "--executor", address, "--workers", "2"],
        env=environment(FOLKMOOT_TRUST="1", PYTHONPATH=str(ROOT), **environ),
        cwd=out.parent,
        capture_output=True,
        text=True,
    )


def test_a_cluster_at_an_address_gives_the_bytes_of_one_process_with_keys_of_its_own(
    cluster: None, alone: folkmoot.Run, tmp_path: Path
) -> None:
    there, out = tmp_path / "there", tmp_path / "run"
    there.mkdir()
    with ServerThread(FaultPlan(key=KEY)) as server, started(there) as address:
        study = study_file(tmp_path, server.openai, concurrency=8)
        mine = {"OPENAI_API_KEY": "sk-that-the-server-does-not-take"}
        lacking = run_at(address, study, out, **mine)
        assert lacking.returncode == 2 and "HTTP 401" in lacking.stderr, lacking.stderr
        assert not server.model.log  # the workers had no key, and not that of who started the run
        (there / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        done = run_at(address, study, out, **mine)
        assert done.returncode == 0, done.stderr
    the_same(folkmoot.load(out), alone)


def test_one_without_keys_runs_what_needs_none(cluster: None, tmp_path: Path) -> None:
    study = study_file(tmp_path, "http://127.0.0.1:9/v1", model="synthetic")
    alone = play(study, tmp_path / "alone")
    with started(tmp_path) as address:
        done = run_at(address, study, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    the_same(folkmoot.load(tmp_path / "run"), alone)
