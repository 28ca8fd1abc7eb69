"""The pages of the seats, on which human participants read the conversation and answer."""
# The process of the run serves the pages on its event loop. A link holds a secret token. Whoever
# opens the link has the seat. A page shows only the texts that a model would get in place of the
# human.

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from folkmoot.engine.seats.seat_manager import (
    WITHDRAWN,
    SeatManager,
    SeatState,
)
from folkmoot.models.request import is_reply_of_human
from folkmoot.view import forms
from folkmoot.view.connections import trust_connection
from folkmoot.view.entry import EntryPages
from folkmoot.view.seat.confirmation import problem_with_consent, state_of
from folkmoot.view.seat.question_page import parse_form, render_question
from folkmoot.view.seat.researcher import ResearcherPages, describe_taken_seats, is_given
from folkmoot.view.site import (
    Guard,
    answer_unchanged,
    create_app,
    is_shown,
    read_sent_number,
    render_page,
    tag_of,
)

# A page with a countdown is updated in steps of this length.
CLOCK_SECONDS = 15
# Messages for a form that was sent twice, or from a page of an earlier question.
ANSWERED = "You had answered that question already. Your first answer counts."
STALE = "That question is not open any more, so nothing was recorded. The study is now here."


def create_seat_app(seat_manager: SeatManager, guard: Guard) -> Starlette:
    """Create the web app with the pages of the seats."""
    pages = _Pages(seat_manager)
    routes = [
        *(pages.entry.page_routes() if pages.entry is not None else ()),
        *ResearcherPages(seat_manager).page_routes(),
        Route("/seat/{token}/noted", pages.note_code, methods=["POST"]),
        Route("/seat/{token}", pages.show_seat),
        Route("/seat/{token}/agree", pages.record_consent, methods=["POST"]),
        Route("/seat/{token}/answer", pages.answer, methods=["POST"]),
        Route("/seat/{token}/leave", pages.leave_study, methods=["GET", "POST"]),
        Route("/seat/{token}/news", pages.report_news),
    ]
    return create_app(routes, guard)


class _Pages:
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
        seat_state = self._find_seat(request)
        self.seat_manager.note_code(seat_state)
        await self.seat_manager.wait_until_saved()
        return _redirect_to_seat(seat_state)

    async def answer(self, request: Request) -> Response:
        seat_state = self._find_seat(request)
        form = await forms.read_form(request)
        question_id = forms.first_of(form, "question")
        question = self.seat_manager.find_pending_question(seat_state, question_id)
        if question is None:
            return self._render_page(seat_state, STALE, status=409)
        # The question may have been closed by an answer, by the end of its time or by the end of
        # the study.
        if question.reply.done():
            is_theirs = is_reply_of_human(question.reply.result().finish)
            await question.saved.wait()
            return self._render_page(seat_state, ANSWERED if is_theirs else STALE, status=409)
        text, problem = parse_form(question, form)
        if problem:
            return self._render_page(seat_state, problem, form, 422)
        if await self.seat_manager.answer(seat_state, question, text):
            return _redirect_to_seat(seat_state)
        message = (
            "The study has stopped, and this answer was not saved. Send it again when it goes on."
        )
        return self._render_page(seat_state, message, form, 503)

    async def leave_study(self, request: Request) -> Response:
        seat_state = self._find_seat(request)
        if seat_state.ended:
            return self._render_page(seat_state)
        problem = ""
        if request.method == "POST":
            problem = problem_with_consent(await forms.read_form(request), state_of(seat_state))
            if not problem and self._is_in_lobby(seat_state):
                return await self._leave_lobby(seat_state)
            if not problem:
                self.seat_manager.close_seat(seat_state, WITHDRAWN)
                return _redirect_to_seat(seat_state)
        context = {
            "seat_state": seat_state,
            "state": state_of(seat_state),
            "problem": problem,
            "in_lobby": self._is_in_lobby(seat_state),
        }
        return render_page("seat_leave.html.j2", context, 409 if problem else 200)

    async def _leave_lobby(self, seat_state: SeatState) -> Response:
        # The last page is drawn before the seat forgets its participant.
        context = {
            "seat_state": replace(seat_state, ended=WITHDRAWN),
            "settings": self.seat_manager.settings,
            "in_lobby": True,
            "problem": "",
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
        seat_state = self._find_seat(request)
        idle, typed = (
            read_sent_number(request.query_params.get(name)) for name in ("idle", "typed")
        )
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
        messages = [given["text"] for given in self.seat_manager.announcements_for(seat_state)]
        tag = tag_of(
            shown_page,
            taken_text,
            len(messages),
            None if seconds_left is None else round(seconds_left) // CLOCK_SECONDS,
        )
        if is_shown(request, tag):
            return answer_unchanged(tag)
        news = {
            "shows": shown_page,
            "left": None if seconds_left is None else round(seconds_left),
            "taken": taken_text,
            "messages": messages,
        }
        return JSONResponse(news, headers={"ETag": tag})

    def _find_seat(self, request: Request) -> SeatState:
        token = request.path_params["token"]
        # Each token is compared in constant time, so that response times reveal nothing about it.
        for known_token, seat_state in self.seat_manager.seat_states.items():
            if secrets.compare_digest(known_token.encode(), token.encode()) and is_given(
                self.seat_manager, seat_state
            ):
                trust_connection(request.scope)
                return seat_state
        raise HTTPException(404, "There is no such seat. Open the whole link that you were given.")

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
        shared_context = {
            "seat_state": seat_state,
            "settings": settings,
            "problem": problem,
            "messages": seat_manager.announcements_for(seat_state),
            "in_lobby": False,
        }
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
        return render_question(seat_manager, seat_state, question, problem, sent, status)


def _redirect_to_seat(seat_state: SeatState) -> Response:
    return RedirectResponse(f"/seat/{seat_state.token}", 303)
