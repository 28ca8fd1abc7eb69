"""A model that does not follow the instructions is named, in red, before anything else."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.measures.diagnostics import repeats_itself
from folkmoot.models.request import Completion, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.document import build_document
from folkmoot.report.document.html import write_report
from folkmoot.report.document.instructions import check_instructions
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.studies.cross_pollination.test_protocol import JOBS, SETTINGS, Cast, number

SENTENCE = "I think that the park is the better choice for all of us."
FAILURES = ("unclear", "looped", "cut")


NOT_FOLLOWED = "This model did not follow the instructions"


def answered(failure: str, people: int, folder: Path, **settings: Any) -> RunFolder:
    """A run in which the first vote of so many of its 24 people fails in this way."""
    cast = Cast()

    def reply(request: ModelRequest, address: str) -> str | Completion:
        first = address.startswith("initial_vote") and number(address) <= people
        if first and failure == "unclear" and ".r" not in address:
            return "That depends on a great many things."
        if first and failure == "looped" and ".r" not in address:
            return " ".join([SENTENCE] * 6)
        if first and failure == "cut" and not address.endswith(".long"):
            return Completion(JOBS[:3], Usage(10, 10, 0), "scripted", finish="length")
        if "Which of these options did you state" in request.messages[-1].content:
            return json.dumps({"stated": JOBS})
        return cast(request, address)

    config = {**SETTINGS, "conditions": ["simple_voting"], **settings}
    done = folkmoot.run(
        "cross_pollination", config, out=folder / "run", provider=ScriptedProvider(reply)
    )
    return done.folder


ALONE = {"participants_per_condition": 24, "disagreement_threshold": 1.0}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_model_that_fails_too_often_is_named_in_red_at_the_top(
    failure: str, tmp_path: Path
) -> None:
    run = answered(failure, 12, tmp_path, **ALONE)
    finding = check_instructions(run)
    assert finding is not None and finding.headline
    (alarm,) = finding.alarms
    assert alarm.startswith(NOT_FOLLOWED) and "50 % of 24 first replies failed" in alarm
    row = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert row["first_replies"] == 24
    assert row["cut"] == (12 if failure == "cut" else 0)
    assert row["repeated_themselves"] == (12 if failure == "looped" else 0)
    made = build_document(run)
    assert made.front is not None and made.front.colour == "red"
    card = made.front.card[0]
    assert (card.name, card.verdict) == ("Instructions followed", "failed")
    assert (
        card.figures
        == f"{row['model']}: 50 % (31 to 69 %) of 24 first replies failed; the margin is at most "
        "20 %."
    )
    page = write_report(run).read_text("utf-8")
    assert page.index(card.consequence) < page.index('id="findings"') < page.index(NOT_FOLLOWED)


def test_a_model_is_not_named_if_only_its_share_is_above_the_limit(tmp_path: Path) -> None:
    run = answered("unclear", 6, tmp_path, **ALONE)
    finding = check_instructions(run)
    assert finding is not None and not finding.alarms
    assert "25 % of 24 first replies failed" in finding.says
    made = build_document(run)
    assert made.front is not None and made.front.card[0].verdict == "not known"


def test_a_model_below_the_limit_is_not_named(tmp_path: Path) -> None:
    run = answered("unclear", 4, tmp_path, **ALONE)
    finding = check_instructions(run)
    assert finding is not None and not finding.alarms and not finding.headline
    assert "17 % of 24 first replies failed: 4 needed a further request" in finding.says
    # 4 of 24 is below the limit, and 24 replies are too few to say so of the model.
    made = build_document(run)
    assert made.front is not None and made.front.card[0].verdict == "not known"


@pytest.mark.parametrize(("limit", "named"), [(0.1, True), (0.5, False)])
def test_the_share_is_the_study_files(limit: float, named: bool, tmp_path: Path) -> None:
    run = answered("unclear", 6, tmp_path, max_instruction_failures=limit, **ALONE)
    finding = check_instructions(run)
    assert finding is not None and bool(finding.alarms) is named
    assert find_study_of_run(run).name == "cross_pollination"


LOOPS = (
    " ".join([SENTENCE] * 4),
    "I agree. " * 12,
    "Parks. First I say this. " + "and so on and on " * 8,
    "no " * 40,
    json.dumps({"reason": f"{SENTENCE} " * 5, "vote": "yes"}),
    '{"reason": "' + f"{SENTENCE} " * 5,
)
PLAIN = (
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


@pytest.mark.parametrize("text", LOOPS)
def test_a_passage_again_and_again_is_a_loop(text: str) -> None:
    assert repeats_itself(text)


@pytest.mark.parametrize("text", PLAIN)
def test_lists_and_figures_of_speech_are_no_loop(text: str) -> None:
    assert not repeats_itself(text)


def test_a_damaged_journal_is_no_crash(tmp_path: Path) -> None:
    run = answered("unclear", 6, tmp_path, **ALONE)
    with sqlite3.connect(run.path / "journal.sqlite") as journal:
        journal.execute("UPDATE entries SET reply = x'ff00ff' WHERE kind = 'ask'")
    assert check_instructions(run) is None


async def asks_outside_of_scopes(session: Session) -> None:
    await session.ask(Speaker("ann"), "Hello?")


def test_questions_outside_of_all_scopes_have_first_replies(tmp_path: Path) -> None:
    study = Study("own", "Own", StudyConfig, asks_outside_of_scopes)
    run = folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(lambda request, address: "Hi")
    )
    with JournalReader(run.path / JOURNAL) as journal:
        assert [(first.address, first.text) for first in journal.first_replies()] == [
            ("ask0", "Hi")
        ]
