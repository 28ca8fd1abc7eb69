"""Read the usage and the cost of calls from the journal, so that study types can export both."""

from __future__ import annotations

from folkmoot.engine.journal.journal_reader import JournalReader

__all__ = ["USAGE_FIELDS", "JournalReader", "calls_within"]

# Attributes of a journal entry: tokens, USD, seconds.
USAGE_FIELDS = ("input_tokens", "output_tokens", "cost_usd", "latency_s")


def calls_within(journal: JournalReader, scope: str) -> list[dict[str, object]]:
    """Return the calls of a scope and its child scopes, one dictionary per journal entry.

    - `address`: the address of the call.
    - `model`: the model that answered.
    - `at`: the start, in seconds since the epoch.
    - The names in `USAGE_FIELDS`: usage and cost.

    A value that the journal does not have is None.
    """
    # A re-ask has a separate journal entry and so a separate dictionary.
    return [
        {"address": entry.address, "model": entry.model_served, "at": entry.started_at}
        | {name: getattr(entry, name) for name in USAGE_FIELDS}
        for entry in journal.entries_in_scope(scope)
    ]
