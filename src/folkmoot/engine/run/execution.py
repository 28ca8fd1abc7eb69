"""One process of a run: from the open folder to the manifest, however it ends.

Seals the design, runs the protocol, keeps every reply, writes tables and manifest. The runner is
its only user; a run that was resumed twice took three processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any

import polars as pl

from folkmoot.engine.calls.gateway import Gateway, uncountable
from folkmoot.engine.calls.model_routing import Providers
from folkmoot.engine.calls.progress import (
    Notice,
    Outcome,
    Progress,
    RunEnded,
    RunLog,
    RunStarted,
    broadcast,
    silent,
)
from folkmoot.engine.calls.retries import Allowance, Halted
from folkmoot.engine.journal.earlier_replies import EarlierReplies, ReplyChange
from folkmoot.engine.journal.integrity import digest_of_run
from folkmoot.engine.journal.journal import Journal, JournalReader, Replay
from folkmoot.engine.run.event_loop import Stopper, interruptible, release_free_memory
from folkmoot.engine.run.preflight import preflight
from folkmoot.engine.run.study_language import describe_language
from folkmoot.engine.seats.seat_manager import Desk
from folkmoot.engine.seats.seats import Playable
from folkmoot.engine.session.folder_access import open_journal, write_settings
from folkmoot.engine.session.plan import CLAIMS, DESIGN, FORK, SEATS, Plan
from folkmoot.engine.session.run_context import Away, RunContext
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.author_errors import watching_awaits
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import Study, claims_of, seats_of, take_complete_parts
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import (
    ForeignJournal,
    InputError,
    Problem,
    ProtocolError,
    RunInterrupted,
    RunPaused,
)
from folkmoot.files import storage_errors
from folkmoot.measures.inference.estimates import dollars, plural
from folkmoot.models.api_keys import scrub
from folkmoot.models.catalog import is_local
from folkmoot.models.request import Provider, Request
from folkmoot.respondent.mind.knobs import planted
from folkmoot.storage.json_files import write_json
from folkmoot.storage.manifest import (
    RunFacts,
    describe_possibly_paid,
    file_hashes,
    manifest,
    seal_manifest,
)
from folkmoot.storage.rows import declared, meanings
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PERSONAS,
    PLAN,
    STUDY_FILE,
    TABLES,
    RunFolder,
    time_of_day,
)
from folkmoot.storage.table_buffer import Recording
from folkmoot.storage.tables import codebook, write_table

# Serves the pages of a desk while the context is open; leaving it in peace lets people see the end.
Host = Callable[[Desk], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class RunOptions:
    """What the command line adds to a study file. `provider` answers everything (tests)."""

    model: str | None = None
    out: Path | None = None
    resume: bool = False
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    concurrency: int | None = None
    budget: float | None = None
    seed: int | None = None
    batch: bool = False
    preflight: tuple[Request, ...] = ()  # asked before the study begins
    key: str | None = field(default=None, repr=False)
    accept_changes: bool = False
    provider: Provider | None = None
    progress: Progress = silent
    consent: Consent = field(default=Consent())
    seats: tuple[str, ...] = ()  # participants whom people play, beside those of the study file
    host: Host | None = None  # serves the pages of the seats
    executor: str | None = None  # where parts run: "ray", or the address of a cluster of Ray's
    away: Away | None = None  # the same, from Python
    rehearsal: bool = False  # a dry run: its calls count, and nobody reads its tables
    workers: int | None = None  # how many of them; None: one for each processor of the cluster
    change: ReplyChange | None = None  # the run repeats another one but for this reply

    def as_overrides(self) -> tuple[str, ...]:
        """The flags that stand for keys of the study file."""
        flags = {
            "concurrency": self.concurrency,
            "budget_usd": self.budget,
            "random_seed": self.seed,
            "batch": self.batch or None,
        }
        return (*self.overrides, *(f"{k}={v}" for k, v in flags.items() if v is not None))


SOME_TIME = "at some time"  # stands for the time of day in the files of a replay

# Keys that say how to call and not what to study: they may change on a resume.
OPERATIONAL = frozenset(
    {
        *("concurrency", "max_api_retries", "api_retry_base_seconds", "api_sleep_seconds"),
        *("request_timeout_seconds", "max_reply_mb", "quota_wait_seconds"),
        *("budget_usd", "budget_calls", "endpoints", "prompts", "model", "models", "local"),
        *("batch", "batch_at_least", "batch_poll_seconds"),
    }
)

WITH_TABLES = ("done", "paused")  # outcomes with which tables are written

# Parse steps of answers that nobody could read; a protocol's minimal structure is no reading.
UNREAD = ("missing", "minimal")


@dataclass(frozen=True)
class Execution:
    """What one process of a run needs to know."""

    found: StudyFile
    options: RunOptions
    providers: Providers
    folder: Path
    stopper: Stopper
    replay: Replay | None = None  # a journal that gives all answers; then no model is asked
    allowance: Allowance | None = None  # budget and limiter, where several runs share them


async def execute(execution: Execution) -> None:
    """Run the study from where it stands to its end, or until something stops it.

    Whatever is raised, replies in flight are awaited, all replies are on the disk, and the log and
    the manifest say how it ended. A resume that fails before anything new was put into the journal
    leaves every file as it was: until then log, settings and the study's files are held back.
    """
    secrets = execution.providers.secrets
    held = execution.options.resume
    log = RunLog(execution.folder, scrub=lambda text: scrub(text, secrets), held=held)
    progress = broadcast(execution.options.progress, log)
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(log.close)
        journal = _journal(execution)
        stack.callback(journal.close)
        context = _context(execution, journal, progress)
        end = _End(progress, secrets)
        stack.callback(lambda: context.close_rows(keep=end.outcome not in WITH_TABLES))
        stack.callback(context.discard_held_files)

        _hold_back(execution, context, log)
        if context.desk is not None and execution.options.host is not None:
            await stack.enter_async_context(execution.options.host(context.desk))
        try:
            await _protocol(execution, context)
            end.outcome = "done"
        except BaseException as error:
            end.by(error)
            if isinstance(error, (KeyboardInterrupt, CancelledError)):
                raise RunInterrupted from None
            raise
        finally:
            try:
                if held and end.outcome in ("failed", "interrupted") and not journal.changed:
                    await _let_go(context)
                else:
                    journal.tell_change()
                    await _finish(execution, context, end, began)
            except BaseException as error:
                end.by(error)
                if isinstance(error, Exception):  # what is left to do: to say so
                    await _finish(execution, context, end, began)
                raise
            finally:
                await context.gateway.close()
                if context.desk is not None:
                    execution.stopper.halt = context.desk.let_go
                end.tell()


@dataclass
class _End:
    """How a process ended; told once, and again only if that changes."""

    progress: Progress
    secrets: Collection[str]
    outcome: Outcome = "failed"
    message: str = ""
    told: Outcome | None = None

    def by(self, error: BaseException) -> None:
        self.outcome, self.message = _ended_by(error)

    def tell(self, unusable: str = "") -> None:
        if self.told != self.outcome:
            self.told = self.outcome
            self.progress(RunEnded(self.outcome, scrub(self.message or unusable, self.secrets)))


def _hold_back(execution: Execution, context: RunContext, log: RunLog) -> None:
    """On a resume, write no file before the journal changes, or the run ends well."""

    def begin_writing() -> None:
        log.release()
        write_settings(execution.folder, execution.found.config)  # it may call in another way
        context.write_held_files()

    if execution.options.resume:
        context.held_files = {}
        context.journal.before_change = begin_writing
    else:
        begin_writing()


def _journal(execution: Execution) -> Journal | Replay:
    if execution.replay is not None:
        return execution.replay
    return open_journal(execution.folder, accept_changes=execution.options.accept_changes)


def _ended_by(error: BaseException) -> tuple[Outcome, str]:
    if isinstance(error, RunPaused):
        return "paused", str(error)
    if isinstance(error, (KeyboardInterrupt, CancelledError)):
        return "interrupted", "stopped by the user"
    return "failed", str(error) or type(error).__name__


def _context(execution: Execution, journal: Journal | Replay, progress: Progress) -> RunContext:
    found, providers, folder = execution.found, execution.providers, execution.folder
    config = found.config
    if execution.options.executor is not None and journal.batches():
        raise InputError(
            "--executor: calls of this run were handed in by batches, and one process picks them "
            "up; leave out --executor"
        )
    unpriced = unpriced_in(journal)
    if config.budget_usd is not None and unpriced and execution.replay is None:
        raise InputError(unknown_cost(unpriced))
    seats = seats_of(found.study, config, found.folder)
    plan = Plan(
        folder / PLAN,
        started_at=time_of_day(),
        study_file=relative_path(found.path, folder),
        accept_changes=execution.options.accept_changes,
    )
    change = execution.options.change
    if change is not None:
        plan.seal(FORK, change.to_json())
        if isinstance(journal, Journal):
            journal.earlier = open_earlier(folder, change, journal)
    seal_registration(plan, found, providers, seats)
    if journal.repaired:  # what follows from answers that are asked again may be another
        plan.accept_changes()
    desk = None
    if seats and config.seats is not None and execution.options.host is not None:
        readers = tuple(m for m in dict.fromkeys(providers.named()) if not is_local(m))
        desk = Desk(seats, config.seats, folder, readers)
    gateway = Gateway(journal, providers.open, config, progress, execution.allowance, desk)
    now = time_of_day if execution.replay is None else lambda: SOME_TIME
    return RunContext(
        config,
        found.prompts(),
        declared(found.study.tables),
        found.folder,
        folder,
        providers,
        journal,
        gateway,
        plan,
        progress,
        now,
        seats=seats,
        desk=desk,
        change=change,
    )


def open_earlier(folder: Path, change: ReplyChange, journal: Journal) -> EarlierReplies:
    """The replies of the run that this one repeats. The personas that were drawn there are copied.

    Raises StorageError where that run is gone, or its journal is another than the plan says.
    """
    source = folder / change.run
    earlier = JournalReader(source / JOURNAL)
    if earlier.content_digest() != change.journal_digest:
        earlier.close()
        raise ForeignJournal(
            f"{source / JOURNAL}: is not the journal of which {folder} is a fork; put that run back"
        )
    if (source / PERSONAS).exists() and not (folder / PERSONAS).exists():
        with storage_errors(folder):
            copyfile(source / PERSONAS, folder / PERSONAS)
    return EarlierReplies(earlier, change, is_changed=journal.row_of(change.address) > 0)


def unpriced_in(journal: JournalReader) -> list[str]:
    """Models with calls of unknown cost, as words; calls of killed processes have no model."""
    _, _, unpriced = journal.spent()
    if any(loan.max_usd is None for loan in journal.loans()):
        return [*unpriced, "a model of unknown price by a process that was killed"]
    return unpriced


def unknown_cost(models: Sequence[str]) -> str:
    """The sentence for models whose earlier calls have an unknown cost, so that no budget in money
    can hold."""
    return uncountable(f"what {', '.join(models)} was asked earlier has an unknown cost")


async def _protocol(execution: Execution, context: RunContext) -> None:
    """Run the study itself, stoppable by Ctrl-C."""
    found, providers = execution.found, execution.providers
    context.progress(
        RunStarted(
            found.run_id,
            str(context.folder),
            found.study.name,
            providers.who,
            context.seed,
            execution.options.resume,
            providers.synthetic,
        )
    )
    if language := describe_language(found, providers):
        context.progress(Notice(language, "warning"))
    own = not str(getattr(found.study.protocol, "__module__", "")).startswith("folkmoot.")
    with interruptible(context, execution.stopper):
        async with _away(execution, context):
            with watching_awaits(context.forgotten.append) if own else contextlib.nullcontext():
                if execution.options.preflight:
                    await preflight(context, execution.options.preflight, embeds=found.study.embeds)
                try:
                    await found.study.protocol(Session(context))
                except SystemExit as error:
                    raise ProtocolError("the study ended the process") from error
        context.check_awaited()
    if context.halted is not None:
        raise context.halted


@contextlib.asynccontextmanager
async def _away(execution: Execution, context: RunContext) -> AsyncIterator[None]:
    """Where parts run that need not run in this process, if the caller says so."""
    options = execution.options
    if options.executor is None or execution.replay is not None:
        context.away = options.away
        yield
        return
    from folkmoot.engine.cluster.head import cluster  # Ray is an extra

    where, workers, changes = options.executor, options.workers, context.journal.accept_changes
    started = cluster(context, execution.found, where, workers, accept_changes=changes)
    async with started as context.away:
        yield


def sending_rehearsed() -> Away:
    """Runs parts in this process, sent and received as if it were another."""
    from folkmoot.engine.cluster.pickling import sent_and_run_here  # Ray is an extra

    return sent_and_run_here


def seal_registration(
    plan: Plan, found: StudyFile, providers: Providers, seats: Sequence[Playable] | None = None
) -> None:
    """Seal what is fixed before the first call: the design, what it compares, and the seats."""
    begun = bool(plan.sealed(DESIGN))
    plan.seal(DESIGN, design_of(found, providers, plan.sealed(DESIGN)))
    if not begun:  # a resume keeps the claims as they were stated, and adds none after the calls
        claims = claims_of(found.study, found.config)
        plan.seal(CLAIMS, [asdict(claim) for claim in claims])
    places = seats_of(found.study, found.config, found.folder) if seats is None else seats
    if places:
        plan.seal(SEATS, [place.name for place in places])


def design_of(found: StudyFile, providers: Providers, sealed: Mapping[str, Any]) -> dict[str, Any]:
    """The design as it is sealed. `sealed`: as it was when the run began, empty before that."""
    providers.keep_embedding(sealed.get("embedding_model"))
    embedding = providers.embedding
    settings = found.config.model_dump(mode="json", exclude=set(OPERATIONAL))
    if earlier := sealed.get("settings"):
        # What this version could not be told when the run began stands at its default.
        unset = found.config.model_dump(mode="json", exclude_defaults=True)
        settings = {k: v for k, v in settings.items() if k in earlier or k in unset}
    return {
        "study": found.study.name,
        "settings": settings,
        "model": providers.default,
        "models": {} if providers.override else dict(found.config.models),
        **_sealed_seats(found, providers, sealed),
        "embedding_model": None if isinstance(embedding, Problem) else embedding,
        "prompts": found.prompts().hashes(),
    }


def _sealed_seats(
    found: StudyFile, providers: Providers, sealed: Mapping[str, Any]
) -> dict[str, Any]:
    """The models that seats name by themselves. Plans of earlier versions do not hold them."""
    if sealed and "seat_models" not in sealed:
        return {}
    seats = [] if providers.override else found.study.seat_models(found.config)
    return {"seat_models": seats}


async def _let_go(context: RunContext) -> None:
    """Close what a process holds that changed nothing."""
    context.gateway.stop(Halted("the run is over"))
    await context.gateway.drain()
    context.plan.restore()
    context.journal.close()


async def _finish(execution: Execution, context: RunContext, end: _End, began: float) -> None:
    """Keep every reply; write tables of what is done or paused, and the manifest in any case.

    The tables of a paused run hold what there is; the manifest says `paused`, and so does whatever
    is made from them. They are written again when the run continues to its end. The end of the run
    is announced before the manifest is written, because the manifest holds the hashes of the logs.
    """
    outcome = end.outcome
    try:
        context.gateway.stop(Halted("the run is over"))
        await context.gateway.drain()
        context.plan.write()
        if outcome == "done":
            context.journal.end_repair()
        context.journal.close()
        if execution.options.rehearsal:
            return
        if context.large:
            release_free_memory()
        tables: dict[str, pl.LazyFrame] = {}
        if outcome in WITH_TABLES:
            for name, table in context.recorded():
                tables[name] = write_table(context.folder / TABLES, name, table)
            study = execution.found.study
            run = RunFolder(context.folder)
            covered = run if outcome == "done" else take_complete_parts(study, run)
            for name, table in _afterwards(study, context):
                tables[name] = write_table(context.folder / TABLES, name, table)
            _write_codebook(execution, tables)
            with JournalReader(context.journal.path) as journal:
                for name, content in study.derived(covered, journal):
                    context.write_content(name, content)
        unusable = _unusable(execution, tables) if outcome == "done" else ""
        if told := money_in(context.folder):
            context.progress(Notice(told, "warning"))
        end.tell(unusable)
        seconds = time.monotonic() - began
        facts = _facts(execution, context, outcome, seconds, unusable)
        write_json(context.folder / MANIFEST, seal_manifest(manifest(facts, tables)))
    except Exception:
        # What stopped the run matters more than what stopped the tidying up.
        if outcome == "done":
            raise


def _afterwards(
    study: Study, context: RunContext
) -> Iterator[tuple[str, pl.DataFrame | pl.LazyFrame]]:
    """The tables that the study makes of what the run left. Should that fail, the run is paid for
    and stands: the log says what is missing, and half a table is not taken for a whole one."""
    made: dict[str, Recording] = {}
    try:
        with JournalReader(context.journal.path) as journal:
            left = RunFolder(context.folder), journal, context.prompts.wording()
            for row in study.afterwards(*left):
                made.setdefault(row.table, context.new_recording(row.table)).add(row.cells())
    except Exception as error:
        made.clear()
        context.warn((), f"tables made of the journal are missing: {error!r}")
    for name, recording in made.items():
        yield name, recording.table()


def _unusable(execution: Execution, tables: Mapping[str, pl.LazyFrame]) -> str:
    """Why nothing in the run is of use: the study's own reason, or no answer could be read."""
    own = execution.found.study.unusable(RunFolder(execution.folder))
    answers = tables.get("answers")
    if not own and answers is not None:
        steps = answers.select("parse_step").collect().to_series()
        if steps.len() and steps.is_in(UNREAD).all():
            return f"none of the {steps.len():,} answers could be read"
    return own


def _write_codebook(execution: Execution, tables: Mapping[str, pl.LazyFrame]) -> None:
    study = execution.found.study
    write_json(
        execution.folder / CODEBOOK, codebook(tables, {**study.codebook, **meanings(study.tables)})
    )


def _facts(
    execution: Execution,
    context: RunContext,
    outcome: Outcome,
    seconds: float,
    unusable: str,
) -> RunFacts:
    found = execution.found
    written = [PLAN, STUDY_FILE, CODEBOOK, PERSONAS, LOG, LOG_LINES, *context.written]
    tables = (p.relative_to(context.folder).as_posix() for p in _tables(context.folder))
    return RunFacts(
        run_id=found.run_id,
        study=found.study.name,
        outcome=outcome,
        unusable=unusable,
        seed=context.seed,
        synthetic=context.synthetic_roles(),
        people=len(context.sat),
        started_at=context.plan.started_at,
        finished_at=time_of_day(),
        wall_seconds=seconds,
        earlier=RunFolder(context.folder).manifest,
        models=context.gateway.uses,
        roles=context.roles(),
        embedding_model=str(context.providers.embedding) if context.embedded else "",
        override=context.providers.override,
        scripted=context.providers.scripted,
        study_file=relative_path(found.path, context.folder),
        hashes=file_hashes(context.folder, {*written, *tables}),
        journal_digest=context.journal.content_digest(),
        record_digest=digest_of_run(context.journal.record_digest(), context.plan.data),
        handed_in=_handed_in(context),
        broken=_broken_replies(context),
        possibly_paid=_possibly_paid(context),
        planted=_planted(found) if context.synthetic_roles() else {},
        asked_longer=context.longer,
        fork=_fork(context),
    )


def _fork(context: RunContext) -> dict[str, object]:
    """Of a fork: the reply in which it differs, and how many calls it asked and took over."""
    if context.change is None:
        return {}
    told = context.change.to_json()
    del told["run"], told["asked_again"]  # they are in the plan
    with JournalReader(context.journal.path) as journal:
        asked, taken_over = (len(journal.calls(taken_over=both)) for both in (False, True))
    return {**told, "asked": asked, "taken_over": taken_over}


def _handed_in(context: RunContext) -> int:
    """Calls that were handed in by batches, those of earlier processes and re-asks included."""
    with JournalReader(context.journal.path) as journal:
        return sum(batch.calls for batch in journal.batches().values() if batch.id)


def _broken_replies(context: RunContext) -> list[tuple[str, float | None]]:
    """Replies that broke off and may have been billed, those of earlier processes included."""
    with JournalReader(context.journal.path) as journal:
        return [(broken.model, broken.max_usd) for broken in journal.broken()]


def money_in(folder: Path) -> str:
    """What a run that is not under way has paid and what it has possibly paid, in words; empty
    where nothing was possibly paid."""
    if not (folder / JOURNAL).exists():
        return ""
    with JournalReader(folder / JOURNAL) as journal:
        calls, usd, unpriced = journal.spent()
        loans = journal.loans()
        possible = journal.possibly_paid()
    if not possible.calls:
        return ""
    unknown = any(loan.max_usd is None for loan in loans)
    told = describe_possibly_paid(possible.calls, None if unknown else possible.usd)
    plus = " and an unknown cost" if unpriced else ""
    return f"Paid {dollars(usd)}{plus} ({plural(calls, 'call')}); {told}"


def _possibly_paid(context: RunContext) -> list[tuple[str, int, float | None]]:
    """What killed processes and workers had out: who, calls, their cost at most (USD)."""
    with JournalReader(context.journal.path) as journal:
        return [(loan.who, loan.calls, loan.max_usd) for loan in journal.loans()]


def relative_path(path: Path, folder: Path) -> str:
    """A path as seen from a folder; its name alone where there is no way."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.name


def _planted(found: StudyFile) -> dict[str, object]:
    return planted(found.config.respondent)


def _tables(folder: Path) -> list[Path]:
    return sorted((folder / TABLES).glob("[!.]*"))
