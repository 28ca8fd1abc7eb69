"""What a cross-pollination run found: from its tables to findings in plain words.

Each neighbour module makes the findings of one question; this one puts them in reading order.
"""

from __future__ import annotations

from folkmoot.kit.exposure import exposure
from folkmoot.kit.findings import found
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.findings import change, factors, noise, spread
from folkmoot.studies.cross_pollination.findings.data import read
from folkmoot.studies.cross_pollination.findings.quality import quality
from folkmoot.studies.cross_pollination.findings.reasons import reasons


def findings(run: RunFolder) -> list[Finding]:
    """All findings that the run's data allow, the headline first."""
    votes = read(run)
    return found(
        change.position_change(votes),
        change.tallies(votes),
        change.transitions(votes),
        change.differences(votes),
        factors.main_effects(votes),
        change.regression(votes),
        change.towards_opposition(votes),
        change.marginal_homogeneity(votes),
        change.option_shifts(votes),
        noise.persuasion(votes),
        noise.option_order(votes),
        noise.respondent_checks(votes),
        spread.diversity(votes),
        spread.shift(votes),
        spread.human_bands(votes),
        noise.variance_collapse(votes),
        noise.attrition(votes),
        quality(votes),
        reasons(votes),
        exposure(run),
    )
