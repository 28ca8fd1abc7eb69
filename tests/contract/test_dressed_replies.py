"""A clear reply in another dress gives the same tables as the reply in the form that was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState
from folkmoot.engine.study.study import registered_studies
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from tests.contract.runs import SerialRun
from tests.contract.small import people_of, small_study
from tests.engine.test_seats import build_seat_host
from tests.sweeps import sample_daily

STUDIES = sorted(registered_studies())
# Tables and columns that say how a reply was read, and not what it says. A workbook keeps the words
# of each reply beside its answer.
PARSING_TABLES = {"answers", "repairs", "provenance", "quality"}
PARSING_COLUMNS = {"discussions": ["repaired"]}
RAW_COLUMNS = {("workbook", "utterances"): ["text"]}
ReplyChange = Callable[[ModelRequest, str], str]


def run_dressed(study: str, folder: Path, dress: ReplyChange) -> folkmoot.Run:
    """Run the small study with the embedded respondent, and put its replies into a dress."""
    inner = people_of(study)

    async def answer(request: ModelRequest, address: str) -> Completion:
        reply = await inner.complete_request(request, address=address)
        return reply._replace(text=dress(request, reply.text))

    provider = ScriptedProvider(answer)
    return folkmoot.run(small_study(study, folder), out=folder / "run", provider=provider)


def assert_same_results(study: str, plain: folkmoot.Run, dressed: folkmoot.Run) -> None:
    assert {*plain.tables} | {"repairs"} == {*dressed.tables} | {"repairs"}
    for name in {*plain.tables} - PARSING_TABLES:
        left_out = PARSING_COLUMNS.get(name, []) + RAW_COLUMNS.get((study, name), [])
        first, second = (run.table(name).drop(left_out, strict=False) for run in (plain, dressed))
        assert first.equals(second), name
    assert dressed.table("answers")["reasks"].sum() == plain.table("answers")["reasks"].sum()


def respell(value: Any, is_name: Callable[[str], bool]) -> Any:
    """Write the names of fields as headings, such as `Change reason` for `change_reason`."""
    if isinstance(value, list):
        return [respell(entry, is_name) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        name.replace("_", " ").capitalize() if is_name(name) else name: respell(entry, is_name)
        for name, entry in value.items()
    }


def collect_field_names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(collect_field_names, schema))
    if not isinstance(schema, Mapping):
        return set()
    return {*schema.get("properties", ())}.union(*map(collect_field_names, schema.values()))


# Daily one type, with objects and lists of objects: the parser does not know of studies.
@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=("focus_group",), part="mutations"))
def test_names_in_another_spelling_and_an_object_around_them_change_no_table(
    study: str, serial_run: SerialRun, tmp_path: Path
) -> None:
    changed = []

    def dress(request: ModelRequest, text: str) -> str:
        if request.schema is None:
            return text
        names = collect_field_names(request.schema)
        value = respell(json.loads(text), names.__contains__)
        changed.append(value)
        return json.dumps({"answer": value}, ensure_ascii=False)

    plain, dressed = serial_run(study), run_dressed(study, tmp_path, dress)
    if not changed:
        pytest.skip("this small study asks for no JSON")
    assert_same_results(study, plain, dressed)


TALKS = {"cross_pollination": "Moderator", "focus_group": "Moderator"}


def is_spoken(request: ModelRequest) -> bool:
    """True for the words of a participant in a talk with a moderator."""
    hints = request.hints
    return hints is not None and hints.role == "participant" and hints.kind == "text"


@pytest.mark.parametrize(
    "study", sample_daily(TALKS, daily=("cross_pollination",), part="mutations")
)
def test_lines_in_the_name_of_others_are_left_out_and_counted(
    study: str, serial_run: SerialRun, tmp_path: Path
) -> None:
    """Both studies use one rule: a script ends the speaker's words, an address belongs to them."""
    spoken: list[str] = []

    def continue_as_script(request: ModelRequest, text: str) -> str:
        if not is_spoken(request):
            return text
        spoken.append(text)
        return f"{text}\n\nModerator: And the price?\nI would pay it."

    plain = serial_run(study)
    script = run_dressed(study, tmp_path / "script", continue_as_script)
    assert spoken and plain.table("utterances")["text"].equals(script.table("utterances")["text"])
    steps = script.table("answers")["parse_step"]
    assert (steps == "own_words").sum() == len(spoken)
    assert script.manifest["answers"]["parse_steps"]["own_words"] > 0

    addressed = run_dressed(
        study,
        tmp_path / "address",
        lambda request, text: f"Moderator: I hear you. {text}" if is_spoken(request) else text,
    )
    answers = addressed.table("answers")
    assert not (answers["parse_step"] == "own_words").any() and answers["reasks"].sum() == 0
    heard = addressed.table("utterances").filter(pl.col("speaker_role") == "participant", "public")
    assert heard.height and heard["text"].str.starts_with("Moderator: I hear you.").all()


@pytest.mark.parametrize("study", TALKS)
def test_a_reply_that_speaks_for_others_only_is_asked_for_again_and_then_missing(
    study: str, tmp_path: Path
) -> None:
    script = "Moderator: Why?\nModerator: And the price?"
    run = run_dressed(
        study,
        tmp_path,
        lambda request, text: script if is_spoken(request) else text,
    )
    answers = run.table("answers").filter(kind="text", role="participant")
    assert answers.height and (answers["missing"] == "unparsed").all()
    assert (answers["reasks"] == 2).all()
    assert not run.table("utterances")["text"].str.contains("And the price").any()


def test_a_human_may_quote_and_address_others_in_every_line(tmp_path: Path) -> None:
    """Only a model goes on in the names of others, so no line of a human is left out."""
    inner, typed = people_of("focus_group"), "Moderator: You asked why.\nModerator: I pay it."

    def answer(_: SeatState, question: PendingQuestion) -> str:
        if is_spoken(question.request):
            return typed
        return inner.reply(question.request, question.address).text

    run = folkmoot.run(
        small_study("focus_group", tmp_path),
        out=tmp_path / "run",
        model="synthetic",
        overrides=("seats.count=1", "seats.as=persona"),
        seat_host=build_seat_host(answer),
    )
    said = run.table("answers").filter(answered_by="human", kind="text")
    assert said.height and (said["parse_step"] == "exact").all()
    heard = run.table("utterances").filter(pl.col("text") == " ".join(typed.split()))
    assert heard.height == said.height
