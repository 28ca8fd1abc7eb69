"""What all pages share: the look, who may ask for them, and what a browser may do with them.

`create_app(routes, guard)` makes the app. Templates extend `base.html.j2`, whose `title` and `main`
blocks they fill; whatever people or models wrote is escaped. No page loads anything from another
host, and none holds a script or style of its own: both are files under `/static/`.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, wraps
from http.cookies import SimpleCookie
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
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.hidden_characters import without_hidden
from folkmoot.measures.inference.estimates import format_dollars
from folkmoot.randomness import digest
from folkmoot.storage.findings import column_heading, format_cell
from folkmoot.view.connections import trust_connection

HERE = Path(__file__).parent
COOKIE = "folkmoot"
TOKEN = "token"  # of the query
READING = frozenset({"GET", "HEAD"})
MAX_FORM_BYTES = 3_000_000  # a form of a seat: the longest answer, each character of it escaped
STOP_POLLING = 286  # htmx shows what such an answer holds, and asks no more
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# What reading a run may end with: damaged files, or a run that was deleted meanwhile.
UNREADABLE = (InputError, StorageError, sqlite3.Error, PolarsError, OSError)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",  # profiles and answers of people do not belong in a cache
}


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may ask: by which names the site is called, with which token, by which methods.

    A name of another site that was made to point to this machine (DNS rebinding) is none of
    `hosts`; an address in figures can't be. Without a token whoever reaches the port may read,
    unless `links_hold_tokens`: each link then has a separate token, which its page checks.
    """

    hosts: frozenset[str] = field(default_factory=lambda: own_names("localhost"))
    token: str = ""
    methods: frozenset[str] = READING
    links_hold_tokens: bool = False
    max_form_bytes: int = MAX_FORM_BYTES

    def names_us(self, host: str) -> bool:
        """Whether a Host header (`name:port`) means this site."""
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower().rstrip(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True

    @property
    def cookie_name(self) -> str:
        """The cookie that holds the token. Browsers do not tell ports apart, so that each server
        needs a name of its own."""
        return f"{COOKIE}-{digest(self.token).hex()[:12]}"

    def admits_token(self, given: str) -> bool:
        return not self.token or secrets.compare_digest(given.encode(), self.token.encode())


def own_names(*more: str) -> frozenset[str]:
    """The names by which this machine may be asked, in lower case."""
    return frozenset(name.lower() for name in ("localhost", socket.gethostname(), *more) if name)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guarded:
    """ASGI middleware: turns away whom the guard does not admit, and sets the headers."""

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

        answer: ASGIApp | None = self._turned_away(scope)
        if answer is None:
            answer = self.app
            if not self.guard.links_hold_tokens:
                trust_connection(scope)
        await answer(scope, receive, send_with_headers)

    def _turned_away(self, scope: Scope) -> Response | None:
        """What is answered in place of a page; None for whom the guard admits."""
        headers = Headers(scope=scope)
        if not self.guard.names_us(headers.get("host", "")):
            said = "This page was asked for under another site's name. Use the address printed."
            return PlainTextResponse(said, 421)
        if scope["method"] not in self.guard.methods:
            return PlainTextResponse("These pages only show; nothing can be sent to them.", 405)
        if scope["method"] not in READING and not _is_bounded(headers, self.guard.max_form_bytes):
            return PlainTextResponse("More was sent than a form of these pages can hold.", 413)
        if not self.guard.token:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get(TOKEN, "")
        if given and self.guard.admits_token(given):
            rest = urlencode([(key, value) for key, value in query if key != TOKEN])
            there = quote(scope["path"]) + (f"?{rest}" if rest else "")
            answer = RedirectResponse("/" + there.lstrip("/"), 303)
            # Lax, not strict: the link may be opened from a message on another site's page.
            answer.set_cookie(self.guard.cookie_name, given, httponly=True, samesite="lax")
            return answer
        cookie = SimpleCookie(headers.get("cookie", "")).get(self.guard.cookie_name)
        if cookie is not None and self.guard.admits_token(cookie.value):
            return None
        said = "This page needs its token: open the whole link that was printed at the start."
        return PlainTextResponse(said, 401)


def _is_bounded(headers: Headers, most: int) -> bool:
    """Whether a request says how long its form is, and the form may be that long."""
    length = headers.get("content-length", "")
    return length.isdecimal() and len(length) < 10 and int(length) <= most


def create_app(routes: Sequence[BaseRoute], guard: Guard) -> Starlette:
    """An app of these pages, with the shared files, error pages and the guard before them."""
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=HERE / "static"), name="static")],
        middleware=[Middleware(Guarded, guard)],
        exception_handlers={
            404: _missing_response,
            ClientDisconnect: _client_left_response,
            **dict.fromkeys(UNREADABLE, _unreadable_response),
        },
    )
    return app


def render_page(template: str, context: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """A page from its template."""
    return HTMLResponse(template_environment().get_template(template).render(context), status)


class LivePart(NamedTuple):
    """A part of a page that changes by itself, and the tag of this state of it. A page asks for it
    now and then, and gives the tag of what it shows."""

    html: Markup
    tag: str


def draw_live_part(template: str, context: Mapping[str, object]) -> LivePart:
    """Draw a part from its template; it has changed when its HTML has."""
    html = template_environment().get_template(template).render(context)
    return LivePart(Markup(html), tag_of(html))


def tag_of(*state: object) -> str:
    """The tag of a state, as an `ETag` header has it."""
    return f'"{digest(*map(str, state)).hex()[:24]}"'


def is_shown(request: Request, tag: str) -> bool:
    """Whether the page that asks shows the state of this tag already."""
    return request.headers.get("if-none-match") == tag


def answer_unchanged(tag: str) -> Response:
    """The answer where `is_shown`."""
    return Response(status_code=304, headers={"ETag": tag})


def answer_poll(request: Request, part: LivePart, *, is_last: bool = False) -> Response:
    """The part, or nothing where the page shows it already. After the last one it asks no more,
    and the event `over` tells the rest of the page."""
    headers = {"ETag": part.tag}
    if is_last:
        return HTMLResponse(part.html, STOP_POLLING, {**headers, "HX-Trigger": "over"})
    if is_shown(request, part.tag):
        return answer_unchanged(part.tag)
    return HTMLResponse(part.html, headers=headers)


def keep_if_unreadable(way: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A part that stays as it is where it cannot be read: a run under way may have replaced a file
    in the middle, and the next look will tell."""

    @wraps(way)
    def answer_request(request: Request) -> Response:
        try:
            return way(request)
        except UNREADABLE:
            return Response(status_code=204)

    return answer_request


@cache
def template_environment() -> Environment:
    """The templates, with the filters of the house."""
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
    """Neighbours that share an attribute, group by group, in their own order."""
    return [(key, list(group)) for key, group in groupby(items, attrgetter(name))]


def _remove_hidden_characters(value: object) -> object:
    """Text without the characters that hide or reverse what stands beside them."""
    return without_hidden(value) if type(value) is str else value


def format_age(moment: datetime | None) -> str:
    """How long ago that was, in the largest unit that fits."""
    if moment is None:
        return "unknown"
    seconds = max(0.0, (datetime.now(moment.tzinfo) - moment).total_seconds())
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            n = int(seconds // size)
            return f"{n:,} {unit}{'s' * (n > 1)} ago"
    return "just now"


async def _client_left_response(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # for nobody: the visitor has gone


async def _missing_response(_request: Request, error: Exception) -> Response:
    said = getattr(error, "detail", "")
    words = said if said and said != "Not Found" else "There is no such page here."
    return render_page("error.html.j2", {"title": "Not found", "words": words}, 404)


async def _unreadable_response(_request: Request, error: Exception) -> Response:
    problems = error.problems if isinstance(error, InputError) else [Problem(str(error))]
    words = " ".join(str(problem) for problem in problems)
    return render_page("error.html.j2", {"title": "Cannot be read", "words": words}, 404)
