"""Controls that repeat decisions with replaced parts of the prompt, and built-in effects."""

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
from folkmoot.kit.controls.replacing import (
    NO_DESCRIPTION,
    UNCHANGED,
    Subject,
    describe_left_out,
    neutral_text,
    replaced_texts,
)
from folkmoot.kit.controls.tables import NO_PERSONA, ORDER, SAME_LENGTH, ControlRow, closed_value
from folkmoot.provenance import concatenate_texts, quote_value
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder

STUDY = """
study: cross_pollination
pilot_id: controlled
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: {conditions}
coding: off
participants_per_condition: {size}
personas: {{source: quota}}
respondent: {knobs}
controls: {{negative: false, retest: false, {controls}}}
"""
ALL_CONTROLS = "no_persona: true, same_length: true, order: true"
WITH_INTERVIEWS = "[simple_voting, simple_passive, clarified_passive]"
ONLY_VOTING = "[simple_voting]"


def run_voting(
    folder: Path, conditions: str, size: int, controls: str = ALL_CONTROLS, **knobs: float
) -> RunFolder:
    folder.mkdir(exist_ok=True)
    path = folder / "study.yaml"
    settings = {"conditions": conditions, "size": size, "controls": controls}
    path.write_text(STUDY.format(knobs=json.dumps(knobs), **settings))
    return folkmoot.run(path, model="synthetic", out=folder / "run").folder


@pytest.fixture(scope="module")
def small_voting_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Make a run with controls and six participants per condition. Tests only read it."""
    return run_voting(tmp_path_factory.mktemp("voted"), WITH_INTERVIEWS, size=6)


def iterate_requests(
    run: RunFolder, control: str
) -> Iterator[tuple[Mapping[str, Any], list[str], list[str]]]:
    """Yield rows of a control with the messages of the decision as designed and as repeated."""
    control_run = RunFolder(run.path / CONTROLS)
    rows = control_run.read_table(ControlRow.table).filter(control=control)
    with (
        JournalReader(run.path / JOURNAL) as run_journal,
        JournalReader(control_run.path / JOURNAL) as control_journal,
    ):
        for row in rows.filter(pl.col("missing").is_null()).iter_rows(named=True):
            if row["condition"] == "clarified_passive" and row["moment"] == "final":
                continue
            entries = (
                run_journal.entry_at(row["decision_address"]),
                control_journal.entry_at(row["address"]),
            )
            texts = [
                [message["content"] for message in entry.request["messages"]]
                for entry in entries
                if entry
            ]
            yield row, texts[0], texts[1]


def read_findings(run: RunFolder) -> dict[str, Finding]:
    return {finding.key: finding for finding in control_findings(run)}


def test_each_control_replaces_only_its_texts(small_voting_run: RunFolder) -> None:
    run = small_voting_run
    personas = dict(run.rows("participants", "participant_id", "persona"))
    summaries = run.read_table("summaries")["description"].drop_nulls().to_list()
    options = ["Park improvements", "Youth job training", "Safer streets"]
    replaced_decisions = set()
    for row, original, repeated in iterate_requests(run, NO_PERSONA):
        persona = personas[row["participant_id"]]
        assert any(persona in text for text in original)
        assert not any(persona in text for text in repeated)
        assert NO_DESCRIPTION["en"] in repeated[0] and original[1:] == repeated[1:]
    for row, original, repeated in iterate_requests(run, SAME_LENGTH):
        replaced_decisions.add((row["condition"], row["moment"]))
        shown_summaries = [
            summary for summary in summaries if any(summary in text for text in original)
        ]
        assert shown_summaries and not any(
            summary in text for summary in shown_summaries for text in repeated
        )
        assert 0 <= len("".join(original)) - len("".join(repeated)) < 20 * len(shown_summaries)
        assert personas[row["participant_id"]] in repeated[0]
    # In `clarified_passive` the replies to replaced questions are new (test_forked_decisions).
    assert replaced_decisions == {("simple_passive", "final")}
    for row, original, repeated in iterate_requests(run, ORDER):
        assert list_in_order(original[0], options) == list_in_order(repeated[0], options)[::-1]
        if row["condition"] == "simple_passive" and row["moment"] == "final":
            page, reordered_page = original[-1], repeated[-1]
            assert list_in_order(page, summaries) == list_in_order(
                reordered_page, summaries, by_heading=True
            )
    control_run = RunFolder(run.path / CONTROLS)
    assert "unattributed" not in control_run.read_table("provenance")["kind"]


def test_a_short_description_is_replaced_by_a_description() -> None:
    parts = (
        "You are ",
        quote_value("a traveller, Parent 1.", "persona", "members.persona/group/p1", "p1"),
        "\n\nYou are travelling as Parent 1. Your work: ",
        quote_value("nurse", "persona", "members.work/group/p1", "p1"),
    )
    text = concatenate_texts(parts, plain=None)
    subject = Subject(frozenset(("p1",)), "p1", frozenset(), frozenset(("p1",)))
    assert replaced_texts(NO_PERSONA, subject, [text], {}, "en") == [
        f"You are {NO_DESCRIPTION['en']}.\n\nYou are travelling as Parent 1. Your work: not stated"
    ]


def list_in_order(text: str, parts: list[str], *, by_heading: bool = False) -> list[str]:
    """Return the parts that occur in a text, in order. `by_heading` reverses the sections first."""
    sections = text.split("## ")
    if by_heading:
        text = "## ".join([sections[0], *sections[:0:-1]])
    return sorted((part for part in set(parts) if part in text), key=text.index)


def test_a_control_with_no_text_to_replace_is_recorded_as_unchanged(
    small_voting_run: RunFolder,
) -> None:
    table = RunFolder(small_voting_run.path / CONTROLS).read_table(ControlRow.table)
    reasons = {
        (condition, moment, control): set(rows["missing"])
        for (condition, moment, control), rows in table.group_by("condition", "moment", "control")
    }
    assert reasons["simple_voting", "final", SAME_LENGTH] == {UNCHANGED}
    assert reasons["simple_passive", "final", SAME_LENGTH] == {None}
    # These participants were interviewed. Their replies are repeated before the decision.
    assert reasons["clarified_passive", "final", SAME_LENGTH] == {None}
    assert reasons["clarified_passive", "final", NO_PERSONA] == {None}


@pytest.mark.nightly(part="alarms")
def test_decisions_that_are_left_out_are_counted_at_each_moment() -> None:
    reasons = [(ORDER, moment, UNCHANGED) for moment in ("first", "final", "delayed")]
    (sentence,) = describe_left_out([*reasons, (ORDER, "delayed", None)])
    assert "(1 of 1 first, 1 of 1 final and 1 of 2 delayed decisions)" in sentence


def test_effects_of_length_and_order_are_found(tmp_path: Path) -> None:
    sound = read_findings(run_voting(tmp_path / "sound", WITH_INTERVIEWS, 40))
    assert not any(finding.alarms for finding in sound.values())
    length = run_voting(
        tmp_path / "length", WITH_INTERVIEWS, 30, "same_length: true", length_bias=0.6
    )
    alarms = read_findings(length)["where_the_effect_comes_from"].alarms
    assert any("equal length" in alarm for alarm in alarms)
    order = run_voting(tmp_path / "order", ONLY_VOTING, 30, "order: true", position_bias=1.5)
    alarms = read_findings(order)["answers_in_each_version"].alarms
    assert any("order" in alarm for alarm in alarms)


@pytest.mark.parametrize("length", [0, 1, 5, 60, 800, 4000])
def test_a_neutral_text_has_the_length_of_the_replaced_text(length: int) -> None:
    for language in ("en", "de"):
        text = neutral_text(length, "summaries.text/1", language)  # type: ignore[arg-type]
        assert len(text) <= length
        assert len(text) > length - 20 or length < 20
        assert text == neutral_text(length, "summaries.text/1", language)  # type: ignore[arg-type]
    assert neutral_text(200, "a", "en") != neutral_text(200, "b", "en")


def test_a_form_with_one_closed_field_is_parsed_from_its_schema() -> None:
    number = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10}, {"type": "null"}]}
    form = closed_form({"properties": {"reason": {"type": "string"}, "score": number}})
    assert form is not None and form.closed_names == ["score"]
    answer = form.parse_reply('{"reason": "so", "score": 7}')
    assert isinstance(answer, ParsedAnswer) and answer.value == 7
    assert isinstance(form.parse_reply('{"reason": "so", "score": 70}'), ParseFailure)
    assert isinstance(form.parse_reply('{"reason": "so", "score": null}'), Missing)
    assert isinstance(form.parse_reply('{"declined": true}'), Missing)
    assert isinstance(form.parse_reply("seven"), ParseFailure)
    assert closed_form({"properties": {"reason": {"type": "string"}}}) is None
    unbounded = closed_form({"properties": {"score": {"type": "number"}}})
    assert unbounded is not None
    for text in ("true", "NaN", "Infinity", "1e999", "1" + "0" * 400, '"much"'):
        assert isinstance(unbounded.parse_reply(f'{{"score": {text}}}'), ParseFailure), text


def test_numbers_and_truth_values_with_no_answer_words_are_closed_fields() -> None:
    class Rating(BaseModel):
        reason: str
        score: Annotated[int, Field(ge=0, le=9)] | Literal["cannot_say", "declined"] | None
        sure: Literal["cannot_say"] | bool
        open: str | Literal["declined"]

    form = closed_form(Rating.model_json_schema())
    assert form is not None and form.closed_names == ["score", "sure"]
    answer = form.parse_reply('{"reason": "so", "score": 7, "sure": "cannot_say"}')
    assert isinstance(answer, ParsedAnswer) and answer.value == {"score": 7}
    for score in ("cannot_say", "declined"):
        missing = form.parse_reply(json.dumps({"score": score}))
        assert isinstance(missing, Missing) and missing.reason == score
    assert isinstance(form.parse_reply('{"score": "much"}'), ParseFailure)
    assert isinstance(form.parse_reply('{"score": 70}'), ParseFailure)


def test_closed_fields_of_a_form_are_read_and_invalid_ones_left_out() -> None:
    ref = {"$ref": "#/$defs/Score"}
    score = {"anyOf": [{"type": "integer", "minimum": -4, "maximum": 4}, {"type": "null"}]}
    item_schema = {
        "properties": {"option": {"enum": ["sea", "hills", "none_of_these"]}, "score": score}
    }
    fields = {
        "scores": {"type": "array", "items": ref},
        "hard_no": {"type": "array", "items": {"enum": ["sea", "hills"]}},
        "why": {"type": "string"},
        "ballot": {"type": "object", "properties": {"V1": {"enum": ["yes", "no", "declined"]}}},
    }
    schema = {"properties": fields, "$defs": {"Score": item_schema}}
    form = closed_form(schema)
    assert form is not None
    reply = {
        "scores": [{"option": "sea", "score": 3}, {"option": "hills", "score": 9}],
        "hard_no": ["hills"],
        "why": "so",
        "ballot": {"V1": "declined"},
    }
    answer = form.parse_reply(json.dumps(reply))
    assert isinstance(answer, ParsedAnswer)
    # 9 is not a valid score, and the vote was declined.
    assert answer.value == {"scores.sea.score": 3, "hard_no.sea": "false", "hard_no.hills": "true"}
    turns_schema = {
        "turns": {"type": "object", "properties": {"A1": item_schema, "A2": item_schema}}
    }
    form_of_one = closed_form({"properties": turns_schema}, "A2")
    assert form_of_one is not None and form_of_one.path == ("turns", "A2")
    answer = form_of_one.parse_reply('{"turns": {"A1": {"score": 1}, "A2": {"score": -2}}}')
    assert isinstance(answer, ParsedAnswer) and answer.value == {"score": -2}
    assert isinstance(form_of_one.parse_reply('{"turns": {"A1": {"score": 1}}}'), ParseFailure)
    assert closed_form({"properties": turns_schema}, "A3") is None


def test_a_list_of_texts_with_names_is_no_list_of_options_unless_the_prompt_offers_them() -> None:
    text, score = {"type": "string"}, {"type": "integer"}

    def read(required: list[str], *offered: str, **fields: object) -> object:
        item = {"properties": {"who": {"enum": ["Ada", "Ben"]}, **fields}, "required": required}
        properties = {"entries": {"type": "array", "items": item}, "agreed": {"type": "boolean"}}
        form = closed_form({"properties": properties}, offered=frozenset(offered))
        assert form is not None
        entry = {"who": "Ada", "text": "Yes.", "score": 2}
        answer = form.parse_reply(json.dumps({"entries": [entry], "agreed": True}))
        assert isinstance(answer, ParsedAnswer)
        return answer.value

    chosen = {"entries.Ada": "true", "entries.Ben": "false", "agreed": "true"}
    # Ada speaks, or the text is about Ada. The only decision is whether they agreed.
    assert read(["who", "text"], text=text) == "true"
    # Ada is chosen, and the text says why.
    assert read(["who", "text"], "Ada", "Ben", text=text) == chosen
    # Without a text, or with one that may be left out, the list holds only the chosen names.
    assert read(["who"]) == read(["who"], text=text) == chosen
    # The score of Ada is a closed field, also beside a text.
    scored = read(["who", "text", "score"], text=text, score=score)
    assert scored == {"entries.Ada.score": 2, "agreed": "true"}


def test_options_named_nan_or_infinity_are_texts() -> None:
    texts = ["Nan", "Infinity", "park"]
    assert [closed_value(text) for text in texts] == texts
    assert closed_value("3") == closed_value(3.0) == 3
