"""Questions to humans outside the protocol: check questions, and questions afterwards."""

# They are settings of `seats:` in the study file. Their answers are in the journal, and in the
# tables that this module declares.

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from folkmoot.conversation.answer_types import AnswerType, Text
from folkmoot.conversation.choices import Choice, Number
from folkmoot.field_notes import Word, field_notes
from folkmoot.hints import collapse_spaces
from folkmoot.storage.rows import Row, column, columns_of_class
from folkmoot.storage.run_folder import RunFolder

CHECKS, AFTERWARDS, ANNOUNCEMENTS = "checks", "afterwards", "announcements"
WORDINGS = "wordings_for_people"
MAX_QUESTION_CHARACTERS = 4_000
# Outcomes of a check that was failed.
FLAGGED, EXCLUDED = "flagged", "excluded"


def _one_or_several(given: object) -> object:
    if isinstance(given, (list, tuple)):
        return tuple(given)
    return given if given is None else (given,)


Texts = Annotated[
    tuple[Word, ...], BeforeValidator(_one_or_several, json_schema_input_type=Word | list[Word])
]


class SeatCheck(BaseModel):
    """A check question with a right answer, which humans get before or during the study."""

    # Editors show the title of a schema, so it is that of earlier versions.
    model_config = ConfigDict(extra="forbid", frozen=True, title="Check")

    question: str = Field(
        min_length=1, max_length=MAX_QUESTION_CHARACTERS, description="what is asked"
    )
    options: Texts = Field((), description="answers to choose from; without it, a box for text")
    right: Texts = Field(
        description="the right answer, or a list of right answers",
        min_length=1,
        json_schema_extra=field_notes(label="Right answer"),
    )
    after_questions: int | None = Field(
        None,
        ge=1,
        description="asked after this number of questions, not before the study",
        json_schema_extra=field_notes(label="After this many questions"),
    )
    after_stage: str | None = Field(
        None,
        description="asked after the stage of this name, not before the study",
        json_schema_extra=field_notes(label="After the stage"),
    )
    tries: int = Field(
        1,
        ge=1,
        le=20,
        description="number of answers, with `note`, `exclude` and `end`",
        json_schema_extra=field_notes(label="Number of tries"),
    )
    on_failure: Literal["again", "note", "exclude", "end"] = Field(
        "note",
        description="`again` asks until the answer is right, `note` records the failure, `exclude` "
        "leaves the human out of the analysis, `end` ends the part of the human",
        json_schema_extra=field_notes(label="After a wrong answer"),
    )
    hint: str | None = Field(None, description="text shown after a wrong answer")

    @model_validator(mode="after")
    def _check_answers(self) -> SeatCheck:
        _require_question(self.question, self.options)
        if not all(map(_comparable, self.right)):
            raise ValueError("`right` must have a letter or a digit")
        if self.options and (unknown := [text for text in self.right if text not in self.options]):
            raise ValueError(f"`right` must be among the options, and {unknown[0]!r} is not")
        if self.after_questions is not None and self.after_stage is not None:
            raise ValueError("set `after_questions` or `after_stage`, not both")
        if self.on_failure == "again" and self.tries > 1:
            raise ValueError("`tries` has no meaning with `on_failure: again`")
        return self

    @property
    def is_before_study(self) -> bool:
        """True if the check is asked before the protocol starts."""
        return self.after_questions is None and self.after_stage is None

    @property
    def answer_type(self) -> AnswerType[Any]:
        """The answer type of the check."""
        return Choice(self.options) if self.options else Text()

    def is_right(self, answer: str) -> bool:
        """Return whether an answer is right. Case and spaces are ignored."""
        return _comparable(answer) in map(_comparable, self.right)


class AfterwardsQuestion(BaseModel):
    """A question to humans after the protocol, with options, a scale or a box for text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(
        min_length=1, max_length=MAX_QUESTION_CHARACTERS, description="what is asked"
    )
    options: Texts = Field((), description="answers to choose from")
    scale: Annotated[tuple[int, int], BeforeValidator(_one_or_several)] | None = Field(
        None, description="lowest and highest number of a scale", examples=[[1, 7]]
    )

    @model_validator(mode="after")
    def _check_kind(self) -> AfterwardsQuestion:
        _require_question(self.question, self.options)
        if self.options and self.scale:
            raise ValueError("set `options` or `scale`, not both")
        if self.scale and self.scale[0] >= self.scale[1]:
            raise ValueError("the first number of `scale` must be the lower one")
        return self

    @property
    def answer_type(self) -> AnswerType[Any]:
        """The answer type of the question."""
        if self.options:
            return Choice(self.options)
        return Number(*self.scale, integer=True) if self.scale else Text()


def _require_question(question: str, options: tuple[str, ...]) -> None:
    if not question.strip():
        raise ValueError("`question` has only spaces")
    if not all(option.strip() for option in options):
        raise ValueError("one of the `options` is empty")
    compared = [collapse_spaces(option.casefold()) for option in options]
    for number, text in enumerate(compared):
        if (first := compared.index(text)) < number:
            raise ValueError(
                f"two `options` are the same: {options[first]!r} and {options[number]!r}"
            )
    if len(options) == 1:
        raise ValueError("`options` needs at least two")


def _comparable(answer: str) -> str:
    return collapse_spaces(answer.casefold()).strip(" .")


def _question_from_text(given: object) -> object:
    return {"question": given} if isinstance(given, str) else given


def _as_tuple(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given


AfterwardsQuestions = Annotated[
    tuple[Annotated[AfterwardsQuestion, BeforeValidator(_question_from_text)], ...],
    BeforeValidator(_as_tuple, json_schema_input_type=list[AfterwardsQuestion | str]),
]
Checks = Annotated[
    tuple[SeatCheck, ...], BeforeValidator(_as_tuple, json_schema_input_type=list[SeatCheck])
]


class CheckRow(Row, table=CHECKS, key=("seat", "check", "attempt")):
    """One answer of a human to one check."""

    seat: str = column("the seat, as `seats:` of the study file names it")
    speaker_id: str
    address: str = column("the reply that it comes from")
    check: int = column("number of the check in the study file, from 1")
    question: str = column("the text of the check")
    attempt: int = column("number of the answer to this check, from 1")
    answer: str | None = column("the answer; empty where there is none")
    right: bool = column("whether the answer is right")
    missing: str | None
    on_failure: str = column("what follows a failure: again, note, exclude or end")
    outcome: str = column(
        "after this answer: passed, again (asked once more), flagged (failed, and only recorded), "
        "excluded (failed, and left out of the analysis), screened out, or left (the human gave no "
        "more answers)"
    )
    part: str = column(
        "the part of the run that the analysis leaves out if the outcome is excluded: the "
        "participant, or the group, session or set in which others have talked with them"
    )


class AfterwardsRow(Row, table=AFTERWARDS, key=("seat", "number")):
    """One answer of a human to one question after the protocol."""

    seat: str = column("the seat, as `seats:` of the study file names it")
    speaker_id: str
    address: str = column("the reply that it comes from")
    number: int = column(
        "number of the question in the study file, from 1; 0 is the comment on one's own answers"
    )
    question: str = column("the text of the question")
    answer: str | None = column("the answer; empty where there is none")
    missing: str | None


class AnnouncementRow(Row, table=ANNOUNCEMENTS, key=("number",)):
    """One message of the researcher to humans during the run."""

    # No prompt contains it.

    number: int = column("number of the message, from 1")
    time: str = column("when it was sent (ISO 8601, UTC)")
    seat: str = column("the seat that it was sent to; empty: all seats")
    text: str = column("the message, as humans read it")


class WordingRow(Row, table=WORDINGS):
    """One text that a human read in another wording than the request in the journal holds."""

    # Not `address` and `speaker_id`, because the texts are not those of the human.
    question: str = column("address of the question with which the human read the text first")
    read_by: str = column("the participant whom the human plays")
    part: str = column("system: the instructions; history: an earlier text; question: the question")
    utterance_id: str | None = column("the earlier text, as in the table utterances")
    text: str = column("the text, as the human read it")


PEOPLE_TABLES: tuple[type[Row], ...] = (CheckRow, AfterwardsRow, AnnouncementRow, WordingRow)
# These tables are written only if humans were asked or told something.
PEOPLE_COLUMNS = columns_of_class(PEOPLE_TABLES)


def excluded_parts(run: RunFolder) -> tuple[str, ...]:
    """Return the names of the parts, such as sessions, that the analysis of a run leaves out."""
    if not run.has_table(CHECKS):
        return ()
    checks = run.scan_table(CHECKS)
    # Runs of earlier versions cannot exclude.
    if "part" not in checks.collect_schema():
        return ()
    excluded = checks.filter(outcome=EXCLUDED).select(pl.col("part").unique(maintain_order=True))
    return tuple(excluded.collect()["part"])


def excluded_seats(run: RunFolder) -> frozenset[str]:
    """Return the names of the seats of humans whom the analysis of a run leaves out."""
    # Without such a part there is no check that excludes a human.
    if not excluded_parts(run):
        return frozenset()
    return frozenset(run.read_table(CHECKS).filter(outcome=EXCLUDED)["seat"])


@dataclass(slots=True)
class SeatProgress:
    """The progress of the human in a seat, for checks during the study."""

    question_count: int = 0
    stages: set[str] = field(default_factory=set)
    # The checks that were asked during the study, by number.
    asked: dict[int, asyncio.Future[bool]] = field(default_factory=dict)
    # The texts in a wording for people that were recorded, as (part, text).
    recorded_wordings: set[tuple[str, str]] = field(default_factory=set)
    # Pairs of question and answer, for the review.
    own_answers: list[tuple[str, str]] = field(default_factory=list)

    def find_due(self, checks: tuple[SeatCheck, ...], stages: Collection[str]) -> list[int]:
        """Return the numbers, from 1, of the check questions to ask before the next question.

        `stages`: the stages to which the next question belongs. Empty at the end of the protocol.
        """
        return [
            number
            for number, check in enumerate(checks, start=1)
            if (check.after_questions is not None and self.question_count >= check.after_questions)
            or (check.after_stage in self.stages and check.after_stage not in stages)
        ]
