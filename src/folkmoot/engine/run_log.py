"""The log of a run, for people and for programs, made from its events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from folkmoot.engine.events import CallDone, Event, ItemDone, Level, Notice, RunEnded, describe
from folkmoot.engine.tally import Tally
from folkmoot.records.run_folder import LOG, LOG_LINES


class RunLog:
    """Writes `run.log` (for people) and `log.jsonl` (for programs); a Progress.

    Single calls are not logged (the journal has them): each tenth of a stage's items gets a line,
    and every `every` seconds one says how far the run is. Lines are appended, so a resumed run
    goes on in the same files.
    `scrub` takes secrets out of every text before it is written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scrub: Callable[[str], str] = lambda text: text,
        every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scrub = scrub
        self._every = every
        self._clock = clock
        self._last = clock()
        self.tally = Tally(clock)
        self.path = folder / LOG
        self._text: TextIO = self.path.open("a", encoding="utf-8", buffering=1)
        self._json: TextIO = (folder / LOG_LINES).open("a", encoding="utf-8", buffering=1)

    def __call__(self, event: Event) -> None:
        self.tally(event)
        text, level = describe(event)
        if text:
            self._write(text, level, event)
        elif step := self._step(event):
            self._write(step, "info", event)
        elif self._clock() - self._last >= self._every:
            self._write(self.tally.line(), "info", None)

    def _step(self, event: Event) -> str:
        """How far a stage is, when another tenth of its items is through; else empty."""
        stage = self.tally.stages.get(event.stage) if isinstance(event, ItemDone) else None
        if stage is None or not stage.total:
            return ""
        if 10 * stage.done // stage.total == 10 * (stage.done - 1) // stage.total:
            return ""
        return f"{stage.name}: {stage.done:,} of {stage.total:,} done"

    def close(self) -> None:
        self._text.close()
        self._json.close()

    def _write(self, text: str, level: Level, event: Event | None) -> None:
        self._last = self._clock()
        now = datetime.now(UTC)
        stamp = now.strftime("%Y-%m-%d %H:%M:%S")
        self._text.write(f"{stamp} {level.upper():7} {self._scrub(text)}\n")
        data = {
            "time": now.isoformat(timespec="milliseconds"),
            "level": level,
            "event": type(event).__name__ if event is not None else "Progress",
            "message": text,
            "calls": self.tally.calls,
            "replayed": self.tally.replayed,
            "cost_usd": None if self.tally.all.unpriced else round(self.tally.cost_usd, 6),
            "failed": self.tally.failed,
            **({} if event is None or isinstance(event, CallDone) else asdict(event)),
        }
        if event is None or isinstance(event, (Notice, RunEnded)):
            data["models"] = {name: use.to_json() for name, use in self.tally.models.items()}
        self._json.write(self._scrub(json.dumps(data, ensure_ascii=False)) + "\n")
