"""Quota personas meet their ratios, are all different, and read as people."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from folkmoot.errors import InputError
from folkmoot.people.enrichment import Demographics
from folkmoot.people.sources import quota
from folkmoot.randomness import generator


def test_ratios_are_met_as_exactly_as_n_allows() -> None:
    n = 1000
    people = quota.make(n, generator(1, ("q",)))
    ratios = quota.default_ratios()
    for key in ("sex", "education", "income", "location_type", "political_leaning"):
        counts = Counter(p.demographics[key] for p in people)
        total = sum(ratios[key].values())
        for value, share in ratios[key].items():
            assert abs(counts[value] - n * share / total) < 1, (key, value)


def test_everybody_is_valid_different_and_reproducible() -> None:
    people = quota.make(3000, generator(2, ("q",)))
    for p in people:
        Demographics.model_validate(p.demographics)
    assert len({p.text for p in people}) == len({p.name for p in people}) == 3000
    assert len({p.key for p in people}) == 3000
    assert people == quota.make(3000, generator(2, ("q",)))
    assert people[0] != quota.make(1, generator(3, ("q",)))[0]


def test_text_names_the_person_and_has_no_hole_or_wrong_article() -> None:
    for p in quota.make(1500, generator(4, ("q",))):
        assert p.text.startswith(p.name + ",")
        assert p.demographics["occupation"] in p.text
        assert not re.search(r"[{}]|  |None|\ba (?:[aeio]|8\d|18-)", p.text), p.text
        assert p.text.endswith(".")
        assert "\n" not in p.text


def test_nobody_is_too_young_for_a_degree() -> None:
    degrees = {"Bachelor's degree": 22, "Master's degree": 24, "Doctorate": 28}
    people = quota.make(600, generator(5, ("q",)))
    assert all(p.demographics["age"] >= degrees.get(p.demographics["education"], 0) for p in people)


def test_own_ratios_and_own_attributes() -> None:
    people = quota.make(
        10,
        generator(6, ("q",)),
        {"age": {"30-34": 1}, "sex": {"F": 1}, "tenant": {"yes": 0.7, "no": 0.3}},
    )
    assert {p.demographics["sex"] for p in people} == {"F"}
    assert all(30 <= p.demographics["age"] <= 34 for p in people)
    assert Counter(p.demographics["tenant"] for p in people) == {"yes": 7, "no": 3}
    assert all("Tenant: " in p.text for p in people)


def test_every_wrong_ratio_is_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        quota.make(
            5,
            generator(1, ()),
            {"sex": {"X": 1}, "income": {}, "age": {"old": 1}, "education": {"High school": -1}},
        )
    assert [p.key for p in caught.value.problems] == [
        "ratios.age",
        "ratios.sex",
        "ratios.education",
        "ratios.income",
    ]


def test_more_people_than_there_are_names_of_their_age_all_have_names_of_their_own() -> None:
    people = quota.make(8_000, generator(3, ("q",)), {"sex": {"F": 1}, "age": {"30-33": 1}})
    assert len({p.name for p in people}) == len(people)
    assert any(re.fullmatch(r"\w+ [A-Z]\. .+", p.name) for p in people)
