"""Conversations in the viewer: every utterance has its own call, every call its own speaker."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

import polars as pl
import pytest
from openpyxl import load_workbook

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
from tests.contract.small import EXAMPLES
from tests.sweeps import sample_daily
from tests.view.conftest import create_viewer_server

ROOM_KEY_COLUMNS = {
    "focus_group": ("group", "stimulus"),
    "negotiation": ("group_id", "condition"),
    "town_hall": ("discussion_id",),
    "workbook": ("experiment_id", "session"),
}
PARTICIPANT_KEY_COLUMNS = {
    "cross_pollination": ("participant_id",),
    "focus_group": ("group", "persona_id"),
    "negotiation": ("group_id", "member_id"),
    "town_hall": ("discussion_id", "agent_id"),
    "workbook": ("experiment_id", "session", "participant_id"),
}


@pytest.mark.parametrize("study", sample_daily(ROOM_KEY_COLUMNS, daily=2, part="pages"))
def test_every_utterance_has_the_call_of_its_address(outputs: Path, study: str) -> None:
    run = RunFolder(outputs / study)
    columns = room_columns(run)
    assert columns == ROOM_KEY_COLUMNS[study]
    table = run.read_table("utterances")
    answers = run.read_table("answers")
    with JournalReader(run.path / JOURNAL) as journal:
        for room in find_rooms(run, columns):
            lines = in_room(run, journal, columns, room.key, names_in(run, room.key))
            key_filters = [
                pl.col(column).cast(pl.String) == value
                for column, value in zip(columns, room.key, strict=True)
            ]
            rows = table.filter(*key_filters)
            assert room.utterances == rows["public"].sum()
            public_rows = rows.filter("public")
            if study == "town_hall":  # a round is recorded in the order of its residents
                public_rows = public_rows.sort(
                    "round", "turn", nulls_last=True, maintain_order=True
                )
            public_utterances = public_rows.to_dicts()
            public_lines = [line for line in lines if not line.private]
            expected_lines = [
                (row["text"] or "", row["address"], row["speaker_id"]) for row in public_utterances
            ]
            assert [
                (line.text, line.address, line.speaker_id) for line in public_lines
            ] == expected_lines
            private_lines = [line for line in lines if line.private]
            private_addresses = [
                line.address for line in private_lines if line.address not in set(rows["address"])
            ]
            assert len(set(private_addresses)) == len(private_addresses)
            private_answers = answers.filter(pl.col("address").is_in(private_addresses))
            assert {
                (line.address, line.speaker_id)
                for line in private_lines
                if line.address in private_addresses
            } == {*private_answers.select("address", "speaker_id").iter_rows()}
            for line in lines:
                assert line.prescribed == (line.address == "")
                assert not line.address or build_call_view(run, journal, line.address) is not None


def list_room_articles(run: Path, key: str, private: str = "&private=1") -> list[str]:
    """Return the HTML of each utterance on the page of a room."""
    with create_viewer_server(run.parent) as server:
        return server.get(f"/run/{run.name}/-/room?{key}{private}").text.split("<article")[1:]


def test_a_silent_public_turn_is_public_and_a_private_thought_is_private(run_copy: Path) -> None:
    path = run_copy / "tables" / "utterances.parquet"
    utterances = pl.read_parquet(path).with_row_index("n")
    participant_turns = utterances.filter(
        "public", speaker_role="participant", stimulus="oven", group="group_001"
    )
    silent_number, private_number = participant_turns["n"][0], participant_turns["n"][1]
    text = (
        pl.when(n=silent_number)
        .then(pl.lit(""))
        .when(n=private_number)
        .then(pl.lit("My own thought."))
    )
    utterances.with_columns(
        text.otherwise("text").alias("text"), (pl.col("public") & (pl.col("n") != private_number))
    ).drop("n").write_parquet(path)
    public_articles = list_room_articles(run_copy, "id=group_001&id=oven", "")
    all_articles = list_room_articles(run_copy, "id=group_001&id=oven")
    silent_articles = [article for article in public_articles if ">silent<" in article]
    assert (
        len(silent_articles) == 1
        and "private" not in silent_articles[0]
        and "/call?at=" in silent_articles[0]
    )
    assert not any("My own thought." in article for article in public_articles)
    private_articles = [article for article in all_articles if "My own thought." in article]
    assert len(private_articles) == 1 and '<span class="mark">private</span>' in private_articles[0]


def test_a_prompt_is_marked_by_source_and_links_to_its_replies(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    spans = run.read_table("provenance")
    address = spans.filter(kind="utterance")["address"][-1]
    address_spans = spans.filter(address=address)
    with create_viewer_server(outputs) as server, JournalReader(run.path / JOURNAL) as journal:
        page = server.get(f"/run/cross_pollination/-/call?at={address}").text
        call_view = build_call_view(run, journal, address)
        assert call_view is not None
        entry, prompt = call_view.tries[-1]
        for message, (role, pieces) in zip(entry.request["messages"], prompt.messages, strict=True):
            assert (role, "".join(piece.text for piece in pieces)) == (
                message["role"],
                message["content"],
            )
        messages = call_view.tries[-1][0].request["messages"]
        links = [
            (
                unquote(target),
                html.unescape(title),
                html.unescape(re.sub("<sup>.*?</sup>", "", passage)),
            )
            for target, title, passage in re.findall(
                r'<a class="src [^>]*at=([^"&]*)" title="([^"]*)">(.*?)</a>', page, re.S
            )
        ]
        for row in address_spans.filter(pl.col("kind").is_in(["utterance", "answer"])).to_dicts():
            reply = row["source_id"].partition("#")[0]
            text = messages[row["message"]]["content"][row["start"] : row["end"]]
            assert any(
                target == reply and row["source_id"] in title and passage and passage in text
                for target, title, passage in links
            )
            reply_page = server.get(f"/run/cross_pollination/-/said?at={quote(reply, safe='')}")
            assert reply_page.status == 200
    legend = page.split('class="legend"')[1].split("</ul>")[0]
    for passage in (
        "persona of",
        "material of the study",
        "options to choose from",
        "(who is asked)",
    ):
        assert passage in legend
    assert "unmarked: instructions of the study" in legend and "style=" not in page


def test_nested_sources_are_split_and_marked() -> None:
    outer, inner = Source("summary", "s"), Source("value", "v")
    spans = [Span(3, 8, outer), Span(3, 5, inner), Span(9, 99, inner)]
    pieces = split_by_source("ab cd ef gh", spans)
    piece_sources = [
        (piece.text, [span.source.kind for span in piece.spans], [span.id for span in piece.marked])
        for piece in pieces
    ]
    assert piece_sources == [
        ("ab ", [], []), ("cd", ["summary", "value"], ["s"]), (" ef", ["summary"], []),
        (" ", [], []), ("gh", ["value"], []),
    ]  # fmt: skip
    inner = Source("option", "o")
    pieces = split_by_source("So: yes or no", [Span(0, 13, outer), Span(4, 7, inner)])
    marked_ids = [(piece.text, [span.id for span in piece.marked]) for piece in pieces]
    assert marked_ids == [("So: ", ["s"]), ("yes", ["o"]), (" or no", ["s"])]
    assert split_by_source("", []) == [] and split_by_source("x", [])[0].text == "x"


@pytest.mark.parametrize("study", PARTICIPANT_KEY_COLUMNS)
def test_every_answer_of_a_participant_is_on_exactly_one_page(outputs: Path, study: str) -> None:
    run = RunFolder(outputs / study)
    people = people_of(run)
    assert people.key_columns == PARTICIPANT_KEY_COLUMNS[study]
    answers = run.read_table("answers").filter(role="participant")
    shared = answers.filter(speaker_id="session")  # level 1: one call covers all participants
    expected_addresses = set(answers["address"]) - set(shared["address"])
    shown_addresses: list[str] = []
    keys = people_frame(run, people).select(KEY_COLUMN).collect()[KEY_COLUMN].to_list()
    # Residents of a town hall have a row for each of the two levels.
    rows_per_participant = 2 if study == "town_hall" else 1
    assert len(set(keys)) == len(keys) == rows_per_participant * count_of(run)
    for key in keys:
        shown_addresses += [line.address for line in find_person(run, key).talk if line.own]
    assert set(shown_addresses) == expected_addresses
    if study != "negotiation":  # there a preference is stated once for all conditions
        assert len(shown_addresses) == len(expected_addresses)


def test_a_decision_shows_its_outcome_and_its_exposure(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    for row in run.read_table("participants").to_dicts():
        person = find_person(run, row["participant_id"])
        first, last = person.decisions[0], person.decisions[-1]
        assert (first.outcome, last.outcome) == (row["initial_choice"], row["final_choice"])
        kinds = {exposure_row.kind for exposure_row in last.shown if exposure_row.texts}
        exposure = run.read_table("exposure").filter(address=last.address)
        assert kinds == set(exposure.filter(pl.col("texts") > 0)["kind"])
        assert not any(
            exposure_row.wrong for decision in person.decisions for exposure_row in decision.shown
        )


def test_references_are_shown_by_name_and_round(outputs: Path) -> None:
    run = RunFolder(outputs / "town_hall")
    with JournalReader(run.path / JOURNAL) as journal:
        lines = in_room(run, journal, ["discussion_id"], ["set01_lv4"], {})
    shown_references = {
        (line.part, line.speaker_id, kind, target)
        for line in lines
        for kind, targets in line.reactions
        for target in targets
    }
    names = {line.speaker_id: line.speaker for line in lines}
    rows = run.read_table("references").filter(pl.col("discussion_id") == "set01_lv4").to_dicts()
    assert (
        shown_references
        == {
            (
                f"round {reference['round']}",
                reference["speaker"],
                reference["interaction_type"],
                names[reference["target"]],
            )
            for reference in rows
        }
        != set()
    )


def test_re_asks_belong_to_one_question() -> None:
    assert base_of("a/p_1/ask2.r1") == base_of("a/p_1/ask2.long") == "a/p_1/ask2"
    assert base_of("ask0.r2") == "ask0"
    assert base_of("game.3/1/1.16/ask0") == "game.3/1/1.16/ask0"  # ids may contain dots
    assert place_of("first_vote/p_0001/ask0", ["p_0001"]) == "first vote"
    assert place_of("talk/a%2Fb/p_0001/ask0") == "talk · a/b · p_0001"


def test_only_json_objects_have_fields() -> None:
    assert fields_of('{"a": "x", "b": [1, 2], "c": {"d_e": null}}') == (
        ("a", "x"), ("b", "[1, 2]"), ("c", "d e: null"),
    )  # fmt: skip
    assert fields_of('```json\n{"a": "x"}\n```') == (("a", "x"),)
    for text in ("", "plain", "[1]", "{", '"{}"', "{}", "{smiles} Yes: no."):
        assert fields_of(text) == ()


def test_a_renamed_column_is_read_in_older_runs(outputs: Path, tmp_path: Path) -> None:
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
def test_a_query_selects_the_matching_rows(query: str, rows: list[int]) -> None:
    data = {
        "a": ["x-y", "Q(1)", "ü ä"], "n": [1, 2, 40], "flag": [True, False, None],
        "none": [None, None, None],
    }  # fmt: skip
    frame = pl.LazyFrame(data, schema_overrides={"none": pl.String}).with_row_index("at")
    assert filter_rows(frame, query)[0].collect()["at"].to_list() == rows


def test_pages_of_the_table_contain_each_participant_once(outputs: Path) -> None:
    run = RunFolder(outputs / "cross_pollination")
    whole_table = table_of(run, "", "-demographic_age", 0, 1000)
    pages = [
        table_of(run, "", "-demographic_age", start, 7) for start in range(0, whole_table.total, 7)
    ]
    assert [key for page in pages for key, _ in page.rows] == [key for key, _ in whole_table.rows]
    ages = [row["demographic_age"] for _, row in whole_table.rows]
    assert ages == sorted(ages, reverse=True) and whole_table.total == len(ages) == whole_table.all


def test_participants_are_found_by_rows_of_another_table(outputs: Path) -> None:
    run = RunFolder(outputs / "town_hall")
    rounds = run.read_table("rounds")
    stance = rounds["overall_stance"][0]
    matching_rows = rounds.filter(pl.col("overall_stance") == stance)
    expected_keys = {
        f"{discussion_id}/{agent_id}"
        for discussion_id, agent_id in matching_rows.select("discussion_id", "agent_id").iter_rows()
    }
    query = f"rounds.overall_stance={stance}"
    people_table = table_of(run, query, "", 0, 1000)
    assert {key for key, _ in people_table.rows} == expected_keys and 0 < len(
        expected_keys
    ) < people_table.all
    assert people_table.total == len(expected_keys)
    assert table_of(run, f"{query} discussion_id=set01_lv1", "", 0, 9).total < len(expected_keys)
    # Not a column, so it is searched as text.
    assert table_of(run, f"rounds.nothing={stance}", "", 0, 9).total == 0


def test_participants_are_sorted_by_the_mean_of_their_rows(outputs: Path) -> None:
    run = RunFolder(outputs / "focus_group")
    means = run.read_table("intents").group_by("group", "persona_id").agg(pl.col("score").mean())
    expected_means = {
        f"{group}/{persona_id}": mean for group, persona_id, mean in means.iter_rows()
    }
    people_table = table_of(run, "", "-intents.score", 0, 1000)
    assert {key: row["intents.score"] for key, row in people_table.rows} == pytest.approx(
        expected_means
    )
    scores = [row["intents.score"] for _, row in people_table.rows]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1
    assert (
        people_table.columns[1] == "intents.score"
        and "score" in dict(people_table.others)["intents"]
    )


def test_participants_are_identified_by_role_not_by_id(tmp_path: Path) -> None:
    """Without a participant table an interviewer is not a participant, but "host" may be one."""

    async def protocol(session: Session[StudyConfig]) -> None:
        for id in ("host", "ann"):
            await session.ask(Speaker("ivy", role="interviewer"), "Ask.")
            await session.ask(Speaker(id), "Answer.")

    async def answer(_request: ModelRequest, _address: str) -> str:
        return "Yes."

    study, run_folder = Study("chat", "Chat", StudyConfig, protocol), tmp_path / "chat"
    run = folkmoot.run(study, {}, out=run_folder, provider=ScriptedProvider(answer)).folder
    frame = people_frame(run, people_of(run)).collect()
    assert frame["speaker_id"].to_list() == ["host", "ann"]
    with create_viewer_server(tmp_path) as server:
        page = server.get("/run/chat/-/people").text
        assert "host" in page and "ivy" not in page


def test_a_participant_called_host_is_not_a_leading_role() -> None:
    line = Line("", "Host", "host", "participant", "1", "Hello.", (), (), (), "", False)
    assert not line.leads
    assert replace(line, role="").leads and replace(line, speaker_id="m", role="moderator").leads


def test_leading_roles_have_their_own_colours(outputs: Path) -> None:
    article = re.compile(r'<article class="said (c\w+).*?<b>(.*?)</b>', re.S)
    with create_viewer_server(outputs) as server:
        for room in ("focus_group/-/room?id=group_001&id=oven", "town_hall/-/room?id=set01_lv4"):
            colours_and_names = set(article.findall(server.get(f"/run/{room}").text))
            colours = {name: colour for colour, name in colours_and_names}
            leaders = {name for name in colours if name.lower() in ("moderator", "planner")}
            assert leaders and len(colours) - len(leaders) > 1
            others = {colour for name, colour in colours.items() if name not in leaders}
            assert {colours[name] for name in leaders}.isdisjoint(others)
            assert len(others) == min(8, len(colours) - len(leaders))


def test_speakers_with_a_letter_and_a_number_as_names_are_told_apart(run_copy: Path) -> None:
    """Humans who answer as themselves are called P1, P2 and so on, unless they give a name."""
    path = run_copy / "tables" / "personas.parquet"
    personas = pl.read_parquet(path)
    names = pl.col("persona_id").str.replace("p_000", "P")
    personas.with_columns(names.alias("name")).write_parquet(path)
    pattern = re.compile(r'aria-hidden="true">(\w+)</span><b>(P\d) ')
    articles = "".join(list_room_articles(run_copy, "id=group_001&id=oven", ""))
    initials = {name: shown for shown, name in pattern.findall(articles)}
    assert len(initials) > 1
    assert initials == {name: name[1:] for name in initials}


def test_withdrawn_and_prescribed_utterances_are_labelled(run_copy: Path) -> None:
    path = run_copy / "tables" / "utterances.parquet"
    utterances = pl.read_parquet(path)
    is_participant_of_oven = (pl.col("speaker_role") == "participant") & (
        pl.col("stimulus") == "oven"
    )
    withdrawn_text = (
        pl.when(is_participant_of_oven)
        .then(pl.lit("[withdrawn 0123456789ab]"))
        .otherwise(pl.col("text"))
    )
    address_or_none = (
        pl.when(speaker_role="moderator").then(pl.lit("")).otherwise(pl.col("address"))
    )
    utterances.with_columns(
        withdrawn_text.alias("text"), address_or_none.alias("address")
    ).write_parquet(path)
    articles = list_room_articles(run_copy, "id=group_001&id=oven", "")
    withdrawn_articles = [article for article in articles if "[withdrawn 0123456789ab]" in article]
    assert withdrawn_articles and len(withdrawn_articles) < len(articles)
    for article in articles:
        assert ("withdrawn by the speaker" in article) == (article in withdrawn_articles)
        assert ("worded by the protocol" in article) == (article not in withdrawn_articles)


def test_decisions_of_the_same_question_in_two_experiments_name_their_place(
    tmp_path: Path,
) -> None:
    workbook = load_workbook(EXAMPLES / "public_goods.xlsx")
    workbook["constants"]["B2"] = "[10, 20]"
    workbook.save(tmp_path / "game.xlsx")
    run = folkmoot.run(tmp_path / "game.xlsx", model="synthetic", out=tmp_path / "run").folder
    experiments = run.read_table("assignment")["experiment_id"].unique()
    assert len(experiments) == 2
    participant_id = run.read_table("assignment")["participant_id"][0]
    names = [decision.name for decision in find_person(run, participant_id).decisions]
    assert len(set(names)) == len(names)
    for name in names:
        assert any(experiment in name for experiment in experiments)
