"""The planted truth without text: change rates of a population as the model itself has them.

Tests hold the whole pipeline's estimate against this. It uses the same latents, the same formulas
and the same noise, but in place of texts the argument mixes that a faithful pipeline would show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from folkmoot.models.synthetic.choosing import Counts, exposed
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona, meet, persona_text
from folkmoot.models.synthetic.lexicon import MIXTURES

KINDS = ("re_ask", "summaries", "clarified", "adversarial")
# Argument words per text in a faithful pipeline: a page of summaries, a dialogue of three turns.
_PAGE, _DIALOGUE = 400, 24


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Mean camp shares of the reasons of those who hold each option."""

    shares: Mapping[str, tuple[float, float, float]]


def true_effects(
    systems: Sequence[str],
    options: Sequence[str],
    *,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    opponents: Sequence[str | None] | None = None,
) -> dict[str, Any]:
    """Expected change rates of these people under each kind of exposure, and their differences.

    `systems`: one system prompt (or persona paragraph) per person. `opponents`: the option argued
    for in each person's adversarial dialogue; None (for all or one) averages over the others.
    Returns `{"rates": {kind: share}, "effects": {kind: rate − re-ask rate}, "per_person":
    {kind: [probability]}}`; kinds are re_ask, summaries, clarified, adversarial.
    """
    knobs = Knobs.of(settings or {})
    people = [meet(persona_text(s), seed) for s in systems]
    crowd = _crowd(people, options, knobs)
    chosen = opponents or [None] * len(people)
    per_person: dict[str, list[float]] = {
        kind: [
            _change(who, options, crowd, knobs, kind, opponent)
            for who, opponent in zip(people, chosen, strict=True)
        ]
        for kind in KINDS
    }
    rates = {kind: sum(p) / max(1, len(p)) for kind, p in per_person.items()}
    return {
        "rates": rates,
        "effects": {kind: rates[kind] - rates["re_ask"] for kind in KINDS[1:]},
        "per_person": per_person,
    }


def _first(who: Persona, options: Sequence[str], knobs: Knobs) -> list[float]:
    return [who.taste(o, 1 - 0.8 * knobs.shrinking_variance) for o in options]


def shares(u: Sequence[float], knobs: Knobs) -> list[float]:
    """Choice probabilities: argmax of u + β[place] + σ·Gumbel is a softmax of u/σ."""
    shown = list(u)
    if 1 <= knobs.position <= len(shown):
        shown[knobs.position - 1] += knobs.position_bias
    scale = max(knobs.noise, 1e-9)
    top = max(shown)
    weights = [math.exp((x - top) / scale) for x in shown]
    total = sum(weights)
    return [w / total for w in weights]


def _crowd(people: Sequence[Persona], options: Sequence[str], knobs: Knobs) -> _Crowd:
    sums = {o: [0.0, 0.0, 0.0] for o in options}
    for who in people:
        for option, p in zip(options, shares(_first(who, options, knobs), knobs), strict=True):
            for camp in range(3):
                sums[option][camp] += p * MIXTURES[who.camp][camp]
    out: dict[str, tuple[float, float, float]] = {}
    for option, (a, b, c) in sums.items():
        total = a + b + c
        out[option] = (a / total, b / total, c / total) if total else (1 / 3, 1 / 3, 1 / 3)
    return _Crowd(out)


def _words(mix: tuple[float, float, float], n: int) -> Counts:
    return round(mix[0] * n), round(mix[1] * n), round(mix[2] * n)


def _change(
    who: Persona,
    options: Sequence[str],
    crowd: _Crowd,
    knobs: Knobs,
    kind: str,
    opponent: str | None,
) -> float:
    """The probability that the second choice differs from the first."""
    first = _first(who, options, knobs)
    total = 0.0
    for at, p in enumerate(shares(first, knobs)):
        if p < 1e-6:
            continue
        held = options[at]
        second = _second(who, first, options, held, crowd, knobs, kind, opponent)
        total += p * (1.0 - second[at])
    return total


def _second(
    who: Persona,
    first: Sequence[float],
    options: Sequence[str],
    held: str,
    crowd: _Crowd,
    knobs: Knobs,
    kind: str,
    opponent: str | None,
) -> list[float]:
    others = [o for o in options if o != held]
    if kind == "re_ask" or not others:
        return shares(first, knobs)
    if kind == "adversarial":
        kappa = knobs.kappa_adversarial * knobs.persuasion
        targets = [opponent] if opponent in others else others
        sums = [0.0] * len(options)
        for target in targets:
            shown = {str(target): _words(crowd.shares[str(target)], _DIALOGUE)}
            u = exposed(first, first, options, held, shown, who, kappa)
            sums = [s + x / len(targets) for s, x in zip(sums, shares(u, knobs), strict=True)]
        return sums
    kappa = knobs.kappa_clarified if kind == "clarified" else knobs.kappa_summaries
    page = {o: _words(crowd.shares[o], _PAGE // len(options)) for o in options}
    return shares(exposed(first, first, options, held, page, who, kappa * knobs.persuasion), knobs)
