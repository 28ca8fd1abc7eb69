"""Scopes: structural addresses, one thing at a time, forks that drain, replies that replay."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import folkmoot
from folkmoot import Choice, Missing, Number, Run, Session, Speaker, Study, StudyConfig, Utterance
from folkmoot.conversation.answer_types import Json
from folkmoot.engine.calls.progress import ProgressTally
from folkmoot.engine.session import computations
from folkmoot.engine.session.session import Scope
from folkmoot.errors import DriftError, ProtocolError, RefusedError
from folkmoot.models.request import Completion, Message, ModelRequest, Usage
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.disk_store import StoredValue
from folkmoot.storage.run_folder import ENGINE_FILES, PERSONAS
from tests.turns import yield_to_loop

ANN = Speaker("ann", "Ann", "participant", "You are Ann.")


def run(
    tmp_path: Path,
    protocol: Callable[[Session], Awaitable[None]],
    model: ScriptedProvider | None = None,
    **options: Any,
) -> Run:
    study = Study("trial", "Trial", StudyConfig, protocol)
    provider = model or ScriptedProvider(lambda request, address: f"said at {address}")
    return folkmoot.run(study, {}, out=tmp_path / "run", provider=provider, **options)


def test_addresses_are_paths_and_counts(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(_request: ModelRequest, address: str) -> str:
        seen.append(address)
        return "yes"

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "One?")
        await session.ask(ANN, "Two?")

        async def one(scope: Scope, who: str) -> None:
            await scope.child("first").ask(ANN, "Three?")

        await session.child("stage").map(["p/1"], one)

    run(tmp_path, protocol, ScriptedProvider(answer))
    assert seen == ["ask0", "ask1", "stage/p%2F1/first/ask0"]


def test_two_calls_at_once_in_one_scope_are_refused(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await asyncio.gather(session.ask(ANN, "a"), session.ask(ANN, "b"))

    with pytest.raises(ProtocolError, match="one thing at a time"):
        run(tmp_path, protocol, ScriptedProvider(lambda r, a: "x", latency=0.01))


def test_an_address_used_twice_is_refused(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.child("stage").ask(ANN, "a")
        await session.child("stage").ask(ANN, "b")

    with pytest.raises(ProtocolError, match="another scope uses this path"):
        run(tmp_path, protocol)


def test_each_refuses_a_key_twice(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def nothing(scope: Scope, item: str) -> None:
            return None

        await session.map(["a", "b", "a"], nothing)

    with pytest.raises(ProtocolError, match="duplicate key, 'a'"):
        run(tmp_path, protocol)


def test_results_and_rows_come_in_input_order_whatever_finishes_first(tmp_path: Path) -> None:
    orders: list[list[str]] = []

    async def protocol(session: Session) -> None:
        async def one(scope: Scope, n: int) -> str | Missing:
            answer = await scope.ask(ANN, f"{n}?")
            scope.record("numbers", {"n": n})
            return answer

        found = await session.child("stage").map(range(20), one)
        orders.append(list(found))
        session.record("numbers", {"n": -1})

    async def late_first(_request: ModelRequest, address: str) -> str:
        await yield_to_loop(20 - int(address.split("/")[1]))
        return "ok"

    found = run(tmp_path, protocol, ScriptedProvider(late_first))
    assert orders == [[str(n) for n in range(20)]]
    assert found.table("numbers")["n"].to_list() == [*range(20), -1]


def test_each_drains_before_it_raises(tmp_path: Path) -> None:
    """Replies in flight when one item fails are paid for: they are awaited and journaled."""

    async def protocol(session: Session) -> None:
        async def one(scope: Scope, n: int) -> None:
            await scope.ask(ANN, f"{n}?")
            if n == 0:
                raise ValueError("broken study")
            await scope.ask(ANN, "and then?")

        await session.child("stage").map(range(5), one)

    async def first_is_quick(_request: ModelRequest, address: str) -> str:
        await yield_to_loop(0 if address == "stage/0/ask0" else 50)
        return "ok"

    model = ScriptedProvider(first_is_quick)
    with pytest.raises(ValueError, match="broken study"):
        run(tmp_path, protocol, model)
    import sqlite3

    db = sqlite3.connect(tmp_path / "run" / "journal.sqlite")
    addresses = {a for (a,) in db.execute("SELECT address FROM entries")}
    assert addresses == {f"stage/{n}/ask0" for n in range(5)}


def test_in_turn_gives_each_speaker_what_was_said_before(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def speak(scope: Scope, who: Speaker, heard: Any) -> Utterance | None:
            if who.id == "b":
                return None
            said = await scope.ask(who, "Your turn.", history=heard)
            return Utterance(who.id, str(said), who.name)

        people = [Speaker(x, x.upper()) for x in "abc"]
        transcript = await session.child("round").take_turns(people, speak)
        assert [u.speaker_id for u in transcript] == ["a", "c"]

    seen: list[str] = []

    def answer(request: ModelRequest, _address: str) -> str:
        seen.append(request.messages[-1].content)
        return "I speak."

    run(tmp_path, protocol, ScriptedProvider(answer))
    assert seen == ["Your turn.", "I speak.\n\nYour turn."]


def test_unreadable_answers_are_asked_for_again_and_then_missing(tmp_path: Path) -> None:
    replies = iter(["maybe", "the park", "perhaps", "who knows"])
    prompts: list[list[str]] = []

    def answer(request: ModelRequest, _address: str) -> str:
        prompts.append([m.role for m in request.messages])
        return next(replies)

    async def protocol(session: Session) -> None:
        wanted = Choice(["The park", "The bridge"])
        assert await session.ask(ANN, "Which?", answer_type=wanted) == "The park"
        got = await session.ask(ANN, "Which?", answer_type=wanted)
        assert (
            isinstance(got, Missing) and got.reason == "unparsed" and got.last_reply == "who knows"
        )

    found = run(tmp_path, protocol, ScriptedProvider(answer))
    assert prompts[1] == ["system", "user", "assistant", "user"]
    answers = found.table("answers")
    assert answers["parse_step"].to_list() == ["clarified", "missing"]
    assert answers["reasks"].to_list() == [1, 1]
    assert answers["position"].to_list() == [1, None]


def voting(replies: list[str]) -> tuple[ScriptedProvider, Callable[[Session], Awaitable[None]]]:
    """A model that gives these replies in turn, and a protocol that asks for one vote."""

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "Mall", "10 %"]))

    return ScriptedProvider(
        lambda r, a: replies[int(a.partition(".r")[2] or 0)], keep_requests=True
    ), protocol


def test_a_choice_is_clarified_once_and_never_forced(tmp_path: Path) -> None:
    model, protocol = voting(["Not Park, Mall rather", '{"stated": "Mall"}'])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["recorded"], row["how"]) == ("Mall", "Mall", "clarified")
    assert (row["said"], row["agrees"], row["reasks"]) == ("Not Park, Mall rather", "several", 1)
    first, second = (request for _, request in model.seen)
    assert first.schema is None and second.schema is not None
    assert "A. Park\nB. Mall\nC. 10 %" in second.messages[-1].content
    assert second.messages[-2] == Message("assistant", "Not Park, Mall rather")
    ways_out = ["none_of_these", "declined"]
    assert second.schema["properties"]["stated"]["enum"] == ["Park", "Mall", "10 %", *ways_out]
    silent = ScriptedProvider(_refuse)
    again = run(tmp_path, protocol, silent)
    assert silent.calls == 0 and again.table("answers")["value"].to_list() == ["Mall"]


@pytest.mark.parametrize("last", ['{"stated": "Par"}', '{"stated": "2"', "{}", "Neither", "1"])
def test_a_clarification_is_never_guessed_either(tmp_path: Path, last: str) -> None:
    model, protocol = voting(["Hm.", last])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["recorded"], row["missing"]) == (None, None, "unparsed")
    assert (row["how"], row["agrees"], model.calls) == ("unreadable", None, 2)


REFUSALS = (
    "I would rather not take part in this vote.",
    "As a language model I hold no preferences.",
    "Ich möchte dazu nichts sagen.",
    "Je préfère m'abstenir.",
    "私は投票しません。",
    "No thank you!",
    'I will not pick any of "Park", "Mall" or "10 %".',
    'I cannot vote for "Park".',
)


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(
    ("second", "recorded"),
    [
        ('{"stated": "declined"}', "declined"),
        ('{"stated": "none_of_these"}', "none_of_these"),
        ("declined", "declined"),
        ("None of these.", "none_of_these"),
    ],
)
def test_a_refusal_in_any_language_is_recorded_as_one(
    tmp_path: Path, refusal: str, second: str, recorded: str
) -> None:
    model, protocol = voting([refusal, second])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["recorded"], row["missing"]) == (None, recorded, recorded)
    assert row["how"] == ("refused" if recorded == "declined" else "clarified")
    assert row["said"] == refusal and model.calls == 2


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_model_that_declines_in_plain_words_twice_has_no_vote(
    tmp_path: Path, refusal: str
) -> None:
    model, protocol = voting([refusal, refusal])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], model.calls) == (None, "unreadable", 2)


def test_an_empty_vote_is_asked_again_with_the_ways_out(tmp_path: Path) -> None:
    model, protocol = voting(["", '{"stated": "Park"}'])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], row["agrees"]) == ("Park", "clarified", "none")
    _, second = (request for _, request in model.seen)
    assert [m.role for m in second.messages][-1] == "user"
    assert second.messages[-1].content.startswith("Which?")


def test_a_cut_vote_is_clarified_with_twice_the_limit(tmp_path: Path) -> None:
    replies = [Completion("Park", Usage(1, 16), finish="length"), Completion('{"stated": "Park"}')]

    async def protocol(session: Session) -> None:
        options = Choice(["Park", "Park and ride"])
        await session.ask(ANN, "Which?", answer_type=options, max_tokens=16)

    model = ScriptedProvider(
        lambda r, a: replies[int(a.partition(".r")[2] or 0)], keep_requests=True
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], model.calls) == ("Park", "clarified", 2)
    assert [request.max_tokens for _, request in model.seen] == [16, 32]


@pytest.mark.parametrize(
    ("said", "agrees"),
    [
        ("Park is fine, I guess, since Ann asked", "same"),
        ("The mall, I guess, since Ann asked", "other"),
        ("Park or mall, I cannot decide", "several"),
        ("Something green would be nice", "none"),
        ("I lean towards option B, mostly", "other"),
    ],
)
def test_a_vote_that_contradicts_the_first_reply_is_marked(
    tmp_path: Path, said: str, agrees: str
) -> None:
    model, protocol = voting([said, '{"stated": "Park"}'])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], row["agrees"]) == ("Park", "clarified", agrees)


def test_a_declined_json_answer_is_missing_even_where_there_is_a_fallback(tmp_path: Path) -> None:
    class Stance(BaseModel):
        stance: int = 0

    async def protocol(session: Session) -> None:
        wanted = Json(Stance, fallback_value=Stance(), may_decline=True)
        got = await session.ask(ANN, "How much?", answer_type=wanted)
        assert isinstance(got, Missing) and got.reason == "declined"

    model = ScriptedProvider(lambda r, a: '{"declined": true, "stance": 5}', keep_requests=True)
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["missing"], row["how"], row["recorded"]) == ("declined", "refused", "declined")
    ((_, request),) = model.seen
    assert request.schema is not None and next(iter(request.schema["properties"])) == "declined"


@pytest.mark.parametrize("way_out", ["cannot_say", "declined", "Cannot say."])
def test_a_number_has_a_way_out(tmp_path: Path, way_out: str) -> None:
    replies = ["Hard to tell.", way_out]

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How sure?", answer_type=Number(0, 100))

    model = ScriptedProvider(
        lambda r, a: replies[int(a.partition(".r")[2] or 0)], keep_requests=True
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    reason = way_out.lower().strip(".").replace(" ", "_")
    assert (row["value"], row["recorded"], row["missing"]) == (None, reason, reason)
    assert "cannot_say" in model.seen[1][1].messages[-1].content


@pytest.mark.parametrize(
    ("last", "value", "missing"),
    [
        ('{"number": 62}', "62.0", None),
        ('```json\n{"number": "62"}\n```', "62.0", None),
        ("62", "62.0", None),
        ('{"number": "cannot_say"}', None, "cannot_say"),
        ('{"number": 620}', None, "unparsed"),
        ('{"number": true}', None, "unparsed"),
        ("I would say from 0 to 100.", None, "unparsed"),
    ],
)
def test_the_last_reask_of_a_number_wants_json_with_a_way_out(
    tmp_path: Path, last: str, value: str | None, missing: str | None
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How sure?", answer_type=Number(0, 100))

    model = ScriptedProvider(
        lambda r, a: last if a.endswith(".r2") else "From 0 to 100, I agree.", keep_requests=True
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["missing"], row["reasks"]) == (value, missing, 2)
    schemas = [request.schema for _, request in model.seen]
    assert schemas[:2] == [None, None] and schemas[2] is not None
    number, way_out = schemas[2]["properties"]["number"]["anyOf"]
    assert (number["minimum"], number["maximum"]) == (0, 100)
    assert way_out["enum"] == ["cannot_say", "declined"]


@pytest.mark.parametrize(
    ("wanted", "said", "value"),
    [
        (Choice(["Park", "Park and ride"]), "Park", None),
        (Choice(["Park", "Park and ride"]), "Park\n\n\n", "Park"),
        (Number(0, 100), "1", None),
    ],
)
def test_the_beginning_of_an_answer_is_not_the_answer(
    tmp_path: Path, wanted: Any, said: str, value: str | None
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=wanted)

    model = ScriptedProvider(lambda r, a: Completion(said, Usage(1, 1), finish="length"))
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["finish"]) == (value, "length")


@pytest.mark.parametrize(
    ("finish", "how"),
    [
        ("refused:refused", "refused"),
        ("refused:filtered", "refused"),
        ("refused:too_long", "unreadable"),
        ("refused:rejected", "unreadable"),
    ],
)
def test_a_prompt_that_does_not_fit_is_no_refusal(tmp_path: Path, finish: str, how: str) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "Mall"]))

    model = ScriptedProvider(lambda r, a: Completion("", Usage(1, 0), finish=finish))
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["how"], row["recorded"]) == (how, None)


def test_options_that_nobody_can_tell_apart_are_the_studys_mistake(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "park"]))

    with pytest.raises(ProtocolError, match="'Park' and 'park' cannot be distinguished"):
        run(tmp_path, protocol)


def test_a_refusal_is_an_outcome_with_its_reason(tmp_path: Path) -> None:
    def answer(_request: ModelRequest, _address: str) -> str:
        raise RefusedError("the prompt is too long", reason="context_too_long")

    async def protocol(session: Session) -> None:
        got = await session.ask(ANN, "Well?")
        assert isinstance(got, Missing) and got.reason == "context_too_long"

    run(tmp_path, protocol, ScriptedProvider(answer))


def test_a_finished_run_replays_without_a_single_call(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def one(scope: Scope, n: int) -> float | Missing:
            return await scope.ask(ANN, "How many?", answer_type=Number(0, 100))

        numbers = await session.child("stage").map(range(30), one)
        vectors = await session.child("vectors").embed(["a tree", "a river"])
        total = await session.child("sum").compute(_total, vectors, list(numbers.values()))
        session.record("result", {"total": total["sum"], "draw": float(session.rng.random())})

    first = run(tmp_path, protocol, ScriptedProvider(lambda r, a: str(len(a))))
    silent = ScriptedProvider(_refuse)
    second = run(tmp_path, protocol, silent)
    assert second.table("result").equals(first.table("result"))
    assert second.folder.manifest["journal_digest"] == first.folder.manifest["journal_digest"]


def _refuse(_request: ModelRequest, address: str) -> str:
    raise AssertionError(f"{address} was asked again")


def _total(vectors: np.ndarray, numbers: list[float]) -> dict[str, float]:
    return {"sum": float(vectors.sum()) + sum(numbers)}


def test_a_computation_is_done_in_a_thread(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        assert await session.compute(threading.get_ident) != threading.get_ident()

    run(tmp_path, protocol)


def test_a_named_computation_is_found_again_when_its_function_has_another_name(
    tmp_path: Path,
) -> None:
    def another(vectors: np.ndarray, numbers: list[float]) -> dict[str, float]:
        raise AssertionError("computed again")

    for function in (_total, another):

        async def protocol(session: Session, function: Callable[..., object] = function) -> None:
            got = await session.compute(function, np.ones(2), [1.0], name="total")
            assert got == {"sum": 3.0}

        run(tmp_path, protocol)


@pytest.mark.parametrize("in_memory", [32_000_000, 0])
def test_embeddings_have_length_one_and_are_the_same_after_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(computations, "MAX_EMBEDDING_BYTES_IN_MEMORY", in_memory)
    seen: list[np.ndarray] = []

    async def protocol(session: Session) -> None:
        vectors = await session.embed([f"text {i}" for i in range(250)])
        assert vectors.shape[0] == 250
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert isinstance(vectors.base, np.memmap) == (not in_memory)
        assert (await session.child("nothing").embed([])).shape == (0, 0)
        seen.append(vectors)

    run(tmp_path, protocol)
    run(tmp_path, protocol, ScriptedProvider(_refuse))
    assert np.array_equal(seen[0], seen[1])


def test_what_a_scope_keeps_comes_back_and_leaves_no_file(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def one(scope: Scope, n: int) -> StoredValue[dict[str, object]]:
            return scope.store({"n": n, "text": "long " * 1000})

        kept = await session.map(range(20), one)
        assert [k.load()["n"] for k in kept.values()] == list(range(20))

    done = run(tmp_path, protocol)
    assert not [p for p in done.path.iterdir() if p.name.startswith("tmp")]


def test_a_changed_prompt_stops_a_resume_and_says_where(tmp_path: Path) -> None:
    def asking(text: str) -> Callable[[Session], Awaitable[None]]:
        async def protocol(session: Session) -> None:
            await session.child("stage").ask(ANN, text)

        return protocol

    run(tmp_path, asking("What about the park?"))
    with pytest.raises(DriftError, match=r"(?s)stage/ask0.*the park.*the bridge"):
        run(tmp_path, asking("What about the bridge?"))
    again = run(tmp_path, asking("What about the bridge?"), accept_changes=True)
    assert again.table("answers").height == 1


def test_a_draw_more_in_one_stage_shifts_no_other_stage(tmp_path: Path) -> None:
    def drawing(extra: int) -> Callable[[Session], Awaitable[None]]:
        async def protocol(session: Session) -> None:
            session.child("one").rng.random(1 + extra)
            session.record("draws", {"x": float(session.child("two").rng.random())})

        return protocol

    a = run(tmp_path / "a", drawing(0)).table("draws")
    b = run(tmp_path / "b", drawing(5)).table("draws")
    assert a.equals(b)


def test_a_sealed_part_may_not_change(tmp_path: Path) -> None:
    def sealing(value: int) -> Callable[[Session], Awaitable[None]]:
        async def protocol(session: Session) -> None:
            await session.seal("groups", {"a": value})

        return protocol

    run(tmp_path, sealing(1))
    run(tmp_path, sealing(1))
    with pytest.raises(DriftError, match="a was 1, is now 2"):
        run(tmp_path, sealing(2))
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["sealed"]["groups"]["data"] == {"a": 1}


@pytest.mark.parametrize("effect", ["ask", "embed", "compute"])
def test_what_is_sealed_is_on_the_disk_before_the_next_effect(tmp_path: Path, effect: str) -> None:
    there: list[set[str]] = []

    def look(*_: object) -> str:
        plan = json.loads((tmp_path / "run" / "plan.json").read_text())
        there.append(set(plan["sealed"]))
        return "yes"

    class Looking(ScriptedProvider):
        async def embed_texts(self, *args: Any, **options: Any) -> Any:
            look()
            return await super().embed_texts(*args, **options)

    def looked(x: int) -> int:
        look()
        return 2 * x

    async def protocol(session: Session) -> None:
        for name in ("a", "b"):
            await session.seal(name, 1)
            match effect:
                case "ask":
                    await session.ask(ANN, "Well?")
                case "embed":
                    await session.embed(["a text"])
                case "compute":
                    assert await session.compute(looked, 2) == 4

    run(tmp_path, protocol, Looking(look))
    assert there == [{"design", "claims", "a"}, {"design", "claims", "a", "b"}]


@pytest.mark.parametrize(
    "name",
    [
        *ENGINE_FILES,
        *("Plan.JSON", "journal.sqlite-wal", ".rows.db", ".holder.json"),
        *("tables/said.csv", "controls/mine.json", "sub/../seats.json"),
    ],
)
def test_a_study_may_not_write_a_file_of_the_program(tmp_path: Path, name: str) -> None:
    async def protocol(session: Session) -> None:
        session.write_text(name, "mine")

    with pytest.raises(ProtocolError, match="choose another name"):
        run(tmp_path, protocol)
    assert not (tmp_path / name).exists() or (tmp_path / name).read_bytes() != b"mine"


def test_a_study_may_write_the_personas_that_it_drew(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        session.write_json(PERSONAS, {"personas": []})

    run(tmp_path, protocol)


def test_a_study_may_not_write_outside_its_folder(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        session.write_json("../escaped.json", {})

    with pytest.raises(ProtocolError, match="inside its run folder"):
        run(tmp_path, protocol)
    assert not (tmp_path / "escaped.json").exists()


async def test_a_run_inside_a_running_loop_as_in_a_notebook(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Hello?")

    assert run(tmp_path, protocol).table("answers").height == 1


def test_parts_side_by_side_have_the_scopes_of_their_names(tmp_path: Path) -> None:
    seen: list[str] = []

    async def slow_first(_request: ModelRequest, address: str) -> str:
        seen.append(address)
        await yield_to_loop(20 if address.startswith("one") else 0)
        return "ok"

    async def protocol(session: Session) -> None:
        async def part(scope: Scope) -> str | Missing:
            return await scope.ask(ANN, "Well?")

        found = await session.map({"one": part, "two": part})
        assert list(found) == ["one", "two"]

    run(tmp_path, protocol, ScriptedProvider(slow_first))
    assert sorted(seen) == ["one/ask0", "two/ask0"]


def test_the_names_of_a_dictionary_are_addresses_and_its_values_items(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def doubled(scope: Scope, number: int) -> tuple[str, int]:
            return "/".join(scope.path), 2 * number

        found = await session.child("stage").map({"b": 1, "a": 2}, doubled)
        assert list(found.items()) == [("b", ("stage/b", 2)), ("a", ("stage/a", 4))]

    run(tmp_path, protocol)


@pytest.mark.parametrize("items", [["a"], {"a": 1}])
def test_items_without_a_function_are_refused(tmp_path: Path, items: Any) -> None:
    async def protocol(session: Session) -> None:
        await session.map(items)

    with pytest.raises(ProtocolError, match="needs a function"):
        run(tmp_path, protocol)


def test_a_session_of_a_config_types_its_settings(tmp_path: Path) -> None:
    class Panel(StudyConfig):
        rounds: int = 2

    async def protocol(session: Session[Panel]) -> None:
        rounds: int = session.config.rounds
        session.record("rounds", {"rounds": rounds})

    study = Study("trial", "Trial", Panel, protocol, with_limit=lambda config, n: config)
    held = folkmoot.run(study, {"rounds": 3}, out=tmp_path / "run")
    assert held.table("rounds")["rounds"].to_list() == [3]


def test_answers_that_are_missing_are_told_while_the_run_goes_on(tmp_path: Path) -> None:
    tally = ProgressTally()

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Yes or no?", answer_type=Choice(("yes", "no")))
        await session.ask(ANN, "Well?")

    run(
        tmp_path,
        protocol,
        ScriptedProvider(lambda _request, _address: "Let me see."),
        progress=tally,
    )
    assert tally.missing == 1 and "1 without an answer" in tally.format_line()


def test_a_setting_that_a_later_version_adds_stops_no_run_begun_before(tmp_path: Path) -> None:
    class Before(StudyConfig):
        rounds: int = 2

    class Now(Before):
        pauses: int = 0

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Well?")

    model = ScriptedProvider(lambda _request, _address: "Yes.")
    how: dict[str, Any] = {"out": tmp_path / "run", "provider": model}
    folkmoot.run(Study("trial", "Trial", Before, protocol), {}, **how)
    study = Study("trial", "Trial", Now, protocol)
    folkmoot.run(study, {}, **how)
    assert model.calls == 1
    with pytest.raises(DriftError, match=r"settings.pauses was not there, is now 1.*version of F"):
        folkmoot.run(study, {"pauses": 1}, **how)
    with pytest.raises(DriftError, match=r"settings.rounds was 2, is now 3"):
        folkmoot.run(study, {"rounds": 3}, **how)
