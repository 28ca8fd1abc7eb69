"""Estimate the calls and tokens of a run by a dry run."""

# The study runs with the embedded respondent in a temporary folder. Each prompt is rendered and
# counted for the model that would receive it, so the estimate works for every study type. A large
# study is reduced with `Study.with_limit`, and its counts are scaled up. If even the reduced study
# is too large, each `map` runs only a sample of its items.

from __future__ import annotations

import pickle
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.calls.batch_queue import MAX_WAVE_CALLS
from folkmoot.engine.run.counting_provider import (
    NOT_RUN_SUFFIX,
    CountingProvider,
    QuestionLog,
    TokenUse,
)
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import apply_limit, open_dry_run, run_study
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.map_execution import run_locally
from folkmoot.engine.session.run_context import ForkItem, ForkLike, RunContext
from folkmoot.engine.settings.claimed_tables import find_declared
from folkmoot.engine.settings.claims import ClaimReader
from folkmoot.engine.study.study import claims_of, planned_parts, select_study_seats
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import StorageError
from folkmoot.models.catalog import SYNTHETIC_MODEL, ModelSpec, open_provider, resolve_model
from folkmoot.models.prices import estimate_cost
from folkmoot.models.request import (
    ModelRequest,
    Provider,
    ProviderSettings,
    StudyPart,
)
from folkmoot.provenance import Source
from folkmoot.randomness import generator
from folkmoot.storage.rows import columns_of_class
from folkmoot.storage.run_folder import RunFolder

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

# Seconds for one reply of a hosted model.
ASSUMED_LATENCY = 2.0
# Seconds of processor time for one token of a request or a reply of the embedded respondent. It
# reads whole prompts, so long prompts take longer than many calls. Measured with the examples.
SYNTHETIC_SECONDS_PER_TOKEN = 2e-6


class StageEstimate(NamedTuple):
    """The estimated calls and tokens of one stage."""

    stage: str
    calls: int
    input_tokens: int
    output_tokens: int


class TokenRange(NamedTuple):
    """The lower and the upper bound of an expected number of tokens."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The estimated totals of a run."""

    # The totals lie between the replies of the embedded respondent and `ASSUMED_UTTERANCE_WORDS`.
    stages: tuple[StageEstimate, ...]
    # Calls in the longest chain. In a chain each call waits for the call before.
    longest_chain: int = 1
    # Calls in each wave, which is submitted when every task waits for a reply.
    batch_wave_sizes: tuple[int, ...] = ()
    # The first request of each model, role and answer kind.
    sample_requests: tuple[ModelRequest, ...] = ()
    # Input and output tokens by model.
    models: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Input tokens that repeat the beginning of an earlier request, so that a vendor's cache may
    # hold them.
    cacheable_tokens_by_model: Mapping[str, int] = field(default_factory=dict)
    # Calls by model.
    model_calls: Mapping[str, int] = field(default_factory=dict)
    # Bounds of all calls, input and output tokens. Free texts have `MIN_UTTERANCE_WORDS` at the low
    # bound, and at the high bound `MAX_UTTERANCE_WORDS` or, within JSON, `ASSUMED_UTTERANCE_WORDS`.
    calls_range: tuple[int, int] | None = None
    input_range: TokenRange | None = None
    output_range: TokenRange | None = None
    # The number of items of outermost forks that were run, and the number of all items. None if all
    # were run.
    sampled: tuple[int, int] | None = None
    # Even the sample was too large, so the run will make more calls than estimated.
    incomplete: bool = False
    # One entry for each participant who was asked and whom humans can play under `seats`. The entry
    # holds the stages of each question to this participant.
    questions: Mapping[Seat, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    # The parts of the run that a check of humans can exclude. Empty if the study type declares no
    # parts.
    parts: frozenset[str] = frozenset()
    # What the researcher should know about the calls before the run.
    notes: tuple[str, ...] = ()
    # The hypotheses of the study file that the tables of the dry run cannot test.
    untestable: tuple[UntestableHypothesis, ...] = ()

    @property
    def calls(self) -> int:
        return sum(stage.calls for stage in self.stages)

    @property
    def input_tokens(self) -> int:
        return sum(stage.input_tokens for stage in self.stages)

    @property
    def output_tokens(self) -> int:
        return sum(stage.output_tokens for stage in self.stages)

    def model_cost(
        self, name: str, spec: ModelSpec, *, batch: bool = False, bound: int = 0
    ) -> float | None:
        """Return the cost of the calls to the model `name` in USD, or None if it is unknown.

        - `batch`: whether the calls are submitted through the vendor's batch API.
        - `bound`: 0 for the expected cost, 1 for its low bound and 2 for its high bound.
        """
        tokens = (
            round(count * spread[bound])
            for count, spread in zip(self.models[name], self.relative_spread(), strict=True)
        )
        return self._price_calls(name, spec, *tokens, batch=batch)

    def cache_savings(self, name: str, spec: ModelSpec) -> float:
        """Return how much the vendor's cache can save at most for the model `name`, in USD.

        Returns 0 if the price is unknown.
        """
        tokens = self.cacheable_tokens_by_model[name]
        uncached = self._price_calls(name, spec, tokens, 0)
        cached = self._price_calls(name, spec, tokens, 0, tokens)
        return (uncached or 0.0) - (cached or 0.0)

    def _price_calls(
        self, name: str, spec: ModelSpec, *tokens: int, batch: bool = False
    ) -> float | None:
        # Long requests cost more per token, so the price depends on the number of calls.
        return estimate_cost(spec, *tokens, calls=self.model_calls.get(name, 1), batch=batch)

    def relative_spread(self) -> tuple[tuple[float, float, float], ...]:
        """Return 1, low and high as shares of the total, for the input and the output tokens."""
        return tuple(
            (1.0, 1.0, 1.0)
            if bounds is None or not total
            else (1.0, bounds.low / total, bounds.high / total)
            for bounds, total in (
                (self.input_range, self.input_tokens),
                (self.output_range, self.output_tokens),
            )
        )

    def plus(
        self,
        stages: Sequence[StageEstimate],
        models: Mapping[str, StageEstimate],
        calls_range: tuple[int, int],
        notes: Sequence[str] = (),
    ) -> RunEstimate:
        """Return an estimate that also includes the calls and tokens of further stages.

        - `stages`: the further stages. The calls of these stages can all be sent at the same time.
        - `models`: a map from model to the calls and tokens of the further stages.
        - `calls_range`: the lowest and the highest number of calls in the further stages.
        """
        calls = sum(stage.calls for stage in stages)
        tokens_by_model = {**self.models}
        calls_by_model = {**self.model_calls}
        for name, estimate in models.items():
            input_tokens, output_tokens = tokens_by_model.get(name, (0, 0))
            tokens_by_model[name] = (
                input_tokens + estimate.input_tokens,
                output_tokens + estimate.output_tokens,
            )
            calls_by_model[name] = calls_by_model.get(name, 0) + estimate.calls
        # The further stages continue the conversations, so their prompts vary in length as the
        # prompts of the run do.
        ranges = [
            None
            if bounds is None
            else TokenRange(
                bounds.low + round(added_tokens * low_share * calls_range[0] / max(1, calls)),
                bounds.high + round(added_tokens * high_share * calls_range[1] / max(1, calls)),
            )
            for bounds, added_tokens, (_, low_share, high_share) in zip(
                (self.input_range, self.output_range),
                (
                    sum(stage.input_tokens for stage in stages),
                    sum(stage.output_tokens for stage in stages),
                ),
                self.relative_spread(),
                strict=True,
            )
        ]
        low, high = self.calls_range or (self.calls, self.calls)
        return replace(
            self,
            stages=(*self.stages, *stages),
            longest_chain=self.longest_chain + bool(stages),
            batch_wave_sizes=(*self.batch_wave_sizes, *_wave_sizes(calls)),
            models=tokens_by_model,
            model_calls=calls_by_model,
            calls_range=(low + calls_range[0], high + calls_range[1]),
            notes=(*self.notes, *notes),
            input_range=ranges[0],
            output_range=ranges[1],
        )

    def duration_seconds(
        self, *, concurrency: int, spacing: float = 0.0, latency: float = ASSUMED_LATENCY
    ) -> float:
        """Return the estimated duration of the run in seconds.

        - `spacing`: the minimum number of seconds between two calls.
        - `latency`: the seconds that a reply takes.
        """
        # The longest of three durations: all calls at full concurrency, all calls at the minimum
        # spacing, and the longest series of calls that wait for each other.
        calls = self.calls
        return max(calls / concurrency * latency, self.longest_chain * latency, calls * spacing)

    @property
    def processor_seconds(self) -> float:
        """The estimated duration in seconds if the embedded respondent gives all replies."""
        # It computes one reply after the other, whatever the concurrency.
        return (self.input_tokens + self.output_tokens) * SYNTHETIC_SECONDS_PER_TOKEN


# The maximal work of one dry run: about five seconds. It is counted in bytes of prompts and not in
# seconds, so that the estimate is the same on every machine.
MAX_DRY_RUN_BYTES = 6_000_000
# The expected work of a part of a study. The rest is left for parts that need more than expected.
MAX_PART_BYTES = 0.9 * MAX_DRY_RUN_BYTES
# A fork inside an item of an outermost fork runs this number of items. Below twice that number a
# sample would save too little for the accuracy that it costs.
SAMPLED_ITEMS = 5
MIN_ITEMS_TO_SAMPLE = 2 * SAMPLED_ITEMS
# A dry run with this number of calls is precise enough to be scaled up.
SUFFICIENT_SAMPLE_CALLS = 1_000
# If a study has more stages than this, the table merges stages that differ only in a number.
MAX_STAGE_ROWS = 8
# No study is larger than this limit.
MAX_LIMIT_SIZE = 2**24


class Sampler:
    """Runs only a sample of the items of each outermost `Scope.map` call.

    `within`: whether to run only a sample of the items of inner `Scope.map` calls, too.
    """

    # So a dry run of a large study is short. All other items get copies of results, so that the
    # protocol can continue to later stages. Items run one after the other, in a random order, until
    # the requests reach the byte limit of the dry run.
    def __init__(self, counting: CountingProvider, *, within: bool) -> None:
        # Of outermost forks: the number of items that were run, and of all.
        self.items = [0, 0]
        self.copied = False
        # Lower and upper bound of the calls of all items that were not run.
        self.calls_range = [0.0, 0.0]
        self._counting = counting
        self._samples_within = within
        self._within: ContextVar[bool] = ContextVar("within", default=False)

    async def __call__(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        fork_items: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        # A random order, because the first items may all belong to one condition.
        order = generator(0, (*fork.path, "dry run")).permutation(len(fork_items))
        drawn_items = [fork_items[int(index)] for index in order]
        if not self._within.get():
            return await self._one_by_one(run, fork, drawn_items, results, stage)
        if not self._samples_within or len(fork_items) < MIN_ITEMS_TO_SAMPLE:
            return await run_locally(run, fork, fork_items, results, stage)
        weight = self._counting.weight
        token = weight.set(weight.get() * len(drawn_items) / SAMPLED_ITEMS)
        try:
            failures = await run_locally(run, fork, drawn_items[:SAMPLED_ITEMS], results, stage)
        finally:
            weight.reset(token)
        if not failures:
            self._copy_results(run, fork, drawn_items, SAMPLED_ITEMS, results, stage)
        return failures

    async def _one_by_one(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        drawn_items: Sequence[ForkItem[I]],
        results: dict[int, R],
        stage: str,
    ) -> dict[int, BaseException]:
        counting, before = self._counting, self._counting.state()
        bytes_at_start, most_bytes, calls_per_item = counting.bytes, 0, list[float]()
        max_fork_bytes = (
            (counting.max_bytes - bytes_at_start) * 2 / 3
        )  # leave some for the forks that follow
        longest_waves: list[int] = []
        token = self._within.set(True)
        try:
            for fork_item in drawn_items:
                # The first item always runs, because copies need one result.
                if calls_per_item and counting.bytes - bytes_at_start + most_bytes > max_fork_bytes:
                    break
                before_item, bytes_before = counting.state(), counting.bytes
                if failures := await run_locally(run, fork, [fork_item], results, stage):
                    return failures
                calls_per_item.append(counting.state().calls() - before_item.calls())
                most_bytes = max(most_bytes, counting.bytes - bytes_before)
                longest_waves = max(longest_waves, counting.waves[before_item.waves :], key=len)
        finally:
            self._within.reset(token)
        left_count = len(drawn_items) - len(calls_per_item)
        # In a real run the items run side by side, so the fork's chain is that of its longest item.
        counting.waves[before.waves :] = [asks * len(drawn_items) for asks in longest_waves]
        counting.add_unsampled(stage or "run", before, len(calls_per_item), left_count)
        self.items = [self.items[0] + len(calls_per_item), self.items[1] + len(drawn_items)]
        for bound, calls in enumerate(_bounds_of(calls_per_item)):
            self.calls_range[bound] += left_count * calls
        self._copy_results(run, fork, drawn_items, len(calls_per_item), results, stage)
        return {}

    def _copy_results(
        self,
        run: RunContext,
        fork: ForkLike[I, R],
        drawn_items: Sequence[ForkItem[I]],
        run_count: int,
        results: dict[int, R],
        stage: str,
    ) -> None:
        for number, fork_item in enumerate(drawn_items[run_count:]):
            original = drawn_items[number % run_count]
            result = results[original.number]
            results[fork_item.number] = _with_own_sources(
                result, fork.path, original.key, fork_item.key
            )
            run.report_item_done(stage)
            self.copied = True


def _with_own_sources(result: R, path: tuple[str, ...], original_key: str, copy_key: str) -> R:
    # The copy has the ids of the item `copy_key` in place of those of `original_key`. A result
    # without such ids, or one that cannot be copied, is returned unchanged.
    file = BytesIO()
    pickler = _RenamingPickler(file, "/".join((*path, original_key)), "/".join((*path, copy_key)))
    try:
        pickler.dump(result)
    except (pickle.PicklingError, TypeError, AttributeError):  # for example of an open file
        return result
    return pickle.loads(file.getvalue()) if pickler.changed else result


def _make_read_only(values: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(values)


class _RenamingPickler(pickle.Pickler):
    # Replaces the scope path `old` by `new` in the ids of `Utterance` and `Source` objects.
    def __init__(self, file: BytesIO, old: str, new: str) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._old, self._new = old, new
        self._speakers = {old.rpartition("/")[2]: new.rpartition("/")[2]}
        self.changed = False

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, MappingProxyType):  # the headers of a reply, which pickle rejects
            return _make_read_only, (dict(value),)
        if not isinstance(value, (Source, Utterance)) or not value.id.startswith(f"{self._old}/"):
            return NotImplemented
        self.changed = True
        new_id = self._new + value.id.removeprefix(self._old)
        if isinstance(value, Source):
            return Source, value._replace(id=new_id, speaker=self._rename_speaker(value.speaker))[:]
        return Utterance, value._replace(
            id=new_id, speaker_id=self._rename_speaker(value.speaker_id)
        )[:]

    def _rename_speaker(self, speaker: str) -> str:
        return self._speakers.get(speaker, speaker)


def _bounds_of(calls_per_item: Sequence[float]) -> tuple[float, float]:
    if not calls_per_item:
        return 0.0, 0.0
    # A few items say little about how far the others differ.
    widening = 1.0 if len(calls_per_item) >= SAMPLED_ITEMS else 2.0
    return min(calls_per_item) / widening, max(calls_per_item) * widening


# A dry run spends no money, so no budget may stop it, and it must not wait for batches.
DRY_RUN_OVERRIDES: Mapping[str, object] = {"budget_usd": None, "budget_calls": None, "batch": False}


def estimate_run(
    study_file: StudyFile, model: str | None, embedding_model: str = SYNTHETIC_MODEL
) -> RunEstimate:
    """Make a dry run of a study, and return the estimated calls and tokens of a real run.

    `model`: if given, this model answers for every role.

    Raises the errors that the study's code raises.
    """
    config = study_file.config.model_copy(update=DRY_RUN_OVERRIDES)
    whole = replace(study_file, config=config)
    limit_size = _limit_size(whole)
    # The seats of the whole study, because a small part may have none of them.
    kinds = _kinds_of_seats(whole)
    sample_file, share = whole, 1.0
    dry_run = None
    # A part of two shows the calls per participant, and so how large a part is needed.
    if limit_size > 2:
        # A part of the study needs fewer people than the whole study, so it may start where the
        # whole study does not.
        _require_start(whole, model, embedding_model)
        sample_file, smallest_limit = _reduce(whole, 2), _smallest_limit(whole, limit_size)
        sample_size = max(smallest_limit, _limit_size(sample_file))
        dry_run = _dry_run(sample_file, model, embedding_model, kinds)
        calls = round(sum(usage.calls for usage in dry_run.counting.stages.values()))
        # A larger part would exceed the limit of work, or would not be needed.
        largest_factor = min(
            SUFFICIENT_SAMPLE_CALLS / max(1, calls),
            MAX_PART_BYTES / max(1, dry_run.counting.bytes),
        )
        max_size = max(sample_size, int(largest_factor * sample_size))
        if dry_run.cut or max_size == sample_size:
            share = limit_size / sample_size
        else:
            sample_file = _reduce(whole, max_size) if max_size < limit_size else whole
            share = (
                limit_size / max(smallest_limit, _limit_size(sample_file))
                if max_size < limit_size
                else 1.0
            )
            dry_run = None
    dry_run = dry_run or _dry_run(sample_file, model, embedding_model, kinds)
    if dry_run.cut:
        # A sampled dry run is the last try, so it may do six times the work.
        run_sample = partial(_dry_run, sample_file, model, embedding_model, kinds, max_work=6)
        dry_run = run_sample(sampled_forks="all")
        # A protocol may reject copied results inside its items. Then sample outermost forks only.
        if dry_run.cut and not dry_run.outermost_item_count:
            dry_run = run_sample(sampled_forks="outermost")
    return _estimate_of(dry_run, share)


def _estimate_of(dry_run: DryRun, scale: float) -> RunEstimate:
    # `scale` is the size of the study divided by the size of the part.
    counting, sampler = dry_run.counting, dry_run.sampler
    stages = tuple(_summarise_stages(counting, scale))
    calls = sum(stage.calls for stage in stages)
    below, above = sampler.calls_range if sampler is not None else (0, 0)
    estimated = sum(
        usage.calls for name, usage in counting.stages.items() if name.endswith(NOT_RUN_SUFFIX)
    )
    calls_range = (
        calls - round((estimated - below) * scale),
        calls + round((above - estimated) * scale),
    )
    relative_bounds = [bound / max(1, calls) for bound in calls_range]
    tokens = [
        TokenRange(
            round(max(0.0, total - fewer * scale) * relative_bounds[0]),
            round((total + more * scale) * relative_bounds[1]),
        )
        for total, fewer, more in (
            (sum(stage.input_tokens for stage in stages), *counting.spread[:2]),
            (sum(stage.output_tokens for stage in stages), *counting.spread[2:]),
        )
    ]
    return RunEstimate(
        stages,
        longest_chain=len(counting.waves),
        model_calls={name: round(usage.calls * scale) for name, usage in counting.models.items()},
        calls_range=calls_range,
        input_range=tokens[0],
        output_range=tokens[1],
        sampled=(sampler.items[0], sampler.items[1]) if sampler is not None else None,
        incomplete=dry_run.cut,
        cacheable_tokens_by_model={
            name: round(tokens_of_model * scale)
            for name, tokens_of_model in counting.repeated.items()
        },
        sample_requests=tuple(counting.samples.values()),
        batch_wave_sizes=tuple(
            wave for asks in counting.waves for wave in _wave_sizes(round(asks * scale))
        ),
        models={
            name: (round(usage.input_tokens * scale), round(usage.output_tokens * scale))
            for name, usage in counting.models.items()
        },
        questions=counting.question_log.stages,
        parts=dry_run.parts,
        # A part of the study may lack a condition of the whole.
        untestable=tuple(
            hypothesis._replace(is_certain=hypothesis.is_certain and scale == 1 and sampler is None)
            for hypothesis in dry_run.untestable
        ),
    )


def _wave_sizes(calls: int) -> Iterator[int]:
    for first in range(0, calls, MAX_WAVE_CALLS):
        yield min(MAX_WAVE_CALLS, calls - first)


class UntestableHypothesis(NamedTuple):
    """A hypothesis of a study file that a dry run could not test."""

    # Counted from 1.
    number: int
    reason: str
    # True if the run cannot test the hypothesis either.
    is_certain: bool


class DryRun(NamedTuple):
    """The result of a dry run.

    `cut`: True if the dry run stopped at its limit of work.
    """

    counting: CountingProvider
    sampler: Sampler | None = None
    cut: bool = False
    parts: frozenset[str] = frozenset()
    untestable: tuple[UntestableHypothesis, ...] = ()

    @property
    def outermost_item_count(self) -> int:
        """The number of items in all outermost `Scope.map` calls.

        It is 0 if no such call was completed.
        """
        return self.sampler.items[1] if self.sampler is not None else 0


def _require_start(study_file: StudyFile, model: str | None, embedding: str) -> None:
    # Raises the errors that the run would raise before its first call. No call is answered, so the
    # dry run ends at the first one.
    _dry_run(study_file, model, embedding, max_work=0)


def _dry_run(
    study_file: StudyFile,
    model: str | None,
    embedding: str,
    seat_kinds: Collection[tuple[str, str]] = (),
    *,
    sampled_forks: Literal["none", "outermost", "all"] = "none",
    max_work: int = 1,
) -> DryRun:
    # `sampled_forks`: run only some items of these `map` calls. `max_work`: the limit of work in
    # multiples of `MAX_DRY_RUN_BYTES`.
    config = study_file.config
    part = study_file.study.respondent_part
    settings = ProviderSettings(
        seed=config.random_seed,
        options=config.respondent,
        study=StudyPart(part, config) if part else None,
    )
    counting = CountingProvider(settings, embedding, max_work * MAX_DRY_RUN_BYTES)
    counting.repeats_replies = sampled_forks != "none"
    sampler = Sampler(counting, within=sampled_forks == "all") if sampled_forks != "none" else None
    was_cut = False
    with open_dry_run(replace(study_file, config=config)) as (dry_file, out):
        counting.question_log = QuestionLog(_open_seats(dry_file, seat_kinds))
        options = RunOptions(
            model=model, out=out, custom_provider=counting, fork_executor=sampler, is_dry_run=True
        )
        try:
            run_study(dry_file, options)
        except Exception as error:
            # A dry run has a temporary folder, so there is nothing to resume.
            if isinstance(error, StorageError) and "the disk is full" in str(error):
                raise StorageError(
                    f"{out.parent}: the disk is full, so the dry run cannot be made. Free some "
                    "space, or set TMPDIR to a folder with more room, and start again."
                ) from error
            # A protocol may turn DryRunLimitError into another error, and may reject copied
            # results. Neither says anything about the study. Every other error is the study's own.
            has_copies = sampler is not None and sampler.copied
            was_cut = has_copies or counting.bytes > counting.max_bytes
            if not was_cut:
                raise
        run = RunFolder(out)
        parts = planned_parts(study_file.study, run)
        untestable = () if was_cut else tuple(_find_untestable(study_file, run))
    return DryRun(counting, sampler, was_cut, parts, untestable)


def _find_untestable(study_file: StudyFile, run: RunFolder) -> Iterator[UntestableHypothesis]:
    declared = columns_of_class(study_file.study.tables)
    reader = ClaimReader(run)
    # The hypotheses come first.
    claims = claims_of(study_file.study, study_file.config)
    for number, claim in enumerate(claims[: len(study_file.config.hypotheses)], 1):
        table, _ = find_declared(claim, declared)
        # A dry run lacks tables that are made from a finished run.
        if table and not run.has_table(table):
            continue
        rows = reader.read_rows(claim)
        if isinstance(rows, str):
            yield UntestableHypothesis(number, rows, True)
        # A value that the embedded respondent does not give may be known in the run.
        elif isinstance(reason := reader.read_sides(claim), str):
            yield UntestableHypothesis(number, reason, False)


def small_part(study_file: StudyFile, min_limit: int) -> tuple[StudyFile, float]:
    """Return a smaller version of the study, and the ratio of the full size to the smaller size.

    `min_limit`: the smallest number of units to keep.
    """
    size = _limit_size(study_file)
    limit = min(size, max(min_limit, _smallest_limit(study_file, size))) if size > 2 else size
    return (_reduce(study_file, limit), size / limit) if limit < size else (study_file, 1.0)


def _reduce(study_file: StudyFile, limit: int) -> StudyFile:
    # Keep about the same share of humans in seats. Seats that the smaller study lacks are left out.
    part = apply_limit(study_file, limit)
    study, settings = part.study, part.config.seats
    if settings is None:
        return part
    open_seats = [
        [seat for seat in study.seats(config, part.study_folder) if not seat.closed_reason]
        for config in (study_file.config, part.config)
    ]
    # A study type that does not list its participants accepts every name.
    if not open_seats[0]:
        return part
    selected = select_study_seats(study, study_file.config, part.study_folder)
    count = round(len(selected) * len(open_seats[1]) / len(open_seats[0]))
    in_part = sorted(open_seats[1], key=lambda seat: seat not in selected)
    names = tuple(seat.name for seat in in_part[:count])
    choice = {"open": False, "count": None, "role": None, "condition": None, "ids": names}
    seats = settings.model_copy(update=choice) if names else None
    return replace(part, config=part.config.model_copy(update={"seats": seats}))


def _kinds_of_seats(study_file: StudyFile) -> set[tuple[str, str]]:
    # Returns role and condition of each seat.
    seats = select_study_seats(study_file.study, study_file.config, study_file.study_folder)
    return {(seat.role, seat.condition) for seat in seats}


def _open_seats(study_file: StudyFile, kinds: Collection[tuple[str, str]]) -> list[Seat]:
    if not kinds:
        return []
    seats = study_file.study.seats(study_file.config, study_file.study_folder)
    return [
        seat for seat in seats if (seat.role, seat.condition) in kinds and not seat.closed_reason
    ]


def embedded_provider(study_file: StudyFile) -> Provider:
    """Return the study's rule-based provider, which answers in place of a model in a dry run."""
    part = study_file.study.respondent_part
    study = StudyPart(part, study_file.config) if part else None
    seed, options = study_file.config.random_seed, study_file.config.respondent
    settings = ProviderSettings(seed=seed, options=options, study=study)
    return open_provider(resolve_model(SYNTHETIC_MODEL), settings)


def _limit_size(study_file: StudyFile) -> int:
    # Returns the smallest `--limit` that does not reduce the study, or 1 if this is not known.
    study, config = study_file.study, study_file.config
    with_limit = study.with_limit
    # If units come from a file, a study type may set a limit that exceeds their number.
    if with_limit is None or with_limit(config, MAX_LIMIT_SIZE) != config:
        return 1
    whole_size = study.size(config, study_file.study_folder)

    def is_reduced(limit: int) -> bool:
        part = with_limit(config, limit)
        if part == config:
            return False
        # A limit in the settings may exceed the number of units in a file.
        return whole_size is None or study.size(part, study_file.study_folder) != whole_size

    # No study type tells its size in units of the limit, so double the limit until it reduces
    # nothing, then bisect.
    high = 1
    while is_reduced(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_reduced(middle) else (low, middle)
    return high


def _smallest_limit(study_file: StudyFile, size: int) -> int:
    # The size is a number of participants or sessions.
    # If it holds one participant of each condition, all lower limits give the same part.
    smallest_config = apply_limit(study_file, 1).config
    larger_limits = (
        limit
        for limit in range(2, size)
        if apply_limit(study_file, limit).config != smallest_config
    )
    return next(larger_limits, size) // 2


def _summarise_stages(counting: CountingProvider, scale: float) -> list[StageEstimate]:
    # If there are many stages, names that differ only in a number share a row.
    merged: dict[str, TokenUse] = {}
    merge_numbered = len(counting.stages) > MAX_STAGE_ROWS
    for name, usage in counting.stages.items():
        stage_usage = merged.setdefault(
            re.sub(r"\d+", "*", name, count=1) if merge_numbered else name, TokenUse()
        )
        stage_usage.add_call(usage.calls, usage.input_tokens, usage.output_tokens)
    return [
        StageEstimate(
            name,
            round(use.calls * scale),
            round(use.input_tokens * scale),
            round(use.output_tokens * scale),
        )
        for name, use in merged.items()
    ]
