"""The persona engine: marginals, dependence and correlations are those of the cited figures."""

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

N = 3000
DATA = joint.us_figures()


@pytest.fixture(scope="module")
def people() -> list[Profile]:
    return PersonaGenerator().generate_profiles(N, generator(11, ("grounded",)))


def close(count: int, share: float, n: int = N) -> bool:
    """Within five standard errors of a share."""
    return bool(abs(count - n * share) <= 5 * np.sqrt(n * share * (1 - share)) + 1)


def test_published_marginals(people: list[Profile]) -> None:
    places = Counter(p.location_type for p in people)
    shares = DATA["location_type"]["shares"]
    assert all(close(places[v], share) for v, share in shares.items())
    ages = Counter(band_of(p.age, DATA["age"]["bands"]) for p in people)
    everybody = sum(DATA["age"]["bands"].values())
    assert all(close(ages[b], n / everybody) for b, n in DATA["age"]["bands"].items())
    stages = Counter(p.consumer.adoption for p in people)
    assert all(close(stages[s], share) for s, share in DATA["adoption"]["shares"].items())


def test_people_are_drawn_from_the_joint_table(people: list[Profile]) -> None:
    """Pairs and triples of attributes come as often as in the packaged people."""
    frame = joint.sample_people()
    for keys in (
        ("sex", "occupation"),
        ("sex", "education", "race"),
        ("household", "income"),
        ("race", "income"),
    ):
        table = [tuple(r[k] for k in keys) for r in with_fifths(frame)]
        found = Counter(tuple(getattr(p, k) for k in keys) for p in people)
        for cell, n in Counter(table).most_common(12):
            assert close(found[cell], n / len(frame)), cell


def with_fifths(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [{**r, "income": income_fifth(r["income_usd"])} for r in frame.iter_rows(named=True)]


def test_traits_have_the_published_correlations(people: list[Profile]) -> None:
    scores = np.array([[getattr(p.traits, t) for t in TRAITS] for p in people], dtype=float)
    found = np.corrcoef(scores.T)
    wanted = published_correlations()
    for i, j in combinations(range(len(TRAITS)), 2):
        assert found[i, j] == pytest.approx(wanted[i, j], abs=0.07), (TRAITS[i], TRAITS[j])
    assert scores.mean(axis=0) == pytest.approx(np.full(5, 50), abs=2)
    assert scores.std(axis=0) == pytest.approx(np.full(5, 20), abs=1.2)
    assert np.linalg.eigvalsh(wanted).min() > 0


def test_traits_differ_by_sex_and_age_as_published(people: list[Profile]) -> None:
    women = [p for p in people if p.sex == "F"]
    men = [p for p in people if p.sex == "M"]
    for trait, d in DATA["ocean"]["women_minus_men"].items():
        gap = np.mean([p.traits.standard_score(trait) for p in women]) - np.mean(
            [p.traits.standard_score(trait) for p in men]
        )
        assert gap == pytest.approx(d, abs=0.19), trait
    for sex, group in (("F", women), ("M", men)):
        ages = np.array([p.age for p in group], dtype=float)
        for trait, slope in DATA["ocean"]["per_decade"][sex].items():
            fitted = np.polyfit(ages / 10, [p.traits.standard_score(trait) for p in group], 1)[0]
            assert fitted == pytest.approx(slope, abs=0.07), (sex, trait)


def test_vals_follow_resources_and_motivation(people: list[Profile]) -> None:
    def mean(kind: str, of: str) -> float:
        group = [p for p in people if p.vals == kind]
        if of == "income":
            return float(np.mean(np.log([p.income_usd for p in group])))
        if of == "age":
            return float(np.mean([p.age for p in group]))
        return float(np.mean([p.traits.standard_score(of) for p in group]))

    counts = Counter(p.vals for p in people)
    assert len(counts) == 8
    assert all(0.05 < c / N < 0.2 for c in counts.values())
    assert mean("innovator", "income") > mean("thinker", "income") > mean("survivor", "income")
    pairs = (("thinker", "believer"), ("achiever", "striver"), ("experiencer", "maker"))
    for high, low in pairs:
        assert mean(high, "income") > mean(low, "income") + 0.3
    assert mean("experiencer", "age") < mean("achiever", "age") < mean("thinker", "age")
    assert mean("achiever", "conscientiousness") > mean("experiencer", "conscientiousness")


def test_opinion_depends_on_openness_price_and_engagement(people: list[Profile]) -> None:
    valence = [p.opinion.valence for p in people if p.opinion]
    for key, sign in (("openness", 1), ("price_sensitivity", -1), ("engagement", 1)):
        values = [
            p.traits.standard_score(key) if key in TRAITS else getattr(p.consumer, key)
            for p in people
        ]
        assert sign * np.corrcoef(values, valence)[0, 1] > 0.25, key
    assert min(valence) >= -1 and max(valence) <= 1
    assert abs(np.mean(valence)) < 0.05
    eager = PersonaGenerator(appeal=0.5).generate_profiles(300, generator(1, ("x",)))
    assert np.mean([p.opinion.valence for p in eager if p.opinion]) > 0.3


def test_the_sentence_of_an_opinion_has_the_sign_of_its_valence(people: list[Profile]) -> None:
    stock = character.load_wordings()["opinion"]
    sentences = {band: {s for theme in v.values() for s in theme} for band, v in stock.items()}
    for p in people:
        assert p.opinion is not None
        negative = p.opinion.sentence in sentences["negative"] | sentences["very negative"]
        positive = p.opinion.sentence in sentences["positive"] | sentences["very positive"]
        assert negative == (p.opinion.valence < -0.2)
        assert positive == (p.opinion.valence >= 0.2)


def test_same_seed_same_people_and_one_more_shifts_nobody() -> None:
    engine = PersonaGenerator()
    first = engine.generate_profiles(20, generator(5, ("g",)))
    assert first == engine.generate_profiles(20, generator(5, ("g",)))
    assert first != engine.generate_profiles(20, generator(6, ("g",)))
    fixed = engine.from_profiles([{"age": 30, "sex": "F"}] * 3, generator(5, ("g",)))
    other = engine.from_profiles(
        [{"age": 30, "sex": "F", "occupation": "clown"}] * 3, generator(5, ("g",))
    )
    assert [p.traits for p in fixed] == [p.traits for p in other]


def test_names_are_unique_and_of_the_sex_and_cohort() -> None:
    book = name_book()
    for seed in range(60):
        group = PersonaGenerator().generate_profiles(12, generator(seed, ("names",)))
        assert len({p.first_name for p in group}) == len(group)
        for p in group:
            given, family = p.name.split(" ", 1)
            assert given in book.given_for(p.sex, p.age)
            assert family in book.family


def test_quotas_are_filled_exactly() -> None:
    quotas: dict[str, dict[str, float]] = {
        "sex": {"F": 5, "M": 3},
        "age": {"18-34": 0.5, "35-64": 0.25, "65+": 0.25},
    }
    group = PersonaGenerator().generate_profiles(8, generator(3, ("q",)), quotas)
    assert Counter(p.sex for p in group) == {"F": 5, "M": 3}
    assert sorted(sum(a <= p.age <= b for p in group) for a, b in ((18, 34), (35, 64), (65, 99)))
    assert sum(p.age <= 34 for p in group) == 4
    assert sum(p.age >= 65 for p in group) == 2


def test_impossible_quotas_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="quotas"):
        PersonaGenerator().generate_profiles(
            2, generator(1, ()), {"education": {"Doctorate": 1}, "age": {"18-20": 1}}
        )
    keys = [
        p.key
        for p in check_quotas(
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


def test_real_profiles_keep_what_is_known() -> None:
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
    with pytest.raises(InputError) as caught:
        PersonaGenerator().from_profiles(
            [{"openness": 120}, {"age": "old", "sex": "x"}], generator(1, ())
        )
    assert [(p.where, p.key) for p in caught.value.problems] == [
        ("profile 1", "openness"),
        ("profile 2", "age"),
        ("profile 2", "sex"),
    ]


def test_what_is_not_known_fits_what_is() -> None:
    """Who is known to be a cashier living alone has neither a doctorate nor a high income."""
    known = [{"occupation": "cashier", "household": "alone"}] * 60
    cashiers = PersonaGenerator().from_profiles(known, generator(4, ("k",)))
    assert max(p.income_usd for p in cashiers) < 90_000
    assert sum(p.sex == "F" for p in cashiers) > 30
    doctors = PersonaGenerator().from_profiles([{"occupation": "physician"}] * 60, generator(4, ()))
    assert {p.education for p in doctors} == {"Doctorate"} and min(p.age for p in doctors) >= 27
    assert np.median([p.income_usd for p in doctors]) > 150_000
    # Occupations that the table has under no such name.
    medians = {
        told: np.median(
            [
                p.income_usd
                for p in PersonaGenerator().from_profiles(
                    [{"occupation": told, "age": 50}] * 40, generator(4, ())
                )
            ]
        )
        for told in ("unemployed", "software engineer", "delivery driver")
    }
    assert medians["unemployed"] < 0.9 * medians["delivery driver"]
    assert medians["delivery driver"] < 0.9 * medians["software engineer"]
    nurses = [{"occupation": "Pediatric nurse"}, {"occupation": "retired nurse"}] * 40
    told = PersonaGenerator().from_profiles(nurses, generator(4, ()))
    assert sum(p.sex == "F" for p in told) > 60
    assert np.median([p.age for p in told if p.occupation == "retired nurse"]) > 60
    poor = [{"income": "Low income", "age": 40, "sex": "M"}] * 40
    assert {p.income for p in PersonaGenerator().from_profiles(poor, generator(4, ()))} == {
        "Low income"
    }
    (old,) = PersonaGenerator().from_profiles([{"age": 104}], generator(4, ()))
    assert old.age == 104 and ("retired" in old.occupation or old.household)


def test_race_is_told_where_it_is_drawn_or_known_and_never_made_up() -> None:
    drawn = PersonaGenerator().generate_profiles(40, generator(8, ()))
    assert {p.race for p in drawn} <= {"White", "Black", "Asian", "Hispanic", "Other"}
    for p in drawn:
        said = character.describe_circumstances(p)
        words = {"Asian": "You are an Asian ", "White": "You are a white "}
        assert p.race not in words or said.startswith(words[p.race])
        assert p.shared_demographics()["race"] == p.race
    known, told = PersonaGenerator().from_profiles(
        [{"age": 40}, {"age": 40, "race": "black"}], generator(8, ())
    )
    assert known.race == "" and "race" not in known.shared_demographics()
    assert told.race == "Black" and "a Black " in character.describe_circumstances(told)


def test_descriptions_hold_no_score_and_no_name_of_a_trait(people: list[Profile]) -> None:
    for p in people:
        said = " ".join(
            (
                character.describe_profile(p),
                character.describe_manner(p.voice),
                character.category_engagement(p, "meal kits"),
            )
        )
        assert re.findall(r"\d+", said) == [str(p.age)]
        assert not re.search("|".join(TRAITS), said, re.IGNORECASE)
        assert "{" not in said and "  " not in said
        assert said.startswith(f"{p.name}, a")


def test_five_bands_differ() -> None:
    for trait in TRAITS:
        said = [character.trait_sentence(trait, s) for s in (5, 30, 55, 75, 95)]
        assert len(set(said)) == 5
        assert character.trait_sentence(trait, 100) == said[4]
        assert character.trait_sentence(trait, 0) == said[0]


def test_profiles_travel_in_personas() -> None:
    engine = PersonaGenerator()
    (one,) = engine.generate_profiles(1, generator(9, ("p",)))
    persona = one.to_persona(character.describe_profile(one))
    copied = Persona.from_json(persona.to_json())
    assert Profile.model_validate(copied.extra["profile"]) == one
    assert persona.demographics["occupation"] == one.occupation
