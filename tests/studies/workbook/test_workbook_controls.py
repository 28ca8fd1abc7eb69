"""Controls of a workbook with several experiments."""

from __future__ import annotations

from pathlib import Path

import folkmoot
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.tables import ControlRow, PersonaVarianceRow
from folkmoot.report.document.document import build_document
from folkmoot.storage.run_folder import RunFolder
from tests.studies.workbook.workbook_builder import make_workbook, save_workbook, with_cell


def test_a_session_is_one_unit_in_however_many_experiments(tmp_path: Path) -> None:
    """Three experiments of the same two sessions are two units, and eight participants."""
    goods = '["apples", "pears", "plums"]'
    book = with_cell(make_workbook(), "constants!B2", goods)
    path = save_workbook(book, tmp_path / "book.xlsx")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    controls = run_controls(run, {"same_length": True}, RunOptions())
    answers = controls.read_table(ControlRow.table)
    assert answers["unit"].n_unique() == 6 and answers["participant_id"].n_unique() == 8
    findings = {finding.key: finding for finding in control_findings(run)}
    # A contrast within one treatment rests on its one session.
    units = {"user_drift": 1, "reliability": 2, "where_the_effect_comes_from": 1}
    for key, count in units.items():
        assert findings[key].independent == f"Independent unit: conversation ({count}).", key
        assert findings[key].says.startswith("An illustration, not evidence: ")
    assert "8 participants" in findings["who_was_asked"].says
    variance = controls.read_table(PersonaVarianceRow.table)
    assert {*variance.select("participants", "missing").rows()} == {(8, "too_few")}
    ((_, verification),) = verify_controls(run)
    assert not verification.differences
    methods = build_document(RunFolder(run.path), study=find_study_of_run(run)).methods
    assert methods is not None
    said = " ".join(methods.paragraphs)
    assert "asked again: 24 answers of 8 participants" in said
