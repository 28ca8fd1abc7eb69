"""The page on which the researcher manages all seats."""

from __future__ import annotations

import math
import secrets
from collections import Counter

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from folkmoot.engine.seats.seat_manager import (
    SEAT_CLOSED,
    SeatManager,
    SeatState,
)
from folkmoot.randomness import digest
from folkmoot.view import forms
from folkmoot.view.connections import trust_connection
from folkmoot.view.seat.confirmation import problem_with_consent, state_of
from folkmoot.view.site import (
    LivePart,
    answer_poll,
    draw_live_part,
    render_page,
)

MAX_ANNOUNCEMENT_CHARACTERS = 1_000
REMINDER = "Please go on when you can: others wait for your answer."
NO_TEXT = "Write the message first."


class ResearcherPages:
    """The request handlers of the researcher's page."""

    def __init__(self, seat_manager: SeatManager) -> None:
        self.seat_manager = seat_manager

    def page_routes(self) -> list[Route]:
        """Return the routes of the page."""
        return [
            Route("/seats/{token}/announce", self.announce, methods=["POST"]),
            Route("/seats/{token}/start", self.start_study, methods=["GET", "POST"]),
            Route("/seats/{token}", self.seats_overview),
            Route("/seats/{token}/live", self.seats_update),
            Route("/seats/{token}/close", self.close, methods=["GET", "POST"]),
        ]

    async def seats_overview(self, request: Request) -> Response:
        """Show the list of all seats to the researcher."""
        self._check_researcher(request)
        return self._render_overview(remind=request.query_params.get("remind", ""))

    def _render_overview(
        self, *, remind: str = "", text: str = "", problem: str = "", status: int = 200
    ) -> Response:
        # `remind` is the name of the seat to remind. `text` is a typed message that stays in the
        # form.
        seat_manager = self.seat_manager
        # The researcher may know the typed name of a human, and not the name of their seat.
        names = {
            seat_state.seat.name: f"{seat_state.seat.name} {seat_manager.name_of(seat_state)}"
            for seat_state in seat_manager
            if not seat_state.ended
        }
        context = {
            "seat_manager": seat_manager,
            "part": self._seats_part(),
            "entry": self._entry_link(),
            "names": names,
            "to": remind if remind in names else "",
            "text": text or (REMINDER if remind in names else ""),
            "problem": problem,
            "longest": MAX_ANNOUNCEMENT_CHARACTERS,
        }
        return render_page("seats.html.j2", context, status)

    async def announce(self, request: Request) -> Response:
        """Show a message of the researcher to one participant or to all."""
        self._check_researcher(request)
        sent = await forms.read_form(request)
        name, text = forms.first_of(sent, "seat"), forms.first_of(sent, "text").strip()
        if name and self.seat_manager.find_seat(name) is None:
            raise HTTPException(404, "There is no such seat.")
        if not text or len(text) > MAX_ANNOUNCEMENT_CHARACTERS:
            problem = (
                NO_TEXT if not text else f"Write at most {MAX_ANNOUNCEMENT_CHARACTERS} characters."
            )
            return self._render_overview(text=text, problem=problem, status=422)
        self.seat_manager.announce(text, name)
        return RedirectResponse(f"/seats/{self.seat_manager.token}", 303)

    async def seats_update(self, request: Request) -> Response:
        """Return the list of all seats for a page that updates itself."""
        # Empty if the page already shows the same list.
        self._check_researcher(request)
        is_last = all(seat_state.ended for seat_state in self.seat_manager)
        return answer_poll(request, self._seats_part(), is_last=is_last)

    def _entry_link(self) -> str:
        lobby = self.seat_manager.lobby
        return "" if lobby is None else f"{self.seat_manager.address}/enter/{lobby.token}"

    def _seats_part(self) -> LivePart:
        seat_states = list(self.seat_manager)
        has_conditions = any(seat_state.seat.condition for seat_state in seat_states)
        context = {
            "seat_manager": self.seat_manager,
            "seat_states": seat_states,
            "conditions": has_conditions,
        }
        lobby = self.seat_manager.lobby
        is_waiting = lobby is not None and lobby.is_open
        seconds_left = lobby.left if lobby is not None else None
        context["given"] = {
            seat_state.seat.name
            for seat_state in seat_states
            if is_given(self.seat_manager, seat_state)
        }
        context.update(lobby=is_waiting, taken=describe_taken_seats(self.seat_manager))
        # With sixty seats, the counts say sooner than the rows whether anyone holds up the others.
        states = Counter(
            self.seat_manager.describe_state(seat_state).partition(" since ")[0]
            for seat_state in seat_states
        )
        context["counts"] = ", ".join(f"{n} {state}" for state, n in states.most_common())
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
        problem = problem_with_consent(sent, state_of(seat_state)) if is_sent else ""
        if is_sent and not problem:
            self.seat_manager.close_seat(seat_state, SEAT_CLOSED)
            return overview
        context = {
            "seat_manager": self.seat_manager,
            "seat_state": seat_state,
            "state": state_of(seat_state),
            "problem": problem,
        }
        return render_page("seat_close.html.j2", context, 409 if problem else 200)

    async def start_study(self, request: Request) -> Response:
        """Start the study with the participants in the lobby, after a confirmation."""
        self._check_researcher(request)
        overview = RedirectResponse(f"/seats/{self.seat_manager.token}", 303)
        lobby = self.seat_manager.lobby
        if lobby is None or not lobby.is_open:
            return overview
        taken_text = describe_taken_seats(self.seat_manager)
        state, problem = digest(taken_text, size=9).hex(), ""
        if request.method == "POST":
            problem = problem_with_consent(await forms.read_form(request), state)
            if not problem:
                self.seat_manager.start_now()
                return overview
        context = {
            "seat_manager": self.seat_manager,
            "taken": taken_text,
            "state": state,
            "problem": problem,
        }
        context["is_empty"] = not lobby.occupants
        return render_page("seats_start.html.j2", context, 409 if problem else 200)

    def _check_researcher(self, request: Request) -> None:
        if not secrets.compare_digest(
            request.path_params["token"].encode(), self.seat_manager.token.encode()
        ):
            raise HTTPException(404)
        trust_connection(request.scope)


def is_given(seat_manager: SeatManager, seat_state: SeatState) -> bool:
    """Return True if a human has taken the seat or the seat is kept for a human."""
    lobby = seat_manager.lobby
    return lobby is None or seat_state.seat.name in lobby.occupants


def describe_taken_seats(seat_manager: SeatManager) -> str:
    """Return a sentence on how many seats are taken. Seats that have ended do not count."""
    seat_states = [seat_state for seat_state in seat_manager if not seat_state.ended]
    taken_count = sum(seat_state.has_agreed for seat_state in seat_states)
    return f"{taken_count} of {len(seat_states)} seats {'is' if taken_count == 1 else 'are'} taken."
