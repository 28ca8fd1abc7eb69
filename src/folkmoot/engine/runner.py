"""The runner: a study file and the caller's options in, a finished run out.

The command line and `folkmoot.run` are its users; `sitting.py` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from folkmoot.engine.event_loop import Stopper, run_to_end
from folkmoot.engine.folder import discard_unasked, held_folder, open_folder, settle
from folkmoot.engine.options import RunOptions
from folkmoot.engine.providers import Providers
from folkmoot.engine.sitting import Sitting, sit
from folkmoot.engine.study import Study, check_study, findings_of
from folkmoot.engine.study_file import StudyFile, load_study_file, validate
from folkmoot.errors import InputError
from folkmoot.records.findings import Finding
from folkmoot.records.run_folder import RunFolder

__all__ = ["Run", "RunOptions", "from_python", "limited", "load", "run_study"]


@dataclass(frozen=True, repr=False)
class Run:
    """A run that came to its end: its folder, tables as data frames, findings."""

    folder: RunFolder
    study: Study

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def tables(self) -> dict[str, Any]:
        """All tables by name, as polars data frames (`.to_pandas()` where pandas is wanted)."""
        return {name: self.folder.table(name) for name in self.folder.tables()}

    @property
    def unusable(self) -> str:
        """Why nothing in the run is of use (the command line ends with 3); else empty."""
        return self.folder.unusable

    @property
    def manifest(self) -> dict[str, Any]:
        """What was run with what, and what it cost."""
        return self.folder.manifest

    def __repr__(self) -> str:
        return (
            f"Run({str(self.path)!r}: {self.study.name}; tables {', '.join(self.folder.tables())})"
        )

    def table(self, name: str) -> Any:
        """One table as a polars data frame."""
        return self.folder.table(name)

    def json(self, name: str) -> Any:
        """One of the study's own JSON files."""
        return self.folder.json(name)

    def findings(self) -> list[Finding]:
        """What the study found, as the report shows it."""
        return findings_of(self.study, self.folder)


def load(source: Path | str, options: RunOptions) -> StudyFile:
    """The study file with the command line's settings in it. Raises InputError, writes nothing."""
    named = options.model is None and options.provider is None
    found = load_study_file(source, options.as_overrides(), models=named, consent=options.consent)
    providers = providers_of(found, options)
    options.consent.require_sending(found.path, found.config, providers, options.overrides)
    return limited(found, options.limit)


def from_python(study: Study, settings: Mapping[str, Any], options: RunOptions) -> StudyFile:
    """A study given as a type and a dictionary of settings."""
    check_study(study)
    config = validate(study, settings, folder=Path.cwd())
    changes = {"concurrency": options.concurrency, "budget_usd": options.budget}
    changes["random_seed"] = options.seed
    config = config.model_copy(update={k: v for k, v in changes.items() if v is not None})
    here = Path.cwd() / f"{study.name}.yaml"
    return limited(StudyFile(here, study, config, dict(settings)), options.limit)


def limited(found: StudyFile, limit: int | None) -> StudyFile:
    """The study cut down to `--limit` participants or sessions."""
    if limit is None:
        return found
    if limit < 1:
        raise InputError("--limit: must be at least 1")
    if found.study.limit is None:
        raise InputError(f"--limit: the study type {found.study.name} has no such cut")
    config = found.study.limit(found.config, limit)
    return StudyFile(found.path, found.study, config, found.raw)


def run_study(found: StudyFile, options: RunOptions, stopper: Stopper | None = None) -> Run:
    """Run (or resume) a study to its end, or until `stopper` is called.

    Raises RunExists, RunLocked, DriftError, RunPaused (resumable), KeyboardInterrupt (likewise),
    FatalModelError, StorageError; whatever is raised, every reply that was paid for is kept.
    """
    providers = providers_of(found, options)
    providers.check(embeds=found.study.embeds, file=str(found.path))
    folder = _folder_of(found, options)
    new = not (folder.exists() and any(folder.iterdir()))
    open_folder(folder, resume=options.resume)
    try:
        with held_folder(folder):
            settle(folder, found.config, resume=options.resume)
            run_to_end(lambda s: sit(Sitting(found, options, providers, folder, s)), stopper)
    except InputError:
        if new:
            discard_unasked(folder)
        raise
    return Run(RunFolder(folder), found.study)


def providers_of(found: StudyFile, options: RunOptions) -> Providers:
    """The models of a run of this file."""
    seats = found.study.seat_models(found.config)
    return Providers(found.config, options.model, options.key, options.provider, seats)


def _folder_of(found: StudyFile, options: RunOptions) -> Path:
    return options.out if options.out is not None else Path("outputs") / found.run_id
