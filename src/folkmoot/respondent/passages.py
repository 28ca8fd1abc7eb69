"""The texts of known source in a request, as the embedded respondent reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from folkmoot.models.request import Request
from folkmoot.provenance import Source


class Passage(NamedTuple):
    """A text of one source. `own`: the one who is asked said or chose it; `message` is the number
    of the message in which it stands."""

    text: str
    source: Source
    message: int
    own: bool


def passages_of(request: Request) -> tuple[Passage, ...]:
    """Return the texts of known source in the messages, in order; what stands inside another comes
    after it."""
    found = []
    me = request.asked.speaker
    for start, end, source, message in request.spans:
        text = request.messages[message].content[start:end]
        own = bool(me) and source.speaker == me and source.kind in ("utterance", "answer")
        found.append(Passage(text, source, message, own))
    return tuple(found)


def of_kind(passages: Sequence[Passage], *kinds: str, own: bool | None = None) -> list[Passage]:
    """Return the passages of these kinds; `own` leaves only own ones, or only those of others."""
    return [
        passage
        for passage in passages
        if passage.source.kind in kinds and own in (None, passage.own)
    ]


def persona_of(passages: Sequence[Passage], speaker: str) -> list[str]:
    """Return the texts that describe a speaker, in the order of their ids.

    A prompt may give them in any order, and the person stays the same.
    """
    own = {
        (passage.source.id, passage.text)
        for passage in passages
        if passage.source.kind == "persona" and speaker and passage.source.speaker == speaker
    }
    return [text for _, text in sorted(own)]
