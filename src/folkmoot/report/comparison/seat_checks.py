"""Report which humans failed a check, and which humans were left out of the study."""

from __future__ import annotations

import polars as pl

from folkmoot.engine.seats.questionnaire import CHECKS, EXCLUDED, FLAGGED
from folkmoot.engine.seats.seat_manager import SCREENED_OUT
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.partial_run import PartsView
from folkmoot.storage.run_folder import RunFolder

KEY = "checks_of_humans"
NOT_EXCLUDED = (
    "A flagged human is not left out: the analysis contains their answers. Only a check "
    "that excludes, or that ends the questions, leaves a human out."
)
NOT_POSSIBLE = (
    "The analysis still contains the answers of excluded humans, because this study type does not "
    "declare the parts of a run."
)
FAILURES = (FLAGGED, EXCLUDED, SCREENED_OUT)


def checks_of_humans(run: RunFolder) -> Finding | None:
    """Return the finding on the checks of humans, or None if no human was checked.

    Raises StorageError if the table cannot be read.
    """
    # It lists each human who was flagged or screened out, and that human's last answer.
    if not run.has_table(CHECKS):
        return None
    rows = run.read_table(CHECKS)
    last = rows.sort("attempt").group_by("seat", "check", maintain_order=True).last()
    failed = last.filter(pl.col("outcome").is_in(FAILURES)).sort("seat", "check")
    humans = last["seat"].n_unique()
    flagged, excluded, ended = (
        failed.filter(outcome=outcome)["seat"].n_unique() for outcome in FAILURES
    )
    is_left_out = isinstance(run, PartsView) and run.parts.excluded
    notes = [NOT_EXCLUDED] if flagged else []
    notes += [NOT_POSSIBLE] if excluded and not is_left_out else []
    columns = ("seat", "check", "question", "attempt", "answer", "missing", "outcome")
    return Finding(
        KEY,
        "Which humans failed a check?",
        f"{format_count(humans, 'human')} answered checks: {flagged} flagged, {excluded} excluded, "
        f"{ended} screened out.",
        ResultTable(columns, tuple(failed.select(columns).iter_rows())),
        notes=tuple(notes),
        section="Exclusions",
    )
