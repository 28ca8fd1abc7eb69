"""Negative controls: closed questions that no treatment can change.

Twelve ship with the program, in English and German (`negative_controls.yaml`); a study file can
give other questions. If the treatment moves such an outcome, it has changed who answers ("The
Illusion of Intervention", arXiv 2605.20767).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from folkmoot.conversation.answer_types import Answer
from folkmoot.conversation.choices import Choice, Number
from folkmoot.files import packaged_yaml

Language = Literal["en", "de"]
AGE = "age"  # the id of the question for the fact that most personas state
_AGE = {"en": "How old are you, in years?", "de": "Wie alt sind Sie, in Jahren?"}


class ControlQuestion(BaseModel):
    """A closed question: with `options`, or a number within bounds (inclusive)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^\w+$", description="short name of the question")
    text: str = Field(min_length=1, description="the question as it is put")
    options: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="what can be answered; left out: a number"
    )
    number: tuple[float, float] | None = Field(
        None, description="lowest and highest number that can be answered"
    )

    @model_validator(mode="after")
    def _closed(self) -> ControlQuestion:
        if bool(self.options) == (self.number is not None):
            raise ValueError("give either options or number: [lowest, highest]")
        if self.number is not None and self.number[0] >= self.number[1]:
            raise ValueError("number: the lowest must be below the highest")
        if self.options and len(set(self.options)) < 2:
            raise ValueError("give at least two different options")
        return self

    @property
    def answer(self) -> Answer[str] | Answer[float]:
        """The answer type, which has ways out."""
        if self.number is None:
            return Choice(self.options)
        return Number(*self.number, integer=True)


def shipped_questions(language: Language) -> tuple[ControlQuestion, ...]:
    """The twelve questions in a language."""
    return tuple(
        ControlQuestion(
            id=raw["id"],
            text=raw[language],
            options=tuple(raw.get("options", {}).get(language, ())),
            number=raw.get("number"),
        )
        for raw in packaged_yaml(__file__, "negative_controls.yaml")
    )


def age_question(language: Language) -> ControlQuestion:
    """The question for the age that a persona states: is the persona kept?"""
    return ControlQuestion(id=AGE, text=_AGE[language], number=(0, 120))
