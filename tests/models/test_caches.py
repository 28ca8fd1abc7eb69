"""What is already paid for: prompts that begin as an earlier one did, and what caches are told."""

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


async def dialogues(session: Session) -> None:
    async def one(scope: Any, number: int) -> None:
        speaker, heard = Speaker(f"p{number}", system=f"{number}: {LONG}"), EMPTY_TRANSCRIPT
        for turn in range(TURNS):
            asked = f"Turn {turn}: what do you say?"
            reply = await scope.ask(speaker, asked, history=heard)
            heard = heard + Utterance("", asked) + Utterance(speaker.id, reply)

    await session.map(range(PEOPLE), one)


STUDY = Study(name="dialogues", title="Dialogues", config=StudyConfig, protocol=dialogues)


async def talk(session: Session) -> None:
    """Three hear each other; the prompts to them are no part of the conversation."""
    heard = EMPTY_TRANSCRIPT
    for turn in range(12):
        speaker = Speaker(f"p{turn % 3}", system=f"{turn % 3}: {LONG}")
        reply = await session.child(f"turn{turn}").ask(
            speaker, f"{turn}: {LONG}. Go on.", history=heard
        )
        heard = heard + Utterance(speaker.id, f"{reply} {LONG}")


TALK = Study(name="talk", title="Talk", config=StudyConfig, protocol=talk)


def bodies(
    model: str, out: Path, monkeypatch: pytest.MonkeyPatch, study: Study = STUDY, **more: object
) -> tuple[list[bytes], Run]:
    """The bodies that a run of the study sends, in order, and the run."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    sent: list[bytes] = []
    with ServerThread(FaultPlan()) as server:

        async def between(request: Any, handler: Callable[[Any], Any]) -> Any:
            sent.append(await request.read())
            return await handler(request)

        server.model.between = between
        vendor = model.partition("/")[0]
        url = server.openai if vendor == "openai" else server.url
        finished_run = run(study, {"model": model, "endpoints": {vendor: url}, **more}, out=out)
    return sent, finished_run


def test_a_dialogue_sends_the_same_bytes_first_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, _ = bodies("openai/gpt-4o", tmp_path / "run", monkeypatch)
    keys = {json.loads(body)["prompt_cache_key"] for body in sent}
    assert len(keys) == PEOPLE  # one for each conversation: see docs/decisions/0055
    for number in range(PEOPLE):
        own = sorted((b for b in sent if f'"{number}: You are'.encode() in b), key=len)
        assert len(own) == TURNS
        for before, after in pairwise(own):
            messages = before[: before.index(b"}]")]  # up to the end of the last message
            assert after.startswith(messages)


def test_anthropic_is_told_what_to_keep_and_the_text_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, _ = bodies("anthropic/claude-haiku-4-5", tmp_path / "run", monkeypatch)
    for number in range(PEOPLE):
        own = sorted((b for b in sent if f'"{number}: You are'.encode() in b), key=len)
        assert b"cache_control" not in own[0]  # nothing will be read again for certain
        for body in own[1:]:
            data = json.loads(body)
            assert data["system"][-1]["cache_control"] == {"type": "ephemeral"}
            assert data["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
            assert body.count(b"cache_control") == 2  # of four that a request may have
        texts = [_unmarked(json.loads(body)) for body in own]
        for before, after in pairwise(texts):
            assert after[: len(before)] == before


def _unmarked(body: dict[str, Any]) -> list[tuple[str, str]]:
    def text(content: Any) -> str:
        return content if isinstance(content, str) else "".join(b["text"] for b in content)

    turns = [(turn["role"], text(turn["content"])) for turn in body["messages"]]
    return [("system", text(body["system"])), *turns]


def test_a_single_question_is_not_written_into_a_cache() -> None:
    asked = (Message("system", LONG), Message("user", "Park or pool?"))
    body = anthropic_messages.encode_request(ModelRequest("claude-haiku-4-5", asked))
    assert "cache_control" not in json.dumps(body)


@pytest.mark.parametrize("model", ["gpt-oss-120b", "llama-3", "Qwen/Qwen3", "kimi-k2"])
def test_servers_of_others_are_sent_no_key_of_openais_cache(model: str) -> None:
    assert "prompt_cache_key" not in openai_chat.encode_request(
        ModelRequest(model, (Message("user", "?"),))
    )


@pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/claude-haiku-4-5"])
def test_a_server_that_knows_no_cache_is_asked_without(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = {"openai": "prompt_cache_key", "anthropic": "cache_control"}[model.partition("/")[0]]
    refusal = {"status": 400, "message": f"{word}: Extra inputs are not permitted"}
    says = lambda messages, body: refusal if word in json.dumps(body) else {}  # noqa: E731
    monkeypatch.setattr("tests.servers.model_server.ModelServer.says", staticmethod(says))
    _, done = bodies(model, tmp_path / "run", monkeypatch)
    assert done.table("answers")["missing"].null_count() == PEOPLE * TURNS


def test_tokens_of_the_cache_are_priced_as_such() -> None:
    claude = find_price(resolve_model("claude-haiku-4.5"))
    assert claude is not None
    plain = claude.cost(Usage(10_000, 0, 0))
    assert claude.cost(Usage(10_000, 0, 10_000)) == pytest.approx(0.1 * plain)  # type: ignore[operator]
    assert claude.cost(Usage(10_000, 0, 0, 10_000)) == pytest.approx(1.25 * plain)  # type: ignore[operator]
    assert claude.cost(Usage(40_000, 0, 0, 40_000)) == pytest.approx(5 * plain)  # type: ignore[operator]
    half = claude.batch_price()
    assert half.cost(Usage(10_000, 0, 10_000)) == pytest.approx(0.05 * plain)  # type: ignore[operator]


@pytest.mark.parametrize(("model", "dearer"), [("gpt-5.6", 1.25), ("gpt-4o", 1.0)])
def test_what_goes_into_openais_cache_is_priced_as_such(model: str, dearer: float) -> None:
    counts = {"prompt_tokens": 4_000, "completion_tokens": 10}
    said = {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}
    details = {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4_000}}
    plain, written = (
        openai_chat.decode_reply(
            200, {}, json.dumps({**said, "usage": {**counts, **more}}).encode()
        )
        for more in ({}, details)
    )
    rate = find_price(resolve_model(f"openai/{model}"))
    assert rate is not None
    for priced in (rate, rate.batch_price()):
        out = 10 * priced.share * priced.output_usd
        before, after = priced.cost(plain.usage), priced.cost(written.usage)
        assert before is not None and after is not None
        assert after - out == pytest.approx(dearer * (before - out))


def test_the_report_names_the_share_that_came_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_cached(data: dict[str, Any]) -> dict[str, Any]:
        details = {"cached_tokens": data["usage"]["prompt_tokens"] // 2}
        return {**data, "usage": {**data["usage"], "prompt_tokens_details": details}}

    decode = openai_chat.read_json
    monkeypatch.setattr(openai_chat, "read_json", lambda body: with_cached(decode(body)))
    _, done = bodies("openai/gpt-4o", tmp_path / "run", monkeypatch)
    (row,) = build_trust_section(done.folder, STUDY).models.rows
    assert "50%" in row
    asked, said = done.manifest["input_tokens"], done.manifest["output_tokens"]
    # Half of the input costs half: $2.50 and $1.25 a million, and $10 for what is said.
    price = asked * (2.5e-6 + 1.25e-6) / 2 + said * 1e-5
    assert done.manifest["cost_usd"] == pytest.approx(price, rel=0.01)


def test_the_estimate_counts_what_begins_an_earlier_prompt() -> None:
    study_file = study_from_settings(STUDY, {"model": "openai/gpt-4o"}, RunOptions())
    total = estimate_run(study_file, None)
    share = total.cacheable_tokens_by_model["openai/gpt-4o"] / total.input_tokens
    assert (TURNS - 1) / TURNS - 0.02 < share < (TURNS - 1) / TURNS


def test_a_participants_dialogue_in_a_study_begins_as_the_turn_before(tmp_path: Path) -> None:
    options = RunOptions(model="synthetic", limit=4, out=tmp_path / "run")
    run_study(load_study_with_options(EXAMPLES / "cross_pollination.yaml", options), options)
    dialogues: dict[str, list[list[tuple[str, str]]]] = {}
    with JournalReader(tmp_path / "run" / JOURNAL) as journal:
        for entry in journal.entries_with_prefix("adversarial_dialogue/"):
            if ".r" not in entry.address:  # a re-ask is the end of its own conversation
                messages = [(m["role"], m["content"]) for m in entry.request["messages"]]
                speaker = f"{entry.address.split('/')[1]}: {messages[0][1]}"
                dialogues.setdefault(speaker, []).append(messages)
    assert max(map(len, dialogues.values())) > 2
    for turns in dialogues.values():
        for before, after in pairwise(sorted(turns, key=len)):
            assert after[: len(before)] == before


class Anthropics:
    """Anthropic's cache, as its documentation describes it: what stands up to a mark is kept, and
    read by requests with a mark there or at one of the twenty blocks behind."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._taken: list[str] = []  # what was sent so far, in alphabetical order
        # Characters. `repeated`: of the longest beginning that an earlier request had, too.
        self.all = self.read = self.written = self.repeated = 0

    def take(self, body: dict[str, Any]) -> None:
        system = body.get("system", [])
        said = [{"text": system}] if isinstance(system, str) else list(system)
        for turn in body["messages"]:
            content = turn["content"]
            said += [{"text": content}] if isinstance(content, str) else content
        begun, ends = "", []
        for block in said:
            begun += f"\n{block['text']}"
            ends.append(begun)
        marked = [n for n, block in enumerate(said) if "cache_control" in block]
        assert len(marked) <= 4 and all(block["text"].strip() for block in said)
        marked = [n for n in marked if len(ends[n]) > 4 * 512]
        behind = [e for n in marked for e in ends[max(0, n - 20) : n + 1] if e in self._kept]
        read = max(map(len, behind), default=0)
        written = max((len(ends[n]) for n in marked), default=0)
        self._kept.update(ends[n] for n in marked)
        self.all += len(begun)
        self.read += read
        # The longest common beginning is that of a neighbour in alphabetical order.
        place = bisect.bisect(self._taken, begun)
        near = self._taken[max(0, place - 1) : place + 1]
        common = [
            sum(
                1
                for _ in takewhile(lambda pair: pair[0] == pair[1], zip(begun, other, strict=False))
            )
            for other in near
        ]
        self.repeated += max((n for n in common if n > 4 * 512), default=0)
        self._taken.insert(place, begun)
        self.written += max(0, written - read)

    @property
    def price(self) -> float:
        """Of the input, as a share of what it costs without a cache."""
        return 1 + (0.25 * self.written - 0.9 * self.read) / self.all


@pytest.mark.parametrize(
    ("study", "small", "share"),
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
def test_a_transcript_that_goes_on_is_read_from_the_cache(
    study: str,
    small: tuple[str, ...],
    share: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    cache = Anthropics()
    with ServerThread(FaultPlan(), answers="respondent") as server:

        async def between(request: Any, handler: Callable[[Any], Any]) -> Any:
            cache.take(json.loads(await request.read()))
            return await handler(request)

        server.model.between = between
        own = (*small, f"endpoints.anthropic={server.url}")
        options = RunOptions("anthropic/claude-sonnet-4-5", tmp_path / "run", overrides=own)
        run_study(
            load_study_with_options(EXAMPLES / f"{study}.yaml", replace(options, limit=1)), options
        )
    # Of what repeats: the share of all depends on how often a study asks in a fresh conversation.
    assert cache.read > share * cache.repeated
    assert cache.price < 1


def test_a_conversation_without_its_prompts_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, _ = bodies("anthropic/claude-haiku-4-5", tmp_path / "run", monkeypatch, TALK)
    cache = Anthropics()
    for body in sent:
        cache.take(json.loads(body))
    assert cache.price < 0.8  # half of what is sent last are prompts that come once


def test_batches_are_not_written_into_a_cache_that_forgets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"batch": True, "batch_poll_seconds": 0.001}
    sent, done = bodies("anthropic/claude-haiku-4-5", tmp_path / "run", monkeypatch, **how)
    assert done.manifest["handed_in_by_batches"] == PEOPLE * TURNS
    assert not any(b"cache_control" in body for body in sent)


WITH_MARKS = """{{ cache -}}
{% for said in heard %}
They said:

{{ said }}

{{ cache -}}
{% endfor %}
And you, {{ who }}?
"""


@pytest.mark.parametrize("own", [False, True])
def test_marks_leave_nothing_in_the_text_and_say_where_they_stood(
    own: bool, tmp_path: Path
) -> None:
    for folder in ("shipped", "own"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "talk.md").write_text(WITH_MARKS)
    (tmp_path / "shipped" / "plain.md").write_text(WITH_MARKS.replace("{{ cache -}}\n", ""))
    library = PromptLibrary(tmp_path / "shipped", tmp_path / "own" if own else None)
    assert library.find_problems() == []
    for heard in ([], ["Yes."], ["Yes.", "No."]):
        prompt = library.render_prompt("talk", heard=heard, who="Ann")
        assert prompt == library.render_prompt("plain", heard=heard, who="Ann")
        assert isinstance(prompt, Prompt)
        ends = [prompt[:end] for end in prompt.cache_breakpoints]
        assert ends[0] == "" and len(ends) == 1 + len(heard)
        assert all(end.endswith(f"{said}\n\n") for end, said in zip(ends[1:], heard, strict=True))
        assert build_messages(
            Speaker("a", system="You."), EMPTY_TRANSCRIPT, prompt
        ).cache_breakpoints == tuple(len("You.") + end for end in prompt.cache_breakpoints)
