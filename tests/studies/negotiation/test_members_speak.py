"""`members_speak`: members answer the System themselves, in place of the mediator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.kit.exposure import describe_deviations
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.negotiation.participants import available_seats
from tests.engine.test_seats import build_seat_host, choose_first_option

STUDY = """
study: negotiation
conditions: [{conditions}]
group_types: [spouses, strangers]
groups_per_type: 1
sizes: {{strangers: {{stranger: 3}}}}
max_feedback_rounds: 2
members_speak: {members_speak}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_study(conditions: str = "C3, C4, C5", members_speak: str = "true") -> Path:
        path = tmp_path / "trip.yaml"
        path.write_text(STUDY.format(conditions=conditions, members_speak=members_speak), "utf-8")
        return path

    return write_study


@pytest.fixture(scope="module")
def run_with_speaking_members(tmp_path_factory: pytest.TempPathFactory) -> folkmoot.Run:
    """A run in which all members speak, for tests that only read it."""
    folder = tmp_path_factory.mktemp("members_speak")
    study = folder / "trip.yaml"
    study.write_text(STUDY.format(conditions="C3, C4, C5", members_speak="true"), "utf-8")
    return folkmoot.run(study, model="synthetic", out=folder / "run")


def test_members_are_asked_and_the_mediator_writes_only_for_the_system(
    run_with_speaking_members: folkmoot.Run,
) -> None:
    run = run_with_speaking_members
    said = run.table("utterances").filter(pl.col("phase").is_in(["synthesis", "feedback"]))
    members = said.filter(pl.col("speaker_id") != "system")
    # The author of each member's utterance is that member.
    assert members["author"].to_list() == members["speaker_id"].to_list()
    answers = run.table("answers").select("address", "speaker_id")
    own = members.join(answers, on="address", how="left", suffix="_asked")
    assert own["speaker_id_asked"].to_list() == members["speaker_id"].to_list()
    assert members["intent"].str.contains("user_respond").any()
    assert members["intent"].str.contains("user_feedback").any()
    assert describe_deviations(run.folder) == []
    assert run.table("answers")["reasks"].sum() == 0


def test_the_mediator_of_a_feedback_round_reads_the_answer_and_others_hear_each_other(
    run_with_speaking_members: folkmoot.Run,
) -> None:
    run = run_with_speaking_members
    shown = run.table("provenance").filter(pl.col("kind") == "utterance")
    asked = dict(run.table("answers").select("address", "speaker_id").iter_rows())
    said = run.table("utterances")
    reactions = said.filter(pl.col("intent").str.starts_with("user_feedback"))
    assert reactions.height
    for reaction in reactions["utterance_id"]:
        readers = {asked[a] for a in shown.filter(pl.col("source_id") == reaction)["address"]}
        assert "system" in readers
    responses = said.filter(pl.col("intent").str.starts_with("user_respond"))
    first, second, *_ = responses.filter(pl.col("group_id") == "strangers_01")["utterance_id"]
    second_address = said.filter(pl.col("utterance_id") == second)["address"].item()
    assert second_address in set(shown.filter(pl.col("source_id") == first)["address"])


def test_lines_that_a_mediator_writes_for_members_are_left_out(
    write: Write, tmp_path: Path
) -> None:
    def reply(request: ModelRequest, address: str) -> str:
        if "/responses/" in address:
            return "I say this myself."
        if request.schema is not None and request.schema.get("title") == "PlainSynthesis":
            return (
                '{"has_conflict": false, "conflict_description": "", "resolution_explanation": "",'
                ' "dialogue": [{"speaker": "System", "text": "We take museums."},'
                ' {"speaker": "Partner 1", "text": "Words that nobody said."}],'
                ' "decision": [], "dropped": []}'
            )
        return request.hints.offered[0] if request.hints.offered else "I want museums."

    run = folkmoot.run(write("C3"), provider=ScriptedProvider(reply), out=tmp_path / "scripted")
    texts = run.table("utterances")["text"].to_list()
    assert "Words that nobody said." not in texts and "I say this myself." in texts


def test_humans_can_take_seats_under_every_condition(write: Write, tmp_path: Path) -> None:
    def seats_of(path: Path) -> set[str]:
        study = load_study_file(path)
        return {seat.closed_reason for seat in available_seats(study.config, tmp_path)}

    (reason,) = seats_of(write(members_speak="false"))
    assert "set members_speak to true" in reason
    assert seats_of(write()) == {""}
    run = folkmoot.run(
        write("C3, C5"),
        model="synthetic",
        out=tmp_path / "people",
        seats=("spouses_01/traveler_1",),
        seat_host=build_seat_host(choose_first_option),
    )
    answers = run.table("answers").filter(pl.col("answered_by") == "human")
    assert set(answers["speaker_id"]) == {"traveler_1"}
    said = run.table("utterances").filter(pl.col("intent").str.starts_with("user_respond"))
    assert "Words of my own." in said["text"].to_list()
