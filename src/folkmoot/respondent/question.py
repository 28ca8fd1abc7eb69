"""Which sentence of a prompt asks, apart from what is shown beside it and from how to answer."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from folkmoot.respondent.persona import ASKING, content_words

SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
# A request: in the imperative, or wrapped up politely.
_REQUEST = re.compile(
    r"^(?:(?:now|so|then|finally|next)\b,?\s+)?(?:answer|choose|decide|describe|estimate|explain"
    r"|give|guess|indicate|judge|mark|name|pick|place|put|rank|rate|report|say|score|select|state"
    r"|tell|vote|weigh|write)\b"
    r"|\b(?:please|kindly|(?:asked|requested|task is) to"
    r"|(?:should|would|['’]d) (?:like|love|be glad)|(?:let|tell) (?:us|me))\b",
    re.IGNORECASE,
)
_FORWARD = re.compile(r"\b(?:following|below)\b|:\s*$")
# Words that are shown: an item of a list, a row of a table, a line in quotation marks …
_SHOWN = re.compile(r"\s*(?:[-*•>|\"“«]|\(?(?:\d{1,2}|[a-z])[.)]\s|\[)")
# … or under the name of a speaker.
_LABEL = re.compile(r"^\s*([^\W\d_][^:?!.]{0,30}):\s")


class _Sentence(NamedTuple):
    text: str
    paragraph: int
    shown: bool
    content: bool

    @property
    def asks(self) -> bool:
        return not self.shown and ("?" in self.text or _REQUEST.search(self.text) is not None)


@lru_cache(maxsize=2048)
def question_of(prompt: str, fields: frozenset[str] = frozenset()) -> str:
    """What a prompt asks: its last sentence with a question mark, else its last request, in the
    last paragraph that says something, else in any; failing that the last question that somebody
    puts in what is shown, else the last sentence that says something. A sentence that says nothing
    by itself ("How far do you agree?") is given with the one that it is about. `fields`: words
    that only name parts of the answer."""
    known = [
        _Sentence(text, n, shown, bool(content_words(text) - ASKING - fields))
        for n, paragraph in enumerate(prompt.split("\n\n"))
        for line in paragraph.splitlines()
        for shown in (_is_shown(line),)
        for text in SENTENCE.split(line if shown else _LABEL.sub("", line, count=1))
        if text.strip()
    ]
    saying = [s for s in known if s.content and not s.shown] or [s for s in known if s.content]
    saying = [s for s in saying if len(s.text.split()) > 5] or saying
    last = [s for s in known if saying and s.paragraph == saying[-1].paragraph]
    for where in (last, known):
        marked = [s for s in where if s.asks and "?" in s.text]
        if asked := marked or [s for s in where if s.asks and s.content]:
            return _with_its_matter(asked[-1], known)
    put = [s.text for s in known if s.shown and s.content and "?" in s.text]
    return (put or [s.text for s in saying] or [prompt])[-1]


def _with_its_matter(asked: _Sentence, known: list[_Sentence]) -> str:
    """A sentence that asks, with the nearest one that says of what where it does not itself."""
    if asked.content:
        return asked.text
    at = known.index(asked)
    before, after = [s for s in known[:at] if s.content], [s for s in known[at:] if s.content]
    forward = after and (not before or _FORWARD.search(asked.text))
    about = after[0] if forward else before[-1] if before else None
    return f"{about.text} {asked.text}" if about else asked.text


def _is_shown(line: str) -> bool:
    label = _LABEL.match(line)
    return bool((label and _is_speaker(label[1])) or _SHOWN.match(line))


def _is_speaker(label: str) -> bool:
    """Whether words before a colon name somebody; those of a heading ("Once more", "Forecasting
    question 1") are no name."""
    if re.search(r"[^\W\d_]\d", label):
        return True
    words = re.sub(r"^(?:The|A|An|Your|One)\s", "", label).split()
    named = all(w[0].isupper() or not w[0].isalpha() for w in words[1:])
    return named and bool(content_words(label) - ASKING)
