"""Change the prompt of a decision: without a persona, with neutral texts, or in reversed order."""
# A request records the position of each text in it. If the speaker has replied to a replaced text,
# `forking` asks these replies again first. If that is not possible, the decision gets a `Refusal`,
# and the report counts the refusals.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

import polars as pl

from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.settings.controls import Language
from folkmoot.files import packaged_yaml
from folkmoot.hints import join_words
from folkmoot.kit.controls.conversations import ControlledDecision, DecisionConversation
from folkmoot.kit.controls.respondent import decision_scope
from folkmoot.kit.controls.tables import (
    NAMES,
    NO_PERSONA,
    ORDER,
    REPLACING,
    RETEST,
    count_decisions,
)
from folkmoot.kit.exposure import ExposureRow, find_writers
from folkmoot.provenance import (
    Replacement,
    Source,
    SourcedText,
    Span,
    quote_value,
    replace_parts,
    spans_of,
)
from folkmoot.randomness import digest
from folkmoot.storage.run_folder import RunFolder

# Why a decision is not asked with parts replaced. The values are data: they are in the column
# `missing` of the table of control answers.
Refusal = Literal[
    "nothing_to_replace",
    "replied_to_it",
    "computed_from_it",
    "open_answer",
    "given_by_researcher",
    "humans_took_part",
    "study_changed",
]
UNCHANGED: Refusal = "nothing_to_replace"
REPLIED: Refusal = "replied_to_it"
COMPUTED: Refusal = "computed_from_it"
OPEN: Refusal = "open_answer"
# The answer is the reply that a researcher gave or dropped in a fork, so no model can repeat it.
GIVEN: Refusal = "given_by_researcher"
# The code of the study would have to run again, and cannot.
HUMANS: Refusal = "humans_took_part"
CHANGED: Refusal = "study_changed"
# A fork asked an earlier question again, and the new reply lacks what a later prompt quotes. Unlike
# the reasons above, this is known only after the new reply.
LACKING = "reply_lacks_it"
# A session was run again, and the participant did not reach the decision, because the protocol took
# another path. This is known only after the session.
NOT_REACHED = "not_reached"
# The decisions that a control leaves out. A decision without a text to replace is not left out: its
# answer in the run counts.
NOT_ASKED = (REPLIED, COMPUTED, OPEN, GIVEN, HUMANS, CHANGED, LACKING, NOT_REACHED)

# What happens to the decisions that a control does not ask, and why.
# `LACKING` is not among these reasons: the sentences are also shown before the first call, when it
# is not yet known.
_LEFT_OUT = {
    UNCHANGED: ("As designed", "There is nothing to replace, so the answers in the run count."),
    REPLIED: (
        "Not asked",
        "The participant has replied to what would be replaced, and a reply before the decision "
        "cannot be asked again.",
    ),
    COMPUTED: (
        "Not asked",
        "The participant has replied to what would be replaced, and the prompt holds a value that "
        "the study computes from replies of other sessions.",
    ),
    HUMANS: (
        "Not asked",
        "Only the code of the study could ask them, by running their session again. Humans take "
        "part in this run, and a session with humans is not run again, because they cannot answer "
        "again.",
    ),
    CHANGED: (
        "Not asked",
        "Only the code of the study could ask them, and it would not repeat this run exactly, "
        "because it has changed since.",
    ),
    NOT_REACHED: (
        "Not answered",
        "The session was run again, and the participant did not come to this decision.",
    ),
    OPEN: (
        "Not asked",
        "The decision is neither a choice nor a number, nor a form with a closed field.",
    ),
    GIVEN: (
        "Not asked",
        "The researcher changed this answer in the fork, so it is not an answer of a model.",
    ),
}

# The source of all inserted texts.
_ID = "study.controls"
NO_DESCRIPTION = {
    "en": "a person about whom nothing is said here",
    "de": "eine Person, über die hier nichts gesagt wird",
}
NOT_STATED = {"en": "not stated", "de": "keine Angabe"}
# A persona text of at most this many characters is an attribute or an answer, unless it is
# the rest of a sentence "You are …". A longer one is a description.
LONGEST_ATTRIBUTE = 40
# Kinds of texts with an arbitrary order. Utterances are not among them: their order is part of the
# conversation.
_LISTED = ("summary", "proposal", "material")


class Replaced(NamedTuple):
    """A changed decision: the system prompt, the messages and the options."""

    system: str
    asked: tuple[Utterance, ...]
    # In the order in which the changed prompt lists them.
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TreatmentTexts:
    """The texts that differ between conditions: for each decision, the ids of these texts."""

    # The texts that the design shows at a decision, by its address.
    shown: dict[str, frozenset[str]]
    # Texts that all conditions show, so that they are no treatment.
    common: frozenset[str]
    # The writer of each utterance that another speaker, such as a mediator, wrote in the name of a
    # participant.
    writers: Mapping[str, str]
    # The kinds of the treatment texts at a decision, by its address.
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # See `DecisionDesign.kind_of_text`. None for controls that an earlier version planned: if a
    # session is run again, they replace only texts that the run had, and in a reply for several
    # participants the words of none of them.
    kind_of_text: Callable[[Source], str] | None = None
    # True for controls that an earlier version planned. In reversed order they exchange any two
    # texts of a prompt, whether or not they are entries of one list.
    exchanges_any: bool = False

    def at(self, address: str) -> frozenset[str]:
        """Return the ids of the treatment texts at a decision."""
        return self.shown.get(address, frozenset()) - self.common

    def subject_of(self, decision: ControlledDecision) -> Subject:
        """Return the participant, the speaker and the treatment texts of a decision."""
        who = frozenset((decision.participant_id,))
        return Subject(
            who,
            decision.speaker_id,
            self.at(decision.address),
            who,
            decision.options,
            self.exchanges_any,
        )


class Subject(NamedTuple):
    """The participants for whom a control replaces texts, and the speaker who is asked."""

    participants: frozenset[str]
    # Who is asked, which differs from the participants if a reply speaks for several.
    speaker_id: str
    # The ids of the treatment texts.
    treatment: frozenset[str]
    # The participants whose own words stay.
    keeps_words_of: frozenset[str]
    # The options of the decision.
    options: tuple[str, ...] = ()
    # See `TreatmentTexts.exchanges_any`.
    exchanges_any: bool = False

    def is_own(self, source: Source, writers: Mapping[str, str]) -> bool:
        """Return whether a text is a persona or was said by one of `keeps_words_of`.

        `writers`: the writer of each utterance that was written in another speaker's name.
        """
        if source.kind == "persona":
            return True
        # A leading role may have written the words in the participant's name.
        is_writer = writers.get(source.id, self.speaker_id) == self.speaker_id
        is_said = source.kind in ("utterance", "answer", "reply")
        return is_said and is_writer and source.speaker in self.keeps_words_of


def describe_left_out(reasons: Iterable[tuple[str, str, str | None]], where: str = "") -> list[str]:
    """Return a sentence for each reason why controls leave out decisions.

    - `reasons`: for each decision, the control, the moment, such as "first", and the reason. The
      reason is None if the decision is not left out.
    - `where`: text to add after the word "decisions", such as " of the dry run".
    """
    counts = Counter(reasons)
    sentences = []
    for reason, (what, why) in _LEFT_OUT.items():
        parts = []
        for control in (RETEST, *REPLACING):
            moments = [
                f"{count:,} of {_total(counts, control, moment):,} {moment}"
                for (name, moment, own), count in counts.items()
                if (name, own) == (control, reason)
            ]
            if moments:
                parts.append(f"{NAMES[control]} ({join_words(moments)} decisions{where})")
        if parts:
            sentences.append(f"{what}: {', '.join(parts)}. {why}")
    return sentences


def _total(counts: Mapping[tuple[str, str, str | None], int], control: str, moment: str) -> int:
    # Decisions that the control does not ask count too.
    return sum(count for key, count in counts.items() if key[:2] == (control, moment))


def read_treatments(
    run: RunFolder,
    alike: Collection[str] = (),
    kind_of_text: Callable[[Source], str] | None = None,
    *,
    exchanges_any: bool = False,
) -> TreatmentTexts:
    """Return the treatment texts of a run.

    - `alike`: kinds of text that all conditions show, as `DecisionDesign.alike` declares them.
    - `kind_of_text`, `exchanges_any`: see `TreatmentTexts`. They differ for controls that an
      earlier version planned.
    """
    # They come from the table `exposure`.
    columns = ("address", "condition", "kind", "text_ids")
    table = run.scan_table(ExposureRow.table)
    rows = table.filter(pl.col("expected")).select(columns).collect()
    shown: dict[str, set[str]] = {}
    conditions: dict[str, set[str]] = {}
    texts_of: dict[str, dict[str, set[str]]] = {}
    common: set[str] = set()
    for address, condition, kind, ids in rows.iter_rows():
        listed = json.loads(ids) if isinstance(ids, str) else ids or []
        shown.setdefault(address, set()).update(listed)
        texts_of.setdefault(address, {}).setdefault(kind, set()).update(listed)
        for id in listed:
            conditions.setdefault(id, set()).add(condition)
        if kind in alike:
            common.update(listed)
    every = set(table.select("condition").unique().collect()["condition"].to_list())
    # A study type may leave its design undeclared. Then a text that was shown in each condition is
    # common. With a single condition, no text can be common to several.
    common |= {id for id, own in conditions.items() if len(every) > 1 and own == every}
    return TreatmentTexts(
        {address: frozenset(ids) for address, ids in shown.items()},
        frozenset(common),
        find_writers(run, conditions),
        {
            address: frozenset(kind for kind, ids in own.items() if ids - common)
            for address, own in texts_of.items()
        },
        kind_of_text,
        exchanges_any,
    )


def replaced_texts(
    control: str,
    subject: Subject,
    texts: Sequence[str],
    writers: Mapping[str, str],
    language: Language,
    lists: Collection[tuple[str, ...]] = (),
) -> list[str]:
    """Return the texts of a request after a control has replaced parts of the texts.

    - `writers`: the writer of each utterance that was written in another speaker's name.
    - `lists`: further lists of options in the texts. The control ORDER reverses these lists, too.
    """
    return [
        replace_parts(text, _parts(control, subject, text, writers, language, lists))
        # A text without sources holds only instructions of the study, which no control replaces.
        if isinstance(text, SourcedText)
        else text
        for text in texts
    ]


def replaced_version(
    control: str,
    decision: ControlledDecision,
    conversation: DecisionConversation,
    texts: Sequence[str],
) -> Replaced:
    """Return a decision with its changed prompt.

    `texts`: the new system prompt, and then the new messages.
    """
    # The control ORDER also reverses the options.
    asked = tuple(
        utterance._replace(text=text)
        for utterance, text in zip(conversation.asked, texts[1:], strict=True)
    )
    options = decision.options[::-1] if control == ORDER else decision.options
    return Replaced(texts[0], asked, options)


def _parts(
    control: str,
    subject: Subject,
    text: SourcedText,
    writers: Mapping[str, str],
    language: Language,
    lists: Collection[tuple[str, ...]],
) -> list[Replacement]:
    every = spans_of(text)
    spans = list(outermost_spans(every))
    if control == NO_PERSONA:
        own = [
            span
            for span in spans
            if span.source.kind == "persona" and span.source.speaker in subject.participants
        ]
        return _without_persona(own, text, language)
    shown = [
        span
        for span in spans
        if span.source.id in subject.treatment and not subject.is_own(span.source, writers)
    ]
    if control == ORDER:
        # A moderator's utterance may contain the list of options, so search all spans, not only
        # the outermost ones.
        listings: list[list[Span]] = []
        within: set[tuple[int, int]] = set()
        # A short list may be part of a longer one, so look for the longest lists first.
        for options in sorted((subject.options, *lists), key=len, reverse=True):
            free = [span for span in every if span[:2] not in within]
            listings += (found := list(_listings(free, text, options)))
            within |= {span[:2] for run in found for span in run}
        listed = {span[:2] for span in shown if span.source.kind in _LISTED}
        if subject.exchanges_any:
            apart = [span for span in spans if span[:2] not in within]
            lists_of_texts = [list(_groups_of_earlier_version(apart, listed))]
        else:
            lists_of_texts = list(_find_lists(spans, str(text), listed, within))
        runs = [*([span[:2] for span in run] for run in listings), *lists_of_texts]
        # The lists may lie in any order in the message, and `replace_parts` needs ascending parts.
        return sorted(part for run in runs for part in _reversed(run, text))
    return [
        Replacement(
            span.start,
            span.end,
            _sourced(neutral_text(span.end - span.start, span.source.id, language)),
        )
        for span in shown
    ]


def outermost_spans(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans that are not inside another span."""
    end = 0
    # Of spans with the same start, the longest comes first.
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start >= end:
            yield span
            end = span.end


def _sourced(text: str) -> str:
    return quote_value(text, "material", _ID)


def _without_persona(
    own: Sequence[Span], text: SourcedText, language: Language
) -> list[Replacement]:
    # A description of a person without attributes replaces the first full description of each
    # participant. "not stated" replaces all other persona texts.
    parts, described = [], set()
    for span in own:
        was = str(text)[span.start : span.end]
        words = NOT_STATED[language]
        # The rest of a sentence "You are …" describes the participant, however short it is. An
        # attribute has words of its own around it, such as a question.
        ends_sentence = was.rstrip().endswith(".") or str(text)[span.end : span.end + 1] in ".\n"
        completes_sentence = str(text)[: span.start].endswith("You are ") and ends_sentence
        is_description = len(was) > LONGEST_ATTRIBUTE or completes_sentence
        if is_description and span.source.speaker not in described:
            described.add(span.source.speaker)
            # Keep the grammar of the prompt: the sentence may begin and end inside the persona
            # text.
            before = "You are " if was.startswith("You are ") else ""
            words = f"{before}{NO_DESCRIPTION[language]}" + "." * was.rstrip().endswith(".")
        parts.append(Replacement(span.start, span.end, _sourced(words)))
    return parts


def _listings(spans: Sequence[Span], text: str, options: Sequence[str]) -> Iterator[list[Span]]:
    found = [span for span in spans if span.source.kind == "option"]
    count = len(options)
    at = 0
    while count and at + count <= len(found):
        run = found[at : at + count]
        # Compare as sorted lists, because each participant sees another order.
        if sorted(str(text)[span.start : span.end] for span in run) == sorted(options):
            yield run
            at += count
        else:
            at += 1


class _Entry(NamedTuple):
    # One entry of a list in a prompt: a heading, if there is one, and the text or texts below it.

    start: int
    end: int
    # Where the text is recorded: the column of a table or the key of the study file.
    column: str
    # Whether an option is the heading, so that several texts may follow it.
    has_option: bool
    # The (start, end) of the texts.
    texts: tuple[tuple[int, int], ...]


def _find_lists(
    spans: Sequence[Span],
    text: str,
    listed: Collection[tuple[int, int]],
    within: Collection[tuple[int, int]],
) -> Iterator[list[tuple[int, int]]]:
    # Yields the (start, end) of the entries of each list. Texts are entries of one list if the
    # prompt means the same after they change places. So they come from one column, each heading
    # moves with its text, and the words around the entries are the same (`_has_equal_frames`).
    # `listed` are (start, end) of the texts, and `within` those of the options in complete lists.
    found: list[list[_Entry]] = [[]]
    between: list[Span] = []
    for span in spans:
        if span[:2] not in listed:
            between.append(span)
            continue
        entries, heading = found[-1], _heading_of(span, between, within)
        start = span.start if heading is None else heading.start
        column = span.source.id.partition("/")[0]
        # A text of another source between two entries, such as the result of the first one, would
        # keep its place.
        if entries and (
            column != entries[-1].column
            or any(other.start < start or other[:2] in within for other in between)
        ):
            found.append(entries := [])
        if heading is None and entries and entries[-1].has_option:
            texts = (*entries[-1].texts, span[:2])
            entries[-1] = entries[-1]._replace(end=span.end, texts=texts)
        else:
            has_option = heading is not None and heading.source.kind == "option"
            entries.append(_Entry(start, span.end, column, has_option, (span[:2],)))
        between = []
    for entries in found:
        # A single option before several texts, such as an earlier choice, heads all of them.
        places = (
            entries[0].texts if len(entries) == 1 else [(each.start, each.end) for each in entries]
        )
        if len(places) > 1 and _has_equal_frames(places, text):
            yield list(places)


def _heading_of(
    span: Span, between: Sequence[Span], within: Collection[tuple[int, int]]
) -> Span | None:
    # The heading of a text is the first cell of its row of a table, such as the id of an item, or
    # otherwise the last option before the text. `between` are the spans after the text before.
    last_listing = max((n for n, other in enumerate(between) if other[:2] in within), default=-1)
    headings = between[last_listing + 1 :]
    cells = [
        other
        for other in headings
        if "/" in span.source.id and _row_of(other.source) == _row_of(span.source)
    ]
    options = [other for other in headings if other.source.kind == "option"]
    return next(iter([*cells, *options[-1:]]), None)


def _row_of(source: Source) -> tuple[str, str]:
    # The table and the key of a row. An id has the form `table.column/key…`.
    column, _, key = source.id.partition("/")
    return column.partition(".")[0], key


def _has_equal_frames(places: Sequence[tuple[int, int]], text: str) -> bool:
    # Compares the words around the entries, which `places` gives as (start, end). Words that are
    # before, between or after some entries only, such as "What it costs: " or " (passed)", say
    # something about these entries.
    frames = [_without_numbers(text[end:start]) for (_, end), (start, _) in pairwise(places)]
    before = _without_numbers(text[: places[0][0]])
    after = _without_numbers(text[places[-1][1] :])
    frame = frames[0]
    # The label of an entry, such as "Position 1: ", is before the first entry too, and may have
    # several lines. What else is between two entries may separate them, as a comma does. It may not
    # be words, unless they also follow the last entry.
    has_lines = "\n" in frame
    starts = [
        place for place in range(len(frame) + 1) if not has_lines or frame[:place].endswith("\n")
    ]
    start = "\n" if has_lines else ""
    place = next((n for n in starts if f"{start}{before}".endswith(start + frame[n:])), None)
    is_labelled = place is not None
    rest = frame[:place]
    has_words = any(map(str.isalnum, rest)) and not after.startswith(rest)
    is_ended = not has_lines or after.partition("\n")[0] == frame.partition("\n")[0]
    is_framed = is_labelled and is_ended and not has_words
    return is_framed and frames.count(frame) == len(frames)


def _without_numbers(frame: str) -> str:
    # The numbers of a loop, or letters such as "A.", count the places in a list, so they differ in
    # any list. Numbers that belong to an entry have a source.
    return re.sub(r"\d+|\b[A-Za-z](?=[.:)])", "0", frame)


def _groups_of_earlier_version(
    spans: Sequence[Span], listed: Collection[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    # What controls of an earlier version exchange, so that they are verified and resumed as
    # planned: the (start, end) of each part. `spans` are in order, and
    # `listed` are (start, end) of the listed texts. If options are headings of the texts, a part is
    # one option with the texts below it. Otherwise each text is a part.
    groups: list[list[int]] = []
    heading: Span | None = None
    has_headings = False
    for span in spans:
        if span[:2] in listed:
            if heading is not None or not groups or not has_headings:
                groups.append([(heading or span).start, span.end])
            groups[-1][1] = span.end
            has_headings |= heading is not None
            heading = None
        elif span.source.kind == "option":
            heading = span
    yield from ((start, end) for start, end in groups)


def _reversed(run: Sequence[tuple[int, int]], text: SourcedText) -> Iterator[Replacement]:
    # `run` is the start and end of each part. The text between the parts keeps its position.
    for place, other in zip(run, reversed(run), strict=True):
        # The middle one of an odd number of parts keeps its place.
        if place != other:
            start, end = other
            # Move the spans with their text, so that the sources stay recorded.
            inner = [
                span.shift_span(-start)
                for span in text.spans
                if start <= span.start and span.end <= end
            ]
            yield Replacement(*place, SourcedText(str(text)[start:end], inner))


@cache
def _load_neutral_sentences() -> Mapping[str, Sequence[str]]:
    sentences: Mapping[str, Sequence[str]] = packaged_yaml(__file__, "neutral_texts.yaml")
    return sentences


def neutral_text(length: int, id: str, language: Language) -> str:
    """Return a neutral text of at most `length` characters that ends with a full stop.

    `id`: the id of the text that is replaced.
    """
    # The text is cut between two words, so it may be shorter by up to one word. The id selects the
    # first sentence, so different texts get different replacements.
    sentences = _load_neutral_sentences()[language]
    # Depend on the id alone, so that a resume and `verify` build the same prompt again.
    start = int.from_bytes(digest("neutral text", id)[:4], "big") % len(sentences)
    words: list[str] = []
    # Characters so far, without a space at the end.
    size = -1
    for sentence in _endless(sentences, start):
        for word in str(sentence).split():
            # Reserve one character for the full stop.
            if size + 1 + len(word) > length - 1:
                # Even the first word may be too long. A single full stop still keeps the length
                # rule.
                return " ".join(words).rstrip(".,") + "." if words else "." * min(1, length)
            words.append(word)
            size += 1 + len(word)
    raise AssertionError("the sentences do not end")


def _endless(sentences: Sequence[str], start: int) -> Iterator[str]:
    # A long text, such as a whole discussion, needs more than all sentences, so they repeat.
    while True:
        yield sentences[start % len(sentences)]
        start += 1


class ReplacedFor(NamedTuple):
    """How many answers were given after texts had been replaced, in two counts.

    `alone` counts answers for which the texts of one participant were replaced. `session` counts
    answers for which the texts of all participants of a session were replaced.
    """

    # Only those of the participant.
    alone: int = 0
    # Those of all participants of the session, which was run again.
    session: int = 0

    def plus(self, other: ReplacedFor) -> ReplacedFor:
        """Return these counts with the counts of `other` added."""
        return ReplacedFor(self.alone + other.alone, self.session + other.session)

    @property
    def says(self) -> str:
        """The counts in words: for whom texts were replaced."""
        if not self.session:
            return "one participant" if self.alone else ""
        if not self.alone:
            return "all of a session"
        answers = self.alone + self.session
        return f"all of a session in {self.session:,} of {answers:,} answers"

    def name_version(self, control: str) -> str:
        """Return the name of a control.

        If texts of whole sessions were replaced, a remark in brackets says so.
        """
        # Texts of one participant are the usual case, which needs no word.
        return f"{NAMES[control]} ({self.says})" if self.session else NAMES[control]


def count_replaced(rows: pl.DataFrame) -> ReplacedFor:
    """Return how many decisions in `rows` were answered with replaced texts."""
    decided = count_decisions(rows.filter(pl.col("missing").is_null(), pl.col("control") != RETEST))
    session = decided.filter(from_session_run_again()).height
    return ReplacedFor(decided.height - session, session)


def from_session_run_again() -> pl.Expr:
    """Return the filter that keeps answers from sessions that were run again."""
    # Such an address begins with the scope of the control, and others with that of a decision.
    return pl.col("address").str.starts_with(decision_scope(""))
