"""Controls of decisions after group conversations: forked, or skipped with a reason."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.replacing import LACKING, NOT_REACHED, describe_left_out
from folkmoot.kit.controls.tables import (
    NO_PERSONA,
    ORDER,
    REPLACING,
    RETEST,
    SAME_LENGTH,
    ControlRow,
    count_decisions,
)
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.study_check import run_dry_run
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, PLAN, RunFolder
from folkmoot.studies.focus_group.positions import describe_position
from tests.contract.small import people_of, small_study

SmallRun = Callable[[str], Path]
ALL_CONTROLS = {"negative": False, "no_persona": True, "same_length": True, "order": True}
FORKED_CONTROLS = {**ALL_CONTROLS, "retest": False, "order": False, "participants": 2}
SAMPLED_CONTROLS = {**ALL_CONTROLS, "participants": 2}


@pytest.fixture(scope="module")
def focus_group(
    run_of_small_study: SmallRun, tmp_path_factory: pytest.TempPathFactory
) -> RunFolder:
    folder = tmp_path_factory.mktemp("forks") / "run"
    run = RunFolder(shutil.copytree(run_of_small_study("focus_group"), folder))
    run_controls(run, FORKED_CONTROLS, RunOptions())
    return run


def iterate_forks(run: RunFolder, control: str) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yield participant, group, request texts and differing old replies of each fork."""
    control_run = RunFolder(run.path / CONTROLS)
    sealed = json.loads((control_run.path / PLAN).read_text())["sealed"]["controls"]["data"]
    with (
        JournalReader(run.path / JOURNAL) as run_journal,
        JournalReader(control_run.path / JOURNAL) as control_journal,
    ):
        rows = control_run.read_table(ControlRow.table).filter(control=control, moment="final")
        for row in rows.iter_rows(named=True):
            key = f"final-{row['condition']}-{row['unit']}-{row['participant_id']}"
            scope = row["address"].rpartition("/")[0]
            steps = sealed["asked_again"][control][key]
            old_replies = [
                entry.reply for address in steps if (entry := run_journal.entry_at(address))
            ]
            entries = [
                control_journal.entry_at(address)
                for address in control_journal.addresses_in_scope(scope)
            ]
            texts = [
                "\n".join(message["content"] for message in entry.request["messages"])
                for entry in entries
                if entry is not None
            ]
            assert len(texts) == len(old_replies) + 1
            # A new reply may contain an old reply.
            new_replies = "\n".join(entry.reply for entry in entries if entry is not None)
            yield (
                row["participant_id"],
                row["unit"],
                texts,
                [reply for reply in old_replies if reply not in new_replies],
            )


def test_every_decision_of_a_focus_group_is_repeated_after_its_fork(focus_group: RunFolder) -> None:
    table = RunFolder(focus_group.path / CONTROLS).read_table(ControlRow.table)
    final = table.filter(pl.col("control").is_in([NO_PERSONA, SAME_LENGTH]), moment="final")
    # Two participants of each of two concepts, in two versions.
    assert final.height == 8 and not final["missing"].drop_nulls().to_list()
    for control in (NO_PERSONA, SAME_LENGTH):
        for _, _, texts, old_replies in iterate_forks(focus_group, control):
            assert len(texts) > 5 and old_replies
    ((_, verification),) = verify_controls(focus_group)
    assert not verification.differences


def test_prompts_of_a_fork_contain_no_persona_and_no_old_reply(focus_group: RunFolder) -> None:
    descriptions = focus_group.read_table("descriptions")
    for persona_id, group, texts, old_replies in iterate_forks(focus_group, NO_PERSONA):
        own_descriptions = descriptions.filter(persona_id=persona_id, group=group)["text"].to_list()
        participant_prompts = [
            text for text in texts if "You are a person about whom nothing is said" in text
        ]
        # The opinion, the public reply, and the decision.
        assert len(participant_prompts) >= 3
        assert not any(
            part in text
            for text in participant_prompts
            for part in own_descriptions
            if len(part) > 40
        )
        public_replies = [
            reply for reply in old_replies if not reply.startswith("{") and len(reply) > 40
        ]
        assert public_replies
        leaks = [
            (n, reply) for n, text in enumerate(texts) for reply in public_replies if reply in text
        ]
        assert not leaks, (persona_id, group, leaks)


def test_texts_computed_from_a_reply_follow_the_new_reply(
    focus_group: RunFolder,
) -> None:
    control_run = RunFolder(focus_group.path / CONTROLS)
    checked_decisions = 0
    with JournalReader(control_run.path / JOURNAL) as journal:
        for address in control_run.read_table(ControlRow.table).filter(moment="final")["address"]:
            if not (addresses := journal.addresses_in_scope(address.rpartition("/")[0])):
                continue
            opinion, decision = journal.entry_at(addresses[0]), journal.entry_at(address)
            assert opinion is not None and decision is not None
            new_reply = json.loads(opinion.reply)
            system = decision.request["messages"][0]["content"]
            (words,) = re.findall(r"your own private reaction was that you are (.*?)\. In", system)
            assert (
                words == describe_position(new_reply["position"]) and new_reply["opinion"] in system
            )
            checked_decisions += 1
    assert checked_decisions == 8


def test_a_new_reply_without_the_quoted_part_makes_the_decision_missing(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study("focus_group"), tmp_path / "run"))
    respondent = people_of("focus_group")

    async def answer(request: ModelRequest, address: str) -> Completion:
        reply = await respondent.complete_request(request, address=address)
        if address.endswith(f"/decision-{NO_PERSONA}/ask0"):
            return Completion('{"position": 0.5}', reply.usage, "scripted", finish="stop")
        return reply

    settings = {**FORKED_CONTROLS, "same_length": False, "participants": 1}
    control_run = run_controls(run, settings, RunOptions(custom_provider=ScriptedProvider(answer)))
    final = control_run.read_table(ControlRow.table).filter(control=NO_PERSONA, moment="final")
    assert set(final["missing"]) == {LACKING}
    with JournalReader(control_run.path / JOURNAL) as journal:
        assert not any(f"final-oven-group_001-p_0001/decision-{NO_PERSONA}/ask1" in address
                       for address in journal.list_addresses())  # fmt: skip


SKIPPED_CONTROLS = {
    "town_hall": {
        (SAME_LENGTH, "first", "nothing_to_replace"),
        (ORDER, "first", "nothing_to_replace"),
        (ORDER, "final", "nothing_to_replace"),
    },
    "negotiation": {
        # Without personas two travellers agree at once on what they negotiated in the run.
        (NO_PERSONA, "final", "not_reached"),
        # The mediator has no persona, and own scores are asked before the treatment.
        (NO_PERSONA, "first", "nothing_to_replace"),
        (NO_PERSONA, "final", "nothing_to_replace"),
        (SAME_LENGTH, "first", "nothing_to_replace"),
        (SAME_LENGTH, "final", "nothing_to_replace"),
        (ORDER, "first", "nothing_to_replace"),
        (ORDER, "final", "nothing_to_replace"),
    },
    "workbook": {(ORDER, "final", "nothing_to_replace")},
}


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("name", sorted(SKIPPED_CONTROLS))
def test_skipped_controls_are_announced_before_the_run_and_recorded(
    name: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study(name), tmp_path / "run"))
    run_controls(run, SAMPLED_CONTROLS, RunOptions())
    rows = RunFolder(run.path / CONTROLS).read_table(ControlRow.table)
    repeated = rows.filter(pl.col("control").is_in([RETEST, *REPLACING]))
    counts = count_decisions(repeated).select("control", "moment", "missing").rows()
    assert {row for row in counts if row[2] is not None} == SKIPPED_CONTROLS[name]
    keys = tuple(f"controls.{key}={json.dumps(value)}" for key, value in SAMPLED_CONTROLS.items())
    options = RunOptions(model="synthetic", overrides=keys)
    notes = run_dry_run(load_study_with_options(small_study(name, tmp_path), options), None).notes
    assert list(notes) == describe_left_out(counts) and notes
    log_text = (run.path / CONTROLS / "run.log").read_text()
    # Only the calls show whether a decision is reached again.
    known_before = [(*row[:2], None if row[2] == NOT_REACHED else row[2]) for row in counts]
    assert all(sentence in log_text for sentence in describe_left_out(known_before))


def test_utterances_of_a_mediator_are_replaced_and_not_asked(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study("negotiation"), tmp_path / "run"))
    control_run = run_controls(
        run, {**FORKED_CONTROLS, "no_persona": False, "participants": 9}, RunOptions()
    )
    rows = control_run.read_table(ControlRow.table).filter(
        control=SAME_LENGTH, question="confirmation"
    )
    assert rows.height and "system" not in set(rows["participant_id"])
    mediator_utterances = run.read_table("utterances").filter(pl.col("author") == "system")
    with JournalReader(control_run.path / JOURNAL) as journal:
        for address in rows["address"]:
            entry = journal.entry_at(address)
            assert entry is not None
            page = entry.request["messages"][-1]["content"]
            # The lines that the mediator wrote for the members are treatment texts as well.
            assert not any(text in page for text in mediator_utterances["text"] if len(text) > 30)


def test_a_choice_in_a_form_is_read_from_its_field(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study("workbook"), tmp_path / "run"))
    control_run = run_controls(
        run, {**FORKED_CONTROLS, "order": True, "participants": 4}, RunOptions()
    )
    rows = control_run.read_table(ControlRow.table).filter(control=ORDER, question="task 7")
    # Task 7 asks for a choice and for how much of it is a guess, as JSON.
    assert rows.height and not rows["missing"].drop_nulls().to_list()
    assert all(value.endswith("satisfied") for value in [*rows["value"], *rows["expected"]])
