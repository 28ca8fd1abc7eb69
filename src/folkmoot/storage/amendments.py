"""Amendments: what people change about a finished run, kept beside it and never in it.

A correction of a code, a coding made afterwards, a person who withdraws: each is a line of
`read_amendments.jsonl`, which is only ever added to. `manifest.json` holds the file's digest, so
that `folkmoot verify` tells an amendment from a change made by hand. The journal and its digest
stay those of what was.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from folkmoot.errors import StorageError
from folkmoot.storage.json_files import read_json_object, write_json, write_text
from folkmoot.storage.manifest import AMENDMENTS_KEY
from folkmoot.storage.run_folder import MANIFEST

AMENDMENTS_FILE = "amendments.jsonl"


@dataclass(frozen=True, slots=True)
class Amendment:
    """One line: what `kind` of change, made by whom, when (ISO 8601, UTC), and its `data`."""

    kind: str
    author: str
    created_at: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json_line(self) -> str:
        whole = {"kind": self.kind, "by": self.author, "at": self.created_at, **self.data}
        return json.dumps(whole, ensure_ascii=False)


def append_amendments(run: Path, new_amendments: Iterable[Amendment]) -> None:
    """Add amendments to a run; the caller holds its folder.

    Raises StorageError when the file is not the one that the manifest names. Lines beyond those
    named there are left from a process that was killed before it could name them; they are dropped.
    """
    _write_manifest(
        run,
        (
            *read_recorded_amendments(run),
            *(amendment.to_json_line() for amendment in new_amendments),
        ),
    )


def rewrite_amendments(run: Path, change: Callable[[str], str]) -> None:
    """Rewrite existing lines, to remove words that must go, whoever wrote them down."""
    lines = tuple(change(line) for line in read_recorded_amendments(run))
    if lines and lines != read_recorded_amendments(run):
        _write_manifest(run, lines)


def _write_manifest(run: Path, lines: Sequence[str]) -> None:
    write_text(run / AMENDMENTS_FILE, "".join(f"{line}\n" for line in lines))
    manifest = read_json_object(run / MANIFEST)
    manifest[AMENDMENTS_KEY] = {"count": len(lines), "digest": _digest_lines(lines)}
    write_json(run / MANIFEST, manifest)


def read_amendments(run: Path) -> list[Amendment]:
    """All amendments of a run, in the order in which they were made. Raises StorageError."""
    found = []
    for number, line in enumerate(read_recorded_amendments(run), 1):
        try:
            data = json.loads(line)
            found.append(Amendment(data.pop("kind"), data.pop("by"), data.pop("at"), data))
        except (ValueError, KeyError, AttributeError) as error:
            raise StorageError(f"{run / AMENDMENTS_FILE}:{number}: not an amendment") from error
    return found


def read_recorded_amendments(run: Path) -> tuple[str, ...]:
    """The lines that the manifest knows. Raises StorageError when they are not what it knows."""
    lines, known = _read_lines(run), _recorded_state(run)
    named = lines[: known.get("count", 0)]
    if known and _digest_lines(named) != known["digest"]:
        raise StorageError(
            f"{run / AMENDMENTS_FILE} was changed by hand: its digest is not the one in "
            f"{MANIFEST}. Put "
            "it back as it was; corrections are read from a sheet (`folkmoot codes`)"
        )
    return named


def list_changes(run: Path) -> list[str]:
    """How the file differs from what the manifest records, in sentences."""
    try:
        named, there = len(read_recorded_amendments(run)), len(_read_lines(run))
    except StorageError as error:
        return [f"{error}."]
    if there == named:
        return []
    return [
        f"{AMENDMENTS_FILE} has {there} lines, of which {MANIFEST} names {named}: the rest counts "
        "for nothing, and the next amendment drops it."
    ]


def describe_amendments(run: Path) -> list[str]:
    """What was amended, one line for each kind and author."""
    counts = Counter((amendment.kind, amendment.author) for amendment in read_amendments(run))
    return [f"{count:,} × {kind}, by {by}" for (kind, by), count in counts.items()]


def _read_lines(run: Path) -> tuple[str, ...]:
    path = run / AMENDMENTS_FILE
    try:
        return tuple(path.read_bytes().decode().split("\n")[:-1]) if path.exists() else ()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error


def _digest_lines(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _recorded_state(run: Path) -> Mapping[str, Any]:
    path = run / MANIFEST
    known = read_json_object(path).get(AMENDMENTS_KEY, {}) if path.exists() else {}
    if known == {}:
        return {}
    match known:
        case {"count": int(), "digest": str()}:
            return known
    raise StorageError(f"{path}: the member {AMENDMENTS_KEY} was changed by hand")
