"""Answers of people: one for each question that they saw, with ways out, refused in plain words."""

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
from playwright.async_api import Browser, Page, expect
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
from folkmoot.view import seat
from folkmoot.view.seat.confirmation import GONE_ON, NOT_TICKED
from folkmoot.view.seat.pages import ANSWERED, STALE
from tests.sweeps import sample_daily
from tests.view.asking import asking, served
from tests.view.conftest import CHROMIUM
from tests.view.test_seat import changed, shows

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
pytestmark = pytest.mark.asyncio(loop_scope="module")
OPTIONS = ("Close the centre", "Keep it open")
Put = Callable[[SeatManager, SeatState], PendingQuestion]
KINDS: dict[str, Put] = {
    "choice": lambda desk, chair: asking(desk, chair, "Which?", "choice", OPTIONS),
    "number": lambda desk, chair: asking(desk, chair, "How sure?", "number", ("0", "100")),
    "text": lambda desk, chair: asking(desk, chair, "Why?", "text"),
    "own card": lambda desk, chair: asking(
        desk, chair, "Who are you?", "json", schema=SelfDescription.model_json_schema()
    ),
}
SENT = {
    "choice": {"a": "1"},
    "number": {"a": "70"},
    "text": {"a": "Calm."},
    "own card": {"a.age": "40"},
}


def put(desk: SeatManager, chair: SeatState, kind: str) -> PendingQuestion:
    """A question whose answer is on the disk as soon as it is given."""
    question = KINDS[kind](desk, chair)
    question.reply.add_done_callback(lambda _: desk.withdraw_question(question, stored=True))
    return question


async def fill(page: Page, kind: str) -> None:
    if kind == "choice":
        await page.get_by_label(OPTIONS[0]).check()
    elif kind == "own card":
        await page.get_by_role("spinbutton", name="Age").fill("40")
    else:
        await page.locator("#answer [name=a]").fill("70")


# Milliseconds between the halves of a double click, and the question that comes meanwhile.
BETWEEN = {"choice": 0, "number": 150, "text": 250, "own card": 400}


@in_a_browser
@pytest.mark.parametrize(
    ("kind", "following"),
    sample_daily(
        [*product(KINDS, BETWEEN)],
        daily=[("choice", "choice"), ("text", "number")],
        part="pages",
    ),
)
async def test_a_double_click_answers_one_question(
    tmp_path: Path, kind: str, following: str, async_browser: Browser
) -> None:
    """Whatever comes next, the second click answers nothing that the person has not seen."""
    async with served(tmp_path, SeatSettings(), Seat("p_1")) as (desk, links):
        (chair,) = desk
        desk.record_consent(chair)
        page = await async_browser.new_page(viewport={"width": 800, "height": 900})
        first = put(desk, chair, kind)
        await page.goto(links["p_1"])
        await fill(page, kind)
        second = put(desk, chair, following)
        button = page.get_by_role("button", name="Send")
        box = await button.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        await button.click()
        await page.wait_for_timeout(BETWEEN[following])
        await page.mouse.click(x, y, click_count=2)
        await changed(page, first.id)
        assert first.reply.done() and await shows(page) == second.id
        assert not second.reply.done()
        assert await page.locator("form.answer :checked").count() == 0


@in_a_browser
@pytest.mark.parametrize("milliseconds", sample_daily([0, 150, 400], [150], "pages"))
async def test_a_double_click_withdraws_nobody_and_closes_no_seat(
    tmp_path: Path, milliseconds: int, async_browser: Browser
) -> None:
    async with served(tmp_path, SeatSettings(), Seat("p_1")) as (desk, links):
        (chair,) = desk
        desk.record_consent(chair)
        page = await async_browser.new_page()
        overview = links["All seats, for you alone"]
        for link, name in ((links["p_1"], "Leave and withdraw"), (overview, "Close")):
            await page.goto(link)
            leave = page.get_by_role("link", name=name)
            await leave.click(trial=True)  # once the page no longer moves
            box = await leave.bounding_box()
            assert box is not None
            await page.mouse.click(box["x"] + 5, box["y"] + 5)
            await page.wait_for_timeout(milliseconds)
            await page.mouse.click(box["x"] + 5, box["y"] + 5, click_count=2)
            # Which page is open now depends on which of the three clicks came after a navigation.
            await page.goto(link)
            await leave.click()
            await page.locator("button.danger").dblclick()
            await expect(page.get_by_role("alert")).to_have_text(NOT_TICKED)
            assert chair.ended == ""


@asynccontextmanager
async def two_seats(
    folder: Path,
) -> AsyncIterator[tuple[SeatManager, list[SeatState], dict[str, str]]]:
    async with served(folder, SeatSettings(), Seat("p_1"), Seat("p_2")) as (desk, links):
        chairs = list(desk)
        for chair in chairs:
            desk.record_consent(chair)
        yield desk, chairs, links


async def send(visitor: aiohttp.ClientSession, link: str, sent: dict[str, str]) -> tuple[int, str]:
    """The status and the page that a form gets, as it is sent."""
    async with visitor.post(link, data=sent, allow_redirects=False) as reply:
        return reply.status, await reply.text()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_form_of_another_question_is_refused(tmp_path: Path, kind: str) -> None:
    """Of one answered before, of another seat, of none: the open question stays open."""
    async with (
        two_seats(tmp_path) as (desk, (chair, other), links),
        aiohttp.ClientSession() as visitor,
    ):
        link = links["p_1"] + "/answer"
        before, theirs = put(desk, chair, kind), put(desk, other, kind)
        assert (await send(visitor, link, {"question": before.id, **SENT[kind]}))[0] == 303
        now = put(desk, chair, kind)
        ids = (before.id, theirs.id, "", "x" * 300)
        declined = {
            "a" if kind == "choice" else "a~out": "~1" if kind in ("choice", "number") else "~0"
        }
        for stale in [*({"question": i} for i in ids), dict[str, str]()]:
            for answer in (SENT[kind], declined):
                status, page = await send(visitor, link, {**stale, **answer})
                assert status == 409 and STALE in page and f'value="{now.id}"' in page
        assert not now.reply.done() and not theirs.reply.done()
        # Nothing filled in, as the second half of a double click sends it, is no answer.
        assert (await send(visitor, link, {"question": now.id}))[0] == 422
        both = {"question": now.id, **SENT[kind], "a~out": "~0"}
        if kind != "choice":
            assert (await send(visitor, link, both))[0] == 422
        assert not now.reply.done()
        assert (await send(visitor, link, {"question": now.id, **declined}))[0] == 303
        assert now.reply.result().finish == f"refused:{DECLINED}"
        desk.close_seat(other, SEAT_CLOSED)
        status, page = await send(visitor, links["p_2"] + "/answer", {"question": theirs.id})
        assert status == 409 and "This seat is closed" in page


async def test_the_first_of_two_answers_counts(tmp_path: Path) -> None:
    async with two_seats(tmp_path) as (desk, (chair, _), links):
        question = KINDS["choice"](desk, chair)
        async with aiohttp.ClientSession() as visitor:
            form = {"question": question.id, "a": "0"}
            first = asyncio.ensure_future(send(visitor, links["p_1"] + "/answer", form))
            await question.reply  # it came, and is not on the disk yet
            late = {**form, "a": "1"}
            second = asyncio.ensure_future(send(visitor, links["p_1"] + "/answer", late))
            async with visitor.get(links["p_1"]) as reply:  # what was sent before has come
                assert reply.status == 200
            desk.withdraw_question(question, stored=True)
            assert (await first)[0] == 303
            status, page = await second
            assert status == 409 and (ANSWERED in page or STALE in page)
        assert question.reply.result().text == OPTIONS[0]


@pytest.mark.parametrize("what", ["leave", "close"])
async def test_what_cannot_be_undone_is_asked_for_and_refused_where_it_is_stale(
    tmp_path: Path, what: str
) -> None:
    async with two_seats(tmp_path) as (desk, (chair, _), links):
        overview = links["All seats, for you alone"]
        link = f"{links['p_1']}/leave" if what == "leave" else f"{overview}/close?seat=p_1"
        async with aiohttp.ClientSession() as visitor:

            async def state() -> dict[str, str]:
                async with visitor.get(link) as reply:
                    page = await reply.text()
                found = page.partition('name="state" value="')[2].partition('"')[0]
                assert found
                return {"seat": "p_1", "state": found}

            seen = await state()
            assert chair.ended == ""  # to look at the page does nothing
            put(desk, chair, "text")
            answer = {"question": chair.questions[0].id, "a": "A thing said since."}
            assert (await send(visitor, links["p_1"] + "/answer", answer))[0] == 303
            sure = {"sure": "yes"}
            for sent, says in (
                ({**seen, **sure}, GONE_ON),
                ({"seat": "p_1", **sure}, GONE_ON),
                (await state(), NOT_TICKED),
            ):
                status, page = await send(visitor, link, sent)
                assert status == 409 and says in page and chair.ended == ""
            assert (await send(visitor, link, {**await state(), **sure}))[0] == 303
            assert chair.ended == (WITHDRAWN if what == "leave" else SEAT_CLOSED)


class Opinion(BaseModel):
    stance: str = Field(json_schema_extra={"enum": list(with_ways_out(["for", "against"]))})
    strength: int | Literal["cannot_say"] | None


async def protocol(session: Session[StudyConfig]) -> None:
    async def one(scope: Scope, who: str) -> None:
        speaker = Speaker(who, who.upper(), "participant", f"You are {who}.")
        for answer in (
            Choice(OPTIONS), Choice(OPTIONS), Choice([*OPTIONS, "None of these"]),
            Number(0, 100), Number(0, 100), Json(Opinion, may_decline=True), Json(Opinion),
        ):  # fmt: skip
            got = await scope.ask(speaker, "Well?", answer_type=answer)
            said = got.reason if isinstance(got, Missing) else str(got)
            scope.record("got", {"participant_id": who, "said": said})

    await session.child("vote").map(["p_1", "p_2"], one)


@in_a_browser
async def test_people_have_ways_out_of_closed_answers(
    tmp_path: Path, async_browser: Browser
) -> None:
    """Small and apart from the options; each is recorded by its name, and never as an option."""
    links: dict[str, str] = {}
    linked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def say(line: str) -> None:
        name, _, link = line.removeprefix("Seat ").partition(": ")
        links[name] = link
        if line.startswith("All seats"):
            loop.call_soon_threadsafe(linked.set)

    study = Study("ways", "Ways", StudyConfig, protocol)
    running = asyncio.ensure_future(
        asyncio.to_thread(
            folkmoot.run, study, {}, out=tmp_path / "run", seats=("p_1",),
            seat_host=seat.build_seat_host(print_line=say), model="synthetic",
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
    for ways in steps:
        await changed(page, before)
        await page.locator("form.answer").wait_for()
        before = await shows(page)
        for way in ways:
            label = labels.get(way, way.removeprefix("option:"))
            await page.get_by_label(label, exact=True).check()
        options = await page.locator("fieldset.alone > label.option").all_inner_texts()
        assert [o.strip() for o in options] in ([], [*OPTIONS], [*OPTIONS, "None of these"])
        await page.locator("button.primary").click()
    await page.locator('#seat[data-shows="end"]').wait_for()
    run = await running
    mine = run.table("got").filter(participant_id="p_1")["said"].to_list()
    assert mine == [
        NONE_OF_THESE, DECLINED, "None of these", CANNOT_SAY, DECLINED, DECLINED,
        str(Opinion(stance=NONE_OF_THESE, strength=CANNOT_SAY)),
    ]  # fmt: skip


BOUNDED = {
    "type": "object",
    "properties": {
        "full_statement": {"type": "string", "minLength": 5},
        "agree_level": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["full_statement", "agree_level"],
}


async def test_a_refusal_speaks_to_people(tmp_path: Path) -> None:
    """Nothing on the page speaks of replies, JSON, schemas or types."""
    async with two_seats(tmp_path) as (desk, (chair, _), links):
        whole = Number(1, 7, integer=True)
        cases = (
            (asking(desk, chair, "?", "number", ("1", "7"), wanted=whole), {"a": "500"}),
            (asking(desk, chair, "?", "number", ("1", "7"), wanted=whole), {"a": "1.5"}),
            (asking(desk, chair, "?", "number", ("1", "7"), wanted=whole), {"a": "x"}),
            (
                asking(desk, chair, "?", "json", wanted=Json(SelfDescription), schema=BOUNDED),
                {"a.agree_level": "9"},
            ),
            (asking(desk, chair, "?", "json", schema=BOUNDED), {"a.full_statement": "no"}),
            (asking(desk, chair, "?", "json", schema=BOUNDED), {"a.agree_level": "one"}),
            (
                asking(
                    desk, chair, "?", "json", wanted=Json(SelfDescription), schema=json.loads("{}")
                ),
                {"a": '{"age": 9}'},
            ),
            (asking(desk, chair, "?", "choice", OPTIONS, wanted=Choice(OPTIONS)), {"a": "7"}),
        )
        async with aiohttp.ClientSession() as visitor:
            for question, sent in cases:
                form = {"question": question.id, **sent}
                status, page = await send(visitor, links["p_1"] + "/answer", form)
                told = page.partition('role="alert">')[2].partition("</p>")[0]
                assert status == 422 and told, told
                for word in ("Reply", "reply", "JSON", "object", "schema", "Input", "type", "_"):
                    assert word not in told, told
                desk.withdraw_question(question, stored=True)
