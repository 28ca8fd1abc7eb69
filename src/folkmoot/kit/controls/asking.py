"""Controls of a finished run: a run below it, in `RUN/controls/`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.transcript import Transcript
from folkmoot.engine.journal.journal import JournalReader
from folkmoot.engine.run.event_loop import Stopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.verify import Verification
from folkmoot.engine.seats.withdrawal import KIND as WITHDRAWAL
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config import Positive, StudyConfig
from folkmoot.engine.study.study import Study, study_of_run
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.kit.controls.conversations import (
    FIRST,
    ControlledDecision,
    Conversation,
    find_decisions,
    read_conversations,
    sample_decisions,
)
from folkmoot.kit.controls.questions import (
    AGE,
    ControlQuestion,
    Language,
    age_question,
    shipped_questions,
)
from folkmoot.kit.controls.respondent import part_for
from folkmoot.kit.controls.tables import FACT, NEGATIVE, RETEST, ControlRow
from folkmoot.kit.run_below import (
    Below,
    calling_settings,
    require_finished,
    run_below,
    verify_below,
)
from folkmoot.provenance import quote
from folkmoot.storage.amendments import Amendment, amendments
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, RunFolder

AMENDMENT = "controls"


class ControlsConfig(StudyConfig):
    """What is asked of a finished run."""

    negative: bool = Field(True, description="ask the negative controls after final decisions")
    questions: tuple[ControlQuestion, ...] = Field(
        (), description="negative controls of your own, in place of the shipped ones"
    )
    language: Language = Field("en", description="language of the shipped questions: en or de")
    retest: bool = Field(
        True, description="ask each first decision again in a fresh conversation (closed choices)"
    )
    participants: Positive = Field(
        200, description="participants of each condition, at most; drawn by the seed"
    )


def run_controls(
    run: RunFolder,
    settings: Mapping[str, object],
    options: RunOptions,
    stopper: Stopper | None = None,
) -> RunFolder:
    """Ask control questions about a finished run; resumes controls that stopped.

    Raises InputError for an unfinished run, one without decisions, and one that has controls
    already; otherwise what `run_study` raises.
    """
    require_finished(run)
    if finished_controls(run) is not None:
        hint = f"they are in {run.path / CONTROLS}; folkmoot report shows them"
        raise InputError(Problem(f"{run.path}: the run has controls already", hint=hint))
    asked = Counter(decision.model for decision in find_decisions(run))
    # The command line may have chosen another model than the study file names.
    model = asked.most_common(1)[0][0]
    kept = {**calling_settings(run, "respondent", "temperature"), "model": model}
    below = Below(study_of(run), CONTROLS, AMENDMENT, "folkmoot")
    return run_below(run, below, {**kept, **settings}, options, stopper)


def study_of(run: RunFolder) -> Study[ControlsConfig]:
    """The controls of this run as a study type."""
    study = study_of_run(run)
    part = part_for(study.respondent, study.config.model_validate(run.config))
    return Study(
        "controls",
        "Controls of a finished run",
        ControlsConfig,
        partial(_protocol, run),
        prompts=Path(__file__).parent / "prompts",
        tables=(ControlRow,),
        respondent=part,
    )


async def _protocol(run: RunFolder, session: Session[ControlsConfig]) -> None:
    config = session.config
    sample = sample_decisions(find_decisions(run), config.participants, session.seed)
    questions = config.questions or shipped_questions(config.language)
    plan = {"decisions": [d.address for d in sample], "questions": [q.id for q in questions]}
    await session.seal("controls", plan)
    with JournalReader(run.path / JOURNAL) as journal:
        conversations = read_conversations(run, journal, sample)

    async def control(scope: Scope, decision: ControlledDecision) -> None:
        conversation = conversations[decision.address]
        asked: dict[str, Any] = {}
        if config.negative:
            for question in questions:
                asked[question.id] = partial(
                    _ask_control, conversation, decision, question, NEGATIVE, config.language
                )
            if decision.age is not None:
                own = age_question(config.language)
                asked[own.id] = partial(
                    _ask_control, conversation, decision, own, FACT, config.language
                )
        if config.retest and decision.moment == FIRST and decision.options:
            asked[RETEST] = partial(_ask_again, conversation, decision)
        await scope.each(asked)

    known = [decision for decision in sample if decision.address in conversations]
    await session.each(known, control, key=lambda decision: decision.key)


async def _ask_control(
    conversation: Conversation,
    decision: ControlledDecision,
    question: ControlQuestion,
    control: str,
    language: Language,
    scope: Scope,
) -> None:
    """Continue a conversation by one question. Each question continues the decision itself, so that
    no control is heard by another."""
    text = quote(question.text, "material", f"study.questions.{question.id}.text")
    if question.number is None:
        listing = quote(
            "\n".join(f"- {option}" for option in question.options),
            "option",
            f"study.questions.{question.id}.options",
        )
        prompt = scope.prompt(f"choice_{language}", question=text, listing=listing)
    else:
        low, high = (
            quote(f"{bound:g}", "value", f"study.questions.{question.id}.number")
            for bound in question.number
        )
        prompt = scope.prompt(f"number_{language}", question=text, low=low, high=high)
    got = await scope.ask(
        conversation.speaker,
        prompt,
        heard=conversation.heard,
        answer=question.answer,
        about=question.text,
    )
    expected = str(decision.age) if question.id == AGE and control == FACT else None
    _record(scope, decision, control, question.id, got, expected)


async def _ask_again(
    conversation: Conversation, decision: ControlledDecision, scope: Scope
) -> None:
    """Put the decision once more, in a conversation that does not know the first answer."""
    heard = conversation.heard.utterances[:-1]
    *before, last = heard
    got = await scope.ask(
        conversation.speaker,
        last.text,
        heard=Transcript(tuple(before)),
        answer=Choice(decision.options),
        about=decision.decision,
    )
    _record(scope, decision, RETEST, decision.decision, got, decision.value)


def _record(
    scope: Scope,
    decision: ControlledDecision,
    control: str,
    question: str,
    got: Any,
    expected: str | None,
) -> None:
    missing = isinstance(got, Missing)
    scope.record(
        ControlRow(
            control=control,
            question=question,
            participant_id=decision.participant_id,
            condition=decision.condition,
            unit=decision.unit,
            moment=decision.moment,
            decision_address=decision.address,
            value=str(got) if isinstance(got, str) else None,
            number=float(got) if isinstance(got, (int, float)) and not missing else None,
            expected=expected,
            missing=got.reason if missing else None,
            address=scope.address,
        )
    )


def verify_controls(run: RunFolder) -> Iterator[tuple[str, Verification]]:
    """The controls that the amendments name, replayed and compared like a run."""
    try:
        made = finished_controls(run)
    except StorageError:  # what is wrong with the amendments is told with the run
        return
    if made is not None:
        yield verify_below(run, made, study_of(run))


def finished_controls(run: RunFolder) -> Amendment | None:
    """The amendment that names the controls of a run; None where there are none.

    When a person withdraws, the controls go: they continue conversations in which the person was
    quoted. They can be asked again. Raises StorageError.
    """
    made = None
    for amendment in amendments(run.path):
        if amendment.kind == AMENDMENT:
            made = amendment
        elif amendment.kind == WITHDRAWAL:
            made = None
    return made
