"""The findings of a town-hall run, computed from the tables of the run.

`levels` compares levels and groups of residents, `concerns` tells what became of coded concerns,
and `reactions` tells how residents responded to each other.

Only the town-hall study type imports this folder.
"""

from __future__ import annotations

from dataclasses import replace

from folkmoot.kit import coding
from folkmoot.kit.claims import (
    read_results,
)
from folkmoot.kit.exposure import exposure_finding
from folkmoot.kit.findings import (
    collect_findings,
)
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import (
    GAP,
    TownHallConfig,
    declare_claims,
)
from folkmoot.studies.town_hall.findings.concerns import concerns_finding
from folkmoot.studies.town_hall.findings.levels import (
    Levels,
    all_measures_finding,
    inclusion_finding,
    outcome_finding,
    replication_finding,
    satisfaction_finding,
    step_finding,
)
from folkmoot.studies.town_hall.findings.reactions import (
    response_findings,
    spectrum_finding,
    stance_finding,
)
from folkmoot.studies.town_hall.measures import (
    compare_levels,
)
from folkmoot.studies.town_hall.quality import answer_quality_finding, quality_of_run

# The kind keeps the name that it has in the tables of earlier runs.
LIFE_STORY = (
    "life story: the description of a resident. It holds a life story only if the level gives "
    "this resident one."
)


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings of a run, the headline first."""
    comparison = compare_levels(run)
    main, supplementary = comparison["main"], comparison["supplementary"]
    levels: Levels = main["levels"]
    results = read_results(run, TownHallConfig, declare_claims)
    # Claims that compare two main levels. The others compare groups or a supplementary level.
    between_levels = [result for result in results if {*result.claim.contrast} <= levels.keys()]
    # Supplementary levels have a separate finding and must not enter the pooled tables.
    reactions, rounds = (
        run.read_table(table).filter(part="main") for table in ("reactions", "rounds")
    )
    # A study file may list no vulnerable residents.
    between_parts = [
        result for result in results if result.claim.measure == GAP and result not in between_levels
    ]
    has_vulnerable = bool(rounds["is_vulnerable"].any())
    return collect_findings(
        inclusion_finding(levels, results, comparison["sets"], has_vulnerable=has_vulnerable)
        if levels
        else None,
        step_finding(between_levels, main["differences"], comparison["sets"]),
        concerns_finding(run),
        spectrum_finding(reactions),
        response_findings(reactions, run.read_table("residents")),
        [
            outcome_finding(levels, comparison["sets"], has_vulnerable=has_vulnerable),
            satisfaction_finding(levels, comparison["sets"]),
            all_measures_finding(levels, comparison),
        ]
        if levels
        else None,
        # Without supplementary levels there is nothing to report apart.
        replication_finding(supplementary, levels, between_parts, comparison["sets"])
        if supplementary["levels"]
        else None,
        stance_finding(rounds),
        answer_quality_finding(quality_of_run(run)) if run.has_table("quality") else None,
        coding.coding_finding(run),
        _exposure_finding(run),
    )


def _exposure_finding(run: RunFolder) -> Finding | None:
    finding = exposure_finding(run, "level {}".format)
    return None if finding is None else replace(finding, notes=(LIFE_STORY, *finding.notes))
