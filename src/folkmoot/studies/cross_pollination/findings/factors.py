"""What summaries, interview and dialogue each do, where further conditions combine them."""

from __future__ import annotations

from folkmoot.kit.findings import (
    HOLM,
    adjusted,
    cells,
    chance,
    intervals,
    known,
    listed,
    p,
    points,
)
from folkmoot.measures.factorial import factorial
from folkmoot.storage.findings import Finding, Grid
from folkmoot.studies.cross_pollination.config import PLACEBOS, Exposed
from folkmoot.studies.cross_pollination.findings.data import Votes

SWITCHES = tuple(Exposed.model_fields)


def main_effects(votes: Votes) -> Finding | None:
    """Each switch's effect over all arms; None with no more arms than it takes to add switches one
    by one, where the differences between them say it all."""
    arms = [a for a in votes.twice if a.condition not in PLACEBOS]
    varied = [s for s in SWITCHES if len({getattr(votes.shown(a), s) for a in arms}) > 1]
    if not votes.compared_by_one_thing or len({votes.shown(a) for a in arms}) <= len(varied) + 1:
        return None
    found = factorial(
        [bool(changed) for a in arms for changed in a.column("position_changed")],
        {s: [getattr(votes.shown(a), s) for a in arms for _ in a.moved] for s in varied},
        [unit for a in arms for unit in votes.units(a)],
    )
    effects = {name.capitalize(): e for name, e in found.main.items()}
    effects |= {f"{a.capitalize()} × {b}": e for (a, b), e in found.pairs.items()}
    if not effects:
        return None
    holm = adjusted(effects)
    said = (f"{name.lower()} {points(e, chance(e, holm[name]))}" for name, e in effects.items())
    return Finding(
        "main_effects",
        "What summaries, interview and dialogue each do",
        f"Change in the share that changed, over {len(arms)} conditions: {listed(said)}",
        Grid.of(
            [
                {
                    "effect": name,
                    **cells(e, "change_rate", "_rate"),
                    "p": p(e),
                    "holm_p": known(holm[name]),
                }
                for name, e in effects.items()
            ],
            "Least squares, switches coded −½ and ½.",
        ),
        intervals(effects, "change in the share that changed", zero=0.0, percent=True),
        notes=(
            "A main effect is on minus off, averaged over the other switches. A × B is how much "
            "more A does where B is on. What these conditions cannot tell apart is left out, and "
            "interactions that are left out are taken to be none.",
            HOLM,
        ),
        **votes.basis,
    )
