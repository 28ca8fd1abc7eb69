"""The sealed plan of a run (`plan.json`): its design, fixed before the calls that it governs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.errors import DriftError, ForeignJournalError
from folkmoot.hints import shorten
from folkmoot.randomness import digest
from folkmoot.storage.json_files import format_json, write_text
from folkmoot.storage.manifest import software_versions

DESIGN, CLAIMS, SEATS = "design", "claims", "seats"
FORK = "fork"  # the reply in which a run differs from the run that it repeats
REGISTERED = (DESIGN, CLAIMS, SEATS)  # parts that every run seals before its first call


def digest_registration(plan: Mapping[str, Any]) -> str:
    """The digest of what a plan sealed before the first call, computed from the content of these
    parts; empty where it sealed nothing."""
    sealed = plan.get("sealed", {})
    hashes = {name: _hash_data(sealed[name]["data"]) for name in REGISTERED if name in sealed}
    return _hash_data(hashes) if hashes else ""


def _hash_data(data: object) -> str:
    return digest(json.dumps(data, sort_keys=True)).hex()


class Plan:
    """The plan of one run folder. `write_plan` puts it on the disk; the engine calls it before
    every effect, so that all seals are there before the calls that they govern.
    """

    def __init__(
        self, path: Path, *, started_at: str, study_file: str = "", accept_changes: bool = False
    ) -> None:
        self._path = path
        self._accept = accept_changes
        self._unwritten = False
        self._before: str | None = None  # what stood in the file, where this process wrote it anew
        if path.exists():
            try:
                self._data = json.loads(path.read_text("utf-8"))
                self.started_at = str(self._data["started_at"])
            except (ValueError, KeyError, TypeError) as error:
                raise ForeignJournalError(f"{path}: not a plan of a run; left as it is.") from error
        else:
            self.started_at = started_at
            made_by = {name: software_versions()[name] for name in ("folkmoot", "source")}
            self._data = {
                "started_at": started_at,
                "software": made_by,
                "study_file": study_file,
                "sealed": {},
                "changes": [],
            }

    def accept_changes(self) -> None:
        """Accept from now on that parts are sealed otherwise than before, and keep the old ones."""
        self._accept = True

    @property
    def data(self) -> Mapping[str, object]:
        """The content of the plan file, once it is written."""
        return dict(self._data)

    def sealed_part(self, name: str) -> Mapping[str, object]:
        """A part of the design as it was sealed before; empty where it was not."""
        return dict(self._data["sealed"].get(name, {}).get("data", {}))

    def seal_part(self, name: str, data: object) -> None:
        """Fix one part of the design. Raises DriftError if it was sealed otherwise before."""
        data = json.loads(format_json(data))
        entry = {"hash": _hash_data(data), "data": data}
        old = self._data["sealed"].get(name)
        if old is not None and old["hash"] == entry["hash"]:
            return
        if old is not None:
            if not self._accept:
                what = describe_first_difference(old, entry)
                raise DriftError(
                    f"the {name} differs from plan.json: {what}. {_drift_hint(what)}, start a new "
                    "run, "
                    "or accept with --accept-changes."
                )
            self._data["changes"].append({"name": name, "was": old})
        self._data["sealed"][name] = entry
        self._unwritten = True

    def add_note(self, name: str, data: object) -> None:
        """Note something beside the design; it governs nothing, and may be noted anew."""
        self._data[name] = data
        self._unwritten = True

    def write_plan(self) -> None:
        """Write what was sealed since the last write to disk. Raises StorageError."""
        if self._unwritten:
            if self._before is None and self._path.exists():
                self._before = self._path.read_text("utf-8")
            write_text(self._path, format_json(self._data))
            self._unwritten = False

    def restore_file(self) -> None:
        """Put back the file as this process found it: no effect came of what it wrote."""
        if self._before is not None:
            write_text(self._path, self._before)


def _drift_hint(what: str) -> str:
    if not what.startswith("prompts."):
        return (
            "Restore the study file as it was, go on with the version of Folkmoot that started the "
            "run"
        )
    prompt = what.removeprefix("prompts.").split(" was ")[0]
    return (
        "The wording is no longer that of the run. To keep the old one, install the version of "
        "Folkmoot that started the run, or put its prompt "
        f"{prompt}.md into a folder and name that under `prompts:`. Otherwise restore the prompt"
    )


def describe_first_difference(old: dict[str, object], new: dict[str, object]) -> str:
    """Where two sealed parts first differ, and how."""
    a, b = old["data"], new["data"]
    path = ""
    while isinstance(a, dict) and isinstance(b, dict):
        key = next(
            (key for key in [*a, *b] if a.get(key) != b.get(key) or (key in a) != (key in b)), None
        )
        if key is None:
            break
        path, a, b = f"{path}.{key}" if path else key, a.get(key, ...), b.get(key, ...)
    return f"{path or 'value'} was {_shorten(a)}, is now {_shorten(b)}"


def _shorten(value: object) -> str:
    if value is ...:
        return "not there"
    return shorten(json.dumps(value, ensure_ascii=False))
