"""Conversations: every word has its call, every call its speaker, and nobody gets another's."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

import polars as pl
import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import Source, Span
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.view.people import (
    KEY_COLUMN,
    count_of,
    filter_rows,
    names_in,
    people_frame,
    people_of,
    table_of,
)
from folkmoot.view.person import find_person
from folkmoot.view.rooms import Line, find_rooms, in_room, room_columns
from folkmoot.view.sources import split_by_source
from folkmoot.view.talk import answers_by_address, base_of, build_call_view, fields_of, place_of
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
def test_every_utterance_has_the_call_of_its_address(outputs: Path, study: str) -> None:
    run = RunFolder(outputs / study)
    columns = room_columns(run)
    assert columns == ROOMS[study]
    table = run.read_table("utterances")
    answers = run.read_table("answers")
    with JournalReader(run.path / JOURNAL) as journal:
        for room in find_rooms(run, columns):
            lines = in_room(run, journal, columns, room.key, names_in(run, room.key))
            same = [pl.col(c).cast(pl.String) == v for c, v in zip(columns, room.key, strict=True)]
            rows = table.filter(*same)
            assert room.utterances == rows["public"].sum()
            spoken = rows.filter("public")
            if study == "town_hall":  # a round is recorded in the order of its residents
                spoken = spoken.sort("round", "turn", nulls_last=True, maintain_order=True)
            public = spoken.to_dicts()
            heard = [line for line in lines if not line.private]
            wanted = [(row["text"] or "", row["address"], row["speaker_id"]) for row in public]
            assert [(line.text, line.address, line.speaker_id) for line in heard] == wanted
            private = [line for line in lines if line.private]
            thought = [line.address for line in private if line.address not in set(rows["address"])]
            assert len(set(thought)) == len(thought)
            known = answers.filter(pl.col("address").is_in(thought))
            assert {
                (line.address, line.speaker_id) for line in private if line.address in thought
            } == {*known.select("address", "speaker_id").iter_rows()}
            for line in lines:
                assert line.prescribed == (line.address == "")
                assert not line.address or build_call_view(run, journal, line.address) is not None


def _room_of(run: Path, key: str, private: str = "&private=1") -> list[str]:
    """The utterances on the page of a room, each as HTML."""
    with reader(run.parent) as server:
        return server.get(f"/run/{run.name}/-/room?{key}{private}").text.split("<article")[1:]


def test_a_silent_public_turn_is_public_and_a_private_thought_is_private(copy: Path) -> None:
    path = copy / "tables" / "utterances.parquet"
    said = pl.read_parquet(path).with_row_index("n")
    turns = said.filter("public", speaker_role="participant", stimulus="oven", group="group_001")
    silent, thought = turns["n"][0], turns["n"][1]
    text = pl.when(n=silent).then(pl.lit("")).when(n=thought).then(pl.lit("My own thought."))
    said.with_columns(
        text.otherwise("text").alias("text"), (pl.col("public") & (pl.col("n") != thought))
    ).drop("n").write_parquet(path)
    heard = _room_of(copy, "id=group_001&id=oven", "")
    everything = _room_of(copy, "id=group_001&id=oven")
    quiet = [part for part in heard if ">silent<" in part]
    assert len(quiet) == 1 and "private" not in quiet[0] and "/call?at=" in quiet[0]
    assert not any("My own thought." in part for part in heard)
    own = [part for part in everything if "My own thought." in part]
    assert len(own) == 1 and '<span class="mark">private</span>' in own[0]


def test_a_prompt_is_drawn_by_source_and_leads_to_the_replies_in_it(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    spans = run.read_table("provenance")
    address = spans.filter(kind="utterance")["address"][-1]
    own = spans.filter(address=address)
    with reader(outputs) as server, JournalReader(run.path / JOURNAL) as journal:
        page = server.get(f"/run/cross_pollination/-/call?at={address}").text
        found = build_call_view(run, journal, address)
        assert found is not None
        entry, prompt = found.tries[-1]
        for message, (role, pieces) in zip(entry.request["messages"], prompt.messages, strict=True):
            assert (role, "".join(piece.text for piece in pieces)) == (
                message["role"],
                message["content"],
            )
        messages = found.tries[-1][0].request["messages"]
        links = [
            (unquote(at), html.unescape(title), html.unescape(re.sub("<sup>.*?</sup>", "", words)))
            for at, title, words in re.findall(
                r'<a class="src [^>]*at=([^"&]*)" title="([^"]*)">(.*?)</a>', page, re.S
            )
        ]
        for row in own.filter(pl.col("kind").is_in(["utterance", "answer"])).to_dicts():
            reply = row["source_id"].partition("#")[0]
            text = messages[row["message"]]["content"][row["start"] : row["end"]]
            assert any(
                at == reply and row["source_id"] in title and words and words in text
                for at, title, words in links
            )
            shown = server.get(f"/run/cross_pollination/-/said?at={quote(reply, safe='')}")
            assert shown.status == 200
    legend = page.split('class="legend"')[1].split("</ul>")[0]
    for words in (
        "persona of",
        "material of the study",
        "options to choose from",
        "(who is asked)",
    ):
        assert words in legend
    assert "unmarked: instructions of the study" in legend and "style=" not in page


def test_sources_in_sources_are_drawn_inside_and_out() -> None:
    outer, inner = Source("summary", "s"), Source("value", "v")
    spans = [Span(3, 8, outer), Span(3, 5, inner), Span(9, 99, inner)]
    pieces = split_by_source("ab cd ef gh", spans)
    told = [(p.text, [s.source.kind for s in p.spans], [s.id for s in p.marked]) for p in pieces]
    assert told == [
        ("ab ", [], []), ("cd", ["summary", "value"], ["s"]), (" ef", ["summary"], []),
        (" ", [], []), ("gh", ["value"], []),
    ]  # fmt: skip
    inner = Source("option", "o")
    pieces = split_by_source("So: yes or no", [Span(0, 13, outer), Span(4, 7, inner)])
    marked = [(p.text, [s.id for s in p.marked]) for p in pieces]
    assert marked == [("So: ", ["s"]), ("yes", ["o"]), (" or no", ["s"])]
    assert split_by_source("", []) == [] and split_by_source("x", [])[0].text == "x"


@pytest.mark.parametrize("study", PEOPLE)
def test_every_answer_of_a_participant_is_on_one_persons_page(outputs: Path, study: str) -> None:
    run = RunFolder(outputs / study)
    people = people_of(run)
    assert people.key_columns == PEOPLE[study]
    answers = run.read_table("answers").filter(role="participant")
    shared = answers.filter(speaker_id="session")  # level 1: one call speaks for all
    wanted = set(answers["address"]) - set(shared["address"])
    found: list[str] = []
    keys = people_frame(run, people).select(KEY_COLUMN).collect()[KEY_COLUMN].to_list()
    assert len(set(keys)) == len(keys) == count_of(run)
    for key in keys:
        found += [said.address for said in find_person(run, key).talk if said.own]
    assert set(found) == wanted
    if study != "negotiation":  # a preference is stated once for all conditions
        assert len(found) == len(wanted)


def test_a_decision_has_its_outcome_and_what_stood_in_the_prompt(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    for row in run.read_table("participants").to_dicts():
        found = find_person(run, row["participant_id"])
        first, last = found.decisions[0], found.decisions[-1]
        assert (first.outcome, last.outcome) == (row["initial_choice"], row["final_choice"])
        kinds = {s.kind for s in last.shown if s.texts}
        exposure = run.read_table("exposure").filter(address=last.address)
        assert kinds == set(exposure.filter(pl.col("texts") > 0)["kind"])
        assert not any(s.wrong for d in found.decisions for s in d.shown)


def test_who_refers_to_whom_is_told_by_name_round_by_round(outputs: Path) -> None:
    run = RunFolder(outputs / "town_hall")
    with JournalReader(run.path / JOURNAL) as journal:
        lines = in_room(run, journal, ["discussion_id"], ["set01_lv4"], {})
    told = {
        (line.part, line.speaker_id, kind, whom)
        for line in lines
        for kind, many in line.reactions
        for whom in many
    }
    names = {line.speaker_id: line.speaker for line in lines}
    rows = run.read_table("references").filter(pl.col("discussion_id") == "set01_lv4").to_dicts()
    assert (
        told
        == {
            (f"round {r['round']}", r["speaker"], r["interaction_type"], names[r["target"]])
            for r in rows
        }
        != set()
    )


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
    assert fields_of('```json\n{"a": "x"}\n```') == (("a", "x"),)
    for text in ("", "plain", "[1]", "{", '"{}"', "{}", "{smiles} Yes: no."):
        assert fields_of(text) == ()


def test_a_column_that_was_renamed_is_read_in_older_runs(outputs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "tables").mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps({}))
    table = RunFolder(outputs / "town_hall").read_table("answers").rename({"parse_step": "rung"})
    table.write_parquet(run / "tables" / "answers.parquet")
    address = table["address"][0]
    assert answers_by_address(RunFolder(run), [address])[address].parse_step == table["rung"][0]


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
    assert filter_rows(frame_, query)[0].collect()["at"].to_list() == rows


def test_pages_of_the_table_hold_everybody_once(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    whole = table_of(run, "", "-demographic_age", 0, 1000)
    pages = [table_of(run, "", "-demographic_age", start, 7) for start in range(0, whole.total, 7)]
    assert [key for page in pages for key, _ in page.rows] == [key for key, _ in whole.rows]
    ages = [row["demographic_age"] for _, row in whole.rows]
    assert ages == sorted(ages, reverse=True) and whole.total == len(ages) == whole.all


def test_who_has_such_a_row_in_another_table_is_found(outputs: Path) -> None:
    run = RunFolder(outputs / "town_hall")
    rounds = run.read_table("rounds")
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
    means = run.read_table("intents").group_by("group", "persona_id").agg(pl.col("score").mean())
    wanted = {f"{group}/{who}": mean for group, who, mean in means.iter_rows()}
    found = table_of(run, "", "-intents.score", 0, 1000)
    assert {key: row["intents.score"] for key, row in found.rows} == pytest.approx(wanted)
    scores = [row["intents.score"] for _, row in found.rows]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1
    assert found.columns[1] == "intents.score" and "score" in dict(found.others)["intents"]


def test_participants_are_told_by_their_role_and_not_by_their_id(tmp_path: Path) -> None:
    """Of a study type without tables of participants: an interviewer is none, "host" may be one."""

    async def protocol(session: Session[StudyConfig]) -> None:
        for id in ("host", "ann"):
            await session.ask(Speaker("ivy", role="interviewer"), "Ask.")
            await session.ask(Speaker(id), "Answer.")

    async def answer(_request: ModelRequest, _address: str) -> str:
        return "Yes."

    study, out = Study("chat", "Chat", StudyConfig, protocol), tmp_path / "chat"
    run = folkmoot.run(study, {}, out=out, provider=ScriptedProvider(answer)).folder
    frame = people_frame(run, people_of(run)).collect()
    assert frame["speaker_id"].to_list() == ["host", "ann"]
    with reader(tmp_path) as server:
        page = server.get("/run/chat/-/people").text
        assert "host" in page and "ivy" not in page


def test_a_participant_called_host_does_not_lead_a_talk() -> None:
    line = Line("", "Host", "host", "participant", "1", "Hello.", (), (), (), "", False)
    assert not line.leads
    assert replace(line, role="").leads and replace(line, speaker_id="m", role="moderator").leads


def test_who_leads_a_talk_shares_a_colour_with_nobody(outputs: Path) -> None:
    article = re.compile(r'<article class="said (c\w+).*?<b>(.*?)</b>', re.S)
    with reader(outputs) as server:
        for room in ("focus_group/-/room?id=group_001&id=oven", "town_hall/-/room?id=set01_lv4"):
            found = set(article.findall(server.get(f"/run/{room}").text))
            colours = {name: colour for colour, name in found}
            leaders = {name for name in colours if name.lower() in ("moderator", "planner")}
            assert leaders and len(colours) - len(leaders) > 1
            others = {colour for name, colour in colours.items() if name not in leaders}
            assert {colours[name] for name in leaders}.isdisjoint(others)
            assert len(others) == min(8, len(colours) - len(leaders))


def test_withdrawn_words_and_prescribed_words_are_called_so(copy: Path) -> None:
    path = copy / "tables" / "utterances.parquet"
    said = pl.read_parquet(path)
    own = (pl.col("speaker_role") == "participant") & (pl.col("stimulus") == "oven")
    mark = pl.when(own).then(pl.lit("[withdrawn 0123456789ab]")).otherwise(pl.col("text"))
    words = pl.when(speaker_role="moderator").then(pl.lit("")).otherwise(pl.col("address"))
    said.with_columns(mark.alias("text"), words.alias("address")).write_parquet(path)
    articles = _room_of(copy, "id=group_001&id=oven", "")
    gone = [part for part in articles if "[withdrawn 0123456789ab]" in part]
    assert gone and len(gone) < len(articles)
    for article in articles:
        assert ("withdrawn by the speaker" in article) == (article in gone)
        assert ("worded by the protocol" in article) == (article not in gone)
