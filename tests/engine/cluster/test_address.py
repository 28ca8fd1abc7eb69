"""A cluster that somebody else started, by its address."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import folkmoot
from tests.engine.cluster.runs import ROOT, play, study_file, the_same
from tests.waiting import wait_until

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.nightly]
PORT, CLIENTS = 26379, 21001


def test_a_run_on_a_cluster_at_an_address_has_the_bytes_of_one_process(
    cluster: None, tmp_path: Path
) -> None:
    own = ["--head", f"--port={PORT}", f"--ray-client-server-port={CLIENTS}", "--num-cpus=2"]
    small = ["--include-dashboard=false", "--object-store-memory=100000000", "--block"]
    study = study_file(tmp_path, "http://127.0.0.1:9/v1", model="synthetic")
    alone = play(study, tmp_path / "alone")
    said = tmp_path / "said"
    with said.open("w") as file:
        started = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), "start", *own, *small],
            env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(lambda: "Ray runtime started" in said.read_text(), said.read_text)
            line = [sys.executable, "-m", "folkmoot", "run", str(study), "--workers", "2"]
            done = subprocess.run(
                [*line, "--executor", f"ray://127.0.0.1:{CLIENTS}", "--out", str(tmp_path / "run")],
                env={**os.environ, "RAY_AUTH_MODE": "token", "FOLKMOOT_TRUST": "1"},
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
        finally:
            started.terminate()
            started.wait()
    assert done.returncode == 0, done.stderr
    the_same(folkmoot.Run(folkmoot.load(tmp_path / "run"), alone.study), alone)
