"""A model that does not follow the instructions is named in red at the top of the report."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.folder_access import open_run
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.measures.diagnostics import repeats_itself
from folkmoot.models.request import Completion, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.document import build_document
from folkmoot.report.document.html import write_report
from folkmoot.report.document.instructions import check_instructions
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.killed import reopen_run, write_row_file
from tests.studies.cross_pollination.test_protocol import JOBS, SETTINGS, Cast, number

SENTENCE = "I think that the park is the better choice for all of us."
FAILURES = ("unclear", "looped", "cut")


NOT_FOLLOWED = "This model did not follow the instructions"


def run_with_failures(
    failure: str, failing_participants: int, folder: Path, **settings: Any
) -> RunFolder:
    """Run a study in which the first votes of some of the 24 participants fail in this way."""
    cast = Cast()

    def reply(request: ModelRequest, address: str) -> str | Completion:
        is_failing = address.startswith("initial_vote") and number(address) <= failing_participants
        if is_failing and failure == "unclear" and ".r" not in address:
            return "That depends on a great many things."
        if is_failing and failure == "looped" and ".r" not in address:
            return " ".join([SENTENCE] * 6)
        if is_failing and failure == "cut" and not address.endswith(".long"):
            return Completion(JOBS[:3], Usage(10, 10, 0), "scripted", finish="length")
        if "Which of these options did you state" in request.messages[-1].content:
            return json.dumps({"stated": JOBS})
        return cast(request, address)

    config = {**SETTINGS, "conditions": ["simple_voting"], **settings}
    run = folkmoot.run(
        "cross_pollination", config, out=folder / "run", provider=ScriptedProvider(reply)
    )
    return run.folder


def read_instructions(run: RunFolder) -> dict[str, Any]:
    """Return the row of the only model in the finding on instructions."""
    finding = check_instructions(run)
    assert finding is not None
    (row,) = finding.grid.rows
    return dict(zip(finding.grid.columns, row, strict=True))


SINGLE_CONDITION = {"participants_per_condition": 24, "disagreement_threshold": 1.0}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_model_with_many_failures_is_named_in_red_at_the_top(
    failure: str, tmp_path: Path
) -> None:
    run = run_with_failures(failure, 12, tmp_path, **SINGLE_CONDITION)
    finding = check_instructions(run)
    assert finding is not None and finding.headline
    (alarm,) = finding.alarms
    assert alarm.startswith(NOT_FOLLOWED) and "50 % of 24 first replies failed" in alarm
    row = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert row["first_replies"] == 24
    assert row["cut"] == (12 if failure == "cut" else 0)
    assert row["repeated_themselves"] == (12 if failure == "looped" else 0)
    document = build_document(run)
    assert document.front is not None and document.front.colour == "red"
    card = document.front.card[0]
    assert (card.name, card.verdict) == ("Instructions followed", "failed")
    assert (
        card.figures
        == f"{row['model']}: 50 % (31 to 69 %) of 24 first replies failed; the margin is at most "
        "20 %."
    )
    page = write_report(run).read_text("utf-8")
    assert page.index(card.consequence) < page.index('id="findings"') < page.index(NOT_FOLLOWED)


def test_a_model_is_not_named_if_the_interval_includes_the_limit(tmp_path: Path) -> None:
    run = run_with_failures("unclear", 6, tmp_path, **SINGLE_CONDITION)
    finding = check_instructions(run)
    assert finding is not None and not finding.alarms
    assert "25 % of 24 first replies failed" in finding.says
    document = build_document(run)
    assert document.front is not None and document.front.card[0].verdict == "not known"


def test_a_model_below_the_limit_is_not_named(tmp_path: Path) -> None:
    run = run_with_failures("unclear", 4, tmp_path, **SINGLE_CONDITION)
    finding = check_instructions(run)
    assert finding is not None and not finding.alarms and not finding.headline
    assert "17 % of 24 first replies failed: 4 needed a further request" in finding.says
    # 4 of 24 is below the limit, but 24 replies are too few for a verdict on the model.
    document = build_document(run)
    assert document.front is not None and document.front.card[0].verdict == "not known"


@pytest.mark.parametrize(("limit", "has_alarm"), [(0.1, True), (0.5, False)])
def test_the_limit_comes_from_the_study_file(limit: float, has_alarm: bool, tmp_path: Path) -> None:
    run = run_with_failures(
        "unclear", 6, tmp_path, max_instruction_failures=limit, **SINGLE_CONDITION
    )
    finding = check_instructions(run)
    assert finding is not None and bool(finding.alarms) is has_alarm
    assert find_study_of_run(run).name == "cross_pollination"


def test_replies_of_a_killed_run_without_a_recorded_answer_are_left_out(tmp_path: Path) -> None:
    run = run_with_failures("unclear", 0, tmp_path, **SINGLE_CONDITION)
    assert read_instructions(run)["verdict"] == "passed"
    tables = {name: run.read_table(name).to_dicts() for name in run.table_names()}
    del tables[PROVENANCE]
    reopen_run(run.path)
    tables["answers"] = tables["answers"][:3]
    write_row_file(run.path, tables)
    row = read_instructions(open_run(run.path))
    assert row["first_replies"] == 3 and row["verdict"] == "not known"
    write_row_file(run.path, {})
    assert check_instructions(open_run(run.path)) is None


REPETITIVE_TEXTS = (
    " ".join([SENTENCE] * 4),
    "I agree. " * 12,
    "Parks. First I say this. " + "and so on and on " * 8,
    "no " * 40,
    json.dumps({"reason": f"{SENTENCE} " * 5, "vote": "yes"}),
    '{"reason": "' + f"{SENTENCE} " * 5,
)
ORDINARY_TEXTS = (
    SENTENCE,
    f"{SENTENCE} {SENTENCE}",
    "no no no no no",
    json.dumps({f"resident_{n}": {"vote": "yes", "reason": "good"} for n in range(30)}),
    json.dumps({"votes": [{"choice": "yes", "reason": ""}] * 40}),
    "```json\n" + json.dumps({"votes": [{"choice": "yes"}] * 40}) + "\n```",
    "\n".join(f"{n}. Street number {n} needs light number {n}." for n in range(30)),
    "Parks give shade. Parks give rest. Parks give play. Parks cost money, and so do streets, "
    "and so do jobs, and so do schools, but parks last longer than most of what a town can buy.",
)


@pytest.mark.parametrize("text", REPETITIVE_TEXTS)
def test_repeated_passages_are_loops(text: str) -> None:
    assert repeats_itself(text)


@pytest.mark.parametrize("text", ORDINARY_TEXTS)
def test_lists_and_rhetorical_repetition_are_not_loops(text: str) -> None:
    assert not repeats_itself(text)


def test_a_damaged_journal_does_not_raise(tmp_path: Path) -> None:
    run = run_with_failures("unclear", 6, tmp_path, **SINGLE_CONDITION)
    with sqlite3.connect(run.path / "journal.sqlite") as journal:
        journal.execute("UPDATE entries SET reply = x'ff00ff' WHERE kind = 'ask'")
    assert check_instructions(run) is None


async def ask_outside_of_scopes(session: Session) -> None:
    await session.ask(Speaker("ann"), "Hello?")


def test_questions_outside_of_all_scopes_have_first_replies(tmp_path: Path) -> None:
    study = Study("own", "Own", StudyConfig, ask_outside_of_scopes)
    run = folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda request, address: "Hi")
    )
    with JournalReader(run.path / JOURNAL) as journal:
        assert [(first.address, first.text) for first in journal.first_replies()] == [
            ("ask0", "Hi")
        ]
