"""What came of it: the ballot and the closing text, satisfaction, and every measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.records.findings import Bars, Finding, Grid
from folkmoot.studies.town_hall.findings.words import Summaries, percent, plain, value


def outcome(levels: Summaries) -> Finding | None:
    """What was carried into the ballot, the votes and the closing text."""
    names = (
        ("items_originated_per_resident", "items originated"),
        ("items_passed_per_resident", "items passed"),
        ("opinion_reflection_rate", "reflection rate"),
        ("concerns_in_final_per_resident", "concerns in the final text"),
    )
    rows = [
        {
            "figure": words,
            "level": level,
            **{group: value(summary, name, group) for group in ("vulnerable", "general", "gap")},
        }
        for name, words in names
        for level, summary in levels.items()
    ]
    if not rows:
        return None
    rates = [
        f"{percent(value(s, 'opinion_reflection_rate', 'vulnerable'))} at level {level}"
        for level, s in levels.items()
    ]
    bars = [
        (f"level {level}", group, rate)
        for level, summary in levels.items()
        for group in ("vulnerable", "general")
        if (rate := value(summary, "opinion_reflection_rate", group)) is not None
    ]
    return Finding(
        key="outcome",
        title="What is carried into the outcome",
        says=f"Items that go back to a vulnerable resident passed: {', '.join(rates)}.",
        grid=Grid.of(rows, "Per resident, but for the rate; means over sets"),
        chart=Bars(tuple(bars), unit="passed of originated items", percent=True),
        notes=(
            "An item that goes back to several residents counts for each.",
            "Reflection rate: passed of originated.",
        ),
        headline=True,
    )


def satisfaction(levels: Summaries) -> Finding | None:
    """Satisfaction before and after."""
    rows: list[dict[str, Any]] = [
        {
            "level": level,
            "group": group,
            "before": value(summary, "pre_satisfaction", group),
            "after": value(summary, "post_satisfaction", group),
            "change": value(summary, "satisfaction_delta", group),
        }
        for level, summary in levels.items()
        for group in ("vulnerable", "general")
    ]
    if not rows:
        return None
    says = [
        f"at level {r['level']} by {plain(r['change'], sign=True)}"
        for r in rows
        if r["group"] == "vulnerable"
    ]
    return Finding(
        key="satisfaction",
        title="Satisfaction before and after",
        says=f"The satisfaction of the vulnerable residents changed {', '.join(says)}.",
        grid=Grid.of(rows, "Scale 1 to 10"),
    )


def everything(levels: Summaries, meanings: Mapping[str, str]) -> Finding | None:
    """Every figure at every level, with its interval."""
    rows = [
        {
            "figure": name,
            "level": level,
            "vulnerable": summary["figures"][name]["vulnerable"]["estimate"],
            "general": summary["figures"][name]["general"]["estimate"],
            "gap": summary["figures"][name]["gap"]["estimate"],
            "gap_low": summary["figures"][name]["gap"]["low"],
            "gap_high": summary["figures"][name]["gap"]["high"],
        }
        for name in meanings
        for level, summary in levels.items()
    ]
    if not rows:
        return None
    return Finding(
        key="all_measures",
        title="All measures",
        says="Every measure for the vulnerable and for the general residents, and the gap.",
        grid=Grid.of(rows),
        notes=tuple(f"{name}: {words}" for name, words in meanings.items()),
        section="All measures",
    )
