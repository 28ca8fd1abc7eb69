"""Prompt caches: prompts that begin like an earlier prompt, and the cache breakpoints."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from folkmoot import EMPTY_TRANSCRIPT, Run, Session, Speaker, Study, StudyConfig, Utterance, run
from folkmoot.conversation.prompts import Prompt, PromptLibrary
from folkmoot.conversation.transcript import build_messages
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import estimate_run
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options, run_study, study_from_settings
from folkmoot.models.catalog import resolve_model
from folkmoot.models.prices import find_price
from folkmoot.models.request import Message, ModelRequest, Usage
from folkmoot.models.wire import anthropic_messages, openai_chat
from folkmoot.report.document.trust import build_trust_section
from folkmoot.storage.run_folder import JOURNAL
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

EXAMPLES = Path(__file__).parents[2] / "examples"
LONG = "You are a cook who has seen a lot. " * 200
PEOPLE, TURNS = 3, 4


async def hold_dialogues(session: Session) -> None:
    async def hold_dialogue(scope: Any, number: int) -> None:
        speaker, history = Speaker(f"p{number}", system=f"{number}: {LONG}"), EMPTY_TRANSCRIPT
        for turn in range(TURNS):
            prompt = f"Turn {turn}: what do you say?"
            reply = await scope.ask(speaker, prompt, history=history)
            history = history + Utterance("", prompt) + Utterance(speaker.id, reply)

    await session.map(range(PEOPLE), hold_dialogue)


STUDY = Study(name="dialogues", title="Dialogues", config=StudyConfig, protocol=hold_dialogues)


async def hold_conversation(session: Session) -> None:
    """Three participants hear each other. Their prompts are not in the transcript."""
    history = EMPTY_TRANSCRIPT
    for turn in range(12):
        speaker = Speaker(f"p{turn % 3}", system=f"{turn % 3}: {LONG}")
        reply = await session.child(f"turn{turn}").ask(
            speaker, f"{turn}: {LONG}. Go on.", history=history
        )
        history = history + Utterance(speaker.id, f"{reply} {LONG}")


TALK = Study(name="talk", title="Talk", config=StudyConfig, protocol=hold_conversation)


def record_bodies(
    model: str, out: Path, monkeypatch: pytest.MonkeyPatch, study: Study = STUDY, **more: object
) -> tuple[list[bytes], Run]:
    """Run the study. Return the request bodies in order, and the run."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    bodies: list[bytes] = []
    with ServerThread(FaultPlan()) as server:

        async def between(request: Any, handler: Callable[[Any], Any]) -> Any:
            bodies.append(await request.read())
            return await handler(request)

        server.model.between = between
        vendor = model.partition("/")[0]
        url = server.openai if vendor == "openai" else server.url
        finished_run = run(study, {"model": model, "endpoints": {vendor: url}, **more}, out=out)
    return bodies, finished_run


def test_dialogue_sends_the_same_first_bytes_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies, _ = record_bodies("openai/gpt-4o", tmp_path / "run", monkeypatch)
    keys = {json.loads(body)["prompt_cache_key"] for body in bodies}
    assert len(keys) == PEOPLE  # one key for each conversation: see docs/decisions/0055
    for number in range(PEOPLE):
        dialogue_bodies = sorted(
            (body for body in bodies if f'"{number}: You are'.encode() in body), key=len
        )
        assert len(dialogue_bodies) == TURNS
        for before, after in pairwise(dialogue_bodies):
            messages = before[: before.index(b"}]")]  # up to the last message
            assert after.startswith(messages)


def test_anthropic_requests_have_cache_marks_and_unchanged_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies, _ = record_bodies("anthropic/claude-haiku-4-5", tmp_path / "run", monkeypatch)
    for number in range(PEOPLE):
        dialogue_bodies = sorted(
            (body for body in bodies if f'"{number}: You are'.encode() in body), key=len
        )
        # A later request with this prefix is not certain.
        assert b"cache_control" not in dialogue_bodies[0]
        for body in dialogue_bodies[1:]:
            data = json.loads(body)
            assert data["system"][-1]["cache_control"] == {"type": "ephemeral"}
            assert data["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
            assert body.count(b"cache_control") == 2  # a request may have four
        texts = [remove_marks(json.loads(body)) for body in dialogue_bodies]
        for before, after in pairwise(texts):
            assert after[: len(before)] == before


def remove_marks(body: dict[str, Any]) -> list[tuple[str, str]]:
    def text(content: Any) -> str:
        return content if isinstance(content, str) else "".join(block["text"] for block in content)

    turns = [(turn["role"], text(turn["content"])) for turn in body["messages"]]
    return [("system", text(body["system"])), *turns]


def test_single_question_is_not_written_into_a_cache() -> None:
    messages = (Message("system", LONG), Message("user", "Park or pool?"))
    body = anthropic_messages.encode_request(ModelRequest("claude-haiku-4-5", messages))
    assert "cache_control" not in json.dumps(body)


@pytest.mark.parametrize("model", ["gpt-oss-120b", "llama-3", "Qwen/Qwen3", "kimi-k2"])
def test_servers_of_other_vendors_get_no_cache_key_of_openai(model: str) -> None:
    assert "prompt_cache_key" not in openai_chat.encode_request(
        ModelRequest(model, (Message("user", "?"),))
    )


@pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/claude-haiku-4-5"])
def test_server_without_cache_support_is_asked_without_cache_settings(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = {"openai": "prompt_cache_key", "anthropic": "cache_control"}[model.partition("/")[0]]
    refusal = {"status": 400, "message": f"{word}: Extra inputs are not permitted"}
    refuse_cache_keys = lambda messages, body: refusal if word in json.dumps(body) else {}  # noqa: E731
    monkeypatch.setattr(
        "tests.servers.model_server.ModelServer.says", staticmethod(refuse_cache_keys)
    )
    _, finished_run = record_bodies(model, tmp_path / "run", monkeypatch)
    assert finished_run.table("answers")["missing"].null_count() == PEOPLE * TURNS


@pytest.mark.parametrize(
    "cached",
    [
        {"prompt_tokens_details": {"cached_tokens": 900}, "cached_tokens": 1},
        {"cached_tokens": 900},  # Moonshot
        {"prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100},  # DeepSeek
    ],
)
def test_cached_tokens_are_read_wherever_a_vendor_states_them(cached: dict[str, Any]) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, **cached}
    message = {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}
    reply = openai_chat.decode_reply(200, {}, json.dumps({**message, "usage": usage}).encode())
    assert reply.usage[:3] == (1000, 10, 900)


def test_cached_tokens_have_the_cache_price() -> None:
    claude = find_price(resolve_model("claude-haiku-4.5"))
    assert claude is not None
    cost_without_cache = claude.cost(Usage(10_000, 0, 0))
    assert claude.cost(Usage(10_000, 0, 10_000)) == pytest.approx(0.1 * cost_without_cache)  # type: ignore[operator]
    assert claude.cost(Usage(10_000, 0, 0, 10_000)) == pytest.approx(1.25 * cost_without_cache)  # type: ignore[operator]
    assert claude.cost(Usage(40_000, 0, 0, 40_000)) == pytest.approx(5 * cost_without_cache)  # type: ignore[operator]
    half = claude.batch_price()
    assert half.cost(Usage(10_000, 0, 10_000)) == pytest.approx(0.05 * cost_without_cache)  # type: ignore[operator]


@pytest.mark.parametrize(("model", "dearer"), [("gpt-5.6", 1.25), ("gpt-4o", 1.0)])
def test_tokens_written_into_the_openai_cache_have_their_price(model: str, dearer: float) -> None:
    counts = {"prompt_tokens": 4_000, "completion_tokens": 10}
    completion = {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}
    details = {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4_000}}
    uncached, cached = (
        openai_chat.decode_reply(
            200, {}, json.dumps({**completion, "usage": {**counts, **usage_details}}).encode()
        )
        for usage_details in ({}, details)
    )
    rate = find_price(resolve_model(f"openai/{model}"))
    assert rate is not None
    for priced in (rate, rate.batch_price()):
        out = 10 * priced.share * priced.output_usd
        uncached_usd, cached_usd = priced.cost(uncached.usage), priced.cost(cached.usage)
        assert uncached_usd is not None and cached_usd is not None
        assert cached_usd - out == pytest.approx(dearer * (uncached_usd - out))


def test_report_contains_the_share_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_cached(data: dict[str, Any]) -> dict[str, Any]:
        details = {"cached_tokens": data["usage"]["prompt_tokens"] // 2}
        return {**data, "usage": {**data["usage"], "prompt_tokens_details": details}}

    decode = openai_chat.read_json
    monkeypatch.setattr(openai_chat, "read_json", lambda body: with_cached(decode(body)))
    _, finished_run = record_bodies("openai/gpt-4o", tmp_path / "run", monkeypatch)
    (row,) = build_trust_section(finished_run.folder, STUDY).models.rows
    assert "50 %" in row
    input_tokens, output_tokens = (
        finished_run.manifest["input_tokens"],
        finished_run.manifest["output_tokens"],
    )
    # Half of the input costs half: $2.50 and $1.25 per million tokens, and $10 for output.
    price = input_tokens * (2.5e-6 + 1.25e-6) / 2 + output_tokens * 1e-5
    assert finished_run.manifest["cost_usd"] == pytest.approx(price, rel=0.01)


def test_estimate_counts_prompt_prefixes_of_earlier_prompts() -> None:
    study_file = study_from_settings(STUDY, {"model": "openai/gpt-4o"}, RunOptions())
    total = estimate_run(study_file, None)
    share = total.cacheable_tokens_by_model["openai/gpt-4o"] / total.input_tokens
    assert (TURNS - 1) / TURNS - 0.02 < share < (TURNS - 1) / TURNS


def test_prompt_of_a_dialogue_turn_begins_with_the_turn_before(tmp_path: Path) -> None:
    options = RunOptions(model="synthetic", limit=4, out=tmp_path / "run")
    run_study(load_study_with_options(EXAMPLES / "cross_pollination.yaml", options), options)
    dialogues: dict[str, list[list[tuple[str, str]]]] = {}
    with JournalReader(tmp_path / "run" / JOURNAL) as journal:
        for entry in journal.entries_with_prefix("adversarial_dialogue/"):
            if ".r" not in entry.address:  # a re-ask ends its conversation
                messages = [
                    (message["role"], message["content"]) for message in entry.request["messages"]
                ]
                speaker = f"{entry.address.split('/')[1]}: {messages[0][1]}"
                dialogues.setdefault(speaker, []).append(messages)
    assert max(map(len, dialogues.values())) > 2
    for turns in dialogues.values():
        for before, after in pairwise(sorted(turns, key=len)):
            assert after[: len(before)] == before


class AnthropicCache:
    """A model of the prompt cache of Anthropic, after its documentation.

    A prefix up to a mark is stored. Requests read it if they have a mark there, or up to twenty
    blocks later."""

    def __init__(self) -> None:
        self._stored_prefixes: set[str] = set()
        self._earlier_texts: list[str] = []  # earlier requests in alphabetical order
        # Counts of characters. `repeated` counts the longest prefix that an earlier request had.
        self.all = self.read = self.written = self.repeated = 0

    def process_request(self, body: dict[str, Any]) -> None:
        system = body.get("system", [])
        blocks = [{"text": system}] if isinstance(system, str) else list(system)
        for turn in body["messages"]:
            content = turn["content"]
            blocks += [{"text": content}] if isinstance(content, str) else content
        text_so_far, ends = "", []
        for block in blocks:
            text_so_far += f"\n{block['text']}"
            ends.append(text_so_far)
        marked = [n for n, block in enumerate(blocks) if "cache_control" in block]
        assert len(marked) <= 4 and all(block["text"].strip() for block in blocks)
        marked = [n for n in marked if len(ends[n]) > 4 * 512]
        readable_prefixes = [
            prefix
            for n in marked
            for prefix in ends[max(0, n - 20) : n + 1]
            if prefix in self._stored_prefixes
        ]
        read_length = max(map(len, readable_prefixes), default=0)
        written_length = max((len(ends[n]) for n in marked), default=0)
        self._stored_prefixes.update(ends[n] for n in marked)
        self.all += len(text_so_far)
        self.read += read_length
        # The longest common prefix is that of a neighbour in alphabetical order.
        position = bisect.bisect(self._earlier_texts, text_so_far)
        neighbours = self._earlier_texts[max(0, position - 1) : position + 1]
        common = [
            sum(
                1
                for _ in takewhile(
                    lambda pair: pair[0] == pair[1], zip(text_so_far, other, strict=False)
                )
            )
            for other in neighbours
        ]
        self.repeated += max((n for n in common if n > 4 * 512), default=0)
        self._earlier_texts.insert(position, text_so_far)
        self.written += max(0, written_length - read_length)

    @property
    def price(self) -> float:
        """Return the cost of the input as a share of its cost without a cache."""
        return 1 + (0.25 * self.written - 0.9 * self.read) / self.all


@pytest.mark.parametrize(
    ("study", "overrides_for_small_run", "share"),
    sample_daily(
        [
            ("town_hall", ("levels=[4]", "residents={general: 4}"), 0.5),
            # A third of its requests are re-asks. They repeat a whole request, but which request
            # will be asked again is not known when it is sent, so it is not written into the cache.
            ("negotiation", ("conditions=[C4, C5]", "group_types=[spouses]"), 0.45),
        ],
        daily=1,
        part="sweeps",
    ),
)
def test_growing_transcript_is_read_from_the_cache(
    study: str,
    overrides_for_small_run: tuple[str, ...],
    share: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    cache = AnthropicCache()
    with ServerThread(FaultPlan(), answers="respondent") as server:

        async def between(request: Any, handler: Callable[[Any], Any]) -> Any:
            cache.process_request(json.loads(await request.read()))
            return await handler(request)

        server.model.between = between
        overrides = (*overrides_for_small_run, f"endpoints.anthropic={server.url}")
        options = RunOptions("anthropic/claude-sonnet-4-5", tmp_path / "run", overrides=overrides)
        run_study(
            load_study_with_options(EXAMPLES / f"{study}.yaml", replace(options, limit=1)), options
        )
    # The share of repeated text. The share of all text depends on the number of conversations.
    assert cache.read > share * cache.repeated
    assert cache.price < 1


def test_conversation_without_its_prompts_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies, _ = record_bodies("anthropic/claude-haiku-4-5", tmp_path / "run", monkeypatch, TALK)
    cache = AnthropicCache()
    for body in bodies:
        cache.process_request(json.loads(body))
    assert cache.price < 0.8  # half of the last requests are prompts that occur once


def test_batches_are_not_written_into_a_cache_that_expires_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"batch": True, "batch_poll_seconds": 0.001}
    bodies, finished_run = record_bodies(
        "anthropic/claude-haiku-4-5", tmp_path / "run", monkeypatch, **settings
    )
    assert finished_run.manifest["handed_in_by_batches"] == PEOPLE * TURNS
    assert not any(b"cache_control" in body for body in bodies)


WITH_MARKS = """{{ cache -}}
{% for said in heard %}
They said:

{{ said }}

{{ cache -}}
{% endfor %}
And you, {{ who }}?
"""


@pytest.mark.parametrize("has_custom_template", [False, True])
def test_cache_marks_leave_no_text_and_have_correct_offsets(
    has_custom_template: bool, tmp_path: Path
) -> None:
    for folder in ("shipped", "own"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "talk.md").write_text(WITH_MARKS)
    (tmp_path / "shipped" / "plain.md").write_text(WITH_MARKS.replace("{{ cache -}}\n", ""))
    library = PromptLibrary(tmp_path / "shipped", tmp_path / "own" if has_custom_template else None)
    assert library.find_problems() == []
    for replies in ([], ["Yes."], ["Yes.", "No."]):
        prompt = library.render_prompt("talk", heard=replies, who="Ann")
        assert prompt == library.render_prompt("plain", heard=replies, who="Ann")
        assert isinstance(prompt, Prompt)
        ends = [prompt[:end] for end in prompt.cache_breakpoints]
        assert ends[0] == "" and len(ends) == 1 + len(replies)
        assert all(
            end.endswith(f"{reply}\n\n") for end, reply in zip(ends[1:], replies, strict=True)
        )
        assert build_messages(
            Speaker("a", system="You."), EMPTY_TRANSCRIPT, prompt
        ).cache_breakpoints == tuple(len("You.") + end for end in prompt.cache_breakpoints)
