"""What a run will need, found by rehearsing it: the study runs in a throwaway folder, answered by
the embedded respondent, and every prompt that it would send is counted.

So prompts are counted as they are rendered, each for the model that is dealt to its seat, whatever
the study type. A large study is rehearsed in part (`Study.with_limit`) and scaled up. The work of a
dry run is bounded: what is too large for that is estimated from a sample of the items of its
outermost forks, and the estimate says so, with its range. Used by `folkmoot check` and before a
paid run.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.calls.batch_queue import MAX_WAVE_CALLS
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.longer_replies import (
    FILLER,
    extend_reply,
)
from folkmoot.engine.run.runner import apply_limit, run_study
from folkmoot.engine.session.run_context import ForkItem, ForkLike, RunContext
from folkmoot.engine.session.session import run_locally
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import FolkmootError
from folkmoot.models.catalog import HUMAN_MODEL, SYNTHETIC_MODEL, open_provider, resolve_model
from folkmoot.models.request import (
    NO_USAGE,
    Completion,
    FloatArray,
    ModelRequest,
    Provider,
    ProviderSettings,
    StudyPart,
    Usage,
    byte_count,
    estimate_tokens,
)
from folkmoot.provenance import Source
from folkmoot.randomness import digest, generator

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

ASSUMED_LATENCY = 2.0  # seconds for one reply of a hosted model
SYNTHETIC_LATENCY = 0.001  # of processor time; it answers in this process


class StageEstimate(NamedTuple):
    """The calls and the tokens of one stage."""

    stage: str
    calls: int
    input_tokens: int
    output_tokens: int


class TokenRange(NamedTuple):
    """The fewest and the most tokens that are expected."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """Totals of a run. A total with a low and a high bound is given at their middle.

    The length of a model's replies is unknown. The low bound takes them to be as short as those
    of the embedded respondent, the high bound to have `ASSUMED_UTTERANCE_WORDS` words.
    `input_range` and `output_range` are of all tokens. `sampled`: of how many items of the
    outermost forks the calls were counted, and of how many there are, where not of all; then
    `calls_range` is wide. `incomplete`: the dry run was too large even for that, so that there will
    be more calls. `longest_chain`: the longest chain of calls that wait for each other.
    `batch_wave_sizes`: how many calls wait together each time that nobody can go on without an
    answer, which is when they are handed in by batches. `sample_requests`: the first request of
    each model, role and kind of answer. `models`: input and output tokens by model, where it is
    known which model answers what; `model_calls`: the calls.
    `cacheable_tokens_by_model`: input tokens that repeat the beginning of an earlier request, which
    a vendor's cache may hold."""

    stages: tuple[StageEstimate, ...]
    longest_chain: int = 1
    batch_wave_sizes: tuple[int, ...] = ()
    sample_requests: tuple[ModelRequest, ...] = ()
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cacheable_tokens_by_model: Mapping[str, int] = field(default_factory=dict)
    model_calls: Mapping[str, int] = field(default_factory=dict)
    calls_range: tuple[int, int] | None = None
    input_range: TokenRange | None = None
    output_range: TokenRange | None = None
    sampled: tuple[int, int] | None = None
    incomplete: bool = False

    @property
    def calls(self) -> int:
        return sum(stage_estimate.calls for stage_estimate in self.stages)

    @property
    def input_tokens(self) -> int:
        return sum(stage_estimate.input_tokens for stage_estimate in self.stages)

    @property
    def output_tokens(self) -> int:
        return sum(stage_estimate.output_tokens for stage_estimate in self.stages)

    def cost_range(self, middle: float) -> tuple[float, float]:
        """Between what a run costs that costs `middle` (USD) by the middle of all ranges. Input and
        output move together: what is said is put into later prompts."""
        if self.input_range is None or self.output_range is None or not self.output_tokens:
            return middle, middle
        shares = [
            (bounds.low / max(1, total), bounds.high / max(1, total))
            for bounds, total in (
                (self.input_range, self.input_tokens),
                (self.output_range, self.output_tokens),
            )
        ]
        return middle * min(low for low, _ in shares), middle * max(high for _, high in shares)

    def plus(
        self, stages: Sequence[StageEstimate], models: Mapping[str, StageEstimate]
    ) -> RunEstimate:
        """The estimate with further stages, each of calls that wait for none of each other.

        `models`: their calls and tokens by model.
        """
        calls = sum(stage.calls for stage in stages)
        both = {**self.models}
        asked = {**self.model_calls}
        for name, use in models.items():
            sent, said = both.get(name, (0, 0))
            both[name] = sent + use.input_tokens, said + use.output_tokens
            asked[name] = asked.get(name, 0) + use.calls
        ranges = [
            None if bounds is None else TokenRange(bounds.low + more, bounds.high + more)
            for bounds, more in (
                (self.input_range, sum(stage.input_tokens for stage in stages)),
                (self.output_range, sum(stage.output_tokens for stage in stages)),
            )
        ]
        low, high = self.calls_range or (self.calls, self.calls)
        return replace(
            self,
            stages=(*self.stages, *stages),
            longest_chain=self.longest_chain + bool(stages),
            batch_wave_sizes=(*self.batch_wave_sizes, *_wave_sizes(calls)),
            models=both,
            model_calls=asked,
            calls_range=(low + calls, high + calls),
            input_range=ranges[0],
            output_range=ranges[1],
        )

    def duration_seconds(
        self, *, concurrency: int, spacing: float = 0.0, latency: float = ASSUMED_LATENCY
    ) -> float:
        """How long it takes (s): its calls at full concurrency, its longest chain, or its calls at
        the minimum spacing, whichever is longest. `latency` and `spacing` are seconds per call."""
        calls = self.calls
        return max(calls / concurrency * latency, self.longest_chain * latency, calls * spacing)


FILLER_TOKENS = 2
# A reply of the embedded respondent takes more time than the prompt, and its length varies little
# from one person to the next. In a sample so many are made for each kind of request; further
# requests of the kind get one of these.
REPLIES_OF_A_KIND = 12
REPLY_WORK = 1  # of making a byte of a reply, in bytes of prompts
LONG_REPLIES = 24_000  # characters; of a kind with longer ones two are enough
# The work of one dry run, in bytes of prompts: some ten seconds. It is counted in bytes so that the
# estimate is the same on every machine.
MAX_REHEARSED_BYTES = 12_000_000
# Of a fork within an item of an outermost fork so many items are run, where it has more.
SAMPLE = 5
FEWEST_TO_SAMPLE = 2 * SAMPLE
NOT_SAMPLED = " (not run)"  # behind the name of a stage in the table
SUFFICIENT_SAMPLE_CALLS = 1_000  # a rehearsal of so many scales up well
MIN_CACHED_PREFIX_TOKENS = (
    1024  # tokens of a beginning; OpenAI's and Anthropic's caches hold no shorter one
)
IDLE_LOOP_ITERATIONS = 30  # of the loop without a new call: then all wait that can
MAX_STAGE_ROWS = 8  # lines of a table; stages beyond it that differ in a number are one


@dataclass(slots=True)
class TokenUse:
    """Calls and tokens; of a sample they are no whole numbers."""

    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def add_call(self, calls: float, sent: float, said: float, weight: float = 1.0) -> None:
        self.calls += calls * weight
        self.input_tokens += sent * weight
        self.output_tokens += said * weight


class CountingProvider:
    """The embedded respondent as a provider that counts what every model would have been sent.

    Calls are answered in volleys, each when nobody is left who could still ask: their number is the
    longest chain of calls that wait for each other. `volleys` counts the calls of each that are not
    embeddings.
    """

    def __init__(self, settings: ProviderSettings, embedding: str, max_bytes: int) -> None:
        self.stages: dict[str, TokenUse] = {}
        self.models: dict[str, TokenUse] = {}
        # How many calls of the study a call stands for, where a fork was sampled.
        self.weight: ContextVar[float] = ContextVar("weight", default=1.0)
        # Tokens of the filler in all that was sent and in all replies; the sums hold half of them.
        self.filler: list[float] = [0.0, 0.0]
        self.bytes = 0
        self.max_bytes = max_bytes
        self.repeats_replies = False
        self.replies: dict[tuple[object, ...], list[Completion]] = {}  # by kind of request
        self._met: Counter[tuple[object, ...]] = Counter()
        self.volleys: list[int] = []
        self.repeated: Counter[str] = Counter()
        self._begun: set[bytes] = set()  # beginnings of requests so far, message by message
        self.samples: dict[tuple[str, str, str], ModelRequest] = {}
        self._asks = 0.0
        self._embedding = embedding
        self._inner: Provider = open_provider(resolve_model(SYNTHETIC_MODEL), settings)
        self._waiting: list[asyncio.Future[None]] = []
        self._driver: asyncio.Task[None] | None = None

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        self._asks += self.weight.get()
        kind = (request.model, request.asked.role, request.asked.kind)
        self.samples.setdefault(kind, request)
        await self._wait_for_volley()
        asked = [message.content for message in request.messages]
        self.bytes += byte_count(*asked)
        if self.bytes > self.max_bytes:
            raise EnoughRehearsed
        reply = await self._sampled_reply(request, address, asked)
        schema = [json.dumps(request.schema)] if request.schema is not None else []
        texts = (asked, [reply.text])
        filler = [FILLER_TOKENS * sum(text.count(FILLER) for text in of) for of in texts]
        sent = estimate_tokens(*asked, *schema) - filler[0] / 2
        self._add_usage(address, request.model, sent, estimate_tokens(reply.text) - filler[1] / 2)
        if request.model != HUMAN_MODEL:
            weight = self.weight.get()
            self.filler = [a + b * weight for a, b in zip(self.filler, filler, strict=True)]
            self.repeated[request.model] += round(self._cached_prefix_tokens(request) * weight)
        return reply

    async def _sampled_reply(
        self, request: ModelRequest, address: str, asked: Sequence[str]
    ) -> Completion:
        """A reply of the embedded respondent, or one that it gave to a request of the same kind."""
        kind = _kind_of(request, address)
        made = self.replies.setdefault(kind, [])
        self._met[kind] += 1
        long = len(made) > 1 and sum(len(reply.text) for reply in made) > LONG_REPLIES
        if self.repeats_replies and (len(made) >= REPLIES_OF_A_KIND or long):
            return made[self._met[kind] % len(made)]
        reply = await self._inner.complete_request(request, address=address)
        text = extend_reply(reply.text, "\n".join(asked), request)
        self.bytes += REPLY_WORK * byte_count(reply.text)
        made.append(reply._replace(text=text, usage=NO_USAGE))
        return made[-1]

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        await self._wait_for_volley()
        self._add_usage(address, self._embedding, estimate_tokens(*texts), 0.0)
        return (await self._inner.embed_texts(SYNTHETIC_MODEL, texts, address=address))[0], NO_USAGE

    async def close(self) -> None:
        await self._inner.close()

    def state(self) -> Counted:
        """What has been counted so far."""
        return Counted(
            {name: replace(use) for name, use in self.models.items()},
            tuple(self.filler),
            len(self.volleys),
            dict(self.repeated),
        )

    def add_unsampled(self, stage: str, before: Counted, ran: int, left: int) -> None:
        """Add the items of a fork that are `left`, as if they were like those that `ran`."""
        if not ran or not left:
            return
        share = left / ran
        unsampled = self.stages.setdefault(f"{stage}{NOT_SAMPLED}", TokenUse())
        for name, use in self.models.items():
            was = before.models.get(name, TokenUse())
            more = (
                use.calls - was.calls,
                use.input_tokens - was.input_tokens,
                use.output_tokens - was.output_tokens,
            )
            unsampled.add_call(*more, share)
            use.add_call(*more, share)
            repeated = self.repeated[name] - before.repeated.get(name, 0)
            self.repeated[name] += round(repeated * share)
        both = zip(self.filler, before.filler, strict=True)
        self.filler = [was + (now - was) * (1 + share) for now, was in both]

    def _cached_prefix_tokens(self, request: ModelRequest) -> float:
        """Tokens of the longest beginning that an earlier request had; 0 where it is too short for
        any vendor's cache."""
        begun, tokens, again = b"", 0.0, 0.0
        for message in request.messages:
            begun = digest(begun, request.model, *message)
            # As for all that is sent: the estimate holds half of the filler.
            filler = FILLER_TOKENS * message.content.count(FILLER)
            tokens += estimate_tokens(message.content) - filler / 2
            if begun in self._begun:
                again = tokens
            self._begun.add(begun)
        return again if again >= MIN_CACHED_PREFIX_TOKENS else 0.0

    def _add_usage(self, address: str, model: str, sent: float, said: float) -> None:
        if model == HUMAN_MODEL:  # people cost nothing
            return
        stage = address.partition("/")[0] if "/" in address else "run"
        for counts, key in ((self.stages, stage), (self.models, model)):
            counts.setdefault(key, TokenUse()).add_call(1.0, sent, said, self.weight.get())

    async def _wait_for_volley(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.ensure_future(self._answer_volleys())
        await waiting

    async def _answer_volleys(self) -> None:
        while self._waiting:
            seen, quiet = 0, 0
            while quiet < IDLE_LOOP_ITERATIONS:
                quiet = quiet + 1 if len(self._waiting) == seen else 0
                seen = len(self._waiting)
                await asyncio.sleep(0)
            self.volleys.append(round(self._asks))
            self._asks = 0.0
            now, self._waiting = self._waiting, []
            for each in now:
                if not each.done():
                    each.set_result(None)


class EnoughRehearsed(FolkmootError):
    """The dry run has done as much work as it may."""


class Counted(NamedTuple):
    """What a dry run had counted at one moment."""

    models: Mapping[str, TokenUse]
    filler: tuple[float, ...]
    volleys: int
    repeated: Mapping[str, int]

    def calls(self) -> float:
        return sum(use.calls for use in self.models.values())


class Sampler:
    """Runs a sample of the items of each fork; the rest gets copies of their results, so that the
    protocol goes on, and its later parts are rehearsed with these. What is said in a copy is of the
    item that gets it: a speaker and replies that differ from those of the original.

    Of an outermost fork items are run one after the other, in a drawn order, as far as the work of
    a dry run goes. Of a fork within one (`within`) a few items are run side by side. `items` counts
    those of outermost forks that were run, and all.
    """

    def __init__(self, counting: CountingProvider, *, within: bool) -> None:
        self.items = [0, 0]
        self.copied = False
        self.calls_range = [0.0, 0.0]  # of the items that were not run
        self._counting = counting
        self._samples_within = within
        self._within: ContextVar[bool] = ContextVar("within", default=False)

    async def __call__(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        parts: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        order = generator(0, (*fork.path, "dry run")).permutation(len(parts))
        drawn = [parts[int(item_id)] for item_id in order]
        if not self._within.get():
            return await self._one_by_one(run, fork, drawn, results, stage)
        if not self._samples_within or len(parts) < FEWEST_TO_SAMPLE:
            return await run_locally(run, fork, parts, results, stage)
        weight = self._counting.weight
        token = weight.set(weight.get() * len(drawn) / SAMPLE)
        try:
            failures = await run_locally(run, fork, drawn[:SAMPLE], results, stage)
        finally:
            weight.reset(token)
        if not failures:
            self._copy_results(run, fork, drawn, SAMPLE, results, stage)
        return failures

    async def _one_by_one(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        drawn: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        counting, before = self._counting, self._counting.state()
        began, most_bytes, took = counting.bytes, 0, list[float]()
        enough = (counting.max_bytes - began) * 2 / 3  # leave some for the forks that follow
        longest: list[int] = []
        token = self._within.set(True)
        try:
            for part in drawn:
                if took and counting.bytes - began + most_bytes > enough:
                    break
                at, bytes_before = counting.state(), counting.bytes
                if failures := await run_locally(run, fork, [part], results, stage):
                    return failures
                took.append(counting.state().calls() - at.calls())
                most_bytes = max(most_bytes, counting.bytes - bytes_before)
                longest = max(longest, counting.volleys[at.volleys :], key=len)
        finally:
            self._within.reset(token)
        left = len(drawn) - len(took)
        # Items of a fork run side by side in a run: its chain is that of the longest.
        counting.volleys[before.volleys :] = [asks * len(drawn) for asks in longest]
        counting.add_unsampled(stage or "run", before, len(took), left)
        self.items = [self.items[0] + len(took), self.items[1] + len(drawn)]
        for which, calls in enumerate(_bounds_of(took)):
            self.calls_range[which] += left * calls
        self._copy_results(run, fork, drawn, len(took), results, stage)
        return {}

    def _copy_results(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        drawn: Sequence[ForkItem[I]],
        ran: int,
        results: dict[int, R],
        stage: str,
    ) -> None:
        for number, part in enumerate(drawn[ran:]):
            original = drawn[number % ran]
            result = results[original.number]
            results[part.number] = _with_own_sources(result, fork.path, original.key, part.key)
            run.report_item_done(stage)
            self.copied = True


def _with_own_sources(result: R, path: tuple[str, ...], original: str, own: str) -> R:
    """Return a result of the item `original` of a fork as one of the item `own`: what was said
    below the fork has ids and speakers of the latter. A result without such texts, or one that
    cannot be copied, is returned as it is."""
    file = BytesIO()
    pickler = _Renaming(file, "/".join((*path, original)), "/".join((*path, own)))
    try:
        pickler.dump(result)
    except (pickle.PicklingError, TypeError, AttributeError):  # it may hold an open file
        return result
    return pickle.loads(file.getvalue()) if pickler.changed else result


def _make_read_only(values: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(values)


class _Renaming(pickle.Pickler):
    """Writes an object in which utterances and sources below the scope `old` are below `new`."""

    def __init__(self, file: BytesIO, old: str, new: str) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._old, self._new = old, new
        self._speakers = {old.rpartition("/")[2]: new.rpartition("/")[2]}
        self.changed = False

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, MappingProxyType):  # the headers of a reply, which pickle refuses
            return _make_read_only, (dict(value),)
        if not isinstance(value, (Source, Utterance)) or not value.id.startswith(f"{self._old}/"):
            return NotImplemented
        self.changed = True
        id = self._new + value.id.removeprefix(self._old)
        if isinstance(value, Source):
            return Source, value._replace(id=id, speaker=self._rename_speaker(value.speaker))[:]
        return Utterance, value._replace(id=id, speaker_id=self._rename_speaker(value.speaker_id))[
            :
        ]

    def _rename_speaker(self, speaker: str) -> str:
        return self._speakers.get(speaker, speaker)


def _bounds_of(took: Sequence[float]) -> tuple[float, float]:
    """Between which numbers of calls an item that was not run is taken to lie: few items say
    little of how far the others may differ."""
    if not took:
        return 0.0, 0.0
    wider = 1.0 if len(took) >= SAMPLE else 2.0
    return min(took) / wider, max(took) * wider


def _kind_of(request: ModelRequest, address: str) -> tuple[object, ...]:
    """Return a key of requests with replies of similar form and length: the same place of the
    protocol, numbers aside, the same form of answer, the same options."""
    asked = request.asked
    place = re.sub(r"\d+", "", address.rpartition("/")[0]), address.rpartition("/")[2]
    schema = json.dumps(request.schema, sort_keys=True) if request.schema is not None else ""
    # How far a conversation is decides whether it ends; of structured answers only the form counts.
    turns = 0 if schema else len(request.messages)
    return (*place, asked.role, asked.kind, frozenset(asked.offered), schema, turns)


# A rehearsal spends nothing and waits for nobody.
DRY_RUN_OVERRIDES: Mapping[str, object] = {"budget_usd": None, "budget_calls": None, "batch": False}


def estimate_run(
    study_file: StudyFile, model: str | None, embedding_model: str = SYNTHETIC_MODEL
) -> RunEstimate:
    """Calls, tokens and the longest chain of a run of this study, `model` in every seat if given;
    `embedding_model` is the model of its embeddings.

    Raises what the protocol raises.
    """
    config = study_file.config.model_copy(update=DRY_RUN_OVERRIDES)
    whole = replace(study_file, config=config)
    size = _limit_size(whole)
    part, share = whole, 1.0
    played = None
    if size > 2:
        part, least = apply_limit(whole, 2), _smallest_limit(whole, size)
        taken = max(least, _limit_size(part))
        played = _dry_run(part, model, embedding_model)
        calls = round(sum(use.calls for use in played.counting.stages.values()))
        most = max(taken, SUFFICIENT_SAMPLE_CALLS * taken // max(1, calls))
        if played.cut or most == taken:
            share = size / taken
        else:
            part = apply_limit(whole, most) if most < size else whole
            share = size / max(least, _limit_size(part)) if most < size else 1.0
            played = None
    played = played or _dry_run(part, model, embedding_model)
    if played.cut:
        played = _dry_run(part, model, embedding_model, sample=True, within=True)
        if (
            played.cut and not played.outermost_fork_sizes
        ):  # it may not bear copies of results within its items
            played = _dry_run(part, model, embedding_model, sample=True)
    return _estimate_of(played, share)


def _estimate_of(played: Played, share: float) -> RunEstimate:
    """The estimate of a study of which `1 / share` was rehearsed."""
    counted, sampler = played.counting, played.sampler
    stages = tuple(_summarise_stages(counted, share))
    calls = sum(stage.calls for stage in stages)
    below, above = sampler.calls_range if sampler is not None else (0, 0)
    estimated = sum(use.calls for name, use in counted.stages.items() if name.endswith(NOT_SAMPLED))
    calls_range = (
        calls - round((estimated - below) * share),
        calls + round((above - estimated) * share),
    )
    wide = [bound / max(1, calls) for bound in calls_range]
    # The middle stands in `stages`; the filler, half of which it holds, is what is uncertain.
    tokens = [
        TokenRange(
            round((total - filler * share / 2) * wide[0]),
            round((total + filler * share / 2) * wide[1]),
        )
        for total, filler in (
            (sum(stage.input_tokens for stage in stages), counted.filler[0]),
            (sum(stage.output_tokens for stage in stages), counted.filler[1]),
        )
    ]
    return RunEstimate(
        stages,
        longest_chain=len(counted.volleys),
        model_calls={name: round(use.calls * share) for name, use in counted.models.items()},
        calls_range=calls_range,
        input_range=tokens[0],
        output_range=tokens[1],
        sampled=(sampler.items[0], sampler.items[1]) if sampler is not None else None,
        incomplete=played.cut,
        cacheable_tokens_by_model={name: round(n * share) for name, n in counted.repeated.items()},
        sample_requests=tuple(counted.samples.values()),
        batch_wave_sizes=tuple(
            wave for asks in counted.volleys for wave in _wave_sizes(round(asks * share))
        ),
        models={
            name: (round(use.input_tokens * share), round(use.output_tokens * share))
            for name, use in counted.models.items()
        },
    )


def _wave_sizes(calls: int) -> Iterator[int]:
    for begun in range(0, calls, MAX_WAVE_CALLS):
        yield min(MAX_WAVE_CALLS, calls - begun)


class Played(NamedTuple):
    """A dry run. `cut`: it ended before the study did, because it had done as much as it may."""

    counting: CountingProvider
    sampler: Sampler | None = None
    cut: bool = False

    @property
    def outermost_fork_sizes(self) -> int:
        """Whether an outermost fork came to its end: of how many items."""
        return self.sampler.items[1] if self.sampler is not None else 0


def _dry_run(
    study_file: StudyFile,
    model: str | None,
    embedding: str,
    *,
    sample: bool = False,
    within: bool = False,
) -> Played:
    """Rehearse a study, with all its items or with a `sample` of them."""
    config = study_file.config
    part = study_file.study.respondent_part
    settings = ProviderSettings(
        seed=config.random_seed,
        options=config.respondent,
        study=StudyPart(part, config) if part else None,
    )
    counting = CountingProvider(settings, embedding, (1 + 2 * sample) * MAX_REHEARSED_BYTES)
    counting.repeats_replies = sample
    sampler = Sampler(counting, within=within) if sample else None
    cut = False
    with tempfile.TemporaryDirectory(prefix="folkmoot-rehearsal-") as folder:
        config = study_file.study.dry_run_config(config, Path(folder))
        out = Path(folder) / "run"
        options = RunOptions(
            model=model, out=out, custom_provider=counting, fork_executor=sampler, rehearsal=True
        )
        try:
            run_study(replace(study_file, config=config), options)
        except Exception:
            # A protocol may say anything to the end of the dry run, and to copies of results.
            copied = sampler is not None and sampler.copied
            cut = copied or counting.bytes > counting.max_bytes
            if not cut:
                raise
    return Played(counting, sampler, cut)


def small_part(found: StudyFile, enough: int) -> tuple[StudyFile, float]:
    """The smallest part of a study with at least `enough` participants or sessions, and how many
    times as large the study is."""
    size = _limit_size(found)
    least = min(size, max(enough, _smallest_limit(found, size))) if size > 2 else size
    return (apply_limit(found, least), size / least) if least < size else (found, 1.0)


def embedded_provider(found: StudyFile) -> Provider:
    """The embedded respondent as it answers this study, for calls that are only counted."""
    part = found.study.respondent_part
    study = StudyPart(part, found.config) if part else None
    seed, knobs = found.config.random_seed, found.config.respondent
    settings = ProviderSettings(seed=seed, options=knobs, study=study)
    return open_provider(resolve_model(SYNTHETIC_MODEL), settings)


def _limit_size(found: StudyFile) -> int:
    """How many participants or sessions the study has, as `--limit` counts them; 1 where it has no
    limit.

    The smallest limit that changes nothing.
    """
    if found.study.with_limit is None:
        return 1
    cut, whole = found.study.with_limit, found.config
    high = 1
    while cut(whole, high) != whole:
        high *= 2
        if high > 2**24:
            return 1
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cut(whole, middle) == whole else (middle, high)
    return high


def _smallest_limit(whole: StudyFile, size: int) -> int:
    """How many the smallest part of a study has, as `--limit` counts them. Where that is one of
    each condition, any lower limit gives the same part."""
    smallest = apply_limit(whole, 1).config
    more = (n for n in range(2, size) if apply_limit(whole, n).config != smallest)
    return next(more, size) // 2


def _summarise_stages(counted: CountingProvider, scale: float) -> list[StageEstimate]:
    """One row per stage; discussions that are stages of their own share a row if they are alike."""
    merged: dict[str, TokenUse] = {}
    many = len(counted.stages) > MAX_STAGE_ROWS
    for name, use in counted.stages.items():
        of = merged.setdefault(re.sub(r"\d+", "*", name, count=1) if many else name, TokenUse())
        of.add_call(use.calls, use.input_tokens, use.output_tokens)
    return [
        StageEstimate(
            name,
            round(use.calls * scale),
            round(use.input_tokens * scale),
            round(use.output_tokens * scale),
        )
        for name, use in merged.items()
    ]
