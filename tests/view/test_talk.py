"""Conversations: every word has its call, every call its speaker, and nobody gets another's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from folkmoot.engine.journal import JournalReader
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.view.people import KEY, count_of, frame, matching, names_in, people_of, table_of
from folkmoot.view.person import person
from folkmoot.view.talk import (
    asked,
    base_of,
    drawer,
    fields_of,
    in_room,
    place_of,
    room_columns,
    rooms,
)
from tests.view.conftest import reader

ROOMS = {
    "focus_group": ("group", "stimulus"),
    "negotiation": ("group_id", "condition"),
    "town_hall": ("discussion_id",),
    "workbook": ("experiment_id", "session"),
}
PEOPLE = {
    "cross_pollination": ("participant_id",),
    "focus_group": ("group", "persona_id"),
    "negotiation": ("group_id", "member_id"),
    "town_hall": ("discussion_id", "agent_id"),
    "workbook": ("experiment_id", "session", "participant_id"),
}


@pytest.mark.parametrize("study", ROOMS)
def test_every_utterance_that_a_model_wrote_has_its_call(outputs: Path, study: str) -> None:
    run = RunFolder(outputs / study)
    columns = room_columns(run)
    assert columns == ROOMS[study]
    table = run.table("utterances")
    with JournalReader(run.path / JOURNAL) as journal:
        for room in rooms(run, columns):
            lines = in_room(run, journal, columns, room.key, names_in(run, room.key))
            heard = [line for line in lines if not line.private]
            same = [pl.col(c).cast(pl.String) == v for c, v in zip(columns, room.key, strict=True)]
            rows = table.filter(*same).to_dicts()
            assert [line.text for line in heard] == [row["text"] or "" for row in rows]
            thought = [line.address for line in lines if line.private]
            assert not set(thought) & {line.address for line in heard}
            for line, row in zip(heard, rows, strict=True):
                if row["finish"] and row["text"]:
                    assert line.address, (room.key, row)
                if line.address:
                    found = drawer(run, journal, line.address)
                    assert found is not None
                    words = "".join(json.dumps(line.text, ensure_ascii=False)[1:-1].split())
                    replies = "".join("".join(e.reply.split()) for e in found.tries)
                    assert (
                        words in replies
                        or row["speaker_id" if "speaker_id" in row else "speaker"] == "System"
                    )
                    role = (row.get("role") or row.get("speaker_role") or "").casefold()
                    if role and found.asked and "moderator" in (role, found.asked.role):
                        assert role == found.asked.role


@pytest.mark.parametrize("study", PEOPLE)
def test_every_answer_of_a_participant_is_on_one_persons_page(outputs: Path, study: str) -> None:
    run = RunFolder(outputs / study)
    people = people_of(run)
    assert people.keys == PEOPLE[study]
    answers = run.table("answers").filter(role="participant")
    shared = answers.filter(speaker_id="session")  # level 1: one call speaks for all
    wanted = set(answers["address"]) - set(shared["address"])
    found: list[str] = []
    keys = frame(run, people).select(KEY).collect()[KEY].to_list()
    assert len(set(keys)) == len(keys) == count_of(run)
    for key in keys:
        found += [said.address for said in person(run, key).talk if said.own]
    assert set(found) == wanted
    if study != "negotiation":  # a preference is stated once for all conditions
        assert len(found) == len(wanted)


def test_a_decision_has_its_outcome_and_what_stood_in_the_prompt(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    for row in run.table("participants").to_dicts():
        found = person(run, row["participant_id"])
        first, last = found.decisions[0], found.decisions[-1]
        assert (first.outcome, last.outcome) == (row["initial_choice"], row["final_choice"])
        kinds = {s.kind for s in last.shown if s.texts}
        exposure = run.table("exposure").filter(address=last.address)
        assert kinds == set(exposure.filter(pl.col("texts") > 0)["kind"])
        assert not any(s.wrong for d in found.decisions for s in d.shown)


def test_who_reacted_to_whom_is_told_by_name_round_by_round(outputs: Path) -> None:
    run = RunFolder(outputs / "town_hall")
    names = names_in(run, ["set01_lv4"])
    with JournalReader(run.path / JOURNAL) as journal:
        lines = in_room(run, journal, ["discussion_id"], ["set01_lv4"], names)
    told = {
        (line.part, line.speaker_id, kind, whom)
        for line in lines
        for kind, many in line.reactions
        for whom in many
    }
    rows = run.table("reactions").filter(pl.col("discussion_id") == "set01_lv4")
    spoke = {(line.part, line.speaker_id) for line in lines if not line.private}
    wanted = {
        (f"round {r['round']}", r["speaker"], r["reaction"], names[r["target"]])
        for r in rows.filter(pl.col("reaction") != "ignore").to_dicts()
    }
    assert told == {row for row in wanted if row[:2] in spoke} and told


def test_tries_are_of_one_question() -> None:
    assert base_of("a/p_1/ask2.r1") == base_of("a/p_1/ask2.long") == "a/p_1/ask2"
    assert base_of("ask0.r2") == "ask0"
    assert base_of("game.3/1/1.16/ask0") == "game.3/1/1.16/ask0"  # ids may have points
    assert place_of("first_vote/p_0001/ask0", ["p_0001"]) == "first vote"
    assert place_of("talk/a%2Fb/p_0001/ask0") == "talk · a/b · p_0001"


def test_fields_are_those_of_objects_alone() -> None:
    assert fields_of('{"a": "x", "b": [1, 2], "c": {"d_e": null}}') == (
        ("a", "x"), ("b", "[1, 2]"), ("c", "d e: null"),
    )  # fmt: skip
    for text in ("", "plain", "[1]", "{", '"{}"', "{}"):
        assert fields_of(text) == ()


def test_a_column_that_was_renamed_is_read_in_older_runs(outputs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "tables").mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps({}))
    table = RunFolder(outputs / "town_hall").table("answers").rename({"parse_step": "rung"})
    table.write_parquet(run / "tables" / "answers.parquet")
    address = table["address"][0]
    assert asked(RunFolder(run), [address])[address].parse_step == table["rung"][0]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("", [0, 1, 2]), ("x-y", [0]), ("q(1)", [1]), ("Ü", [2]), ("n>=2", [1, 2]), ("n=40", [2]),
        ('"ü ä"', [2]), ("a=q(1)", [1]), ('a="ü ä"', [2]), ("n!=1", [1, 2]), ("zz", []), ("[", []),
        ("n>1 n<9", [1]), ("flag=true", [0]), ("none!=x", [0, 1, 2]), ("\\", []), ("n>x", []),
    ],
)  # fmt: skip
def test_a_query_means_what_it_says(query: str, rows: list[int]) -> None:
    data = {
        "a": ["x-y", "Q(1)", "ü ä"], "n": [1, 2, 40], "flag": [True, False, None],
        "none": [None, None, None],
    }  # fmt: skip
    frame_ = pl.LazyFrame(data, schema_overrides={"none": pl.String}).with_row_index("at")
    assert matching(frame_, query).collect()["at"].to_list() == rows


def test_pages_of_the_table_hold_everybody_once(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    whole = table_of(run, "", "-demographic_age", 0, 1000)
    pages = [table_of(run, "", "-demographic_age", start, 7) for start in range(0, whole.total, 7)]
    assert [key for page in pages for key, _ in page.rows] == [key for key, _ in whole.rows]
    ages = [row["demographic_age"] for _, row in whole.rows]
    assert ages == sorted(ages, reverse=True) and whole.total == len(ages) == whole.all


def test_who_has_such_a_row_in_another_table_is_found(outputs: Path) -> None:
    run = RunFolder(outputs / "town_hall")
    rounds = run.table("rounds")
    stance = rounds["overall_stance"][0]
    having = rounds.filter(pl.col("overall_stance") == stance)
    wanted = {f"{d}/{a}" for d, a in having.select("discussion_id", "agent_id").iter_rows()}
    query = f"rounds.overall_stance={stance}"
    found = table_of(run, query, "", 0, 1000)
    assert {key for key, _ in found.rows} == wanted and 0 < len(wanted) < found.all
    assert found.total == len(wanted)
    assert table_of(run, f"{query} discussion_id=set01_lv1", "", 0, 9).total < len(wanted)
    assert table_of(run, f"rounds.nothing={stance}", "", 0, 9).total == 0  # no column: words


def test_people_are_sorted_by_the_mean_of_their_rows(outputs: Path) -> None:
    run = RunFolder(outputs / "focus_group")
    means = run.table("intents").group_by("group", "persona_id").agg(pl.col("score").mean())
    wanted = {f"{group}/{who}": mean for group, who, mean in means.iter_rows()}
    found = table_of(run, "", "-intents.score", 0, 1000)
    assert {key: row["intents.score"] for key, row in found.rows} == pytest.approx(wanted)
    scores = [row["intents.score"] for _, row in found.rows]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1
    assert found.columns[1] == "intents.score" and "score" in dict(found.others)["intents"]


def test_who_leads_a_talk_shares_a_colour_with_nobody(outputs: Path) -> None:
    article = re.compile(r'<article class="said (c\w+).*?<b>(.*?)</b>', re.S)
    with reader(outputs) as server:
        for room in ("focus_group/-/room?id=group_001&id=oven", "town_hall/-/room?id=set01_lv4"):
            found = set(article.findall(server.get(f"/run/{room}").text))
            colours = {name: colour for colour, name in found}
            leaders = {name for name in colours if name.lower() == "moderator"}
            assert len(leaders) == 1 and len(colours) > 2
            others = {colour for name, colour in colours.items() if name not in leaders}
            assert {colours[name] for name in leaders}.isdisjoint(others)
            assert len(others) == min(8, len(colours) - 1)


def test_words_that_were_withdrawn_are_called_so(copy: Path) -> None:
    path = copy / "tables" / "utterances.parquet"
    said = pl.read_parquet(path)
    own = (pl.col("role") == "participant") & (pl.col("stimulus") == "oven")
    mark = pl.when(own).then(pl.lit("[withdrawn 0123456789ab]")).otherwise(pl.col("text"))
    said.with_columns(mark.alias("text")).write_parquet(path)
    with reader(copy.parent) as server:
        room = server.get("/run/copy/-/room?id=group_001&id=oven").text
    articles = [part for part in room.split("<article")[1:] if "[withdrawn 0123456789ab]" in part]
    assert articles
    for article in articles:
        assert "withdrawn by the speaker" in article and "worded by the protocol" not in article
