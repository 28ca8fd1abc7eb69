"""Controls for all speakers of decisions: residents in a shared reply, and mediators."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.conversation.prompts import as_prompt, wording_for_people
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.engine.session.confounders import with_confounders
from folkmoot.engine.settings.controls import ControlSettings
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.findings import ASKED, USER_DRIFT, control_findings
from folkmoot.kit.controls.tables import (
    AS_DESIGNED,
    NEGATIVE,
    NO_PERSONA,
    RETEST,
    SAME_LENGTH,
    ControlRow,
)
from folkmoot.provenance import Quoted, Source, concatenate_texts
from folkmoot.report.document.validity import build_validity_card
from folkmoot.report.study_check import run_dry_run
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder
from tests.contract.small import small_study
from tests.earlier_controls import plan_controls_without
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

SmallRun = Callable[[str], Path]
CONTROL_SETTINGS = {"no_persona": True, "same_length": True, "order": True, "participants": 3}


def copy_and_run_controls(
    name: str, run_of_small_study: SmallRun, folder: Path
) -> tuple[RunFolder, pl.DataFrame]:
    run = RunFolder(shutil.copytree(run_of_small_study(name), folder / "run"))
    return run, run_controls(run, CONTROL_SETTINGS, RunOptions()).read_table(ControlRow.table)


@pytest.fixture(scope="module")
def town_hall(
    run_of_small_study: SmallRun, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunFolder, pl.DataFrame]:
    return copy_and_run_controls("town_hall", run_of_small_study, tmp_path_factory.mktemp("hall"))


@pytest.fixture(scope="module")
def negotiation(
    run_of_small_study: SmallRun, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunFolder, pl.DataFrame]:
    return copy_and_run_controls(
        "negotiation", run_of_small_study, tmp_path_factory.mktemp("groups")
    )


def test_a_control_for_a_resident_of_a_shared_reply_names_the_resident(
    town_hall: tuple[RunFolder, pl.DataFrame],
) -> None:
    run, rows = town_hall
    shared = rows.filter(pl.col("speaker_id") == "session")
    assert set(shared["condition"]) == {"1"}
    assert shared["participant_id"].n_unique() == 3
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        for row in shared.filter(control=NEGATIVE).iter_rows(named=True):
            entry = journal.entry_at(row["address"])
            assert entry is not None
            *_, reply, question = entry.request["messages"]
            # The reply in the run is for all residents, and the question is for one of them.
            assert len(json.loads(reply["content"])) == 6
            assert f"for {row['participant_id']} alone" in question["content"]
    # A resident gives the same answers in a shared reply and alone, so there is no drift.
    final = rows.filter(control=NEGATIVE, moment="final")
    keys = ["participant_id", "question"]
    answers = final.group_by(keys).agg(pl.struct("value", "number").n_unique().alias("different"))
    assert answers.height == 36 and set(answers["different"]) == {1}


def test_the_answer_of_one_resident_is_read_from_the_reply_for_all(
    town_hall: tuple[RunFolder, pl.DataFrame],
) -> None:
    run, rows = town_hall
    retests = rows.filter(control=RETEST)
    assert retests.height == 3
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        for row in retests.iter_rows(named=True):
            entry = journal.entry_at(row["address"])
            assert entry is not None
            resident_answer = json.loads(entry.reply)[row["participant_id"]]
            assert row["number"] == resident_answer["satisfaction"]


def test_a_shared_session_repeated_without_personas_has_no_portraits(
    town_hall: tuple[RunFolder, pl.DataFrame],
) -> None:
    run, _ = town_hall
    portraits = run.read_table("portraits").filter(discussion_id="set01_lv1")["portrait"]
    scope = f"decision-{NO_PERSONA}/set01_lv1/"
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        addresses = [
            candidate for candidate in journal.list_addresses() if candidate.startswith(scope)
        ]
        assert addresses
        for address in addresses:
            entry = journal.entry_at(address)
            assert entry is not None
            system = entry.request["messages"][0]["content"]
            assert not any(text in system for text in portraits)


def test_a_shared_session_repeated_with_neutral_texts_has_no_real_statement(
    town_hall: tuple[RunFolder, pl.DataFrame],
) -> None:
    """With other replies a session takes another path, with texts that the run did not have."""
    run, _ = town_hall
    controls = RunFolder(run.path / CONTROLS)
    spans = controls.read_table(PROVENANCE).filter(
        pl.col("address").str.starts_with(f"decision-{SAME_LENGTH}/set01_lv1/")
    )
    # Statements, items of the ballot and the consensus were replaced: their source is the control.
    asked = spans.filter(pl.col("address").str.contains("/after/"))
    assert asked.filter(source_id="study.controls").height
    kinds = ["utterance", "proposal"]
    assert asked.filter(pl.col("kind").is_in(kinds))["source_id"].to_list() == []


@pytest.mark.parametrize("control", [SAME_LENGTH, NO_PERSONA])
def test_a_neutral_ballot_has_no_votes_on_the_real_items(
    control: str, town_hall: tuple[RunFolder, pl.DataFrame]
) -> None:
    """Whether a resident is asked alone does not depend on how much the resident said."""
    run, rows = town_hall
    final = rows.filter(control=control, moment="final")
    assert final.height == 2 * 3 and final["missing"].null_count() == final.height
    # The prompts of the run say how many voted for each item.
    spans = run.read_table(PROVENANCE).filter(pl.col("source_id").str.starts_with("items.yes/"))
    assert set(final["decision_address"]) <= set(spans["address"])
    # All come from a hall that was run again, with votes on the items of that hall.
    assert final["address"].str.starts_with(f"decision-{control}/set01_lv").all()


def test_earlier_controls_of_a_town_hall_are_verified_as_they_were_asked(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    """Earlier versions asked residents alone whom no quoted reply had to be asked again."""
    with plan_controls_without("computed_values_follow"):
        run = RunFolder(shutil.copytree(run_of_small_study("town_hall"), tmp_path / "run"))
        settings = {"negative": False, "retest": False, "same_length": True}
        rows = run_controls(run, settings, RunOptions()).read_table(ControlRow.table)
    final = rows.filter(control=SAME_LENGTH, moment="final")
    assert not final["address"].str.starts_with(f"decision-{SAME_LENGTH}/").all()
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_a_mediator_answers_controls_and_has_separate_contrasts(
    negotiation: tuple[RunFolder, pl.DataFrame],
) -> None:
    run, rows = negotiation
    negative = rows.filter(control=NEGATIVE, role="moderator")
    assert set(negative["condition"]) == {"C3", "C4", "C5"}
    assert set(negative["participant_id"]) == {"system"}
    findings = {finding.key: finding for finding in control_findings(run)}
    drift = findings[USER_DRIFT].grid
    roles = Counter(row[drift.columns.index("role")] for row in drift.rows)
    assert roles["participant"] and roles["moderator"]
    assert "2 moderators (not participants)" in findings[ASKED].says
    # The card is about participants.
    (row,) = (
        row for row in build_validity_card(run, [*findings.values()]) if row.name == "User drift"
    )
    assert "moderator" not in row.figures and f"{roles['participant']} contrasts" in row.figures


def test_decisions_of_a_mediator_are_compared_without_its_dialogue(
    negotiation: tuple[RunFolder, pl.DataFrame],
) -> None:
    """Each member has a line in every dialogue, so lines would always be the same answer."""
    run, rows = negotiation
    fields = rows.filter(pl.col("role") == "moderator")["field"].drop_nulls()
    assert {field.split(".")[0] for field in fields} >= {"decision", "dropped", "has_conflict"}
    assert not [field for field in fields if field.startswith("dialogue")]
    # The replies have such lines, each with the name of a speaker from a list.
    with JournalReader(run.path / JOURNAL) as journal:
        replies = [entry.reply for entry in journal.read_entries() if entry.kind == "ask"]
    assert any('"dialogue": [{"speaker": "' in reply for reply in replies)


def test_all_scores_of_a_form_are_repeated(negotiation: tuple[RunFolder, pl.DataFrame]) -> None:
    _, rows = negotiation
    scores = rows.filter(control="no_persona", question="own scores")
    assert scores.height and not scores["missing"].drop_nulls().to_list()
    fields = scores["field"].to_list()
    # A number for each option, and for each option whether it is rejected.
    assert any(field.startswith("scores.") for field in fields)
    assert set(
        rows.filter(pl.col("field").str.starts_with("hard_no."))["expected"].drop_nulls()
    ) <= {
        "true",
        "false",
    }


@pytest.mark.nightly(part="truths")
@pytest.mark.parametrize("name", ["town_hall", "negotiation"])
def test_the_estimate_for_all_speakers_equals_the_number_of_calls(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run, rows = request.getfixturevalue(
        {"town_hall": "town_hall", "negotiation": "negotiation"}[name]
    )
    keys = tuple(f"controls.{key}={json.dumps(value)}" for key, value in CONTROL_SETTINGS.items())
    options = RunOptions(model="synthetic", overrides=keys)
    total = run_dry_run(load_study_with_options(small_study(name, tmp_path), options), None)
    lines = {
        stage.stage: stage.calls for stage in total.stages if stage.stage.startswith("controls: ")
    }
    assert lines.keys() >= {f"controls: {control}" for control in (NEGATIVE, RETEST, NO_PERSONA)}
    asked_rows = rows.filter((pl.col("address") != "") & (pl.col("control") != AS_DESIGNED))
    assert {f"controls: {control}" for control in asked_rows["control"]} == lines.keys()
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        assert sum(lines.values()) == len(journal.list_addresses())


def test_attributes_are_stated_for_each_resident_of_a_shared_reply(tmp_path: Path) -> None:
    keys = ("levels=[1]", "controls={retest: false, confounders: [handedness], participants: 4}")
    path = small_study("town_hall", tmp_path)
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run", overrides=keys).folder
    with JournalReader(run.path / JOURNAL) as journal:
        entry = journal.entry_at("set01_lv1/vote/ask0")
        assert entry is not None
        system = entry.request["messages"][0]["content"]
    matches = re.findall(r"You are (A\d+),|With which hand do you write\? (.*?)\.", system)
    ids, hands = ([text for text in texts if text] for texts in zip(*matches, strict=True))
    stated = dict(zip(ids, hands, strict=True))
    assert len(stated) == 6 and len(set(stated.values())) == 2
    rows = RunFolder(run.path / CONTROLS).read_table(ControlRow.table)
    answers = rows.filter(question="handedness")
    assert answers.height == 8
    assert all(
        row["value"] == stated[row["participant_id"]] for row in answers.iter_rows(named=True)
    )


def test_attributes_are_stated_in_the_wording_that_humans_read() -> None:
    persona = Quoted("a baker", Source("persona", "personas.text[p1]", "p1"))
    human_wording = as_prompt(concatenate_texts(("You play ", persona, "."), plain=None))
    system = as_prompt(
        concatenate_texts(("Reply in JSON as ", persona, "."), plain=None), human_wording
    )
    settings = ControlSettings(confounders=("handedness",))
    system_prompt = with_confounders(Speaker("p1", system=system), settings, 7).system
    statement = system_prompt.removeprefix("Reply in JSON as a baker").removesuffix(".")
    assert "With which hand" in statement
    assert wording_for_people(system_prompt) == f"You play a baker{statement}."


def test_a_fork_asks_each_reply_of_its_original_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    moderator = "openai/gpt-4o"
    with ServerThread(FaultPlan()) as server:
        study = {
            "study": "cross_pollination",
            "pilot_id": "mixed",
            "topic": {"description": "One purpose can be funded.", "options": ["Parks", "Streets"]},
            "conditions": ["clarified_passive"],
            "participants_per_condition": 3,
            "personas": {"source": "quota"},
            "model": "synthetic",
            "models": {"moderator": moderator},
            "endpoints": {"openai": server.openai},
            "controls": {"negative": False, "retest": False, "no_persona": 1},
        }
        path = tmp_path / "study.json"
        path.write_text(json.dumps(study))
        run = folkmoot.run(path, out=tmp_path / "run", trust=True).folder
    answers = RunFolder(run.path / CONTROLS).read_table("answers")
    models = answers.group_by("role").agg(pl.col("model_asked").unique()).rows()
    assert dict(models) == {"participant": ["synthetic"], "moderator": [moderator]}
    assert "was not chosen" not in (run.path / CONTROLS / "run.log").read_text()
