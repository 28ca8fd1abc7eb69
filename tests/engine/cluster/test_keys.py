"""Keys come from the environment of each machine, and Ray writes them to no file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.cluster.runs import KEY, run_two_stages, write_study_file
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

pytestmark = pytest.mark.xdist_group("ray")


def find_files_with_key(folder: Path) -> list[Path]:
    """Return the files in a folder that contain the key."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if KEY.encode() in path.read_bytes()]


# Daily, test_storage and test_studio_runs look for keys in the files of one process.
@pytest.mark.nightly(part="kills")
def test_no_file_of_ray_or_folkmoot_contains_the_key(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ServerThread(FaultPlan(key=KEY)) as server:
        study = write_study_file(tmp_path, server.openai, people=4)
        run = run_two_stages(study, tmp_path / "run", executor="ray", workers=2)
    assert run.manifest["calls"] > 4  # this proves that the workers had the key
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    (session / "logs" / "probe").write_text(KEY)
    assert [path.name for path in find_files_with_key(session)] == ["probe"]
    (session / "logs" / "probe").unlink()
    assert find_files_with_key(tmp_path) == []


CONNECT_WITHOUT_TOKEN = """
import ray
ray.init(log_to_driver=False)
"""


def test_token_authentication_of_ray_stays_on(cluster: None) -> None:
    assert os.environ["RAY_AUTH_MODE"] == "token"  # the default of Ray for a cluster that it starts


@pytest.mark.nightly(part="kills")
def test_connection_without_the_token_is_refused(cluster: None) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    result = subprocess.run(
        [sys.executable, "-c", CONNECT_WITHOUT_TOKEN],
        env={**os.environ, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
    )
    assert result.returncode and "token" in result.stderr.lower()
