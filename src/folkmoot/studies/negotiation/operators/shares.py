"""Rules that give different members different things: sides, days, own choices, clusters."""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.studies.negotiation.operators.outcome import (
    WHOLE_TRIP,
    Case,
    Outcome,
    Portion,
    best,
    for_all,
    listed,
    names,
    undecided,
    wishes,
)
from folkmoot.studies.negotiation.operators.votes import least_misery
from folkmoot.studies.negotiation.tally import Tally, Voter


def include_both(tally: Tally, case: Case) -> Outcome:
    """Each side's favourite has its days. Sides are the group's two roles; with one role, those
    who want the top option and those who do not. Two sides with one favourite take their next
    best in turn, so that two options are included wherever two were named."""
    if not tally.options:
        return undecided("include_both")
    side_a, side_b = _sides(tally)
    first, settled = best(tally, lambda o: (tally.total(o, side_a),))
    others = [o for o in tally.options if o != first]
    second = first
    if others:
        wish, _ = best(tally, lambda o: (tally.total(o, side_b),))
        if wish == first:
            # Both sides want the same: the second place goes to the best of the rest.
            wish, _ = best(tally, lambda o: (tally.total(o, side_b),), others)
        second = wish
    if second == first:
        only = f"Only {first} was named."
        return Outcome("include_both", first, (for_all(tally, first),), (only,), decided_by=settled)
    odd, even = _days(case.days)
    return Outcome(
        "include_both",
        first,
        (for_all(tally, first, odd), for_all(tally, second, even)),
        (
            f"{names(tally, [v.id for v in side_a])}: {first} on {odd}.",
            f"{names(tally, [v.id for v in side_b])}: {second} on {even}.",
        ),
        decided_by=settled,
    )


def _sides(tally: Tally) -> tuple[Sequence[Voter], Sequence[Voter]]:
    roles = list(dict.fromkeys(v.role for v in tally.voters))
    if len(roles) > 1:
        # Named order of roles would follow the order of members; alphabetical, elders first.
        ordered = sorted(roles, key=lambda r: (r in ("child", "young_adult"), r))
        rest = [v for v in tally.voters if v.role != ordered[0]]
        return tally.of_role(ordered[0]), rest
    top = tally.ranked()[0]
    for_it = [v for v in tally.voters if tally.primary(v.id) == top]
    against = [v for v in tally.voters if v not in for_it]
    return for_it or tally.voters, against or tally.voters


def _days(days: int) -> tuple[str, str]:
    """ "Day 1 and Day 3", "Day 2": the days of the one and of the other."""
    odd = [f"Day {d}" for d in range(1, days + 1, 2)]
    even = [f"Day {d}" for d in range(2, days + 1, 2)] or ["a later phase of Day 1"]
    return listed(odd), listed(even)


def self_select(tally: Tally, case: Case) -> Outcome:
    """A frame that all share (the option of least misery), and each member's own choice in it."""
    if not tally.options:
        return undecided("self_select")
    frame = least_misery(tally, case)
    shared = frame.selected_option or ""
    steps = [f"Shared frame: {shared}."]
    steps += [f"{names(tally, m)}: {o}." for o, m in _own_choices(tally, shared).items()]
    return Outcome(
        "self_select",
        shared,
        tuple(Portion(o, tuple(m)) for o, m in _own_choices(tally, shared).items()),
        tuple(steps),
        decided_by=frame.decided_by,
        details={"shared_frame": shared},
    )


def individual_choice(tally: Tally, case: Case) -> Outcome:
    """Each member gets the own first choice; who named none joins the largest choice."""
    if not tally.options:
        return undecided("individual_choice")
    wanted = wishes(tally)
    common, settled = best(tally, lambda o: (len(wanted.get(o, ())),))
    own = _own_choices(tally, common)
    return Outcome(
        "individual_choice",
        None,
        tuple(Portion(o, tuple(m)) for o, m in own.items()),
        tuple(f"{names(tally, m)}: {o}." for o, m in own.items()),
        decided_by=settled,
    )


def _own_choices(tally: Tally, otherwise: str) -> dict[str, list[str]]:
    own: dict[str, list[str]] = {}
    for voter in tally.voters:
        own.setdefault(tally.primary(voter.id) or otherwise, []).append(voter.id)
    return dict(sorted(own.items()))


def alternate(tally: Tally, case: Case) -> Outcome:
    """Each day belongs to one member in turn, who has the own first choice for all."""
    if not tally.options:
        return undecided("alternate")
    owners = [v for v in tally.voters if tally.primary(v.id) is not None] or list(tally.voters)
    portions = []
    for day in range(1, max(case.days, 1) + 1):
        owner = owners[(day - 1) % len(owners)]
        option = tally.primary(owner.id) or tally.ranked()[0]
        portions.append(for_all(tally, option, f"Day {day}", owner.id))
    return Outcome(
        "alternate",
        portions[0].option,
        tuple(portions),
        tuple(f"{p.when} is {names(tally, [p.owner])}'s: {p.option}." for p in portions),
        decided_by="rule",
    )


def log_roll(tally: Tally, case: Case) -> Outcome:
    """Trade of wins: each option goes to whoever values it most for the share of the own points
    it takes, as in the first step of Adjusted Winner (Brams & Taylor 1996); wins then have their
    days by turns, the strongest first. A member left without a win gets the best-liked option
    that another can spare."""
    if not tally.options:
        return undecided("log_roll")
    wins = _traded(tally)
    order = [v.id for v in tally.voters if wins[v.id]]
    if not order:
        chosen, settled = best(tally, lambda o: (tally.total(o),))
        return Outcome("log_roll", chosen, (for_all(tally, chosen),), decided_by=settled)
    portions = []
    for day in range(1, max(case.days, 1) + 1):
        owner = order[(day - 1) % len(order)]
        turn = (day - 1) // len(order)
        option = wins[owner][turn % len(wins[owner])]
        portions.append(for_all(tally, option, f"Day {day}", owner))
    steps = [f"{names(tally, [m])} wins {listed(w)}." for m, w in wins.items() if w]
    return Outcome(
        "log_roll",
        portions[0].option,
        tuple(portions),
        (*steps, *(f"{p.when}: {p.option}, for {names(tally, [p.owner])}." for p in portions)),
        decided_by="rule",
        details={"wins": wins},
    )


def _traded(tally: Tally) -> dict[str, list[str]]:
    """Voter → options won, most valued first."""
    points = {v.id: _points(tally, v.id) for v in tally.voters}
    place = {v.id: n for n, v in enumerate(tally.voters)}
    wins: dict[str, list[str]] = {v.id: [] for v in tally.voters}
    for option in tally.ranked():
        most = max(p[option] for p in points.values())
        level = [m for m, p in points.items() if p[option] == most]
        if most > 0:
            # Equal claims go to whoever has fewest wins so far, then by member id.
            winner = min(level, key=lambda m: (len(wins[m]), place[m]))
            wins[winner].append(option)
    for voter in tally.voters:
        if not wins[voter.id] and tally.primary(voter.id) is not None:
            _spare_one(tally, wins, voter.id)
    return {m: sorted(w, key=lambda o: (-points[m][o], o)) for m, w in wins.items()}


def _points(tally: Tally, voter: str) -> dict[str, float]:
    """The voter's positive scores as shares of the own total (0 where nothing is wanted)."""
    wanted = {o: max(0.0, tally.score(voter, o)) for o in tally.options}
    total = sum(wanted.values())
    return {o: round(s / total, 12) if total else 0.0 for o, s in wanted.items()}


def _spare_one(tally: Tally, wins: dict[str, list[str]], voter: str) -> None:
    for option in sorted(tally.options, key=lambda o: (-tally.score(voter, o), o)):
        holder = next((m for m, won in wins.items() if option in won and len(won) > 1), None)
        if holder and tally.score(voter, option) > 0:
            wins[holder].remove(option)
            wins[voter].append(option)
            return
    # Nobody can spare anything the voter wants: the first choice is shared.
    wins[voter].append(tally.primary(voter) or "")


def cluster(tally: Tally, case: Case) -> Outcome:
    """Members who want alike stand together: each joins the first choice that it scores highest
    among those of two or more members; who likes none of these stays with the own."""
    if not tally.options:
        return undecided("cluster")
    wanted = wishes(tally)
    shared = [o for o, who in wanted.items() if len(who) > 1]
    groups: dict[str, list[str]] = {}
    for voter in tally.voters:
        anchor = _anchor(tally, voter.id, shared)
        groups.setdefault(anchor, []).append(voter.id)
    groups = dict(sorted(groups.items()))
    chosen, settled = best(tally, lambda o: (len(groups.get(o, ())),), list(groups))
    return Outcome(
        "cluster",
        chosen,
        tuple(Portion(o, tuple(m)) for o, m in groups.items()),
        tuple(f"{names(tally, m)}: {o}." for o, m in groups.items()),
        decided_by=settled,
    )


def _anchor(tally: Tally, voter: str, shared: Sequence[str]) -> str:
    liked = [o for o in shared if tally.score(voter, o) > 0]
    if liked:
        return min(liked, key=lambda o: (-tally.score(voter, o), -tally.total(o), o))
    return tally.primary(voter) or (shared[0] if shared else tally.ranked()[0])


def shared_first(tally: Tally, case: Case) -> Outcome:
    """One shared place that the fewest strongly reject; only those who do may go elsewhere."""
    if not tally.options:
        return undecided("flexible_shared_first")
    chosen, settled = best(tally, lambda o: (-len(tally.rejections(o)),))
    apart = set(tally.rejections(chosen))
    if len(apart) == len(tally.voters):
        apart = set()
    together = tuple(v.id for v in tally.voters if v.id not in apart)
    portions = [Portion(chosen, together, WHOLE_TRIP)]
    steps = [f"Shared: {chosen}, for {names(tally, together)}."]
    for option, who in wishes(tally, [v for v in tally.voters if v.id in apart]).items():
        portions.append(Portion(option, tuple(who), WHOLE_TRIP))
        steps.append(f"Exception: {option} for {names(tally, who)}, who cannot share {chosen}.")
    silent = apart - {m for p in portions for m in p.members}
    if silent:
        portions[0] = Portion(
            chosen, tuple(v.id for v in tally.voters if v.id in {*together, *silent})
        )
    return Outcome(
        "flexible_shared_first",
        chosen,
        tuple(portions),
        tuple(steps),
        decided_by=settled,
    )
