"""What a cross-pollination run found: from its tables to findings in plain words.

Each neighbour module makes the findings of one question; this one puts them in reading order.
"""

from __future__ import annotations

from folkmoot.records.findings import Finding
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.cross_pollination.findings.change import (
    differences,
    persuasion,
    position_change,
)
from folkmoot.studies.cross_pollination.findings.data import Votes, read
from folkmoot.studies.cross_pollination.findings.model import regression
from folkmoot.studies.cross_pollination.findings.moves import (
    marginal_homogeneity,
    option_shifts,
    tallies,
    towards_opposition,
    transitions,
)
from folkmoot.studies.cross_pollination.findings.quality import (
    attrition,
    option_order,
    respondent_checks,
    variance_collapse,
)
from folkmoot.studies.cross_pollination.findings.reasons import reasons
from folkmoot.studies.cross_pollination.findings.spread import diversity, human_bands, shift


def findings(run: RunFolder) -> list[Finding]:
    """All findings that the run's data allow, the headline first."""
    return of_votes(read(run))


def of_votes(votes: Votes) -> list[Finding]:
    """The findings of votes already read."""
    found = [
        position_change(votes),
        tallies(votes),
        transitions(votes),
        differences(votes),
        regression(votes),
        towards_opposition(votes),
        marginal_homogeneity(votes),
        option_shifts(votes),
        persuasion(votes),
        option_order(votes),
        respondent_checks(votes),
        diversity(votes),
        shift(votes),
        human_bands(votes),
        variance_collapse(votes),
        attrition(votes),
        *reasons(votes),
    ]
    return [f for f in found if f is not None]
