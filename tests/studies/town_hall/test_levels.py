"""Levels: the study's table, a researcher's own switches, and the assignment of models to seats."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from folkmoot.errors import ProtocolError
from folkmoot.studies.town_hall.config import (
    FIVE_MODELS,
    TownHallConfig,
    assign_models,
    level_problems,
    levels_of,
)
from folkmoot.studies.town_hall.discussion import make_meeting
from folkmoot.studies.town_hall.participants import make_set, resident_ids
from folkmoot.studies.town_hall.preparation import config_advisories, seat_models

GENERAL, VULNERABLE = resident_ids(16, 4)


def make_config(**settings: Any) -> TownHallConfig:
    topic = {"title": "Shall it be built?", "background": "A plan."}
    return TownHallConfig.model_validate({"topic": topic, **settings})


def test_the_levels_are_those_of_the_table() -> None:
    found = {x.name: x for x in levels_of(make_config(levels=[1, "2-1", "2-2", 3, 4]))}
    assert {n: x.context for n, x in found.items()} == {
        "1": "shared",
        **dict.fromkeys(("2-1", "2-2", "3", "4"), "separate"),
    }
    assert {n: len(x.models) for n, x in found.items()} == {
        "1": 0,
        "2-1": 0,
        "2-2": 1,
        "3": 5,
        "4": 5,
    }
    assert [n for n, x in found.items() if x.is_moderated] == ["4"]
    assert [n for n, x in found.items() if x.part == "supplementary"] == ["2-2"]
    assert all(x.think and x.reflect for x in found.values())


def test_the_default_is_the_eighty_discussions_of_the_main_levels() -> None:
    default = make_config()
    assert default.sets * len(levels_of(default)) == 80
    assert all(level.part == "main" for level in levels_of(default))


@pytest.mark.parametrize("written", [1, "1", [1], ["1"]])
def test_one_level_may_be_written_without_a_list(written: Any) -> None:
    assert make_config(levels=written).levels == ["1"]


def test_switches_can_be_changed_and_levels_added() -> None:
    settings = {
        4: {"moderator": "gpt-5-mini", "reflect": False},
        "quiet": {"think": False, "models": "kimi-k2"},
    }
    found = {
        x.name: x for x in levels_of(make_config(levels=[4, "quiet"], level_settings=settings))
    }
    assert found["4"].moderator == "gpt-5-mini" and not found["4"].reflect
    assert found["4"].models == FIVE_MODELS
    assert found["quiet"].models == ("kimi-k2",) and not found["quiet"].think


@pytest.mark.parametrize("set_no", range(1, 41))
def test_the_four_vulnerable_sit_on_four_models(set_no: int) -> None:
    seats = assign_models(FIVE_MODELS, GENERAL, VULNERABLE, 42, set_no)
    assert len({seats[v] for v in VULNERABLE}) == 4
    assert set(seats) == {*GENERAL, *VULNERABLE}
    assert Counter(seats.values()) == dict.fromkeys(FIVE_MODELS, 4)


def test_every_model_serves_every_vulnerable_resident_in_some_set() -> None:
    for resident in VULNERABLE:
        seen = {
            assign_models(FIVE_MODELS, GENERAL, VULNERABLE, 42, n)[resident] for n in range(1, 41)
        }
        assert seen == set(FIVE_MODELS)


def test_levels_3_and_4_have_the_same_seats_residents_and_orders() -> None:
    study = make_config(levels=[3, 4], sets=3)
    for number in (1, 2, 3):
        of = make_set(study, (), 42, number)
        three, four = (make_meeting(study, of, level, 42) for level in levels_of(study))
        assert three.seats == four.seats
        assert three.set is four.set
    assert make_set(study, (), 42, 1).orders != make_set(study, (), 42, 2).orders
    assert make_set(study, (), 42, 1) == make_set(study, (), 42, 1)


def test_a_dealing_that_cannot_be_is_refused() -> None:
    with pytest.raises(ProtocolError, match="4 vulnerable residents cannot be divided over 3"):
        assign_models(FIVE_MODELS[:3], GENERAL, VULNERABLE, 42, 1)


@pytest.mark.parametrize(
    ("settings", "vulnerable", "words", "key"),
    [
        ({"levels": ["2-3"]}, 4, "no level '2-3'", "levels"),
        ({"levels": [3, 3]}, 4, "duplicate level", "levels"),
        ({"levels": [3]}, 6, "6 vulnerable residents for 5 models", "levels"),
        (
            {"levels": [3], "level_settings": {3: {"models": list(FIVE_MODELS[:4])}}},
            5,
            "5 vulnerable residents for 4 models",
            "level_settings.3.models",
        ),
        (
            {"levels": [1], "level_settings": {1: {"models": list(FIVE_MODELS)}}},
            4,
            "one shared session but 5 models",
            "level_settings.1.models",
        ),
        (
            {"levels": [3], "level_settings": {3: {"models": ["a", "a", "b", "c", "d"]}}},
            4,
            "lists a model twice",
            "level_settings.3.models",
        ),
    ],
)
def test_levels_that_cannot_be_are_named(
    settings: dict[str, Any], vulnerable: int, words: str, key: str
) -> None:
    found = level_problems(make_config(**settings), vulnerable)
    assert len(found) == 1
    assert words in found[0].message and found[0].key == key and found[0].hint


def test_a_level_that_is_described_and_not_run_is_told() -> None:
    own = make_config(levels=[1], sets=1, level_settings={"quiet": {"reflect": False}, 3: {}})
    assert level_problems(own, 4) == []
    told = config_advisories(own)
    assert told[0] == "1 set x 1 level = 1 discussion"
    assert sum("quiet" in line for line in told) == 1


def test_seat_models_are_those_that_seats_and_moderators_name() -> None:
    own = {"levels": ["2-2", 4], "level_settings": {4: {"moderator": "o9"}}}
    assert seat_models(make_config(**own, model="gpt-4o")) == ["exaone-4.0", *FIVE_MODELS[:4], "o9"]
    assert (
        seat_models(make_config(**own))
        == ["o9"]
        == seat_models(make_config(**own, model="synthetic"))
    )
    assert seat_models(make_config(levels=[1, "2-1"])) == []
