"""Convert texts of a survey from HTML to plain text, and find the placeholders in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import shorten

# Longer texts are left out. Reading HTML that is never closed takes time that grows with the square
# of its length.
MAX_HTML = 100_000
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "center", "dd", "div", "dl", "dt", "figure"),
        *("figcaption", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr"),
        *("main", "nav", "ol", "p", "pre", "section", "table", "tbody", "tfoot", "thead", "tr"),
        "ul",
    )
)
_UNREAD = frozenset(("script", "style", "title", "template", "noscript"))
_MEDIA = frozenset(("audio", "video", "iframe", "embed", "object", "canvas", "svg"))
_INPUTS = frozenset(("input", "select", "textarea", "button"))
# `${e://Field/name}`; a closing brace ends it, so one within another is not read.
_PIPE = re.compile(r"\$\{(\w+)://([^{}]*)\}|\$e\{[^{}]*\}|\$\{[^{}]*\}")
_SPACES = re.compile(r"[^\S\n]+")


@dataclass(frozen=True)
class PlainText:
    """A text without HTML."""

    text: str
    # Descriptions of the parts that plain text cannot represent.
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pipe:
    """A place `${scheme://path}` where the survey inserts a value."""

    scheme: str
    path: str
    # The original notation.
    written: str


def make_plain(html: str, *, in_one_line: bool = False) -> PlainText:
    """Return the plain text of HTML."""
    if len(html) > MAX_HTML:
        return PlainText("", (f"a text of {len(html):,} characters, more than {MAX_HTML:,}",))
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = without_hidden("".join(reader.written).replace("\xa0", " "))
    lines = [_SPACES.sub(" ", line).strip() for line in text.split("\n")]
    if in_one_line:
        return PlainText(" ".join(filter(None, lines)), tuple(dict.fromkeys(reader.lost)))
    # One empty line between paragraphs, however many elements ended there.
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return PlainText(text, tuple(dict.fromkeys(reader.lost)))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.written: list[str] = []
        self.lost: list[str] = []
        self._unread = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in _UNREAD:
            self._unread += 1
            if tag == "script":
                self.lost.append("a script")
        elif tag == "br":
            self.written.append("\n")
        elif tag == "li":
            self.written.append("\n- ")
        elif tag in ("td", "th"):
            self.written.append(" ")
        elif tag == "img":
            about = make_plain(given.get("alt", ""), in_one_line=True).text
            self.written.append(f" [image: {about}] " if about else " [image] ")
            address = given.get("src", "")
            self.lost.append(f"an image ({shorten(without_hidden(address), 200)})")
        elif tag in _MEDIA:
            self.written.append(f" [{tag}] ")
            address = given.get("src", "")
            self.lost.append(f"{tag} ({shorten(without_hidden(address), 200)})")
        elif tag in _INPUTS:
            self.lost.append(f"a form element ({tag})")
        elif tag == "a" and given.get("href"):
            address = shorten(without_hidden(given["href"]), 200)
            self.lost.append(f"the address of a link ({address})")
        elif tag in _BLOCKS:
            self.written.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNREAD:
            self._unread = max(0, self._unread - 1)
        elif tag in ("p", "ul", "ol", "table", "blockquote") or re.fullmatch(r"h\d", tag):
            self.written.append("\n\n")
        elif tag in _BLOCKS:
            self.written.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unread:
            # Line breaks of the source are spaces in HTML.
            self.written.append(re.sub(r"\s+", " ", data))


def split_pipes(text: str) -> Iterator[str | Pipe]:
    """Split a plain text at its placeholders and yield all pieces in order."""
    at = 0
    for match in _PIPE.finditer(text):
        if match.start() > at:
            yield text[at : match.start()]
        yield Pipe(match[1] or "", match[2] or "", match[0])
        at = match.end()
    if at < len(text):
        yield text[at:]


def escape_braces(text: str) -> str:
    """Return a text with its braces escaped, so that they do not start placeholders."""
    return text.replace("{", '{{ "\\u007b" }}')
