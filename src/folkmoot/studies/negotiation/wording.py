"""How decisions are put into words: the sentences that the System says and the planner reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

from folkmoot.studies.negotiation.groups import Group
from folkmoot.studies.negotiation.operators import Outcome, Portion
from folkmoot.studies.negotiation.operators.outcome import WHOLE_TRIP, listed
from folkmoot.studies.negotiation.subgroups import Flags

# Options are kept in lower case; in a sentence these have a capital.
_PROPER = re.compile(
    r"\b(?:american|chinese|french|greek|indian|italian|japanese|korean|mediterranean|mexican"
    r"|spanish|thai|turkish|vietnamese)\b"
)


def spelled(sentence: str) -> str:
    """A sentence of ours with the capitals that options lost ("American for everyone")."""
    return _PROPER.sub(lambda found: found[0].capitalize(), sentence)


def decision_sentence(group: Group, outcome: Outcome) -> str:
    """The operator's decision in one sentence; who gets what, when, where it differs."""
    if not outcome.portions:
        return "Nothing can be decided: nobody named an option"
    parts = [_portion(group, p) for p in outcome.portions]
    if _rules(outcome.portions):
        return spelled(f"In force together: {listed([p.option for p in outcome.portions])}")
    sentence = "; ".join(parts)
    if outcome.operator == "self_select" and outcome.selected_option:
        sentence = f"Around {outcome.selected_option} as the shared frame: {sentence}"
    for member, option in outcome.owed:
        sentence += f"; in return {group.name_of(member)} is owed {option}"
    return spelled(sentence[:1].upper() + sentence[1:])


def _rules(portions: tuple[Portion, ...]) -> bool:
    """Several options for the same members at the same time hold together."""
    first = portions[0]
    return len(portions) > 1 and all(
        p.when == first.when and p.members == first.members for p in portions
    )


def _portion(group: Group, portion: Portion) -> str:
    everyone = len(portion.members) == len(group.members)
    who = "everyone" if everyone else listed([group.name_of(m) for m in portion.members])
    if portion.when.startswith("Group"):
        return f"{portion.when} ({portion.option}): {who}"
    if portion.when == WHOLE_TRIP:
        return f"{portion.option} for {who}"
    if portion.owner:
        return f"{portion.when} {portion.option} ({group.name_of(portion.owner)}'s choice)"
    return f"{portion.option} for {who} ({portion.when})"


def coverage_sentence(group: Group, coverage: Mapping[str, str]) -> str:
    """What is promised to those whose first choice was not taken."""
    by_option: dict[str, list[str]] = {}
    for member, option in coverage.items():
        by_option.setdefault(option, []).append(group.name_of(member))
    promised = listed([f"{o} for {listed(names)}" for o, names in by_option.items()])
    return f"Later in the trip, when feasible: {promised}"


def next_step(flags: Flags, has_conflict: bool, *, votes: bool, feedback: bool) -> str:
    """What follows a synthesis turn: a vote, the plan of a split, feedback, or the plan."""
    if votes:
        return "Collect one ballot from each member, then apply the operator deterministically"
    if flags.required:
        return "Plan a shared backbone, the two branches and the point where they meet again"
    if flags.optional:
        return "Plan the shared backbone and leave the branch open to whoever wants it"
    if not has_conflict:
        return "Take this to the plan as it stands"
    plan = "Take who gets what to the plan"
    return f"{plan}, once who is left out was heard" if feedback else plan
