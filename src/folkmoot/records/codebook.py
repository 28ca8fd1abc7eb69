"""The codebook of a run: for each table and column what it means, its type, and what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

MOST_LEVELS = 20
LONGEST_LEVEL = 200

# What the engine itself records; a study describes its own columns beside these.
ENGINE_COLUMNS: dict[str, str] = {
    "address": "where in the run the call stands: scope path, kind, occurrence",
    "stage": "named part of the protocol",
    "scope": "path of the scope that asked",
    "speaker_id": "who was asked or spoke",
    "speaker_name": "name of the speaker as others saw it",
    "speaker_role": "role of the speaker",
    "role": "role of who was asked",
    "kind": "type of the answer that was wanted: text, choice, number or json",
    "value": "the answer as it was read, for choices and numbers",
    "rung": "how forgiving a reading was needed: exact, normalised, number, …, missing",
    "missing": "why there is no answer; empty when there is one",
    "finish": "how the reply ended: stop, length (cut by the token limit), refused:…, or unknown",
    "reasks": "how often the format had to be asked for again",
    "options": "the options in the order in which they were shown, as JSON",
    "position": "place of the chosen option in the order shown, from 1",
    "model_asked": "model that was asked for",
    "model_served": "model that the provider says answered",
    "turn": "place in the transcript, from 1",
    "round": "repetition within the stage, from 1",
    "text": "what was said",
    "words": "words in the reply as it came",
    "condition": "arm of the design",
    "participant_id": "the participant",
}


def codebook(
    tables: Mapping[str, pl.DataFrame], described: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Describe tables: per column its type, meaning, missing cells, and levels or range.

    `described`: column → meaning, or table → {column → meaning}; the table's own wins.
    """
    words = described or {}
    return {
        name: {
            "rows": data.height,
            "columns": {
                column: _column(data[column], _meaning(words, name, column))
                for column in data.columns
            },
        }
        for name, data in tables.items()
    }


def _meaning(words: Mapping[str, Any], table: str, column: str) -> str:
    own = words.get(table)
    if isinstance(own, Mapping) and column in own:
        return str(own[column])
    general = words.get(column)
    if isinstance(general, str):
        return general
    return ENGINE_COLUMNS.get(column, "")


def _column(data: pl.Series, meaning: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": _type_name(data.dtype),
        "meaning": meaning,
        "missing": data.null_count(),
    }
    present = data.drop_nulls()
    if present.is_empty():
        return entry
    if data.dtype.is_numeric():
        low, high = present.min(), present.max()
        return {**entry, "min": low, "max": high}
    distinct = present.n_unique()
    if distinct <= MOST_LEVELS:
        counts = dict(present.value_counts().iter_rows())
        if all(len(str(v)) <= LONGEST_LEVEL for v in counts):
            return {**entry, "levels": {str(v): counts[v] for v in sorted(counts)}}
    return {**entry, "distinct": distinct}


def _type_name(kind: pl.DataType) -> str:
    if kind == pl.Boolean:
        return "boolean"
    if kind.is_integer():
        return "integer"
    return "float" if kind.is_float() else "text"
