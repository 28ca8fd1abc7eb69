"""The operators by name: each a pure function of a tally, each the textbook rule of its name.

Masthoff, "Group recommender systems: combining individual models" (2011), tables 1 to 4, is the
worked example that the tests check approval, average and least misery against. Every tie: total
score, then alphabetical; in the parents' vote fewest strong rejections, then alphabetical.
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
    """A part of what was decided: an option, the members it is for, and when.

    Portions of one `when` hold together (rules in force at once); different ones follow each
    other. `owner` is the member whose wish it serves, where the rule gives it to somebody.
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
    """An operator's decision with its audit trail.

    `selected_option` is the one option that sums up the decision (None where the rule gives none
    or nobody named an option); `portions` is the decision in full; `steps` the
    reasoning. `decided_by`: rule, score or alphabetical; `margin`: by how much the selected option
    is ahead of the next in what the rule goes by first (None where it weighs no options against
    each other). `removed` holds options struck out with
    who struck them; `owed` what somebody is to get for giving way; `fell_back_to` the operator
    that decided when this one could not; `infeasible`: every option breaks a hard constraint, or
    all strongly reject every option. `operator` is filled in by `apply_operator`.
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
    """What an operator is told besides the tally: its row of the table, the days of the trip."""

    strategy: Strategy
    days: int = 3


def apply_operator(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> Outcome:
    """The decision of a strategy's operator on a tally, for a trip of `days` days. Without a
    conflict nobody is parted: the subgroup operators keep all together."""
    operator = strategy.operator
    if not tally.options:
        return Outcome(None, (), ("Nobody named an option.",), operator=operator)
    rule = OPERATIONS[operator]
    if not has_conflict and operator in ("subgroup_required", "subgroup_optional"):
        rule = decide_together
    found = rule(tally, Case(strategy, days))
    hopeless = all(
        len(tally.rejecting_voters(option)) == len(tally.voters) for option in tally.options
    )
    return replace(found, operator=operator, infeasible=found.infeasible or hopeless)


def counterfactual_outcomes(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> dict[str, Outcome]:
    """Operator → what it would decide on this tally, whichever is in force.

    An operator binds the role that it binds elsewhere for this type of group; where it is not used
    for this type, all members.
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
    """The option taken, what settled it ("rule", "score" or "alphabetical"), and by how much."""

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
    """The option with the highest key; ties by total score, unless told otherwise, then
    alphabetical."""
    among = list(tally.options if options is None else options)
    keys = {option: key(option) for option in among}
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
    """Option → the members who get it."""
    portions = tuple(Portion(option, tuple(who)) for option, who in own.items())
    steps = tuple(f"{format_names(tally, who)}: {option}." for option, who in own.items())
    return Outcome(chosen, portions, steps, pick.settled, margin=pick.margin)


def format_names(tally: Tally, ids: Sequence[str]) -> str:
    """Members by name, as a reader would write them: "Parent 1 and Child 2"."""
    return join_words([member.name for member in tally.voters if member.id in ids])


def first_choice_groups(
    tally: Tally, voters: Sequence[Member] | None = None
) -> dict[str, list[str]]:
    """Primary option → the members who want it most, options in alphabetical order."""
    return _by_option(tally.first_choices(voters))


def _by_option(choice: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for member, option in choice.items():
        found.setdefault(option, []).append(member)
    return dict(sorted(found.items()))


# --- the six rules that hold a ballot round ----------------------------------------------------


def decide_by_approval(tally: Tally, case: Case) -> Outcome:
    """Most approvals (members with a score above zero) wins."""
    pick = pick_best(tally, lambda option: (len(tally.supporting_voters(option)),))
    count, chosen = len(tally.supporting_voters(pick.option)), pick.option
    approve = f"{count} of {len(tally.voters)} members approve of {chosen}"
    return decide_for_all(tally, pick, f"{approve}; no option has more.")


def weighted_average(tally: Tally, case: Case) -> Outcome:
    """The highest average score, Σ weight·score / Σ weight over members."""
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
    """Fewest strong rejections, then the highest lowest score of any member."""
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
    """The best option that every member supports; where there is none, least misery."""
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
    """The strongest single preference (a member's first choice) wins; whoever wanted something
    else is owed it."""
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
    """Only the binding role (parents) votes, one vote each for their own best option.

    Ties: fewest strong rejections in the whole family, then alphabetical. Where no parent wants
    anything that was named, the parents' least misery decides.
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
    """Options that a binding member strongly rejects are removed; of the rest, the binding
    members' favourite is chosen. House rules hold together: all that remain and are wanted by a
    binding member are in force. Where nothing remains, the option with the fewest binding
    rejections is named and the outcome is marked infeasible.
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
    """Each side's favourite has its days. Sides are the group's two roles; with one role, those
    who want the top option and those who do not. Two sides with one favourite take their next
    best in turn, so that two options are included wherever two were named that somebody wants, or
    nobody strongly rejects."""
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
        # Both sides want the same: the second place goes to the best of the rest.
        second = pick_best(tally, lambda option: (tally.total(option, side_b),), others).option
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
    # The order of roles must not follow the order of members: alphabetical, elders first.
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
    """A frame that all share (the option of least misery), and each member's own choice in it."""
    frame = least_misery(tally, case)
    shared = frame.selected_option or ""
    pick = Pick(shared, frame.decided_by, frame.margin)
    outcome = allocate_own_choices(tally, _own_choices(tally, shared), shared, pick)
    steps = (f"Shared frame: {shared}.", *outcome.steps)
    return replace(outcome, steps=steps, details={"shared_frame": shared})


def individual_choice(tally: Tally, case: Case) -> Outcome:
    """Each member gets their own first choice; who named none joins the largest choice."""
    wanted = first_choice_groups(tally)
    common = pick_best(tally, lambda option: (len(wanted.get(option, ())),))
    return allocate_own_choices(tally, _own_choices(tally, common.option), None, common)


def _own_choices(tally: Tally, otherwise: str) -> dict[str, list[str]]:
    return _by_option(
        {member.id: tally.first_choice(member.id) or otherwise for member in tally.voters}
    )


def decide_by_alternation(tally: Tally, case: Case) -> Outcome:
    """Each day belongs to one member in turn, whose first choice holds for all."""
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
    """Trade of wins: each option goes to whoever values it most as a share of their own points,
    as in the first step of Adjusted Winner (Brams & Taylor 1996); wins then have their days by
    turns, the strongest first. A member left without a win gets the best-liked option that
    another can spare."""
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
    """Voter → options won, most valued first."""
    points = {member.id: _score_points(tally, member.id) for member in tally.voters}
    wins: dict[str, list[str]] = {member.id: [] for member in tally.voters}
    for option in tally.ranked_options():
        most = max(point[option] for point in points.values())
        if most > 0:
            # Equal claims go to whoever has fewest wins so far, then by member id.
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
    """The voter's positive scores as shares of their total (0 where nothing is wanted)."""
    wanted = {option: max(0.0, tally.score_of(voter, option)) for option in tally.options}
    total = sum(wanted.values())
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
    # Nobody can spare anything the voter wants: the first choice is shared.
    wins[voter].append(first)


def decide_by_clusters(tally: Tally, case: Case) -> Outcome:
    """Members who want the same form a cluster: each joins the first choice that it scores highest
    among those of two or more members; who likes none of these keeps their own."""
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
    """One shared place that the fewest strongly reject; only those who do may go elsewhere."""
    chosen, settled, margin = pick_best(
        tally, lambda option: (-len(tally.rejecting_voters(option)),)
    )
    apart = set(tally.rejecting_voters(chosen))
    if len(apart) == len(tally.voters):
        apart = set()
    elsewhere = first_choice_groups(
        tally, [member for member in tally.voters if member.id in apart]
    )
    together = [member.id for member in tally.voters if member.id not in apart]
    gone = {member_id for who in elsewhere.values() for member_id in who}
    staying = tuple(
        member.id for member in tally.voters if member.id not in gone
    )  # and who wants nothing else
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
    """A subgroup slot without a conflict: the option of least misery, for all."""
    base = least_misery(tally, case)
    steps = ("Nobody wants to part, so all stay together.", *base.steps)
    return replace(base, steps=steps, fell_back_to="least_misery")


def subgroup_required(tally: Tally, case: Case) -> Outcome:
    """Two branches around the tally's top two options, every member in the nearer one. The margin
    is the second option's over the third."""
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
    """What is least unwelcome to all is the backbone; the best option of those who wanted
    something else is a branch that they may take."""
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
