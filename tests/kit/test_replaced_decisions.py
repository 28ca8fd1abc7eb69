"""Decisions asked again with parts of their prompt replaced, and what is planted in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import pytest
from pydantic import BaseModel, Field

import folkmoot
from folkmoot.conversation.answer_types import Missing, ParsedAnswer, ParseFailure
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.forms import closed_form
from folkmoot.kit.controls.replacing import NO_DESCRIPTION, UNCHANGED, neutral_text
from folkmoot.kit.controls.tables import NO_PERSONA, ORDER, SAME_LENGTH, ControlRow, closed_value
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder

VOTES = """
study: cross_pollination
pilot_id: controlled
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive]
participants_per_condition: {size}
personas: {{source: quota}}
respondent: {knobs}
controls: {{negative: false, retest: false, {controls}}}
"""
ALL = "no_persona: true, same_length: true, order: true"


def voted(folder: Path, size: int = 6, controls: str = ALL, **knobs: float) -> RunFolder:
    folder.mkdir(exist_ok=True)
    path = folder / "study.yaml"
    path.write_text(VOTES.format(size=size, knobs=json.dumps(knobs), controls=controls))
    return folkmoot.run(path, model="synthetic", out=folder / "run").folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of six people in each arm with its controls. A test reads it only."""
    return voted(tmp_path_factory.mktemp("voted"))


def requests(
    run: RunFolder, control: str
) -> Iterator[tuple[Mapping[str, Any], list[str], list[str]]]:
    """Rows of a control with the messages of the decision as designed and as it was asked."""
    below = RunFolder(run.path / CONTROLS)
    rows = below.read_table(ControlRow.table).filter(control=control)
    with JournalReader(run.path / JOURNAL) as made, JournalReader(below.path / JOURNAL) as asked:
        for row in rows.filter(pl.col("missing").is_null()).iter_rows(named=True):
            if row["condition"] == "clarified_passive" and row["moment"] == "final":
                continue
            entries = made.entry_at(row["decision_address"]), asked.entry_at(row["address"])
            texts = [
                [m["content"] for m in entry.request["messages"]] for entry in entries if entry
            ]
            yield row, texts[0], texts[1]


def findings(run: RunFolder) -> dict[str, Finding]:
    return {finding.key: finding for finding in control_findings(run)}


def test_each_version_replaces_its_texts_and_no_others(small: RunFolder) -> None:
    run = small
    personas = dict(run.rows("participants", "participant_id", "persona"))
    summaries = run.read_table("summaries")["description"].drop_nulls().to_list()
    options = ["Park improvements", "Youth job training", "Safer streets"]
    seen = set()
    for row, before, after in requests(run, NO_PERSONA):
        persona = personas[row["participant_id"]]
        assert any(persona in text for text in before)
        assert not any(persona in text for text in after)
        assert NO_DESCRIPTION["en"] in after[0] and before[1:] == after[1:]
    for row, before, after in requests(run, SAME_LENGTH):
        seen.add((row["condition"], row["moment"]))
        shown = [s for s in summaries if any(s in text for text in before)]
        assert shown and not any(s in text for s in shown for text in after)
        assert 0 <= len("".join(before)) - len("".join(after)) < 20 * len(shown)
        assert personas[row["participant_id"]] in after[0]
    # In `clarified_passive` the replies to replaced questions are new (test_forked_decisions).
    assert seen == {("simple_passive", "final")}
    for row, before, after in requests(run, ORDER):
        assert orders_of(before[0], options) == orders_of(after[0], options)[::-1]
        if row["condition"] == "simple_passive" and row["moment"] == "final":
            page, turned = before[-1], after[-1]
            assert orders_of(page, summaries) == orders_of(turned, summaries, by_heading=True)
    below = RunFolder(run.path / CONTROLS)
    assert "unattributed" not in below.read_table("provenance")["kind"]


def orders_of(text: str, parts: list[str], *, by_heading: bool = False) -> list[str]:
    """The parts that are in a text, in their order; `by_heading` with its sections reversed."""
    sections = text.split("## ")
    if by_heading:
        text = "## ".join([sections[0], *sections[:0:-1]])
    return sorted((part for part in set(parts) if part in text), key=text.index)


def test_a_decision_is_as_designed_where_a_version_has_nothing_to_replace(small: RunFolder) -> None:
    table = RunFolder(small.path / CONTROLS).read_table(ControlRow.table)
    reasons = {
        (condition, moment, control): set(own["missing"])
        for (condition, moment, control), own in table.group_by("condition", "moment", "control")
    }
    assert reasons["simple_voting", "final", SAME_LENGTH] == {UNCHANGED}
    assert reasons["simple_passive", "final", SAME_LENGTH] == {None}
    # These participants were interviewed: their replies are asked again before the decision.
    assert reasons["clarified_passive", "final", SAME_LENGTH] == {None}
    assert reasons["clarified_passive", "final", NO_PERSONA] == {None}


@pytest.mark.nightly(part="alarms")
def test_an_effect_of_length_and_one_of_order_are_found(tmp_path: Path) -> None:
    sound = findings(voted(tmp_path / "sound", 40))
    assert not any(finding.alarms for finding in sound.values())
    faulty = findings(voted(tmp_path / "length", 40, "same_length: true", length_bias=0.6))
    assert any("equal length" in a for a in faulty["where_the_effect_comes_from"].alarms)
    faulty = findings(voted(tmp_path / "order", 40, "order: true", position_bias=1.5))
    assert any("order" in alarm for alarm in faulty["answers_in_each_version"].alarms)


@pytest.mark.parametrize("length", [0, 1, 5, 60, 800, 4000])
def test_a_neutral_text_is_as_long_as_what_it_replaces(length: int) -> None:
    for language in ("en", "de"):
        text = neutral_text(length, "summaries.text/1", language)  # type: ignore[arg-type]
        assert len(text) <= length
        assert len(text) > length - 20 or length < 20
        assert text == neutral_text(length, "summaries.text/1", language)  # type: ignore[arg-type]
    assert neutral_text(200, "a", "en") != neutral_text(200, "b", "en")


def test_a_form_with_one_closed_field_is_read_without_its_study() -> None:
    number = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10}, {"type": "null"}]}
    form = closed_form({"properties": {"reason": {"type": "string"}, "score": number}})
    assert form is not None and form.closed_names == ["score"]
    read = form.parse_reply('{"reason": "so", "score": 7}')
    assert isinstance(read, ParsedAnswer) and read.value == 7
    assert isinstance(form.parse_reply('{"reason": "so", "score": 70}'), ParseFailure)
    assert isinstance(form.parse_reply('{"reason": "so", "score": null}'), Missing)
    assert isinstance(form.parse_reply('{"declined": true}'), Missing)
    assert isinstance(form.parse_reply("seven"), ParseFailure)
    assert closed_form({"properties": {"reason": {"type": "string"}}}) is None
    unbounded = closed_form({"properties": {"score": {"type": "number"}}})
    assert unbounded is not None
    for written in ("true", "NaN", "Infinity", "1e999", "1" + "0" * 400, '"much"'):
        assert isinstance(unbounded.parse_reply(f'{{"score": {written}}}'), ParseFailure), written


def test_a_number_or_truth_value_beside_words_for_no_answer_is_closed() -> None:
    class Rating(BaseModel):
        reason: str
        score: Annotated[int, Field(ge=0, le=9)] | Literal["cannot_say", "declined"] | None
        sure: Literal["cannot_say"] | bool
        open: str | Literal["declined"]

    form = closed_form(Rating.model_json_schema())
    assert form is not None and form.closed_names == ["score", "sure"]
    read = form.parse_reply('{"reason": "so", "score": 7, "sure": "cannot_say"}')
    assert isinstance(read, ParsedAnswer) and read.value == {"score": 7}
    for score in ("cannot_say", "declined"):
        missing = form.parse_reply(json.dumps({"score": score}))
        assert isinstance(missing, Missing) and missing.reason == score
    assert isinstance(form.parse_reply('{"score": "much"}'), ParseFailure)
    assert isinstance(form.parse_reply('{"score": 70}'), ParseFailure)


def test_each_closed_field_of_a_form_is_read_and_what_cannot_be_read_is_left_out() -> None:
    ref = {"$ref": "#/$defs/Score"}
    score = {"anyOf": [{"type": "integer", "minimum": -4, "maximum": 4}, {"type": "null"}]}
    named = {"properties": {"option": {"enum": ["sea", "hills", "none_of_these"]}, "score": score}}
    fields = {
        "scores": {"type": "array", "items": ref},
        "hard_no": {"type": "array", "items": {"enum": ["sea", "hills"]}},
        "why": {"type": "string"},
        "ballot": {"type": "object", "properties": {"V1": {"enum": ["yes", "no", "declined"]}}},
    }
    schema = {"properties": fields, "$defs": {"Score": named}}
    form = closed_form(schema)
    assert form is not None
    reply = {
        "scores": [{"option": "sea", "score": 3}, {"option": "hills", "score": 9}],
        "hard_no": ["hills"],
        "why": "so",
        "ballot": {"V1": "declined"},
    }
    read = form.parse_reply(json.dumps(reply))
    assert isinstance(read, ParsedAnswer)
    # 9 is no score, and the vote was declined.
    assert read.value == {"scores.sea.score": 3, "hard_no.sea": "false", "hard_no.hills": "true"}
    several = {"turns": {"type": "object", "properties": {"A1": named, "A2": named}}}
    of_one = closed_form({"properties": several}, "A2")
    assert of_one is not None and of_one.path == ("turns", "A2")
    read = of_one.parse_reply('{"turns": {"A1": {"score": 1}, "A2": {"score": -2}}}')
    assert isinstance(read, ParsedAnswer) and read.value == {"score": -2}
    assert isinstance(of_one.parse_reply('{"turns": {"A1": {"score": 1}}}'), ParseFailure)
    assert closed_form({"properties": several}, "A3") is None


def test_an_option_with_the_name_of_no_number_is_a_text() -> None:
    texts = ["Nan", "Infinity", "park"]
    assert [closed_value(text) for text in texts] == texts
    assert closed_value("3") == closed_value(3.0) == 3
