"""Run a conversation in which one speaker asks and the other answers."""

# The conversation ends with a signal or after a maximum number of questions. In studies with a
# moderator, clarification and Socratic questioning are such conversations.

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from folkmoot.conversation.answer_types import Missing, Text
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance


class SupportsConversation(Protocol):
    """An object that can ask speakers questions and record what they say."""

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
    """The settings of a dialogue: opening prompt, end signal and maximum number of questions."""

    # The prompt for the first question.
    opening: str
    # The reply that ends the dialogue.
    signal: str
    # The maximum number of questions.
    max_exchanges: int
    # The subject of the dialogue.
    about: str = ""


@dataclass(frozen=True, slots=True)
class DialogueResult:
    """The transcript of a dialogue, and the reason why the dialogue ended."""

    transcript: Transcript
    # `signal`, `limit` or `missing`. If it is `missing`, the field `missing` holds the missing
    # answer, and `silent_speaker` the role of the speaker who gave none.
    ended: str
    missing: Missing | None = None
    silent_speaker: str = ""


def contains_signal(text: str, signal: str) -> bool:
    """Return whether a reply gives the signal that ends a dialogue."""
    # The signal counts in three cases. A sentence or line consists of the signal alone, apart from
    # case, quotation marks, Markdown and closing punctuation. Or the speaker applies the signal to
    # themselves in a sentence, as in "I am now satisfied". Or a sentence ends with the unchanged
    # signal after a comma, colon, dash or bracket, as in "Thank you: SATISFIED". The signal does
    # not count inside a sentence, in a question, negated or announced for later. A signal before a
    # question does not count either.
    sentences = [
        sentence for sentence in _SENTENCE.split(text.strip()) if re.search(r"\w", sentence)
    ]
    signal_indices = [
        index
        for index, sentence in enumerate(sentences)
        if _sentence_gives_signal(sentence, signal)
    ]
    return bool(signal_indices) and not any(
        _QUESTION_MARK_PATTERN.search(sentence) for sentence in sentences[signal_indices[0] :]
    )


# The end of a line or of a sentence, with closing quotation marks and Markdown after it.
_SENTENCE = re.compile(r"\n+|(?<=[.!?…。！？])[\"'”’)\]*_`]*\s+")
# A question that contains the signal ("Are you satisfied?") does not give it.
_QUESTION_MARK_PATTERN = re.compile(r"[?？][\W_]*$")
# Quotation marks, Markdown and punctuation around the text.
# The lookbehind keeps the time linear in a long run of signs.
_DECORATION = re.compile(r"^[\W_]+|(?<![\W_])[\W_]+$")
# A comma, colon, dash or opening bracket, which separates the signal from the rest of a sentence.
_CLAUSE_BREAK_PATTERN = re.compile(r"[,;:—–]|\s-+\s|\s[(\[{<*_]+(?=\w)")
# A heading that models put before the signal: "Moderator: SATISFIED".
_LABEL = re.compile(r"[\W_]*(?:moderator|response|reply|answer|status|signal)[\W_]*", re.IGNORECASE)
# "I am satisfied", "I'm now fully satisfied": the signal is the predicate of the whole sentence.
_OF_ONESELF = re.compile(
    r"(?:(?:thank you|thanks|ok|okay|great|good|then|so|now|yes|well)[,:;]?\s+)*"
    r"i(?:['’]m| am)(?: (?:now|fully|completely|quite|very|entirely|perfectly))*\s+[\W_]*",
    re.IGNORECASE,
)
# Words before the signal which show that the speaker mentions, denies or postpones it. A form of
# "be" counts too: "the word is: SATISFIED" mentions the signal.
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
    # After other words than a label, the exact spelling is required. In "Good, satisfied" the word
    # may be an ordinary one.
    return after == signal and not _NEGATED_SIGNAL_PATTERN.search(before)


async def interview(
    scope: SupportsConversation,
    interviewer: Speaker,
    interviewee: Speaker,
    agenda: Agenda,
    **columns: Any,
) -> DialogueResult:
    """Let one speaker question the other, until `agenda` ends the dialogue.

    `columns`: additional columns for the rows in the table `utterances`.
    """
    # Each of the two speakers is shown their own system prompt and this dialogue. Each utterance is
    # recorded at once, with its `turn` from 1. The signal is not recorded as an utterance.
    transcript, about = EMPTY_TRANSCRIPT, agenda.about
    # The opening prompt is part of the interviewer's history in each turn. It has no speaker id, so
    # it becomes a user message without a name.
    opening = EMPTY_TRANSCRIPT + Utterance("", agenda.opening)

    def append_utterance(speaker: Speaker, text: str) -> Transcript:
        turn = len(transcript) + 1
        return transcript + scope.say(speaker, text, address=scope.address, turn=turn, **columns)

    for _ in range(agenda.max_exchanges):
        question = await scope.ask(
            interviewer,
            "",
            history=opening + transcript,
            answer_type=_spoken_text(interviewer, interviewee, agenda.signal),
            about=about,
        )
        if isinstance(question, Missing):
            return DialogueResult(transcript, "missing", question, interviewer.role)
        # Check for the signal before the utterance is recorded, because the signal is no question.
        if contains_signal(question, agenda.signal):
            return DialogueResult(transcript, "signal")
        transcript = append_utterance(interviewer, question)
        reply = await scope.ask(
            interviewee,
            "",
            history=transcript,
            answer_type=_spoken_text(interviewee, interviewer),
            about=about,
        )
        if isinstance(reply, Missing):
            return DialogueResult(transcript, "missing", reply, interviewee.role)
        transcript = append_utterance(interviewee, reply)
    return DialogueResult(transcript, "limit")


def _spoken_text(speaker: Speaker, other: Speaker, end_signal: str = "") -> Text:
    own_names, other_names = (
        tuple(filter(None, (someone.name, someone.role))) for someone in (speaker, other)
    )
    return Text(end_signal=end_signal, own_names=own_names, other_names=other_names)
