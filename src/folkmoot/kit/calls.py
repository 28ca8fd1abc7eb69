"""Read usage and cost of calls from the journal, for study types that write them to a file."""

from __future__ import annotations

from folkmoot.engine.journal.journal_reader import JournalReader

__all__ = ["TOOK", "JournalReader", "calls_within"]

# Attributes of a journal entry: tokens, USD, seconds.
TOOK = ("input_tokens", "output_tokens", "cost_usd", "latency_s")


def calls_within(journal: JournalReader, scope: str) -> list[dict[str, object]]:
    """Return the calls of a scope and its child scopes, one dictionary per journal entry.

    Re-asks are entries as well. Each dictionary holds the address, the model that answered, the
    start (`at`, seconds since the epoch) and the attributes in `TOOK`. A value that is unknown is
    None.
    """
    return [
        {"address": entry.address, "model": entry.model_served, "at": entry.started_at}
        | {took: getattr(entry, took) for took in TOOK}
        for entry in journal.entries_in_scope(scope)
    ]
