"""Keys come from each machine's own environment, and are in nothing that Ray writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.cluster.runs import KEY, play, study_file
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

pytestmark = pytest.mark.xdist_group("ray")


def holding_the_key(folder: Path) -> list[Path]:
    """The files in a folder that hold the key."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if KEY.encode() in path.read_bytes()]


# Daily, test_storage and test_studio_runs look for keys in the files of one process.
@pytest.mark.nightly(part="kills")
def test_no_file_of_rays_or_ours_holds_the_key(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ServerThread(FaultPlan(key=KEY)) as server:
        study = study_file(tmp_path, server.openai, people=4)
        run = play(study, tmp_path / "run", executor="ray", workers=2)
    assert run.manifest["calls"] > 4  # so the workers had the key
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    (session / "logs" / "probe").write_text(KEY)
    assert [path.name for path in holding_the_key(session)] == ["probe"]
    (session / "logs" / "probe").unlink()
    assert holding_the_key(tmp_path) == []


UNASKED = """
import ray
ray.init(log_to_driver=False)
"""


def test_rays_token_stays_on(cluster: None) -> None:
    assert os.environ["RAY_AUTH_MODE"] == "token"  # Ray's default for a cluster that it starts


@pytest.mark.nightly(part="kills")
def test_nobody_connects_without_the_token(cluster: None) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    result = subprocess.run(
        [sys.executable, "-c", UNASKED],
        env={**os.environ, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
    )
    assert result.returncode and "token" in result.stderr.lower()
