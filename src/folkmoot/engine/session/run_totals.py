"""Totals of a run, such as the cost, for the run's manifest and for messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from folkmoot.engine.journal.journal_reader import JournalReader, spent_in_journals
from folkmoot.engine.limits.budget import Spent
from folkmoot.engine.seats.withdrawal import spent_before_withdrawals
from folkmoot.engine.session.folder_access import is_held
from folkmoot.engine.session.run_context import RunContext
from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.storage.manifest import (
    ModelUsage,
    RunTotals,
    describe_broken_replies,
    describe_possibly_paid,
)
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


def totals_of_run(context: RunContext) -> RunTotals:
    """Return the sums over all processes of the run.

    Retries and lost calls are those of this process alone.
    """
    # The journal has the calls of earlier processes, also those that this process did not replay,
    # and the answers that a resume with accepted changes replaced. It has no failed attempts.
    with JournalReader(context.journal.path) as journal:
        totals = journal.read_totals()
    usage_by_model = dict(totals.models)
    for model, usage in context.gateway.usage_by_model.items():
        total = usage_by_model.setdefault(model, ModelUsage())
        total.retries, total.lost_calls = usage.retries, usage.lost_calls
    return totals._replace(models=usage_by_model)


def money_in(folder: Path) -> str:
    """Return a sentence on the known and the possible cost of a stopped run or grid, in USD.

    Returns an empty string if the outcome of every call is known.
    """
    # Call this only while no process of the run is active. The calls of an active process would
    # count as possibly paid.
    spent = spent_below(folder)
    return f"Paid {describe_spending(spent)}" if describe_uncertain_calls(spent) else ""


def describe_spending(spent: Spent) -> str:
    """Return a phrase on the known cost in USD, the calls, and the calls of uncertain cost."""
    known_usd = format_dollars(max(0.0, spent.usd - spent.broken.usd))
    unknown_part = " and an unknown cost" if spent.unpriced else ""
    paid = f"{known_usd}{unknown_part} ({format_count(spent.calls, 'call')})"
    return "; ".join(filter(None, (paid, describe_uncertain_calls(spent))))


def describe_later_spending(folder: Path) -> str:
    """Return sentences on the cost of the controls and codings of a run, and on the total.

    Returns "" if no model was asked after the protocol.
    """
    # The manifest of the run was sealed before they were asked, so its sums leave them out.
    later = _spent_by(path for path in folder.rglob(JOURNAL) if path.parent != folder)
    deleted = spent_before_withdrawals(folder)
    later = later.add_spending(deleted)
    if not (later.calls or describe_uncertain_calls(later)):
        return ""
    included = ", with those that a withdrawal deleted" if deleted.calls else ""
    total = describe_spending(spent_below(folder))
    return (
        f"Controls and codings of the run: {describe_spending(later)}{included}. In total: {total}."
    )


def describe_uncertain_calls(spent: Spent) -> str:
    """Return a phrase on the calls that may have been billed and have no answer, or ""."""
    possible_usd = None if spent.is_possible_unpriced else spent.possible.usd
    broken_usd = None if spent.is_broken_unpriced else spent.broken.usd
    batched = format_count(spent.open_batch_calls, "call")
    phrases = (
        f"{batched} in batches without an answer may be billed" if spent.open_batch_calls else "",
        describe_broken_replies(spent.broken.calls, broken_usd),
        describe_possibly_paid(spent.possible.calls, possible_usd),
    )
    return "; ".join(filter(None, phrases))


def spent_below(folder: Path) -> Spent:
    """Return what a run or a grid has spent, with its cells, controls and codings.

    Folders that another process is writing are left out, because its calls are not settled yet.
    """
    return _spent_by(folder.rglob(JOURNAL))


def _spent_by(journals: Iterable[Path]) -> Spent:
    folders = (path.parent for path in sorted(journals))
    return spent_in(path for path in folders if not is_held(path, by_another=True))


def spent_in(folders: Iterable[Path]) -> Spent:
    """Return what the runs in these folders have spent together.

    Folders without a journal are left out, because their runs have made no call. Controls and
    codings that a withdrawal deleted are included.
    """
    total = Spent()
    for folder in folders:
        path = folder / JOURNAL
        if path.exists():
            total = total.add_spending(spent_in_journals([path]))
            total = total.add_spending(spent_before_withdrawals(folder))
    return total
