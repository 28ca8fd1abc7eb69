"""Two hundred seeds: no bias of the effects that come through text, clusters that are the camps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from folkmoot.models.synthetic import true_effects
from folkmoot.models.synthetic.latents import meet, persona_text
from tests.models.synthetic import test_pipeline
from tests.models.synthetic.synthetic_world import OPTIONS, base, kmeans, persona

SEEDS = range(1000, 1200)


@pytest.mark.nightly
def test_effects_are_unbiased_and_clusters_recover_the_camps() -> None:
    errors: dict[str, list[float]] = {"summaries": [], "clarified": [], "adversarial": []}
    scores = []
    systems = [base(persona(n)) for n in range(test_pipeline.N)]
    for seed in SEEDS:
        measured = test_pipeline.rates(seed)
        world, held, said, _ = test_pipeline.played(seed)
        opponents = [[o for o in OPTIONS if o != held[n]][n % 2] for n in held]
        truth = true_effects(systems, OPTIONS, seed=seed, opponents=opponents)
        for kind, effect in truth["effects"].items():
            errors[kind].append(measured[kind] - measured["re_ask"] - effect)
        mine = [n for n in held if held[n] == OPTIONS[0]]
        texts = [world.summary(n, OPTIONS[0], said[n]) for n in mine]
        camps = [meet(persona_text(base(persona(n))), seed).camp for n in mine]
        scores.append(adjusted_rand_score(camps, kmeans(texts)))
    for kind, values in errors.items():
        assert abs(float(np.mean(values))) <= 0.006, (kind, float(np.mean(values)))
        assert max(map(abs, values)) <= 0.10, kind
    assert float(np.mean(scores)) >= 0.95
