"""Seats in the engine: which places people take, what is asked of them, and what is kept."""

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


def by_hand(answer: Answers, seen: list[PendingQuestion] | None = None) -> SeatHost:
    """A person who answers at once, without a page."""

    @asynccontextmanager
    async def host(desk: SeatManager) -> AsyncIterator[None]:
        async def sit(chair: SeatState) -> None:
            desk.record_consent(chair)
            while not chair.ended:
                question = desk.current_question(chair)
                if question is None:
                    await chair.changed.wait()
                    continue
                if seen is not None:
                    seen.append(question)
                await desk.answer(chair, question, answer(chair, question))

        sitting = [asyncio.ensure_future(sit(chair)) for chair in desk]
        try:
            yield
        finally:
            desk.finish()
            await asyncio.gather(*sitting)

    return host


def first_option(_: SeatState, question: PendingQuestion) -> str:
    return question.view.options[0] if question.view.options else "Words of my own."


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "centre.yaml"
    path.write_text(STUDY, "utf-8")
    return path


def test_a_person_answers_in_a_seat_and_models_in_all_others(study: Path) -> None:
    seen: list[PendingQuestion] = []
    out = study.parent / "run"
    run = folkmoot.run(study, out=out, seats=("p_0003",), seat_host=by_hand(first_option, seen))
    rows = run.table("answers").to_dicts()
    people = {r["speaker_id"] for r in rows if r["answered_by"] == "human"}
    assert people == {"p_0003"}
    assert {r["answered_by"] for r in rows if r["speaker_id"] != "p_0003"} == {"synthetic"}
    assert seen and all(q.view.speaker.id == "p_0003" for q in seen)
    assert len(seen) == sum(r["speaker_id"] == "p_0003" for r in rows)
    assert run.manifest["mark"] == "MIXED"


def test_a_person_gets_what_a_model_in_that_seat_would_get(study: Path) -> None:
    seen: list[PendingQuestion] = []
    folkmoot.run(
        study, out=study.parent / "a", seats=("p_0003",), seat_host=by_hand(first_option, seen)
    )
    asked: dict[str, ModelRequest] = {}
    from folkmoot.models.scripted import ScriptedProvider

    def note(request: ModelRequest, address: str) -> str:
        asked[address] = request
        return request.hints.offered[0] if request.hints.offered else "Words of my own."

    folkmoot.run(study, out=study.parent / "b", provider=ScriptedProvider(note))
    first = next(q for q in seen)
    assert first.request.messages == asked[first.address].messages


def test_a_run_with_people_can_be_verified(study: Path) -> None:
    run = folkmoot.run(
        study, out=study.parent / "run", seats=("p_0003",), seat_host=by_hand(first_option)
    )
    verification = verify_run(RunFolder(run.path))
    assert verification.is_consistent, (verification.differences, verification.not_compared)


def test_answers_are_there_after_a_pause_and_links_are_the_same(study: Path) -> None:
    out = study.parent / "run"
    seen: list[PendingQuestion] = []
    tokens: list[str] = []

    def once(chair: SeatState, question: PendingQuestion) -> str:
        tokens.append(chair.token)
        return first_option(chair, question)

    def options() -> dict[str, object]:
        return {"out": out, "seats": ("p_0003",), "seat_host": by_hand(once, seen)}

    with pytest.raises(RunPausedError):
        folkmoot.run(
            study,
            settings=None,
            overrides=("budget_calls=3",),
            **options(),  # type: ignore[arg-type]
        )
    before = len(seen)
    run = folkmoot.run(study, **options())  # type: ignore[arg-type]
    asked = [q.address for q in seen]
    assert before >= 1 and len(set(asked)) == len(asked)
    assert len(set(tokens)) == 1 and len(tokens[0]) >= 32
    assert run.manifest["outcome"] == "done"


def test_tokens_are_for_the_owner_alone_and_stand_in_one_file(study: Path) -> None:
    run = folkmoot.run(
        study, out=study.parent / "run", seats=("p_0003",), seat_host=by_hand(first_option)
    )
    kept = run.path / "seats.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    token = json.loads(kept.read_text())["seats"]["p_0003"]["token"]
    others = [p for p in run.path.rglob("*") if p.is_file() and p != kept]
    assert [p for p in others if token.encode() in p.read_bytes()] == []


def test_people_take_no_place_and_no_money(study: Path) -> None:
    run = folkmoot.run(
        study,
        out=study.parent / "run",
        concurrency=1,
        seats=("p_0001", "p_0002", "p_0003"),
        seat_host=by_hand(first_option),
    )
    human = next(m for m in run.manifest["models"] if m["asked"] == "human")
    with JournalReader(run.path / "journal.sqlite") as journal:
        assert journal.human_answer_count() == human["calls"] < journal.count_calls()
    assert human["cost_usd"] == 0 and human["calls"] > 0


def test_whoever_would_rather_not_answer_leaves_a_missing_answer(study: Path) -> None:
    run = folkmoot.run(
        study, out=study.parent / "run", seats=("p_0003",), seat_host=by_hand(lambda _c, _q: None)
    )
    rows = run.table("answers").filter(folkmoot_col("speaker_id") == "p_0003")
    assert set(rows["missing"]) == {DECLINED}


def folkmoot_col(name: str):  # type: ignore[no-untyped-def]
    import polars as pl

    return pl.col(name)


def test_an_answer_out_of_time_is_missing_and_the_others_go_on(study: Path) -> None:
    now = [0.0]

    @asynccontextmanager
    async def host(desk: SeatManager) -> AsyncIterator[None]:
        desk.clock = lambda: now[0]
        desk.advance_clock()  # time passes by this clock from now on
        (chair,) = desk

        async def sit() -> None:
            desk.record_consent(chair)
            while not chair.ended:
                if desk.current_question(chair) is not None:
                    now[0] += 59
                    desk.advance_clock()
                    assert desk.current_question(chair) is not None
                    now[0] += 2
                    desk.advance_clock()
                    assert desk.current_question(chair) is None
                await chair.changed.wait()

        sitting = asyncio.ensure_future(sit())
        yield
        desk.finish()
        await sitting

    study.write_text(STUDY + "seats: {ids: [p_0003], minutes: 1}\n")
    run = folkmoot.run(study, out=study.parent / "run", seat_host=host)
    rows = run.table("answers").filter(folkmoot_col("speaker_id") == "p_0003")
    assert set(rows["missing"]) == {"timed out"}
    others = run.table("answers").filter(folkmoot_col("speaker_id") != "p_0003")
    assert others["missing"].null_count() == others.height


PLACES = (
    Seat("A01", ("set1_lv1",), condition="1", closed_reason="one call speaks for all"),
    Seat("A01", ("set1_lv2",), condition="2"),
    Seat("A02", ("set1_lv2",), condition="2", role="chair"),
)


@pytest.mark.parametrize(
    ("seats", "says"),
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
def test_seats_that_cannot_be_taken_are_named(seats: SeatSettings, says: str) -> None:
    with pytest.raises(InputError) as error:
        select_seats(seats, PLACES, 42)
    assert says in str(error.value)


def test_seats_are_drawn_by_the_seed_among_those_that_fit() -> None:
    many = [Seat(f"p_{k}", condition="ab"[k % 2]) for k in range(40)]
    drawn = {select_seats(SeatSettings(count=3), many, seed) for seed in range(20)}
    assert len(drawn) > 10 and select_seats(SeatSettings(count=3), many, 7) == select_seats(
        SeatSettings(count=3), many, 7
    )
    some = select_seats(SeatSettings(count=5, condition="b"), many, 1)
    assert {p.condition for p in some} == {"b"} and list(some) == sorted(some, key=many.index)
    assert len(select_seats(SeatSettings(condition="a"), many, 1)) == 20


@pytest.mark.parametrize("given", ["3", "[p_0001]", "p_0001", "{condition: clarified_passive}"])
def test_a_study_file_may_say_seats_in_short(study: Path, given: str) -> None:
    study.write_text(f"{STUDY}seats: {given}\n")
    assert load_study_with_options(study, RunOptions()).config.seats is not None


def test_a_seat_that_does_not_exist_is_named_with_its_line(study: Path) -> None:
    study.write_text(f"{STUDY}seats: [p_0009]\n")
    with pytest.raises(InputError, match=r"centre\.yaml:\d+: .*no participant 'p_0009'"):
        load_study_with_options(study, RunOptions())


def test_people_without_anybody_who_serves_their_pages_are_refused(study: Path) -> None:
    with pytest.raises(InputError, match="no server for their pages"):
        folkmoot.run(study, out=study.parent / "run", seats=("p_0001",))
    assert not (study.parent / "run").exists()


def test_estimates_leave_people_out(study: Path) -> None:
    alone = estimate_run(load_study_with_options(study, RunOptions()), "synthetic")
    with_people = estimate_run(
        load_study_with_options(study, RunOptions(seats=("p_0001", "p_0002"))), "synthetic"
    )
    assert 0 < with_people.calls < alone.calls


def test_an_open_entry_is_estimated_as_if_nobody_came(study: Path) -> None:
    alone = estimate_run(load_study_with_options(study, RunOptions()), "synthetic")
    study_file = load_study_with_options(study, RunOptions(seats=("open",)))
    assert study_file.config.seats == SeatSettings(open=True)
    assert estimate_run(study_file, "synthetic").calls == alone.calls


def test_seats_of_an_open_entry_fill_group_by_group_and_conditions_take_turns() -> None:
    """So people meet people, and who comes early is in any condition."""
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
    alone = entry_order([Seat("p_1", condition="a"), Seat("p_2", condition="b")], 0)
    assert {seat.condition for seat in alone} == {"a", "b"}


def test_a_deadline_for_single_links_is_refused_for_an_open_entry(study: Path) -> None:
    study.write_text(STUDY + "seats: {open: true, arrive_minutes: 5}\n")
    with pytest.raises(InputError, match="lobby_minutes"):
        load_study_with_options(study, RunOptions())


def test_people_may_speak_for_themselves(study: Path) -> None:
    """Their own words stand where the persona stood, in every prompt of theirs and nowhere else."""
    study.write_text(STUDY + "seats: {ids: [p_0003], as: self}\n")
    seen: list[PendingQuestion] = []

    def answer(chair: SeatState, question: PendingQuestion) -> str:
        if question.address.startswith("seats/"):
            return json.dumps({"age": 34, "occupation": "glazier", "about": "I keep bees."})
        return first_option(chair, question)

    run = folkmoot.run(study, out=study.parent / "run", seat_host=by_hand(answer, seen))
    asked_about = [q for q in seen if q.address == "seats/p_0003/self"]
    others = [q for q in seen if q.address != "seats/p_0003/self"]
    assert len(asked_about) == 1 and seen[0] is asked_about[0] and others
    persona = json.loads((run.path / "personas.json").read_text())["personas"][2]
    for question in others:
        assert "age: 34; occupation: glazier. I keep bees." in question.view.speaker.system
        assert persona["enriched_persona"] not in question.request.messages[0].content
    said = "yourself. age: 34; occupation: glazier. I keep bees."
    assert run.table("self_descriptions").rows() == [
        ("p_0003", "p_0003", "seats/p_0003/self", said)
    ]
    own = run.table("provenance").filter(kind="persona", speaker="p_0003")
    assert own["source_id"].unique().to_list() == ["self_descriptions.text/p_0003"]
    book = run.folder.codebook()
    meanings = {
        f"{table}.{name}": facts["meaning"]
        for table in ("provenance", "self_descriptions", "utterances")
        for name, facts in book[table]["columns"].items()
    }
    # The spans of a persona and of an answer have other meanings than the columns of `answers`.
    assert meanings["provenance.kind"].startswith("what the text is: utterance, answer, persona")
    assert meanings["provenance.speaker"].endswith("or whom a persona describes")
    assert meanings["self_descriptions.text"].startswith("the self-description")
    assert all(meanings.values())
    assert verify_run(RunFolder(run.path)).is_consistent
    assert run.folder.config["seats"]["as"] == "self"


CARD = describe_oneself(Seat("p_1"), "yourself. age: 34.")


def test_a_self_description_takes_the_place_of_the_persona_whatever_is_around_it() -> None:
    """By the source of the text: equal words elsewhere stay, other spans move with it."""
    persona = quote_value("a nurse", "persona", "people.text/p_1", "p_1")
    other = quote_value("a nurse", "persona", "people.text/p_2", "p_2")
    topic = quote_value("ovens", "material", "study.topic")
    parts = ("Not a nurse. ", other, " | ", persona, " on ", topic, " and ", persona)
    text = concatenate_texts(parts, plain=None)
    speaker = Speaker("p_1", system=Prompt(text, text.spans, [len("Not a nurse. a nurse | ")]))
    system = with_self_description(speaker, CARD).system
    assert system == "Not a nurse. a nurse | yourself. age: 34. on ovens and "
    assert isinstance(system, Prompt) and system.cache_breakpoints == (23,)
    found = {system[s.start : s.end]: s.source for s in system.spans}
    assert found == {
        "a nurse": other.source,
        "yourself. age: 34.": CARD.source,
        "ovens": topic.source,
    }


@pytest.mark.parametrize(
    ("system", "becomes"),
    [
        ("You are yourself. Be brief.", "You are yourself. age: 34. Be brief."),
        (SELF_DESCRIPTION_PLACEHOLDER, "yourself. age: 34."),
        ("Be brief.", "You are yourself. age: 34.\n\nBe brief."),
    ],
)
def test_a_prompt_without_a_template_says_yourself_where_the_description_stands(
    system: str, becomes: str
) -> None:
    changed = with_self_description(Speaker("p_1", system=system), CARD).system
    assert changed == becomes
    assert CARD.source in [span.source for span in spans_of(changed)]


def test_a_seat_that_nobody_takes_is_closed_after_its_time(study: Path) -> None:
    @asynccontextmanager
    async def host(desk: SeatManager) -> AsyncIterator[None]:
        now = [0.0]
        desk.clock = lambda: now[0]
        desk.advance_clock()
        (chair,) = desk
        now[0] = 599.0
        desk.advance_clock()
        assert not chair.ended
        now[0] = 601.0
        desk.advance_clock()
        yield

    study.write_text(STUDY + "seats: {ids: [p_0003], arrive_minutes: 10}\n")
    run = folkmoot.run(study, out=study.parent / "run", seat_host=host)
    rows = run.table("answers").filter(folkmoot_col("speaker_id") == "p_0003")
    assert set(rows["missing"]) == {"seat closed"}


async def test_many_who_arrive_at_once_are_written_down_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told to go on when it is on the disk, with few writes; a later process knows all."""
    writes: list[Path] = []

    def noted(path: Path, data: dict[str, object]) -> None:
        writes.append(path)
        write_private(path, data)

    places = [Seat(f"p_{n}") for n in range(200)]
    seat_manager = SeatManager(places, SeatSettings(), tmp_path)
    monkeypatch.setattr("folkmoot.engine.seats.seat_manager.write_private", noted)

    async def arrives(chair: SeatState) -> None:
        seat_manager.record_link_ids(chair, {"PROLIFIC_PID": chair.seat.name})
        seat_manager.record_consent(chair)
        await seat_manager.wait_until_saved()
        assert json.loads((tmp_path / "seats.json").read_text())["seats"][chair.seat.name]["agreed"]

    await asyncio.gather(*map(arrives, seat_manager))
    assert 2 <= len(writes) <= 6
    assert all(chair.has_agreed for chair in SeatManager(places, SeatSettings(), tmp_path))
    assert recruitment_ids(tmp_path) == {p.name: {"PROLIFIC_PID": p.name} for p in places}
    await seat_manager.wait_until_saved()
    assert len(writes) <= 6  # nothing is written where nothing has changed
    assert stat.S_IMODE((tmp_path / "people.json").stat().st_mode) == 0o600


def test_a_run_that_people_alone_answered_is_marked_human_and_a_mixed_one_mixed(
    tmp_path: Path,
) -> None:
    """In the manifest, the exports, the report, and the study's own pages; a seat counts where
    somebody gave an answer, also where several have one id; an empty one marks nothing."""
    votes = tmp_path / "votes.yaml"
    votes.write_text(STUDY.replace(", clarified_passive", ""), "utf-8")
    everybody = ("p_0001", "p_0002", "p_0003")
    human = folkmoot.run(
        votes, out=tmp_path / "human", seats=everybody, seat_host=by_hand(first_option)
    )
    assert human.manifest["mark"] == human.folder.mark == "HUMAN"
    assert human.manifest["note"] == "Answers are by people in 3 seats."
    assert build_document(human.folder).mark == "HUMAN"
    assert export_readme(human.folder, "csv").startswith("HUMAN. Answers are by people in 3 seats.")

    talk = tmp_path / "talk.yaml"
    talk.write_text(TALK, "utf-8")
    namesakes = ("group_001/p_0002", "group_002/p_0002")

    def answer(_: SeatState, question: PendingQuestion) -> str:
        if question.view.answer_kind == "json":
            return json.dumps({"position": 0.5, "opinion": "I would try it."})
        return first_option(_, question)

    mixed = folkmoot.run(talk, out=tmp_path / "mixed", seats=namesakes, seat_host=by_hand(answer))
    assert mixed.manifest["mark"] == "MIXED"
    assert mixed.manifest["note"].startswith("Answers are by people in 2 seats; the embedded")
    assert "MIXED" in (mixed.path / "topline.md").read_text("utf-8")

    @asynccontextmanager
    async def nobody(desk: SeatManager) -> AsyncIterator[None]:
        for chair in desk:
            desk.close_seat(chair, SEAT_CLOSED)
        yield

    empty = folkmoot.run(votes, out=tmp_path / "empty", seats=("p_0001",), seat_host=nobody)
    assert empty.manifest["mark"] == "SYNTHETIC"
