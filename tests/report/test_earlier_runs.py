"""Run folders that earlier versions wrote open in the report, the comparison, `show` and the
reader. Withdrawing from them is refused.

The archives beside `earlier/format_3/` are runs of eight participants, made by the version of their
day. Those in it are small runs of every study type: finished ones, most with people in some seats,
and one that a budget paused.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.seat_manager import read_seats
from folkmoot.engine.study.study import FAILED_FINDING_KEY, compute_findings, find_study_of_run
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.sweeps import sample_daily
from tests.view.conftest import create_viewer_server

HERE = Path(__file__).parent / "earlier"
EARLIER = sorted(HERE.glob("*.zip"))
PAUSED = HERE / "format_3" / "paused.zip"
STUDIES = sorted(set(HERE.glob("format_3/*.zip")) - {PAUSED})
# A participant, and what `folkmoot show` calls them or their group.
SHOWN = {
    "cross_pollination": ("p_0001", "p_0001"),
    "focus_group": ("p_0001", "group_001/oven"),
    "negotiation": ("traveler_1", "spouses_01"),
    "negotiation_with_people": ("traveler_1", "spouses_01"),
    "town_hall": ("A01", "set01_lv4/A01"),
    "workbook": ("1.6", "1.6"),
}
WITH_PEOPLE = [archive for archive in STUDIES if archive.stem != "negotiation"]


def unpack(archive: Path, folder: Path) -> Path:
    shutil.unpack_archive(archive, folder / archive.stem)
    return folder / archive.stem


def folkmoot(*command: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(part) for part in command])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    for archive in (*EARLIER, *STUDIES):
        unpack(archive, folder)
    return folder


@pytest.mark.parametrize("name", [archive.stem for archive in EARLIER])
def test_a_run_of_an_earlier_version_opens(runs: Path, name: str) -> None:
    run = RunFolder(runs / name)
    with JournalReader(run.path / JOURNAL) as journal:
        before = journal.content_digest()
        assert journal.format_version == (1 if name == "journal_format_1" else 3)
    assert set(run.read_table("answers").columns) >= {"address", "parse_step"}
    folkmoot("report", run.path)
    folkmoot("show", run.path, "p_0001")
    assert "Adversarial" in (run.path / "report.html").read_text("utf-8")
    with JournalReader(run.path / JOURNAL) as journal:
        assert journal.content_digest() == before


def test_runs_of_all_versions_are_compared_with_each_other(runs: Path) -> None:
    found = {f.key: f for f in compare_runs([runs / archive.stem for archive in EARLIER])}
    assert {"designs", "compare_claims", "compare_votes"} <= set(found)


def test_the_reader_shows_runs_of_all_versions(runs: Path) -> None:
    with create_viewer_server(runs) as server:
        for archive in EARLIER:
            for page in ("people", "person?id=p_0001"):
                shown = server.get(f"/run/{archive.stem}/-/{page}")
                assert shown.status == 200 and "p_0001" in shown.text, shown.text


@pytest.mark.parametrize(
    "archive",
    sample_daily(STUDIES, daily=STUDIES[::3], part="pages"),
    ids=lambda archive: archive.stem,
)
def test_an_earlier_run_of_each_study_is_shown_reported_and_compared(
    archive: Path, runs: Path
) -> None:
    run = RunFolder(runs / archive.stem)
    shown = SHOWN[archive.stem][1]
    folkmoot("show", run.path)
    assert len(folkmoot("show", run.path, shown)) > 200
    folkmoot("report", run.path)
    found = {f.key: f for f in compute_findings(find_study_of_run(run), run)}
    assert FAILED_FINDING_KEY not in found and len(found) >= 4
    # How closed answers were had was not recorded then: it is said, and the rest is there.
    assert found["closed_answers"].says.startswith(("Cannot be computed", "Not applicable"))
    again = unpack(archive, runs / "again")
    folkmoot("compare", run.path, again)


@pytest.mark.parametrize(
    "archive",
    sample_daily(STUDIES, daily=STUDIES[1::3], part="pages"),
    ids=lambda archive: archive.stem,
)
def test_the_reader_shows_an_earlier_run_of_each_study(archive: Path, runs: Path) -> None:
    run = RunFolder(runs / archive.stem)
    speaker = SHOWN[archive.stem][0]
    first = run.read_table("answers").filter(pl.col("speaker_id") == speaker)["address"][0]
    pages = ["", "findings", "people", f"person?id={speaker}", "rooms", "search?q=a"]
    with create_viewer_server(runs) as server:
        for page in (*pages, f"call?at={first}"):
            shown = server.get(f"/run/{archive.stem}/-/{page}")
            assert shown.status == 200, (page, shown.text)
        assert speaker in server.get(f"/run/{archive.stem}/-/people").text


@pytest.mark.parametrize("archive", STUDIES, ids=lambda archive: archive.stem)
def test_what_cannot_be_recomputed_of_an_earlier_run_is_said(archive: Path, tmp_path: Path) -> None:
    """It is either rebuilt without a difference, or the version that made it is named."""
    run = unpack(archive, tmp_path)
    done = CliRunner().invoke(app, ["verify", str(run)])
    assert done.exit_code in (0, 4), done.output
    if done.exit_code == 4:
        source = RunFolder(run).manifest["software"]["source"]
        assert f"source {source}" in " ".join(done.output.split())
        assert "changed after the run" not in done.output


@pytest.mark.parametrize("archive", WITH_PEOPLE, ids=lambda archive: archive.stem)
def test_withdrawing_from_an_earlier_run_says_what_can_be_done(
    archive: Path, tmp_path: Path
) -> None:
    """Such a run does not record the sources of texts in prompts, so nothing is changed."""
    run = RunFolder(unpack(archive, tmp_path))
    place = next(iter(read_seats(run.path)))
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    told = folkmoot("withdraw", run.path, place.name, "--yes", code=2)
    assert "did not record the sources of texts in prompts" in told
    made = run.manifest["software"]["folkmoot"]
    assert f"withdraw with the version that made it, {made}" in told and "delete" in told
    assert {path: path.read_bytes() for path in before} == before


def resume(run: Path, study: Path, *settings: str) -> tuple[int, str]:
    shutil.copy(run / "study.yaml", study)
    changed = [part for setting in settings for part in ("--set", setting)]
    done = CliRunner().invoke(app, ["run", str(study), "--out", str(run), "--resume", *changed])
    return done.exit_code, " ".join(done.output.split())


def test_a_paused_run_of_an_earlier_version_goes_on_or_names_it(tmp_path: Path) -> None:
    run = unpack(PAUSED, tmp_path)
    source = RunFolder(run).manifest["software"]["source"]
    folkmoot("report", run)
    assert "PARTIAL" in (run / "report.html").read_text("utf-8")
    folkmoot("show", run)
    code, told = resume(run, tmp_path / "study.yaml", "budget_calls=100000")
    assert code == 0 or (code == 2 and f"source {source}" in told)


def test_other_requests_than_those_of_a_paused_run_name_the_version_that_made_it(
    tmp_path: Path,
) -> None:
    run = unpack(PAUSED, tmp_path)
    made = RunFolder(run).manifest["software"]
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "initial_vote.md").write_text("Choose one:\n{{ options | listed }}\n", "utf-8")
    code, told = resume(run, tmp_path / "study.yaml", "budget_calls=9999", f"prompts={prompts}")
    assert code == 2 and f"made by Folkmoot {made['folkmoot']}, source {made['source']}" in told
