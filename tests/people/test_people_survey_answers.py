"""Answers as surveys have them: bands, round sums, other words, and none."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.errors import InputError, Problem
from folkmoot.people.sources.grounded import PersonaGenerator, character
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.people.sources.grounded.profile import Given, check_profile, group_problems
from folkmoot.randomness import generator


@pytest.mark.parametrize(
    ("key", "said", "read"),
    [
        ("sex", "nonbinary", "X"), ("sex", "Non-binary", "X"), ("sex", "genderqueer", "X"),
        ("sex", "Other", "X"), ("sex", "trans woman", "F"), ("sex", "Transgender man", "M"),
        ("sex", "Cis female", "F"),
        ("education", "BA", "Bachelor's degree"), ("education", "bachelors", "Bachelor's degree"),
        ("education", "4-year degree", "Bachelor's degree"), ("education", "GED", "High school"),
        ("education", "High school diploma", "High school"), ("education", "Ph.D.", "Doctorate"),
        ("education", "Associate's degree", "Some college"),
        ("education", "MBA", "Master's degree"),
        ("income", "middle", "Middle income"), ("income", "Upper-middle", "Upper-middle income"),
        ("location_type", "Suburbs", "suburban"), ("location_type", "village", "rural"),
        ("political_leaning", "Slightly conservative", "conservative"),
        ("political_leaning", "Moderate, middle of the road", "moderate"),
        ("political_leaning", "center-left", "liberal"),
        ("political_leaning", "Extremely liberal", "very liberal"),
    ],
)  # fmt: skip
def test_other_words_for_a_value_are_read(key: str, said: str, read: str) -> None:
    assert getattr(Given.model_validate({key: said}), key) == read


@pytest.mark.parametrize(
    ("said", "band"),
    [
        ("35-44", (35, 44)), ("35–44", (35, 44)), ("35 to 44 years", (35, 44)), ("65+", (65, 110)),
        ("65 and over", (65, 110)), ("75 or older", (75, 110)), ("under 25", (16, 24)),
        ("24 or younger", (16, 24)), ("30s", (30, 39)), ("between 18 and 24", (18, 24)),
        ("over 60", (61, 110)),
    ],
)  # fmt: skip
def test_an_age_in_a_band_is_drawn_within_it(said: str, band: tuple[int, int]) -> None:
    assert Given.model_validate({"age": said}).age_band == band
    ages = set()
    for seed in range(12):
        (who,) = PersonaGenerator().from_profiles([{"age": said}], generator(seed, ()))
        ages.add(who.age)
    assert all(band[0] <= age <= band[1] for age in ages) and len(ages) > 1


@pytest.mark.parametrize(
    ("said", "dollars"),
    [
        ("40k", 40_000), ("$40K", 40_000), ("40,000", 40_000), ("$40,000.00", 40_000),
        ("40k-50k", 45_000), ("40-50k", 45_000), ("$50,000 - $74,999", 62_500),
        ("$35,000 to $49,999 a year", 42_500), ("60k per year", 60_000), ("1.5m", 1_500_000),
        ("under $20,000", 13_333), ("less than 20k", 13_333), ("150k+", 200_000),
        ("$150,000 or more", 200_000), ("3,000 a month", 36_000), ("62 000", 62_000),
        ("50 000 - 60 000", 55_000), ("$75,000 to under $100,000", 87_500), ("1.250k", 1_250),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["income", "income_usd"])
def test_a_sum_is_read_as_people_write_it(key: str, said: str, dollars: int) -> None:
    assert Given.model_validate({key: said}).income_usd == pytest.approx(dollars, abs=1)


@pytest.mark.parametrize("said", ["1.500", "20.000 - 30.000", "20.000 a year"])
def test_a_sum_of_two_meanings_is_refused(said: str) -> None:
    """A dot before three digits is a decimal point for some people, and separates thousands for
    others."""
    (problem,) = check_profile({"income_usd": said}, "2")
    assert "dollars a year" in str(problem)


NO_ANSWER = (
    *("prefer not to say", "Prefer not to answer", "I'd rather not say", "Refused", "declined"),
    *("N/A", "no answer", "don't know", "Don’t know / not sure", "not stated", "unknown", "-"),
)


@pytest.mark.parametrize("said", NO_ANSWER)
def test_who_did_not_say_is_as_who_was_not_asked(said: str) -> None:
    keys = ("age", "sex", "education", "income", "income_usd", "race", "political_leaning")
    row = dict.fromkeys((*keys, "openness", "adoption", "occupation"), said)
    assert check_profile(row, "2") == []
    assert Given.model_validate(row).model_dump(exclude_none=True) == {}
    silent, empty = (
        PersonaGenerator().from_profiles([{"name": "Ann Lee", **answers}], generator(3, ()))
        for answers in (row, {})
    )
    assert silent == empty
    assert silent[0].race == ""  # an unknown race is not invented


def test_a_nonbinary_person_is_told_as_one_and_named_from_both_lists() -> None:
    rows = [{"sex": "nonbinary", "age": 30} for _ in range(40)]
    people = PersonaGenerator().from_profiles(rows, generator(1, ()))
    assert {p.sex for p in people} == {"X"}
    assert all("You are a nonbinary person" in character.describe_circumstances(p) for p in people)
    women, men = (
        {p.first_name for p in PersonaGenerator().from_profiles(
            [{"sex": sex, "age": 30} for _ in range(150)], generator(2, ())
        )}
        for sex in "FM"
    )  # fmt: skip
    names = {p.first_name for p in people}
    assert names & women and names & men


@pytest.mark.parametrize(
    ("key", "value"),
    [("age", "old"), ("age", "12-15"), ("age", "44-35"), ("sex", "yes"), ("income", "€40k"),
     ("income", "20 an hour"), ("education", "streets"), ("political_leaning", "green")],
)  # fmt: skip
def test_what_cannot_be_read_is_still_refused(key: str, value: str) -> None:
    (problem,) = check_profile({key: value}, "7")
    assert (problem.where, problem.key) == ("7", key) and value in problem.message


def test_many_problems_of_one_kind_are_told_as_one_with_examples() -> None:
    rows = [{"sex": f"odd {n % 7}", "adoption": "early bird", "age": "40"} for n in range(324)]
    problems = [p for line, row in enumerate(rows, 2) for p in check_profile(row, str(line))]
    assert len(problems) == 648
    grouped = group_problems([*problems, Problem("alone", key="age")])
    assert [p.key for p in grouped] == ["sex", "adoption", "age"]
    sex, adoption, _ = grouped
    assert "324 rows" in sex.message and "'odd 0' is not a valid sex (line 2 and 46 more)" in (
        sex.message
    )
    assert "and 2 more values" in sex.message and "'odd 5'" not in sex.message
    assert adoption.message.count("early bird") == 1 and "323 more" in adoption.message
    few = [p for p in problems if p.key == "sex"][:3]
    assert group_problems(few) == few  # these groups need no others


def test_a_file_with_hundreds_of_mistakes_is_told_in_a_few_lines(tmp_path: Path) -> None:
    lines = [f"P{n} Q,{'early bird' if n % 2 else 'Innovator'},{n}x" for n in range(300)]
    (tmp_path / "panel.csv").write_text("name,adoption,openness\n" + "\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        read_panel(tmp_path / "panel.csv")
    assert sorted(p.key for p in caught.value.problems) == ["adoption", "openness"]
