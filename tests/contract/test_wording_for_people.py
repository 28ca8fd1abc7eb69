"""The question pages of humans in every study type contain no instructions for models."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatManager, SeatState
from folkmoot.view.forms import FormField
from folkmoot.view.seat.question_page import form_for, render_question
from tests.contract.small import people_of, small_study
from tests.engine.test_seats import build_seat_host
from tests.sweeps import sample_daily

# The parts of small studies that people can play, with every question that may be put to a seat.
OVERRIDES = {
    "cross_pollination": (
        *("confidence=true", "ranking=true", "restatement=true", "delayed_vote=true"),
        "seats.count=12",
    ),
    "focus_group": ("seats.count=4", "first_opinion=asked"),
    "negotiation": ("members_speak=true", "seats.count=4"),
    "town_hall": ("levels=[4]", "seats.count=4"),
    "workbook": ("seats.count=4",),
}
# Words of instructions on the form of an answer, which a form replaces.
INSTRUCTIONS_FOR_MODELS = re.compile(
    r"\bJSON\b|\bnull\b|none_of_these|answer_format|\bONLY\b|\band nothing else\.|exact text|"
    r"[Rr]eply with|[Rr]espond with|[Aa]nswer with|\btop_choice\b|\bnew_option\b|\bhard_no\b|"
    r"true or false|\bkeys:"
)


def extract_text(page: str) -> str:
    """Return the readable text of a page."""
    body = page.partition("<main")[2].partition(">")[2]
    return html.unescape(re.sub(r"<[^>]+>", "\n", body))


def list_options(form: FormField) -> list[list[str]]:
    """Return the options of each field of a form that has several options."""
    found = [[label for label, _ in form.options]] if len(form.options) > 1 else []
    fixed = [part.label for part in form.parts if part.fixed]
    return [*found, *([fixed] if fixed else []), *(o for p in form.parts for o in list_options(p))]


def count_lists(text: str, options: list[str]) -> int:
    """Count how often a text lists these options, one per line, in any order and with any marks."""
    lines = [re.sub(r"^\W*(?:\w[.)]\s)?", "", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    heads = [sorted(lines[n : n + len(options)]) == sorted(options) for n in range(len(lines))]
    return sum(heads)


# Daily one type with closed questions and long texts, and one with forms of its own.
@pytest.mark.parametrize(
    "study",
    sample_daily(sorted(OVERRIDES), daily=("cross_pollination", "workbook"), part="wordings"),
)
def test_a_page_has_no_instructions_for_models_and_its_options_once(
    study: str, tmp_path: Path
) -> None:
    people, pages = people_of(study), dict[str, str]()
    manager: list[SeatManager] = []
    faults: list[str] = []

    def answer(chair: SeatState, question: PendingQuestion) -> str:
        page = extract_text(bytes(render_question(manager[0], chair, question).body).decode())
        pages[question.address] = page
        faults.extend(f"{question.address}: {m[0]}" for m in INSTRUCTIONS_FOR_MODELS.finditer(page))
        view = question.view
        prose = "\n".join([view.speaker.system, *(u.text for u in view.history), view.prompt])
        for options in list_options(form_for(question)):
            # What others said or were told may name options as well: that is no list of them.
            if count_lists(prose, options):
                faults.append(f"{question.address}: lists {options}")
        return people.reply(question.request, question.address).text

    serving = build_seat_host(answer)

    @asynccontextmanager
    async def host(desk: SeatManager) -> AsyncIterator[None]:
        manager.append(desk)
        async with serving(desk):
            yield

    path = small_study(study, tmp_path)
    folkmoot.run(
        path, out=tmp_path / "run", model="synthetic", overrides=OVERRIDES[study], seat_host=host
    )
    assert len(pages) >= 4
    assert faults == [], "\n\n".join(pages[f.partition(":")[0]] for f in faults[:1])
