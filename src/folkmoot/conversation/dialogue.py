"""Two-sided conversation: one asks, the other answers, until a signal or a maximum.

Used by studies with a moderator (clarification, Socratic questioning).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from folkmoot.conversation.answer_types import Missing, Text
from folkmoot.conversation.reply_forms import text_before_other_speaker
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance


class SupportsConversation(Protocol):
    """What a dialogue needs of a scope."""

    @property
    def address(self) -> str: ...

    async def ask(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        answer_type: Text,
        history: Transcript = EMPTY_TRANSCRIPT,
        about: str = "",
    ) -> Any: ...

    def say(self, speaker: Speaker, text: str, *, address: str, **columns: Any) -> Utterance: ...


@dataclass(frozen=True, slots=True)
class Agenda:
    """How a dialogue goes: the prompt for the first question, the signal that ends it, and at most
    how many questions with their answers. `about` is its matter, in words."""

    opening: str
    signal: str
    max_exchanges: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class DialogueResult:
    """What was said, how it ended (`signal`, `limit` or `missing`), and who fell silent."""

    transcript: Transcript
    ended: str
    missing: Missing | None = None
    silent_speaker: str = ""


def contains_signal(text: str, signal: str) -> bool:
    """Whether a reply gives the signal, as people and models write it.

    It does when a sentence or line of it is the signal and nothing else (case, quotes, markdown and
    closing punctuation aside) or says just that of the speaker ("I am now satisfied"), or when a
    sentence ends in the signal as it was agreed on, set off
    by a comma, colon, dash or brackets ("Thank you: SATISFIED"). Inside a sentence, as a question,
    negated, or announced for later it is not a signal, nor if a question follows.
    """
    sentences = [s for s in _SENTENCE.split(text.strip()) if re.search(r"\w", s)]
    given = [n for n, sentence in enumerate(sentences) if _sentence_gives_signal(sentence, signal)]
    return bool(given) and not any(
        _QUESTION_MARK_PATTERN.search(sentence) for sentence in sentences[given[0] :]
    )


_SENTENCE = re.compile(r"\n+|(?<=[.!?…。！？])[\"'”’)\]*_`]*\s+")
_QUESTION_MARK_PATTERN = re.compile(r"[?？][\W_]*$")
_DECORATION = re.compile(r"^[\W_]+|[\W_]+$")
_CLAUSE_BREAK_PATTERN = re.compile(r"[,;:—–]|\s-+\s|\s[(\[{<*_]+(?=\w)")
_LABEL = re.compile(r"[\W_]*(?:moderator|response|reply|answer|status|signal)[\W_]*", re.IGNORECASE)
# "I am satisfied", "I'm now fully satisfied": the signal as the predicate of the whole sentence.
_OF_ONESELF = re.compile(
    r"(?:(?:thank you|thanks|ok|okay|great|good|then|so|now|yes|well)[,:;]?\s+)*"
    r"i(?:['’]m| am)(?: (?:now|fully|completely|quite|very|entirely|perfectly))*\s+[\W_]*",
    re.IGNORECASE,
)
# Before the signal these say that it is meant, denied or put off, and not given.
_NEGATED_SIGNAL_PATTERN = re.compile(
    r"(?:n['’]t|\b(?:not|never|yet|am|is|are|be|being|i['’]m|you['’]re|fully|completely))[\W_]*$"
    r"|\b(?:will|would|shall|can|could|when|once|until|unless|if)\b|['’]ll\b",
    re.IGNORECASE,
)


def _sentence_gives_signal(sentence: str, signal: str) -> bool:
    if _QUESTION_MARK_PATTERN.search(sentence):
        return False
    bare = _DECORATION.sub("", sentence)
    if bare.casefold() == signal.casefold():
        return True
    of_oneself = _OF_ONESELF.match(bare)
    if of_oneself and bare[of_oneself.end() :].casefold() == signal.casefold():
        return True
    marks = list(_CLAUSE_BREAK_PATTERN.finditer(bare))
    if not marks:
        return False
    before, after = bare[: marks[-1].start()], _DECORATION.sub("", bare[marks[-1].end() :])
    if _LABEL.fullmatch(before):
        return after.casefold() == signal.casefold()
    return after == signal and not _NEGATED_SIGNAL_PATTERN.search(before)


async def interview(
    scope: SupportsConversation,
    interviewer: Speaker,
    interviewee: Speaker,
    agenda: Agenda,
    **columns: Any,
) -> DialogueResult:
    """Let `interviewer` question `interviewee` until it gives the signal, or the agenda is done.

    Each side knows its own system prompt and what was said here. Each utterance is recorded when it
    is made, with its `turn` from 1 and the study's own `columns` of the table `utterances`; a
    signal is none.
    """
    said, about = EMPTY_TRANSCRIPT, agenda.about
    told = EMPTY_TRANSCRIPT + Utterance("", agenda.opening)

    def append_utterance(speaker: Speaker, text: str) -> Transcript:
        turn = len(said) + 1
        return said + scope.say(speaker, text, address=scope.address, turn=turn, **columns)

    for _ in range(agenda.max_exchanges):
        question = await scope.ask(
            interviewer,
            "",
            history=told + said,
            answer_type=Text(end_signal=agenda.signal),
            about=about,
        )
        if isinstance(question, Missing):
            return DialogueResult(said, "missing", question, interviewer.role)
        question = _own_words(question, interviewer, interviewee)
        if contains_signal(question, agenda.signal):
            return DialogueResult(said, "signal")
        said = append_utterance(interviewer, question)
        reply = await scope.ask(interviewee, "", history=said, answer_type=Text(), about=about)
        if isinstance(reply, Missing):
            return DialogueResult(said, "missing", reply, interviewee.role)
        said = append_utterance(interviewee, _own_words(reply, interviewee, interviewer))
    return DialogueResult(said, "limit")


def _own_words(text: str, speaker: Speaker, other: Speaker) -> str:
    """Return the words of the speaker who was asked; all of a reply that is in the other's name
    from its start, since nothing tells which of them are the speaker's."""
    names = {other.name, other.role} - {speaker.name, speaker.role, ""}
    return text_before_other_speaker(text, names) or text
