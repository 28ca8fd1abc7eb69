"""Data frames from rows, with the types of the tables of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from folkmoot.storage.table_buffer import TableBuffer


def rows_to_frame(rows: Iterable[Mapping[str, object]], table: str = "table") -> pl.DataFrame:
    """Return rows as a data frame.

    Raises ProtocolError if a column mixes text with numbers.
    """
    buffer = TableBuffer(table)
    for row in rows:
        buffer.add_row(row)
    return buffer.to_frame().lazy().collect()
