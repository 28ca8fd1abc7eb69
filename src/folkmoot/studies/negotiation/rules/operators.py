"""The operators by name: each a pure function of a tally, each the textbook rule of its name.

Masthoff, "Group recommender systems: combining individual models" (2011), tables 1 to 4, is the
worked example that the tests check approval, average and least misery against. Every tie: total
score, then alphabetical; in the parents' vote fewest strong rejections, then alphabetical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from folkmoot.hints import enumerated
from folkmoot.studies.negotiation.rules.strategies import Member, Strategy, table
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
    all strongly reject every option. `operator` is filled in by `decide`.
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
            "portions": [p.to_json() for p in self.portions],
            "steps": list(self.steps),
            "removed": [{"option": o, "by": list(by)} for o, by in self.removed],
            "owed": [{"member": m, "option": o} for m, o in self.owed],
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


def decide(tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True) -> Outcome:
    """The decision of a strategy's operator on a tally, for a trip of `days` days. Without a
    conflict nobody is parted: the subgroup operators keep all together."""
    operator = strategy.operator
    if not tally.options:
        return Outcome(None, (), ("Nobody named an option.",), operator=operator)
    rule = OPERATIONS[operator]
    if not has_conflict and operator in ("subgroup_required", "subgroup_optional"):
        rule = together
    found = rule(tally, Case(strategy, days))
    hopeless = all(len(tally.rejections(o)) == len(tally.voters) for o in tally.options)
    return replace(found, operator=operator, infeasible=found.infeasible or hopeless)


def counterfactuals(
    tally: Tally, strategy: Strategy, days: int, *, has_conflict: bool = True
) -> dict[str, Outcome]:
    """Operator → what it would decide on this tally, whichever is in force.

    An operator binds the role that it binds elsewhere for this type of group; where it is not used
    for this type, all members.
    """
    binding = {
        s.operator: s.binding for (kind, _), s in table().items() if kind == strategy.group_type
    }
    found = {}
    for name in OPERATIONS:
        row = replace(strategy, operator=name, binding=binding.get(name, "all"))
        found[name] = decide(tally, row, days, has_conflict=has_conflict)
    return found


# --- what the rules share ----------------------------------------------------------------------


class Pick(NamedTuple):
    """The option taken, what settled it ("rule", "score" or "alphabetical"), and by how much."""

    option: str
    settled: str
    margin: float | None


def best(
    tally: Tally,
    key: Callable[[str], tuple[float, ...]],
    options: Sequence[str] | None = None,
    *,
    by_score: bool = True,
) -> Pick:
    """The option with the highest key; ties by total score, unless told otherwise, then
    alphabetical."""
    among = list(tally.options if options is None else options)
    keys = {o: key(o) for o in among}
    top = max(keys.values())
    level = [o for o in among if keys[o] == top]
    most = max(tally.total(o) for o in level)
    ahead = sorted(o for o in level if not by_score or tally.total(o) == most)
    settled = "rule" if len(level) == 1 else "score" if len(ahead) == 1 else "alphabetical"
    others = [keys[o][0] for o in among if o != ahead[0]]
    return Pick(ahead[0], settled, top[0] - max(others) if others else None)


def for_all(tally: Tally, option: str, when: str = WHOLE_TRIP, owner: str = "") -> Portion:
    return Portion(option, tuple(v.id for v in tally.voters), when, owner)


def one_for_all(tally: Tally, pick: Pick, step: str) -> Outcome:
    portion = for_all(tally, pick.option)
    return Outcome(pick.option, (portion,), (step,), pick.settled, margin=pick.margin)


def each_their_own(
    tally: Tally, own: Mapping[str, Sequence[str]], chosen: str | None, pick: Pick
) -> Outcome:
    """Option → the members who get it."""
    portions = tuple(Portion(option, tuple(who)) for option, who in own.items())
    steps = tuple(f"{names(tally, who)}: {option}." for option, who in own.items())
    return Outcome(chosen, portions, steps, pick.settled, margin=pick.margin)


def names(tally: Tally, ids: Sequence[str]) -> str:
    """Members by name, as a reader would write them: "Parent 1 and Child 2"."""
    return enumerated([v.name for v in tally.voters if v.id in ids])


def wishes(tally: Tally, voters: Sequence[Member] | None = None) -> dict[str, list[str]]:
    """Primary option → the members who want it most, options in alphabetical order."""
    return _by_option(tally.first_choices(voters))


def _by_option(choice: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for member, option in choice.items():
        found.setdefault(option, []).append(member)
    return dict(sorted(found.items()))


# --- the six rules that hold a ballot round ----------------------------------------------------


def approval(tally: Tally, case: Case) -> Outcome:
    """Most approvals (members with a score above zero) wins."""
    pick = best(tally, lambda o: (len(tally.supporters(o)),))
    count, chosen = len(tally.supporters(pick.option)), pick.option
    approve = f"{count} of {len(tally.voters)} members approve of {chosen}"
    return one_for_all(tally, pick, f"{approve}; no option has more.")


def weighted_average(tally: Tally, case: Case) -> Outcome:
    """The highest average score, Σ weight·score / Σ weight over members."""
    weights = sum(v.weight for v in tally.voters)
    means = {
        o: sum(v.weight * tally.score(v.id, o) for v in tally.voters) / weights
        for o in tally.options
    }
    pick = best(tally, lambda o: (means[o],))
    mean = f"{means[pick.option]:.2f}"
    step = f"The weighted average of {pick.option} is {mean}; no option has a higher one."
    shown = {o: round(means[o], 6) for o in tally.ranked()}
    return replace(one_for_all(tally, pick, step), details={"weighted_average": shown})


def least_misery(tally: Tally, case: Case) -> Outcome:
    """Fewest strong rejections, then the highest lowest score of any member."""
    pick = best(tally, lambda o: (-len(tally.rejections(o)), tally.lowest(o)))
    step = (
        f"What bothers people least is {pick.option}: strong rejections "
        f"{len(tally.rejections(pick.option))}, lowest member score {tally.lowest(pick.option):g}."
    )
    return one_for_all(tally, pick, step)


def mutual_interest(tally: Tally, case: Case) -> Outcome:
    """The best option that every member supports; where there is none, least misery."""
    shared = [o for o in tally.options if len(tally.supporters(o)) == len(tally.voters)]
    if not shared:
        other = least_misery(tally, case)
        step = "No option has everyone's support, so the least unwelcome one is taken."
        return replace(other, steps=(step, *other.steps), fell_back_to="least_misery")
    pick = best(tally, lambda o: (tally.total(o),), shared)
    step = f"Every member supports {pick.option}; its total score is {tally.total(pick.option):g}."
    return one_for_all(tally, pick, step)


def higher_preference(tally: Tally, case: Case) -> Outcome:
    """The strongest single preference (a member's first choice) wins; whoever wanted something
    else is owed it."""
    firsts = wishes(tally)
    strongest = {
        o: max(tally.score(v.id, o) for v in tally.voters if not firsts or v.id in firsts[o])
        for o in firsts or tally.options
    }
    chosen, settled, margin = best(tally, lambda o: (strongest[o],), list(strongest))
    won = [v.id for v in tally.voters if tally.score(v.id, chosen) == strongest[chosen]]
    owed = tuple((m, o) for m, o in tally.passed_over(chosen).items() if m not in won)
    want = "wants" if len(won) == 1 else "want"
    steps = [f"{names(tally, won)} {want} {chosen} most strongly, at {strongest[chosen]:g}."]
    steps += [f"{names(tally, [m])} gave way and is owed {o}." for m, o in owed]
    portion = for_all(tally, chosen, owner=won[0])
    return Outcome(chosen, (portion,), tuple(steps), settled, owed=owed, margin=margin)


def parent_vote(tally: Tally, case: Case) -> Outcome:
    """Only the binding role (parents) votes, one vote each for their own best option.

    Ties: fewest strong rejections in the whole family, then alphabetical. Where no parent wants
    anything that was named, the parents' least misery decides.
    """
    parents = tally.of_role(case.strategy.binding)
    cast = {v.id: tally.primary(v.id) for v in parents}
    count = {o: sum(vote == o for vote in cast.values()) for o in tally.options}
    fallback = ""
    if any(count.values()):
        pick = best(
            tally, lambda o: (count[o], -len(tally.rejections(o))), list(count), by_score=False
        )
        votes = count[pick.option]
        step = f"{votes} of {len(parents)} parents vote{'s' * (votes == 1)} for {pick.option}."
    else:
        pick = best(tally, lambda o: (-len(tally.rejections(o, parents)), tally.lowest(o, parents)))
        step = "No parent wants an option that was named; the least unwelcome to them is taken."
        fallback = "least_misery"
    decided = one_for_all(tally, pick, step)
    return replace(decided, fell_back_to=fallback, details={"votes": cast})


# --- hard constraints --------------------------------------------------------------------------


def hard_constraint(tally: Tally, case: Case) -> Outcome:
    """Options that a binding member strongly rejects are removed; of the rest, the binding
    members' favourite is chosen. House rules hold together: all that remain and are wanted by a
    binding member are in force. Where nothing remains, the option with the fewest binding
    rejections is named and the outcome is marked infeasible.
    """
    binding = tally.of_role(case.strategy.binding)
    removed = {o: by for o in tally.options if (by := tally.rejections(o, binding))}
    left = [o for o in tally.options if o not in removed]
    steps = [f"Ruled out by {names(tally, by)}: {option}." for option, by in removed.items()]
    if left:
        chosen, settled, margin = best(tally, lambda o: (tally.total(o, binding),), left)
        steps.append(f"The binding members like {chosen} best among what remains.")
    else:
        chosen, settled, margin = best(tally, lambda o: (-len(tally.rejections(o, binding)),))
        steps.append(f"Nothing remains; the fewest binding members rule out {chosen}.")
    rules = [chosen]
    if case.strategy.topic == "house_rule":
        wanted = [o for o in tally.ranked(binding) if o in left and tally.supporters(o, binding)]
        rules += [o for o in wanted if o != chosen]
    return Outcome(
        chosen,
        tuple(for_all(tally, o) for o in rules),
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
    side_a, side_b = _sides(tally)
    bearable = [o for o in tally.options if tally.supporters(o) or not tally.rejections(o)]
    bearable = bearable or list(tally.options)
    pick = best(tally, lambda o: (tally.total(o, side_a),), bearable)
    first, others = pick.option, [o for o in bearable if o != pick.option]
    if not others:
        return one_for_all(tally, pick, f"Only {first} can be included.")
    second = best(tally, lambda o: (tally.total(o, side_b),), bearable).option
    if second == first:
        # Both sides want the same: the second place goes to the best of the rest.
        second = best(tally, lambda o: (tally.total(o, side_b),), others).option
    odd = enumerated([f"Day {d}" for d in range(1, case.days + 1, 2)])
    even = enumerated([f"Day {d}" for d in range(2, case.days + 1, 2)]) or "a later phase of Day 1"
    sides = ((side_a, first, odd), (side_b, second, even))
    return Outcome(
        first,
        tuple(for_all(tally, option, days) for _, option, days in sides),
        tuple(f"{names(tally, [v.id for v in s])}: {o} on {days}." for s, o, days in sides),
        pick.settled,
    )


def _sides(tally: Tally) -> tuple[Sequence[Member], Sequence[Member]]:
    # The order of roles must not follow the order of members: alphabetical, elders first.
    roles = sorted({v.role for v in tally.voters}, key=lambda r: (r in ("child", "young_adult"), r))
    if len(roles) > 1:
        return tally.of_role(roles[0]), [v for v in tally.voters if v.role != roles[0]]
    top = tally.ranked()[0]
    for_it = [v for v in tally.voters if tally.primary(v.id) == top]
    against = [v for v in tally.voters if v not in for_it]
    return for_it or tally.voters, against or tally.voters


def self_select(tally: Tally, case: Case) -> Outcome:
    """A frame that all share (the option of least misery), and each member's own choice in it."""
    frame = least_misery(tally, case)
    shared = frame.selected_option or ""
    pick = Pick(shared, frame.decided_by, frame.margin)
    outcome = each_their_own(tally, _own_choices(tally, shared), shared, pick)
    steps = (f"Shared frame: {shared}.", *outcome.steps)
    return replace(outcome, steps=steps, details={"shared_frame": shared})


def individual_choice(tally: Tally, case: Case) -> Outcome:
    """Each member gets their own first choice; who named none joins the largest choice."""
    wanted = wishes(tally)
    common = best(tally, lambda o: (len(wanted.get(o, ())),))
    return each_their_own(tally, _own_choices(tally, common.option), None, common)


def _own_choices(tally: Tally, otherwise: str) -> dict[str, list[str]]:
    return _by_option({v.id: tally.primary(v.id) or otherwise for v in tally.voters})


def alternate(tally: Tally, case: Case) -> Outcome:
    """Each day belongs to one member in turn, whose first choice holds for all."""
    owners = list(tally.first_choices()) or [v.id for v in tally.voters]
    portions = []
    for day in range(case.days):
        owner = owners[day % len(owners)]
        option = tally.primary(owner) or tally.ranked()[0]
        portions.append(for_all(tally, option, f"Day {day + 1}", owner))
    steps = tuple(f"{p.when} is {names(tally, [p.owner])}'s: {p.option}." for p in portions)
    return Outcome(portions[0].option, tuple(portions), steps, "rule")


def log_roll(tally: Tally, case: Case) -> Outcome:
    """Trade of wins: each option goes to whoever values it most as a share of their own points,
    as in the first step of Adjusted Winner (Brams & Taylor 1996); wins then have their days by
    turns, the strongest first. A member left without a win gets the best-liked option that
    another can spare."""
    wins = _traded(tally)
    order = [v.id for v in tally.voters if wins[v.id]]
    if not order:
        pick = best(tally, lambda o: (tally.total(o),))
        return one_for_all(tally, pick, f"Nobody wants anything; {pick.option} is least unwelcome.")
    portions = []
    for day in range(case.days):
        turn, place = divmod(day, len(order))
        own = wins[order[place]]
        portions.append(for_all(tally, own[turn % len(own)], f"Day {day + 1}", order[place]))
    steps = [f"{names(tally, [m])} wins {enumerated(w)}." for m, w in wins.items() if w]
    steps += [f"{p.when}: {p.option}, for {names(tally, [p.owner])}." for p in portions]
    details = {"wins": wins}
    return Outcome(portions[0].option, tuple(portions), tuple(steps), "rule", details=details)


def _traded(tally: Tally) -> dict[str, list[str]]:
    """Voter → options won, most valued first."""
    points = {v.id: _points(tally, v.id) for v in tally.voters}
    wins: dict[str, list[str]] = {v.id: [] for v in tally.voters}
    for option in tally.ranked():
        most = max(p[option] for p in points.values())
        if most > 0:
            # Equal claims go to whoever has fewest wins so far, then by member id.
            level = [m for m, p in points.items() if p[option] == most]
            wins[min(level, key=lambda m: len(wins[m]))].append(option)
    for voter, first in tally.first_choices().items():
        if not wins[voter]:
            _spare_one(tally, wins, voter, first)
    return {m: sorted(w, key=lambda o: (-points[m][o], o)) for m, w in wins.items()}


def _points(tally: Tally, voter: str) -> dict[str, float]:
    """The voter's positive scores as shares of their total (0 where nothing is wanted)."""
    wanted = {o: max(0.0, tally.score(voter, o)) for o in tally.options}
    total = sum(wanted.values())
    return {o: round(s / total, 12) if total else 0.0 for o, s in wanted.items()}


def _spare_one(tally: Tally, wins: dict[str, list[str]], voter: str, first: str) -> None:
    for option in sorted(tally.options, key=lambda o: (-tally.score(voter, o), o)):
        holder = next((m for m, won in wins.items() if option in won and len(won) > 1), None)
        if holder and tally.score(voter, option) > 0:
            wins[holder].remove(option)
            wins[voter].append(option)
            return
    # Nobody can spare anything the voter wants: the first choice is shared.
    wins[voter].append(first)


def cluster(tally: Tally, case: Case) -> Outcome:
    """Members who want the same form a cluster: each joins the first choice that it scores highest
    among those of two or more members; who likes none of these keeps their own."""
    shared = [o for o, who in wishes(tally).items() if len(who) > 1]

    def anchor(voter: str) -> str:
        liked = [o for o in shared if tally.score(voter, o) > 0]
        if liked:
            return min(liked, key=lambda o: (-tally.score(voter, o), -tally.total(o), o))
        return tally.primary(voter) or (shared[0] if shared else tally.ranked()[0])

    groups = _by_option({v.id: anchor(v.id) for v in tally.voters})
    pick = best(tally, lambda o: (len(groups[o]),), list(groups))
    return each_their_own(tally, groups, pick.option, pick)


def shared_first(tally: Tally, case: Case) -> Outcome:
    """One shared place that the fewest strongly reject; only those who do may go elsewhere."""
    chosen, settled, margin = best(tally, lambda o: (-len(tally.rejections(o)),))
    apart = set(tally.rejections(chosen))
    if len(apart) == len(tally.voters):
        apart = set()
    elsewhere = wishes(tally, [v for v in tally.voters if v.id in apart])
    together = [v.id for v in tally.voters if v.id not in apart]
    gone = {m for who in elsewhere.values() for m in who}
    staying = tuple(v.id for v in tally.voters if v.id not in gone)  # and who wants nothing else
    portions = [Portion(chosen, staying)]
    steps = [f"Shared: {chosen}, for {names(tally, together)}."]
    for option, who in elsewhere.items():
        portions.append(Portion(option, tuple(who)))
        steps.append(f"Exception: {option} for {names(tally, who)}, who cannot share {chosen}.")
    return Outcome(chosen, tuple(portions), tuple(steps), settled, margin=margin)


# --- subgroups ---------------------------------------------------------------------------------


def together(tally: Tally, case: Case) -> Outcome:
    """A subgroup slot without a conflict: the option of least misery, for all."""
    base = least_misery(tally, case)
    steps = ("Nobody wants to part, so all stay together.", *base.steps)
    return replace(base, steps=steps, fell_back_to="least_misery")


def subgroup_required(tally: Tally, case: Case) -> Outcome:
    """Two branches around the tally's top two options, every member in the nearer one. The margin
    is the second option's over the third."""
    branches = dict(zip(("Group A", "Group B"), nearest_split(tally), strict=True))
    totals = [tally.total(o) for o in tally.ranked()]
    margin = totals[1] - totals[2] if len(totals) > 2 else None
    return Outcome(
        branches["Group A"].anchor,
        tuple(Portion(b.anchor, b.members, group) for group, b in branches.items()),
        tuple(f"{group} ({b.anchor}): {names(tally, b.members)}." for group, b in branches.items()),
        "alphabetical" if margin == 0 else "score",
        margin=margin,
    )


def subgroup_optional(tally: Tally, case: Case) -> Outcome:
    """What is least unwelcome to all is the backbone; the best option of those who wanted
    something else is a branch that they may take."""
    base = least_misery(tally, case)
    backbone = base.selected_option or ""
    portions = [for_all(tally, backbone, SHARED)]
    steps = [f"Shared backbone for all: {backbone}."]
    elsewhere = tally.passed_over(backbone)
    others = [v for v in tally.voters if v.id in elsewhere]
    if others:
        rest = [o for o in tally.options if o != backbone]
        branch = best(tally, lambda o: (tally.total(o, others),), rest).option
        takers = tally.supporters(branch, others)
        if takers:
            portions.append(Portion(branch, takers, BRANCH))
            steps.append(f"Optional branch: {branch}, for {names(tally, takers)}.")
    return replace(base, portions=tuple(portions), steps=tuple(steps))


Operator = Callable[[Tally, Case], Outcome]
OPERATIONS: Mapping[str, Operator] = {
    "approval_vote_plus_coverage": approval,
    "weighted_avg": weighted_average,
    "least_misery": least_misery,
    "mutual_interest": mutual_interest,
    "higher_pref_with_compensation": higher_preference,
    "parent_vote_lower_misery": parent_vote,
    "hard_constraint": hard_constraint,
    "include_both": include_both,
    "self_select": self_select,
    "individual_choice": individual_choice,
    "alternate": alternate,
    "log_roll": log_roll,
    "cluster": cluster,
    "flexible_shared_first": shared_first,
    "subgroup_required": subgroup_required,
    "subgroup_optional": subgroup_optional,
}
