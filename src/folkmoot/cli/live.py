"""Progress on the terminal: a live table where there is one, plain lines where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from folkmoot.cli.console import clean, safe
from folkmoot.engine.progress import (
    CallRetried,
    Event,
    Notice,
    RunEnded,
    RunStarted,
    StageTally,
    Tally,
    describe,
    duration,
    pace,
)

SHOWN_STAGES = 12
BAR_WIDTH = 28
STYLES = {"info": "", "warning": "yellow", "error": "red"}


class TerminalProgress:
    """A Progress for people who watch; use it as a context manager."""

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
        self.tally = Tally(clock)
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console, get_renderable=self.view, refresh_per_second=4, transient=True
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
        text, level = describe(event)
        worth = isinstance(event, (RunStarted, Notice)) or self._live is None or level != "info"
        if isinstance(event, (CallRetried, RunEnded)):
            worth = False  # retries can be thousands; the end is told by whoever ran the run
        if worth and text:
            self._print(text, level)
        elif self._live is None and self._clock() - self._last >= self._every:
            self._print(self.tally.line(), "info")

    def view(self) -> RenderableType:
        """The live table: a line per stage, then calls, cost and missing answers."""
        table = Table.grid(padding=(0, 2))
        for _ in range(2):
            table.add_column()
        table.add_column(justify="right")
        table.add_column(justify="right")
        for stage in list(self.tally.stages.values())[-SHOWN_STAGES:]:
            table.add_row(*self._row(stage))
        return Group(table, Text("\n".join([*self._models(), self._footer()]), style="dim"))

    def _models(self) -> list[str]:
        """A line for each model, where there are several."""
        used = self.tally.models
        if len(used) < 2:
            return []
        return [f"{clean(name)}: {use.line()}" for name, use in used.items()]

    def _row(self, stage: StageTally) -> tuple[RenderableType, ...]:
        name = Text(clean(stage.name), style="" if stage.over else "bold")
        count = f"{stage.done:,}" + (f"/{stage.total:,}" if stage.total is not None else "")
        bar = ProgressBar(
            total=stage.total, completed=stage.done, width=BAR_WIDTH, pulse=stage.total is None
        )
        eta = stage.eta_seconds(self._clock())
        left = "done" if stage.over else f"{duration(eta)} left" if eta is not None else ""
        return name, bar, Text(count), Text(left, style="dim")

    def _footer(self) -> str:
        tally = self.tally
        elapsed = duration(self._clock() - tally.started)
        parts = [f"{tally.calls:,} calls", pace(tally.rate), tally.all.cost, elapsed]
        if tally.replayed:
            parts.append(f"{tally.replayed:,} replayed")
        if tally.retries:
            parts.append(f"{tally.retries:,} retries")
        parts.append(f"{tally.missing:,} without an answer")
        return " · ".join(parts)

    def _print(self, text: str, level: str) -> None:
        self._last = self._clock()
        style = STYLES[level]
        line = f"{datetime.now():%H:%M:%S} {escape(safe(text))}"
        with suppress(OSError):  # when the terminal is gone, the run goes on to a good end
            self._console.print(f"[{style}]{line}[/]" if style else line, soft_wrap=True)
