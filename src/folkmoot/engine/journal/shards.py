"""Files in which cluster workers save journal entries until the main process has received them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from folkmoot.engine.journal.journal import Journal, JournalEntry
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import DriftError, RunLockedError

SHARD_FOLDER = ".shards"
SHARD_PATTERN = "*.sqlite"
# Workers that lost their head need this long to notice it and to end.
WORKER_EXIT_TIMEOUT_SECONDS = 20.0


class ShardDriftError(DriftError):
    """Raised if a worker's request differs from the journaled request at the same address."""

    # The worker knows only the hash of the journaled request. The main process has the journal and
    # reports the difference.
    def __init__(self, address: str, request: Mapping[str, object]) -> None:
        super().__init__(address, request)
        self.address = address
        self.request = request


class JournalShard(Journal):
    """The journal of a cluster worker."""

    # New entries are kept until the main process has received them. Entries of the run's journal
    # are found only if the main process has sent them.
    def __init__(self, path: Path, *, accept_changes: bool) -> None:
        super().__init__(path)
        self._accept = accept_changes
        self._unsent: list[tuple[JournalEntry, float | None]] = []
        self.known: dict[str, JournalEntry] = {}
        # Addresses of entries from the head that were replayed. The head counts them as replayed
        # calls.
        self.used: list[str] = []
        # Addresses that are asked again under --accept-changes. The head moves their entries.
        self.superseding: list[str] = []

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """Return the entry that the main process sent for an address, or None.

        Raises ShardDriftError if the entry holds a request that differs from `request`.
        """
        entry = self.known.get(address)
        if entry is None or entry.fingerprint == fingerprint:
            if entry is not None:
                self.used.append(address)
            return entry
        if not self._accept:
            raise ShardDriftError(address, dict(request()))
        self.superseding.append(address)
        return None

    def append(self, entry: JournalEntry, covered_usd: float | None = None) -> None:
        # The head settles the loan, since its journal holds it.
        super().append(entry)
        self._unsent.append((entry, covered_usd))

    @property
    def unsent_count(self) -> int:
        """The number of entries that the main process has not received."""
        return len(self._unsent)

    async def take_unsent(self) -> list[tuple[JournalEntry, float | None]]:
        """Return the entries that the main process has not received, each with a cost limit in USD.

        The limit is the maximum cost that was recorded before the call, or None.
        """
        # The entries are on the worker's disk before they are returned. So a crash loses no entry
        # that the main process has.
        count = len(self._unsent)
        if count:
            await self.flush()
        # Take only those that were flushed: more may have been appended during the wait.
        sent, self._unsent[:count] = self._unsent[:count], []
        return sent


def lock_shard(shard: Path, seconds: float = 0.0) -> FileLock | None:
    """Lock a worker's file of entries, and return the lock.

    `seconds`: how long to wait for the lock.

    Returns None if another process has the lock.
    """
    # The operating system releases the lock when this process ends.
    lock = FileLock(shard.with_name(f"{shard.name}.lock"))
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return None
    return lock


def entries_after_row(path: Path, row: int) -> list[JournalEntry]:
    """Return the calls that a lost worker saved but had not sent.

    `row`: the last row that the main process has received.
    """
    if not path.exists():
        return []
    # Open it for writing, which recovers the write-ahead log of a killed worker.
    with Journal(path) as journal:
        return list(journal.entries_after_row(row))


def delete_shard(path: Path) -> None:
    """Delete a worker's file of entries with its lock and write-ahead log."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)


def list_shards(folder: Path) -> list[Path]:
    """Return the files in `folder` in which workers left journal entries, sorted by file name."""
    return sorted(folder.glob(SHARD_PATTERN))


def merge_entries(journal: Journal, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Append the entries that the journal lacks, and return the appended entries in order."""
    merged: dict[str, JournalEntry] = {}
    for entry in entries:
        if (
            entry.address not in merged
            and journal.entry_at(entry.address, expand_texts=False) is None
        ):
            # Two lost workers may have answered the same question. The first reply is kept.
            merged[entry.address] = entry
            journal.append(entry)
    # The loans of these calls are settled now that their replies are known.
    journal.note_found(merged.values())
    return list(merged.values())


def merge_shards(folder: Path, path: Path) -> None:
    """Move leftover entries of cluster workers into the run's journal.

    Raises RunLockedError if a worker of an earlier process still runs.
    """
    shards = list_shards(folder / SHARD_FOLDER)
    if not shards:
        return
    # Take all locks first: a worker that still writes would lose entries.
    locks = [lock_shard(shard, WORKER_EXIT_TIMEOUT_SECONDS) for shard in shards]
    if None in locks:
        raise RunLockedError(f"{folder}: a worker of this run is still running; wait until it ends")
    with Journal(path) as journal:
        merge_entries(
            journal,
            (entry for shard in shards for entry in entries_after_row(shard, 0)),
        )
    # Delete a shard only after the journal is closed, which means that its entries are on disk.
    for shard, lock in zip(shards, locks, strict=True):
        if lock is not None:
            lock.release()
        delete_shard(shard)
    (folder / SHARD_FOLDER).rmdir()


def entries_in_scopes(journal: JournalReader, scopes: Sequence[str]) -> dict[str, JournalEntry]:
    """Return a map from address to entry, for all committed entries in `scopes`.

    The field `request` of each entry is empty.
    """
    return {entry.address: entry for scope in scopes for entry in journal.entries_in_scope(scope)}
