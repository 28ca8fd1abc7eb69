"""Find the runs below a folder and read their state: finished, in progress or stopped."""
# The progress of a run in another process is read from its log (see `RunLog`).

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from polars.exceptions import PolarsError
from starlette.exceptions import HTTPException

from folkmoot.engine.calls.progress import format_duration, format_rate
from folkmoot.engine.run.grid import CELLS_FOLDER, is_grid
from folkmoot.engine.seats.withdrawal import describe_pending_withdrawals
from folkmoot.engine.session.folder_access import HOLDER_FILE, is_held, open_run
from folkmoot.errors import FolkmootError, StorageError
from folkmoot.json_text import replace_lone_surrogates
from folkmoot.measures.inference.estimates import format_dollars
from folkmoot.models.catalog import SYNTHETIC_MODEL
from folkmoot.storage.amendments import AMENDMENTS_FILE
from folkmoot.storage.manifest import describe_cost, label_answers
from folkmoot.storage.run_folder import (
    GOING_ON,
    JOURNAL,
    LOG_LINES,
    MANIFEST,
    PLAN,
    SEATS,
    STUDY_FILE_NAME,
    TABLES,
    UNFINISHED,
    RunFolder,
    is_run_folder,
)
from folkmoot.storage.table_buffer import ROWS
from folkmoot.view.people import count_of, file_stamp

# Seconds that a list of runs spends on counting participants.
MAX_COUNTING_SECONDS = 0.15
# Bytes that are read from the end of a log.
MAX_LOG_BYTES = 65_536
MAX_WARNINGS = 8
RUNNING = "running"
UNREADABLE = "unreadable"
SEATS_NOTE = "Humans take part. At the end this page shows which participants they played."
# Files that a process of the run writes. The time of the last change is the "last change" of a run.
WRITTEN_FILES = (MANIFEST, LOG_LINES, f"{JOURNAL}-wal", JOURNAL, PLAN)
# The states of runs (`RunFolder.state`), in words. A run may also have no usable result, or no
# readable manifest.
STATES = {
    RUNNING: "under way",
    "done": "finished",
    "unusable": "finished, no usable result",
    "paused": "paused, can be resumed",
    "interrupted": "interrupted, can be resumed",
    "failed": "failed",
    UNFINISHED: "stopped without a word, can be resumed",
    UNREADABLE: "cannot be read",
}


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The progress of one named stage."""

    # `total` and `seconds_left` are None if they are unknown.

    name: str
    done: int
    total: int | None
    seconds_left: float | None

    @property
    def left(self) -> str:
        """The remaining time as text, or "" if the time is unknown."""
        return "" if self.seconds_left is None else format_duration(self.seconds_left)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run, as the pages show it."""

    name: str
    study: str
    state: str
    models: str
    calls: int
    cost: str
    missing: int
    retries: int
    # Calls per second, without replies from the journal.
    rate: float
    started: datetime | None
    # The time of the last write.
    moved: datetime | None
    # The provenance label SYNTHETIC, HUMAN or MIXED, or "" if only models have answered.
    mark: str
    # Who answered in which role.
    note: str
    # Why the run stopped or cannot be read.
    why: str
    stages: tuple[StageProgress, ...]
    # (time, message).
    warnings: tuple[tuple[str, str], ...]
    # The number of participants, or None if it was not counted.
    people: int | None = None

    @property
    def running(self) -> bool:
        return self.state == RUNNING

    @property
    def pace(self) -> str:
        return format_rate(self.rate)

    @property
    def says(self) -> str:
        return STATES.get(self.state, self.state)


OLDEST = datetime.min.replace(tzinfo=UTC)
# Columns of the list by which it can be sorted, and the value of a run.
ORDERS: dict[str, Callable[[RunStatus], object]] = {
    "run": lambda status: status.name.lower(),
    "state": lambda status: status.says,
    "study": lambda status: status.study,
    "model": lambda status: status.models.lower(),
    "people": lambda status: status.people or 0,
    "calls": lambda status: status.calls,
    "changed": lambda status: status.moved or OLDEST,
}


def arrange_statuses(statuses: Sequence[RunStatus], query: str, order: str) -> list[RunStatus]:
    """Search the runs for all words of a query, and return the matches sorted by `order`."""
    # `order` is a key of ORDERS, with `-` before it for descending. For any other text, the runs
    # keep their order.
    words = query.lower().split()
    kept = [status for status in statuses if all(word in _text_of(status) for word in words)]
    value_of = ORDERS.get(order.removeprefix("-"))
    if value_of is None:
        return kept
    return sorted(kept, key=value_of, reverse=order.startswith("-"))  # type: ignore[arg-type]


def _text_of(status: RunStatus) -> str:
    parts = (status.name, status.says, status.study, status.models, status.mark)
    return " ".join(parts).replace("_", " ").lower() + " " + status.name.lower()


def grid_names(root: Path) -> list[str]:
    """Return the names of the grids in a folder of runs."""
    try:
        folders = sorted(root.iterdir())
    except OSError:
        return []
    return [path.name for path in folders if not path.name.startswith(".") and is_grid(path)]


class RunCollection:
    """The runs of a folder, including runs in grids."""

    # The folder may also be a single run.

    def __init__(self, folder: Path) -> None:
        self.one = is_run_folder(folder)
        runs_folder = folder / CELLS_FOLDER if is_grid(folder) else folder
        self.root = folder.resolve().parent if self.one else runs_folder
        self._only = folder.resolve().name if self.one else ""

    def run_names(self) -> list[str]:
        """Return the names of all runs, such as `grid/cell` for a run in a grid."""
        return (
            [self._only]
            if self.one
            else [name for name in _iterate_run_names(self.root) if _as_text(name) == name]
        )

    def run(self, name: str) -> RunFolder:
        """Return the run with this name.

        Raises HTTPException if there is no such run.
        """
        # The name comes from the address of a page, so it must not lead to another folder. The
        # status is 404.
        parts = name.split("/")
        is_plain = all(
            part and not part.startswith(".") and not _PATH_CHARACTERS & set(part) for part in parts
        )
        is_here = name == self._only if self.one else is_plain and len(parts) <= 2
        if not (is_here and is_run_folder(path := self._run_path(name))):
            message = f"There is no run {name} here. It may have been moved or deleted."
            raise HTTPException(404, message)
        if problem := _outside_link_problem(path):
            raise HTTPException(404, problem)
        return open_run(path)

    def _run_path(self, name: str) -> Path:
        first, _, cell = name.partition("/")
        return self.root / first / CELLS_FOLDER / cell if cell else self.root / first

    def list_statuses(self) -> list[RunStatus]:
        """Return the state of all runs, the most recently written run first."""
        # Counting participants stops after `MAX_COUNTING_SECONDS`. `people` is then None for the
        # runs that are not counted yet. The next call continues the count.
        oldest = datetime.min.replace(tzinfo=UTC)
        deadline = time.monotonic() + MAX_COUNTING_SECONDS
        statuses = []
        for name in [self._only] if self.one else _iterate_run_names(self.root):
            path, shown_name = self._run_path(name), _as_text(name)
            if shown_name != name:
                statuses.append(replace(read_run_status(path, shown_name), state=UNREADABLE))
                continue
            # These stamps are the cache key of the count, so a count is repeated only after a
            # change.
            tables = is_held(path), file_stamp(path / TABLES), file_stamp(path / MANIFEST)
            people = _count_people(path, *tables) if time.monotonic() < deadline else None
            statuses.append(replace(read_run_status(path, name), people=people))
        return sorted(
            statuses, key=lambda status: (status.running, status.moved or oldest), reverse=True
        )


def _as_text(name: str) -> str:
    return replace_lone_surrogates(name.replace("\n", " "))


# Characters that would make a part of a name lead to another folder, or make it invalid.
_PATH_CHARACTERS = {"\x00", os.sep, os.altsep}
ENGINES = (
    *(
        PLAN,
        MANIFEST,
        STUDY_FILE_NAME,
        JOURNAL,
        f"{JOURNAL}-wal",
        LOG_LINES,
        HOLDER_FILE,
        AMENDMENTS_FILE,
    ),
    *(ROWS, f"{ROWS}-wal"),
)


def _outside_link_problem(path: Path) -> str:
    run_path = path.resolve()
    tables = [path / TABLES]
    with suppress(OSError):
        tables += (path / TABLES).iterdir()
    for file in (*(path / name for name in ENGINES), *tables):
        if file.is_symlink() and not file.resolve().is_relative_to(run_path):
            name = file.relative_to(path)
            return f"{path.name} is not read: {name} is a link that leads out of its folder."
    return ""


def _iterate_run_names(root: Path) -> Iterator[str]:
    try:
        folders = sorted(
            path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")
        )
    except OSError:
        return
    for folder in folders:
        if is_grid(folder):
            yield from (
                f"{folder.name}/{cell}" for cell in _iterate_run_names(folder / CELLS_FOLDER)
            )
        elif is_run_folder(folder):
            yield folder.name


def read_run_status(path: Path, name: str) -> RunStatus:
    """Return the state of a run."""
    # It is cached until one of its files or the lock changes.
    read_files = (*WRITTEN_FILES, SEATS, TABLES, ROWS, f"{ROWS}-wal")
    return _cached_status(
        path, name, is_held(path), tuple(file_stamp(path / file) for file in read_files)
    )


@lru_cache(maxsize=4096)
def _cached_status(
    path: Path, name: str, running: bool, stamps: tuple[tuple[int, int], ...]
) -> RunStatus:
    run, problem = _open_or_reason(path, running)
    manifest = run.manifest if run else {}
    log = _open_log(path)
    newest_line = next(log.newest_lines(), {})
    if run is None:
        state = RUNNING if running else UNREADABLE
    elif run.is_finished and run.unusable_reason:
        state, problem = "unusable", run.unusable_reason
    else:
        state = RUNNING if run.state == GOING_ON else run.state
    # The manifest of a run that goes on, or that was killed, has no final facts.
    from_manifest = bool(manifest) and state not in (RUNNING, UNFINISHED)
    start_line: Mapping[str, object] = {}
    if from_manifest:
        model_entries = manifest.get("models")
        models = (
            ", ".join(str(model["asked"]) for model in model_entries)
            if isinstance(model_entries, list)
            else ""
        )
        started = _parse_moment(manifest.get("started_at"))
        answers = manifest.get("answers")
        reasons = answers.get("missing", {}) if isinstance(answers, dict) else {}
        missing = sum(reasons.values())
    else:
        start_line = next(log.newest_lines("RunStarted"), {}) or _first_line(path / LOG_LINES)
        models = str(start_line.get("model", ""))
        started = _parse_moment(start_line.get("time"))
        missing = _whole_number(newest_line, "missing")
    if "calls" in manifest:
        calls, cost = _whole_number(manifest, "calls"), describe_cost(manifest, is_short=True)
    else:
        calls = _whole_number(newest_line, "calls") + _whole_number(newest_line, "replayed")
        has_unknown_cost = newest_line.get("cost_usd") is None and calls
        cost = (
            "unknown"
            if has_unknown_cost
            else format_dollars(_number_or_zero(newest_line, "cost_usd"))
        )
    mark, note = _read_label(run, start_line)
    if not from_manifest and (path / SEATS).exists():
        note = f"{note} {SEATS_NOTE}".strip()
    end_line = next(log.newest_lines("RunEnded"), {})
    if not problem and state not in (RUNNING, UNFINISHED, "done"):
        problem = str(end_line.get("message", ""))
    return RunStatus(
        name=name,
        study=_read_study(run) or str(start_line.get("study", "")) or "unknown",
        state=state,
        models=models or "unknown",
        calls=calls,
        cost=cost,
        missing=missing,
        retries=_whole_number(manifest, "retries")
        + (0 if from_manifest else _whole_number(newest_line, "retries")),
        rate=_number_or_zero(newest_line, "rate"),
        started=started,
        moved=_latest_change(stamps[: len(WRITTEN_FILES)]),
        mark=mark,
        note=note,
        why=problem,
        stages=() if from_manifest else _latest_stages(log),
        warnings=_latest_warnings(log),
    )


@lru_cache(maxsize=4096)
def _count_people(path: Path, *_state: object) -> int | None:
    try:
        return count_of(open_run(path))
    except (FolkmootError, PolarsError, OSError):
        return None


def _open_or_reason(path: Path, running: bool) -> tuple[RunFolder | None, str]:
    # (run, ""), or (None, reason) if its manifest is unreadable.
    try:
        run = open_run(path, is_going_on=running)
        if run.manifest or not run.has_file(MANIFEST):
            return run, ""
        return None, f"{path / MANIFEST}: it holds nothing"
    except (OSError, StorageError, TypeError, ValueError) as error:
        return None, str(error)


def _read_label(run: RunFolder | None, start_line: Mapping[str, object]) -> tuple[str, str]:
    # (mark, note).
    if run is not None:
        # The process may remove the file of rows at this moment.
        with suppress(FolkmootError, PolarsError, OSError):
            if mark := run.mark:
                note = run.provenance_note
                # The mark must not depend on the files of seats and withdrawals.
                with suppress(FolkmootError, PolarsError, OSError):
                    note = f"{note} {describe_pending_withdrawals(run)}".rstrip()
                return mark, note
    # Before the first answer is recorded, the log says whether the embedded respondent will answer.
    kinds = {("", SYNTHETIC_MODEL)} if start_line.get("synthetic") else set()
    label = label_answers(kinds, has_people=False)
    return label.mark, label.note


def _read_study(run: RunFolder | None) -> str:
    if run is None:
        return ""
    study = run.manifest.get("study")
    return str(study or _study_of_settings(run.path, file_stamp(run.path / STUDY_FILE_NAME)))


# The study file may be long, and a run in progress is read again after each call.
@lru_cache(maxsize=512)
def _study_of_settings(path: Path, _state: tuple[int, int]) -> str:
    with suppress(StorageError):
        return RunFolder(path).study
    return ""


def _latest_change(stamps: Iterable[tuple[int, int]]) -> datetime | None:
    latest = max(modified_at for modified_at, _ in stamps)
    return datetime.fromtimestamp(latest / 1e9, UTC) if latest else None


def _first_line(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return _parse_line(file.readline())
    except OSError:
        return {}


class _Log:
    # Callers need few of the lines, so each line is parsed only when it is needed.
    def __init__(self, text: bytes, *, whole: bool) -> None:
        self.lines = text.split(b"\n")[0 if whole else 1 : -1]

    def newest_lines(self, *words: str) -> Iterator[dict[str, object]]:
        # Only entries with one of the words in quotation marks. Without words, all entries.
        # Searching the bytes first avoids parsing most lines as JSON.
        searched_words = [f'"{word}"'.encode() for word in words]
        for line in reversed(self.lines):
            if (not searched_words or any(word in line for word in searched_words)) and (
                data := _parse_line(line)
            ):
                yield data


def _open_log(path: Path) -> _Log:
    try:
        with (path / LOG_LINES).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_BYTES))
            return _Log(file.read(), whole=size <= MAX_LOG_BYTES)
    except OSError:
        return _Log(b"", whole=True)


def _parse_line(text: bytes) -> dict[str, object]:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _latest_stages(log: _Log) -> tuple[StageProgress, ...]:
    for line in log.newest_lines("stages"):
        stages = line.get("stages")
        if isinstance(stages, list):
            return tuple(
                StageProgress(
                    str(stage["name"]), int(stage["done"]), stage["total"], stage["seconds_left"]
                )
                for stage in stages
            )
    return ()


def _latest_warnings(log: _Log) -> tuple[tuple[str, str], ...]:
    warnings: list[tuple[str, str]] = []
    for line in log.newest_lines("RunStarted", "warning", "error"):
        if line.get("event") == "RunStarted" or len(warnings) == MAX_WARNINGS:
            break
        if line.get("level") in ("warning", "error"):
            warnings.append((str(line.get("time", ""))[11:19], str(line.get("message", ""))))
    return tuple(reversed(warnings))


def _whole_number(data: Mapping[str, object], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else 0


def _number_or_zero(data: Mapping[str, object], key: str) -> float:
    value = data.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _parse_moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
