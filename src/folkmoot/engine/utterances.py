"""The tables that the engine writes of what was said and of what stood in prompts.

`utterances` has one row for each thing that a speaker said, in public or in private, with the
address of the reply. `provenance` has one row for each text of known source in each request.
`self_descriptions` has what people say of themselves who speak for themselves. All are streamed
like other tables, and a replay computes them again.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import polars as pl

from folkmoot.provenance import Span
from folkmoot.storage.rows import Row, column

UTTERANCES = "utterances"
PROVENANCE = "provenance"
SELF_DESCRIPTIONS = "self_descriptions"


class UtteranceRow(Row, table=UTTERANCES, key=("utterance_id",)):
    """One thing that a speaker said. A study type with columns of its own (which group, which
    condition) lists a subclass in its `tables` and gives these columns to `Scope.say`."""

    utterance_id: str = column("the utterance: its address, and which part of the reply it is")
    address: str = column("the reply that it comes from; empty if no reply: prescribed words")
    scope: str
    stage: str
    round: int | None
    speaker_id: str
    speaker_name: str
    speaker_role: str
    public: bool = column("whether the others in the conversation hear it")
    text: str
    missing: str | None
    finish: str | None


class ProvenanceRow(Row, table=PROVENANCE):
    """One text of known source in one request."""

    address: str
    message: int = column("the message of the request, from 0")
    start: int = column("its first character in that message, from 0")
    end: int = column("the character after its last")
    kind: str = column(
        "utterance, answer, persona, material, option, proposal, summary, value, reply, or "
        "unattributed: interpolated, and nobody knows from where"
    )
    source_id: str = column(
        "where the text is recorded: an utterance_id, the address of an answer, or "
        "table.column/key, or study.key of the study file"
    )
    speaker: str = column("who said or chose it, or whom a persona describes")
    altered: bool = column("whether it was changed on the way, as by the filter `upper`")


class SelfDescriptionRow(Row, table=SELF_DESCRIPTIONS, key=("seat",)):
    """What one person says of themselves, who speaks for themselves in a seat."""

    seat: str = column("the seat, as `seats:` of the study file names it")
    speaker_id: str
    address: str = column("the reply that it comes from")
    text: str = column("the self-description, as it stands in prompts in place of a persona")


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
    """Return the spans of a request as one cell: a row for each would cost as much as the call."""
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
    """Return the table `provenance` from rows of an address and packed spans."""
    decoded = packed.lazy().with_columns(pl.col("spans").str.json_decode(_PACKED))
    return decoded.explode("spans").unnest("spans")
