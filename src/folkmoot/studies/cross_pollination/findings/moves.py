"""From which option to which: flows, tests of lopsidedness, and moves to the opposing view."""

from __future__ import annotations

from folkmoot.measures.conformity import agreeing_share, towards_target
from folkmoot.measures.estimates import p_value, percent, plural, span
from folkmoot.measures.paired_votes import (
    IntArray,
    Moves,
    bowker,
    mcnemar,
    moves_towards,
    stuart_maxwell,
    transition_table,
)
from folkmoot.records.findings import Bars, Cell, Finding, Flow, Grid
from folkmoot.studies.cross_pollination.config import ACP
from folkmoot.studies.cross_pollination.findings.data import Arm, Votes


def tallies(votes: Votes) -> Finding | None:
    """Votes per option before and after, by condition; None if nobody voted."""
    if not any(r["initial_choice"] for r in votes.people):
        return None
    first = votes.counts(r["initial_choice"] for r in votes.people)
    before = {a.name: votes.counts(r["initial_choice"] for r in a.rows) for a in votes.arms}
    after = {a.name: votes.counts(r["final_choice"] for r in a.rows) for a in votes.arms}
    rows: list[dict[str, Cell]] = [
        {
            "option": option,
            **{
                a.name: f"{before[a.name][i]} → {after[a.name][i]}"
                if a.n
                else str(before[a.name][i])
                for a in votes.arms
            },
        }
        for i, option in enumerate(votes.options)
    ]
    top = max(range(len(first)), key=first.__getitem__)
    says = (
        f"Most voted at first: “{votes.options[top]}”, {first[top]} of {sum(first)} "
        f"({percent(first[top] / sum(first))})."
    )
    return Finding(
        "votes",
        "Votes before and after",
        says,
        Grid.of(rows, "First → final votes; a single number where there was no final vote."),
        headline=True,
    )


def transitions(votes: Votes) -> Finding | None:
    """The flow of votes per condition; None if nobody voted twice."""
    links = []
    for arm in votes.twice:
        table = _table(votes, arm)
        links += [
            (arm.name, a, b, int(table[i, j]))
            for i, a in enumerate(votes.options)
            for j, b in enumerate(votes.options)
            if table[i, j]
        ]
    if not links:
        return None
    moved = [(panel, a, b, n) for panel, a, b, n in links if a != b]
    if moved:
        panel, a, b, n = max(moved, key=lambda link: link[3])
        says = (
            f"{plural(sum(m[3] for m in moved), 'vote')} moved. The largest single move: "
            f"{n} from “{a}” to “{b}” ({panel})."
        )
    else:
        says = "No vote moved."
    rows: list[dict[str, Cell]] = [
        {"condition": p, "first_vote": a, "final_vote": b, "participants": n}
        for p, a, b, n in links
    ]
    return Finding(
        "transitions",
        "From first to final vote",
        says,
        Grid.of(rows, "How many went from which option to which."),
        Flow(tuple(links)),
    )


def marginal_homogeneity(votes: Votes) -> Finding | None:
    """Did moves cancel out, or did they shift the outcome? Per condition."""
    rows: list[dict[str, Cell]] = []
    lopsided = []
    for arm in votes.twice:
        table = _table(votes, arm)
        symmetry, margins = bowker(table), stuart_maxwell(table)
        rows.append(
            {
                "condition": arm.name,
                "n": arm.n,
                "bowker": symmetry.statistic,
                "bowker_df": symmetry.df,
                "bowker_p": symmetry.p,
                "stuart_maxwell": margins.statistic,
                "stuart_maxwell_df": margins.df,
                "stuart_maxwell_p": margins.p,
                "reliable": symmetry.df > 0 and arm.changed >= 5 * symmetry.df,
            }
        )
        if margins.df and margins.p < 0.05:
            lopsided.append(f"{arm.name} ({p_value(margins.p)})")
    if not rows:
        return None
    says = (
        f"The totals per option shifted beyond chance in: {', '.join(lopsided)}. Elsewhere moves "
        "to and from each option cancel out."
        if lopsided
        else "In no condition did the totals per option shift beyond chance: as many moved away "
        "from an option as to it."
    )
    return Finding(
        "marginal_homogeneity",
        "Did the outcome shift?",
        says,
        Grid.of(rows, "Bowker's test of symmetry and Stuart and Maxwell's of equal totals."),
        notes=(
            "Noise makes people change without favouring an option; persuasion that draws one way "
            "shows here. Not adjusted for the number of conditions. “reliable” is false where "
            "there are fewer than five moves per degree of freedom.",
        ),
    )


def option_shifts(votes: Votes) -> Finding | None:
    """Option by option: gained, lost, and McNemar's test, for conditions that were informed."""
    rows: list[dict[str, Cell]] = []
    bars = []
    for arm in votes.twice:
        table = _table(votes, arm)
        for i, option in enumerate(votes.options):
            gained = int(table[:, i].sum() - table[i, i])
            lost = int(table[i].sum() - table[i, i])
            test = mcnemar(gained, lost)
            rows.append(
                {
                    "condition": arm.name,
                    "option": option,
                    "first_share": float(table[i].sum()) / arm.n,
                    "final_share": float(table[:, i].sum()) / arm.n,
                    "gained": gained,
                    "lost": lost,
                    "p": test.p,
                }
            )
            bars.append((arm.name, option, (gained - lost) / arm.n))
    if not rows:
        return None
    top = max(rows, key=lambda r: abs(int(str(r["gained"])) - int(str(r["lost"]))))
    net = int(str(top["gained"])) - int(str(top["lost"]))
    says = (
        f"Largest net shift: “{top['option']}” {net:+d} in {top['condition']} "
        f"({top['gained']} gained, {top['lost']} lost, {p_value(float(str(top['p'])))})."
        if net
        else "No option gained or lost on balance."
    )
    return Finding(
        "option_shifts",
        "What each option gained and lost",
        says,
        Grid.of(rows, "p: McNemar's test per option (exact below 25 moves), not adjusted."),
        Bars(tuple(bars), unit="net change in share", percent=True),
    )


def towards_opposition(votes: Votes) -> Finding | None:
    """Of the adversarial condition: who moved to the view that was argued against them."""
    arm = votes.arm(ACP)
    if arm is None:
        return None
    facing = [r for r in arm.moved if r["opposition_view"] is not None]
    if not facing:
        return None
    found = moves_towards(
        [r["initial_choice"] for r in facing],
        [r["final_choice"] for r in facing],
        [r["opposition_view"] for r in facing],
        len(votes.options),
    )
    excess = towards_target(found.moved, found.to_target, len(votes.options))
    turns = [
        u["text"]
        for u in votes.utterances
        if u.get("stage") == "adversarial_dialogue"
        and u.get("speaker_role") == "participant"
        and u.get("text")
    ]
    agreeing = agreeing_share(turns)
    says = (
        f"Of {plural(found.n, 'participant')} who faced an opposing view, {found.to_target} "
        f"moved to it, {found.elsewhere} to another option, {found.stayed} stayed."
    )
    if excess is not None:
        says += (
            f" That is {percent(excess.share.value)} of those who moved "
            f"({span(excess.share.low, excess.share.high)}); moving at random "
            f"would give {percent(excess.expected)} ({p_value(excess.p)})."
        )
    if agreeing is not None:
        says += f" {percent(agreeing.value)} of their replies open by agreeing."
    return Finding(
        "towards_opposition",
        "Moved towards the opposing view",
        says,
        Grid.of(_move_rows(found), "Adversarial condition, by what they did with their vote."),
        Bars(
            tuple(
                ("Adversarial (ACP)", name, count / found.n)
                for name, count in (
                    ("to the opposing view", found.to_target),
                    ("to another option", found.elsewhere),
                    ("stayed", found.stayed),
                )
            ),
            unit="share of those who faced an opposing view",
            percent=True,
        ),
        notes=(
            "Above chance may be persuasion or giving in; the condition `empty_argument` tells the "
            "two apart. The share that opens by agreeing is a rough count of English phrases.",
        ),
    )


def _move_rows(found: Moves) -> list[dict[str, Cell]]:
    counts = {
        "to the opposing view": found.to_target,
        "to another option": found.elsewhere,
        "stayed": found.stayed,
    }
    return [
        {"move": name, "participants": n, "participants_share": n / found.n}
        for name, n in counts.items()
    ]


def _table(votes: Votes, arm: Arm) -> IntArray:
    return transition_table(arm.column("initial_choice"), arm.column("final_choice"), votes.options)
