"""What a finished negotiation study found, read from its files and tables."""

from __future__ import annotations

from typing import Any

from folkmoot.measures.clustered import FEW_CLUSTERS
from folkmoot.records.findings import Board, Finding, Grid, Heat, Intervals
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.negotiation.strategies import CONDITIONS
from folkmoot.studies.negotiation.tables import MEASURES

_SCORED = (
    "Satisfaction is each member's own score of what was decided, from the stated preference "
    "alone: −2 (strongly rejected) to 4 (asked for)."
)
_UNDECIDED = (
    "C2 decides nothing: its satisfaction is the expectation if any stated first choice is taken."
)


_PAIRED = "Paired: a group's stated preferences are the same under all conditions."
_TESTED = (
    f"p by flipping the signs of groups (up to {FEW_CLUSTERS} groups), else by t; not corrected "
    "for the number of comparisons."
)
_COMPARED = {
    "satisfaction": "how content members are",
    "lowest_satisfaction": "how content the least content member is",
    "minority_promised_share": "minority wishes given or promised",
}


def findings(run: RunFolder) -> list[Finding]:
    """The comparison of conditions, conflicts, locks and feedback, and the decisions."""
    data = run.json("comparison.json")
    found = [
        _satisfaction(data),
        *_contrasts(data),
        _by_type(run),
        _conflicts(data),
        _process(data),
        _board(run),
    ]
    return [f for f in found if f is not None]


def _satisfaction(data: dict[str, Any]) -> Finding:
    means = data["conditions"]
    rows = [
        {
            "condition": c,
            **{m: means[c][m]["estimate"] for m in list(MEASURES)[:6]},
        }
        for c in means
    ]
    items = [
        (_title(c), e["estimate"], _or(e["low"], e["estimate"]), _or(e["high"], e["estimate"]))
        for c in means
        if (e := means[c]["satisfaction"])["estimate"] is not None
    ]
    best = max(items, key=lambda i: i[1], default=None)
    says = (
        f"Members are most content under {best[0]}: {best[1]:.2f} on average "
        f"({best[2]:.2f} to {best[3]:.2f}), over {data['groups']} groups."
        if best
        else "No decision could be scored."
    )
    return Finding(
        "satisfaction",
        "How content members are with what was decided",
        says,
        Grid.of(rows),
        Intervals(tuple(items), unit="mean member score"),
        notes=(_SCORED, _UNDECIDED),
        headline=True,
    )


def _contrasts(data: dict[str, Any]) -> list[Finding]:
    """Paired differences of neighbouring conditions on what matters most."""
    found = []
    for measure, title in _COMPARED.items():
        rows = [d for d in data["paired_differences"] if d["measure"] == measure]
        if not rows:
            continue
        items = tuple(
            (
                f"{d['of']} − {d['minus']}",
                d["estimate"],
                _or(d["low"], d["estimate"]),
                _or(d["high"], d["estimate"]),
            )
            for d in rows
        )
        last = [d for d in rows if d["of"] == rows[-1]["of"] and d["minus"] in ("C2", "C3", "C4")]
        read = "; ".join(_aloud(d) for d in (last or rows[-1:]))
        keys = ("of", "minus", "estimate", "low", "high", "p", "n")
        found.append(
            Finding(
                f"paired_{measure}",
                f"Within groups: {title}",
                f"{read}.",
                Grid.of([{k: d[k] for k in keys} for d in rows], caption=data["intervals"]),
                Intervals(items, unit="paired difference", zero=0.0),
                notes=(f"{MEASURES[measure].capitalize()}.", _PAIRED, _TESTED),
                headline=measure == "satisfaction",
            )
        )
    return found


def _aloud(d: dict[str, Any]) -> str:
    text = f"{d['of']} is {d['estimate']:+.2f} against {d['minus']}"
    if d["low"] is None:
        return f"{text} (no interval)"
    sure = "" if d["low"] > 0 or d["high"] < 0 else ", not told apart from none"
    return f"{text} ({d['low']:+.2f} to {d['high']:+.2f}{sure})"


def _by_type(run: RunFolder) -> Finding | None:
    """Satisfaction by kind of group, which is where strategies differ."""
    rows = run.table("measures").to_dicts()
    kinds = list(dict.fromkeys(r["group_type"] for r in rows))
    conditions = list(dict.fromkeys(r["condition"] for r in rows))
    if len(kinds) < 2 or len(conditions) < 2:
        return None
    means: dict[tuple[str, str], float] = {}
    for kind in kinds:
        for condition in conditions:
            some = [
                r["satisfaction"]
                for r in rows
                if r["group_type"] == kind and r["condition"] == condition
            ]
            known = [v for v in some if v is not None]
            if known:
                means[kind, condition] = sum(known) / len(known)
    per = {k: len({r["group_id"] for r in rows if r["group_type"] == k}) for k in kinds}
    (kind, condition), most = max(means.items(), key=lambda item: item[1])
    return Finding(
        "by_type",
        "How content members are, by kind of group",
        f"Highest: {kind} under {condition}, {most:.2f}.",
        Grid.of(
            [
                {"group": k, "groups": per[k], **{c: means.get((k, c)) for c in conditions}}
                for k in kinds
            ]
        ),
        Heat(
            tuple((k, c, v) for (k, c), v in means.items()),
            row="group",
            column="condition",
            unit="mean member score",
        ),
        notes=("Means without intervals: each kind has few groups, and strategies of its own.",),
    )


def _conflicts(data: dict[str, Any]) -> Finding | None:
    rates = data["conflict_rate_by_slot"]
    if not rates:
        return None
    items = tuple((c, t, v) for c, by in rates.items() for t, v in by.items())
    most = max(items, key=lambda i: i[2])
    return Finding(
        "conflicts",
        "Where preferences conflict",
        f"Most conflicts: {most[1]} under {most[0]}, in {100 * most[2]:.0f} % of groups.",
        Grid.of([{"condition": c, **by} for c, by in rates.items()]),
        Heat(items, row="condition", column="decision", unit="share of groups"),
        notes=("C2 by the stated preferences; C3 to C5 as the mediator judged.",),
        section="Process",
    )


def _process(data: dict[str, Any]) -> Finding | None:
    names = ("drift_rate", "feedback_resolution_rate", "split_share", "words_per_decision")
    means = data["conditions"]
    rows = [
        {"condition": c, **{n: means[c][n]["estimate"] for n in names}}
        for c in means
        if any(means[c][n]["estimate"] is not None for n in names)
    ]
    drift = [r["drift_rate"] for r in rows if r["drift_rate"] is not None]
    if not rows:
        return None
    says = (
        f"Before the clamp the model named another strategy in {100 * max(drift):.0f} % of locked "
        "decisions; after it, in none."
        if drift
        else "No condition locks the strategy."
    )
    return Finding("process", "Lock, feedback and length", says, Grid.of(rows), section="Process")


def _board(run: RunFolder) -> Finding:
    rows = run.table("decisions").to_dicts()
    last = list(dict.fromkeys(r["condition"] for r in rows))[-1]
    items = tuple(
        (
            r["group_id"],
            r["topic"],
            r["selected_option"] or "each their own",
            r["resolution_text"],
        )
        for r in rows
        if r["condition"] == last
    )
    return Finding(
        "decisions",
        f"What was decided under {_title(last)}",
        f"{len(items)} decisions of {len({i[0] for i in items})} groups.",
        Grid(("group", "decision", "option", "in words"), items),
        Board(items, row="group", column="decision"),
        section="Decisions",
    )


def _title(condition: str) -> str:
    return f"{condition} ({CONDITIONS[condition].title})"


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
