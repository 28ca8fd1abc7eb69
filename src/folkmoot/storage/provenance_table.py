"""The table `provenance`, with one row for each span of each request.

A span is a text in a request with a known source, such as a quoted utterance.
"""

# The engine records all spans of a request in one cell, because recording a row for each would take
# as long as the call. The cells are unpacked when the table is written, or when it is read during
# the run.

from __future__ import annotations

from collections.abc import Sequence

import orjson
import polars as pl

from folkmoot.provenance import Source, Span
from folkmoot.storage.rows import Row, column

PROVENANCE = "provenance"


class ProvenanceRow(Row, table=PROVENANCE):
    """One span: a text in a request, with the source of the text."""

    address: str
    message: int = column("the message of the request, from 0")
    start: int = column("the first character of the text in that message, from 0")
    end: int = column("the character after the last one of the text")
    kind: str = column(
        "what the text is: utterance, answer, persona, material, option, proposal, summary, "
        "value, reply, or unattributed (inserted into the prompt from an unknown source)"
    )
    source_id: str = column(
        "where the text is recorded: an utterance_id, the address of an answer, "
        "table.column/key, or study.key of the study file"
    )
    speaker: str = column("who said or chose it, or whom a persona describes")
    altered: bool = column("whether the text was changed on the way, as by the filter `upper`")


# The polars type of a packed cell. It must match the keys in `pack_spans`.
_PACKED = pl.List(
    pl.Struct(
        {
            "message": pl.Int64(),
            "start": pl.Int64(),
            "end": pl.Int64(),
            "kind": pl.String(),
            "source_id": pl.String(),
            "speaker": pl.String(),
            "altered": pl.Boolean(),
        }
    )
)


def pack_spans(spans: Sequence[Span]) -> str:
    """Return the spans of one request as one JSON cell."""
    return orjson.dumps(
        [
            {
                "message": span.message,
                "start": span.start,
                "end": span.end,
                "kind": span.source.kind,
                "source_id": span.source.id,
                "speaker": span.source.speaker,
                "altered": span.source.altered,
            }
            for span in spans
        ]
    ).decode()


def unpack_spans(packed: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
    """Return the table `provenance`, unpacked from the rows that the engine recorded.

    A recorded row holds all spans of one request, as made by `pack_spans`.
    """
    # A recorded row holds the address of a request and the cell that `pack_spans` made.
    decoded = packed.lazy().with_columns(pl.col("spans").str.json_decode(_PACKED))
    return decoded.explode("spans").unnest("spans")


class RequestSpans:
    """The spans of requests, from rows of the table `provenance`."""

    # The rows stay a data frame, because a run has millions of spans.

    def __init__(self, table: pl.DataFrame | None = None) -> None:
        self._places: dict[str, list[int]] = {}
        if table is None:
            return
        self._table = table
        # The rows of an address are adjacent, so its first row and their number find them at once.
        rows = table.with_row_index("row").group_by("address").agg(pl.col("row").min(), pl.len())
        self._places = {address: row_range for address, *row_range in rows.iter_rows()}

    def spans_at(self, address: str) -> list[Span]:
        """Return the spans of a request, or an empty list if none were recorded."""
        if address not in self._places:
            return []
        rows = self._table.slice(*self._places[address])
        source = pl.col("kind", "source_id", "speaker").fill_null("")
        columns = ("start", "end", "message")
        return [
            Span(start, end, Source(kind, id, speaker, altered), message)
            for start, end, message, kind, id, speaker, altered in rows.select(
                *columns, source, "altered"
            ).iter_rows()
        ]
