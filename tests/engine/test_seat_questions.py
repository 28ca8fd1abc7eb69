"""Attention checks, the review and final questions: questions to humans beside the protocol."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Run
from folkmoot.cli.app import app
from folkmoot.engine.run import dry_run
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.seats.withdrawal import withdraw_texts
from folkmoot.engine.study.study import analysed_parts, compute_findings
from folkmoot.engine.study.study_file import validate_settings
from folkmoot.errors import InputError, RunPausedError
from folkmoot.report.comparison.mixed import people_and_models
from folkmoot.report.document.document import build_document
from folkmoot.report.export import README, export_run
from folkmoot.storage.partial_run import PartsView
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import EXAMPLES, SMALL, people_of, small_study
from tests.engine.test_seats import Answers, build_seat_host
from tests.sweeps import sample_daily

STUDY = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: 3
conditions: [simple_voting]
revote: true
min_responses_for_threshold: 50
personas: {source: quota}
seats:
  ids: [p_0001, p_0002]
"""
BEFORE = """
  checks:
    - question: How many votes are there?
      options: [One, Two]
      right: Two
      tries: 2
      on_failure: end
"""
DURING = """
  checks:
    - question: What is the town to close?
      right: [Its centre, The centre]
      after_stage: initial_vote
"""


def write_study(folder: Path, settings: str) -> Path:
    path = folder / "centre.yaml"
    path.write_text(STUDY + settings, "utf-8")
    return path


def build_answers(
    answers_by_seat_and_kind: dict[str, list[str]], questions: list[PendingQuestion] | None = None
) -> Answers:
    """Vote for the first option and answer other questions from `answers_by_seat_and_kind`."""

    def answer(seat_state: SeatState, question: PendingQuestion) -> str | None:
        if questions is not None:
            questions.append(question)
        if not question.address.startswith("seats/"):
            return question.view.options[0] if question.view.options else "Words."
        kind = question.address.split("/")[2]
        return answers_by_seat_and_kind[f"{seat_state.seat.name} {kind}"].pop(0)

    return answer


def run_with_humans(path: Path, answer: Answers, out: str = "run", **options: object) -> Run:
    return folkmoot.run(
        path,
        out=path.parent / out,
        seat_host=build_seat_host(answer),
        model="synthetic",
        **options,  # type: ignore[arg-type]
    )


def read_cells(run: Run, table: str, *columns: str) -> list[tuple[object, ...]]:
    return run.table(table).select(columns).rows()


def test_seat_with_failed_check_before_the_study_is_played_by_a_model(
    tmp_path: Path,
) -> None:
    answers_by_seat = {"p_0001 check1": ["One", "One"], "p_0002 check1": ["One", "Two"]}
    run = run_with_humans(write_study(tmp_path, BEFORE), build_answers(answers_by_seat))
    assert read_cells(run, "checks", "seat", "attempt", "answer", "right", "outcome") == [
        ("p_0001", 1, "One", False, "again"),
        ("p_0001", 2, "One", False, "screened out"),
        ("p_0002", 1, "One", False, "again"),
        ("p_0002", 2, "Two", True, "passed"),
    ]
    answered_by = dict(run.table("answers").select("speaker_id", "answered_by").rows())
    assert answered_by["p_0001"] == "synthetic" and answered_by["p_0002"] == "human"
    assert run.table("answers").filter(missing="screened out").is_empty()
    verification = verify_run(RunFolder(run.path))
    assert verification.is_consistent, (verification.differences, verification.not_compared)


def test_failed_check_during_the_study_is_recorded_and_asked_once(tmp_path: Path) -> None:
    questions: list[PendingQuestion] = []
    answers_by_seat = {"p_0001 check1": ["its centre."], "p_0002 check1": ["A shop"]}
    run = run_with_humans(write_study(tmp_path, DURING), build_answers(answers_by_seat, questions))
    assert read_cells(run, "checks", "seat", "answer", "outcome") == [
        ("p_0001", "its centre.", "passed"),
        ("p_0002", "A shop", "flagged"),
    ]
    check_addresses = [question.address for question in questions if "p_0002" in question.address]
    assert check_addresses == [
        "initial_vote/p_0002/ask0",
        "seats/p_0002/check1",
        "second_vote/p_0002/ask0",
    ]
    sections = {section.title: section for section in build_document(run.folder).sections}
    (finding,) = (figure.finding for figure in sections["Exclusions"].figures)
    assert finding.says == "2 humans answered checks: 1 flagged, 0 excluded, 0 screened out."
    assert [row[0] for row in finding.grid.rows] == ["p_0002"]
    human = run.table("answers").filter(speaker_id="p_0002")
    assert set(human["answered_by"]) == {"human"} and human["missing"].null_count() == 2


def test_human_with_failed_excluding_check_is_left_out_of_all_figures(tmp_path: Path) -> None:
    answers_by_seat = {"p_0001 check1": ["The centre"], "p_0002 check1": ["A shop"]}
    path = write_study(tmp_path, DURING + "      on_failure: exclude\n")
    run = run_with_humans(path, build_answers(answers_by_seat))
    # The human took part to the end, and the tables contain every row.
    assert run.table("answers").filter(speaker_id="p_0002")["missing"].null_count() == 2
    assert run.table("participants").height == 3
    document = build_document(run.folder)
    assert document.front is not None and document.methods is not None
    sentence = "1 of 3 participants is left out of all figures"
    assert document.front.excluded.startswith(sentence)
    assert sentence in document.methods.paragraphs[0]
    assert not any("p_0002" in light.reason for light in document.front.lights)
    statements = {finding.key: finding.says for finding in compute_findings(run.study, run.folder)}
    assert "0 of 2 changed" in statements["position_change"] and statements[
        "exclusions"
    ].startswith(sentence)
    comparison = people_and_models(run.folder)
    assert comparison is not None
    numbers = comparison.grid.columns.index("people_n"), comparison.grid.columns.index("models_n")
    assert {tuple(row[place] for place in numbers) for row in comparison.grid.rows} == {(1, 1)}
    # The rule is part of the sealed plan.
    sealed_checks = run.folder.plan["sealed"]["design"]["data"]["settings"]["seats"]["checks"]
    assert sealed_checks[0]["on_failure"] == "exclude"
    assert verify_run(RunFolder(run.path)).is_consistent


def test_exports_and_the_page_on_r_agree_with_the_report_on_exclusions(tmp_path: Path) -> None:
    answers_by_seat = {"p_0001 check1": ["The centre"], "p_0002 check1": ["A shop"]}
    path = write_study(tmp_path, DURING + "      on_failure: exclude\n")
    run = run_with_humans(path, build_answers(answers_by_seat)).folder
    # The files of Polis have no table of checks, so the excluded participant is not in them.
    for kind in ("polis", "csv"):
        export_run(run, kind, tmp_path / kind)
    of_polis = pl.read_csv(tmp_path / "polis" / "participants.csv")
    assert of_polis["participant_id"].to_list() == ["p_0001", "p_0003"]
    assert pl.read_csv(tmp_path / "polis" / "comments.csv")["agrees"].sum() == 2
    assert "leave out 1 part of the run" in (tmp_path / "polis" / README).read_text("utf-8")
    readme = (tmp_path / "csv" / README).read_text("utf-8")
    assert "exclude 1 part of the run" in readme and "checks names with the outcome ex" in readme
    # The script in R, read as its page has it.
    script = (EXAMPLES.parent / "docs" / "r.md").read_text("utf-8")
    read = re.search(r'excluded <- (\w+)\$(\w+)\[\1\$(\w+) == "(\w+)"\]', script)
    left_out = re.search(r"subset\(participants, !(\w+) %in% excluded\)", script)
    assert read is not None and left_out is not None
    table, part, column, value = read.groups()
    excluded = pl.read_csv(tmp_path / "csv" / f"{table}.csv").filter(pl.col(column) == value)[part]
    participants = pl.read_csv(tmp_path / "csv" / "participants.csv")
    kept = participants.filter(~pl.col(left_out[1]).is_in(excluded.implode()))
    assert (participants.height, kept["participant_id"].to_list()) == (3, ["p_0001", "p_0003"])


def test_failed_check_during_the_study_can_end_the_participation(tmp_path: Path) -> None:
    answers_by_seat = {"p_0001 check1": ["The centre"], "p_0002 check1": ["A shop"]}
    path = write_study(tmp_path, DURING + "      on_failure: end\n")
    run = run_with_humans(path, build_answers(answers_by_seat))
    rows = run.table("answers").filter(speaker_id="p_0002")
    assert rows["missing"].to_list() == [None, "screened out"]
    assert verify_run(RunFolder(run.path)).is_consistent


def test_required_check_is_repeated_until_it_is_passed(tmp_path: Path) -> None:
    answers_by_seat = {
        "p_0001 check1": ["The centre"],
        "p_0002 check1": ["A", "B", "C", "The centre"],
    }
    path = write_study(tmp_path, DURING + "      on_failure: again\n      hint: Read the topic.\n")
    questions: list[PendingQuestion] = []
    run = run_with_humans(path, build_answers(answers_by_seat, questions))
    outcomes = run.table("checks").filter(seat="p_0002")["outcome"].to_list()
    assert outcomes == ["again", "again", "again", "passed"]
    second_check = next(question for question in questions if question.address.endswith("try2"))
    assert second_check.view.prompt == "Read the topic.\n\nWhat is the town to close?"


def test_humans_review_their_answers_and_get_final_questions(tmp_path: Path) -> None:
    path = write_study(
        tmp_path,
        """
  review: true
  afterwards:
    - What was this about?
    - {question: "How hard was it?", scale: [1, 7]}
    - {question: "Would you come again?", options: [Yes, No]}
""",
    )
    questions: list[PendingQuestion] = []
    answers_by_seat = {
        f"{seat} {kind}": [text]
        for seat in ("p_0001", "p_0002")
        for kind, text in {
            "review": "Nothing.",
            "afterwards1": "Cars.",
            "afterwards2": "3",
            "afterwards3": "Yes",
        }.items()
    }
    run = run_with_humans(path, build_answers(answers_by_seat, questions))
    rows = read_cells(run, "afterwards", "seat", "number", "answer", "missing")
    assert rows[:4] == [
        ("p_0001", 0, "Nothing.", None),
        ("p_0001", 1, "Cars.", None),
        ("p_0001", 2, "3", None),
        ("p_0001", 3, "Yes", None),
    ]
    review = next(question for question in questions if question.address == "seats/p_0001/review")
    assert [text.text for text in review.view.history if text.speaker_id] == ["Close it"] * 2
    # Their first answer was promised to stay private, so nothing here says who has read it.
    assert not any(word in review.view.prompt for word in ("others", "read"))
    # No request of the protocol contains the text.
    prompts = [
        message.content
        for question in questions
        for message in question.request.messages
        if "seats/" not in question.address
    ]
    assert not any("Cars." in prompt or "come again" in prompt for prompt in prompts)
    assert verify_run(RunFolder(run.path)).is_consistent


def test_resumed_run_repeats_no_check(tmp_path: Path) -> None:
    path = write_study(tmp_path, BEFORE)
    answers_by_seat = {"p_0001 check1": ["Two"], "p_0002 check1": ["One", "One"]}
    with pytest.raises(RunPausedError):
        run_with_humans(path, build_answers(answers_by_seat), overrides=("budget_calls=1",))
    assert answers_by_seat == {"p_0001 check1": [], "p_0002 check1": []}
    run = run_with_humans(path, build_answers(answers_by_seat))
    assert run.manifest["outcome"] == "done"
    assert run.table("checks")["outcome"].to_list() == ["passed", "again", "screened out"]


@pytest.mark.parametrize(
    ("settings", "expected_text"),
    [
        ("  checks:\n    - {question: Q, options: [a, b], right: c}\n", "among the options"),
        ("  checks:\n    - {question: Q, right: c, tries: 2, on_failure: again}\n", "no meaning"),
        ("  checks:\n    - {question: Q, options: [a, A], right: a}\n", "same: 'a' and 'A'"),
        ("  checks:\n    - {question: Q, options: [a], right: a}\n", "at least two"),
        ("  checks:\n    - {question: Q, options: [a, ''], right: a}\n", "is empty"),
        ("  checks:\n    - {question: Q, right: .}\n", "a letter or a digit"),
        ("  checks:\n    - {question: ' ', right: a}\n", "only spaces"),
        ("  afterwards:\n    - {question: Q, options: [a, a]}\n", "same: 'a' and 'a'"),
        ("  afterwards:\n    - {question: Q, scale: [7, 1]}\n", "lower one"),
    ],
)
def test_mistakes_are_reported_before_the_run(
    tmp_path: Path, settings: str, expected_text: str
) -> None:
    with pytest.raises(InputError, match=expected_text):
        run_with_humans(write_study(tmp_path, settings), build_answers({}))


def test_answers_to_final_questions_are_withdrawn_with_the_human(tmp_path: Path) -> None:
    personal_text = "Porcelain belongs into a locked cupboard at night."
    path = write_study(tmp_path, "\n  afterwards:\n    - What was this about?\n")
    answers_by_seat = {
        "p_0001 afterwards1": [personal_text],
        "p_0002 afterwards1": ["About cars in the town."],
    }
    run = run_with_humans(path, build_answers(answers_by_seat))
    assert personal_text in run.table("afterwards")["answer"].to_list()
    withdraw_texts(run.folder, find_personal_texts(run.folder, Seat("p_0001")), "researcher")
    answers = folkmoot.load(run.path).table("afterwards")["answer"].to_list()
    assert answers[1] == "About cars in the town." and "Porcelain" not in str(answers)
    assert b"Porcelain" not in (run.path / "journal.sqlite").read_bytes()


TIMED = """
  checks:
    - {question: Name the town., right: Ours, %s}
"""


# Settings that reduce the calls of the two study types with the longest protocols.
FEWER_CALLS = {
    "[C1, C2, C3, C4, C5]": "[C4]",
    "[spouses, strangers]": "[spouses]",
    "num_personas: 4": "num_personas: 2",
    "max_responses_per_question: 3": "max_responses_per_question: 2",
}


def write_study_of_few_calls(study: str, folder: Path, settings: str) -> Path:
    """Write the small study file of a type, with further settings and fewer calls."""
    path = small_study(study, folder)
    text = path.read_text("utf-8")
    for old, new in FEWER_CALLS.items():
        text = text.replace(old, new)
    path.write_text(text + settings, "utf-8")
    return path


def check_as_json(path: Path) -> tuple[int, dict[str, list[dict[str, str]]]]:
    result = CliRunner().invoke(app, ["check", str(path), "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_check_after_an_unknown_stage_is_reported_before_the_run(tmp_path: Path) -> None:
    path = write_study(tmp_path, TIMED % "after_stage: interview")
    code, problems = check_as_json(path)
    (problem,) = problems["problems"]
    assert code == 2 and problem["key"] == "seats.checks[1].after_stage" and problem["where"]
    assert problem["hint"] == "the stages are: initial_vote, second_vote"
    run_result = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "run")])
    assert run_result.exit_code == 2 and not (tmp_path / "run").exists()


def test_check_after_more_questions_than_exist_is_a_warning(tmp_path: Path) -> None:
    code, problems = check_as_json(write_study(tmp_path, TIMED % "after_questions: 3"))
    (warning,) = problems["warnings"]
    assert code == 0 and warning["key"] == "seats.checks[1].after_questions"
    assert warning["message"].startswith("a human gets about 2 questions")
    assert not check_as_json(write_study(tmp_path, TIMED % "after_questions: 2"))[1]["warnings"]


def test_check_that_cannot_exclude_any_participant_is_reported_before_the_run(
    tmp_path: Path,
) -> None:
    for name in ("delphi.py", "delphi.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    path = tmp_path / "delphi.yaml"
    seats = "seats:\n  ids: [p_0001]\n  checks:\n    - question: Name the town.\n"
    exclusion = f"{seats}      right: Ours\n      on_failure: exclude\n"
    path.write_text(path.read_text("utf-8") + exclusion, "utf-8")
    arguments = [str(path), "--trust"]
    result = CliRunner().invoke(app, ["check", *arguments, "--json"])
    (problem,) = json.loads(result.stdout)["problems"]
    assert result.exit_code == 2 and problem["key"] == "seats.checks[1].on_failure"
    assert problem["where"] and problem["hint"].startswith("use `note`")
    folder = tmp_path / "run"
    run_result = CliRunner().invoke(app, ["run", *arguments, "--out", str(folder)])
    assert run_result.exit_code == 2 and not folder.exists()
    path.write_text(path.read_text("utf-8").replace("exclude", "note"), "utf-8")
    assert CliRunner().invoke(app, ["check", *arguments]).exit_code == 0


@pytest.mark.parametrize(
    "name", sample_daily(SMALL, daily=("focus_group", "negotiation"), part="sweeps")
)
def test_check_can_exclude_in_every_study_type(name: str, tmp_path: Path) -> None:
    seats = "\nseats:\n  count: 1\n  checks:\n    - {question: Name the town., right: Ours, "
    extra_settings = "members_speak: true\n" if name == "negotiation" else ""
    path = write_study_of_few_calls(
        name, tmp_path, f"{seats}on_failure: exclude}}\n{extra_settings}"
    )
    assert check_as_json(path) == (0, ANY)


@pytest.mark.parametrize(
    ("study", "stage", "settings"),
    [
        ("focus_group", "deep_dive", ""),
        ("negotiation", "own_scores", "members_speak: true\n"),
    ],
)
def test_every_named_part_of_a_protocol_is_a_stage(
    study: str, stage: str, settings: str, tmp_path: Path
) -> None:
    seats = f"\nseats:\n  count: 1\n{TIMED % f'after_stage: {stage}'}"
    path = write_study_of_few_calls(study, tmp_path, seats + settings)
    assert check_as_json(path) == (0, ANY)


def test_seat_that_the_dry_run_does_not_ask_can_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The dry run asks a few participants only, and this one is not asked.
    monkeypatch.setattr(dry_run, "SUFFICIENT_SAMPLE_CALLS", 100)
    path = write_study(tmp_path, TIMED % "after_questions: 1")
    text = path.read_text().replace("[p_0001, p_0002]", "[p_0180]")
    path.write_text(text.replace("condition: 3", "condition: 600"))
    assert check_as_json(path) == (0, ANY)


# Daily, a test above excludes a participant of the cross-pollination study.
@pytest.mark.parametrize(
    "name", sample_daily([*SMALL, "workbook"], daily=("focus_group",), part="sweeps")
)
def test_every_study_type_says_what_is_excluded_with_a_human(
    name: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    base = folkmoot.load(run_of_small_study(name))
    config = validate_settings(
        base.study, base.folder.config, folder=run_of_small_study(name).parent
    )
    seats = base.study.seats(config, run_of_small_study(name).parent / "study")
    parts = {seat.analysed_part for seat in seats}
    analysed_part = sorted(parts)[0]
    path = tmp_path / "run"
    shutil.copytree(base.path, path)
    row = dict.fromkeys(("seat", "speaker_id", "address", "question", "answer", "missing"), "x")
    row |= {"check": 1, "attempt": 1, "right": False, "on_failure": "exclude"}
    pl.DataFrame([{**row, "outcome": "excluded", "part": analysed_part}]).write_parquet(
        path / "tables" / "checks.parquet"
    )
    run = RunFolder(path)
    view = analysed_parts(base.study, run)
    assert isinstance(view, PartsView) and parts <= set(view.parts.planned)
    column = view.parts.column
    changed_tables = [
        table
        for table in run.table_names()
        if run.read_table(table).height > view.read_table(table).height
    ]
    assert changed_tables
    for table in changed_tables:
        assert analysed_part not in view.read_table(table)[column].cast(pl.String).to_list()
    keys = [finding.key for finding in compute_findings(base.study, run)]
    assert keys[-1] == "exclusions" and "failed" not in keys


def test_all_discussions_of_an_excluded_set_are_left_out_of_the_comparison(tmp_path: Path) -> None:
    """A human fails the check in one discussion of the first set, and another one is in it too."""
    path = tmp_path / "hall.yaml"
    path.write_text(
        f"study: town_hall\n{SMALL['town_hall']}".replace("sets: 1", "sets: 2")
        + "seats:\n  ids: [set01_lv3/A01, set01_lv4/A02, set02_lv4/A03]\n"
        "  checks:\n    - {question: Which hall is it, right: This one, after_questions: 1, "
        "on_failure: exclude}\n",
        "utf-8",
    )
    people = people_of("town_hall")

    def answer(seat_state: SeatState, question: PendingQuestion) -> str:
        if question.address.startswith("seats/"):
            return "Another" if seat_state.seat.name == "set01_lv4/A02" else "This one"
        return people.reply(question.request, question.address).text

    run = run_with_humans(path, answer, overrides=("levels=[3, 4]",))
    sets = analysed_parts(run.study, run.folder).read_table("discussions")["set"].unique()
    assert [*sets] == [2]
    export_run(run.folder, "polis", tmp_path / "polis")
    assert {path.name for path in (tmp_path / "polis").glob("set*")} == {"set02_lv3", "set02_lv4"}
    comparison = people_and_models(run.folder)
    assert comparison is not None
    rows = [dict(zip(comparison.grid.columns, row, strict=True)) for row in comparison.grid.rows]
    (before,) = [row for row in rows if row["answer"] == "before satisfaction"]
    residents = run.table("residents").filter(set=2).height
    # One discussion of the other set has a human.
    assert (before["people_n"], before["models_n"]) == (1, residents - 1)
