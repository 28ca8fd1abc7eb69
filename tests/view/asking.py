"""Put questions to humans without running a study, and serve the pages of a seat manager."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from folkmoot.conversation.answer_types import AnswerType
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance, build_messages
from folkmoot.engine.seats.question_view import QuestionView
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatManager, SeatState
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.models.request import JsonObject, ModelRequest
from folkmoot.view import seat

SAMPLE_UTTERANCES = (
    Utterance("A", "Deliveries reach us before eight, so a closed lane would not hurt.", "Mara"),
    Utterance("p_1", "My shop lives from people who come by car.", "Me"),
    Utterance(
        "B", "The bus comes twice an hour. That is not enough for those who work late.", "Jo"
    ),
)

question_numbers = itertools.count()  # so that every question has its own address


def enqueue_question(
    seat_manager: SeatManager,
    seat_state: SeatState,
    prompt: str,
    answer_kind: str,
    options: tuple[str, ...] = (),
    *,
    utterances: tuple[Utterance, ...] = SAMPLE_UTTERANCES,
    system: str = "You are Ines, a baker in the old town. You have two children.",
    schema: JsonObject | None = None,
    images: tuple[str, ...] = (),
    problem: str = "",
    answer_type: AnswerType[Any] | None = None,
) -> PendingQuestion:
    """Put a question to the human in this seat. An answer that `answer_type` cannot parse is
    refused. If `problem` is set, every answer is refused with it."""

    def find_problem(text: str) -> str:
        return (answer_type.problem_in(text) if answer_type is not None else "") or problem

    speaker = Speaker(seat_state.seat.id, "Me", system=system)
    messages = build_messages(speaker, Transcript(utterances), prompt).messages
    request = ModelRequest("human", messages, schema=schema, images=images)
    address = f"talk/{seat_state.seat.id}/ask{next(question_numbers)}"
    question_view = QuestionView(
        speaker, utterances, prompt, answer_kind, options, len(messages), find_problem
    )
    seat_manager.register_question(seat_state.seat, address, question_view)
    return seat_manager.enqueue(address, request)


def enqueue_text_question(
    seat_manager: SeatManager, seat_state: SeatState, prompt: str
) -> PendingQuestion:
    """Put a question with a free-text answer to the human in this seat."""
    return enqueue_question(seat_manager, seat_state, prompt, "text")


@asynccontextmanager
async def serve_seats(
    folder: Path, settings: SeatSettings, *seats: Seat
) -> AsyncIterator[tuple[SeatManager, dict[str, str]]]:
    """Serve the pages of these seats. Yields the seat manager and the links by seat name."""
    links: dict[str, str] = {}

    def store_link(line: str) -> None:
        name, _, link = line.removeprefix("Seat ").partition(": ")
        links[name] = link

    seat_manager = SeatManager(seats, settings, folder, ("openai/gpt-4o",), clock=lambda: 0.0)
    async with seat.build_seat_host(print_line=store_link, linger_seconds=0)(seat_manager):
        yield seat_manager, links
