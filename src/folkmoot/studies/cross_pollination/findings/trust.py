"""How far to trust a run: noise, the order of options, the respondent, and who is missing."""

from __future__ import annotations

from collections import Counter

from folkmoot.kit.findings import (
    Row,
    adjusted,
    cells,
    fitness,
    intervals,
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
from folkmoot.measures.inference.estimates import plural, points_span
from folkmoot.measures.position import Shown, position_effects
from folkmoot.measures.retest import Repeat
from folkmoot.measures.wording import EXPLORATORY_TESTS
from folkmoot.storage.findings import Finding, Grid, Intervals
from folkmoot.studies.cross_pollination.config import EMPTY_ARGUMENT, PLACEBOS, SIMPLE_VOTING
from folkmoot.studies.cross_pollination.findings.decision_quality import count_moves
from folkmoot.studies.cross_pollination.findings.votes import Arm, Votes


def persuasion(votes: Votes) -> Finding | None:
    """How many change when they are merely asked again; None if nobody voted twice.

    What conditions do beyond it is a claim, which stands with the other claims.
    """
    floor = votes.floor
    of = {a: votes.rate(a) for a in votes.twice}
    if not of:
        return None
    if floor is None:
        says = (
            "This run cannot tell persuasion from noise: nobody was asked again without being told "
            "anything. Set `revote: true` to give simple voting a second vote."
        )
    else:
        placebos = [a.name.lower() for a in votes.twice if a.condition in PLACEBOS]
        says = (
            f"Merely asked again, {share(of[floor])} choose differently: that is noise. What "
            "conditions move beyond it stands under “Differences between conditions”."
        )
        if placebos:
            says += (
                f" {' and '.join(placebos).capitalize()} hold no argument: what they move is "
                "attention or giving in, not reasons."
            )
    return Finding(
        "persuasion",
        "Persuasion apart from noise",
        says,
        Grid.of(
            [
                {
                    "condition": a.name,
                    "voted_twice": a.n,
                    "changed": a.changed,
                    **cells(e, "changed_rate", "_rate"),
                }
                for a, e in of.items()
                if floor in (None, a)
            ]
        ),
        section="Noise",
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
        f"Being listed first changes an option's chance of the first vote by {points(first)}.",
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
        notes=(
            "Least squares with one term per option, clustered by participant.",
            EXPLORATORY_TESTS,
        ),
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
    """Bounds of the claims over all ways of filling in who is missing, and what they overturn."""
    bounded = [(r, r.bounds) for r in votes.results if r.bounds is not None]
    lines = [(r.claim.line, b.observed, b.low, b.high) for r, b in bounded]
    shown = [both for both in bounded if both[0].is_shown]
    fragile = [
        f"{r.claim.line} ({points_span(b.low, b.high)})" for r, b in shown if not b.sign_holds
    ]
    if fragile:
        return lines, f"They could overturn: {', '.join(fragile)}."
    if shown:
        return lines, "Even in the worst case no difference that is shown changes its sign."
    return lines, ""
