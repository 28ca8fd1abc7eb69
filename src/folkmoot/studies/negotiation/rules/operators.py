"""The sixteen operators: rules that decide a topic from the scores of the members."""

# Each operator is a pure function of a tally. Ties are broken by the higher total score, then
# alphabetically. The parents' vote has another rule: the fewest strong rejections, then
# alphabetically.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from folkmoot.hints import join_words
from folkmoot.studies.negotiation.rules.strategies import Member, Strategy, strategy_table
from folkmoot.studies.negotiation.rules.tally import Tally, nearest_split

WHOLE_TRIP = "whole trip"
SHARED, BRANCH = "shared backbone", "optional branch"


@dataclass(frozen=True, slots=True)
class Portion:
    """One part of a decision: an option, the members who get the option, and the time."""

    # Portions with the same `when` apply at the same time, for example several house rules.
    # Portions with different times follow each other.
    option: str
    members: tuple[str, ...]
    when: str = WHOLE_TRIP
    # The id of the member who chose the option. Empty if no single member chose.
    owner: str = ""

    def to_json(self) -> dict[str, object]:
        owner = {"owner": self.owner} if self.owner else {}
        return {"option": self.option, "members": list(self.members), "when": self.when, **owner}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision that an operator made, and the reasoning behind the decision."""

    # The option that sums up the decision, or None if there is no such option.
    selected_option: str | None
    # The complete decision.
    portions: tuple[Portion, ...]
    # The reasoning in sentences.
    steps: tuple[str, ...] = ()
    # The criterion that decided: rule, score or alphabetical.
    decided_by: str = ""
    # Pairs of a removed option and the members who removed it.
    removed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Pairs of a member and the option that this member is promised for giving way.
    owed: tuple[tuple[str, str], ...] = ()
    # The operator that decided if the strategy's own operator could not.
    fell_back_to: str = ""
    # True if every option breaks a hard constraint, or if all members strongly reject every option.
    infeasible: bool = False
    details: Mapping[str, object] = field(default_factory=dict)
    # Set by `apply_operator`.
    operator: str = ""
    # The lead of the selected option over the next one, by the rule's first criterion. None if the
    # rule does not compare options.
    margin: float | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "operator": self.operator,
            "selected_option": self.selected_option,
            "portions": [portion.to_json() for portion in self.portions],
            "steps": list(self.steps),
            "removed": [{"option": option, "by": list(by)} for option, by in self.removed],
            "owed": [{"member": member_id, "option": option} for member_id, option in self.owed],
            "fell_back_to": self.fell_back_to or None,
            "infeasible": self.infeasible,
            "decided_by": self.decided_by,
            "margin": self.margin,
            **({"details": dict(self.details)} if self.details else {}),
        }


@dataclass(frozen=True, slots=True)
class Case:
    """The strategy and the length of the trip. Both influence an operator's decision."""

    # The row of the strategy table.
    strategy: Strategy
    # The length of the trip.
    days: int = 3


def apply_operator(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> Outcome:
    """Return the decision that a strategy's operator makes from the members' scores.

    - `days`: the length of the trip.
    - `has_conflict`: if False, rules that split the group keep all members together.
    """
    operator = strategy.operator
    if not tally.options:
        return Outcome(None, (), ("Nobody named an option.",), operator=operator)
    rule = OPERATIONS[operator]
    if not has_conflict and operator in ("subgroup_required", "subgroup_optional"):
        rule = decide_together
    outcome = rule(tally, Case(strategy, days))
    # If all members strongly reject every option, no rule can find an acceptable one.
    is_hopeless = all(
        len(tally.rejecting_voters(option)) == len(tally.voters) for option in tally.options
    )
    return replace(outcome, operator=operator, infeasible=outcome.infeasible or is_hopeless)


def counterfactual_outcomes(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> dict[str, Outcome]:
    """Return the decisions that all operators would make from the same scores, by operator.

    - `days`: the length of the trip.
    - `has_conflict`: if False, rules that split the group keep all members together.
    """
    # Some operators give members of one role (such as parents) the right to rule options out. If
    # the strategy table names no such role for an operator, all members have this right.
    binding = {
        row.operator: row.binding
        for (kind, _), row in strategy_table().items()
        if kind == strategy.group_type
    }
    outcomes = {}
    for operator in OPERATIONS:
        changed_strategy = replace(
            strategy, operator=operator, binding=binding.get(operator, "all")
        )
        outcomes[operator] = apply_operator(
            tally, changed_strategy, days, has_conflict=has_conflict
        )
    return outcomes


# --- what the rules share ----------------------------------------------------------------------


class Pick(NamedTuple):
    """The option that a rule selects."""

    option: str
    # The criterion that decided: "rule", "score" (total score) or "alphabetical".
    settled: str
    # The lead over the next option in the rule's first criterion.
    margin: float | None


def pick_best(
    tally: Tally,
    key: Callable[[str], tuple[float, ...]],
    options: Sequence[str] | None = None,
    *,
    by_score: bool = True,
) -> Pick:
    """Return the option for which `key` returns the largest tuple.

    `by_score`: True if the total score of the members breaks ties.
    """
    # Remaining ties are broken alphabetically.
    candidates = list(tally.options if options is None else options)
    keys = {option: key(option) for option in candidates}
    # Keys are tuples, so a later criterion decides only between options that are equal in the
    # earlier ones.
    top_key = max(keys.values())
    tied = [option for option in candidates if keys[option] == top_key]
    top_total = max(tally.total(option) for option in tied)
    leading = sorted(option for option in tied if not by_score or tally.total(option) == top_total)
    settled_by = "rule" if len(tied) == 1 else "score" if len(leading) == 1 else "alphabetical"
    other_values = [keys[option][0] for option in candidates if option != leading[0]]
    return Pick(leading[0], settled_by, top_key[0] - max(other_values) if other_values else None)


def allocate_to_all(tally: Tally, option: str, when: str = WHOLE_TRIP, owner: str = "") -> Portion:
    return Portion(option, tuple(member.id for member in tally.voters), when, owner)


def decide_for_all(tally: Tally, pick: Pick, step: str) -> Outcome:
    portion = allocate_to_all(tally, pick.option)
    return Outcome(pick.option, (portion,), (step,), pick.settled, margin=pick.margin)


def allocate_own_choices(
    tally: Tally, members_by_option: Mapping[str, Sequence[str]], chosen: str | None, pick: Pick
) -> Outcome:
    """Return an outcome that gives each option to the members in `members_by_option`.

    - `chosen`: the option that sums up the outcome, or None.
    - `pick`: says which criterion decided, and by how much.
    """
    portions = tuple(
        Portion(option, tuple(member_ids)) for option, member_ids in members_by_option.items()
    )
    steps = tuple(
        f"{format_names(tally, member_ids)}: {option}."
        for option, member_ids in members_by_option.items()
    )
    return Outcome(chosen, portions, steps, pick.settled, margin=pick.margin)


def format_names(tally: Tally, ids: Sequence[str]) -> str:
    """Return the names of members for a sentence, such as "Parent 1 and Child 2"."""
    return join_words([member.name for member in tally.voters if member.id in ids])


def first_choice_groups(
    tally: Tally, voters: Sequence[Member] | None = None
) -> dict[str, list[str]]:
    """Group the voters by first choice.

    Returns the ids of the voters for each option that is a first choice.
    """
    # The options are in alphabetical order.
    return _by_option(tally.first_choices(voters))


def _by_option(choice: Mapping[str, str]) -> dict[str, list[str]]:
    members_by_option: dict[str, list[str]] = {}
    for member, option in choice.items():
        members_by_option.setdefault(option, []).append(member)
    return dict(sorted(members_by_option.items()))


# --- the six rules that hold a ballot round ----------------------------------------------------

# Tests check approval, average and least misery against the worked example of Masthoff (2011),
# "Group recommender systems: combining individual models", tables 1 to 4.


def decide_by_approval(tally: Tally, case: Case) -> Outcome:
    """Pick the option with the most approvals."""
    # A score above zero is an approval.
    pick = pick_best(tally, lambda option: (len(tally.supporting_voters(option)),))
    count, option = len(tally.supporting_voters(pick.option)), pick.option
    approval_text = f"{count} of {len(tally.voters)} members approve of {option}"
    return decide_for_all(tally, pick, f"{approval_text}; no option has more.")


def weighted_average(tally: Tally, case: Case) -> Outcome:
    """Pick the option with the highest mean score, weighted by the members' weights."""
    means = {option: tally.weighted_mean(option) for option in tally.options}
    pick = pick_best(tally, lambda option: (means[option],))
    mean_text = f"{means[pick.option]:.2f}"
    step = f"The weighted average of {pick.option} is {mean_text}; no option has a higher one."
    rounded_means = {option: round(means[option], 6) for option in tally.ranked_options()}
    return replace(decide_for_all(tally, pick, step), details={"weighted_average": rounded_means})


def least_misery(tally: Tally, case: Case) -> Outcome:
    """Pick the option with the fewest strong rejections."""
    # Ties go to the highest minimum score.
    pick = pick_best(
        tally, lambda option: (-len(tally.rejecting_voters(option)), tally.lowest_score(option))
    )
    step = (
        f"What bothers people least is {pick.option}: strong rejections "
        f"{len(tally.rejecting_voters(pick.option))}, lowest member score "
        f"{tally.lowest_score(pick.option):g}."
    )
    return decide_for_all(tally, pick, step)


def mutual_interest(tally: Tally, case: Case) -> Outcome:
    """Pick the best option that all members support."""
    # If there is none, the option with the fewest strong rejections is picked.
    shared_options = [
        option
        for option in tally.options
        if len(tally.supporting_voters(option)) == len(tally.voters)
    ]
    if not shared_options:
        fallback = least_misery(tally, case)
        step = "No option has everyone's support, so the least unwelcome one is taken."
        return replace(fallback, steps=(step, *fallback.steps), fell_back_to="least_misery")
    pick = pick_best(tally, lambda option: (tally.total(option),), shared_options)
    step = f"Every member supports {pick.option}; its total score is {tally.total(pick.option):g}."
    return decide_for_all(tally, pick, step)


def higher_preference(tally: Tally, case: Case) -> Outcome:
    """Pick the first choice that received the highest score from a single member."""
    # Members who wanted another option are promised it in return.
    first_choice_members = first_choice_groups(tally)
    strongest = {
        option: max(
            tally.score_of(member.id, option)
            for member in tally.voters
            if not first_choice_members or member.id in first_choice_members[option]
        )
        for option in first_choice_members or tally.options
    }
    chosen, settled, margin = pick_best(tally, lambda option: (strongest[option],), list(strongest))
    winners = [
        member.id
        for member in tally.voters
        if tally.score_of(member.id, chosen) == strongest[chosen]
    ]
    owed = tuple(
        (member_id, option)
        for member_id, option in tally.unmet_first_choices(chosen).items()
        if member_id not in winners
    )
    verb = "wants" if len(winners) == 1 else "want"
    steps = [
        f"{format_names(tally, winners)} {verb} {chosen} most strongly, at {strongest[chosen]:g}."
    ]
    steps += [
        f"{format_names(tally, [member_id])} gave way and is owed {option}."
        for member_id, option in owed
    ]
    portion = allocate_to_all(tally, chosen, owner=winners[0])
    return Outcome(chosen, (portion,), tuple(steps), settled, owed=owed, margin=margin)


def parent_vote(tally: Tally, case: Case) -> Outcome:
    """Count only the votes of the parents. Each parent votes for the parent's first choice."""
    # Ties are broken by the fewest strong rejections in the whole family, then alphabetically. If
    # no parent wants any option, the fewest strong rejections among the parents decide.
    parents = tally.of_role(case.strategy.binding)
    votes_cast = {member.id: tally.first_choice(member.id) for member in parents}
    vote_counts = {
        option: sum(vote == option for vote in votes_cast.values()) for option in tally.options
    }
    fallback = ""
    if any(vote_counts.values()):
        pick = pick_best(
            tally,
            lambda option: (vote_counts[option], -len(tally.rejecting_voters(option))),
            list(vote_counts),
            by_score=False,
        )
        vote_count = vote_counts[pick.option]
        step = (
            f"{vote_count} of {len(parents)} parents vote{'s' * (vote_count == 1)} for "
            f"{pick.option}."
        )
        if pick.settled == "rule" and list(vote_counts.values()).count(vote_count) > 1:
            step += " Among the options with as many votes, the family rejects it least strongly."
    else:
        pick = pick_best(
            tally,
            lambda option: (
                -len(tally.rejecting_voters(option, parents)),
                tally.lowest_score(option, parents),
            ),
        )
        step = "No parent wants an option that was named; the least unwelcome to them is taken."
        fallback = "least_misery"
    outcome = decide_for_all(tally, pick, step)
    return replace(outcome, fell_back_to=fallback, details={"votes": votes_cast})


# --- hard constraints --------------------------------------------------------------------------


def hard_constraint(tally: Tally, case: Case) -> Outcome:
    """Pick the best option among those that no member with a veto strongly rejects."""
    # Members with a veto have the binding role of this strategy (such as parent). The pick is
    # the remaining option with their highest total score. House rules can apply together, so there
    # the decision holds all remaining rules that a binding member supports. If no option remains,
    # the least rejected one is picked and the outcome is marked as infeasible.
    binding = tally.of_role(case.strategy.binding)
    removed = {
        option: rejecting
        for option in tally.options
        if (rejecting := tally.rejecting_voters(option, binding))
    }
    remaining = [option for option in tally.options if option not in removed]
    steps = [
        f"Ruled out by {format_names(tally, rejecting)}: {option}."
        for option, rejecting in removed.items()
    ]
    if remaining:
        chosen, settled, margin = pick_best(
            tally, lambda option: (tally.total(option, binding),), remaining
        )
        steps.append(f"The binding members like {chosen} best among what remains.")
    else:
        chosen, settled, margin = pick_best(
            tally, lambda option: (-len(tally.rejecting_voters(option, binding)),)
        )
        steps.append(f"Nothing remains; the fewest binding members rule out {chosen}.")
    decided_options = [chosen]
    if case.strategy.topic == "house_rule":
        wanted_options = [
            option
            for option in tally.ranked_options(binding)
            if option in remaining and tally.supporting_voters(option, binding)
        ]
        decided_options += [option for option in wanted_options if option != chosen]
    return Outcome(
        chosen,
        tuple(allocate_to_all(tally, option) for option in decided_options),
        tuple(steps),
        settled,
        removed=tuple(removed.items()),
        infeasible=not remaining,
        margin=margin,
    )


# --- rules that give different members different things ----------------------------------------


def include_both(tally: Tally, case: Case) -> Outcome:
    """Divide the group into two sides, and give each side its favourite on separate days."""
    # The sides are the two roles of the group. In a group with a single role, the members who want
    # the top option form one side, and all others the second. If both sides have the same
    # favourite, the second side gets its second-best option, unless this side only rejects it.
    # Options that a member rejects and no member supports are left out.
    side_a, side_b = _opposing_sides(tally)
    bearable_options = [
        option
        for option in tally.options
        if tally.supporting_voters(option) or not tally.rejecting_voters(option)
    ]
    bearable_options = bearable_options or list(tally.options)
    pick = pick_best(tally, lambda option: (tally.total(option, side_a),), bearable_options)
    first_option, other_options = (
        pick.option,
        [option for option in bearable_options if option != pick.option],
    )
    if not other_options:
        return decide_for_all(tally, pick, f"Only {first_option} can be included.")
    second_option = pick_best(
        tally, lambda option: (tally.total(option, side_b),), bearable_options
    ).option
    if second_option == first_option:
        # Both sides have the same favourite, so the second side takes its best other option.
        second_option = pick_best(
            tally, lambda option: (tally.total(option, side_b),), other_options
        ).option
        if tally.rejecting_voters(second_option, side_b) and not tally.supporting_voters(
            second_option, side_b
        ):
            return decide_for_all(tally, pick, f"Both sides like {first_option} best.")
    # One side gets the odd days and the other one the even days. A trip of one day is divided into
    # phases.
    odd_days = join_words([f"Day {day}" for day in range(1, case.days + 1, 2)])
    even_days = (
        join_words([f"Day {day}" for day in range(2, case.days + 1, 2)]) or "a later phase of Day 1"
    )
    sides = ((side_a, first_option, odd_days), (side_b, second_option, even_days))
    return Outcome(
        first_option,
        tuple(allocate_to_all(tally, option, days) for _, option, days in sides),
        tuple(
            f"{format_names(tally, [member.id for member in side])}: {option} on {days}."
            for side, option, days in sides
        ),
        pick.settled,
    )


def _opposing_sides(tally: Tally) -> tuple[Sequence[Member], Sequence[Member]]:
    # The order of roles must not depend on the order of members. It is alphabetical with elders
    # first.
    roles = sorted(
        {member.role for member in tally.voters},
        key=lambda role: (role in ("child", "young_adult"), role),
    )
    if len(roles) > 1:
        return tally.of_role(roles[0]), [
            member for member in tally.voters if member.role != roles[0]
        ]
    top_option = tally.ranked_options()[0]
    supporters = [member for member in tally.voters if tally.first_choice(member.id) == top_option]
    opponents = [member for member in tally.voters if member not in supporters]
    return supporters or tally.voters, opponents or tally.voters


def self_select(tally: Tally, case: Case) -> Outcome:
    """Give all members one shared option. Also give each member the member's own first choice."""
    # The shared option is the one with the fewest strong rejections.
    frame = least_misery(tally, case)
    shared_option = frame.selected_option or ""
    pick = Pick(shared_option, frame.decided_by, frame.margin)
    outcome = allocate_own_choices(tally, _own_choices(tally, shared_option), shared_option, pick)
    steps = (f"Shared frame: {shared_option}.", *outcome.steps)
    return replace(outcome, steps=steps, details={"shared_frame": shared_option})


def individual_choice(tally: Tally, case: Case) -> Outcome:
    """Give each member their own first choice."""
    # A member without a first choice gets the most common one.
    first_choice_members = first_choice_groups(tally)
    common_pick = pick_best(tally, lambda option: (len(first_choice_members.get(option, ())),))
    return allocate_own_choices(tally, _own_choices(tally, common_pick.option), None, common_pick)


def _own_choices(tally: Tally, fallback: str) -> dict[str, list[str]]:
    return _by_option(
        {member.id: tally.first_choice(member.id) or fallback for member in tally.voters}
    )


def decide_by_alternation(tally: Tally, case: Case) -> Outcome:
    """Give each day to one member in turn."""
    # On a member's day, all members get that member's first choice.
    owners = list(tally.first_choices()) or [member.id for member in tally.voters]
    portions = []
    for day in range(case.days):
        owner = owners[day % len(owners)]
        option = tally.first_choice(owner) or tally.ranked_options()[0]
        portions.append(allocate_to_all(tally, option, f"Day {day + 1}", owner))
    steps = tuple(
        f"{portion.when} is {format_names(tally, [portion.owner])}'s: {portion.option}."
        for portion in portions
    )
    return Outcome(portions[0].option, tuple(portions), steps, "rule")


def log_roll(tally: Tally, case: Case) -> Outcome:
    """Give each option to the member who values it most."""
    # The options then alternate by day. Values are compared as shares of each member's positive
    # scores. A member without any option then gets the best-liked option that another member can
    # spare.
    # The first step of Adjusted Winner (Brams & Taylor 1996).
    wins = _traded_options(tally)
    order = [member.id for member in tally.voters if wins[member.id]]
    if not order:
        pick = pick_best(tally, lambda option: (tally.total(option),))
        return decide_for_all(
            tally, pick, f"Nobody wants anything; {pick.option} is least unwelcome."
        )
    portions = []
    for day in range(case.days):
        turn, position = divmod(day, len(order))
        won_options = wins[order[position]]
        portions.append(
            allocate_to_all(
                tally, won_options[turn % len(won_options)], f"Day {day + 1}", order[position]
            )
        )
    steps = [
        f"{format_names(tally, [member_id])} wins {join_words(won_options)}."
        for member_id, won_options in wins.items()
        if won_options
    ]
    steps += [
        f"{portion.when}: {portion.option}, for {format_names(tally, [portion.owner])}."
        for portion in portions
    ]
    details = {"wins": wins}
    return Outcome(portions[0].option, tuple(portions), tuple(steps), "rule", details=details)


def _traded_options(tally: Tally) -> dict[str, list[str]]:
    # The member's favourite comes first.
    points = {member.id: _score_points(tally, member.id) for member in tally.voters}
    wins: dict[str, list[str]] = {member.id: [] for member in tally.voters}
    for option in tally.ranked_options():
        highest_points = max(points_of_member[option] for points_of_member in points.values())
        if highest_points > 0:
            # Equal values go to the member with the fewest wins so far, then by member id.
            tied_members = [
                member_id
                for member_id, points_of_member in points.items()
                if points_of_member[option] == highest_points
            ]
            wins[min(tied_members, key=lambda member_id: len(wins[member_id]))].append(option)
    for voter, first_choice in tally.first_choices().items():
        if not wins[voter]:
            _release_option(tally, wins, voter, first_choice)
    return {
        member_id: sorted(won_options, key=lambda option: (-points[member_id][option], option))
        for member_id, won_options in wins.items()
    }


def _score_points(tally: Tally, voter: str) -> dict[str, float]:
    # Positive scores as shares of their sum, all 0 if no score is positive.
    positive_scores = {option: max(0.0, tally.score_of(voter, option)) for option in tally.options}
    total = math.fsum(positive_scores.values())
    # Rounding makes equal shares compare as equal in spite of floating-point errors.
    return {
        option: round(score / total, 12) if total else 0.0
        for option, score in positive_scores.items()
    }


def _release_option(
    tally: Tally, wins: dict[str, list[str]], voter: str, first_choice: str
) -> None:
    for option in sorted(
        tally.options, key=lambda option: (-tally.score_of(voter, option), option)
    ):
        holder = next(
            (
                member_id
                for member_id, won_options in wins.items()
                if option in won_options and len(won_options) > 1
            ),
            None,
        )
        if holder and tally.score_of(voter, option) > 0:
            wins[holder].remove(option)
            wins[voter].append(option)
            return
    # No member can spare an option that the voter wants, so the voter shares the first choice.
    wins[voter].append(first_choice)


def decide_by_clusters(tally: Tally, case: Case) -> Outcome:
    """Group members with the same wishes, and give each group the wished option."""
    # A cluster option is an option that is the first choice of two or more members. Each member
    # joins the cluster option that the member scores highest. A member who likes no cluster option
    # gets the member's own first choice.
    shared_options = [
        option for option, member_ids in first_choice_groups(tally).items() if len(member_ids) > 1
    ]

    def cluster_anchor(voter: str) -> str:
        liked_options = [option for option in shared_options if tally.score_of(voter, option) > 0]
        if liked_options:
            return min(
                liked_options,
                key=lambda option: (-tally.score_of(voter, option), -tally.total(option), option),
            )
        return tally.first_choice(voter) or (
            shared_options[0] if shared_options else tally.ranked_options()[0]
        )

    groups = _by_option({member.id: cluster_anchor(member.id) for member in tally.voters})
    pick = pick_best(tally, lambda option: (len(groups[option]),), list(groups))
    return allocate_own_choices(tally, groups, pick.option, pick)


def shared_first(tally: Tally, case: Case) -> Outcome:
    """Pick one option for all members, except for members who strongly reject this option."""
    # The shared option has the fewest strong rejections. The exceptions are the members' own first
    # choices.
    chosen, settled, margin = pick_best(
        tally, lambda option: (-len(tally.rejecting_voters(option)),)
    )
    apart_ids = set(tally.rejecting_voters(chosen))
    # If all reject it, exceptions for all would leave no shared option.
    if len(apart_ids) == len(tally.voters):
        apart_ids = set()
    members_by_option = first_choice_groups(
        tally, [member for member in tally.voters if member.id in apart_ids]
    )
    staying_ids = [member.id for member in tally.voters if member.id not in apart_ids]
    leaving_ids = {
        member_id for member_ids in members_by_option.values() for member_id in member_ids
    }
    # A member who rejects the shared option but wants no other one stays as well.
    portion_ids = tuple(member.id for member in tally.voters if member.id not in leaving_ids)
    portions = [Portion(chosen, portion_ids)]
    steps = [f"Shared: {chosen}, for {format_names(tally, staying_ids)}."]
    for option, member_ids in members_by_option.items():
        portions.append(Portion(option, tuple(member_ids)))
        steps.append(
            f"Exception: {option} for {format_names(tally, member_ids)}, who cannot share {chosen}."
        )
    return Outcome(chosen, tuple(portions), tuple(steps), settled, margin=margin)


# --- subgroups ---------------------------------------------------------------------------------


def decide_together(tally: Tally, case: Case) -> Outcome:
    """Pick one option for all members: the option with the fewest strong rejections."""
    # The members agree, so no split is needed.
    outcome = least_misery(tally, case)
    steps = ("Nobody wants to part, so all stay together.", *outcome.steps)
    return replace(outcome, steps=steps, fell_back_to="least_misery")


def subgroup_required(tally: Tally, case: Case) -> Outcome:
    """Split the group into two branches, one for each of the two best options."""
    # Every member joins the branch with the option that the member prefers.
    branches = dict(zip(("Group A", "Group B"), nearest_split(tally), strict=True))
    totals = [tally.total(option) for option in tally.ranked_options()]
    # The lead of the second option over the third.
    margin = totals[1] - totals[2] if len(totals) > 2 else None
    return Outcome(
        branches["Group A"].anchor,
        tuple(Portion(branch.anchor, branch.members, group) for group, branch in branches.items()),
        tuple(
            f"{group} ({branch.anchor}): {format_names(tally, branch.members)}."
            for group, branch in branches.items()
        ),
        "alphabetical" if margin == 0 else "score",
        margin=margin,
    )


def subgroup_optional(tally: Tally, case: Case) -> Outcome:
    """Give all members a shared option, and offer some members a second option."""
    # The shared option has the fewest strong rejections. The branch is another option. It has the
    # highest total score among members who did not get their first choice. Those of them who
    # support it join the branch.
    outcome = least_misery(tally, case)
    backbone = outcome.selected_option or ""
    portions = [allocate_to_all(tally, backbone, SHARED)]
    steps = [f"Shared backbone for all: {backbone}."]
    unmet_choices = tally.unmet_first_choices(backbone)
    unmet_members = [member for member in tally.voters if member.id in unmet_choices]
    if unmet_members:
        other_options = [option for option in tally.options if option != backbone]
        branch_option = pick_best(
            tally, lambda option: (tally.total(option, unmet_members),), other_options
        ).option
        takers = tally.supporting_voters(branch_option, unmet_members)
        if takers:
            portions.append(Portion(branch_option, takers, BRANCH))
            steps.append(f"Optional branch: {branch_option}, for {format_names(tally, takers)}.")
    return replace(outcome, portions=tuple(portions), steps=tuple(steps))


Operator = Callable[[Tally, Case], Outcome]
# The keys are the operators in the column `operator` of strategies.csv.
OPERATIONS: Mapping[str, Operator] = {
    "approval_vote_plus_coverage": decide_by_approval,
    "weighted_avg": weighted_average,
    "least_misery": least_misery,
    "mutual_interest": mutual_interest,
    "higher_pref_with_compensation": higher_preference,
    "parent_vote_lower_misery": parent_vote,
    "hard_constraint": hard_constraint,
    "include_both": include_both,
    "self_select": self_select,
    "individual_choice": individual_choice,
    "alternate": decide_by_alternation,
    "log_roll": log_roll,
    "cluster": decide_by_clusters,
    "flexible_shared_first": shared_first,
    "subgroup_required": subgroup_required,
    "subgroup_optional": subgroup_optional,
}
