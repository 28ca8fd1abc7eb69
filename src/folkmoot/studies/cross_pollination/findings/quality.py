"""How far to trust a run: who is missing, the order of options, and signs of an unfit model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from folkmoot.measures.attrition import Arm as Lost
from folkmoot.measures.attrition import difference_bounds
from folkmoot.measures.diagnostics import (
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
from folkmoot.measures.estimates import p_value, plural, points, points_span
from folkmoot.measures.position import Shown, position_effects
from folkmoot.measures.proportions import newcombe
from folkmoot.records.findings import Cell, Finding, Grid, Intervals
from folkmoot.studies.cross_pollination.config import ACP, EMPTY_ARGUMENT
from folkmoot.studies.cross_pollination.findings.data import Arm, Votes, shown_options


def attrition(votes: Votes) -> Finding:
    """Who is missing from each condition and why, and what they could change at worst."""
    rows: list[dict[str, Cell]] = []
    for arm in votes.arms:
        reasons = Counter(_reason(r) for r in arm.lost) if _expected(votes, arm) else Counter()
        rows.append(
            {
                "condition": arm.name,
                "participants": len(arm.rows),
                "failed": sum(r["status"] == "failed" for r in arm.rows),
                "skipped": sum(r["status"] == "skipped" for r in arm.rows),
                "no_final_vote": len(arm.lost),
                "no_final_vote_share": len(arm.lost) / len(arm.rows) if arm.rows else None,
                "reasons": "; ".join(f"{why} ({n})" for why, n in reasons.most_common(3)),
            }
        )
    bounds, aloud = _bounds(votes)
    lost = sum(len(a.lost) for a in votes.arms if _expected(votes, a))
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
    )


def _expected(votes: Votes, arm: Arm) -> bool:
    """Whether the design gives this condition a second vote."""
    return arm.condition != "simple_voting" or bool(votes.config.get("revote")) or arm.n > 0


def _reason(row: Mapping[str, Any]) -> str:
    return str(row["error_message"] or row["status"])[:80]


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


def option_order(votes: Votes) -> Finding | None:
    """The effect of being listed first on the first vote; None without recorded orders."""
    shown = first_votes(votes)
    if not shown:
        return None
    found = position_effects(shown)
    if found.first is None:
        says = (
            "Everybody saw the options in the same order, so a preference for what is listed first "
            "cannot be told from a preference for the option. Set `option_order: random`."
        )
        return Finding(
            "position_effects", "Order of the options", says, Grid((), ()), section="Noise"
        )
    first = found.first
    verdict = "so the order matters" if first.excludes_zero else "which may be chance"
    says = (
        f"Being listed first changes an option's chance of the first vote by {points(first.value)} "
        f"({points_span(first.low, first.high)}, {p_value(first.p)}), {verdict}."
    )
    rows: list[dict[str, Cell]] = [
        {
            "listed_as": place,
            "effect_rate": e.value,
            "low_rate": e.low,
            "high_rate": e.high,
            "p": e.p,
        }
        for place, e in found.by_place.items()
    ]
    return Finding(
        "position_effects",
        "Order of the options",
        says,
        Grid.of(rows, f"{found.orders} orders were shown to {found.answers} participants."),
        Intervals(
            tuple((f"listed {k}", e.value, e.low, e.high) for k, e in found.by_place.items()),
            unit="change in the chance of being chosen",
            zero=0.0,
            percent=True,
        ),
        notes=("Least squares with one term per option, clustered by participant.",),
        section="Noise",
    )


def first_votes(votes: Votes) -> list[Shown]:
    """First votes with the order in which each participant saw the options."""
    return [
        Shown(shown_options(r["options_shown"]), r["initial_choice"], r["participant_id"])
        for r in votes.people
        if r["initial_choice"] is not None and r["options_shown"]
    ]


def checks(votes: Votes) -> list[Check]:
    """Every diagnostic that this study's data allow."""
    answers = votes.answers
    placebo, floor = votes.arm(EMPTY_ARGUMENT), votes.floor
    informed = votes.informed[-1] if votes.informed else None
    before = votes.counts(r["initial_choice"] for r in votes.people)
    after = votes.counts(informed.column("final_choice")) if informed else None
    own = [u["text"] or "" for u in votes.utterances if u.get("speaker_role") == "participant"]
    challenged = [
        u["text"] or ""
        for u in votes.utterances
        if u.get("speaker_role") == "participant" and u.get("stage") == "adversarial_dialogue"
    ]
    return [
        refusals(answers, own),
        malformed(answers),
        off_list(answers),
        over_length(answers),
        cut(answers),
        instability(floor.changed if floor else 0, floor.n if floor else 0),
        position_bias(first_votes(votes)),
        sycophancy(
            (placebo.changed, placebo.n) if placebo else None,
            (floor.changed, floor.n) if floor else None,
            challenged,
            _yielded(votes),
        ),
        shrinking_variance(before, after),
    ]


def _yielded(votes: Votes) -> tuple[int, int] | None:
    """Of those who faced an opposing view: how many took it, and how many there were."""
    arm = votes.arm(ACP)
    facing = [r for r in arm.moved if r["opposition_view"] is not None] if arm else []
    return sum(r["final_choice"] == r["opposition_view"] for r in facing), len(facing)


def respondent_checks(votes: Votes) -> Finding:
    """Signs that the model is unfit to stand in for people."""
    found = checks(votes)
    flagged = [c for c in found if c.flagged]
    unknown = [c for c in found if c.flagged is None]
    says = (
        " ".join(f"{c.title}: {c.says}" for c in flagged)
        if flagged
        else f"None of {plural(len(found) - len(unknown), 'check')} raised a flag."
    )
    if unknown:
        says += f" Not checked: {', '.join(c.title.lower() for c in unknown)}."
    rows: list[dict[str, Cell]] = [
        {
            "check": c.title,
            "value": c.value.value if c.value else None,
            "limit": c.limit,
            "flag": "not checked" if c.flagged is None else ("flagged" if c.flagged else "clear"),
            "says": c.says,
        }
        for c in found
    ]
    return Finding(
        "respondent_checks",
        "Is the model fit to answer?",
        says,
        Grid.of(rows, "Each check looks for one known way in which models answer unlike people."),
        section="Noise",
        headline=bool(flagged),
    )


def variance_collapse(votes: Votes) -> Finding | None:
    """The flag of its own for answers that spread much less than people's."""
    first = votes.counts(r["initial_choice"] for r in votes.people)
    found = [("all first votes", shrinking_variance(first))]
    for arm in votes.informed:
        before = votes.counts(arm.column("initial_choice"))
        after = votes.counts(arm.column("final_choice"))
        found.append((arm.name, shrinking_variance(before, after)))
    known = [(name, c) for name, c in found if c.flagged is not None]
    if not known:
        return None
    flagged = [name for name, c in known if c.flagged]
    says = (
        f"Variance collapse in {', '.join(flagged)}: these answers spread much less than people's, "
        "so differences between participants, and any rate of change, are suspect."
        if flagged
        else "The votes spread no less than people's do."
    )
    rows: list[dict[str, Cell]] = [
        {"votes": name, "flag": "collapse" if c.flagged else "clear", "says": c.says}
        for name, c in known
    ]
    return Finding(
        "variance_collapse",
        "Variance collapse" if flagged else "Variance",
        says,
        Grid.of(rows),
        section="Human bands",
        headline=bool(flagged),
    )
