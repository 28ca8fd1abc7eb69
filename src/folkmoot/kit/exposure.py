"""Which texts stood in the prompt of each decision, by the requests in the journal.

A study says what its texts are (`Text`: words out of its own tables and settings), which questions
are decisions, and which kinds its design shows at each (`Decision`). Whether the words were there
is looked up in the requests as they were sent, so that the table `exposure` can disagree with what
the code and the docs claim.

    STUDY = Study(…, tables=(…, ExposureRow), afterwards=Exposure(texts, decisions))

A text is found by its sentences, whatever their line breaks, case and punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from folkmoot.engine.journal import JournalReader
from folkmoot.measures.estimates import percent, plural
from folkmoot.storage.findings import Finding, Grid, Heat
from folkmoot.storage.rows import Row, column
from folkmoot.storage.run_folder import RunFolder

OWN = "own words"
ELSEWHERE = "words from elsewhere"  # of a conversation or person whose texts are not for it
STOOD = 0.5  # of the words of a text; with fewer it did not stand in the prompt
SHORT = 4  # sentences of fewer words stand by chance, so a text is not looked for by them
TELLING = 8  # sentences of fewer words are said by different people
REMEMBERED = 2048  # messages whose sentences are remembered: many prompts share theirs


class Text(NamedTuple):
    """A text that can have been shown.

    `scope`: the conversation, group or person that it belongs to; empty for what is everybody's.
    `by`: who said it; to them it is of the kind `OWN`.
    """

    kind: str
    id: str
    words: str
    scope: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """A question that decides something, at its address in the journal.

    `scopes`: the conversations and persons whose texts are for it. `shows`: kind → whether the
    design shows texts of it here; a kind that is not named is reported and not checked.
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
        "kind of text; “words from elsewhere”: those of a conversation that was not theirs"
    )
    expected: bool | None = column(
        "whether the design shows this kind here; empty: it says neither"
    )
    texts: int = column("texts of this kind of which at least half the words stood in the prompt")
    text_ids: list[str] = column("their ids")
    share: float | None = column(
        "share of the words of these texts that stood there (of the nearest text, where none did); "
        "empty where no such text was recorded"
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
            yield from rows(decision, index.found(decision, journal.messages(decision.address)))


class Found(NamedTuple):
    """A text and the share of its words that stood in a prompt. `brief`: it has no sentence that
    could not stand there by chance."""

    kind: str
    id: str
    words: int
    share: float
    brief: bool


class Index:
    """Texts by the first words of their sentences: one pass over a prompt finds them all."""

    def __init__(self, texts: Iterable[Text]) -> None:
        self._texts: list[Text] = []
        self._words: list[int] = []  # of each text, in sentences that are looked for
        self._brief: list[bool] = []
        self._sentences: list[tuple[str, ...]] = []
        self._owners: list[dict[str, list[int]]] = []  # of each sentence: scope → texts
        self._starts: dict[tuple[str, ...], list[int]] = {}
        self._scopes: dict[str, list[int]] = {}
        numbers: dict[tuple[str, ...], int] = {}
        for text in texts:
            self._add(text, numbers)
        self._lengths = sorted({len(start) for start in self._starts})
        self._remembered: dict[str, tuple[tuple[int, int], ...]] = {}

    def _add(self, text: Text, numbers: dict[tuple[str, ...], int]) -> None:
        sentences = sentences_of(text.words)
        if not sentences:
            return
        number = len(self._texts)
        self._texts.append(text)
        self._words.append(sum(map(len, sentences)))
        self._brief.append(max(map(len, sentences)) < SHORT)
        self._scopes.setdefault(text.scope, []).append(number)
        for sentence in sentences:
            if sentence not in numbers:
                numbers[sentence] = len(self._sentences)
                self._starts.setdefault(sentence[:SHORT], []).append(len(self._sentences))
                self._sentences.append(sentence)
                self._owners.append({})
            self._owners[numbers[sentence]].setdefault(text.scope, []).append(number)

    def found(self, decision: Decision, messages: Iterable[str]) -> list[Found]:
        """All texts that are for this decision, found or not, and others' that were found."""
        scopes = ("", *sorted(decision.scopes))
        here: set[int] = set()
        elsewhere: set[int] = set()
        for message in messages:
            places = self._standing(message)
            numbers = {n for _, n in places}
            own = {n for n in numbers if not self._owners[n].keys().isdisjoint(scopes)}
            here |= own
            # Words that somebody here said, or a few words, show nothing about elsewhere.
            others = {n for n in numbers - own if self._length(n) >= TELLING}
            if others:
                said = {p + i for p, n in places if n in own for i in range(self._length(n))}
                elsewhere |= {
                    n
                    for p, n in places
                    if n in others and not said.issuperset(range(p, p + self._length(n)))
                }
        words = {n: 0 for s in scopes for n in self._scopes.get(s, ())}
        self._count(words, here, scopes)
        foreign: dict[int, int] = {}
        for sentence in elsewhere:
            self._count(foreign, (sentence,), self._owners[sentence])
        return [
            *(self._of(n, count, decision) for n, count in words.items() if self._texts[n].kind),
            *(
                self._of(n, count, decision)._replace(kind=ELSEWHERE)
                for n, count in foreign.items()
                if count >= STOOD * self._words[n]
            ),
        ]

    def _length(self, sentence: int) -> int:
        return len(self._sentences[sentence])

    def _count(
        self, words: dict[int, int], sentences: Iterable[int], scopes: Iterable[str]
    ) -> None:
        """Add the words of the sentences to the texts of these scopes that hold them."""
        for sentence in sentences:
            for scope in scopes:
                for n in self._owners[sentence].get(scope, ()):
                    words[n] = words.get(n, 0) + self._length(sentence)

    def _of(self, number: int, count: int, decision: Decision) -> Found:
        text, words = self._texts[number], self._words[number]
        kind = OWN if text.by == decision.participant_id else text.kind
        return Found(kind, text.id, words, count / words, self._brief[number])

    def _standing(self, message: str) -> tuple[tuple[int, int], ...]:
        # Not a cached method, which would hold the index, with all texts, after the run.
        places = self._remembered.get(message)
        if places is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            places = self._remembered[message] = self._scan(message)
        return places

    def _scan(self, message: str) -> tuple[tuple[int, int], ...]:
        """Where sentences stand in a message: (place of the first word, sentence)."""
        words = _words_of(message)
        found = []
        for length in self._lengths:
            windows = zip(*(words[n:] for n in range(length)), strict=False)
            for place, start in enumerate(windows):
                for number in self._starts.get(start, ()):
                    sentence = self._sentences[number]
                    if tuple(words[place : place + len(sentence)]) == sentence:
                        found.append((place, number))
        return tuple(found)


_SENTENCE = re.compile(r"(?<=[.!?;:…])[\"'”’)\]*_`]*\s+|(?<=[。！？；：])|\n+")
_WORD = re.compile(r"\w+")


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
            expected=False if kind == ELSEWHERE else decision.shows.get(kind),
            texts=len(stood),
            text_ids=[t.id for t in stood],
            share=_share(stood) if stood else max((t.share for t in texts), default=None),
        )


def _share(texts: list[Found]) -> float:
    return sum(t.share * t.words for t in texts) / sum(t.words for t in texts)


# --- what the table says -------------------------------------------------------------------------


class _Cell(NamedTuple):
    """A kind at a decision of an arm: in how many prompts it stood, should have, stood in part."""

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
        if not self.missing and not self.unwanted:
            return share
        return f"{share}, not {percent(self.expected / self.decisions)}"

    @property
    def differences(self) -> Iterator[str]:
        what = f"{self.condition}, {self.decision}: {self.kind}"
        if self.missing:
            yield (
                f"{what} should stand in the prompt and did not in {self.missing:,} of "
                f"{self.decisions:,}."
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
    own = run.table(ExposureRow.table).filter(participant_id=participant_id)
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
        notes=(
            "A text stood in a prompt if at least half of its words did, by whole sentences.",
            *(
                f"{c.condition}, {c.decision}: {c.kind} stood in {plural(c.partly, 'prompt')} only "
                f"in part (at the least {percent(c.least)} of the words)."
                for c in cells
                if c.least is not None
            ),
        ),
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
    table = run.table(ExposureRow.table)
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
    return [_Cell(*row) for row in joined.iter_rows()]
