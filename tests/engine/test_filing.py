"""Files of a run are put in their places beside the calls, in order, and no error is lost."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import pytest

import folkmoot
from folkmoot import Session, Study, StudyConfig
from folkmoot.engine.filing import Filing
from folkmoot.errors import StorageError
from folkmoot.models.scripted import Scripted


async def test_work_is_done_in_order_and_waited_for() -> None:
    filing, done = Filing(), []

    def work(n: int) -> None:
        time.sleep(0.01 * (3 - n))
        done.append((n, threading.current_thread() is threading.main_thread()))

    for n in range(3):
        filing.do(work, n)
    assert len(done) < 3
    await filing.done()
    assert done == [(0, False), (1, False), (2, False)]
    await filing.done()  # again: nothing left
    filing.close()


async def test_an_error_comes_out_at_the_next_check_or_at_the_end() -> None:
    def fail() -> None:
        raise StorageError("the disk is full")

    filing = Filing()
    filing.do(fail)
    with pytest.raises(StorageError, match="full"):
        await filing.done()
    filing.do(fail)
    while filing._under_way and not filing._under_way[0].done():
        await asyncio.sleep(0.001)
    with pytest.raises(StorageError, match="full"):
        filing.check()
    filing.close()


@pytest.mark.parametrize("name", ["a.json", "tables/rows.csv"])
def test_a_run_whose_file_finds_no_place_has_failed(tmp_path: Path, name: str) -> None:
    async def protocol(session: Session) -> None:
        (session.run_dir / name).mkdir(parents=True)
        session.write_json("a.json", {"is": "written beside"})
        session.record("rows", {"column": 1})

    study = Study("trial", "Trial", StudyConfig, protocol)
    with pytest.raises(StorageError, match=Path(name).name):
        folkmoot.run(study, {}, out=tmp_path / "run", provider=Scripted(lambda r, a: "yes"))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["outcome"] == "failed"
    assert "failed" in (tmp_path / "run" / "run.log").read_text()
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_files_are_there_when_the_run_is_over(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        for n in range(50):
            session.write_json("count.json", n)
            session.write_text(f"texts/{n}.txt", str(n))

    study = Study("trial", "Trial", StudyConfig, protocol)
    run = folkmoot.run(study, {}, out=tmp_path / "run", provider=Scripted(lambda r, a: "yes"))
    assert json.loads((run.path / "count.json").read_text()) == 49
    assert len(list((run.path / "texts").iterdir())) == 50


def test_the_next_file_says_that_an_earlier_one_failed_and_leaves_no_draft(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        (session.run_dir / "a.json").mkdir()
        for n in range(2000):
            session.write_json("a.json" if n == 0 else "b.json", n)
            await asyncio.sleep(0.001)

    study = Study("trial", "Trial", StudyConfig, protocol)
    with pytest.raises(StorageError, match=r"a\.json"):
        folkmoot.run(study, {}, out=tmp_path / "run", provider=Scripted(lambda r, a: "yes"))
    assert json.loads((tmp_path / "run" / "b.json").read_text()) < 1999
    assert not list((tmp_path / "run").rglob("*.tmp"))
