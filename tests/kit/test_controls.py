"""Controls continue the conversations of a finished run, and find what is planted in it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

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
from folkmoot.engine.settings.controls import shipped_questions
from folkmoot.engine.study.study import registered_studies
from folkmoot.errors import BudgetReachedError, DriftError, InputError
from folkmoot.kit.controls import conversations
from folkmoot.kit.controls.asking import run_controls
from folkmoot.kit.controls.conversations import find_decisions
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.tables import AS_DESIGNED, NEGATIVE, RETEST
from folkmoot.measures.drift import ConditionAnswers, measure_drift
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder
from tests.conftest import SharedFolder
from tests.contract.small import people_of, small_study
from tests.engine.test_seats import by_hand
from tests.sweeps import sample_daily

PILOT = """
pilot_id: controlled
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, acp]
participants_per_condition: 20
personas: {source: quota}
"""


def pilot(folder: Path, per_condition: int = 20, **respondent: float) -> RunFolder:
    """A run of the pilot study with these settings of the embedded respondent."""
    folder.mkdir()
    study = folder / "study.yaml"
    settings = PILOT.replace("20", str(per_condition))
    study.write_text(f"{settings}respondent: {json.dumps(respondent)}\n")
    return folkmoot.run(study, model="synthetic", out=folder / "run").folder


@pytest.fixture
def sound(shared_folder: SharedFolder, tmp_path: Path) -> Path:
    """A copy of the run of a respondent without a fault, for a test to ask controls in."""
    made = shared_folder("controls/sound", lambda folder: pilot(folder / "pilot"))
    return Path(shutil.copytree(made / "pilot" / "run", tmp_path / "sound"))


def controlled(run: RunFolder, **settings: object) -> dict[str, Finding]:
    run_controls(run, settings, RunOptions())
    return {finding.key: finding for finding in control_findings(run)}


def records(finding: Finding) -> list[Mapping[str, TableCell]]:
    return [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]


@pytest.mark.parametrize(
    "study",
    sample_daily(sorted(registered_studies()), daily=("town_hall", "workbook"), part="sweeps"),
)
def test_controls_continue_the_very_conversation_and_leave_the_run_as_it_was(
    study: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study(study), tmp_path / "run"))
    before = (run.path / JOURNAL).read_bytes()
    tables = {name: run.read_table(name) for name in run.table_names()}
    done = run_controls(run, {"participants": 2}, RunOptions())
    assert (run.path / JOURNAL).read_bytes() == before
    assert all(RunFolder(run.path).read_table(name).equals(own) for name, own in tables.items())
    asked = done.read_table("control_answers")
    assert asked.filter(control=NEGATIVE).height >= 2 * len(shipped_questions("en"))
    with (
        JournalReader(run.path / JOURNAL) as made,
        JournalReader(done.path / JOURNAL) as controls,
    ):
        for row in asked.filter(control=NEGATIVE).iter_rows(named=True):
            decided = made.entry_at(made.list_ask_addresses(row["decision_address"])[-1])
            control = controls.entry_at(row["address"])
            assert decided is not None and control is not None
            *known, reply, question = control.request["messages"]
            assert known == decided.request["messages"]
            assert reply == {"role": "assistant", "content": decided.reply}
            assert question["role"] == "user" and control.model_asked == decided.model_asked
    if study == "focus_group":
        ended = CliRunner().invoke(app, ["verify", str(run.path)])
        assert ended.exit_code == 0, ended.output
    assert "unattributed" not in done.read_table("provenance")["kind"]


def test_planted_faults_are_found_and_no_others(sound: Path, tmp_path: Path) -> None:
    found = controlled(RunFolder(sound))
    assert {row["verdict"] for row in records(found["user_drift"])} <= {"passed", "not known"}
    assert all(row["kept_share"] == 1 for row in records(found["persona_kept"]))
    faulty = controlled(pilot(tmp_path / "faulty", 30, drift=0.8, persona_forgetting=0.6))
    verdicts = {row["contrast"]: row["verdict"] for row in records(faulty["user_drift"])}
    assert verdicts["Simple voting against Adversarial (ACP)"] == "failed"
    assert verdicts["Simple voting: final against first decision"] != "failed"
    kept = {row["after"]: row["kept_share"] for row in records(faulty["persona_kept"])}
    assert kept["Adversarial (ACP), first decision"] == 1
    last = "Adversarial (ACP), final decision"
    assert isinstance(kept[last], float) and kept[last] < 0.7
    assert any(alarm.startswith("User drift") for alarm in faulty["user_drift"].alarms)


def test_an_unstable_model_is_unreliable(tmp_path: Path) -> None:
    found = controlled(pilot(tmp_path / "a", instability=0.9), negative=False)
    (row,) = records(found["reliability"])
    assert row["verdict"] == "failed"


def test_controls_that_stopped_go_on_and_are_made_once(sound: Path, tmp_path: Path) -> None:
    run, whole = RunFolder(sound), RunFolder(shutil.copytree(sound, tmp_path / "whole"))
    with pytest.raises(BudgetReachedError):
        run_controls(run, {"participants": 3}, RunOptions(), budget_calls=10)
    assert control_findings(run) == []
    done = run_controls(run, {"participants": 3}, RunOptions())
    other = run_controls(whole, {"participants": 3}, RunOptions())
    assert done.read_table("control_answers").equals(other.read_table("control_answers"))
    with pytest.raises(InputError, match="has controls already"):
        run_controls(run, {}, RunOptions())


def test_the_same_participants_are_asked_before_and_after_and_a_retest_is_the_decision(
    sound: Path,
) -> None:
    """A retest sends the prompts of the decision again, without the answer to them."""
    run = RunFolder(sound)
    done = run_controls(run, {"participants": 7, "negative": False}, RunOptions())
    asked = done.read_table("control_answers")
    people = asked.group_by("condition", "moment").agg(pl.col("participant_id").unique().sort())
    by = {(c, m): tuple(p) for c, m, p in people.iter_rows()}
    assert by["acp", "first"] == by["acp", "final"] and len(by["acp", "final"]) == 7
    rows = asked.filter(pl.col("control") != AS_DESIGNED)
    assert rows["control"].unique().to_list() == [RETEST]
    with (
        JournalReader(run.path / JOURNAL) as made,
        JournalReader(done.path / JOURNAL) as controls,
    ):
        for row in rows.iter_rows(named=True):
            again, first = controls.entry_at(row["address"]), made.entry_at(row["decision_address"])
            assert again is not None and first is not None
            assert again.request["messages"] == first.request["messages"]
            assert row["expected"] == first.reply


def test_questions_of_ones_own_and_in_german(sound: Path) -> None:
    run = RunFolder(sound)
    own = {"id": "shoes", "text": "Which size are your shoes?", "number": [30, 50]}
    asked = run_controls(
        run, {"participants": 2, "negative": [own], "language": "de"}, RunOptions()
    )
    table = asked.read_table("control_answers").filter(control=NEGATIVE)
    assert table["question"].unique().to_list() == ["shoes"]
    assert table["number"].is_between(30, 50).all()
    german, english = shipped_questions("de"), shipped_questions("en")
    assert len(german) == len(english) == 12
    assert all(
        a.text != b.text and len(a.options) == len(b.options)
        for a, b in zip(german, english, strict=True)
    )


def test_a_run_without_decisions_is_told_so(tmp_path: Path) -> None:
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


def test_a_number_beside_a_way_out_is_a_decision_that_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(RATING)
    settings = tmp_path / "own.yaml"
    settings.write_text("study: ./own.py\nmodel: synthetic\n")
    run = folkmoot.run(settings, out=tmp_path / "run", trust=True).folder
    # The embedded respondent has an opinion, so it gives a number and takes no way out.
    said = {name: float(score) for name, score in run.rows("ratings", "name", "score")}
    asked = run_controls(run, {"negative": False}, RunOptions()).read_table("control_answers")
    as_designed = asked.filter(control=AS_DESIGNED).select("participant_id", "number").rows()
    assert dict(as_designed) == said
    assert asked.filter(control=RETEST)["number"].is_between(0, 10).to_list() == [True] * 3


def test_the_distance_of_a_question_has_known_answers() -> None:
    def distance(first: str, second: str) -> float:
        arms = (
            ConditionAnswers(tuple(first), (1, 2, 3, 4)),
            ConditionAnswers(tuple(second), (5, 6, 7, 8)),
        )
        return measure_drift([arms], generator(1, ("a",))).questions[0].distance

    assert distance("aabb", "aabb") == 0
    assert distance("aaaa", "bbbb") == 1
    assert distance("aaab", "abbb") == 0.5


def test_drift_is_zero_where_arms_are_alike_and_one_where_nothing_is_shared() -> None:
    first = ConditionAnswers(tuple("ab" * 20), tuple(range(40)))
    others = ConditionAnswers(tuple("cd" * 20), tuple(range(40, 80)))
    alike = ConditionAnswers(first.values, tuple(range(40, 80)))
    apart = measure_drift([(first, others)], generator(1, ("a",))).mean
    assert apart.value > 0.95 and apart.low > 0.8 and apart.p < 0.01
    same = measure_drift([(first, alike)], generator(1, ("a",))).mean
    assert same.value == 0 and same.low == 0 and same.p > 0.5
    few = measure_drift(
        [(ConditionAnswers(("a", "b"), (1, 2)), ConditionAnswers(("c", "d"), (3, 4)))],
        generator(1, ("a",)),
    )
    assert not few.mean.has_interval


def test_few_people_who_answer_alike_prove_no_equality() -> None:
    """That none of six changed leaves room for four in ten, of sixty for five in a hundred."""
    for count, largest in ((6, 0.393), (60, 0.0487)):
        people = tuple(range(count))
        options = ConditionAnswers(tuple("ab" * (count // 2)), people)
        numbers = ConditionAnswers(tuple(float(n % 3) for n in people), people)
        drift = measure_drift([(options, options), (numbers, numbers)], generator(1, ("same",)))
        assert drift.mean.value == 0 and drift.mean.high == pytest.approx(largest, abs=0.001)
        difference = drift.questions[1].difference
        assert difference.value == 0 and (difference.high < 0.3) == (count == 60)


def test_whole_conversations_are_exchanged_not_single_answers() -> None:
    """Ten conversations of eight who answer alike are ten units, and ten units prove little."""
    rng = generator(7, ("clusters",))
    alarms = 0
    for _ in range(40):
        values = [str(v) for v in rng.integers(0, 2, 10) for _ in range(8)]
        units = [unit for unit in range(10) for _ in range(8)]
        arms = (
            ConditionAnswers(tuple(values[:40]), tuple(units[:40])),
            ConditionAnswers(tuple(values[40:]), tuple(units[40:])),
        )
        alarms += measure_drift([arms], rng).mean.p < 0.05
    assert alarms <= 5


def test_controls_go_with_a_person_who_withdraws_and_can_be_asked_again(tmp_path: Path) -> None:
    path = small_study("focus_group", tmp_path)
    people = people_of("focus_group")

    def answer(_chair: SeatState, question: PendingQuestion) -> str:
        return people.reply(question.request, question.address).text

    small = ("replications=1", "phases=[reaction]", "max_responses_per_question=4")
    run = folkmoot.run(
        path,
        out=tmp_path / "run",
        model="synthetic",
        overrides=("seats.count=1", "seats.as=persona", *small),
        seat_host=by_hand(answer),
    ).folder
    run_controls(run, {"participants": 2}, RunOptions())
    (place,) = read_seats(run.path)
    withdraw_texts(run, find_personal_texts(run, place), "Ann")
    assert not (run.path / CONTROLS).exists() and control_findings(run) == []
    ended = CliRunner().invoke(app, ["verify", str(run.path)])
    assert "difference" not in ended.output and "controls is gone" not in ended.output
    assert run_controls(run, {"participants": 2}, RunOptions()).has_table("control_answers")


def test_a_wrong_question_is_told_before_the_controls_begin(sound: Path) -> None:
    run = RunFolder(sound)
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
    # None of these mistakes has used up the only time that controls can be asked.
    assert run_controls(run, {"participants": 1}, RunOptions()).has_table("control_answers")


def test_controls_that_asked_nothing_yet_can_be_asked_with_other_settings(sound: Path) -> None:
    run = RunFolder(sound)
    for settings in ({"participants": 3}, {"participants": 2}):
        with pytest.raises(BudgetReachedError):
            run_controls(run, settings, RunOptions(), budget_calls=0)
    with pytest.raises(BudgetReachedError):
        run_controls(run, {"participants": 2}, RunOptions(), budget_calls=4)
    with pytest.raises(DriftError, match="begun with other settings") as refused:
        run_controls(run, {"participants": 3}, RunOptions())
    # Controls have no study file, and their command has no such option.
    assert "--accept-changes" not in str(refused.value)
    assert run_controls(run, {"participants": 2}, RunOptions()).has_table("control_answers")


def test_a_changed_request_of_begun_controls_proposes_only_what_their_command_can_do(
    sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = RunFolder(sound), {"participants": 2}
    with pytest.raises(BudgetReachedError):
        run_controls(run, settings, RunOptions(), budget_calls=4)
    # Another version would send other messages: here, only the last one before the question.
    monkeypatch.setattr(conversations, "Transcript", lambda messages: Transcript(messages[-1:]))
    with pytest.raises(DriftError, match="begun with other settings") as refused:
        run_controls(run, settings, RunOptions())
    assert "request differs from the one in the journal" in str(refused.value)
    assert "+++ now" in str(refused.value)
    assert "--accept-changes" not in str(refused.value)


@pytest.mark.parametrize("text", [None, "", "topic: 1\n"])
def test_controls_without_the_study_file_of_the_run_say_so(text: str | None, sound: Path) -> None:
    path = sound / "study.yaml"
    path.unlink()
    if text is not None:
        path.write_text(text)
    asked = CliRunner().invoke(app, ["controls", str(sound), "--trust"])
    assert asked.exit_code == 2 and isinstance(asked.exception, SystemExit)
    said = " ".join(asked.output.split())
    problem = "is missing" if text is None else "has unreadable settings"
    assert f"{path} {problem}" in said and "restore the file" in said


def test_the_folder_of_controls_is_shown_without_a_warning_and_reported_by_its_run(
    sound: Path,
) -> None:
    run_controls(RunFolder(sound), {"participants": 2}, RunOptions())
    shown = CliRunner().invoke(app, ["show", str(sound / CONTROLS)])
    assert shown.exit_code == 0 and "Participants" in shown.output
    assert "study type" not in shown.output
    reported = CliRunner().invoke(app, ["report", str(sound / CONTROLS)])
    assert reported.exit_code == 2
    said = " ".join(reported.output.split())
    assert f"this is a part of the run {sound} (folkmoot report {sound} shows its results)" in said


def test_a_study_that_only_states_attributes_asks_no_controls(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    few = PILOT.replace("participants_per_condition: 20", "participants_per_condition: 4")
    path.write_text(f"{few}controls: {{negative: false, retest: false, confounders: all}}\n")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    assert not (run.path / CONTROLS).exists() and control_findings(run) == []
    assert run_controls(run, {"participants": 1}, RunOptions()).has_table("control_answers")


def test_the_table_of_variance_names_each_attribute_and_is_verified(sound: Path) -> None:
    run = RunFolder(sound)
    done = run_controls(run, {"negative": False}, RunOptions())
    table = done.read_table("persona_variance")
    rows = {attribute: row for attribute, *row in table.select(
        "attribute", "measure", "variance_share", "participants", "missing"
    ).iter_rows()}  # fmt: skip
    assert {"the whole persona", "age", "sex", "education"} <= rows.keys()
    assert set(table["decision"]) == {"first vote"}
    assert all((row[1] is None) == (row[3] is not None) for row in rows.values())
    assert rows["the whole persona"][0] == "ICC(1)" and rows["the whole persona"][2] == 40
    finding = next(found for found in control_findings(run) if found.key == "persona_variance")
    shown = {row["attribute"]: row["variance"] for row in records(finding)}
    assert shown == {name: row[1] for name, row in rows.items() if row[1] is not None}
    book = json.loads((done.path / "codebook.json").read_text())
    assert "persona_variance" in json.dumps(book)
    assert folkmoot.load(run.path).verify().differences == []


def test_controls_of_a_fork_ask_its_decisions(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    base = folkmoot.load(shutil.copytree(run_of_small_study("focus_group"), tmp_path / "run"))
    said = base.table("utterances").filter(speaker_role="participant", public=True)
    fork = folkmoot.fork(base, said["utterance_id"][0], say="I have no use for it.",
                         out=tmp_path / "fork")  # fmt: skip
    settings = {"negative": False, "same_length": True, "participants": 1}
    done = run_controls(fork.folder, settings, RunOptions())
    final = done.read_table("control_answers").filter(control="same_length", moment="final")
    assert final.height and not final["missing"].drop_nulls().to_list()
    assert folkmoot.load(fork.path).verify().differences == []
