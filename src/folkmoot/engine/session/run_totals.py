"""Totals of a run, such as the cost, for the run's manifest and for messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from folkmoot.engine.calls.gateway import unknown_cost_message
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.limits.budget import Spent
from folkmoot.engine.session.run_context import RunContext
from folkmoot.errors import InputError
from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.storage.manifest import ModelUsage, describe_possibly_paid
from folkmoot.storage.run_folder import (
    JOURNAL,
)


def describe_fork(context: RunContext) -> dict[str, object]:
    """Return the entries of the manifest that describe a fork.

    Returns an empty dictionary if the run is no fork.
    """
    # The facts are the changed reply and the numbers of new calls and of calls copied from the
    # source run.
    if context.change is None:
        return {}
    change_data = context.change.to_json()
    # The plan holds these two, and they can be long.
    del change_data["run"], change_data["asked_again"]
    with JournalReader(context.journal.path) as journal:
        asked_count, taken_over_count = (
            len(journal.calls(taken_over=is_taken_over)) for is_taken_over in (False, True)
        )
    return {**change_data, "asked": asked_count, "taken_over": taken_over_count}


def usage_of_run(context: RunContext) -> dict[str, ModelUsage]:
    """Return the usage of all processes of the run, by model.

    Retries and lost calls are those of this process alone.
    """
    # The journal has the calls of earlier processes, also those that this process did not replay,
    # and the answers that a resume with accepted changes replaced. It has no failed attempts.
    with JournalReader(context.journal.path) as journal:
        usage_by_model = journal.usage_by_model()
    for model, usage in context.gateway.usage_by_model.items():
        total = usage_by_model.setdefault(model, ModelUsage())
        total.retries, total.lost_calls = usage.retries, usage.lost_calls
    return usage_by_model


def count_batched_calls(context: RunContext) -> int:
    """Return the number of calls submitted in batches."""
    # Re-asks and the calls of earlier processes are included.
    with JournalReader(context.journal.path) as journal:
        return sum(batch.calls for batch in journal.read_batches().values() if batch.id)


def list_broken_replies(context: RunContext) -> list[tuple[str, float | None]]:
    """Return the replies that broke off and may have been billed.

    Each item is (model, maximum USD). An unknown maximum is None.
    """
    # Replies of earlier processes are included.
    with JournalReader(context.journal.path) as journal:
        return [(broken.model, broken.max_usd) for broken in journal.read_broken_replies()]


def money_in(folder: Path) -> str:
    """Return a sentence on the known and the possible cost of a stopped run, in USD.

    Returns an empty string if the outcome of every call is known.
    """
    # Call this only while no process of the run is active. The calls of an active process would
    # count as possibly paid.
    if not (folder / JOURNAL).exists():
        return ""
    with JournalReader(folder / JOURNAL) as journal:
        calls, usd, unpriced = journal.total_calls_and_cost()
        possible_calls, max_usd = _possibly_paid(journal)
    if not possible_calls:
        return ""
    possibly_paid = describe_possibly_paid(possible_calls, max_usd)
    unknown_part = " and an unknown cost" if unpriced else ""
    return (
        f"Paid {format_dollars(usd)}{unknown_part} ({format_count(calls, 'call')}); {possibly_paid}"
    )


def spent_in(folders: Iterable[Path]) -> Spent:
    """Return what the runs in these folders have spent together.

    Folders without a journal are left out, because their runs have made no call.
    """
    total = Spent()
    for path in (folder / JOURNAL for folder in folders):
        if path.exists():
            with JournalReader(path) as journal:
                total = total.add_spending(journal.spent())
    return total


def require_known_cost(spent: Spent, budget_usd: float | None) -> None:
    """Raise InputError for a budget in USD if the cost of earlier calls is unknown.

    `budget_usd`: the budget, or None for no limit.
    """
    # Such a budget could be exceeded without notice.
    if budget_usd is not None and spent.unpriced:
        models = ", ".join(spent.unpriced)
        raise InputError(unknown_cost_message(f"the cost of earlier calls to {models} is unknown"))


def possibly_paid_in(folder: Path) -> tuple[int, float | None]:
    """Return the calls below a folder that may have been billed and have no saved answer.

    The result is the number of calls and their maximum cost in USD, or None if it is unknown. The
    folder is that of a run or of a grid.
    """
    calls = 0
    max_usd: float | None = 0.0
    for path in folder.rglob(JOURNAL):
        with JournalReader(path) as journal:
            own_calls, own_max_usd = _possibly_paid(journal)
        calls += own_calls
        max_usd = None if max_usd is None or own_max_usd is None else max_usd + own_max_usd
    return calls, max_usd


def _possibly_paid(journal: JournalReader) -> tuple[int, float | None]:
    # The calls and their maximum cost in USD, or None if it is unknown.
    possible = journal.possibly_paid()
    is_known = all(loan.max_usd is not None for loan in journal.read_outstanding_loans())
    return possible.calls, possible.usd if is_known else None


def list_possibly_paid(context: RunContext) -> list[tuple[str, int, float | None]]:
    """Return, for each killed process, the calls that may have been billed.

    Each item is (process, number of calls, maximum USD). An unknown maximum is None.
    """
    # Killed workers are included.
    with JournalReader(context.journal.path) as journal:
        return [(loan.who, loan.calls, loan.max_usd) for loan in journal.read_outstanding_loans()]
