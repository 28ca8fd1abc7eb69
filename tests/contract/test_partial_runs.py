"""Report runs before their end: paused by a budget, killed, or still running.

Reports, findings and files cover the complete parts and give their number. The final files equal
those of an uninterrupted run, byte by byte.
"""

from __future__ import annotations

import gc
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.folder_access import open_run
from folkmoot.engine.study.study import (
    FAILED_FINDING_KEY,
    analysed_parts,
    compute_findings,
    find_study_of_run,
)
from folkmoot.errors import RunPausedError
from folkmoot.storage.partial_run import COMPLETE, PartialRun
from folkmoot.view.people import KEY_COLUMN, people_frame, people_of
from folkmoot.view.person import find_person
from tests.contract.runs import Crash, digest, make_respondent
from tests.contract.small import several_parts
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily
from tests.waiting import wait_until


class Expected(NamedTuple):
    """The content of a report that covers some parts of a study."""

    # All parts with their unit, as "4 groups".
    planned: str
    # The share of all calls after which some parts are complete and some are not.
    budget: float
    # A file that is derived from the tables, and the keys of the number of parts in it.
    file: str
    count: tuple[str | int, ...]
    # A text about missing results in the findings.
    lacks: str = ""


STUDIES = {
    "cross_pollination": Expected(
        "36 participants", 0.75, "summary.json", ("total_participants",), "Nothing is complete yet"
    ),
    "focus_group": Expected("3 groups", 0.5, "topline.json", ("concepts", 0, "groups")),
    "negotiation": Expected("4 groups", 0.5, "comparison.json", ("groups",), "has been coded yet"),
    "town_hall": Expected("3 sets", 0.7, "levels.json", ("sets",), "has been coded yet"),
    "workbook": Expected("4 sessions", 0.5, "public_goods.json", ("sessions_finished",)),
}
# Files that depend on the clock or on the course of the run.
FILES_OF_ONE_RUN = re.compile(
    r"(manifest\.json|plan\.json|run\.log|log\.jsonl|report\.html|study\.yaml|config\.yaml)"
    r"|journal\.sqlite.*|logs/.*|\..*"
)
TIME_FIELD = re.compile(rb'"(generated_at|checkpoint_time)": "[^"]*"')


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the files that depend on the answers alone, without times."""
    found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    kept = {name: p for name, p in found.items() if not FILES_OF_ONE_RUN.fullmatch(name)}
    return {name: TIME_FIELD.sub(b"", p.read_bytes()) for name, p in kept.items()}


def assert_same_files(folder: Path, whole: Path) -> None:
    mine, its = read_files(folder), read_files(whole)
    assert mine.keys() == its.keys()
    assert [name for name in its if mine[name] != its[name]] == []


def count_complete_parts(folder: Path) -> int:
    """Return the number of parts of a run that are recorded as complete."""
    if not (folder / "plan.json").exists():
        return 0
    run = open_run(folder)
    covered = analysed_parts(find_study_of_run(run), run)
    return len(covered.parts.complete) if isinstance(covered, PartialRun) else 0


def assert_reported(folder: Path, study: str, state: str) -> int:
    """Assert that report, findings and the study's file cover the complete parts and say so. Return
    the number of these parts."""
    expected, count = STUDIES[study], count_complete_parts(folder)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    counted = f"{count} of {expected.planned}"
    says = f"PARTIAL: the run is {state}, figures cover {counted}"
    assert says in " ".join(done.output.split())
    page = " ".join((folder / "report.html").read_text("utf-8").split())
    assert says in page and f"{counted} {'is' if count == 1 else 'are'} complete" in page
    assert folkmoot.load(folder).partial == says
    run = open_run(folder)
    found = compute_findings(find_study_of_run(run), run)
    assert found[0].key == COMPLETE and not {FAILED_FINDING_KEY, "partial"} & {f.key for f in found}
    assert len(found) > 2
    # A look before the end tests nothing.
    assert [c for f in found for c in f.grid.columns if re.fullmatch(r"(.*_)?p", c)] == []
    if study == "cross_pollination":
        # Those who are still asked are not said to have an unknown measure.
        assert "because the measure is unknown" not in page
    assert expected.lacks in " ".join(f.says for f in found)
    # What the prompts of an incomplete part showed is compared when the part ends.
    assert [f.alarms for f in found if f.key == "exposure" and f.alarms] == []
    value: Any = run.read_json(expected.file)
    for key in expected.count:
        value = value[key]
    assert value == count
    return count


# A budget that no run reaches. Transcripts contain the overrides, so compared runs have the same.
LARGE_BUDGET = "budget_calls=100000"
# Overrides that make the runs of the daily tests shorter.
SHORTER = {"town_hall": ("rounds=1",)}


@pytest.fixture(scope="module")
def whole_run(folder: Path) -> Callable[[str], folkmoot.Run]:
    """Return a function that runs a study with several parts in one go, once."""
    return cache(lambda study: run_parts(study, folder, folder / f"{study}_whole", LARGE_BUDGET))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


def assert_nothing_reported(folder: Path, study: str) -> None:
    """Assert that the report and its only finding say that no part is complete."""
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    counted = f"0 of {STUDIES[study].planned}"
    assert f"figures cover {counted}" in " ".join(done.output.split())
    (only,) = compute_findings(find_study_of_run(open_run(folder)), open_run(folder))
    assert only.says == f"{counted} are complete: nothing can be reported yet."


# Patterns for the set of an address, in studies that spend a budget set by set.
SET_PATTERNS = {
    "town_hall": r"^[^/]*?(\d+)",
    "focus_group": r"^discussion/([^/]+)/",
    "negotiation": r"^(?:preferences|negotiation)/(.+?)(?:-C\d)?/",
}


def count_calls_by_set(folder: Path, study: str) -> Counter[str]:
    with JournalReader(folder / "journal.sqlite") as journal:
        found = (re.search(SET_PATTERNS[study], entry.address) for entry in journal.read_entries())
        return Counter(match[1] for match in found if match)


def run_parts(
    study: str, folder: Path, out: Path, *overrides: str, jitter: int | None = None
) -> folkmoot.Run:
    """Run the study with several parts in `out`. The study file is in `folder`."""
    path, overrides = several_parts(study, folder), (*overrides, *SHORTER.get(study, ()))
    if study in SET_PATTERNS:
        provider = make_respondent(study, jitter=jitter)
        return folkmoot.run(path, out=out, provider=provider, overrides=overrides)
    # One call at a time, so that the same parts are complete in each run of a test.
    overrides = (*overrides, "concurrency=1")
    return folkmoot.run(path, out=out, model="synthetic", overrides=overrides)


# Daily the type that is paid set by set, at random latencies. test_every_study crashes and resumes
# the others.
@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=("town_hall",), part="kills"))
def test_a_run_paused_by_a_budget_is_reported_and_resumed(
    study: str, folder: Path, whole_run: Callable[[str], folkmoot.Run]
) -> None:
    """Report without a complete part, with some complete parts, and at the end. The end equals that
    of a run without a pause. A budget is spent on whole sets, also with random latencies."""
    out = folder / f"{study}_paused"
    play = partial(run_parts, study, folder, jitter=1)
    enough = LARGE_BUDGET
    whole = whole_run(study)
    with pytest.raises(RunPausedError):
        play(out, "budget_calls=3")
    assert_nothing_reported(out, study)
    budget = int(STUDIES[study].budget * whole.manifest["calls"])
    with pytest.raises(RunPausedError):
        play(out, f"budget_calls={budget}")
    paused = folkmoot.load(out)
    assert paused.manifest["outcome"] == "paused" and paused.manifest["calls"] == budget
    assert paused.table("answers").height > 0 and "PARTIAL" in repr(paused)
    assert 0 < assert_reported(out, study, "paused") < int(STUDIES[study].planned.split()[0])
    page = (out / "report.html").read_text("utf-8")
    assert "SYNTHETIC" in page and "<strong>PARTIAL</strong>" in page
    if study in SET_PATTERNS:
        in_all, bought = count_calls_by_set(whole.path, study), count_calls_by_set(out, study)
        assert len([of for of in bought if bought[of] < in_all[of]]) <= 1
    done = play(out, enough)
    assert digest(done) == digest(whole)
    assert_same_files(out, whole.path)
    assert "PARTIAL" not in done.report().read_text("utf-8")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(FaultPlan(), answers="respondent") as running:
        yield running


def assert_exported_and_compared(killed: Path, whole: Path, count: int) -> None:
    """Assert that recorded rows are exported with their codebook and that complete parts are
    compared.
    Derived tables cover the complete parts."""
    out = killed.parent / f"{killed.name}_exported"
    done = CliRunner().invoke(app, ["export", str(killed), "--to", "csv", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "PARTIAL: the run is unfinished" in (out / "README.txt").read_text("utf-8")
    codebook = json.loads((out / "codebook.json").read_text("utf-8"))
    assert {"answers"} < set(codebook) == {p.stem for p in out.glob("*.csv")}
    loaded, finished = folkmoot.load(killed), folkmoot.load(whole)
    assert codebook["answers"] == loaded.codebook["answers"]
    assert set(loaded.tables) == set(finished.tables) == set(codebook)
    shown = loaded.table("exposure")
    assert pl.read_csv(out / "exposure.csv").height == shown.height > 0
    assert set(shown.rows()) < set(finished.table("exposure").rows())
    for name in {"levels", "differences"} & set(finished.tables):
        assert loaded.table(name).height == finished.table(name).height > 0
    done = CliRunner().invoke(app, ["compare", str(killed), str(whole)])
    assert done.exit_code == 0, done.output
    assert f"figures cover {count} of" in " ".join(done.output.split())


def assert_exposure_shown(killed: Path, whole: Path) -> None:
    """Assert that the page of a participant shows the exposure of a complete part, as in the
    finished run, and none of an incomplete part."""
    unfinished, finished = open_run(killed), open_run(whole)
    shown = not_shown = 0
    for key in people_frame(unfinished, people_of(unfinished)).collect()[KEY_COLUMN]:
        person = find_person(unfinished, key)
        if any(decision.shown for decision in person.decisions):
            shown += 1
            # They are in the order of the answers, which is another one in each run.
            assert sorted(person.decisions) == sorted(find_person(finished, key).decisions)
        else:
            not_shown += 1
    assert shown > 0 and not_shown > 0


@pytest.mark.filterwarnings("error:.*tables made of others")
def test_derived_tables_wait_on_the_disk_while_a_killed_run_is_read(
    folder: Path,
    whole_run: Callable[[str], folkmoot.Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, out = several_parts("town_hall", folder), folder / "crashed"
    whole = whole_run("town_hall")
    dies = make_respondent("town_hall", jitter=1, die_after=int(0.6 * whole.manifest["calls"]))
    with pytest.raises(Crash):
        # Few calls at the same time, so that sets are run one after the other.
        folkmoot.run(path, out=out, provider=dies, concurrency=4, overrides=SHORTER["town_hall"])
    assert_exposure_shown(out, whole.path)
    in_memory = folkmoot.load(out).table("exposure")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for limit in ("MAX_ROWS_IN_MEMORY", "FRAME_ROWS"):
        monkeypatch.setattr(f"folkmoot.storage.table_buffer.{limit}", 3)
    run = folkmoot.load(out)
    assert run.table("exposure").equals(in_memory) and in_memory.height > 100
    assert list(tmp_path.glob("folkmoot-rows-*/*"))
    del run
    gc.collect()
    assert not list(tmp_path.glob("folkmoot-rows-*"))


# At any moment, also before the first answer. Daily, a run that crashed is read.
@pytest.mark.nightly(part="kills")
@pytest.mark.filterwarnings("error:.*tables made of others")
@pytest.mark.parametrize("study", STUDIES)
def test_a_run_is_reported_while_it_goes_on_and_after_it_was_killed(
    study: str, server: ServerThread, folder: Path
) -> None:
    path, model = several_parts(study, folder), server.model
    flags = ["--model", "openai/m", "--set", f"endpoints={{openai/m: {server.openai}}}"]
    # Under a budget the first set is played alone.
    flags += ["--set", "budget_calls=100000", "--set", "concurrency=4", "--trust"]
    if study == "cross_pollination":
        flags += ["--set", "embedding_model=wordllama"]

    def command(out: Path, *more: str) -> list[str]:
        return ["run", str(path), "--out", str(out), *flags, *more]

    def run_to_end(out: Path, *more: str) -> None:
        done = CliRunner().invoke(app, command(out, *more))
        assert done.exit_code in {0, 3}, done.output  # 3: no answer is of use

    whole, out = folder / f"{study}_of_server", folder / f"{study}_killed"
    before = len(model.log)
    run_to_end(whole)
    calls = len(model.log) - before
    held = calls - 6 if study == "cross_pollination" else int(0.6 * calls)
    model.plan = FaultPlan(hold_after=len(model.log) + held)
    program = [sys.executable, "-c", "from folkmoot.cli import main; main()", *command(out)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        held = model.plan.hold_after or 0
        wait_until(lambda: len(model.log) >= held or process.poll() is not None)
        wait_until(lambda: count_complete_parts(out) > 0)
        # A stopped process writes no more rows, so no set becomes complete between two looks.
        process.send_signal(signal.SIGSTOP)
        going_on = assert_reported(out, study, "still going on")
    finally:
        process.kill()
        process.communicate()
    count = assert_reported(out, study, "unfinished")
    assert count >= going_on > 0
    assert_exported_and_compared(out, whole, count)
    assert_exposure_shown(out, whole)
    model.plan = FaultPlan()
    server.wait_until_quiet()
    run_to_end(out, "--resume")
    assert_same_files(out, whole)
