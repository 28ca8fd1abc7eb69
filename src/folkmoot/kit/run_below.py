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
from folkmoot.engine.seats.withdrawal import process_pending_withdrawals, select_since_withdrawal
from folkmoot.engine.session.folder_access import has_calls, lock_folder
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.config import REQUEST_KEYS
from folkmoot.engine.study.study import Study
from folkmoot.errors import (
    DriftError,
    InputError,
    Problem,
    RunLockedError,
    RunPausedError,
    StorageError,
)
from folkmoot.storage.amendments import Amendment, append_amendments, read_amendments
from folkmoot.storage.run_folder import STUDY_FILE_NAME, RunFolder

# A run below another one calls models with the same settings. It has its own budget. It uses
# batches only if its caller asks for them, because a batch may take a day.
_KEPT_KEYS = (*REQUEST_KEYS, "endpoints", "random_seed", "local")
# How long a finished coding waits for another process that amends the run. Answers were paid for,
# and an amendment takes less than a second.
MAX_WAIT_SECONDS = 60


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
    """Raise InputError if a run is not finished.

    Deletes the texts of a human who withdrew, if the process of the run was killed before it did.
    """
    # Such texts must not be sent to a model.
    if not run.is_finished:
        hint = "finish it first with --resume"
        raise InputError(Problem(f"{run.path}: the run is not finished", hint=hint))
    with lock_folder(run.path):
        process_pending_withdrawals(run)


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
    study = study_from_settings(_with_run_at_rest(run, below.study), settings, options)
    # The settings may name servers that receive the texts of the run. The researcher must consent
    # to them, as with a study file.
    options.consent.require_network_access(
        run.path / STUDY_FILE_NAME, study.config, create_router(study, options)
    )
    folder = run.path / below.folder
    if folder.exists():
        with lock_folder(folder):
            # A mistake that was found after the plan was sealed must not bind the next try to that
            # plan.
            if not has_calls(folder):
                shutil.rmtree(folder)
    try:
        finished = run_study(study, replace(options, out=folder, resume=folder.exists()), stopper)
    except DriftError as error:
        # There is no study file that the researcher could restore.
        raise DriftError(
            f"{folder} was begun with other settings. Repeat the first command, or delete the "
            f"folder, which loses its answers. {error.difference or error}"
        ) from error
    except RunPausedError as error:
        error.has_partial_report = False
        raise
    _record(run, below, finished)
    return finished


def _with_run_at_rest(run: RunFolder, study: Study[Any]) -> Study[Any]:
    # The protocol reads the run while its own folder is locked. If a withdrawal is changing the run
    # meanwhile, this raises RunLockedError. Later withdrawals find the folder locked.
    async def run_protocol(session: Session[Any]) -> None:
        with lock_folder(run.path):
            pass
        await study.protocol(session)

    return replace(study, protocol=run_protocol)


def _record(run: RunFolder, below: Below, finished: RunFolder) -> None:
    # Amend only after the run below has finished: an amendment holds the digest of its complete
    # journal.
    try:
        with lock_folder(run.path, wait_seconds=MAX_WAIT_SECONDS):
            if not finished.path.is_dir():
                raise StorageError(
                    f"{finished.path} was deleted before it was complete, because a human withdrew "
                    "from the run"
                )
            made = select_since_withdrawal(read_amendments(run.path), below.kind)
            # Another process may have recorded the same folder meanwhile.
            if all(amendment.data["folder"] != below.folder for amendment in made):
                manifest = finished.manifest
                data = {"folder": below.folder, "journal_digest": manifest["journal_digest"]}
                amendment = Amendment(below.kind, below.by, manifest["finished_at"], data)
                append_amendments(run.path, [amendment])
    except RunLockedError as error:
        raise RunLockedError(
            f"{error}. All answers are saved in {finished.path}; repeat the command then, which "
            "asks nothing again"
        ) from error


def verify_below(
    run: RunFolder, amendment: Amendment, study: Study[Any]
) -> tuple[str, Verification]:
    """Replay the run in the subfolder that an amendment names.

    Returns the path of the subfolder and the result of the replay.
    """
    name = str(amendment.data["folder"])
    below = run.open_subfolder(name)
    if below is None:
        # The verification of the run itself reports the missing folder.
        return name, Verification([])
    verification = verify_run(below, study)
    if verification.content_digest != amendment.data["journal_digest"]:
        verification.differences.append(
            f"{name}: its journal has changed since the amendment was written."
        )
    return name, verification
