"""Speakers, utterances and transcripts, and the messages that are built from them."""

# Utterances and transcripts are immutable. The history that a speaker is shown is always an
# explicit argument.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from folkmoot.conversation.prompts import Prompt, cache_breakpoints_of
from folkmoot.models.request import Message, Role
from folkmoot.provenance import (
    UNKNOWN,
    Quoted,
    Source,
    SourcedText,
    Span,
    cover_rest,
    find_exactly,
    source_of,
    spans_of,
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A speaker that can be asked, such as a participant, a moderator or a planner."""

    id: str
    name: str = ""
    role: str = "participant"
    # The system prompt.
    system: str = ""
    # The model that answers. None: the run's model for this role.
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    # Phrases in `system`, or in prompts to this speaker, that are sent as images (`models.images`).
    images: tuple[str, ...] = ()


class Utterance(NamedTuple):
    """One utterance of one speaker."""

    speaker_id: str
    text: str
    name: str = ""
    role: str = "participant"
    stage: str = ""
    round: int | None = None
    # The reason if there is no text.
    missing: str | None = None
    # The finish reason of the reply, or None for a text that no model generated.
    finish: str | None = None
    # The phrases of `text` that are sent as images.
    images: tuple[str, ...] = ()
    # The `utterance_id` in the table `utterances`. The id is the address of the reply, with `#part`
    # if the reply holds several utterances. `Scope.say` sets the id.
    id: str = ""
    # True if the other speakers of the conversation are shown the utterance.
    public: bool = True
    # The wording that humans are shown in place of `text`, or empty.
    for_people: str = ""

    @property
    def source(self) -> Source:
        """Where the text of the utterance comes from."""
        # It is this utterance, if it was recorded and has an `id`. Otherwise it is where the text
        # was taken from: a reply, an answer or another utterance.
        if self.id:
            return Source("utterance", self.id, self.speaker_id)
        source = source_of(self.text)
        if source is not None and source.kind in ("utterance", "answer", "reply"):
            return source
        return Source("utterance", "", self.speaker_id)

    @property
    def quoted_text(self) -> Quoted:
        """The text for use in prompts, as a string that also records who said it."""
        return Quoted(self.text, self.source)

    def to_source_json(self) -> dict[str, str]:
        """Return the utterance as a dictionary with the keys `role` and `content`."""
        # This is the format of the original cross-pollination transcripts.
        return {"role": self.role, "content": self.text}


@dataclass(frozen=True, slots=True)
class Transcript:
    """An unchangeable sequence of utterances.

    `transcript + utterance` is a new transcript.
    """

    utterances: tuple[Utterance, ...] = ()

    def __add__(self, other: Utterance | Iterable[Utterance]) -> Transcript:
        if isinstance(other, Utterance):
            return Transcript((*self.utterances, other))
        return Transcript((*self.utterances, *other))

    def __iter__(self) -> Iterator[Utterance]:
        return iter(self.utterances)

    def __len__(self) -> int:
        return len(self.utterances)

    def __bool__(self) -> bool:
        return bool(self.utterances)

    def last(self, count: int) -> Transcript:
        """Return the `count` most recent utterances."""
        # In Python, `[-0:]` would return all utterances.
        return Transcript(self.utterances[-count:] if count > 0 else ())

    def to_source_json(self) -> list[dict[str, str]]:
        return [utterance.to_source_json() for utterance in self.utterances]


EMPTY_TRANSCRIPT = Transcript()


def last_finish_reason(scope: object) -> str | None:
    """Return the finish reason of the last reply in a scope.

    Returns None before the first reply.
    """
    # Also if `scope` does not record finish reasons.
    finish_reason = getattr(scope, "finish", None)
    return finish_reason if isinstance(finish_reason, str) else None


class BuiltMessages(NamedTuple):
    """The messages of a request, the cache breakpoints, and the sources of the texts."""

    messages: tuple[Message, ...]
    # Ascending character offsets into the concatenated message texts. A later request of the same
    # speaker may differ after an offset. There is an offset after each utterance of the history,
    # and wherever the prompt template sets an offset. If the history holds earlier prompts, there
    # is an offset at the end.
    cache_breakpoints: tuple[int, ...]
    # The sources of the texts in the messages.
    spans: tuple[Span, ...]


def build_messages(
    speaker: Speaker, history: Transcript, prompt: str, shows: Sequence[str] = ()
) -> BuiltMessages:
    """Build the messages of a request: the system prompt, the history, then the prompt.

    - `shows`: texts that the prompt contains. The sources of these texts are recorded.

    Raises ValueError if the prompt lacks a text in `shows`.
    """
    # The speaker's utterances become `assistant` messages, and the utterances of other speakers
    # `user` messages. If the history holds more than one other speaker, each of their utterances
    # begins with the speaker's name. Neighbouring messages of one role are joined, because some
    # providers reject two in a row. An utterance without a speaker id is an earlier prompt, which
    # becomes a `user` message without a name.
    spoken = [utterance for utterance in history.utterances if utterance.missing is None]
    has_several_speakers = (
        len({utterance.speaker_id for utterance in spoken} - {"", speaker.id}) > 1
    )
    # Parts are collected in lists and joined at the end. Concatenation would be quadratic in long
    # histories.
    contents: list[list[str]] = []
    roles: list[Role] = []
    spans: list[Span] = []
    # `offset` counts characters in the current message, `length` in all messages together.
    offset = 0
    length, breakpoints = len(speaker.system), list(cache_breakpoints_of(speaker.system))
    if speaker.system:
        roles.append("system")
        contents.append([str(speaker.system)])
        spans += _spans_of_prompt(speaker.system)
    prompt_utterance = Utterance("", _with_shown(speaker, prompt, shows) if shows else prompt)
    for utterance in (*spoken, prompt_utterance):
        role: Role = "assistant" if utterance.speaker_id == speaker.id != "" else "user"
        needs_label = has_several_speakers and role == "user" and utterance.speaker_id
        label = f"{utterance.name or utterance.speaker_id}: " if needs_label else ""
        # Providers reject empty messages.
        if not label and not utterance.text:
            continue
        if spoken:
            breakpoints.append(length)
        if roles and roles[-1] == role:
            offset += 2
            contents[-1] += ("\n\n", label, utterance.text)
            length += 2
        else:
            roles.append(role)
            contents.append([label, utterance.text])
            offset = 0
        offset += len(label)
        message = len(roles) - 1
        utterance_spans = (
            _spans_of_utterance(utterance)
            if utterance.speaker_id
            else _spans_of_prompt(utterance.text)
        )
        spans += [span.shift_span(offset, message) for span in utterance_spans]
        offset += len(utterance.text)
        length += len(label) + len(utterance.text)
    # The prompt is the last text, so its breakpoints are counted back from the end.
    if prompt_breakpoints := cache_breakpoints_of(prompt):
        start = length - len(prompt)
        breakpoints += [start + prompt_offset for prompt_offset in prompt_breakpoints]
    if any(not utterance.speaker_id for utterance in spoken):
        breakpoints.append(length)
    messages = [
        Message(role, "".join(content)) for role, content in zip(roles, contents, strict=True)
    ]
    return BuiltMessages(tuple(messages), tuple(dict.fromkeys(breakpoints)), tuple(spans))


def _spans_of_utterance(utterance: Utterance) -> tuple[Span, ...]:
    text = utterance.text
    source = source_of(text)
    if source is not None and source[:3] == utterance.source[:3]:
        # The text already carries its recorded source, from `Scope.say` or as an answer.
        return spans_of(text)
    inner = (
        span for span in spans_of(text) if span.source.kind not in ("unattributed", "utterance")
    )
    return (Span(0, len(text), utterance.source), *inner) if text else ()


def _spans_of_prompt(text: str) -> tuple[Span, ...]:
    if isinstance(text, SourcedText):
        return text.spans
    return (Span(0, len(text), UNKNOWN),) if text else ()


def _with_shown(speaker: Speaker, prompt: str, shows: Sequence[str]) -> str:
    # The study author lists in `shows` the texts that the prompt shows.
    try:
        spans = find_exactly(prompt, shows, f"the prompt of {speaker.id}")
    except ValueError as error:
        raise ValueError(f"shows: {error}") from None
    known_spans = (*spans_of(prompt), *spans)
    rest_spans = () if isinstance(prompt, SourcedText) else cover_rest(len(prompt), spans)
    return Prompt(prompt, sorted((*known_spans, *rest_spans)), cache_breakpoints_of(prompt))
