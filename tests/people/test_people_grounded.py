"""The persona generator: marginals, dependence and correlations match the cited figures."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest

from folkmoot.errors import InputError
from folkmoot.people import Persona
from folkmoot.people.sources.grounded import TRAITS, PersonaGenerator, Profile, character, joint
from folkmoot.people.sources.grounded.attributes import published_correlations
from folkmoot.people.sources.grounded.generator import check_quotas
from folkmoot.people.sources.grounded.population import band_of, income_fifth
from folkmoot.people.sources.names import name_book
from folkmoot.randomness import generator

PROFILE_COUNT = 3000
DATA = joint.us_figures()


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    return PersonaGenerator().generate_profiles(PROFILE_COUNT, generator(11, ("grounded",)))


def is_close(count: int, share: float, n: int = PROFILE_COUNT) -> bool:
    """Return whether a count is within five standard errors of a share."""
    return bool(abs(count - n * share) <= 5 * np.sqrt(n * share * (1 - share)) + 1)


def test_published_marginals(profiles: list[Profile]) -> None:
    places = Counter(profile.location_type for profile in profiles)
    shares = DATA["location_type"]["shares"]
    assert all(is_close(places[value], share) for value, share in shares.items())
    ages = Counter(band_of(profile.age, DATA["age"]["bands"]) for profile in profiles)
    adult_count = sum(DATA["age"]["bands"].values())
    assert all(is_close(ages[band], n / adult_count) for band, n in DATA["age"]["bands"].items())
    stages = Counter(profile.consumer.adoption for profile in profiles)
    assert all(
        is_close(stages[stage], share) for stage, share in DATA["adoption"]["shares"].items()
    )


def test_profiles_are_drawn_from_the_joint_table(profiles: list[Profile]) -> None:
    """Pairs and triples of attributes are as frequent as in the packaged sample."""
    frame = joint.sample_people()
    for keys in (
        ("sex", "occupation"),
        ("sex", "education", "race"),
        ("household", "income"),
        ("race", "income"),
    ):
        table = [tuple(row[key] for key in keys) for row in add_income_fifths(frame)]
        cell_counts = Counter(tuple(getattr(profile, key) for key in keys) for profile in profiles)
        for cell, n in Counter(table).most_common(12):
            assert is_close(cell_counts[cell], n / len(frame)), cell


def add_income_fifths(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {**row, "income": income_fifth(row["income_usd"])} for row in frame.iter_rows(named=True)
    ]


def test_traits_have_the_published_correlations(profiles: list[Profile]) -> None:
    scores = np.array(
        [[getattr(profile.traits, trait) for trait in TRAITS] for profile in profiles], dtype=float
    )
    correlations = np.corrcoef(scores.T)
    published = published_correlations()
    for i, j in combinations(range(len(TRAITS)), 2):
        assert correlations[i, j] == pytest.approx(published[i, j], abs=0.07), (
            TRAITS[i],
            TRAITS[j],
        )
    assert scores.mean(axis=0) == pytest.approx(np.full(5, 50), abs=2)
    assert scores.std(axis=0) == pytest.approx(np.full(5, 20), abs=1.2)
    assert np.linalg.eigvalsh(published).min() > 0


def test_traits_differ_by_sex_and_age_as_published(profiles: list[Profile]) -> None:
    women = [profile for profile in profiles if profile.sex == "F"]
    men = [profile for profile in profiles if profile.sex == "M"]
    for trait, difference in DATA["ocean"]["women_minus_men"].items():
        gap = np.mean([profile.traits.standard_score(trait) for profile in women]) - np.mean(
            [profile.traits.standard_score(trait) for profile in men]
        )
        assert gap == pytest.approx(difference, abs=0.19), trait
    for sex, group in (("F", women), ("M", men)):
        ages = np.array([profile.age for profile in group], dtype=float)
        for trait, slope in DATA["ocean"]["per_decade"][sex].items():
            fitted_slope = np.polyfit(
                ages / 10, [profile.traits.standard_score(trait) for profile in group], 1
            )[0]
            assert fitted_slope == pytest.approx(slope, abs=0.07), (sex, trait)


def test_vals_follow_resources_and_motivation(profiles: list[Profile]) -> None:
    def calculate_mean(kind: str, variable: str) -> float:
        group = [profile for profile in profiles if profile.vals == kind]
        if variable == "income":
            return float(np.mean(np.log([profile.income_usd for profile in group])))
        if variable == "age":
            return float(np.mean([profile.age for profile in group]))
        return float(np.mean([profile.traits.standard_score(variable) for profile in group]))

    counts = Counter(profile.vals for profile in profiles)
    assert len(counts) == 8
    assert all(0.05 < count / PROFILE_COUNT < 0.2 for count in counts.values())
    assert (
        calculate_mean("innovator", "income")
        > calculate_mean("thinker", "income")
        > calculate_mean("survivor", "income")
    )
    pairs = (("thinker", "believer"), ("achiever", "striver"), ("experiencer", "maker"))
    for high, low in pairs:
        assert calculate_mean(high, "income") > calculate_mean(low, "income") + 0.3
    assert (
        calculate_mean("experiencer", "age")
        < calculate_mean("achiever", "age")
        < calculate_mean("thinker", "age")
    )
    assert calculate_mean("achiever", "conscientiousness") > calculate_mean(
        "experiencer", "conscientiousness"
    )


def test_opinion_depends_on_openness_price_and_engagement(profiles: list[Profile]) -> None:
    valence = [profile.opinion.valence for profile in profiles if profile.opinion]
    for key, sign in (("openness", 1), ("price_sensitivity", -1), ("engagement", 1)):
        values = [
            profile.traits.standard_score(key) if key in TRAITS else getattr(profile.consumer, key)
            for profile in profiles
        ]
        assert sign * np.corrcoef(values, valence)[0, 1] > 0.25, key
    assert min(valence) >= -1 and max(valence) <= 1
    assert abs(np.mean(valence)) < 0.05
    appealed_profiles = PersonaGenerator(appeal=0.5).generate_profiles(300, generator(1, ("x",)))
    assert (
        np.mean([profile.opinion.valence for profile in appealed_profiles if profile.opinion]) > 0.3
    )


def test_the_sentence_of_an_opinion_has_the_sign_of_its_valence(profiles: list[Profile]) -> None:
    wordings = character.load_wordings()["opinion"]
    sentences = {
        band: {sentence for theme in themes.values() for sentence in theme}
        for band, themes in wordings.items()
    }
    for profile in profiles:
        assert profile.opinion is not None
        negative = profile.opinion.sentence in sentences["negative"] | sentences["very negative"]
        positive = profile.opinion.sentence in sentences["positive"] | sentences["very positive"]
        assert negative == (profile.opinion.valence < -0.2)
        assert positive == (profile.opinion.valence >= 0.2)


def test_equal_seeds_give_equal_profiles_and_known_values_do_not_change_traits() -> None:
    persona_generator = PersonaGenerator()
    first = persona_generator.generate_profiles(20, generator(5, ("g",)))
    assert first == persona_generator.generate_profiles(20, generator(5, ("g",)))
    assert first != persona_generator.generate_profiles(20, generator(6, ("g",)))
    without_occupation = persona_generator.from_profiles(
        [{"age": 30, "sex": "F"}] * 3, generator(5, ("g",))
    )
    with_occupation = persona_generator.from_profiles(
        [{"age": 30, "sex": "F", "occupation": "clown"}] * 3, generator(5, ("g",))
    )
    assert [profile.traits for profile in without_occupation] == [
        profile.traits for profile in with_occupation
    ]


def test_names_are_unique_and_fit_sex_and_cohort() -> None:
    book = name_book()
    for seed in range(60):
        group = PersonaGenerator().generate_profiles(12, generator(seed, ("names",)))
        assert len({profile.first_name for profile in group}) == len(group)
        for profile in group:
            given_name, family_name = profile.name.split(" ", 1)
            assert given_name in book.given_for(profile.sex, profile.age)
            assert family_name in book.family


def test_quotas_are_filled_exactly() -> None:
    quotas: dict[str, dict[str, float]] = {
        "sex": {"F": 5, "M": 3},
        "age": {"18-34": 0.5, "35-64": 0.25, "65+": 0.25},
    }
    group = PersonaGenerator().generate_profiles(8, generator(3, ("q",)), quotas)
    assert Counter(profile.sex for profile in group) == {"F": 5, "M": 3}
    assert sorted(
        sum(low <= profile.age <= high for profile in group)
        for low, high in ((18, 34), (35, 64), (65, 99))
    )
    assert sum(profile.age <= 34 for profile in group) == 4
    assert sum(profile.age >= 65 for profile in group) == 2


def test_impossible_quotas_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="quotas"):
        PersonaGenerator().generate_profiles(
            2, generator(1, ()), {"education": {"Doctorate": 1}, "age": {"18-20": 1}}
        )
    keys = [
        problem.key
        for problem in check_quotas(
            {
                "shoe": {"a": 1},
                "sex": {"X": 1},
                "age": {"old": 1},
                "income": {},
                "vals": {"maker": -1},
            }
        )
    ]
    assert keys == ["quotas.shoe", "quotas.sex", "quotas.age", "quotas.income", "quotas.vals"]


def test_given_profiles_keep_their_known_values() -> None:
    rows: list[dict[str, Any]] = [
        {"id": "r1", "name": "Ann Lee", "age": 44, "sex": "F", "openness": 91, "valence": -0.4},
        {"occupation": "beekeeper", "education": "Doctorate", "opinion": "I would not."},
        {"name": "Bo Ray", "sex": "M", "income": "Low income"},
    ]
    ann, keeper, bo = PersonaGenerator().from_profiles(rows, generator(2, ("t",)))
    assert (ann.id, ann.name, ann.age, ann.traits.openness) == ("r1", "Ann Lee", 44, 91)
    assert ann.opinion is not None and ann.opinion.valence == -0.4
    assert keeper.occupation == "beekeeper"
    assert keeper.opinion is not None and keeper.opinion.sentence == "I would not."
    assert bo.income == "Low income" and bo.income_usd < 30_000
    with pytest.raises(InputError) as error:
        PersonaGenerator().from_profiles(
            [{"openness": 120}, {"age": "old", "sex": "x"}], generator(1, ())
        )
    assert [(problem.where, problem.key) for problem in error.value.problems] == [
        ("profile 1", "openness"),
        ("profile 2", "age"),
        ("profile 2", "sex"),
    ]


def test_drawn_values_fit_the_known_values() -> None:
    """A cashier who lives alone has neither a doctorate nor a high income."""
    known_rows = [{"occupation": "cashier", "household": "alone"}] * 60
    cashiers = PersonaGenerator().from_profiles(known_rows, generator(4, ("k",)))
    assert max(profile.income_usd for profile in cashiers) < 90_000
    assert sum(profile.sex == "F" for profile in cashiers) > 30
    doctors = PersonaGenerator().from_profiles([{"occupation": "physician"}] * 60, generator(4, ()))
    assert {profile.education for profile in doctors} == {"Doctorate"} and min(
        profile.age for profile in doctors
    ) >= 27
    assert np.median([profile.income_usd for profile in doctors]) > 150_000
    # Occupations that the table contains under other names.
    medians = {
        occupation: np.median(
            [
                profile.income_usd
                for profile in PersonaGenerator().from_profiles(
                    [{"occupation": occupation, "age": 50}] * 40, generator(4, ())
                )
            ]
        )
        for occupation in ("unemployed", "software engineer", "delivery driver")
    }
    assert medians["unemployed"] < 0.9 * medians["delivery driver"]
    assert medians["delivery driver"] < 0.9 * medians["software engineer"]
    nurses = [{"occupation": "Pediatric nurse"}, {"occupation": "retired nurse"}] * 40
    occupation = PersonaGenerator().from_profiles(nurses, generator(4, ()))
    assert sum(profile.sex == "F" for profile in occupation) > 60
    assert (
        np.median([profile.age for profile in occupation if profile.occupation == "retired nurse"])
        > 60
    )
    poor = [{"income": "Low income", "age": 40, "sex": "M"}] * 40
    assert {
        profile.income for profile in PersonaGenerator().from_profiles(poor, generator(4, ()))
    } == {"Low income"}
    (old,) = PersonaGenerator().from_profiles([{"age": 104}], generator(4, ()))
    assert old.age == 104 and ("retired" in old.occupation or old.household)


def test_race_is_described_only_if_drawn_or_given() -> None:
    generated = PersonaGenerator().generate_profiles(40, generator(8, ()))
    assert {profile.race for profile in generated} <= {
        "White",
        "Black",
        "Asian",
        "Hispanic",
        "Other",
    }
    for profile in generated:
        description = character.describe_circumstances(profile)
        openings = {"Asian": "You are an Asian ", "White": "You are a white "}
        assert profile.race not in openings or description.startswith(openings[profile.race])
        assert profile.shared_demographics()["race"] == profile.race
    without_race, with_race = PersonaGenerator().from_profiles(
        [{"age": 40}, {"age": 40, "race": "black"}], generator(8, ())
    )
    assert without_race.race == "" and "race" not in without_race.shared_demographics()
    assert with_race.race == "Black" and "a Black " in character.describe_circumstances(with_race)


def test_descriptions_contain_no_scores_and_no_trait_names(profiles: list[Profile]) -> None:
    for profile in profiles:
        description = " ".join(
            (
                character.describe_profile(profile),
                character.describe_manner(profile.voice),
                character.category_engagement(profile, "meal kits"),
            )
        )
        assert re.findall(r"\d+", description) == [str(profile.age)]
        assert not re.search("|".join(TRAITS), description, re.IGNORECASE)
        assert "{" not in description and "  " not in description
        assert description.startswith(f"{profile.name}, a")


def test_the_five_bands_of_a_trait_have_different_sentences() -> None:
    for trait in TRAITS:
        sentences = [character.trait_sentence(trait, score) for score in (5, 30, 55, 75, 95)]
        assert len(set(sentences)) == 5
        assert character.trait_sentence(trait, 100) == sentences[4]
        assert character.trait_sentence(trait, 0) == sentences[0]


def test_profiles_can_be_restored_from_personas() -> None:
    persona_generator = PersonaGenerator()
    (profile,) = persona_generator.generate_profiles(1, generator(9, ("p",)))
    persona = profile.to_persona(character.describe_profile(profile))
    restored_persona = Persona.from_json(persona.to_json())
    assert Profile.model_validate(restored_persona.extra["profile"]) == profile
    assert persona.demographics["occupation"] == profile.occupation
