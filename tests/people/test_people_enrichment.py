"""Enrichment: two prompts that carry what they must, and demographics that are on the scales."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import ValidationError

from folkmoot.conversation.answer_types import AnswerType, Missing, ParseFailure
from folkmoot.conversation.transcript import Speaker
from folkmoot.errors import InputError
from folkmoot.people import Demographics, enrich_persona
from folkmoot.people.enrichment import SCALES, clean_description, key_of

T = TypeVar("T")

GOOD = {
    "age": 44,
    "sex": "female",
    "education": "bachelor’s degree",
    "income": "MIDDLE INCOME",
    "location_type": "Suburban",
    "political_leaning": "Moderate",
    "occupation": " Marketing manager ",
}


class Script:
    """Answers each prompt with the next reply, through the answer type as the engine would."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.prompts: list[str] = []
        self.rows: list[Mapping[str, object]] = []

    def record(self, table: str, row: Mapping[str, object]) -> None:
        assert table == "base_personas"
        self.rows.append(row)

    async def ask(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        answer_type: AnswerType[T] | None = None,
        about: str = "",
    ) -> T | Missing:
        assert speaker.id == "recruiter" and answer_type is not None and about
        self.prompts.append(prompt)
        parsed = answer_type.parse_reply(self.replies.pop(0))
        return Missing("unparsed") if isinstance(parsed, ParseFailure) else parsed.value


def as_json(**changes: Any) -> str:
    return Demographics.model_validate({**GOOD, **changes}).model_dump_json()


def test_replies_are_brought_onto_the_scales() -> None:
    d = Demographics.model_validate(GOOD)
    assert d.sex == "F"
    assert d.education == "Bachelor's degree"
    assert d.income == "Middle income"
    assert d.occupation == "Marketing manager"


@pytest.mark.parametrize(
    "change",
    [{"age": 17}, {"age": 66}, {"sex": "x"}, {"income": "rich"}, {"occupation": ""}],
)
def test_values_off_the_scales_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Demographics.model_validate({**GOOD, **change})


async def test_two_calls_make_a_persona() -> None:
    script = Script(as_json(), "You are Nora, who runs\na small agency.")
    nora = await enrich_persona("A marketer who loves trains", script, persona_id="p_1")
    assert not isinstance(nora, Missing)
    assert (nora.id, nora.base) == ("p_1", "A marketer who loves trains")
    assert nora.text == "Nora, who runs a small agency."
    assert nora.demographics["occupation"] == "Marketing manager"
    first, second = script.prompts
    assert "A marketer who loves trains" in first
    assert "A marketer who loves trains" in second
    for scale in SCALES.values():
        assert all(value in first for value in scale)
    for value in nora.demographics.values():
        assert str(value) in second
    (row,) = script.rows
    assert row == {
        "line": key_of(nora.base),
        "base_persona": nora.base,
        **nora.demographics,
    }


async def test_a_missing_answer_is_handed_on_and_the_second_call_is_spared() -> None:
    script = Script("no idea")
    assert isinstance(await enrich_persona("A clown", script), Missing)
    assert len(script.prompts) == 1
    (row,) = script.rows
    assert row["base_persona"] == "A clown" and row["age"] is None


async def test_prompts_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "demographics.md").write_text("Who is {{ base_persona }}?")
    script = Script(as_json(), "a clown.")
    await enrich_persona("A clown", script, prompts=tmp_path)
    assert script.prompts[0] == "Who is A clown?"


async def test_an_unknown_variable_in_a_prompt_of_ones_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demographics.md").write_text("Who is {{ nobody }}?")
    with pytest.raises(InputError, match="nobody"):
        await enrich_persona("A clown", Script(as_json()), prompts=tmp_path)


def test_a_portrait_follows_the_words_you_are() -> None:
    assert clean_description('"You are a  baker\n who sings."') == "a baker who sings."
