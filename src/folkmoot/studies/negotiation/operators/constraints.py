"""`hard_constraint`: what the binding members turn down is removed before anything is chosen."""

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
from folkmoot.studies.negotiation.tally import Tally


def hard_constraint(tally: Tally, case: Case) -> Outcome:
    """Options that a binding member strongly rejects are removed; of the rest, the binding
    members' favourite stands. House rules hold together: all that remain and are wanted by a
    binding member are in force. Where nothing remains, the option with the fewest binding
    rejections is named and the outcome is marked infeasible.
    """
    if not tally.options:
        return undecided("hard_constraint")
    binding = tally.of_role(case.strategy.binding)
    removed = tuple(
        (option, by) for option in tally.options if (by := tally.rejections(option, binding))
    )
    struck = {option for option, _ in removed}
    left = [o for o in tally.options if o not in struck]
    steps = [f"Ruled out by {names(tally, by)}: {option}." for option, by in removed]
    if left:
        chosen, settled = best(tally, lambda o: (tally.total(o, binding),), left)
        steps.append(f"The binding members like {chosen} best among what remains.")
    else:
        chosen, settled = best(tally, lambda o: (-len(tally.rejections(o, binding)),))
        steps.append(f"Nothing remains; the fewest binding members rule out {chosen}.")
    return Outcome(
        "hard_constraint",
        chosen,
        _in_force(tally, case, chosen, left),
        tuple(steps),
        removed=removed,
        infeasible=not left,
        decided_by=settled,
    )


def _in_force(tally: Tally, case: Case, chosen: str, left: list[str]) -> tuple[Portion, ...]:
    if case.strategy.topic != "house_rule":
        return (for_all(tally, chosen),)
    binding = tally.of_role(case.strategy.binding)
    wanted = [o for o in tally.ranked(binding) if o in left and tally.supporters(o, binding)]
    rules = [chosen, *(o for o in wanted if o != chosen)]
    return tuple(for_all(tally, o) for o in rules)
