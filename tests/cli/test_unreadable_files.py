"""Files that a command cannot read or write: the message names the path and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Root may read all files. Without these capabilities it may read what the permissions allow.
WITHOUT_OVERRIDE = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def permissions_apply() -> bool:
    """Whether the permissions of files have an effect on `run_folkmoot`. In some containers, root
    cannot give up capabilities."""
    if os.name == "nt" or (IS_ROOT and shutil.which("setpriv") is None):
        return False
    if not IS_ROOT:
        return True
    return subprocess.run([*WITHOUT_OVERRIDE, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(
    not permissions_apply(), reason="the permissions of files have no effect here"
)
NO_PERMISSION = "you have no permission; change the permissions of this path"
NOT_WRITABLE = "this location is not writable; make it writable, or choose another"


def run_folkmoot(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*(WITHOUT_OVERRIDE if IS_ROOT else ()), sys.executable, "-m", "folkmoot", *words]
    return subprocess.run(command, capture_output=True, text=True)


def assert_error(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 2, result.stderr
    assert all(part in result.stderr for part in parts), result.stderr
    assert "Errno" not in result.stderr


@pytest.mark.parametrize(
    ("name", "command", "parts"),
    [
        ("", "show", ("outputs/vote", NO_PERMISSION)),
        ("", "report", ("outputs/vote", NO_PERMISSION)),
        ("manifest.json", "report", ("outputs/vote/manifest.json: cannot be read", NO_PERMISSION)),
        ("tables", "export", ("outputs/vote/tables: cannot be read", NO_PERMISSION)),
        ("tables/votes.parquet", "verify", ("outputs/vote/tables/votes.parquet", "ermission")),
        ("journal.sqlite", "show", ("journal.sqlite: cannot be written or read", "permissions")),
    ],
)
def test_a_part_of_a_run_that_cannot_be_read_is_named(
    study_folder: Path, name: str, command: str, parts: tuple[str, ...]
) -> None:
    assert run_folkmoot("run", "vote.yaml").returncode == 0
    locked = study_folder / "outputs" / "vote" / name
    mode = locked.stat().st_mode
    locked.chmod(0)
    try:
        assert_error(run_folkmoot(command, "outputs/vote"), *parts)
    finally:
        locked.chmod(mode)


def test_a_folder_that_cannot_be_written_is_named(study_folder: Path) -> None:
    assert run_folkmoot("run", "vote.yaml").returncode == 0
    run = study_folder / "outputs" / "vote"
    folders = [run, study_folder]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert_error(run_folkmoot("report", "outputs/vote"), "report.html", NOT_WRITABLE)
        assert_error(run_folkmoot("controls", "outputs/vote"), "outputs/vote", NOT_WRITABLE)
        assert_error(run_folkmoot("run", "vote.yaml", "--out", "new"), "new", NOT_WRITABLE)
        assert_error(run_folkmoot("new", "workbook", "new"), "experiment.xlsx", NOT_WRITABLE)
        assert_error(run_folkmoot("plan", "vote.yaml"), "vote_preregistration.md", NOT_WRITABLE)
        assert_error(run_folkmoot("studio", "new", "--port", "0"), "new", "Permission")
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_a_name_that_is_too_long_is_named(study_folder: Path) -> None:
    name = "long" * 100
    for words in (("new", "workbook", name), ("report", name), ("run", "vote.yaml", "--out", name)):
        assert_error(run_folkmoot(*words), name, "the name is too long; choose a shorter one")


def test_a_folder_in_place_of_a_file_is_named(study_folder: Path) -> None:
    assert run_folkmoot("run", "vote.yaml").returncode == 0
    manifest = study_folder / "outputs" / "vote" / "manifest.json"
    manifest.unlink()
    manifest.mkdir()
    assert_error(
        run_folkmoot("report", "outputs/vote"), "manifest.json", "a folder is where a file"
    )
