"""The two subgroup rules: a required split in two, and a shared backbone with a free branch."""

from __future__ import annotations

from folkmoot.studies.negotiation.operators.outcome import (
    Case,
    Outcome,
    Portion,
    best,
    for_all,
    names,
    undecided,
)
from folkmoot.studies.negotiation.operators.votes import least_misery
from folkmoot.studies.negotiation.subgroups import nearest_split
from folkmoot.studies.negotiation.tally import Tally

TOGETHER = "Nobody wants to part, so all stay together."
SHARED = "shared backbone"
BRANCH = "optional branch"


def together(tally: Tally, case: Case) -> Outcome:
    """A subgroup slot without a conflict: the option of least misery, for all."""
    base = least_misery(tally, case)
    return Outcome(
        case.strategy.operator,
        base.selected_option,
        base.portions,
        (TOGETHER, *base.steps),
        fell_back_to="least_misery" if base.portions else "",
        decided_by=base.decided_by,
    )


def subgroup_required(tally: Tally, case: Case) -> Outcome:
    """Two branches around the tally's top two options, every member in the nearer one."""
    if not tally.options:
        return undecided("subgroup_required")
    split = nearest_split(tally)
    a, b = split.group_a, split.group_b
    return Outcome(
        "subgroup_required",
        a.anchor,
        (Portion(a.anchor, a.members, "Group A"), Portion(b.anchor, b.members, "Group B")),
        (
            f"Group A ({a.anchor}): {names(tally, a.members)}.",
            f"Group B ({b.anchor}): {names(tally, b.members)}.",
        ),
        decided_by="score",
    )


def subgroup_optional(tally: Tally, case: Case) -> Outcome:
    """What is least unwelcome to all is the backbone; the best option of those who wanted
    something else is a branch that they may take."""
    if not tally.options:
        return undecided("subgroup_optional")
    base = least_misery(tally, case)
    backbone = base.selected_option or ""
    portions = [for_all(tally, backbone, SHARED)]
    steps = [f"Shared backbone for all: {backbone}."]
    others = [v for v in tally.voters if tally.primary(v.id) not in (None, backbone)]
    if others:
        rest = [o for o in tally.options if o != backbone]
        branch, _ = best(tally, lambda o: (tally.total(o, others),), rest)
        takers = tally.supporters(branch, others)
        if takers:
            portions.append(Portion(branch, takers, BRANCH))
            steps.append(f"Optional branch: {branch}, for {names(tally, takers)}.")
    return Outcome(
        "subgroup_optional",
        backbone,
        tuple(portions),
        tuple(steps),
        decided_by=base.decided_by,
    )
