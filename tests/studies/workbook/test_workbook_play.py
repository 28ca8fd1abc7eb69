"""Sessions with a scripted model: the history of participants, re-asks, and the written files."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import ModelError, RefusedError
from folkmoot.kit.exposure import describe_deviations
from folkmoot.models.request import Completion
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.workbook.preparation import limit_sessions
from folkmoot.studies.workbook.protocol import ROUNDS
from tests.studies.workbook.test_workbook_parts import make_manual_workbook
from tests.studies.workbook.test_workbook_reading import make_older_layout, make_short_layout
from tests.studies.workbook.workbook_builder import (
    make_provider,
    make_script,
    make_task_row,
    make_workbook,
    with_cell,
    with_setting,
    write_workbook,
)

TASKS = "interview_prompts"
EXAMPLE = Path(__file__).parents[3] / "examples" / "public_goods.xlsx"


def run_workbook(book: Any, folder: Path, provider: Any = None, **options: Any) -> Any:
    path = write_workbook(book, folder / "book.xlsx")
    return folkmoot.run(path, out=folder / "out", provider=provider or make_provider(), **options)


def read_rows(run: Any, name: str = "market") -> list[dict[str, str]]:
    with (run.path / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_sessions(run: Any, name: str = "market") -> list[dict[str, Any]]:
    return list(json.loads((run.path / f"{name}.json").read_text())["sessions"])


def list_message_texts(person: Mapping[str, Any]) -> list[str]:
    return [m["content"] for m in person["message_history"]]


def select_requests(provider: ScriptedProvider, *parts: str) -> list[Any]:
    return [r for address, r in provider.seen if all(p in address for p in parts)]


@pytest.fixture(scope="module")
def run_plain_workbook(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], tuple[Any, ScriptedProvider]]:
    """Return a function that runs the workbook with plain answers, once. Tests only read it."""

    @cache
    def run_once() -> tuple[Any, ScriptedProvider]:
        provider = make_provider()
        return run_workbook(make_workbook(), tmp_path_factory.mktemp("plain"), provider), provider

    return run_once


PlainRun = Callable[[], tuple[Any, ScriptedProvider]]


def make_private_book(*tasks: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    """Make a workbook with these private questions alone, named x0, x1, … in their order."""
    book = make_workbook()
    book["computed"] = book["computed"][:1]
    book[TASKS] = book[TASKS][:2] + [
        make_task_row(f"x{n}", "private_question", n + 1, "Well? {response_options}", f"x{n}", **t)
        for n, t in enumerate(tasks)
    ]
    return book


def read_place(address: str) -> tuple[str, str]:
    """Return task and participant of the address of a question."""
    _, _, task, participant, *_ = address.split("/")
    return task, participant


def test_one_row_per_participant_and_one_column_per_variable(
    run_plain_workbook: PlainRun,
) -> None:
    run, _ = run_plain_workbook()
    table = read_rows(run)
    assert len(table) == 8 and len({r["ID"] for r in table}) == 8
    for row in table:
        assert row["offer"] == "5"
        assert row["trade"] in ("yes", "no", "I don’t know")
        assert row["talk"].startswith("words at")
        assert row["sure"] == ("0.5" if row["role"] == "Buyer" else "")
        assert row["total"] == "20" and row["share"] == "0.25"
        assert row["invalid"] == row["missing"] == ""
    assert set(run.tables) >= {"answers", "assignment", "computed", "responses", "sessions"}
    assert run.table("assignment").height == 8


def test_the_persona_opens_the_system_message_and_shows_no_assignment(tmp_path: Path) -> None:
    run = run_workbook(make_manual_workbook(), tmp_path)
    for session in read_sessions(run):
        for person in session["participants"]:
            system = list_message_texts(person)[0]
            assert system.startswith("You are ")
            persona = system.split("\n\n")[0]
            assert f"How old are you? {person['profile']['age']}" in persona
            assert "my treatment" not in system and "my role" not in system
            assert person["ID"] not in system.replace(person["name"], "")
            assert session["treatment_description"] in system
            assert "This is a market for apples." in system


def test_participants_of_a_discussion_hear_earlier_utterances(
    run_plain_workbook: PlainRun,
) -> None:
    run, provider = run_plain_workbook()
    (first, *_) = read_sessions(run)
    order = [p["ID"] for p in first["participants"]]
    words = {p["ID"]: p["responses"]["talk"]["value"] for p in first["participants"]}
    for k, who in enumerate(order):
        (request,) = select_requests(provider, "market.1/", "/t/", f"/{who}/")
        heard = "\n".join(m.content for m in request.messages)
        assert "What is a fair price?" in heard
        assert [words[o] in heard for o in order] == [j < k for j in range(len(order))]


def test_words_in_the_names_of_others_are_left_out(tmp_path: Path) -> None:
    """A reply that goes on as a script ends before the first line of another speaker."""
    provider = make_provider(text="I pay five.\n\nSeller 1: I ask nine.\nFacilitator: Thank you.")
    book = with_setting(make_workbook(), "num_sessions", 1)
    run = run_workbook(book, tmp_path, provider)
    said = run.table("responses").filter(pl.col("var_name") == "talk")
    # For Seller 1, the second line is under the own name.
    assert set(said["value"]) == {"I pay five.", "I pay five.\n\nSeller 1: I ask nine."}
    assert said.filter(pl.col("value") == "I pay five.").height == 3
    assert (run.table("answers")["parse_step"] == "own_words").sum() == 4
    heard = [m.content for _, request in provider.seen for m in request.messages]
    assert not any("Thank you." in text for text in heard)
    assert any("I pay five." in text for text in heard)


def test_a_reply_in_the_names_of_others_only_is_no_answer(tmp_path: Path) -> None:
    provider = make_provider(text="Facilitator: Who starts?\nFacilitator: Is it you?")
    book = with_setting(make_workbook(), "num_sessions", 1)
    run = run_workbook(book, tmp_path, provider)
    answers = run.table("responses").filter(pl.col("var_name") == "talk")
    assert answers["missing"].to_list() == ["unparsed"] * 4
    # A private answer is no part of a conversation. It may be a list of what others will do.
    book = with_cell(book, f"{TASKS}!B3", "private_question")
    (tmp_path / "private").mkdir()
    run = run_workbook(book, tmp_path / "private", provider)
    answers = run.table("responses").filter(pl.col("var_name") == "talk")
    assert set(answers["value"]) == {"Facilitator: Who starts? Facilitator: Is it you?"}


def test_public_answers_of_the_round_are_seen_as_they_come(run_plain_workbook: PlainRun) -> None:
    run, provider = run_plain_workbook()
    first = read_sessions(run)[0]
    people = first["participants"]
    for k, person in enumerate(people):
        (request,) = select_requests(provider, "market.1/", "/m/", f"/{person['ID']}/")
        prompt = request.messages[-1].content
        before = prompt.split("All offers add up")[0]
        for j, other in enumerate(people):
            line = f"{other['name']}: {other['responses']['trade']['value']}"
            assert (line in before) == (j < k)


def test_private_answers_are_hidden_until_the_round_ends(tmp_path: Path) -> None:
    marks = {f"p{i}": str(i) for i in range(1, 9)}

    def answer(request: Any, address: str) -> str:
        if "/o/" in address:
            return marks[address.split("/")[3]]
        return make_script()(request, address)

    provider = ScriptedProvider(answer, keep_requests=True)
    first = read_sessions(run_workbook(make_workbook(), tmp_path, provider))[0]
    ids = [p["ID"] for p in first["participants"]]
    for who in ids:
        (asked,) = select_requests(provider, "market.1/", "/o/", f"/{who}/")
        told = "\n".join(m.content for m in asked.messages)
        assert not any(f"{p['name']}: {marks[p['ID']]}" in told for p in first["participants"])
        (later,) = select_requests(provider, "market.1/", "/m/", f"/{who}/")
        told = "\n".join(m.content for m in later.messages)
        for person in first["participants"]:
            if person["ID"] != who:
                assert f"{person['name']}: {marks[person['ID']]}" in told


def test_the_short_layout_never_reveals_private_answers(tmp_path: Path) -> None:
    run = run_workbook(make_short_layout(), tmp_path)
    for person in read_sessions(run)[0]["participants"]:
        assert not any(
            m["content"] == "5" and m["role"] == "user" for m in person["message_history"]
        )
        assert (
            "The market is" in "\n".join(list_message_texts(person))
            and "Calm." not in list_message_texts(person)[0]
        )


def test_the_exposure_table_finds_tasks_played_as_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has no deviation, and has one if one type of task is played like another."""

    def says(request: Any, address: str) -> str:
        return f"At {address.replace('/', ' ')} I would say so for reasons that are mine alone."

    book = with_setting(make_workbook(), "num_sessions", 1)
    kinds = ("private_question", "discussion", "public_question", "private_question", "discussion")
    book[TASKS][2:] = [
        make_task_row(f"x{n}", kind, n, "Why?", f"x{n}") for n, kind in enumerate(kinds, 1)
    ]
    book["computed"][1:] = []
    assert describe_deviations(run_workbook(book, tmp_path, ScriptedProvider(says)).folder) == []
    for kind, played, told in (
        ("private_question", "public_question", "words from elsewhere"),
        ("discussion", "private_question", "others' words"),
    ):
        (tmp_path / kind).mkdir()
        with monkeypatch.context() as patch:
            patch.setitem(ROUNDS, kind, ROUNDS[played])
            wrong = run_workbook(book, tmp_path / kind, ScriptedProvider(says))
            deviations = describe_deviations(wrong.folder)
        assert deviations and all(told in alarm for alarm in deviations), kind


def test_results_reach_the_prompt(tmp_path: Path) -> None:
    provider = make_provider(number=3)
    run_workbook(make_workbook(), tmp_path, provider)
    for request in select_requests(provider, "/m/"):
        assert "All offers add up to 12; yours is 3." in request.messages[-1].content


def test_the_dict_gives_the_order_and_leaves_roles_out(tmp_path: Path) -> None:
    book = with_cell(
        make_workbook(),
        f"{TASKS}!F3",
        '{"Seller": "Sell!", "Summarizer": "Note.", "Buyer": "Buy!"}',
    )
    provider = make_provider()
    run = run_workbook(book, tmp_path, provider)
    said = run.table("utterances").filter(task_id="t", session="1", public=True)
    assert said["speaker_name"].to_list() == [
        "Facilitator",
        "Seller 1",
        "Seller 2",
        "Summarizer",
        "Buyer 1",
        "Buyer 2",
    ]
    assert not [a for a, _ in provider.seen if "/s/" in a and "Seller" in a]
    asked = {r["role"] for r in run.table("responses").filter(task_id="s").to_dicts()}
    assert asked == {"Buyer", "Summarizer"}


def test_the_summarizer_hears_private_answers_and_all_participants_hear_the_summary(
    tmp_path: Path,
) -> None:
    provider = make_provider(json=0.75, text="THE SUMMARY")
    run = run_workbook(make_workbook(), tmp_path, provider)
    (request, _) = select_requests(provider, "/s/Summarizer")
    assert request.messages[0].content.startswith("You are the Summarizer")
    assert "Buyer 1: 0.75" in "\n".join(m.content for m in request.messages)
    for session in read_sessions(run):
        assert all("THE SUMMARY" in list_message_texts(p) for p in session["participants"])
        assert session["special_roles"]["Summarizer"]["responses"][0]["value"] == "THE SUMMARY"


def test_a_facilitator_with_words_of_its_own_speaks(tmp_path: Path) -> None:
    cell = '{"Facilitator": "Open the debate.", "Buyer": "Well?", "Seller": "Well?"}'
    provider = make_provider(text="LET US BEGIN")
    run = run_workbook(with_cell(make_workbook(), f"{TASKS}!F3", cell), tmp_path, provider)
    (request, _) = select_requests(provider, "/t/Facilitator")
    assert "You run the market." in request.messages[0].content
    assert request.messages[-1].content.endswith("Open the debate.")
    assert all(
        "LET US BEGIN" in list_message_texts(p) for p in read_sessions(run)[0]["participants"]
    )


def test_options_are_shuffled_for_each_participant_and_task(tmp_path: Path) -> None:
    book = make_workbook()
    for n in range(6):
        book[TASKS].append(
            make_task_row(
                f"x{n}",
                "private_question",
                5,
                "Which?",
                f"x{n}",
                response_options='["a", "b", "c", "d"]',
                randomize_response_order=1,
                validate_response=1,
            )
        )
    run = run_workbook(book, tmp_path, make_provider(option="c"))
    shown = run.table("responses").filter(task_type="private_question").drop_nulls("options")
    assert shown["options"].n_unique() > 10
    for row in shown.to_dicts():
        assert json.loads(row["options"])[row["position"] - 1] == row["value"] == "c"
    again = run_workbook(book, tmp_path / ".." / tmp_path.name, make_provider(option="c"))
    assert again.table("responses").equals(run.table("responses"))
    # The engine's own record of each reply has the same order.
    recorded = run.table("answers").filter(kind="workbook").drop_nulls("options")
    assert sorted(recorded["options"]) == sorted(run.table("responses")["options"].drop_nulls())


def test_ties_are_shuffled_per_session_and_the_order_is_written(tmp_path: Path) -> None:
    book = with_setting(make_workbook(), "num_sessions", 12)
    head = book["agent_profiles"][:2]
    book["agent_profiles"] = [*head, *([f"p{i}", i, "x"] for i in range(48))]
    book[TASKS] += [
        make_task_row(f"x{n}", "private_question", 7, "Well?", f"x{n}") for n in range(4)
    ]
    run = run_workbook(book, tmp_path)
    orders = [json.loads(o) for o in run.table("sessions")["order"]]
    assert len({tuple(o[-4:]) for o in orders}) > 4
    assert all(o[:5] == ["c", "t", "o", "m", "s"] for o in orders)
    assert [s["task_order"] for s in read_sessions(run)] == orders
    first = run.table("responses").filter(session="1", participant_id=read_rows(run)[0]["ID"])
    asked = {r["task_id"]: r["place"] for r in first.to_dicts()}
    assert sorted(asked, key=lambda t: asked[t])[-4:] == orders[0][-4:]


def test_validation_asks_five_times_more_and_keeps_the_last_answer(tmp_path: Path) -> None:
    provider = make_provider(number="fifteen, or rather 15 of 20")
    run = run_workbook(make_workbook(), tmp_path, provider)
    responses = run.table("responses").filter(var_name="offer").to_dicts()
    assert all(r["status"] == "invalid" and r["reasks"] == 5 for r in responses)
    assert all(r["value"] == "fifteen, or rather 15 of 20" for r in responses)
    assert len(select_requests(provider, "market.1/", "/o/")) == 4 * 6
    assert "from 0 to 20" in select_requests(provider, "/o/", ".r5")[0].messages[-1].content
    for row in read_rows(run):
        assert row["invalid"] == "offer" and row["offer"].startswith("fifteen")
        assert row["total"] == row["share"] == "NA"
    assert "add up to not available" in select_requests(provider, "/m/")[0].messages[-1].content


def test_an_option_is_never_guessed(tmp_path: Path) -> None:
    replies = ("2", "not yes", "yes or no", "No comment, I refuse to answer.")

    def reply_of(participant: str) -> str:
        return replies[int(participant[1:]) % len(replies)]

    def answer(request: Any, address: str) -> str:
        participant = address.split("/")[3] if "/m/" in address else "p0"
        return make_script(option=reply_of(participant))(request, address)

    run = run_workbook(
        make_workbook(), tmp_path, ScriptedProvider(answer)
    )  # the options are listed with dashes
    responses = run.table("responses").filter(var_name="trade").to_dicts()
    assert {row["value"] for row in responses} == {*replies}
    for row in responses:
        said = reply_of(row["participant_id"])
        assert (row["status"], row["value"], row["reasks"]) == ("invalid", said, 5)
    reasons = set(run.table("answers").filter(parse_step="missing")["missing"])
    assert reasons == {"unparsed"}


def test_without_validation_nothing_is_asked_again(tmp_path: Path) -> None:
    provider = make_provider(number="a lot")
    run = run_workbook(with_cell(make_workbook(), f"{TASKS}!K4", 0), tmp_path, provider)
    assert len(select_requests(provider, "/o/")) == 8
    assert all(r["offer"] == "a lot" and r["total"] == "NA" for r in read_rows(run))
    # The answers have no number, so they are counted as invalid wherever answers are counted.
    assert all("offer" in r["invalid"].split(";") for r in read_rows(run))
    answers = run.table("answers").filter(pl.col("address").str.contains("/o/"))
    assert set(answers.select("how", "agrees", "parse_step").iter_rows()) == {
        ("unreadable", None, "unformatted")
    }
    quality = next(f for f in run.findings if f.key == "answer_quality")
    assert quality.says.startswith("Of 28 answers, 8 did not fit their question"), quality.says
    assert not run.folder.unusable_reason


def test_an_empty_answer_in_json_is_asked_for_again_and_then_missing(tmp_path: Path) -> None:
    replies = ('{"response": ""}', '{"response": null}', '{"response": "\u200b"}')

    def answer(request: Any, address: str) -> str:
        _, participant = read_place(address)
        return replies[int(participant[1:]) % len(replies)]

    tasks = [
        {
            "var_type": t,
            "response_options": "as you like",
            "validate_response": v,
            "format_response": 1,
        }
        for t, v in product((None, "integer"), (0, 1))
    ]
    run = run_workbook(make_private_book(*tasks), tmp_path, ScriptedProvider(answer))
    for n, task in enumerate(tasks):
        responses = run.table("responses").filter(var_name=f"x{n}")
        reasks = 5 if task["validate_response"] else 2
        expected = [(None, "empty", reasks)] * 8
        assert responses.select("value", "missing", "reasks").rows() == expected, task
        assert {row[f"x{n}"] for row in read_rows(run)} == {"NA"}, task
    assert set(run.table("answers")["missing"]) == {"empty"}


def test_the_beginning_of_a_number_is_no_contribution(tmp_path: Path) -> None:
    tasks = [
        {
            "var_type": "integer",
            "response_options": "(0, 20)",
            "validate_response": v,
            "format_response": f,
        }
        for v, f in product((0, 1), (0, 1))
    ]

    def answer(request: Any, address: str) -> Any:
        task, participant = read_place(address)
        cut = '{"response": 1' if tasks[int(task[1:])]["format_response"] else "1"
        finish = ("length", "length:model")[int(participant[1:]) % 2]
        return Completion(cut, finish=finish)

    book = make_private_book(*tasks)
    book["computed"] += [[f"total{n}", "session", f"sum(x{n})"] for n in range(len(tasks))]
    run = run_workbook(book, tmp_path, provider=ScriptedProvider(answer))
    for n, task in enumerate(tasks):
        responses = run.table("responses").filter(var_name=f"x{n}")
        assert responses.height == 8, task
        assert not {"valid", "unchecked"} & set(responses["status"]), task
        assert {row[f"total{n}"] for row in read_rows(run)} == {"NA"}, task


def test_a_number_in_json_is_the_option_as_it_is_written(tmp_path: Path) -> None:
    cases = [
        (options, reply, value, validate)
        for options, reply, value in (
            ('["2.00", "2.50"]', '{"response": 2.50}', "2.50"),
            ('["2.00", "2.50"]', "{response: 2.00}", "2.00"),
            ("[1, 2]", '{"response": 1.0}', "1"),
            ("a price", '{"response": 2.50}', "2.50"),
            ("a price", '{"response": [7]}', "7"),
        )
        for validate in (0, 1)
    ]

    def answer(request: Any, address: str) -> str:
        task, _ = read_place(address)
        return cases[int(task[1:])][1]

    tasks = [
        {
            "var_type": "category",
            "response_options": options,
            "validate_response": validate,
            "randomize_response_order": 1,
            "format_response": 1,
        }
        for options, _, _, validate in cases
    ]
    run = run_workbook(make_private_book(*tasks), tmp_path, ScriptedProvider(answer))
    for n, case in enumerate(cases):
        _, _, value, validate = case
        responses = run.table("responses").filter(var_name=f"x{n}")
        assert set(responses.select("value", "status", "reasks").iter_rows()) == {
            (value, "valid" if validate else "unchecked", 0)
        }, case


def test_refusals_are_missing_and_the_session_goes_on(tmp_path: Path) -> None:
    def answer(request: Any, address: str) -> str:
        if "/o/p3/" in address:
            raise RefusedError("no", reason="filtered")
        return make_script()(request, address)

    run = run_workbook(make_workbook(), tmp_path, ScriptedProvider(answer))
    (row,) = [r for r in read_rows(run) if r["ID"] == "p3"]
    assert row["offer"] == "NA" and row["missing"] == "offer" and row["trade"]
    others = [r for r in read_rows(run) if r["session"] != row["session"]]
    assert all(r["total"] == "20" for r in others)
    assert {r["total"] for r in read_rows(run) if r["session"] == row["session"]} == {"NA"}
    assert issubclass(RefusedError, ModelError)


def test_the_speculation_score_is_asked_for_or_part_of_the_json(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{TASKS}!L4", 1)
    run = run_workbook(book, tmp_path)
    scores = run.table("responses").drop_nulls("speculation_score")
    assert set(scores.filter(var_name="offer")["speculation_score"]) == {33}
    assert set(scores.filter(var_name="sure")["speculation_score"]) == {20}
    assert {r["offer_speculation_score"] for r in read_rows(run)} == {"33"}


def test_an_unreadable_speculation_score_costs_no_answer(tmp_path: Path) -> None:
    """Each of the four buyers states another score. Sellers are not asked."""
    usual = make_script()
    cases: list[tuple[Any, int | None]] = [("85%", 85), ("a lot", None), (130, None), (0.85, None)]
    case_of_buyer: dict[str, tuple[Any, int | None]] = {}

    def answer(request: Any, address: str) -> str:
        reply = usual(request, address)
        if request.schema is None:
            return reply
        _, buyer = read_place(address)
        said, _ = case_of_buyer.setdefault(buyer, cases[len(case_of_buyer) % len(cases)])
        return json.dumps({**json.loads(reply), "speculation_score": said})

    run = run_workbook(make_workbook(), tmp_path, provider=ScriptedProvider(answer))
    assert len(case_of_buyer) == len(cases)
    # The summary of the Summarizer is unchecked free text under the same name.
    sure = run.table("responses").filter(pl.col("status") != "unchecked", var_name="sure")
    assert set(sure["status"]) == {"valid"} and set(sure["value"]) == {"0.5"}
    rows = {row["ID"]: row for row in read_rows(run)}
    for buyer, (said, score) in case_of_buyer.items():
        own = sure.filter(participant_id=buyer).select("speculation_score", "reasks").rows()
        assert own == [(score, 0 if score else 5)], said
        assert rows[buyer]["role"] == "Buyer", said
        assert rows[buyer]["sure_speculation_score"] == (str(score) if score else "NA"), said
    others = [row for who, row in rows.items() if who not in case_of_buyer]
    assert {(row["role"], row["sure_speculation_score"]) for row in others} == {("Seller", "")}


def test_the_conversation_length_is_enforced_and_reported(tmp_path: Path) -> None:
    run = run_workbook(with_setting(make_workbook(), "max_conversation_length", 6), tmp_path)
    for session in read_sessions(run):
        assert session["messages"] == 6
        assert (session["ended"], session["stopped_in"]) == ("conversation_length", "o")
    table = run.table("responses")
    assert table.filter(missing="conversation_length").height == 2 * (2 + 4 + 2)
    assert "max_conversation_length (6) is reached" in (run.path / "run.log").read_text()
    assert all(r["trade"] == "NA" and "trade" in r["missing"] for r in read_rows(run))


def test_rounds_are_limited_in_the_short_layout(tmp_path: Path) -> None:
    book = make_short_layout()
    book["settings"] = [[k, 2 if k == "max_num_rounds" else v] for k, v in book["settings"]]
    run = run_workbook(book, tmp_path)
    assert {s["ended"] for s in read_sessions(run)} == {"rounds"}
    assert {s["stopped_in"] for s in read_sessions(run)} == {"m"}


def test_every_permutation_has_its_files_and_the_same_seats(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "constants!B2", '["apples", "pears"]')
    run = run_workbook(book, tmp_path)
    assert not (run.path / "market.json").exists()
    first, second = read_rows(run, "market_1"), read_rows(run, "market_2")
    assert {r["constant_goods"] for r in first} == {"apples"}
    assert {r["constant_goods"] for r in second} == {"pears"}
    seats = [(r["ID"], r["session"], r["role"], r["treatment"]) for r in first]
    assert seats == [(r["ID"], r["session"], r["role"], r["treatment"]) for r in second]
    data = json.loads((run.path / "market_2.json").read_text())
    assert (data["permutation"], data["constants"]) == (2, {"goods": "pears"})
    assert run.table("permutations").height == 2


def test_the_report_of_a_stopped_run_writes_the_files_of_its_finished_sessions(
    tmp_path: Path, run_plain_workbook: PlainRun
) -> None:
    whole, _ = run_plain_workbook()
    out = tmp_path / "stopped"

    def dies(request: Any, address: str) -> str:
        if "market.2/m/" in address:
            raise RuntimeError("power cut")
        return make_script()(request, address)

    def slow_second(address: str) -> float:
        return 0.05 if "market.2" in address else 0.0

    with pytest.raises(RuntimeError):
        folkmoot.run(
            write_workbook(make_workbook(), tmp_path / "book.xlsx"),
            out=out,
            provider=ScriptedProvider(dies, latency=slow_second),
        )
    assert not (out / "market.json").exists()
    done = CliRunner().invoke(app, ["report", str(out)])
    assert done.exit_code == 0, done.output
    data = json.loads((out / "market.json").read_text())
    assert (data["sessions_planned"], data["sessions_finished"]) == (2, 1)
    assert data["sessions"] == read_sessions(whole)[:1]
    # A heading and the four participants of a session.
    lines = (out / "market.csv").read_text().splitlines()
    assert lines == (whole.path / "market.csv").read_text().splitlines()[:5]


def test_a_session_without_computed_values_takes_none_of_another(tmp_path: Path) -> None:
    book = with_cell(make_manual_workbook(), f"{TASKS}!F5", "Trade? {response_options}")
    # Only buyers state how sure they are, and the first session has no buyer.
    for row in book["agent_profiles"][2:6]:
        row[-1] = "Seller"
    book["computed"] = [["name", "scope", "expression"], ["doubt", "participant", "1 - sure"]]
    run = run_workbook(book, tmp_path)
    first, second = read_sessions(run)
    assert [person["computed"] for person in first["participants"]] == [{}] * 4
    doubts = [person["computed"] for person in second["participants"]]
    assert doubts == [{"doubt": 0.5}, {"doubt": 0.5}, {}, {}]
    assert [row["doubt"] for row in read_rows(run)] == [*[""] * 4, "0.5", "0.5", "", ""]


def test_serial_concurrent_and_resumed_runs_write_the_same(tmp_path: Path) -> None:
    digests = []
    late = lambda address: len(address) % 7 / 2000  # noqa: E731
    for name, concurrency, latency in (("a", 1, 0.0), ("b", 64, late)):
        folder = tmp_path / name
        folder.mkdir()
        provider = ScriptedProvider(make_script(), latency=latency)
        run = run_workbook(make_workbook(), folder, provider, concurrency=concurrency)
        files = [run.path / "market.json", run.path / "market.csv"]
        digests.append([f.read_bytes() for f in [*files, *sorted(run.path.glob("tables/*.csv"))]])
    assert digests[0] == digests[1]


def test_limit_plays_the_first_sessions_only(tmp_path: Path) -> None:
    run = run_workbook(make_workbook(), tmp_path, limit=1)
    assert len(read_sessions(run)) == 1


def test_a_limit_does_not_raise_the_number_of_sessions_in_a_study_file() -> None:
    config = load_study_file(EXAMPLE).config.model_copy(update={"first_sessions": 1})
    assert limit_sessions(config, 3).first_sessions == 1


@pytest.mark.parametrize("make", [make_older_layout, make_short_layout])
def test_other_layouts_play(make: Any, tmp_path: Path) -> None:
    run = run_workbook(make(), tmp_path)
    assert len(read_rows(run)) == 8


def test_backstories_are_written_once_per_participant(tmp_path: Path) -> None:
    book = make_older_layout()
    book["experimental_setting"][-1][1] = True
    provider = make_provider(text="I was born by the sea.")
    run = run_workbook(book, tmp_path, provider)
    assert len(select_requests(provider, "backstories")) == 8
    system = list_message_texts(read_sessions(run)[0]["participants"][0])[0]
    assert "I was born by the sea." in system


def test_the_example_satisfies_the_accounting_identity(tmp_path: Path) -> None:
    run = folkmoot.run(EXAMPLE, model="synthetic", out=tmp_path / "out")
    table = read_rows(run, "public_goods")
    assert len(table) == 16 and {r["session"] for r in table} == {"1", "2", "3", "4"}
    assert {r["missing"] for r in table} == {""}
    for session in "1234":
        group = [r for r in table if r["session"] == session]
        given = sum(float(r[f"give_{n}"]) for r in group for n in (1, 2, 3))
        earned = sum(float(r["earnings"]) for r in group)
        # The payoffs are the tokens that were kept plus twice those that were given.
        assert earned == pytest.approx(4 * 10 * 3 - given + 2 * given)
        assert float(group[0]["group_earnings"]) == pytest.approx(earned)
        for n in (1, 2, 3):
            total = sum(float(r[f"give_{n}"]) for r in group)
            for r in group:
                assert 0 <= float(r[f"give_{n}"]) <= 10
                payoff = 10 - float(r[f"give_{n}"]) + 2 * total / 4
                assert float(r[f"payoff_{n}"]) == pytest.approx(payoff)
    assert run.folder.is_synthetic
    # Computed numbers keep their type in the JSON file.
    computed = read_sessions(run, "public_goods")[0]["computed"]
    assert {name: type(value) for name, value in computed.items()} == {
        **dict.fromkeys(("total_1", "total_2", "total_3"), int),
        "group_earnings": float,
    }


def test_roles_that_are_not_asked_hear_the_question_without_values(tmp_path: Path) -> None:
    cell = '{"Buyer": "You offered {{ offer }} of {{ total }}. {response_options}"}'
    book = with_cell(make_workbook(), f"{TASKS}!F5", cell)
    run = run_workbook(book, tmp_path, make_provider(number=3))
    for person in read_sessions(run)[0]["participants"]:
        heard = "\n".join(list_message_texts(person))
        if person["role"] == "Seller":
            assert "You offered … of 12." in heard and "You offered 3" not in heard
        else:
            assert "You offered 3 of 12." in heard and "…" not in heard


def test_no_answer_breaks_a_later_prompt(tmp_path: Path) -> None:
    """All participants of the first session offer 0, those of the second one have no idea."""
    zero, none = make_script(number="0"), make_script(number="no idea")

    def answer(request: Any, address: str) -> str:
        return (zero if "market.1/" in address else none)(request, address)

    provider = ScriptedProvider(answer, keep_requests=True)
    text = (
        "You got {{ share | round(1) }}, or {{ offer | int }} and {{ offer | abs }}. "
        "You got {{ offer - 1 }} {{ -offer }} {{ 10 / offer }} {{ offer + total }}. "
        "{% if offer > 3 %}Much{% else %}Little or nothing{% endif %} {{ offer | upper }}"
    )
    run = run_workbook(
        with_cell(make_workbook(), f"{TASKS}!F5", f"{text} {{response_options}}"),
        tmp_path,
        provider,
    )
    assert len(read_rows(run)) == 8
    for session in ("market.1/", "market.2/"):
        prompts = [r.messages[-1].content for r in select_requests(provider, session, "/m/")]
        assert len(prompts) == 4 and all("You got" in prompt for prompt in prompts)
    assert all("not available, or not available" in prompt for prompt in prompts)


HOSTILE_REPLIES = (
    *("9" * 500, '{"response": NaN, "speculation_score": NaN}', "1e999", "{" * 300),
    *('{"response": "\\ud800", "speculation_score": 5}', "\x00\x1b[31m", "=cmd|' /C calc'!A0"),
    *('{"response": ' + "9" * 5000 + "}", "{{ 1 / 0 }} {response_options}"),
)


@pytest.mark.parametrize("validate", [0, 1])
def test_no_reply_breaks_a_run(tmp_path: Path, validate: int) -> None:
    """In each session, all answers are one of these replies."""
    sessions = len(HOSTILE_REPLIES)
    book = with_setting(make_workbook(), "num_sessions", sessions)
    book = with_setting(book, "num_agents_per_session", 2)
    book["agent_profiles"] = book["agent_profiles"][:2]
    book["agent_profiles"] += [[f"p{i}", 20 + i, "x"] for i in range(2 * sessions)]
    for row in (3, 4, 5, 6):
        book = with_cell(book, f"{TASKS}!K{row}", validate if row > 3 else 0)
    book = with_cell(book, f"{TASKS}!H4", "float")
    book = with_cell(book, f"{TASKS}!I4", "any number")

    def answer(request: Any, address: str) -> str:
        (number,) = re.findall(r"market\.(\d+)/", address)
        return HOSTILE_REPLIES[int(number) - 1]

    run = run_workbook(book, tmp_path, ScriptedProvider(answer))
    table = read_rows(run)
    assert len(table) == 2 * sessions
    assert not any(cell.startswith("=") for row in table for cell in row.values())
    json.loads((run.path / "market.json").read_text())
    assert run.findings
