"""Repeat sessions by running the study's own code, with some texts in the prompts replaced."""
# A prompt may hold values that the study computes from several replies, such as the result of a
# game. Then no request can be built without the code of the study. A repetition answers all
# requests that have not changed from the journal of the run, at no cost, and asks the others.

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

import polars as pl

from folkmoot.conversation.answer_types import Missing, ParsedAnswer
from folkmoot.conversation.transcript import BuiltMessages, Speaker
from folkmoot.engine.calls.retries import RunHaltedError
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import NotRebuiltError, study_as_it_was_run
from folkmoot.engine.session.repeated_protocol import (
    FinishedRun,
    RepeatedAnswer,
    Revision,
    WatchedQuestion,
    enclosing_scopes,
    repeat_protocol,
)
from folkmoot.engine.session.session import Scope
from folkmoot.engine.settings.controls import Language
from folkmoot.errors import RunPausedError
from folkmoot.kit.controls.conversations import ControlledDecision, DecisionConversation
from folkmoot.kit.controls.forking import is_replaced
from folkmoot.kit.controls.forms import ClosedForm
from folkmoot.kit.controls.replacing import (
    CHANGED,
    COMPUTED,
    HUMANS,
    NOT_REACHED,
    Refusal,
    Subject,
    TreatmentTexts,
    replaced_texts,
)
from folkmoot.kit.controls.tables import ORDER
from folkmoot.kit.exposure import ExposureRow
from folkmoot.provenance import SourcedText, spans_of
from folkmoot.storage.run_folder import JOURNAL, RunFolder


class InSessionMark(Enum):
    """The mark of a decision that is answered by running its session again."""

    IN_SESSION = auto()


IN_SESSION = InSessionMark.IN_SESSION


@dataclass(frozen=True)
class SessionForks:
    """The sessions that one control runs again, and the decisions that need them."""

    control: str
    decisions: Sequence[ControlledDecision]
    # The scopes of the sessions in the run, as prefixes of addresses.
    scopes: Sequence[str]
    # Replaces texts in the prompts of the sessions.
    revise: Revision


class SessionParts(NamedTuple):
    """The participants, texts and lists of options of one session, for example of a group."""

    scopes: tuple[str, ...]
    # Whom each speaker answers for: usually the speaker alone.
    participants_of: Mapping[str, frozenset[str]]
    text_ids: frozenset[str]
    # The kinds of these texts.
    kinds: frozenset[str]
    option_lists: tuple[tuple[str, ...], ...]


def read_sessions(run: RunFolder, treatments: TreatmentTexts) -> dict[str, SessionParts]:
    """Return the `SessionParts` of each session of a run, by the unit of the session."""
    columns = ("unit", "participant_id", "address")
    decided = run.scan_table(ExposureRow.table).select(columns).unique()
    asked = run.scan_table("answers").select("address", "speaker_id")
    rows = decided.join(asked, on="address").collect().rows()
    # A scope belongs to a session if all decisions in it are made in that session. Of scopes inside
    # each other, the outermost one counts.
    units: dict[str, set[str]] = {}
    for unit, _, address, _ in rows:
        for scope in enclosing_scopes(address):
            units.setdefault(scope, set()).add(unit)
    scopes: dict[str, set[str]] = {}
    participants_of: dict[str, dict[str, set[str]]] = {}
    text_ids: dict[str, set[str]] = {}
    kinds: dict[str, set[str]] = {}
    for unit, participant_id, address, speaker_id in rows:
        # A decision at the root of the protocol belongs to no session.
        if not (around := enclosing_scopes(address)):
            continue
        # A decision may share its scope with other sessions. Then its own scope must do.
        own = next((scope for scope in around if len(units[scope]) == 1), around[-1])
        scopes.setdefault(unit, set()).add(own)
        participants_of.setdefault(unit, {}).setdefault(speaker_id, set()).add(participant_id)
        text_ids.setdefault(unit, set()).update(treatments.at(address))
        kinds.setdefault(unit, set()).update(treatments.kinds.get(address, ()))
    unit_of = {scope: unit for unit in scopes for scope in scopes[unit]}
    option_lists: dict[str, set[tuple[str, ...]]] = {}
    answers = run.scan_table("answers").filter(pl.col("options").is_not_null())
    for address, options in answers.select("address", "options").collect().iter_rows():
        for scope in enclosing_scopes(address):
            if scope in unit_of:
                # Sorted, because each participant may have seen another order.
                listed = tuple(sorted(json.loads(options)))
                option_lists.setdefault(unit_of[scope], set()).add(listed)
    return {
        unit: SessionParts(
            tuple(sorted(scopes[unit])),
            {speaker: frozenset(who) for speaker, who in participants_of[unit].items()},
            frozenset(text_ids[unit]),
            frozenset(kinds[unit]),
            # In a fixed order, so that a resume builds the same prompts.
            tuple(sorted(option_lists.get(unit, ()))),
        )
        for unit in scopes
    }


def scopes_of(
    decisions: Iterable[ControlledDecision], sessions: Mapping[str, SessionParts]
) -> list[str]:
    """Return the sorted scopes of the sessions to which the decisions belong."""
    return sorted({scope for decision in decisions for scope in sessions[decision.unit].scopes})


def revise_sessions(
    control: str,
    decisions: Iterable[ControlledDecision],
    sessions: Mapping[str, SessionParts],
    treatments: TreatmentTexts,
    language: Language,
) -> Revision:
    """Return a function that changes prompts while the sessions of `decisions` are run again."""
    # It covers all sessions of `decisions`, and in them the prompts of all participants. So each
    # session is run again only once for each control.

    units = {
        scope: decision.unit for decision in decisions for scope in sessions[decision.unit].scopes
    }

    def revise(
        address: str, speaker: Speaker, built: BuiltMessages, options: tuple[str, ...]
    ) -> tuple[BuiltMessages, tuple[str, ...]]:
        unit = next(units[scope] for scope in enclosing_scopes(address) if scope in units)
        session = sessions[unit]
        if speaker.id not in session.participants_of:
            return built, options
        participants, treatment = session.participants_of[speaker.id], session.text_ids
        keeps_words_of = participants
        if (kind_of_text := treatments.kind_of_text) is not None:
            # With other replies, a session may take another path, on which it shows texts that the
            # run did not have.
            ids = {
                span.source.id for span in built.spans if kind_of_text(span.source) in session.kinds
            }
            treatment |= ids - treatments.common
            # The words of each of several participants are a treatment of the others.
            keeps_words_of = participants if len(participants) == 1 else frozenset()
        subject = Subject(
            participants,
            speaker.id,
            treatment,
            keeps_words_of,
            exchanges_any=treatments.exchanges_any,
        )
        texts = [
            SourcedText(message.content, [span for span in built.spans if span.message == number])
            for number, message in enumerate(built.messages)
        ]
        changed = replaced_texts(
            control, subject, texts, treatments.writers, language, session.option_lists
        )
        if not is_replaced(texts, changed):
            return built, options
        messages = tuple(
            message._replace(content=str(text))
            for message, text in zip(built.messages, changed, strict=True)
        )
        spans = (
            span._replace(message=number)
            for number, text in enumerate(changed)
            for span in spans_of(text)
        )
        # Breakpoints are offsets into the old texts. They only save costs.
        listed = options[::-1] if control == ORDER else options
        return BuiltMessages(messages, (), tuple(spans)), listed

    return revise


def read_finished_run(run: RunFolder, *, keeps_given: bool) -> FinishedRun | Refusal:
    """Return everything that is needed to repeat a run with its study's code.

    `keeps_given`: see `FinishedRun`.

    Returns the reason for a refusal if humans took part or the study has changed.
    """
    with JournalReader(run.path / JOURNAL) as journal:
        if journal.human_answer_count():
            return HUMANS
    change = ReplyChange.from_plan(run.plan)
    try:
        study_file, providers = study_as_it_was_run(run, None, change)
    except NotRebuiltError:
        return CHANGED
    return FinishedRun(
        run.path,
        study_file.study.protocol,
        study_file.config,
        study_file.prompt_library(),
        study_file.study_folder,
        providers,
        str(run.plan.get("started_at", "")),
        change,
        keeps_given,
    )


class ReadQuestion(NamedTuple):
    """How the study reads the reply to a question, and the answer that the run has recorded."""

    question: WatchedQuestion
    recorded: object
    missing: str | None


async def read_questions(
    scope: Scope, finished: FinishedRun, addresses: Collection[str]
) -> dict[str, ReadQuestion] | Refusal:
    """Repeat a run from its journal, and return the questions at `addresses`.

    Returns the reason for a refusal if today's code fails or would send different requests.
    """
    # The journal has no answer types, and only the study knows, for example, the bounds of a number
    # or whether a reply beside the options counts. So its code runs again.
    try:
        repeated = await repeat_protocol(scope, finished, addresses)
    except (RunHaltedError, RunPausedError):
        raise
    # Changed code may raise any exception. Plain choices and forms are asked without it.
    except Exception:
        return CHANGED
    if not repeated.is_exact:
        return CHANGED
    return {
        address: ReadQuestion(
            repeated.questions[address],
            answer.row["recorded"],
            str(answer.row["missing"]) if answer.row["missing"] else None,
        )
        for address, answer in repeated.answers().items()
    }


async def ask_in_sessions(
    scope: Scope,
    finished: FinishedRun,
    fork: SessionForks,
    conversations: Mapping[str, DecisionConversation],
) -> list[tuple[ControlledDecision, Any, str]]:
    """Run the sessions in `fork` again with the code of the study.

    Returns each decision, the new answer, and the address of the answer.
    """
    # `Missing` holds the reason for a missing answer.
    watched = [decision.address for decision in fork.decisions]
    repeated = await repeat_protocol(scope, finished, watched, fork.scopes, fork.revise)
    answers = repeated.answers()
    found: list[tuple[ControlledDecision, Any, str]] = []
    for decision in fork.decisions:
        answer = answers.get(decision.address)
        if answer is None:
            found.append((decision, Missing(NOT_REACHED), ""))
        elif not answer.is_consistent:
            found.append((decision, Missing(COMPUTED), answer.asked_at))
        else:
            got = _read_answer(conversations[decision.place], answer)
            found.append((decision, got, answer.asked_at))
    return found


def _read_answer(conversation: DecisionConversation, answer: RepeatedAnswer) -> Any:
    if reason := answer.row["missing"]:
        return Missing(str(reason))
    # The study reads a form in its own way. The run's answer comes from the closed fields.
    if isinstance(conversation.answer, ClosedForm):
        read = conversation.answer.parse_reply(answer.reply)
        if isinstance(read, ParsedAnswer):
            return read.value
        return read if isinstance(read, Missing) else Missing("unparsed")
    return conversation.value_of(answer.row["recorded"])
