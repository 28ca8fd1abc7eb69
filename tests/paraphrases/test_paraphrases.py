"""The prompts of every study in three other wordings: all answers are parsed, the exposure is as
designed, and planted effects keep their sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import polars as pl
import pytest
from jinja2 import meta, nodes
from jinja2.visitor import NodeTransformer

import folkmoot
from folkmoot.conversation.prompts import create_environment, read_source
from folkmoot.engine.study.study import find_study, registered_studies
from folkmoot.kit.exposure import describe_deviations
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.findings import LIKELY
from tests.conftest import SharedFolder
from tests.contract.small import small_study
from tests.planted import test_planted_focus_group as focus_group
from tests.planted import test_planted_truth as cross_pollination
from tests.studies.negotiation import test_planted_truth as negotiation
from tests.studies.town_hall import test_planted_hall as town_hall
from tests.studies.workbook import test_workbook_planted as workbook
from tests.sweeps import sample_daily

HERE = Path(__file__).parent
STYLES = ("plain", "formal", "terse")
STUDIES = tuple(registered_studies())
SEEDS = range(1, 21)
MUTE_SEEDS = range(1, 6)
MAX_DIFFERENCE = 0.03

every = pytest.mark.parametrize("style", STYLES)
each = pytest.mark.parametrize("study", STUDIES)
# Two parts of the night, because together they take more than forty minutes.
LONGEST = ("focus_group", "town_hall")
at_night = pytest.mark.parametrize(
    ("study", "style"),
    [
        pytest.param(
            study,
            style,
            marks=pytest.mark.nightly(part="discussions" if study in LONGEST else "wordings"),
        )
        for style, study in product(STYLES, STUDIES)
    ],
)


def find_shipped_prompts(study: str) -> Path:
    return Path(str(find_study(study).prompts))


class ForModels(NodeTransformer):
    """Remove the wording for humans from a prompt."""

    def visit_Name(self, node: nodes.Name) -> nodes.Node:
        return nodes.Const(False) if node.name in {"for_people", "as_self"} else node

    def visit_If(self, node: nodes.If) -> nodes.Node | list[nodes.Node]:
        self.generic_visit(node)
        holds = evaluate_constant(node.test)
        return node if holds is None else node.body if holds else [*node.elif_, *node.else_]

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:
        self.generic_visit(node)
        holds = evaluate_constant(node.test)
        return node if holds is None or not node.expr2 else node.expr1 if holds else node.expr2

    def visit_Or(self, node: nodes.Or) -> nodes.Node:
        self.generic_visit(node)
        return (
            nodes.Const(True)
            if True in {evaluate_constant(node.left), evaluate_constant(node.right)}
            else node
        )


def evaluate_constant(node: nodes.Expr) -> bool | None:
    """Return the truth of an expression without variables, or None."""
    try:
        return bool(node.as_const())
    except nodes.Impossible:
        return None


def list_variables(path: Path) -> set[str]:
    """Return the variables of a prompt for models and their fields."""
    files = {p.stem: p for p in path.parent.glob("*.md")}
    tree = create_environment().parse(read_source(path.stem, files))
    tree = ForModels().visit(tree)
    fields = {n.attr for n in tree.find_all(nodes.Getattr)} - {"get", "index", "last"}
    return meta.find_undeclared_variables(tree) | fields


@each
@every
def test_a_set_is_whole_and_each_prompt_uses_what_the_shipped_one_uses(
    study: str, style: str
) -> None:
    ours = {p.name: list_variables(p) for p in find_shipped_prompts(study).glob("*.md")}
    assert {p.name: list_variables(p) for p in (HERE / study / style).glob("*.md")} == ours


# Each study in one of the wordings every day, in all of them by night.
DAILY = {(study, STYLES[number % len(STYLES)]) for number, study in enumerate(STUDIES)}


@pytest.mark.parametrize(
    ("study", "style"), sample_daily(product(STUDIES, STYLES), DAILY, part="wordings")
)
def test_other_wordings_are_parsed_and_shown_as_the_design_requires(
    study: str, style: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    own = (f"prompts={HERE / study / style}",)
    path = small_study(study, tmp_path)
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run", overrides=own).folder
    answers = run.read_table("answers")
    assert answers["missing"].is_null().all()
    shipped_reasks = RunFolder(run_of_small_study(study)).read_table("answers")["reasks"].sum()
    assert answers["reasks"].sum() <= shipped_reasks
    assert describe_deviations(run) == []


# --- sizes ----------------------------------------------------------------------------------------

Effects = Mapping[str, float]


def measure_cross_pollination(folder: Path, seed: int, prompts: Path) -> Effects:
    run = cross_pollination.run_pilot(folder, 300, seed, prompts=str(prompts))
    rows = run.read_json("summary.json")["by_condition"]
    rate = {c: float(rows[c]["position_changed_rate"]) for c in rows}
    return {c: rate[c] - rate["simple_voting"] for c in rate if c != "simple_voting"}


def measure_town_hall(folder: Path, seed: int, prompts: Path) -> Effects:
    run = town_hall.run_planted_hall(
        folder, ["quiet", "chaired"], random_seed=seed, prompts=str(prompts)
    )
    met = run.table("rounds").group_by("discussion_id", "agent_id")
    often = met.agg(pl.col("total_reaction_count").sum() >= 3)
    content = run.table("satisfaction").join(often, on=["discussion_id", "agent_id"])
    gain = content.group_by("total_reaction_count").agg(pl.col("satisfaction_delta").mean())
    by = dict(gain.iter_rows())
    return {
        "chaired − quiet, gap": float(town_hall.find_contrast(run, "quiet", "chaired")["estimate"]),
        "answered − not, satisfaction": float(by[True] - by[False]),
        "items passed": float(run.table("items")["passed"].cast(int).to_numpy().mean()),
    }


def measure_negotiation(folder: Path, seed: int, prompts: Path) -> Effects:
    settings = {"random_seed": seed, "prompts": str(prompts)}
    half = negotiation.run_groups(folder / "half", 0.5, ["C3"], 4, **settings)
    full = negotiation.run_groups(folder / "full", 1.0, ["C4", "C5"], **settings)
    return {
        "C3, minority covered": float(negotiation.read_estimate(half, "C3")["estimate"]),
        "C5 − C4": negotiation.read_gain(full),
    }


def measure_focus_group(folder: Path, seed: int, prompts: Path) -> Effects:
    texts = {p.stem: p.read_text("utf-8") for p in prompts.glob("*.md")}

    def play(name: str, settings: Mapping[str, Any], groups: int) -> RunFolder:
        return focus_group.run_groups(
            folder / name, settings, prompts=texts, groups=groups, random_seed=seed
        )

    two = play("two", focus_group.TWO_STIMULI, 38)
    after = two.read_table("intents").filter(when="after")
    buys = {s: (after.filter(stimulus=s)["score"] >= LIKELY).to_numpy() for s in ("good", "bad")}
    shares = focus_group.compute_demand(play("ladder", focus_group.PRICE_LADDER, 12))
    pull = focus_group.check_pull(play("mixed", focus_group.WITH_CONTROL, 12)).beyond_alone.value
    return {
        "good − bad, would buy": float(np.mean(buys["good"]) - np.mean(buys["bad"])),
        "cheapest − dearest, would buy": shares[0] - shares[-1],
        "pull of the group": float(pull),
    }


def measure_workbook(folder: Path, seed: int, prompts: Path) -> Effects:
    own = (f"prompts={prompts}",)
    run = workbook.run_game(workbook.make_game(240), folder, seed, overrides=own)
    return {"treated − plain, share given": float(workbook.estimate_effect(run).value)}


MEASURES: dict[str, Callable[[Path, int, Path], Effects]] = {
    "cross_pollination": measure_cross_pollination,
    "town_hall": measure_town_hall,
    "negotiation": measure_negotiation,
    "focus_group": measure_focus_group,
    "workbook": measure_workbook,
}
# 3 points of a share, or of the range of a score; of the pull (.04 of a
# position), which is smaller than that, .006.
RANGE = {"chaired − quiet, gap": 4, "answered − not, satisfaction": 9, "pull of the group": 0.2}
# Left out of these prompts: what carries the argument to those who decide.
DECIDING_PROMPTS = {
    "cross_pollination": ("final_vote_after_summary", "final_vote_after_dialogue"),
    "town_hall": ("heard",),
    "negotiation": ("feedback",),
    "focus_group": ("private_opinion", "purchase_intent", "participant_response"),
    "workbook": ("system",),
}
CARRIERS = {
    "cross_pollination": r"cross_pollination_content|turn\.text",
    "town_hall": r"(e\.)?moderator",
    "negotiation": r"member\.text",
    "focus_group": r"stimulus|price",
    "workbook": r"treatment",
}
# What hangs on them; the pull of a group hangs on what was said, which no prompt carries.
CARRIED = {
    "cross_pollination": ("simple_passive", "clarified_passive", "acp"),
    "town_hall": ("chaired − quiet, gap",),
    "negotiation": ("C5 − C4",),
    "focus_group": ("good − bad, would buy", "cheapest − dearest, would buy"),
    "workbook": ("treated − plain, share given",),
}


def average_effects(study: str, name: str, found: Sequence[Effects]) -> dict[str, float]:
    """Return the mean of each effect over the seeds, and print it as a row of a table."""
    table = {effect: float(np.mean([one[effect] for one in found])) for effect in found[0]}
    print(study, name, *(f"{e}: {size:.3f}" for e, size in table.items()), sep=" | ")
    return table


def measure_effects(
    study: str, prompts: Path, folder: Path, seeds: range = SEEDS
) -> dict[str, float]:
    found = [MEASURES[study](folder / str(seed), seed, prompts) for seed in seeds]
    return average_effects(study, prompts.name, found)


def measure_shipped_effects(
    study: str, first: int, shared_folder: SharedFolder
) -> dict[str, float]:
    """Return the effects under the shipped prompts. All processes of a session share the runs. Each
    begins with another seed (`first`), so that none waits for long."""

    def measure(seed: int, folder: Path) -> None:
        found = MEASURES[study](folder / "run", seed, find_shipped_prompts(study))
        (folder / "effects.json").write_text(json.dumps(found))
        rmtree(folder / "run")

    def effects(seed: int) -> Effects:
        folder = shared_folder(f"effects/{study}/{seed}", partial(measure, seed))
        found: Effects = json.loads((folder / "effects.json").read_text())
        return found

    found = {seed: effects(seed) for seed in (*SEEDS[first:], *SEEDS[:first])}
    return average_effects(study, "as shipped", [found[seed] for seed in SEEDS])


@at_night
def test_effects_are_those_of_the_shipped_prompts(
    study: str, style: str, tmp_path: Path, shared_folder: SharedFolder
) -> None:
    found = measure_effects(study, HERE / study / style, tmp_path)
    first = len(SEEDS) * STYLES.index(style) // len(STYLES)
    for effect, size in measure_shipped_effects(study, first, shared_folder).items():
        off = abs(found[effect] - size) / RANGE.get(effect, 1)
        assert off <= MAX_DIFFERENCE, f"{effect}: {found[effect]:.3f}, not {size:.3f}"


def drop_arguments(study: str, style: str, folder: Path) -> Path:
    """Write prompts without the texts that carry the argument, and return their folder."""
    copytree(HERE / study / style, folder)
    for name in DECIDING_PROMPTS[study]:
        path = folder / f"{name}.md"
        text = path.read_text("utf-8")
        left = re.sub(rf"{{{{ ({CARRIERS[study]}) }}}}", "…", text)
        assert left != text
        path.write_text(left, "utf-8")
    return folder


@at_night
def test_without_the_texts_nothing_is_left_but_a_plain_reask(
    study: str, style: str, tmp_path: Path
) -> None:
    found = measure_effects(
        study, drop_arguments(study, style, tmp_path / "mute"), tmp_path, MUTE_SEEDS
    )
    for effect in CARRIED[study]:
        assert abs(found[effect]) / RANGE.get(effect, 1) <= MAX_DIFFERENCE, (
            f"{effect}: {found[effect]:.3f}"
        )
