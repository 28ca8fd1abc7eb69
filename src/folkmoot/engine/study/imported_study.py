"""The result of an importer, which makes a study from a file of another program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ImportedStudy:
    """A study made from a file of another program."""

    # Name → content. The study file is first.
    files: Mapping[str, str | bytes]
    # Lines for the researcher: remaining tasks, and parts of the original that are missing.
    notes: Sequence[str] = ()


def import_notes_name(study_file: str) -> str:
    """Return the name of the file with the `notes` of an imported study."""
    # For `trial.yaml`, the name is `trial_import.txt`.
    return f"{Path(study_file).stem}_import.txt"
