"""What a run will need, found by rehearsing it: the study runs in a throwaway folder, answered by
the embedded respondent, and every prompt that it would send is counted.

So prompts are counted as they are rendered, each for the model that is dealt to its seat, whatever
the study type. A large study is rehearsed in part (`Study.limit`) and scaled up. The work of a dry
run is bounded: what is too large for that is estimated from a sample of the items of its outermost
forks, and the estimate says so, with its range. Used by `folkmoot check` and before a paid run.
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
from folkmoot.engine.calls.batch_queue import WAVE
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import limited, run_study
from folkmoot.engine.session.run_context import Begins, Part, RunContext
from folkmoot.engine.session.session import here
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import FolkmootError
from folkmoot.models.catalog import HUMAN, LOCAL, open_provider, resolve
from folkmoot.models.request import (
    NOTHING,
    FloatArray,
    Provider,
    ProviderSettings,
    Reply,
    Request,
    StudyPart,
    Usage,
    byte_count,
    estimated_tokens,
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
class Estimate:
    """Totals of a run. A total with a low and a high bound is given at their middle.

    The length of a model's replies is unknown. The low bound takes them to be as short as those
    of the embedded respondent, the high bound to have `SAID_WORDS` words. `input_range` and
    `output_range` are of all tokens. `sampled`: of how many items of the outermost forks the calls
    were counted, and of how many there are, where not of all; then `calls_range` is wide.
    `incomplete`: the dry run was too large even for that, so that there will be more calls.
    `chain`: the longest chain of calls that wait for each other. `waves`: how
    many calls wait together each time that nobody can go on without an answer, which is when they
    are handed in by batches. `samples`: the first request of each model, role and kind of answer.
    `models`: input and output tokens by model, where it is known which model answers what;
    `model_calls`: the calls.
    `repeated`: input tokens that repeat the beginning of an earlier request, which a vendor's cache
    may hold."""

    stages: tuple[StageEstimate, ...]
    chain: int = 1
    waves: tuple[int, ...] = ()
    samples: tuple[Request, ...] = ()
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    repeated: Mapping[str, int] = field(default_factory=dict)
    model_calls: Mapping[str, int] = field(default_factory=dict)
    calls_range: tuple[int, int] | None = None
    input_range: TokenRange | None = None
    output_range: TokenRange | None = None
    sampled: tuple[int, int] | None = None
    incomplete: bool = False

    @property
    def calls(self) -> int:
        return sum(s.calls for s in self.stages)

    @property
    def input_tokens(self) -> int:
        return sum(s.input_tokens for s in self.stages)

    @property
    def output_tokens(self) -> int:
        return sum(s.output_tokens for s in self.stages)

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
    ) -> Estimate:
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
            chain=self.chain + bool(stages),
            waves=(*self.waves, *_waves(calls)),
            models=both,
            model_calls=asked,
            calls_range=(low + calls, high + calls),
            input_range=ranges[0],
            output_range=ranges[1],
        )

    def seconds(
        self, *, concurrency: int, spacing: float = 0.0, latency: float = ASSUMED_LATENCY
    ) -> float:
        """How long it takes (s): its calls at full concurrency, its longest chain, or its calls at
        the minimum spacing, whichever is longest. `latency` and `spacing` are seconds per call."""
        calls = self.calls
        return max(calls / concurrency * latency, self.chain * latency, calls * spacing)


# What people say freely may be so long, in words: replies of hosted models to prompts like the
# shipped ones are between the length of the embedded respondent's and this.
SAID_WORDS = 80
# What a free reply is lengthened by. It is found again in later prompts, so that one dry run counts
# their tokens with and without it. With its space it is eight bytes: two tokens.
FILLER = "andsoon"
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
FREE_WORDS = 6  # a reply of fewer words is a vote, a number or a signal, and stays as it is
ENOUGH_CALLS = 1_000  # a rehearsal of so many scales up well
SHORTEST_CACHED = 1024  # tokens of a beginning; OpenAI's and Anthropic's caches hold no shorter one
QUIET_TURNS = 30  # of the loop without a new call: then all wait that can
MOST_STAGES = 8  # lines of a table; stages beyond it that differ in a number are one


@dataclass(slots=True)
class Use:
    """Calls and tokens; of a sample they are no whole numbers."""

    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def add(self, calls: float, sent: float, said: float, weight: float = 1.0) -> None:
        self.calls += calls * weight
        self.input_tokens += sent * weight
        self.output_tokens += said * weight


class Counting:
    """The embedded respondent as a provider that counts what every model would have been sent.

    Calls are answered in volleys, each when nobody is left who could still ask: their number is the
    longest chain of calls that wait for each other. `volleys` counts the calls of each that are not
    embeddings.
    """

    def __init__(self, settings: ProviderSettings, embedding: str, max_bytes: int) -> None:
        self.stages: dict[str, Use] = {}
        self.models: dict[str, Use] = {}
        # How many calls of the study a call stands for, where a fork was sampled.
        self.weight: ContextVar[float] = ContextVar("weight", default=1.0)
        # Tokens of the filler in all that was sent and in all replies; the sums hold half of them.
        self.filler: list[float] = [0.0, 0.0]
        self.bytes = 0
        self.max_bytes = max_bytes
        self.repeats_replies = False
        self.replies: dict[tuple[object, ...], list[Reply]] = {}  # by kind of request
        self._met: Counter[tuple[object, ...]] = Counter()
        self.volleys: list[int] = []
        self.repeated: Counter[str] = Counter()
        self._begun: set[bytes] = set()  # beginnings of requests so far, message by message
        self.samples: dict[tuple[str, str, str], Request] = {}
        self._asks = 0.0
        self._embedding = embedding
        self._inner: Provider = open_provider(resolve(LOCAL), settings)
        self._waiting: list[asyncio.Future[None]] = []
        self._driver: asyncio.Task[None] | None = None

    async def complete(self, request: Request, *, address: str) -> Reply:
        self._asks += self.weight.get()
        kind = (request.model, request.asked.role, request.asked.kind)
        self.samples.setdefault(kind, request)
        await self._turn()
        asked = [m.content for m in request.messages]
        self.bytes += byte_count(*asked)
        if self.bytes > self.max_bytes:
            raise EnoughRehearsed
        reply = await self._reply(request, address, asked)
        schema = [json.dumps(request.schema)] if request.schema is not None else []
        texts = (asked, [reply.text])
        filler = [FILLER_TOKENS * sum(text.count(FILLER) for text in of) for of in texts]
        sent = estimated_tokens(*asked, *schema) - filler[0] / 2
        self._count(address, request.model, sent, estimated_tokens(reply.text) - filler[1] / 2)
        if request.model != HUMAN:
            weight = self.weight.get()
            self.filler = [a + b * weight for a, b in zip(self.filler, filler, strict=True)]
            self.repeated[request.model] += round(self._again(request) * weight)
        return reply

    async def _reply(self, request: Request, address: str, asked: Sequence[str]) -> Reply:
        """A reply of the embedded respondent, or one that it gave to a request of the same kind."""
        kind = _kind_of(request, address)
        made = self.replies.setdefault(kind, [])
        self._met[kind] += 1
        long = len(made) > 1 and sum(len(reply.text) for reply in made) > LONG_REPLIES
        if self.repeats_replies and (len(made) >= REPLIES_OF_A_KIND or long):
            return made[self._met[kind] % len(made)]
        reply = await self._inner.complete(request, address=address)
        text = _at_length(reply.text, "\n".join(asked), request)
        self.bytes += REPLY_WORK * byte_count(reply.text)
        made.append(reply._replace(text=text, usage=NOTHING))
        return made[-1]

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        await self._turn()
        self._count(address, self._embedding, estimated_tokens(*texts), 0.0)
        return (await self._inner.embed(LOCAL, texts, address=address))[0], NOTHING

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
        unsampled = self.stages.setdefault(f"{stage}{NOT_SAMPLED}", Use())
        for name, use in self.models.items():
            was = before.models.get(name, Use())
            more = (
                use.calls - was.calls,
                use.input_tokens - was.input_tokens,
                use.output_tokens - was.output_tokens,
            )
            unsampled.add(*more, share)
            use.add(*more, share)
            repeated = self.repeated[name] - before.repeated.get(name, 0)
            self.repeated[name] += round(repeated * share)
        both = zip(self.filler, before.filler, strict=True)
        self.filler = [was + (now - was) * (1 + share) for now, was in both]

    def _again(self, request: Request) -> float:
        """Tokens of the longest beginning that an earlier request had; 0 where it is too short for
        any vendor's cache."""
        begun, tokens, again = b"", 0.0, 0.0
        for message in request.messages:
            begun = digest(begun, request.model, *message)
            # As for all that is sent: the estimate holds half of the filler.
            filler = FILLER_TOKENS * message.content.count(FILLER)
            tokens += estimated_tokens(message.content) - filler / 2
            if begun in self._begun:
                again = tokens
            self._begun.add(begun)
        return again if again >= SHORTEST_CACHED else 0.0

    def _count(self, address: str, model: str, sent: float, said: float) -> None:
        if model == HUMAN:  # people cost nothing
            return
        stage = address.partition("/")[0] if "/" in address else "run"
        for counts, key in ((self.stages, stage), (self.models, model)):
            counts.setdefault(key, Use()).add(1.0, sent, said, self.weight.get())

    async def _turn(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.ensure_future(self._drive())
        await waiting

    async def _drive(self) -> None:
        while self._waiting:
            seen, quiet = 0, 0
            while quiet < QUIET_TURNS:
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

    models: Mapping[str, Use]
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

    def __init__(self, counting: Counting, *, within: bool) -> None:
        self.items = [0, 0]
        self.copied = False
        self.calls_range = [0.0, 0.0]  # of the items that were not run
        self._counting = counting
        self._samples_within = within
        self._within: ContextVar[bool] = ContextVar("within", default=False)

    async def __call__(
        self,
        run: RunContext,
        fork: Begins[I, R],
        parts: Sequence[Part[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        order = generator(0, (*fork.path, "dry run")).permutation(len(parts))
        drawn = [parts[int(i)] for i in order]
        if not self._within.get():
            return await self._one_by_one(run, fork, drawn, results, stage)
        if not self._samples_within or len(parts) < FEWEST_TO_SAMPLE:
            return await here(run, fork, parts, results, stage)
        weight = self._counting.weight
        token = weight.set(weight.get() * len(drawn) / SAMPLE)
        try:
            failures = await here(run, fork, drawn[:SAMPLE], results, stage)
        finally:
            weight.reset(token)
        if not failures:
            self._copy(run, fork, drawn, SAMPLE, results, stage)
        return failures

    async def _one_by_one(
        self,
        run: RunContext,
        fork: Begins[I, R],
        drawn: Sequence[Part[I]],
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
                if failures := await here(run, fork, [part], results, stage):
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
        self._copy(run, fork, drawn, len(took), results, stage)
        return {}

    def _copy(
        self,
        run: RunContext,
        fork: Begins[I, R],
        drawn: Sequence[Part[I]],
        ran: int,
        results: dict[int, R],
        stage: str,
    ) -> None:
        for number, part in enumerate(drawn[ran:]):
            original = drawn[number % ran]
            result = results[original.number]
            results[part.number] = _with_own_sources(result, fork.path, original.key, part.key)
            run.item_done(stage)
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
            return Source, value._replace(id=id, speaker=self._rename(value.speaker))[:]
        return Utterance, value._replace(id=id, speaker_id=self._rename(value.speaker_id))[:]

    def _rename(self, speaker: str) -> str:
        return self._speakers.get(speaker, speaker)


def _bounds_of(took: Sequence[float]) -> tuple[float, float]:
    """Between which numbers of calls an item that was not run is taken to lie: few items say
    little of how far the others may differ."""
    if not took:
        return 0.0, 0.0
    wider = 1.0 if len(took) >= SAMPLE else 2.0
    return min(took) / wider, max(took) * wider


def _kind_of(request: Request, address: str) -> tuple[object, ...]:
    """Return a key of requests with replies of similar form and length: the same place of the
    protocol, numbers aside, the same form of answer, the same options."""
    asked = request.asked
    place = re.sub(r"\d+", "", address.rpartition("/")[0]), address.rpartition("/")[2]
    schema = json.dumps(request.schema, sort_keys=True) if request.schema is not None else ""
    # How far a conversation is decides whether it ends; of structured answers only the form counts.
    turns = 0 if schema else len(request.messages)
    return (*place, asked.role, asked.kind, frozenset(asked.offered), schema, turns)


# A rehearsal spends nothing and waits for nobody.
DIRECT: Mapping[str, object] = {"budget_usd": None, "budget_calls": None, "batch": False}


def rehearsed(found: StudyFile, model: str | None, embedding: str = LOCAL) -> Estimate:
    """Calls, tokens and the longest chain of a run of this study, `model` in every seat if given;
    `embedding` is the model of its embeddings.

    Raises what the protocol raises.
    """
    config = found.config.model_copy(update=DIRECT)
    whole = replace(found, config=config)
    size = _size(whole)
    part, share = whole, 1.0
    played = None
    if size > 2:
        part, least = limited(whole, 2), _least(whole, size)
        taken = max(least, _size(part))
        played = _play(part, model, embedding)
        calls = round(sum(use.calls for use in played.counting.stages.values()))
        most = max(taken, ENOUGH_CALLS * taken // max(1, calls))
        if played.cut or most == taken:
            share = size / taken
        else:
            part = limited(whole, most) if most < size else whole
            share = size / max(least, _size(part)) if most < size else 1.0
            played = None
    played = played or _play(part, model, embedding)
    if played.cut:
        played = _play(part, model, embedding, sample=True, within=True)
        if played.cut and not played.forks:  # it may not bear copies of results within its items
            played = _play(part, model, embedding, sample=True)
    return _estimate_of(played, share)


def _estimate_of(played: Played, share: float) -> Estimate:
    """The estimate of a study of which `1 / share` was rehearsed."""
    counted, sampler = played.counting, played.sampler
    stages = tuple(_stages(counted, share))
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
    return Estimate(
        stages,
        chain=len(counted.volleys),
        model_calls={name: round(use.calls * share) for name, use in counted.models.items()},
        calls_range=calls_range,
        input_range=tokens[0],
        output_range=tokens[1],
        sampled=(sampler.items[0], sampler.items[1]) if sampler is not None else None,
        incomplete=played.cut,
        repeated={name: round(n * share) for name, n in counted.repeated.items()},
        samples=tuple(counted.samples.values()),
        waves=tuple(wave for asks in counted.volleys for wave in _waves(round(asks * share))),
        models={
            name: (round(use.input_tokens * share), round(use.output_tokens * share))
            for name, use in counted.models.items()
        },
    )


def _waves(calls: int) -> Iterator[int]:
    for begun in range(0, calls, WAVE):
        yield min(WAVE, calls - begun)


class Played(NamedTuple):
    """A dry run. `cut`: it ended before the study did, because it had done as much as it may."""

    counting: Counting
    sampler: Sampler | None = None
    cut: bool = False

    @property
    def forks(self) -> int:
        """Whether an outermost fork came to its end: of how many items."""
        return self.sampler.items[1] if self.sampler is not None else 0


def _play(
    found: StudyFile,
    model: str | None,
    embedding: str,
    *,
    sample: bool = False,
    within: bool = False,
) -> Played:
    """Rehearse a study, with all its items or with a `sample` of them."""
    config = found.config
    part = found.study.respondent
    settings = ProviderSettings(
        seed=config.random_seed,
        options=config.respondent,
        study=StudyPart(part, config) if part else None,
    )
    counting = Counting(settings, embedding, (1 + 2 * sample) * MAX_REHEARSED_BYTES)
    counting.repeats_replies = sample
    sampler = Sampler(counting, within=within) if sample else None
    cut = False
    with tempfile.TemporaryDirectory(prefix="folkmoot-rehearsal-") as folder:
        config = found.study.rehearsal(config, Path(folder))
        out = Path(folder) / "run"
        options = RunOptions(model=model, out=out, provider=counting, away=sampler, rehearsal=True)
        try:
            run_study(replace(found, config=config), options)
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
    size = _size(found)
    least = min(size, max(enough, _least(found, size))) if size > 2 else size
    return (limited(found, least), size / least) if least < size else (found, 1.0)


def embedded_provider(found: StudyFile) -> Provider:
    """The embedded respondent as it answers this study, for calls that are only counted."""
    part = found.study.respondent
    study = StudyPart(part, found.config) if part else None
    seed, knobs = found.config.random_seed, found.config.respondent
    settings = ProviderSettings(seed=seed, options=knobs, study=study)
    return open_provider(resolve(LOCAL), settings)


def _size(found: StudyFile) -> int:
    """How many participants or sessions the study has, as `--limit` counts them; 1 where it has no
    limit.

    The smallest limit that changes nothing.
    """
    if found.study.limit is None:
        return 1
    cut, whole = found.study.limit, found.config
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


def _least(whole: StudyFile, size: int) -> int:
    """How many the smallest part of a study has, as `--limit` counts them. Where that is one of
    each condition, any lower limit gives the same part."""
    smallest = limited(whole, 1).config
    more = (n for n in range(2, size) if limited(whole, n).config != smallest)
    return next(more, size) // 2


def _stages(counted: Counting, share: float) -> list[StageEstimate]:
    """One row per stage; discussions that are stages of their own share a row if they are alike."""
    merged: dict[str, Use] = {}
    many = len(counted.stages) > MOST_STAGES
    for name, use in counted.stages.items():
        of = merged.setdefault(re.sub(r"\d+", "*", name, count=1) if many else name, Use())
        of.add(use.calls, use.input_tokens, use.output_tokens)
    return [
        StageEstimate(
            name,
            round(use.calls * share),
            round(use.input_tokens * share),
            round(use.output_tokens * share),
        )
        for name, use in merged.items()
    ]


def _at_length(text: str, asked: str, request: Request) -> str:
    """A reply with its free text at the length that is expected of a model."""
    if request.schema is None:
        return _longer(text, asked, request.max_tokens)
    schema = json.dumps(request.schema)
    try:
        data = json.loads(text)
    except ValueError:
        return text
    if "maxLength" in schema or "pattern" in schema:
        return text
    return json.dumps(_longer_in(data, asked + schema, request.max_tokens), ensure_ascii=False)


def _longer_in(data: object, asked: str, limit: int | None) -> object:
    if isinstance(data, dict):
        return {k: _longer_in(v, asked, limit) for k, v in data.items()}
    if isinstance(data, list):
        return [_longer_in(v, asked, limit) for v in data]
    return _longer(data, asked, limit) if isinstance(data, str) else data


def _longer(text: str, asked: str, limit: int | None) -> str:
    words = text.split()
    if not FREE_WORDS <= len(words) < SAID_WORDS or text.strip() in asked:
        return text
    longer = " ".join([text, *[FILLER] * (SAID_WORDS - len(words))])
    return text if limit is not None and estimated_tokens(longer) > limit else longer
