"""Copy a journal entry by entry, for withdrawals of a human's data and for repairs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from folkmoot.engine.journal.journal_file import (
    JournalEntry,
    checkpoint_wal,
    commit_group,
    open_for_writing,
    read_chain,
    supersede_entry,
    write_batch,
    write_broken,
)
from folkmoot.engine.journal.journal_loans import REMOVED, OutstandingLoan, write_loan
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.limits.budget import Amount

# Entries per transaction: enough to make disk syncs rare, few enough for memory.
ENTRIES_AT_ONCE = 1000


def copy_journal(
    journal: JournalReader,
    change: Callable[[JournalEntry], JournalEntry],
    *,
    skip_damaged: bool = False,
    undamaged_use: Amount | None = None,
) -> Path:
    """Copy a journal into a new file beside it, and return the path of the new file.

    - `change`: receives each entry and returns the entry to write.
    - `skip_damaged`: leave damaged entries out. Their calls are kept without texts in the table
      `superseded`, because they were paid for.
    - `undamaged_use`: the calls in the journal before the damage, with their cost, if it is known.

    Raises ForeignJournalError at a damaged entry, unless `skip_damaged` is true.
    """

    def read_table_entries(table: str) -> Iterable[tuple[JournalEntry, float]]:
        if skip_damaged:
            return ((entry, at) for _, entry, at in journal.intact_entries(table))
        return journal.all_rows(table)

    damaged_calls, lost_count = journal.damaged_calls() if skip_damaged else ([], 0)
    new = journal.path.with_name(f".{journal.path.name}.new")
    discard_copy(new)
    with closing(open_for_writing(new)) as db:
        chain, stored = read_chain(db), set[bytes]()
        for call in damaged_calls:
            chain = commit_group(db, [call], stored, chain)
            with db:
                chain = supersede_entry(db, call.address, time.time(), chain)
        # Write superseded entries first: a superseded entry has the address of its replacement, and
        # addresses are unique.
        for entry, at in read_table_entries("superseded"):
            chain = commit_group(db, [change(entry)], stored, chain)
            with db:
                chain = supersede_entry(db, entry.address, at, chain)
        group: list[JournalEntry] = []
        for entry, _ in read_table_entries("entries"):
            group.append(change(entry))
            if len(group) == ENTRIES_AT_ONCE:
                chain, group = commit_group(db, group, stored, chain), []
        commit_group(db, group, stored, chain)
        with db:
            for batch in journal.read_batches().values():
                write_batch(db, batch, journal.keys_of(batch.name))
            for broken in journal.read_broken_replies():
                write_broken(db, broken)
            for loan in journal.read_outstanding_loans():
                write_loan(db, loan)
            # Nothing is known about the other entries, so all of them may be paid calls.
            if lost_count:
                max_usd = _max_lost_usd(journal, damaged_calls, lost_count, undamaged_use)
                write_loan(db, OutstandingLoan(time.time(), REMOVED, lost_count, max_usd))
        checkpoint_wal(db)
    return new


def _max_lost_usd(
    journal: JournalReader,
    damaged_calls: Sequence[JournalEntry],
    lost_count: int,
    undamaged_use: Amount | None,
) -> float | None:
    # Returns the maximum cost of the entries that cannot be read, or None if it is not known. It is
    # the rest of the cost before the damage if all lost entries, and no others, are missing there.
    if undamaged_use is None:
        return None
    costs = [call.cost_usd for call in damaged_calls]
    for table in ("entries", "superseded"):
        entries = (entry for _, entry, _ in journal.intact_entries(table))
        costs += [entry.cost_usd for entry in entries if entry.kind != "compute"]
    known_costs = [cost for cost in costs if cost is not None]
    if len(known_costs) < len(costs) or len(costs) + lost_count != undamaged_use.calls:
        return None
    return max(0.0, undamaged_use.usd - math.fsum(known_costs))


def replace_journal(path: Path, new: Path) -> None:
    """Replace the journal at `path` by the journal at `new`."""
    # Delete the old write-ahead log first: SQLite would apply it to the new file.
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    new.replace(path)
    discard_copy(new)


def discard_copy(new: Path) -> None:
    """Delete a copy of a journal and the files that SQLite left beside it."""
    for file in new.parent.glob(f"{new.name}*"):
        file.unlink()
