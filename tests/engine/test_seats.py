"""Seats in the engine: which participants humans play, what they are asked, and what is stored."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import folkmoot
from folkmoot.conversation.prompts import Prompt
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import estimate_run
from folkmoot.engine.run.execution import RunOptions, SeatHost
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.seats.seat_manager import (
    DECLINED,
    SEAT_CLOSED,
    PendingQuestion,
    SeatManager,
    SeatState,
    recruitment_ids,
    write_private,
)
from folkmoot.engine.seats.seats import (
    SELF_DESCRIPTION_PLACEHOLDER,
    Seat,
    SeatSettings,
    describe_oneself,
    entry_order,
    select_seats,
    with_self_description,
)
from folkmoot.errors import InputError, RunPausedError
from folkmoot.models.request import ModelRequest
from folkmoot.provenance import concatenate_texts, quote_value, spans_of
from folkmoot.report.document.document import build_document
from folkmoot.report.export import export_readme
from folkmoot.storage.run_folder import RunFolder

STUDY = """
study: cross_pollination
pilot_id: centre
topic:
  description: Should the town close its centre to cars?
  options: [Close it, Keep it open]
participants_per_condition: 3
conditions: [simple_voting, clarified_passive]
min_responses_for_threshold: 50
personas: {source: quota}
"""

TALK = """
study: focus_group
category: coffee
product_concept: A reusable cup that keeps coffee hot for six hours.
num_personas: 2
replications: 2
questions_per_phase: 1
"""

Answers = Callable[[SeatState, PendingQuestion], str | None]


def build_seat_host(answer: Answers, questions: list[PendingQuestion] | None = None) -> SeatHost:
    """Return a seat host for humans who answer at once, without a page."""

    @asynccontextmanager
    async def host(seat_manager: SeatManager) -> AsyncIterator[None]:
        async def answer_questions(seat_state: SeatState) -> None:
            seat_manager.record_consent(seat_state)
            while not seat_state.ended:
                question = seat_manager.current_question(seat_state)
                if question is None:
                    await seat_state.changed.wait()
                    continue
                if questions is not None:
                    questions.append(question)
                await seat_manager.answer(seat_state, question, answer(seat_state, question))

        answering_tasks = [
            asyncio.ensure_future(answer_questions(seat_state)) for seat_state in seat_manager
        ]
        try:
            yield
        finally:
            seat_manager.finish()
            await asyncio.gather(*answering_tasks)

    return host


def choose_first_option(_: SeatState, question: PendingQuestion) -> str:
    return question.view.options[0] if question.view.options else "Words of my own."


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "centre.yaml"
    path.write_text(STUDY, "utf-8")
    return path


def test_human_answers_in_one_seat_and_models_in_all_others(study: Path) -> None:
    questions: list[PendingQuestion] = []
    out = study.parent / "run"
    run = folkmoot.run(
        study, out=out, seats=("p_0003",), seat_host=build_seat_host(choose_first_option, questions)
    )
    rows = run.table("answers").to_dicts()
    human_speakers = {row["speaker_id"] for row in rows if row["answered_by"] == "human"}
    assert human_speakers == {"p_0003"}
    assert {row["answered_by"] for row in rows if row["speaker_id"] != "p_0003"} == {"synthetic"}
    assert questions and all(question.view.speaker.id == "p_0003" for question in questions)
    assert len(questions) == sum(row["speaker_id"] == "p_0003" for row in rows)
    assert run.manifest["mark"] == "MIXED"


def test_human_gets_the_prompts_that_a_model_would_get(study: Path) -> None:
    questions: list[PendingQuestion] = []
    folkmoot.run(
        study,
        out=study.parent / "a",
        seats=("p_0003",),
        seat_host=build_seat_host(choose_first_option, questions),
    )
    requests_by_address: dict[str, ModelRequest] = {}
    from folkmoot.models.scripted import ScriptedProvider

    def answer_as_model(request: ModelRequest, address: str) -> str:
        requests_by_address[address] = request
        return request.hints.offered[0] if request.hints.offered else "Words of my own."

    folkmoot.run(study, out=study.parent / "b", provider=ScriptedProvider(answer_as_model))
    first_question = next(question for question in questions)
    assert first_question.request.messages == requests_by_address[first_question.address].messages


def test_run_with_humans_can_be_verified(study: Path) -> None:
    run = folkmoot.run(
        study,
        out=study.parent / "run",
        seats=("p_0003",),
        seat_host=build_seat_host(choose_first_option),
    )
    verification = verify_run(RunFolder(run.path))
    assert verification.is_consistent, (verification.differences, verification.not_compared)


def test_answers_are_kept_after_a_pause_and_links_stay_the_same(study: Path) -> None:
    out = study.parent / "run"
    questions: list[PendingQuestion] = []
    tokens: list[str] = []

    def answer_first_question(seat_state: SeatState, question: PendingQuestion) -> str:
        tokens.append(seat_state.token)
        return choose_first_option(seat_state, question)

    def options() -> dict[str, object]:
        return {
            "out": out,
            "seats": ("p_0003",),
            "seat_host": build_seat_host(answer_first_question, questions),
        }

    with pytest.raises(RunPausedError):
        folkmoot.run(
            study,
            settings=None,
            overrides=("budget_calls=3",),
            **options(),  # type: ignore[arg-type]
        )
    before = len(questions)
    run = folkmoot.run(study, **options())  # type: ignore[arg-type]
    asked_addresses = [question.address for question in questions]
    assert before >= 1 and len(set(asked_addresses)) == len(asked_addresses)
    assert len(set(tokens)) == 1 and len(tokens[0]) >= 32
    assert run.manifest["outcome"] == "done"


def test_tokens_are_private_and_in_one_file(study: Path) -> None:
    run = folkmoot.run(
        study,
        out=study.parent / "run",
        seats=("p_0003",),
        seat_host=build_seat_host(choose_first_option),
    )
    seats_file = run.path / "seats.json"
    assert stat.S_IMODE(seats_file.stat().st_mode) == 0o600
    token = json.loads(seats_file.read_text())["seats"]["p_0003"]["token"]
    other_files = [p for p in run.path.rglob("*") if p.is_file() and p != seats_file]
    assert [p for p in other_files if token.encode() in p.read_bytes()] == []


def test_humans_use_no_slot_and_no_money(study: Path) -> None:
    run = folkmoot.run(
        study,
        out=study.parent / "run",
        concurrency=1,
        seats=("p_0001", "p_0002", "p_0003"),
        seat_host=build_seat_host(choose_first_option),
    )
    human = next(model for model in run.manifest["models"] if model["asked"] == "human")
    with JournalReader(run.path / "journal.sqlite") as journal:
        assert journal.human_answer_count() == human["calls"] < journal.count_calls()
    assert human["cost_usd"] == 0 and human["calls"] > 0


def test_declined_question_gives_a_missing_answer(study: Path) -> None:
    run = folkmoot.run(
        study,
        out=study.parent / "run",
        seats=("p_0003",),
        seat_host=build_seat_host(lambda _c, _q: None),
    )
    rows = run.table("answers").filter(column("speaker_id") == "p_0003")
    assert set(rows["missing"]) == {DECLINED}


def column(name: str):  # type: ignore[no-untyped-def]
    import polars as pl

    return pl.col(name)


def test_timed_out_answer_is_missing_and_others_continue(study: Path) -> None:
    now = [0.0]

    @asynccontextmanager
    async def host(seat_manager: SeatManager) -> AsyncIterator[None]:
        seat_manager.clock = lambda: now[0]
        seat_manager.advance_clock()  # from now on the test controls the clock
        (seat_state,) = seat_manager

        async def wait_for_timeout() -> None:
            seat_manager.record_consent(seat_state)
            while not seat_state.ended:
                if seat_manager.current_question(seat_state) is not None:
                    now[0] += 59
                    seat_manager.advance_clock()
                    assert seat_manager.current_question(seat_state) is not None
                    now[0] += 2
                    seat_manager.advance_clock()
                    assert seat_manager.current_question(seat_state) is None
                await seat_state.changed.wait()

        sitting = asyncio.ensure_future(wait_for_timeout())
        yield
        seat_manager.finish()
        await sitting

    study.write_text(STUDY + "seats: {ids: [p_0003], minutes: 1}\n")
    run = folkmoot.run(study, out=study.parent / "run", seat_host=host)
    rows = run.table("answers").filter(column("speaker_id") == "p_0003")
    assert set(rows["missing"]) == {"timed out"}
    # There was nothing to read. Free text has no `how`.
    assert set(rows.filter(column("said").is_not_null())["how"]) == {"no_reply"}
    other_answers = run.table("answers").filter(column("speaker_id") != "p_0003")
    assert other_answers["missing"].null_count() == other_answers.height


PLACES = (
    Seat("A01", ("set1_lv1",), condition="1", closed_reason="one call speaks for all"),
    Seat("A01", ("set1_lv2",), condition="2"),
    Seat("A02", ("set1_lv2",), condition="2", role="chair"),
)


@pytest.mark.parametrize(
    ("seats", "expected_text"),
    [
        (SeatSettings(ids=("A03",)), "there is no participant 'A03'"),
        (SeatSettings(ids=("A01",)), "A01 is a participant of 2 sessions"),
        (
            SeatSettings(ids=("set1_lv1/A01",)),
            "a human cannot take the seat set1_lv1/A01: one call speaks for all",
        ),
        (SeatSettings(condition="3"), "no participant has the condition '3'"),
        (SeatSettings(role="char"), "no participant has the role 'char'"),
        (SeatSettings(condition="1"), "a human cannot take the seat set1_lv1/A01"),
        (SeatSettings(count=3), "3 seats are requested, but only 2 can"),
    ],
)
def test_invalid_seats_are_named(seats: SeatSettings, expected_text: str) -> None:
    with pytest.raises(InputError) as error:
        select_seats(seats, PLACES, 42)
    assert expected_text in str(error.value)


def test_seats_are_drawn_by_the_seed_among_matching_participants() -> None:
    seats = [Seat(f"p_{k}", condition="ab"[k % 2]) for k in range(40)]
    selections = {select_seats(SeatSettings(count=3), seats, seed) for seed in range(20)}
    assert len(selections) > 10 and select_seats(SeatSettings(count=3), seats, 7) == select_seats(
        SeatSettings(count=3), seats, 7
    )
    selected = select_seats(SeatSettings(count=5, condition="b"), seats, 1)
    assert {p.condition for p in selected} == {"b"} and list(selected) == sorted(
        selected, key=seats.index
    )
    assert len(select_seats(SeatSettings(condition="a"), seats, 1)) == 20


@pytest.mark.parametrize(
    "seats_value", ["3", "[p_0001]", "p_0001", "{condition: clarified_passive}"]
)
def test_study_file_accepts_short_forms_of_seats(study: Path, seats_value: str) -> None:
    study.write_text(f"{STUDY}seats: {seats_value}\n")
    assert load_study_with_options(study, RunOptions()).config.seats is not None


def test_unknown_seat_is_named_with_its_line(study: Path) -> None:
    study.write_text(f"{STUDY}seats: [p_0009]\n")
    with pytest.raises(InputError, match=r"centre\.yaml:\d+: .*no participant 'p_0009'"):
        load_study_with_options(study, RunOptions())


def test_humans_without_a_page_server_are_refused(study: Path) -> None:
    with pytest.raises(InputError, match="no server for their pages"):
        folkmoot.run(study, out=study.parent / "run", seats=("p_0001",))
    assert not (study.parent / "run").exists()


def test_estimates_exclude_humans(study: Path) -> None:
    estimate_without_humans = estimate_run(
        load_study_with_options(study, RunOptions()), "synthetic"
    )
    with_people = estimate_run(
        load_study_with_options(study, RunOptions(seats=("p_0001", "p_0002"))), "synthetic"
    )
    assert 0 < with_people.calls < estimate_without_humans.calls


def test_open_entry_is_estimated_without_humans(study: Path) -> None:
    estimate_without_humans = estimate_run(
        load_study_with_options(study, RunOptions()), "synthetic"
    )
    study_file = load_study_with_options(study, RunOptions(seats=("open",)))
    assert study_file.config.seats == SeatSettings(open=True)
    assert estimate_run(study_file, "synthetic").calls == estimate_without_humans.calls


def test_open_entry_fills_seats_group_by_group_in_alternating_conditions() -> None:
    """Humans meet each other, and early arrivals are spread over the conditions."""
    seats = [
        Seat(f"{group}_{n}", (group,), condition=group[0])
        for group in ("a1", "a2", "a3", "b1", "b2", "b3")
        for n in range(4)
    ]
    orders = [entry_order(seats, seed) for seed in range(40)]
    for order in orders:
        assert sorted(order, key=seats.index) == seats
        groups = [order[start : start + 4] for start in range(0, 24, 4)]
        assert all(len({seat.group for seat in group}) == 1 for group in groups)
        conditions = [group[0].condition for group in groups]
        assert all({*conditions[pair : pair + 2]} == {"a", "b"} for pair in (0, 2, 4))
    assert orders[0] == entry_order(seats, 0)
    assert {order[0].group for order in orders} == {"a1", "a2", "a3", "b1", "b2", "b3"}
    # A participant without a group is a group of one.
    entries_without_groups = entry_order(
        [Seat("p_1", condition="a"), Seat("p_2", condition="b")], 0
    )
    assert {seat.condition for seat in entries_without_groups} == {"a", "b"}


def test_deadline_for_single_links_is_refused_for_an_open_entry(study: Path) -> None:
    study.write_text(STUDY + "seats: {open: true, arrive_minutes: 5}\n")
    with pytest.raises(InputError, match="lobby_minutes"):
        load_study_with_options(study, RunOptions())


def test_humans_may_describe_themselves(study: Path) -> None:
    """The self-description replaces the persona in every prompt of the human and in no other."""
    study.write_text(STUDY + "seats: {ids: [p_0003], as: self}\n")
    questions: list[PendingQuestion] = []

    def answer(seat_state: SeatState, question: PendingQuestion) -> str:
        if question.address.startswith("seats/"):
            return json.dumps({"age": 34, "occupation": "glazier", "about": "I keep bees."})
        return choose_first_option(seat_state, question)

    run = folkmoot.run(
        study, out=study.parent / "run", seat_host=build_seat_host(answer, questions)
    )
    self_questions = [question for question in questions if question.address == "seats/p_0003/self"]
    other_questions = [
        question for question in questions if question.address != "seats/p_0003/self"
    ]
    assert len(self_questions) == 1 and questions[0] is self_questions[0] and other_questions
    persona = json.loads((run.path / "personas.json").read_text())["personas"][2]
    for question in other_questions:
        assert "age: 34; occupation: glazier. I keep bees." in question.view.speaker.system
        assert persona["enriched_persona"] not in question.request.messages[0].content
    self_description = "yourself. age: 34; occupation: glazier. I keep bees."
    assert run.table("self_descriptions").rows() == [
        ("p_0003", "p_0003", "seats/p_0003/self", self_description)
    ]
    persona_spans = run.table("provenance").filter(kind="persona", speaker="p_0003")
    assert persona_spans["source_id"].unique().to_list() == ["self_descriptions.text/p_0003"]
    book = run.folder.codebook()
    meanings = {
        f"{table}.{name}": facts["meaning"]
        for table in ("provenance", "self_descriptions", "utterances")
        for name, facts in book[table]["columns"].items()
    }
    # The spans of a persona and of an answer are not the columns of `answers`.
    assert meanings["provenance.kind"].startswith("what the text is: utterance, answer, persona")
    assert meanings["provenance.speaker"].endswith("or whom a persona describes")
    assert meanings["self_descriptions.text"].startswith("the self-description")
    assert all(meanings.values())
    assert verify_run(RunFolder(run.path)).is_consistent
    assert run.folder.config["seats"]["as"] == "self"


CARD = describe_oneself(Seat("p_1"), "yourself. age: 34.")


def test_self_description_replaces_the_persona_in_any_context() -> None:
    """The source of a text decides. Equal text elsewhere stays, and other spans are shifted."""
    persona = quote_value("a nurse", "persona", "people.text/p_1", "p_1")
    other_persona = quote_value("a nurse", "persona", "people.text/p_2", "p_2")
    topic = quote_value("ovens", "material", "study.topic")
    parts = ("Not a nurse. ", other_persona, " | ", persona, " on ", topic, " and ", persona)
    text = concatenate_texts(parts, plain=None)
    speaker = Speaker("p_1", system=Prompt(text, text.spans, [len("Not a nurse. a nurse | ")]))
    system = with_self_description(speaker, CARD).system
    assert system == "Not a nurse. a nurse | yourself. age: 34. on ovens and "
    assert isinstance(system, Prompt) and system.cache_breakpoints == (23,)
    sources = {system[span.start : span.end]: span.source for span in system.spans}
    assert sources == {
        "a nurse": other_persona.source,
        "yourself. age: 34.": CARD.source,
        "ovens": topic.source,
    }


@pytest.mark.parametrize(
    ("system", "becomes"),
    [
        ("You are yourself. Be brief.", "You are yourself. age: 34. Be brief."),
        (SELF_DESCRIPTION_PLACEHOLDER, "yourself. age: 34."),
        ("Be brief.", "You are yourself. age: 34.\n\nBe brief."),
        ("You are yourself. Be yourself.", "You are yourself. age: 34. Be yourself."),
        (
            "Say: " + quote_value("Be yourself.", "material", "study.topic"),
            "You are yourself. age: 34.\n\nSay: Be yourself.",
        ),
    ],
)
def test_prompt_without_a_template_contains_the_self_description(system: str, becomes: str) -> None:
    changed_system = with_self_description(Speaker("p_1", system=system), CARD).system
    assert changed_system == becomes
    assert CARD.source in [span.source for span in spans_of(changed_system)]


def test_unused_seat_is_closed_after_its_time(study: Path) -> None:
    @asynccontextmanager
    async def host(seat_manager: SeatManager) -> AsyncIterator[None]:
        now = [0.0]
        seat_manager.clock = lambda: now[0]
        seat_manager.advance_clock()
        (seat_state,) = seat_manager
        now[0] = 599.0
        seat_manager.advance_clock()
        assert not seat_state.ended
        now[0] = 601.0
        seat_manager.advance_clock()
        yield

    study.write_text(STUDY + "seats: {ids: [p_0003], arrive_minutes: 10}\n")
    run = folkmoot.run(study, out=study.parent / "run", seat_host=host)
    rows = run.table("answers").filter(column("speaker_id") == "p_0003")
    assert set(rows["missing"]) == {"seat closed"}


async def test_simultaneous_arrivals_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each human is admitted once the arrival is on disk. Few writes store all arrivals."""
    writes: list[Path] = []

    def count_writes(path: Path, data: dict[str, object]) -> None:
        writes.append(path)
        write_private(path, data)

    seats = [Seat(f"p_{n}") for n in range(200)]
    seat_manager = SeatManager(seats, SeatSettings(), tmp_path)
    monkeypatch.setattr("folkmoot.engine.seats.seat_manager.write_private", count_writes)

    async def record_arrival(seat_state: SeatState) -> None:
        seat_manager.record_link_ids(seat_state, {"PROLIFIC_PID": seat_state.seat.name})
        seat_manager.record_consent(seat_state)
        await seat_manager.wait_until_saved()
        assert json.loads((tmp_path / "seats.json").read_text())["seats"][seat_state.seat.name][
            "agreed"
        ]

    await asyncio.gather(*map(record_arrival, seat_manager))
    assert 2 <= len(writes) <= 6
    assert all(seat_state.has_agreed for seat_state in SeatManager(seats, SeatSettings(), tmp_path))
    assert recruitment_ids(tmp_path) == {seat.name: {"PROLIFIC_PID": seat.name} for seat in seats}
    await seat_manager.wait_until_saved()
    assert len(writes) <= 6  # nothing is written without a change
    assert stat.S_IMODE((tmp_path / "people.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("by_button", [True, False])
def test_run_with_humans_who_only_declined_is_marked_mixed(study: Path, by_button: bool) -> None:
    def decline(_: SeatState, question: PendingQuestion) -> str | None:
        if by_button:
            return None
        return "declined" if question.view.options else "I would rather not say."

    run = folkmoot.run(
        study,
        out=study.parent / "run",
        seats=("p_0001",),
        overrides=("conditions=[simple_voting]",),
        seat_host=build_seat_host(decline),
    )
    replies = run.table("answers").filter(answered_by="human")
    assert set(replies["missing"]) == {"declined"}
    assert run.manifest["mark"] == "MIXED"
    assert run.manifest["note"].startswith("Answers are by people in 1 seat; the embedded")
    # Files of the study have the label that follows from the recorded answers.
    assert run.folder.provenance_sentence.startswith("MIXED")


def test_run_answered_only_by_humans_is_marked_human_and_others_mixed(
    tmp_path: Path,
) -> None:
    """Check the manifest, exports, report and study pages. A seat counts if a human gave an answer,
    also if several seats have one id. An empty seat does not count."""
    votes = tmp_path / "votes.yaml"
    votes.write_text(STUDY.replace(", clarified_passive", ""), "utf-8")
    everybody = ("p_0001", "p_0002", "p_0003")
    human = folkmoot.run(
        votes,
        out=tmp_path / "human",
        seats=everybody,
        seat_host=build_seat_host(choose_first_option),
    )
    assert human.manifest["mark"] == human.folder.mark == "HUMAN"
    assert human.manifest["note"] == "Answers are by people in 3 seats."
    assert build_document(human.folder).mark == "HUMAN"
    assert export_readme(human.folder, "csv").startswith("HUMAN. Answers are by people in 3 seats.")

    study_path = tmp_path / "talk.yaml"
    study_path.write_text(TALK, "utf-8")
    namesakes = ("group_001/p_0002", "group_002/p_0002")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        if question.view.answer_kind == "json":
            return json.dumps({"position": 0.5, "opinion": "I would try it."})
        return choose_first_option(_, question)

    mixed = folkmoot.run(
        study_path, out=tmp_path / "mixed", seats=namesakes, seat_host=build_seat_host(answer)
    )
    assert mixed.manifest["mark"] == "MIXED"
    assert mixed.manifest["note"].startswith("Answers are by people in 2 seats; the embedded")
    assert "MIXED" in (mixed.path / "topline.md").read_text("utf-8")

    @asynccontextmanager
    async def host_without_humans(seat_manager: SeatManager) -> AsyncIterator[None]:
        for seat_state in seat_manager:
            seat_manager.close_seat(seat_state, SEAT_CLOSED)
        yield

    run_without_humans = folkmoot.run(
        votes, out=tmp_path / "empty", seats=("p_0001",), seat_host=host_without_humans
    )
    assert run_without_humans.manifest["mark"] == "SYNTHETIC"
