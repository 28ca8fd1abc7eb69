"""Create run folders or open existing ones, and lock each for one process at a time."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from filelock import FileLock, Timeout

from folkmoot.engine.journal.integrity import digest_of_run
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.journal.shards import SHARD_FOLDER, list_shards, merge_shards
from folkmoot.engine.seats.withdrawal import finish_withdrawal
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.settings.yaml_tree import StudyDumper
from folkmoot.errors import InputError, Problem, RunExistsError, RunLockedError, StorageError
from folkmoot.files import reason_of, require_utf8, storage_errors
from folkmoot.storage.json_files import write_text
from folkmoot.storage.manifest import RunTotals, software_versions
from folkmoot.storage.run_folder import (
    CODINGS,
    CONTROLS,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PLAN,
    STUDY_FILE_NAME,
    RunFolder,
    RunSoFar,
    UnsettledRun,
    is_run_folder,
    utc_timestamp,
)
from folkmoot.storage.table_buffer import ROWS, has_waiting_rows

LOCK_FILE = ".lock"
HOLDER_FILE = ".holder.json"
IfExists = Literal["resume", "new", "error"]
IF_EXISTS: tuple[IfExists, ...] = get_args(IfExists)
# The files that the engine has written by the time of the first call. If a run made no call, the
# next one may delete exactly these.
ENGINE_FILES_BEFORE_FIRST_CALL = (
    *(STUDY_FILE_NAME, PLAN, MANIFEST, LOG, LOG_LINES),
    *(JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"),
    *(ROWS, f"{ROWS}-wal", f"{ROWS}-shm"),
)
# We cannot ask another machine whether a process lives. If the journal and the log did not change
# for an hour, its run counts as stopped.
SILENT_SECONDS = 3600


def open_folder(folder: Path, *, resume: bool) -> bool:
    """Create the folder of a new run, or open the folder of an earlier run.

    Returns whether the folder was empty. Raises RunExistsError if a run is there and `resume` is
    false. Raises StorageError if the folder cannot be created or holds no run to resume.
    """
    # The folder of a run that made calls is never overwritten.
    require_utf8(folder)
    if resume and not folder.exists():
        raise StorageError(f"{folder}: there is no run to resume here; leave out --resume")
    with storage_errors(folder):
        is_empty = not folder.exists() or not any(folder.iterdir())
        if not resume and not is_empty and not _is_run_without_calls(folder):
            if not is_run_folder(folder):
                raise RunExistsError(
                    f"{folder} is not empty, and it is not the folder of a run. Choose another "
                    "place with --out; from Python, with out=…"
                )
            raise RunExistsError(
                f"{folder} already exists; runs are never overwritten. Add --resume to continue "
                "it, or choose another place with --out; from Python, if_exists="
                '"resume" or "new"'
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The folder may hold profiles of real people: only its owner may read it.
        if not resume:
            folder.chmod(0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied", str(folder))
    return is_empty


def choose_folder(folder: Path, if_exists: IfExists) -> tuple[Path, bool]:
    """Return the folder to run in, and whether the run continues an earlier run there.

    Raises InputError for an unknown `if_exists`.
    """
    # An earlier run without calls does not count as a run.
    if if_exists not in IF_EXISTS:
        allowed = ", ".join(map(repr, IF_EXISTS))
        raise InputError(Problem(f"{if_exists!r} must be one of {allowed}", key="if_exists"))
    if not _holds_run(folder) or if_exists == "error":
        return folder, False
    if if_exists == "resume":
        return folder, True
    # "new": take the first free name, counting from 2.
    numbered = (folder.with_name(f"{folder.name}_{number}") for number in count(2))
    return next(
        path for path in numbered if not path.exists() or _is_run_without_calls(path)
    ), False


def _holds_run(folder: Path) -> bool:
    # Without its other files, a journal still holds paid answers.
    if not is_run_folder(folder) and not (folder / JOURNAL).exists():
        return False
    if not _is_run_without_calls(folder) or RunFolder(folder).is_finished:
        return True
    with JournalReader(folder / JOURNAL) as journal:
        return len(journal) > 0


def prepare_folder(folder: Path, config: StudyConfig, *, resume: bool) -> None:
    """Write the settings of a new run.

    First deletes the files of an earlier run if that run made no calls.
    The caller must hold the lock of the run folder.
    """
    if not resume:
        for name in ENGINE_FILES_BEFORE_FIRST_CALL:
            (folder / name).unlink(missing_ok=True)
    if not (folder / STUDY_FILE_NAME).exists():
        write_settings(folder, config)


def open_journal(folder: Path, *, accept_changes: bool) -> Journal:
    """Open the journal of a run.

    Raises StorageError if the journal or the plan of a run with calls is missing.
    """
    # Without the journal, a resume would pay for everything again. Without the plan, a resume would
    # not know the design.
    path = folder / JOURNAL
    merge_shards(folder, path)
    # The plan is written after the journal is created, so a plan without a journal means that the
    # journal was lost.
    has_plan = (folder / PLAN).exists()
    is_lost = has_plan and not (path.exists() and path.stat().st_size)
    journal = None if is_lost else Journal(path, accept_changes=accept_changes)
    # An empty journal is fine only if the manifest of an earlier process counted no calls, or if a
    # repair removed all entries.
    if journal is not None and (
        len(journal) or journal.repaired or not RunFolder(folder).manifest.get("calls")
    ):
        if has_plan or not len(journal):
            return journal
        journal.close()
        raise StorageError(
            f"{folder / PLAN} is missing, but this run has made calls: restore the file, or "
            "start a new run with --out"
        )
    if journal is not None:
        journal.close()
    raise StorageError(
        f"{path} is missing or empty, but this run has made calls, and all of them would be "
        "asked again. Restore the journal, or start a new run with --out"
    )


def describe_other_version(folder: Path) -> str:
    """Return a text that names the version that started a run and the installed version.

    Returns an empty string if the versions are equal.
    """
    if not (folder / PLAN).exists():
        return ""
    run = RunFolder(folder)
    # The plan names the version that started the run. The manifest is rewritten by each process
    # that resumes it.
    made_with, now = (
        run.plan.get("software") or run.manifest.get("software", {}),
        software_versions(),
    )
    if made_with.get("source") == now["source"]:
        return ""
    version, source = (made_with.get(name, "unknown") for name in ("folkmoot", "source"))
    maker = f"Folkmoot {version}, source {source}"
    return f"made by {maker}; this is {now['folkmoot']}, source {now['source']}"


def has_calls(folder: Path) -> bool:
    """Return whether a run made a call that may be billed, or holds the answer of a human.

    Returns True also if the folder cannot tell, because its journal is lost or unreadable.
    """
    # Whoever deletes or overwrites a run folder asks this function first: calls that are lost with
    # the journal would be paid again.
    if list_shards(folder / SHARD_FOLDER):
        return True
    if not _has_journal(folder):
        # The plan is written after the journal is created, so here the journal was lost.
        return (folder / PLAN).exists()
    try:
        with JournalReader(folder / JOURNAL) as reader:
            # A batch without an answer is billed as well, and so may be broken replies and loans.
            journal_has_calls = (
                reader.count_calls()
                or reader.read_broken_replies()
                or reader.count_open_batch_calls()
                or reader.read_outstanding_loans()
            )
            # The manifest of a fork also counts the replies that it took over, which cost nothing.
            # So it decides only if the journal was emptied.
            return bool(journal_has_calls) or (not len(reader) and _manifest_counts_calls(folder))
    except StorageError:
        return True


def _manifest_counts_calls(folder: Path) -> bool:
    try:
        return bool(RunFolder(folder).manifest.get("calls"))
    except StorageError:
        return True


def _has_journal(folder: Path) -> bool:
    journal = folder / JOURNAL
    return journal.exists() and journal.stat().st_size > 0


def _is_run_without_calls(folder: Path) -> bool:
    # A folder without a journal may hold anything, such as the files of another program.
    return _has_journal(folder) and not has_calls(folder) and not _manifest_counts_calls(folder)


def write_settings(folder: Path, config: StudyConfig) -> None:
    """Write the study file of the run with every default filled in."""
    # Findings and reports read it.
    settings = config.model_dump(mode="json", exclude_none=True)
    text = yaml.dump(settings, Dumper=StudyDumper, sort_keys=False, allow_unicode=True)
    write_text(folder / STUDY_FILE_NAME, text)


def remove_empty_run(folder: Path) -> None:
    """Delete the folder of a run that bad input stopped before the run called a model."""
    # The corrected study can then run in the same folder.
    if has_calls(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_folder(folder: Path, *, wait_seconds: float = 0) -> Iterator[bool]:
    """Context manager that locks the run folder for this process.

    Completes a withdrawal that was killed, so that no files are read or amended that it replaces.
    The value of the context is whether there was one.

    - `wait_seconds`: how long to wait for another process that has locked the folder.

    Raises RunLockedError if another process has locked the folder.
    """
    # The operating system owns the lock and releases it whenever the process ends, even if it is
    # killed.
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        raise RunLockedError(
            f"{folder}: {_read_holder(folder)} is writing this run; wait until it ends"
        ) from None
    except OSError as error:
        raise StorageError(f"{folder}: cannot be locked: {reason_of(error)}") from error
    try:
        # The lock itself names no holder, so write one beside it, for the error message and for
        # `is_held`.
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": utc_timestamp()}
        write_text(folder / HOLDER_FILE, json.dumps(holder) + "\n")
        yield finish_withdrawal(folder)
    finally:
        (folder / HOLDER_FILE).unlink(missing_ok=True)
        lock.release()


def require_no_later_questions(folder: Path) -> None:
    """Raise RunLockedError if a process asks controls of a run, or codes it.

    The caller must hold the lock of the run folder.
    """
    # Such a process locks its own folder first, and then, before it reads the run, for a moment the
    # folder of the run. So none can begin while the caller holds the lock.
    for subfolder in (folder / CONTROLS, *(folder / CODINGS).glob("*")):
        if subfolder.is_dir():
            with lock_folder(subfolder):
                pass


def is_held(folder: Path, *, by_another: bool = False) -> bool:
    """Return whether a process is writing the run.

    - `by_another`: leave out this process.
    """
    # A process on another machine counts as active while the journal or the log changes.
    try:
        holder = json.loads((folder / HOLDER_FILE).read_text("utf-8"))
        pid, host = int(holder["pid"]), holder["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if by_another and (pid, host) == (os.getpid(), socket.gethostname()):
        return False
    if host != socket.gethostname():
        change_times = [
            _changed_at(folder / name) for name in (f"{JOURNAL}-wal", JOURNAL, LOG_LINES)
        ]
        return time.time() - max(change_times) < SILENT_SECONDS
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # No permission to signal it: the process lives and belongs to another user.
        return True
    return True


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def open_run(folder: Path, *, is_going_on: bool | None = None) -> RunFolder:
    """Open a run for reading, also a run that is not finished.

    - `is_going_on`: whether a process writes the run, if the caller has asked `is_held`.

    Raises StorageError if the folder holds no run.
    """
    # If the run has written no tables, the rows recorded so far take the place of the tables.
    run = RunFolder(folder)
    if is_held(folder) if is_going_on is None else is_going_on:
        return RunSoFar(folder, is_going_on=True)
    # A file of waiting rows is newer than any tables: the process that left it wrote none.
    is_written = (folder / MANIFEST).exists() and run.table_names() and not has_waiting_rows(folder)
    read_totals = partial(_read_totals, run)
    # A killed process may also have made calls without recording rows.
    return (
        UnsettledRun(folder, read_totals)
        if is_written
        else RunSoFar(folder, read_totals=read_totals)
    )


def _read_totals(run: RunFolder, manifest: Mapping[str, Any]) -> RunTotals | None:
    # The digest shows whether a manifest still describes the journal. It is not computed for a
    # finished run, unless a process has left its lock: only --accept-changes goes on with such a
    # run. `verify` reports an unreadable journal.
    if manifest.get("outcome") == "done" and not (run.path / HOLDER_FILE).exists():
        return None
    try:
        with JournalReader(run.path / JOURNAL) as journal:
            record_digest = digest_of_run(journal.record_digest(), run.plan)
            # Manifests of early versions have no digest.
            if manifest and manifest.get("record_digest", record_digest) == record_digest:
                return None
            return journal.read_totals()
    except StorageError:
        return None


def _read_holder(folder: Path) -> str:
    try:
        holder = json.loads((folder / HOLDER_FILE).read_text("utf-8"))
        return f"process {holder['pid']} on {holder['host']} (since {holder['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
