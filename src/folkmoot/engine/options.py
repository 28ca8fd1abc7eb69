"""What a caller adds to a study file when it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from folkmoot.engine.progress import Progress, silent
from folkmoot.engine.trust import Consent
from folkmoot.models.request import Provider


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
    consent: Consent = field(default=Consent())

    def as_overrides(self) -> tuple[str, ...]:
        """The flags that stand for keys of the study file."""
        flags = {
            "concurrency": self.concurrency,
            "budget_usd": self.budget,
            "random_seed": self.seed,
        }
        return (*self.overrides, *(f"{k}={v}" for k, v in flags.items() if v is not None))
