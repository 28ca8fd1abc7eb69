"""Journal shards: what a worker of a cluster was answered, on its disk until the run's one journal
has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from folkmoot.engine.journal.journal import Entry, Journal, JournalReader
from folkmoot.errors import DriftError, RunLocked

SHARDS = ".shards"
SHARD = "*.sqlite"
LAST_SECONDS = 20.0  # for workers to be gone whose head is


class Drifted(DriftError):
    """A worker was told of an entry that was made from another request; the head, who has the
    journal, says in what they differ."""

    def __init__(self, address: str, request: Mapping[str, object]) -> None:
        super().__init__(address, request)
        self.address = address
        self.request = request


class Shard(Journal):
    """The journal of a worker: it looks up what it was told of, and remembers what the head has not
    got yet. In order, as the journal itself: the head never has an entry without those before."""

    def __init__(self, path: Path, *, accept_changes: bool) -> None:
        super().__init__(path)
        self._accept = accept_changes
        self._unsent: list[tuple[Entry, float | None]] = []
        self.known: dict[str, Entry] = {}
        self.used: list[str] = []  # addresses of what was known and asked for again
        self.superseding: list[str] = []  # addresses that are asked again under --accept-changes

    def lookup(
        self, address: str, fingerprint: bytes, request: Callable[[], Mapping[str, object]]
    ) -> Entry | None:
        """The entry that the head told of; see `Journal.lookup`."""
        entry = self.known.get(address)
        if entry is None or entry.fingerprint == fingerprint:
            if entry is not None:
                self.used.append(address)
            return entry
        if not self._accept:
            raise Drifted(address, dict(request()))
        self.superseding.append(address)
        return None

    def put(self, entry: Entry, covered_usd: float | None = None) -> None:
        super().put(entry)  # the loan is in the journal of the head
        self._unsent.append((entry, covered_usd))

    @property
    def unsent(self) -> int:
        """How many entries the head has not got."""
        return len(self._unsent)

    async def to_send(self) -> list[tuple[Entry, float | None]]:
        """What the head has not got, once it is on the disk here, and what covered it (USD)."""
        count = len(self._unsent)
        if count:
            await self.committed()
        sent, self._unsent[:count] = self._unsent[:count], []
        return sent


def hold(shard: Path, seconds: float = 0.0) -> FileLock | None:
    """Hold a shard until this process ends or lets go; None where another process holds it."""
    lock = FileLock(shard.with_name(f"{shard.name}.lock"))
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return None
    return lock


def entries_after(path: Path, row: int) -> list[Entry]:
    """The entries of the shard of a worker that is gone, but for so many that were sent."""
    if not path.exists():
        return []
    with Journal(path) as opened:  # the process that wrote it may have been killed
        return list(opened.after(row))


def forget(path: Path) -> None:
    """Remove a shard."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)


def shards_in(folder: Path) -> list[Path]:
    """The shards that workers left, in order of name."""
    return sorted(folder.glob(SHARD))


def merge(journal: Journal, entries: Iterable[Entry]) -> list[Entry]:
    """Put what the journal does not have of what an earlier process was answered; gives that back,
    in order."""
    put: dict[str, Entry] = {}
    for entry in entries:
        if entry.address not in put and journal.at(entry.address, whole=False) is None:
            put[entry.address] = entry
            journal.put(entry)
    journal.note_found(put.values())
    return list(put.values())


def merge_shards(folder: Path, path: Path) -> None:
    """What workers of an earlier process of the run left in its folder, into its journal. Raises
    RunLocked where one of them is still at work."""
    left = shards_in(folder / SHARDS)
    if not left:
        return
    locks = [hold(shard, LAST_SECONDS) for shard in left]
    if None in locks:
        raise RunLocked(f"{folder}: a worker of this run is still at work; wait for it")
    with Journal(path) as journal:
        merge(journal, (e for shard in left for e in entries_after(shard, 0)))
    for shard, lock in zip(left, locks, strict=True):
        if lock is not None:
            lock.release()
        forget(shard)
    (folder / SHARDS).rmdir()


def known_in(journal: JournalReader, scopes: Sequence[str]) -> dict[str, Entry]:
    """What is committed of these scopes, by address and without its requests."""
    return {entry.address: entry for scope in scopes for entry in journal.within(scope)}
