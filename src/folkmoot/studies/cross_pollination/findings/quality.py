"""Decision quality, where it was asked for: confidence, rankings, restatements, a later vote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from folkmoot.kit import coding
from folkmoot.kit.findings import Row, cells, chance, change, intervals, listed, rates, share
from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.estimates import Estimate
from folkmoot.storage.findings import Finding, Grid
from folkmoot.studies.cross_pollination.findings.data import Arm, Votes, shown_options

SECTION = "Decision quality"
Who = Mapping[str, Any]


def quality(votes: Votes) -> list[Finding]:
    """A finding for each measure that somebody answered."""
    found = (_confidence(votes), _ranking(votes), _restated(votes), _delayed(votes))
    return [finding for finding in found if finding is not None]


def _mean(votes: Votes, arm: Arm, of: Callable[[Who], float | None]) -> Estimate | None:
    """The mean over those of an arm of whom it is known; with draws of the summaries, by draw."""
    known = {n: value for n, r in enumerate(arm.moved) if (value := of(r)) is not None}
    units = votes.units(arm)
    return clustered_mean([*known.values()], [units[n] for n in known]) if known else None


def _confidence(votes: Votes) -> Finding | None:
    def gained(r: Who) -> float | None:
        before, after = r["confidence_before"], r["confidence_after"]
        return None if before is None or after is None else after - before

    by = {a: e for a in votes.twice if (e := _mean(votes, a, gained)) is not None}
    if not by:
        return None
    rows: list[Row] = []
    for arm, e in by.items():
        both = [r for r in arm.moved if gained(r) is not None]
        levels = {
            when: sum(r[f"confidence_{when}"] for r in both) / len(both)
            for when in ("before", "after")
        }
        rows.append(
            {"condition": arm.name, "participants": len(both), **levels, **cells(e, "change")}
        )
    return Finding(
        "confidence",
        "How sure they are of their choice",
        "Change in confidence (0 to 100): "
        + listed(f"{a.name} {change(e, chance(e))}" for a, e in by.items()),
        Grid.of(rows, "Means; those asked before and after."),
        intervals({a.name: e for a, e in by.items()}, "change in confidence", zero=0.0),
        notes=(
            "Confidence is what the model says of itself. It is a measure of quality only together "
            "with whether the choice is a good one.",
        ),
        section=SECTION,
        **votes.basis,
    )


def _ranking(votes: Votes) -> Finding | None:
    def moved(r: Who) -> float | None:
        before, after = (shown_options(r[f"ranking_{when}"]) for when in ("before", "after"))
        return _discordant(before, after) if before and after else None

    found = {a: e for a in votes.twice if (e := _mean(votes, a, moved)) is not None}
    by = {a: e.within(0.0, 1.0) for a, e in found.items()}
    if not by:
        return None
    return Finding(
        "rankings",
        "How far the rankings of all options moved",
        "Share of pairs of options that changed places: "
        + listed(f"{a.name} {share(e)}" for a, e in by.items()),
        Grid.of(
            [
                {
                    "condition": a.name,
                    "participants": e.n,
                    **cells(e, "pairs_share", "_share"),
                    "top_is_the_vote_share": _top_is_vote(a),
                }
                for a, e in by.items()
            ],
            "Kendall's distance of the rankings before and after, as a share of all pairs.",
        ),
        intervals({a.name: e for a, e in by.items()}, "pairs that changed places", percent=True),
        notes=(
            "`top is the vote`: how many rank first, after the final vote, what they voted for.",
        ),
        section=SECTION,
        **votes.basis,
    )


def _discordant(before: tuple[str, ...], after: tuple[str, ...]) -> float:
    """The share of pairs that two rankings of the same options order differently."""
    place = {option: n for n, option in enumerate(after)}
    pairs = [(a, b) for i, a in enumerate(before) for b in before[i + 1 :]]
    return sum(place[a] > place[b] for a, b in pairs) / len(pairs)


def _top_is_vote(arm: Arm) -> float | None:
    tops = [(shown_options(r["ranking_after"]), r["final_choice"]) for r in arm.moved]
    known = [ranked[0] == vote for ranked, vote in tops if ranked]
    return sum(known) / len(known) if known else None


def _restated(votes: Votes) -> Finding | None:
    read = coding.codings(votes.run).get("restated")
    if read is None:
        return None
    title = "Can they state the opposing view?"
    if not read.supports:
        return Finding(
            "restated",
            title,
            "The restatements are recorded; nothing can be said of them yet.",
            Grid((), ()),
            notes=(read.note,),
            section=SECTION,
        )
    codes = {a: [read.one(r["participant_id"]) for r in a.moved] for a in votes.twice}
    counts = {a.name: (c.count("restated"), len(c) - c.count(None)) for a, c in codes.items()}
    by = rates(counts)
    return Finding(
        "restated",
        title,
        "Gave the main reason of the opposing view so that its holders would recognise it: "
        + listed(f"{name} {share(e)}" for name, e in by.items()),
        Grid.of(
            [
                {
                    "condition": a.name,
                    "coded": counts[a.name][1],
                    **{code: c.count(code) for code in ("restated", "partly", "not_restated")},
                    **cells(by.get(a.name), "restated_rate", "_rate"),
                }
                for a, c in codes.items()
            ],
            "Coded blind to condition; 95 % Wilson.",
        ),
        intervals(by, "restated", percent=True),
        notes=(read.note,),
        section=SECTION,
        **votes.basis,
    )


def _delayed(votes: Votes) -> Finding | None:
    counts = {
        a.name: [
            (r["delayed_choice"] == r["final_choice"], r["delayed_choice"] == r["initial_choice"])
            for r in a.moved
            if r["delayed_choice"] is not None
        ]
        for a in votes.twice
    }
    kept = rates({name: (sum(k for k, _ in c), len(c)) for name, c in counts.items()})
    if not kept:
        return None
    return Finding(
        "delayed_vote",
        "Does the change last?",
        "Vote as in the final vote when asked later: "
        + listed(f"{name} {share(e)}" for name, e in kept.items()),
        Grid.of(
            [
                {
                    "condition": name,
                    "participants": len(counts[name]),
                    **cells(e, "kept_rate", "_rate"),
                    "back_to_first": sum(first and not final for final, first in counts[name]),
                }
                for name, e in kept.items()
            ],
            "Third votes, with nothing in view but both earlier votes; 95 % Wilson.",
        ),
        intervals(kept, "vote as in the final vote", percent=True),
        notes=(
            "A model neither forgets nor thinks on between two calls: this tests whether the "
            "choice stands without the texts that led to it.",
        ),
        section=SECTION,
        **votes.basis,
    )
