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

from folkmoot.engine.calls.model_routing import Providers
from folkmoot.engine.cluster.preconditions import refuse
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.run.event_loop import Stopper, run_to_end
from folkmoot.engine.run.execution import Execution, RunOptions, execute, sending_rehearsed
from folkmoot.engine.run.model_choice import choose_models
from folkmoot.engine.seats.seats import Seats
from folkmoot.engine.seats.withdrawal import finish_withdrawal, withdraw_pending, withdrawals
from folkmoot.engine.session.folder_access import (
    describe_other_version,
    discard_unasked,
    held_folder,
    open_folder,
    settle,
)
from folkmoot.engine.study.study import Study, check_study, seats_of
from folkmoot.engine.study.study_file import StudyFile, load_study_file, validate
from folkmoot.errors import BudgetReached, DriftError, ForeignJournal, InputError, Problem
from folkmoot.models.catalog import LOCAL
from folkmoot.storage.run_folder import OUTPUTS, PLAN, RunFolder

_log = logging.getLogger(__name__)
REHEARSED_CALLS = 2_000  # of a study that has no limit
UNSERVED = "`folkmoot run` serves them; from Python give host=folkmoot.view.seat.host()"


def load(source: Path | str, options: RunOptions, folder: Path | None = None) -> StudyFile:
    """The study file with the command line's settings and its models in it. `folder`: where the run
    lies, if not where `folder_of` says. Raises InputError, writes nothing."""
    named = options.model is None and options.provider is None
    found = load_study_file(source, options.as_overrides(), models=named, consent=options.consent)
    found = choose_models(found, options, folder or folder_of(found, options))
    providers = providers_of(found, options)
    options.consent.require_sending(found.path, found.config, providers, options.overrides)
    if not providers.scripted:
        typed = (*options.overrides, f"model={options.model}")
        options.consent.require_model_files(found.path, providers, typed)
    return seated(limited(found, options.limit), options.seats)


def from_python(study: Study, settings: Mapping[str, object], options: RunOptions) -> StudyFile:
    """A study given as a type and a dictionary of settings."""
    check_study(study)
    config = validate(study, settings, folder=Path.cwd())
    changes = {"concurrency": options.concurrency, "budget_usd": options.budget}
    changes.update(random_seed=options.seed, batch=options.batch or None)
    config = config.model_copy(update={k: v for k, v in changes.items() if v is not None})
    here = Path.cwd() / f"{study.name}.yaml"
    found = StudyFile(here, study, config, dict(settings))
    found = choose_models(found, options, folder_of(found, options))
    return seated(limited(found, options.limit), options.seats)


def limited(found: StudyFile, limit: int | None) -> StudyFile:
    """The study cut down to `--limit` participants or sessions."""
    if limit is None:
        return found
    if limit < 1:
        raise InputError("--limit: must be at least 1")
    if found.study.limit is None:
        raise InputError(f"--limit: the study type {found.study.name} cannot be limited")
    return replace(found, config=found.study.limit(found.config, limit))


def seated(found: StudyFile, names: Sequence[str]) -> StudyFile:
    """The study with people in these seats (`--seat`), in place of those that its file names."""
    if not names:
        return found
    were = found.config.seats or Seats()
    given = {"ids": tuple(names), "count": None, "role": None, "condition": None}
    config = found.config.model_copy(update={"seats": were.model_copy(update=given)})
    seats_of(found.study, config, found.folder)  # raises where there is no such seat
    return replace(found, config=config)


def run_study(found: StudyFile, options: RunOptions, stopper: Stopper | None = None) -> RunFolder:
    """Run (or resume) a study to its end, or until `stopper` is called.

    Raises RunExists, RunLocked, DriftError, RunPaused (resumable), KeyboardInterrupt (likewise),
    FatalModelError, StorageError; whatever is raised, every reply that was paid for is kept.
    """
    if options.resume:
        options = resumed_fork(options, folder_of(found, options))
    providers = providers_of(found, options)
    if options.executor is not None:
        scripted, models = options.provider is not None, providers.named()
        refuse(options.executor, found.config, models, key=options.key, scripted=scripted)
    if found.config.seats is not None and options.host is None and options.provider is None:
        raise InputError(
            Problem("people have seats, and nobody serves their pages", key="seats", hint=UNSERVED)
        )
    check_models(found, options)
    if options.executor is not None:
        _rehearse_sending(found)
    folder = folder_of(found, options)
    new = open_folder(folder, resume=options.resume)
    other_version = describe_other_version(folder) if options.resume else ""
    try:
        with held_folder(folder):
            finish_withdrawal(folder)
            if options.resume and withdrawals(folder):
                raise InputError(
                    f"{folder}: people withdrew from this run and their words are gone, so it "
                    "cannot be resumed; its tables and its report stand"
                )
            settle(folder, found.config, resume=options.resume)
            run_to_end(lambda s: execute(Execution(found, options, providers, folder, s)), stopper)
            withdraw_pending(RunFolder(folder))
    except InputError:
        if new:
            discard_unasked(folder)
        raise
    except (DriftError, ForeignJournal) as error:
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


def _rehearse_sending(found: StudyFile) -> None:
    """Play the study small, with all that would go to another machine sent and received. Raises
    where something cannot go, before anything is asked."""
    small = limited(found, 2) if found.study.limit is not None else found
    direct = {"budget_usd": None, "budget_calls": REHEARSED_CALLS}
    with tempfile.TemporaryDirectory(prefix="folkmoot-rehearsal-") as folder:
        config = small.config.model_copy(update=direct)
        config = found.study.rehearsal(config, Path(folder))
        here = RunOptions(model=LOCAL, out=Path(folder) / "run", away=sending_rehearsed())
        with suppress(BudgetReached):
            run_study(replace(small, config=config), here)


def providers_of(found: StudyFile, options: RunOptions) -> Providers:
    """The models of a run of this file."""
    seats = found.study.seat_models(found.config)
    part = found.study.respondent
    given = (options.model or found.override, options.key, options.provider)
    providers = Providers(found.config, *given, seats, respondent=part)
    return providers.change_for(options.change)


def check_models(found: StudyFile, options: RunOptions) -> None:
    """Raise InputError for every model of a run that is unknown, has no key, or cannot do what the
    study needs."""
    images = found.study.images(found.config)
    providers = providers_of(found, options)
    providers.check(embeds=found.study.embeds, images=images, file=str(found.path))


def folder_of(found: StudyFile, options: RunOptions) -> Path:
    """Where a run of this file lies."""
    return options.out if options.out is not None else OUTPUTS / found.run_id
