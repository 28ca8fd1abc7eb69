"""The sixteen operators that decide a topic, each a pure function of a tally.

Each operator is the textbook rule of its name. Tests check approval, average and least misery
against the worked example of Masthoff, "Group recommender systems: combining individual models"
(2011), tables 1 to 4.

Ties are broken by total score, then alphabetically. The parents' vote breaks them by the fewest
strong rejections, then alphabetically.
"""

from __future__ import annotations

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
    """A part of a decision: an option, the members who get it, and the time.

    Portions with the same `when` are in force together, such as house rules. Portions with
    different times follow each other. `owner` is the member who chose the option, if the rule lets
    one member choose.
    """

    option: str
    members: tuple[str, ...]
    when: str = WHOLE_TRIP
    owner: str = ""

    def to_json(self) -> dict[str, object]:
        owner = {"owner": self.owner} if self.owner else {}
        return {"option": self.option, "members": list(self.members), "when": self.when, **owner}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision of an operator with its audit trail.

    `selected_option` is the one option that sums up the decision. It is None if the rule gives none
    or no member named an option.

    `portions` is the complete decision and `steps` is the reasoning in sentences.

    `removed` maps removed options to the members who removed them. `owed` lists (member, option)
    pairs that members get for giving way.

    `fell_back_to` is the operator that decided if this one could not.

    `infeasible` means that every option breaks a hard constraint, or that all members strongly
    reject every option.

    `operator` is set by `apply_operator`. `decided_by` is rule, score or alphabetical. `margin` is
    the lead of the selected option in the first criterion of the rule. It is None if the rule does
    not weigh options.
    """

    selected_option: str | None
    portions: tuple[Portion, ...]
    steps: tuple[str, ...] = ()
    decided_by: str = ""
    removed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    owed: tuple[tuple[str, str], ...] = ()
    fell_back_to: str = ""
    infeasible: bool = False
    details: Mapping[str, object] = field(default_factory=dict)
    operator: str = ""
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
    """The inputs of an operator besides the tally: its row of the strategy table, and the days."""

    strategy: Strategy
    days: int = 3


def apply_operator(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> Outcome:
    """Return the decision of a strategy's operator on a tally, for a trip of `days` days.

    Without a conflict the subgroup operators keep all members together.
    """
    operator = strategy.operator
    if not tally.options:
        return Outcome(None, (), ("Nobody named an option.",), operator=operator)
    rule = OPERATIONS[operator]
    if not has_conflict and operator in ("subgroup_required", "subgroup_optional"):
        rule = decide_together
    found = rule(tally, Case(strategy, days))
    # If all members strongly reject every option, no rule can find an acceptable one.
    hopeless = all(
        len(tally.rejecting_voters(option)) == len(tally.voters) for option in tally.options
    )
    return replace(found, operator=operator, infeasible=found.infeasible or hopeless)


def counterfactual_outcomes(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> dict[str, Outcome]:
    """Return for every operator what it would decide on this tally.

    An operator gets the binding role that it has elsewhere in this type of group. If the group type
    does not use it, all members are binding.
    """
    binding = {
        s.operator: s.binding
        for (kind, _), s in strategy_table().items()
        if kind == strategy.group_type
    }
    found = {}
    for name in OPERATIONS:
        row = replace(strategy, operator=name, binding=binding.get(name, "all"))
        found[name] = apply_operator(tally, row, days, has_conflict=has_conflict)
    return found


# --- what the rules share ----------------------------------------------------------------------


class Pick(NamedTuple):
    """The option that a rule picks.

    `settled` is the criterion that singled it out: "rule", "score" or "alphabetical". `margin` is
    the lead in the first criterion.
    """

    option: str
    settled: str
    margin: float | None


def pick_best(
    tally: Tally,
    key: Callable[[str], tuple[float, ...]],
    options: Sequence[str] | None = None,
    *,
    by_score: bool = True,
) -> Pick:
    """Return the option with the highest key.

    Ties are broken by total score, unless `by_score` is False, and then alphabetically.
    """
    among = list(tally.options if options is None else options)
    keys = {option: key(option) for option in among}
    # Keys are tuples, so a later criterion decides only between options that are equal in the
    # earlier ones.
    top = max(keys.values())
    level = [option for option in among if keys[option] == top]
    most = max(tally.total(option) for option in level)
    ahead = sorted(option for option in level if not by_score or tally.total(option) == most)
    settled = "rule" if len(level) == 1 else "score" if len(ahead) == 1 else "alphabetical"
    others = [keys[option][0] for option in among if option != ahead[0]]
    return Pick(ahead[0], settled, top[0] - max(others) if others else None)


def allocate_to_all(tally: Tally, option: str, when: str = WHOLE_TRIP, owner: str = "") -> Portion:
    return Portion(option, tuple(member.id for member in tally.voters), when, owner)


def decide_for_all(tally: Tally, pick: Pick, step: str) -> Outcome:
    portion = allocate_to_all(tally, pick.option)
    return Outcome(pick.option, (portion,), (step,), pick.settled, margin=pick.margin)


def allocate_own_choices(
    tally: Tally, own: Mapping[str, Sequence[str]], chosen: str | None, pick: Pick
) -> Outcome:
    """Return an outcome that gives each option to its members (`own`: option → member ids)."""
    portions = tuple(Portion(option, tuple(who)) for option, who in own.items())
    steps = tuple(f"{format_names(tally, who)}: {option}." for option, who in own.items())
    return Outcome(chosen, portions, steps, pick.settled, margin=pick.margin)


def format_names(tally: Tally, ids: Sequence[str]) -> str:
    """Return members' names joined for a sentence: "Parent 1 and Child 2"."""
    return join_words([member.name for member in tally.voters if member.id in ids])


def first_choice_groups(
    tally: Tally, voters: Sequence[Member] | None = None
) -> dict[str, list[str]]:
    """Return first choice → ids of the members who want it, options in alphabetical order."""
    return _by_option(tally.first_choices(voters))


def _by_option(choice: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for member, option in choice.items():
        found.setdefault(option, []).append(member)
    return dict(sorted(found.items()))


# --- the six rules that hold a ballot round ----------------------------------------------------


def decide_by_approval(tally: Tally, case: Case) -> Outcome:
    """Pick the option with the most approvals, which are members' scores above zero."""
    pick = pick_best(tally, lambda option: (len(tally.supporting_voters(option)),))
    count, chosen = len(tally.supporting_voters(pick.option)), pick.option
    approve = f"{count} of {len(tally.voters)} members approve of {chosen}"
    return decide_for_all(tally, pick, f"{approve}; no option has more.")


def weighted_average(tally: Tally, case: Case) -> Outcome:
    """Pick the option with the highest weighted average, Σ weight·score / Σ weight over members."""
    weights = sum(member.weight for member in tally.voters)
    means = {
        option: sum(member.weight * tally.score_of(member.id, option) for member in tally.voters)
        / weights
        for option in tally.options
    }
    pick = pick_best(tally, lambda option: (means[option],))
    mean = f"{means[pick.option]:.2f}"
    step = f"The weighted average of {pick.option} is {mean}; no option has a higher one."
    shown = {option: round(means[option], 6) for option in tally.ranked_options()}
    return replace(decide_for_all(tally, pick, step), details={"weighted_average": shown})


def least_misery(tally: Tally, case: Case) -> Outcome:
    """Pick the option with the fewest strong rejections, then with the highest lowest score."""
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
    """Pick the best option that every member supports. If there is none, apply least misery."""
    shared = [
        option
        for option in tally.options
        if len(tally.supporting_voters(option)) == len(tally.voters)
    ]
    if not shared:
        other = least_misery(tally, case)
        step = "No option has everyone's support, so the least unwelcome one is taken."
        return replace(other, steps=(step, *other.steps), fell_back_to="least_misery")
    pick = pick_best(tally, lambda option: (tally.total(option),), shared)
    step = f"Every member supports {pick.option}; its total score is {tally.total(pick.option):g}."
    return decide_for_all(tally, pick, step)


def higher_preference(tally: Tally, case: Case) -> Outcome:
    """Pick the first choice with the highest single score.

    Members with another first choice are owed that choice.
    """
    firsts = first_choice_groups(tally)
    strongest = {
        option: max(
            tally.score_of(member.id, option)
            for member in tally.voters
            if not firsts or member.id in firsts[option]
        )
        for option in firsts or tally.options
    }
    chosen, settled, margin = pick_best(tally, lambda option: (strongest[option],), list(strongest))
    won = [
        member.id
        for member in tally.voters
        if tally.score_of(member.id, chosen) == strongest[chosen]
    ]
    owed = tuple(
        (member_id, option)
        for member_id, option in tally.unmet_first_choices(chosen).items()
        if member_id not in won
    )
    want = "wants" if len(won) == 1 else "want"
    steps = [f"{format_names(tally, won)} {want} {chosen} most strongly, at {strongest[chosen]:g}."]
    steps += [
        f"{format_names(tally, [member_id])} gave way and is owed {option}."
        for member_id, option in owed
    ]
    portion = allocate_to_all(tally, chosen, owner=won[0])
    return Outcome(chosen, (portion,), tuple(steps), settled, owed=owed, margin=margin)


def parent_vote(tally: Tally, case: Case) -> Outcome:
    """Let only the binding role (parents) vote, one vote each for the first choice.

    Ties are broken by the fewest strong rejections in the whole family, then alphabetically. If no
    parent wants a named option, least misery among the parents decides.
    """
    parents = tally.of_role(case.strategy.binding)
    cast = {member.id: tally.first_choice(member.id) for member in parents}
    count = {option: sum(vote == option for vote in cast.values()) for option in tally.options}
    fallback = ""
    if any(count.values()):
        pick = pick_best(
            tally,
            lambda option: (count[option], -len(tally.rejecting_voters(option))),
            list(count),
            by_score=False,
        )
        votes = count[pick.option]
        step = f"{votes} of {len(parents)} parents vote{'s' * (votes == 1)} for {pick.option}."
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
    decided = decide_for_all(tally, pick, step)
    return replace(decided, fell_back_to=fallback, details={"votes": cast})


# --- hard constraints --------------------------------------------------------------------------


def hard_constraint(tally: Tally, case: Case) -> Outcome:
    """Remove the options that a binding member strongly rejects, then pick the favourite.

    The favourite is the binding members' best remaining option. For house rules, all remaining
    options that a binding member wants are in force together. If no option remains, the outcome is
    infeasible and names the option with the fewest binding rejections.
    """
    binding = tally.of_role(case.strategy.binding)
    removed = {
        option: by for option in tally.options if (by := tally.rejecting_voters(option, binding))
    }
    left = [option for option in tally.options if option not in removed]
    steps = [f"Ruled out by {format_names(tally, by)}: {option}." for option, by in removed.items()]
    if left:
        chosen, settled, margin = pick_best(
            tally, lambda option: (tally.total(option, binding),), left
        )
        steps.append(f"The binding members like {chosen} best among what remains.")
    else:
        chosen, settled, margin = pick_best(
            tally, lambda option: (-len(tally.rejecting_voters(option, binding)),)
        )
        steps.append(f"Nothing remains; the fewest binding members rule out {chosen}.")
    rules = [chosen]
    if case.strategy.topic == "house_rule":
        wanted = [
            option
            for option in tally.ranked_options(binding)
            if option in left and tally.supporting_voters(option, binding)
        ]
        rules += [option for option in wanted if option != chosen]
    return Outcome(
        chosen,
        tuple(allocate_to_all(tally, rule) for rule in rules),
        tuple(steps),
        settled,
        removed=tuple(removed.items()),
        infeasible=not left,
        margin=margin,
    )


# --- rules that give different members different things ----------------------------------------


def include_both(tally: Tally, case: Case) -> Outcome:
    """Give the favourite of each of two sides its own days.

    The sides are the two roles of the group. If it has one role, they are the members who want the
    top option and those who do not. If both sides have the same favourite, the second option is the
    best of the rest. Options that are rejected and that no member supports are not included.
    """
    side_a, side_b = _opposing_sides(tally)
    bearable = [
        option
        for option in tally.options
        if tally.supporting_voters(option) or not tally.rejecting_voters(option)
    ]
    bearable = bearable or list(tally.options)
    pick = pick_best(tally, lambda option: (tally.total(option, side_a),), bearable)
    first, others = pick.option, [option for option in bearable if option != pick.option]
    if not others:
        return decide_for_all(tally, pick, f"Only {first} can be included.")
    second = pick_best(tally, lambda option: (tally.total(option, side_b),), bearable).option
    if second == first:
        # Both sides have the same favourite, so the second side takes its best other option.
        second = pick_best(tally, lambda option: (tally.total(option, side_b),), others).option
    # One side gets the odd days and the other one the even days. A trip of one day is divided into
    # phases.
    odd = join_words([f"Day {d}" for d in range(1, case.days + 1, 2)])
    even = join_words([f"Day {d}" for d in range(2, case.days + 1, 2)]) or "a later phase of Day 1"
    sides = ((side_a, first, odd), (side_b, second, even))
    return Outcome(
        first,
        tuple(allocate_to_all(tally, option, days) for _, option, days in sides),
        tuple(
            f"{format_names(tally, [member.id for member in s])}: {option} on {days}."
            for s, option, days in sides
        ),
        pick.settled,
    )


def _opposing_sides(tally: Tally) -> tuple[Sequence[Member], Sequence[Member]]:
    # The order of roles must not depend on the order of members. It is alphabetical with elders
    # first.
    roles = sorted(
        {member.role for member in tally.voters}, key=lambda r: (r in ("child", "young_adult"), r)
    )
    if len(roles) > 1:
        return tally.of_role(roles[0]), [
            member for member in tally.voters if member.role != roles[0]
        ]
    top = tally.ranked_options()[0]
    for_it = [member for member in tally.voters if tally.first_choice(member.id) == top]
    against = [member for member in tally.voters if member not in for_it]
    return for_it or tally.voters, against or tally.voters


def self_select(tally: Tally, case: Case) -> Outcome:
    """Give all members a shared option by least misery, and each member's first choice in it."""
    frame = least_misery(tally, case)
    shared = frame.selected_option or ""
    pick = Pick(shared, frame.decided_by, frame.margin)
    outcome = allocate_own_choices(tally, _own_choices(tally, shared), shared, pick)
    steps = (f"Shared frame: {shared}.", *outcome.steps)
    return replace(outcome, steps=steps, details={"shared_frame": shared})


def individual_choice(tally: Tally, case: Case) -> Outcome:
    """Give each member that member's first choice.

    A member without one joins the most common choice.
    """
    wanted = first_choice_groups(tally)
    common = pick_best(tally, lambda option: (len(wanted.get(option, ())),))
    return allocate_own_choices(tally, _own_choices(tally, common.option), None, common)


def _own_choices(tally: Tally, otherwise: str) -> dict[str, list[str]]:
    return _by_option(
        {member.id: tally.first_choice(member.id) or otherwise for member in tally.voters}
    )


def decide_by_alternation(tally: Tally, case: Case) -> Outcome:
    """Give each day to one member in turn. That member's first choice holds for all on that day."""
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
    """Trade wins: each option goes to the member who values it most, then wins alternate by day.

    A member's value of an option is its share of that member's points. This is the first step of
    Adjusted Winner (Brams & Taylor 1996). A member without a win gets the best-liked option that
    another member can spare.
    """
    wins = _traded_options(tally)
    order = [member.id for member in tally.voters if wins[member.id]]
    if not order:
        pick = pick_best(tally, lambda option: (tally.total(option),))
        return decide_for_all(
            tally, pick, f"Nobody wants anything; {pick.option} is least unwelcome."
        )
    portions = []
    for day in range(case.days):
        turn, place = divmod(day, len(order))
        own = wins[order[place]]
        portions.append(
            allocate_to_all(tally, own[turn % len(own)], f"Day {day + 1}", order[place])
        )
    steps = [
        f"{format_names(tally, [member_id])} wins {join_words(win)}."
        for member_id, win in wins.items()
        if win
    ]
    steps += [
        f"{portion.when}: {portion.option}, for {format_names(tally, [portion.owner])}."
        for portion in portions
    ]
    details = {"wins": wins}
    return Outcome(portions[0].option, tuple(portions), tuple(steps), "rule", details=details)


def _traded_options(tally: Tally) -> dict[str, list[str]]:
    """Return member id → options won, the most valued first."""
    points = {member.id: _score_points(tally, member.id) for member in tally.voters}
    wins: dict[str, list[str]] = {member.id: [] for member in tally.voters}
    for option in tally.ranked_options():
        most = max(point[option] for point in points.values())
        if most > 0:
            # Equal values go to the member with the fewest wins so far, then by member id.
            level = [member_id for member_id, point in points.items() if point[option] == most]
            wins[min(level, key=lambda member_id: len(wins[member_id]))].append(option)
    for voter, first in tally.first_choices().items():
        if not wins[voter]:
            _release_option(tally, wins, voter, first)
    return {
        member_id: sorted(win, key=lambda option: (-points[member_id][option], option))
        for member_id, win in wins.items()
    }


def _score_points(tally: Tally, voter: str) -> dict[str, float]:
    """Return the voter's positive scores as shares of their total, 0 if the voter wants nothing."""
    wanted = {option: max(0.0, tally.score_of(voter, option)) for option in tally.options}
    total = sum(wanted.values())
    # Rounding makes equal shares compare as equal in spite of floating-point errors.
    return {option: round(s / total, 12) if total else 0.0 for option, s in wanted.items()}


def _release_option(tally: Tally, wins: dict[str, list[str]], voter: str, first: str) -> None:
    for option in sorted(
        tally.options, key=lambda option: (-tally.score_of(voter, option), option)
    ):
        holder = next(
            (member_id for member_id, won in wins.items() if option in won and len(won) > 1), None
        )
        if holder and tally.score_of(voter, option) > 0:
            wins[holder].remove(option)
            wins[voter].append(option)
            return
    # No member can spare an option that the voter wants, so the voter shares the first choice.
    wins[voter].append(first)


def decide_by_clusters(tally: Tally, case: Case) -> Outcome:
    """Let members with the same wishes form clusters.

    A member joins the first choice of two or more members that the member scores highest. A member
    who likes none of these keeps the first choice.
    """
    shared = [option for option, who in first_choice_groups(tally).items() if len(who) > 1]

    def cluster_anchor(voter: str) -> str:
        liked = [option for option in shared if tally.score_of(voter, option) > 0]
        if liked:
            return min(
                liked,
                key=lambda option: (-tally.score_of(voter, option), -tally.total(option), option),
            )
        return tally.first_choice(voter) or (shared[0] if shared else tally.ranked_options()[0])

    groups = _by_option({member.id: cluster_anchor(member.id) for member in tally.voters})
    pick = pick_best(tally, lambda option: (len(groups[option]),), list(groups))
    return allocate_own_choices(tally, groups, pick.option, pick)


def shared_first(tally: Tally, case: Case) -> Outcome:
    """Pick one shared option with the fewest strong rejections.

    Only the members who strongly reject it get their own first choices.
    """
    chosen, settled, margin = pick_best(
        tally, lambda option: (-len(tally.rejecting_voters(option)),)
    )
    apart = set(tally.rejecting_voters(chosen))
    # If all reject it, exceptions for all would leave no shared option.
    if len(apart) == len(tally.voters):
        apart = set()
    elsewhere = first_choice_groups(
        tally, [member for member in tally.voters if member.id in apart]
    )
    together = [member.id for member in tally.voters if member.id not in apart]
    gone = {member_id for who in elsewhere.values() for member_id in who}
    # A member who rejects the shared option but wants no other one stays as well.
    staying = tuple(member.id for member in tally.voters if member.id not in gone)
    portions = [Portion(chosen, staying)]
    steps = [f"Shared: {chosen}, for {format_names(tally, together)}."]
    for option, who in elsewhere.items():
        portions.append(Portion(option, tuple(who)))
        steps.append(
            f"Exception: {option} for {format_names(tally, who)}, who cannot share {chosen}."
        )
    return Outcome(chosen, tuple(portions), tuple(steps), settled, margin=margin)


# --- subgroups ---------------------------------------------------------------------------------


def decide_together(tally: Tally, case: Case) -> Outcome:
    """Decide a subgroup slot without a conflict: the option of least misery, for all members."""
    base = least_misery(tally, case)
    steps = ("Nobody wants to part, so all stay together.", *base.steps)
    return replace(base, steps=steps, fell_back_to="least_misery")


def subgroup_required(tally: Tally, case: Case) -> Outcome:
    """Split the group in two branches around the tally's top two options.

    Every member joins the nearer branch. The margin is the lead of the second option over the
    third.
    """
    branches = dict(zip(("Group A", "Group B"), nearest_split(tally), strict=True))
    totals = [tally.total(option) for option in tally.ranked_options()]
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
    """Give all members a backbone by least misery, and the others an optional branch.

    The branch is the best option of the members with another first choice. Members who support it
    may take it.
    """
    base = least_misery(tally, case)
    backbone = base.selected_option or ""
    portions = [allocate_to_all(tally, backbone, SHARED)]
    steps = [f"Shared backbone for all: {backbone}."]
    elsewhere = tally.unmet_first_choices(backbone)
    others = [member for member in tally.voters if member.id in elsewhere]
    if others:
        rest = [option for option in tally.options if option != backbone]
        branch = pick_best(tally, lambda option: (tally.total(option, others),), rest).option
        takers = tally.supporting_voters(branch, others)
        if takers:
            portions.append(Portion(branch, takers, BRANCH))
            steps.append(f"Optional branch: {branch}, for {format_names(tally, takers)}.")
    return replace(base, portions=tuple(portions), steps=tuple(steps))


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
