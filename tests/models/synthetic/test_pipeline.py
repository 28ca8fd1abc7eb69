"""The planted effects come through text alone, and vanish with the text that carries them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from folkmoot.models.synthetic import true_effects
from folkmoot.models.synthetic.latents import meet, persona_text
from tests.models.synthetic.synthetic_world import FINAL, OPTIONS, World, base, kmeans, persona

N = 300


@lru_cache(maxsize=4)
def played(seed: int) -> tuple[World, dict[int, str], dict[int, list[str]], str]:
    """First votes, interviews and the page of positions of `N` people."""
    world = World(seed)
    held = {n: world.vote(n) for n in range(N)}
    said = {n: world.interview(n, held[n]) for n in range(N)}
    summaries = {n: world.summary(n, held[n], said[n]) for n in range(N)}
    return world, held, said, world.page(summaries, held)


def final(world: World, n: int, held: str, *turns: str, note: str = "") -> str:
    system = f'{base(persona(n))}\n\nYou previously chose "{held}".{note}'
    return world.ask(f"final/{n}", system, *turns)


def rates(seed: int, strip: bool = False) -> dict[str, float]:
    """Measured change rates in each arm, every person in every arm."""
    world, held, said, page = played(seed)
    page = "\n".join(f"## {o}\n" for o in OPTIONS) if strip else page
    changed = {"re_ask": 0, "summaries": 0, "clarified": 0, "adversarial": 0}
    for n, first in held.items():
        changed["re_ask"] += final(world, n, first, FINAL) != first
        changed["summaries"] += final(world, n, first, f"{page}\n\n{FINAL}") != first
        changed["clarified"] += final(world, n, first, *said[n], f"{page}\n\n{FINAL}") != first
        other = [o for o in OPTIONS if o != first][n % 2]
        talk = world.dialogue(n, first, other, page)
        quoted = "\n".join(
            f"{'You' if k % 2 else 'Moderator'}: {text}" for k, text in enumerate(talk)
        )
        note = "\n\nYou had a dialogue in which a moderator challenged you with opposing views."
        told = f"You just had the following dialogue:\n\n{quoted}\n\n{FINAL}"
        changed["adversarial"] += final(world, n, first, told, note=note) != first
    return {kind: count / N for kind, count in changed.items()}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_planted_effects_are_recovered_through_text(seed: int) -> None:
    measured = rates(seed)
    held = played(seed)[1]
    truth = true_effects(
        [base(persona(n)) for n in range(N)],
        OPTIONS,
        seed=seed,
        opponents=[[o for o in OPTIONS if o != held[n]][n % 2] for n in range(N)],
    )
    for kind, expected in truth["rates"].items():
        assert abs(measured[kind] - expected) < 0.06, (kind, measured, truth["rates"])
    assert measured["re_ask"] < measured["summaries"] < measured["adversarial"]
    assert truth["rates"]["re_ask"] < truth["rates"]["summaries"] < truth["rates"]["clarified"]
    assert truth["rates"]["clarified"] < truth["rates"]["adversarial"]


def test_without_the_words_of_others_nothing_moves() -> None:
    measured = rates(1, strip=True)
    floor = measured["re_ask"]
    assert measured["summaries"] == measured["clarified"] == floor
    # A moderator who was shown no arguments has none to give.
    assert measured["adversarial"] == floor


def test_clusters_of_summaries_are_the_reason_camps() -> None:
    scores = []
    for seed in (1, 2):
        world, held, said, _ = played(seed)
        for option in OPTIONS:
            mine = [n for n in held if held[n] == option]
            texts = [world.summary(n, option, said[n]) for n in mine]
            camps = [meet(persona_text(base(persona(n))), seed).camp for n in mine]
            scores.append(adjusted_rand_score(camps, kmeans(texts)))
    assert np.mean(scores) >= 0.95, scores
