"""Copy a journal entry by entry: when a person withdraws, and to repair damage.

Used by `withdrawal.py` and `repair.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from folkmoot.engine.journal.journal import JournalReader
from folkmoot.engine.journal.journal_file import (
    Entry,
    chain_in,
    commit,
    into_one_file,
    open_file,
    supersede,
    write_batch,
    write_broken,
)
from folkmoot.engine.journal.journal_loans import write_loan

ENTRIES_AT_ONCE = 1000


def copy_journal(
    journal: JournalReader, change: Callable[[Entry], Entry], *, skip_damaged: bool = False
) -> Path:
    """Write all that a journal holds into a new file beside it, each entry as `change` gives it.

    Returns the path of the new file. Superseded entries come first. Raises ForeignJournal at a
    damaged entry, unless these are skipped.
    """

    def read(table: str) -> Iterable[tuple[Entry, float]]:
        if skip_damaged:
            return ((entry, at) for _, entry, at in journal.intact_entries(table))
        return journal.everything(table)

    new = journal.path.with_name(f".{journal.path.name}.new")
    discard_copy(new)
    with closing(open_file(new)) as db:
        chain, stored = chain_in(db), set[bytes]()
        for entry, at in read("superseded"):
            chain = commit(db, [change(entry)], stored, chain)
            with db:
                chain = supersede(db, entry.address, at, chain)
        group: list[Entry] = []
        for entry, _ in read("entries"):
            group.append(change(entry))
            if len(group) == ENTRIES_AT_ONCE:
                chain, group = commit(db, group, stored, chain), []
        commit(db, group, stored, chain)
        with db:
            for batch in journal.batches().values():
                write_batch(db, batch, journal.keys_of(batch.name))
            for broken in journal.broken():
                write_broken(db, broken)
            for loan in journal.loans():
                write_loan(db, loan)
        into_one_file(db)
    return new


def replace_journal(path: Path, new: Path) -> None:
    """Put a new journal in the place of an old one."""
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    new.replace(path)
    discard_copy(new)


def discard_copy(new: Path) -> None:
    """Remove a new journal that is not needed, with what SQLite left beside it."""
    for left in new.parent.glob(f"{new.name}*"):
        left.unlink()
