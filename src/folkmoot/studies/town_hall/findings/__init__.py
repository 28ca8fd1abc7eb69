"""What a town-hall run found: levels compared, vulnerable beside general residents."""

from __future__ import annotations

import polars as pl

from folkmoot.records.findings import Finding
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.town_hall.findings.inclusion import inclusion, replication, steps
from folkmoot.studies.town_hall.findings.outcome import everything, outcome, satisfaction
from folkmoot.studies.town_hall.findings.responses import responses
from folkmoot.studies.town_hall.findings.talk import reading, spectrum, stances


def findings(run: RunFolder) -> list[Finding]:
    """All findings, the headline first."""
    compared = run.json("levels.json")
    main, apart = compared["main"], compared["supplementary"]
    found = [
        inclusion(main["levels"]),
        steps(main["differences"]) if main["differences"] else None,
        spectrum(_main(run, "reactions")) if run.has_table("reactions") else None,
        *_responses(run),
        outcome(main["levels"]),
        satisfaction(main["levels"]),
        everything(main["levels"], compared["figures"]),
        replication(apart, main["levels"]) if apart["levels"] else None,
        stances(_main(run, "rounds")),
        reading(run.json("quality.json")),
    ]
    return [f for f in found if f is not None]


def _responses(run: RunFolder) -> list[Finding]:
    if not (run.has_table("reactions") and run.has_table("residents")):
        return []
    return responses(_main(run, "reactions"), run.table("residents"))


def _main(run: RunFolder, table: str) -> pl.DataFrame:
    """The rows of the main comparison: supplementary levels are reported apart."""
    return run.table(table).filter(pl.col("part") == "main")
