"""Invalid study files: one message with file, line, key and hint, and no run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.studies.town_hall.config import TownHallConfig

HEAD = """\
study: town_hall
topic:
  title: Shall it be built?
  background: A plan.
"""


def find_problems(folder: Path, text: str) -> list[str]:
    path = folder / "hall.yaml"
    path.write_text(HEAD + text, "utf-8")
    with pytest.raises(InputError) as caught:
        folkmoot.run(path, model="synthetic", out=folder / "run")
    assert not (folder / "run").exists()
    assert all(p.file.endswith((".yaml", ".md")) for p in caught.value.problems)
    return [str(p).replace(str(folder), "") for p in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "residents:\n  ratios:\n    gender: {male: 0.5, female: 0.6}\n",
            7,
            "sum to 1.1, not to 1",
        ),
        (
            "residents:\n  ratios:\n    information_access: {hi: 0.5, low: 0.5}\n",
            7,
            "did you mean high?",
        ),
        (
            "vulnerable: []\nNUM_AGENTS: 20\n",
            6,
            "use `residents.general`; the vulnerable come on top",
        ),
        ("num_sets: 3\n", 5, "use `sets`"),
        ("LOG_DIR: logs\n", 5, "leave it out: logs are written to logs/ in the run folder"),
        ("residents:\n  personality: {1: 0.5, 6: 0.5}\n", 6, "residents.personality.6"),
        (
            "residents:\n  ratios:\n    age_group: {20s: 0.5, 50s: 0.5}\n",
            7,
            "no occupations for low, middle, high income",
        ),
        ("residents:\n  residence_years: {low: 40, high: 1}\n", 6, "not below high"),
        (
            "residents:\n  ratios:\n    income_level: {low: 0.8, middle: 0.2, high: 0}\n"
            "    economic_pressure: {comfortable: 0.5, moderate: 0.5, struggling: 0}\n",
            8,
            "low income (0.8) and comfortable (0.5)",
        ),
        ("levels: [1, 2-3]\n", 5, "did you mean 2-"),
        (
            "levels: [3]\nlevel_settings: {3: {models: [a, b, c]}}\n",
            6,
            "4 vulnerable residents for 3",
        ),
        ("vulnerable: nowhere/\n", 5, "there is no file"),
        ("level_settings: {3: {modells: [a]}}\n", 5, "did you mean models?"),
        ("level_settings: {3: {context: joint}}\n", 5, "shared"),
        ("reaction_levels: {partial_agree: 5}\n", 5, "at most 4"),
        ("reaction_levels: {applaud: 4}\n", 5, "reaction_levels.applaud"),
        ("sets: 0\n", 5, "at least 1"),
        ("rouns: 3\n", 5, "did you mean rounds?"),
    ],
)
def test_each_mistake_names_line_and_mend(tmp_path: Path, text: str, line: int, words: str) -> None:
    (found,) = find_problems(tmp_path, text)
    assert f"hall.yaml:{line}:" in found and words in found


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "levels: [9]\nresidents:\n  ratios:\n    gender: {male: 1, female: 1}\n"
    assert len(find_problems(tmp_path, text)) == 2


def test_a_profile_without_a_field_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.md").write_text("---\nlabel: me\n---\nA person.\n", "utf-8")
    found = find_problems(tmp_path, "vulnerable: mine/\n")
    assert all("/mine/one.md:1: " in line for line in found)
    assert any("vulnerable_type: is missing" in line for line in found)


def test_the_example_is_sound() -> None:
    example = load_study_file(Path(__file__).parents[3] / "examples" / "town_hall.yaml")
    assert example.study.name == "town_hall"
    assert isinstance(example.config, TownHallConfig)
    assert example.config.levels == ["1", "2-1", "2-2", "3", "4"]
