"""Paused and resumed runs: the manifest has all costs, and the tables have all utterances."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot import Scope, Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import BudgetReachedError, RunPausedError, TransientError
from folkmoot.models.request import Completion, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import ANSWER_COLUMNS
from tests.contract.runs import make_respondent, play
from tests.contract.test_every_study import STUDIES
from tests.faults.lab import CommandLine
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

FOCUS_GROUP = """
study: focus_group
product_concept: A countertop oven
category: kitchen appliances
stimulus_material: Meet the oven that reads. 299 dollars.
num_personas: 4
replications: 3
phases: [warmup, reaction]
questions_per_phase: 1
max_responses_per_question: 2
model: openai/gpt-4o-mini
concurrency: 4
max_tokens: 300
max_api_retries: 2
api_retry_base_seconds: 0.01
"""


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("focus_group", "workbook"), part="sweeps")
)
def test_a_run_that_pauses_before_its_first_answer_is_reported_and_counted(
    study: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(BudgetReachedError):
        play(study, folder, provider=make_respondent(study), overrides=("budget_calls=0",))
    log = (folder / "run.log").read_text("utf-8")
    assert "not complete" not in log and "are empty" not in log
    paused = folkmoot.load(folder)
    assert (paused.manifest["outcome"], paused.manifest["calls"]) == ("paused", 0)
    assert paused.table("answers").height == 0
    assert "the run is paused" in paused.report().read_text("utf-8").lower()
    done = play(study, folder, provider=make_respondent(study), overrides=("budget_calls=100000",))
    # An empty table has the columns of one with rows.
    answers, kinds = done.table("answers"), {"String": "text", "Int64": "int"}
    assert answers.columns == list(ANSWER_COLUMNS)
    for cells in answers:
        # A column without any value says nothing about its kind.
        assert not cells.count() or kinds[str(cells.dtype)] == ANSWER_COLUMNS[cells.name]


def test_replies_that_broke_off_are_named_although_nothing_was_answered(tmp_path: Path) -> None:
    study, out = tmp_path / "talk.yaml", tmp_path / "run"
    study.write_text(FOCUS_GROUP)
    with ServerThread(FaultPlan(half=1.0), answers="respondent") as server:
        line = CommandLine(server.openai)
        line.run("run", study, "--out", out, expect=75)
        first = RunFolder(out).manifest
        assert first["calls"] == 0 and first["broken_replies"]["count"] > 0
        assert first["lost_tries"] >= first["broken_replies"]["count"]
        server.model.plan = FaultPlan()
        line.run("run", study, "--out", out, "--resume")
    done = RunFolder(out).manifest
    assert done["processes"] == 2
    assert done["broken_replies"] == first["broken_replies"]
    assert done["lost_tries"] == first["lost_tries"]


GROUPS, MEMBERS, QUESTIONS = 4, 3, 5


async def talk_in_groups(session: Session) -> None:
    async def hold(scope: Scope, group: int) -> None:
        async def answer(scope: Scope, member: int) -> None:
            for number in range(QUESTIONS):
                said = await scope.ask(Speaker(f"g{group}m{member}"), f"Question {number}?")
                scope.record("said", {"group": group, "member": member, "text": said})

        await scope.map(range(MEMBERS), answer)
        scope.record("held", {"group": group})

    await session.map(range(GROUPS), hold, block=lambda group: group)


IN_GROUPS = Study("groups", "Groups", StudyConfig, talk_in_groups)


@pytest.mark.parametrize("limit", [0, 1, 20, 45])
def test_a_resume_that_pauses_again_loses_no_rows_and_no_cost(limit: int, tmp_path: Path) -> None:
    folder, answered, most_answers = tmp_path / "run", 0, 40

    async def answer(request: ModelRequest, address: str) -> Completion:
        nonlocal answered
        if answered >= most_answers:
            raise TransientError("no server")
        answered += 1
        return Completion("yes", Usage(100, 10, 0))

    def play_on(**settings: object) -> folkmoot.Run:
        common = {"model": "openai/gpt-4o-mini", "max_api_retries": 0, "max_tokens": 20}
        return folkmoot.run(
            IN_GROUPS, {**common, **settings}, provider=ScriptedProvider(answer), out=folder
        )

    # Without a budget all groups are asked at once. The server fails before one is complete.
    with pytest.raises(RunPausedError):
        play_on()
    first, most_answers = folkmoot.load(folder), 1000
    with pytest.raises(RunPausedError):
        play_on(budget_calls=limit)
    paused = folkmoot.load(folder)
    with JournalReader(folder / "journal.sqlite") as journal:
        calls = journal.count_calls()
        assert calls == len(journal) == paused.table("said").height
    assert calls == max(40, limit) == paused.manifest["calls"] == paused.table("answers").height
    assert paused.manifest["input_tokens"] == 100 * calls >= first.manifest["input_tokens"]
    assert paused.manifest["models"][0]["calls"] == calls
    done = play_on()
    assert done.table("held").height == GROUPS
    assert done.manifest["calls"] == GROUPS * MEMBERS * QUESTIONS
