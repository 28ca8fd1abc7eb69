"""The common base of all pages: look, access control, and limits for the browser."""
# `create_app(routes, guard)` creates the app. Templates extend `base.html.j2` and fill its blocks
# `title` and `main`. Text by humans and models is escaped. Pages load nothing from another host and
# have no inline scripts or styles. Scripts and styles are files under `/static/`.

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, wraps
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from polars.exceptions import PolarsError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import number_text
from folkmoot.measures.inference.estimates import format_dollars
from folkmoot.randomness import digest
from folkmoot.storage.findings import column_heading, format_cell
from folkmoot.view.connections import BACKLOG, PageServer, trust_connection

HERE = Path(__file__).parent
LOOPBACK = "127.0.0.1"
COOKIE = "folkmoot"
# The query parameter that holds the token.
TOKEN = "token"
READING = frozenset({"GET", "HEAD"})
# Holds a form of a seat with the longest answer, even if each character is percent-encoded.
MAX_FORM_BYTES = 3_000_000
# On this status, htmx shows the content of the response and stops polling.
STOP_POLLING = 286
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Errors when reading a run: its files are damaged, or it was deleted in the meantime.
UNREADABLE = (InputError, StorageError, sqlite3.Error, PolarsError, OSError)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Profiles and answers of participants must not remain in a browser cache.
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Guard:
    """The access control of a site: the accepted host names, token and HTTP methods."""

    # Accepted host names. They protect against DNS rebinding, an attack in which the name of
    # another site points to this machine. Numeric addresses are always accepted.
    hosts: frozenset[str] = field(default_factory=lambda: own_names("localhost"))
    # If empty, everyone who reaches the port may read.
    token: str = ""
    methods: frozenset[str] = READING
    # True if each page checks the token in its link.
    links_hold_tokens: bool = False
    max_form_bytes: int = MAX_FORM_BYTES

    def accepts_host(self, host: str) -> bool:
        """Return True if the Host header of a request names this site."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower().rstrip(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True

    @property
    def cookie_name(self) -> str:
        """The name of the cookie that holds the token."""
        # Browsers send a cookie to all ports of a host, so each server needs a different name.
        return f"{COOKIE}-{digest(self.token).hex()[:12]}"

    def admits_token(self, given_token: str) -> bool:
        # Compare in constant time, so that response times reveal nothing about the token.
        return not self.token or secrets.compare_digest(given_token.encode(), self.token.encode())


def own_names(*further_names: str) -> frozenset[str]:
    """Return the host names of this machine and `further_names`, all in lower case."""
    return frozenset(
        name.lower() for name in ("localhost", socket.gethostname(), *further_names) if name
    )


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class GuardMiddleware:
    """The middleware that rejects requests which a `Guard` forbids, and sets security headers."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self.app = app
        self.guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        response: ASGIApp | None = self._reject_request(scope)
        if response is None:
            response = self.app
            if not self.guard.links_hold_tokens:
                trust_connection(scope)
        await response(scope, receive, send_with_headers)

    def _reject_request(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self.guard.accepts_host(headers.get("host", "")):
            message = "This page was asked for under another site's name. Use the address printed."
            return PlainTextResponse(message, 421)
        if scope["method"] not in self.guard.methods:
            return PlainTextResponse("These pages only show; nothing can be sent to them.", 405)
        if scope["method"] not in READING and not _is_bounded(headers, self.guard.max_form_bytes):
            return PlainTextResponse("The form was too large.", 413)
        if not self.guard.token:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given_token = dict(query).get(TOKEN, "")
        if given_token and self.guard.admits_token(given_token):
            other_parameters = urlencode([(key, value) for key, value in query if key != TOKEN])
            target = quote(scope["path"]) + (f"?{other_parameters}" if other_parameters else "")
            # The redirect removes the token from the address bar. A path that starts with two
            # slashes would lead to another host, so the leading slashes are reduced to one.
            answer = RedirectResponse("/" + target.lstrip("/"), 303)
            # Lax and not strict, because the link may be opened from a message on the page of
            # another site.
            answer.set_cookie(self.guard.cookie_name, given_token, httponly=True, samesite="lax")
            return answer
        cookie = cookie_parser(headers.get("cookie", "")).get(self.guard.cookie_name)
        if cookie is not None and self.guard.admits_token(cookie):
            return None
        message = "This page needs its token: open the whole link that was printed at the start."
        return PlainTextResponse(message, 401)


def _is_bounded(headers: Headers, max_bytes: int) -> bool:
    length = read_sent_number(headers.get("content-length"))
    return length is not None and length <= max_bytes


def read_sent_number(text: str | None) -> int | None:
    """Return the number that a browser sent as at most nine digits, or None for another text."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else None


def create_app(routes: Sequence[BaseRoute], guard: Guard) -> Starlette:
    """Create a web app from `routes`, with static files, error pages and access control."""
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=HERE / "static"), name="static")],
        middleware=[Middleware(GuardMiddleware, guard)],
        exception_handlers={
            HTTPException: _refusal_response,
            404: _missing_response,
            ClientDisconnect: _client_left_response,
            **dict.fromkeys(UNREADABLE, _unreadable_response),
        },
    )
    return app


def serve_app(
    app: Starlette, host: str, port: int, secret: str, print_address: Callable[[str], None]
) -> None:
    """Serve an app until Ctrl-C.

    - `port`: 0 for any free port.
    - `secret`: the token in the printed address.
    - `print_address`: called with the address to open.

    Raises InputError if the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(
            f"{host}:{port} is not available: {reason}; choose another --port"
        ) from error
    with listening:
        is_any_address = host in ("0.0.0.0", "::")
        shown_host = (
            socket.gethostname() if is_any_address else f"[{host}]" if ":" in host else host
        )
        address = f"http://{shown_host}:{listening.getsockname()[1]}/"
        print_address(address + (f"?{TOKEN}={secret}" if secret else ""))
        PageServer(app).run(sockets=[listening])


def render_page(template: str, context: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Render a page from its template."""
    return HTMLResponse(template_environment().get_template(template).render(context), status)


class LivePart(NamedTuple):
    """A self-updating part of a page: the HTML of the part, and a tag of the part's state."""

    # The page polls for the part and sends the tag of the state that it shows.

    html: Markup
    tag: str

    @classmethod
    def from_html(cls, html: str) -> LivePart:
        """Return the part with this HTML, which also determines the tag."""
        return cls(Markup(html), tag_of(html))


def draw_live_part(template: str, context: Mapping[str, object]) -> LivePart:
    """Render a self-updating part of a page."""
    return LivePart.from_html(template_environment().get_template(template).render(context))


def tag_of(*state: object) -> str:
    """Return a tag for a state, in the format of an `ETag` header."""
    return f'"{digest(*map(str, state)).hex()[:24]}"'


def is_shown(request: Request, tag: str) -> bool:
    """Return True if the page that sends the request already shows the state with this tag."""
    return request.headers.get("if-none-match") == tag


def answer_unchanged(tag: str) -> Response:
    """Return the response for a page that already shows the current state."""
    return Response(status_code=304, headers={"ETag": tag})


def answer_poll(request: Request, part: LivePart, *, is_last: bool = False) -> Response:
    """Return a part of a page, or an empty response if the page already shows this part.

    - `is_last`: True to tell the page to stop updating itself.
    """
    # The page then gets the event `over`, to which its other parts can react.
    headers = {"ETag": part.tag}
    if is_last:
        return HTMLResponse(part.html, STOP_POLLING, {**headers, "HX-Trigger": "over"})
    if is_shown(request, part.tag):
        return answer_unchanged(part.tag)
    return HTMLResponse(part.html, headers=headers)


def keep_if_unreadable(show_page: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Wrap the handler of a page, so that the page stays unchanged if the run cannot be read."""
    # The run may be replacing a file at that moment. The next poll reads the file.

    @wraps(show_page)
    def answer_request(request: Request) -> Response:
        try:
            return show_page(request)
        except UNREADABLE:
            return Response(status_code=204)

    return answer_request


@cache
def template_environment() -> Environment:
    """Return the template environment with the filters that pages use."""
    env = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_remove_hidden_characters,
    )
    filters: dict[str, Callable[..., object]] = {
        "heading": column_heading,
        "cell": format_cell,
        "number_text": number_text,
        "q": lambda text: quote(str(text), safe="", errors="replace"),
        "path": lambda text: quote(str(text), errors="replace"),
        "ago": format_age,
        "count": lambda name: f"{name:,}",
        "money": lambda usd: "unknown" if usd is None else format_dollars(usd),
        "quoted": lambda text: f'"{text}"' if " " in str(text) else str(text),
        "groupby_in_order": in_order,
    }
    env.filters.update(filters)
    return env


def in_order(items: Iterable[object], name: str) -> list[tuple[object, list[object]]]:
    """Group neighbouring items by the value of the attribute `name`."""
    return [(key, list(group)) for key, group in groupby(items, attrgetter(name))]


def _remove_hidden_characters(value: object) -> object:
    return without_hidden(value) if type(value) is str else value


def format_age(moment: datetime | None) -> str:
    """Return the time since a moment as text, such as "3 hours ago".

    Returns "unknown" for None.
    """
    if moment is None:
        return "unknown"
    seconds = max(0.0, (datetime.now(moment.tzinfo) - moment).total_seconds())
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count:,} {unit}{'s' * (count > 1)} ago"
    return "just now"


async def _client_left_response(_request: Request, _error: Exception) -> Response:
    # The client has disconnected and receives no response. Starlette needs one nevertheless.
    return Response(status_code=400)


async def _missing_response(_request: Request, error: Exception) -> Response:
    detail = getattr(error, "detail", "")
    words = detail if detail and detail != "Not Found" else "There is no such page here."
    return render_page("error.html.j2", {"title": "Not found", "words": words}, 404)


async def _refusal_response(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    context = {"title": "Not possible", "words": error.detail}
    return render_page("error.html.j2", context, error.status_code)


async def _unreadable_response(request: Request, error: Exception) -> Response:
    problems = error.problems if isinstance(error, InputError) else [Problem(str(error))]
    words = " ".join(str(problem) for problem in problems)
    title = "Cannot be read" if request.method in ("GET", "HEAD") else "Not possible"
    return render_page("error.html.j2", {"title": title, "words": words}, 404)
