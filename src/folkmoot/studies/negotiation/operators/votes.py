"""The six rules that hold a ballot round; each is the textbook rule of its name.

Masthoff, "Group recommender systems: combining individual models" (2011), tables 1 to 4, is the
worked example that the tests check approval, average and least misery against.
"""

from __future__ import annotations

from folkmoot.studies.negotiation.operators.outcome import (
    Case,
    Outcome,
    best,
    for_all,
    names,
    undecided,
    wishes,
)
from folkmoot.studies.negotiation.tally import Tally


def approval(tally: Tally, case: Case) -> Outcome:
    """Most approvals (members with a score above zero) wins."""
    operator = "approval_vote_plus_coverage"
    if not tally.options:
        return undecided(operator)
    chosen, settled = best(tally, lambda o: (len(tally.supporters(o)),))
    count = len(tally.supporters(chosen))
    return Outcome(
        operator,
        chosen,
        (for_all(tally, chosen),),
        (f"{count} of {len(tally.voters)} members approve of {chosen}, the most of any option.",),
        decided_by=settled,
    )


def weighted_average(tally: Tally, case: Case) -> Outcome:
    """The highest average score, each member counted by weight."""
    operator = "weighted_avg"
    if not tally.options:
        return undecided(operator)
    means = {o: weighted_mean(tally, o) for o in tally.options}
    chosen, settled = best(tally, lambda o: (means[o],))
    return Outcome(
        operator,
        chosen,
        (for_all(tally, chosen),),
        (f"The weighted average of {chosen} is {means[chosen]:.2f}, the highest of any option.",),
        decided_by=settled,
        details={"weighted_average": {o: round(means[o], 6) for o in tally.ranked()}},
    )


def weighted_mean(tally: Tally, option: str) -> float:
    """Σ weight·score / Σ weight over members."""
    weights = sum(v.weight for v in tally.voters)
    return sum(v.weight * tally.score(v.id, option) for v in tally.voters) / weights


def least_misery(tally: Tally, case: Case) -> Outcome:
    """Fewest strong rejections, then the highest lowest score of any member."""
    operator = "least_misery"
    if not tally.options:
        return undecided(operator)
    chosen, settled = best(tally, lambda o: (-len(tally.rejections(o)), tally.lowest(o)))
    return Outcome(
        operator,
        chosen,
        (for_all(tally, chosen),),
        (
            f"No option spares the least content more than {chosen}: strong rejections "
            f"{len(tally.rejections(chosen))}, lowest member score {tally.lowest(chosen):g}.",
        ),
        decided_by=settled,
    )


def mutual_interest(tally: Tally, case: Case) -> Outcome:
    """The best option that every member supports; where there is none, least misery."""
    operator = "mutual_interest"
    if not tally.options:
        return undecided(operator)
    shared = [o for o in tally.options if len(tally.supporters(o)) == len(tally.voters)]
    if not shared:
        other = least_misery(tally, case)
        steps = ("No option has everyone's support, so the least unwelcome one is taken.",)
        return Outcome(
            operator,
            other.selected_option,
            other.portions,
            steps + other.steps,
            fell_back_to="least_misery",
            decided_by=other.decided_by,
        )
    chosen, settled = best(tally, lambda o: (tally.total(o),), shared)
    return Outcome(
        operator,
        chosen,
        (for_all(tally, chosen),),
        (f"Every member supports {chosen}; its total score is {tally.total(chosen):g}.",),
        decided_by=settled,
    )


def higher_preference(tally: Tally, case: Case) -> Outcome:
    """The strongest single preference (a member's first choice) wins; whoever wanted something
    else is owed it."""
    operator = "higher_pref_with_compensation"
    if not tally.options:
        return undecided(operator)
    firsts = wishes(tally)
    strongest = {
        o: max(tally.score(v.id, o) for v in tally.voters if not firsts or v.id in firsts[o])
        for o in firsts or tally.options
    }
    chosen, settled = best(tally, lambda o: (strongest[o],), list(strongest))
    won = [v.id for v in tally.voters if tally.score(v.id, chosen) == strongest[chosen]]
    owed = tuple(
        (v.id, wish)
        for v in tally.voters
        if (wish := tally.primary(v.id)) is not None and wish != chosen and v.id not in won
    )
    want = "wants" if len(won) == 1 else "want"
    steps = [f"{names(tally, won)} {want} {chosen} most strongly, at {strongest[chosen]:g}."]
    steps += [f"{names(tally, [m])} gave way and is owed {o}." for m, o in owed]
    return Outcome(
        operator,
        chosen,
        (for_all(tally, chosen, owner=won[0]),),
        tuple(steps),
        owed=owed,
        decided_by=settled,
    )


def parent_vote(tally: Tally, case: Case) -> Outcome:
    """Only the binding role (parents) votes, one vote each for the own best option.

    Ties: fewest strong rejections in the whole family, then score, then alphabetical. Where no
    parent wants anything that was named, the parents' least misery decides.
    """
    operator = "parent_vote_lower_misery"
    if not tally.options:
        return undecided(operator)
    parents = tally.of_role(case.strategy.binding)
    cast = {v.id: tally.primary(v.id) for v in parents}
    count = {o: sum(vote == o for vote in cast.values()) for o in tally.options}
    if any(count.values()):
        chosen, settled = best(tally, lambda o: (count[o], -len(tally.rejections(o))))
        step = f"{count[chosen]} of {len(parents)} parents vote for {chosen}."
        fallback = ""
    else:
        chosen, settled = best(
            tally, lambda o: (-len(tally.rejections(o, parents)), tally.lowest(o, parents))
        )
        step = "No parent wants an option that was named; the least unwelcome to them is taken."
        fallback = "least_misery"
    return Outcome(
        operator,
        chosen,
        (for_all(tally, chosen),),
        (step,),
        fell_back_to=fallback,
        decided_by=settled,
        details={"votes": cast},
    )
