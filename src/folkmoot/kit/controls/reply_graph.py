"""Read the replies of a run, and find the parts that a prompt quotes."""
# A span in a request names the earlier reply from which its text comes. So the replies behind a
# decision are known without the code of the study.

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from folkmoot.conversation.answer_types import (
    CHOICE,
    AnswerType,
    ParsedAnswer,
    ParseFailure,
    Text,
)
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.json_replies import (
    as_plain_json,
    json_candidates,
    read_whole_json,
)
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.earlier_replies import RESEARCHER
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.repeated_protocol import WatchedQuestion, enclosing_scopes
from folkmoot.engine.session.session import DEFAULT_REASKS
from folkmoot.json_text import Schema
from folkmoot.kit.controls.conversations import last_entry, messages_of
from folkmoot.kit.controls.forms import JSON
from folkmoot.kit.controls.replacing import outermost_spans
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.provenance import Source, SourcedText, Span, cell_id, spans_of
from folkmoot.storage.rows import ComputedWords, Row
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import is_one_of

# The kind of an answer in free text.
TEXT = "text"


class ReplyPart(NamedTuple):
    """The part of a reply that a prompt quotes. By default it is the whole reply."""

    # The keys that lead to one text or number of a JSON reply.
    path: tuple[str, ...] = ()
    # The keys of several fields that are quoted as a JSON object.
    keys: tuple[str, ...] = ()
    # Returns the text that the prompt shows for this value.
    words: Callable[[Any], str] = str
    # True for the reply as it was written, where the answer in it has other words.
    is_as_written: bool = False


class NewReply(NamedTuple):
    """A reply that a control asked for, which takes the place of an old one."""

    # In the journal of the controls.
    address: str
    as_written: str
    answer: str


class Quote(NamedTuple):
    """A passage in a request that quotes a reply."""

    # The number of the message in the request.
    message: int
    # The characters in this message (`start`, `end`).
    start: int
    end: int
    source: Source
    # The address of the quoted reply.
    address: str
    # The quoted part of the reply.
    part: ReplyPart


class JournaledReply(NamedTuple):
    """A reply of a finished run, with the request that the reply answers."""

    address: str
    # The position in the protocol.
    order: int
    speaker: Speaker
    # The system prompt and the messages of the request.
    texts: tuple[str, ...]
    # For each of these, whether it is a reply of the speaker.
    is_own: tuple[bool, ...]
    kind: str
    options: tuple[str, ...]
    recorded: str | None
    schema: Schema | None
    # The last reply after re-asks.
    reply: str
    # Reads a new reply to the same question. None if only the code of the study can read it.
    answer: AnswerType[Any] | None
    reasks: int = DEFAULT_REASKS
    # True if a researcher gave or dropped the reply in a fork.
    is_given: bool = False

    @property
    def answer_as_listed(self) -> AnswerType[Any]:
        """The answer type with its options in the order of `options`."""
        assert self.answer is not None
        return self.answer.with_listed_options(self.options)

    @property
    def can_be_asked(self) -> bool:
        """True if the question of this reply can be asked again."""
        # A human has left. Numbers are asked by running the session again.
        is_readable = bool(self.options) or self.schema is not None or self.kind == TEXT
        return self.speaker.model != HUMAN_MODEL and self.answer is not None and is_readable

    def with_study_answer(self, answer_type: AnswerType[Any], reasks: int) -> JournaledReply:
        """Return the reply with the answer type of the study, and with its number of re-asks."""
        # Later prompts can quote each field of an open form. So ask for the whole form.
        is_form = self.schema is not None and not answer_type.is_closed
        answer = JsonText(self.schema or {}) if is_form else answer_type
        return self._replace(answer=answer, reasks=reasks)


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


class ReplyGraph:
    """The replies of a run, each with its request, looked up by the address of the call."""

    # Only replies that `read_behind` has read are included. The row classes `tables` say which
    # values in prompts are computed from replies. `is_earlier` is True for controls that an earlier
    # version planned: they read a reply of any kind by its schema or its options.

    def __init__(
        self,
        run: RunFolder,
        journal: JournalReader,
        tables: Iterable[type[Row]],
        *,
        is_earlier: bool = False,
    ) -> None:
        self._run = run
        self._journal = journal
        self._is_earlier = is_earlier
        # The ids of values in a table begin with the name of the table and a dot.
        self._computed = tuple(f"{row.table}." for row in tables if row.from_replies)
        self._words = _read_computed_words(run, tables)
        self._replies: dict[str, JournaledReply | None] = {}
        # By the address of a decision: what the speaker was asked before, see `read_before`.
        self._before: dict[str, list[JournaledReply]] = {}

    @property
    def addresses(self) -> list[str]:
        """The addresses of the replies that `read_behind` has read."""
        return [address for address, reply in self._replies.items() if reply is not None]

    def use_study_answers(self, questions: Mapping[str, WatchedQuestion]) -> None:
        """Read new replies to these questions with the answer types of the study."""
        for address, (answer_type, reasks) in questions.items():
            if (reply := self._replies.get(address)) is not None:
                self._replies[address] = reply.with_study_answer(answer_type, reasks)

    def replies_at(self, addresses: Iterable[str]) -> Iterator[JournaledReply]:
        """Yield the replies at `addresses`, if `read_behind` has read the replies."""
        for address in addresses:
            if (reply := self._replies.get(address)) is not None:
                yield reply

    def holds_computed_value(self, texts: Iterable[str]) -> bool:
        """Return whether any text holds a value that the study computed from replies."""
        return any(
            span.source.id.startswith(self._computed) for text in texts for span in spans_of(text)
        )

    def address_of(self, source: Source) -> str:
        """Return the address of the reply from which a text comes, or an empty string."""
        if source.id in self._words:
            return self._words[source.id][0]
        return source.address

    def reply_spans(self, text: str) -> Iterator[Span]:
        """Yield the passages of a text that quote replies or were computed from replies."""
        return outermost_spans([span for span in spans_of(text) if self.address_of(span.source)])

    def addresses_in(self, texts: Iterable[str]) -> set[str]:
        """Return the addresses of the replies that the texts quote."""
        return {self.address_of(span.source) for text in texts for span in self.reply_spans(text)}

    def find_quotes(self, texts: Sequence[str], addresses: Collection[str]) -> list[Quote] | None:
        """Return the passages in the texts that quote a reply at one of the addresses.

        Returns None if a passage is not found in the reply that the passage quotes.
        """
        quotes = []
        for number, text in enumerate(texts):
            for span in self.reply_spans(text):
                address = self.address_of(span.source)
                if address not in addresses:
                    continue
                reply, words = self._replies.get(address), self._words.get(span.source.id)
                if reply is None:
                    return None
                part = (
                    ReplyPart(path=(words[1].key,), words=words[1].words)
                    if words is not None
                    else self._part_of(reply, str(text)[span.start : span.end])
                )
                if part is None:
                    return None
                quotes.append(Quote(number, span.start, span.end, span.source, address, part))
        return quotes

    def _part_of(self, reply: JournaledReply, quoted: str) -> ReplyPart | None:
        # A participant's own history may hold the reply as written, such as JSON, where others read
        # the answer alone.
        is_other = reply.recorded is not None and quoted.strip() != reply.recorded
        if is_other and not self._is_earlier and quoted.strip() == reply.reply.strip():
            return ReplyPart(is_as_written=True)
        return part_of(reply, quoted)

    def read_behind(self, texts: Iterable[str]) -> None:
        """Read the replies that the texts quote, directly or through other replies."""
        waiting = self.addresses_in(texts) - self._replies.keys()
        while waiting:
            self._replies.update(self._read(sorted(waiting)))
            read = (reply for address in waiting if (reply := self._replies[address]) is not None)
            behind = {address for reply in read for address in self.addresses_in(reply.texts)}
            waiting = behind - self._replies.keys()

    def read_before(self, decisions: Mapping[str, Collection[str]]) -> None:
        """Read what the speaker of each decision was asked before it in the same session.

        `decisions`: a map from the address of a decision to the scopes of its session.
        """
        if not decisions:
            return
        answers = self._run.scan_table("answers").select("address", "speaker_id").collect()
        sessions = {scope for scopes in decisions.values() for scope in scopes}
        # By scope and speaker, because all sessions may have a speaker of the same id.
        asked: dict[tuple[str, str], list[str]] = {}
        earlier: dict[str, list[str]] = {}
        for address, speaker_id in answers.iter_rows():
            # The latest one first, because it most probably depends on the same texts.
            if address in decisions:
                earlier[address] = [
                    other
                    for scope in decisions[address]
                    for other in reversed(asked.get((scope, speaker_id), ()))
                ]
            for scope in sessions.intersection(enclosing_scopes(address)):
                asked.setdefault((scope, speaker_id), []).append(address)
        read = self._read(sorted({other for own in earlier.values() for other in own}))
        self._before = {
            address: [reply for other in own if (reply := read[other]) is not None]
            for address, own in earlier.items()
        }

    def requests_before(self, address: str) -> Iterator[tuple[str, ...]]:
        """Yield the texts of the requests that `read_before` has read for a decision."""
        for reply in self._before.get(address, ()):
            yield reply.texts

    def _read(self, addresses: Sequence[str]) -> dict[str, JournaledReply | None]:
        spans = self._run.read_spans(addresses)
        columns = ("order", "speaker_id", "role", "kind", "options", "recorded", "model_asked")
        rows = (
            self._run.scan_table("answers")
            # Number the rows before the filter. The table is in the order of the protocol, and the
            # numbers of several reads must be comparable.
            .with_row_index("order")
            .filter(is_one_of("address", addresses))
            .select("address", *columns)
            .collect()
        )
        # An address without an entry keeps None and counts as read, so that no round reads it
        # again.
        found: dict[str, JournaledReply | None] = dict.fromkeys(addresses)
        for address, order, who, role, kind, options, recorded, model in rows.iter_rows():
            # Take the request before any re-ask, because asking again makes its own re-asks, and
            # the reply that later prompts quote, which is the last one.
            first, last = self._journal.entry_at(address), last_entry(self._journal, address)
            if first is None or last is None:
                continue
            messages = messages_of(first, spans.spans_at(address))
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
            listed, schema = tuple(json.loads(options or "[]")), first.request.get("schema")
            found[address] = JournaledReply(
                address,
                order,
                speaker,
                tuple(texts),
                tuple(is_own),
                kind,
                listed,
                recorded,
                schema,
                last.reply,
                self._answer_type_of(kind, listed, schema),
                is_given=first.model_served == RESEARCHER,
            )
        return found

    def _answer_type_of(
        self, kind: str, options: Sequence[str], schema: Schema | None
    ) -> AnswerType[Any] | None:
        # The answer type as far as it is known without the code of the study.
        if schema is not None and (self._is_earlier or kind == JSON):
            return JsonText(schema)
        if options and (self._is_earlier or kind == CHOICE):
            return Choice(options)
        return Text() if kind == TEXT else None


def part_of(reply: JournaledReply, quoted: str) -> ReplyPart | None:
    """Return the part of a reply that a prompt quotes.

    Returns None if `quoted` is not a part of the reply.
    """
    text = quoted.strip()
    if text in (reply.reply.strip(), reply.recorded):
        return ReplyPart()
    # The answer to a closed question in JSON is one value, also if the study asks for JSON.
    is_form = isinstance(reply.answer, JsonText)
    if not is_form or (value := _json_in(reply.reply)) is None:
        return None
    if (written := _json_in(text)) is not None:
        # A study may show notes as JSON that it has rewritten, for example without a way out.
        is_part = written and all(value.get(key) == written[key] for key in written)
        return ReplyPart(keys=tuple(written)) if is_part else None
    paths = (path for path, leaf in _leaves(value) if str(leaf).strip() == text)
    # Two fields with the same text cannot be told apart, so the first one counts.
    return next((ReplyPart(path=path) for path in paths), None)


def _json_in(text: str) -> dict[str, Any] | None:
    value = read_whole_json(text, repair=True)
    return value if isinstance(value, dict) else None


def _leaves(
    value: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    # (path, value) of each text and number. Those inside lists are left out.
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _leaves(item, (*path, key))
        # A new reply may have fewer entries, so no prompt can rely on an entry of a list.
        elif not isinstance(item, list):
            yield (*path, key), item


def part_as_text(part: ReplyPart, reply: NewReply) -> str | None:
    """Return a part of a new reply as text, or None if the reply lacks this part."""
    if part.is_as_written:
        return reply.as_written
    if part == ReplyPart():
        return reply.answer
    _, first_value = next(json_candidates(reply.answer, "{"), ("", None))
    value = first_value if isinstance(first_value, dict) else {}
    if part.keys:
        own = {key: value.get(key) for key in part.keys}
        # A field that the new reply states twice, with different values, is missing as well.
        is_whole = value.keys() >= set(part.keys) and as_plain_json(own) == own
        return json.dumps(own, ensure_ascii=False) if is_whole else None
    found = dict(_leaves(value)).get(part.path)
    if not isinstance(found, (str, int, float)):
        return None
    try:
        return part.words(found)
    except (TypeError, ValueError):
        # A text in place of a number has no words.
        return None


def _read_computed_words(
    run: RunFolder, tables: Iterable[type[Row]]
) -> dict[str, tuple[str, ComputedWords]]:
    # By cell id: (address of the reply, function from the reply to the words in the cell).
    found = {}
    for row in tables:
        if not (columns := row.computed_columns()) or not run.has_table(row.table):
            continue
        for cells in run.read_table(row.table).iter_rows(named=True):
            address = Source("utterance", cells["utterance_id"] or "").address
            if address:
                keys = [cells[key] for key in row.key]
                for name, words in columns.items():
                    found[cell_id(f"{row.table}.{name}", *keys)] = address, words
    return found
