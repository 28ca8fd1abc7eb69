"""Run a study about a finished run, in a subfolder with a separate journal."""
# Codings and controls are run in this way. The journal and the digest of the finished run do not
# change. An amendment of the finished run names the subfolder and the digest of the journal in the
# subfolder. So `folkmoot verify` detects a subfolder that was added by hand.

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import create_router, run_study, study_from_settings
from folkmoot.engine.run.verify import Verification, verify_run
from folkmoot.engine.session.folder_access import has_calls, is_held, lock_folder
from folkmoot.engine.settings.config import REQUEST_KEYS
from folkmoot.engine.study.study import Study
from folkmoot.errors import DriftError, InputError, Problem
from folkmoot.storage.amendments import Amendment, append_amendments
from folkmoot.storage.run_folder import STUDY_FILE_NAME, RunFolder

# A run below another one calls models with the same settings. It has its own budget. It uses
# batches only if its caller asks for them, because a batch may take a day.
_KEPT_KEYS = (*REQUEST_KEYS, "endpoints", "random_seed", "local")


@dataclass(frozen=True)
class Below:
    """A study to run in a subfolder of a finished run, such as a coding or the controls."""

    study: Study[Any]
    # The path relative to the finished run.
    folder: str
    # The kind and the author of the amendment that names the folder (`kind`, `by`).
    kind: str
    by: str


def calling_settings(run: RunFolder, *more: str) -> dict[str, object]:
    """Return the settings with which a run calls models.

    `more`: the names of further settings to return.

    Settings without a value are left out.
    """
    keys = (*_KEPT_KEYS, *more)
    return {key: run.config[key] for key in keys if run.config.get(key) is not None}


def require_finished(run: RunFolder) -> None:
    """Raise InputError if a run is not finished."""
    if not run.is_finished:
        hint = "finish it first with --resume"
        raise InputError(Problem(f"{run.path}: the run is not finished", hint=hint))


def run_below(
    run: RunFolder,
    below: Below,
    settings: Mapping[str, object],
    options: RunOptions,
    stopper: RunStopper | None = None,
) -> RunFolder:
    """Run a study in a subfolder of a finished run.

    An interrupted study is resumed. Raises the errors of `run_study`.
    """
    # Adds an amendment to the finished run.
    study = study_from_settings(below.study, settings, options)
    # The settings may name servers that receive the texts of the run. The researcher must consent
    # to them, as with a study file.
    options.consent.require_network_access(
        run.path / STUDY_FILE_NAME, study.config, create_router(study, options)
    )
    folder = run.path / below.folder
    # A mistake that was found after the plan was sealed must not bind the next try to that plan.
    if folder.exists() and not is_held(folder) and not has_calls(folder):
        shutil.rmtree(folder)
    try:
        finished = run_study(study, replace(options, out=folder, resume=folder.exists()), stopper)
    except DriftError as error:
        # There is no study file that the researcher could restore.
        raise DriftError(
            f"{folder} was begun with other settings: {error} Repeat the first command, or delete "
            "the folder, which loses its answers."
        ) from error
    data = {"folder": below.folder, "journal_digest": finished.manifest["journal_digest"]}
    # Amend only after the run below has finished: an amendment holds the digest of its complete
    # journal.
    with lock_folder(run.path):
        append_amendments(
            run.path, [Amendment(below.kind, below.by, finished.manifest["finished_at"], data)]
        )
    return finished


def verify_below(
    run: RunFolder, amendment: Amendment, study: Study[Any]
) -> tuple[str, Verification]:
    """Replay the run in the subfolder that an amendment names.

    Returns the path of the subfolder and the result of the replay.
    """
    name = str(amendment.data["folder"])
    folder = run.path / name
    if not folder.is_dir():
        return name, Verification([f"The folder {name} is missing."])
    verification = verify_run(RunFolder(folder), study)
    if verification.content_digest != amendment.data["journal_digest"]:
        verification.differences.append(
            f"{name}: its journal has changed since the amendment was written."
        )
    return name, verification
