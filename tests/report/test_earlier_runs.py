"""Run folders that earlier versions wrote open in the report, the comparison, `show` and the
reader. Each file of `earlier/` is a run of eight participants, made by the version of its day."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.journal import JournalReader
from folkmoot.report.compare import compare
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.view.conftest import reader

EARLIER = sorted((Path(__file__).parent / "earlier").glob("*.zip"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    for archive in EARLIER:
        shutil.unpack_archive(archive, folder / archive.stem)
    return folder


@pytest.mark.parametrize("name", [archive.stem for archive in EARLIER])
def test_a_run_of_an_earlier_version_opens(runs: Path, name: str) -> None:
    run = RunFolder(runs / name)
    with JournalReader(run.path / JOURNAL) as journal:
        before = journal.content_digest()
        assert journal.format == (1 if name == "journal_format_1" else 3)
    assert set(run.table("answers").columns) >= {"address", "parse_step"}
    for command in (["report", str(run.path)], ["show", str(run.path), "p_0001"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert "Adversarial" in (run.path / "report.html").read_text("utf-8")
    with JournalReader(run.path / JOURNAL) as journal:
        assert journal.content_digest() == before


def test_runs_of_all_versions_are_compared_with_each_other(runs: Path) -> None:
    found = {f.key: f for f in compare([runs / archive.stem for archive in EARLIER])}
    assert {"designs", "compare_change", "compare_votes"} <= set(found)


def test_the_reader_shows_runs_of_all_versions(runs: Path) -> None:
    with reader(runs) as server:
        for archive in EARLIER:
            for page in ("people", "person?id=p_0001"):
                shown = server.get(f"/run/{archive.stem}/-/{page}")
                assert shown.status == 200 and "p_0001" in shown.text, shown.text
