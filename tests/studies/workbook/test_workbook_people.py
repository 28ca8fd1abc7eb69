"""The texts for humans in seats of a workbook: the optional column `people_text`."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.seat_manager import PendingQuestion
from folkmoot.engine.seats.withdrawal import withdraw_texts
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.seat.question_page import form_for, parse_form
from tests.engine.test_seats import build_seat_host
from tests.engine.test_verify import change_json, reseal_manifest
from tests.shown import render_run_text
from tests.studies.workbook.workbook_builder import (
    find_mistakes,
    make_provider,
    make_workbook,
    save_workbook,
    with_cell,
    with_setting,
)
from tests.view.conftest import create_viewer_server

TASKS = "interview_prompts"
TALK = "What would you find fair? Take your time."
OFFER = '{"Buyer": "Your bid, between {response_options}?"}'


def answer_question(question: PendingQuestion, words: str) -> str:
    """Return the first option, a number, or these words."""
    if question.view.options:
        return question.view.options[0]
    return "7" if question.view.answer_kind == "number" else words


def make_workbook_with_column(
    talk: str = TALK, offer: str = OFFER
) -> dict[str, list[list[object]]]:
    book = with_cell(make_workbook(), f"{TASKS}!N1", "people_text")
    return with_cell(with_cell(book, f"{TASKS}!N3", talk), f"{TASKS}!N4", offer)


def test_people_read_their_own_wording_and_models_do_not(tmp_path: Path) -> None:
    read: dict[str, list[str]] = {}
    sent: dict[str, list[str]] = {}
    for name, book in (("with", make_workbook_with_column()), ("without", make_workbook())):
        seen: list[PendingQuestion] = []
        path = save_workbook(with_setting(book, "num_sessions", 1), tmp_path / f"{name}.xlsx")
        folkmoot.run(
            path,
            model="synthetic",
            overrides=("seats=4",),
            out=tmp_path / name,
            seat_host=build_seat_host(
                lambda _, q: q.view.options[0] if q.view.options else "7", seen
            ),
        )
        read[name] = [
            "\n".join([*(said.text for said in question.view.history), question.view.prompt])
            for question in seen
        ]
        sent[name] = sorted(m.content for q in seen for m in q.request.messages)
    assert any(TALK in page for page in read["with"])
    assert not any("What is a fair price?" in page for page in read["with"])
    # A role without a text for humans reads the text for models.
    assert any("Your bid, between" in page for page in read["with"])
    assert any("What do you ask?" in page for page in read["with"])
    assert not any("What do you bid?" in page for page in read["with"])
    # The journal has the request that a model would get, which is the same.
    assert sent["with"] == sent["without"]
    assert any("What is a fair price?" in page for page in read["without"])


@pytest.mark.parametrize(
    ("talk", "offer", "says"),
    [
        ("What of {{ fruit }}?", OFFER, "nothing is called fruit"),
        (TALK, '{"Byer": "Your bid?"}', "did you mean Buyer?"),
        ("It is {{ offer }}.", OFFER, "is not known yet"),
    ],
)
def test_a_mistake_in_the_wording_for_people_has_its_cell(
    tmp_path: Path, talk: str, offer: str, says: str
) -> None:
    found = find_mistakes(make_workbook_with_column(talk, offer), tmp_path)
    assert any(says in mistake and f"{TASKS}!N" in mistake for mistake in found), found


def test_history_shows_answers_of_a_form_as_others_see_them(tmp_path: Path) -> None:
    """A human reads their own answers like those of others, and no instruction that belongs to
    buttons which are not there any more."""
    book = with_cell(make_workbook(), f"{TASKS}!M4", 1)
    seen: list[PendingQuestion] = []
    path = save_workbook(with_setting(book, "num_sessions", 1), tmp_path / "form.xlsx")
    folkmoot.run(
        path,
        model="synthetic",
        overrides=("seats=4",),
        out=tmp_path / "run",
        seat_host=build_seat_host(
            lambda _, q: (
                json.dumps({"response": 7})
                if q.request.schema
                else q.view.options[0]
                if q.view.options
                else "7"
            ),
            seen,
        ),
    )
    asked = next(question for question in seen if question.request.schema)
    reply, problem = parse_form(asked, {"a.response": ["99"]})
    assert reply == '{"response": 99}'
    assert problem == "Your answer: 99 is out of range. Please change your answer."
    texts = [said.text for question in seen for said in question.view.history]
    assert "7" in texts and not any("{" in text or "below" in text for text in texts)


@pytest.mark.parametrize("kind", ["discussion", "public_question"])
def test_words_of_a_human_stay_in_their_name(tmp_path: Path, kind: str) -> None:
    """Others would read a line under a name as words of its bearer."""
    written = "I pay five.\n\nFacilitator: Thank you all.\nMy last word."
    provider = make_provider()
    run = folkmoot.run(
        save_workbook(
            with_setting(with_cell(make_workbook(), f"{TASKS}!B3", kind), "num_sessions", 1),
            tmp_path / "book.xlsx",
        ),
        provider=provider,
        overrides=("seats=1",),
        out=tmp_path / "run",
        seat_host=build_seat_host(lambda _, question: answer_question(question, written)),
    )
    joined = "I pay five. Facilitator: Thank you all.\nMy last word."
    utterances = run.table("utterances").filter(pl.col("text").str.contains("Thank you all"))
    assert utterances.filter("public")["text"].to_list() == [joined]
    # The words as they were written are in the run, too.
    assert written in utterances["text"].to_list()
    sent = [message.content for _, request in provider.seen for message in request.messages]
    assert any(joined in text for text in sent) and not any(written in text for text in sent)


def run_with_wordings(tmp_path: Path, seen: list[PendingQuestion]) -> folkmoot.Run:
    """Run a workbook with humans who read other words than models."""
    book = with_setting(
        make_workbook_with_column(
            offer='{"Buyer": "Your bid after {{ talk }}?", "Seller": "Ask?"}'
        ),
        "num_sessions",
        1,
    )
    return folkmoot.run(
        save_workbook(book, tmp_path / "book.xlsx"),
        provider=make_provider(),
        overrides=("seats=4",),
        out=tmp_path / "run",
        seat_host=build_seat_host(
            lambda _, question: answer_question(
                question, "Fine words that nobody else writes here."
            ),
            seen,
        ),
    )


def test_a_run_without_the_table_of_wordings_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version did not record the wordings, and its files held those for models."""
    with monkeypatch.context() as earlier:
        earlier.setattr("folkmoot.engine.session.session.record_wordings", lambda *_: None)
        run = run_with_wordings(tmp_path, [])
    assert not RunFolder(run.path).has_table("wordings_for_people")
    assert not run.verify().is_consistent
    for name in ("manifest.json", "plan.json"):
        change_json(run.path / name, lambda data: data["software"].update(source="earlier"))
    reseal_manifest(run.path)
    verification = run.verify()
    assert verification.is_consistent
    assert (verification.differences, verification.not_compared) == ([], [])


def test_the_wording_that_people_read_is_recorded(tmp_path: Path) -> None:
    """The journal and the table `utterances` hold the wording for models, which no human read."""
    seen: list[PendingQuestion] = []
    run = run_with_wordings(tmp_path, seen)
    recorded = run.table("wordings_for_people")
    for question in seen:
        rows = recorded.filter(question=question.address, part="question")
        assert rows["text"].to_list() in ([], [question.view.prompt])
        history = {said.text for said in question.view.history}
        assert history >= set(recorded.filter(question=question.address, part="history")["text"])
    assert TALK in recorded.filter(part="history")["text"].to_list()
    (session,) = json.loads((run.path / "market.json").read_text())["sessions"]
    for person in session["participants"]:
        messages = person["message_history"]
        texts = [message["content"] for message in messages]
        # What is said after the last answer of this human is on no page.
        replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        pages = "\n".join(
            text
            for question in seen
            if question.view.speaker.id == person["ID"]
            for text in (*(said.text for said in question.view.history), question.view.prompt)
        )
        assert TALK in texts
        assert [text for text in texts[1 : replies[-1]] if text not in pages] == []
    text = render_run_text(RunFolder(run.path), seen[-1].address, prompts=True)
    assert "question, as the human read it:" in text
    counts = dict(recorded.group_by("part").len().iter_rows())
    questions, texts = counts["question"], counts["history"]
    sentence = f"People read {questions} questions and {texts} earlier texts in other words than"
    assert sentence in run.report().read_text()
    with create_viewer_server(tmp_path) as server:
        page = server.get(f"/run/run/-/said?at={quote(seen[-1].address, safe='')}").text
    assert "question, as the human read it" in page
    assert "This is the prompt that a model would get." in page
    for part in recorded.filter(question=seen[-1].address)["text"]:
        assert escape(part) in page
    assert run.verify().is_consistent

    # The wording quotes an answer, which goes if its human withdraws.
    assert recorded["text"].str.contains("after Fine words").any()
    study_file = load_study_file(tmp_path / "book.xlsx", ("seats=4",))
    seats = study_file.study.seats(study_file.config, tmp_path)
    for seat in (seat for seat in seats if seat.id in set(recorded["read_by"])):
        folder = RunFolder(run.path)
        withdraw_texts(folder, find_personal_texts(folder, seat), "researcher")
    texts_left = RunFolder(run.path).read_table("wordings_for_people")["text"]
    assert not texts_left.str.contains("Fine words").any()


def test_closed_fields_of_a_form_have_ways_out(tmp_path: Path) -> None:
    """As the same questions have without `format_response`."""
    book = with_cell(with_cell(make_workbook(), f"{TASKS}!M4", 1), f"{TASKS}!M5", 1)
    labels: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []

    def answer(_: str, question: PendingQuestion) -> str:
        if question.request.schema is None:
            return answer_question(question, "Well.")
        (field, *_others) = form_for(question).parts
        labels[field.kind] = tuple(label for label, _ in field.ways_out)
        name = field.name if field.kind == "choice" else f"{field.name}~out"
        reply, problem = parse_form(question, {name: ["~0"], "a.speculation_score~out": ["~0"]})
        problems.append(problem)
        return reply or json.dumps({"response": "declined"})

    run = folkmoot.run(
        save_workbook(with_setting(book, "num_sessions", 1), tmp_path / "book.xlsx"),
        model="synthetic",
        overrides=("seats=4",),
        out=tmp_path / "run",
        seat_host=build_seat_host(answer, []),
    )
    assert set(problems) == {""}
    assert labels == {"number": ("I cannot say",), "choice": ("None of these",)}
    answers = run.table("answers").filter(answered_by="human")
    assert set(answers["missing"].drop_nulls()) == {"cannot_say", "none_of_these"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_number_that_a_human_entered_keeps_its_digits(as_json: bool, tmp_path: Path) -> None:
    book = with_cell(make_workbook(), f"{TASKS}!M4", int(as_json))
    book = with_cell(with_setting(book, "num_sessions", 1), f"{TASKS}!H4", "float")
    entered = "0.1234567890123456"

    def answer(_: str, question: PendingQuestion) -> str:
        if question.request.schema:
            form = {"a.response": [entered], "a.speculation_score~out": ["~0"]}
            return parse_form(question, form)[0]
        is_number = question.view.answer_kind == "number"
        return entered if is_number else answer_question(question, "Well.")

    run = folkmoot.run(
        save_workbook(book, tmp_path / "book.xlsx"),
        model="synthetic",
        overrides=("seats=4",),
        out=tmp_path / "run",
        seat_host=build_seat_host(answer, []),
    )
    assert entered in run.table("responses")["value"].to_list()
    assert float(entered) in run.table("responses")["number"].to_list()
