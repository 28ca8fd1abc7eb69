"""What a run will need, found by rehearsing it: the study runs in a throwaway folder, answered by
the embedded respondent, and every prompt that it would send is counted.

So prompts are counted as they are rendered, each for the model that is dealt to its seat, whatever
the study type. A large study is rehearsed in part (`Study.limit`) and scaled up. Used by
`folkmoot check`.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from folkmoot.engine.execution import RunOptions
from folkmoot.engine.outbox import WAVE
from folkmoot.engine.runner import limited, run_study
from folkmoot.engine.study_file import StudyFile
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
    estimated_tokens,
)
from folkmoot.randomness import digest
from folkmoot.storage.manifest import ModelUse

ASSUMED_LATENCY = 2.0  # seconds for one reply of a hosted model
SYNTHETIC_LATENCY = 0.001  # of processor time; it answers in this process


class StageEstimate(NamedTuple):
    """The calls and the tokens of one stage."""

    stage: str
    calls: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Totals of a run. `chain`: the longest chain of calls that wait for each other. `waves`: how
    many calls wait together each time that nobody can go on without an answer, which is when they
    are handed in by batches. `samples`: the first request of each model, role and kind of answer.
    `models`: input and output tokens by model, where it is known which model answers what.
    `repeated`: input tokens that repeat the beginning of an earlier request, which a vendor's cache
    may hold."""

    stages: tuple[StageEstimate, ...]
    chain: int = 1
    waves: tuple[int, ...] = ()
    samples: tuple[Request, ...] = ()
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    repeated: Mapping[str, int] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return sum(s.calls for s in self.stages)

    @property
    def input_tokens(self) -> int:
        return sum(s.input_tokens for s in self.stages)

    @property
    def output_tokens(self) -> int:
        return sum(s.output_tokens for s in self.stages)

    def seconds(
        self, *, concurrency: int, spacing: float = 0.0, latency: float = ASSUMED_LATENCY
    ) -> float:
        """How long it takes (s): its calls at full concurrency, its longest chain, or its calls at
        the minimum spacing, whichever is longest. `latency` and `spacing` are seconds per call."""
        calls = self.calls
        return max(calls / concurrency * latency, self.chain * latency, calls * spacing)


# What people say freely is taken to be at least so long, in words: replies of hosted models to
# prompts like the shipped ones are near it, the embedded respondent is often briefer.
SAID_WORDS = 60
FREE_WORDS = 6  # a reply of fewer words is a vote, a number or a signal, and stays as it is
ENOUGH_CALLS = 1_000  # a rehearsal of so many scales up well
SHORTEST_CACHED = 1024  # tokens of a beginning; OpenAI's and Anthropic's caches hold no shorter one
QUIET_TURNS = 30  # of the loop without a new call: then all wait that can
MOST_STAGES = 8  # lines of a table; stages beyond it that differ in a number are one


class Counting:
    """The embedded respondent as a provider that counts what every model would have been sent.

    Calls are answered in volleys, each when nobody is left who could still ask: their number is the
    longest chain of calls that wait for each other. `volleys` counts the calls of each that are not
    embeddings.
    """

    def __init__(self, settings: ProviderSettings, embedding: str) -> None:
        self.stages: dict[str, ModelUse] = {}
        self.models: dict[str, ModelUse] = {}
        self.volleys: list[int] = []
        self.repeated: Counter[str] = Counter()
        self._begun: set[bytes] = set()  # beginnings of requests so far, message by message
        self.samples: dict[tuple[str, str, str], Request] = {}
        self._asks = 0
        self._embedding = embedding
        self._inner: Provider = open_provider(resolve(LOCAL), settings)
        self._waiting: list[asyncio.Future[None]] = []
        self._driver: asyncio.Task[None] | None = None

    async def complete(self, request: Request, *, address: str) -> Reply:
        self._asks += 1
        kind = (request.model, request.asked.role, request.asked.kind)
        self.samples.setdefault(kind, request)
        await self._turn()
        reply = await self._inner.complete(request, address=address)
        asked = [m.content for m in request.messages]
        text = _at_length(reply.text, "\n".join(asked), request)
        schema = [json.dumps(request.schema)] if request.schema is not None else []
        self._count(
            address, request.model, Usage(estimated_tokens(*asked, *schema), estimated_tokens(text))
        )
        if request.model != HUMAN:
            self.repeated[request.model] += self._again(request)
        return reply._replace(text=text, usage=NOTHING)

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        await self._turn()
        self._count(address, self._embedding, Usage(estimated_tokens(*texts), 0))
        return (await self._inner.embed(LOCAL, texts, address=address))[0], NOTHING

    async def close(self) -> None:
        await self._inner.close()

    def _again(self, request: Request) -> int:
        """Tokens of the longest beginning that an earlier request had; 0 where it is too short for
        any vendor's cache."""
        begun, tokens, again = b"", 0, 0
        for message in request.messages:
            begun = digest(begun, request.model, *message)
            tokens += estimated_tokens(message.content)
            if begun in self._begun:
                again = tokens
            self._begun.add(begun)
        return again if again >= SHORTEST_CACHED else 0

    def _count(self, address: str, model: str, usage: Usage) -> None:
        if model == HUMAN:  # people cost nothing
            return
        stage = address.partition("/")[0] if "/" in address else "run"
        for counts, key in ((self.stages, stage), (self.models, model)):
            use = counts.setdefault(key, ModelUse())
            use.calls += 1
            use.add(usage.input_tokens, usage.output_tokens, None)

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
            self.volleys.append(self._asks)
            self._asks = 0
            now, self._waiting = self._waiting, []
            for each in now:
                if not each.done():
                    each.set_result(None)


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
    if size > 2:
        part, least = limited(whole, 2), _least(whole, size)
        taken = max(least, _size(part))
        calls = sum(t.calls for t in _play(part, model, embedding).stages.values())
        most = max(taken, ENOUGH_CALLS * taken // max(1, calls))
        part = limited(whole, most) if most < size else whole
        share = size / max(least, _size(part)) if most < size else 1.0
    counted = _play(part, model, embedding)
    return Estimate(
        tuple(_stages(counted, share)),
        chain=len(counted.volleys),
        repeated={name: round(n * share) for name, n in counted.repeated.items()},
        samples=tuple(counted.samples.values()),
        waves=tuple(wave for asks in counted.volleys for wave in _waves(round(asks * share))),
        models={
            name: (round(t.input_tokens * share), round(t.output_tokens * share))
            for name, t in counted.models.items()
        },
    )


def _waves(calls: int) -> Iterator[int]:
    for begun in range(0, calls, WAVE):
        yield min(WAVE, calls - begun)


def _play(found: StudyFile, model: str | None, embedding: str) -> Counting:
    config = found.config
    part = found.study.respondent
    settings = ProviderSettings(
        seed=config.random_seed,
        options=config.respondent,
        study=StudyPart(part, config) if part else None,
    )
    counting = Counting(settings, embedding)
    with tempfile.TemporaryDirectory(prefix="folkmoot-rehearsal-") as folder:
        config = found.study.rehearsal(config, Path(folder))
        options = RunOptions(model=model, out=Path(folder) / "run", provider=counting)
        run_study(replace(found, config=config), options)
    return counting


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
    merged: dict[str, ModelUse] = {}
    many = len(counted.stages) > MOST_STAGES
    for name, tokens in counted.stages.items():
        of = merged.setdefault(re.sub(r"\d+", "*", name, count=1) if many else name, ModelUse())
        of.calls += tokens.calls
        of.add(tokens.input_tokens, tokens.output_tokens, None)
    return [
        StageEstimate(
            n, round(t.calls * share), round(t.input_tokens * share), round(t.output_tokens * share)
        )
        for n, t in merged.items()
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
    longer = " ".join([text, *(words * SAID_WORDS)[: SAID_WORDS - len(words)]])
    return text if limit is not None and estimated_tokens(longer) > limit else longer
