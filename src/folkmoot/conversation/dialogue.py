"""Two-sided conversation: one asks, the other answers, until a signal or a maximum.

Used by studies with a moderator (clarification, Socratic questioning).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from folkmoot.conversation.answers import Missing, Text
from folkmoot.conversation.spoken import own_part
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript, Utterance, how_ended


class Asker(Protocol):
    """What a dialogue needs of a scope."""

    async def ask(
        self, who: Speaker, prompt: str, *, answer: Text, heard: Transcript = EMPTY
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What was said, how it ended (`signal`, `limit` or `missing`), and who fell silent."""

    transcript: Transcript
    ended: str
    missing: Missing | None = None
    silent: str = ""


def is_signal(text: str, signal: str) -> bool:
    """Whether a reply gives the signal, as people and models write it.

    It does when a sentence or line of it is the signal and nothing else (case, quotes, markdown and
    closing punctuation aside) or says just that of the speaker ("I am now satisfied"), or when a
    sentence ends in the signal as it was agreed on, set off
    by a comma, colon, dash or brackets ("Thank you: SATISFIED"). Inside a sentence, as a question,
    negated, or announced for later it is not a signal, nor if a question follows.
    """
    sentences = [s for s in _SENTENCE.split(text.strip()) if re.search(r"\w", s)]
    given = [n for n, s in enumerate(sentences) if _gives(s, signal)]
    return bool(given) and not any(_ASKS.search(s) for s in sentences[given[0] :])


_SENTENCE = re.compile(r"\n+|(?<=[.!?…。！？])[\"'”’)\]*_`]*\s+")
_ASKS = re.compile(r"[?？][\W_]*$")
_DECORATION = re.compile(r"^[\W_]+|[\W_]+$")
_SET_OFF = re.compile(r"[,;:—–]|\s-+\s|\s[(\[{<*_]+(?=\w)")
_LABEL = re.compile(r"[\W_]*(?:moderator|response|reply|answer|status|signal)[\W_]*", re.IGNORECASE)
# "I am satisfied", "I'm now fully satisfied": the signal as the predicate of the whole sentence.
_OF_ONESELF = re.compile(
    r"(?:(?:thank you|thanks|ok|okay|great|good|then|so|now|yes|well)[,:;]?\s+)*"
    r"i(?:['’]m| am)(?: (?:now|fully|completely|quite|very|entirely|perfectly))*\s+[\W_]*",
    re.IGNORECASE,
)
# Before the signal these say that it is meant, denied or put off, and not given.
_NOT_GIVEN = re.compile(
    r"(?:n['’]t|\b(?:not|never|yet|am|is|are|be|being|i['’]m|you['’]re|fully|completely))[\W_]*$"
    r"|\b(?:will|would|shall|can|could|when|once|until|unless|if)\b|['’]ll\b",
    re.IGNORECASE,
)


def _gives(sentence: str, signal: str) -> bool:
    if _ASKS.search(sentence):
        return False
    bare = _DECORATION.sub("", sentence)
    if bare.casefold() == signal.casefold():
        return True
    of_oneself = _OF_ONESELF.match(bare)
    if of_oneself and bare[of_oneself.end() :].casefold() == signal.casefold():
        return True
    marks = list(_SET_OFF.finditer(bare))
    if not marks:
        return False
    before, after = bare[: marks[-1].start()], _DECORATION.sub("", bare[marks[-1].end() :])
    if _LABEL.fullmatch(before):
        return after.casefold() == signal.casefold()
    return after == signal and not _NOT_GIVEN.search(before)


async def question_and_answer(
    scope: Asker,
    asker: Speaker,
    answerer: Speaker,
    *,
    opening: str,
    signal: str,
    max_exchanges: int,
) -> Dialogue:
    """Let `asker` question `answerer` until it says `signal`, at most `max_exchanges` times.

    `opening` is the prompt for the first question. Each side knows its own system prompt and what
    was said here. An exchange is a question and its answer.
    """
    said = EMPTY
    told = EMPTY + Utterance("", opening)
    for _ in range(max_exchanges):
        question = await scope.ask(asker, "", heard=told + said, answer=Text(signal=signal))
        if isinstance(question, Missing):
            return Dialogue(said, "missing", question, asker.role)
        question = _own(question, asker, answerer)
        if is_signal(question, signal):
            return Dialogue(said, "signal")
        said = said + _said(scope, asker, question)
        reply = await scope.ask(answerer, "", heard=said, answer=Text())
        if isinstance(reply, Missing):
            return Dialogue(said, "missing", reply, answerer.role)
        said = said + _said(scope, answerer, _own(reply, answerer, asker))
    return Dialogue(said, "limit")


def _own(text: str, who: Speaker, other: Speaker) -> str:
    """The words of the one who was asked; all of a reply that is in the other's name from its
    start, since nobody can say what is whose."""
    names = {other.name, other.role} - {who.name, who.role, ""}
    return own_part(text, names) or text


def _said(scope: Asker, who: Speaker, text: str) -> Utterance:
    return Utterance(who.id, text, who.name, who.role, finish=how_ended(scope))
