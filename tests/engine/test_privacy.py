"""Folders and files that hold people's profiles are their owner's alone, whatever the umask."""

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


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("there", (False, True), ids=("new folder", "empty folder"))
def test_only_the_owner_may_look_into_a_run(tmp_path: Path, umask: int, there: bool) -> None:
    out = tmp_path / "outputs" / "run"
    if there:
        out.mkdir(parents=True)
    folkmoot.run(STUDY, {}, model="synthetic", out=out)
    assert rights(out) == 0o700
    assert rights(tmp_path / "outputs") == 0o777 & ~umask  # only the run itself


def test_who_shares_a_run_on_purpose_keeps_it_shared(tmp_path: Path) -> None:
    out = tmp_path / "run"
    folkmoot.run(STUDY, {}, model="synthetic", out=out)
    out.chmod(0o750)
    folkmoot.run(STUDY, {}, model="synthetic", out=out)
    assert rights(out) == 0o750


def test_only_the_owner_may_read_the_pool(tmp_path: Path, umask: int) -> None:
    pool = Pool(tmp_path / "data" / "personas.json")
    pool.add_personas(quota.make(3, generator(1, ("a",))))
    assert rights(pool.path) == 0o600
    pool.path.chmod(0o644)  # as earlier versions left it
    pool.add_personas(quota.make(3, generator(2, ("b",))))
    assert rights(pool.path) == 0o600
