"""The pages of an open entry, which is one link for all participants."""
# A participant who opens the link and consents gets the next free seat. A returning participant is
# recognised by a cookie or a return code. A recruitment platform, such as Prolific, may also have
# added an id to the link. `engine.seats.lobby` decides who gets which seat.

from __future__ import annotations

import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from folkmoot.engine.seats.lobby import (
    MAX_NAME_CHARACTERS,
    VISIT_BYTES,
    Lobby,
    is_platform_id,
)
from folkmoot.engine.seats.seat_manager import NAME, SeatManager, SeatState
from folkmoot.hints import collapse_spaces
from folkmoot.randomness import digest
from folkmoot.view.connections import trust_connection
from folkmoot.view.forms import first_of, read_form
from folkmoot.view.site import COOKIE, render_page

NO_NAME = "Please say how the people who run this study should call you."
NO_SUCH_CODE = "No seat has this code. Check each letter, or ask the people who run this study."
BAD_ID = (
    "This link holds no usable id. Open the whole link that the recruitment site gave you, not a "
    "copy of its pattern."
)


class EntryPages:
    """The request handlers of the pages of an open entry."""

    def __init__(self, seat_manager: SeatManager, lobby: Lobby) -> None:
        self.seat_manager = seat_manager
        self.lobby = lobby

    def page_routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [
            Route("/enter/{token}", self.show_entry),
            Route("/enter/{token}", self.enter, methods=["POST"]),
            Route("/enter/{token}/return", self.return_by_code, methods=["POST"]),
        ]

    async def show_entry(self, request: Request) -> Response:
        """Show the form for consent and name, or the seat of a returning participant."""
        self._check_token(request)
        ids = self._link_ids(request)
        seat_state = self._find_returning(request, ids)
        if seat_state is not None:
            return await self._lead_back(request, seat_state)
        return self._render(ids)

    async def enter(self, request: Request) -> Response:
        """Give the next free seat to a participant who consents."""
        self._check_token(request)
        ids = self._link_ids(request)
        sent = await read_form(request)
        visit = first_of(sent, "visit")
        # A form that is sent twice, from a double click or from two tabs, must give one seat.
        seat_state = self._find_returning(request, ids, visit)
        if seat_state is not None:
            return await self._lead_back(request, seat_state)
        name = collapse_spaces(first_of(sent, "name"))[:MAX_NAME_CHARACTERS]
        if not self._platform_id(ids) and not name:
            return self._render(ids, NO_NAME, status=422)
        if len(visit) < VISIT_BYTES:
            visit = _make_visit()
        seat_state = self.seat_manager.admit(visit, {**ids, **({NAME: name} if name else {})})
        if seat_state is None:
            return self._render(ids, status=409)
        await self.seat_manager.wait_until_saved()
        return self._lead_to(request, seat_state, visit)

    async def return_by_code(self, request: Request) -> Response:
        """Redirect a participant to the seat that belongs to the entered return code."""
        self._check_token(request)
        sent = await read_form(request)
        seat_state = self.seat_manager.find_seat(self.lobby.find_code(first_of(sent, "code")))
        if seat_state is None:
            return self._render({}, code_problem=NO_SUCH_CODE, status=422)
        return await self._lead_back(request, seat_state)

    def forget_visit(self, response: Response) -> None:
        """Delete the cookie of a participant who has left the lobby."""
        response.delete_cookie(self._cookie_name, path="/enter")

    def _render(
        self,
        ids: Mapping[str, str],
        problem: str = "",
        *,
        code_problem: str = "",
        status: int = 200,
    ) -> Response:
        seat_manager, lobby = self.seat_manager, self.lobby
        context = {
            "settings": seat_manager.settings,
            "readers": seat_manager.readers,
            "here": f"/enter/{lobby.token}",
            "query": urlencode(ids),
            "visit": _make_visit(),
            "needs_name": not self._platform_id(ids),
            "is_full": seat_manager.next_free_seat() is None,
            "has_started": not lobby.is_open,
            "longest_name": MAX_NAME_CHARACTERS,
            "problem": problem,
            "code_problem": code_problem,
        }
        return render_page("entry.html.j2", context, status)

    def _check_token(self, request: Request) -> None:
        given_token = request.path_params["token"].lower()
        if not secrets.compare_digest(given_token.encode(), self.lobby.token.encode()):
            raise HTTPException(
                404, "There is no such study. Open the whole link that you were given."
            )
        trust_connection(request.scope)

    def _link_ids(self, request: Request) -> dict[str, str]:
        ids = {key: request.query_params.get(key, "") for key in self.seat_manager.settings.query}
        ids = {key: platform_id for key, platform_id in ids.items() if platform_id}
        if not all(map(is_platform_id, ids.values())):
            raise HTTPException(404, BAD_ID)
        return ids

    def _platform_id(self, ids: Mapping[str, str]) -> str:
        return ids.get(next(iter(self.seat_manager.settings.query), ""), "")

    def _find_returning(
        self, request: Request, ids: Mapping[str, str], visit: str = ""
    ) -> SeatState | None:
        # The id of a recruitment site has priority over a cookie: two humans may share a computer.
        if platform_id := self._platform_id(ids):
            return self.seat_manager.find_platform_id(platform_id)
        name = self.lobby.find_visit(request.cookies.get(self._cookie_name, ""))
        return self.seat_manager.find_seat(name or self.lobby.find_visit(visit))

    async def _lead_back(self, request: Request, seat_state: SeatState) -> Response:
        visit = request.cookies.get(self._cookie_name, "")
        if self.lobby.find_visit(visit) != seat_state.seat.name:
            visit = _make_visit()
            self.seat_manager.readmit(seat_state, visit)
            await self.seat_manager.wait_until_saved()
        return self._lead_to(request, seat_state, visit)

    def _lead_to(self, request: Request, seat_state: SeatState, visit: str) -> Response:
        response = RedirectResponse(f"/seat/{seat_state.token}", 303)
        # A session cookie, which closing the browser deletes: a class may share a computer.
        response.set_cookie(
            self._cookie_name,
            visit,
            path="/enter",
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response

    @property
    def _cookie_name(self) -> str:
        # Browsers send a cookie to all ports of a host, where other runs may have an entry.
        return f"{COOKIE}-{digest('entry', self.lobby.token).hex()[:12]}"


def _make_visit() -> str:
    return secrets.token_urlsafe(VISIT_BYTES)
