"""Which texts stood in the prompt of each decision, by the requests in the journal.

A study says what its texts are (`Text`: words out of its own tables and settings), which questions
are decisions, and which kinds its design shows at each (`Decision`). Whether the words were there
is looked up in the requests as they were sent, so that the table `exposure` can disagree with what
the code and the docs claim.

    STUDY = Study(…, tables=(…, ExposureRow), afterwards=Exposure(texts, decisions))

A text is found by its sentences, whatever their line breaks, case and punctuation. Whose words the
prompt says they are is read from the label before them (“Ann: …”, a row, a tag, a record).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from folkmoot.conversation.lines import plain
from folkmoot.engine.journal import JournalReader
from folkmoot.measures.estimates import percent
from folkmoot.storage.findings import Finding, Grid, Heat
from folkmoot.storage.rows import Row, column
from folkmoot.storage.run_folder import RunFolder

OWN = "own words"
ELSEWHERE = "words from elsewhere"  # of a conversation or person whose texts are not for it
MISNAMED = "words under another's name"
STOOD = 0.5  # of the words of a text; with fewer it did not stand in the prompt
SHORT = 4  # sentences of fewer words stand by chance, so a text is not looked for by them
TELLING = 8  # sentences of fewer words are said by different people
REMEMBERED = 2048  # messages whose sentences are remembered: many prompts share theirs
LABEL = 100  # characters before a text in which its speaker's name may stand


class Text(NamedTuple):
    """A text that can have been shown.

    `scope`: the conversation, group or person that it belongs to; empty for what is everybody's.
    `by`: who said it; to them it is of the kind `OWN`. `name`: what prompts call who said it.
    """

    kind: str
    id: str
    words: str
    scope: str = ""
    by: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """A question that decides something, at its address in the journal.

    `scopes`: the conversations and persons whose texts are for it. `shows`: kind → whether the
    design shows the texts of it that are in these scopes here, every one of them; a kind that is
    not named is reported and not checked.
    """

    address: str
    participant_id: str
    condition: str
    name: str
    scopes: frozenset[str]
    shows: Mapping[str, bool] = field(default_factory=dict)


class ExposureRow(Row, table="exposure"):
    """One kind of text at one decision of one participant."""

    participant_id: str
    condition: str
    decision: str = column("what was decided")
    address: str
    kind: str = column(
        "kind of text; “words from elsewhere”: those of a conversation that was not theirs; “words "
        "under another's name”: those that the prompt puts in another speaker's mouth"
    )
    expected: bool | None = column(
        "whether the design shows this kind here; empty: it says neither"
    )
    texts: int = column("texts of this kind of which at least half the words stood in the prompt")
    text_ids: list[str] = column("their ids")
    share: float | None = column(
        "share of words that stood there: where the design shows this kind, of all texts of it; "
        "else of these texts (of the nearest, where none did); empty where none was recorded"
    )


Texts = Callable[[RunFolder], Iterable[Text]]
Decisions = Callable[[RunFolder], Iterable[Decision]]


@dataclass(frozen=True, slots=True)
class Exposure:
    """`Study.afterwards` of a study that says its texts and decisions."""

    texts: Texts
    decisions: Decisions

    def __call__(
        self, run: RunFolder, journal: JournalReader, prompts: Mapping[str, str]
    ) -> Iterator[ExposureRow]:
        # A speaker may repeat an instruction; that it stands in another's prompt shows nothing.
        wording = (Text("", name, words) for name, words in prompts.items())
        index = Index((*self.texts(run), *wording))
        for decision in self.decisions(run):
            # What the one who is asked said before may stand as its own messages.
            sent = (
                f"You: {m.content}" if m.role == "assistant" else m.content
                for m in journal.messages(decision.address)
            )
            replies = partial(_replies, journal, decision.address.rpartition("/")[0])
            yield from rows(decision, index.found(decision, sent, replies))


def _replies(journal: JournalReader, scope: str) -> Iterator[tuple[str, list[str]]]:
    """Every reply in a conversation, thoughts that nobody heard among them, and its prompt."""
    for address in journal.below(scope):
        entry = journal.at(address)
        if entry is not None and entry.reply:
            yield entry.reply, [m["content"] for m in entry.request["messages"]]


class Found(NamedTuple):
    """A text and how many of its words stood in a prompt. `brief`: it has no sentence that could
    not stand there by chance."""

    kind: str
    id: str
    words: int
    standing: int
    brief: bool

    @property
    def share(self) -> float:
        return self.standing / self.words


class _Standing(NamedTuple):
    """What stands in a message: sentences with the place of their first word, and first sentences
    of texts whose speakers have names."""

    places: tuple[tuple[int, int], ...]
    labels: tuple[_Label, ...]


class _Label(NamedTuple):
    """The first sentence of a text in a message: the words that introduce it, None where the
    message opens with it, and the sentences that start where it does, longer ones among them."""

    sentence: int
    words: frozenset[str] | None
    starting: frozenset[int]


class Index:
    """Texts by the sentences in them: one pass over a prompt finds them all.

    A sentence is kept as a hash (64 bits) of its words, so that a million people's texts fit; two
    hashes of a prompt's words are enough to tell whether any of them stands at a place.
    """

    def __init__(self, texts: Iterable[Text]) -> None:
        self._texts: list[Text] = []
        self._brief: list[bool] = []
        self._scopes: dict[str, list[int]] = {}
        hashes, starts, lengths = array("Q"), array("Q"), array("L")
        counts = array("L")  # sentences of each text
        openings = dict[
            int, int
        ]()  # text whose speaker has a name → the hash of its first sentence
        for text in texts:
            words = plain(text.words)
            sentences = sentences_of(words)
            if not sentences:
                continue
            self._scopes.setdefault(text.scope, []).append(len(self._texts))
            if text.name and (opening := _opening(words)):
                openings[len(self._texts)] = _hash(opening)
            self._texts.append(text._replace(words=""))
            self._brief.append(max(map(len, sentences)) < SHORT)
            counts.append(len(sentences))
            for sentence in sentences:
                hashes.append(_hash(sentence))
                starts.append(_hash(sentence[:SHORT]))
                lengths.append(len(sentence))
        self._place(*map(np.array, (hashes, starts, lengths, counts)))
        self._openings = {t: int(np.searchsorted(self._hashes, h)) for t, h in openings.items()}
        self._opens = frozenset(self._openings.values())
        self._remembered: dict[str, _Standing] = {}

    def _place(self, hashes: Numbers, starts: Numbers, lengths: Numbers, counts: Numbers) -> None:
        """Number the sentences in order of their hashes, and look them up both ways."""
        self._hashes, first, of_texts = np.unique(hashes, return_index=True, return_inverse=True)
        self._lengths = lengths[first].astype(np.intp)
        # Text → its sentences, sentence → the texts that hold it.
        self._bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.intp)
        self._sentences = of_texts.astype(np.int32)
        holders = np.repeat(np.arange(len(counts), dtype=np.int32), counts.astype(np.intp))
        self._holders = holders[np.argsort(of_texts, kind="stable")]
        held = np.bincount(of_texts, minlength=len(self._hashes))
        self._held = np.concatenate(([0], np.cumsum(held))).astype(np.intp)
        # First words → how long sentences are that start with them, shorter starts among them.
        begun = np.stack((starts[first], self._lengths.astype(np.uint64)), axis=1)
        begun = np.unique(begun, axis=0)
        self._starts, self._at, self._ways = np.unique(
            begun[:, 0], return_index=True, return_counts=True
        )
        self._going_on = begun[:, 1].astype(np.intp)
        self._of_text = (
            np.add.reduceat(
                self._lengths[self._sentences], self._bounds[:-1], dtype=np.intp
            ).tolist()
            if len(counts)
            else []
        )

    def found(
        self,
        decision: Decision,
        messages: Iterable[str],
        replies: Callable[[], Iterable[tuple[str, Sequence[str]]]] = tuple,
    ) -> list[Found]:
        """All texts that are for this decision, found or not, and others' that were found.

        `replies` of this conversation, each with the messages of its prompt.
        """
        own = {
            text: self._sentences_in(text)
            for scope in ("", *sorted(decision.scopes))
            for text in self._scopes.get(scope, ())
        }
        known = set[int]().union(*own.values())
        here: set[int] = set()
        elsewhere: set[int] = set()
        labels: list[_Label] = []
        for message in messages:
            places, labelled = self._standing(message)
            labels += labelled
            numbers = {n for _, n in places}
            here |= numbers & known
            # Words that somebody here said, or a few words, show nothing about elsewhere.
            others = {n for n in numbers - known if self._lengths[n] >= TELLING}
            if others:
                said = {p + i for p, n in places if n in known for i in range(self._lengths[n])}
                elsewhere |= {
                    n
                    for p, n in places
                    if n in others and not said.issuperset(range(p, p + self._lengths[n]))
                }
        # A model may think here, by itself, what it or another says elsewhere.
        for reply, prompt in replies() if elsewhere else ():
            elsewhere -= self._sentences_of(reply).difference(*map(self._sentences_of, prompt))
        words = {t: sum(int(self._lengths[n]) for n in own[t] if n in here) for t in own}
        foreign: dict[int, int] = {}
        for sentence in sorted(elsewhere):
            for text in self._holders[slice(*self._held[sentence : sentence + 2])].tolist():
                foreign[text] = foreign.get(text, 0) + int(self._lengths[sentence])
        return [
            *(self._of(t, count, decision) for t, count in words.items() if self._texts[t].kind),
            *(
                self._of(t, count, decision)._replace(kind=ELSEWHERE)
                for t, count in sorted(foreign.items())
                if count >= STOOD * self._of_text[t]
            ),
            *(
                self._of(t, self._of_text[t], decision)._replace(kind=MISNAMED)
                for t in self._misnamed(own, labels)
            ),
        ]

    def _misnamed(self, texts: Mapping[int, Sequence[int]], labels: Iterable[_Label]) -> list[int]:
        """Of these texts (with their sentences) those that another speaker's name introduces, and
        that stand nowhere without a name, as a message of their own, nor under the name of anybody
        here who says the same or goes on from it: who repeats words, quotes them."""
        names = {t: frozenset(_words_of(n)) for t in texts if (n := self._texts[t].name)}
        wrong, right = set[int](), set[int]()
        for sentence, words, starting in labels:
            if words is None:
                right.add(sentence)
                continue
            called = [t for t, name in names.items() if name <= words]
            if called:
                own = any(not starting.isdisjoint(texts[t]) for t in called)
                (right if own else wrong).add(sentence)
        return [t for t in names if self._openings.get(t) in wrong - right]

    def _sentences_of(self, message: str) -> set[int]:
        return {n for _, n in self._standing(message).places}

    def _sentences_in(self, text: int) -> list[int]:
        found: list[int] = self._sentences[slice(*self._bounds[text : text + 2])].tolist()
        return found

    def _of(self, number: int, count: int, decision: Decision) -> Found:
        text, words = self._texts[number], self._of_text[number]
        kind = OWN if text.by == decision.participant_id else text.kind
        return Found(kind, text.id, words, count, self._brief[number])

    def _standing(self, message: str) -> _Standing:
        # Not a cached method, which would hold the index, with all texts, after the run.
        places = self._remembered.get(message)
        if places is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            text = plain(message)
            found = self._scan(text)
            places = self._remembered[message] = _Standing(found, self._labels(text, found))
        return places

    def _labels(self, message: str, places: Iterable[tuple[int, int]]) -> tuple[_Label, ...]:
        """Where first sentences stand, and what introduces them: the words of one sentence up to a
        colon."""
        opening = [(p, n) for p, n in places if n in self._opens]
        if not opening:
            return ()
        starting: dict[int, set[int]] = {}
        for place, number in places:
            starting.setdefault(place, set()).add(number)
        folded = message.casefold()
        starts = [m.start() for m in _WORD.finditer(folded)]
        found: list[_Label] = []
        for place, number in opening:
            before = _ENDED.split(folded[max(0, starts[place] - LABEL) : starts[place]])[-1]
            label = _LABEL.search(before)
            if label or place == 0:
                words = frozenset(_WORD.findall(label[1])) if label else None
                found.append(_Label(number, words, frozenset(starting[place])))
        return tuple(found)

    def _scan(self, message: str) -> tuple[tuple[int, int], ...]:
        """Where sentences stand in a message: (place of the first word, sentence)."""
        if not len(self._hashes):
            return ()
        words = _words_of(message)
        sums = _sums(words)
        found: list[tuple[int, int]] = []
        for start in range(1, min(SHORT, len(words)) + 1):
            hashes = _between(sums, np.arange(len(words) - start + 1), start)
            at = np.minimum(np.searchsorted(self._starts, hashes), len(self._starts) - 1)
            places = np.flatnonzero(self._starts[at] == hashes)
            ways = self._ways[at[places]]
            first = np.repeat(self._at[at[places]], ways)
            nth = np.arange(len(first)) - np.repeat(np.cumsum(ways) - ways, ways)
            lengths = self._going_on[first + nth]
            places = np.repeat(places, ways)
            whole = (places + lengths <= len(words)) & (np.minimum(lengths, SHORT) == start)
            places, lengths = places[whole], lengths[whole]
            hashes = _between(sums, places, lengths)
            numbers = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
            there = self._hashes[numbers] == hashes
            found += zip(places[there].tolist(), numbers[there].tolist(), strict=True)
        return tuple(found)


Numbers = NDArray[np.uint64]

# A hash of words is a polynomial in an odd number, modulo 2 ** 64: of any words in a row it is the
# difference of two sums.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)


@lru_cache(maxsize=2)
def _powers(of: int, count: int) -> Numbers:
    """The powers 0 … count - 1."""
    powers = np.full(count, of, dtype=np.uint64)
    powers[:1] = 1
    return cast("Numbers", np.cumprod(powers, dtype=np.uint64))


def _sums(words: Sequence[str]) -> Numbers:
    """(n + 1,): the sum of the terms before each place."""
    size = 1 << len(words).bit_length()
    terms = np.array([hash(w) & 0xFFFFFFFFFFFFFFFF for w in words], dtype=np.uint64)
    terms *= _powers(_BASE, size)[: len(words)]
    return np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)))


def _between(sums: Numbers, places: NDArray[np.intp], lengths: int | NDArray[np.intp]) -> Numbers:
    """The hashes of so many words from each place on."""
    size = 1 << len(sums).bit_length()
    hashes: Numbers = (sums[places + lengths] - sums[places]) * _powers(_INVERSE, size)[places]
    return hashes


def _hash(words: Sequence[str]) -> int:
    """The hash of all these words."""
    total = 0
    for word in reversed(words):
        total = (total * _BASE + hash(word)) & 0xFFFFFFFFFFFFFFFF
    return total


_SENTENCE = re.compile(r"(?<=[.!?;:…])[\"'”’)\]*_`]*\s+|(?<=[。！？；：])|\n+")
_WORD = re.compile(r"\w+")
_LABEL = re.compile(r"([^\n:：]*)[:：]\W*$")
# A sentence before, which is no part of a label; "Dr." and "Mrs." end none.
_ENDED = re.compile(r"(?<=\w{4}[.!?])\W*\s+")


def _opening(text: str) -> tuple[str, ...]:
    """The first sentence of a text; () where it is too short to be told from others'."""
    first = next(filter(None, (tuple(_words_of(s)) for s in _SENTENCE.split(text))), ())
    return first if len(first) >= SHORT else ()


def sentences_of(text: str) -> set[tuple[str, ...]]:
    """The sentences of a text as tuples of words, without those of fewer than four words unless
    there are no others."""
    found = {s for s in map(tuple, map(_words_of, _SENTENCE.split(text))) if s}
    return {s for s in found if len(s) >= SHORT} or found


def _words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def rows(decision: Decision, found: Iterable[Found]) -> Iterator[ExposureRow]:
    """A row for every kind that the design names here, and for others of which a text stood."""
    by_kind: dict[str, list[Found]] = {kind: [] for kind in decision.shows}
    for text in found:
        by_kind.setdefault(text.kind, []).append(text)
    for kind, texts in by_kind.items():
        unwanted = decision.shows.get(kind) is False
        stood = [t for t in texts if t.share >= STOOD and not (unwanted and t.brief)]
        if not stood and kind not in decision.shows:
            continue
        yield ExposureRow(
            participant_id=decision.participant_id,
            condition=decision.condition,
            decision=decision.name,
            address=decision.address,
            kind=kind,
            expected=False if kind in (ELSEWHERE, MISNAMED) else decision.shows.get(kind),
            texts=len(stood),
            text_ids=[t.id for t in stood],
            share=_share(decision.shows.get(kind) is True, texts, stood),
        )


def _share(wanted: bool, texts: list[Found], stood: list[Found]) -> float | None:
    of = texts if wanted else stood
    if not of:
        return max((t.share for t in texts), default=None)
    return sum(t.standing for t in of) / sum(t.words for t in of)


# --- what the table says -------------------------------------------------------------------------


class _Cell(NamedTuple):
    """A kind at a decision of an arm: in how many prompts it stood, should have, stood in part
    where all of it should have."""

    condition: str
    decision: str
    kind: str
    stood: int
    expected: int
    missing: int
    unwanted: int
    partly: int
    least: float | None
    decisions: int

    @property
    def shown(self) -> str:
        """The share of prompts, and what it should be where it is not."""
        share = percent(self.stood / self.decisions)
        if self.missing or self.unwanted:
            return f"{share}, not {percent(self.expected / self.decisions)}"
        return f"{share}, in part" if self.partly else share

    @property
    def differences(self) -> Iterator[str]:
        what = f"{self.condition}, {self.decision}: {self.kind}"
        if self.missing:
            yield (
                f"{what} should stand in the prompt and did not in {self.missing:,} of "
                f"{self.decisions:,}."
            )
        if self.partly:
            least = percent(min(self.least or 0, 0.99))
            yield (
                f"{what} should stand in the prompt in full and stood in part in {self.partly:,} "
                f"of {self.decisions:,} (at the least {least} of the words)."
            )
        if self.unwanted:
            yield (
                f"{what} should not stand in the prompt and did in {self.unwanted:,} of "
                f"{self.decisions:,}."
            )


def differences(run: RunFolder) -> list[str]:
    """Where what stood in the prompts is not what the design shows, a sentence for each arm,
    decision and kind; empty where they agree or nothing was recorded."""
    return [said for cell in _cells(run) for said in cell.differences]


def in_prompts(run: RunFolder, participant_id: str) -> dict[str, list[str]]:
    """Decision → the kinds of text that stood in its prompt, for one participant."""
    if not run.has_table(ExposureRow.table):
        return {}
    own = run.lazy(ExposureRow.table).filter(participant_id=participant_id).collect()
    stood: dict[str, list[str]] = {name: [] for name in own["decision"]}
    for row in own.filter(pl.col("texts") > 0).iter_rows(named=True):
        stood[row["decision"]].append(row["kind"])
    return stood


def exposure(run: RunFolder) -> Finding | None:
    """The matrix of arms and kinds: the share of decisions in whose prompt a text of the kind
    stood. None for a run without the table, or without decisions."""
    if not run.has_table(ExposureRow.table):
        return None
    title = "What stood in the prompts"
    cells = _cells(run)
    if not cells:
        return None
    kinds = list(dict.fromkeys(c.kind for c in cells))
    arms = list(dict.fromkeys((c.condition, c.decision) for c in cells))
    at = {(c.condition, c.decision, c.kind): c for c in cells}
    alarms = tuple(differences(run))
    return Finding(
        "exposure",
        title,
        "Each text was looked for in the requests as they were sent. "
        f"{'They are not' if alarms else 'They are'} as the design says.",
        Grid(
            ("condition", "decision", *kinds),
            tuple(
                (*arm, *(at[*arm, k].shown if (*arm, k) in at else None for k in kinds))
                for arm in arms
            ),
            "Share of decisions in whose prompt a text of the kind stood.",
        ),
        Heat(
            tuple((f"{c.condition}: {c.decision}", c.kind, c.stood / c.decisions) for c in cells),
            row="arm",
            column="kind of text",
            unit="share of decisions",
        ),
        notes=("A text stood in a prompt if at least half of its words did, by whole sentences.",),
        section="Exposure",
        headline=bool(alarms),
        alarms=alarms,
    )


def _cells(run: RunFolder) -> list[_Cell]:
    """In the order of the table."""
    if not run.has_table(ExposureRow.table):
        return []
    stood, expected = pl.col("texts") > 0, pl.col("expected")
    part = expected & stood & (pl.col("share") < 1)
    table = run.lazy(ExposureRow.table)
    asked = table.group_by("condition", "decision").agg(
        decisions=pl.struct("participant_id", "address").n_unique()
    )
    counted = table.group_by("condition", "decision", "kind", maintain_order=True).agg(
        stood=stood.sum(),
        expected=expected.sum(),
        missing=(expected & ~stood).sum(),
        unwanted=(~expected & stood).sum(),
        partly=part.sum(),
        least=pl.col("share").filter(part).min(),
    )
    joined = counted.join(asked, on=["condition", "decision"], maintain_order="left")
    return [_Cell(*row) for row in joined.collect().iter_rows()]
