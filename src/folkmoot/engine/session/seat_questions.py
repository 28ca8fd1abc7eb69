"""Ask humans the questions outside the protocol: checks, a review, and questions afterwards."""

# The answers are journaled below `seats/`, outside all scopes of the protocol. So the questions
# change no address of the protocol, and a replay finds the answers.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar, cast

from folkmoot.conversation.answer_types import AnswerType, Missing, Text
from folkmoot.conversation.prompts import wording_for_people
from folkmoot.conversation.transcript import (
    EMPTY_TRANSCRIPT,
    Speaker,
    Transcript,
    Utterance,
    build_messages,
)
from folkmoot.engine.seats.question_view import QuestionView, view_for_human
from folkmoot.engine.seats.questionnaire import (
    EXCLUDED,
    FLAGGED,
    AfterwardsRow,
    AnnouncementRow,
    CheckRow,
    SeatCheck,
    WordingRow,
)
from folkmoot.engine.seats.seat_manager import SCREENED_OUT, SEAT_CLOSED, TIMED_OUT, WITHDRAWN
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.asking import AskedAt, ask_until_parsed
from folkmoot.engine.session.plan import ANNOUNCED
from folkmoot.engine.session.run_context import RunContext
from folkmoot.hints import number_text
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.models.request import ModelRequest, RespondentHints
from folkmoot.provenance import SourcedText
from folkmoot.storage.table_buffer import AFTER_PROTOCOL, RowOrder

T = TypeVar("T")
# The human is gone, so nothing more can be asked.
GONE = (SEAT_CLOSED, WITHDRAWN, SCREENED_OUT)
TRY_AGAIN = "That was not right. Please answer once more."
CHECK_TITLE, REVIEW_TITLE, AFTERWARDS_TITLE = "A check", "Your answers", "Before you go"
REVIEW_QUESTION = (
    "These are your answers. They stay as they are, because the study has gone on from them. Is "
    "there anything that you want to add or to correct? Write it here, or tick the box below."
)


class HumanQuestion(NamedTuple, Generic[T]):
    """A question beside the protocol, for the human in a seat."""

    prompt: SourcedText
    answer_type: AnswerType[T]
    reasks: int = 0
    # Changes the content of the page, such as its title.
    adapt_view: Callable[[QuestionView], QuestionView] = lambda view: view


async def ask_checks_before_study(run: RunContext) -> None:
    """Ask the check questions that come before the protocol."""
    # Models play for humans whom a check excludes. The protocol starts after these checks.
    # Otherwise a model could replace a human who has already talked with other participants.
    checks = _checks_of(run)
    numbers = [number for number, check in enumerate(checks, start=1) if check.is_before_study]
    if not numbers or not run.asks_people:
        return

    async def ask_seat(seat: Seat) -> bool:
        for number in numbers:
            if not await _ask_check(run, seat, number, checks[number - 1]):
                return False
        return True

    stays = await _gather([ask_seat(seat) for seat in run.seats])
    run.seat_humans([seat for seat, is_in in zip(run.seats, stays, strict=True) if is_in])


async def ask_due_checks(run: RunContext, seat: Seat, stages: Collection[str]) -> None:
    """Ask the check questions that are due before the next question to a human.

    `stages`: the stages of the next question, empty at the end of the protocol.
    """
    # Questions that the human gets at the same time wait for the same check.
    checks, progress = _checks_of(run), run.seat_progress[seat]
    if not run.asks_people:
        return
    for number in progress.find_due(checks, stages):
        if number not in progress.asked:
            progress.asked[number] = asyncio.ensure_future(
                _ask_check(run, seat, number, checks[number - 1])
            )
        # The caller may be cancelled. Others wait for the same check.
        await asyncio.shield(progress.asked[number])


def note_question(run: RunContext, seat: Seat, stages: Collection[str]) -> None:
    """Count a question that the protocol asks a human, and note the question's stages."""
    progress = run.seat_progress[seat]
    progress.question_count += 1
    progress.stages.update(stages)


def record_wordings(
    run: RunContext,
    asked_at: AskedAt,
    seat: Seat,
    speaker: Speaker,
    history: Transcript,
    prompt: str,
) -> None:
    """Record the texts that a human reads in another wording than a model would."""
    # The journal holds the request that a model would get.
    texts: list[tuple[str, str | None, str, str]] = [
        ("system", None, speaker.system, wording_for_people(speaker.system)),
        *(
            (
                "history",
                utterance.id or None,
                utterance.text,
                utterance.for_people or wording_for_people(utterance.text),
            )
            for utterance in history
            if utterance.missing is None and utterance.speaker_id != speaker.id
        ),
        ("question", None, prompt, wording_for_people(prompt)),
    ]
    recorded = run.seat_progress[seat].recorded_wordings
    for part, utterance_id, text, wording in texts:
        # A question is always recorded. An earlier text stays on the page of later questions.
        key = (part, utterance_id or str(wording))
        if wording == text or (part != "question" and key in recorded):
            continue
        recorded.add(key)
        row = WordingRow(
            question=asked_at.address,
            read_by=speaker.id,
            part=part,
            utterance_id=utterance_id,
            text=str(wording),
        )
        run.record_row(asked_at.row_order, row.table, row.cells())


async def ask_people_afterwards(run: RunContext) -> None:
    """Ask all humans who took part the questions that come after the protocol."""
    # These are the checks that have not been asked, a review of the human's own answers, and the
    # questions afterwards.
    if run.asks_people:
        humans = [seat for seat in run.seats if seat in run.answered_seats]
        await _gather([_ask_afterwards(run, seat) for seat in humans])
    _warn_of_checks_not_asked(run)


def record_announcements(run: RunContext) -> None:
    """Record the messages that the researcher sent to humans."""
    # A replay cannot compute these messages, so the plan keeps them and a replay reads the plan.
    if run.seat_manager is not None and run.seat_manager.announcements:
        run.plan.add_note(ANNOUNCED, run.seat_manager.announcements)
    row_order = RowOrder(AFTER_PROTOCOL)
    for number, given in enumerate(run.plan.note(ANNOUNCED) or (), start=1):
        row = AnnouncementRow(number=number, **given)
        run.record_row(row_order, row.table, row.cells())


async def _ask_check(run: RunContext, seat: Seat, number: int, check: SeatCheck) -> bool:
    # Returns False if the human must leave.
    row_order = run.order_after_protocol(seat, number)
    for attempt in count(1):
        text = check.question if attempt == 1 else f"{check.hint or TRY_AGAIN}\n\n{check.question}"
        address = f"{seat.address}/check{number}" + (f"/try{attempt}" if attempt > 1 else "")
        asked_at = AskedAt(address, row_order, seat.id)
        question = HumanQuestion(SourcedText(text), check.answer_type, adapt_view=_as_check)
        answer = await ask_human(run, seat, asked_at, question)
        missing = answer.reason if isinstance(answer, Missing) else None
        right = missing is None and check.is_right(format_answer(answer))
        outcome = _outcome_of_check(check, attempt, right=right, missing=missing)
        row = CheckRow(
            seat=seat.name,
            speaker_id=seat.id,
            address=address,
            check=number,
            question=check.question,
            attempt=attempt,
            answer=None if missing else format_answer(answer),
            right=right,
            missing=missing,
            on_failure=check.on_failure,
            outcome=outcome,
            part=seat.analysed_part,
        )
        run.record_row(row_order, row.table, row.cells())
        if outcome == SCREENED_OUT and run.seat_manager is not None:
            run.seat_manager.screen_out(seat)
        if outcome != "again":
            return outcome != SCREENED_OUT
    raise AssertionError("the loop has no end")


def _outcome_of_check(check: SeatCheck, attempt: int, *, right: bool, missing: str | None) -> str:
    if right:
        return "passed"
    if missing in GONE:
        return "left"
    # A human who gave no answer in time is not asked again, because they may have left.
    if missing != TIMED_OUT and (check.on_failure == "again" or attempt < check.tries):
        return "again"
    return {"end": SCREENED_OUT, "exclude": EXCLUDED}.get(check.on_failure, FLAGGED)


async def _ask_afterwards(run: RunContext, seat: Seat) -> None:
    await ask_due_checks(run, seat, ())
    assert run.config.seats is not None
    settings, questions = run.config.seats, list[tuple[int, str, AnswerType[object]]]()
    if settings.review:
        questions.append((0, REVIEW_QUESTION, Text()))
    questions += [
        (number, given.question, given.answer_type)
        for number, given in enumerate(settings.afterwards, start=1)
    ]
    own_answers = run.seat_progress[seat].own_answers
    for number, text, answer_type in questions:
        address = f"{seat.address}/" + (f"afterwards{number}" if number else "review")
        row_order = run.order_after_protocol(seat, number)
        asked_at = AskedAt(address, row_order, seat.id)
        adapt_view = _as_afterwards if number else partial(_as_review, own_answers=own_answers)
        question = HumanQuestion(SourcedText(text), answer_type, adapt_view=adapt_view)
        answer = await ask_human(run, seat, asked_at, question)
        missing = answer.reason if isinstance(answer, Missing) else None
        row = AfterwardsRow(
            seat=seat.name,
            speaker_id=seat.id,
            address=address,
            number=number,
            question=text,
            answer=None if missing else format_answer(answer),
            missing=missing,
        )
        run.record_row(row_order, row.table, row.cells())
        # Nobody is there any more, and the run must not wait for each further question.
        if missing in (*GONE, TIMED_OUT):
            break
    # The human need not wait until all others have answered as well.
    if questions and run.seat_manager is not None:
        run.seat_manager.finish_seat(seat)


async def ask_human(
    run: RunContext, seat: Seat, asked_at: AskedAt, question: HumanQuestion[T]
) -> T | Missing:
    """Ask the human in a seat a question beside the protocol, and return the answer."""
    prompt, answer_type = question.prompt, question.answer_type
    speaker = Speaker(seat.id)
    messages, _, spans = build_messages(speaker, EMPTY_TRANSCRIPT, prompt)
    offered = answer_type.offered_values
    hints = RespondentHints(speaker.role, answer_type.form_kind, offered, speaker=seat.id)
    request = ModelRequest(
        HUMAN_MODEL, messages, schema=answer_type.schema, hints=hints, spans=spans
    )
    if run.seat_manager is not None:
        view = view_for_human(speaker, EMPTY_TRANSCRIPT, prompt, answer_type, len(messages))
        run.seat_manager.register_question(seat, asked_at.address, question.adapt_view(view))
    return (await ask_until_parsed(run, asked_at, request, answer_type, question.reasks)).value


def format_answer(answer: object) -> str:
    """Return an answer as text."""
    # Whole numbers have no decimals.
    return number_text(answer) if isinstance(answer, float) else str(answer)


def _as_check(view: QuestionView) -> QuestionView:
    return replace(view, title=CHECK_TITLE)


def _as_review(view: QuestionView, own_answers: Sequence[tuple[str, str]]) -> QuestionView:
    # `own_answers` holds (question, answer) for each earlier answer of the human.
    pairs = (
        (Utterance("", question), Utterance(view.speaker.id, answer))
        for question, answer in own_answers
    )
    history = tuple(utterance for pair in pairs for utterance in pair)
    return replace(view, title=REVIEW_TITLE, history=history, is_afterwards=True)


def _as_afterwards(view: QuestionView) -> QuestionView:
    return replace(view, title=AFTERWARDS_TITLE, is_afterwards=True)


async def _gather(questions: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    # Await all questions first, so that every answer is kept.
    results = await asyncio.gather(*questions, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


def _checks_of(run: RunContext) -> tuple[SeatCheck, ...]:
    return run.config.seats.checks if run.config.seats is not None else ()


def _warn_of_checks_not_asked(run: RunContext) -> None:
    asked = {number for progress in run.seat_progress.values() for number in progress.asked}
    for number, check in enumerate(_checks_of(run), start=1):
        if run.answered_seats and not check.is_before_study and number not in asked:
            when = check.after_stage or f"{check.after_questions} questions"
            run.log_warning((), f"check {number} was never asked: no one got past {when}")
