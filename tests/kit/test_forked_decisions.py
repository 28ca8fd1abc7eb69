"""Controls of decisions that follow replies to a replaced text repeat these replies first."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.kit.controls import asking
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.tables import NO_PERSONA, ORDER, SAME_LENGTH, ControlRow
from folkmoot.report.study_check import run_dry_run
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, PLAN, RunFolder

OPTIONS = {"Park improvements", "Youth job training", "Safer streets"}
DIALOGUES = """
study: cross_pollination
pilot_id: forked
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_passive, acp]
participants_per_condition: 5
personas: {source: quota}
controls: {negative: false, retest: false, no_persona: true, same_length: 3}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forked") / "study.yaml"
    path.write_text(DIALOGUES)
    return path


@pytest.fixture(scope="module")
def run(study: Path) -> RunFolder:
    return folkmoot.run(study, model="synthetic", out=study.parent / "run").folder


def read_forked_rows(run: RunFolder, control: str) -> list[dict[str, str]]:
    table = RunFolder(run.path / CONTROLS).read_table(ControlRow.table)
    final = table.filter(control=control, condition="acp", moment="final")
    return list(final.iter_rows(named=True))


def read_repeated_addresses(run: RunFolder) -> dict[str, dict[str, list[str]]]:
    plan = json.loads((run.path / CONTROLS / PLAN).read_text())
    return plan["sealed"]["controls"]["data"]["asked_again"]  # type: ignore[no-any-return]


def test_every_dialogue_is_repeated_with_the_calls_of_the_plan(run: RunFolder) -> None:
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        for control in (NO_PERSONA, SAME_LENGTH):
            rows = read_forked_rows(run, control)
            assert len(rows) == (5 if control == NO_PERSONA else 3) and not any(
                row["missing"] for row in rows
            )
            for row in rows:
                scope = row["address"].rpartition("/")[0]
                calls = [
                    call_address
                    for call_address in journal.addresses_in_scope(scope)
                    if ".r" not in call_address
                ]
                steps = read_repeated_addresses(run)[control][
                    f"final-acp-{row['unit']}-{row['participant_id']}"
                ]
                assert steps and len(calls) == len(steps) + 1


def test_prompts_do_not_contain_replaced_texts_or_replies_to_them(run: RunFolder) -> None:
    personas = dict(run.rows("participants", "participant_id", "persona"))
    utterances = run.read_table("utterances").filter(stage="adversarial_dialogue")
    other_utterances = utterances.filter(pl.col("speaker_role") != "participant")
    opponents = set(other_utterances["text"].drop_nulls())
    assert opponents
    with (
        JournalReader(run.path / JOURNAL) as run_journal,
        JournalReader(run.path / CONTROLS / JOURNAL) as control_journal,
    ):
        for control in (NO_PERSONA, SAME_LENGTH):
            for row in read_forked_rows(run, control):
                participant_id = row["participant_id"]
                steps = read_repeated_addresses(run)[control][
                    f"final-acp-{row['unit']}-{participant_id}"
                ]
                old_replies = [
                    entry.reply
                    for address in steps
                    if (entry := run_journal.entry_at(address)) is not None
                ]
                request = control_journal.entry_at(row["address"])
                assert request is not None
                text = "\n".join(message["content"] for message in request.request["messages"])
                # Votes are options, which every prompt lists. A new reply may equal the old one.
                scope = row["address"].rpartition("/")[0]
                new_replies = {
                    control_journal.entry_at(address).reply
                    for address in control_journal.addresses_in_scope(scope)
                }  # type: ignore[union-attr]
                assert new_replies and not any(
                    reply in text for reply in set(old_replies) - new_replies - OPTIONS
                )
                if control == NO_PERSONA:
                    assert personas[participant_id] not in text
                else:
                    assert personas[participant_id] in text
                    assert not any(utterances in text for utterances in opponents - new_replies)


def test_the_estimate_equals_the_number_of_calls(study: Path, run: RunFolder) -> None:
    total = run_dry_run(load_study_file(study), "synthetic")
    lines = {
        stage.stage: stage.calls for stage in total.stages if stage.stage.startswith("controls: ")
    }
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        addresses = pl.Series(journal.list_addresses())
    for control in (NO_PERSONA, SAME_LENGTH):
        calls = addresses.str.contains(f"/decision-{control}/", literal=True).sum()
        assert lines[f"controls: {control}"] == calls


def test_forked_decisions_are_verified(run: RunFolder) -> None:
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


QUOTED_VOTES = """
study: cross_pollination
pilot_id: quoted
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive]
revote: true
participants_per_condition: 5
personas: {source: quota}
respondent: {position_bias: 5}
controls: {negative: false, retest: false, order: true}
"""


def run_reversed_votes(folder: Path) -> RunFolder:
    (folder / "study.yaml").write_text(QUOTED_VOTES)
    return folkmoot.run(folder / "study.yaml", model="synthetic", out=folder / "run").folder


def test_a_reversed_final_vote_names_the_reversed_first_vote_in_every_condition(
    tmp_path: Path,
) -> None:
    run = run_reversed_votes(tmp_path)
    table = RunFolder(run.path / CONTROLS).read_table(ControlRow.table)
    final = table.filter(control=ORDER, moment="final")
    old_votes = dict(run.rows("participants", "participant_id", "initial_choice"))
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        for condition in ("simple_voting", "simple_passive", "clarified_passive"):
            rows = final.filter(condition=condition)
            assert rows.height == 5
            new_votes = []
            for participant_id, address in rows.select("participant_id", "address").iter_rows():
                first, *_ = journal.addresses_in_scope(address.rpartition("/")[0])
                vote, request = journal.entry_at(first), journal.entry_at(address)
                assert vote is not None and request is not None
                system = request.request["messages"][0]["content"]
                assert f'You previously chose "{vote.reply}".' in system
                new_votes.append(vote.reply != old_votes[participant_id])
            # The embedded respondent prefers the first option, so reversing changes votes.
            assert any(new_votes)


def test_controls_that_an_earlier_version_planned_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An earlier version did not ask for quoted votes again, and its plan does not say how it forks.
    with monkeypatch.context() as earlier:
        earlier.setattr(asking, "_is_planned_earlier", lambda _run, _key: True)
        run = run_reversed_votes(tmp_path)
    assert {key.split("-")[1] for key in read_repeated_addresses(run)[ORDER]} == {
        "clarified_passive"
    }
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_a_reply_that_a_researcher_gave_is_not_asked_again(run: RunFolder, tmp_path: Path) -> None:
    """In the dialogue, the participant's own replies follow from the persona."""
    steps = {step for own in read_repeated_addresses(run)[NO_PERSONA].values() for step in own}
    own = run.read_table("answers").filter(
        pl.col("address").is_in(steps), pl.col("options").is_null(), role="participant"
    )
    address = own["address"][0]
    given = "The price of a bus ticket went up again."
    fork = folkmoot.fork(run.path, address, say=given, out=tmp_path / "fork").folder
    settings = {"negative": False, "retest": False, "no_persona": True}
    run_controls(fork, settings, RunOptions())
    again = read_repeated_addresses(fork)[NO_PERSONA].values()
    asked_again = {asked for addresses in again for asked in addresses}
    assert asked_again and address not in asked_again
    with JournalReader(fork.path / CONTROLS / JOURNAL) as journal:
        prompts = [json.dumps(entry.request["messages"]) for entry in journal.read_entries()]
    assert any(given in prompt for prompt in prompts)
    ((_, verification),) = verify_controls(fork)
    assert not verification.differences
