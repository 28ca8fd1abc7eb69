"""Quota personas meet their ratios, are all different, and have well-formed texts."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest

from folkmoot.errors import InputError
from folkmoot.people.enrichment import Demographics
from folkmoot.people.sources import quota
from folkmoot.randomness import generator


def test_ratios_are_met_as_exactly_as_n_allows() -> None:
    n = 1000
    personas = quota.make(n, generator(1, ("q",)))
    ratios = quota.default_ratios()
    for key in ("sex", "education", "income", "location_type", "political_leaning"):
        counts = Counter(persona.demographics[key] for persona in personas)
        total = sum(ratios[key].values())
        for value, share in ratios[key].items():
            assert abs(counts[value] - n * share / total) < 1, (key, value)


def test_personas_are_valid_different_and_reproducible() -> None:
    personas = quota.make(3000, generator(2, ("q",)))
    for persona in personas:
        Demographics.model_validate(persona.demographics)
    assert (
        len({persona.text for persona in personas})
        == len({persona.name for persona in personas})
        == 3000
    )
    assert len({persona.key for persona in personas}) == 3000
    assert personas == quota.make(3000, generator(2, ("q",)))
    assert personas[0] != quota.make(1, generator(3, ("q",)))[0]


def test_texts_name_the_persona_and_have_no_gaps_or_wrong_articles() -> None:
    for persona in quota.make(1500, generator(4, ("q",))):
        assert persona.text.startswith(persona.name + ",")
        assert persona.demographics["occupation"] in persona.text
        assert not re.search(r"[{}]|  |None|\ba (?:[aeio]|8\d|18-)", persona.text), persona.text
        assert persona.text.endswith(".")
        assert "\n" not in persona.text


def test_degrees_have_a_minimum_age() -> None:
    degrees = {"Bachelor's degree": 22, "Master's degree": 24, "Doctorate": 28}
    personas = quota.make(600, generator(5, ("q",)))
    assert all(
        persona.demographics["age"] >= degrees.get(persona.demographics["education"], 0)
        for persona in personas
    )


def test_custom_ratios_and_custom_attributes() -> None:
    personas = quota.make(
        10,
        generator(6, ("q",)),
        {"age": {"30-34": 1}, "sex": {"F": 1}, "tenant": {"yes": 0.7, "no": 0.3}},
    )
    assert {persona.demographics["sex"] for persona in personas} == {"F"}
    assert all(30 <= persona.demographics["age"] <= 34 for persona in personas)
    assert Counter(persona.demographics["tenant"] for persona in personas) == {"yes": 7, "no": 3}
    assert all("Tenant: " in persona.text for persona in personas)


def test_all_wrong_ratios_are_reported_together() -> None:
    with pytest.raises(InputError) as error:
        quota.make(
            5,
            generator(1, ()),
            {
                **{"sex": {"X": 1}, "income": {}, "age": {"old": 1}},
                **{"education": {"High school": -1}, "tenant": {"yes": math.nan, "no": 1}},
            },
        )
    assert [problem.key for problem in error.value.problems] == [
        "ratios.age",
        "ratios.sex",
        "ratios.education",
        "ratios.income",
        "ratios.tenant",
    ]


def test_more_personas_than_names_of_their_age_still_have_unique_names() -> None:
    personas = quota.make(8_000, generator(3, ("q",)), {"sex": {"F": 1}, "age": {"30-33": 1}})
    assert len({persona.name for persona in personas}) == len(personas)
    assert any(re.fullmatch(r"\w+ [A-Z]\. .+", persona.name) for persona in personas)
