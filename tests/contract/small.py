"""The smallest study file of each type that goes through all of its stages."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.models.request import ProviderSettings, StudyPart
from folkmoot.respondent import Respondent

EXAMPLES = Path(__file__).parents[2] / "examples"

SMALL: dict[str, str] = {
    "cross_pollination": """
pilot_id: small
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
participants_per_condition: 6
min_responses_for_threshold: 5
revote: true
option_order: random
opposition_method: llm_judge
extra_conditions: [names_only, empty_argument]
personas: {source: quota}
""",
    "town_hall": """
topic:
  title: Should the quarter be redeveloped?
  background: The city proposes to pull down the old blocks and to build higher ones.
sets: 1
rounds: 2
levels: [1, 4]
residents: {general: 2}
max_vote_items: 2
""",
    "negotiation": """
conditions: [C1, C2, C3, C4, C5]
group_types: [spouses, strangers]
groups_per_type: 1
sizes: {strangers: {stranger: 3}}
max_feedback_rounds: 2
""",
    "focus_group": """
product_concept: An oven that scans ready meals and cooks them by itself
category: kitchen appliances
stimulus_material: Meet the oven that reads. 299 dollars.
num_personas: 4
max_responses_per_question: 3
questions_per_phase: 1
replications: 2
stimuli:
  - {name: oven, product_concept: An oven that reads}
  - {name: box, product_concept: A box that cooks}
""",
}


def small_study(study: str, folder: Path) -> Path:
    """Write the small study file of a type into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    if study == "workbook":
        path = folder / "small.xlsx"
        shutil.copy(EXAMPLES / "public_goods.xlsx", path)
        return path
    if study not in SMALL:
        pytest.skip(f"no small study file for {study}")
    path = folder / f"{study}.yaml"
    path.write_text(f"study: {study}\n{SMALL[study]}", "utf-8")
    return path


# Text to replace, and its replacement, for a study with several sets, groups or sessions.
SEVERAL = {
    "town_hall": ("sets: 1", "sets: 3"),
    "negotiation": ("groups_per_type: 1", "groups_per_type: 2"),
    "focus_group": ("replications: 2", "replications: 3"),
}


def several_parts(study: str, folder: Path) -> Path:
    """Write the small study file of a type, with several parts, and return its path."""
    path = small_study(study, folder)
    if study in SEVERAL:
        path.write_text(path.read_text("utf-8").replace(*SEVERAL[study]), "utf-8")
    return path


@cache
def people_of(study: str) -> Respondent:
    """Return the embedded respondent with the settings of the small study of a type."""
    with tempfile.TemporaryDirectory() as folder:
        found = load_study_file(small_study(study, Path(folder)))
    part = StudyPart(found.study.respondent_part, found.config)
    return Respondent(ProviderSettings(seed=42, study=part))
