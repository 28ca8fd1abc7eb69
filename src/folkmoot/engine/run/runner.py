"""The runner: a study file and the caller's options in, a finished run out.

The command line and `folkmoot.run` are its users; `execution.py` does the work.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.cluster.preconditions import require_cluster_support
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.run.event_loop import RunStopper, run_until_complete
from folkmoot.engine.run.execution import (
    Execution,
    RunOptions,
    execute_study,
    simulate_remote_execution,
)
from folkmoot.engine.run.model_choice import choose_models
from folkmoot.engine.seats.seats import SeatSettings
from folkmoot.engine.seats.withdrawal import (
    finish_withdrawal,
    process_pending_withdrawals,
    read_withdrawals,
)
from folkmoot.engine.session.folder_access import (
    describe_other_version,
    lock_folder,
    open_folder,
    prepare_folder,
    remove_empty_run,
)
from folkmoot.engine.study.study import Study, check_study, select_study_seats
from folkmoot.engine.study.study_file import StudyFile, load_study_file, validate_settings
from folkmoot.errors import BudgetReachedError, DriftError, ForeignJournalError, InputError, Problem
from folkmoot.models.catalog import SYNTHETIC_MODEL
from folkmoot.storage.run_folder import OUTPUTS, PLAN, RunFolder

_log = logging.getLogger(__name__)
MAX_DRY_RUN_CALLS = 2_000  # of a study that has no limit
NO_SEAT_HOST_MESSAGE = (
    "`folkmoot run` serves them; from Python give host=folkmoot.view.seat.build_seat_host()"
)


def load_study_with_options(
    source: Path | str, options: RunOptions, folder: Path | None = None
) -> StudyFile:
    """The study file with the command line's settings and its models in it. `folder`: where the run
    lies, if not where `run_folder_path` says. Raises InputError, writes nothing."""
    named = options.model is None and options.custom_provider is None
    found = load_study_file(source, options.to_overrides(), models=named, consent=options.consent)
    found = choose_models(found, options, folder or run_folder_path(found, options))
    providers = create_router(found, options)
    options.consent.require_network_access(found.path, found.config, providers, options.overrides)
    if not providers.has_custom_provider:
        typed = (*options.overrides, f"model={options.model}")
        options.consent.require_model_files(found.path, providers, typed)
    return apply_seats(apply_limit(found, options.limit), options.seats)


def study_from_settings(
    study: Study, settings: Mapping[str, object], options: RunOptions
) -> StudyFile:
    """A study given as a type and a dictionary of settings."""
    check_study(study)
    config = validate_settings(study, settings, folder=Path.cwd())
    changes = {"concurrency": options.concurrency, "budget_usd": options.budget}
    changes.update(random_seed=options.seed, batch=options.batch or None)
    config = config.model_copy(
        update={key: change for key, change in changes.items() if change is not None}
    )
    here = Path.cwd() / f"{study.name}.yaml"
    found = StudyFile(here, study, config, dict(settings))
    found = choose_models(found, options, run_folder_path(found, options))
    return apply_seats(apply_limit(found, options.limit), options.seats)


def apply_limit(study_file: StudyFile, limit: int | None) -> StudyFile:
    """The study cut down to `--limit` participants or sessions."""
    if limit is None:
        return study_file
    if limit < 1:
        raise InputError("--limit: must be at least 1")
    if study_file.study.with_limit is None:
        raise InputError(f"--limit: the study type {study_file.study.name} cannot be limited")
    return replace(study_file, config=study_file.study.with_limit(study_file.config, limit))


def apply_seats(found: StudyFile, names: Sequence[str]) -> StudyFile:
    """The study with people in these seats (`--seat`), in place of those that its file names."""
    if not names:
        return found
    were = found.config.seats or SeatSettings()
    given = {"ids": tuple(names), "count": None, "role": None, "condition": None}
    config = found.config.model_copy(update={"seats": were.model_copy(update=given)})
    select_study_seats(
        found.study, config, found.study_folder
    )  # raises where there is no such seat
    return replace(found, config=config)


def run_study(
    study_file: StudyFile, options: RunOptions, stopper: RunStopper | None = None
) -> RunFolder:
    """Run (or resume) a study to its end, or until `stopper` is called.

    Raises RunExists, RunLocked, DriftError, RunPaused (resumable), KeyboardInterrupt (likewise),
    FatalModelError, StorageError; whatever is raised, every reply that was paid for is kept.
    """
    if options.resume:
        options = resumed_fork(options, run_folder_path(study_file, options))
    providers = create_router(study_file, options)
    if options.executor is not None:
        scripted, models = options.custom_provider is not None, providers.list_models()
        require_cluster_support(
            options.executor,
            study_file.config,
            models,
            key=options.key,
            has_custom_provider=scripted,
        )
    if (
        study_file.config.seats is not None
        and options.seat_host is None
        and options.custom_provider is None
    ):
        raise InputError(
            Problem(
                "people have seats, and nobody serves their pages",
                key="seats",
                hint=NO_SEAT_HOST_MESSAGE,
            )
        )
    check_models(study_file, options)
    if options.executor is not None:
        _dry_run_remote_execution(study_file)
    folder = run_folder_path(study_file, options)
    new = open_folder(folder, resume=options.resume)
    other_version = describe_other_version(folder) if options.resume else ""
    try:
        with lock_folder(folder):
            finish_withdrawal(folder)
            if options.resume and read_withdrawals(folder):
                raise InputError(
                    f"{folder}: people withdrew from this run and their words are gone, so it "
                    "cannot be resumed; its tables and its report stand"
                )
            prepare_folder(folder, study_file.config, resume=options.resume)
            run_until_complete(
                lambda run_stopper: execute_study(
                    Execution(study_file, options, providers, folder, run_stopper)
                ),
                stopper,
            )
            process_pending_withdrawals(RunFolder(folder))
    except InputError:
        if new:
            remove_empty_run(folder)
        raise
    except (DriftError, ForeignJournalError) as error:
        if not other_version:
            raise
        raise type(error)(
            f"{error}\nThe run was {other_version}. To go on with its own requests, install the "
            "version that made it."
        ) from error
    return RunFolder(folder)


def resumed_fork(options: RunOptions, folder: Path) -> RunOptions:
    """The options with the change of a fork that is resumed, as its plan has sealed it."""
    change = ReplyChange.from_plan(RunFolder(folder).plan) if (folder / PLAN).exists() else None
    return replace(options, change=change)


def _dry_run_remote_execution(found: StudyFile) -> None:
    """Play the study small, with all that would go to another machine sent and received. Raises
    where something cannot go, before anything is asked."""
    small = apply_limit(found, 2) if found.study.with_limit is not None else found
    direct = {"budget_usd": None, "budget_calls": MAX_DRY_RUN_CALLS}
    with tempfile.TemporaryDirectory(prefix="folkmoot-rehearsal-") as folder:
        config = small.config.model_copy(update=direct)
        config = found.study.dry_run_config(config, Path(folder))
        here = RunOptions(
            model=SYNTHETIC_MODEL,
            out=Path(folder) / "run",
            fork_executor=simulate_remote_execution(),
        )
        with suppress(BudgetReachedError):
            run_study(replace(small, config=config), here)


def create_router(found: StudyFile, options: RunOptions) -> ModelRouter:
    """The models of a run of this file."""
    seats = found.study.extra_models(found.config)
    part = found.study.respondent_part
    given = (options.model or found.override, options.key, options.custom_provider)
    providers = ModelRouter(found.config, *given, seats, respondent=part)
    return providers.change_for(options.change)


def check_models(found: StudyFile, options: RunOptions) -> None:
    """Raise InputError for every model of a run that is unknown, has no key, or cannot do what the
    study needs."""
    images = found.study.image_locations(found.config)
    providers = create_router(found, options)
    providers.check_models(
        uses_embeddings=found.study.uses_embeddings, images=images, file=str(found.path)
    )


def run_folder_path(found: StudyFile, options: RunOptions) -> Path:
    """Where a run of this file lies."""
    return options.out if options.out is not None else OUTPUTS / found.run_id
