"""Record which texts each decision's prompt contained, to find prompts that differ from the design.

A study type lists its decisions, each with the sources that its prompt should contain.

    STUDY = Study(…, tables=(…, ExposureRow), derived_tables=ExposureTable(decisions, label))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import polars as pl

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.engine.settings.author_errors import check_members
from folkmoot.measures.inference.estimates import format_count, format_percent
from folkmoot.measures.wording import word
from folkmoot.provenance import Source
from folkmoot.storage.findings import Finding, Heatmap, ResultTable, column_heading
from folkmoot.storage.partial_run import PartialRun
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.rows import Row, column
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import is_one_of

OWN_WORDS = "own words"
# Text of a conversation or participant that the design does not show at this decision.
FOREIGN_WORDS = "words from elsewhere"
# Text that the prompt attributes to another speaker than the one who said it.
MISATTRIBUTED_WORDS = "words under another's name"
# The kind in the row of a decision whose prompt held no text that counts and should hold none.
NO_KIND = ""
# The kind in the row of a decision at whose address the run asked no question.
NOT_ASKED = "no question"
# Decisions that are joined at once. Their rows take about 20 MB of memory. A smaller number costs
# time, because every part scans the tables again.
DECISIONS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Decision:
    """One question to a participant, with the texts that its prompt should contain."""

    # The address of the question in the journal.
    address: str
    participant_id: str
    condition: str
    name: str
    # For each kind of text the ids of all sources that the design shows. With an empty collection,
    # the prompt may hold no text of this kind. Kinds that are missing from the mapping are reported
    # but not checked.
    expected_kinds: Mapping[str, Collection[str]] = field(default_factory=dict)
    # Further ids that the prompt may quote, or prefixes of ids that end in `/`. Any other quoted
    # text counts as `FOREIGN_WORDS`.
    within: Collection[str] = ()
    # The id of the unit of analysis, such as a group. Empty: the participant is the unit.
    unit: str = ""
    # The part of the run that is complete as a whole, such as a session. Empty: the unit.
    part: str = ""


class ExposureRow(Row, table="exposure"):
    """One kind of text in the prompt of one decision of one participant."""

    participant_id: str
    condition: str
    decision: str = column("what was decided")
    address: str
    unit: str = column(
        "the unit of analysis: the group, session or hall of the participant, or the participant"
    )
    kind: str = column(
        "kind of text; “words from elsewhere”: text of a conversation in which the participant had "
        "no part; “words under another's name”: text that the prompt attributes to a speaker who "
        "did not say it; “no question”: the run asked nothing at this address, so there was no "
        "prompt; empty: the design names no kind, and the prompt contained no text that counts"
    )
    expected: bool | None = column(
        "whether the design shows this kind in this prompt; empty if it leaves this open"
    )
    texts: int = column("number of texts of this kind in the prompt")
    text_ids: list[str] = column("their ids")
    share: float | None = column(
        "share of the expected texts that the prompt contained; 1 for a kind that the prompt "
        "contained although the design does not show it; empty if the kind is neither expected nor "
        "contained"
    )


Decisions = Callable[[RunFolder], Iterable[Decision]]
Label = Callable[[Source], str]


@dataclass(frozen=True, slots=True)
class ExposureTable:
    """The maker of the table `exposure`, which says which texts each prompt contained.

    Study types list an instance of this class in `Study.derived_tables`.
    """

    decisions: Decisions
    # Returns the name of a text in the table, or "" for a text that does not count (such as an
    # option that every participant sees).
    label: Label
    # The name for the participant's own utterances and answers. If empty, `label` also names these
    # texts.
    own: str = OWN_WORDS

    def __call__(self, run: RunFolder, _journal: JournalReader) -> Iterator[ExposureRow]:
        # Before the first answer, no decision has been made.
        if not run.has_table("answers"):
            return
        decisions = _decisions_of_complete_parts(self.decisions, run)
        # Join in parts, because a run may have a hundred thousand decisions.
        while part := list(islice(decisions, DECISIONS_AT_ONCE)):
            recorded = _read_recorded(run, [decision.address for decision in part])
            for decision in part:
                if decision.address in recorded.asked:
                    yield from _exposure_rows(decision, recorded, self)
                else:
                    # A share of 0 of the expected texts would count in means.
                    yield _exposure_row(decision, NOT_ASKED, (), None, None)


def _decisions_of_complete_parts(decisions: Decisions, run: RunFolder) -> Iterator[Decision]:
    if not isinstance(run, PartialRun):
        yield from check_members(decisions(run), Decision, "decisions", decisions)
        return
    # The rows of a part are recorded when the part ends. Before that, the tables do not say what
    # the design shows, and texts of the part would count as words from elsewhere. Decisions are
    # made from all rows, because some tables do not name the part.
    incomplete = frozenset(run.parts.planned).difference(run.parts.complete)
    for decision in check_members(decisions(run.whole), Decision, "decisions", decisions):
        if (decision.part or decision.unit or decision.participant_id) not in incomplete:
            yield decision


class _Recorded(NamedTuple):
    # What a run recorded about its requests: the speakers, and the sources of the texts.

    # The distinct sources of the texts in a request, by address of the request.
    sources: Mapping[str, Collection[Source]]
    # The speaker of an utterance, by id of the utterance.
    speakers: Mapping[str, str]
    # The writer of an utterance, if it was written in another speaker's name.
    written_by_others: Mapping[str, str]
    # The speaker who was asked, by address of the request.
    asked: Mapping[str, str]


def _read_recorded(run: RunFolder, addresses: Collection[str]) -> _Recorded:
    sources = _sources_at(run, addresses)
    ids = {source.id for found in sources.values() for source in found if _is_said(source)}
    utterances = list(_rows_where(run, UTTERANCES, "utterance_id", ids, "address", "speaker_id"))
    # Besides the decisions, look up who was asked at the address of each utterance: one reply may
    # hold utterances of several speakers.
    request_addresses = {*addresses, *(address for _, address, _ in utterances)}
    asked = dict(_rows_where(run, "answers", "address", request_addresses, "speaker_id"))
    return _Recorded(
        sources,
        {id: speaker for id, _, speaker in utterances},
        _written_by_others(utterances, asked),
        asked,
    )


def _sources_at(run: RunFolder, addresses: Collection[str]) -> dict[str, Collection[Source]]:
    sources_by_address: dict[str, dict[Source, None]] = {}
    distinct_sources: dict[tuple[str, ...], Source] = {}
    columns = ("kind", "source_id", "speaker")
    for address, *source in _rows_where(run, PROVENANCE, "address", addresses, *columns):
        # Share equal sources: a long transcript occurs in the requests of many decisions.
        shared_source = distinct_sources.setdefault(tuple(source), Source(*source))
        sources_by_address.setdefault(address, {})[shared_source] = None
    return {address: sources.keys() for address, sources in sources_by_address.items()}


def _rows_where(
    run: RunFolder, table: str, key: str, values: Collection[str], *columns: str
) -> Iterator[tuple[Any, ...]]:
    if not run.has_table(table):
        return iter(())
    rows = run.scan_table(table).filter(is_one_of(key, values))
    return rows.select(key, *columns).collect().iter_rows()


def _written_by_others(
    utterances: Iterable[tuple[str, str, str]], asked: Mapping[str, str]
) -> dict[str, str]:
    # By utterance id. For example, a mediator may write the utterances of all members in one reply.
    # Such an utterance counts as the member's own if the mediator also answers the decision for the
    # member.
    return {
        id: asked[address]
        for id, address, speaker in utterances
        if asked.get(address, speaker) != speaker
    }


def find_writers(run: RunFolder, utterance_ids: Collection[str]) -> dict[str, str]:
    """Return the writer of each utterance that was written in another speaker's name.

    The keys are utterance ids.
    """
    # For example, a mediator may write the utterances of all members in one reply.
    utterances = list(
        _rows_where(run, UTTERANCES, "utterance_id", utterance_ids, "address", "speaker_id")
    )
    addresses = {address for _, address, _ in utterances}
    asked = dict(_rows_where(run, "answers", "address", addresses, "speaker_id"))
    return _written_by_others(utterances, asked)


def _is_said(source: Source) -> bool:
    return source.kind in ("utterance", "answer")


def _exposure_rows(
    decision: Decision, recorded: _Recorded, design: ExposureTable
) -> Iterator[ExposureRow]:
    by_kind: dict[str, dict[str, None]] = {kind: {} for kind in decision.expected_kinds}
    asked = recorded.asked.get(decision.address)
    for source in recorded.sources.get(decision.address, ()):
        own = source.speaker == decision.participant_id and _is_said(source)
        # A moderator model may have written the line in the participant's name. The line is the
        # participant's own only if the same model also answers this decision.
        own = own and recorded.written_by_others.get(source.id, asked) == asked
        if kind := _kind_of(decision, source, (own and design.own) or design.label(source)):
            by_kind.setdefault(kind, {})[source.id] = None
        speaker = recorded.speakers.get(source.id, source.speaker)
        if source.kind == "utterance" and speaker != source.speaker:
            by_kind.setdefault(MISATTRIBUTED_WORDS, {})[source.id] = None
    # Each decision has a row, because controls and shares of decisions read them from this table.
    for kind, source_ids in (by_kind or {NO_KIND: {}}).items():
        expected_ids = decision.expected_kinds.get(kind)
        missing = set(expected_ids or ()) - source_ids.keys()
        # These two kinds are an error at every decision, so no design needs to exclude them.
        is_forbidden = kind in (FOREIGN_WORDS, MISATTRIBUTED_WORDS)
        # Empty means that the design says nothing about this kind, which differs from "not
        # expected".
        expected = False if is_forbidden else None if expected_ids is None else bool(expected_ids)
        share = (
            1 - len(missing) / len(expected_ids) if expected_ids else 1.0 if source_ids else None
        )
        yield _exposure_row(decision, kind, source_ids, expected, share)


def _exposure_row(
    decision: Decision,
    kind: str,
    source_ids: Collection[str],
    expected: bool | None,
    share: float | None,
) -> ExposureRow:
    return ExposureRow(
        participant_id=decision.participant_id,
        condition=decision.condition,
        decision=decision.name,
        address=decision.address,
        unit=decision.unit or decision.participant_id,
        kind=kind,
        expected=expected,
        texts=len(source_ids),
        text_ids=list(source_ids),
        share=share,
    )


def _kind_of(decision: Decision, source: Source, kind: str) -> str:
    if not kind:
        return ""
    expected = any(source.id in ids for ids in decision.expected_kinds.values())
    # A text that the design lists under any label belongs to this decision.
    return kind if expected or _is_within(source.id, decision.within) else FOREIGN_WORDS


def _is_within(id: str, within: Collection[str]) -> bool:
    return id in within or any(part.endswith("/") and id.startswith(part) for part in within)


# --- what the table says -------------------------------------------------------------------------


class _ExposureCell(NamedTuple):
    # Counts for one kind of text at one decision of one condition, over all participants.
    condition: str
    decision: str
    kind: str
    # Prompts that contained the kind.
    shown_count: int
    # Prompts that should contain the kind.
    expected: int
    # Prompts without an expected kind.
    missing: int
    # Prompts with a kind that is not expected.
    unexpected_count: int
    # Prompts with only some of the expected texts.
    partial_count: int
    # The lowest share of expected texts in such a partial prompt.
    smallest_share: float | None
    decisions: int

    @property
    def share_text(self) -> str:
        share = format_percent(self.shown_count / self.decisions)
        if self.missing or self.unexpected_count:
            return f"{share} (design: {format_percent(self.expected / self.decisions)})"
        return f"{share} (incomplete)" if self.partial_count else share

    @property
    def deviation_sentences(self) -> Iterator[str]:
        what = f"{self.condition}, {self.decision}: {self.kind}"
        prompts = format_count(self.decisions, "prompt")
        if self.missing:
            yield f"{what}: required by the design, missing from {self.missing:,} of {prompts}."
        if self.partial_count:
            # A share above 99.5 % would be rounded to 100 %, and a partial text would seem
            # complete.
            least = format_percent(min(self.smallest_share or 0, 0.99))
            yield (
                f"{what}: required by the design in full, incomplete in {self.partial_count:,} of "
                f"{prompts} (the least complete prompt has {least} of the texts)."
            )
        if self.unexpected_count:
            count = self.unexpected_count
            yield f"{what}: excluded by the design, present in {count:,} of {prompts}."


def describe_deviations(run: RunFolder) -> list[str]:
    """Return a sentence for each way in which prompts deviate from the design.

    The list is empty if all prompts agree with the design or no exposure was recorded.
    """
    sentences = [sentence for cell in _exposure_cells(run) for sentence in cell.deviation_sentences]
    return [*sentences, *_describe_not_asked(run)]


def _describe_not_asked(run: RunFolder) -> Iterator[str]:
    if not run.has_table(ExposureRow.table):
        return
    table = run.scan_table(ExposureRow.table)
    counts = table.group_by("condition", "decision", maintain_order=True).agg(
        not_asked=pl.col("address").filter(pl.col("kind") == NOT_ASKED).n_unique(),
        first=pl.col("address").filter(pl.col("kind") == NOT_ASKED).first(),
        decisions=pl.col("address").n_unique(),
    )
    for row in counts.filter(pl.col("not_asked") > 0).collect().iter_rows(named=True):
        yield (
            f"{row['condition']}, {row['decision']}: the run asked no question at "
            f"{row['not_asked']:,} of {format_count(row['decisions'], 'address', 'addresses')} of "
            f"the design, such as {row['first']}."
        )


def exposure_finding(
    run: RunFolder, label: Callable[[str], str] = column_heading
) -> Finding | None:
    """Return the finding on which kinds of text the prompts of each condition contained.

    `label`: returns the name under which the chart shows a condition.
    Returns None if the run lacks the table `exposure`, or if the run recorded no decisions.
    """
    # A cell is the share of decisions with a text of this kind in the prompt.
    if not run.has_table(ExposureRow.table):
        return None
    title = "What the prompts contained"
    cells = _exposure_cells(run)
    alarms = tuple(describe_deviations(run))
    if not cells and not alarms:
        return None
    kinds = list(dict.fromkeys(exposure_cell.kind for exposure_cell in cells))
    row_keys = list(
        dict.fromkeys((exposure_cell.condition, exposure_cell.decision) for exposure_cell in cells)
    )
    cells_by_key = {
        (exposure_cell.condition, exposure_cell.decision, exposure_cell.kind): exposure_cell
        for exposure_cell in cells
    }
    return Finding(
        "exposure",
        title,
        word("description", "texts do not agree" if alarms else "texts agree"),
        ResultTable(
            ("condition", "decision", *kinds),
            tuple(
                (
                    *row_key,
                    *(
                        cells_by_key[*row_key, kind].share_text
                        if (*row_key, kind) in cells_by_key
                        else None
                        for kind in kinds
                    ),
                )
                for row_key in row_keys
            ),
            "Share of decisions with a text of this kind in the prompt.",
        ),
        Heatmap(
            tuple(
                (
                    f"{label(exposure_cell.condition)}: {column_heading(exposure_cell.decision)}",
                    exposure_cell.kind,
                    exposure_cell.shown_count / exposure_cell.decisions,
                )
                for exposure_cell in cells
            ),
            row="condition and decision",
            column="kind of text",
            unit="share of decisions",
        ),
        section="Exposure",
        headline=bool(alarms),
        alarms=alarms,
    )


def _exposure_cells(run: RunFolder) -> list[_ExposureCell]:
    if not run.has_table(ExposureRow.table):
        return []
    shown, expected = pl.col("texts") > 0, pl.col("expected")
    partial = expected & shown & (pl.col("share") < 1)
    table = run.scan_table(ExposureRow.table).filter(pl.col("kind") != NOT_ASKED)
    # Count decisions before grouping by kind: a decision without a text of some kind may have no
    # row for it.
    decision_counts = table.group_by("condition", "decision").agg(
        decisions=pl.struct("participant_id", "address").n_unique()
    )
    kinds = table.filter(pl.col("kind") != NO_KIND)
    counted = kinds.group_by("condition", "decision", "kind", maintain_order=True).agg(
        shown_count=shown.sum(),
        expected=expected.sum(),
        missing=(expected & ~shown).sum(),
        unexpected_count=(~expected & shown).sum(),
        partial_count=partial.sum(),
        smallest_share=pl.col("share").filter(partial).min(),
    )
    # Keep the order of the table: conditions and kinds appear as the study declares them.
    joined = counted.join(decision_counts, on=["condition", "decision"], maintain_order="left")
    return [_ExposureCell(**row) for row in joined.collect().iter_rows(named=True)]
