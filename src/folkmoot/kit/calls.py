"""What calls took, from the journal: for files of studies that tell of it."""

from __future__ import annotations

from folkmoot.engine.journal.journal_reader import JournalReader

__all__ = ["TOOK", "JournalReader", "calls_within"]

TOOK = ("input_tokens", "output_tokens", "cost_usd", "latency_s")  # tokens, USD, seconds


def calls_within(journal: JournalReader, scope: str) -> list[dict[str, object]]:
    """The calls of a scope and the scopes in it, tries of an answer one by one: their address, the
    model that served, when they began (seconds since the epoch) and what they took. None: unknown.
    """
    return [
        {"address": entry.address, "model": entry.model_served, "at": entry.started_at}
        | {took: getattr(entry, took) for took in TOOK}
        for entry in journal.entries_in_scope(scope)
    ]
