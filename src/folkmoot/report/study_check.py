"""Check a study file before a run: the questions, the cost and mistakes.

No model is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from folkmoot.engine.calls.model_routing import image_problems, price_problems
from folkmoot.engine.calls.progress import format_duration
from folkmoot.engine.run.counting_provider import (
    ASSUMED_UTTERANCE_WORDS,
    MAX_UTTERANCE_WORDS,
    MIN_UTTERANCE_WORDS,
)
from folkmoot.engine.run.dry_run import (
    ASSUMED_LATENCY,
    RunEstimate,
    TokenRange,
)
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.question_count import find_check_problems
from folkmoot.engine.run.runner import create_router
from folkmoot.engine.run.study_language import describe_language
from folkmoot.engine.session.folder_access import is_held
from folkmoot.engine.session.run_totals import money_in
from folkmoot.engine.settings.author_errors import find_author_error
from folkmoot.engine.study.consent import (
    Consent,
    describe_destinations,
    describe_model_loading,
    model_files,
)
from folkmoot.engine.study.study_file import StudyFile, locate_problem
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.kit.named_controls import estimate_with_controls
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    format_count,
    format_dollars,
    format_percent,
)
from folkmoot.models.api_keys import find_key
from folkmoot.models.catalog import LOCAL_MODEL, SYNTHETIC_MODEL, ModelSpec, resolve_model
from folkmoot.models.prices import supports_batches
from folkmoot.models.wire.batches import PROMISED_HOURS
from folkmoot.storage.run_folder import OUTPUTS

# What the stated range of tokens and of the cost holds for.
COST_ASSUMPTIONS = (
    f"free texts of {MIN_UTTERANCE_WORDS} to {MAX_UTTERANCE_WORDS} words, within JSON to "
    f"{ASSUMED_UTTERANCE_WORDS}; conversations as long as the embedded respondent's. Not included: "
)
NOT_ESTIMATED = (
    "reasoning tokens, which thinking models add to each reply, and questions that are asked again "
    "after an unusable reply"
)


@dataclass(frozen=True, slots=True)
class CheckNotices:
    """The facts about a study that a researcher should know before the dry run."""

    models_note: str
    # Actions of the study file that need consent, as parts of sentences.
    cautions: tuple[str, ...]
    # A sentence on the language of the study, or empty.
    language: str
    # Environment variables of API keys that are not set.
    missing_keys: tuple[str, ...]
    models: tuple[ModelSpec, ...]
    embedding_models: tuple[ModelSpec, ...]


class CheckFact(NamedTuple):
    """One line of an estimate, for example the cost."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class StudyCheck:
    """The result of checking a valid study file."""

    file: str
    title: str
    notices: CheckNotices
    # Mistakes that do not stop a run, each with its place in the file.
    warnings: tuple[Problem, ...]
    notes: tuple[str, ...]
    estimate: RunEstimate
    # The expected number of calls, tokens and so on, as text.
    facts: tuple[CheckFact, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the check as data for JSON."""
        # Warnings have the form of `problems_to_json`.
        return {
            "file": self.file,
            "title": self.title,
            "problems": [],
            "warnings": problems_to_json(self.warnings),
            "notes": list(self.notes),
            "models_note": self.notices.models_note,
            "cautions": list(self.notices.cautions),
            "language": self.notices.language,
            "missing_keys": list(self.notices.missing_keys),
            "stages": [stage._asdict() for stage in self.estimate.stages],
            "facts": {fact.name: fact.text for fact in self.facts},
        }


def problems_to_json(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Return problems as data: message, file, place in the file, key and hint."""
    return [asdict(problem) for problem in problems]


def read_notices(
    study_file: StudyFile, options: RunOptions, consent: Consent | None
) -> CheckNotices:
    """Return the facts about a study that are known before the dry run.

    `consent`: the user's consent to the actions of the study file, or None if none is required.
    Raises InputError with every problem of models, keys, prices and consent.
    """
    path, model, overrides = study_file.path, options.model, options.overrides
    providers = create_router(study_file, options)
    cautions = describe_destinations(study_file.config, providers, overrides)
    typed_values = (*overrides, f"model={model}")
    cautions += map(describe_model_loading, model_files(providers, typed_values))
    providers.require_encryption()
    names = list(dict.fromkeys(providers.list_models()))
    specs = [resolve_model(name, study_file.config.endpoints) for name in names]
    images = study_file.study.image_locations(study_file.config)
    if problems := image_problems(study_file.config, names, images, str(path)):
        raise InputError(problems)
    for spec in specs:
        if spec.provider == LOCAL_MODEL:
            # Opening a local provider raises InputError if its software is not installed.
            providers.open_provider(spec.name)
    if problems := price_problems(study_file.config, names):
        raise InputError(problems)
    embedding_names = (
        [providers.embedding_model(str(path))] if study_file.study.uses_embeddings else []
    )
    embedding_specs = [resolve_model(name, study_file.config.endpoints) for name in embedding_names]
    # Consent is checked after all problems that cost nothing to find.
    if consent is not None:
        consent.require_network_access(path, study_file.config, providers, overrides)
        consent.require_model_files(path, providers, typed_values)
    without_key = [
        " or ".join(spec.key_env)
        for spec in (*specs, *embedding_specs)
        if spec.key_needed and not find_key(spec)
    ]
    return CheckNotices(
        study_file.models_note,
        tuple(cautions),
        describe_language(study_file, providers),
        tuple(dict.fromkeys(without_key)),
        tuple(specs),
        tuple(embedding_specs),
    )


def check_study_file(
    study_file: StudyFile, options: RunOptions, notices: CheckNotices
) -> StudyCheck:
    """Return the check of a study file, with a cost estimate from a dry run.

    Raises InputError with problems that only a dry run finds.
    """
    embedding = notices.embedding_models[0].name if notices.embedding_models else SYNTHETIC_MODEL
    estimate = run_dry_run(study_file, options.model, embedding)
    problems, warnings = find_check_problems(study_file, estimate)
    if problems:
        raise InputError(problems)
    return StudyCheck(
        str(study_file.path),
        study_file.study.title,
        notices,
        (
            *warnings,
            *_hypothesis_problems(study_file, estimate, certain=False),
            *_few_units_warnings(study_file),
        ),
        study_file.list_notes(),
        estimate,
        tuple(_list_facts(study_file, estimate, notices)),
    )


def run_dry_run(
    study_file: StudyFile, model: str | None, embedding: str = SYNTHETIC_MODEL
) -> RunEstimate:
    """Return the cost estimate of a dry run.

    Raises InputError if the dry run fails. An exception of a user's study code is raised unchanged.
    """
    # The real run would fail in the same way, after calls that cost money.
    try:
        estimate = estimate_with_controls(study_file, model, embedding)
        if problems := _hypothesis_problems(study_file, estimate, certain=True):
            raise InputError(problems)
        return estimate
    except (InputError, StorageError):
        raise
    except Exception as error:
        # The command line reports such an error with the file and line of the study code.
        if find_author_error(error) is not None:
            raise
        raise InputError(
            Problem(
                f"the dry run failed ({type(error).__name__}: {error}); the run would fail too, "
                "after calls that cost money",
                file=str(study_file.path),
                hint="no model was asked; `folkmoot run --no-preflight` skips the dry run",
            )
        ) from error


def _hypothesis_problems(
    study_file: StudyFile, estimate: RunEstimate, *, certain: bool
) -> list[Problem]:
    cannot = "the run cannot test it" if certain else "the dry run could not test it"
    return [
        locate_problem(
            study_file,
            Problem(f"{cannot}: {hypothesis.reason}", key=f"hypotheses[{hypothesis.number}]"),
        )
        for hypothesis in estimate.untestable
        if hypothesis.is_certain == certain
    ]


def _few_units_warnings(study_file: StudyFile) -> list[Problem]:
    # A run may still illustrate a hypothesis that it cannot test.
    size = study_file.study.size(study_file.config, study_file.study_folder)
    if not study_file.config.hypotheses or size is None or size.units >= FEWEST_UNITS:
        return []
    units = format_count(size.units, size.unit_name)
    message = f"no hypothesis is tested with {units}, because a test needs {FEWEST_UNITS}"
    hint = f"raise {size.setting[0]}" if size.setting[0] else ""
    return [locate_problem(study_file, Problem(message, key="hypotheses", hint=hint))]


def _list_facts(
    study_file: StudyFile, estimate: RunEstimate, notices: CheckNotices
) -> Iterator[CheckFact]:
    config, specs = study_file.config, notices.models
    is_local = all(spec.local for spec in specs)
    seconds = (
        estimate.processor_seconds
        if is_local
        else estimate.duration_seconds(
            concurrency=config.concurrency, spacing=config.api_sleep_seconds
        )
    )
    yield CheckFact("Model", ", ".join(spec.name for spec in specs))
    for spec in notices.embedding_models:
        yield CheckFact("Embedding", spec.name)
    if estimate.stages:
        yield CheckFact("Calls", _describe_calls(estimate))
        for note in estimate.notes:
            yield CheckFact("Controls", note)
        if estimate.input_range and estimate.output_range:
            token_ranges = (
                _describe_token_range(estimate.input_tokens, estimate.input_range, "in"),
                _describe_token_range(estimate.output_tokens, estimate.output_range, "out"),
            )
            yield CheckFact("Tokens", ", ".join(token_ranges))
        cost_suffix = " if asked directly" if config.batch else ""
        yield CheckFact("Cost", f"{_describe_run_cost(estimate, specs, study_file)}{cost_suffix}")
        if not is_local:
            images = "images, " if study_file.study.image_locations(config) else ""
            yield CheckFact("Assumes", f"{COST_ASSUMPTIONS}{images}{NOT_ESTIMATED}")
        if savings := _describe_cache_savings(estimate, study_file):
            yield CheckFact("Cache", savings)
        if any(map(supports_batches, specs)):
            yield CheckFact("Batches", _describe_batches(estimate, specs, study_file))
        if any(spec.provider == LOCAL_MODEL for spec in specs):
            yield CheckFact("Time", "unknown: this machine's processor computes every reply")
        elif not config.batch or not _batch_wave_sizes(estimate, study_file):
            pace = _describe_pace(study_file, is_local)
            yield CheckFact("Time", f"about {format_duration(seconds)}{pace}")
    else:
        yield CheckFact("Calls", "unknown (the dry run with the embedded respondent made no calls)")
    folder = OUTPUTS / study_file.run_id
    yield CheckFact("Folder", str(folder))
    # `run` and `verify` report problems of the journal in this folder.
    with suppress(StorageError):
        if not is_held(folder) and (spent := money_in(folder)):
            yield CheckFact("So far", spent)


def _describe_calls(estimate: RunEstimate) -> str:
    low, high = estimate.calls_range or (estimate.calls, estimate.calls)
    text = f"about {estimate.calls:,}"
    if high > low:
        text += f" ({low:,} to {high:,})"
    if estimate.sampled is not None and estimate.sampled[1]:
        run_count, item_count = estimate.sampled
        text += f", estimated from {run_count:,} of {item_count:,} items, the maximum of a dry run"
    if estimate.incomplete:
        text += "; the dry run did not reach the end of the study, so there may be more"
    return text


def _describe_token_range(middle: int, tokens: TokenRange, direction: str) -> str:
    if tokens.low == tokens.high:
        return f"about {middle:,} {direction}"
    return f"about {middle:,} {direction} ({tokens.low:,} to {tokens.high:,})"


def _describe_cache_savings(estimate: RunEstimate, study_file: StudyFile) -> str:
    repeated_tokens = sum(estimate.cacheable_tokens_by_model.values())
    saved_usd = _cache_savings(estimate, study_file)
    if not repeated_tokens or not saved_usd or not estimate.input_tokens:
        return ""
    share = repeated_tokens / estimate.input_tokens
    return (
        f"saves up to {format_dollars(saved_usd)}: {format_percent(share)} of the input tokens "
        "repeat the beginning of an earlier prompt and cost less while the vendor caches it"
    )


def _cache_savings(estimate: RunEstimate, study_file: StudyFile) -> float:
    # Returns the most that the vendors' caches can save, in USD.
    return math.fsum(
        estimate.cache_savings(name, resolve_model(name, study_file.config.endpoints))
        for name in estimate.cacheable_tokens_by_model
    )


def _describe_batches(
    estimate: RunEstimate, specs: Sequence[ModelSpec], study_file: StudyFile
) -> str:
    # A wave consists of calls that do not depend on each other.
    config, wave_sizes = study_file.config, _batch_wave_sizes(estimate, study_file)
    cost = _describe_run_cost(estimate, specs, study_file, batch=True)
    deadline_text = (
        f"each completed within {PROMISED_HOURS} h, all within "
        f"{format_count(len(wave_sizes), 'day')}; re-asks need further waves"
    )
    if config.batch != "auto":
        return (
            f"{cost} (--batch): {format_count(len(wave_sizes), 'wave')} of calls, {deadline_text}"
        )
    condition_text = f"of at least {config.batch_at_least:,} calls (batch: auto)"
    if not wave_sizes:
        return f"none: no wave {condition_text}"
    return (
        f"{sum(wave_sizes):,} of {sum(estimate.batch_wave_sizes):,} calls, in "
        f"{format_count(len(wave_sizes), 'wave')} {condition_text}, {deadline_text}; {cost} if "
        "all calls were submitted so"
    )


def _batch_wave_sizes(estimate: RunEstimate, study_file: StudyFile) -> list[int]:
    # A wave consists of calls that do not depend on each other.
    min_calls = study_file.config.batch_at_least if study_file.config.batch == "auto" else 1
    return [calls for calls in estimate.batch_wave_sizes if calls >= min_calls]


def _describe_run_cost(
    estimate: RunEstimate, specs: Sequence[ModelSpec], study_file: StudyFile, *, batch: bool = False
) -> str:
    costs: dict[str, float | None] = {}
    low = high = 0.0
    embedding_models = {
        name
        for name in estimate.models
        if resolve_model(name, study_file.config.endpoints) not in specs
    }
    for name in estimate.models:
        spec = resolve_model(name, study_file.config.endpoints)
        # Embeddings are not sent through batch APIs, so they have no batch price.
        is_batched = batch and name not in embedding_models
        costs[spec.name] = estimate.model_cost(name, spec, batch=is_batched)
        low += estimate.model_cost(name, spec, batch=is_batched, bound=1) or 0.0
        high += estimate.model_cost(name, spec, batch=is_batched, bound=2) or 0.0
    known_costs = {name: cost for name, cost in costs.items() if cost is not None}
    unpriced_models = [name for name in costs if name not in known_costs]
    unknown_text = (
        f"; the price of {', '.join(unpriced_models)} is unknown" if unpriced_models else ""
    )
    # An estimate without any price would read like a free run.
    if not known_costs:
        return "unknown (no price is known)"
    # Neither would one in which only local embeddings, which are free, have a price.
    if unpriced_models and not any(known_costs.values()):
        return f"unknown ({unknown_text.removeprefix('; ')})"
    parts = ", ".join(
        f"{name} {format_dollars(cost)}" for name, cost in known_costs.items() if cost
    )
    parts_text = f" ({parts})" if parts.count("$") > 1 else ""
    total_cost = math.fsum(known_costs.values())
    # The saving is that of prompts of the expected length, so it shrinks with the cost.
    if not batch and total_cost:
        low -= _cache_savings(estimate, study_file) * low / total_cost
    range_text = (
        f" ({format_dollars(low)} to {format_dollars(high)}, depending on the length of replies)"
        if high
        else ""
    )
    return f"about {format_dollars(total_cost)}{parts_text}{range_text}{unknown_text}"


def _describe_pace(study_file: StudyFile, is_local: bool) -> str:
    if is_local:
        return " of processor time"
    spacing = study_file.config.api_sleep_seconds
    if spacing:
        return f" (calls at least {spacing:g} s apart: api_sleep_seconds)"
    return f" (at {ASSUMED_LATENCY:g} s a reply, {study_file.config.concurrency} at once)"
