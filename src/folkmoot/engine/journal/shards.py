"""Journal shards: what a worker of a cluster was answered, on its disk until the run's one journal
has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from folkmoot.engine.journal.journal import Journal, JournalEntry
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import DriftError, RunLockedError

SHARD_FOLDER = ".shards"
SHARD_PATTERN = "*.sqlite"
WORKER_EXIT_TIMEOUT_SECONDS = 20.0  # for workers to be gone whose head is


class ShardDriftError(DriftError):
    """A worker was told of an entry that was made from another request; the head, who has the
    journal, says in what they differ."""

    def __init__(self, address: str, request: Mapping[str, object]) -> None:
        super().__init__(address, request)
        self.address = address
        self.request = request


class JournalShard(Journal):
    """The journal of a worker: it looks up what it was told of, and remembers what the head has not
    got yet. In order, as the journal itself: the head never has an entry without those before."""

    def __init__(self, path: Path, *, accept_changes: bool) -> None:
        super().__init__(path)
        self._accept = accept_changes
        self._unsent: list[tuple[JournalEntry, float | None]] = []
        self.known: dict[str, JournalEntry] = {}
        self.used: list[str] = []  # addresses of what was known and asked for again
        self.superseding: list[str] = []  # addresses that are asked again under --accept-changes

    def lookup_entry(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> JournalEntry | None:
        """The entry that the head told of; see `Journal.lookup_entry`."""
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
        super().append(entry)  # the loan is in the journal of the head
        self._unsent.append((entry, covered_usd))

    @property
    def unsent_count(self) -> int:
        """How many entries the head has not got."""
        return len(self._unsent)

    async def take_unsent(self) -> list[tuple[JournalEntry, float | None]]:
        """What the head has not got, once it is on the disk here, and what covered it (USD)."""
        count = len(self._unsent)
        if count:
            await self.flush()
        sent, self._unsent[:count] = self._unsent[:count], []
        return sent


def lock_shard(shard: Path, seconds: float = 0.0) -> FileLock | None:
    """Hold a shard until this process ends or lets go; None where another process holds it."""
    lock = FileLock(shard.with_name(f"{shard.name}.lock"))
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return None
    return lock


def entries_after_row(path: Path, row: int) -> list[JournalEntry]:
    """The entries of the shard of a worker that is gone, but for so many that were sent."""
    if not path.exists():
        return []
    with Journal(path) as opened:  # the process that wrote it may have been killed
        return list(opened.entries_after_row(row))


def delete_shard(path: Path) -> None:
    """Remove a shard."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)


def list_shards(folder: Path) -> list[Path]:
    """The shards that workers left, in order of name."""
    return sorted(folder.glob(SHARD_PATTERN))


def merge_entries(journal: Journal, entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Put what the journal does not have of what an earlier process was answered; gives that back,
    in order."""
    put: dict[str, JournalEntry] = {}
    for entry in entries:
        if entry.address not in put and journal.entry_at(entry.address, expand_texts=False) is None:
            put[entry.address] = entry
            journal.append(entry)
    journal.note_found(put.values())
    return list(put.values())


def merge_shards(folder: Path, path: Path) -> None:
    """What workers of an earlier process of the run left in its folder, into its journal. Raises
    RunLocked where one of them is still at work."""
    left = list_shards(folder / SHARD_FOLDER)
    if not left:
        return
    locks = [lock_shard(shard, WORKER_EXIT_TIMEOUT_SECONDS) for shard in left]
    if None in locks:
        raise RunLockedError(f"{folder}: a worker of this run is still at work; wait for it")
    with Journal(path) as journal:
        merge_entries(
            journal,
            (journal_entry for shard in left for journal_entry in entries_after_row(shard, 0)),
        )
    for shard, lock in zip(left, locks, strict=True):
        if lock is not None:
            lock.release()
        delete_shard(shard)
    (folder / SHARD_FOLDER).rmdir()


def entries_in_scopes(journal: JournalReader, scopes: Sequence[str]) -> dict[str, JournalEntry]:
    """What is committed of these scopes, by address and without its requests."""
    return {entry.address: entry for scope in scopes for entry in journal.entries_in_scope(scope)}
