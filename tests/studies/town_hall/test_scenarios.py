"""A researcher's own scenarios: contributions, stakes, ages, genders and group sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot.engine.study.study_file import load_study_file
from folkmoot.models.request import ModelRequest
from folkmoot.studies.town_hall.findings import compute_findings

from .hall_script import (
    PROFILE,
    CallKey,
    answer_in_one_session,
    answer_plainly,
    make_model,
    run_hall,
    small_hall,
)

STREET = {
    "title": "Shall Mill Street be closed to cars?",
    "background": "A trial of one year.",
    "contributions": {"tenant": "a fee of 40 a year for a parking place"},
    "stakes": {"all": "The bus will go another way.", "health": ["You are driven to the clinic."]},
}


def read_system_prompts(
    folder: Path, settings: dict[str, Any], answer: Any = answer_plainly
) -> dict[str, str]:
    """Return the system prompt of each resident. `session` is that of the shared session."""
    model = make_model(answer, keep=True)
    run_hall(folder, {**settings, "rounds": 1}, model)
    return {a.split("/")[-2]: r.messages[0].content for a, r in model.seen if "/before/" in a}


@pytest.mark.parametrize("level", ["1", "2-1"])
def test_prompts_take_the_scenarios_own_contributions_and_stakes(
    tmp_path: Path, level: str
) -> None:
    settings = small_hall(tmp_path, general=6) | {"topic": STREET, "levels": [level]}
    settings["residents"] = {"general": 6, "ratios": {"ownership": {"owner": 0.5, "tenant": 0.5}}}
    (tmp_path / "profiles" / "p0.md").write_text(PROFILE.format(label="me", kind="health"), "utf-8")
    found = read_system_prompts(
        tmp_path, settings, answer_plainly if level == "2-1" else answer_in_one_session()
    )
    text = "\n".join(found.values())
    people = [p for p in text.splitlines() if "You are A0" in p]
    assert len(people) == 8 and {"tenant" in p for p in people} == {True, False}
    for person in people:
        asked = "asked to pay a fee of 40 a year for a parking place, which you could " in person
        assert asked == (", tenant," in person)
        assert "What is at stake for you: The bus will go another way." in person
        assert ("another way. You are driven to the clinic." in person) == ("A07" in person)
    for word in ("redevelop", "contribution", "owners would", "quarter"):
        assert word not in text


def test_without_contributions_no_prompt_mentions_one(tmp_path: Path) -> None:
    found = read_system_prompts(tmp_path, small_hall(tmp_path) | {"vulnerable": "builtin"})
    assert len(found) == 7
    for text in found.values():
        assert "afford" not in text and "contribution" not in text and "at stake" not in text
        assert "redevelop" not in text and "stone is laid" not in text


def test_own_ages_genders_types_and_sizes_are_in_prompts_and_tables(tmp_path: Path) -> None:
    settings = small_hall(tmp_path, vulnerable=1) | {"levels": ["4"], "rounds": 1}
    profile = PROFILE.format(label="courier", kind="precarious work")
    for was, own in [("gender: female", "gender: nonbinary"), ("age_group: 70s+", "age_group: 20s"),
                     ("ownership: tenant", "ownership: lodger")]:  # fmt: skip
        profile = profile.replace(was, own)
    (tmp_path / "profiles" / "p0.md").write_text(profile, "utf-8")
    jobs = {"low": ["cook"], "middle": ["nurse"], "high": ["lawyer"]}
    ratios = {"age_group": {"20s": 1.0}, "gender": {"nonbinary": 1.0},
              "ownership": {"member of the co-op": 1.0}}  # fmt: skip
    settings["residents"] = {"general": 10, "ratios": ratios, "occupations": {"20s": jobs}}
    found = read_system_prompts(tmp_path, settings)
    assert len(found) == 11
    assert "a person (nonbinary) in your 20s, cook, lodger" in found["A11"].replace(
        "retired cleaner", "cook"
    )
    assert "a person (nonbinary) in your 20s" in found["A01"]
    assert ", member of the co-op, living here" in found["A01"]


def test_an_unknown_word_is_reported_before_the_run(tmp_path: Path) -> None:
    path = tmp_path / "hall.yaml"
    path.write_text(
        "study: town_hall\ntopic: {title: A, background: B}\n"
        "residents: {ratios: {gender: {femal: 0.5, male: 0.5}}}\n",
        "utf-8",
    )
    found = load_study_file(path)
    told = [line for line in found.study.notes(found.config, tmp_path) if "femal" in line]
    assert told == ["prompts contain the gender 'femal' exactly as written. did you mean female?"]


def test_a_hall_without_vulnerable_residents_runs_to_its_findings(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"vulnerable": [], "levels": ["2-1", "4"], "sets": 2}
    settings |= {"rounds": 2}
    hall_run = run_hall(tmp_path, settings, make_model())
    found = compute_findings(hall_run.folder)
    assert {f.units for f in found if f.unit == "set"} == {2}
    assert {f.key for f in found} >= {"inclusion", "quality"}
    assert "steps" not in {f.key for f in found}  # without the vulnerable there is no gap
    says = {finding.key: finding.says for finding in found}
    assert "no vulnerable residents took part" in says["inclusion"]
    assert "none (no vulnerable residents took part)" in says["outcome"]
    assert hall_run.table("discussions")["gap_weighted_inclusivity_score"].null_count() == 4


def test_a_level_without_vulnerable_residents_is_not_told_to_lack_a_ballot(tmp_path: Path) -> None:
    own_levels = {"bare": {"like": "4", "vulnerable": False}}
    settings = small_hall(tmp_path) | {"levels": ["4", "bare"], "level_settings": own_levels}
    findings = compute_findings(run_hall(tmp_path, settings, make_model()).folder)
    says = {finding.key: finding.says for finding in findings}
    assert "none (no such item) at level 4" in says["outcome"]
    assert "none (no vulnerable residents took part) at level bare" in says["outcome"]


def test_residents_have_different_names(tmp_path: Path) -> None:
    settings = small_hall(tmp_path, general=40) | {"sets": 2, "rounds": 1, "levels": ["1"]}

    def answer_shared(key: CallKey, request: ModelRequest) -> Any:
        return answer_in_one_session()(key, request)

    people = run_hall(tmp_path, settings, make_model(answer_shared)).table("residents")
    for number in (1, 2):
        names = people.filter(set=number)["name"].to_list()
        assert len(set(names)) == 42 and all(names)
    assert people.filter(set=1)["name"].to_list() != people.filter(set=2)["name"].to_list()


def test_few_sets_are_told_before_anything_is_spent(tmp_path: Path) -> None:
    example = load_study_file(Path(__file__).parents[3] / "examples" / "town_hall.yaml")
    notes = example.study.notes(example.config, tmp_path)
    assert "fewer than 5 sets are an illustration: no intervals, no tests" in notes
    enough = example.config.model_copy(update={"sets": 5})
    assert not [note for note in example.study.notes(enough, tmp_path) if "illustration" in note]
