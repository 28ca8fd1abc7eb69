"""The prompts of every study in three other wordings: all answers are still read, the exposure is
as designed, and what is planted comes out in the same size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import meta, nodes

import folkmoot
from folkmoot.conversation.prompts import environment
from folkmoot.engine.study import find_study, registered
from folkmoot.kit.exposure import differences
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.focus_group.findings import LIKELY
from tests.contract.small import small_study
from tests.planted import test_planted_focus_group as focus_group
from tests.planted import test_planted_truth as cross_pollination
from tests.studies.negotiation import test_planted_truth as negotiation
from tests.studies.town_hall import test_planted_hall as town_hall
from tests.studies.workbook import test_workbook_planted as workbook

HERE = Path(__file__).parent
STYLES = ("plain", "formal", "terse")
STUDIES = tuple(registered())
SEEDS = range(1, 21)
SHARE = 0.03

every = pytest.mark.parametrize("style", STYLES)
each = pytest.mark.parametrize("study", STUDIES)


def shipped(study: str) -> Path:
    return Path(str(find_study(study).prompts))


def variables(path: Path) -> set[str]:
    """What a prompt takes from outside, and the fields it reads of that."""
    tree = environment().parse(path.read_text("utf-8"))
    fields = {n.attr for n in tree.find_all(nodes.Getattr)} - {"get", "index", "last"}
    return meta.find_undeclared_variables(tree) | fields


@each
@every
def test_a_set_is_whole_and_each_prompt_uses_what_the_shipped_one_uses(
    study: str, style: str
) -> None:
    ours = {p.name: variables(p) for p in shipped(study).glob("*.md")}
    assert {p.name: variables(p) for p in (HERE / study / style).glob("*.md")} == ours


@pytest.fixture(scope="module")
def reasks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], int]:
    """How many answers of a small study were asked for again under the shipped prompts."""
    known: dict[str, int] = {}

    def of(study: str) -> int:
        if study not in known:
            folder = tmp_path_factory.mktemp(study)
            answers = small(study, folder).table("answers")
            known[study] = int(answers["reasks"].sum())
        return known[study]

    return of


def small(study: str, folder: Path, **prompts: Any) -> RunFolder:
    path = small_study(study, folder)
    return folkmoot.run(path, model="synthetic", out=folder / "run", seed=7, **prompts).folder


@each
@every
def test_other_words_are_read_and_stand_where_the_design_wants_them(
    study: str, style: str, tmp_path: Path, reasks: Callable[[str], int]
) -> None:
    run = small(study, tmp_path, overrides=(f"prompts={HERE / study / style}",))
    answers = run.table("answers")
    assert answers["missing"].is_null().all()
    assert answers["reasks"].sum() <= reasks(study)
    assert differences(run) == []


# --- sizes ----------------------------------------------------------------------------------------

Effects = Mapping[str, float]


def of_cross_pollination(folder: Path, seed: int, prompts: Path) -> Effects:
    run = cross_pollination.pilot(folder, 300, seed, prompts=str(prompts))
    rows = run.json("summary.json")["by_condition"]
    rate = {c: float(rows[c]["position_changed_rate"]) for c in rows}
    return {c: rate[c] - rate["simple_voting"] for c in rate if c != "simple_voting"}


def of_town_hall(folder: Path, seed: int, prompts: Path) -> Effects:
    run = town_hall.hold(folder, ["quiet", "chaired"], random_seed=seed, prompts=str(prompts))
    return {"chaired − quiet, gap": float(town_hall.change(run, "quiet", "chaired")["estimate"])}


def of_negotiation(folder: Path, seed: int, prompts: Path) -> Effects:
    settings = {"random_seed": seed, "prompts": str(prompts)}
    half = negotiation.held(folder / "half", 0.5, ["C3"], 4, **settings)
    full = negotiation.held(folder / "full", 1.0, ["C4", "C5"], **settings)
    return {
        "C3, minority covered": float(negotiation.estimate(half, "C3")["estimate"]),
        "C5 − C4": negotiation.gain(full),
    }


def of_focus_group(folder: Path, seed: int, prompts: Path) -> Effects:
    texts = {p.stem: p.read_text("utf-8") for p in prompts.glob("*.md")}

    def play(name: str, settings: Mapping[str, Any], groups: int) -> RunFolder:
        return focus_group.play(
            folder / name, settings, prompts=texts, groups=groups, random_seed=seed
        )

    two = play("two", focus_group.TWO, 38)
    after = two.table("intents").filter(when="after")
    buys = {s: (after.filter(stimulus=s)["score"] >= LIKELY).to_numpy() for s in ("good", "bad")}
    shares = focus_group.demand(play("ladder", focus_group.LADDER, 12))
    pull = focus_group.beyond_alone(play("mixed", focus_group.MIXED, 12)).beyond_alone.value
    return {
        "good − bad, would buy": float(np.mean(buys["good"]) - np.mean(buys["bad"])),
        "cheapest − dearest, would buy": shares[0] - shares[-1],
        "pull of the group, half the scale": float(pull) / 2,
    }


def of_workbook(folder: Path, seed: int, prompts: Path) -> Effects:
    own = (f"prompts={prompts}",)
    run = workbook.play(workbook.book(240), folder, seed, overrides=own)
    return {"treated − plain, share given": float(workbook.effect(run).value)}


MEASURES: dict[str, Callable[[Path, int, Path], Effects]] = {
    "cross_pollination": of_cross_pollination,
    "town_hall": of_town_hall,
    "negotiation": of_negotiation,
    "focus_group": of_focus_group,
    "workbook": of_workbook,
}
# 3 points of a share; of town_hall's score, which runs from 0 to 4, 3 points of its range.
WIDTH = {"town_hall": 4}


def means(
    study: str, folder: Path, sets: Mapping[str, Path], seeds: range = SEEDS
) -> dict[str, dict[str, float]]:
    """Set → effect → mean over the seeds; printed as a table."""
    found = {
        name: [MEASURES[study](folder / f"{name}{seed}", seed, prompts) for seed in seeds]
        for name, prompts in sets.items()
    }
    table = {
        name: {effect: float(np.mean([one[effect] for one in all_])) for effect in all_[0]}
        for name, all_ in found.items()
    }
    for effect in table[next(iter(table))]:
        sizes = (f"{name} {row[effect]:.3f}" for name, row in table.items())
        print(study, effect, *sizes, sep=" | ")
    return table


@pytest.mark.nightly
@each
def test_effects_are_those_of_the_shipped_prompts(study: str, tmp_path: Path) -> None:
    sets = {"shipped": shipped(study), **{s: HERE / study / s for s in STYLES}}
    table = means(study, tmp_path, sets)
    for style in STYLES:
        for effect, size in table["shipped"].items():
            off = abs(table[style][effect] - size) / WIDTH.get(study, 1)
            assert off <= SHARE, f"{style}, {effect}: {table[style][effect]:.3f}, not {size:.3f}"
