"""A cluster started by another process, used by its address."""

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
from tests.engine.cluster.runs import (
    KEY,
    ROOT,
    assert_same_results,
    run_two_stages,
    write_study_file,
)
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.nightly(part="kills")]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


def find_free_port() -> int:
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        return int(free_socket.getsockname()[1])


def build_environment(**more: str) -> dict[str, str]:
    """Return the environment without variables for another cluster or for keys."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RAY_ADDRESS", "OPENAI_API_KEY")
    }
    return {**variables, **TOKEN, **more}


@contextmanager
def start_cluster(folder: Path) -> Iterator[str]:
    """Start a cluster in a folder and yield its address."""
    client_port, output_file = find_free_port(), folder / "said"
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--num-cpus=2"]
    ports = [f"--port={find_free_port()}", f"--ray-client-server-port={client_port}"]
    agents = [f"--dashboard-agent-listen-port={find_free_port()}"]
    small_node_options = ["--include-dashboard=false", "--object-store-memory=100000000", "--block"]
    with output_file.open("w") as file:
        cluster = subprocess.Popen(
            add_default_signals(*command, *ports, *agents, *small_node_options),
            env=build_environment(),
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "Ray runtime started" in output_file.read_text(), output_file.read_text)
        yield f"ray://127.0.0.1:{client_port}"
    finally:
        cluster.terminate()
        cluster.wait()


def run_on_cluster(
    address: str, study: Path, out: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "folkmoot", "run", str(study), "--out", str(out)]
    return subprocess.run(
        [*command, "--executor", address, "--workers", "2"],
        env=build_environment(FOLKMOOT_TRUST="1", PYTHONPATH=str(ROOT), **environ),
        cwd=out.parent,
        capture_output=True,
        text=True,
    )


def test_cluster_at_an_address_with_its_own_keys_gives_the_bytes_of_one_process(
    cluster: None, local_run: folkmoot.Run, tmp_path: Path
) -> None:
    cluster_folder, out = tmp_path / "there", tmp_path / "run"
    cluster_folder.mkdir()
    with ServerThread(FaultPlan(key=KEY)) as server, start_cluster(cluster_folder) as address:
        study = write_study_file(tmp_path, server.openai, concurrency=8)
        wrong_key = {"OPENAI_API_KEY": "sk-that-the-server-does-not-take"}
        failed_result = run_on_cluster(address, study, out, **wrong_key)
        assert failed_result.returncode == 2 and "HTTP 401" in failed_result.stderr, (
            failed_result.stderr
        )
        # The workers had no key, and the key of the starting process was not sent.
        assert not server.model.log
        (cluster_folder / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
        result = run_on_cluster(address, study, out, **wrong_key)
        assert result.returncode == 0, result.stderr
    assert_same_results(folkmoot.load(out), local_run)


def test_cluster_without_keys_runs_studies_that_need_none(cluster: None, tmp_path: Path) -> None:
    study = write_study_file(tmp_path, "http://127.0.0.1:9/v1", model="synthetic")
    run_in_process = run_two_stages(study, tmp_path / "alone")
    with start_cluster(tmp_path) as address:
        result = run_on_cluster(address, study, tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert_same_results(folkmoot.load(tmp_path / "run"), run_in_process)
