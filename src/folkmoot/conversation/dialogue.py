"""Two-sided conversation: one asks, the other answers, until a signal or a maximum.

Used by studies with a moderator (clarification, Socratic questioning).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript, Utterance


class Asker(Protocol):
    """What a dialogue needs of a scope."""

    async def ask(self, who: Speaker, prompt: str, *, heard: Transcript = EMPTY) -> Any: ...


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What was said, how it ended (`signal`, `limit` or `missing`), and who fell silent."""

    transcript: Transcript
    ended: str
    missing: Missing | None = None
    silent: str = ""


def is_signal(text: str, signal: str) -> bool:
    """Whether a reply is the signal and nothing else; quotes, stars and a full stop are forgiven.

    "I am SATISFIED with that" is not the signal.
    """
    return text.strip().strip("\"'`*_“”‘’").rstrip(".!").strip("\"'`*_“”‘’") == signal


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
        question = await scope.ask(asker, "", heard=told + said)
        if isinstance(question, Missing):
            return Dialogue(said, "missing", question, asker.role)
        if is_signal(question, signal):
            return Dialogue(said, "signal")
        said = said + Utterance(asker.id, question, asker.name, asker.role)
        reply = await scope.ask(answerer, "", heard=said)
        if isinstance(reply, Missing):
            return Dialogue(said, "missing", reply, answerer.role)
        said = said + Utterance(answerer.id, reply, answerer.name, answerer.role)
    return Dialogue(said, "limit")
