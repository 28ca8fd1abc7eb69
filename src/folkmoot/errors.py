"""Every error that Folkmoot raises on purpose, in one tree.

    FolkmootError
    ├── InputError            the user's file or flag is wrong; lists every problem   exit 2
    ├── StorageError          the run folder cannot be read or written                exit 2
    │   ├── RunExists             an existing folder is never overwritten
    │   ├── RunLocked             another process is writing this run
    │   ├── ForeignJournal        the journal is corrupt, changed by hand, or not ours
    │   │   └── EmptyJournal          there is a file, and nothing in it yet
    │   └── NotJournaled          a replay asked for what the journal does not hold
    ├── DriftError            a replayed request differs from the journaled one       exit 2
    ├── NothingUsable         the run is done, and nothing in it is of use            exit 3
    ├── RunPaused             all work kept, `--resume` resumes it                    exit 75
    │   ├── QuotaExhausted        the provider's quota is used up
    │   └── BudgetReached         the user's own budget is used up
    ├── ModelError            what a provider can answer instead of a reply
    │   ├── TransientError        retry with backoff (408, 409, 429, 5xx, time-outs, dropped)
    │   │   └── RateLimited           429; `retry_after` pauses the whole model
    │   ├── QuotaError            the account is empty: wait once, then QuotaExhausted
    │   ├── FatalModelError       wrong key, unknown model, no access: the run stops  exit 2
    │   │   └── NotFoundError         404: no such model, batch or address
    │   └── RefusedError          context too long, content filter: this answer is Missing
    │       └── RejectedError         a 400 for no known reason: this prompt, or every call?
    ├── LimitReached          a process took more memory or time than its limits
    └── ProtocolError         a study broke a rule of the engine: a bug in it     exit 1

A mistake in the code of a study of the user's own, a ProtocolError or any other exception, ends the
command line with exit 2 and its file and line; one in our own code with exit 1.

A run that Ctrl-C stops raises RunInterrupted, a KeyboardInterrupt (exit 130).

Messages say what to do. No error is ever turned into data, and none holds a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EXIT_INTERNAL = 1
EXIT_INPUT = 2
EXIT_UNUSABLE = 3
EXIT_DIFFERS = 4
EXIT_PAUSED = 75
EXIT_INTERRUPTED = 130


class FolkmootError(Exception):
    """Root of the tree. `exit_code` is what the command line ends with."""

    exit_code: int = EXIT_INTERNAL


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a user's input: where it is, what is wrong, how to correct it.

    `where` is a line (`12`), a cell (`roles!B3`) or empty; `key` is the dotted key or column.
    """

    message: str
    file: str = ""
    where: str = ""
    key: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = ":".join(part for part in (self.file, self.where) if part)
        head = f"{place}: " if place else ""
        key = f"{self.key}: " if self.key else ""
        tail = f" ({self.hint})" if self.hint else ""
        return f"{head}{key}{self.message}{tail}"


class InputError(FolkmootError):
    """The user's input is wrong. Carries every problem found, not only the first."""

    exit_code = EXIT_INPUT

    def __init__(self, problems: Problem | str | Sequence[Problem | str]) -> None:
        if isinstance(problems, (Problem, str)):
            problems = [problems]
        self.problems = [
            problem if isinstance(problem, Problem) else Problem(problem) for problem in problems
        ]
        super().__init__("\n".join(str(problem) for problem in self.problems))


class LimitReached(FolkmootError):
    """A process took more memory or time than its limits. Its starter says what that means."""


class StorageError(FolkmootError):
    """The run folder cannot be read or written (disk full, read-only, missing)."""

    exit_code = EXIT_INPUT


class RunExistsError(StorageError):
    """The run folder already exists and `--resume` was not given."""


class RunLockedError(StorageError):
    """Another process holds the run folder."""


class ForeignJournalError(StorageError):
    """The journal is corrupt, changed by hand or not ours; it is left as it is."""


class EmptyJournalError(ForeignJournalError):
    """The file of a journal in which nothing is written yet."""


class NotJournaledError(StorageError):
    """A replay, which asks no model, came to an address that the journal does not hold."""


class DriftError(FolkmootError):
    """A replayed effect differs from what the journal holds."""

    exit_code = EXIT_INPUT


class NothingUsableError(FolkmootError):
    """The run finished, and nothing in it is usable. From Python: `Run.unusable`."""

    exit_code = EXIT_UNUSABLE


class RunPausedError(FolkmootError):
    """The run stopped with all work kept; the same command with `--resume` continues it."""

    exit_code = EXIT_PAUSED


class QuotaExhaustedError(RunPausedError):
    """The provider says that the account's quota is used up."""


class BudgetReachedError(RunPausedError):
    """`budget_usd` or `budget_calls` is used up."""


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped a run: all work is kept, `--resume` continues it (exit 130)."""


class ModelError(FolkmootError):
    """A provider did not send a reply.

    `may_be_billed`: the server had begun to answer, so the vendor may charge for a reply that we
    could not read. `max_usd`: the most that it may have cost, filled in by the gateway.
    """

    may_be_billed: bool = False
    max_usd: float | None = None


class TransientError(ModelError):
    """Worth another try: time-outs, dropped connections, 408, 409, 429, 5xx, broken bodies."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, may_be_billed: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.may_be_billed = may_be_billed


class RateLimitedError(TransientError):
    """429: all calls to the model must slow down."""


class QuotaError(ModelError):
    """The account has no quota left (not the same as a rate limit)."""


class FatalModelError(ModelError):
    """Wrong key, no access, unknown model: no call to this model can succeed."""

    exit_code = EXIT_INPUT


class NotFoundError(FatalModelError):
    """404: the server knows no such model, batch or address."""


class RefusedError(ModelError):
    """This one request will never be answered. `reason` becomes the reason of `Missing`."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class RejectedError(RefusedError):
    """The server does not take this request and it is not known why (a plain 400 or 422). Whether
    that is the fault of this one prompt, the replies to others tell: see `retries.py`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="rejected")


class ProtocolError(FolkmootError):
    """A study used the engine against its rules (an address twice, two calls at once, …).

    `place`: file and line of the study's code, where the traceback would not tell them.
    """

    def __init__(self, message: str, location: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.place = location
