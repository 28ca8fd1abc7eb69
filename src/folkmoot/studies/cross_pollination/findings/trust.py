"""How far to trust a run: noise, the order of options, the respondent, and who is missing."""

from __future__ import annotations

from collections import Counter

from folkmoot.kit.findings import (
    ALPHA,
    HOLM,
    Row,
    adjusted,
    by_method,
    cells,
    chance,
    fitness,
    intervals,
    listed,
    p_cells,
    points,
    share,
)
from folkmoot.measures.diagnostics import (
    FAILED,
    NOT_KNOWN,
    Check,
    cut,
    instability,
    malformed,
    off_list,
    over_length,
    position_bias,
    refusals,
    shrinking_variance,
    sycophancy,
)
from folkmoot.measures.estimates import plural, points_span
from folkmoot.measures.position import Shown, position_effects
from folkmoot.measures.proportions import Arm as Lost
from folkmoot.measures.proportions import difference_bounds, newcombe
from folkmoot.measures.retest import Repeat
from folkmoot.storage.findings import Finding, Grid, Intervals
from folkmoot.studies.cross_pollination.config import EMPTY_ARGUMENT, PLACEBOS, SIMPLE_VOTING
from folkmoot.studies.cross_pollination.findings.changes import caveats
from folkmoot.studies.cross_pollination.findings.decision_quality import count_moves
from folkmoot.studies.cross_pollination.findings.votes import Arm, Votes


def persuasion(votes: Votes) -> Finding | None:
    """Each rate above the rate at which people change when merely asked again.

    None if nobody voted twice.
    """
    floor = votes.floor
    others = [a for a in votes.twice if a is not floor]
    title = "Persuasion apart from noise"
    of = {a.name: votes.rate(a) for a in votes.twice}
    if not of:
        return None
    if floor is None or not others:
        return Finding(
            "persuasion",
            title,
            "This run cannot tell persuasion from noise: nobody was asked again without being told "
            "anything. Set `revote: true` to give simple voting a second vote."
            if floor is None
            else "Only the condition that measures noise voted twice; nothing to set against it.",
            Grid.of(
                [
                    {
                        "condition": a.name,
                        "voted_twice": a.n,
                        "changed": a.changed,
                        **cells(of[a.name], "changed_rate", "_rate"),
                    }
                    for a in votes.twice
                ]
            ),
            section="Noise",
            **votes.basis,
        )
    above = {a.name: votes.difference(a, floor) for a in others}
    holm = {a.name: votes.holm_p[frozenset((a.condition, floor.condition))] for a in others}
    placebos = " and ".join(a.name.lower() for a in others if a.condition in PLACEBOS)
    return Finding(
        "persuasion",
        title,
        f"Merely asked again, {share(of[floor.name])} choose differently: that is noise. Above it: "
        + listed(f"{name} {points(e, chance(e, holm[name]))}" for name, e in above.items())
        + (
            f" {placebos.capitalize()} hold no argument: what they move is attention or giving in, "
            "not reasons."
            if placebos
            else ""
        ),
        Grid.of(
            [
                {
                    "condition": name,
                    "changed_rate": of[name].value,
                    "floor_rate": of[floor.name].value,
                    **cells(e, "above_floor_rate", "_rate"),
                    **p_cells(e, holm[name]),
                }
                for name, e in above.items()
            ],
            "The floor is simple voting asked a second time; 95 % intervals"
            f"{by_method(above.values())}.",
        ),
        intervals(above, "changed, above the floor of noise", zero=0.0, percent=True),
        notes=(
            "The floor is estimated from its own participants; its uncertainty is included.",
            "holm p: adjusted for all comparisons of two conditions, as in “Differences between "
            "conditions”.",
            *caveats(votes),
        ),
        section="Noise",
        headline=True,
        **votes.basis,
    )


def option_order(votes: Votes) -> Finding | None:
    """The effect of being listed first on the first vote; None without recorded orders."""
    shown = _first_votes(votes)
    if not shown:
        return None
    found = position_effects(shown)
    title = "Order of the options"
    if found.first is None:
        return Finding(
            "position_effects",
            title,
            "Everybody saw the options in the same order, so a preference for the first place "
            "cannot be separated from a preference for the option. Set `option_order: random`.",
            Grid((), ()),
            section="Noise",
        )
    first = found.first
    holm = adjusted(found.by_place)
    return Finding(
        "position_effects",
        title,
        f"Being listed first changes an option's chance of the first vote by "
        f"{points(first, chance(first, holm[1]))}, "
        f"{'so the order matters' if holm[1] < ALPHA else 'which may be chance'}.",
        Grid.of(
            [
                {
                    "listed_as": place,
                    **cells(e, "effect_rate", "_rate"),
                    **p_cells(e, holm[place]),
                }
                for place, e in found.by_place.items()
            ],
            f"{found.orders} orders were shown to {found.answers} participants.",
        ),
        intervals(
            {f"listed {place}": e for place, e in found.by_place.items()},
            "change in the chance of being chosen",
            zero=0.0,
            percent=True,
        ),
        notes=("Least squares with one term per option, clustered by participant.", HOLM),
        section="Noise",
        unit="participant",
        units=found.answers,
    )


def _first_votes(votes: Votes) -> list[Shown]:
    """First votes with the order in which each participant saw the options."""
    return [
        Shown(r.options_shown, r.initial_choice, r.participant_id)
        for r in votes.people
        if r.initial_choice is not None and r.options_shown
    ]


def respondent_checks(votes: Votes) -> Finding:
    """Signs that the model is unfit to stand in for people: every check that the data allow."""
    return fitness(_checks(votes))


def _checks(votes: Votes) -> list[Check]:
    answers = votes.answers
    placebo, floor = votes.arm(EMPTY_ARGUMENT), votes.floor
    before = votes.counts(r.initial_choice for r in votes.people)
    moves = count_moves(votes, votes.informed[-1]) if votes.informed else None
    yielded = sum(r.final_choice == r.opposition_view for r in votes.facing)
    return [
        refusals(answers, votes.said()),
        malformed(answers),
        off_list(answers),
        over_length(answers),
        cut(answers),
        instability(repeats(votes)),
        position_bias(_first_votes(votes)),
        sycophancy(
            (placebo.changed, placebo.n) if placebo else None,
            (floor.changed, floor.n) if floor else None,
            votes.rebuttals,
            (yielded, len(votes.facing)),
        ),
        shrinking_variance(before, moves),
    ]


def repeats(votes: Votes) -> list[Repeat]:
    """Both votes of everybody who voted twice; in the plainest condition nothing came between."""
    return [
        Repeat(unit, "vote", first, last, untouched=arm is votes.floor)
        for arm in votes.twice
        for unit, first, last in zip(votes.units(arm), arm.first, arm.final, strict=True)
    ]


def spread_of_votes(votes: Votes) -> Finding | None:
    """Whether votes spread as people's do, of all first votes and in each condition."""
    found = {
        "all first votes": shrinking_variance(votes.counts(r.initial_choice for r in votes.people))
    }
    for arm in votes.informed:
        found[arm.name] = shrinking_variance(votes.counts(arm.first), count_moves(votes, arm))
    failed = [name for name, check in found.items() if check.verdict == FAILED]
    unknown = [name for name, check in found.items() if check.verdict == NOT_KNOWN]
    if len(unknown) == len(found) and all(check.value is None for check in found.values()):
        return None
    says = (
        f"The votes do not spread as people's do: {', '.join(failed)}. Differences between "
        "participants, and any rate of change, are suspect there."
        if failed
        else f"Inside the human range: {', '.join(n for n in found if n not in unknown) or 'none'}."
    )
    if unknown:
        says += f" Not known: {', '.join(unknown)}."
    return Finding(
        "spread_of_votes",
        "Spread of the votes",
        says,
        Grid.of(
            [
                {"votes": name, "verdict": check.verdict, "says": check.says}
                for name, check in found.items()
            ]
        ),
        section="Human bands",
        headline=bool(failed),
    )


def attrition(votes: Votes) -> Finding:
    """Who is missing from each condition and why, and what they could change at worst."""
    rows: list[Row] = []
    for arm in votes.arms:
        why = Counter(str(r.error_message or r.status)[:80] for r in arm.lost)
        reasons = why.most_common(3) if _votes_twice(votes, arm) else []
        status = Counter(r.status for r in arm.rows)
        rows.append(
            {
                "condition": arm.name,
                "participants": len(arm.rows),
                "failed": status["failed"],
                "skipped": status["skipped"],
                "no_final_vote": len(arm.lost),
                "no_final_vote_share": len(arm.lost) / len(arm.rows),
                "reasons": "; ".join(f"{reason} ({n})" for reason, n in reasons),
            }
        )
    lost = sum(len(a.lost) for a in votes.arms if _votes_twice(votes, a))
    bounds, aloud = _bounds(votes)
    if not lost:
        says = "Nobody who should have voted twice is missing."
    elif votes.terminated:
        says = f"The study ended early: {plural(lost, 'participant')} did not vote a second time."
    else:
        says = f"{plural(lost, 'participant')} who should have voted twice did not. {aloud}".strip()
    return Finding(
        "attrition",
        "Who is missing",
        says,
        Grid.of(rows, "Participants without a final vote, by condition."),
        Intervals(tuple(bounds), unit="difference at worst and at best", zero=0.0, percent=True)
        if bounds and lost
        else None,
        notes=(
            "At worst, everybody lost from the first condition would have kept their choice and "
            "everybody lost from the second would have changed it; at best the reverse "
            "(Horowitz and Manski 2000). Sampling error comes on top.",
        )
        if lost
        else (),
        section="Attrition",
        unit="participant",
        units=sum(a.n for a in votes.twice),
    )


def _votes_twice(votes: Votes, arm: Arm) -> bool:
    """Whether the design gives this condition a second vote."""
    return arm.condition != SIMPLE_VOTING or bool(votes.config.get("revote")) or arm.n > 0


def _bounds(votes: Votes) -> tuple[list[tuple[str, float, float, float]], str]:
    """Bounds of each informed condition against the plainest that voted twice, and in words."""
    base = votes.floor or (votes.informed[0] if votes.informed else None)
    found, fragile = [], []
    for arm in votes.informed:
        if base is None or arm is base:
            continue
        b = difference_bounds(
            Lost(arm.changed, arm.n, len(arm.lost)), Lost(base.changed, base.n, len(base.lost))
        )
        name = f"{arm.name} − {base.name}"
        found.append((name, b.observed, b.low, b.high))
        clear = newcombe(arm.changed, arm.n, base.changed, base.n).excludes_zero
        if clear and not b.sign_holds:
            fragile.append(f"{name} ({points_span(b.low, b.high)})")
    if not found:
        return [], ""
    if fragile:
        return found, f"They could overturn: {', '.join(fragile)}."
    return found, "Even in the worst case they overturn none of the clear differences."
