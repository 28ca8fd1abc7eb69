"""Settings of all tests: hypothesis draws the same examples each time, and without a clock.

`make nightly` draws new ones (FOLKMOOT_FUZZ=1), so that a chance failure never stops unrelated
work but is not lost either.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import hypothesis
import pytest
import typer.testing
from filelock import FileLock
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

# Study files of tests are trusted: no question is asked, and no answer is stored on this machine.
os.environ["FOLKMOOT_TRUST"] = "1"
# Without bytecode, each command that a test starts would compile all modules again, which takes as
# long as the command.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Two processes run tests on two cores, so more threads would only wait for each other. With one
# thread, the small tables of tests need a sixth less computing time.
for threads in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

# `CliRunner` would build all commands from the Typer application for each call, which takes 30 ms.
typer.testing._get_command = functools.cache(typer.testing._get_command)

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=500)
hypothesis.settings.load_profile("fuzz" if os.environ.get("FOLKMOOT_FUZZ") else "steady")


# The type of the fixture `shared_folder`: it takes a name, and a function that fills the folder.
SharedFolder = Callable[[str, Callable[[Path], object]], Path]

# The parts of `make nightly`. Each should end within forty minutes on two idle cores. One
# more, `properties`, is the daily tests of properties with new draws.
PARTS = {
    "truths": "planted effects with many people; figures of reports computed again",
    "seeds": "planted effects over many seeds: bias, coverage, false alarms",
    "wordings": "planted effects with other wordings of all prompts",
    "discussions": "the same for focus groups and town halls, which take longer",
    "alarms": "coverage of intervals, false alarms, faults that the controls have to find",
    "kills": "processes, workers and machines that end at any moment",
    "pages": "whole studies in a browser, and examples as the pages show them",
    "mutations": "damaged input",
    "workbooks": "thirty thousand damaged workbooks",
    "sweeps": "study types and settings beyond those of every day",
    "scale": "examples at full size, memory, large batches",
    "local": "a real model on this machine",
}


def find_part_problem(marks: Iterable[pytest.Mark]) -> str:
    """Say why the marks of a test do not assign it to exactly one part of `make nightly`, or ""."""
    parts = {mark.kwargs.get("part") for mark in marks if mark.name == "nightly"}
    if not parts or (len(parts) == 1 and parts <= set(PARTS)):
        return ""
    return f'write @pytest.mark.nightly(part="…") with one of {", ".join(PARTS)}'


@pytest.hookimpl(tryfirst=True)  # before tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a long test that no part, or more than one, would run."""
    for item in items:
        if problem := find_part_problem(item.iter_markers()):
            raise pytest.UsageError(f"{item.nodeid}: {problem}")


class FileScheduling(LoadGroupScheduling):
    """Tests of a file run in one process, those of a group too, in the order of their collection.
    What a file sets up for all its tests, such as a browser, is then set up once."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return scope.partition("::")[0] if scope == nodeid else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """Daily tests are given out by file, in their order: the longest files are not the last ones.
    The parts of `make nightly` have few files with long tests, which are given out one by one."""
    if "not nightly" not in config.option.markexpr or config.option.dist != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


def pytest_sessionstart() -> None:
    gc.disable()  # until the tests are collected: what is imported stays


def pytest_collection_finish() -> None:
    """Take the collected tests, half a million objects that live to the end, out of the reach of
    the garbage collector, which would look through all of them again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)  # what tests leave is seldom cyclic


@pytest.fixture(autouse=True, scope="session")
def _no_power_cut() -> Iterator[None]:
    """Files are not forced onto the disk: no test ends the machine, and a third of the time of a
    small run goes into waiting for it."""
    from folkmoot.engine.journal import journal_file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        patch.setattr(journal_file, "SYNCHRONOUS", "OFF")
        yield


@pytest.fixture
def read_workbooks_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read workbooks in this process, because a child process for each takes a quarter of a second.
    For tests of workbooks that cannot exhaust the memory or the time."""
    from folkmoot import spreadsheet_cells
    from tests.in_process import call_in_process

    monkeypatch.setattr(spreadsheet_cells, "run_in_child", call_in_process)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> SharedFolder:
    """A folder of this name that is filled once, by whichever process of the session needs it
    first. A test that writes into it copies it first."""
    base_folder = tmp_path_factory.getbasetemp()
    shared = (base_folder.parent if "PYTEST_XDIST_WORKER" in os.environ else base_folder) / "shared"

    def fill_once(name: str, fill: Callable[[Path], object]) -> Path:
        folder = shared / name
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not (folder / "finished").exists():
                fill(folder)
                (folder / "finished").touch()
        return folder

    return fill_once


@pytest.fixture(scope="session")
def run_of_small_study(shared_folder: SharedFolder) -> Callable[[str], Path]:
    """The folder of a finished run of the small study of a type, answered by the embedded
    respondent. It is made once per test session. A test that writes into it copies it first."""

    def get_run_folder(study: str) -> Path:
        import folkmoot
        from tests.contract.small import small_study

        def run_study(folder: Path) -> None:
            source = small_study(study, folder / "study")
            folkmoot.run(source, model="synthetic", out=folder / "run")

        return shared_folder(f"small/{study}", run_study) / "run"

    return get_run_folder
