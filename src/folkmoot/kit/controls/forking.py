"""Fork a decision: ask again the replies that depend on a replaced text, then the decision.

If the speaker has replied to a text, the text cannot be replaced alone. The prompt would then hold
replies to words that it no longer contains. The spans of a request name the earlier replies that
the request quotes. So the replies that depend on the replaced texts are known before the first
call. These replies are asked again in the order of the protocol. In each request, the new replies
replace the old replies. All replies that do not depend on a replaced text are taken from the
journal at no cost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import polars as pl

from folkmoot.conversation.answer_types import AnswerType, ParsedAnswer, ParseFailure, Text
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.json_replies import json_candidates
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.settings.controls import Language
from folkmoot.json_text import Schema
from folkmoot.kit.controls.conversations import (
    ControlledDecision,
    DecisionConversation,
    last_entry,
    messages_of,
    spans_at,
)
from folkmoot.kit.controls.replacing import (
    REPLIED,
    UNCHANGED,
    Refusal,
    Replaced,
    Treatments,
    outermost_spans,
    replaced_texts,
    replaced_version,
)
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.provenance import Replacement, SourcedText, Span, replace_parts, spans_of
from folkmoot.storage.run_folder import RunFolder

# The path of keys and indices to one string in a JSON reply.
JsonPath = tuple[str | int, ...]


class JournaledReply(NamedTuple):
    """A reply of the run with its request.

    `texts` are the system prompt and the messages of the request. `is_own` says for each message
    whether it is a reply of the speaker. `order` is the position of the reply in the protocol.
    `reply` is the last reply after re-asks.
    """

    address: str
    order: int
    speaker: Speaker
    texts: tuple[str, ...]
    is_own: tuple[bool, ...]
    kind: str
    options: tuple[str, ...]
    recorded: str | None
    schema: Schema | None
    reply: str

    @property
    def answer(self) -> AnswerType[Any]:
        """The answer type with which the reply can be asked again without the code of its study."""
        if self.options:
            return Choice(self.options)
        return Text() if self.schema is None else JsonText(self.schema)

    @property
    def can_be_asked(self) -> bool:
        """True if the reply can be asked again without the code of its study.

        The value is False for a reply of a human, and for a number, because its bounds are not
        journaled.
        """
        is_readable = bool(self.options) or self.schema is not None or self.kind == "text"
        return self.speaker.model != HUMAN_MODEL and is_readable


@dataclass(frozen=True, slots=True)
class JsonText(AnswerType[str]):
    """The answer type for any JSON object. The answer is the whole reply."""

    schema: Schema = field(default_factory=dict)
    kind: str = "json"

    def parse_reply(self, reply: str) -> ParsedAnswer[str] | ParseFailure:
        """Return the reply if it holds a JSON object, or the problem for a re-ask."""
        if any(isinstance(value, dict) for _, value in json_candidates(reply, "{")):
            return ParsedAnswer(reply, "exact")
        return ParseFailure("Reply with only a JSON object.")


class ForkStep(NamedTuple):
    """A reply to ask again, with the texts of its request.

    `texts` have the replacements of the control. The new replies of earlier steps are inserted when
    the step is asked.
    """

    reply: JournaledReply
    texts: tuple[str, ...]


class ForkedDecision(NamedTuple):
    """A changed decision with the replies that have to be asked before it, in order."""

    steps: tuple[ForkStep, ...]
    decision: Replaced


class ReplyGraph:
    """The replies of a run by address, with their requests.

    Only replies that `read_behind` has read are included.
    """

    def __init__(self, run: RunFolder, journal: JournalReader) -> None:
        self._run = run
        self._journal = journal
        self._replies: dict[str, JournaledReply | None] = {}

    def replies_at(self, addresses: Iterable[str]) -> Iterator[JournaledReply]:
        """Yield the replies at some addresses. Addresses that were not read are left out."""
        for address in addresses:
            if (reply := self._replies.get(address)) is not None:
                yield reply

    def read_behind(self, texts: Iterable[str]) -> None:
        """Read the replies that the texts quote, the replies quoted in their requests, and so on.

        Each round reads all quoted replies that are not yet known, in one scan of the table
        `provenance`.
        """
        waiting = addresses_in(texts) - self._replies.keys()
        while waiting:
            self._read(sorted(waiting))
            read = (reply for address in waiting if (reply := self._replies[address]) is not None)
            behind = {address for reply in read for address in addresses_in(reply.texts)}
            waiting = behind - self._replies.keys()

    def _read(self, addresses: Sequence[str]) -> None:
        spans = spans_at(self._run, addresses)
        columns = ("order", "speaker_id", "role", "kind", "options", "recorded", "model_asked")
        rows = (
            self._run.scan_table("answers")
            .with_row_index("order")
            .filter(pl.col("address").is_in(list(addresses)))
            .select("address", *columns)
            .collect()
        )
        self._replies.update(dict.fromkeys(addresses))
        for address, order, who, role, kind, options, recorded, model in rows.iter_rows():
            first, last = self._journal.entry_at(address), last_entry(self._journal, address)
            if first is None or last is None:
                continue
            messages = messages_of(first, spans.get(address, {}))
            texts = [text for _, text in messages]
            is_own = [message_role == "assistant" for message_role, _ in messages]
            # A request without a system prompt gets an empty one, so that messages count from 1.
            if not messages or messages[0][0] != "system":
                texts, is_own = [SourcedText(""), *texts], [False, *is_own]
            speaker = Speaker(
                who,
                role=role,
                model=model,
                temperature=first.request.get("temperature"),
                max_tokens=first.request.get("max_tokens"),
            )
            self._replies[address] = JournaledReply(
                address,
                order,
                speaker,
                tuple(texts),
                tuple(is_own),
                kind,
                tuple(json.loads(options or "[]")),
                recorded,
                first.request.get("schema"),
                last.reply,
            )


def fork_decision(
    control: str,
    decision: ControlledDecision,
    conversation: DecisionConversation,
    treatments: Treatments,
    language: Language,
    graph: ReplyGraph,
) -> ForkedDecision | Refusal:
    """Return the version of a decision that a control asks, or the reason why it cannot be asked.

    `graph` must hold all replies on which the texts of the decision depend. `graph` may be empty if
    the speaker has not replied before the decision.
    """
    treatment = treatments.at(decision.address)
    texts = texts_of(conversation)
    changed = replaced_texts(control, decision, texts, treatment, language)
    touched = [n for n, text in enumerate(texts) if str(text) != str(changed[n])]
    if not touched:
        return UNCHANGED
    # `texts` begins with the system prompt, so messages are counted from 1.
    replied = [n for n, utterance in enumerate(conversation.asked, 1) if utterance.speaker_id]
    if not any(n > touched[0] for n in replied):
        return ForkedDecision((), replaced_version(control, decision, conversation, changed))
    reachable: dict[str, ForkStep] = {}
    waiting = addresses_in(changed)
    # Texts that the control replaces are in `changed` no more, so the replies behind them are not
    # reached and cost nothing.
    while waiting:
        found: set[str] = set()
        for reply in graph.replies_at(waiting):
            own = reply.texts
            if reply.speaker.id == decision.participant_id:
                own = tuple(replaced_texts(control, decision, own, treatment, language))
            reachable[reply.address] = ForkStep(reply, own)
            found |= addresses_in(own)
        waiting = found - reachable.keys() - waiting
    asked_again: dict[str, ForkStep] = {}
    # A prompt contains only earlier replies, so one pass in the order of the protocol is enough.
    for step in sorted(reachable.values(), key=lambda step: step.reply.order):
        if _is_replaced(step.reply.texts, step.texts) or addresses_in(step.texts) & (
            asked_again.keys()
        ):
            asked_again[step.reply.address] = step
    steps = tuple(asked_again.values())
    quoting = [changed, *(step.texts for step in steps)]
    # The control asks all or nothing: an old reply among new ones would answer words that are gone.
    if not all(step.reply.can_be_asked for step in steps) or not all(
        _path_to(asked_again[span.source.address].reply, str(text)[span.start : span.end])
        is not None
        for group in quoting
        for text in group
        for span in _quoted(text, asked_again)
    ):
        return REPLIED
    return ForkedDecision(steps, replaced_version(control, decision, conversation, changed))


def with_new_replies(
    texts: Sequence[str], steps: Mapping[str, JournaledReply], new: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return the texts of a request with the new replies instead of the old replies.

    `steps` maps an address to the old reply. `new` maps the address of an old reply to the address
    and the text of the new reply. A request may quote one field of an old JSON reply. Raises
    KeyError if the new reply lacks this field.
    """
    result: list[str] = []
    for text in texts:
        parts = []
        for span in _quoted(text, new):
            address, reply = new[span.source.address]
            old = steps[span.source.address]
            path = _path_to(old, str(text)[span.start : span.end])
            said = _text_at(old, path or (), reply)
            source = span.source._replace(id=address)
            parts.append(
                Replacement(
                    span.start, span.end, SourcedText(said, [Span(0, len(said), source, 0)])
                )
            )
        result.append(replace_parts(text, parts) if parts else text)  # type: ignore[arg-type]
    return result


def texts_of(conversation: DecisionConversation) -> list[str]:
    """Return the system prompt and the messages of a decision."""
    return [conversation.speaker.system, *(utterance.text for utterance in conversation.asked)]


def has_own_replies(conversation: DecisionConversation) -> bool:
    """Return whether the speaker has replied in the conversation before the decision."""
    return any(utterance.speaker_id for utterance in conversation.asked)


def addresses_in(texts: Iterable[str]) -> set[str]:
    """Return the addresses of the replies that some texts contain."""
    return {
        span.source.address
        for text in texts
        for span in outermost_spans(spans_of(text))
        if span.source.address
    }


def _quoted(text: str, addresses: Collection[str]) -> Iterator[Span]:
    """Yield the spans of a text that quote a reply at one of the addresses."""
    for span in outermost_spans(spans_of(text)):
        if span.source.address in addresses:
            yield span


def _is_replaced(before: Sequence[str], after: Sequence[str]) -> bool:
    return [str(text) for text in before] != [str(text) for text in after]


def _path_to(reply: JournaledReply, quoted: str) -> JsonPath | None:
    """Return the JSON path at which a reply contains a quoted text, or None if there is none.

    The path is () if the quoted text is the whole reply.
    """
    text = quoted.strip()
    if text in (reply.reply.strip(), reply.recorded):
        return ()
    if reply.schema is None:
        return None
    return next(
        (
            path
            for _, value in json_candidates(reply.reply, "{[")[:1]
            for path, leaf in _leaves(value)
            if str(leaf).strip() == text
        ),
        None,
    )


def _leaves(value: object, path: JsonPath = ()) -> Iterator[tuple[JsonPath, object]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    else:
        yield path, value


def _text_at(old: JournaledReply, path: JsonPath, reply: str) -> str:
    """Return the text at the path of a new reply. Raises KeyError without a text at this path."""
    if not path:
        return reply
    for _, value in json_candidates(reply, "{[")[:1]:
        found = dict(_leaves(value)).get(path)
        if isinstance(found, (str, int, float)):
            return str(found)
    raise KeyError(f"{old.address}: {path}")


def speaker_of(step: ForkStep, texts: Sequence[str]) -> Speaker:
    """Return the speaker of a step with the system prompt of its changed request."""
    return replace(step.reply.speaker, system=texts[0])
