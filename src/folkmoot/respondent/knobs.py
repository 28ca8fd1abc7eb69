"""The settings of the embedded respondent: planted effect sizes and pathologies, all visible.

`planted` states everything in force, so that a run made with the respondent can print it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean

TASTE_SD = 1.3
BETA = (4.0, 3.0)
DISTANCE = 3.0
ANCHOR = 0.25
HALF_READ = 8.0  # argument words for an option at which half of what reading can do is done
HALF_TURNS = 1.0  # answered turns at which half of what answering can do is done


@dataclass(frozen=True, slots=True)
class Knobs:
    """What a study file may set under `respondent:`. Every pathology is off (0) by default.

    `kappa_read`: strength of arguments that were read. `factor_interviewed`: by how much more they
    weigh with somebody who has said their own reasons. `factor_addressed`: by how much more at most
    where they were put to one in turns and one had to answer. `persuasion` multiplies them all.
    `noise` is the Gumbel scale of a choice. `position_bias` is added in utility units to the option
    listed as number `position` (1 is the first). The other pathologies: `acquiescence` (pull
    towards yes and agreement), `sycophancy` (pull towards what others favour), `shrinking_variance`
    (0–1, answers regress to the common mean), and the chance per reply, 0–1, of `instability` (a
    random answer), `refusals`, `malformed`, `off_list`, `over_length` and `cut`.
    """

    kappa_read: float = 0.75
    factor_interviewed: float = 1.85
    factor_addressed: float = 3.8
    persuasion: float = 1.0
    noise: float = 0.12
    position_bias: float = 0.0
    position: int = 1
    acquiescence: float = 0.0
    sycophancy: float = 0.0
    shrinking_variance: float = 0.0
    instability: float = 0.0
    refusals: float = 0.0
    malformed: float = 0.0
    off_list: float = 0.0
    over_length: float = 0.0
    cut: float = 0.0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Knobs:
        """Knobs from a mapping. InputError lists every key that is unknown or out of range."""
        known = [f.name for f in fields(cls)]
        problems = [p for key, value in options.items() for p in _wrong(key, value, known)]
        if problems:
            raise InputError(problems)
        return cls(**dict(options))


PATHOLOGIES = ("position_bias", *(f.name for f in fields(Knobs)[7:]))
_SHARES = frozenset(PATHOLOGIES[3:])
_SIGNED = frozenset({"position_bias", "acquiescence"})


def _wrong(key: str, value: object, known: list[str]) -> list[Problem]:
    where = f"respondent.{key}"
    if key not in known:
        hint = did_you_mean(key, known, f"known: {', '.join(known)}")
        return [Problem("the embedded respondent has no such setting", key=where, hint=hint)]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return [Problem(f"{str(value)[:40]!r} is not a number", key=where)]
    if key in _SHARES and not 0 <= value <= 1:
        return [Problem(f"{value} is not a share", key=where, hint="give a number from 0 to 1")]
    if key == "position" and (value < 1 or value != int(value)):
        return [Problem(f"{value} is not a place in a list", key=where, hint="1 is the first")]
    if key not in _SIGNED and value < 0:
        return [Problem(f"{value} is negative", key=where, hint="give 0 or more")]
    return []


def planted(options: Mapping[str, object] | None = None) -> dict[str, object]:
    """All effect sizes in force, for the PLANTED notice of a run. InputError on a bad key."""
    knobs = Knobs.of(options or {})
    values = asdict(knobs)
    kappa = knobs.kappa_read * knobs.persuasion
    return {
        "notice": "SYNTHETIC: planted by the embedded respondent, no evidence about people",
        "kappa": {
            "read": kappa,
            "read_after_interview": kappa * knobs.factor_interviewed,
            "argued_and_answered": kappa * knobs.factor_addressed,
        },
        "noise_scale": knobs.noise,
        "taste_sd": TASTE_SD,
        "susceptibility": f"Beta({BETA[0]:g}, {BETA[1]:g})",
        "distance_scale": DISTANCE,
        "return_to_first_view": ANCHOR,
        "pathologies": {name: values[name] for name in PATHOLOGIES if values[name]},
    }
