"""The events of a run, their totals, and the log."""

# A study cannot see events, so its results never depend on progress.

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

from folkmoot.engine.seats.json_texts import change_texts
from folkmoot.files import storage_errors
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.manifest import ModelUsage
from folkmoot.storage.run_folder import LOG, LOG_LINES

# The stage name of a fork in the root scope.
ROOT_STAGE = "run"
# Larger stages do not run all items concurrently, so their remaining time is estimated from items,
# not from calls.
MAX_ITEMS_BY_CALLS = 1_000

Level = Literal["info", "warning", "error"]
Outcome = Literal["done", "paused", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Event: the run folder is open, and the design is fixed in `plan.json`."""

    run_id: str
    folder: str
    study: str
    model: str
    seed: int
    resumed: bool = False
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class StageStarted:
    """Event: a stage of the run has started."""

    stage: str
    # The number of its items, such as participants, or None if unknown.
    total: int | None = None


@dataclass(frozen=True, slots=True)
class ItemDone:
    """Event: one item of a stage is done."""

    stage: str


@dataclass(frozen=True, slots=True)
class AnswerMissing:
    """Event: a question got no answer."""

    # The table `answers` holds the reason.
    address: str


# A NamedTuple, because it is created for every call and is faster than a dataclass.
class CallDone(NamedTuple):
    """Event: one call is done, and its entry is in the journal.

    Unknown costs and token counts are None.
    """

    model: str
    replayed: bool = False
    cost_usd: float | None = None
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    kind: str = "ask"
    address: str = ""


@dataclass(frozen=True, slots=True)
class CallRetried:
    """Event: a call failed with a transient error, and will be sent again after a wait."""

    model: str
    reason: str
    wait_seconds: float
    attempt: int = 1
    # The reply broke off or did not arrive, so the vendor may charge for it.
    may_be_billed: bool = False
    # The most that the vendor may charge (USD), or None if this is unknown.
    max_usd: float | None = None


@dataclass(frozen=True, slots=True)
class ReplyLost:
    """Event: a reply broke off or did not arrive, so the vendor may charge for it."""

    model: str
    address: str
    # The most that the vendor may charge (USD), or None if this is unknown.
    max_usd: float | None


@dataclass(frozen=True, slots=True)
class Notice:
    """Event: a message for the researcher, for example that a line was skipped."""

    message: str
    level: Level = "info"


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """The result of one test call before a run, in words."""

    model: str
    role: str
    answer: str
    schema: str
    system: str
    temperature: str
    usage: str
    ended: str
    read: str
    cost_usd: float | None
    # Why the study cannot work with the model. Empty if the model can be used.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """Event: all test calls that precede the run have finished."""

    # One real call for each model, role and answer kind.
    calls: tuple[PreflightCheck, ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Event: the process that executes the run has ended."""

    # The run is complete, or can be resumed.
    outcome: Outcome
    # If the outcome is "done": why the results are unusable, or empty.
    message: str = ""


Event = (
    RunStarted
    | StageStarted
    | ItemDone
    | AnswerMissing
    | CallDone
    | CallRetried
    | ReplyLost
    | Notice
    | Preflight
    | RunEnded
)
Progress = Callable[[Event], None]


def ignore_progress(_event: Event) -> None:
    """Do nothing with an event. This is the progress callback of runs that report nothing."""


def combine_progress(*listeners: Progress) -> Progress:
    """Return a callback that passes each event to all listeners."""

    def forward(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return forward


def format_event(event: Event) -> tuple[str, Level]:
    """Return a line of plain text on an event, and the level of the event.

    The line is empty for an event that is too frequent to be shown.
    """
    match event:
        # By far the most frequent event, so it is tested first.
        case CallDone():
            return "", "info"
        case RunStarted(run_id, folder, study, model, seed, resumed, synthetic):
            verb = "resumed" if resumed else "started"
            mark = " (SYNTHETIC: not evidence about real people)" if synthetic else ""
            return f"{verb} {run_id}: {study}, model {model}{mark}, seed {seed}, {folder}", "info"
        case StageStarted(stage, total):
            return f"{stage}: started" + (
                f" ({format_count(total, 'item')})" if total else ""
            ), "info"
        case CallRetried(model, reason, wait, attempt, may_be_billed):
            billed = " (it may have been billed)" if may_be_billed else ""
            return f"{model}: {reason}{billed}; attempt {attempt + 1} in {wait:.1f} s", "warning"
        case Notice(message, level):
            return message, level
        case Preflight(calls):
            problem_count = sum(bool(call.problem) for call in calls)
            level = "error" if problem_count else "info"
            return (
                f"preflight: {format_count(len(calls), 'call')}, "
                f"{format_count(problem_count, 'problem')}",
                level,
            )
        case RunEnded(outcome, message):
            level = "info" if outcome == "done" and not message else "warning"
            return f"{outcome}" + (f": {message}" if message else ""), level
        case _:
            return "", "info"


@dataclass(slots=True)
class StageTally:
    """The progress of one stage of a run."""

    name: str
    total: int | None
    started: float
    done: int = 0
    # When the last item was done.
    moved: float = 0.0
    # Calls that were made, without replayed ones.
    calls: int = 0
    # Calls by item, replayed ones included.
    calls_of: dict[str, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.total is not None and self.done >= self.total

    def eta_seconds(self, now: float) -> float | None:
        """Return the estimated seconds until the stage is done, or None if unknown."""
        # Count calls, not items, if the calls of each item are known: items run concurrently, so
        # all other items are nearly done when the first one is done.
        if self.total is None or not self.done or self.is_done:
            return None
        # Without the calls of each item, assume that items finish at a constant rate.
        elapsed = now - self.started
        if not self.calls or len(self.calls_of) < self.done or self.total > MAX_ITEMS_BY_CALLS:
            return elapsed / self.done * (self.total - self.done)
        most_calls = nlargest(self.done, self.calls_of.values())
        expected = sum(most_calls) / self.done * self.total
        calls_left = expected - sum(self.calls_of.values())
        # An unfinished stage with all expected calls may wait for a human, for an unknown time.
        if calls_left <= 0:
            return None
        return elapsed / self.calls * calls_left

    def count_call(self, item: str, *, replayed: bool) -> None:
        """Count a call that belongs to an item of this stage."""
        if self.total is None or self.total <= MAX_ITEMS_BY_CALLS:
            self.calls += not replayed
            self.calls_of[item] = self.calls_of.get(item, 0) + 1


@dataclass(slots=True)
class ProgressTally:
    """A progress callback that adds up all events."""

    # Tests replace `clock` so that they need not wait.
    clock: Callable[[], float] = time.monotonic
    stages: dict[str, StageTally] = field(default_factory=dict)
    models: dict[str, ModelUsage] = field(default_factory=dict)
    total: ModelUsage = field(default_factory=ModelUsage)
    replayed: int = 0
    retries: int = 0
    # Missing answers.
    missing: int = 0
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def __call__(self, event: Event) -> None:
        match event:
            # By far the most frequent event, so it is tested first.
            case CallDone():
                self._add_call(event)
            case StageStarted(stage, total):
                self._start_stage(stage, total)
            case ItemDone(stage) if stage in self.stages:
                self.stages[stage].done += 1
                self.stages[stage].moved = self.clock()
            case AnswerMissing():
                self.missing += 1
            case CallRetried():
                self.retries += 1
            case ReplyLost(model):
                for usage in (self.total, self.models.setdefault(model, ModelUsage())):
                    usage.broken += 1
            case _:
                pass

    @property
    def calls(self) -> int:
        return self.total.calls

    @property
    def cost_usd(self) -> float:
        return self.total.cost_usd

    @property
    def current_stage(self) -> StageTally | None:
        """The unfinished stage that progressed last, or the last stage if all are done.

        None before the first stage.
        """
        stages = list(self.stages.values())
        unfinished = [stage for stage in stages if not stage.is_done]
        return max(
            unfinished,
            key=lambda stage: stage.moved,
            default=stages[-1] if stages else None,
        )

    @property
    def rate(self) -> float:
        """Calls per second since the start, without replayed calls."""
        elapsed = self.clock() - self.started
        return self.calls / elapsed if elapsed > 0 else 0.0

    def stage_snapshots(self) -> list[dict[str, str | int | float | None]]:
        """Return the progress of each stage started so far, for the log and the viewer."""
        now = self.clock()
        return [
            {
                "name": stage_tally.name,
                "done": stage_tally.done,
                "total": stage_tally.total,
                "seconds_left": stage_tally.eta_seconds(now),
            }
            for stage_tally in self.stages.values()
        ]

    def format_line(self) -> str:
        """Return the totals in one line of plain text."""
        parts = []
        stage = self.current_stage
        if stage is not None:
            total_text = f" of {stage.total:,}" if stage.total is not None else ""
            parts.append(f"{stage.name}: {stage.done:,}{total_text}")
            eta = stage.eta_seconds(self.clock())
            if eta is not None:
                parts.append(f"{format_duration(eta)} left")
        parts.append(
            format_count(self.calls, "call")
            + (f" ({format_rate(self.rate)})" if self.calls else "")
        )
        if self.replayed:
            parts.append(f"{self.replayed:,} replayed")
        parts.append(self.total.cost)
        if self.retries:
            parts.append(format_count(self.retries, "retry", "retries"))
        if self.missing:
            parts.append(f"{self.missing:,} without an answer")
        return " · ".join(parts)

    def _start_stage(self, stage: str, total: int | None) -> None:
        tally = self.stages.setdefault(stage, StageTally(stage, 0, self.clock()))
        # A stage may fork several times, so its totals are added.
        total_is_known = total is not None and tally.total is not None
        tally.total = (tally.total or 0) + (total or 0) if total_is_known else None

    def _add_call(self, call: CallDone) -> None:
        names = call.address.split("/", 2)
        # The items of a fork at the root are the first part of addresses. Those of another stage
        # are the second part, after its name.
        if len(names) > 1:
            if (stage := self.stages.get(names[0])) is not None:
                stage.count_call(names[1], replayed=call.replayed)
            if (root := self.stages.get(ROOT_STAGE)) is not None:
                root.count_call(names[0], replayed=call.replayed)
        if call.replayed:
            self.replayed += 1
            return
        model_usage = self.models.get(call.model)
        if model_usage is None:
            model_usage = self.models[call.model] = ModelUsage()
        for usage in (self.total, model_usage):
            usage.calls += 1
            usage.add_reply(call.input_tokens, call.output_tokens, call.cost_usd)


def format_rate(per_second: float) -> str:
    """Return a rate as text, for example `1.4/s` or `24/min`."""
    if per_second >= 1:
        # 9.95 rounds to 10.0, which needs no digit.
        digits = 0 if per_second >= 9.95 else 1
        return f"{per_second:,.{digits}f}".removesuffix(".0") + "/s"
    return f"{per_second * 60:.0f}/min"


def format_duration(seconds: float) -> str:
    """Return seconds as text, for example `42 s` or `2 h 10 min`."""
    seconds_left = round(seconds)
    if seconds_left < 60:
        return f"{seconds_left} s"
    if seconds_left < 3600:
        return f"{seconds_left // 60} min {seconds_left % 60:02} s"
    return f"{seconds_left // 3600} h {seconds_left % 3600 // 60:02} min"


def _open_log(path: Path) -> TextIO:
    # Line buffering: a reader of the log sees whole lines while the run goes on.
    with storage_errors(path):
        return path.open("a", encoding="utf-8", buffering=1)


class RunLog:
    """A progress callback that writes `run.log` for humans and `log.jsonl` for programs.

    - `every`: after this many seconds without a line, a line of totals is written.
    - `make_scrub`: called for each line, returns the function that removes secrets from its texts.
    - `held`: True to keep lines in memory until `write_held_lines` is called.
    """

    # Single calls are not logged, because the journal has them. Lines are appended, so a resumed
    # run continues the same files.
    def __init__(
        self,
        folder: Path,
        *,
        make_scrub: Callable[[], Callable[[str], str]] = lambda: str,
        held: bool = False,
        every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._held: list[tuple[str, str]] = []
        self._make_scrub = make_scrub
        self._every = every
        self._clock = clock
        self._last = clock()
        self.tally = ProgressTally(clock)
        self.path = folder / LOG
        self._files: tuple[TextIO, TextIO] | None = None
        if not held:
            self.write_held_lines()

    def write_held_lines(self) -> None:
        """Write the lines that waited in memory, and write later lines at once."""
        if self._files is None:
            paths = (self.path, self._folder / LOG_LINES)
            text, lines = map(_open_log, paths)
            self._files = text, lines
            for held in self._held:
                self._append_line(*held)
            self._held.clear()

    def _append_line(self, text: str, line: str) -> None:
        if self._files is None:
            self._held.append((text, line))
            return
        for file, new_text in zip(self._files, (text, line), strict=True):
            file.write(new_text)

    def __call__(self, event: Event) -> None:
        self.tally(event)
        text, level = format_event(event)
        if text:
            self._write_line(text, level, event)
        elif milestone := self._stage_milestone(event):
            self._write_line(milestone, "info", event)
        elif self._clock() - self._last >= self._every:
            self._write_line(self.tally.format_line(), "info", None)

    def _stage_milestone(self, event: Event) -> str:
        stage = self.tally.stages.get(event.stage) if isinstance(event, ItemDone) else None
        if stage is None or not stage.total:
            return ""
        if 10 * stage.done // stage.total == 10 * (stage.done - 1) // stage.total:
            return ""
        return f"{stage.name}: {stage.done:,} of {stage.total:,} done"

    def close(self) -> None:
        if self._files is not None:
            with storage_errors(self.path), self._files[0], self._files[1]:
                pass

    def _write_line(self, text: str, level: Level, event: Event | None) -> None:
        self._last = self._clock()
        time_now = datetime.now(UTC)
        stamp = time_now.strftime("%Y-%m-%d %H:%M:%S")
        data = {
            "time": time_now.isoformat(timespec="milliseconds"),
            "level": level,
            "event": type(event).__name__ if event is not None else "Progress",
            "message": text,
            "calls": self.tally.calls,
            "replayed": self.tally.replayed,
            "cost_usd": None
            if self.tally.total.calls_without_price
            else round(self.tally.cost_usd, 6),
            "missing": self.tally.missing,
            "retries": self.tally.retries,
            "rate": round(self.tally.rate, 3),
            "stages": self.tally.stage_snapshots(),
            **({} if event is None or isinstance(event, CallDone) else asdict(event)),
        }
        if event is None or isinstance(event, (Notice, RunEnded)):
            data["models"] = {name: usage.to_json() for name, usage in self.tally.models.items()}
        # Scrub the texts and not the JSON line. There a secret may be spelt otherwise, and one such
        # as "1" is part of the numbers.
        scrub = self._make_scrub()
        scrubbed = change_texts(json.loads(json.dumps(data)), scrub)
        with storage_errors(self.path):
            self._append_line(
                f"{stamp} {level.upper():7} {scrub(text)}\n",
                json.dumps(scrubbed, ensure_ascii=False) + "\n",
            )
