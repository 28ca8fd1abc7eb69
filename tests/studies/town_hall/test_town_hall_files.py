"""The output of a run: the source's files, tables, logs, findings and transcripts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot import Run
from folkmoot.errors import InputError, RunPausedError
from folkmoot.kit.calls import JournalReader
from folkmoot.models.request import ModelRequest
from folkmoot.report.document.document import build_document
from folkmoot.storage.findings import Heatmap, IntervalChart
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall import STUDY
from folkmoot.studies.town_hall.files import FILES
from folkmoot.studies.town_hall.measures import measure_survival
from tests.conftest import SharedFolder
from tests.shown import render_run_text

from .hall_script import (
    CallKey,
    answer_in_any_session,
    answer_plainly,
    make_model,
    parse_address,
    run_hall,
    small_hall,
)


@pytest.fixture(scope="session")
def hall_run(shared_folder: SharedFolder) -> Run:
    def make(folder: Path) -> None:
        settings = small_hall(folder) | {
            "levels": ["1", "2-1", "2-2", "4"],
            "sets": 2,
            "log_texts": "full",
            "reaction_levels": {},
        }
        run_hall(folder, settings, make_model(answer_in_any_session()))

    return folkmoot.load(shared_folder("hall/files", make) / "run")


def test_the_seven_files_of_each_discussion(hall_run: Run) -> None:
    for name in hall_run.table("discussions")["discussion_id"]:
        found = {p.stem for p in (hall_run.path / name).glob("*.json")}
        assert found == set(FILES)
        for file in FILES:
            assert hall_run.folder.read_json(f"{name}/{file}.json")["discussion_id"] == name
    assert "set02_lv2-1" in hall_run.table("discussions")["discussion_id"].to_list()


def test_a_run_without_files_gets_them_again_from_its_tables(hall_run: Run, tmp_path: Path) -> None:
    tables_alone = tmp_path / "run"
    shutil.copytree(hall_run.path / "tables", tables_alone / "tables")
    for name in ("study.yaml", "plan.json", "journal.sqlite"):
        shutil.copy(hall_run.path / name, tables_alone)
    run = RunFolder(tables_alone)
    with JournalReader(tables_alone / "journal.sqlite") as journal:
        made = dict(STUDY.derived(run, journal))
    assert len(made) == 8 * len(FILES) + 3
    for name, content in made.items():
        assert content == hall_run.folder.read_json(name), name


def test_a_paused_run_has_the_files_of_its_complete_sets(tmp_path: Path) -> None:
    # A discussion takes 57 calls, so that the third of three does not come to its end.
    settings = small_hall(tmp_path) | {"sets": 3, "budget_calls": 130}
    with pytest.raises(RunPausedError):
        run_hall(tmp_path, settings, make_model(answer_plainly))
    found = {p.relative_to(tmp_path / "run") for p in (tmp_path / "run").glob("set*/*.json")}
    complete = ("set01_lv2-1", "set02_lv2-1")
    assert found == {Path(name, f"{file}.json") for name in complete for file in FILES}
    assert RunFolder(tmp_path / "run").read_json("levels.json")["sets"] == 2


def test_all_levels_of_a_set_have_the_same_residents_and_orders(hall_run: Run) -> None:
    logs = [
        hall_run.folder.read_json(f"set01_lv{x}/discussion_log.json")
        for x in ("1", "2-1", "2-2", "4")
    ]
    for log in logs[1:]:
        for mine, first in zip(log["residents"], logs[0]["residents"], strict=True):
            assert {**mine, "seat_model": ""} == {**first, "seat_model": ""}
        orders = [r["speaking_order"] for r in log["rounds"]]
        assert orders == [r["speaking_order"] for r in logs[0]["rounds"]]
    other = hall_run.folder.read_json("set02_lv1/discussion_log.json")
    assert other["residents"][0] != logs[0]["residents"][0]
    # The seats are in the plan, which is sealed before the first call.
    seats = hall_run.folder.plan["sealed"]["discussions"]["data"]["seats"]["set01_lv4"]
    assert len({seats["A04"], seats["A05"]}) == 2


def test_every_column_has_a_meaning(hall_run: Run) -> None:
    for table, entry in hall_run.folder.codebook().items():
        empty = [name for name, column in entry["columns"].items() if not column["meaning"]]
        assert not empty, (table, empty)


def read_log_entries(hall_run: Run, name: str) -> Iterator[dict[str, Any]]:
    (file,) = (hall_run.path / "logs").glob(f"{name}_2*[0-9].jsonl")
    for line in file.read_text("utf-8").splitlines():
        yield json.loads(line)


def test_logs_have_the_fields_of_the_source(hall_run: Run) -> None:
    found = list(read_log_entries(hall_run, "set01_lv4"))
    for entry in found:
        assert list(entry) == ["timestamp", "level", "component", "action", "data", "context"]
        assert list(entry["context"]) == ["set_id", "level", "discussion_id", "round", "agent_id"]
        assert entry["timestamp"]
    calls = [e for e in found if e["level"] == "DEBUG" and e["action"] != "memory_changed"]
    # 3 · 5 · 2 turns, 2 · 5 reflections, 3 · 5 votes and surveys, 3 moderations, planner twice.
    assert len(calls) == 30 + 10 + 15 + 3 + 2
    wanted = {"model", "memory_length", "question_preview", "response_preview", "latency"}
    assert all(
        wanted | {"tokens", "question_full", "response_full"} <= set(e["data"]) for e in calls
    )
    starts = [e["context"]["round"] for e in found if e["action"] == "round_started"]
    assert starts == [1, 2, 3]
    assert {e["component"] for e in calls} == {"resident", "moderator", "planner"}


def test_logs_tell_how_memories_change(hall_run: Run) -> None:
    found = list(read_log_entries(hall_run, "set01_lv4"))
    kept = {
        (e["context"]["round"], e["context"]["agent_id"]): e["data"]
        for e in found
        if e["action"] == "memory_changed"
    }
    assert len(kept) == 3 * 5
    assert kept[2, "A03"] == {"memory_length": 3, "added": ["own statement", "reflection"]}
    thoughts = [e for e in found if e["action"] == "think" and e["context"]["round"] > 1]
    assert len(thoughts) == 2 * 5
    for entry in thoughts:
        before = kept[entry["context"]["round"] - 1, entry["context"]["agent_id"]]
        assert entry["data"]["memory_length"] == before["memory_length"]
    shared = read_log_entries(hall_run, "set01_lv1")
    assert not any(e["action"] == "memory_changed" for e in shared)


def test_findings_say_what_the_files_hold(hall_run: Run) -> None:
    found = {f.key: f for f in hall_run.findings}
    assert {k for k, f in found.items() if f.headline} == {"inclusion", "steps", "outcome"}
    levels = [row[0] for row in found["inclusion"].grid.rows]
    assert levels == ["1", "2-1", "4"]  # the replication is apart
    assert "2-2" in found["replication"].says
    assert "quality" in found and "all_measures" in found


def test_responses_between_residents_are_counted_from_the_reactions(hall_run: Run) -> None:
    found = {f.key: f for f in hall_run.findings}
    reactions = hall_run.table("reactions").filter(part="main", set=1)
    for level in ("1", "2-1", "4"):
        finding = found[f"who_responded_{level}"]
        assert isinstance(finding.chart, Heatmap)
        answered = reactions.filter(pl.col("level") == level, pl.col("reaction") != "ignore")
        assert sum(n for _, _, n in finding.chart.items) == answered.height
        vulnerable = {c for _, c, _ in finding.chart.items if c.endswith("*")}
        assert len(vulnerable) == reactions.filter(pl.col("target_vulnerable"))["target"].n_unique()
        received = dict(answered.group_by("target").len().iter_rows())
        column = finding.grid.columns.index("received")
        for row in finding.grid.rows:
            assert row[column] == received.get(str(row[0]).rstrip("*"), 0)
    assert "who_responded_2-2" not in found  # the replication is reported apart


def test_show_lists_reads_and_refuses(hall_run: Run) -> None:
    listed = render_run_text(hall_run.folder)
    assert listed.count("items passed") == 8
    talk = render_run_text(hall_run.folder, "set01_lv4")
    assert "A03 speaks in round 2." in talk and "The moderator sums up round 3." in talk
    assert re.search(r"A04 \w+ is the profile 0", talk) and "passed" in talk
    one = render_run_text(hall_run.folder, "set01_lv1/A05")
    assert "profile 1" in one and "A05 speaks in round 1." in one and "A03 speaks" not in one
    for who in ("set09_lv4", "set01_lv4/A99"):
        with pytest.raises(InputError, match=f"{who} is not in this run"):
            render_run_text(hall_run.folder, who)


def test_one_set_has_no_intervals_and_says_so(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"levels": ["2-1", "4"], "rounds": 2}
    hall_run = run_hall(tmp_path, settings, make_model(answer_plainly))
    row = (
        hall_run.table("levels")
        .filter(figure="weighted_inclusivity_score", group="gap")
        .to_dicts()[0]
    )
    assert row["estimate"] == 0 and row["low"] is None and row["high"] is None
    says = next(f for f in hall_run.findings if f.key == "inclusion").says
    assert says.count("a gap of 0.00 (no interval)") == 2


def test_a_tie_fails_and_is_said_to(tmp_path: Path) -> None:
    def even(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] == "vote" and key[1] in ("A01", "A02"):
            return {item: {"vote": "no", "reason": ""} for item in said}
        if key[0] == "vote" and key[1] == "A05":
            return "I abstain."
        return said

    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"rounds": 1}, make_model(even))
    voting = hall_run.folder.read_json("set01_lv2-1/voting_results.json")
    (item,) = voting["items"]
    assert (item["yes"], item["no"], item["uncast"]) == (2, 2, 1)
    assert item["tie"] is True and item["passed"] is False
    assert "a tie fails" in voting["rule"]
    assert hall_run.table("discussions")["ties_failed"].to_list() == [1]


def test_an_item_without_a_yes_or_no_has_no_outcome(tmp_path: Path) -> None:
    def unclear(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] == "vote":
            return {item: {"vote": "Maybe this", "reason": ""} for item in said}
        return said

    model = make_model(unclear, keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"rounds": 1}, model)
    voting = hall_run.folder.read_json("set01_lv2-1/voting_results.json")
    (item,) = voting["items"]
    assert (item["yes"], item["no"], item["passed"], item["tie"]) == (0, 0, None, False)
    discussion = hall_run.table("discussions").row(0, named=True)
    assert (discussion["items_passed"], discussion["ties_failed"]) == (0, 0)
    rates = [name for name in discussion if name.endswith("_opinion_reflection_rate")]
    assert rates and all(discussion[name] is None for name in rates)
    told = [
        line
        for _, request in model.seen
        for message in request.messages
        for line in message.content.splitlines()
        if "0 yes to 0 no" in line
    ]
    assert told and all("(undecided, 0 yes to 0 no)" in line for line in told)


def test_moderator_words_and_dropped_ids(tmp_path: Path) -> None:
    def invites(key: CallKey, request: ModelRequest) -> Any:
        said = answer_plainly(key, request)
        if key[0] == "moderator":
            said["invited_residents"] = ["a5", "A99", "A05"]
            said["overlooked_concerns"] = [{"resident": "A04", "concern": "rent"}]
        return said

    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"levels": ["4"]}, make_model(invites))
    said = hall_run.folder.read_json("set01_lv4/discussion_log.json")["rounds"][0]["moderator"]
    assert said["invited_residents"] == ["A05"]
    assert said["overlooked_concerns"] == [{"resident": "A04", "concern": "rent"}]
    quality = hall_run.folder.read_json("set01_lv4/metrics_summary.json")["quality"]
    assert quality["dropped"] == {"unknown_id": 3} and quality["repaired"] == {"spelling": 3}
    # The moderator has no vote.
    assert hall_run.table("votes")["agent_id"].to_list() == ["A01", "A02", "A03", "A04", "A05"]


@pytest.mark.nightly(part="sweeps")
def test_every_combination_of_switches_runs(tmp_path: Path) -> None:
    """Switches are independent of each other. A stage that is off writes no rows."""
    levels = {
        f"{context}-{moderator}-{think}-{reflect}": {
            "context": context,
            "moderator": moderator,
            "think": think,
            "reflect": reflect,
        }
        for context in ("shared", "separate")
        for moderator in ("none", "model")
        for think in (True, False)
        for reflect in (True, False)
    }

    def answer(key: CallKey, request: ModelRequest) -> Any:
        # Without THINK the one call of a turn is SPEAK, as its schema tells.
        speaks = "full_statement" in (request.schema or {}).get("properties", {})
        return answer_in_any_session()(("speak", *key[1:]) if speaks else key, request)

    settings = small_hall(tmp_path) | {"levels": list(levels), "level_settings": levels}
    hall_run = run_hall(tmp_path, settings, make_model(answer))
    for name, switches in levels.items():
        rows = hall_run.table("rounds").filter(level=name)
        quality = hall_run.folder.read_json(f"set01_lv{name}/metrics_summary.json")["quality"]
        assert quality["minimal_structures"] == 0 and quality["statements_unread"] == 0
        assert (rows["overall_stance"].null_count() == 0) == switches["think"]
        assert rows["change_type"].drop_nulls().len() == (10 if switches["reflect"] else 0)
        said = hall_run.table("utterances").filter(level=name, speaker_role="moderator")
        assert said.height == (3 if switches["moderator"] == "model" else 0)


def test_a_single_round_has_nothing_to_react_to(tmp_path: Path) -> None:
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"rounds": 1}, make_model(answer_plainly))
    found = hall_run.folder.read_json("set01_lv2-1/metrics_summary.json")["vulnerable"]
    assert found["total_possible_reactions"] == 0
    for name in ("weighted_inclusivity_score", "positive_reaction_ratio", "opinion_survival"):
        assert found[name] is None
    assert hall_run.folder.read_json("set01_lv2-1/reflection_log.json")["rounds"] == []
    assert hall_run.findings


def test_a_replication_alone_is_the_headline(tmp_path: Path) -> None:
    hall_run = run_hall(
        tmp_path,
        small_hall(tmp_path) | {"levels": ["2-2"], "rounds": 1},
        make_model(answer_plainly),
    )
    assert [f.key for f in hall_run.findings if f.headline] == ["replication"]
    assert hall_run.folder.read_json("levels.json")["main"]["levels"] == {}


def test_logs_are_there_while_a_discussion_goes_on(tmp_path: Path) -> None:
    """Each round is in the log before the next one begins."""
    seen: dict[int, list[str]] = {}

    def looking(key: CallKey, request: ModelRequest) -> Any:
        if key[0] == "think" and key[2]:
            logs = list((tmp_path / "run" / "logs").glob("set01*.jsonl"))
            lines = logs[0].read_text("utf-8").splitlines() if logs else []
            seen[key[2]] = [json.loads(line)["action"] for line in lines]
        return answer_plainly(key, request)

    settings = small_hall(tmp_path) | {"log_level": "INFO"}
    hall_run = run_hall(tmp_path, settings, make_model(looking))
    assert seen[1] == [] and seen[2].count("round_ended") == 1
    assert seen[3].count("round_ended") == 2 and "discussion_ended" not in seen[3]
    assert {e["level"] for e in read_log_entries(hall_run, "set01_lv2-1")} == {"INFO"}
    summary = hall_run.folder.read_json("logs/summary.json")
    assert summary["discussions"]["set01_lv2-1"]["calls"] == 57
    assert summary["models"]["scripted"]["calls"] == 57


FINDINGS_OVER_SETS = {
    *("inclusion", "steps", "outcome", "satisfaction", "spectrum", "stances", "all_measures"),
    "replication",
}


def test_the_first_page_says_what_the_levels_are(hall_run: Run) -> None:
    front = build_document(hall_run.folder).front
    assert front is not None
    assert front.lanes[0].arm == "Level 1 (shared session)"
    assert "2-1 (own sessions), 2-2 (own sessions)" in front.lanes[1].arm
    assert front.lanes[-1].arm.endswith(", moderator)")
    assert all("level 2-1 (own sessions)" in contrast.answer for contrast in front.contrasts)


def test_two_sets_are_an_illustration_without_intervals_or_tests(hall_run: Run) -> None:
    found = {f.key: f for f in hall_run.findings}
    assert {key for key, f in found.items() if f.unit == "set"} == FINDINGS_OVER_SETS
    for key in FINDINGS_OVER_SETS:
        finding = found[key]
        assert finding.says.startswith("An illustration, not evidence: 2 sets."), key
        assert " to +" not in finding.says and "p = " not in finding.says
        assert "significant" not in finding.says
        for name, cells in zip(
            finding.grid.columns, zip(*finding.grid.rows, strict=True), strict=True
        ):
            if name.split("_")[-1] in ("low", "high", "p") or name in ("low_share", "high_share"):
                assert set(cells) == {None}, (key, name)
        if isinstance(finding.chart, IntervalChart):
            assert all(low == value == high for _, value, low, high in finding.chart.items)
            assert len(finding.chart.unit_values) == 2 * len(finding.chart.items)


@pytest.mark.nightly(part="truths")
def test_from_five_sets_on_interval_and_test_agree(tmp_path: Path) -> None:
    settings = small_hall(tmp_path) | {"sets": 5, "levels": ["1", "2-1", "4"], "rounds": 2}
    path = tmp_path / "hall.yaml"
    path.write_text(json.dumps({"study": "town_hall", **settings}), "utf-8")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    tested = run.table("differences").filter(pl.col("p").is_not_null())
    apart = (pl.col("low") > 0) | (pl.col("high") < 0)
    assert tested.height > 50
    assert tested.filter(apart != (pl.col("p") < 0.05)).is_empty()
    found = {f.key: f for f in run.findings}
    for key in FINDINGS_OVER_SETS - {"replication"}:
        assert found[key].units == 5 and "illustration" not in found[key].says
    steps = found["steps"]
    rows = [dict(zip(steps.grid.columns, row, strict=True)) for row in steps.grid.rows]
    assert len(rows) == 3 and all(row["adjusted_p"] >= row["p"] for row in rows)
    assert any("Holm" in note for note in steps.notes) and "adjusted p" in steps.says
    assert " to +" in found["satisfaction"].says and " %) at level 4" in found["spectrum"].says
    # All five sets came out alike: five of five are Wilson's 57 to 100 %.
    assert "(57 to 100 %) at level 1" in found["outcome"].says


def test_without_a_readable_ballot_nobody_is_told_of_a_vote(tmp_path: Path) -> None:
    def unreadable(key: CallKey, request: ModelRequest) -> Any:
        return "Let us all be kind." if key[0] == "plan" else answer_plainly(key, request)

    model = make_model(unreadable, keep=True)
    hall_run = run_hall(tmp_path, small_hall(tmp_path) | {"rounds": 1}, model)
    asked = {
        part: [
            request.messages[-1].content
            for address, request in model.seen
            if parse_address(address)[0] == part
        ]
        for part in ("vote", "consensus", "after")
    }
    assert not asked["vote"] and asked["consensus"] and asked["after"]
    for prompt in (*asked["consensus"], *asked["after"]):
        assert "No vote was held, because there was no ballot." in prompt
        assert "came out" not in prompt
    (outcome,) = (finding for finding in hall_run.findings if finding.key == "outcome")
    assert "not known (no ballot could be read)" in outcome.says


def test_who_said_nothing_that_could_be_read_has_no_opinion_to_survive(tmp_path: Path) -> None:
    def mute(key: CallKey, request: ModelRequest) -> Any:
        stage, who, _ = key
        said = answer_plainly(key, request)
        if stage != "speak":
            return said
        return "…" if who == "A02" else {**said, "full_statement": "我觉得太贵了，但是很方便。"}

    hall_run = run_hall(tmp_path, small_hall(tmp_path), make_model(mute))
    survived = dict(
        measure_survival({"rounds": hall_run.table("rounds")})
        .select("agent_id", "survival")
        .iter_rows()
    )
    assert survived.pop("A02") is None and set(survived.values()) == {0}
    # Statements in a script without spaces are counted by letters.
    others = hall_run.table("rounds").filter(pl.col("agent_id") != "A02")
    assert others.height == 3 * 4 and set(others["words"]) == {11}


def test_an_unknown_stance_costs_no_reaction(tmp_path: Path) -> None:
    def undecided(key: CallKey, request: ModelRequest) -> Any:
        stage, who, round_no = key
        said = answer_plainly(key, request)
        if who != "A01" or stage not in ("think", "reflect"):
            return said
        if stage == "reflect":
            said["most_compelling"] = {"agent_id": "A02", "opinion_summary": "", "why": ""}
            said["stance_evolution"]["current_stance"] = "torn"
            return said
        reaction = {
            "target_agent": "A02",
            "target_summary": "",
            "my_feeling": "",
            "agree_level": 4,
            "reason": "",
            "want_to_respond": True,
        }
        reactions = {} if round_no == 1 else {"reactions": [reaction]}
        return {**said, **reactions, "overall_stance": "undecided"}

    hall_run = run_hall(tmp_path, small_hall(tmp_path), make_model(undecided))
    rows = hall_run.table("rounds").filter(agent_id="A01")
    assert rows["overall_stance"].null_count() == rows.height
    assert not rows["thinking_parse_error"].any()
    rounds = hall_run.folder.read_json("set01_lv2-1/reflection_log.json")["rounds"]
    (reflection,) = (r for r in rounds[0]["reflections"] if r["agent_id"] == "A01")
    assert reflection["most_compelling"]["agent_id"] == "A02"
    assert reflection["stance_evolution"]["current_stance"] is None
    turns = hall_run.folder.read_json("set01_lv2-1/discussion_log.json")["rounds"][1]["turns"]
    (turn,) = (turn for turn in turns if turn["agent_id"] == "A01")
    assert [entry["agree_level"] for entry in turn["thinking"]["reactions"]] == [4]
