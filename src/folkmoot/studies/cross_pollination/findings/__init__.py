"""The findings of a cross-pollination run, computed from the tables of the run.

`votes` reads the tables. Each other module holds the findings of one subject.

Only the modules of the cross-pollination study type import this folder.
"""

from __future__ import annotations

from folkmoot.kit.exposure import exposure_finding
from folkmoot.kit.findings import collect_findings, condition_name
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.findings.changes import (
    difference_finding,
    main_effects,
    marginal_homogeneity,
    option_shifts,
    position_change,
    regression_finding,
    transition_finding,
    vote_counts,
)
from folkmoot.studies.cross_pollination.findings.decision_quality import (
    diversity_finding,
    human_bands,
    quality_findings,
    shift_finding,
)
from folkmoot.studies.cross_pollination.findings.reasons import reason_findings
from folkmoot.studies.cross_pollination.findings.trust import (
    attrition_finding,
    option_order,
    persuasion_finding,
    respondent_checks,
    spread_of_votes,
    towards_opposition,
)
from folkmoot.studies.cross_pollination.findings.votes import read_votes


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings that the data of the run allow, with the headline first."""
    votes = read_votes(run)
    return collect_findings(
        position_change(votes),
        vote_counts(votes),
        transition_finding(votes),
        difference_finding(votes),
        main_effects(votes),
        regression_finding(votes),
        towards_opposition(votes),
        marginal_homogeneity(votes),
        option_shifts(votes),
        persuasion_finding(votes),
        option_order(votes),
        respondent_checks(votes),
        diversity_finding(votes),
        shift_finding(votes),
        human_bands(votes),
        spread_of_votes(votes),
        attrition_finding(votes),
        quality_findings(votes),
        reason_findings(votes),
        exposure_finding(run, condition_name),
    )
