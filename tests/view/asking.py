"""Questions to people without a study behind them, and a desk whose pages are served."""

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

SAID = (
    Utterance("A", "Deliveries reach us before eight, so a closed lane would not hurt.", "Mara"),
    Utterance("p_1", "My shop lives from people who come by car.", "Me"),
    Utterance(
        "B", "The bus comes twice an hour. That is not enough for those who work late.", "Jo"
    ),
)

numbers = itertools.count()  # no two questions have one address


def asking(
    desk: SeatManager,
    chair: SeatState,
    prompt: str,
    form: str,
    offered: tuple[str, ...] = (),
    *,
    said: tuple[Utterance, ...] = SAID,
    system: str = "You are Ines, a baker in the old town. You have two children.",
    schema: JsonObject | None = None,
    images: tuple[str, ...] = (),
    problem: str = "",
    wanted: AnswerType[Any] | None = None,
) -> PendingQuestion:
    """A question that is put to the person in this seat. What `wanted` cannot read, or else
    everything where there is a `problem`, is sent back."""

    def problem_with(text: str) -> str:
        return (wanted.problem_in(text) if wanted is not None else "") or problem

    who = Speaker(chair.seat.id, "Me", system=system)
    messages = build_messages(who, Transcript(said), prompt).messages
    request = ModelRequest("human", messages, schema=schema, images=images)
    address = f"talk/{chair.seat.id}/ask{next(numbers)}"
    scene = QuestionView(who, said, prompt, form, offered, len(messages), problem_with)
    desk.register_question(chair.seat, address, scene)
    return desk.enqueue(address, request)


def ask_text(desk: SeatManager, chair: SeatState, prompt: str) -> PendingQuestion:
    """A question in free words."""
    return asking(desk, chair, prompt, "text")


@asynccontextmanager
async def served(
    folder: Path, settings: SeatSettings, *places: Seat
) -> AsyncIterator[tuple[SeatManager, dict[str, str]]]:
    """A desk whose pages are served, and the links to them."""
    links: dict[str, str] = {}

    def say(line: str) -> None:
        name, _, link = line.removeprefix("Seat ").partition(": ")
        links[name] = link

    desk = SeatManager(places, settings, folder, ("openai/gpt-4o",), clock=lambda: 0.0)
    async with seat.build_seat_host(print_line=say, linger_seconds=0)(desk):
        yield desk, links
