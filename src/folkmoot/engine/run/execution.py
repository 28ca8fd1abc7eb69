"""Execute one process of a run: fix the design, run the protocol, write the results."""

# Each resume is a further process of the same run. Whenever a process ends, it keeps every reply
# and writes the manifest. `runner` and `grid` start a process for runs, `verify` for replays.

from __future__ import annotations

import contextlib
import os
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from folkmoot.engine.calls.gateway import Gateway, create_limits
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.calls.progress import (
    Notice,
    Outcome,
    Progress,
    RunEnded,
    RunLog,
    RunStarted,
    combine_progress,
    ignore_progress,
)
from folkmoot.engine.calls.retries import RunHaltedError, SharedLimits
from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.journal.integrity import digest_of_run
from folkmoot.engine.journal.journal import Journal
from folkmoot.engine.journal.journal_reader import JournalReader, ReplayJournal
from folkmoot.engine.run.event_loop import (
    RunStopper,
    end_halted_protocol,
    handle_interrupt,
    release_free_memory,
)
from folkmoot.engine.run.preflight import run_preflight
from folkmoot.engine.run.study_language import describe_language
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.arrivals import create_seat_manager, seat_arrivals
from folkmoot.engine.session.asking import is_unread
from folkmoot.engine.session.folder_access import open_journal, write_settings
from folkmoot.engine.session.fork_source import open_earlier
from folkmoot.engine.session.plan import (
    CLAIMS,
    DESIGN,
    FORK,
    SEATS,
    Plan,
    sealed_data,
    without_new_defaults,
)
from folkmoot.engine.session.run_context import ForkExecutor, RunContext
from folkmoot.engine.session.run_totals import (
    describe_fork,
    money_in,
    totals_of_run,
)
from folkmoot.engine.session.seat_questions import (
    ask_checks_before_study,
    ask_people_afterwards,
    record_announcements,
)
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.author_errors import report_unawaited_coroutines
from folkmoot.engine.settings.config import CALL_KEYS, StudyConfig
from folkmoot.engine.settings.option_kinds import check_option_kinds
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.derived_files import write_derived_files
from folkmoot.engine.study.study import (
    Study,
    claims_of,
    derive_tables,
    describe_tables,
    select_study_seats,
    take_complete_parts,
)
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import (
    InputError,
    Problem,
    ProtocolError,
    RunInterruptedError,
    RunPausedError,
)
from folkmoot.hints import join_first
from folkmoot.models.api_keys import key_redactor, redact_keys
from folkmoot.models.catalog import is_synthetic
from folkmoot.models.request import ModelRequest, Provider
from folkmoot.respondent.mind.knobs import planted_effects
from folkmoot.storage.json_files import write_json
from folkmoot.storage.manifest import (
    RunFacts,
    build_manifest,
    file_hashes,
    seal_manifest,
    software_versions,
)
from folkmoot.storage.rows import columns_of_class
from folkmoot.storage.run_folder import (
    CODEBOOK,
    LOG,
    LOG_LINES,
    MANIFEST,
    PERSONAS,
    PLAN,
    STUDY_FILE_NAME,
    TABLES,
    WITH_TABLES,
    RunFolder,
    utc_timestamp,
)
from folkmoot.storage.table_buffer import TableBuffer
from folkmoot.storage.tables import Table, write_table

# Serves the question pages of a seat manager while the context is open. An exit without an error
# leaves the pages up long enough for humans to see that the run has ended.
SeatHost = Callable[[SeatManager], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class RunOptions:
    """The options of one run, in addition to its study file.

    None means that the value of the study file is kept.

    - `model`: the model that answers for every role.
    - `out`: the run folder.
    - `resume`: continue a run that stopped.
    - `overrides`: settings of the study file, each as `key=value`.
    - `limit`: the largest number of participants or sessions.
    - `concurrency`: the largest number of calls at the same time.
    - `budget`: the most that the run may cost, in USD.
    - `seed`: the seed of all random choices.
    - `batch`: send calls through the vendors' batch APIs.
    - `progress`: receives the events of the run.
    - `seats`: the ids of participants that humans play.

    Example: `RunOptions(model="gpt-4o", budget=5.0, seed=7)`
    """

    model: str | None = None
    out: Path | None = None
    resume: bool = False
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    concurrency: int | None = None
    budget: float | None = None
    seed: int | None = None
    batch: bool = False
    # Requests that are asked before the study starts.
    preflight_requests: tuple[ModelRequest, ...] = ()
    # Without `repr`, so that no traceback or log line shows the API key.
    key: str | None = field(default=None, repr=False)
    accept_changes: bool = False
    # A provider in Python that answers every request, for example in tests.
    custom_provider: Provider | None = None
    progress: Progress = ignore_progress
    consent: Consent = field(default=Consent())
    # Ids of participants that humans play, in place of the ids that the study file names.
    seats: tuple[str, ...] = ()
    # Serves the question pages of the seats.
    seat_host: SeatHost | None = None
    # Where the items of forks run: "ray", or the address of a Ray cluster.
    executor: str | None = None
    # A fork executor given in Python, used if `executor` is None.
    fork_executor: ForkExecutor | None = None
    # This is a dry run. It writes no tables, because only its calls are counted.
    is_dry_run: bool = False
    # The number of Ray workers. None: one for each processor of the cluster.
    workers: int | None = None
    # The reply in which this run differs from the run that it forks.
    change: ReplyChange | None = None

    def __post_init__(self) -> None:
        check_option_kinds(vars(self))

    def to_overrides(self) -> tuple[str, ...]:
        """Return the options as overrides `key=value` of the study file."""
        # The overrides of `--set` come first, so that the other options replace values of the same
        # key.
        flags = {
            "concurrency": self.concurrency,
            "budget_usd": self.budget,
            "random_seed": self.seed,
            "batch": self.batch or None,
        }
        return (
            *self.overrides,
            *(f"{key}={flag}" for key, flag in flags.items() if flag is not None),
        )


# A replay writes this text in place of the time of day, so that its files can be compared.
TIME_PLACEHOLDER = "at some time"

# Keys that the settings of the sealed design leave out. On a resume, calls may be made in another
# way, and a local model may run with other settings. The design has its own entries for the models
# and for the texts of the prompts.
RESUMABLE_KEYS = CALL_KEYS | {"prompts", "model", "models", "local"}


@dataclass(frozen=True)
class Execution:
    """The input of one process of a run.

    - `replay`: if given, this journal answers all requests and no model is called.
    - `records_wordings`: whether the table of wordings for people is written.
    """

    study_file: StudyFile
    options: RunOptions
    providers: ModelRouter
    folder: Path
    stopper: RunStopper
    replay: ReplayJournal | None = None
    # False in the replay of a run whose version had no such table.
    records_wordings: bool = True
    # The budget and the rate limiter that several runs of a grid share.
    shared_limits: SharedLimits | None = None


async def execute_study(execution: Execution) -> None:
    """Run or resume a study until it ends or something stops it."""
    # Even after an error, replies in flight are awaited and written to disk. The log and the
    # manifest then say how the process ended. A resume that fails before it adds an entry to the
    # journal leaves every file unchanged.
    secrets = execution.providers.secrets
    is_resumed = execution.options.resume
    log = RunLog(execution.folder, make_scrub=lambda: key_redactor(secrets), held=is_resumed)
    progress = combine_progress(execution.options.progress, log)
    started_at = time.monotonic()
    # Callbacks run in reverse order: held files are dropped first, and the log is closed last, so
    # that it can still take what the others report.
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(log.close)
        journal = _open_journal(execution)
        stack.callback(journal.close)
        context = _build_run_context(execution, journal, progress)
        end = _End(progress, secrets)
        stack.callback(lambda: context.close_rows(keep=end.outcome not in WITH_TABLES))
        stack.callback(context.discard_held_files)

        _hold_back(execution, context, log)
        if context.seat_manager is not None and execution.options.seat_host is not None:
            await stack.enter_async_context(execution.options.seat_host(context.seat_manager))
        try:
            await _run_protocol(execution, context)
            end.outcome = "done"
        except BaseException as error:
            end.set_outcome(error)
            # Callers catch one type for both ways to interrupt a run.
            if isinstance(error, (KeyboardInterrupt, CancelledError)):
                raise RunInterruptedError from None
            raise
        finally:
            try:
                if is_resumed and end.outcome in ("failed", "interrupted") and not journal.changed:
                    await _close_without_outputs(context)
                else:
                    journal.notify_change()
                    await _write_outputs(execution, context, end, started_at)
            except BaseException as error:
                end.set_outcome(error)
                # The outputs could not be written. The outcome is now that of the error, and the
                # second call writes a manifest that names it.
                if isinstance(error, Exception):
                    await _write_outputs(execution, context, end, started_at)
                raise
            finally:
                await context.gateway.close()
                # The exit of `seat_host` waits for humans to read the last page. A further Ctrl-C
                # ends this wait.
                if context.seat_manager is not None:
                    execution.stopper.halt = context.seat_manager.stop_waiting
                end.report_end()


@dataclass
class _End:
    progress: Progress
    secrets: Collection[str]
    outcome: Outcome = "failed"
    message: str = ""
    reported_outcome: Outcome | None = None

    def set_outcome(self, error: BaseException) -> None:
        self.outcome, self.message = _outcome_of_error(error)

    def report_end(self, unusable: str = "") -> None:
        if self.reported_outcome != self.outcome:
            self.reported_outcome = self.outcome
            self.progress(
                RunEnded(self.outcome, redact_keys(self.message or unusable, self.secrets))
            )


def _hold_back(execution: Execution, context: RunContext, log: RunLog) -> None:
    # A resume writes files only after the journal has changed or the run is complete.
    def begin_writing() -> None:
        log.write_held_lines()
        # A resume may change keys that are not sealed, such as the concurrency. The settings of a
        # new run are written when its folder is made.
        if execution.options.resume or not (execution.folder / STUDY_FILE_NAME).exists():
            write_settings(execution.folder, execution.study_file.config)
        context.write_held_files()

    if execution.options.resume:
        context.held_files = {}
        context.journal.before_change = begin_writing
    else:
        begin_writing()


def _open_journal(execution: Execution) -> Journal | ReplayJournal:
    if execution.replay is not None:
        return execution.replay
    return open_journal(execution.folder, accept_changes=execution.options.accept_changes)


def _outcome_of_error(error: BaseException) -> tuple[Outcome, str]:
    if isinstance(error, RunPausedError):
        return "paused", str(error)
    if isinstance(error, (KeyboardInterrupt, CancelledError)):
        return "interrupted", "stopped by the user"
    return "failed", str(error) or type(error).__name__


def _build_run_context(
    execution: Execution, journal: Journal | ReplayJournal, progress: Progress
) -> RunContext:
    study_file, providers, folder = execution.study_file, execution.providers, execution.folder
    config = study_file.config
    if execution.options.executor is not None and journal.read_batches():
        raise InputError(
            "--executor: calls of this run were submitted through the batch API, and a single "
            "process fetches their results; leave out --executor"
        )
    # Limits that several runs share have counted what was spent already.
    limits = execution.shared_limits or create_limits(journal, config, progress)
    seats = select_study_seats(study_file.study, config, study_file.study_folder)
    plan = Plan(
        folder / PLAN,
        started_at=utc_timestamp(),
        study_file=relative_path(study_file.path, folder),
        accept_changes=execution.options.accept_changes,
    )
    change = execution.options.change
    if change is not None:
        plan.seal_part(FORK, change.to_json())
        # A replay needs no earlier replies: the journal of the fork holds copies of them.
        if isinstance(journal, Journal):
            journal.earlier = open_earlier(folder, change, journal)
            plan.repeated = sealed_data(RunFolder(folder / change.run).plan)
    seal_registration(plan, study_file, providers, seats)
    # A repair sets damaged answers aside. The new answers may differ, and so may parts of the plan
    # that the protocol seals later. This must not stop the run as drift.
    if journal.repaired:
        plan.accept_changes()
    seat_manager = None
    if seats and config.seats is not None and execution.options.seat_host is not None:
        readers = tuple(
            model for model in dict.fromkeys(providers.list_models()) if not is_synthetic(model)
        )
        seat_manager = create_seat_manager(config, seats, folder, readers, plan)
    gateway = Gateway(journal, providers.open_provider, config, progress, limits, seat_manager)
    clock = utc_timestamp if execution.replay is None else lambda: TIME_PLACEHOLDER
    prompts = study_file.prompt_library()
    # Also in a replay, which records the texts that humans have read.
    prompts.renders_for_people = bool(seats)
    return RunContext(
        config,
        prompts,
        columns_of_class(study_file.study.tables),
        study_file.study_folder,
        folder,
        providers,
        journal,
        gateway,
        plan,
        progress,
        clock,
        seats=seats,
        seat_manager=seat_manager,
        asks_people=not execution.options.is_dry_run,
        records_wordings=execution.records_wordings,
        change=change,
    )


async def _run_protocol(execution: Execution, context: RunContext) -> None:
    study_file, providers = execution.study_file, execution.providers
    context.progress(
        RunStarted(
            study_file.run_id,
            str(context.folder),
            study_file.study.name,
            providers.model_names_text,
            context.seed,
            execution.options.resume,
            providers.is_synthetic_only,
        )
    )
    if language := describe_language(study_file, providers):
        context.progress(Notice(language, "warning"))
    # Only a study author's own code is watched for a forgotten `await`: tests cover ours.
    is_own_study = not str(getattr(study_file.study.protocol, "__module__", "")).startswith(
        "folkmoot."
    )
    with handle_interrupt(context, execution.stopper):
        async with _open_executor(execution, context):
            with (
                end_halted_protocol(context),
                report_unawaited_coroutines(context.unawaited_errors.append)
                if is_own_study
                else contextlib.nullcontext(),
            ):
                if execution.options.preflight_requests:
                    await run_preflight(
                        context,
                        execution.options.preflight_requests,
                        uses_embeddings=study_file.study.uses_embeddings,
                    )
                if study_file.config.seats is not None and study_file.config.seats.open:
                    await seat_arrivals(context)
                await ask_checks_before_study(context)
                # SystemExit would skip all error reports, so it becomes an error of the study.
                try:
                    await study_file.study.protocol(Session(context))
                except SystemExit as error:
                    raise ProtocolError("the study ended the process") from error
                await ask_people_afterwards(context)
        context.check_awaited()
        record_announcements(context)
    # A protocol may swallow the exception that stopped its calls. The run must not count as done.
    if context.halt_cause is not None:
        raise context.halt_cause


@contextlib.asynccontextmanager
async def _open_executor(execution: Execution, context: RunContext) -> AsyncIterator[None]:
    options = execution.options
    # A replay reads the journal only, so it needs no cluster.
    if options.executor is None or execution.replay is not None:
        context.executor = options.fork_executor
        yield
        return
    # Imported here because Ray is an optional dependency.
    from folkmoot.engine.cluster.head import open_cluster

    address, workers, accept_changes = (
        options.executor,
        options.workers,
        context.journal.accept_changes,
    )
    cluster = open_cluster(
        context, execution.study_file, address, workers, accept_changes=accept_changes
    )
    async with cluster as context.executor:
        yield


def simulate_remote_execution() -> ForkExecutor:
    """Return an executor that runs items in this process, but pickles all data as for a cluster."""
    # A dry run with this executor shows whether everything can be sent to the workers of a cluster.
    # Imported here because Ray is an optional dependency.
    from folkmoot.engine.cluster.pickling import run_pickled_locally

    return run_pickled_locally


def seal_registration(
    plan: Plan, study_file: StudyFile, providers: ModelRouter, seats: Sequence[Seat] | None = None
) -> None:
    """Write the design, the planned comparisons and the seats to `plan.json`.

    A run does this before it calls a model. Raises DriftError if the file already holds a different
    design.
    """
    has_design = bool(plan.sealed_part(DESIGN))
    has_claims = CLAIMS in sealed_data(plan.data)
    plan.seal_part(DESIGN, build_design(study_file, providers, plan.sealed_part(DESIGN)))
    # A resume keeps the claims as they were stated. It must not add claims after the first calls.
    if not has_design and not has_claims:
        seal_claims(plan, study_file.study, study_file.config)
    all_seats = (
        select_study_seats(study_file.study, study_file.config, study_file.study_folder)
        if seats is None
        else seats
    )
    if all_seats:
        plan.seal_part(SEATS, [seat.name for seat in all_seats])


def seal_claims(plan: Plan, study: Study, config: StudyConfig) -> None:
    """Write the planned comparisons of a study to `plan.json`."""
    plan.seal_part(CLAIMS, [asdict(claim) for claim in claims_of(study, config)])


def build_design(
    study_file: StudyFile, providers: ModelRouter, sealed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the design of a study in the form that `plan.json` stores.

    `sealed`: the design that `plan.json` already contains. It is empty when the run first starts.
    """
    # The sealed design decides the embedding model and which settings are compared.
    # The embedding model is restored before it is read below: a resume uses the sealed model, even
    # if another one would be chosen today.
    providers.restore_sealed_embedding(sealed.get("embedding_model"))
    embedding = providers.embedding_choice
    settings = study_file.config.model_dump(mode="json", exclude=set(RESUMABLE_KEYS))
    if earlier_settings := sealed.get("settings"):
        # A newer version may have added keys. Their default is the behaviour of the earlier
        # version, so a new key at its default is no change of the design.
        non_defaults = study_file.config.model_dump(mode="json", exclude_defaults=True)
        settings = without_new_defaults(settings, earlier_settings, non_defaults)
    prompts = study_file.prompt_library().hashes()
    if earlier_prompts := sealed.get("prompts"):
        # A newer version may have added prompts, which this run has never used.
        prompts = {name: value for name, value in prompts.items() if name in earlier_prompts}
    return {
        "study": study_file.study.name,
        "settings": settings,
        "model": providers.default,
        "models": {} if providers.override else dict(study_file.config.models),
        **_models_of_speakers(study_file, providers, sealed),
        "embedding_model": None if isinstance(embedding, Problem) else embedding,
        "prompts": prompts,
    }


def _models_of_speakers(
    study_file: StudyFile, providers: ModelRouter, sealed: Mapping[str, Any]
) -> dict[str, Any]:
    # Plans of earlier versions lack these models, so a resume of such a run leaves them out.
    if sealed and "seat_models" not in sealed:
        return {}
    seat_models = [] if providers.override else study_file.study.extra_models(study_file.config)
    return {"seat_models": seat_models}


async def _close_without_outputs(context: RunContext) -> None:
    # A resume changed nothing, so its tables and manifest stay as they are.
    context.gateway.stop_calls(RunHaltedError("the run is over"))
    await context.gateway.wait_for_calls_in_flight()
    context.plan.restore_file()
    context.journal.close()


async def _write_outputs(
    execution: Execution, context: RunContext, end: _End, started_at: float
) -> None:
    # The tables of a paused run hold the rows so far. They are written again when it continues.
    outcome = end.outcome
    try:
        # No new call may start while the journal is closed. Calls in flight are paid for, so they
        # are awaited and journaled first.
        context.gateway.stop_calls(RunHaltedError("the run is over"))
        await context.gateway.wait_for_calls_in_flight()
        context.plan.write_plan()
        if outcome == "done":
            context.journal.end_repair()
        # The digests in the manifest cover committed entries only, so the journal is closed here.
        context.journal.close()
        if execution.options.is_dry_run:
            # These tables show which hypotheses the study cannot test.
            if outcome == "done" and execution.study_file.config.hypotheses:
                for name, table in context.recorded_tables():
                    write_table(context.folder / TABLES, name, table)
            return
        # Polars cannot reuse memory that Python has freed, so the peak would be the sum of both.
        if context.is_large:
            release_free_memory()
        tables: dict[str, Table] = {}
        if outcome == "done":
            _write_results(execution, context, outcome, tables)
            _warn_of_changed_tables(execution, context)
        elif outcome in WITH_TABLES:
            # The manifest states the cost, so it is written even if a study cannot make its files
            # from the few rows that exist.
            try:
                _write_results(execution, context, outcome, tables)
            except Exception as error:
                _log_incomplete(context, end, error)
        unusable = _unusable_reason(execution, tables) if outcome == "done" else ""
        if payment_note := money_in(context.folder):
            context.progress(Notice(payment_note, "warning"))
        # The end is reported before the manifest is written, because the report adds a line to the
        # logs and the manifest holds their hashes.
        end.report_end(unusable)
        seconds = time.monotonic() - started_at
        facts = _collect_run_facts(execution, context, outcome, seconds, unusable)
        write_json(context.folder / MANIFEST, seal_manifest(build_manifest(facts, tables)))
    except Exception as error:
        # If the run has already failed or stopped, the first error is more useful, so this one is
        # only logged. Logging may fail too, because the disk may be full.
        if outcome == "done":
            raise
        with suppress(Exception):
            _log_incomplete(context, end, error)


def _log_incomplete(context: RunContext, end: _End, error: Exception) -> None:
    reason = redact_keys(str(error), end.secrets)
    context.log_warning((), f"the outputs of this run are not complete: {reason}")


def _write_results(
    execution: Execution, context: RunContext, outcome: Outcome, tables: dict[str, Table]
) -> None:
    # Write the tables, the codebook and the study's own files. Adds each table to `tables`.
    if outcome != "done":
        context.ensure_answers_table()
    for name, table in context.recorded_tables():
        tables[name] = write_table(context.folder / TABLES, name, table)
    study = execution.study_file.study
    run = RunFolder(context.folder)
    covered_run = run if outcome == "done" else take_complete_parts(study, run)
    for name, buffer in _derive_tables(study, context, covered_run, outcome).items():
        tables[name] = write_table(context.folder / TABLES, name, buffer.to_frame())
    _write_codebook(execution, tables)
    with JournalReader(context.journal.path) as journal:
        write_derived_files(study, covered_run, journal, context.write_content)


def _warn_of_changed_tables(execution: Execution, context: RunContext) -> None:
    # Compares the tables of a finished run that was run again with those that its manifest names.
    earlier = RunFolder(context.folder).manifest
    is_repeated = execution.options.resume and not context.journal.changed
    # Another version of Folkmoot or polars may write other bytes.
    if (
        not is_repeated
        or earlier.get("outcome") != "done"
        or earlier.get("software") != software_versions()
    ):
        return
    hashes: dict[str, str] = earlier.get("hashes", {})
    hashes = {name: text for name, text in hashes.items() if name.startswith(f"{TABLES}/")}
    current = file_hashes(context.folder, hashes)
    if changed := sorted({Path(name).stem for name in hashes if current.get(name) != hashes[name]}):
        message = (
            f"the tables of this finished run changed without a new reply ({join_first(changed)}): "
            "the study's code was edited, or it uses the time or random numbers of its own; "
            "use scope.rng"
        )
        context.progress(Notice(message, "warning"))


def _derive_tables(
    study: Study, context: RunContext, covered_run: RunFolder, outcome: Outcome
) -> dict[str, TableBuffer]:
    try:
        return derive_tables(study, covered_run, context.journal.path, context.new_recording)
    except Exception as error:
        # Findings and controls would take an empty table of a finished run for a result. All
        # answers are in the journal, so the corrected study finishes the run at no cost.
        if outcome == "done":
            raise
        # The rows of an unfinished run may lack what the study's code expects. A table with half
        # of its rows would look complete, so it is empty then.
        context.log_warning((), f"tables made of others are empty: {error!r}")
        return {}


def _unusable_reason(execution: Execution, tables: Mapping[str, Table]) -> str:
    study_reason = execution.study_file.study.unusable_reason(RunFolder(execution.folder))
    answers = tables.get("answers")
    if not study_reason and answers is not None:
        cells = answers.lazy().select("missing", "parse_step").collect()
        if cells.height and all(is_unread(*row) for row in cells.unique().iter_rows()):
            return f"none of the {cells.height:,} answers could be read"
    return study_reason


def _write_codebook(execution: Execution, tables: Mapping[str, Table]) -> None:
    write_json(execution.folder / CODEBOOK, describe_tables(execution.study_file.study, tables))


def _collect_run_facts(
    execution: Execution,
    context: RunContext,
    outcome: Outcome,
    seconds: float,
    unusable: str,
) -> RunFacts:
    study_file = execution.study_file
    file_names = [PLAN, STUDY_FILE_NAME, CODEBOOK, PERSONAS, LOG, LOG_LINES, *context.study_files]
    tables = (path.relative_to(context.folder).as_posix() for path in _read_tables(context.folder))
    return RunFacts(
        run_id=study_file.run_id,
        study=study_file.study.name,
        outcome=outcome,
        unusable_reason=unusable,
        seed=context.seed,
        synthetic=context.synthetic_roles(),
        people=len(context.answered_seats),
        started_at=context.plan.started_at,
        finished_at=utc_timestamp(),
        wall_seconds=seconds,
        earlier_manifest=RunFolder(context.folder).manifest,
        **totals_of_run(context)._asdict(),
        roles=context.roles_by_model(),
        embedding_model=str(context.providers.embedding_choice) if context.embedded else "",
        model_override=context.providers.override,
        scripted=context.providers.has_custom_provider,
        study_file=relative_path(study_file.path, context.folder),
        hashes=file_hashes(context.folder, {*file_names, *tables}),
        journal_digest=context.journal.content_digest(),
        record_digest=digest_of_run(context.journal.record_digest(), context.plan.data),
        abandoned_calls=context.journal.has_own_loan,
        planted=_planted_effects(study_file) if context.synthetic_roles() else {},
        cut_retry_usage=context.cut_retry_usage,
        fork=describe_fork(context),
    )


def relative_path(path: Path, folder: Path) -> str:
    """Return a path relative to a folder.

    Returns only the file name if there is no relative path.
    """
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    # On Windows there is no relative path between two drives.
    except ValueError:
        return path.name


def _planted_effects(study_file: StudyFile) -> dict[str, object]:
    return planted_effects(study_file.config.respondent)


def _read_tables(folder: Path) -> list[Path]:
    # Files with a leading dot are temporary files of a write that was interrupted.
    return sorted((folder / TABLES).glob("[!.]*"))
