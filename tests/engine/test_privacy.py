"""Folders and files with profiles of humans are readable by their owner only, with any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.people import Pool
from folkmoot.people.sources import quota
from folkmoot.randomness import generator


async def ask_once(session: Session) -> None:
    await session.ask(Speaker("ann"), "Hello?")


STUDY = Study("hello", "Hello", StudyConfig, ask_once)


@pytest.fixture(params=(0o000, 0o022, 0o077))
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def read_permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("there", (False, True), ids=("new folder", "empty folder"))
def test_run_folder_is_private(tmp_path: Path, umask: int, there: bool) -> None:
    out = tmp_path / "outputs" / "run"
    if there:
        out.mkdir(parents=True)
    folkmoot.run(STUDY, {}, model="synthetic", out=out)
    assert read_permissions(out) == 0o700
    # Only the run folder itself is private.
    assert read_permissions(tmp_path / "outputs") == 0o777 & ~umask


def test_permissions_that_the_owner_set_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "run"
    folkmoot.run(STUDY, {}, model="synthetic", out=out)
    out.chmod(0o750)
    folkmoot.run(STUDY, {}, model="synthetic", out=out)
    assert read_permissions(out) == 0o750


def test_pool_is_private(tmp_path: Path, umask: int) -> None:
    pool = Pool(tmp_path / "data" / "personas.json")
    pool.add_personas(quota.make(3, generator(1, ("a",))))
    assert read_permissions(pool.path) == 0o600
    pool.path.chmod(0o644)  # the mode that earlier versions set
    pool.add_personas(quota.make(3, generator(2, ("b",))))
    assert read_permissions(pool.path) == 0o600
