"""`folkmoot run` and `folkmoot try`: run a study with live progress and print the results."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from folkmoot.cli.console import (
    clean_and_redact,
    end_now,
    error_console,
    note_started_run,
    output_console,
    print_warning,
)
from folkmoot.cli.results import print_grid_total, print_later_spending
from folkmoot.cli.study_files import ask_consent, print_models_note
from folkmoot.cli.tables import print_findings, synthetic_panel
from folkmoot.engine.calls.progress import (
    CallRetried,
    Event,
    Notice,
    Preflight,
    ProgressTally,
    RunEnded,
    RunStarted,
    StageTally,
    format_duration,
    format_event,
    format_rate,
)
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.forecast import Forecast
from folkmoot.engine.run.grid import is_grid, parse_axes
from folkmoot.engine.run.question_count import count_questions, find_check_problems
from folkmoot.engine.run.runner import (
    apply_seats,
    check_models,
    create_router,
    load_study_with_options,
    run_folder_path,
    run_study,
)
from folkmoot.engine.study.study import Study
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import InputError, NothingUsableError
from folkmoot.hidden_characters import without_hidden
from folkmoot.hints import command_line
from folkmoot.kit.named_controls import (
    describe_humans,
    findings_with_controls,
    run_grid_with_controls,
    run_with_controls,
)
from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.models.catalog import HUMAN_MODEL, SYNTHETIC_MODEL, is_synthetic, resolve_model
from folkmoot.models.prices import FREE_PRICE, estimate_cost, find_price
from folkmoot.models.request import FINISH_LENGTH, ModelRequest
from folkmoot.report.study_check import run_dry_run
from folkmoot.storage.manifest import (
    POSSIBLY_PAID,
    describe_broken_replies,
    describe_cost,
    describe_cut_replies,
    describe_possibly_paid,
)
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PEOPLE,
    PLAN,
    SEATS,
    STUDY_FILE_NAME,
    RunFolder,
)
from folkmoot.storage.tables import PARQUET_ONLY

# The live table shows the last stages only, so that it fits into a small terminal.
MAX_SHOWN_STAGES = 12
BAR_WIDTH = 28
STYLES = {"info": "", "warning": "yellow", "error": "red"}


class TerminalProgress:
    """The display of a run's progress in a terminal: a live table or single lines."""

    # It is a context manager. Without a terminal, it prints a line every `every` seconds.

    def __init__(
        self,
        console: Console,
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._every = every
        self._clock = clock
        self._last = clock()
        self.tally = ProgressTally(clock)
        # The forecast of the cost exists only if a dry run has made an estimate.
        self.forecast: Forecast | None = None
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console,
                get_renderable=self.render_progress,
                refresh_per_second=4,
                transient=True,
            )

    def __enter__(self) -> TerminalProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def __call__(self, event: Event) -> None:
        self.tally(event)
        if isinstance(event, RunStarted):
            folder = Path(event.folder)
            note_started_run(folder, is_grid=is_grid(folder))
        if self.forecast is not None:
            self.forecast(event)
        text, level = format_event(event)
        if isinstance(event, Preflight):
            with suppress(OSError):
                self._console.print(_preflight_table(event))
                if forecast_text := self._describe_forecast():
                    self._console.print(
                        f"Forecast of the cost from these replies: {forecast_text}", soft_wrap=True
                    )
        is_printed = (
            isinstance(event, (RunStarted, Notice)) or self._live is None or level != "info"
        )
        if isinstance(event, (CallRetried, RunEnded)):
            # There can be thousands of retries, and the caller reports the end of the run.
            is_printed = False
        if is_printed and text:
            self._print_line(text, level)
        elif self._live is None and self._clock() - self._last >= self._every:
            forecast_text = self._describe_forecast()
            self._print_line(
                self.tally.format_line()
                + (f" · forecast {forecast_text}" if forecast_text else ""),
                "info",
            )

    def _describe_forecast(self) -> str:
        cost = self.forecast.cost() if self.forecast is not None else None
        return f"about {cost}" if cost is not None else ""

    def print_line(self, text: str) -> None:
        """Print a line without logging it."""
        # Links to seats are secret.
        with suppress(OSError):
            self._console.print(escape(text), soft_wrap=True)

    def render_progress(self) -> RenderableType:
        """Return the live table: stages, calls, cost and missing answers."""
        table = Table.grid(padding=(0, 2))
        for _ in range(2):
            table.add_column()
        table.add_column(justify="right")
        table.add_column(justify="right")
        for stage in list(self.tally.stages.values())[-MAX_SHOWN_STAGES:]:
            table.add_row(*self._stage_row(stage))
        return Group(
            table, Text("\n".join([*self._describe_models(), self._footer_line()]), style="dim")
        )

    def _describe_models(self) -> list[str]:
        usage_by_model = self.tally.models
        if len(usage_by_model) < 2:
            return []
        return [
            f"{without_hidden(name)}: {usage.format_line()}"
            for name, usage in usage_by_model.items()
        ]

    def _stage_row(self, stage: StageTally) -> tuple[RenderableType, ...]:
        name = Text(without_hidden(stage.name), style="" if stage.is_done else "bold")
        count = f"{stage.done:,}" + (f"/{stage.total:,}" if stage.total is not None else "")
        bar = ProgressBar(
            total=stage.total, completed=stage.done, width=BAR_WIDTH, pulse=stage.total is None
        )
        eta = stage.eta_seconds(self._clock())
        time_text = (
            "done" if stage.is_done else f"{format_duration(eta)} left" if eta is not None else ""
        )
        return name, bar, Text(count), Text(time_text, style="dim")

    def _footer_line(self) -> str:
        tally = self.tally
        elapsed = format_duration(self._clock() - tally.started)
        parts = [
            format_count(tally.calls, "call"),
            format_rate(tally.rate),
            tally.total.cost,
            elapsed,
        ]
        if forecast_text := self._describe_forecast():
            parts.append(f"forecast {forecast_text}")
        if tally.replayed:
            parts.append(f"{tally.replayed:,} replayed")
        if tally.retries:
            parts.append(f"{tally.retries:,} retries")
        parts.append(f"{tally.missing:,} missing")
        return " · ".join(parts)

    def _print_line(self, text: str, level: str) -> None:
        self._last = self._clock()
        style = STYLES[level]
        line = f"{datetime.now():%H:%M:%S} {escape(clean_and_redact(text))}"
        # If the terminal is gone, the run continues.
        with suppress(OSError):
            self._console.print(f"[{style}]{line}[/]" if style else line, soft_wrap=True)


def _preflight_table(event: Preflight) -> Table:
    fields = (
        "model",
        "role",
        "answer",
        "schema",
        "system",
        "temperature",
        "usage",
        "ended",
        "read",
    )
    table = Table(*fields, "cost", "problem", title="Preflight", box=SIMPLE_HEAD, pad_edge=False)
    for call in event.calls:
        cells = [escape(clean_and_redact(str(getattr(call, field_name)))) for field_name in fields]
        problem_text = f"[red]{escape(clean_and_redact(call.problem))}[/]" if call.problem else ""
        table.add_row(*cells, format_dollars(call.cost_usd), problem_text)
    return table


RECORD = (STUDY_FILE_NAME, PLAN, CODEBOOK, MANIFEST, JOURNAL, LOG)

KEY_WARNING = (
    "--key leaves the key in your shell's history and in the process list; the environment "
    "(OPENAI_API_KEY, …) or a .env file is safer."
)


@dataclass(frozen=True, slots=True)
class Serving:
    """The address of the web pages on which human participants answer."""

    address: str
    port: int | None
    # The address of a proxy through which participants reach the pages.
    public_url: str


# An estimate in US dollars. For a cheaper run, a preflight is not worth its calls.
PREFLIGHT_ABOVE = 5.0


def prepare_options(
    path: Path, options: RunOptions, trust: bool
) -> tuple[RunOptions, TerminalProgress]:
    """Return options of a run that is shown in the terminal, and the display of its progress.

    A key in the options is warned about. The options get an object that asks for consent to the
    study file at `path`, unless `trust` is True.
    """
    if options.key:
        print_warning(KEY_WARNING)
    progress = TerminalProgress(error_console())
    return replace(options, progress=progress, consent=ask_consent(path, trust)), progress


def run_command(
    path: Path,
    options: RunOptions,
    trust: bool,
    serving: Serving,
    preflight: bool | None = None,
) -> None:
    """Run the study in a study file, and print the findings."""
    # If `preflight` is None, the command makes a preflight only if the estimated cost is high.
    options, progress = prepare_options(path, options, trust)
    study_file = load_study_with_options(path, options)
    # `folkmoot run FILE --resume` resumes a grid as well. Only its folder shows that it is one.
    if options.resume and is_grid(run_folder_path(study_file, options)):
        grid_command(path, options, (), None, trust, preflight)
        return
    print_models_note(error_console(), study_file)
    # Models are checked before the dry run, so that a missing key is reported at once.
    check_models(study_file, options)
    notes = [
        *study_file.list_notes(),
        *describe_humans(study_file),
    ]
    for note in notes:
        error_console().print(f"[cyan]Note:[/] {escape(without_hidden(note))}", soft_wrap=True)
    # A resumed run has already called its models, so it makes no preflight unless the user asks for
    # one.
    wants_preflight = False if preflight is None and options.resume else preflight
    (sample_requests,) = _preflight_requests([(study_file, options)], wants_preflight)
    options = replace(options, preflight_requests=sample_requests)
    if study_file.config.seats is not None:
        from folkmoot.view.seat import build_seat_host

        if not options.resume:
            _require_effective_checks(study_file, options)
        seat_host = build_seat_host(
            address=serving.address,
            port=serving.port,
            public_url=serving.public_url,
            print_line=progress.print_line,
            count_questions=partial(count_questions, study_file),
        )
        options = replace(options, seat_host=seat_host)
    with progress:
        # If the run does not react to Ctrl-C, `end_now` ends the process.
        finished_run = run_with_controls(study_file, options, RunStopper(end_now))
    print_results(study_file.study, finished_run, output_console())
    if finished_run.unusable_reason:
        raise NothingUsableError(
            f"the run has finished, but has no usable result: {finished_run.unusable_reason}"
        )


def _require_effective_checks(study_file: StudyFile, options: RunOptions) -> None:
    # Humans are invited once, so such a mistake must not be found after the run.
    seats = study_file.config.seats
    # A dry run takes seconds. Checks before the study are always asked, and need none if they do
    # not exclude.
    if seats is None or all(
        check.is_before_study and check.on_failure != "exclude" for check in seats.checks
    ):
        return
    estimate = run_dry_run(study_file, options.model or study_file.override)
    problems, warnings = find_check_problems(study_file, estimate)
    if problems:
        raise InputError(problems)
    for warning in warnings:
        print_warning(str(warning))


def try_command(
    path: Path, options: RunOptions, trust: bool, serving: Serving, seat: str | None
) -> None:
    """Run a study in which the user answers as one participant. Rules answer for all others."""
    from folkmoot.view.seat import build_seat_host

    scratch = Path(tempfile.mkdtemp(prefix="folkmoot-try-"))
    options = replace(options, model=SYNTHETIC_MODEL, out=scratch / "run")
    options, progress = prepare_options(path, options, trust)
    study_file = load_study_with_options(path, options)
    config = study_file.study.dry_run_config(study_file.config, scratch)
    seats = study_file.study.seats(config, study_file.study_folder)
    # A study may close some seats to humans. Take the first one that is open.
    name = seat or next((seat.name for seat in seats if not seat.closed_reason), "")
    if not name and not seats:
        raise InputError(f"{path}: name the participant that you play, with --seat")
    study_file = apply_seats(replace(study_file, config=config), [name or seats[0].name])
    seat_host = build_seat_host(
        address=serving.address, port=serving.port, print_line=progress.print_line
    )
    with progress:
        run_study(study_file, replace(options, seat_host=seat_host), RunStopper(end_now))
    show = escape(command_line("show", scratch / "run"))
    output_console().print(f"Your answers   {show}", soft_wrap=True)


def _preflight_requests(
    runs: Sequence[tuple[StudyFile, RunOptions]], wants_preflight: bool | None, repeats: int = 1
) -> list[tuple[ModelRequest, ...]]:
    # There are none if no call costs money, or if `wants_preflight` is None and the run is cheap.
    if wants_preflight is False or not (wants_preflight or any(_costs_money(*run) for run in runs)):
        return [()] * len(runs)
    cost, requests_by_run = 0.0, []
    for study_file, options in runs:
        estimate = run_dry_run(study_file, options.model or study_file.override)
        # The progress of a grid covers all cells, and an estimate covers one.
        if isinstance(options.progress, TerminalProgress) and len(runs) == repeats == 1:
            options.progress.forecast = Forecast(estimate, partial(_price_of, study_file))
        cost += math.fsum(
            estimate.model_cost(name, resolve_model(name, study_file.config.endpoints)) or 0.0
            for name in estimate.models
        )
        paid_requests = (
            request
            for request in estimate.sample_requests
            if not is_synthetic(request.model) and request.model != HUMAN_MODEL
        )
        requests_by_run.append(tuple(paid_requests))
    # The sum leaves out models of unknown price, so it is a lower bound of the cost.
    if wants_preflight is None and cost * repeats <= PREFLIGHT_ABOVE:
        return [()] * len(runs)
    if wants_preflight is None:
        error_console().print(
            f"The run may cost about {format_dollars(cost * repeats)}, so a preflight tests the "
            "models first (--no-preflight skips it)",
            soft_wrap=True,
        )
    return requests_by_run


def _price_of(
    study_file: StudyFile, model: str, calls: int, input_tokens: float, output_tokens: float
) -> float | None:
    spec = resolve_model(model, study_file.config.endpoints)
    return estimate_cost(spec, round(input_tokens), round(output_tokens), calls=calls)


def _costs_money(study_file: StudyFile, options: RunOptions) -> bool:
    names = create_router(study_file, options).list_models()
    return any(
        find_price(resolve_model(name, study_file.config.endpoints)) not in (None, FREE_PRICE)
        for name in names
    )


def grid_command(
    path: Path,
    options: RunOptions,
    axis_arguments: Sequence[str],
    repeats: int | None,
    trust: bool,
    preflight: bool | None,
) -> None:
    """Run a study once for each cell of a grid, and print findings over all cells."""
    # If `preflight` is None, the command makes a preflight only if the grid has new cells and the
    # estimated cost is high.
    from folkmoot.report.comparison.pooled import pooled_findings

    options, progress = prepare_options(path, options, trust)

    def collect_preflight_requests(
        runs: Sequence[tuple[StudyFile, RunOptions]], repeats: int, has_new_cells: bool
    ) -> list[tuple[ModelRequest, ...]]:
        print_models_note(error_console(), runs[0][0])
        return _preflight_requests(
            runs, preflight if has_new_cells or preflight is not None else False, repeats
        )

    with progress:
        grid = run_grid_with_controls(
            path,
            options,
            parse_axes(axis_arguments),
            repeats,
            RunStopper(end_now),
            collect_preflight_requests,
        )
    runs = [run for _, run in grid.finished_cells().values()]
    if any(run.is_synthetic for run in runs):
        output_console().print(synthetic_panel())
    print_findings(
        output_console(), [finding for finding in pooled_findings(grid) if finding.headline]
    )
    path_text = escape(str(grid.path))
    output_console().print(
        f"\n[bold]{path_text}[/]\n  cells/   a run folder for each of {len(grid.cells)} cells\n"
        f"\nWrite the report      {escape(command_line('report', grid.path))}",
        soft_wrap=True,
    )
    print_grid_total(grid)
    if runs and all(run.unusable_reason for run in runs):
        raise NothingUsableError(
            f"all cells have finished, but none has a usable result: {runs[0].unusable_reason}"
        )


def print_results(study: Study, run: RunFolder, console: Console) -> None:
    """Print the main findings of a run, its cost, and its files."""
    # The provenance label is printed too.
    if run.mark:
        effects = run.manifest.get("planted")
        console.print(synthetic_panel(effects, run.provenance_note, run.mark))
    findings = findings_with_controls(study, run)
    print_findings(console, [finding for finding in findings if finding.headline])
    console.print(summarise_folder(run), soft_wrap=True)
    print_later_spending(run)
    for caution in filter(None, (_describe_missing_answers(run), _describe_cut_replies(run))):
        console.print(f"[yellow]{escape(caution)}[/]", soft_wrap=True)
    console.print("\n".join(_list_files(run)), soft_wrap=True)


def summarise_folder(folder: RunFolder) -> str:
    """Return a line with the calls, the models, the cost and the time of a run, as markup."""
    facts = folder.manifest
    model_names = ", ".join(
        model["asked"] for model in facts.get("models", []) if _has_answered(model, facts)
    )
    money = describe_cost(facts)
    if broken := facts.get("broken_replies"):
        money += f" ({describe_broken_replies(broken['count'], broken['max_usd'])})"
    if possible := facts.get(POSSIBLY_PAID):
        money += f", {describe_possibly_paid(possible['calls'], possible['max_usd'])}"
    # A fork has paid for its new calls alone.
    calls = facts.get("fork", {}).get("asked", facts.get("calls", 0))
    parts = [format_count(calls, "call"), model_names, money]
    parts.append(format_duration(float(facts.get("wall_seconds", 0.0))))
    return "[dim]" + escape(without_hidden(" · ".join(part for part in parts if part))) + "[/]"


def _describe_missing_answers(folder: RunFolder) -> str:
    # The text also counts answers that needed a second question, and unreadable replies that the
    # study replaced by a minimal answer.
    answer_facts = folder.manifest.get("answers", {})
    count, missing = answer_facts.get("count", 0), answer_facts.get("missing", {})
    clarified, minimal = (
        round(count * answer_facts.get("parse_steps", {}).get(parse_step, 0))
        for parse_step in ("clarified", "minimal")
    )
    sentences = []
    if missing_count := sum(missing.values()):
        reasons = ", ".join(
            f"{reason}: {reason_count:,}" for reason, reason_count in missing.items()
        )
        sentences.append(
            f"{missing_count:,} of {format_count(count, 'answer')} without a valid value "
            f"({reasons})."
        )
    if clarified:
        sentences.append(
            f"{clarified:,} of {format_count(count, 'answer')} needed a second question about "
            "which option the first reply stated (`how` is `clarified`)."
        )
    if minimal:
        sentences.append(
            f"{minimal:,} of {format_count(count, 'answer')} could not be read. The tables hold "
            "the minimal answer that the protocol prescribes (`parse_step` is `minimal`)."
        )
    return " ".join(sentences)


def _describe_cut_replies(folder: RunFolder) -> str:
    cut_facts = folder.manifest.get("cut_replies", {})
    cut_count, call_count, cost = (
        cut_facts.get("kept", 0),
        cut_facts.get("calls", 0),
        cut_facts.get("cost_usd"),
    )
    if not cut_count and not call_count:
        return ""
    # A run without cut answers may have no column of finish reasons.
    finishes = [finish for (finish,) in folder.rows("answers", "finish")] if cut_count else []
    statement = describe_cut_replies(
        finishes, repeated=call_count, max_tokens=folder.config.get("max_tokens")
    )
    if call_count:
        statement += (
            f" {format_count(call_count, 'call')} ({format_dollars(cost)}) repeated with twice "
            "the limit."
        )
    if not cut_count:
        return f"{statement} No reply remained cut."
    reasons = " or ".join(
        f"`{finish}`"
        for finish in sorted(set(filter(None, finishes)))
        if finish.startswith(FINISH_LENGTH)
    )
    return f"{statement} {cut_count:,} remained cut (`finish` is {reasons} in the table answers)."


def _has_answered(model: Mapping[str, object], facts: Mapping[str, object]) -> bool:
    # A model that only made embeddings gave no replies.
    only_embeds = model["asked"] == facts.get("embedding_model") and not model.get("output_tokens")
    return bool(model.get("calls")) and not only_embeds


def _list_files(folder: RunFolder) -> list[str]:
    study_files = [
        path.name
        for path in sorted(folder.path.iterdir())
        if path.suffix in (".json", ".jsonl", ".csv")
    ]
    study_files = [name for name in study_files if name not in (*RECORD, LOG_LINES, SEATS, PEOPLE)]
    path_text = escape(str(folder.path))
    tables = folder.table_names()
    without_csv = [name for name in tables if name in PARQUET_ONLY]
    exception = f"; {', '.join(without_csv)}: .parquet alone" if without_csv else ""
    rows = {
        "tables/": f"{', '.join(tables)} (.parquet and .csv{exception})",
        "results": ", ".join(study_files),
        "record": ", ".join(RECORD),
    }
    lines = ["", f"[bold]{path_text}[/]"]
    lines += [f"  {name:<9}{escape(text)}" for name, text in rows.items() if text]
    lines += ["", f"Read a conversation   {escape(command_line('show', folder.path))}"]
    lines += [f"Write the report      {escape(command_line('report', folder.path))}"]
    return lines
