"""Find the texts of a human who withdraws, and the requests and replies that contain these texts.

`withdrawal` removes all texts that are found.
"""

# The human's replies are found by address. The table `provenance` lists the requests to other
# speakers that contain the human's texts. Replies to these requests are searched for quotations of
# the human. A summary of this human's texts alone is personal as well.

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from pydantic import JsonValue, ValidationError

from folkmoot.engine.journal.journal_file import JournalEntry, question_address
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.json_texts import (
    change_json,
    change_texts,
    find_keys,
    find_offered,
    find_texts,
)
from folkmoot.engine.seats.redaction import (
    Gram,
    Quotable,
    Redaction,
    Words,
    find_grams,
    find_quotable,
    join_lines,
)
from folkmoot.engine.seats.seats import (
    PARTICIPANT_ROLE,
    Seat,
    SelfDescription,
    describe_oneself,
    self_description_address,
)
from folkmoot.engine.seats.utterances import UTTERANCES, UtteranceRow
from folkmoot.errors import InputError, Problem
from folkmoot.measures.inference.estimates import format_count
from folkmoot.provenance import (
    PROTOCOL,
    STUDY,
    UNATTRIBUTED,
    UNKNOWN,
    Replacement,
    Source,
    Span,
    cover_rest,
)
from folkmoot.storage.provenance_table import PROVENANCE, RequestSpans
from folkmoot.storage.run_folder import JOURNAL, RunFolder

# Columns of `answers` with names of the protocol. The same word in a reply is such a name as well.
NAMING_CELLS = ("speaker_id", "role", "stage")
# Answer kinds that contain no words of the speaker.
CLOSED_KINDS = ("choice", "number")
SPEECH_SOURCES = ("utterance", "answer")
# Source kinds that may name a table cell in place of the reply from which its text comes.
CELL_SOURCES = ("proposal", "summary", "material")
COMPOSED_SOURCES = (*CELL_SOURCES, "option", "value", UNATTRIBUTED)
# The table of the options among which participants decide, with the columns `option` and `usual`.
OPTIONS = "options"
NOTHING_QUOTABLE = Quotable(set(), set())


class AffectedReply(NamedTuple):
    """A reply by another speaker that quotes or summarises texts of the human who withdraws."""

    use: str
    address: str
    speaker_id: str
    role: str
    # The quoted words.
    words: tuple[str, ...] = ()


# The values of `AffectedReply.use`, as sentences for the researcher.
SUMMARY = "Made from this participant's words alone, and removed with them"
DESCRIPTION = "Made from this participant's words and other texts; these stay, without quotations"
QUOTATION = "Quotations in replies of others, which are removed"


@dataclass
class PersonalTexts:
    """All texts of a human who withdraws, and the requests and replies that contain these texts."""

    seat: Seat
    spans: RequestSpans
    redaction: Redaction
    # Addresses of the human's replies, in the protocol and outside it.
    addresses: set[str]
    # Number of requests in the run that contain texts of unknown source.
    unattributed: int
    # Number of requests to others that contain texts of the human.
    requests: int = 0
    replies: list[AffectedReply] = field(default_factory=list)
    # Addresses of replies that are made from the human's texts alone.
    summaries: set[str] = field(default_factory=set)
    # By address: the texts that count as quotations of the human. The address is that of a reply
    # with a quotation, or of a question that offered a proposal of the human as an option.
    quotable: dict[str, Quotable] = field(default_factory=dict)
    # The words of options that the human proposed, as in `Redaction.texts`.
    proposed: set[str] = field(default_factory=set)

    @property
    def answers(self) -> int:
        """The number of answers of the human, with those to checks and questions afterwards."""
        return len(self.addresses)

    def is_own(self, address: str) -> bool:
        """Return whether the human who withdraws wrote the reply at `address`.

        Also returns True for a reply by another speaker that only summarises the human's texts.
        """
        question = question_address(address)
        return question in self.addresses or question in self.summaries

    def quotable_at(self, address: str) -> Quotable:
        """Return what counts as a quotation of the human in the reply at `address`."""
        return self.quotable.get(question_address(address), NOTHING_QUOTABLE)

    def without_quotations(self, address: str, text: str) -> str:
        """Return `text` with a mark in place of each quotation of the human who withdraws.

        - `address`: the address of the reply from which the text comes.
        """
        return self.redaction.without_quotations(text, self.quotable_at(address))

    def redact_reply(self, address: str, reply: str) -> str:
        """Return a reply with marks in place of the texts of the human who withdraws.

        - `address`: the address of the reply. The reply is by another speaker.
        - `reply`: the reply, a value that was read from it, or the options as JSON.
        """

        redact_option = self._option_redactor(address)

        def redact_key(key: str) -> str:
            # A key may be an option that the human proposed, as in {"Marmalade": 7}, or a
            # quotation, as in {"I sold my grandfather's boat": "regret"}.
            option = redact_option(key)
            is_fixed = option != key or self.redaction.is_impersonal(key)
            return option if is_fixed else self.without_quotations(address, key)

        def redact_text(text: str) -> str:
            # The whole text may be an option that the human proposed and the speaker chose.
            whole = self.redaction.find_whole(text)
            return self.without_quotations(address, text) if whole is None else whole

        return change_json(
            reply, lambda value: change_texts(value, redact_text, redact_key), redact_text
        )

    def redact_schema(self, address: str, schema: JsonValue) -> JsonValue:
        """Return a JSON schema with marks in place of options that the withdrawing human proposed.

        - `address`: the address of the question with this schema.
        """
        return change_texts(schema, self._option_redactor(address))

    def _option_redactor(self, address: str) -> Callable[[str], str]:
        # Returns a function that replaces a text by a mark if the human proposed it as an option.
        proposals = self.quotable_at(address).proposals
        return lambda text: self.redaction.mark(text) if Words(text).line in proposals else text

    def is_personal(self, source: Source, address: str) -> bool:
        """Return whether a text belongs to the human who withdraws.

        - `source`: where the text comes from.
        - `address`: the request that contains the text.
        """
        if reply := _reply_of(source):
            return self.is_own(reply)
        if source.kind == "persona":
            return source == describe_oneself(self.seat, "").source
        may_be_personal = source.kind in (CELL_SOURCES if source.id else SPEECH_SOURCES)
        is_speaker = source.speaker in (self.seat.id, self.seat.name)
        return (
            may_be_personal and is_speaker and _is_in(self.seat, source.speaker, source.id, address)
        )

    def find_parts(
        self, entry: JournalEntry, number: int, spans: Sequence[Span]
    ) -> list[Replacement]:
        """Return the replacements that remove the withdrawing human's texts from a message.

        - `entry`: the request that contains the message.
        - `number`: the number of the message.
        - `spans`: the spans of the request.
        """
        address, text = entry.address, entry.request["messages"][number]["content"]
        found: list[Replacement] = []
        for start, end, source, message_number in spans:
            if message_number == number:
                found += self._parts_of_span(text[start:end], start, source, address)
        if quotes_reply(entry, number, spans):
            for start, end, *_ in _find_gaps(text, number, spans):
                found += self._parts_of_reask(text[start:end], start, address)
        parts: list[Replacement] = []
        for part in found:
            # Spans may be nested. The outer one comes first and covers the inner ones.
            if not any(map(partial(_spans_overlap, part), parts)):
                parts.append(part)
        return sorted(parts)

    def _parts_of_span(
        self, shown: str, start: int, source: Source, address: str
    ) -> list[Replacement]:
        # The parts of a text of known source. The text begins at `start` of the message.
        redaction = self.redaction
        if self.is_personal(source, address):
            parts = redaction.replacements_for(shown, [(0, len(shown))])
        elif (
            source.kind == "answer"
            and Words(shown).line in self.proposed
            and (whole := redaction.find_whole(shown)) is not None
        ):
            # A vote for the human's proposal, which is replaced in the voter's reply as well.
            parts = [Replacement(0, len(shown), whole)]
        elif quotable := self.quotable.get(question_address(_reply_of(source))):
            places = redaction.find_quotations(shown, quotable)
            parts = redaction.replacements_for(shown, places)
        elif _may_contain_any_text(source):
            parts = redaction.find_recorded(shown, altered=source.altered)
        else:
            parts = []
        return [Replacement(start + first, start + last, mark) for first, last, mark in parts]

    def _parts_of_reask(self, shown: str, start: int, address: str) -> list[Replacement]:
        # The parts of a text between spans that may quote the speaker's own reply.
        if self.is_own(address):
            has_letters = any(map(str.isalpha, shown))
            places = [(0, len(shown))] if has_letters else []
        else:
            places = self.redaction.find_quotations(shown, self.quotable_at(address))
        parts = self.redaction.replacements_for(shown, places)
        return [Replacement(start + first, start + last, mark) for first, last, mark in parts]


def find_personal_texts(run: RunFolder, seat: Seat) -> PersonalTexts:
    """Find the texts of the human in `seat`, and the replies that quote these texts.

    Raises InputError if the run lacks tables, recorded sources or answers of the human.
    """
    if not run.has_table("answers"):
        hint = "finish the run with --resume; participants who withdrew are removed at its end"
        raise InputError(Problem(f"{run.path} has no table of answers yet", hint=hint))
    if not run.has_table(PROVENANCE):
        version = run.manifest.get("software", {}).get("folkmoot", "unknown")
        problem = (
            f"{run.path} was made by a version that did not record the sources of texts in prompts"
        )
        hint = f"withdraw with the version that made it, {version}, or delete the whole folder"
        raise InputError(Problem(problem, hint=hint))
    answers: dict[str, Mapping[str, Any]] = {
        row["address"]: row for row in run.read_table("answers").iter_rows(named=True)
    }
    addresses_of_id = {
        address
        for address, row in answers.items()
        if (row["speaker_id"], row["role"]) == (seat.id, PARTICIPANT_ROLE)
    }
    own_addresses = {address for address in addresses_of_id if _is_in(seat, address)}
    if not own_addresses:
        raise InputError(Problem(f"{seat.name}: this participant gave no answer"))
    participant_ids = {
        row["speaker_id"] for row in answers.values() if row["role"] == PARTICIPANT_ROLE
    }
    # An id that takes part in no other session tells rows of the human without their session.
    is_unique = own_addresses == addresses_of_id
    scopes = frozenset[str]() if is_unique else frozenset(seat.scopes)
    session_cells = _read_session_cells(run, seat)
    provenance = run.read_table(PROVENANCE)
    spans = RequestSpans(provenance)
    unattributed = provenance.filter(kind=UNATTRIBUTED)["address"].n_unique()

    def search(proposed: Collection[str] = ()) -> PersonalTexts:
        names = frozenset({seat.id, seat.name})
        others = frozenset(participant_ids - {seat.id})
        redaction = Redaction(names, others, scopes, session_cells)
        personal = PersonalTexts(
            seat, spans, redaction, {*own_addresses}, unattributed, proposed={*proposed}
        )
        _PersonalTextSearch(run, personal, answers, participant_ids).read_journal()
        return personal

    personal = search()
    # A discussion may name a proposal before a vote offers it as an option.
    return search(personal.proposed) if personal.proposed else personal


def has_answers(run: RunFolder, seat: Seat) -> bool:
    """Return whether the participant in a seat was asked anything. The run must have tables."""
    own = run.scan_table("answers").filter(speaker_id=seat.id, role=PARTICIPANT_ROLE)
    return any(_is_in(seat, address) for address in own.collect()["address"])


class _PersonalTextSearch:
    # One pass over the replies, in the order in which they were given. `_others` collects texts
    # that are not the human's: those of other speakers and of the study.

    def __init__(
        self,
        run: RunFolder,
        personal: PersonalTexts,
        answers: Mapping[str, Mapping[str, Any]],
        participant_ids: Collection[str],
    ) -> None:
        self._found, self._answers, self._people = personal, answers, participant_ids
        self._journal_path = run.path / JOURNAL
        # Words that the human had read before writing them, so that they are not theirs.
        self._received = Quotable(set(), set())
        # The words of the texts of others, one text on a line, by the id of the speaker.
        self._said = defaultdict[str, str](lambda: "\n")
        # Names of speakers, roles and stages, the study file and the sealed plan are not personal.
        speaker_names = {str(row[column]) for row in answers.values() for column in NAMING_CELLS}
        design_texts = (*find_texts(run.config), *find_texts(run.plan))
        personal.redaction.exempt_texts((*speaker_names, *design_texts, personal.seat.name))
        self._public = set[str]()
        utterances = (
            run.read_table(UTTERANCES).iter_rows(named=True) if run.has_table(UTTERANCES) else ()
        )
        for row in utterances:
            personal.redaction.exempt_texts([row["speaker_name"] or ""])
            # An utterance without an address is a text of the study.
            if not row["address"]:
                personal.redaction.exempt_texts([row["text"] or ""])
            elif row["public"]:
                self._public.add(row["address"])
        self._others = {*design_texts}
        self._named_options = _read_named_options(run, personal.seat)

    def read_journal(self) -> None:
        """Find the texts of the human in all questions and replies."""
        personal = self._found
        with closing(JournalReader(self._journal_path)) as journal:
            # In the order of writing: a speaker can quote only texts that were written before.
            for entry, _ in journal.all_rows("entries"):
                # Answers outside the protocol have no row in `answers`.
                if entry.address.startswith(f"{personal.seat.address}/"):
                    personal.addresses.add(question_address(entry.address))
                if entry.kind == "ask":
                    self._read(entry)
        personal.redaction.discard_shared_texts(self._others)
        # Re-asks of a question give equal records.
        personal.replies = sorted(set(personal.replies))

    def _read(self, entry: JournalEntry) -> None:
        personal, question = self._found, question_address(entry.address)
        answer_row = self._answers.get(question, {})
        # An option is not the human's, unless they wrote it before a question offered it.
        options = {
            *find_offered(entry.request.get("schema")),
            *json.loads(answer_row.get("options") or "[]"),
            *self._options_in(entry),
        }
        personal.redaction.exempt_texts(options)
        self._note_proposals(entry, options)
        texts = self._texts_of(entry, question)
        other_texts, personal_texts = self._split_texts(entry)
        if question in personal.addresses:
            self._received.grams.update(
                find_grams("\n".join(texts)) & find_grams("\n".join(other_texts))
            )
            if answer_row.get("kind") not in CLOSED_KINDS:
                for text in (*texts, *self._find_named_options(texts)):
                    personal.redaction.learn_text(text)
                self._received.proposals.update(
                    self._proposals_in(texts) & self._proposals_in(other_texts)
                )
            for proposal in personal.proposed & personal.redaction.texts.keys():
                personal.redaction.texts[proposal].offered = True
            return
        personal.requests += bool(personal_texts)
        reply_fields = question, answer_row.get("speaker_id", ""), answer_row.get("role", "")
        is_private = answer_row.get("role") != PARTICIPANT_ROLE and question not in self._public
        if personal_texts and is_private and answer_row.get("kind") not in CLOSED_KINDS:
            if not self._shows_others(entry):
                personal.summaries.add(question)
                personal.replies.append(AffectedReply(SUMMARY, *reply_fields))
                for text in texts:
                    personal.redaction.learn_text(text)
                return
            personal.replies.append(AffectedReply(DESCRIPTION, *reply_fields))
        speaker_id = answer_row.get("speaker_id", "")
        if not personal_texts:
            self._add_texts(speaker_id, texts)
            return
        texts += self._find_quoting_keys(entry)
        grams = set[Gram]().union(*map(find_quotable, personal_texts))
        grams -= self._received.grams | find_grams("\n".join(other_texts))
        proposals = self._proposals_in(personal_texts) - self._proposals_in(other_texts)
        proposals -= self._received.proposals
        # A speaker who said the same before does not quote the human.
        earlier_lines = self._said[speaker_id]
        grams &= find_grams("\n".join(texts))
        proposals &= self._proposals_in([*texts, *options])
        grams = {gram for gram in grams if f" {' '.join(gram)} " not in earlier_lines}
        proposals = {proposal for proposal in proposals if proposal not in earlier_lines}
        quotable = Quotable(grams, proposals)
        repeated = {
            text
            for text in texts
            if personal.redaction.find_whole(text)
            and f"\n{Words(text).line}\n" not in earlier_lines
        }
        quoted = dict[str, None]()
        for text in texts:
            if text in repeated and any(text.strip() in part for part in personal_texts):
                quoted[text] = None
                continue
            places = personal.redaction.find_quotations(text, quotable)
            quoted |= {text[start:end]: None for start, end in places}
            personal.redaction.learn_text(text, quotable)
            self._add_texts(speaker_id, [personal.redaction.without_quotations(text, quotable)])
        if quoted or proposals:
            known = personal.quotable_at(question)
            personal.quotable[question] = Quotable(known.grams | grams, known.proposals | proposals)
        if quoted:
            personal.replies.append(AffectedReply(QUOTATION, *reply_fields, tuple(quoted)))

    def _add_texts(self, speaker_id: str, texts: Sequence[str]) -> None:
        self._others.update(texts)
        self._said[speaker_id] += "".join(f"{Words(text).line}\n" for text in texts)

    def _note_proposals(self, entry: JournalEntry, options: Collection[str]) -> None:
        # Speakers proposed the options if the prompt shows each as a text of known source. The
        # options "yes" and "no" are the study's, also if the human had said "Yes." before.
        lines = {Words(option).line for option in options}
        if lines.isdisjoint(self._found.redaction.texts):
            return
        contents = [message["content"] for message in entry.request["messages"]]
        spans = self._found.spans.spans_at(entry.address)
        if lines <= {Words(contents[span.message][span.start : span.end]).line for span in spans}:
            self._found.proposed |= lines & self._found.redaction.texts.keys()

    def _find_named_options(self, texts: Sequence[str]) -> list[str]:
        lines = join_lines(texts) if self._named_options else ""
        return [option for line, option in self._named_options if line in lines]

    def _proposals_in(self, texts: Sequence[str]) -> set[str]:
        proposed = self._found.proposed & self._found.redaction.texts.keys()
        lines = join_lines(texts) if proposed else ""
        return {proposal for proposal in proposed if proposal in lines}

    def _split_texts(self, entry: JournalEntry) -> tuple[list[str], list[str]]:
        # The tuple is (texts of others, texts of the human).
        other_texts, personal_texts = list[str](), list[str]()
        spans = self._found.spans.spans_at(entry.address)
        for number, message in enumerate(entry.request["messages"]):
            content, parts = message["content"], self._found.find_parts(entry, number, spans)
            personal_texts += (content[part.start : part.end] for part in parts)
            excluded_spans = [Span(part.start, part.end, UNKNOWN) for part in parts]
            # A re-ask quotes the speaker, so its words are not texts of others.
            if quotes_reply(entry, number, spans):
                excluded_spans += _find_gaps(content, number, spans)
            other_texts += (
                content[span.start : span.end] for span in cover_rest(len(content), excluded_spans)
            )
        for start, end, source, number in spans:
            if source.kind == "persona" and not self._found.is_personal(source, entry.address):
                self._others.add(entry.request["messages"][number]["content"][start:end])
        return other_texts, personal_texts

    def _options_in(self, entry: JournalEntry) -> Iterator[str]:
        for start, end, source, number in self._found.spans.spans_at(entry.address):
            if source.kind == "option":
                yield entry.request["messages"][number]["content"][start:end]

    def _shows_others(self, entry: JournalEntry) -> bool:
        return any(
            (_may_contain_any_text(source) and source.kind not in ("option", "value"))
            or (source.kind in SPEECH_SOURCES and source.speaker in self._people)
            for _, _, source, _ in self._found.spans.spans_at(entry.address)
            if not self._found.is_personal(source, entry.address)
        )

    def _find_quoting_keys(self, entry: JournalEntry) -> list[str]:
        # A key of one word is the name of a field, and no quotation.
        try:
            keys = [key for key in find_keys(json.loads(entry.reply)) if len(key.split()) > 1]
        except ValueError:
            return []
        return [key for key in keys if not self._found.redaction.is_impersonal(key)]

    def _texts_of(self, entry: JournalEntry, question: str) -> list[str]:
        # Texts that only repeat an option are left out.
        try:
            texts = list(find_texts(json.loads(entry.reply)))
        except ValueError:
            texts = [entry.reply]
        if question == self_description_address(self._found.seat):
            with suppress(ValidationError):
                texts.append(SelfDescription.model_validate_json(entry.reply).as_prompt_text)
        return [
            text for text in dict.fromkeys(texts) if not self._found.redaction.is_impersonal(text)
        ]


def describe_texts(personal: PersonalTexts) -> Iterator[str]:
    """Yield sentences for the researcher on the texts that a withdrawal would remove."""
    yield f"{personal.seat.name}: {format_count(personal.answers, 'answer')} of this participant."
    yield (
        f"{format_count(personal.requests, 'prompt')} of other speakers contained texts of this "
        "participant."
    )
    if personal.unattributed:
        yield (
            f"{format_count(personal.unattributed, 'prompt')} contained texts of unknown source. "
            "In these, only whole texts and lines of this participant are found, and no quotations "
            "in the replies. Read them."
        )
    for use in (SUMMARY, DESCRIPTION, QUOTATION):
        replies = [reply for reply in personal.replies if reply.use == use]
        if replies:
            yield f"{use}:"
        for _, address, speaker_id, role, words in replies:
            quoted = "; ".join(f"“{part}”" for part in words)
            yield f"  {address} ({role} {speaker_id}) {quoted}".rstrip()


def _read_named_options(run: RunFolder, seat: Seat) -> list[tuple[str, str]]:
    # The options of the human's sessions that are not the study's. A study may take such an option
    # from within a text: "I prefer Ann's farm." becomes "ann's farm". Each pair holds the words
    # of an option and the option.
    table = run.read_table(OPTIONS) if run.has_table(OPTIONS) else pl.DataFrame()
    # The table of another study type may have this name.
    if table.schema.get("option") != pl.String or table.schema.get("usual") != pl.Boolean:
        return []
    rows = table.filter(usual=False).drop_nulls("option").iter_rows(named=True)
    options = (row["option"] for row in rows if _is_in(seat, *map(str, row.values())))
    return [(Words(option).line, option) for option in options]


def _read_session_cells(run: RunFolder, seat: Seat) -> dict[str, str]:
    # The text columns that a study type adds to utterances, with one cell in the human's session
    # and other cells in other sessions, such as `session` of a workbook.
    if not run.has_table(UTTERANCES):
        return {}
    table = run.read_table(UTTERANCES)
    scopes = [scope for scope in table["scope"].unique() if scope and _is_in(seat, scope)]
    in_session = table.filter(pl.col("scope").is_in(scopes))
    added = [
        column
        for column, kind in table.schema.items()
        if kind == pl.String and column not in UtteranceRow.columns()
    ]
    cells = {column: in_session[column].unique().to_list() for column in added}
    return {
        column: values[0]
        for column, values in cells.items()
        if len(values) == 1
        and values[0]
        and (table[column].n_unique() > 1 or in_session.height == table.height)
    }


def _spans_overlap(part: Replacement, other: Replacement) -> bool:
    return part.start < other.end and other.start < part.end


def _is_in(seat: Seat, *paths: str) -> bool:
    # The id of a seat without scopes is unique in the run.
    return not seat.scopes or any(
        not set(seat.scopes).isdisjoint(path.split("/")) for path in paths
    )


def _reply_of(source: Source) -> str:
    # A table cell leads to its reply as well.
    table, _, key = source.id.partition("/")
    if table.partition(".")[0] in (UTTERANCES, "answers"):
        return Source("utterance", key).address
    return source.address


def _may_contain_any_text(source: Source) -> bool:
    # Text that code composed may quote anyone.
    table = source.id.partition(".")[0]
    return source.kind in COMPOSED_SOURCES and table not in (STUDY, PROTOCOL)


def quotes_reply(entry: JournalEntry, number: int, spans: Sequence[Span]) -> bool:
    """Return whether a message of a re-ask may quote the reply that could not be parsed.

    - `spans`: the spans of the request.
    """
    # These are the last two messages: the reply, and the problem. After an empty reply, the last
    # message is the question itself, and the message before it is no unparsed reply.
    messages = entry.request["messages"]
    is_reask = entry.address != question_address(entry.address)
    first = len(messages) - 2
    return (
        is_reask
        and number >= first >= 0
        and messages[first]["role"] == "assistant"
        and all(span.source.kind == "reply" for span in spans if span.message == first)
    )


def _find_gaps(text: str, number: int, spans: Sequence[Span]) -> list[Span]:
    # The parts of the message `number` outside all spans of known source.
    return cover_rest(len(text), [span for span in spans if span.message == number])
