"""Values as surveys record them: bands, rounded sums, synonyms, and no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.errors import InputError, Problem
from folkmoot.people.sources.grounded import PersonaGenerator, character
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.people.sources.grounded.profile import Given, check_profile
from folkmoot.people.sources.table_files import group_problems
from folkmoot.randomness import generator


@pytest.mark.parametrize(
    ("key", "written", "expected"),
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
def test_synonyms_of_a_value_are_read(key: str, written: str, expected: str) -> None:
    assert getattr(Given.model_validate({key: written}), key) == expected


@pytest.mark.parametrize(
    ("written", "band"),
    [
        ("35-44", (35, 44)), ("35–44", (35, 44)), ("35 to 44 years", (35, 44)), ("65+", (65, 110)),
        ("65 and over", (65, 110)), ("75 or older", (75, 110)), ("under 25", (16, 24)),
        ("24 or younger", (16, 24)), ("30s", (30, 39)), ("between 18 and 24", (18, 24)),
        ("over 60", (61, 110)),
    ],
)  # fmt: skip
def test_an_age_in_a_band_is_drawn_within_it(written: str, band: tuple[int, int]) -> None:
    assert Given.model_validate({"age": written}).age_band == band
    ages = set()
    for seed in range(12):
        (profile,) = PersonaGenerator().from_profiles([{"age": written}], generator(seed, ()))
        ages.add(profile.age)
    assert all(band[0] <= age <= band[1] for age in ages) and len(ages) > 1


@pytest.mark.parametrize(
    ("written", "dollars"),
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
def test_a_sum_is_read_in_common_spellings(key: str, written: str, dollars: int) -> None:
    assert Given.model_validate({key: written}).income_usd == pytest.approx(dollars, abs=1)


@pytest.mark.parametrize("written", ["1.500", "20.000 - 30.000", "20.000 a year"])
def test_an_ambiguous_sum_is_refused(written: str) -> None:
    """A dot before three digits may be a decimal point or a separator of thousands."""
    (problem,) = check_profile({"income_usd": written}, "2")
    assert "dollars a year" in str(problem)


@pytest.mark.parametrize("written", ["1", "3", "5", 5, 5.0, "45"])
def test_an_income_that_may_be_a_code_is_refused(written: object) -> None:
    """A survey writes fifths as 1 to 5, and sums in thousands."""
    (problem,) = check_profile({"income": written}, "2")
    assert "Middle income" in problem.hint and "at least 100" in problem.hint
    assert check_profile({"income": "0"}, "2") == []


NO_ANSWER = (
    *("prefer not to say", "Prefer not to answer", "I'd rather not say", "Refused", "declined"),
    *("N/A", "no answer", "don't know", "Don’t know / not sure", "not stated", "unknown", "-"),
)


@pytest.mark.parametrize("written", NO_ANSWER)
def test_a_refused_answer_counts_as_no_answer(written: str) -> None:
    keys = ("age", "sex", "education", "income", "income_usd", "race", "political_leaning")
    row = dict.fromkeys((*keys, "openness", "adoption", "occupation"), written)
    assert check_profile(row, "2") == []
    assert Given.model_validate(row).model_dump(exclude_none=True) == {}
    without_answers, without_columns = (
        PersonaGenerator().from_profiles([{"name": "Ann Lee", **answers}], generator(3, ()))
        for answers in (row, {})
    )
    assert without_answers == without_columns
    assert without_answers[0].race == ""  # an unknown race is not invented


def test_a_nonbinary_profile_is_described_as_such_and_named_from_both_lists() -> None:
    rows = [{"sex": "nonbinary", "age": 30} for _ in range(40)]
    profiles = PersonaGenerator().from_profiles(rows, generator(1, ()))
    assert {profile.sex for profile in profiles} == {"X"}
    assert all(
        "You are a nonbinary person" in character.describe_circumstances(profile)
        for profile in profiles
    )
    women, men = (
        {profile.first_name for profile in PersonaGenerator().from_profiles(
            [{"sex": sex, "age": 30} for _ in range(150)], generator(2, ())
        )}
        for sex in "FM"
    )  # fmt: skip
    names = {profile.first_name for profile in profiles}
    assert names & women and names & men


@pytest.mark.parametrize(
    ("key", "value"),
    [("age", "old"), ("age", "12-15"), ("age", "44-35"), ("sex", "yes"), ("income", "€40k"),
     ("income", "20 an hour"), ("education", "streets"), ("political_leaning", "green")],
)  # fmt: skip
def test_an_unreadable_value_is_refused(key: str, value: str) -> None:
    (problem,) = check_profile({key: value}, "7")
    assert (problem.where, problem.key) == ("7", key) and value in problem.message


def test_many_problems_of_one_kind_are_grouped_with_examples() -> None:
    rows = [{"sex": f"odd {n % 7}", "adoption": "early bird", "age": "40"} for n in range(324)]
    problems = [
        problem for line, row in enumerate(rows, 2) for problem in check_profile(row, str(line))
    ]
    assert len(problems) == 648
    grouped_problems = group_problems([*problems, Problem("alone", key="age")])
    assert [problem.key for problem in grouped_problems] == ["sex", "adoption", "age"]
    sex, adoption, _ = grouped_problems
    assert "324 rows" in sex.message and "'odd 0' is not a valid sex (line 2 and 46 more)" in (
        sex.message
    )
    assert "and 2 more values" in sex.message and "'odd 5'" not in sex.message
    assert adoption.message.count("early bird") == 1 and "323 more" in adoption.message
    few_problems = [problem for problem in problems if problem.key == "sex"][:3]
    assert group_problems(few_problems) == few_problems  # few problems are not grouped


def test_hundreds_of_problems_in_a_file_are_reported_in_few_lines(tmp_path: Path) -> None:
    lines = [f"P{n} Q,{'early bird' if n % 2 else 'Innovator'},{n}x" for n in range(300)]
    (tmp_path / "panel.csv").write_text("name,adoption,openness\n" + "\n".join(lines) + "\n")
    with pytest.raises(InputError) as error:
        read_panel(tmp_path / "panel.csv")
    assert sorted(problem.key for problem in error.value.problems) == ["adoption", "openness"]
