"""What a run reports while it runs: events, given to a callback.

The runner emits them; the command line draws them, `RunLog` writes them down. Nothing here reaches
a study: its results never depend on progress.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Level = Literal["info", "warning", "error"]
Outcome = Literal["done", "paused", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run folder is open and the plan sealed."""

    run_id: str
    folder: str
    study: str
    model: str
    seed: int
    resumed: bool = False
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage begins. `total`: items (participants, sessions) it will go through, if known."""

    stage: str
    total: int | None = None


@dataclass(frozen=True, slots=True)
class ItemDone:
    """One item of a stage is through. `failed`: why, when it could not be finished."""

    stage: str
    item: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage is over. `note`: a few words on how it came out."""

    stage: str
    note: str = ""


class CallDone(NamedTuple):
    """One effect is in the journal. None for cost or tokens means that they are unknown."""

    model: str
    replayed: bool = False
    cost_usd: float | None = None
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    kind: str = "ask"


@dataclass(frozen=True, slots=True)
class CallRetried:
    """A passing failure: the call is tried again after a wait."""

    model: str
    reason: str
    wait_seconds: float
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should read: a skipped line, a waiting quota, a budget at 80 %."""

    message: str
    level: Level = "info"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over, for good or for now. `message` of one that is done: why nothing in it is of
    use."""

    outcome: Outcome
    message: str = ""


Event = (
    RunStarted | StageStarted | ItemDone | StageDone | CallDone | CallRetried | Notice | RunEnded
)
Progress = Callable[[Event], None]


def silent(_event: Event) -> None:
    """The Progress of those who want none."""


def broadcast(*listeners: Progress) -> Progress:
    """One Progress that tells several."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


def describe(event: Event) -> tuple[str, Level]:
    """An event as a line of plain text and its level; empty for the small and frequent ones."""
    match event:
        case CallDone():  # by far the most frequent
            return "", "info"
        case RunStarted(run_id, folder, study, model, seed, resumed, synthetic):
            verb = "resumed" if resumed else "started"
            mark = " (SYNTHETIC: no evidence about people)" if synthetic else ""
            return f"{verb} {run_id}: {study}, model {model}{mark}, seed {seed}, {folder}", "info"
        case StageStarted(stage, total):
            return f"{stage}: begins" + (f", {total:,} to do" if total is not None else ""), "info"
        case StageDone(stage, note):
            return f"{stage}: done" + (f", {note}" if note else ""), "info"
        case ItemDone(stage, item, failed) if failed:
            return f"{stage}: {item or 'one'} failed: {failed}", "warning"
        case CallRetried(model, reason, wait, attempt):
            return f"{model}: {reason}; try {attempt + 1} in {wait:.1f} s", "warning"
        case Notice(message, level):
            return message, level
        case RunEnded(outcome, message):
            level = "info" if outcome == "done" and not message else "warning"
            return f"{outcome}" + (f": {message}" if message else ""), level
        case _:
            return "", "info"
