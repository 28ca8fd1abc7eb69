"""Vulnerable profiles: the four shipped ones, and mistakes in a researcher's own files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from folkmoot.errors import InputError
from folkmoot.studies.town_hall.participants import load_profiles, read_profiles
from folkmoot.studies.town_hall.preparation import template_files

from .hall_script import PROFILE


def test_the_shipped_four_are_those_of_the_source() -> None:
    found = load_profiles(["builtin"], Path())
    assert [
        (
            r.economic_pressure,
            r.participation_tendency,
            r.information_access,
            r.community_engagement,
        )
        for r in found
    ] == [
        ("struggling", "moderate", "medium", "active"),
        ("struggling", "passive", "low", "minimal"),
        ("struggling", "passive", "low", "minimal"),
        ("moderate", "passive", "medium", "moderate"),
    ]
    assert [r.ownership for r in found][:2] == ["owner", "tenant"]
    assert {r.vulnerable_type for r in found} == {"housing", "participation"}
    assert all(r.is_vulnerable and len(r.story) > 200 for r in found)


def test_no_shipped_profile_has_a_view_of_a_redevelopment() -> None:
    """Residents form their opinion in the discussion (source, section 3.2)."""
    told = r"redevelop|rebuil|renovat|demol|construct|\bbuilt\b|\bplans?\b|\bworks\b|drawing|phase"
    for resident in load_profiles(["builtin"], Path()):
        assert not re.findall(told, resident.story, re.IGNORECASE), resident.label


def test_files_can_be_added_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text(PROFILE.format(label="mine", kind="housing"), "utf-8")
    assert len(load_profiles(["builtin", "mine.md"], tmp_path)) == 5
    assert [r.label for r in load_profiles(["mine.md"], tmp_path)] == ["mine"]


def test_the_template_holds_profiles_that_load(tmp_path: Path) -> None:
    for name, content in template_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(content), "utf-8")
    assert load_profiles(["vulnerable/"], tmp_path) == load_profiles(["builtin"], Path())


GOOD = PROFILE.format(label="mine", kind="housing")


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        (GOOD.replace("gender: female\n", ""), "1", "gender", "missing"),
        (GOOD.replace("openness: 3", "openness: 7"), "10", "openness", "must be at most 5, is 7"),
        (GOOD.replace("70s+", "30s").replace("years: 20", "years: 41"), "6", "residence_years",
         "at most 39"),
        (GOOD.replace("gender", "gendre"), "5", "gendre", "did you mean gender?"),
        (GOOD.replace("age_group: 70s+", "age_group: 70"), "4", "age_group", "text"),
        (
            GOOD.replace("economic_pressure: struggling", "economic_pressure: comfortable"),
            "15",
            "economic_pressure",
            "contradict",
        ),
        (GOOD.replace("can_afford_contribution: false", "can_afford_contribution: maybe"), "14",
         "can_afford_contribution", "true or false"),
        ("no front matter at all", "1", "", "no front matter"),
        (GOOD.replace("label: mine", "label: [mine"), "3", "", "but got ':'"),
        (GOOD.split("You live")[0], "", "", "no description"),
        (GOOD.replace("label: mine", "label: mine\nlabel: other"), "3", "label", "line 2"),
    ],
)  # fmt: skip
def test_mistakes_name_file_line_key_and_mend(
    tmp_path: Path, text: str, line: str, key: str, words: str
) -> None:
    (tmp_path / "mine.md").write_text(text, "utf-8")
    _, found = read_profiles(["mine.md"], tmp_path)
    problem = next(p for p in found if p.key == key)
    assert problem.file.endswith("mine.md") and problem.where == line
    assert words in str(problem)


def test_a_place_without_profiles_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        load_profiles(["empty", "nowhere.md"], tmp_path)
    assert len(caught.value.problems) == 2
    assert all(p.key == "vulnerable" for p in caught.value.problems)
