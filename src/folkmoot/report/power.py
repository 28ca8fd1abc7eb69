"""Before any money is spent: which effects a study of this size can detect.

`power_report` reads the size of a design from its settings, whatever the study type: arms of
independent participants, the same sets at every level, or sessions of several who talk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from folkmoot.kit.findings import ALPHA, Row, known
from folkmoot.measures.estimates import percent, plural
from folkmoot.measures.power import (
    design_effect,
    detectable_share,
    effective_n,
    n_two_shares,
    power_two_shares,
    smallest_d_paired,
    smallest_h,
)
from folkmoot.records.findings import Finding, Grid, Lines

SECTION = "Power"
POWER = 0.8
BASES = (0.05, 0.10, 0.20, 0.30, 0.50)
DIFFERENCES = (0.05, 0.10, 0.15, 0.20, 0.30)
ICCS = (0.0, 0.02, 0.05, 0.10, 0.20)


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a design.

    independent  `arms` of `units` participants each, who did not talk to each other
    paired       every one of `units` sets, groups or replications passes through all `arms`
    clustered    `arms` of `units` sessions each, with `size` participants who talk
    """

    kind: Literal["independent", "paired", "clustered"]
    arms: int
    units: int
    size: int = 1
    unit_name: str = "participant"

    @property
    def comparisons(self) -> int:
        """Pairs of arms."""
        return self.arms * (self.arms - 1) // 2


def layout_of(config: Any) -> Layout | None:
    """The size of a design from the settings that study types share; None if it has none.

    Looks for `participants_per_condition` with `conditions`; `sets` with `levels`; groups of
    `group_types` with `conditions`; `replications` with `stimuli`; a workbook's sessions. A study
    type of one's own may give its config a `layout` of this class instead.
    """
    own = getattr(config, "layout", None)
    if isinstance(own, Layout):
        return own
    if hasattr(config, "participants_per_condition"):
        arms = len(getattr(config, "conditions", ())) or 2
        return Layout("independent", arms, int(config.participants_per_condition))
    if hasattr(config, "sets") and hasattr(config, "levels"):
        people = int(getattr(getattr(config, "residents", None), "general", 16)) + 4
        return Layout("paired", len(config.levels), int(config.sets), people, "set")
    if hasattr(config, "groups_per_type"):
        return Layout("paired", len(config.conditions), _groups(config), 6, "group")
    if hasattr(config, "replications"):
        stimuli = getattr(config, "stimuli", None) or ()
        people = int(getattr(config, "num_personas", 8))
        return Layout("paired", max(2, len(stimuli)), int(config.replications), people, "group")
    return _workbook(getattr(config, "workbook", None))


def _groups(config: Any) -> int:
    own = getattr(config, "groups", None)
    if own is not None and not isinstance(own, str):
        return len(own)
    return int(config.groups_per_type) * len(getattr(config, "group_types", ()) or (1,))


def _workbook(book: Any) -> Layout | None:
    settings = getattr(book, "settings", None)
    sessions = getattr(settings, "num_sessions", None)
    if settings is None or sessions is None:
        return None
    arms = max(2, len(getattr(book, "treatments", ()) or ()))
    size = int(settings.num_agents_per_session)
    if size == 1:
        return Layout("independent", arms, int(sessions) // arms)
    return Layout("clustered", arms, int(sessions) // arms, size, "session")


def power_report(
    config: Any, study: Any = None, *, iccs: Sequence[float] = ICCS, base: float = 0.10
) -> list[Finding]:
    """Findings for a study's settings: what it can detect, and what it would need.

    `config` is the study's own settings; `study`, if given, only lends its title. `iccs` are the
    likenesses of people in one conversation that are assumed in turn; `base` is the rate from
    which the sentences start (people change their choice for no reason, too).
    """
    layout = layout_of(config)
    title = str(getattr(study, "title", "") or "This design").split(":", maxsplit=1)[0]
    if layout is None:
        return [_unknown(title)]
    if layout.kind == "paired":
        return _paired(layout, title, iccs)
    if layout.kind == "clustered":
        return [_clustered(layout, title, base, iccs)]
    return [_shares(layout, title, base), _chances(layout, title), _needed(layout, title)]


def _shares(layout: Layout, title: str, base: float) -> Finding:
    """Smallest differences between two arms, by base rate."""
    n, strict = layout.units, ALPHA / max(1, layout.comparisons)
    if n < 2:
        return _too_small(title, layout)
    rows = []
    for rate in (*BASES, *(() if base in BASES else (base,))):
        plain, safe = detectable_share(rate, n), detectable_share(rate, n, alpha=strict)
        rows.append(
            {
                "base_rate": rate,
                "seen_from_rate": known(plain),
                "difference_rate": known(plain - rate),
                "holm_from_rate": known(safe),
                "holm_difference_rate": known(safe - rate),
            }
        )
    seen, safe = detectable_share(base, n), detectable_share(base, n, alpha=strict)
    says = (
        f"{title}: {plural(layout.arms, 'condition')} of {plural(n, 'participant')}. If "
        f"{percent(base)} change in one condition, a difference is detected with a power of "
        f"{percent(POWER)} when {_rate(seen)} or more change in another"
    )
    if layout.comparisons > 1:
        says += (
            f"; when all {layout.comparisons} pairs are compared and adjusted for, from "
            f"{_rate(safe)} on"
        )
    return Finding(
        "power_differences",
        "Smallest detectable difference",
        says + ".",
        Grid.of(rows, f"Two-sided, α = .05, power {percent(POWER)}, {n} per condition."),
        notes=(
            f"Cohen's h of {smallest_h(n):.4f} at α = .05. “holm” takes the strictest level "
            f"that Holm's method asks for, α / {max(1, layout.comparisons)}.",
            "Participants are independent of each other here; arms that read the same summaries "
            "share those summaries, which no number of participants makes up for.",
        ),
        section=SECTION,
        headline=True,
    )


def _chances(layout: Layout, title: str) -> Finding:
    """Power by base rate and true difference."""
    n = layout.units
    rows = []
    for rate in BASES:
        row: Row = {"base_rate": rate}
        for difference in DIFFERENCES:
            other = rate + difference
            chance = power_two_shares(rate, other, n) if other < 1 else None
            row[f"plus_{100 * difference:.0f}_points_rate"] = chance
        rows.append(row)
    chance = power_two_shares(0.10, 0.20, n)
    return Finding(
        "power_chances",
        "Power",
        f"A true change from 10 % to 20 % is detected with a power of {percent(chance)} "
        f"at {n} per condition.",
        Grid.of(rows, f"{title}: power of a two-sided test at α = .05."),
        Lines(
            tuple(
                (f"from {percent(rate)}", difference, power_two_shares(rate, rate + difference, n))
                for rate in BASES
                for difference in DIFFERENCES
                if rate + difference < 1
            ),
            x="true difference",
            y="power",
        ),
        section=SECTION,
    )


def _needed(layout: Layout, title: str) -> Finding:
    """Participants per arm for a given difference."""
    rows = [
        {
            "base_rate": rate,
            **{
                f"plus_{100 * d:.0f}_points": math.ceil(n_two_shares(rate, rate + d))
                if rate + d < 1
                else None
                for d in DIFFERENCES
            },
        }
        for rate in BASES
    ]
    need = math.ceil(n_two_shares(0.10, 0.20))
    return Finding(
        "power_needed",
        "Participants needed per condition",
        f"To detect a change from 10 % to 20 % with a power of {percent(POWER)}, "
        f"{need} participants per condition are needed; this design has {layout.units}.",
        Grid.of(rows, f"{title}: power {percent(POWER)}, two-sided, α = .05."),
        section=SECTION,
    )


def _paired(layout: Layout, title: str, iccs: Sequence[float]) -> list[Finding]:
    """Designs in which every unit passes through all arms: differences within units."""
    n = layout.units
    strict = ALPHA / max(1, layout.comparisons)
    plain, safe = smallest_d_paired(n), smallest_d_paired(n, alpha=strict)
    name = layout.unit_name
    if not math.isfinite(plain):
        return [_too_small(title, layout)]
    rows = [
        {
            name + "s": units,
            "smallest_difference_in_sd": smallest_d_paired(units),
            "holm_in_sd": smallest_d_paired(units, alpha=strict),
        }
        for units in sorted({5, 10, 20, 40, 80, n})
    ]
    first = Finding(
        "power_paired",
        "Smallest detectable difference",
        f"{title}: {plural(n, name)}, each under all {layout.arms} conditions. A difference "
        f"between two conditions is detected with a power of {percent(POWER)} from {plain:.2f} "
        f"standard deviations of the differences between {name}s on"
        + (
            f" ({safe:.2f} when all {layout.comparisons} pairs are adjusted for)."
            if layout.comparisons > 1
            else "."
        ),
        Grid.of(rows, "Paired t test, two-sided, α = .05; .2 is small, .5 medium, .8 large."),
        notes=(
            f"The {name} is the unit: people who talked to each other are not independent, so "
            f"more people in each {name} help less than more {name}s.",
        ),
        section=SECTION,
        headline=True,
    )
    return [first, _worth(layout, title, iccs)] if layout.size > 1 else [first]


def _worth(layout: Layout, title: str, iccs: Sequence[float]) -> Finding:
    """What the people of an arm are worth, by how alike people in one conversation are."""
    people = layout.units * layout.size
    rows = [
        {
            "icc": icc,
            "design_effect": design_effect(layout.size, icc),
            "worth_participants": effective_n(people, layout.size, icc),
        }
        for icc in iccs
    ]
    icc = _assumed(iccs)
    typical = effective_n(people, layout.size, icc)
    return Finding(
        "power_clusters",
        "What the participants are worth",
        f"{plural(people, 'participant')} per condition in {plural(layout.units, layout.unit_name)}"
        f" of about {layout.size} are worth {typical:.0f} independent ones at an ICC of {icc:g} "
        "(how alike people in one conversation are).",
        Grid.of(rows, f"{title}: design effect 1 + (m − 1) ICC."),
        section=SECTION,
    )


def _clustered(layout: Layout, title: str, base: float, iccs: Sequence[float]) -> Finding:
    """Arms of sessions: shares compared at the effective number of participants."""
    people = layout.units * layout.size
    if layout.units < 2:
        return _too_small(title, layout)
    rows = []
    for icc in iccs:
        worth = effective_n(people, layout.size, icc)
        seen = detectable_share(base, worth)
        rows.append(
            {
                "icc": icc,
                "design_effect": design_effect(layout.size, icc),
                "worth_participants": worth,
                "base_rate": base,
                "seen_from_rate": known(seen),
            }
        )
    icc = _assumed(iccs)
    worth = effective_n(people, layout.size, icc)
    return Finding(
        "power_clustered",
        "Smallest detectable difference",
        f"{title}: {plural(layout.arms, 'condition')} of {plural(layout.units, layout.unit_name)} "
        f"with {layout.size} participants. At an ICC of {icc:g} (how alike people in one "
        f"conversation are) {people} participants are worth {worth:.0f}, and a change "
        f"from {percent(base)} to {_rate(detectable_share(base, worth))} is detected with a power "
        f"of {percent(POWER)}.",
        Grid.of(rows, "Two-sided, α = .05; design effect 1 + (m − 1) ICC."),
        section=SECTION,
        headline=True,
    )


def _too_small(title: str, layout: Layout) -> Finding:
    return Finding(
        "power_none",
        "No effect can be detected",
        f"{title}: {plural(layout.units, layout.unit_name)} per condition. Differences need at "
        f"least two; with one, an effect cannot be distinguished from chance.",
        Grid((), ()),
        section=SECTION,
        headline=True,
    )


def _unknown(title: str) -> Finding:
    rows = [
        {
            "participants_per_condition": n,
            "smallest_h": smallest_h(n),
            "seen_from_10_percent_rate": known(detectable_share(0.10, n)),
        }
        for n in (20, 50, 100, 200, 300, 500, 1000)
    ]
    return Finding(
        "power_table",
        "Smallest difference by size",
        f"{title}: the settings do not say how many take part in each condition, so here is what "
        "two groups of a given size can detect.",
        Grid.of(rows, f"Two-sided, α = .05, power {percent(POWER)}."),
        section=SECTION,
        headline=True,
    )


def _assumed(iccs: Sequence[float]) -> float:
    """The likeness that sentences speak of: .05 if it is among those given, else the first."""
    return 0.05 if 0.05 in iccs or not iccs else iccs[0]


def _rate(share: float) -> str:
    return percent(share) if math.isfinite(share) else "no rate at all"
