"""Answers of humans: one for each question they saw, with ways out, and with plain problems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Literal

import aiohttp
import pytest
from playwright.async_api import Browser, Page, Route, expect
from pydantic import BaseModel, Field

import folkmoot
from folkmoot import Choice, Json, Missing, Scope, Session, Speaker, Study, StudyConfig
from folkmoot.conversation.answer_types import CANNOT_SAY, DECLINED, NONE_OF_THESE, with_ways_out
from folkmoot.conversation.choices import Number
from folkmoot.engine.seats.seat_manager import (
    SEAT_CLOSED,
    WITHDRAWN,
    PendingQuestion,
    SeatManager,
    SeatState,
)
from folkmoot.engine.seats.seats import Seat, SeatSettings, SelfDescription
from folkmoot.studies.town_hall.answers.repairs import AskContext
from folkmoot.studies.town_hall.answers.turns import Reflection
from folkmoot.view import seat
from folkmoot.view.seat.confirmation import GONE_ON, NOT_TICKED
from folkmoot.view.seat.pages import ANSWERED, STALE
from folkmoot.view.seat.question_page import parse_form
from tests.browsers import CHROMIUM_PATH
from tests.sweeps import sample_daily
from tests.view.asking import enqueue_question, serve_seats
from tests.view.test_seat import read_shown_state, wait_for_change

in_a_browser = pytest.mark.skipif(CHROMIUM_PATH is None, reason="no Chromium on this machine")
pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = ("Close the centre", "Keep it open")
AskFunction = Callable[[SeatManager, SeatState], PendingQuestion]
QUESTIONS_BY_KIND: dict[str, AskFunction] = {
    "choice": lambda seat_manager, seat_state: enqueue_question(
        seat_manager, seat_state, "Which?", "choice", OPTIONS
    ),
    "number": lambda seat_manager, seat_state: enqueue_question(
        seat_manager, seat_state, "How sure?", "number", ("0", "100")
    ),
    "text": lambda seat_manager, seat_state: enqueue_question(
        seat_manager, seat_state, "Why?", "text"
    ),
    "own card": lambda seat_manager, seat_state: enqueue_question(
        seat_manager, seat_state, "Who are you?", "json", schema=SelfDescription.model_json_schema()
    ),
}
ANSWERS_BY_KIND = {
    "choice": {"a": "1"},
    "number": {"a": "70"},
    "text": {"a": "Calm."},
    "own card": {"a.age": "40"},
}


def put_question(seat_manager: SeatManager, seat_state: SeatState, kind: str) -> PendingQuestion:
    """Put a question. Its answer counts as stored as soon as it is given."""
    question = QUESTIONS_BY_KIND[kind](seat_manager, seat_state)
    question.reply.add_done_callback(
        lambda _: seat_manager.withdraw_question(question, stored=True)
    )
    return question


async def fill(page: Page, kind: str) -> None:
    if kind == "choice":
        await page.get_by_label(OPTIONS[0]).check()
    elif kind == "own card":
        await page.get_by_role("textbox", name="Age").fill("40")
    else:
        await page.locator("#answer [name=a]").fill("70")


# Milliseconds between the two clicks of a double click, by the kind of the next question.
CLICK_PAUSES_MS = {"choice": 0, "number": 150, "text": 250, "own card": 400}


@in_a_browser
@pytest.mark.parametrize(
    ("kind", "following"),
    sample_daily(
        [*product(QUESTIONS_BY_KIND, CLICK_PAUSES_MS)],
        daily=[("choice", "choice"), ("text", "number")],
        part="pages",
    ),
)
async def test_a_double_click_answers_one_question(
    tmp_path: Path, kind: str, following: str, async_browser: Browser
) -> None:
    """The second click does not answer the next question, which the human has not seen."""
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        page = await async_browser.new_page(viewport={"width": 800, "height": 900})
        first = put_question(seat_manager, seat_state, kind)
        await page.goto(links["p_1"])
        await fill(page, kind)
        second = put_question(seat_manager, seat_state, following)
        button = page.get_by_role("button", name="Send")
        box = await button.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        await button.click()
        await page.wait_for_timeout(CLICK_PAUSES_MS[following])
        await page.mouse.click(x, y, click_count=2)
        await wait_for_change(page, first.id)
        assert first.reply.done() and await read_shown_state(page) == second.id
        assert not second.reply.done()
        assert await page.locator("form.answer :checked").count() == 0


@in_a_browser
async def test_an_answer_that_was_stopped_on_its_way_can_be_sent_again(
    tmp_path: Path, async_browser: Browser
) -> None:
    """The protection against double clicks ends when a form can no longer be under way."""
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        page = await async_browser.new_page()
        await page.clock.install()
        question = put_question(seat_manager, seat_state, "text")
        await page.goto(links["p_1"])
        await fill(page, "text")
        lost_routes: list[Route] = []

        def lose_request(route: Route) -> None:
            lost_routes.append(route)

        await page.route("**/answer", lose_request)
        send = page.get_by_role("button", name="Send")
        await send.click(no_wait_after=True)
        while not lost_routes:
            await page.wait_for_timeout(20)
        session = await page.context.new_cdp_session(page)
        await session.send("Page.stopLoading")
        await page.unroute("**/answer")
        await page.clock.fast_forward(10_000)
        await send.click()
        await wait_for_change(page, question.id)
        assert question.reply.done() and question.reply.result().text == "70"


@in_a_browser
async def test_a_number_stays_as_it_was_typed(tmp_path: Path, async_browser: Browser) -> None:
    """The mouse wheel does not change it, and a comma is not left out of 1,5."""
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        page = await async_browser.new_page(viewport={"width": 800, "height": 400})
        question = put_question(seat_manager, seat_state, "number")
        await page.goto(links["p_1"])
        box = page.locator("#answer [name=a]")
        await box.press_sequentially("1,5")
        await box.hover()
        await page.mouse.wheel(0, -200)
        await page.wait_for_function("scrollY < document.body.scrollHeight - innerHeight - 100")
        assert await box.input_value() == "1,5"
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("a point before decimals")
        assert await box.input_value() == "1,5" and not question.reply.done()


@pytest.mark.nightly(part="pages")
@in_a_browser
@pytest.mark.parametrize("milliseconds", [0, 150, 400])
async def test_a_double_click_neither_withdraws_nor_closes_a_seat(
    tmp_path: Path, milliseconds: int, async_browser: Browser
) -> None:
    async with serve_seats(tmp_path, SeatSettings(), Seat("p_1")) as (seat_manager, links):
        (seat_state,) = seat_manager
        seat_manager.record_consent(seat_state)
        overview = links["All seats, for you alone"]
        for link, name in ((links["p_1"], "Leave and withdraw"), (overview, "Close")):
            page = await async_browser.new_page()
            await page.goto(link)
            leave = page.get_by_role("link", name=name)
            await leave.click(trial=True)  # once the page no longer moves
            box = await leave.bounding_box()
            assert box is not None
            await page.mouse.click(box["x"] + 5, box["y"] + 5)
            await page.wait_for_timeout(milliseconds)
            await page.mouse.click(box["x"] + 5, box["y"] + 5, click_count=2)
            # Which page is open depends on which of the three clicks came after a navigation. The
            # last navigation may still be under way, so the link is opened in another page.
            page = await async_browser.new_page()
            await page.goto(link)
            await page.get_by_role("link", name=name).click()
            await page.locator("button.danger").dblclick()
            await expect(page.get_by_role("alert")).to_have_text(NOT_TICKED)
            assert seat_state.ended == ""


@asynccontextmanager
async def serve_two_seats(
    folder: Path,
) -> AsyncIterator[tuple[SeatManager, list[SeatState], dict[str, str]]]:
    async with serve_seats(folder, SeatSettings(), Seat("p_1"), Seat("p_2")) as (
        seat_manager,
        links,
    ):
        seat_states = list(seat_manager)
        for seat_state in seat_states:
            seat_manager.record_consent(seat_state)
        yield seat_manager, seat_states, links


async def send(
    visitor: aiohttp.ClientSession, link: str, fields: dict[str, str]
) -> tuple[int, str]:
    """Send a form and return the status and the page."""
    async with visitor.post(link, data=fields, allow_redirects=False) as reply:
        return reply.status, await reply.text()


@pytest.mark.parametrize("kind", QUESTIONS_BY_KIND)
async def test_a_form_of_another_question_is_refused(tmp_path: Path, kind: str) -> None:
    """A form of an earlier question, of another seat, or of none leaves the question open."""
    async with (
        serve_two_seats(tmp_path) as (seat_manager, (seat_state, other_seat), links),
        aiohttp.ClientSession() as visitor,
    ):
        link = links["p_1"] + "/answer"
        answered_question, question_of_other_seat = (
            put_question(seat_manager, seat_state, kind),
            put_question(seat_manager, other_seat, kind),
        )
        assert (
            await send(visitor, link, {"question": answered_question.id, **ANSWERS_BY_KIND[kind]})
        )[0] == 303
        open_question = put_question(seat_manager, seat_state, kind)
        ids = (answered_question.id, question_of_other_seat.id, "", "x" * 300)
        declined = {
            "a" if kind == "choice" else "a~out": "~1" if kind in ("choice", "number") else "~0"
        }
        for stale_fields in [*({"question": question_id} for question_id in ids), dict[str, str]()]:
            for answer in (ANSWERS_BY_KIND[kind], declined):
                status, page = await send(visitor, link, {**stale_fields, **answer})
                assert status == 409 and STALE in page and f'value="{open_question.id}"' in page
        assert not open_question.reply.done() and not question_of_other_seat.reply.done()
        # An empty form, as the second click of a double click sends it, is not an answer.
        assert (await send(visitor, link, {"question": open_question.id}))[0] == 422
        answer_and_way_out = {"question": open_question.id, **ANSWERS_BY_KIND[kind], "a~out": "~0"}
        if kind != "choice":
            assert (await send(visitor, link, answer_and_way_out))[0] == 422
        assert not open_question.reply.done()
        assert (await send(visitor, link, {"question": open_question.id, **declined}))[0] == 303
        assert open_question.reply.result().finish == f"refused:{DECLINED}"
        seat_manager.close_seat(other_seat, SEAT_CLOSED)
        status, page = await send(
            visitor, links["p_2"] + "/answer", {"question": question_of_other_seat.id}
        )
        assert status == 409 and "This seat is closed" in page and STALE in page


async def test_the_first_of_two_answers_counts(tmp_path: Path) -> None:
    async with serve_two_seats(tmp_path) as (seat_manager, (seat_state, _), links):
        question = QUESTIONS_BY_KIND["choice"](seat_manager, seat_state)
        async with aiohttp.ClientSession() as visitor:
            form = {"question": question.id, "a": "0"}
            first = asyncio.ensure_future(send(visitor, links["p_1"] + "/answer", form))
            await question.reply  # received, but not on the disk yet
            late_form = {**form, "a": "1"}
            second = asyncio.ensure_future(send(visitor, links["p_1"] + "/answer", late_form))
            async with visitor.get(links["p_1"]) as reply:  # so the second answer has arrived
                assert reply.status == 200
            seat_manager.withdraw_question(question, stored=True)
            assert (await first)[0] == 303
            status, page = await second
            assert status == 409 and (ANSWERED in page or STALE in page)
        assert question.reply.result().text == OPTIONS[0]


@pytest.mark.parametrize("action", ["leave", "close"])
async def test_leaving_and_closing_require_confirmation_and_a_current_page(
    tmp_path: Path, action: str
) -> None:
    async with serve_two_seats(tmp_path) as (seat_manager, (seat_state, _), links):
        overview = links["All seats, for you alone"]
        link = f"{links['p_1']}/leave" if action == "leave" else f"{overview}/close?seat=p_1"
        async with aiohttp.ClientSession() as visitor:

            async def read_form_state() -> dict[str, str]:
                async with visitor.get(link) as reply:
                    page = await reply.text()
                state_value = page.partition('name="state" value="')[2].partition('"')[0]
                assert state_value
                return {"seat": "p_1", "state": state_value}

            first_state = await read_form_state()
            assert seat_state.ended == ""  # opening the page changes nothing
            put_question(seat_manager, seat_state, "text")
            answer = {"question": seat_state.questions[0].id, "a": "A thing said since."}
            assert (await send(visitor, links["p_1"] + "/answer", answer))[0] == 303
            sure = {"sure": "yes"}
            for fields, problem in (
                ({**first_state, **sure}, GONE_ON),
                ({"seat": "p_1", **sure}, GONE_ON),
                (await read_form_state(), NOT_TICKED),
            ):
                status, page = await send(visitor, link, fields)
                assert status == 409 and problem in page and seat_state.ended == ""
            assert (await send(visitor, link, {**await read_form_state(), **sure}))[0] == 303
            assert seat_state.ended == (WITHDRAWN if action == "leave" else SEAT_CLOSED)


class Opinion(BaseModel):
    stance: str = Field(json_schema_extra={"enum": list(with_ways_out(["for", "against"]))})
    strength: int | Literal["cannot_say"] | None


async def protocol(session: Session[StudyConfig]) -> None:
    async def answer_all_kinds(scope: Scope, participant_id: str) -> None:
        speaker = Speaker(
            participant_id, participant_id.upper(), "participant", f"You are {participant_id}."
        )
        for answer in (
            Choice(OPTIONS), Choice(OPTIONS), Choice([*OPTIONS, "None of these"]),
            Number(0, 100), Number(0, 100), Json(Opinion, may_decline=True), Json(Opinion),
        ):  # fmt: skip
            answer_or_missing = await scope.ask(speaker, "Well?", answer_type=answer)
            answer_text = (
                answer_or_missing.reason
                if isinstance(answer_or_missing, Missing)
                else str(answer_or_missing)
            )
            scope.record("got", {"participant_id": participant_id, "said": answer_text})

    await session.child("vote").map(["p_1", "p_2"], answer_all_kinds)


@in_a_browser
async def test_humans_have_ways_out_of_closed_questions(
    tmp_path: Path, async_browser: Browser
) -> None:
    """Ways out are separate from the options. Each is recorded by its name, never as an option."""
    links: dict[str, str] = {}
    linked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def store_link(line: str) -> None:
        name, _, link = line.removeprefix("Seat ").partition(": ")
        links[name] = link
        if line.startswith("All seats"):
            loop.call_soon_threadsafe(linked.set)

    study = Study("ways", "Ways", StudyConfig, protocol)
    running = asyncio.ensure_future(
        asyncio.to_thread(
            folkmoot.run, study, {}, out=tmp_path / "run", seats=("p_1",),
            seat_host=seat.build_seat_host(print_line=store_link), model="synthetic",
        )
    )  # fmt: skip
    steps = [
        [NONE_OF_THESE], [DECLINED], ["option:None of these"], [CANNOT_SAY], [DECLINED],
        ["any of this"], [NONE_OF_THESE, CANNOT_SAY],
    ]  # fmt: skip
    labels = {
        NONE_OF_THESE: "None of these",
        DECLINED: "I prefer not to answer",
        CANNOT_SAY: "I cannot say",
        "any of this": "I prefer not to answer any of this",
    }
    page = await async_browser.new_page()
    linking = asyncio.ensure_future(linked.wait())
    await asyncio.wait({running, linking}, return_when=asyncio.FIRST_COMPLETED)
    assert linked.is_set() or await running
    await page.goto(links["p_1"])
    await page.locator("button.primary").click()
    before = "welcome"
    for step_labels in steps:
        await wait_for_change(page, before)
        await page.locator("form.answer").wait_for()
        before = await read_shown_state(page)
        for label_key in step_labels:
            label = labels.get(label_key, label_key.removeprefix("option:"))
            await page.get_by_label(label, exact=True).check()
        options = await page.locator("fieldset.alone > label.option").all_inner_texts()
        assert [option.strip() for option in options] in (
            [],
            [*OPTIONS],
            [*OPTIONS, "None of these"],
        )
        await page.locator("button.primary").click()
    await page.locator('#seat[data-shows="end"]').wait_for()
    run = await running
    own_answers = run.table("got").filter(participant_id="p_1")["said"].to_list()
    assert own_answers == [
        NONE_OF_THESE, DECLINED, "None of these", CANNOT_SAY, DECLINED, DECLINED,
        str(Opinion(stance=NONE_OF_THESE, strength=CANNOT_SAY)),
    ]  # fmt: skip


BOUNDED_SCHEMA = {
    "type": "object",
    "properties": {
        "full_statement": {"type": "string", "minLength": 5},
        "agree_level": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["full_statement", "agree_level"],
}


async def test_a_name_that_no_other_speaker_has_is_asked_about(tmp_path: Path) -> None:
    """What a human writes about another resident would be dropped with the name."""
    asked = AskContext(("A01", "A02", "A03"), "A01", names={"A02": "Judy", "A03": "Paul"})
    answer_type = Reflection.answer_type(asked)
    async with serve_two_seats(tmp_path) as (seat_manager, (seat_state, _), _links):
        question = enqueue_question(
            seat_manager, seat_state, "?", "json", answer_type=answer_type,
            schema=answer_type.schema,
        )  # fmt: skip

        def send_name(name: str, words_about: str = "Calm lanes.") -> str:
            about = "a.most_compelling"
            words = {f"{about}.opinion_summary": [words_about], f"{about}.why_compelling": [""]}
            stances = ("previous_stance", "current_stance", "change_type")
            choices = {f"a.stance_evolution.{stance}": ["0"] for stance in stances}
            reason = {"a.stance_evolution.change_reason": ["x"], "a.next_round_strategy": ["x"]}
            form = {f"{about}.agent_id": [name], **words, **choices, **reason}
            return parse_form(question, form)[1]

        problem = send_name("the woman with the dog")
        assert "'the woman with the dog' does not name exactly one of the others" in problem
        assert send_name("A02") == send_name("Judy") == ""
        problem = send_name("")
        assert problem.startswith("Most compelling › Agent id: is blank, so the words beside it")
        assert send_name("", words_about="") == ""


async def test_problems_of_answers_are_written_for_humans(tmp_path: Path) -> None:
    """A problem on the page does not mention replies, JSON, schemas or types."""
    async with serve_two_seats(tmp_path) as (seat_manager, (seat_state, _), links):
        whole_number = Number(1, 7, integer=True)
        cases = (
            (
                enqueue_question(
                    seat_manager, seat_state, "?", "number", ("1", "7"), answer_type=whole_number
                ),
                {"a": "500"},
            ),
            (
                enqueue_question(
                    seat_manager, seat_state, "?", "number", ("1", "7"), answer_type=whole_number
                ),
                {"a": "1.5"},
            ),
            (
                enqueue_question(
                    seat_manager, seat_state, "?", "number", ("1", "7"), answer_type=whole_number
                ),
                {"a": "x"},
            ),
            (
                enqueue_question(
                    seat_manager,
                    seat_state,
                    "?",
                    "json",
                    answer_type=Json(SelfDescription),
                    schema=BOUNDED_SCHEMA,
                ),
                {"a.agree_level": "9"},
            ),
            (
                enqueue_question(seat_manager, seat_state, "?", "json", schema=BOUNDED_SCHEMA),
                {"a.full_statement": "no"},
            ),
            (
                enqueue_question(seat_manager, seat_state, "?", "json", schema=BOUNDED_SCHEMA),
                {"a.agree_level": "one"},
            ),
            (
                enqueue_question(
                    seat_manager,
                    seat_state,
                    "?",
                    "json",
                    answer_type=Json(SelfDescription),
                    schema=json.loads("{}"),
                ),
                {"a": '{"age": 9}'},
            ),
            (
                enqueue_question(
                    seat_manager, seat_state, "?", "choice", OPTIONS, answer_type=Choice(OPTIONS)
                ),
                {"a": "7"},
            ),
        )
        async with aiohttp.ClientSession() as visitor:
            for question, fields in cases:
                form = {"question": question.id, **fields}
                status, page = await send(visitor, links["p_1"] + "/answer", form)
                problem = page.partition('role="alert">')[2].partition("</p>")[0]
                assert status == 422 and problem, problem
                for word in ("Reply", "reply", "JSON", "object", "schema", "Input", "type", "_"):
                    assert word not in problem, problem
                seat_manager.withdraw_question(question, stored=True)
