"""Amendments: changes that people make to a finished run, such as a corrected code.

Each amendment is one line of `amendments.jsonl`. The data of the run stay as they were.
"""

# Changes are corrections of a code, later codings and withdrawals of humans. Lines are only
# appended. `manifest.json` holds the digest of the file, so `folkmoot verify` can distinguish an
# amendment from a change by hand. The journal and its digest stay unchanged.

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from folkmoot.errors import StorageError
from folkmoot.files import reason_of
from folkmoot.storage.json_files import read_json_object, write_json, write_text
from folkmoot.storage.manifest import AMENDMENTS_KEY
from folkmoot.storage.run_folder import MANIFEST

AMENDMENTS_FILE = "amendments.jsonl"


@dataclass(frozen=True, slots=True)
class Amendment:
    """One change to a finished run: kind, author, time and data."""

    # The time is ISO 8601, UTC.

    kind: str
    author: str
    created_at: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json_line(self) -> str:
        fields = {"kind": self.kind, "by": self.author, "at": self.created_at, **self.data}
        return json.dumps(fields, ensure_ascii=False)


def append_amendments(run: Path, new_amendments: Iterable[Amendment]) -> None:
    """Append amendments to a run. The caller must hold the lock of the run folder.

    Raises StorageError if earlier amendments were edited by hand.
    """
    # Lines that the manifest does not record are dropped. The process that wrote such lines was
    # killed before it could update the manifest.
    _write_manifest(
        run,
        (
            *read_recorded_amendments(run),
            *(amendment.to_json_line() for amendment in new_amendments),
        ),
    )


def rewrite_amendments(run: Path, change: Callable[[str], str]) -> None:
    """Replace each line of `amendments.jsonl` by the result of `change`."""
    # Used to remove the texts of a human.
    lines = tuple(change(line) for line in read_recorded_amendments(run))
    if lines and lines != read_recorded_amendments(run):
        _write_manifest(run, lines)


def _write_manifest(run: Path, lines: Sequence[str]) -> None:
    # The file is written before the manifest. If the process is killed in between, the manifest
    # still describes the first lines, and the rest is ignored.
    write_text(run / AMENDMENTS_FILE, "".join(f"{line}\n" for line in lines))
    manifest = read_json_object(run / MANIFEST)
    manifest[AMENDMENTS_KEY] = {"count": len(lines), "digest": _digest_lines(lines)}
    write_json(run / MANIFEST, manifest)


def read_amendments(run: Path) -> list[Amendment]:
    """Return all amendments of a run in the order in which they were made.

    Raises StorageError for a changed file or an invalid line.
    """
    amendments = []
    for number, line in enumerate(read_recorded_amendments(run), 1):
        try:
            data = json.loads(line)
            amendments.append(Amendment(data.pop("kind"), data.pop("by"), data.pop("at"), data))
        except (ValueError, KeyError, AttributeError) as error:
            raise StorageError(f"{run / AMENDMENTS_FILE}:{number}: not an amendment") from error
    return amendments


def read_recorded_amendments(run: Path) -> tuple[str, ...]:
    """Return the lines of `amendments.jsonl` that the manifest records.

    Raises StorageError if these lines were edited by hand.
    """
    # The digest of the lines then differs from the digest in the manifest.
    lines, recorded_state = _read_lines(run), _recorded_state(run)
    recorded_lines = lines[: recorded_state.get("count", 0)]
    if recorded_state and _digest_lines(recorded_lines) != recorded_state["digest"]:
        raise StorageError(
            f"{run / AMENDMENTS_FILE} was changed by hand: its digest is not the one in "
            f"{MANIFEST}. Put "
            "it back as it was; corrections are read from a sheet (`folkmoot codes`)"
        )
    return recorded_lines


def list_changes(run: Path) -> list[str]:
    """Return the differences between `amendments.jsonl` and the manifest, as sentences."""
    try:
        recorded_count, line_count = len(read_recorded_amendments(run)), len(_read_lines(run))
    except StorageError as error:
        return [f"{error}."]
    if line_count == recorded_count:
        return []
    return [
        f"{AMENDMENTS_FILE} has {line_count} lines, but {MANIFEST} names {recorded_count}: "
        "the other lines do not count, and the next amendment drops them."
    ]


def describe_amendments(run: Path) -> list[str]:
    """Return one line for each kind and author of amendments, such as "2 × correction, by Ann"."""
    counts = Counter((amendment.kind, amendment.author) for amendment in read_amendments(run))
    return [f"{count:,} × {kind}, by {author}" for (kind, author), count in counts.items()]


def _read_lines(run: Path) -> tuple[str, ...]:
    path = run / AMENDMENTS_FILE
    try:
        # The last piece is empty, or a line that a killed process did not finish. Split at line
        # feeds only: `splitlines` would also split at other separators inside a text.
        return tuple(path.read_bytes().decode().split("\n")[:-1]) if path.exists() else ()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {reason_of(error)}") from error


def _digest_lines(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _recorded_state(run: Path) -> Mapping[str, Any]:
    path = run / MANIFEST
    recorded_state = read_json_object(path).get(AMENDMENTS_KEY, {}) if path.exists() else {}
    if recorded_state == {}:
        return {}
    match recorded_state:
        case {"count": int(), "digest": str()}:
            return recorded_state
    raise StorageError(f"{path}: the member {AMENDMENTS_KEY} was changed by hand")
