"""People and models who answered the same questions of one run, in its report."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState
from folkmoot.errors import InputError
from folkmoot.measures.inference.proportions import newcombe
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.mixed import people_and_models
from folkmoot.report.document.document import build_document
from folkmoot.report.document.html import write_report
from folkmoot.report.export import export_run
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from tests.engine.test_seats import build_seat_host

STUDY = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: 20
conditions: [simple_voting]
min_responses_for_threshold: 50
personas: {source: quota}
"""


def rows(finding: Finding) -> list[dict[str, object]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


def voted(folder: Path, people: int, option: str = "Keep it open") -> RunFolder:
    """A vote in which so many people choose this option, and models as they would."""
    path = folder / "centre.yaml"
    path.write_text(f"{STUDY}seats: {people}\n", "utf-8")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        return option if question.view.options else "Words of my own."

    return folkmoot.run(path, out=folder / "run", seat_host=build_seat_host(answer)).folder


def test_shares_of_people_and_models_and_their_difference(tmp_path: Path) -> None:
    """Twelve people who all say one thing beside eight models: the figures are those of the
    table, the difference is Newcombe's, and the report says it on its first page."""
    run = voted(tmp_path, 12)
    finding = people_and_models(run)
    assert finding is not None and not finding.illustrates and finding.headline
    first = run.read_table("answers").filter(stage="initial_vote", answered_by="synthetic")
    kept = int((first["value"] == "Keep it open").sum())
    e = newcombe(kept, len(first), 12, 12)
    (row,) = (r for r in rows(finding) if r["answer"] == "initial vote: Keep it open")
    assert (row["people"], row["people_n"], row["models_n"]) == (1.0, 12, len(first))
    assert row["models"] == kept / len(first)
    assert (row["models_minus_people"], row["low"], row["high"]) == (e.value, e.low, e.high)
    assert row["p"] == e.p and row["adjusted_p"] is not None
    assert finding.unit == "seat" and finding.units == 12
    shown = build_document(run)
    assert "people_and_models" in {f.finding.key for f in shown.headlines}
    assert "People and models who answered the same questions" in write_report(run).read_text(
        "utf-8"
    )


def test_fewer_than_five_people_are_an_illustration(tmp_path: Path) -> None:
    finding = people_and_models(voted(tmp_path, 4))
    assert finding is not None and finding.illustrates
    assert finding.says.startswith("An illustration, not evidence: 4 seats.")
    for row in rows(finding):
        assert row["people_n"] == 4
        assert row["low"] is row["high"] is row["p"] is row["adjusted_p"] is None


def test_without_people_or_without_models_there_is_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    assert people_and_models(voted(tmp_path / "all", 20)) is None
    path = tmp_path / "centre.yaml"
    path.write_text(STUDY, "utf-8")
    assert people_and_models(folkmoot.run(path, out=tmp_path / "run").folder) is None


def test_the_same_seats_are_compared_between_a_run_with_people_and_one_without(
    tmp_path: Path,
) -> None:
    """`compare_runs` puts people's votes beside what models said in the same seats, and corrects
    the simulation by them."""
    for name in ("mixed", "models"):
        (tmp_path / name).mkdir()
    mixed = voted(tmp_path / "mixed", 12)
    path = tmp_path / "models" / "centre.yaml"
    path.write_text(STUDY, "utf-8")
    models = folkmoot.run(path, out=tmp_path / "models" / "run").folder
    found = {f.key: f for f in compare_runs([models, mixed])}
    (row,) = (r for r in rows(found["people_calibration"]) if r["measure"] == "initial choice")
    votes = models.read_table("participants")["initial_choice"].drop_nulls()
    assert row["off"] == pytest.approx((votes == "Close it").mean())
    corrected = {str(row["measure"]): row for row in rows(found["people_rectified"])}
    assert corrected.keys() == {"initial_choice: Close it", "initial_choice: Keep it open"}
    kept = corrected["initial_choice: Keep it open"]
    assert (kept["people"], kept["people_alone"]) == (12, 1.0)


def test_ids_of_links_leave_a_run_only_when_told_to(tmp_path: Path) -> None:
    """No export takes them along by itself; told to, one file says which seat came by which id,
    for its owner alone; where there are none that is said."""
    run = voted(tmp_path, 5)
    names = run.plan["sealed"]["seats"]["data"]
    kept = {names[0]: {"PROLIFIC_PID": "5f3a"}, names[1]: {"PROLIFIC_PID": "=1+1"}}
    with pytest.raises(InputError, match="contains no recruitment ids"):
        export_run(run, "csv", tmp_path / "none", with_ids=True)
    assert not (tmp_path / "none").exists()
    (run.path / "people.json").write_text(json.dumps(kept), "utf-8")
    for to in ("csv", "parquet", "json"):
        export_run(run, to, tmp_path / to)
        held = [p for p in (tmp_path / to).rglob("*") if p.is_file() and b"5f3a" in p.read_bytes()]
        assert held == [] and not (tmp_path / to / "people.csv").exists()
    called = CliRunner().invoke(
        app, ["export", str(run.path), "--out", str(tmp_path / "told"), "--with-ids"]
    )
    assert called.exit_code == 0, called.output
    told = tmp_path / "told" / "people.csv"
    lines = told.read_text("utf-8").splitlines()
    assert lines == ["seat,PROLIFIC_PID", f"{names[0]},5f3a", f"{names[1]},'=1+1"]
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
