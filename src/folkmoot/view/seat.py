"""The pages of the seats: where people read what was said, and answer.

Served by the process that runs the study, on its own event loop. A link holds a token that can't be
guessed; who has the link has the seat. The page shows what a model in this seat would be sent, and
nothing else.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from folkmoot.conversation.answer_types import ALL_FIELDS, CANNOT_SAY, DECLINED, NONE_OF_THESE
from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.run.execution import Host
from folkmoot.engine.seats.seat_manager import CLOSED, WITHDRAWN, Chair, Desk, Question
from folkmoot.errors import InputError, Problem
from folkmoot.models.images import Part, images_in, placed
from folkmoot.models.request import Message
from folkmoot.randomness import digest
from folkmoot.view import forms
from folkmoot.view.connections import BACKLOG, PageServer, trust_connection
from folkmoot.view.site import (
    POLICY,
    Guard,
    LivePart,
    answer_poll,
    answer_unchanged,
    draw_live_part,
    is_shown,
    own_names,
    page,
    site,
    tag_of,
)

LOOPBACK = "127.0.0.1"
CLOCK_SECONDS = 15  # a page that counts down is told so often how much time is left
TICK_SECONDS = 1.0
LINGER_SECONDS = 60.0  # at the end, for the pages of people who are there
NUDGE_SHARE, NUDGE_SECONDS = 0.25, 30.0  # of the time for an answer that is left, whichever is more
LONGEST_ANSWER = 200_000  # characters
MOST_FIELDS = 2_000
# A form that was sent twice, or from a page that the study has left behind.
ANSWERED = "You had answered that question already. Your first answer counts."
STALE = "That question is not open any more, so nothing was recorded. The study is now here."
GONE_ON = "Something has changed since that page was opened. Please read it again."
NOT_TICKED = "Tick the box if you mean it."
CLOSED_FORMS = {"choice": NONE_OF_THESE, "number": CANNOT_SAY}  # their own ways out
_OWN_IMAGES = "img-src 'self' data:"
# An address whose host holds no wildcard, and whose path is not that of a whole folder.
_NAMEABLE = re.compile(r"(?ai)(https?://[a-z0-9.-]+(?::\d+)?/[!\"$->@-~]*\w)(?:[?#]|$)")


@dataclass(frozen=True, slots=True)
class Said:
    """One thing said, as the page shows it. `whose`: mine, theirs, or asked (a question
    put earlier)."""

    name: str
    text: str
    whose: str


def app(desk: Desk, guard: Guard) -> Starlette:
    """The pages of a desk."""
    pages = _Pages(desk)
    routes = [
        Route("/seat/{token}", pages.show),
        Route("/seat/{token}/agree", pages.agree, methods=["POST"]),
        Route("/seat/{token}/answer", pages.answer, methods=["POST"]),
        Route("/seat/{token}/leave", pages.leave, methods=["GET", "POST"]),
        Route("/seat/{token}/news", pages.news),
        Route("/seats/{token}", pages.overview),
        Route("/seats/{token}/live", pages.live),
        Route("/seats/{token}/close", pages.close, methods=["GET", "POST"]),
    ]
    return site(routes, guard)


class _Pages:
    """The handlers, with the desk that they share."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def show(self, request: Request) -> Response:
        chair = self._chair(request)
        self.desk.note_ids(chair, request.query_params)
        await self.desk.kept()
        return self._page(chair)

    async def agree(self, request: Request) -> Response:
        chair = self._chair(request)
        self.desk.agree(chair)
        await self.desk.kept()
        return _back(chair)

    async def answer(self, request: Request) -> Response:
        """Take an answer to the question that is open; the reply comes when it is on the disk."""
        chair = self._chair(request)
        sent = await _sent(request)
        asked = _first_of(sent, "question")
        question = self.desk.waiting(chair, asked)
        if question is None:
            return self._page(chair, STALE, status=409)
        if question.reply.done():
            is_theirs = question.reply.result().finish in ("stop", f"refused:{DECLINED}")
            await question.kept.wait()
            return self._page(chair, ANSWERED if is_theirs else STALE, status=409)
        text, problem = _answer(question, sent)
        if problem:
            return self._page(chair, problem, sent, 422)
        if await self.desk.answer(chair, question, text):
            return _back(chair)
        lost = (
            "The study has stopped, and this answer was not saved. Send it again when it goes on."
        )
        return self._page(chair, lost, sent, 503)

    async def leave(self, request: Request) -> Response:
        """Ask whether the person means to withdraw, and withdraw what they wrote."""
        chair = self._chair(request)
        if chair.ended:
            return self._page(chair)
        problem = ""
        if request.method == "POST":
            problem = _problem_with_consent(await _sent(request), _state_of(chair))
            if not problem:
                self.desk.end(chair, WITHDRAWN)
                return _back(chair)
        shown = {"chair": chair, "state": _state_of(chair), "problem": problem}
        return page("seat_leave.html.j2", shown, 409 if problem else 200)

    async def news(self, request: Request) -> Response:
        """What a page that is open must know, where it has changed."""
        chair = self._chair(request)
        question = self.desk.shown(chair)
        shows = "end" if chair.ended else question.id if question else ""
        left = None if question is None or question.left is None else round(question.left)
        tag = tag_of(shows, None if left is None else left // CLOCK_SECONDS)
        if is_shown(request, tag):
            return answer_unchanged(tag)
        return JSONResponse({"shows": shows, "left": left}, headers={"ETag": tag})

    async def overview(self, request: Request) -> Response:
        """All seats, for the researcher."""
        self._check_researcher(request)
        return page("seats.html.j2", {"desk": self.desk, "part": self._seats()})

    async def live(self, request: Request) -> Response:
        """All seats, where something has changed."""
        self._check_researcher(request)
        is_last = all(chair.ended for chair in self.desk)
        return answer_poll(request, self._seats(), is_last=is_last)

    def _seats(self) -> LivePart:
        chairs = list(self.desk)
        conditions = any(chair.place.condition for chair in chairs)
        found = {"desk": self.desk, "chairs": chairs, "conditions": conditions}
        return draw_live_part("_seats.html.j2", found)

    async def close(self, request: Request) -> Response:
        """Ask the researcher whether to close a seat, and close it."""
        self._check_researcher(request)
        is_sent = request.method == "POST"
        sent = await _sent(request) if is_sent else {}
        name = _first_of(sent, "seat") if is_sent else request.query_params.get("seat", "")
        chair = next((chair for chair in self.desk if chair.place.name == name), None)
        if chair is None:
            raise HTTPException(404, "There is no such seat.")
        overview = RedirectResponse(f"/seats/{self.desk.token}", 303)
        if chair.ended:
            return overview
        problem = _problem_with_consent(sent, _state_of(chair)) if is_sent else ""
        if is_sent and not problem:
            self.desk.end(chair, CLOSED)
            return overview
        shown = {"desk": self.desk, "chair": chair, "state": _state_of(chair), "problem": problem}
        return page("seat_close.html.j2", shown, 409 if problem else 200)

    def _chair(self, request: Request) -> Chair:
        token = request.path_params["token"]
        for known, chair in self.desk.chairs.items():
            if secrets.compare_digest(known.encode(), token.encode()):
                trust_connection(request.scope)
                return chair
        raise HTTPException(404, "There is no such seat. Open the whole link that you were given.")

    def _check_researcher(self, request: Request) -> None:
        if not secrets.compare_digest(
            request.path_params["token"].encode(), self.desk.token.encode()
        ):
            raise HTTPException(404)
        trust_connection(request.scope)

    def _page(
        self,
        chair: Chair,
        problem: str = "",
        sent: Mapping[str, Sequence[str]] | None = None,
        status: int = 200,
    ) -> Response:
        desk, settings = self.desk, self.desk.settings
        chair.here = True
        shared = {"chair": chair, "settings": settings, "problem": problem}
        if chair.ended:
            chair.told_end = True
            return page("seat_end.html.j2", shared, status)
        if not chair.agreed:
            return page("seat_welcome.html.j2", {**shared, "readers": desk.readers}, status)
        question = desk.shown(chair)
        if question is None:
            return page("seat_wait.html.j2", shared, status)
        minutes = settings.minutes
        nudge = max(NUDGE_SECONDS, NUDGE_SHARE * 60 * minutes) if minutes else None
        shown = {
            "question": question,
            "scene": question.scene,
            "so_far": so_far(question),
            "form": form_for(question),
            "sent": sent or {},
            "nudge": nudge,
            "parts": partial(parts, images=question.request.images),
        }
        answer = page("seat.html.j2", {**shared, **shown}, status)
        answer.headers["Content-Security-Policy"] = policy_for(question.request.images)
        return answer


def _state_of(chair: Chair) -> str:
    """Return a digest of the state that the page of an irreversible step shows. The page asks
    again if a person has joined or answered since."""
    return digest(chair.place.name, str(chair.agreed), str(chair.answers), size=9).hex()


def _problem_with_consent(sent: Mapping[str, Sequence[str]], state: str) -> str:
    """Why a form does not say that its sender means a step that cannot be undone; else empty."""
    if _first_of(sent, "state") != state:
        return GONE_ON
    return "" if _first_of(sent, "sure") == "yes" else NOT_TICKED


def parts(text: str, images: Collection[str]) -> list[Part]:
    """A text with the images that it shows, where they stand."""
    return placed([Message("user", text)], images)[0][1]


def policy_for(images: Collection[str]) -> str:
    """The policy of a page that shows these images (their words): it may load exactly them. What
    cannot be named exactly is not loaded, and stands there as a link."""
    found = (image.url for words in images for image in images_in(words))
    named = [exact[1] for url in found if (exact := _NAMEABLE.match(url))]
    named = [address.replace(";", "%3B").replace(",", "%2C") for address in named]
    return POLICY.replace(_OWN_IMAGES, " ".join([_OWN_IMAGES, *named]))


def so_far(question: Question) -> list[Said]:
    """What the person heard, as `build_messages` gives it to a model: others bear their names
    where there are several."""
    scene = question.scene
    several = len({u.speaker_id for u in scene.heard} - {"", scene.who.id}) > 1
    return [_said(u, scene.who.id, several) for u in scene.heard]


def _said(u: Utterance, me: str, several: bool) -> Said:
    if not u.speaker_id:
        return Said("", u.text, "asked")
    if u.speaker_id == me:
        return Said("You", u.text, "mine")
    return Said((u.name or u.speaker_id) if several else "", u.text, "theirs")


def form_for(question: Question) -> forms.Field:
    """The form for an answer: by its schema, or by its form and what is offered."""
    schema, scene = question.request.schema, question.scene
    if schema is not None:
        form = forms.form_of(schema)
    elif scene.form == "choice" and scene.offered:
        options = tuple((option, option) for option in scene.offered)
        form = forms.Field("a", "choice", "", required=True, options=options)
    elif scene.form == "number":
        low, high = (float(b) for b in scene.offered) if len(scene.offered) == 2 else (None, None)
        form = forms.Field("a", "number", "", required=True, low=low, high=high)
    else:
        form = forms.Field("a", "text", "", required=True, shortest=1)
    if form.kind == "object":  # the whole of it; its fields have ways out of their own
        return replace(form, ways_out=((forms.DECLINES_ALL, DECLINED),))
    return replace(form, ways_out=forms.ways_out(*_ways_out(question)))


def _ways_out(question: Question) -> list[str]:
    """The ways out of a question: whatever its form, a person may decline to answer it. One that
    is among the options themselves, or that the answer type does not read, is not offered."""
    scene, own = question.scene, []
    if question.request.schema is None and (way := CLOSED_FORMS.get(scene.form)):
        options = {"_".join(re.findall(r"[^\W_]+", option.casefold())) for option in scene.offered}
        if way not in options and not scene.problem_with(way):
            own.append(way)
    return [*own, DECLINED]


def _answer(question: Question, sent: Mapping[str, Sequence[str]]) -> tuple[str | None, str]:
    """Return the reply in a submitted form (None: they decline), and what is wrong with it."""
    form, schema = form_for(question), question.request.schema
    try:
        way = forms.way_out_of(form, sent)
        if way is not None:
            return (None if way == DECLINED else str(way)), ""
        if forms.is_blank(sent):
            return None, _blank(form)
        value = forms.answer_of(form, sent)
    except ValueError as error:
        return None, str(error)
    if schema is not None:
        if problem := forms.problem_with(value, schema):
            return None, problem
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    if len(text) > LONGEST_ANSWER:
        return None, f"Please be shorter: at most {LONGEST_ANSWER:,} characters."
    return text, _for_people(question.scene.problem_with(text), form)


def _blank(form: forms.Field) -> str:
    """What is said where nothing was filled in."""
    what = "choose one of the options" if form.kind == "choice" else "give an answer"
    return f"Please {what}, or say that you prefer not to."


def _for_people(problem: str, form: forms.Field) -> str:
    """Why an answer cannot be read, without what is said to models about the form of a reply."""
    if not problem:
        return ""
    why = problem.replace(ALL_FIELDS, "").removeprefix("The JSON did not fit: ")
    why = why.partition("Reply with")[0].replace("The reply", "Your answer")
    why = why.replace("Input should", "it should").strip(" .")
    what, _, rest = why.partition(": ")
    if rest and re.fullmatch(r"[\w.]+", what):
        why = f"{' › '.join(map(forms.label_of, what.split('.')))}: {rest}"
    if form.kind == "number" and form.low is not None and form.high is not None:
        asked = f"Please give a number from {form.low:g} to {form.high:g}."
    elif form.kind == "choice":
        asked = "Please choose one of the options."
    else:
        asked = "Please change your answer."
    return f"{why}. {asked}" if why else asked


def _first_of(sent: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(sent.get(name, ())), "")


async def _sent(request: Request) -> dict[str, list[str]]:
    """The fields of a form, without files."""
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    found: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            found.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return found


def _back(chair: Chair) -> Response:
    return RedirectResponse(f"/seat/{chair.token}", 303)


# --- serving -------------------------------------------------------------------------------------


def host(
    *,
    address: str = LOOPBACK,
    port: int | None = None,
    public_url: str = "",
    say: Callable[[str], object] = print,
    linger: float = LINGER_SECONDS,
) -> Host:
    """What serves a run's pages: for `RunOptions.host`, and `folkmoot.run(…, host=host())`.

    `public_url` is where people reach this server through a proxy; `say` is told each link. At the
    end the pages stay for `linger` seconds, or until everybody who is there has seen theirs.
    """

    @asynccontextmanager
    async def serve(desk: Desk) -> AsyncIterator[None]:
        listening = _listen(address, port if port is not None else desk.port)
        desk.port = listening.getsockname()[1]
        desk.save()
        shown = f"[{address}]" if ":" in address else address
        base = public_url.rstrip("/") or f"http://{shown}:{desk.port}"
        guard = Guard(
            hosts=own_names(urlsplit(base).hostname or ""),
            methods=frozenset({"GET", "HEAD", "POST"}),
            links_hold_tokens=True,
        )
        pages = app(desk, guard)
        server = _Server(pages)
        for chair in desk:
            say(f"Seat {chair.place.name}: {base}/seat/{chair.token}")
        say(f"All seats, for you alone: {base}/seats/{desk.token}")
        tasks = [
            asyncio.ensure_future(server.serve(sockets=[listening])),
            asyncio.ensure_future(_let_time_pass(desk)),
        ]
        try:
            yield
            desk.finish()
            await _until_told(desk, linger)
        finally:
            tasks[1].cancel()
            server.should_exit = True
            await asyncio.gather(*tasks, return_exceptions=True)

    return serve


class _Server(PageServer):
    """A server that leaves Ctrl-C to the run."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(address: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port or 0))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        where = f"{address}:{port or 0}"
        hint = "close what listens there, or choose another with --port (the links then change)"
        raise InputError(
            Problem(f"cannot listen at {where}: {error.strerror}", hint=hint)
        ) from None
    listening.setblocking(False)
    return listening


async def _let_time_pass(desk: Desk) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        desk.tick()


async def _until_told(desk: Desk, seconds: float) -> None:
    """Wait until everybody who is there has seen the end."""

    async def told() -> None:
        while not desk.gone and not all(c.told_end for c in desk if c.here):
            await asyncio.sleep(0.05)

    with suppress(TimeoutError):
        await asyncio.wait_for(told(), seconds)
        await asyncio.sleep(0.2)  # the last page is on its way
