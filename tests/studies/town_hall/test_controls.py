"""Controls: halls without vulnerable residents, a moderator without the list, shuffled labels, and
life stories of equal length. Each control changes only what it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from folkmoot import Run
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.town_hall.config import TownHallConfig, level_problems, levels_of
from folkmoot.studies.town_hall.findings import compute_findings
from folkmoot.studies.town_hall.participants import STORIES, load_profiles

from .hall_script import make_model, run_hall, small_hall
from .test_discussion_by_hand import answer_by_hand as by_hand

pytestmark = pytest.mark.xdist_group("controls of a hall")  # one run is enough
VULNERABLE = ("A05", "A06", "A07", "A08")
CONTROLS = {
    "bare": {"like": 4, "vulnerable": False},
    "unlisted": {"like": 4, "moderator_list": False},
    "placebo": {"like": 4, "labels": "shuffled"},
    "stories": {"like": 4, "stories": "all"},
    "untold": {"like": "stories", "stories": "none"},
}


@pytest.fixture(scope="module")
def hall_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ScriptedProvider]:
    folder = tmp_path_factory.mktemp("controls")
    settings = small_hall(folder, general=4, vulnerable=4) | {
        "levels": [4, *CONTROLS],
        "level_settings": CONTROLS,
        "sets": 2,
        "rounds": 2,
    }
    model = make_model(keep=True)
    return run_hall(folder, settings, model), model


def read_system_prompts(
    hall_run: tuple[Run, ScriptedProvider], level: str, number: int = 1
) -> dict[str, str]:
    """Return the system prompt of each resident."""
    there = f"set{number:02d}_lv{level}/before/"
    return {
        address.split("/")[-2]: request.messages[0].content
        for address, request in hall_run[1].seen
        if address.startswith(there)
    }


def read_moderator_prompt(hall_run: tuple[Run, ScriptedProvider], level: str) -> str:
    return next(
        r.messages[0].content
        for a, r in hall_run[1].seen
        if a.startswith(f"set01_lv{level}/round1/mo")
    )


@pytest.mark.nightly(part="sweeps")
def test_without_the_vulnerable_other_residents_take_their_seats(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    main, bare = read_system_prompts(hall_run, "4"), read_system_prompts(hall_run, "bare")
    general = ["A01", "A02", "A03", "A04"]
    assert list(main) == [*general, *VULNERABLE]
    assert list(bare) == [*general, "A09", "A10", "A11", "A12"]
    assert all(main[i] == bare[i] for i in general)
    assert not any("ground floor" in text for text in bare.values())
    rows = hall_run[0].table("rounds").filter(level="bare")
    assert not rows["is_vulnerable"].any()
    orders = hall_run[0].folder.read_json("set01_lvbare/discussion_log.json")["rounds"]
    again = hall_run[0].folder.read_json("set01_lv4/discussion_log.json")["rounds"]
    for a, b in zip(orders, again, strict=True):  # the same seats in the same order
        stand_in = dict(zip(VULNERABLE, list(bare)[4:], strict=True))
        assert a["speaking_order"] == [stand_in.get(i, i) for i in b["speaking_order"]]
    table = hall_run[0].table("residents").filter(set=1)
    assert table["id"].to_list() == [*main, *list(bare)[4:]]
    assert table["name"].n_unique() == 12
    found = hall_run[0].table("discussions").filter(level="bare")
    assert found["vulnerable_weighted_inclusivity_score"].null_count() == 2


def test_a_moderator_without_the_list_gets_no_vulnerable_resident(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    assert read_system_prompts(hall_run, "unlisted") == read_system_prompts(hall_run, "4")
    assert "A05 (" in read_moderator_prompt(hall_run, "4") and "list" in read_moderator_prompt(
        hall_run, "4"
    )
    assert "A05 (" not in read_moderator_prompt(
        hall_run, "unlisted"
    ) and "list" not in read_moderator_prompt(hall_run, "unlisted")
    assert hall_run[0].table("rounds").filter(level="unlisted")["is_vulnerable"].any()


def test_shuffled_labels_change_the_list_and_the_count_and_no_person(
    hall_run: tuple[Run, ScriptedProvider],
) -> None:
    assert read_system_prompts(hall_run, "placebo") == read_system_prompts(hall_run, "4")
    listed = re.findall(
        r"(A\d+) \(\w+\) is the profile", read_moderator_prompt(hall_run, "placebo")
    )
    rows = hall_run[0].table("rounds").filter(level="placebo", set=1)
    counted = rows.filter("is_vulnerable")["agent_id"].unique(maintain_order=True).to_list()
    assert len(listed) == 4 and sorted(listed) == sorted(counted)
    drawn = {
        tuple(
            hall_run[0].table("rounds").filter(level="placebo", set=n).filter("is_vulnerable")[
                "agent_id"
            ].unique(maintain_order=True)
        )
        for n in (1, 2)
    }  # fmt: skip
    assert len(drawn) == 2 and drawn != {VULNERABLE}
    says = next(f.says for f in compute_findings(hall_run[0].folder) if f.key == "inclusion")
    described = "(own sessions, 5 models, moderator)"
    drawn_at_random = "the residents drawn at random as vulnerable scored"
    assert f"At level placebo {described} {drawn_at_random}" in says
    assert "a placebo gap of" in says
    assert f"At level bare {described} no vulnerable residents" in says


def test_life_stories_of_all_are_of_one_length(hall_run: tuple[Run, ScriptedProvider]) -> None:
    main, told, untold = (
        read_system_prompts(hall_run, level) for level in ("4", "stories", "untold")
    )
    own = 7  # You live alone on the ground floor.
    for who in main:
        more = len(told[who].split()) - len(main[who].split())
        assert (more == 0) == (who in VULNERABLE)
        less = len(main[who].split()) - len(untold[who].split())
        assert less == (own if who in VULNERABLE else 0)
        if who not in VULNERABLE:
            assert 0 < more <= 20  # one sentence at least


def test_stories_are_as_long_as_the_built_in_ones_and_fit(tmp_path: Path) -> None:
    level = {"long": {"stories": "all"}}
    settings = small_hall(tmp_path) | {"vulnerable": "builtin", "levels": ["long"], "rounds": 1}
    settings |= {"level_settings": level, "residents": {"general": 30}}
    model = make_model(keep=True)
    run_hall(tmp_path, settings, model)
    lengths, texts = [], []
    for address, request in model.seen:
        if "/before/A" in address and address.split("/")[-2] <= "A30":
            text = request.messages[0].content.split("\n")[0]
            story = text.split("putting the community first.")[1].strip()
            lengths.append(len(story.split()))
            texts.append(text)
    built_in = [len(p.story.split()) for p in load_profiles(["builtin"], tmp_path)]
    mean = sum(built_in) / 4
    assert all(abs(n - mean) <= 10 for n in lengths) and abs(sum(lengths) / 30 - mean) < 4
    for text in texts:
        retired = any(s in text for s in STORIES["work"]["retired"])
        assert retired == (", retired " in text)
    assert len(set(texts)) == 30


@pytest.mark.nightly(part="truths")
def test_a_placebo_has_no_gap_on_average(tmp_path: Path) -> None:
    """Reactions that favour the vulnerable give a gap. Shuffled labels give none."""
    settings = small_hall(tmp_path) | {
        "levels": ["2-1", "placebo"],
        "level_settings": {"placebo": {"labels": "shuffled"}},
        "sets": 8,
    }
    found = run_hall(tmp_path, settings, make_model(by_hand)).table("discussions")
    gap = pl.col("gap_weighted_inclusivity_score")
    real = found.filter(level="2-1").select(gap.mean()).item()
    placebo = found.filter(level="placebo").select(gap.mean()).item()
    assert real == pytest.approx(18 / 16 - 9 / 24)
    assert abs(placebo) < real / 2


def make_config(**settings: Any) -> TownHallConfig:
    topic = {"title": "Shall it be built?", "background": "A plan."}
    return TownHallConfig.model_validate({"topic": topic, **settings})


def test_a_level_may_be_like_another() -> None:
    settings = {**CONTROLS, "5": {"like": "placebo", "think": False}}
    (found,) = levels_of(make_config(levels=["5"], level_settings=settings))
    assert found.is_moderated and len(found.models) == 5 and not found.think
    assert found.labels == "shuffled" and found.part == "main"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"a": {"like": "b"}, "b": {"like": "a"}}, "level_settings.a.like"),
        ({"a": {"like": "a"}}, "level_settings.a.like"),
        ({"a": {"like": "44"}}, "level_settings.a.like"),
        ({"a": {"labels": "shuffled", "vulnerable": False}}, "level_settings.a.labels"),
    ],
)
def test_controls_that_cannot_be_are_named(settings: dict[str, Any], key: str) -> None:
    found = level_problems(make_config(levels=["a"], level_settings=settings), 4)
    assert found[0].key == key and found[0].hint
