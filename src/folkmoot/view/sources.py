"""Split prompts into pieces at the borders of their sources, and name the sources in a legend."""
# The pages (`_call.html.j2`) and the terminal (`cli/show.py`) show prompts in this form.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.provenance import Source, Span
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import is_one_of

# As in view.css. The ninth speaker has the first colour again.
SPEAKER_COLOURS = 8
# The legend lists these kinds by speaker.
SPEECH_KINDS = ("utterance", "answer", "reply")
# Maps a kind to its key in the legend and its name. Speakers have numbers as keys.
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
    """One entry of the legend of a prompt."""

    # Shown before each piece, so that readers do not depend on colours.
    key: str
    name: str
    # A class in view.css.
    style: str


class Piece(NamedTuple):
    """Neighbouring characters of a message that have the same sources."""

    text: str
    # The spans that cover the piece, the innermost last. Without spans, the text is an instruction
    # of the study.
    spans: tuple[Span, ...]
    # The spans that begin here.
    opened: tuple[Span, ...]
    # The spans that end here.
    closed: tuple[Span, ...]
    # True if an outer span continues after an inner span.
    resumed: bool = False

    @property
    def source(self) -> Source | None:
        """The innermost source of the piece, or None if the piece has no source."""
        return self.spans[-1].source if self.spans else None

    @property
    def marked(self) -> tuple[Source, ...]:
        """The sources that the page names before the piece."""
        # Colour is then not the only sign. Short values, such as names and numbers, are left out,
        # because a prompt has many of them.
        marked_spans = self.opened or self.spans[-1:] * self.resumed
        return tuple(span.source for span in marked_spans if span.source.kind != "value")

    @property
    def indent(self) -> str:
        """The white space at the start of the piece."""
        # Names of sources are shown after it.
        return self.text[: len(self.text) - len(self.text.lstrip())]

    @property
    def address(self) -> str:
        """The address of the reply from which the piece comes, or "" if it comes from no reply."""
        return next(
            (address for span in reversed(self.spans) if (address := span.source.address)), ""
        )


def split_by_source(text: str, spans: Iterable[Span]) -> list[Piece]:
    """Split a message wherever a source starts or ends."""
    # Of two spans with the same start, the longer one is outside. A withdrawal may have shortened
    # the text, so spans may lie beyond its end.
    known_spans = sorted(
        (span for span in spans if span.start < len(text)), key=lambda span: (span.start, -span.end)
    )
    ends = {min(span.end, len(text)) for span in known_spans}
    bounds = sorted({0, len(text), *(span.start for span in known_spans), *ends})
    pieces: list[Piece] = []
    covering: list[Span] = []
    waiting = iter([*known_spans, None])
    next_span = next(waiting)
    for start, end in pairwise(bounds):
        opened: list[Span] = []
        while next_span is not None and next_span.start <= start:
            opened.append(next_span)
            next_span = next(waiting)
        covering += opened
        closed = tuple(span for span in covering if min(span.end, len(text)) <= end)
        was_interrupted = pieces and any(span.source.kind != "value" for span in pieces[-1].closed)
        # A mark before a line break or a comma would only disturb the reader.
        has_words = any(map(str.isalnum, text[start:end]))
        resumed = bool(was_interrupted and covering and not opened) and has_words
        pieces.append(Piece(text[start:end], tuple(covering), tuple(opened), closed, resumed))
        covering = [span for span in covering if span not in closed]
    return pieces


@dataclass(frozen=True)
class Legend:
    """The names and styles of all sources in the prompts of one call."""

    # The label of each (kind, speaker). The kind is "" for utterances.
    labels: Mapping[tuple[str, str], Label]
    # The names of speakers by id.
    names: Mapping[str, str]

    def label(self, source: Source) -> Label:
        """Return the label of a source."""
        return self.labels[_source_group(source)]

    def describe(self, piece: Piece) -> str:
        """Return the names of all sources of a piece, the innermost first."""
        return ", in ".join(self._describe_source(span.source) for span in reversed(piece.spans))

    def _describe_source(self, source: Source) -> str:
        speaker = self.names.get(source.speaker, source.speaker)
        changed = ", changed on the way" if source.altered else ""
        if source.kind == "unattributed":
            return source.kind
        return f"{source.kind}{f' of {speaker}' if speaker else ''} ({source.id}{changed})"


class Sourced(NamedTuple):
    """The messages of one request, split by source, with a legend of the sources."""

    messages: tuple[tuple[str, tuple[Piece, ...]], ...]
    # None if the run recorded no sources.
    legend: Legend | None


def draw_by_source(
    run: RunFolder, asked_speaker: str, requests: Sequence[tuple[str, Mapping[str, object]]]
) -> list[Sourced]:
    """Return the prompts of several requests, split by source.

    - `asked_speaker`: the id of the speaker who got the requests.
    - `requests`: the address of each request with its journaled content.
    """
    recorded = run.read_spans([address for address, _ in requests])
    spans = {address: recorded.spans_at(address) for address, _ in requests}
    all_spans = [span for address_spans in spans.values() for span in address_spans]
    legend = (
        _build_legend(all_spans, asked_speaker, _speaker_names(run, all_spans))
        if all_spans
        else None
    )
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
    if source.kind in SPEECH_KINDS:
        return "", source.speaker
    return source.kind, source.speaker if source.kind == "persona" else ""


def _build_legend(spans: Sequence[Span], asked_speaker: str, names: Mapping[str, str]) -> Legend:
    labels: dict[tuple[str, str], Label] = {}
    speakers = 0
    for span in sorted(spans, key=lambda span: (span.message, span.start, -span.end)):
        kind, speaker = group = _source_group(span.source)
        if group in labels:
            continue
        speaker_name = names.get(speaker, speaker)
        if not kind:
            asked_note = " (who is asked)" if speaker == asked_speaker else ""
            style = f"speech c{speakers % SPEAKER_COLOURS}"
            speakers += 1
            labels[group] = Label(
                str(speakers), f"{speaker_name or 'unnamed speaker'}{asked_note}", style
            )
        else:
            key, name = KINDS.get(kind, (kind[:1].upper(), kind))
            labels[group] = Label(key, f"{name} of {speaker_name}" if speaker else name, kind)
    return Legend(labels, names)


def _speaker_names(run: RunFolder, spans: Sequence[Span]) -> dict[str, str]:
    # An id alone may belong to different speakers in different conversations, so names are looked
    # up by the quoted utterances.
    ids = {span.source.id for span in spans if span.source.kind == "utterance"}
    if not ids or not run.has_table(UTTERANCES):
        return {}
    utterances = run.scan_table(UTTERANCES)
    columns = ("speaker_id", "speaker_name", "speaker_role")
    if not {"utterance_id", *columns} <= {*utterances.collect_schema().names()}:
        return {}
    rows = utterances.filter(is_one_of("utterance_id", ids)).select(columns)
    return {
        speaker: f"{name} ({speaker})" if name.casefold() not in (speaker, role) else speaker
        for speaker, name, role in rows.unique(maintain_order=True).collect().iter_rows()
    }
