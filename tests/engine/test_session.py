"""Scopes: structural addresses, one effect at a time, forks that drain, and replays of replies."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field

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


def test_addresses_are_scope_paths_and_counts(tmp_path: Path) -> None:
    addresses: list[str] = []

    def answer(_request: ModelRequest, address: str) -> str:
        addresses.append(address)
        return "yes"

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "One?")
        await session.ask(ANN, "Two?")

        async def ask_twice(scope: Scope, participant: str) -> None:
            await scope.child("first").ask(ANN, "Three?")

        await session.child("stage").map(["p/1"], ask_twice)

    run(tmp_path, protocol, ScriptedProvider(answer))
    assert addresses == ["ask0", "ask1", "stage/p%2F1/first/ask0"]


def test_concurrent_calls_in_one_scope_are_refused(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await asyncio.gather(session.ask(ANN, "a"), session.ask(ANN, "b"))

    with pytest.raises(ProtocolError, match="one thing at a time"):
        run(tmp_path, protocol, ScriptedProvider(lambda _request, _address: "x", latency=0.01))


def test_repeated_address_is_refused(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.child("stage").ask(ANN, "a")
        await session.child("stage").ask(ANN, "b")

    with pytest.raises(ProtocolError, match="another scope uses this path"):
        run(tmp_path, protocol)


def test_map_refuses_a_repeated_key(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def nothing(scope: Scope, item: str) -> None:
            return None

        await session.map(["a", "b", "a"], nothing)

    with pytest.raises(ProtocolError, match="duplicate key, 'a'"):
        run(tmp_path, protocol)


def test_results_and_rows_are_in_input_order(tmp_path: Path) -> None:
    orders: list[list[str]] = []

    async def protocol(session: Session) -> None:
        async def ask_and_record(scope: Scope, number: int) -> str | Missing:
            answer = await scope.ask(ANN, f"{number}?")
            scope.record("numbers", {"n": number})
            return answer

        results = await session.child("stage").map(range(20), ask_and_record)
        orders.append(list(results))
        session.record("numbers", {"n": -1})

    async def answer_last_item_first(_request: ModelRequest, address: str) -> str:
        await yield_to_loop(20 - int(address.split("/")[1]))
        return "ok"

    results = run(tmp_path, protocol, ScriptedProvider(answer_last_item_first))
    assert orders == [[str(n) for n in range(20)]]
    assert results.table("numbers")["n"].to_list() == [*range(20), -1]


def test_map_waits_for_open_replies_before_it_raises(tmp_path: Path) -> None:
    """Replies in flight are paid for when one item fails, so they are awaited and journaled."""

    async def protocol(session: Session) -> None:
        async def ask_or_fail(scope: Scope, number: int) -> None:
            await scope.ask(ANN, f"{number}?")
            if number == 0:
                raise ValueError("broken study")
            await scope.ask(ANN, "and then?")

        await session.child("stage").map(range(5), ask_or_fail)

    async def answer_first_item_fast(_request: ModelRequest, address: str) -> str:
        await yield_to_loop(0 if address == "stage/0/ask0" else 50)
        return "ok"

    model = ScriptedProvider(answer_first_item_fast)
    with pytest.raises(ValueError, match="broken study"):
        run(tmp_path, protocol, model)
    import sqlite3

    db = sqlite3.connect(tmp_path / "run" / "journal.sqlite")
    addresses = {address for (address,) in db.execute("SELECT address FROM entries")}
    assert addresses == {f"stage/{n}/ask0" for n in range(5)}


def test_each_speaker_gets_the_earlier_utterances(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def answer_in_turn(scope: Scope, speaker: Speaker, history: Any) -> Utterance | None:
            if speaker.id == "b":
                return None
            reply = await scope.ask(speaker, "Your turn.", history=history)
            return Utterance(speaker.id, str(reply), speaker.name)

        speakers = [Speaker(x, x.upper()) for x in "abc"]
        transcript = await session.child("round").take_turns(speakers, answer_in_turn)
        assert [utterance.speaker_id for utterance in transcript] == ["a", "c"]

    received_texts: list[str] = []

    def answer(request: ModelRequest, _address: str) -> str:
        received_texts.append(request.messages[-1].content)
        return "I speak."

    run(tmp_path, protocol, ScriptedProvider(answer))
    assert received_texts == ["Your turn.", "I speak.\n\nYour turn."]


def test_unreadable_answers_are_asked_for_again_and_then_missing(tmp_path: Path) -> None:
    replies = iter(["maybe", "the park", "perhaps", "who knows"])
    prompts: list[list[str]] = []

    def answer(request: ModelRequest, _address: str) -> str:
        prompts.append([m.role for m in request.messages])
        return next(replies)

    async def protocol(session: Session) -> None:
        answer_type = Choice(["The park", "The bridge"])
        assert await session.ask(ANN, "Which?", answer_type=answer_type) == "The park"
        answer = await session.ask(ANN, "Which?", answer_type=answer_type)
        assert isinstance(answer, Missing) and answer.reason == "unparsed"

    results = run(tmp_path, protocol, ScriptedProvider(answer))
    assert prompts[1] == ["system", "user", "assistant", "user"]
    answers = results.table("answers")
    assert answers["parse_step"].to_list() == ["clarified", "missing"]
    assert answers["reasks"].to_list() == [1, 1]
    assert answers["position"].to_list() == [1, None]


def build_vote(replies: list[str]) -> tuple[ScriptedProvider, Callable[[Session], Awaitable[None]]]:
    """Return a model that gives these replies in turn, and a protocol that asks for one vote."""

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "Mall", "10 %"]))

    return ScriptedProvider(
        lambda _request, address: replies[int(address.partition(".r")[2] or 0)], keep_requests=True
    ), protocol


def test_choice_is_clarified_once_and_never_forced(tmp_path: Path) -> None:
    model, protocol = build_vote(["Not Park, Mall rather", '{"stated": "Mall"}'])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["recorded"], row["how"]) == ("Mall", "Mall", "clarified")
    assert (row["said"], row["agrees"], row["reasks"]) == ("Not Park, Mall rather", "several", 1)
    first_request, second_request = (request for _, request in model.seen)
    assert first_request.schema is None and second_request.schema is not None
    assert "A. Park\nB. Mall\nC. 10 %" in second_request.messages[-1].content
    assert second_request.messages[-2] == Message("assistant", "Not Park, Mall rather")
    ways_out = ["none_of_these", "declined"]
    assert second_request.schema["properties"]["stated"]["enum"] == [
        "Park",
        "Mall",
        "10 %",
        *ways_out,
    ]
    silent = ScriptedProvider(fail_on_call)
    replayed_run = run(tmp_path, protocol, silent)
    assert silent.calls == 0 and replayed_run.table("answers")["value"].to_list() == ["Mall"]


@pytest.mark.parametrize("last", ['{"stated": "Par"}', '{"stated": "2"', "{}", "Neither", "1"])
def test_clarification_is_never_guessed(tmp_path: Path, last: str) -> None:
    model, protocol = build_vote(["Hm.", last])
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
def test_refusal_in_any_language_is_recorded(
    tmp_path: Path, refusal: str, second: str, recorded: str
) -> None:
    model, protocol = build_vote([refusal, second])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["recorded"], row["missing"]) == (None, recorded, recorded)
    assert row["how"] == ("refused" if recorded == "declined" else "clarified")
    assert row["said"] == refusal and model.calls == 2


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusal_in_plain_words_twice_gives_no_vote(tmp_path: Path, refusal: str) -> None:
    model, protocol = build_vote([refusal, refusal])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], model.calls) == (None, "unreadable", 2)


def test_empty_vote_is_asked_again_with_the_decline_options(tmp_path: Path) -> None:
    model, protocol = build_vote(["", '{"stated": "Park"}'])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], row["agrees"]) == ("Park", "clarified", "none")
    _, second_request = (request for _, request in model.seen)
    assert [message.role for message in second_request.messages][-1] == "user"
    assert second_request.messages[-1].content.startswith("Which?")


def test_cut_vote_is_clarified_with_twice_the_limit(tmp_path: Path) -> None:
    replies = [Completion("Park", Usage(1, 16), finish="length"), Completion('{"stated": "Park"}')]

    async def protocol(session: Session) -> None:
        options = Choice(["Park", "Park and ride"])
        await session.ask(ANN, "Which?", answer_type=options, max_tokens=16)

    model = ScriptedProvider(
        lambda _request, address: replies[int(address.partition(".r")[2] or 0)], keep_requests=True
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], model.calls) == ("Park", "clarified", 2)
    assert [request.max_tokens for _, request in model.seen] == [16, 32]


@pytest.mark.parametrize(
    ("reply", "agrees"),
    [
        ("Park is fine, I guess, since Ann asked", "same"),
        ("The mall, I guess, since Ann asked", "other"),
        ("Park or mall, I cannot decide", "several"),
        ("Something green would be nice", "none"),
        ("I lean towards option B, mostly", "other"),
    ],
)
def test_vote_that_contradicts_the_first_reply_is_marked(
    tmp_path: Path, reply: str, agrees: str
) -> None:
    model, protocol = build_vote([reply, '{"stated": "Park"}'])
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["recorded"], row["how"], row["agrees"]) == ("Park", "clarified", agrees)


@pytest.mark.parametrize(
    ("reply", "unusable"),
    [
        ("none_of_these", ""),
        ("declined", ""),
        ("Zq zq.", "none of the 1 answers could be read"),
    ],
)
def test_run_is_usable_if_its_speakers_take_a_way_out(
    tmp_path: Path, reply: str, unusable: str
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "Mall"]))

    assert run(tmp_path, protocol, ScriptedProvider(lambda *_: reply)).unusable == unusable


def test_declined_json_answer_is_missing_despite_a_fallback(tmp_path: Path) -> None:
    class Stance(BaseModel):
        stance: int = 0

    async def protocol(session: Session) -> None:
        answer_type = Json(Stance, fallback_value=Stance(), may_decline=True)
        answer = await session.ask(ANN, "How much?", answer_type=answer_type)
        assert isinstance(answer, Missing) and answer.reason == "declined"

    model = ScriptedProvider(
        lambda _request, _address: '{"declined": true, "stance": 5}', keep_requests=True
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["missing"], row["how"], row["recorded"]) == ("declined", "refused", "declined")
    ((_, request),) = model.seen
    assert request.schema is not None and next(iter(request.schema["properties"])) == "declined"


@pytest.mark.parametrize("way_out", ["cannot_say", "declined", "Cannot say."])
def test_number_can_be_declined(tmp_path: Path, way_out: str) -> None:
    replies = ["Hard to tell.", way_out]

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How sure?", answer_type=Number(0, 100))

    model = ScriptedProvider(
        lambda _request, address: replies[int(address.partition(".r")[2] or 0)], keep_requests=True
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
def test_last_re_ask_of_a_number_uses_json_with_a_decline_option(
    tmp_path: Path, last: str, value: str | None, missing: str | None
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How sure?", answer_type=Number(0, 100))

    model = ScriptedProvider(
        lambda _request, address: last if address.endswith(".r2") else "From 0 to 100, I agree.",
        keep_requests=True,
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["missing"], row["reasks"]) == (value, missing, 2)
    schemas = [request.schema for _, request in model.seen]
    assert schemas[:2] == [None, None] and schemas[2] is not None
    number, way_out = schemas[2]["properties"]["number"]["anyOf"]
    assert (number["minimum"], number["maximum"]) == (0, 100)
    assert way_out["enum"] == ["cannot_say", "declined"]


@pytest.mark.parametrize(
    ("answer_type", "reply", "value"),
    [
        (Choice(["Park", "Park and ride"]), "Park", None),
        (Choice(["Park", "Park and ride"]), "Park\n\n\n", "Park"),
        (Number(0, 100), "1", None),
        # A space may come before the next word.
        (Choice(["Park", "Park and ride"]), "Park ", None),
    ],
)
def test_beginning_of_an_answer_is_not_the_answer(
    tmp_path: Path, answer_type: Any, reply: str, value: str | None
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=answer_type)

    model = ScriptedProvider(
        lambda _request, _address: Completion(reply, Usage(1, 1), finish="length")
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["value"], row["finish"]) == (value, "length")


class Rating(BaseModel):
    reason: str = ""
    rating: float = Field(ge=0, le=20)


@pytest.mark.parametrize(
    "reply",
    ["{'reason': 'It is near', 'rating': '1", '{"rating": "1', "{rating: 1", '{"rating": 1'],
)
def test_beginning_of_a_number_in_json_is_not_the_number(tmp_path: Path, reply: str) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How good?", answer_type=Json(Rating))

    model = ScriptedProvider(
        lambda _request, _address: Completion(reply, Usage(1, 1), finish="length")
    )
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["missing"], row["how"]) == ("unparsed", "unreadable")


@pytest.mark.parametrize(
    ("reply", "how", "parse_step"),
    [
        ('{"rating": 7}', "exact", "exact"),
        ("{'rating': 7,}", "stated", "repaired"),
        ('Sure:\n```json\n{"rating": 7}\n```', "stated", "fenced"),
    ],
)
def test_only_a_reply_that_is_the_answer_is_exact(
    tmp_path: Path, reply: str, how: str, parse_step: str
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "How good?", answer_type=Json(Rating))

    model = ScriptedProvider(lambda _request, _address: reply)
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["how"], row["parse_step"]) == (how, parse_step)


@pytest.mark.parametrize(
    ("finish", "how"),
    [
        ("refused:refused", "refused"),
        ("refused:filtered", "refused"),
        ("refused:language", "refused"),
        ("refused:content_filter", "refused"),
        ("refused:timed out", "no_reply"),
        ("refused:dropped", "no_reply"),
        ("refused:too_long", "unreadable"),
        ("refused:rejected", "unreadable"),
    ],
)
def test_only_refusals_of_speakers_and_providers_are_called_refused(
    tmp_path: Path, finish: str, how: str
) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "Mall"]))

    model = ScriptedProvider(lambda _request, _address: Completion("", Usage(1, 0), finish=finish))
    (row,) = run(tmp_path, protocol, model).table("answers").to_dicts()
    assert (row["how"], row["recorded"]) == (how, None)


def test_indistinguishable_options_are_an_error_of_the_study(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Which?", answer_type=Choice(["Park", "park"]))

    with pytest.raises(ProtocolError, match="'Park' and 'park' cannot be distinguished"):
        run(tmp_path, protocol)


def test_refusal_is_a_missing_answer_with_its_reason(tmp_path: Path) -> None:
    def answer(_request: ModelRequest, _address: str) -> str:
        raise RefusedError("the prompt is too long", reason="context_too_long")

    async def protocol(session: Session) -> None:
        answer = await session.ask(ANN, "Well?")
        assert isinstance(answer, Missing) and answer.reason == "context_too_long"

    run(tmp_path, protocol, ScriptedProvider(answer))


def test_finished_run_replays_without_calls(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def ask_and_record(scope: Scope, number: int) -> float | Missing:
            return await scope.ask(ANN, "How many?", answer_type=Number(0, 100))

        numbers = await session.child("stage").map(range(30), ask_and_record)
        vectors = await session.child("vectors").embed(["a tree", "a river"])
        total = await session.child("sum").compute(add_up, vectors, list(numbers.values()))
        session.record("result", {"total": total["sum"], "draw": float(session.rng.random())})

    first_run = run(
        tmp_path, protocol, ScriptedProvider(lambda _request, address: str(len(address)))
    )
    silent = ScriptedProvider(fail_on_call)
    second_run = run(tmp_path, protocol, silent)
    assert second_run.table("result").equals(first_run.table("result"))
    assert (
        second_run.folder.manifest["journal_digest"] == first_run.folder.manifest["journal_digest"]
    )


def fail_on_call(_request: ModelRequest, address: str) -> str:
    raise AssertionError(f"{address} was asked again")


def add_up(vectors: np.ndarray, numbers: list[float]) -> dict[str, float]:
    return {"sum": float(vectors.sum()) + sum(numbers)}


def test_computation_runs_in_a_thread(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        assert await session.compute(threading.get_ident) != threading.get_ident()

    run(tmp_path, protocol)


def test_named_computation_is_found_after_its_function_was_renamed(
    tmp_path: Path,
) -> None:
    def add_up_again(vectors: np.ndarray, numbers: list[float]) -> dict[str, float]:
        raise AssertionError("computed again")

    for function in (add_up, add_up_again):

        async def protocol(session: Session, function: Callable[..., object] = function) -> None:
            total = await session.compute(function, np.ones(2), [1.0], name="total")
            assert total == {"sum": 3.0}

        run(tmp_path, protocol)


@pytest.mark.parametrize("in_memory", [32_000_000, 0])
def test_embeddings_have_length_one_and_are_the_same_after_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(computations, "MAX_EMBEDDING_BYTES_IN_MEMORY", in_memory)
    vectors_of_runs: list[np.ndarray] = []

    async def protocol(session: Session) -> None:
        vectors = await session.embed([f"text {i}" for i in range(250)])
        assert vectors.shape[0] == 250
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert isinstance(vectors.base, np.memmap) == (not in_memory)
        assert (await session.child("nothing").embed([])).shape == (0, 0)
        vectors_of_runs.append(vectors)

    run(tmp_path, protocol)
    run(tmp_path, protocol, ScriptedProvider(fail_on_call))
    assert np.array_equal(vectors_of_runs[0], vectors_of_runs[1])


def test_stored_value_can_be_loaded_and_leaves_no_file(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def store_number(scope: Scope, number: int) -> StoredValue[dict[str, object]]:
            return scope.store({"n": number, "text": "long " * 1000})

        handles = await session.map(range(20), store_number)
        assert [handle.load()["n"] for handle in handles.values()] == list(range(20))

    finished_run = run(tmp_path, protocol)
    assert not [path for path in finished_run.path.iterdir() if path.name.startswith("tmp")]


def test_changed_prompt_stops_a_resume_and_names_the_place(tmp_path: Path) -> None:
    def build_protocol(text: str) -> Callable[[Session], Awaitable[None]]:
        async def protocol(session: Session) -> None:
            await session.child("stage").ask(ANN, text)

        return protocol

    run(tmp_path, build_protocol("What about the park?"))
    with pytest.raises(DriftError, match=r"(?s)stage/ask0.*the park.*the bridge"):
        run(tmp_path, build_protocol("What about the bridge?"))
    run_with_changes = run(tmp_path, build_protocol("What about the bridge?"), accept_changes=True)
    assert run_with_changes.table("answers").height == 1


def test_extra_draw_in_one_stage_shifts_no_other_stage(tmp_path: Path) -> None:
    def build_protocol(extra: int) -> Callable[[Session], Awaitable[None]]:
        async def protocol(session: Session) -> None:
            session.child("one").rng.random(1 + extra)
            session.record("draws", {"x": float(session.child("two").rng.random())})

        return protocol

    draws_without_extra = run(tmp_path / "a", build_protocol(0)).table("draws")
    draws_with_extra = run(tmp_path / "b", build_protocol(5)).table("draws")
    assert draws_without_extra.equals(draws_with_extra)


def test_sealed_part_may_not_change(tmp_path: Path) -> None:
    def build_protocol(value: int) -> Callable[[Session], Awaitable[None]]:
        async def protocol(session: Session) -> None:
            await session.seal("groups", {"a": value})

        return protocol

    run(tmp_path, build_protocol(1))
    run(tmp_path, build_protocol(1))
    with pytest.raises(DriftError, match="a was 1, is now 2"):
        run(tmp_path, build_protocol(2))
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["sealed"]["groups"]["data"] == {"a": 1}


def test_plan_names_the_difference_within_a_long_list_of_people(tmp_path: Path) -> None:
    def build_protocol(text: str) -> Callable[[Session], Awaitable[None]]:
        people = [{"name": "Ann", "text": "x" * 200}, {"name": "Bob", "text": text}]

        async def protocol(session: Session) -> None:
            await session.seal("recruits", {"group": people})

        return protocol

    run(tmp_path, build_protocol("tea"))
    with pytest.raises(DriftError, match=r'group\[2\]\.text was "tea", is now "rye"\.'):
        run(tmp_path, build_protocol("rye"))


@pytest.mark.parametrize("effect", ["ask", "embed", "compute"])
def test_sealed_data_is_on_disk_before_the_next_effect(tmp_path: Path, effect: str) -> None:
    sealed_parts: list[set[str]] = []

    def record_sealed_parts(*_: object) -> str:
        plan = json.loads((tmp_path / "run" / "plan.json").read_text())
        sealed_parts.append(set(plan["sealed"]))
        return "yes"

    class LookingProvider(ScriptedProvider):
        async def embed_texts(self, *args: Any, **options: Any) -> Any:
            record_sealed_parts()
            return await super().embed_texts(*args, **options)

    def look_and_return(number: int) -> int:
        record_sealed_parts()
        return 2 * number

    async def protocol(session: Session) -> None:
        for name in ("a", "b"):
            await session.seal(name, 1)
            match effect:
                case "ask":
                    await session.ask(ANN, "Well?")
                case "embed":
                    await session.embed(["a text"])
                case "compute":
                    assert await session.compute(look_and_return, 2) == 4

    run(tmp_path, protocol, LookingProvider(record_sealed_parts))
    assert sealed_parts == [{"design", "claims", "a"}, {"design", "claims", "a", "b"}]


@pytest.mark.parametrize(
    "name",
    [
        *ENGINE_FILES,
        *("Plan.JSON", "journal.sqlite-wal", ".rows.db", ".holder.json"),
        *("tables/said.csv", "controls/mine.json", "sub/../seats.json"),
    ],
)
def test_study_may_not_write_a_file_of_the_program(tmp_path: Path, name: str) -> None:
    async def protocol(session: Session) -> None:
        session.write_text(name, "mine")

    with pytest.raises(ProtocolError, match="choose another name"):
        run(tmp_path, protocol)
    assert not (tmp_path / name).exists() or (tmp_path / name).read_bytes() != b"mine"


def test_study_may_write_its_drawn_personas(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        session.write_json(PERSONAS, {"personas": []})

    run(tmp_path, protocol)


def test_study_may_not_write_outside_its_folder(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        session.write_json("../escaped.json", {})

    with pytest.raises(ProtocolError, match="inside its run folder"):
        run(tmp_path, protocol)
    assert not (tmp_path / "escaped.json").exists()


async def test_run_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Hello?")

    assert run(tmp_path, protocol).table("answers").height == 1


def test_concurrent_parts_have_scopes_with_their_names(tmp_path: Path) -> None:
    addresses: list[str] = []

    async def answer_first_item_slowly(_request: ModelRequest, address: str) -> str:
        addresses.append(address)
        await yield_to_loop(20 if address.startswith("one") else 0)
        return "ok"

    async def protocol(session: Session) -> None:
        async def ask_in_part(scope: Scope) -> str | Missing:
            return await scope.ask(ANN, "Well?")

        results = await session.map({"one": ask_in_part, "two": ask_in_part})
        assert list(results) == ["one", "two"]

    run(tmp_path, protocol, ScriptedProvider(answer_first_item_slowly))
    assert sorted(addresses) == ["one/ask0", "two/ask0"]


def test_dictionary_keys_are_addresses_and_values_are_items(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        async def double(scope: Scope, number: int) -> tuple[str, int]:
            return "/".join(scope.path), 2 * number

        results = await session.child("stage").map({"b": 1, "a": 2}, double)
        assert list(results.items()) == [("b", ("stage/b", 2)), ("a", ("stage/a", 4))]

    run(tmp_path, protocol)


@pytest.mark.parametrize("items", [["a"], {"a": 1}])
def test_items_without_a_function_are_refused(tmp_path: Path, items: Any) -> None:
    async def protocol(session: Session) -> None:
        await session.map(items)

    with pytest.raises(ProtocolError, match="needs a function"):
        run(tmp_path, protocol)


def test_session_is_typed_by_its_config(tmp_path: Path) -> None:
    class Panel(StudyConfig):
        rounds: int = 2

    async def protocol(session: Session[Panel]) -> None:
        rounds: int = session.config.rounds
        session.record("rounds", {"rounds": rounds})

    study = Study("trial", "Trial", Panel, protocol, with_limit=lambda config, n: config)
    finished_run = folkmoot.run(study, {"rounds": 3}, out=tmp_path / "run")
    assert finished_run.table("rounds")["rounds"].to_list() == [3]


def test_missing_answers_are_reported_during_the_run(tmp_path: Path) -> None:
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


def test_setting_added_by_a_later_version_does_not_stop_a_resume(tmp_path: Path) -> None:
    class ConfigBefore(StudyConfig):
        rounds: int = 2

    class ConfigNow(ConfigBefore):
        pauses: int = 0

    async def protocol(session: Session) -> None:
        await session.ask(ANN, "Well?")

    model = ScriptedProvider(lambda _request, _address: "Yes.")
    options: dict[str, Any] = {"out": tmp_path / "run", "provider": model}
    folkmoot.run(Study("trial", "Trial", ConfigBefore, protocol), {}, **options)
    study = Study("trial", "Trial", ConfigNow, protocol)
    folkmoot.run(study, {}, **options)
    assert model.calls == 1
    with pytest.raises(DriftError, match=r"settings.pauses was not there, is now 1.*version of F"):
        folkmoot.run(study, {"pauses": 1}, **options)
    with pytest.raises(DriftError, match=r"settings.rounds was 2, is now 3.*such as --set"):
        folkmoot.run(study, {"rounds": 3}, **options)
