"""A finished run is coded, corrected by hand, and verified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import load_workbook
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run.execution import RunOptions
from folkmoot.errors import BudgetReachedError, InputError, StorageError
from folkmoot.kit import coding
from folkmoot.kit.coding.post_hoc import code_finished_run
from folkmoot.kit.coding.results import coding_finding, text_digest
from folkmoot.kit.coding.sheet import anonymous_number, read_sheet, write_sheet
from folkmoot.measures.agreement import krippendorff_alpha
from folkmoot.report.document.document import build_document
from folkmoot.report.export import export_run
from folkmoot.storage.amendments import Amendment, append_amendments, read_amendments
from folkmoot.storage.run_folder import RunFolder
from tests.kit.test_coding import FIRST, SECOND, code_by_words, make_coder, run_diary
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

pytestmark = pytest.mark.usefixtures("read_workbooks_in_process")

DIARY = Path(__file__).parent / "diary.py"


@pytest.fixture
def coded_run(tmp_path: Path) -> RunFolder:
    """Make a run that one model coded, with its study file beside it."""
    study = tmp_path / "diary.yaml"
    study.write_text(f"study: {DIARY}\nmodels: {{coder: {FIRST}}}\n")
    return folkmoot.run(study, provider=make_coder(code_by_words), out=tmp_path / "run").folder


def run_command(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def read_journal(folder: RunFolder) -> bytes:
    return (folder.path / "journal.sqlite").read_bytes()


def fill_column(path: Path, sheet: str, cells: dict[tuple[str, str], str], column: str) -> None:
    """Write values into a column, by text id and by code or target."""
    cells = {
        (anonymous_number("price", text), target): value for (text, target), value in cells.items()
    }
    workbook = load_workbook(path)
    rows = list(workbook[sheet].iter_rows())
    names = [cell.value for cell in rows[0]]
    target = "code" if "code" in names else "of"
    for row in rows[1:]:
        cells_by_column = {name: cell.value or "" for name, cell in zip(names, row, strict=True)}
        if (value := cells.get((cells_by_column["number"], cells_by_column[target]))) is not None:
            row[names.index(column)].value = value
    workbook.save(path)


def test_a_second_coding_keeps_a_run_verifiable(coded_run: RunFolder) -> None:
    journal_before = read_journal(coded_run)
    options = RunOptions(custom_provider=make_coder(lambda text, _: code_by_words(text)[:1]))
    code_finished_run(coded_run, SECOND, options)
    assert read_journal(coded_run) == journal_before
    reloaded = RunFolder(coded_run.path)
    results = coding.read_codings(reloaded)["price"]
    assert [
        (coder_result.name, len(coder_result.codes))
        for coder_result in results.coders
        if coder_result.coder_role == "coder"
    ] == [
        (FIRST, 4),
        (SECOND, 4),
    ]
    assert results.primary_coder is not None and results.primary_coder.name == FIRST
    assert "α = " in results.note
    exit_code, output = run_command("verify", coded_run.path)
    assert exit_code == 0, output
    assert f"Amended since the run: 1 × coding, by {SECOND}" in output


def test_only_the_sample_can_be_coded_afterwards(tmp_path: Path) -> None:
    run = run_diary(tmp_path, coding={"sample": 2})
    second_coder = make_coder(code_by_words)
    code_finished_run(run.folder, SECOND, RunOptions(custom_provider=second_coder), sample=True)
    assert second_coder.calls == 2


def test_an_uncoded_run_can_be_coded_later(tmp_path: Path) -> None:
    run = run_diary(tmp_path, coding=False)
    code_finished_run(run.folder, FIRST, RunOptions(custom_provider=make_coder(code_by_words)))
    results = coding.read_codings(RunFolder(run.path))["price"]
    assert results.supports_findings and results.codes_of("treated/day0") == {
        "too_dear": "too expensive"
    }


@pytest.mark.parametrize("name", [FIRST, "gpt-4o"])
def test_a_coder_cannot_code_the_same_run_twice(coded_run: RunFolder, name: str) -> None:
    exit_code, output = run_command("codes", coded_run.path, "--coder", name)
    assert exit_code == 2 and "has already coded this run" in output


def test_a_coding_that_reached_its_budget_is_resumed_by_the_same_command(
    tmp_path: Path, coded_run: RunFolder
) -> None:
    provider = make_coder(code_by_words)

    def stop_after_two_calls(text: str, request: Any) -> Any:
        if provider.calls + stopping_coder.calls > 2:
            raise BudgetReachedError("used up")
        return code_by_words(text)

    stopping_coder = make_coder(stop_after_two_calls)
    with pytest.raises(BudgetReachedError):
        code_finished_run(
            coded_run, SECOND, RunOptions(custom_provider=stopping_coder, concurrency=1)
        )
    assert not read_amendments(coded_run.path)
    unfinished = f"The coding by {SECOND} is not finished: `folkmoot codes RUN --coder {SECOND}`"
    assert unfinished in run_command("codes", coded_run.path)[1]
    code_finished_run(coded_run, SECOND, RunOptions(custom_provider=provider))
    assert provider.calls == 2
    assert "is not finished" not in run_command("codes", coded_run.path)[1]
    assert [amendment.kind for amendment in read_amendments(coded_run.path)] == ["coding"]


def test_a_deleted_coding_is_reported_and_does_not_count(coded_run: RunFolder) -> None:
    code_finished_run(coded_run, SECOND, RunOptions(custom_provider=make_coder(code_by_words)))
    (folder,) = (coded_run.path / "codings").iterdir()
    shutil.rmtree(folder)
    assert run_command("codes", coded_run.path)[0] == 0
    assert [
        coder_result.name for coder_result in coding.read_codings(coded_run)["price"].coders
    ].count(SECOND) == 0
    exit_code, output = run_command("verify", coded_run.path)
    assert exit_code == 4 and output.count(f"The folder codings/{folder.name} is missing") == 1
    exit_code, output = run_command("codes", coded_run.path, "--coder", SECOND)
    assert exit_code == 2 and f"{SECOND} has coded this run, but" in " ".join(output.split())


def test_a_changed_coding_is_reported(coded_run: RunFolder) -> None:
    code_finished_run(coded_run, SECOND, RunOptions(custom_provider=make_coder(code_by_words)))
    table = next((coded_run.path / "codings").rglob("codes.csv"))
    table.write_text(table.read_text().replace("too_dear", "fair"))
    exit_code, output = run_command("verify", coded_run.path)
    assert exit_code == 4 and "codes.csv was changed" in output


def test_a_human_corrects_codes_on_a_sheet(tmp_path: Path, coded_run: RunFolder) -> None:
    sheet = tmp_path / "codes.xlsx"
    journal = read_journal(coded_run)
    exit_code, output = run_command("codes", coded_run.path, "--sheet", sheet)
    assert exit_code == 0, output
    fill_column(
        sheet,
        "codes",
        {
            ("treated/day0", "too_dear"): "ok",
            ("treated/day1", "fair"): "Too dear",
            ("treated/day3", "fair"): "none",
            ("treated/day2", "(none)"): "fair",
        },
        "corrected",
    )
    exit_code, output = run_command("codes", coded_run.path, "--read", sheet, "--by", "Ann")
    assert exit_code == 0, output
    assert "4 amendments by Ann" in output
    results = coding.read_codings(RunFolder(coded_run.path))["price"]
    assert {
        text_id: set(codes)
        for text_id in results.texts
        if (codes := results.codes_of(text_id)) is not None
    } == {
        "treated/day0": {"too_dear"},
        "treated/day1": {"too_dear"},
        "treated/day2": {"fair"},
        "treated/day3": {"too_dear"},
    }
    assert "A human checked 4 codes and confirmed 25 %." in results.note
    assert read_journal(coded_run) == journal
    exit_code, output = run_command("verify", coded_run.path)
    assert exit_code == 0 and "4 × code, by Ann" in output
    # The table has the codes of the run, so the export says that there are others.
    for export_format in ("csv", "json"):
        export_run(RunFolder(coded_run.path), export_format, tmp_path / export_format)
        readme = " ".join((tmp_path / export_format / "README.txt").read_text("utf-8").split())
        assert "codings: 4 codes checked by a human. Findings use the corrected codes." in readme
    # Reading the same sheet again changes nothing.
    assert read_sheet(RunFolder(coded_run.path), sheet, "Ann") == []
    assert "confirmed 25 %" in run_command("codes", coded_run.path)[1]


def test_a_human_codes_the_sample_blind_and_alpha_is_reported(
    tmp_path: Path, coded_run: RunFolder
) -> None:
    sheet = tmp_path / "blind.xlsx"
    run_command("codes", coded_run.path, "--sheet", sheet, "--blind")
    cells = [item.value for row in load_workbook(sheet)["sample"].iter_rows() for item in row]
    assert not {"too_dear", "fair", "too expensive", FIRST} & set(cells)
    assert not any("treated" in str(cell) for cell in cells), "an id tells the arm"
    codes = {("treated/day0", ""): "too_dear", ("treated/day1", ""): "too_dear; fair"}
    fill_column(sheet, "sample", {**codes, ("treated/day2", ""): "none"}, "your_codes")
    assert len(read_sheet(coded_run, sheet, "Ann")) == 3
    results = coding.read_codings(RunFolder(coded_run.path))["price"]
    human = next(item for item in results.coders if item.coder_role == "person")
    assert set(human.codes) == {"treated/day0", "treated/day1", "treated/day2"}
    # 6 units, 5 of 12 given, one disagreement: 1 − 11·2/(2·5·7).
    assert results.agreement_with(human).value == pytest.approx(1 - 22 / 70)
    assert results.codes_by_text["treated/day1"].keys() == {("{}", "fair")}, (
        "a blind code corrects nothing"
    )
    # Several humans may code the sample, so each α has a name.
    assert len(read_sheet(coded_run, sheet, "Bo")) == 3
    finding = coding_finding(RunFolder(coded_run.path))
    assert finding is not None
    by_code = [note for note in finding.notes if "by code:" in note]
    assert [note.partition(" by code:")[0] for note in by_code] == [
        "price, α of rule",
        "price, α of person Ann",
        "price, α of person Bo",
    ]


def test_the_checklist_of_a_report_names_humans_who_coded(
    tmp_path: Path, coded_run: RunFolder
) -> None:
    def read_items() -> dict[str, str]:
        methods = build_document(RunFolder(coded_run.path)).methods
        assert methods is not None
        return {str(row[0]): str(row[2]) for row in methods.checklist.rows}

    items = read_items()
    assert items["A.2"] == "Fully automated." and items["E.1"].startswith("not recorded")
    corrected, blind = tmp_path / "codes.xlsx", tmp_path / "blind.xlsx"
    run_command("codes", coded_run.path, "--sheet", blind, "--blind")
    run_command("codes", coded_run.path, "--sheet", corrected)
    corrections = {("treated/day0", "too_dear"): "ok", ("treated/day1", "fair"): "Too dear"}
    fill_column(corrected, "codes", corrections, "corrected")
    fill_column(blind, "sample", {("treated/day0", ""): "too_dear"}, "your_codes")
    read_sheet(coded_run, corrected, "Ann")
    read_sheet(coded_run, corrected, "Bo")
    read_sheet(coded_run, blind, "Cem")
    read_sheet(coded_run, blind, "Dee")
    coding = (
        "Coding by people after the run: 2 codes checked by Ann and Bo and 1 text coded by Cem "
        "and Dee without seeing the codes (see “How free text was coded”)."
    )
    items = read_items()
    assert items["A.2"] == f"The run itself was fully automated. {coding}"
    assert items["E.1"] == coding


DECISION_CODEBOOK = """
name: price
question: Who gets what?
choose: one
level: ordinal
slots: {what: the thing, who: the person}
codes:
  - {name: gets, definition: Gets it.}
  - {name: later, definition: Gets it later.}
  - {name: never, definition: Never gets it.}
"""


def test_a_human_codes_texts_about_several_targets(tmp_path: Path) -> None:
    code_of_tea = {"quote": "one", "what": "tea", "who": "all"}
    run = run_diary(
        tmp_path,
        make_coder(
            lambda text, _: [
                {"code": "gets", **code_of_tea},
                {**code_of_tea, "what": "rum", "code": "later"},
            ]
        ),
        book=DECISION_CODEBOOK,
        diaries=("Everyone.", "Each one."),
        slots={"who": ["Ann", "Bo"], "what": ["tea", "rum"]},
    ).folder
    sheet = tmp_path / "blind.xlsx"
    assert write_sheet(run, sheet, blind=True) == 8
    targets = {
        (thing, member): json.dumps({"what": thing, "who": member})
        for thing in ("tea", "rum")
        for member in ("Ann", "Bo")
    }
    codes_by_target = {("tea", "Ann"): "gets", ("tea", "Bo"): "gets", ("rum", "Ann"): "later"}
    cells = {("treated/day1", targets[target]): code for target, code in codes_by_target.items()}
    fill_column(
        sheet, "sample", {**cells, ("treated/day1", targets["rum", "Bo"]): "never"}, "your_codes"
    )
    read_sheet(run, sheet, "Ann")
    results = coding.read_codings(RunFolder(run.path))["price"]
    assert results.codes_with_target("treated/day1")[0] == (
        {"what": "tea", "who": "Ann"},
        "gets",
        "one",
    )
    human = next(
        coder_result for coder_result in results.coders if coder_result.coder_role == "person"
    )
    # Codes in order: gets 2/2, gets 2/2, later/later, later/never, by Krippendorff's formula.
    expected = krippendorff_alpha([[0, 0, 1, 1], [0, 0, 1, 2]], "ordinal")
    assert results.agreement_with(human).value == pytest.approx(expected)
    assert results.agreement_with(human).clusters == 1, (
        "the units of one text are no independent texts"
    )


def test_a_line_that_a_blind_coder_left_empty_is_in_no_alpha(tmp_path: Path) -> None:
    run = run_diary(
        tmp_path,
        make_coder(
            lambda text, _: [
                {"code": "gets", "quote": "one", "what": "tea", "who": "all"},
                {"code": "later" if "Each" in text else "never", "quote": "one", "what": "rum"},
            ]
        ),
        book=DECISION_CODEBOOK.replace("level: ordinal\n", "").replace(", who: the person", ""),
        diaries=("No one.", "Each one."),
        slots={"what": ["tea", "rum"]},
    ).folder
    sheet = tmp_path / "blind.xlsx"
    write_sheet(run, sheet, blind=True)
    tea, rum = json.dumps({"what": "tea"}), json.dumps({"what": "rum"})
    # The human agrees on each of the lines that they examined, and left one empty.
    cells = {("treated/day0", tea): "gets", ("treated/day0", rum): "never"}
    fill_column(sheet, "sample", {**cells, ("treated/day1", rum): "later"}, "your_codes")
    assert len(read_sheet(run, sheet, "Ann")) == 3
    results = coding.read_codings(RunFolder(run.path))["price"]
    human = next(coder for coder in results.coders if coder.coder_role == "person")
    assert results.agreement_with(human).value == 1
    assert results.agreement_by_code(human) == {"gets": 1, "later": 1, "never": 1}


ONE_OR_SEVERAL = """
name: price
question: What does the speaker say about the price?
choose: {choose}
codes:
  - {{name: too_dear, definition: The price is too high.}}
  - {{name: fair, definition: The price is fair.}}
"""


def run_both_codes(folder: Path, choose: str) -> RunFolder:
    """Make a run in which the coder gives `too_dear`, and `fair` too if several are allowed."""
    codes = ("too_dear", "fair") if choose == "any" else ("too_dear",)
    coder = make_coder(lambda _text, _: [{"code": code, "quote": "one"} for code in codes])
    book = ONE_OR_SEVERAL.format(choose=choose)
    return run_diary(folder, coder, book=book, diaries=("Each one.",)).folder


@pytest.mark.parametrize(
    ("too_dear", "fair", "expected"),
    [
        ("fair", "none", {"fair"}),
        ("none", "too_dear", {"too_dear"}),
        ("fair", "too_dear", {"too_dear", "fair"}),
        ("none", "none", set()),
    ],
)
def test_corrections_of_one_text_refer_to_the_codes_of_the_coder(
    tmp_path: Path, too_dear: str, fair: str, expected: set[str]
) -> None:
    run = run_both_codes(tmp_path, "any")
    sheet = tmp_path / "codes.xlsx"
    write_sheet(run, sheet, blind=False)
    cells = {("treated/day0", "too_dear"): too_dear, ("treated/day0", "fair"): fair}
    fill_column(sheet, "codes", cells, "corrected")
    read_sheet(run, sheet, "Ann")
    codes = coding.read_codings(RunFolder(run.path))["price"].codes_of("treated/day0")
    assert codes is not None and set(codes) == expected


def add_code(sheet: Path, code: str) -> None:
    """Copy the first line of a sheet, clear its code, and write another code as correction."""
    workbook = load_workbook(sheet)
    names, line, *_ = workbook["codes"].iter_rows(values_only=True)
    added = {**dict(zip(names, line, strict=True)), "code": None, "quote": None, "corrected": code}
    workbook["codes"].append([added[name] for name in names])
    workbook.save(sheet)


def test_a_second_code_is_refused_where_one_is_allowed(tmp_path: Path) -> None:
    run = run_both_codes(tmp_path, "one")
    sheet = tmp_path / "codes.xlsx"
    write_sheet(run, sheet, blind=False)
    add_code(sheet, "fair")
    exit_code, output = run_command("codes", run.path, "--read", sheet, "--by", "Bo")
    assert exit_code == 2 and "this codebook allows one code" in output
    assert "write the right code into the line of too_dear" in output
    assert not read_amendments(run.path)


def test_a_second_code_that_an_earlier_version_took_replaces_that_of_the_coder(
    tmp_path: Path,
) -> None:
    run = run_both_codes(tmp_path, "one")
    results = coding.read_codings(run)["price"]
    words = text_digest(results.texts["treated/day0"])
    data = {"codebook": "price", "text_id": "treated/day0", "words": words, "of": "{}"}
    added = {**data, "was": "(none)", "code": "fair", "quote": ""}
    append_amendments(run.path, [Amendment("code", "Bo", "2026-01-01T00:00:00+00:00", added)])
    assert coding.read_codings(RunFolder(run.path))["price"].single_code("treated/day0") == "fair"


THREE_CODES = (
    ONE_OR_SEVERAL.format(choose="any") + "  - {name: unclear, definition: Nothing can be said.}\n"
)


def test_each_code_that_a_human_adds_counts_and_can_be_checked_later(tmp_path: Path) -> None:
    coder = make_coder(lambda _text, _: [{"code": "too_dear", "quote": "one"}])
    run = run_diary(tmp_path, coder, book=THREE_CODES, diaries=("Each one.",)).folder

    def list_codes() -> set[str]:
        return set(coding.read_codings(RunFolder(run.path))["price"].codes_of("treated/day0") or ())

    first, second = tmp_path / "first.xlsx", tmp_path / "second.xlsx"
    write_sheet(run, first, blind=False)
    add_code(first, "fair")
    add_code(first, "unclear")
    assert len(read_sheet(run, first, "Bo")) == 2
    assert list_codes() == {"too_dear", "fair", "unclear"}
    # A later sheet lists the added codes too.
    write_sheet(RunFolder(run.path), second, blind=False)
    cells = {("treated/day0", "fair"): "ok", ("treated/day0", "unclear"): "none"}
    fill_column(second, "codes", cells, "corrected")
    assert len(read_sheet(RunFolder(run.path), second, "Cleo")) == 2
    assert list_codes() == {"too_dear", "fair"}
    # The coder gave neither of the two codes.
    note = coding.read_codings(RunFolder(run.path))["price"].note
    assert "confirmed" not in note


@pytest.mark.parametrize(
    ("choose", "sheets"),
    [
        # A code is added, struck out, and added again.
        ("any", [("(none)", "fair"), ("fair", "none"), ("(none)", "fair")]),
        # Humans change their code and return to it.
        ("one", [("too_dear", "fair"), ("fair", "unclear"), ("unclear", "fair")]),
        # The last sheet was written before the second one was read.
        ("one", [("too_dear", "unclear"), ("unclear", "too_dear"), ("too_dear", "fair")]),
    ],
)
def test_the_last_human_who_corrects_a_code_decides(
    tmp_path: Path, choose: str, sheets: list[tuple[str, str]]
) -> None:
    coder = make_coder(lambda _text, _: [{"code": "too_dear", "quote": "one"}])
    book = THREE_CODES.replace("choose: any", f"choose: {choose}")
    run = run_diary(tmp_path, coder, book=book, diaries=("Each one.",)).folder
    old_sheet = tmp_path / "old.xlsx"
    write_sheet(run, old_sheet, blind=False)
    for number, (was, corrected) in enumerate(sheets):
        sheet = tmp_path / f"{number}.xlsx"
        if was == "too_dear":
            sheet.write_bytes(old_sheet.read_bytes())
        else:
            write_sheet(RunFolder(run.path), sheet, blind=False)
        if was == "(none)":
            add_code(sheet, corrected)
        else:
            fill_column(sheet, "codes", {("treated/day0", was): corrected}, "corrected")
        assert len(read_sheet(RunFolder(run.path), sheet, f"Human {number}")) == 1
    codes = coding.read_codings(RunFolder(run.path))["price"].codes_of("treated/day0")
    assert set(codes or ()) == {"fair"} | ({"too_dear"} if choose == "any" else set())


def test_an_added_code_is_no_code_that_a_human_checked(tmp_path: Path) -> None:
    coder = make_coder(lambda _text, _: [{"code": "too_dear", "quote": "one"}])
    book = ONE_OR_SEVERAL.format(choose="any")
    run = run_diary(tmp_path, coder, book=book, diaries=("Each one.",)).folder
    sheet = tmp_path / "codes.xlsx"
    write_sheet(run, sheet, blind=False)
    fill_column(sheet, "codes", {("treated/day0", "too_dear"): "ok"}, "corrected")
    add_code(sheet, "fair")
    assert len(read_sheet(run, sheet, "Bo")) == 2
    results = coding.read_codings(RunFolder(run.path))["price"]
    assert set(results.codes_of("treated/day0") or ()) == {"too_dear", "fair"}
    assert "A human checked 1 code and confirmed 100 %." in results.note


def test_a_correction_of_an_outdated_text_does_not_count(
    tmp_path: Path, coded_run: RunFolder
) -> None:
    sheet = tmp_path / "codes.xlsx"
    write_sheet(coded_run, sheet, blind=False)
    fill_column(sheet, "codes", {("treated/day1", "fair"): "too_dear"}, "corrected")
    read_sheet(coded_run, sheet, "Ann")
    assert (
        coding.read_codings(RunFolder(coded_run.path))["price"].single_code("treated/day1")
        == "too_dear"
    )
    study = tmp_path / "diary.yaml"
    diaries = ["It’s too expensive.", "Good value, once more!", "Hm.", "Hm."]
    study.write_text(f"{study.read_text()}diaries: {json.dumps(diaries, ensure_ascii=False)}\n")
    folkmoot.run(study, provider=make_coder(code_by_words), out=coded_run.path, accept_changes=True)
    results = coding.read_codings(RunFolder(coded_run.path))["price"]
    assert results.single_code("treated/day1") == "fair" and results.confirmed_counts == (0, 0)


def test_a_human_who_saw_the_codes_cannot_code_blind(tmp_path: Path, coded_run: RunFolder) -> None:
    open_sheet, blind_sheet = tmp_path / "codes.xlsx", tmp_path / "blind.xlsx"
    write_sheet(coded_run, open_sheet, blind=False)
    write_sheet(coded_run, blind_sheet, blind=True)
    fill_column(open_sheet, "codes", {("treated/day0", "too_dear"): "ok"}, "corrected")
    fill_column(blind_sheet, "sample", {("treated/day0", ""): "too_dear"}, "your_codes")
    read_sheet(coded_run, open_sheet, "Ann")
    exit_code, output = run_command("codes", coded_run.path, "--read", blind_sheet, "--by", "ann")
    assert exit_code == 2 and "cannot code the sample blind" in output
    assert run_command("codes", coded_run.path, "--read", blind_sheet, "--by", "Bo")[0] == 0


def test_a_second_human_who_disagrees_is_named(tmp_path: Path, coded_run: RunFolder) -> None:
    corrections = {"Ann": "none", "Cyd": "ok"}
    for author, correction in corrections.items():
        sheet = tmp_path / f"{author}.xlsx"
        write_sheet(coded_run, sheet, blind=False)
        cells = {("treated/day0", "too_dear"): "ok", ("treated/day1", "fair"): correction}
        fill_column(sheet, "codes", cells, "corrected")
    for author in corrections:
        sheet = tmp_path / f"{author}.xlsx"
        exit_code, output = run_command("codes", coded_run.path, "--read", sheet, "--by", author)
        assert exit_code == 0, output
    assert "1 code by Ann replaced by other codes of Cyd." in output
    note = coding.read_codings(RunFolder(coded_run.path))["price"].note
    assert "2 humans checked 2 codes. The last human to check each code confirmed 100 %." in note
    assert "Of 2 codes that several checked, they disagree on 1." in note


def test_mistakes_on_a_sheet_are_reported_with_their_cell(
    tmp_path: Path, coded_run: RunFolder
) -> None:
    sheet = tmp_path / "codes.xlsx"
    write_sheet(coded_run, sheet, blind=False)
    fill_column(sheet, "codes", {("treated/day0", "too_dear"): "too_deer"}, "corrected")
    exit_code, output = run_command("codes", coded_run.path, "--read", sheet, "--by", "Ann")
    assert exit_code == 2 and "codes.xlsx:codes!" in output and "did you mean too_dear?" in output
    assert not read_amendments(coded_run.path)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("too_deer", "your_codes: 'too_deer' is not a code"),
        ("none; fair", "your_codes: 'none; fair': none beside a code"),
    ],
)
def test_mistakes_on_a_blind_sheet_are_reported_in_its_column(
    tmp_path: Path, coded_run: RunFolder, written: str, message: str
) -> None:
    sheet = tmp_path / "blind.xlsx"
    write_sheet(coded_run, sheet, blind=True)
    fill_column(sheet, "sample", {("treated/day0", ""): written}, "your_codes")
    exit_code, output = run_command("codes", coded_run.path, "--read", sheet, "--by", "Ann")
    assert exit_code == 2 and message in output
    assert not read_amendments(coded_run.path)


@pytest.mark.parametrize("content", [b"", b"no workbook"], ids=["empty", "text"])
def test_a_file_that_is_not_a_sheet_is_refused(
    tmp_path: Path, coded_run: RunFolder, content: bytes
) -> None:
    path = tmp_path / "codes.xlsx"
    path.write_bytes(content)
    assert run_command("codes", coded_run.path, "--read", path, "--by", "Ann")[0] == 2
    assert run_command("codes", coded_run.path, "--sheet", path)[0] == 2, (
        "an existing file is not overwritten"
    )


def test_text_of_a_model_is_not_a_formula_on_the_sheet(tmp_path: Path) -> None:
    run = run_diary(tmp_path, diaries=("=1+1 too expensive [bell]",))
    sheet = tmp_path / "codes.xlsx"
    write_sheet(run.folder, sheet, blind=False)
    kinds = {cell.data_type for row in load_workbook(sheet)["codes"].iter_rows() for cell in row}
    assert "f" not in kinds


def test_a_changed_amendment_file_is_reported_and_not_extended(coded_run: RunFolder) -> None:
    append_amendments(coded_run.path, [Amendment("code", "Ann", "now", {"codebook": "price"})])
    path = coded_run.path / "amendments.jsonl"
    path.write_text(path.read_text().replace("Ann", "Bob"))
    exit_code, output = run_command("verify", coded_run.path)
    assert exit_code == 4 and "amendments.jsonl was changed by hand" in output
    with pytest.raises(StorageError, match="changed by hand"):
        append_amendments(coded_run.path, [Amendment("code", "Ann", "now")])
    path.unlink()
    assert run_command("verify", coded_run.path)[0] == 4


def test_amendments_that_a_killed_process_did_not_register_do_not_count(
    coded_run: RunFolder,
) -> None:
    path = coded_run.path / "amendments.jsonl"
    path.write_text(Amendment("code", "Ann", "now").to_json_line() + "\n")
    assert read_amendments(coded_run.path) == []
    assert "the other lines do not count" in run_command("verify", coded_run.path)[1]
    append_amendments(coded_run.path, [Amendment("code", "Bob", "now")])
    assert [amendment.author for amendment in read_amendments(coded_run.path)] == ["Bob"]
    assert run_command("verify", coded_run.path)[0] == 0


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
def test_amendments_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, contents: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "manifest.json").write_text("{}")
    amendments = [
        Amendment("note", author, "now", {"text": text, "other": [other]})
        for author, text, other in contents
    ]
    for amendment in amendments:
        append_amendments(folder, [amendment])
    assert read_amendments(folder) == amendments


def test_amendments_are_kept_by_a_resume(tmp_path: Path, coded_run: RunFolder) -> None:
    append_amendments(coded_run.path, [Amendment("note", "Ann", "now")])
    folkmoot.run(tmp_path / "diary.yaml", provider=make_coder(code_by_words), out=coded_run.path)
    assert [amendment.author for amendment in read_amendments(coded_run.path)] == ["Ann"]


def test_an_unfinished_run_is_not_coded(tmp_path: Path, coded_run: RunFolder) -> None:
    manifest = json.loads((coded_run.path / "manifest.json").read_text())
    (coded_run.path / "manifest.json").write_text(json.dumps({**manifest, "outcome": "paused"}))
    with pytest.raises(InputError, match="not finished"):
        code_finished_run(
            RunFolder(coded_run.path), SECOND, RunOptions(custom_provider=make_coder(code_by_words))
        )


def test_the_report_names_the_coder_and_the_reliability(coded_run: RunFolder) -> None:
    exit_code, output = run_command("report", coded_run.path)
    assert exit_code == 0, output
    page = (coded_run.path / "report.html").read_text("utf-8")
    assert "How free text was coded" in page
    assert "the reliability of the codes is unknown" in page


def test_a_coding_over_http_needs_trust_for_the_endpoint_of_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "no-key-at-all")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        study = tmp_path / "diary.yaml"
        study.write_text(
            f"study: {DIARY}\ncoding: off\nendpoints: {{openai/reader: {server.openai}}}\n"
        )
        run = folkmoot.run(study, model="synthetic", out=tmp_path / "run", trust=True).folder
        monkeypatch.setenv("FOLKMOOT_TRUST", "0")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing agreed yet"))
        exit_code, output = run_command("codes", run.path, "--coder", "openai/reader")
        assert exit_code == 2 and "sends your profiles" in output
        assert not server.model.counts["calls"] and not server.model.log
        exit_code, output = run_command("codes", run.path, "--coder", "openai/reader", "--trust")
        assert exit_code == 0, output
        results = coding.read_codings(RunFolder(run.path))["price"]
        assert results.supports_findings and len(results.codes_by_text) == 4
        monkeypatch.setenv("FOLKMOOT_TRUST", "1")
        assert run_command("verify", run.path)[0] == 0


def test_check_counts_the_calls_of_both_coders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(key, "no-key-at-all")
    study = tmp_path / "diary.yaml"
    models = f"{{coder: {FIRST}, second_coder: {SECOND}}}"
    study.write_text(f"study: {DIARY}\nmodels: {models}\ncoding: {{sample: 3}}\n")
    exit_code, output = run_command("check", study)
    assert exit_code == 0 and "Calls about 7" in output, output
