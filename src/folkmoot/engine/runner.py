"""The runner: one execution of a study file, from the first look at it to the manifest.

Opens (or resumes) the run folder, seals the plan, runs the protocol, writes tables and manifest.
The command line and `folkmoot.run` are its users.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from folkmoot.engine.context import Halted, RunContext
from folkmoot.engine.folder import held_folder, open_folder
from folkmoot.engine.gateway import Gateway, GatewayEvent, GatewaySettings
from folkmoot.engine.journal import Entry, Journal
from folkmoot.engine.plan import Plan
from folkmoot.engine.progress import (
    CallDone,
    CallRetried,
    Event,
    Notice,
    Outcome,
    Progress,
    RunEnded,
    RunLog,
    RunStarted,
    broadcast,
    silent,
)
from folkmoot.engine.providers import Providers
from folkmoot.engine.session import Session
from folkmoot.engine.study import Study
from folkmoot.engine.study_file import StudyFile, load_study_file, validate
from folkmoot.errors import FolkmootError, InputError, RunPaused
from folkmoot.models.keys import scrub
from folkmoot.models.request import Provider
from folkmoot.records.codebook import codebook
from folkmoot.records.files import write_json
from folkmoot.records.findings import Finding
from folkmoot.records.manifest import ModelUse, RunFacts, file_hashes, manifest
from folkmoot.records.run_folder import CODEBOOK, MANIFEST, PLAN, TABLES, RunFolder
from folkmoot.records.tables import frame, write_table

JOURNAL = "journal.sqlite"
# Keys that say how to call and not what to study: they may change between sittings.
OPERATIONAL = frozenset(
    {
        *("concurrency", "max_api_retries", "api_retry_base_seconds", "api_sleep_seconds"),
        *("request_timeout_seconds", "quota_wait_seconds", "budget_usd", "budget_calls"),
        *("endpoints", "prompts"),
    }
)


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
    key: str | None = field(default=None, repr=False)
    accept_changes: bool = False
    provider: Provider | None = None
    progress: Progress = silent

    def as_overrides(self) -> tuple[str, ...]:
        """The flags that stand for keys of the study file."""
        flags = {
            "concurrency": self.concurrency,
            "budget_usd": self.budget,
            "random_seed": self.seed,
        }
        return (*self.overrides, *(f"{k}={v}" for k, v in flags.items() if v is not None))


@dataclass(frozen=True)
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

    def table(self, name: str) -> Any:
        return self.folder.table(name)

    def findings(self) -> list[Finding]:
        """What the study found, as the report shows it."""
        return self.study.findings(self.folder)


def load(source: Path | str, options: RunOptions) -> StudyFile:
    """The study file with the command line's settings in it. Raises InputError, writes nothing."""
    return limited(load_study_file(source, options.as_overrides()), options.limit)


def from_python(study: Study, settings: Mapping[str, Any], options: RunOptions) -> StudyFile:
    """A study given as a type and a dictionary of settings."""
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


def run_study(found: StudyFile, options: RunOptions) -> Run:
    """Run (or resume) a study to its end.

    Raises RunExists, RunLocked, DriftError, RunPaused (resumable), KeyboardInterrupt (likewise),
    FatalModelError, StorageError; whatever is raised, every reply that was paid for is kept.
    """
    seats = found.study.seat_models(found.config)
    providers = Providers(found.config, options.model, options.key, options.provider, seats)
    providers.check()
    folder = open_folder(_folder_of(found, options), found.config, resume=options.resume)
    with held_folder(folder):
        _loop(lambda stopper: _run(found, options, providers, folder, stopper))
    return Run(RunFolder(folder), found.study)


def _folder_of(found: StudyFile, options: RunOptions) -> Path:
    return options.out if options.out is not None else Path("outputs") / found.run_id


class _Stopper:
    """Ctrl-C from another thread: what `_interruptible` leaves here is called in the loop."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.loop is not None and self.stop is not None:
            self.loop.call_soon_threadsafe(self.stop)


def _loop(main: Callable[[_Stopper], Coroutine[Any, Any, None]]) -> None:
    """Run to the end on a loop of our own; in a notebook, whose loop is running, in a thread."""
    stopper = _Stopper()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _run_loop(main(stopper))
        return
    with ThreadPoolExecutor(1, "folkmoot") as pool:
        done = pool.submit(lambda: _run_loop(main(stopper)))
        try:
            done.result()
        except KeyboardInterrupt:
            stopper()
            done.result()
            raise


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is there."""
    if sys.platform == "win32":
        asyncio.run(main)
        return
    import uvloop  # not there on Windows

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def _run(
    found: StudyFile,
    options: RunOptions,
    providers: Providers,
    folder: Path,
    stopper: _Stopper,
) -> None:
    log = RunLog(folder, scrub=lambda text: scrub(text, providers.secrets))
    progress = broadcast(options.progress, log)
    began = time.monotonic()
    outcome: Outcome = "failed"
    message = ""
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(log.close)
            journal = stack.enter_context(
                Journal(folder / JOURNAL, accept_changes=options.accept_changes)
            )
            context = _context(found, options, providers, folder, journal, progress)
            try:
                await _protocol(found, options, context, providers, stopper)
                outcome = "done"
            except RunPaused as error:
                outcome, message = "paused", str(error)
                raise
            except (KeyboardInterrupt, asyncio.CancelledError):
                outcome, message = "interrupted", "stopped by the user"
                raise KeyboardInterrupt from None
            except FolkmootError as error:
                message = str(error)
                raise
            except Exception as error:
                message = f"{type(error).__name__}: {error}"
                raise
            finally:
                progress(RunEnded(outcome, scrub(message, providers.secrets)))
                await _finish(found, context, providers, outcome, time.monotonic() - began)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None


def _context(
    found: StudyFile,
    options: RunOptions,
    providers: Providers,
    folder: Path,
    journal: Journal,
    progress: Progress,
) -> RunContext:
    config = found.config
    calls, usd = journal.spent()
    settings = GatewaySettings(
        config.concurrency,
        config.max_api_retries,
        config.api_retry_base_seconds,
        config.api_sleep_seconds,
        config.quota_wait_seconds,
        config.budget_usd,
        config.budget_calls,
        usd,
        calls,
    )
    gateway = Gateway(
        journal,
        providers.open,
        settings,
        seed=config.random_seed,
        on_event=lambda event: progress(_told(event)),
        on_call=lambda entry, replayed: progress(_called(entry, replayed)),
    )
    plan = Plan(
        folder / PLAN,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        accept_changes=options.accept_changes,
    )
    return RunContext(
        config=config,
        folder=folder,
        study_dir=found.folder,
        seed=config.random_seed,
        journal=journal,
        gateway=gateway,
        prompts=found.prompts(),
        plan=plan,
        progress=progress,
        default_model=providers.default,
        override=providers.override,
        embedding_model=providers.embedding,
        synthetic=providers.synthetic,
    )


async def _protocol(
    found: StudyFile,
    options: RunOptions,
    context: RunContext,
    providers: Providers,
    stopper: _Stopper,
) -> None:
    """Seal the design, then the study itself, stoppable by Ctrl-C."""
    context.plan.seal("design", _design(found, context))
    context.progress(
        RunStarted(
            found.run_id,
            str(context.folder),
            found.study.name,
            providers.default,
            context.seed,
            options.resume,
            providers.synthetic,
        )
    )
    with _interruptible(context, stopper):
        await found.study.protocol(Session(context))
    if context.halted is not None:
        raise context.halted


def _design(found: StudyFile, context: RunContext) -> dict[str, Any]:
    settings = found.config.model_dump(mode="json", exclude=set(OPERATIONAL))
    return {
        "study": found.study.name,
        "settings": settings,
        "model": context.default_model,
        "model_override": context.override,
        "embedding_model": context.embedding_model,
        "prompts": context.prompts.hashes(),
    }


@contextlib.contextmanager
def _interruptible(context: RunContext, stopper: _Stopper) -> Iterator[None]:
    """Ctrl-C lets calls in flight come home; a second one does not wait."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def stop() -> None:
        if context.halted is None:
            context.progress(Notice("stopping: replies in flight are awaited", "warning"))
            context.halt(KeyboardInterrupt())
        elif task is not None:
            task.cancel()

    stopper.loop, stopper.stop = loop, stop
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not available in other threads and on Windows: there Ctrl-C cancels at once.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop)
            caught.append(number)
    try:
        yield
    except Halted:
        raise context.halted or KeyboardInterrupt() from None
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


async def _finish(
    found: StudyFile, context: RunContext, providers: Providers, outcome: Outcome, seconds: float
) -> None:
    """Keep every reply; write tables when the run is done, and the manifest in any case."""
    gateway = context.gateway
    try:
        gateway.stop(Halted("the run is over"))
        await gateway.drain()
        tables = {}
        if outcome == "done":
            rows = context.tables()
            tables = {name: frame(rows[name], name) for name in sorted(rows)}
            for name, data in tables.items():
                write_table(context.folder / TABLES, name, data)
            write_json(context.folder / CODEBOOK, codebook(tables, found.study.codebook))
        facts = _facts(found, context, providers, outcome, seconds)
        write_json(context.folder / MANIFEST, manifest(facts, tables))
    except Exception:
        # What stopped the run matters more than what stopped the tidying up.
        if outcome == "done":
            raise
    finally:
        await gateway.close()


def _facts(
    found: StudyFile, context: RunContext, providers: Providers, outcome: Outcome, seconds: float
) -> RunFacts:
    stats = context.gateway.stats
    earlier = RunFolder(context.folder).manifest
    uses = [
        ModelUse(
            name,
            tuple(sorted(s.served)),
            s.calls + s.replayed,
            s.input_tokens,
            s.output_tokens,
            s.cached_tokens,
            None if s.unpriced else s.cost_usd,
        )
        for name, s in stats.items()
    ]
    names = [PLAN, *(p.relative_to(context.folder).as_posix() for p in _tables(context.folder))]
    return RunFacts(
        run_id=found.run_id,
        study=found.study.name,
        outcome=outcome,
        seed=context.seed,
        synthetic=providers.synthetic,
        started_at=context.plan.started_at,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_seconds=seconds + float(earlier.get("wall_seconds", 0.0)),
        sessions=1 + int(earlier.get("processes", 0)),
        models=uses,
        embedding_model=context.embedding_model,
        hashes=file_hashes(context.folder, names),
        journal_digest=context.journal.content_digest(),
        retries=sum(s.retries for s in stats.values()) + int(earlier.get("retries", 0)),
    )


def _tables(folder: Path) -> list[Path]:
    return sorted((folder / TABLES).glob("*.csv"))


def _called(entry: Entry, replayed: bool) -> CallDone:
    return CallDone(
        entry.model_asked,
        replayed,
        entry.cost_usd,
        entry.input_tokens,
        entry.output_tokens,
        entry.kind,
    )


def _told(event: GatewayEvent) -> Event:
    """A gateway's event as progress."""
    if event.kind in ("retry", "rate_limited"):
        return CallRetried(event.model, event.message, event.seconds)
    where = f"{event.model}: " if event.model else ""
    return Notice(f"{where}{event.message}", "warning")
