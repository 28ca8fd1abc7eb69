"""Prompts by source: which passage of a message comes from where, and the legend of a prompt.

The pages (`_call.html.j2`) and the terminal (`cli/show.py`) draw prompts with this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.provenance import Source, Span
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import RunFolder

SPEAKER_COLOURS = 8  # as in view.css; the ninth speaker has the first colour again
SPOKEN = ("utterance", "answer", "reply")  # kinds that the legend lists by speaker
# Kind → its key in the legend and its name. Speakers are numbered.
KINDS = {
    "persona": ("P", "persona"),
    "material": ("M", "material of the study"),
    "option": ("O", "options to choose from"),
    "proposal": ("B", "proposals on the ballot"),
    "summary": ("S", "summaries of what others said"),
    "value": ("V", "names and figures"),
    "unattributed": ("?", "unattributed: the source is unknown"),
}


class Label(NamedTuple):
    """One entry of a legend. `key` stands before each passage, so that no reader needs colours."""

    key: str
    name: str
    style: str  # the class in view.css


class Piece(NamedTuple):
    """Consecutive characters of a message with the same sources: the spans that cover them, the
    innermost last (none: instructions of the study), and those that begin and end with them.
    `resumed`: the innermost one goes on after another one has interrupted it."""

    text: str
    spans: tuple[Span, ...]
    opened: tuple[Span, ...]
    closed: tuple[Span, ...]
    resumed: bool = False

    @property
    def source(self) -> Source | None:
        """The innermost source."""
        return self.spans[-1].source if self.spans else None

    @property
    def marked(self) -> tuple[Source, ...]:
        """The sources that a reader is told before it: colour and underline are not the only signs
        of a change. Names and figures are too short and too many for that."""
        told = self.opened or self.spans[-1:] * self.resumed
        return tuple(span.source for span in told if span.source.kind != "value")

    @property
    def indent(self) -> str:
        """The blanks and line breaks before its first word, which a mark stands behind."""
        return self.text[: len(self.text) - len(self.text.lstrip())]

    @property
    def address(self) -> str:
        """The reply that it comes from: of the innermost source that is one; empty if none is."""
        return next(
            (address for span in reversed(self.spans) if (address := span.source.address)), ""
        )


def split_by_source(text: str, spans: Iterable[Span]) -> list[Piece]:
    """Split a message where a source begins or ends. Spans may be nested."""
    # Of two that begin together the longer one is outside. A withdrawal may have shortened a text.
    known = sorted(
        (span for span in spans if span.start < len(text)), key=lambda span: (span.start, -span.end)
    )
    ends = {min(span.end, len(text)) for span in known}
    bounds = sorted({0, len(text), *(span.start for span in known), *ends})
    pieces: list[Piece] = []
    covering: list[Span] = []
    waiting = iter([*known, None])
    following = next(waiting)
    for start, end in pairwise(bounds):
        opened: list[Span] = []
        while following is not None and following.start <= start:
            opened.append(following)
            following = next(waiting)
        covering += opened
        closed = tuple(span for span in covering if min(span.end, len(text)) <= end)
        interrupted = pieces and any(span.source.kind != "value" for span in pieces[-1].closed)
        # A mark before a mere line break or comma would only be in the way.
        has_words = any(map(str.isalnum, text[start:end]))
        resumed = bool(interrupted and covering and not opened) and has_words
        pieces.append(Piece(text[start:end], tuple(covering), tuple(opened), closed, resumed))
        covering = [span for span in covering if span not in closed]
    return pieces


@dataclass(frozen=True)
class Legend:
    """The sources of one call's prompts: what each is called and how it is marked."""

    labels: Mapping[tuple[str, str], Label]  # (kind, or "" for speech; speaker) → label
    names: Mapping[str, str]  # id of a speaker → name

    def label(self, source: Source) -> Label:
        """Return the entry of a source."""
        return self.labels[_source_group(source)]

    def describe(self, piece: Piece) -> str:
        """Return where a passage comes from, in words, the innermost source first."""
        return ", in ".join(self._describe_source(span.source) for span in reversed(piece.spans))

    def _describe_source(self, source: Source) -> str:
        who = self.names.get(source.speaker, source.speaker)
        changed = ", changed on the way" if source.altered else ""
        if source.kind == "unattributed":
            return source.kind
        return f"{source.kind}{f' of {who}' if who else ''} ({source.id}{changed})"


class Sourced(NamedTuple):
    """The messages of a request in passages of known source. No legend: the run recorded none."""

    messages: tuple[tuple[str, tuple[Piece, ...]], ...]  # (message role, passages)
    legend: Legend | None


def read_spans(run: RunFolder, addresses: Sequence[str]) -> dict[str, list[Span]]:
    """Address → the spans of the request there. Runs of earlier versions have none."""
    found: dict[str, list[Span]] = {address: [] for address in addresses}
    if not addresses or not run.has_table(PROVENANCE):
        return found
    rows = run.scan_table(PROVENANCE).filter(pl.col("address").is_in(list(addresses))).collect()
    for row in rows.iter_rows(named=True):
        source = Source(row["kind"], row["source_id"], row["speaker"], row["altered"])
        span = Span(row["start"], row["end"], source, row["message"])
        found[row["address"]].append(span)
    return found


def draw_by_source(
    run: RunFolder, asked: str, requests: Sequence[tuple[str, Mapping[str, object]]]
) -> list[Sourced]:
    """Return the prompts of requests in passages of known source.

    `requests`: address and request, as the journal has them; `asked`: the id of the speaker.
    """
    spans = read_spans(run, [address for address, _ in requests])
    every = [span for found in spans.values() for span in found]
    legend = _build_legend(every, asked, _speaker_names(run, every)) if every else None
    return [
        Sourced(
            tuple(
                (
                    str(message["role"]),
                    tuple(
                        split_by_source(
                            str(message["content"]),
                            [span for span in spans[address] if span.message == number],
                        )
                    ),
                )
                for number, message in enumerate(_request_messages(request))
            ),
            legend,
        )
        for address, request in requests
    ]


def _request_messages(request: Mapping[str, object]) -> list[Mapping[str, object]]:
    messages = request.get("messages")
    return messages if isinstance(messages, list) else []


def _source_group(source: Source) -> tuple[str, str]:
    if source.kind in SPOKEN:
        return "", source.speaker
    return source.kind, source.speaker if source.kind == "persona" else ""


def _build_legend(spans: Sequence[Span], asked: str, names: Mapping[str, str]) -> Legend:
    """The legend, in the order in which the sources appear first."""
    labels: dict[tuple[str, str], Label] = {}
    speakers = 0
    for span in sorted(spans, key=lambda span: (span.message, span.start, -span.end)):
        kind, speaker = group = _source_group(span.source)
        if group in labels:
            continue
        who = names.get(speaker, speaker)
        if not kind:
            own = " (who is asked)" if speaker == asked else ""
            style = f"speech c{speakers % SPEAKER_COLOURS}"
            speakers += 1
            labels[group] = Label(str(speakers), f"{who or 'unnamed speaker'}{own}", style)
        else:
            key, name = KINDS.get(kind, (kind[:1].upper(), kind))
            labels[group] = Label(key, f"{name} of {who}" if speaker else name, kind)
    return Legend(labels, names)


def _speaker_names(run: RunFolder, spans: Sequence[Span]) -> dict[str, str]:
    """Speaker → name with id, of those with utterances in these prompts. An id can stand for others
    in another conversation, so the utterances themselves tell the name."""
    ids = {span.source.id for span in spans if span.source.kind == "utterance"}
    if not ids or not run.has_table(UTTERANCES):
        return {}
    said = run.scan_table(UTTERANCES)
    columns = ("speaker_id", "speaker_name", "speaker_role")
    if not {"utterance_id", *columns} <= {*said.collect_schema().names()}:
        return {}
    rows = said.filter(pl.col("utterance_id").is_in(list(ids))).select(columns)
    return {
        speaker: f"{name} ({speaker})" if name.casefold() not in (speaker, role) else speaker
        for speaker, name, role in rows.unique(maintain_order=True).collect().iter_rows()
    }
