"""Compare a fork with the run that it repeats, from the changed reply on.

`compare` shows this if both runs are among its sources. The table `provenance` records the source
of each text, so it shows which later prompts contained the changed words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.fork import fork_change
from folkmoot.engine.run.fork_repeats import pairs_of
from folkmoot.engine.run.grid import GridCell, RunGrid
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.hints import shorten
from folkmoot.kit.findings import Row, known
from folkmoot.measures.inference.clustered import clustered_mean
from folkmoot.measures.inference.estimates import format_count
from folkmoot.report.comparison.figures import Figure
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.run_folder import JOURNAL, RunFolder

NOT_AS_BEFORE = "closed answers other than in the run"
SECTION = "What follows from one reply"
# Most rows of the two transcripts side by side.
MAX_ROWS = 60
# Longest shown part of one reply.
MAX_CHARACTERS = 300


class _Reply(NamedTuple):
    """The reply of a run at an address: the speaker, the answer or utterance, and the raw text."""

    speaker: str
    text: str
    raw: str


def forks_among(runs: Sequence[RunFolder]) -> Iterator[Finding]:
    """Yield one finding for each run that is a fork of another of these runs."""
    digests = {run.manifest.get("journal_digest"): run for run in runs if run.is_finished}
    for fork in runs:
        change = fork_change(fork)
        base = digests.get(change.journal_digest) if change is not None else None
        if change is not None and base is not None:
            yield compare_talks(base, fork, change)


def compare_talks(base: RunFolder, fork: RunFolder, change: ReplyChange) -> Finding:
    """Return the finding that shows both transcripts side by side.

    It holds the changed reply, and each later reply that differs or that had the changed words in
    its prompt.
    """
    with JournalReader(base.path / JOURNAL) as one, JournalReader(fork.path / JOURNAL) as other:
        order = _addresses_in_order(fork, base)
        before = _replies(base, one, order)
        after = _replies(fork, other, order)
        asked = len(other.calls(taken_over=False))
        taken_over = len(other.calls(taken_over=True))
    words = _changed_utterances(base, fork, change.address)
    held_before, held_after = (_prompts_with(run, words) for run in (base, fork))
    rows: list[Row] = []
    for address in order:
        first, second = before.get(address), after.get(address)
        is_same = first is not None and second is not None and first.raw == second.raw
        if is_same and address not in held_before and address not in held_after:
            continue
        speaker = second or first
        rows.append(
            {
                "speaker": speaker.speaker if speaker is not None else "",
                base.id: _in_words(first),
                fork.id: "as before" if is_same else _in_words(second),
                "changed words in the prompt": "yes" if address in held_after else "no",
                "address": address,
            }
        )
    held = f"The changed words stood in {format_count(len(held_after), 'later prompt')}"
    if change.dropped:
        held = (
            "The words that were left out stood in "
            f"{format_count(len(held_before), 'later prompt')}"
        )
    notes = [] if len(rows) <= MAX_ROWS else [f"{len(rows) - MAX_ROWS:,} further rows left out."]
    if not change.draw:
        notes.append(
            "One fork shows what followed once. Models that draw their words would also differ "
            "without a change: `folkmoot fork --repeats` tells both apart."
        )
    return Finding(
        "fork",
        "Where the talks part",
        f"{_tell_change(change, before, after)} {format_count(asked, 'call')} followed from it and "
        f"{'was' if asked == 1 else 'were'} asked; {taken_over:,} are those of {base.id}. {held}.",
        ResultTable.from_records(
            rows[:MAX_ROWS],
            "The changed reply and every later one that differs, or that had the changed words in "
            "its prompt, in the order of the study.",
        ),
        notes=tuple(notes),
        section=SECTION,
    )


def _tell_change(
    change: ReplyChange, before: Mapping[str, _Reply], after: Mapping[str, _Reply]
) -> str:
    was, now = before.get(change.address), after.get(change.address)
    who = was.speaker if was is not None else "the speaker"
    first, second = _in_words(was), _in_words(now)
    if change.dropped:
        return f"{who} said “{first}”; in the fork this reply is left out."
    by = f" (by {change.model})" if change.model is not None else ""
    return f"{who} said “{first}”; in the fork “{second}”{by}."


def _in_words(reply: _Reply | None) -> str:
    return "not asked" if reply is None else shorten(reply.text or "nothing", MAX_CHARACTERS)


def _addresses_in_order(fork: RunFolder, base: RunFolder) -> list[str]:
    """Return the addresses of the questions of both runs in the order of the protocol.

    Questions of the fork come first if the base run does not have them.
    """
    asked = [
        run.scan_table("answers").select("address").collect()["address"] for run in (fork, base)
    ]
    return list(dict.fromkeys(address for column in asked for address in column))


def _replies(run: RunFolder, journal: JournalReader, addresses: Sequence[str]) -> dict[str, _Reply]:
    """Map each address to the reply of the run: its utterances, recorded answer, or raw text."""
    columns = ("address", "speaker_id", "recorded", "missing")
    answers = {
        arm: rest for arm, *rest in run.scan_table("answers").select(columns).collect().iter_rows()
    }
    said = _utterances(run)
    found: dict[str, _Reply] = {}
    for address in addresses:
        if (
            address not in answers
            or (entry := journal.entry_at(address, expand_texts=False)) is None
        ):
            continue
        speaker, recorded, missing = answers[address]
        told = " / ".join(said.get(address, {}).values())
        told = told or recorded or (f"(no answer: {missing})" if missing else entry.reply)
        found[address] = _Reply(speaker or "", told, entry.reply)
    return found


def _utterances(run: RunFolder) -> dict[str, dict[str, str]]:
    """Map each address to the utterances of the reply there: id → text."""
    found: dict[str, dict[str, str]] = {}
    if run.has_table(UTTERANCES):
        rows = run.scan_table(UTTERANCES).select("address", "utterance_id", "text").collect()
        for address, name, text in rows.iter_rows():
            if address and text:
                found.setdefault(address, {})[name] = text
    return found


def _changed_utterances(base: RunFolder, fork: RunFolder, address: str) -> list[str]:
    """Return the source ids of the changed words: changed utterances, or the reply if it has
    none."""
    was, now = (_utterances(run).get(address, {}) for run in (base, fork))
    changed = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return [address, *changed] if not was and not now else changed


def _prompts_with(run: RunFolder, sources: Sequence[str]) -> set[str]:
    """Return the addresses of questions with a text of these sources in the prompt."""
    if not run.has_table(PROVENANCE):
        return set()
    spans = run.scan_table(PROVENANCE).filter(pl.col("source_id").is_in(list(sources)))
    return set(spans.select("address").collect()["address"])


# --- repeated forks ------------------------------------------------------------------------------


def effect_of_reply(grid: RunGrid, figures: Sequence[Figure]) -> Finding | None:
    """Return the effect of the changed reply: each figure with and without the change, paired by
    repeat."""
    pairs = list(pairs_of(grid))
    cells = [(by, _values(grid, figures, pair)) for by, pair in enumerate(pairs, 1)]
    labels = dict.fromkeys(label for _, values in cells for label in values)
    rows: list[Row] = []
    lines = []
    for label in labels:
        both = [(by, values[label]) for by, values in cells if label in values]
        gap = clustered_mean([a - b for _, (a, b) in both], [by for by, _ in both])
        rows.append(
            {
                "figure": label,
                "changed": sum(a for _, (a, _) in both) / len(both),
                "as it was": sum(b for _, (_, b) in both) / len(both),
                "difference": gap.value,
                "low": known(gap.low),
                "high": known(gap.high),
                "repeats": len(both),
            }
        )
        if gap.has_interval:
            lines.append((label, gap.value, gap.low, gap.high))
    if not rows:
        return None
    clear = [label for label, _, low, high in lines if low > 0 or high < 0]
    return Finding(
        "fork_effect",
        "What the changed reply does",
        f"{format_count(len(clear), 'figure')} of {len(rows)} "
        f"{'has' if len(clear) == 1 else 'have'} an "
        "interval without zero."
        if lines
        else f"{format_count(len(rows), 'figure')}, without intervals.",
        ResultTable.from_records(
            rows,
            "Means over repeats; in each repeat both forks have fresh draws of the models, and the "
            "difference is taken within it. 95 % t intervals over repeats, not adjusted for the "
            "number of figures.",
        ),
        IntervalChart(tuple(lines), "changed minus as it was", 0.0) if lines else None,
        notes=(
            "The estimate is of this reply in this run: other participants, or another moment of "
            "the talk, are other runs.",
        ),
        section=SECTION,
        headline=True,
        unit="repeat",
        units=len(pairs),
    )


def _values(
    grid: RunGrid, figures: Sequence[Figure], pair: tuple[GridCell, GridCell]
) -> dict[str, tuple[float, float]]:
    """Map each figure to its values with the changed reply and unchanged, in one repeat."""
    found: dict[str, tuple[float, float]] = {}
    shares = [_share_not_as_before(grid.run(cell)) for cell in pair]
    if shares[0] is not None and shares[1] is not None:
        found[NOT_AS_BEFORE] = shares[0], shares[1]
    for figure in figures:
        values = {
            measured_figure.cell.name: measured_figure.value for measured_figure in figure.cells
        }
        if all(cell.name in values for cell in pair):
            first, second = (values[cell.name] for cell in pair)
            found[f"{figure.title}: {figure.label}"] = first, second
    return found


def _share_not_as_before(fork: RunFolder | None) -> float | None:
    """Return the share of closed answers of the run that differ or are missing in a fork of it."""
    change = fork_change(fork) if fork is not None and fork.is_finished else None
    if fork is None or change is None:
        return None
    columns = ("address", "recorded")
    base = dict(RunFolder(fork.path / change.run).rows("answers", *columns))
    own = dict(fork.rows("answers", *columns))
    # The changed reply itself differs by design, so it does not count.
    closed = [arm for arm, recorded in base.items() if recorded and arm != change.address]
    return sum(own.get(arm) != base[arm] for arm in closed) / len(closed) if closed else None
