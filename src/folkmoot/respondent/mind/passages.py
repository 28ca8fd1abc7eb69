"""The passages of a request. A passage is a text of known source, such as a quoted utterance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from folkmoot.hints import natural_sort_key
from folkmoot.models.request import ModelRequest
from folkmoot.provenance import UNATTRIBUTED, Source, cover_rest
from folkmoot.respondent.mind.persona import content_words

# The kinds of passages that can contain arguments. The name of an option is no argument, and a
# persona describes the reader.
TOLD = ("utterance", "answer", "material", "proposal", "summary", UNATTRIBUTED)


class Passage(NamedTuple):
    """A text of known source in a request, such as an utterance or a persona."""

    text: str
    source: Source
    # The index of the message that contains the text.
    message: int
    # True for an utterance or answer of the speaker who is asked.
    own: bool
    # True if another passage contains this passage.
    inner: bool = False


def passages_of(request: ModelRequest) -> tuple[Passage, ...]:
    """Return all passages (texts of known source) in a request, in order."""
    # A nested passage comes after the passage around it.
    found = []
    ends: dict[int, int] = {}
    speaker = request.hints.speaker
    for start, end, source, message in request.spans:
        text = request.messages[message].content[start:end]
        own = bool(speaker) and source.speaker == speaker and source.kind in ("utterance", "answer")
        inner = end <= ends.get(message, 0)
        ends[message] = max(end, ends.get(message, 0))
        found.append(Passage(text, source, message, own, inner))
    return tuple(found)


def of_kind(passages: Sequence[Passage], *kinds: str, own: bool | None = None) -> list[Passage]:
    """Return the passages (texts of known source) with a kind in `kinds`.

    - `own`: True for passages of the speaker who is asked, False for passages of other speakers,
      None for all passages.
    """
    return [
        passage
        for passage in passages
        if passage.source.kind in kinds and own in (None, passage.own)
    ]


def persona_of(passages: Sequence[Passage], speaker: str) -> list[str]:
    """Return the texts that describe the persona of a speaker, sorted by id of the text."""
    personas = {
        (passage.source.id, passage.text)
        for passage in passages
        if passage.source.kind == "persona" and speaker and passage.source.speaker == speaker
    }
    return [text for _, text in sorted(personas)]


def in_order_of_speech(passages: Sequence[Passage]) -> list[list[Passage]]:
    """Group passages by conversation. The last group holds all passages outside conversations."""
    # In a conversation, the speaker who is asked now and someone else both spoke. The passages of a
    # conversation are in order of speech.
    scopes: dict[str, list[Passage]] = {}
    for passage in passages:
        scopes.setdefault(_scope_of(passage), []).append(passage)
    conversations = {
        scope: sorted(scope_passages, key=lambda passage: natural_sort_key(last_key(passage)))
        for scope, scope_passages in scopes.items()
        if scope and len({passage.own for passage in scope_passages}) > 1
    }
    return [
        *conversations.values(),
        [passage for passage in passages if _scope_of(passage) not in conversations],
    ]


def last_key(passage: Passage) -> str:
    """Return the last key of a passage's source, such as the id of a resident or ballot item."""
    return passage.source.id.rpartition("/")[2]


def _scope_of(passage: Passage) -> str:
    is_said = passage.source.kind == "utterance"
    return passage.source.id.rpartition("/")[0] if is_said else ""


def text_outside(request: ModelRequest) -> str:
    """Return the text of the last prompt without its passages (texts of known source)."""
    # This is read as the question, but only if the study author set none with `ask(about=…)`. If no
    # content word is left, the result is the texts of unknown source in the prompt.
    # In a re-ask the question is the message before the reply that is quoted back.
    reply_messages = (span.message for span in request.spans if span.source.kind == "reply")
    prompt_messages = request.messages[: next(reply_messages, None)]
    if not prompt_messages:
        return ""
    content = prompt_messages[-1].content
    spans = [span for span in request.spans if span.message == len(prompt_messages) - 1]
    other_texts = [content[span.start : span.end] for span in cover_rest(len(content), spans)]
    unattributed_texts = [
        content[span.start : span.end] for span in spans if span.source.kind == UNATTRIBUTED
    ]
    return "\n".join(
        other_texts if any(content_words(text) for text in other_texts) else unattributed_texts
    ).strip()
