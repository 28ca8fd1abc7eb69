"""Controls of a finished run: a run below it in `RUN/controls/`, with a separate journal.

The run stays as it is, its journal and digest too. An amendment names the controls and the digest
of their journal, so that `folkmoot verify` tells them from a folder that was put there by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from folkmoot.engine.run.runner import from_python, providers_of, run_study
from folkmoot.engine.run.verify import Verification, verify_run
from folkmoot.engine.seats.withdrawal import KIND as WITHDRAWAL
from folkmoot.engine.session.folder_access import held_folder
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
from folkmoot.provenance import quote
from folkmoot.storage.amendments import Amendment, amend, amendments
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, STUDY_FILE, RunFolder

AMENDMENT = "controls"
# How the run called models; its controls call them alike.
_KEPT = (
    *("endpoints", "concurrency", "max_api_retries", "api_retry_base_seconds"),
    *("api_sleep_seconds", "request_timeout_seconds", "max_reply_mb", "quota_wait_seconds"),
    *("random_seed", "local", "respondent", "temperature"),
)


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
    if not run.finished:
        hint = "end it with --resume first"
        raise InputError(Problem(f"{run.path}: the run is not finished", hint=hint))
    if finished_controls(run) is not None:
        hint = f"they are in {run.path / CONTROLS}; folkmoot report shows them"
        raise InputError(Problem(f"{run.path}: the run has controls already", hint=hint))
    kept = {key: value for key, value in run.config.items() if key in _KEPT and value is not None}
    asked = Counter(decision.model for decision in find_decisions(run))
    kept["model"] = asked.most_common(1)[0][0]  # which the command line may have chosen
    found = from_python(study_of(run), {**kept, **settings}, options)
    options.consent.require_sending(
        run.path / STUDY_FILE, found.config, providers_of(found, options)
    )
    folder = run.path / CONTROLS
    done = run_study(found, replace(options, out=folder, resume=folder.exists()), stopper)
    with held_folder(run.path):
        made = {"folder": CONTROLS, "journal_digest": done.manifest["journal_digest"]}
        amend(run.path, [Amendment(AMENDMENT, "folkmoot", done.manifest["finished_at"], made)])
    return done


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
    if made is None:
        return
    folder = run.path / CONTROLS
    if not folder.is_dir():
        yield CONTROLS, Verification([f"{CONTROLS} is gone."])
        return
    found = verify_run(RunFolder(folder), study_of(run))
    if found.content_digest != made.data["journal_digest"]:
        found.differences.append(f"{CONTROLS}: its journal has changed since it was amended.")
    yield CONTROLS, found


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
