"""Every error that Folkmoot raises on purpose, in one tree.

    FolkmootError
    ├── InputError            a file or flag is wrong; the error lists all problems   exit 2
    ├── StorageError          the run folder cannot be read or written                exit 2
    │   ├── RunExistsError        an existing folder is never overwritten
    │   ├── RunLockedError        another process is writing this run
    │   ├── ForeignJournalError   the journal is corrupt, edited, or not by Folkmoot
    │   │   └── EmptyJournalError     the file of the journal holds no entry yet
    │   └── NotJournaledError     a replay reached an address that is not in the journal
    ├── DriftError            a replayed request differs from the journaled one       exit 2
    ├── NothingUsableError    the run finished, and nothing in it is usable           exit 3
    ├── RunPausedError        all work is kept, `--resume` continues the run          exit 75
    │   ├── QuotaExhaustedError   the provider's quota is used up
    │   └── BudgetReachedError    the researcher's budget is used up
    ├── ModelError            a provider sent no reply
    │   ├── TransientError        retry with backoff (408, 409, 425, 429, 5xx, time-outs)
    │   │   └── RateLimitedError      429: `retry_after` pauses all calls to the model
    │   ├── QuotaError            the account is empty; QuotaExhaustedError after one wait
    │   ├── FatalModelError       wrong key, unknown model, no access: the run stops  exit 2
    │   │   ├── NotFoundError         404: no such model, batch or address
    │   │   └── UnknownBatchError     a DriftError too: the vendor does not know a journaled batch
    │   └── RefusedError          context too long, content filter: the answer is Missing
    │       └── RejectedError         a 400 without a known reason, for one prompt or for all
    ├── LimitReached          a child process exceeded its memory or time limit
    └── ProtocolError         a study has a bug: it broke a rule of the engine        exit 1

An exception in the code of an external study gives exit code 2. An exception in Folkmoot's own code
gives exit code 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

EXIT_INTERNAL = 1
EXIT_INPUT = 2
EXIT_UNUSABLE = 3
EXIT_DIFFERS = 4
EXIT_PAUSED = 75
EXIT_INTERRUPTED = 130


class FolkmootError(Exception):
    """The base class of all errors that Folkmoot raises on purpose."""

    # The exit code of the command line.
    exit_code: int = EXIT_INTERNAL


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a user's input: a message, the location, and a hint."""

    message: str
    file: str = ""
    # A line (`12`), a cell (`roles!B3`) or empty.
    where: str = ""
    # The dotted key or the column.
    key: str = ""
    hint: str = ""

    def __str__(self) -> str:
        location = ":".join(part for part in (self.file, self.where) if part)
        location_prefix = f"{location}: " if location else ""
        key_prefix = f"{self.key}: " if self.key else ""
        hint_suffix = f" ({self.hint})" if self.hint else ""
        return f"{location_prefix}{key_prefix}{self.message}{hint_suffix}"


class InputError(FolkmootError):
    """The user's input is wrong. The error lists every problem."""

    exit_code = EXIT_INPUT

    def __init__(self, problems: Problem | str | Sequence[Problem | str]) -> None:
        if isinstance(problems, (Problem, str)):
            problems = [problems]
        self.problems = [
            problem if isinstance(problem, Problem) else Problem(problem) for problem in problems
        ]
        super().__init__("\n".join(str(problem) for problem in self.problems))


class LimitReached(FolkmootError):
    """A child process exceeded its memory or time limit."""


class StorageError(FolkmootError):
    """The run folder cannot be read or written: disk full, read-only or missing."""

    exit_code = EXIT_INPUT


class RunExistsError(StorageError):
    """The run folder already exists and `--resume` was not given."""


class RunLockedError(StorageError):
    """Another process holds the lock of the run folder."""


class ForeignJournalError(StorageError):
    """The journal is corrupt, changed by hand or not made by Folkmoot."""


class EmptyJournalError(ForeignJournalError):
    """The journal holds no entry yet."""


class NotJournaledError(StorageError):
    """A replay needs a reply that the journal does not hold."""


class DriftError(FolkmootError):
    """A replayed request differs from the request in the journal."""

    exit_code = EXIT_INPUT
    # What has changed, without advice. "" if the message does not separate the two.
    difference: str = ""


class NothingUsableError(FolkmootError):
    """The run finished but has no usable results."""

    # `Run.unusable` gives the reason.

    exit_code = EXIT_UNUSABLE


class RunPausedError(FolkmootError):
    """The run stopped and all work is kept. `--resume` continues the run."""

    exit_code = EXIT_PAUSED
    # False for controls and later codings, which a report shows only when they are complete.
    has_partial_report: bool = True


class QuotaExhaustedError(RunPausedError):
    """The quota of the account is used up."""


class BudgetReachedError(RunPausedError):
    """The researcher's budget of calls or USD is used up."""

    # True if it is the budget of calls.
    is_of_calls: bool = False

    def with_sentence(self, sentence: str) -> BudgetReachedError:
        """Return the same error with a sentence added to its message."""
        error = BudgetReachedError(f"{self} {sentence}")
        error.is_of_calls, error.has_partial_report = self.is_of_calls, self.has_partial_report
        return error


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped a run. All work is kept, and `--resume` continues the run."""

    def __init__(
        self,
        message: str = "the run was stopped; all answers are saved, and the same call continues it "
        "(folkmoot run: with --resume)",
    ) -> None:
        super().__init__(message)


class ModelError(FolkmootError):
    """A provider sent no reply."""

    # True if the whole request was sent and no error status came back. The vendor may then bill a
    # reply that Folkmoot could not read.
    may_be_billed: bool = False
    # The maximum cost of the reply in USD, set by the gateway.
    max_usd: float | None = None
    # What the provider had received before the error: embeddings of the first texts of a call, with
    # their usage. None if there is nothing.
    partial_result: Any = None

    @property
    def is_refusal(self) -> bool:
        """True if the server certainly did not accept the request."""
        return not self.may_be_billed


class TransientError(ModelError):
    """A temporary error, such as a time-out or status 503. A retry may succeed."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, may_be_billed: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.may_be_billed = may_be_billed

    @property
    def is_refusal(self) -> bool:
        return False


class RateLimitedError(TransientError):
    """Status 429: too many requests."""

    @property
    def is_refusal(self) -> bool:
        return True


class QuotaError(ModelError):
    """The account has no quota left."""

    # Unlike a rate limit, the error persists.


class FatalModelError(ModelError):
    """No call to this model can succeed: the key, the access or the model is wrong."""

    exit_code = EXIT_INPUT


class UnknownCostError(FatalModelError):
    """The cost of a call is unknown, so the budget in USD cannot be kept."""


class NotFoundError(FatalModelError):
    """Status 404: the server has no such model, batch or address."""


class UnknownBatchError(FatalModelError, DriftError):
    """The vendor does not know a batch of the journal."""


class RefusedError(ModelError):
    """The server refuses this request, so the question gets no answer."""

    # `reason` becomes the reason of `Missing`.

    # The `Usage` that the server stated with a refusal that may be billed, or None.
    usage: object = None

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class RejectedError(RefusedError):
    """The server rejects this request with status 400 or 422 and gives no known reason."""

    # The replies to other requests show whether this prompt is the cause (see `retries.py`).

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="rejected")


class ProtocolError(FolkmootError):
    """A study broke a rule of the engine, such as one address for two calls."""

    # `location` is None if the traceback shows the line in the study's code.

    def __init__(self, message: str, location: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.location = location
