"""The pages of the seats, on which human participants read the conversation and answer.

The process of the run serves them on its event loop. A link holds a secret token. Whoever opens the
link has the seat. The page shows only the texts that a model in this seat would be sent.
"""

from __future__ import annotations

import asyncio
import json
import math
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

from folkmoot.conversation.answer_types import (
    ALL_FIELDS_INSTRUCTION,
    CANNOT_SAY,
    DECLINED,
    NONE_OF_THESE,
)
from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.run.execution import SeatHost
from folkmoot.engine.seats.seat_manager import (
    SEAT_CLOSED,
    WITHDRAWN,
    PendingQuestion,
    SeatManager,
    SeatState,
)
from folkmoot.errors import InputError, Problem
from folkmoot.models.images import MessagePart, find_image_references, split_messages
from folkmoot.models.request import Message
from folkmoot.randomness import digest
from folkmoot.view import forms
from folkmoot.view.connections import BACKLOG, PageServer, trust_connection
from folkmoot.view.entry import EntryPages
from folkmoot.view.site import (
    POLICY,
    Guard,
    LivePart,
    answer_poll,
    answer_unchanged,
    create_app,
    draw_live_part,
    is_shown,
    own_names,
    render_page,
    tag_of,
)

LOOPBACK = "127.0.0.1"
# A page with a countdown is updated in steps of this length.
CLOCK_SECONDS = 15
TICK_SECONDS = 1.0
# The pages stay available for this long at the end, so that participants see the last one.
LINGER_SECONDS = 60.0
# The page reminds a participant when this share of the answer time is left, or this many seconds if
# they are longer.
NUDGE_SHARE, NUDGE_SECONDS = 0.25, 30.0
# In characters.
LONGEST_ANSWER = 200_000
# Messages for a form that was sent twice, or from a page of an earlier question.
ANSWERED = "You had answered that question already. Your first answer counts."
STALE = "That question is not open any more, so nothing was recorded. The study is now here."
GONE_ON = "Something has changed since that page was opened. Please read it again."
NOT_TICKED = "Tick the box if you mean it."
# Answer kinds that have a specific way out besides declining.
CLOSED_FORMS = {"choice": NONE_OF_THESE, "number": CANNOT_SAY}
_OWN_IMAGES = "img-src 'self' data:"
# An image address that a policy can name exactly: the host has no wildcard, and the path is not a
# folder, which would allow all files in it.
_NAMEABLE = re.compile(r"(?ai)(https?://[a-z0-9.-]+(?::\d+)?/[!\"$->@-~]*\w)(?:[?#]|$)")


@dataclass(frozen=True, slots=True)
class UtteranceView:
    """One utterance of the history on the page of a seat."""

    name: str
    text: str
    # One of "mine", "theirs" and "asked", where "asked" is an earlier question.
    origin: str


def create_seat_app(seat_manager: SeatManager, guard: Guard) -> Starlette:
    """Create the ASGI app with the pages of the seats."""
    pages = _Pages(seat_manager)
    routes = [
        *(pages.entry.page_routes() if pages.entry is not None else ()),
        Route("/seat/{token}/noted", pages.note_code, methods=["POST"]),
        Route("/seats/{token}/start", pages.start_study, methods=["GET", "POST"]),
        Route("/seat/{token}", pages.show_seat),
        Route("/seat/{token}/agree", pages.record_consent, methods=["POST"]),
        Route("/seat/{token}/answer", pages.answer, methods=["POST"]),
        Route("/seat/{token}/leave", pages.leave_study, methods=["GET", "POST"]),
        Route("/seat/{token}/news", pages.report_news),
        Route("/seats/{token}", pages.seats_overview),
        Route("/seats/{token}/live", pages.seats_update),
        Route("/seats/{token}/close", pages.close, methods=["GET", "POST"]),
    ]
    return create_app(routes, guard)


class _Pages:
    """The request handlers of the seats. They share the seat manager."""

    def __init__(self, seat_manager: SeatManager) -> None:
        self.seat_manager = seat_manager
        self.entry = (
            None if seat_manager.lobby is None else EntryPages(seat_manager, seat_manager.lobby)
        )

    async def show_seat(self, request: Request) -> Response:
        seat_state = self._find_seat(request)
        self.seat_manager.record_link_ids(seat_state, request.query_params)
        await self.seat_manager.wait_until_saved()
        return self._render_page(seat_state)

    async def record_consent(self, request: Request) -> Response:
        seat_state = self._find_seat(request)
        self.seat_manager.record_consent(seat_state)
        await self.seat_manager.wait_until_saved()
        return _redirect_to_seat(seat_state)

    async def note_code(self, request: Request) -> Response:
        """Show the lobby after the participant has noted the return code."""
        seat_state = self._find_seat(request)
        self.seat_manager.note_code(seat_state)
        await self.seat_manager.wait_until_saved()
        return _redirect_to_seat(seat_state)

    async def answer(self, request: Request) -> Response:
        """Record an answer to the open question. Respond after the answer is on disk."""
        seat_state = self._find_seat(request)
        form = await forms.read_form(request)
        question_id = forms.first_of(form, "question")
        question = self.seat_manager.find_pending_question(seat_state, question_id)
        if question is None:
            return self._render_page(seat_state, STALE, status=409)
        # The question may have been closed by an answer, by the end of its time or by the end of
        # the study.
        if question.reply.done():
            is_theirs = question.reply.result().finish in ("stop", f"refused:{DECLINED}")
            await question.saved.wait()
            return self._render_page(seat_state, ANSWERED if is_theirs else STALE, status=409)
        text, problem = _parse_form(question, form)
        if problem:
            return self._render_page(seat_state, problem, form, 422)
        if await self.seat_manager.answer(seat_state, question, text):
            return _redirect_to_seat(seat_state)
        message = (
            "The study has stopped, and this answer was not saved. Send it again when it goes on."
        )
        return self._render_page(seat_state, message, form, 503)

    async def leave_study(self, request: Request) -> Response:
        """Ask for confirmation, then withdraw the participant and everything they wrote."""
        seat_state = self._find_seat(request)
        if seat_state.ended:
            return self._render_page(seat_state)
        problem = ""
        if request.method == "POST":
            problem = _problem_with_consent(await forms.read_form(request), _state_of(seat_state))
            if not problem and self._is_in_lobby(seat_state):
                return await self._leave_lobby(seat_state)
            if not problem:
                self.seat_manager.close_seat(seat_state, WITHDRAWN)
                return _redirect_to_seat(seat_state)
        context = {"chair": seat_state, "state": _state_of(seat_state), "problem": problem}
        return render_page("seat_leave.html.j2", context, 409 if problem else 200)

    async def _leave_lobby(self, seat_state: SeatState) -> Response:
        """Free the seat of a participant who has not been asked a question yet."""
        # The last page is drawn before the seat forgets its participant.
        context = {
            "chair": replace(seat_state, ended=WITHDRAWN),
            "settings": self.seat_manager.settings,
        }
        response = render_page("seat_end.html.j2", context)
        self.seat_manager.release_seat(seat_state)
        await self.seat_manager.wait_until_saved()
        if self.entry is not None:
            self.entry.forget_visit(response)
        return response

    def _is_in_lobby(self, seat_state: SeatState) -> bool:
        lobby = self.seat_manager.lobby
        return (
            lobby is not None and lobby.is_open and seat_state.has_agreed and not seat_state.ended
        )

    async def report_news(self, request: Request) -> Response:
        """Return the question shown and the time left, if they have changed."""
        seat_state = self._find_seat(request)
        idle, typed = (_seconds_in(request, name) for name in ("idle", "typed"))
        seat_state.activity.note(self.seat_manager.clock(), idle, typed)
        question, lobby = self.seat_manager.current_question(seat_state), self.seat_manager.lobby
        seconds_left = None if question is None else question.left
        taken_text = ""
        if seat_state.ended:
            shown_page = "end"
        elif seat_state.return_code:
            shown_page = "code"
        elif lobby is not None and self._is_in_lobby(seat_state):
            shown_page, seconds_left = "lobby", lobby.left
            taken_text = describe_taken_seats(self.seat_manager)
        else:
            shown_page = question.id if question else ""
        tag = tag_of(
            shown_page,
            taken_text,
            None if seconds_left is None else round(seconds_left) // CLOCK_SECONDS,
        )
        if is_shown(request, tag):
            return answer_unchanged(tag)
        news = {
            "shows": shown_page,
            "left": None if seconds_left is None else round(seconds_left),
            "taken": taken_text,
        }
        return JSONResponse(news, headers={"ETag": tag})

    async def seats_overview(self, request: Request) -> Response:
        """Show the list of all seats to the researcher."""
        self._check_researcher(request)
        return render_page(
            "seats.html.j2",
            {"desk": self.seat_manager, "part": self._seats_part(), "entry": self._entry_link()},
        )

    async def seats_update(self, request: Request) -> Response:
        """Return the list of all seats if it has changed."""
        self._check_researcher(request)
        is_last = all(seat_state.ended for seat_state in self.seat_manager)
        return answer_poll(request, self._seats_part(), is_last=is_last)

    def _entry_link(self) -> str:
        lobby = self.seat_manager.lobby
        return "" if lobby is None else f"{self.seat_manager.address}/enter/{lobby.token}"

    def _seats_part(self) -> LivePart:
        seat_states = list(self.seat_manager)
        has_conditions = any(seat_state.seat.condition for seat_state in seat_states)
        context = {"desk": self.seat_manager, "chairs": seat_states, "conditions": has_conditions}
        lobby = self.seat_manager.lobby
        is_waiting = lobby is not None and lobby.is_open
        seconds_left = lobby.left if lobby is not None else None
        context["given"] = {
            seat_state.seat.name for seat_state in seat_states if self._is_given(seat_state)
        }
        context.update(lobby=is_waiting, taken=describe_taken_seats(self.seat_manager))
        minutes = None if seconds_left is None else max(1, math.ceil(seconds_left / 60))
        context.update(minutes=minutes)
        return draw_live_part("_seats.html.j2", context)

    async def close(self, request: Request) -> Response:
        """Ask the researcher for confirmation, then close one seat."""
        self._check_researcher(request)
        is_sent = request.method == "POST"
        sent = await forms.read_form(request) if is_sent else {}
        name = forms.first_of(sent, "seat") if is_sent else request.query_params.get("seat", "")
        seat_state = next(
            (seat_state for seat_state in self.seat_manager if seat_state.seat.name == name), None
        )
        if seat_state is None:
            raise HTTPException(404, "There is no such seat.")
        overview = RedirectResponse(f"/seats/{self.seat_manager.token}", 303)
        if seat_state.ended:
            return overview
        problem = _problem_with_consent(sent, _state_of(seat_state)) if is_sent else ""
        if is_sent and not problem:
            self.seat_manager.close_seat(seat_state, SEAT_CLOSED)
            return overview
        context = {
            "desk": self.seat_manager,
            "chair": seat_state,
            "state": _state_of(seat_state),
            "problem": problem,
        }
        return render_page("seat_close.html.j2", context, 409 if problem else 200)

    async def start_study(self, request: Request) -> Response:
        """Ask the researcher for confirmation, then start the study with all in the lobby."""
        self._check_researcher(request)
        overview = RedirectResponse(f"/seats/{self.seat_manager.token}", 303)
        lobby = self.seat_manager.lobby
        if lobby is None or not lobby.is_open:
            return overview
        taken_text = describe_taken_seats(self.seat_manager)
        state, problem = digest(taken_text, size=9).hex(), ""
        if request.method == "POST":
            problem = _problem_with_consent(await forms.read_form(request), state)
            if not problem:
                self.seat_manager.start_now()
                return overview
        context = {
            "desk": self.seat_manager,
            "taken": taken_text,
            "state": state,
            "problem": problem,
        }
        context["nobody"] = not lobby.occupants
        return render_page("seats_start.html.j2", context, 409 if problem else 200)

    def _find_seat(self, request: Request) -> SeatState:
        token = request.path_params["token"]
        # Each token is compared in constant time, so that response times reveal nothing about it.
        for known_token, seat_state in self.seat_manager.seat_states.items():
            if secrets.compare_digest(known_token.encode(), token.encode()) and self._is_given(
                seat_state
            ):
                trust_connection(request.scope)
                return seat_state
        raise HTTPException(404, "There is no such seat. Open the whole link that you were given.")

    def _is_given(self, seat_state: SeatState) -> bool:
        """Return whether a human has the link of this seat. An open entry gives links later."""
        lobby = self.seat_manager.lobby
        return lobby is None or seat_state.seat.name in lobby.occupants

    def _check_researcher(self, request: Request) -> None:
        if not secrets.compare_digest(
            request.path_params["token"].encode(), self.seat_manager.token.encode()
        ):
            raise HTTPException(404)
        trust_connection(request.scope)

    def _render_page(
        self,
        seat_state: SeatState,
        problem: str = "",
        sent: Mapping[str, Sequence[str]] | None = None,
        status: int = 200,
    ) -> Response:
        seat_manager, settings = self.seat_manager, self.seat_manager.settings
        # At the end, the server waits only for seats with a page that was opened during this
        # process.
        seat_state.is_connected = True
        seat_state.activity.note(seat_manager.clock(), 0.0, None)
        shared_context = {"chair": seat_state, "settings": settings, "problem": problem}
        if seat_state.ended:
            seat_state.end_shown = True
            return render_page("seat_end.html.j2", shared_context, status)
        if seat_state.return_code:
            return render_page("seat_code.html.j2", shared_context, status)
        if seat_manager.lobby is not None and self._is_in_lobby(seat_state):
            lobby_context = {
                "taken": describe_taken_seats(seat_manager),
                "left": seat_manager.lobby.left,
            }
            return render_page("seat_lobby.html.j2", {**shared_context, **lobby_context}, status)
        if not seat_state.has_agreed:
            return render_page(
                "seat_welcome.html.j2", {**shared_context, "readers": seat_manager.readers}, status
            )
        question = seat_manager.current_question(seat_state)
        if question is None:
            return render_page("seat_wait.html.j2", shared_context, status)
        minutes = settings.minutes
        nudge = max(NUDGE_SECONDS, NUDGE_SHARE * 60 * minutes) if minutes else None
        context = {
            "question": question,
            "scene": question.view,
            "so_far": so_far(question),
            "form": form_for(question),
            "sent": sent or {},
            "nudge": nudge,
            "number": max(1, seat_state.question_count - len(seat_state.questions) + 1),
            "expected": seat_manager.expected_questions,
            "parts": partial(split_images, images=question.request.images),
        }
        response = render_page("seat.html.j2", {**shared_context, **context}, status)
        response.headers["Content-Security-Policy"] = policy_for(question.request.images)
        return response


def _seconds_in(request: Request, name: str) -> float | None:
    """Return a number of seconds from the query. Returns None if there is no valid number."""
    text = request.query_params.get(name, "")
    return float(text) if text.isdecimal() and len(text) < 9 else None


def _state_of(seat_state: SeatState) -> str:
    """Return a digest of a seat's state, which the confirmation of a final step sends back.

    If a participant has joined or answered since the page was shown, the digest differs. The page
    then asks for confirmation again.
    """
    return digest(
        seat_state.seat.name, str(seat_state.has_agreed), str(seat_state.answers), size=9
    ).hex()


def _problem_with_consent(sent: Mapping[str, Sequence[str]], state: str) -> str:
    """Return why a form does not confirm an irreversible step. Returns "" if it does."""
    if forms.first_of(sent, "state") != state:
        return GONE_ON
    return "" if forms.first_of(sent, "sure") == "yes" else NOT_TICKED


def describe_taken_seats(seat_manager: SeatManager) -> str:
    """Return a text on how many open seats are taken."""
    seat_states = [seat_state for seat_state in seat_manager if not seat_state.ended]
    taken_count = sum(seat_state.has_agreed for seat_state in seat_states)
    return f"{taken_count} of {len(seat_states)} seats {'is' if taken_count == 1 else 'are'} taken."


def split_images(text: str, images: Collection[str]) -> list[MessagePart]:
    """Split a text into text parts and the images that it references."""
    return split_messages([Message("user", text)], images)[0][1]


def policy_for(images: Collection[str]) -> str:
    """Return the content security policy of a page that may load only these images.

    `images` holds the texts that reference them. If a policy cannot name an image exactly, the page
    shows the image as a link.
    """
    urls = (image.url for words in images for image in find_image_references(words))
    image_addresses = [match[1] for url in urls if (match := _NAMEABLE.match(url))]
    # A semicolon or a comma would end the entry in the policy.
    image_addresses = [
        address.replace(";", "%3B").replace(",", "%2C") for address in image_addresses
    ]
    return POLICY.replace(_OWN_IMAGES, " ".join([_OWN_IMAGES, *image_addresses]))


def so_far(question: PendingQuestion) -> list[UtteranceView]:
    """Return the history for the page, which is the same that a model would be sent.

    If there are several other speakers, their names are shown.
    """
    view = question.view
    has_several_speakers = (
        len({utterance.speaker_id for utterance in view.history} - {"", view.speaker.id}) > 1
    )
    return [
        _format_history(utterance, view.speaker.id, has_several_speakers)
        for utterance in view.history
    ]


def _format_history(
    utterance: Utterance, speaker_id: str, has_several_speakers: bool
) -> UtteranceView:
    if not utterance.speaker_id:
        return UtteranceView("", utterance.text, "asked")
    if utterance.speaker_id == speaker_id:
        return UtteranceView("You", utterance.text, "mine")
    return UtteranceView(
        (utterance.name or utterance.speaker_id) if has_several_speakers else "",
        utterance.text,
        "theirs",
    )


def form_for(question: PendingQuestion) -> forms.FormField:
    """Build the form for an answer from its JSON schema, or from its answer kind and options."""
    schema, view = question.request.schema, question.view
    if schema is not None:
        form = forms.form_of(schema)
    elif view.answer_kind == "choice" and view.options:
        options = tuple((option, option) for option in view.options)
        form = forms.FormField("a", "choice", "", required=True, options=options)
    elif view.answer_kind == "number":
        low, high = (
            (float(option) for option in view.options) if len(view.options) == 2 else (None, None)
        )
        form = forms.FormField("a", "number", "", required=True, low=low, high=high)
    else:
        form = forms.FormField("a", "text", "", required=True, shortest=1)
    # Declining refers to the whole object. Its fields have their own ways out.
    if form.kind == "object":
        return replace(form, ways_out=((forms.DECLINES_ALL, DECLINED),))
    return replace(form, ways_out=forms.ways_out(*_ways_out(question)))


def _ways_out(question: PendingQuestion) -> list[str]:
    """Return the ways out of a question. A participant may always decline.

    A way out is left out if it equals an option or if the answer type cannot parse it.
    """
    view, ways_out = question.view, []
    if question.request.schema is None and (way := CLOSED_FORMS.get(view.answer_kind)):
        options = {"_".join(re.findall(r"[^\W_]+", option.casefold())) for option in view.options}
        if way not in options and not view.describe_parse_problem(way):
            ways_out.append(way)
    return [*ways_out, DECLINED]


def _parse_form(
    question: PendingQuestion, sent: Mapping[str, Sequence[str]]
) -> tuple[str | None, str]:
    """Return the reply in a submitted form, and its problem or "".

    The reply is None if the participant declines.
    """
    form, schema = form_for(question), question.request.schema
    try:
        way = forms.way_out_of(form, sent)
        if way is not None:
            return (None if way == DECLINED else str(way)), ""
        if forms.is_blank(sent):
            return None, _blank_answer_message(form)
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
    return text, _word_for_humans(question.view.describe_parse_problem(text), form)


def _blank_answer_message(form: forms.FormField) -> str:
    """Return the message that a participant sees after submitting an empty form."""
    request = "choose one of the options" if form.kind == "choice" else "give an answer"
    return f"Please {request}, or say that you prefer not to."


def _word_for_humans(problem: str, form: forms.FormField) -> str:
    """Rewrite a parse problem for humans. Instructions on the format for models are left out."""
    if not problem:
        return ""
    problem_text = problem.replace(ALL_FIELDS_INSTRUCTION, "").removeprefix(
        "The JSON did not fit: "
    )
    problem_text = problem_text.partition("Reply with")[0].replace("The reply", "Your answer")
    problem_text = problem_text.replace("Input should", "it should").strip(" .")
    field_path, _, rest = problem_text.partition(": ")
    if rest and re.fullmatch(r"[\w.]+", field_path):
        problem_text = f"{' › '.join(map(forms.label_of, field_path.split('.')))}: {rest}"
    if form.kind == "number" and form.low is not None and form.high is not None:
        request = f"Please give a number from {form.low:g} to {form.high:g}."
    elif form.kind == "choice":
        request = "Please choose one of the options."
    else:
        request = "Please change your answer."
    return f"{problem_text}. {request}" if problem_text else request


def _redirect_to_seat(seat_state: SeatState) -> Response:
    return RedirectResponse(f"/seat/{seat_state.token}", 303)


# --- serving -------------------------------------------------------------------------------------


def build_seat_host(
    *,
    address: str = LOOPBACK,
    port: int | None = None,
    public_url: str = "",
    print_line: Callable[[str], object] = print,
    linger_seconds: float = LINGER_SECONDS,
    expected_questions: int | None = None,
) -> SeatHost:
    """Return the server for the pages of the seats, for `RunOptions.seat_host`.

    `public_url` is the address at which participants reach the server through a proxy. `print_line`
    receives each link. After the run, the pages stay for `linger_seconds`, or until all connected
    participants have seen the last page. `expected_questions` is the likely number of questions for
    a participant. The pages show it beside the number of the question.
    """

    @asynccontextmanager
    async def serve_seats(seat_manager: SeatManager) -> AsyncIterator[None]:
        listening = _open_socket(address, port if port is not None else seat_manager.port)
        seat_manager.port = listening.getsockname()[1]
        # The links must stay valid after a resume, so the port is saved before they are shown.
        seat_manager.save_state()
        shown_address = f"[{address}]" if ":" in address else address
        base = public_url.rstrip("/") or f"http://{shown_address}:{seat_manager.port}"
        seat_manager.address, seat_manager.expected_questions = base, expected_questions
        guard = Guard(
            hosts=own_names(urlsplit(base).hostname or ""),
            methods=frozenset({"GET", "HEAD", "POST"}),
            links_hold_tokens=True,
        )
        pages = create_seat_app(seat_manager, guard)
        server = _Server(pages)
        if seat_manager.lobby is not None:
            print_line(
                f"One link for everybody: {seat_manager.address}/enter/{seat_manager.lobby.token}"
            )
        for seat_state in seat_manager if seat_manager.lobby is None else ():
            print_line(f"Seat {seat_state.seat.name}: {base}/seat/{seat_state.token}")
        print_line(f"All seats, for you alone: {base}/seats/{seat_manager.token}")
        tasks = [
            asyncio.ensure_future(server.serve(sockets=[listening])),
            asyncio.ensure_future(_run_clock(seat_manager)),
        ]
        try:
            yield
            # This changes the pages of all seats to the last one.
            seat_manager.finish()
            await _wait_until_end_is_shown(seat_manager, linger_seconds)
        finally:
            tasks[1].cancel()
            server.should_exit = True
            await asyncio.gather(*tasks, return_exceptions=True)

    return serve_seats


class _Server(PageServer):
    """A server that does not handle Ctrl-C, because the run handles it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _open_socket(address: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port or 0))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        address_text = f"{address}:{port or 0}"
        hint = "close what listens there, or choose another with --port (the links then change)"
        raise InputError(
            Problem(f"cannot listen at {address_text}: {error.strerror}", hint=hint)
        ) from None
    listening.setblocking(False)
    return listening


async def _run_clock(seat_manager: SeatManager) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        seat_manager.advance_clock()


async def _wait_until_end_is_shown(seat_manager: SeatManager, seconds: float) -> None:
    """Wait until all connected participants have seen the last page, for at most `seconds`."""

    async def wait_until_shown() -> None:
        while not seat_manager.researcher_left and not all(
            seat_state.end_shown for seat_state in seat_manager if seat_state.is_connected
        ):
            await asyncio.sleep(0.05)

    with suppress(TimeoutError):
        await asyncio.wait_for(wait_until_shown(), seconds)
        # The last page may still be on its way to the browser.
        await asyncio.sleep(0.2)
