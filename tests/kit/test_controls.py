"""Controls continue the conversations of a finished run and find faults built into it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Transcript
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState, read_seats
from folkmoot.engine.seats.withdrawal import withdraw_texts
from folkmoot.engine.session.run_totals import describe_later_spending, spent_below, spent_in
from folkmoot.engine.settings.controls import shipped_questions
from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf
from folkmoot.engine.study.study import find_study_of_run, registered_studies
from folkmoot.errors import BudgetReachedError, DriftError, InputError, StorageError
from folkmoot.kit.controls import asking, conversations
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.conversations import find_decisions
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.tables import AS_DESIGNED, NEGATIVE, RETEST
from folkmoot.kit.exposure import ExposureRow
from folkmoot.measures.drift import ConditionAnswers, measure_drift
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder
from folkmoot.storage.tables import write_table
from tests.conftest import SharedFolder
from tests.contract.small import SMALL, people_of, small_study
from tests.engine.test_seats import build_seat_host
from tests.sweeps import sample_daily

PILOT = """
pilot_id: controlled
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, acp]
participants_per_condition: 20
personas: {source: quota}
max_clarification_exchanges: 1
coding: off
"""


def run_pilot(folder: Path, participants_per_condition: int = 20, **respondent: float) -> RunFolder:
    """Run the pilot study with these settings of the embedded respondent."""
    folder.mkdir()
    study = folder / "study.yaml"
    settings = PILOT.replace("20", str(participants_per_condition))
    study.write_text(f"{settings}respondent: {json.dumps(respondent)}\n")
    return folkmoot.run(study, model="synthetic", out=folder / "run").folder


def write_one_group(folder: Path, settings: str = "") -> Path:
    """Write the study file of a single focus group.

    The small study has four, and controls would run each of them again.
    """
    path = folder / "group.yaml"
    group = SMALL["focus_group"].partition("replications")[0]
    path.write_text(f"study: focus_group\n{group}{settings}\n", "utf-8")
    return path


@pytest.fixture
def sound_run(shared_folder: SharedFolder, tmp_path: Path) -> Path:
    """Copy the run of a respondent without faults, so that a test can run controls in it."""
    shared = shared_folder("controls/sound", lambda folder: run_pilot(folder / "pilot"))
    return Path(shutil.copytree(shared / "pilot" / "run", tmp_path / "sound"))


def compute_control_findings(run: RunFolder, **settings: object) -> dict[str, Finding]:
    run_controls(run, settings, RunOptions())
    return {finding.key: finding for finding in control_findings(run)}


def read_records(finding: Finding) -> list[Mapping[str, TableCell]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


@pytest.mark.parametrize(
    "study",
    sample_daily(sorted(registered_studies()), daily=("town_hall", "workbook"), part="sweeps"),
)
def test_controls_continue_the_conversation_and_do_not_change_the_run(
    study: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study(study), tmp_path / "run"))
    journal_bytes = (run.path / JOURNAL).read_bytes()
    tables = {name: run.read_table(name) for name in run.table_names()}
    control_run = run_controls(run, {"participants": 2}, RunOptions())
    assert (run.path / JOURNAL).read_bytes() == journal_bytes
    assert all(RunFolder(run.path).read_table(name).equals(table) for name, table in tables.items())
    answers = control_run.read_table("control_answers")
    assert answers.filter(control=NEGATIVE).height >= 2 * len(shipped_questions("en"))
    with (
        JournalReader(run.path / JOURNAL) as run_journal,
        JournalReader(control_run.path / JOURNAL) as control_journal,
    ):
        for row in answers.filter(control=NEGATIVE).iter_rows(named=True):
            decision = run_journal.entry_at(
                run_journal.list_ask_addresses(row["decision_address"])[-1]
            )
            control = control_journal.entry_at(row["address"])
            assert decision is not None and control is not None
            *history, reply, question = control.request["messages"]
            assert history == decision.request["messages"]
            assert reply == {"role": "assistant", "content": decision.reply}
            assert question["role"] == "user" and control.model_asked == decision.model_asked
    if study == "focus_group":
        result = CliRunner().invoke(app, ["verify", str(run.path)])
        assert result.exit_code == 0, result.output
    assert "unattributed" not in control_run.read_table("provenance")["kind"]


def test_contrasts_have_the_order_of_conditions_of_the_study(
    sound_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(sound_run)
    run_controls(run, {"participants": 5, "retest": False}, RunOptions())
    read_table = RunFolder.read_table
    # The draw of the participants decides which condition a table has first.
    for order in (slice(None), slice(None, None, -1)):
        monkeypatch.setattr(
            RunFolder, "read_table", lambda run, name, order=order: read_table(run, name)[order]
        )
        (drift,) = (found for found in control_findings(run) if found.key == "user_drift")
        contrasts = [row["contrast"] for row in read_records(drift)]
        assert contrasts[0] == "Simple voting against Adversarial (ACP)"


def test_controls_of_a_run_with_unreadable_settings_are_reported(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    run_controls(run, {"participants": 5}, RunOptions())

    def read_settings(_run: RunFolder) -> QuestionOf:
        raise StorageError("the settings are of another version")

    design = DecisionDesign(questions=read_settings)
    found = control_findings(run, replace(find_study_of_run(run), decision_design=design))
    assert [finding.key for finding in found] == [each.key for each in control_findings(run)]


@pytest.mark.nightly(part="alarms")
def test_only_built_in_faults_are_found(sound_run: Path, tmp_path: Path) -> None:
    findings = compute_control_findings(RunFolder(sound_run))
    assert {row["verdict"] for row in read_records(findings["user_drift"])} <= {
        "passed",
        "not known",
    }
    assert all(row["kept_share"] == 1 for row in read_records(findings["persona_kept"]))
    faulty = compute_control_findings(
        run_pilot(tmp_path / "faulty", 30, drift=0.8, persona_forgetting=0.6)
    )
    verdicts = {row["contrast"]: row["verdict"] for row in read_records(faulty["user_drift"])}
    assert verdicts["Simple voting against Adversarial (ACP)"] == "failed"
    # A participant of simple voting has one decision, which is not compared with itself.
    assert "Simple voting: final against first decision" not in verdicts
    kept_shares = {row["after"]: row["kept_share"] for row in read_records(faulty["persona_kept"])}
    assert kept_shares["Adversarial (ACP), first decision"] == 1
    last_decision = "Adversarial (ACP), final decision"
    assert isinstance(kept_shares[last_decision], float) and kept_shares[last_decision] < 0.7
    assert any(alarm.startswith("User drift") for alarm in faulty["user_drift"].alarms)


def test_an_unstable_model_is_unreliable(tmp_path: Path) -> None:
    findings = compute_control_findings(run_pilot(tmp_path / "a", instability=0.9), negative=False)
    (row,) = read_records(findings["reliability"])
    assert row["verdict"] == "failed"


def test_stopped_controls_continue_and_run_once(sound_run: Path, tmp_path: Path) -> None:
    run, uninterrupted = (
        RunFolder(sound_run),
        RunFolder(shutil.copytree(sound_run, tmp_path / "whole")),
    )
    with pytest.raises(BudgetReachedError):
        run_controls(run, {"participants": 3}, RunOptions(), budget_calls=10)
    assert control_findings(run) == []
    resumed = run_controls(run, {"participants": 3}, RunOptions())
    complete = run_controls(uninterrupted, {"participants": 3}, RunOptions())
    assert resumed.read_table("control_answers").equals(complete.read_table("control_answers"))
    with pytest.raises(InputError, match="has controls already"):
        run_controls(run, {}, RunOptions())


def test_first_and_final_controls_have_the_same_participants(
    sound_run: Path,
) -> None:
    """A retest repeats the messages of the decision without its answer."""
    run = RunFolder(sound_run)
    control_run = run_controls(run, {"participants": 7, "negative": False}, RunOptions())
    answers = control_run.read_table("control_answers")
    groups = answers.group_by("condition", "moment").agg(pl.col("participant_id").unique().sort())
    participants_by_group = {
        (condition, moment): tuple(ids) for condition, moment, ids in groups.iter_rows()
    }
    assert (
        participants_by_group["acp", "first"] == participants_by_group["acp", "final"]
        and len(participants_by_group["acp", "final"]) == 7
    )
    rows = answers.filter(pl.col("control") != AS_DESIGNED)
    assert rows["control"].unique().to_list() == [RETEST]
    with (
        JournalReader(run.path / JOURNAL) as run_journal,
        JournalReader(control_run.path / JOURNAL) as control_journal,
    ):
        for row in rows.iter_rows(named=True):
            retest, decision = (
                control_journal.entry_at(row["address"]),
                run_journal.entry_at(row["decision_address"]),
            )
            assert retest is not None and decision is not None
            assert retest.request["messages"] == decision.request["messages"]
            assert row["expected"] == decision.reply


def test_custom_and_german_questions(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    question = {"id": "shoes", "text": "Which size are your shoes?", "number": [30, 50]}
    control_run = run_controls(
        run, {"participants": 2, "negative": [question], "language": "de"}, RunOptions()
    )
    table = control_run.read_table("control_answers").filter(control=NEGATIVE)
    assert table["question"].unique().to_list() == ["shoes"]
    assert table["number"].is_between(30, 50).all()
    german, english = shipped_questions("de"), shipped_questions("en")
    assert len(german) == len(english) == 12
    assert all(
        german_question.text != english_question.text
        and len(german_question.options) == len(english_question.options)
        for german_question, english_question in zip(german, english, strict=True)
    )


def test_controls_of_a_run_without_decisions_are_refused(tmp_path: Path) -> None:
    study = tmp_path / "own.py"
    study.write_text(
        "from folkmoot import Session, Speaker, Study, StudyConfig\n\n"
        "async def protocol(session: Session) -> None:\n"
        "    await session.ask(Speaker('a'), 'Well?')\n\n"
        "STUDY = Study('own', 'Own', StudyConfig, protocol)\n"
    )
    settings = tmp_path / "own.yaml"
    settings.write_text("study: ./own.py\nmodel: synthetic\n")
    run = folkmoot.run(settings, out=tmp_path / "run", trust=True).folder
    with pytest.raises(InputError, match="records no decisions") as refusal:
        find_decisions(run)
    assert "declares them with an ExposureTable" in refusal.value.problems[0].hint
    # As in runs of earlier versions, whose decisions without texts had no row.
    write_table(
        run.path / "tables",
        "exposure",
        pl.DataFrame(schema=dict.fromkeys(ExposureRow.columns(), pl.String)),
    )
    with pytest.raises(InputError, match="records no decisions"):
        find_decisions(run)
    assert not (run.path / CONTROLS).exists()


RATING = """
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.conversation.answer_types import Json
from folkmoot.kit.exposure import Decision, ExposureRow, ExposureTable


class Rating(BaseModel):
    reason: str
    score: Literal["cannot_say"] | Annotated[int, Field(ge=0, le=10)] | None


async def protocol(session: Session) -> None:
    for name in ("ann", "ben", "cem"):
        rating = await session.ask(Speaker(name), "How good is the plan?", answer_type=Json(Rating))
        session.record("ratings", {"name": name, "score": str(rating.score)})


def decisions(run):
    for speaker, address in run.rows("answers", "speaker_id", "address"):
        yield Decision(address, speaker, "all", "rating", {"material": ()})


STUDY = Study(
    "own",
    "Own",
    StudyConfig,
    protocol,
    tables=(ExposureRow,),
    derived_tables=ExposureTable(decisions, lambda source: source.kind),
)
"""


def test_a_number_or_a_no_answer_word_is_a_decision_for_controls(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(RATING)
    settings = tmp_path / "own.yaml"
    settings.write_text("study: ./own.py\nmodel: synthetic\n")
    run = folkmoot.run(settings, out=tmp_path / "run", trust=True).folder
    # The embedded respondent has an opinion, so it gives a number and does not decline.
    scores = {name: float(score) for name, score in run.rows("ratings", "name", "score")}
    answers = run_controls(run, {"negative": False}, RunOptions()).read_table("control_answers")
    as_designed = answers.filter(control=AS_DESIGNED).select("participant_id", "number").rows()
    assert dict(as_designed) == scores
    assert answers.filter(control=RETEST)["number"].is_between(0, 10).to_list() == [True] * 3


def test_the_distance_of_a_question_equals_known_values() -> None:
    def measure_distance(first: str, second: str) -> float:
        conditions = (
            ConditionAnswers(tuple(first), (1, 2, 3, 4)),
            ConditionAnswers(tuple(second), (5, 6, 7, 8)),
        )
        return measure_drift([conditions], generator(1, ("a",))).questions[0].distance

    assert measure_distance("aabb", "aabb") == 0
    assert measure_distance("aaaa", "bbbb") == 1
    assert measure_distance("aaab", "abbb") == 0.5


def test_drift_is_zero_for_equal_conditions_and_one_for_disjoint_ones() -> None:
    first = ConditionAnswers(tuple("ab" * 20), tuple(range(40)))
    disjoint = ConditionAnswers(tuple("cd" * 20), tuple(range(40, 80)))
    equal = ConditionAnswers(first.values, tuple(range(40, 80)))
    drift_of_disjoint = measure_drift([(first, disjoint)], generator(1, ("a",))).mean
    assert (
        drift_of_disjoint.value > 0.95
        and drift_of_disjoint.low > 0.8
        and drift_of_disjoint.p < 0.01
    )
    drift_of_equal = measure_drift([(first, equal)], generator(1, ("a",))).mean
    assert drift_of_equal.value == 0 and drift_of_equal.low == 0 and drift_of_equal.p > 0.5
    drift_of_few = measure_drift(
        [(ConditionAnswers(("a", "b"), (1, 2)), ConditionAnswers(("c", "d"), (3, 4)))],
        generator(1, ("a",)),
    )
    assert not drift_of_few.mean.has_interval


def test_few_equal_answers_do_not_prove_equality() -> None:
    """If none of six changed, up to four in ten may change. For sixty the bound is five percent."""
    for count, expected_high in ((6, 0.393), (60, 0.0487)):
        participants = tuple(range(count))
        options = ConditionAnswers(tuple("ab" * (count // 2)), participants)
        numbers = ConditionAnswers(tuple(float(n % 3) for n in participants), participants)
        drift = measure_drift([(options, options), (numbers, numbers)], generator(1, ("same",)))
        assert drift.mean.value == 0 and drift.mean.high == pytest.approx(expected_high, abs=0.001)
        difference = drift.questions[1].difference
        assert difference.value == 0 and (difference.high < 0.3) == (count == 60)


def test_permutations_exchange_whole_conversations() -> None:
    """Ten conversations of eight participants with equal answers are ten units."""
    rng = generator(7, ("clusters",))
    alarms = 0
    for _ in range(40):
        values = [str(value) for value in rng.integers(0, 2, 10) for _ in range(8)]
        units = [unit for unit in range(10) for _ in range(8)]
        conditions = (
            ConditionAnswers(tuple(values[:40]), tuple(units[:40])),
            ConditionAnswers(tuple(values[40:]), tuple(units[40:])),
        )
        alarms += measure_drift([conditions], rng).mean.p < 0.05
    assert alarms <= 5


def test_a_withdrawal_deletes_controls_and_they_can_run_again(tmp_path: Path) -> None:
    path = small_study("focus_group", tmp_path)
    respondent = people_of("focus_group")

    def answer(_chair: SeatState, question: PendingQuestion) -> str:
        return respondent.reply(question.request, question.address).text

    small_overrides = ("replications=1", "phases=[reaction]", "max_responses_per_question=4")
    run = folkmoot.run(
        path,
        out=tmp_path / "run",
        model="synthetic",
        overrides=("seats.count=1", "seats.as=persona", *small_overrides),
        seat_host=build_seat_host(answer),
    ).folder
    run_controls(run, {"participants": 2}, RunOptions())
    own, spent = spent_in([run.path]), spent_below(run.path)
    (seat,) = read_seats(run.path)
    withdraw_texts(run, find_personal_texts(run, seat), "Ann")
    assert not (run.path / CONTROLS).exists() and control_findings(run) == []
    # The calls of the deleted controls were paid, so they count on.
    deleted = spent.calls - own.calls
    assert deleted > 0 and spent_below(run.path) == spent_in([run.path]) == spent
    assert f"({deleted} calls), with those that a withdrawal deleted. In total: " in (
        describe_later_spending(run.path)
    )
    result = CliRunner().invoke(app, ["verify", str(run.path)])
    assert "difference" not in result.output and "controls is gone" not in result.output
    again = run_controls(run, {"participants": 2}, RunOptions())
    assert again.has_table("control_answers")
    assert spent_below(run.path).calls == spent.calls + spent_in([again.path]).calls


def test_an_invalid_question_is_reported_before_the_controls_start(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    for question, message in (
        ({"id": "a", "text": "Which?", "options": ["x", "X"]}, "cannot be distinguished"),
        ({"id": "a", "text": "How many?", "number": [0, math.inf]}, "must be finite"),
        ({"id": "a", "text": "How many?", "number": [0.2, 0.8]}, "no whole number"),
        ({"id": "age", "text": "How old?", "number": [0, 99]}, "the id age belongs"),
    ):
        with pytest.raises(InputError, match=message):
            run_controls(run, {"negative": [question]}, RunOptions())
    with pytest.raises(InputError, match="all controls are switched off"):
        run_controls(run, {"negative": False, "retest": False}, RunOptions())
    # Controls run once. These errors do not count as a run.
    assert run_controls(run, {"participants": 1}, RunOptions()).has_table("control_answers")


def test_controls_without_calls_can_run_with_other_settings(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    for settings in ({"participants": 3}, {"participants": 2}):
        with pytest.raises(BudgetReachedError):
            run_controls(run, settings, RunOptions(), budget_calls=0)
    with pytest.raises(BudgetReachedError):
        run_controls(run, {"participants": 2}, RunOptions(), budget_calls=4)
    with pytest.raises(DriftError, match="begun with other settings") as caught:
        run_controls(run, {"participants": 3}, RunOptions())
    # Controls have no study file, and their command has no such option.
    assert "--accept-changes" not in str(caught.value)
    assert run_controls(run, {"participants": 2}, RunOptions()).has_table("control_answers")


def test_the_error_for_changed_requests_names_no_unsupported_option(
    sound_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = RunFolder(sound_run), {"participants": 2}
    with pytest.raises(BudgetReachedError):
        run_controls(run, settings, RunOptions(), budget_calls=4)
    # Simulate a version that sends other messages: only the last one before the question.
    monkeypatch.setattr(conversations, "Transcript", lambda messages: Transcript(messages[-1:]))
    with pytest.raises(DriftError, match="begun with other settings") as caught:
        run_controls(run, settings, RunOptions())
    assert "request differs from the one in the journal" in str(caught.value)
    assert "+++ now" in str(caught.value)
    assert "--accept-changes" not in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "topic: 1\n"])
def test_controls_report_a_missing_study_file(text: str | None, sound_run: Path) -> None:
    path = sound_run / "study.yaml"
    path.unlink()
    if text is not None:
        path.write_text(text)
    result = CliRunner().invoke(app, ["controls", str(sound_run), "--trust"])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    output = " ".join(result.output.split())
    problem = "is missing" if text is None else "has unreadable settings"
    assert f"{path} {problem}" in output and "restore the file" in output


def test_the_controls_folder_can_be_shown_but_has_no_separate_report(
    sound_run: Path,
) -> None:
    run_controls(RunFolder(sound_run), {"participants": 2}, RunOptions())
    show_result = CliRunner().invoke(app, ["show", str(sound_run / CONTROLS)])
    assert show_result.exit_code == 0 and "Participants" in show_result.output
    assert "study type" not in show_result.output
    report_result = CliRunner().invoke(app, ["report", str(sound_run / CONTROLS)])
    assert report_result.exit_code == 2
    output = " ".join(report_result.output.split())
    assert (
        f"this is a part of the run {sound_run} (folkmoot report {sound_run} shows its results)"
        in output
    )


def test_a_study_with_only_stated_attributes_runs_no_controls(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    small_pilot = PILOT.replace("participants_per_condition: 20", "participants_per_condition: 4")
    path.write_text(
        f"{small_pilot}controls: {{negative: false, retest: false, confounders: all}}\n"
    )
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    assert not (run.path / CONTROLS).exists() and control_findings(run) == []
    assert run_controls(run, {"participants": 1}, RunOptions()).has_table("control_answers")


def test_the_table_of_variance_names_each_attribute_and_is_verified(sound_run: Path) -> None:
    run = RunFolder(sound_run)
    control_run = run_controls(run, {"negative": False}, RunOptions())
    table = control_run.read_table("persona_variance")
    rows = {attribute: row for attribute, *row in table.select(
        "attribute", "measure", "variance_share", "participants", "missing"
    ).iter_rows()}  # fmt: skip
    assert {"the whole persona", "age", "sex", "education"} <= rows.keys()
    assert set(table["decision"]) == {"first vote"}
    assert all((row[1] is None) == (row[3] is not None) for row in rows.values())
    assert rows["the whole persona"][0] == "ICC(1)" and rows["the whole persona"][2] == 40
    finding = next(
        candidate for candidate in control_findings(run) if candidate.key == "persona_variance"
    )
    displayed = {row["attribute"]: row["variance"] for row in read_records(finding)}
    assert displayed == {name: row[1] for name, row in rows.items() if row[1] is not None}
    codebook = json.loads((control_run.path / "codebook.json").read_text())
    assert "persona_variance" in json.dumps(codebook)
    assert folkmoot.load(run.path).verify().differences == []


def test_controls_of_a_fork_repeat_its_decisions(tmp_path: Path) -> None:
    study = write_one_group(tmp_path)
    base_run = folkmoot.run(study, model="synthetic", out=tmp_path / "run")
    utterances = base_run.table("utterances").filter(speaker_role="participant", public=True)
    fork = folkmoot.fork(base_run, utterances["utterance_id"][0], say="I have no use for it.",
                         out=tmp_path / "fork")  # fmt: skip
    settings = {"negative": False, "same_length": True, "participants": 1}
    control_run = run_controls(fork.folder, settings, RunOptions())
    final = control_run.read_table("control_answers").filter(control="same_length", moment="final")
    assert final.height and not final["missing"].drop_nulls().to_list()
    assert folkmoot.load(fork.path).verify().differences == []


def _decline_some_final_votes(request: ModelRequest, address: str) -> Completion:
    # Each participant always votes for the same option, and every third one declines a later vote.
    hints = request.hints
    if hints.kind != "choice":
        has_asked = any(message.role == "assistant" for message in request.messages)
        return Completion(hints.signal if hints.signal and has_asked else "What does it change?")
    number = int(hints.speaker.partition("_")[2])
    # Controls ask the later votes again, and get the same answers.
    is_first = "initial_vote" in address or "/first-" in address
    if number % 3 == 0 and not is_first:
        return Completion("declined")
    return Completion(sorted(hints.offered)[number % 2])


def test_a_declined_vote_is_no_answer_for_controls(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    settings = "controls: {negative: false, order: true, no_persona: true}"
    study.write_text(f"{PILOT}{settings}\n", "utf-8")
    provider = ScriptedProvider(_decline_some_final_votes)
    run = folkmoot.run(study, model="scripted", provider=provider, out=tmp_path / "run").folder
    assert run.read_table("participants")["position_changed"].drop_nulls().sum() == 0
    controls = run.open_subfolder(CONTROLS)
    assert controls is not None
    designed = controls.read_table("control_answers").filter(control=AS_DESIGNED)
    declined = designed.filter(missing="declined")
    assert declined.height == 7 and declined["value"].is_null().all()
    options = {"Park improvements", "Youth job training", "Safer streets"}
    assert {*designed.filter(pl.col("missing").is_null())["value"]} <= options
    findings = {finding.key: finding for finding in control_findings(run)}
    for row in read_records(findings["where_the_effect_comes_from"]):
        assert row["effect_share"] == 0 and row["changed_share"] in (0, None), row
    assert {row["same_share"] for row in read_records(findings["answers_in_each_version"])} == {1}


def test_controls_planned_by_an_earlier_version_keep_declined_votes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such controls are verified with the rows that the earlier version has written."""
    study = tmp_path / "study.yaml"
    settings = "controls: {negative: false, order: true}"
    study.write_text(f"{PILOT}{settings}\n", "utf-8")
    provider = ScriptedProvider(_decline_some_final_votes)
    with monkeypatch.context() as earlier:
        earlier.setattr(asking, "_is_planned_earlier", lambda _run, _key: True)
        run = folkmoot.run(study, model="scripted", provider=provider, out=tmp_path / "run").folder
    controls = run.open_subfolder(CONTROLS)
    assert controls is not None
    designed = controls.read_table("control_answers").filter(control=AS_DESIGNED)
    assert designed.filter(value="declined").height == 7
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_closed_fields_of_a_form_that_the_study_could_not_read_are_answers() -> None:
    """The study needs a reason too. Controls compare the rating, in each version alike."""
    decision = conversations.ControlledDecision(
        *("p1", "p1", "A", "p1", "final", "rating", "rating/p1/ask0", "participant", "model"),
        options=(), recorded=None, missing="unreadable", is_number=False, age=None, kind="json",
    )  # fmt: skip
    rating = {"type": "integer", "minimum": 1, "maximum": 5}
    fields = {"rating": rating, "reason": {"type": "string"}}
    message = {"role": "user", "content": "Rate the plan and give a reason."}
    request = {"messages": [message], "schema": {"type": "object", "properties": fields}}

    def read(reply: str) -> conversations.DecisionConversation:
        entry: Any = SimpleNamespace(
            request=request, reply=reply, model_asked="model", model_served="model"
        )
        journal: Any = SimpleNamespace(
            entry_at=lambda _address: entry, list_ask_addresses=lambda address: [address]
        )
        spans = SimpleNamespace(spans_at=lambda _address: ())
        run: Any = SimpleNamespace(read_spans=lambda _addresses: spans)
        (conversation,) = conversations.read_conversations(run, journal, [decision]).values()
        return conversation

    readable, unreadable = read('{"rating": 4}'), read("I would rather not.")
    assert (readable.value, readable.missing) == (4.0, None)
    assert (unreadable.value, unreadable.missing) == (None, "unreadable")
