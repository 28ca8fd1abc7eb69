"""Report which humans failed a check, and which of them were left out of the study."""

from __future__ import annotations

import polars as pl

from folkmoot.engine.seats.questionnaire import CHECKS
from folkmoot.engine.seats.seat_manager import SCREENED_OUT
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.run_folder import RunFolder

KEY = "checks_of_humans"
NOT_EXCLUDED = (
    "A flagged human is not excluded: the analysis contains their answers. Only a check with "
    "`on_failure: end` leaves a human out."
)


def checks_of_humans(run: RunFolder) -> Finding | None:
    """Return the finding on the checks of humans, or None if no human had to answer one.

    The finding lists each human who was flagged or screened out, with the last answer. Raises
    StorageError if the table cannot be read.
    """
    if not run.has_table(CHECKS):
        return None
    rows = run.read_table(CHECKS)
    last = rows.sort("attempt").group_by("seat", "check", maintain_order=True).last()
    failed = last.filter(pl.col("outcome").is_in(["flagged", SCREENED_OUT])).sort("seat", "check")
    humans, flagged, ended = (
        frame["seat"].n_unique()
        for frame in (
            last,
            failed.filter(pl.col("outcome") == "flagged"),
            failed.filter(pl.col("outcome") == SCREENED_OUT),
        )
    )
    columns = ("seat", "check", "question", "attempt", "answer", "missing", "outcome")
    return Finding(
        KEY,
        "Which humans failed a check?",
        f"{format_count(humans, 'human')} answered checks: {flagged} flagged, {ended} screened "
        "out.",
        ResultTable(columns, tuple(failed.select(columns).iter_rows())),
        notes=(NOT_EXCLUDED,),
        section="Exclusions",
    )
