"""The pool of personas in `data/personas.json`, which all runs share."""
# A run draws its personas from a pool of at least 1.5 × their number. So runs share the cost of
# enrichment, but two draws differ in about a third of their personas. A file that is not a pool
# raises an error and stays unchanged.

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.files import storage_errors, write_bytes
from folkmoot.people.persona import Persona, persona_key

DEFAULT_POOL = Path("data/personas.json")
# Another process needs the lock only for one write, so a longer wait indicates a problem.
LOCK_SECONDS = 60.0


def target_pool_size(count: int) -> int:
    """Return how many personas the pool should hold before `count` are drawn: 1.5 times `count`."""
    return math.ceil(1.5 * count)


def draw_personas(
    personas: Sequence[Persona], count: int, rng: np.random.Generator, *, source: Path | None = None
) -> list[Persona]:
    """Return `count` different personas, drawn at random.

    - `source`: the file of the personas, for the error message.

    Raises InputError if there are fewer than `count` personas.
    """
    # The error names the file `source`.
    if count > len(personas):
        hint = "add people, or lower the number of participants"
        problem = f"{count} personas are needed, {len(personas)} exist"
        raise InputError(Problem(problem, str(source or ""), key="personas", hint=hint))
    return [personas[int(index)] for index in rng.choice(len(personas), size=count, replace=False)]


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool of personas that is stored in the file `path`."""

    # Readers see only complete files. Writers use a lock file next to the pool.

    path: Path = DEFAULT_POOL

    def load_personas(self) -> list[Persona]:
        """Return all personas of the pool, oldest first.

        Returns an empty list if the file does not exist. Raises InputError if the file holds no
        pool.
        """
        try:
            raw = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except UnicodeDecodeError as error:
            raise self._corrupt_pool_error("it is not UTF-8 text") from error
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        return self._parse_personas(raw)

    def add_personas(self, personas: Iterable[Persona]) -> int:
        """Add those personas that the pool does not hold yet, and return how many were added."""
        # The file is read again under the lock, so two processes that add personas at the same time
        # both succeed.
        with self._locked_pool():
            present = self.load_personas()
            # Compare base lines, because each run assigns other ids.
            seen = {persona.key for persona in present}
            fresh: list[Persona] = []
            for persona in personas:
                if persona.key not in seen:
                    seen.add(persona.key)
                    fresh.append(persona)
            if fresh:
                people = _with_new_ids(present, fresh)
                # Only the owner may read the file, because personas may describe real people.
                write_bytes(self.path, _serialise_personas(people), mode=0o600)
        return len(fresh)

    def missing_count(self, count: int) -> int:
        """Return how many personas must be made before `count` personas can be drawn."""
        return max(0, target_pool_size(count) - len(self.load_personas()))

    def _parse_personas(self, raw: str) -> list[Persona]:
        try:
            data = json.loads(raw)
        except ValueError as error:
            raise self._corrupt_pool_error(f"it is not JSON ({error})") from error
        rows = data.get("personas") if isinstance(data, dict) else data
        if not isinstance(rows, list):
            raise self._corrupt_pool_error("no list `personas`")
        people = []
        for number, row in enumerate(rows, start=1):
            try:
                people.append(Persona.from_json(row))
            except (ValueError, AttributeError) as error:
                raise self._corrupt_pool_error(f"persona {number}: {error}") from error
        return people

    def _corrupt_pool_error(self, what: str) -> InputError:
        return InputError(
            Problem(
                f"not a persona pool: {what}",
                file=str(self.path),
                hint="the file was left unchanged; move it away, and a new pool is made",
            )
        )

    @contextmanager
    def _locked_pool(self) -> Iterator[None]:
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))
        with storage_errors(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=LOCK_SECONDS)
            except Timeout as error:
                raise StorageError(
                    f"another process has been writing {self.path} for {LOCK_SECONDS:.0f} s"
                ) from error
        try:
            yield
        finally:
            lock.release()


def _serialise_personas(people: Sequence[Persona]) -> bytes:
    data = {"version": 1, "personas": [persona.to_json() for persona in people]}
    return json.dumps(data, ensure_ascii=False, indent=1).encode() + b"\n"


def _with_new_ids(present: Sequence[Persona], fresh: Sequence[Persona]) -> list[Persona]:
    taken = {persona.id for persona in present}
    pooled = list(present)
    number = len(present)
    for persona in fresh:
        number += 1
        while f"persona_{number:05d}" in taken:
            number += 1
        taken.add(f"persona_{number:05d}")
        pooled.append(persona.with_id(f"persona_{number:05d}"))
    return pooled


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """The numbers of personas of earlier runs that were added, known already, or unusable."""

    # New personas.
    added: int
    # Personas that the pool already had.
    known: int
    # Unusable records.
    unfit: int
    # Run folders that could be read.
    runs: int
    # The problem of each folder that could not be read.
    problems: tuple[Problem, ...] = ()


def migrate_personas(run_folders: Iterable[Path], pool: Pool) -> MigrationResult:
    """Add the personas of earlier runs to the pool.

    The result lists each folder without a readable `participants.json`.
    """
    # A persona is known if its raw line is in the pool or in a folder that was read before. A
    # record without a raw line or description counts as unfit.
    seen = {persona.key for persona in pool.load_personas()}
    new_personas: list[Persona] = []
    known = unfit = runs = 0
    problems: list[Problem] = []
    for folder in run_folders:
        records = _read_participants(folder, problems)
        runs += records is not None
        for record in records or ():
            persona = _from_participant(record)
            if persona is None:
                unfit += 1
            elif persona_key(persona.base) in seen:
                known += 1
            else:
                seen.add(persona.key)
                new_personas.append(persona)
    added = pool.add_personas(new_personas)
    return MigrationResult(added, known, unfit, runs, tuple(problems))


def _read_participants(folder: Path, problems: list[Problem]) -> list[object] | None:
    # A researcher may name the run folder or the file.
    path = folder if folder.is_file() else folder / "participants.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(Problem("no participants.json here", file=str(folder)))
        return None
    except (OSError, ValueError) as error:
        problems.append(Problem(f"cannot be read: {error}", file=str(path)))
        return None
    rows = data.get("participants") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        problems.append(Problem("no list `participants`", file=str(path)))
        return None
    return rows


def _from_participant(record: object) -> Persona | None:
    if not isinstance(record, dict) or not record.get("base_persona"):
        return None
    try:
        return Persona.from_json(record, source="migrated").with_id("")
    except ValueError:
        return None
