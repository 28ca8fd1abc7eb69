"""What moves people is what was said, not how the prompts say it: prompts of nonsense give the same
effects, and without the texts that carry arguments there are none."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import folkmoot
from folkmoot.randomness import digest
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination import config

PROMPTS = Path(config.__file__).parent / "prompts"
_LITERAL = re.compile(r"(\{[{%].*?[%}]\}|\"[A-Z]{4,}\")", re.DOTALL)


def nonsense(template: str, salt: str) -> str:
    """A prompt with every word of its own in another language that nobody speaks; what is filled
    in, the signals and the layout stay."""

    def word(found: re.Match[str]) -> str:
        made = "".join(
            "bdfglmnprstvz"[b % 13] + "aeou"[b % 4] for b in digest(salt, found[0], size=3)
        )
        return made.capitalize() if found[0][0].isupper() else made

    parts = _LITERAL.split(
        template.replace('"Moderator" if', '"Zubo" if').replace('"You"', '"Fena"')
    )
    parts = [p if n % 2 else re.sub(r"[A-Za-z][a-z']*", word, p) for n, p in enumerate(parts)]
    return "".join(parts)


def run(folder: Path, per: int = 80, seed: int = 7, **changes: Any) -> RunFolder:
    settings = {
        "pilot_id": "any",
        "topic": {
            "description": "The town has one legacy to spend. On what?",
            "options": ["A covered market", "Free evening buses", "A public swimming pool"],
        },
        "participants_per_condition": per,
        "revote": True,
        "personas": {"source": "quota"},
        "random_seed": seed,
        **changes,
    }
    return folkmoot.run("cross_pollination", settings, model="synthetic", out=folder / "run").folder


def rates(run: RunFolder) -> dict[str, float]:
    rows = run.json("summary.json")["by_condition"]
    return {arm: rows[arm]["position_changed_rate"] for arm in rows}


def reworded(folder: Path, **replaced: str) -> dict[str, str]:
    """All prompts in nonsense; `replaced` holds variables whose values are left out."""
    folder.mkdir(parents=True)
    for file in PROMPTS.glob("*.md"):
        text = nonsense(file.read_text("utf-8"), "a")
        for name, instead in replaced.items():
            text = re.sub(rf"\{{\{{ {name} \}}\}}", instead, text)
        (folder / file.name).write_text(text, "utf-8")
    return {"prompts": str(folder)}


def test_prompts_of_nonsense_give_the_same_votes_and_the_same_effects(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain")
    other = run(tmp_path / "other", **reworded(tmp_path / "prompts"))
    first = [
        [p["initial_choice"] for p in r.json("participants.json")["participants"]]
        for r in (plain, other)
    ]
    assert first[0] == first[1]
    assert other.table("answers")["reasks"].sum() == 0
    was, now = rates(plain), rates(other)
    assert was["acp"] > was["simple_voting"] + 0.1
    assert {arm: now[arm] for arm in was} == pytest.approx(was, abs=0.05)


@pytest.mark.nightly
def test_over_twenty_seeds_nonsense_differs_by_less_than_three_points(tmp_path: Path) -> None:
    differences = []
    for seed in range(20):
        folder = tmp_path / str(seed)
        was = rates(run(folder / "plain", 300, seed))
        now = rates(run(folder / "other", 300, seed, **reworded(folder / "prompts")))
        differences.append([now[arm] - was[arm] for arm in was])
        shutil.rmtree(folder)
    assert np.abs(np.mean(differences, axis=0)).max() < 0.03


def test_without_the_texts_that_carry_arguments_every_effect_is_gone(tmp_path: Path) -> None:
    silent = {"cross_pollination_content": "", "turn.text": ""}
    two = {"max_socratic_exchanges": 2}  # so that the last votes have the same addresses
    bare = run(tmp_path / "bare", **two, **reworded(tmp_path / "prompts", **silent))
    assert rates(bare) == rates(run(tmp_path / "still", **two, respondent={"persuasion": 0}))
