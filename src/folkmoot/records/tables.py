"""Rows of research data as tables: Parquet and CSV with the same bytes for the same rows.

The runner writes a run's tables with this; analysis code reads them back through `RunFolder`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from folkmoot.errors import ProtocolError
from folkmoot.whole_files import write_with

Row = Mapping[str, Any]


def frame(rows: Sequence[Row], table: str = "table") -> pl.DataFrame:
    """Rows as a data frame: columns are the union over all rows, in order of first mention.

    A column is boolean, integer, float or text; integers and floats together give floats. A cell
    of lists or mappings becomes JSON text. NaN becomes null, as a missing cell does. Raises
    ProtocolError when a column mixes text with numbers.
    """
    shapes = dict.fromkeys(map(tuple, rows))  # nearly always one
    series = []
    for name in dict.fromkeys(chain.from_iterable(shapes)):
        values = [*map(itemgetter(name), rows)] if len(shapes) == 1 else [r.get(name) for r in rows]
        kinds = set(map(type, values))
        if not kinds <= _PLAIN:  # most columns need no look at each cell
            values = [_cell(v) for v in values]
            kinds = set(map(type, values))
        series.append(pl.Series(name, values, dtype=_type(kinds, name, table)))
    return pl.DataFrame(series)


def write_table(folder: Path, name: str, data: pl.DataFrame) -> None:
    """Write `<name>.parquet` and `<name>.csv`, each whole or not at all, free of time stamps.

    In the CSV a text that a spreadsheet would take for a formula gets an apostrophe before it,
    because models' words are not to be trusted; the Parquet file holds the text as it is.
    """
    write_with(
        folder / f"{name}.parquet",
        lambda file: data.write_parquet(
            file, compression="zstd", compression_level=3, statistics=True, row_group_size=100_000
        ),
    )
    write_with(folder / f"{name}.csv", _harmless(data).write_csv)


_PLAIN = frozenset({str, int, bool, type(None)})


def _harmless(data: pl.DataFrame) -> pl.DataFrame:
    """Text cells that begin like a formula made plain text for spreadsheets."""
    text = cs.string()
    risky = text.str.contains(r"^[=+\-@\t\r]") & ~text.str.contains(r"^[+-]?[\d.,]+%?$")
    return data.with_columns(pl.when(risky).then(pl.lit("'") + text).otherwise(text).name.keep())


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return json.dumps({str(k): v for k, v in value.items()}, ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return json.dumps(list(value), ensure_ascii=False)
    return str(value)


def _type(kinds: set[type], name: str, table: str) -> pl.DataType:
    kinds = kinds - {type(None)}
    if kinds <= {str}:
        return pl.String()
    if kinds == {bool}:
        return pl.Boolean()
    if kinds == {int}:
        return pl.Int64()
    if kinds <= {int, float}:
        return pl.Float64()
    names = " and ".join(sorted(k.__name__ for k in kinds))
    raise ProtocolError(f"table {table}, column {name}: {names} in one column; record one kind")
