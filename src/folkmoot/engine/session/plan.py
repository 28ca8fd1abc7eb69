"""The plan of a run (`plan.json`): the design, fixed before the calls that depend on the design."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from folkmoot.errors import DriftError, ForeignJournalError
from folkmoot.hints import shorten
from folkmoot.measures.inference.estimates import format_count
from folkmoot.randomness import digest
from folkmoot.storage.json_files import format_json, write_text
from folkmoot.storage.manifest import software_versions
from folkmoot.storage.run_folder import first_versions

DESIGN, CLAIMS, SEATS = "design", "claims", "seats"
# The part that names the open seats which humans took. It is sealed when the lobby ends.
LOBBY = "lobby"
# The note with the messages that the researcher sent to humans.
ANNOUNCED = "announcements"
# The note with the design of the run that a replay repeats.
RECORDED = "recorded"
# Most differences that a message lists. A changed prompt folder has dozens.
MAX_LISTED_DIFFERENCES = 10
# The part that names the one changed reply of a fork.
FORK = "fork"
# The parts that every run seals before its first call.
REGISTERED = (DESIGN, CLAIMS, SEATS)


def digest_registration(plan: Mapping[str, Any]) -> str:
    """Return one hash of the parts of a plan that were fixed before the run called a model.

    Returns an empty string if the plan has none of these parts.
    """
    # Computed from the content of the parts, not from the hashes stored in the plan. A resume with
    # --accept-changes replaces parts, but cannot change what was registered.
    first = first_versions(plan)
    hashes = {name: _hash_data(first[name]["data"]) for name in REGISTERED if name in first}
    return _hash_data(hashes) if hashes else ""


def sealed_data(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of each part of a plan, by the name of the part."""
    return {name: part["data"] for name, part in plan.get("sealed", {}).items()}


def _hash_data(data: object) -> str:
    return digest(json.dumps(data, sort_keys=True)).hex()


class Plan:
    """The plan of one run: the content of `plan.json`, to which parts are added."""

    # A part is sealed when it is added: it cannot change afterwards. The engine calls `write_plan`
    # before every journaled call, so a part is on disk before the calls that depend on it.

    def __init__(
        self, path: Path, *, started_at: str, study_file: str = "", accept_changes: bool = False
    ) -> None:
        self._path = path
        self._accept = accept_changes
        self._unwritten = False
        # The content of the file before this process rewrote it, for `restore_file`.
        self._before: str | None = None
        # Whether an earlier process of the run sealed parts.
        self._is_resumed = path.exists()
        if self._is_resumed:
            try:
                self._data = json.loads(path.read_text("utf-8"))
                self.started_at = str(self._data["started_at"])
            except (ValueError, KeyError, TypeError) as error:
                raise ForeignJournalError(
                    f"{path}: not a plan of a run. The file was not changed."
                ) from error
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

        # The design of the run that a fork or a replay repeats.
        self.repeated: Mapping[str, Any] = self._data.get(RECORDED, {})

    def accept_changes(self) -> None:
        """Allow changed parts of the design to replace parts that are already fixed."""
        # `plan.json` keeps the earlier parts beside the new parts.
        self._accept = True

    @property
    def data(self) -> Mapping[str, object]:
        """The content that the next `write_plan` writes to the plan file."""
        return dict(self._data)

    def sealed_part(self, name: str) -> Mapping[str, object]:
        """Return a part of the plan, or an empty dictionary if the plan lacks it."""
        return dict(self._data["sealed"].get(name, {}).get("data", {}))

    def recorded_part(self, name: str) -> Mapping[str, object]:
        """Return a part of this plan or, if it lacks the part, of the plan of `repeated`."""
        return self.sealed_part(name) or dict(self.repeated.get(name, {}))

    def seal_part(self, name: str, data: object) -> None:
        """Add a part of the design to the plan. From then on the part cannot change.

        Raises DriftError if the plan already has a part of this name with different content.
        """
        # Compare what the file will hold: a tuple is a list after a resume.
        data = json.loads(format_json(data))
        entry = {"hash": _hash_data(data), "data": data}
        old = self._data["sealed"].get(name)
        if old is not None and old["hash"] == entry["hash"]:
            return
        if old is not None:
            if not self._accept:
                difference = describe_differences(old, entry)
                summary = f"the {name} differs from plan.json: {difference}."
                error = DriftError(
                    f"{summary} {_drift_hint(difference)}, start a new run, or accept with "
                    "--accept-changes."
                )
                error.difference = summary
                raise error
            self._data["changes"].append({"name": name, "was": old})
        elif self._is_resumed and self._accept and name in REGISTERED:
            # An added part is a change, too. It was not registered before the first call.
            self._data["changes"].append({"name": name, "was": {}})
        self._data["sealed"][name] = entry
        self._unwritten = True

    def add_note(self, name: str, data: object) -> None:
        """Store a note beside the design, in place of an earlier note of this name."""
        self._data[name] = data
        self._unwritten = True

    def note(self, name: str) -> Any:
        """Return the note of this name, or None if there is none."""
        return self._data.get(name)

    def write_plan(self) -> None:
        """Write parts of the plan that are not on disk yet.

        Raises StorageError if the disk cannot be written.
        """
        if self._unwritten:
            # Only the first write of this process may save the old content. Later writes would save
            # our own.
            if self._before is None and self._path.exists():
                self._before = self._path.read_text("utf-8")
            write_text(self._path, format_json(self._data))
            self._unwritten = False

    def restore_file(self) -> None:
        """Restore the plan file to its content at the start of this process."""
        # Used for a process that has made no call under the changed plan.
        if self._before is not None:
            write_text(self._path, self._before)


def _drift_hint(difference: str) -> str:
    if not difference.startswith("prompts."):
        return (
            "Repeat the options of the command that started the run, such as --set, --limit and "
            "--seed. Otherwise restore the original study file, continue with the version of "
            "Folkmoot that started the run"
        )
    prompt = difference.removeprefix("prompts.").split(" was ")[0]
    return (
        "The wording has changed since the run started. To keep the old wording, install the "
        f"version of Folkmoot that started the run, or put its prompt {prompt}.md into a folder "
        "and name the folder under `prompts:`. Otherwise restore the prompt"
    )


def describe_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe the differences between two parts of a plan."""
    # A researcher may accept the differences, so a second one must not hide behind the first.
    found = [*_find_differences(old["data"], new["data"])]
    if not found:
        return "only its hash differs, not its content"
    more = len(found) - MAX_LISTED_DIFFERENCES
    listed = found[:MAX_LISTED_DIFFERENCES]
    return "; ".join(
        [*listed, f"and {format_count(more, 'more difference')}"] if more > 0 else listed
    )


def _find_differences(old_value: object, new_value: object, path: str = "") -> Iterator[str]:
    if _are_parts(old_value) and _are_parts(new_value) and len(old_value) == len(new_value):
        # The beginnings of two long lists may be equal, so the parts that differ are named.
        for number, parts in enumerate(zip(old_value, new_value, strict=True), 1):
            if parts[0] != parts[1]:
                yield from _find_differences(*parts, f"{path}[{number}]")
        return
    if not (isinstance(old_value, dict) and isinstance(new_value, dict)):
        yield f"{path or 'value'} was {_shorten(old_value)}, is now {_shorten(new_value)}"
        return
    for key in dict.fromkeys([*old_value, *new_value]):
        # A key that is not there differs from a key without a value.
        old_part, new_part = old_value.get(key, ...), new_value.get(key, ...)
        if old_part != new_part:
            yield from _find_differences(old_part, new_part, f"{path}.{key}" if path else key)


def _shorten(value: object) -> str:
    if value is ...:
        return "not there"
    return shorten(json.dumps(value, ensure_ascii=False))


def _are_parts(setting: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(setting, list) and all(isinstance(part, dict) for part in setting)


def without_new_defaults(
    settings: Mapping[str, Any], earlier: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `settings` without default values that an earlier plan does not contain.

    - `earlier`: the settings in the earlier plan.
    - `given`: those of `settings` that differ from their default.
    """
    kept: dict[str, Any] = {}
    for key, setting in settings.items():
        before, own = earlier.get(key), given.get(key)
        if isinstance(setting, dict) and isinstance(before, dict):
            kept[key] = without_new_defaults(setting, before, own if isinstance(own, dict) else {})
        elif _are_parts(setting) and _are_parts(before) and len(setting) == len(before):
            given_parts = (
                own if _are_parts(own) and len(own) == len(setting) else [{}] * len(before)
            )
            kept[key] = [
                without_new_defaults(*parts)
                for parts in zip(setting, before, given_parts, strict=True)
            ]
        elif key in earlier or key in given:
            kept[key] = setting
    return kept
