"""Load a study, check it, and run it to a finished run folder."""

# The command line and `run` use this module. `execution.py` runs the protocol.

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from folkmoot.engine.seats.seats import OPEN, SeatSettings
from folkmoot.engine.seats.withdrawal import (
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
# Bounds the dry run before a run on a cluster, because a study type without `with_limit` cannot be
# reduced.
MAX_DRY_RUN_CALLS = 2_000
NO_SEAT_HOST_MESSAGE = (
    "`folkmoot run` serves the pages; from Python pass host=folkmoot.view.seat.build_seat_host()"
)


def load_study_with_options(
    source: Path | str, options: RunOptions, folder: Path | None = None
) -> StudyFile:
    """Load a study file, apply the options and choose the models.

    `folder`: the run folder, or None for the usual one.

    Raises InputError for every problem of the file or the options.
    """
    # The function writes nothing.
    # If `--model` replaces the model of the file, the file's own model need not exist.
    check_model_names = options.model is None and options.custom_provider is None
    study_file = load_study_file(
        source, options.to_overrides(), models=check_model_names, consent=options.consent
    )
    study_file = choose_models(study_file, options, folder or run_folder_path(study_file, options))
    providers = create_router(study_file, options)
    options.consent.require_network_access(
        study_file.path, study_file.config, providers, options.overrides
    )
    if not providers.has_custom_provider:
        typed_values = (*options.overrides, f"model={options.model}")
        options.consent.require_model_files(study_file.path, providers, typed_values)
    return apply_seats(apply_limit(study_file, options.limit), options.seats)


def study_from_settings(
    study: Study, settings: Mapping[str, object], options: RunOptions
) -> StudyFile:
    """Build a study file from a study type and its settings."""
    check_study(study)
    config = validate_settings(study, settings, Path.cwd(), options.to_overrides())
    # No such file exists. Its path says what relative paths in the settings are relative to.
    study_path = Path.cwd() / f"{study.name}.yaml"
    study_file = StudyFile(study_path, study, config, dict(settings))
    study_file = choose_models(study_file, options, run_folder_path(study_file, options))
    return apply_seats(apply_limit(study_file, options.limit), options.seats)


def apply_limit(study_file: StudyFile, limit: int | None) -> StudyFile:
    """Return the study with at most `limit` participants or sessions.

    Raises InputError if the limit is below 1 or the study type cannot be limited.
    """
    if limit is None:
        return study_file
    if limit < 1:
        raise InputError("--limit: must be at least 1")
    if study_file.study.with_limit is None:
        raise InputError(f"--limit: the study type {study_file.study.name} cannot be limited")
    return replace(study_file, config=study_file.study.with_limit(study_file.config, limit))


def apply_seats(study_file: StudyFile, names: Sequence[str]) -> StudyFile:
    """Return the study with humans in the seats `names`. Models play all other participants.

    `names`: names of seats. `("open",)` instead opens the seats in the study file to everyone who
    has the shared link.

    Raises InputError for a seat that does not exist.
    """
    # If the file names no seats, `open` opens all seats.
    if not names:
        return study_file
    seats_before = study_file.config.seats or SeatSettings()
    if tuple(names) == (OPEN,):
        # A count, a role or a condition of the file still says which seats are open.
        seat_choice: dict[str, object] = {"open": True}
    else:
        seat_choice = {"open": False, "ids": tuple(names)}
        seat_choice |= dict.fromkeys(("count", "role", "condition"))
    seats = seats_before.model_copy(update=seat_choice)
    config = study_file.config.model_copy(update={"seats": seats})
    # Called for its check only: it raises InputError for an unknown seat.
    select_study_seats(study_file.study, config, study_file.study_folder)
    return replace(study_file, config=config)


def run_study(
    study_file: StudyFile, options: RunOptions, stopper: RunStopper | None = None
) -> RunFolder:
    """Run or resume a study, and return its run folder.

    `stopper`: stops the run when it is called.

    Raises RunPausedError or RunInterruptedError for a run that can be resumed.
    Raises InputError, RunExistsError, RunLockedError, DriftError, FatalModelError and StorageError.
    """
    # Whatever is raised, every reply that was paid for is kept.
    if options.resume:
        options = resumed_fork(options, run_folder_path(study_file, options))
    providers = create_router(study_file, options)
    if options.executor is not None:
        is_scripted, models = options.custom_provider is not None, providers.list_models()
        require_cluster_support(
            options.executor,
            study_file.config,
            models,
            key=options.key,
            has_custom_provider=is_scripted,
        )
    if (
        study_file.config.seats is not None
        and options.seat_host is None
        and options.custom_provider is None
    ):
        raise InputError(
            Problem(
                "humans have seats, but no server for their pages was given",
                key="seats",
                hint=NO_SEAT_HOST_MESSAGE,
            )
        )
    # All checks come before the folder is made, so that a mistake leaves no empty run behind.
    check_models(study_file, options)
    if options.executor is not None:
        _dry_run_remote_execution(study_file)
    folder = run_folder_path(study_file, options)
    is_new = open_folder(folder, resume=options.resume)
    other_version = describe_other_version(folder) if options.resume else ""
    try:
        with lock_folder(folder):
            if options.resume and read_withdrawals(folder):
                raise InputError(
                    f"{folder}: participants withdrew and their texts were deleted, so this run "
                    "cannot be resumed; its tables and report remain valid"
                )
            prepare_folder(folder, study_file.config, resume=options.resume)
            run_until_complete(
                lambda run_stopper: execute_study(
                    Execution(study_file, options, providers, folder, run_stopper)
                ),
                stopper,
            )
            # A human may withdraw while the run is active. Their texts are deleted at its end,
            # because the protocol still needs them in its prompts until then.
            process_pending_withdrawals(RunFolder(folder))
    except InputError:
        if is_new:
            remove_empty_run(folder)
        raise
    except (DriftError, ForeignJournalError) as error:
        # If another version made the run, say so: that is the likely cause of the difference.
        if not other_version:
            raise
        cause = (
            f"The run was {other_version}. To continue with unchanged requests, install the "
            "version that made the run."
        )
        explained = type(error)(f"{error}\n{cause}")
        if isinstance(explained, DriftError) and isinstance(error, DriftError) and error.difference:
            explained.difference = f"{error.difference}\n{cause}"
        raise explained from error
    return RunFolder(folder)


def resumed_fork(options: RunOptions, folder: Path) -> RunOptions:
    """Return the options of a run. For a fork, add the changed reply that the run's plan stores."""
    change = ReplyChange.from_plan(RunFolder(folder).plan) if (folder / PLAN).exists() else None
    return replace(options, change=change)


def _dry_run_remote_execution(study_file: StudyFile) -> None:
    # If something cannot be pickled, an error is raised before any model is called.
    small_file = (
        apply_limit(study_file, 2) if study_file.study.with_limit is not None else study_file
    )
    dry_run_limits = {"budget_usd": None, "budget_calls": MAX_DRY_RUN_CALLS}
    with open_dry_run(small_file, dry_run_limits) as (dry_file, folder):
        dry_run_options = RunOptions(
            model=SYNTHETIC_MODEL, out=folder, fork_executor=simulate_remote_execution()
        )
        # The budget of calls only bounds the dry run, so reaching it is no failure.
        with suppress(BudgetReachedError):
            run_study(dry_file, dry_run_options)


@contextmanager
def open_dry_run(
    study_file: StudyFile, changes: Mapping[str, object] | None = None
) -> Iterator[tuple[StudyFile, Path]]:
    """Yield a study for a dry run, and a run folder that is deleted afterwards.

    `changes`: replace settings of the study.
    """
    with tempfile.TemporaryDirectory(prefix="folkmoot-dry-run-") as folder:
        config = study_file.config.model_copy(update=dict(changes or {}))
        config = study_file.study.dry_run_config(config, Path(folder))
        yield replace(study_file, config=config), Path(folder) / "run"


def create_router(study_file: StudyFile, options: RunOptions) -> ModelRouter:
    """Return the model router of a run of this study file."""
    extra_models = study_file.study.extra_models(study_file.config)
    part = study_file.study.respondent_part
    model_arguments = (options.model or study_file.override, options.key, options.custom_provider)
    providers = ModelRouter(study_file.config, *model_arguments, extra_models, respondent=part)
    return providers.change_for(options.change)


def check_models(study_file: StudyFile, options: RunOptions) -> None:
    """Check all models of a run before any request is sent.

    Raises InputError if a model is unknown, has no key, or lacks a capability.
    """
    images = study_file.study.image_locations(study_file.config)
    providers = create_router(study_file, options)
    providers.check_models(
        uses_embeddings=study_file.study.uses_embeddings, images=images, file=str(study_file.path)
    )


def run_folder_path(study_file: StudyFile, options: RunOptions) -> Path:
    """Return the run folder: `--out`, or a folder below `outputs/`."""
    return options.out if options.out is not None else OUTPUTS / study_file.run_id
