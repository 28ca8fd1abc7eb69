"""The questions of a replay: each item is rated before and after a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import Field

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.choices import Number
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import PositiveInt, StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.hints import number_text
from folkmoot.people.sources.experiment import HumanAnswer, read_experiment
from folkmoot.people.sources.missing_answers import MISSING_HINT
from folkmoot.provenance import quote_value
from folkmoot.storage.rows import Row, column


class ReplayConfig(StudyConfig):
    """The study file of a replay."""

    people: str = Field(description="table of the human answers, relative to this file")
    scale: tuple[float, float] = Field(description="lowest and highest answer")
    first_answer: Literal["given", "asked"] = Field(
        "given",
        description="`given`: the model is told the human's own first answer; `asked`: the model "
        "is asked for it",
    )
    answers: PositiveInt | None = Field(
        None, description="maximum number of rows of the table to use, drawn by the seed"
    )


class ReplayRow(Row, table="replayed"):
    """The answers of one human about one item, and the model's answers in place of this human.

    All answers are numbers on the scale of the study file.
    """

    person: str
    item: str
    arm: str
    people_before: float
    people_after: float | None = column("empty where it is not known")
    before: float | None = column("the first answer in the simulation; the person's own if given")
    after: float | None = column("the final answer in the simulation; empty: none could be read")
    missing: str | None = column("why there is no final answer")
    attributes: str = column("what the table says of the person, as JSON")
    address: str


def check_config(config: ReplayConfig, folder: Path) -> list[Problem]:
    """Return problems such as human answers that are outside the scale of the study file."""
    low, high = config.scale
    if low >= high:
        return [Problem("the lowest answer must be below the highest", key="scale")]
    try:
        answers = read_experiment(folder / config.people)
    except InputError as error:
        return error.problems
    values = [
        value
        for human_answer in answers
        for value in (human_answer.before, human_answer.after)
        if value is not None
    ]
    if outside := [value for value in values if not low <= value <= high]:
        more = f", and {len(outside) - 1:,} more are outside the scale" if len(outside) > 1 else ""
        problem = f"an answer of the table is {number_text(outside[0])}{more}"
        hint = f"{MISSING_HINT}, or correct the scale"
        return [Problem(problem, key="scale", hint=hint)]
    return []


def limit_answers(config: ReplayConfig, count: int) -> ReplayConfig:
    """Return the settings of a replay with at most `count` human answers."""
    return config.model_copy(update={"answers": min(count, config.answers or count)})


async def run_protocol(session: Session[ReplayConfig]) -> None:
    """Ask the model the questions that humans answered in the replayed experiment."""
    # Each sampled row has its own conversation. A row holds one human's answers about one item.
    config = session.config
    people = read_experiment(session.study_folder / config.people)
    # The whole table decides, so that a small sample is asked in the same form.
    answer_type = Number(*config.scale, integer=_are_whole_numbers(people, config.scale))
    answer_count = config.answers
    if answer_count is not None and answer_count < len(people):
        sampled_rows = session.child("sample").rng.choice(len(people), answer_count, replace=False)
        # The sampled rows keep the order of the table, so that the tables of a run are easy to
        # compare with it.
        people = [people[row] for row in sorted(sampled_rows)]
    assignment = [[answer.person, answer.item, answer.arm] for answer in people]
    await session.seal("assignment", assignment)

    async def replay_answer(scope: Scope, answer: HumanAnswer) -> None:
        await _replay(session, scope, answer, answer_type)

    await session.map(people, replay_answer, key=lambda answer: f"{answer.person}: {answer.item}")


def _are_whole_numbers(people: list[HumanAnswer], scale: tuple[float, float]) -> bool:
    answers = [value for human in people for value in (human.before, human.after)]
    return all(float(value).is_integer() for value in (*answers, *scale) if value is not None)


async def _replay(
    session: Session[ReplayConfig], scope: Scope, answer: HumanAnswer, answer_type: Number
) -> None:
    config = session.config
    source_row = f"people.row/{answer.person}"
    low, high = (quote_value(number_text(bound), "value", "study.scale") for bound in config.scale)
    item = quote_value(answer.item, "material", "study.people.item")
    persona = quote_value(answer.persona, "persona", source_row, answer.person)
    system = scope.prompt("person_system", persona=persona)
    speaker = Speaker(answer.person, role="participant", system=system)
    # With `first_answer: given` the prompt contains the human's first answer, so only the change is
    # simulated. With `asked` the model answers first and is then told its own answer.
    before: float | None = answer.before
    shown_before: str | None = quote_value(
        number_text(answer.before), "answer", f"{source_row}/before", answer.person
    )
    if config.first_answer == "asked":
        prompt = scope.prompt("before", low=low, high=high, item=item)
        first = await scope.ask_detailed(
            speaker, prompt, answer_type=answer_type, about=answer.item
        )
        before = None if isinstance(first.value, Missing) else float(first.value)
        shown_before = (
            quote_value(number_text(before), "answer", first.address, answer.person)
            if before is not None
            else None
        )
    text = quote_value(answer.text_shown, "material", "study.people.text_shown")
    variables = {"low": low, "high": high, "item": item, "before": shown_before, "text_shown": text}
    result = await scope.ask_detailed(
        speaker, scope.prompt("after", **variables), answer_type=answer_type, about=answer.item
    )
    scope.record(
        ReplayRow(
            person=answer.person,
            item=answer.item,
            arm=answer.arm,
            people_before=answer.before,
            people_after=answer.after,
            before=before,
            after=None if isinstance(result.value, Missing) else float(result.value),
            missing=result.value.reason if isinstance(result.value, Missing) else None,
            attributes=json.dumps(dict(answer.attributes), sort_keys=True, default=str),
            address=result.address,
        )
    )
