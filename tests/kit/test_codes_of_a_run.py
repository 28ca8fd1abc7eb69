"""A finished run is coded afterwards and corrected by hand, and still verifies."""

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
from folkmoot.kit.coding.sheet import anonymous_number, read_sheet, write_sheet
from folkmoot.measures.agreement import krippendorff_alpha
from folkmoot.storage.amendments import Amendment, append_amendments, read_amendments
from folkmoot.storage.run_folder import RunFolder
from tests.kit.test_coding import FIRST, SECOND, by_words, coder, run
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

DIARY = Path(__file__).parent / "diary.py"


@pytest.fixture
def done(tmp_path: Path) -> RunFolder:
    """A run coded by one model, its study file beside it."""
    study = tmp_path / "diary.yaml"
    study.write_text(f"study: {DIARY}\nmodels: {{coder: {FIRST}}}\n")
    return folkmoot.run(study, provider=coder(by_words), out=tmp_path / "run").folder


def cli(*words: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, [str(w) for w in words])
    return ended.exit_code, " ".join(ended.output.split())


def journal(folder: RunFolder) -> bytes:
    return (folder.path / "journal.sqlite").read_bytes()


def fill(path: Path, sheet: str, cells: dict[tuple[str, str], str], column: str) -> None:
    """Write into the column of the lines that are (text id, code or what it is said of)."""
    cells = {
        (anonymous_number("price", text), second): said for (text, second), said in cells.items()
    }
    book = load_workbook(path)
    rows = list(book[sheet].iter_rows())
    names = [c.value for c in rows[0]]
    second = "code" if "code" in names else "of"
    for row in rows[1:]:
        at = {n: c.value or "" for n, c in zip(names, row, strict=True)}
        if (said := cells.get((at["number"], at[second]))) is not None:
            row[names.index(column)].value = said
    book.save(path)


def test_another_model_codes_a_finished_run_which_still_verifies(done: RunFolder) -> None:
    before = journal(done)
    options = RunOptions(custom_provider=coder(lambda text, _: by_words(text)[:1]))
    code_finished_run(done, SECOND, options)
    assert journal(done) == before
    again = RunFolder(done.path)
    read = coding.read_codings(again)["price"]
    assert [(c.name, len(c.codes)) for c in read.coders if c.coder_role == "coder"] == [
        (FIRST, 4),
        (SECOND, 4),
    ]
    assert read.primary_coder is not None and read.primary_coder.name == FIRST
    assert "α = " in read.note
    code, said = cli("verify", done.path)
    assert code == 0, said
    assert f"Amended since the run: 1 × coding, by {SECOND}" in said


def test_only_the_sample_can_be_coded_afterwards(tmp_path: Path) -> None:
    done = run(tmp_path, coding={"sample": 2})
    second = coder(by_words)
    code_finished_run(done.folder, SECOND, RunOptions(custom_provider=second), sample=True)
    assert second.calls == 2


def test_a_run_that_was_not_coded_is_coded_afterwards(tmp_path: Path) -> None:
    done = run(tmp_path, coding=False)
    code_finished_run(done.folder, FIRST, RunOptions(custom_provider=coder(by_words)))
    read = coding.read_codings(RunFolder(done.path))["price"]
    assert read.supports_findings and read.codes_of("treated/day0") == {"too_dear": "too expensive"}


@pytest.mark.parametrize("name", [FIRST, "gpt-4o"])
def test_who_has_coded_a_run_does_not_code_it_again(done: RunFolder, name: str) -> None:
    code, said = cli("codes", done.path, "--coder", name)
    assert code == 2 and "has already coded this run" in said


def test_a_coding_that_ran_out_of_money_is_resumed_by_the_same_command(
    tmp_path: Path, done: RunFolder
) -> None:
    provider = coder(by_words)

    def stops(text: str, request: Any) -> Any:
        if provider.calls + first.calls > 2:
            raise BudgetReachedError("used up")
        return by_words(text)

    first = coder(stops)
    with pytest.raises(BudgetReachedError):
        code_finished_run(done, SECOND, RunOptions(custom_provider=first, concurrency=1))
    assert not read_amendments(done.path)
    unfinished = f"The coding by {SECOND} is not finished: `folkmoot codes RUN --coder {SECOND}`"
    assert unfinished in cli("codes", done.path)[1]
    code_finished_run(done, SECOND, RunOptions(custom_provider=provider))
    assert provider.calls == 2
    assert "is not finished" not in cli("codes", done.path)[1]
    assert [a.kind for a in read_amendments(done.path)] == ["coding"]


def test_a_coding_that_was_deleted_is_missed_and_does_not_count(done: RunFolder) -> None:
    code_finished_run(done, SECOND, RunOptions(custom_provider=coder(by_words)))
    (folder,) = (done.path / "codings").iterdir()
    shutil.rmtree(folder)
    assert cli("codes", done.path)[0] == 0
    assert [c.name for c in coding.read_codings(done)["price"].coders].count(SECOND) == 0
    code, said = cli("verify", done.path)
    assert code == 4 and said.count(f"The folder codings/{folder.name} is missing") == 1
    code, said = cli("codes", done.path, "--coder", SECOND)
    assert code == 2 and f"{SECOND} has coded this run, but" in " ".join(said.split())


def test_a_coding_that_was_changed_afterwards_is_found(done: RunFolder) -> None:
    code_finished_run(done, SECOND, RunOptions(custom_provider=coder(by_words)))
    table = next((done.path / "codings").rglob("codes.csv"))
    table.write_text(table.read_text().replace("too_dear", "fair"))
    code, said = cli("verify", done.path)
    assert code == 4 and "codes.csv was changed" in said


def test_a_person_corrects_the_coder_on_a_sheet(tmp_path: Path, done: RunFolder) -> None:
    sheet = tmp_path / "codes.xlsx"
    before = journal(done)
    code, said = cli("codes", done.path, "--sheet", sheet)
    assert code == 0, said
    fill(
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
    code, said = cli("codes", done.path, "--read", sheet, "--by", "Ann")
    assert code == 0, said
    assert "4 amendments by Ann" in said
    read = coding.read_codings(RunFolder(done.path))["price"]
    assert {t: set(c) for t in read.texts if (c := read.codes_of(t)) is not None} == {
        "treated/day0": {"too_dear"},
        "treated/day1": {"too_dear"},
        "treated/day2": {"fair"},
        "treated/day3": {"too_dear"},
    }
    assert "A human checked 4 codes and confirmed 25 %." in read.note
    assert journal(done) == before
    code, said = cli("verify", done.path)
    assert code == 0 and "4 × code, by Ann" in said
    # The same sheet read twice changes nothing.
    assert read_sheet(RunFolder(done.path), sheet, "Ann") == []
    assert "confirmed 25 %" in cli("codes", done.path)[1]


def test_a_person_codes_the_sample_blind_and_alpha_is_told(tmp_path: Path, done: RunFolder) -> None:
    sheet = tmp_path / "blind.xlsx"
    cli("codes", done.path, "--sheet", sheet, "--blind")
    cells = [c.value for row in load_workbook(sheet)["sample"].iter_rows() for c in row]
    assert not {"too_dear", "fair", "too expensive", FIRST} & set(cells)
    assert not any("treated" in str(cell) for cell in cells), "an id tells the arm"
    said = {("treated/day0", ""): "too_dear", ("treated/day1", ""): "too_dear; fair"}
    fill(sheet, "sample", {**said, ("treated/day2", ""): "none"}, "your_codes")
    assert len(read_sheet(done, sheet, "Ann")) == 3
    read = coding.read_codings(RunFolder(done.path))["price"]
    person = next(c for c in read.coders if c.coder_role == "person")
    assert set(person.codes) == {"treated/day0", "treated/day1", "treated/day2"}
    # 6 units, 5 of 12 given, one disagreement: 1 − 11·2/(2·5·7).
    assert read.agreement_with(person).value == pytest.approx(1 - 22 / 70)
    assert read.codes_by_text["treated/day1"].keys() == {("{}", "fair")}, (
        "a blind code corrects nothing"
    )


DECIDED = """
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


def test_a_person_codes_what_is_said_of_several_things(tmp_path: Path) -> None:
    quoted = {"quote": "one", "what": "tea", "who": "all"}
    done = run(
        tmp_path,
        coder(
            lambda text, _: [{"code": "gets", **quoted}, {**quoted, "what": "rum", "code": "later"}]
        ),
        book=DECIDED,
        diaries=("Everyone.", "Each one."),
        slots={"who": ["Ann", "Bo"], "what": ["tea", "rum"]},
    ).folder
    sheet = tmp_path / "blind.xlsx"
    assert write_sheet(done, sheet, blind=True) == 8
    of = {(w, p): json.dumps({"what": w, "who": p}) for w in ("tea", "rum") for p in ("Ann", "Bo")}
    said = {("tea", "Ann"): "gets", ("tea", "Bo"): "gets", ("rum", "Ann"): "later"}
    cells = {("treated/day1", of[what]): code for what, code in said.items()}
    fill(sheet, "sample", {**cells, ("treated/day1", of["rum", "Bo"]): "never"}, "your_codes")
    read_sheet(done, sheet, "Ann")
    read = coding.read_codings(RunFolder(done.path))["price"]
    assert read.codes_with_target("treated/day1")[0] == (
        {"what": "tea", "who": "Ann"},
        "gets",
        "one",
    )
    person = next(c for c in read.coders if c.coder_role == "person")
    # Codes in order: gets 2/2, gets 2/2, later/later, later/never, by Krippendorff's formula.
    expected = krippendorff_alpha([[0, 0, 1, 1], [0, 0, 1, 2]], "ordinal")
    assert read.agreement_with(person).value == pytest.approx(expected)
    assert read.agreement_with(person).clusters == 1, (
        "the units of one text are no independent texts"
    )


def test_a_correction_of_other_words_than_those_there_now_counts_for_nothing(
    tmp_path: Path, done: RunFolder
) -> None:
    sheet = tmp_path / "codes.xlsx"
    write_sheet(done, sheet, blind=False)
    fill(sheet, "codes", {("treated/day1", "fair"): "too_dear"}, "corrected")
    read_sheet(done, sheet, "Ann")
    assert (
        coding.read_codings(RunFolder(done.path))["price"].single_code("treated/day1") == "too_dear"
    )
    study = tmp_path / "diary.yaml"
    said = ["It’s too expensive.", "Good value, once more!", "Hm.", "Hm."]
    study.write_text(f"{study.read_text()}diaries: {json.dumps(said, ensure_ascii=False)}\n")
    folkmoot.run(study, provider=coder(by_words), out=done.path, accept_changes=True)
    read = coding.read_codings(RunFolder(done.path))["price"]
    assert read.single_code("treated/day1") == "fair" and read.confirmed_counts == (0, 0)


def test_who_saw_the_codes_does_not_code_blind(tmp_path: Path, done: RunFolder) -> None:
    seen, blind = tmp_path / "codes.xlsx", tmp_path / "blind.xlsx"
    write_sheet(done, seen, blind=False)
    write_sheet(done, blind, blind=True)
    fill(seen, "codes", {("treated/day0", "too_dear"): "ok"}, "corrected")
    fill(blind, "sample", {("treated/day0", ""): "too_dear"}, "your_codes")
    read_sheet(done, seen, "Ann")
    code, said = cli("codes", done.path, "--read", blind, "--by", "ann")
    assert code == 2 and "cannot code the sample blind" in said
    assert cli("codes", done.path, "--read", blind, "--by", "Bo")[0] == 0


def test_mistakes_on_a_sheet_are_told_with_their_cell(tmp_path: Path, done: RunFolder) -> None:
    sheet = tmp_path / "codes.xlsx"
    write_sheet(done, sheet, blind=False)
    fill(sheet, "codes", {("treated/day0", "too_dear"): "too_deer"}, "corrected")
    code, said = cli("codes", done.path, "--read", sheet, "--by", "Ann")
    assert code == 2 and "codes.xlsx:codes!" in said and "did you mean too_dear?" in said
    assert not read_amendments(done.path)


@pytest.mark.parametrize("content", [b"", b"no workbook"], ids=["empty", "text"])
def test_what_is_no_sheet_is_refused(tmp_path: Path, done: RunFolder, content: bytes) -> None:
    path = tmp_path / "codes.xlsx"
    path.write_bytes(content)
    assert cli("codes", done.path, "--read", path, "--by", "Ann")[0] == 2
    assert cli("codes", done.path, "--sheet", path)[0] == 2, "an existing file is not overwritten"


def test_words_of_a_model_are_no_formula_on_the_sheet(tmp_path: Path) -> None:
    done = run(tmp_path, diaries=("=1+1 too expensive [bell]",))
    sheet = tmp_path / "codes.xlsx"
    write_sheet(done.folder, sheet, blind=False)
    kinds = {c.data_type for row in load_workbook(sheet)["codes"].iter_rows() for c in row}
    assert "f" not in kinds


def test_an_amendment_file_changed_by_hand_is_found_and_not_added_to(done: RunFolder) -> None:
    append_amendments(done.path, [Amendment("code", "Ann", "now", {"codebook": "price"})])
    path = done.path / "amendments.jsonl"
    path.write_text(path.read_text().replace("Ann", "Bob"))
    code, said = cli("verify", done.path)
    assert code == 4 and "amendments.jsonl was changed by hand" in said
    with pytest.raises(StorageError, match="changed by hand"):
        append_amendments(done.path, [Amendment("code", "Ann", "now")])
    path.unlink()
    assert cli("verify", done.path)[0] == 4


def test_amendments_that_a_killed_process_did_not_name_do_not_count(done: RunFolder) -> None:
    path = done.path / "amendments.jsonl"
    path.write_text(Amendment("code", "Ann", "now").to_json_line() + "\n")
    assert read_amendments(done.path) == []
    assert "the other lines do not count" in cli("verify", done.path)[1]
    append_amendments(done.path, [Amendment("code", "Bob", "now")])
    assert [a.author for a in read_amendments(done.path)] == ["Bob"]
    assert cli("verify", done.path)[0] == 0


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
def test_what_is_amended_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "manifest.json").write_text("{}")
    made = [Amendment("note", by, "now", {"text": a, "other": [b]}) for by, a, b in said]
    for each in made:
        append_amendments(folder, [each])
    assert read_amendments(folder) == made


def test_amendments_outlive_a_resume(tmp_path: Path, done: RunFolder) -> None:
    append_amendments(done.path, [Amendment("note", "Ann", "now")])
    folkmoot.run(tmp_path / "diary.yaml", provider=coder(by_words), out=done.path)
    assert [a.author for a in read_amendments(done.path)] == ["Ann"]


def test_an_unfinished_run_is_not_coded(tmp_path: Path, done: RunFolder) -> None:
    manifest = json.loads((done.path / "manifest.json").read_text())
    (done.path / "manifest.json").write_text(json.dumps({**manifest, "outcome": "paused"}))
    with pytest.raises(InputError, match="not finished"):
        code_finished_run(RunFolder(done.path), SECOND, RunOptions(custom_provider=coder(by_words)))


def test_the_report_says_who_coded_and_how_well(done: RunFolder) -> None:
    code, said = cli("report", done.path)
    assert code == 0, said
    page = (done.path / "report.html").read_text("utf-8")
    assert "How free text was coded" in page
    assert "the reliability of the codes is unknown" in page


def test_a_coding_over_http_asks_before_it_sends_words_where_a_run_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "no-key-at-all")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        study = tmp_path / "diary.yaml"
        study.write_text(
            f"study: {DIARY}\ncoding: off\nendpoints: {{openai/reader: {server.openai}}}\n"
        )
        done = folkmoot.run(study, model="synthetic", out=tmp_path / "run", trust=True).folder
        monkeypatch.setenv("FOLKMOOT_TRUST", "0")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing agreed yet"))
        code, said = cli("codes", done.path, "--coder", "openai/reader")
        assert code == 2 and "sends your profiles" in said
        assert not server.model.counts["calls"] and not server.model.log
        code, said = cli("codes", done.path, "--coder", "openai/reader", "--trust")
        assert code == 0, said
        read = coding.read_codings(RunFolder(done.path))["price"]
        assert read.supports_findings and len(read.codes_by_text) == 4
        monkeypatch.setenv("FOLKMOOT_TRUST", "1")
        assert cli("verify", done.path)[0] == 0


def test_check_counts_the_calls_of_both_coders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(key, "no-key-at-all")
    study = tmp_path / "diary.yaml"
    models = f"{{coder: {FIRST}, second_coder: {SECOND}}}"
    study.write_text(f"study: {DIARY}\nmodels: {models}\ncoding: {{sample: 3}}\n")
    code, said = cli("check", study)
    assert code == 0 and "Calls about 7" in said, said
