"""Events added up: how far a run is, how fast, what it has cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from folkmoot.engine.events import CallDone, CallRetried, Event, ItemDone, StageDone, StageStarted
from folkmoot.engine.model_use import ModelUse


@dataclass(slots=True)
class StageTally:
    """How far a stage is."""

    name: str
    total: int | None
    started: float
    done: int = 0
    failed: int = 0
    ended: float | None = None
    moved: float = 0.0  # when an item was done last

    @property
    def over(self) -> bool:
        return self.ended is not None or (self.total is not None and self.done >= self.total)

    def eta_seconds(self, now: float) -> float | None:
        """Seconds until the stage is through at the pace so far; None when that is unknown."""
        if self.total is None or not self.done or self.over:
            return None
        return (now - self.started) / self.done * (self.total - self.done)


@dataclass(slots=True)
class Tally:
    """Events added up. `clock` is injectable, so that tests need not wait."""

    clock: Callable[[], float] = time.monotonic
    stages: dict[str, StageTally] = field(default_factory=dict)
    models: dict[str, ModelUse] = field(default_factory=dict)
    all: ModelUse = field(default_factory=ModelUse)
    replayed: int = 0
    retries: int = 0
    failed: int = 0
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def __call__(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case CallDone():  # by far the most frequent
                self._call(event)
            case StageStarted(stage, total):
                self._begin(stage, total)
            case ItemDone(stage, _, failed):
                self._item(stage, bool(failed))
            case StageDone(stage, _):
                if stage in self.stages:
                    self.stages[stage].ended = self.clock()
            case CallRetried():
                self.retries += 1
            case _:
                pass

    @property
    def calls(self) -> int:
        return self.all.calls

    @property
    def cost_usd(self) -> float:
        return self.all.cost_usd

    @property
    def input_tokens(self) -> int:
        return self.all.input_tokens

    @property
    def output_tokens(self) -> int:
        return self.all.output_tokens

    @property
    def current(self) -> StageTally | None:
        """Of the stages that are not over the one that moved last; when all are, the last begun."""
        begun = list(self.stages.values())
        under_way = [s for s in begun if not s.over]
        return max(under_way, key=lambda s: s.moved, default=begun[-1] if begun else None)

    @property
    def rate(self) -> float:
        """Live calls per second since the start."""
        elapsed = self.clock() - self.started
        return self.calls / elapsed if elapsed > 0 else 0.0

    def line(self) -> str:
        """The tally in one line of plain text."""
        parts = []
        stage = self.current
        if stage is not None:
            of = f" of {stage.total:,}" if stage.total is not None else ""
            parts.append(f"{stage.name}: {stage.done:,}{of}")
            eta = stage.eta_seconds(self.clock())
            if eta is not None:
                parts.append(f"{duration(eta)} left")
        parts.append(f"{self.calls:,} calls" + (f" ({pace(self.rate)})" if self.calls else ""))
        if self.replayed:
            parts.append(f"{self.replayed:,} replayed")
        parts.append(self.cost())
        if self.retries:
            parts.append(f"{self.retries:,} retries")
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        return " · ".join(parts)

    def cost(self) -> str:
        """The money spent in this process; says so where a price is unknown."""
        return self.all.cost

    def _begin(self, stage: str, total: int | None) -> None:
        tally = self.stages.setdefault(stage, StageTally(stage, 0, self.clock()))
        # A stage may fork several times: its totals add up.
        known = total is not None and tally.total is not None
        tally.total = (tally.total or 0) + (total or 0) if known else None
        tally.ended = None

    def _item(self, stage: str, failed: bool) -> None:
        self.failed += failed
        if stage in self.stages:
            self.stages[stage].done += 1
            self.stages[stage].failed += failed
            self.stages[stage].moved = self.clock()

    def _call(self, call: CallDone) -> None:
        if call.replayed:
            self.replayed += 1
            return
        for use in (self.all, self.models.setdefault(call.model, ModelUse())):
            use.add(call.input_tokens, call.output_tokens, call.cost_usd)


def pace(per_second: float) -> str:
    """A rate in the unit that shows it: `31/s`, `1.4/s`, `24/min`."""
    if per_second >= 1:
        digits = 0 if per_second >= 9.95 else 1
        return f"{per_second:,.{digits}f}".removesuffix(".0") + "/s"
    return f"{per_second * 60:.0f}/min"


def duration(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
