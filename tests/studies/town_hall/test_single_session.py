"""Level 1: one reply per round, recorded like separate sessions, and split if it is too long."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from folkmoot import Run
from folkmoot.engine.run.dry_run import estimate_run
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import RefusedError
from folkmoot.kit.exposure import describe_deviations
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.town_hall.exposure_design import STATEMENTS

from .hall_script import (
    CallKey,
    answer_in_any_session,
    answer_in_one_session,
    answer_plainly,
    make_model,
    parse_address,
    run_hall,
    small_hall,
)
from .test_discussion_by_hand import answer_by_hand as by_hand


def test_same_answers_give_the_same_measures_at_level_1_and_2_1(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"levels": ["1", "2-1"]}
    run = run_hall(tmp_path, settings, make_model(answer_in_any_session(by_hand)))
    for name in ("metrics_summary", "reaction_spectrum", "vulnerable_tracking", "satisfaction"):
        a, b = (run.folder.read_json(f"set01_lv{level}/{name}.json") for level in ("1", "2-1"))
        for found in (a, b):
            for key in ("discussion_id", "level", "quality"):
                found.pop(key, None)
        assert a == b
    for name in ("rounds", "reactions", "votes"):
        a, b = (run.table(name).filter(level=level) for level in ("1", "2-1"))
        assert a.height
        assert a.drop("level", "discussion_id").equals(b.drop("level", "discussion_id"))
    # The words are the same, in one reply or in many.
    said = [
        run.table("utterances")
        .filter(level=level)
        .sort("round", "stage", "turn", "speaker_id", "addressee")
        .drop("level", "discussion_id", "utterance_id", "address", "scope", "finish")
        for level in ("1", "2-1")
    ]
    assert said[0].height and said[0].equals(said[1])


def test_a_round_may_be_two_lists_that_name_the_residents(tmp_path: Path) -> None:
    as_objects = answer_in_one_session(by_hand)
    counts: list[int] = []

    def as_lists(key: CallKey, request: ModelRequest) -> Any:
        reply = as_objects(key, request)
        if "turns" not in reply:
            return reply
        counts.append(len(reply))
        return {
            name: [{"resident": resident, **entry} for resident, entry in entries.items()]
            for name, entries in reply.items()
        }

    settings = small_hall(tmp_path) | {"levels": ["1"]}
    objects = run_hall(tmp_path / "objects", settings, make_model(as_objects))
    lists = run_hall(tmp_path / "lists", settings, make_model(as_lists))
    # One call for each round holds turns and reflections, and none of it is asked for again.
    assert 2 in counts
    assert lists.table("answers")["address"].equals(objects.table("answers")["address"])
    for name in ("rounds", "reactions", "votes", "utterances"):
        assert lists.table(name).equals(objects.table(name))


def test_a_round_is_one_call(plain_hall: Callable[[str], tuple[Run, ScriptedProvider]]) -> None:
    hall_run, model = plain_hall("1")
    stages = [parse_address(a)[0] for a, _ in model.seen]
    assert stages == [*["before"], *["session"] * 3, "plan", "vote", "consensus", "after"]
    log = hall_run.folder.read_json("set01_lv1/discussion_log.json")
    assert [r["calls_of_shared_session"] for r in log["rounds"]] == [1, 1, 1]
    reflections = hall_run.folder.read_json("set01_lv1/reflection_log.json")["rounds"]
    assert [len(r["reflections"]) for r in reflections] == [5, 5]


def test_too_long_a_round_is_split_and_said_so(tmp_path: Path) -> None:
    # About 750 tokens a resident in round 2 (four reactions and a reflection): two fit at a time.
    settings = small_hall(tmp_path) | {"levels": ["1"], "longest_shared_reply": 1200}
    model = make_model(answer_in_one_session(by_hand), keep=True)
    hall_run = run_hall(tmp_path, settings, model)
    rounds = hall_run.folder.read_json("set01_lv1/discussion_log.json")["rounds"]
    assert all(r["calls_of_shared_session"] > 1 for r in rounds)
    quality = hall_run.folder.read_json("set01_lv1/metrics_summary.json")["quality"]
    assert quality["rounds_split"] == 3 and quality["statements_unread"] == 0
    assert "one reply" in (hall_run.path / "run.log").read_text("utf-8")
    # What is measured is the same as when it is not split.
    found = hall_run.folder.read_json("set01_lv1/metrics_summary.json")["vulnerable"]
    assert found["weighted_inclusivity_score"] == 18 / 16
    later = [r.messages[-1].content for a, r in model.seen if "round1/session/ask1" in a]
    assert "speaks in round 1." in later[0]  # one context: the session knows what it has written
    assert "Nobody has spoken yet" not in later[0]
    # The exposure table records the split, which is no deviation from the design.
    shown = hall_run.table("exposure").filter(kind=STATEMENTS, decision="first statement")
    texts = dict(shown.group_by("address").agg(pl.col("texts").max()).iter_rows())
    assert [n for _, n in sorted(texts.items())] == [0, 3]
    looked_back = hall_run.table("exposure").filter(kind=STATEMENTS, decision="reflection")
    assert set(looked_back["texts"]) == {4, 8}  # of the others, in the rounds so far
    assert describe_deviations(hall_run.folder) == []


def test_residents_in_a_cut_reply_are_asked_again(tmp_path: Path) -> None:
    whole = answer_in_one_session(by_hand)

    def cut(key: CallKey, request: ModelRequest) -> Any:
        said = whole(key, request)
        if key == ("session", "session", 2) and "turns" in said:
            text = json.dumps(said)
            return text[: len(text) // 2]  # like a reply that ran into its token limit
        return said

    settings = small_hall(tmp_path) | {"levels": ["1"]}
    hall_run = run_hall(tmp_path, settings, make_model(cut))
    found = hall_run.folder.read_json("set01_lv1/metrics_summary.json")
    assert found["vulnerable"]["weighted_inclusivity_score"] == 18 / 16
    assert found["quality"]["parse_steps"]["repaired"] >= 1
    assert found["quality"]["calls_by_round"] == {"1": 1, "2": 3, "3": 1}
    assert found["quality"]["minimal_structures"] == 0


def test_a_refused_round_is_asked_for_again_and_not_called_too_long(tmp_path: Path) -> None:
    whole = answer_in_one_session(by_hand)
    refused: list[CallKey] = []

    def once(key: CallKey, request: ModelRequest) -> Any:
        if key == ("session", "session", 2) and not refused:
            refused.append(key)
            raise RefusedError("blocked", reason="filtered")
        return whole(key, request)

    settings = small_hall(tmp_path) | {"levels": ["1"]}
    hall_run = run_hall(tmp_path, settings, make_model(once))
    log = (hall_run.path / "run.log").read_text("utf-8")
    assert "the first reply was unusable (filtered)" in log and "too long" not in log
    found = hall_run.folder.read_json("set01_lv1/metrics_summary.json")
    assert found["vulnerable"]["weighted_inclusivity_score"] == 18 / 16


def test_residents_with_unreadable_answers_get_the_minimal_structure(tmp_path: Path) -> None:
    whole = answer_in_one_session(answer_plainly)

    def without_a03(key: CallKey, request: ModelRequest) -> Any:
        said = whole(key, request)
        if key[0] == "session":
            for part in (said, said.get("turns", {})):
                if "A03" in part:
                    part["A03"] = {"thinking": "none"}
        return said

    settings = small_hall(tmp_path) | {"levels": ["1"]}
    hall_run = run_hall(tmp_path, settings, make_model(without_a03))
    turns = hall_run.folder.read_json("set01_lv1/discussion_log.json")["rounds"][1]["turns"]
    by_id = {t["agent_id"]: t for t in turns}
    assert by_id["A03"]["speaking"]["_parse_error"] is True
    assert "_parse_error" not in by_id["A01"]["speaking"]
    quality = hall_run.folder.read_json("set01_lv1/metrics_summary.json")["quality"]
    assert quality["statements_unread"] == 3
    # A03 neither ignores nor is ignored: 4 · 3 pairs.
    assert hall_run.table("reactions").height == 2 * 4 * 3


def test_the_readable_half_of_a_turn_is_kept(tmp_path: Path) -> None:
    """Levels with two calls for thoughts and statement do the same."""
    whole = answer_in_one_session(answer_plainly)
    lost_half = {"A02": "thinking", "A03": "speaking"}

    def without_half(key: CallKey, request: ModelRequest) -> Any:
        said = whole(key, request)
        if key == ("session", "session", 2):
            for part in (said, said.get("turns", {})):
                for who, lost in lost_half.items():
                    if who in part and lost in part[who]:
                        part[who][lost] = {"full_statement": {"words": 3}}
        return said

    settings = small_hall(tmp_path) | {"levels": ["1"]}
    hall_run = run_hall(tmp_path, settings, make_model(without_half))
    turns = hall_run.folder.read_json("set01_lv1/discussion_log.json")["rounds"][1]["turns"]
    by_id = {turn["agent_id"]: turn for turn in turns}
    for who, lost in lost_half.items():
        turn, kept = by_id[who], "thinking" if lost == "speaking" else "speaking"
        assert turn[lost]["_parse_error"] is True and "_parse_error" not in turn[kept], who
        assert turn["thinking"]["overall_stance"] == ("neutral" if kept == "thinking" else None)
        spoken = f"{who} speaks in round 2." if kept == "speaking" else ""
        assert turn["speaking"]["full_statement"] == spoken
    quality = hall_run.folder.read_json("set01_lv1/metrics_summary.json")["quality"]
    assert quality["statements_unread"] == quality["thoughts_unread"] == 1
    assert quality["minimal_structures"] == 2
    assert quality["parse_steps"]["partial"] == 1  # one reply holds both


@pytest.mark.parametrize(
    ("model", "longest", "calls"), [("gpt-4o", 16_384, 3), ("gpt-5-mini", 32_000, 1)]
)
def test_a_round_too_long_for_the_model_is_planned_in_parts(
    tmp_path: Path, model: str, longest: int, calls: int
) -> None:
    """Twenty residents' round 2 with reflections takes about 31,500 tokens."""
    settings = small_hall(tmp_path, general=16, vulnerable=4)
    settings |= {"levels": ["1"], "rounds": 3, "model": model}
    asked = make_model(answer_in_one_session(), keep=True)
    hall_run = run_hall(tmp_path, settings, asked)
    log = hall_run.folder.read_json("set01_lv1/discussion_log.json")["rounds"]
    assert [r["calls_of_shared_session"] for r in log][1] == calls
    requests = [r for a, r in asked.seen if "/session/" in a]
    assert all(r.max_tokens == longest for r in requests)
    assert not any(a.endswith((".long", ".r1")) for a, _ in asked.seen)  # planned, not cut off


def test_the_check_counts_the_parts(tmp_path: Path) -> None:
    path = tmp_path / "hall.yaml"
    path.write_text(
        "study: town_hall\ntopic: {title: A, background: B}\nlevels: 1\nsets: 1\nrounds: 2\n",
        "utf-8",
    )
    found = load_study_file(path)
    assert estimate_run(found, "gpt-4o").calls > estimate_run(found, "gpt-5-mini").calls
