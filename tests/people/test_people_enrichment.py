"""Enrichment: the content of its two prompts, and demographics on the scales."""

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

VALID_DEMOGRAPHICS = {
    "age": 44,
    "sex": "female",
    "education": "bachelor’s degree",
    "income": "MIDDLE INCOME",
    "location_type": "Suburban",
    "political_leaning": "Moderate",
    "occupation": " Marketing manager ",
}


class ScriptedScope:
    """A scope that answers each prompt with the next reply, parsed by the answer type."""

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


def create_reply(**changes: Any) -> str:
    return Demographics.model_validate({**VALID_DEMOGRAPHICS, **changes}).model_dump_json()


def test_replies_are_normalised_to_the_scales() -> None:
    demographics = Demographics.model_validate(VALID_DEMOGRAPHICS)
    assert demographics.sex == "F"
    assert demographics.education == "Bachelor's degree"
    assert demographics.income == "Middle income"
    assert demographics.occupation == "Marketing manager"


@pytest.mark.parametrize(
    "change",
    [{"age": 17}, {"age": 66}, {"sex": "x"}, {"income": "rich"}, {"occupation": ""}],
)
def test_values_off_the_scales_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Demographics.model_validate({**VALID_DEMOGRAPHICS, **change})


async def test_two_calls_give_a_persona() -> None:
    scope = ScriptedScope(create_reply(), "You are Nora, who runs\na small agency.")
    nora = await enrich_persona("A marketer who loves trains", scope)
    assert not isinstance(nora, Missing)
    assert nora.base == "A marketer who loves trains"
    assert nora.text == "Nora, who runs a small agency."
    assert nora.demographics["occupation"] == "Marketing manager"
    first, second = scope.prompts
    assert "A marketer who loves trains" in first
    assert "A marketer who loves trains" in second
    for scale in SCALES.values():
        assert all(value in first for value in scale)
    for value in nora.demographics.values():
        assert str(value) in second
    (row,) = scope.rows
    assert row == {
        "line": key_of(nora.base),
        "base_persona": nora.base,
        **nora.demographics,
    }


async def test_a_missing_answer_is_returned_without_a_second_call() -> None:
    scope = ScriptedScope("no idea")
    assert isinstance(await enrich_persona("A clown", scope), Missing)
    assert len(scope.prompts) == 1
    (row,) = scope.rows
    assert row["base_persona"] == "A clown" and row["age"] is None


async def test_prompts_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "demographics.md").write_text("Who is {{ base_persona }}?")
    scope = ScriptedScope(create_reply(), "a clown.")
    await enrich_persona("A clown", scope, prompts=tmp_path)
    assert scope.prompts[0] == "Who is A clown?"


async def test_an_unknown_variable_in_a_custom_prompt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demographics.md").write_text("Who is {{ nobody }}?")
    with pytest.raises(InputError, match="nobody"):
        await enrich_persona("A clown", ScriptedScope(create_reply()), prompts=tmp_path)


def test_a_description_loses_you_are_and_extra_whitespace() -> None:
    assert clean_description('"You are a  baker\n who sings."') == "a baker who sings."
