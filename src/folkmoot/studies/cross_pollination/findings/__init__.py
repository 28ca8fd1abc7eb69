"""What a cross-pollination run found: from its tables to findings in plain words.

`votes` reads the tables; the other files hold the findings of one subject each.
"""

from __future__ import annotations

from folkmoot.kit.exposure import exposure
from folkmoot.kit.findings import found
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.findings.changes import (
    differences,
    main_effects,
    marginal_homogeneity,
    option_shifts,
    position_change,
    regression,
    tallies,
    towards_opposition,
    transitions,
)
from folkmoot.studies.cross_pollination.findings.decision_quality import (
    diversity,
    human_bands,
    quality,
    shift,
)
from folkmoot.studies.cross_pollination.findings.reasons import reasons
from folkmoot.studies.cross_pollination.findings.trust import (
    attrition,
    option_order,
    persuasion,
    respondent_checks,
    spread_of_votes,
)
from folkmoot.studies.cross_pollination.findings.votes import read


def findings(run: RunFolder) -> list[Finding]:
    """All findings that the run's data allow, the headline first."""
    votes = read(run)
    return found(
        position_change(votes),
        tallies(votes),
        transitions(votes),
        differences(votes),
        main_effects(votes),
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
        spread_of_votes(votes),
        attrition(votes),
        quality(votes),
        reasons(votes),
        exposure(run),
    )
