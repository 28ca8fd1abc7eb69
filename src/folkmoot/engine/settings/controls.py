"""Declare the key `controls` of a study file. The key adds control questions to a study."""

# Negative controls are closed questions on facts that no treatment can change. If the answers
# differ between conditions, the treatment has changed which person the model plays ("The Illusion
# of Intervention", arXiv 2605.20767). Twelve questions ship in English and German
# (`negative_controls.yaml`), and a study file can define others. `kit.controls` asks the questions.

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from folkmoot.conversation.answer_types import AnswerType
from folkmoot.conversation.choices import Choice, Number
from folkmoot.field_notes import field_notes
from folkmoot.files import packaged_yaml, read_yaml
from folkmoot.hints import shorten

Language = Literal["en", "de"]
# Ids of sources of stated attributes begin with this.
CONFOUNDER = "study.controls.confounders."
# The id of the question for the age, which most personas state.
AGE = "age"
_AGE_QUESTIONS = {"en": "How old are you, in years?", "de": "Wie alt sind Sie, in Jahren?"}
# Equivalence margins of negative controls between two conditions. The first is a total variation
# distance of answers to options, the second a difference of means in standard deviations.
MARGIN_OF_SHARES, MARGIN_OF_MEANS = 0.15, 0.3


class ControlQuestion(BaseModel):
    """A control question. The answer is one of `options`, or a number within bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(
        pattern=r"^\w+$",
        description="short name of the question",
        json_schema_extra=field_notes(label="Short name"),
    )
    text: str = Field(min_length=1, description="the wording of the question")
    options: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="the possible answers; default: a number"
    )
    number: tuple[float, float] | None = Field(
        None,
        description="lowest and highest number that can be answered",
        json_schema_extra=field_notes(label="Range of numbers"),
    )
    margin: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="largest distance between conditions that counts as none: total variation "
        f"({MARGIN_OF_SHARES:g} if left out), or for a number standard deviations "
        f"({MARGIN_OF_MEANS:g})",
        json_schema_extra=field_notes(label="Largest difference that counts as none"),
    )

    @model_validator(mode="after")
    def _closed(self) -> ControlQuestion:
        if bool(self.options) == (self.number is not None):
            raise ValueError("give either options or number: [lowest, highest]")
        if self.number is not None and self.number[0] >= self.number[1]:
            raise ValueError("number: the lowest must be below the highest")
        # A question with a single option has a certain answer and could not show any difference.
        if self.options and len(set(self.options)) < 2:
            raise ValueError("give at least two different options")
        if self.number is not None and not all(map(math.isfinite, self.number)):
            raise ValueError("number: both bounds must be finite")
        # Answers are whole numbers.
        if self.number is not None and math.ceil(self.number[0]) > math.floor(self.number[1]):
            raise ValueError("number: there is no whole number between the bounds")
        # A mistake must be found before the controls begin, and not at the first question.
        if error := self.answer.configuration_error:
            raise ValueError(error)
        return self

    @property
    def answer(self) -> AnswerType[str] | AnswerType[float]:
        """The answer type of the question."""
        # A participant may decline to answer.
        if self.number is None:
            return Choice(self.options)
        return Number(*self.number, integer=True)

    @property
    def equivalence_margin(self) -> float:
        """The largest difference between conditions that still counts as equality."""
        # The value is `margin`, or the default for the type of the answer.
        if self.margin is not None:
            return self.margin
        return MARGIN_OF_SHARES if self.options else MARGIN_OF_MEANS


def _read_own_questions(given: Any, info: ValidationInfo) -> Any:
    # The questions replace the name of their file, so that the plan seals them.
    if isinstance(given, bool):
        return given
    where = ""
    if isinstance(given, str):
        folder = (info.context or {}).get("folder")
        # Without a folder only the keys are checked, for example those of a new study file.
        if folder is None:
            return True
        path = Path(folder) / Path(given).expanduser()
        given, where = _read_entries(path), f"{path}, "
    if not isinstance(given, (list, tuple)) or not given:
        raise ValueError(
            f"{where}must be true, false, a file, or a list of questions with id, text and options"
        )
    questions = tuple(
        _parse_question(entry, f"{where}question {number}") for number, entry in enumerate(given, 1)
    )
    ids = [question.id for question in questions]
    if AGE in ids:
        raise ValueError(f"{where}the id {AGE} belongs to the question for the stated age")
    if duplicate_id := next((question_id for question_id in ids if ids.count(question_id) > 1), ""):
        raise ValueError(f"{where}two questions have the id {duplicate_id}")
    return questions


def _read_entries(path: Path) -> Any:
    try:
        return read_yaml(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; true asks the shipped questions") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {shorten(str(error))}") from None


def _parse_question(entry: Any, where: str) -> ControlQuestion:
    try:
        return ControlQuestion.model_validate(entry)
    except ValidationError as error:
        # Pydantic allows one message in a ValueError of a validator, so the first error is named.
        details = error.errors(include_url=False)[0]
        key = ".".join(map(str, details["loc"]))
        message = details["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {key}: {message}" if key else f"{where}: {message}") from None


# How many participants of each condition a control asks. True: as many as `participants`.
Size = bool | Annotated[int, Field(ge=0)]


class ControlSettings(BaseModel):
    """Settings of the control questions, which test what causes the answers of a simulation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    negative: Annotated[
        bool | tuple[ControlQuestion, ...],
        BeforeValidator(
            _read_own_questions, json_schema_input_type=bool | str | tuple[ControlQuestion, ...]
        ),
    ] = Field(
        True,
        description="`true`: shipped questions; or a list of your own, or a file",
        json_schema_extra=field_notes(label="Negative controls"),
    )
    retest: Size = Field(
        True,
        description="participants who make their first decision again",
        examples=[100],
        json_schema_extra=field_notes(label="First decision again"),
    )
    no_persona: Size = Field(
        False,
        description="participants who decide again without a persona",
        examples=[100],
        json_schema_extra=field_notes(label="Decide without persona"),
    )
    same_length: Size = Field(
        False,
        description="participants asked again with neutral texts of equal length",
        json_schema_extra=field_notes(label="Neutral texts of equal length"),
    )
    order: Size = Field(
        False,
        description="participants asked again with options in reversed order",
        json_schema_extra=field_notes(label="Options in reverse order"),
    )
    participants: Annotated[int, Field(ge=1)] = Field(
        200,
        description="maximum number per condition, drawn at random",
        json_schema_extra=field_notes(label="Most participants to ask"),
    )
    confounders: Literal["none", "all"] | tuple[str, ...] = Field(
        "none",
        description="negative controls stated for all personas: `all`, or their ids",
        json_schema_extra=field_notes(label="Controls stated for all personas"),
    )
    language: Language = Field(
        "en", description="language of shipped questions and of neutral texts"
    )

    @property
    def questions(self) -> tuple[ControlQuestion, ...]:
        """The questions that should get the same answers under every treatment."""
        # Empty if negative controls are switched off.
        if isinstance(self.negative, bool):
            return shipped_questions(self.language) if self.negative else ()
        return self.negative

    @model_validator(mode="after")
    def _known_confounders(self) -> ControlSettings:
        if isinstance(self.confounders, tuple):
            question_ids = [question.id for question in self.defined_questions]
            for confounder_id in self.confounders:
                if confounder_id not in question_ids:
                    raise ValueError(
                        f"confounders: there is no negative control {confounder_id}; known: "
                        f"{', '.join(question_ids)}"
                    )
        return self

    @property
    def defined_questions(self) -> tuple[ControlQuestion, ...]:
        """The questions that the key `confounders` can name."""
        # If negative controls are switched off, these are the questions that Folkmoot comes with.
        return self.questions or shipped_questions(self.language)

    @property
    def stated(self) -> tuple[ControlQuestion, ...]:
        """The questions that every participant's persona answers in its description."""
        # `confounders` names them.
        if isinstance(self.confounders, str):
            return self.defined_questions if self.confounders == "all" else ()
        return tuple(
            control_question
            for control_question in self.defined_questions
            if control_question.id in self.confounders
        )

    @property
    def asks_anything(self) -> bool:
        """False if all controls are switched off."""
        controls = ("negative", "retest", "no_persona", "same_length", "order")
        return any(self.size_of(control) for control in controls)

    def size_of(self, control: str) -> int:
        """Return how many participants of each condition are asked the questions of a control."""
        size = bool(self.negative) if control == "negative" else getattr(self, control)
        # `bool` is a subclass of `int`, so it is tested first: True means all participants.
        return self.participants * size if isinstance(size, bool) else int(size)


def shipped_questions(language: Language) -> tuple[ControlQuestion, ...]:
    """Return the twelve control questions that come with Folkmoot."""
    # A negative control is a question that the treatment should not affect.
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
    """Return the control question that asks for the participant's age."""
    # The answer shows whether the model keeps to its persona.
    return ControlQuestion(id=AGE, text=_AGE_QUESTIONS[language], number=(0, 120))
