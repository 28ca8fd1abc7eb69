"""Files of a run are complete on disk before the protocol continues. Errors stop the protocol."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.errors import BudgetReachedError, StorageError
from folkmoot.models.scripted import ScriptedProvider


@pytest.mark.parametrize("name", ["a.json", "tables/rows.csv"])
def test_run_fails_if_a_file_cannot_be_written(tmp_path: Path, name: str) -> None:
    async def protocol(session: Session) -> None:
        (session.run_folder / name).mkdir(parents=True)
        session.write_json("a.json", {"is": "written"})
        session.record("rows", {"column": 1})

    study = Study("trial", "Trial", StudyConfig, protocol)
    with pytest.raises(StorageError, match=Path(name).name):
        folkmoot.run(
            study,
            {},
            out=tmp_path / "run",
            provider=ScriptedProvider(lambda _request, _address: "yes"),
        )
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["outcome"] == "failed"
    assert "failed" in (tmp_path / "run" / "run.log").read_text()
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_paused_run_says_why_it_has_no_tables(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        (session.run_folder / "tables" / "rows.csv").mkdir(parents=True)
        session.record("rows", {"column": 1})
        for _ in range(2):
            await session.ask(Speaker("ann"), "Well?")

    study = Study("trial", "Trial", StudyConfig, protocol)
    provider = ScriptedProvider(lambda _request, _address: "yes")
    with pytest.raises(BudgetReachedError):
        folkmoot.run(study, {"budget_calls": 1}, out=tmp_path / "run", provider=provider)
    log = (tmp_path / "run" / "run.log").read_text()
    assert "the outputs of this run are not complete" in log and "rows.csv" in log


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("name", ["run.log", "log.jsonl"])
def test_full_disk_for_the_log_is_reported_and_no_data_is_lost(tmp_path: Path, name: str) -> None:
    async def protocol(session: Session) -> None: ...

    study = Study("trial", "Trial", StudyConfig, protocol)
    folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda _request, _address: "yes")
    )
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).symlink_to("/dev/full")
    with pytest.raises(StorageError, match="the disk is full; free some space, then try again"):
        folkmoot.run(
            study,
            {},
            out=tmp_path / "run",
            provider=ScriptedProvider(lambda _request, _address: "yes"),
        )


def test_files_exist_at_the_end_of_the_run(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        for n in range(50):
            session.write_json("count.json", n)
            session.write_text(f"texts/{n}.txt", str(n))

    study = Study("trial", "Trial", StudyConfig, protocol)
    run = folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda _request, _address: "yes")
    )
    assert json.loads((run.path / "count.json").read_text()) == 49
    assert len(list((run.path / "texts").iterdir())) == 50


def test_file_that_cannot_be_written_stops_the_protocol_at_that_call(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        (session.run_folder / "a.json").mkdir()
        session.write_json("a.json", 0)
        session.write_json("b.json", 1)

    study = Study("trial", "Trial", StudyConfig, protocol)
    with pytest.raises(StorageError, match=r"a\.json"):
        folkmoot.run(
            study,
            {},
            out=tmp_path / "run",
            provider=ScriptedProvider(lambda _request, _address: "yes"),
        )
    assert not (tmp_path / "run" / "b.json").exists()
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_large_finished_run_leaves_no_objects_in_memory(tmp_path: Path) -> None:
    class Mark:
        pass

    async def protocol(session: Session) -> None:
        ring: list[object] = [[number] for number in range(200_000)]
        ring += [Mark(), ring]

    study = Study("trial", "Trial", StudyConfig, protocol)
    folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda _request, _address: "yes")
    )
    assert not [tracked for tracked in gc.get_objects() if type(tracked) is Mark]


CUSTOM_STUDY = """
from folkmoot import Session, Speaker, Study, StudyConfig

async def protocol(session: Session) -> None:
    session.record("said", {"text": str(await session.ask(Speaker("p1"), "Well?"))})

STUDY = Study("one", "One", StudyConfig, protocol)
"""


def test_run_killed_before_its_manifest_is_reported_with_the_study_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables exist. The code of the study is beside the study file, outside the run folder."""
    from typer.testing import CliRunner

    from folkmoot.cli.app import app

    monkeypatch.setenv("FOLKMOOT_TRUST", "1")
    study_folder = tmp_path / "studies" / "mine"
    study_folder.mkdir(parents=True)
    (study_folder / "one.py").write_text(CUSTOM_STUDY, "utf-8")
    (study_folder / "one.yaml").write_text("study: ./one.py\n", "utf-8")
    out = tmp_path / "results" / "deep" / "run"
    folkmoot.run(study_folder / "one.yaml", out=out, model="synthetic", trust=True)
    (out / "manifest.json").unlink()
    result = CliRunner().invoke(app, ["report", str(out)])
    assert result.exit_code == 0, result.output
    assert "PARTIAL" in (out / "report.html").read_text("utf-8")
