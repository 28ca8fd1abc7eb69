"""The manifest of a run: settings, software, models, cost, and digests of the written files."""

# These functions compute only from their arguments. The runner writes the manifest.

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.models.catalog import HUMAN_MODEL, SYNTHETIC_MODEL, is_synthetic
from folkmoot.models.request import FINISH_LENGTH, FINISH_UNMOVED, FINISH_UNREAD
from folkmoot.provenance import UNATTRIBUTED
from folkmoot.storage.provenance_table import PROVENANCE
from folkmoot.storage.tables import Table

SYNTHETIC_MARK, HUMAN_MARK, MIXED_MARK = "SYNTHETIC", "HUMAN", "MIXED"
NO_FINDINGS = "These are not findings about people."
# The SHA-256 of the manifest without this key and without the amendments, which come later.
SEAL = "seal"
POSSIBLY_PAID = "possibly_paid"
# The number and digest of the amendments since the end of the run (`amendments.py`).
AMENDMENTS_KEY = "amendments"
# Any model in the column `answered_by`, which is this, `HUMAN_MODEL` or `SYNTHETIC_MODEL`.
HOSTED = "model"
SYNTHETIC_PART_NOTE = "What the embedded respondent says is no evidence about people."
SYNTHETIC_NOTE = (
    "The embedded respondent answered: a model of opinion dynamics with planted effects. "
    "It is no evidence about people."
)


@dataclass(slots=True)
class ModelUsage:
    """The calls, tokens and cost of one model in a run."""

    # The gateway, the progress display and the manifest use the same object, so their numbers
    # agree. A sum with unknown parts is a lower bound, and is null in JSON.

    # Calls that were sent to the model.
    calls: int = 0
    # Calls that came from the journal.
    replayed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    # Replies without token counts.
    calls_without_token_count: int = 0
    # Replies of unknown cost.
    calls_without_price: int = 0
    retries: int = 0
    # Attempts that failed with a transient error.
    lost_calls: int = 0
    # Those with a reply that broke off or did not arrive. The vendor may have billed them.
    broken: int = 0
    served_models: set[str] = field(default_factory=set)

    def add_reply(
        self, input_tokens: int | None, output_tokens: int | None, cost_usd: float | None
    ) -> None:
        """Add the tokens and the cost of a reply. Unknown numbers are None."""
        self.input_tokens += input_tokens or 0
        self.output_tokens += output_tokens or 0
        self.calls_without_token_count += input_tokens is None or output_tokens is None
        self.cost_usd += cost_usd or 0.0
        self.calls_without_price += cost_usd is None

    @property
    def answered(self) -> bool:
        """True if the model answered at least once."""
        return bool(self.calls or self.replayed)

    @property
    def cost(self) -> str:
        """The cost as text. The text also gives the number of calls with an unknown cost."""
        unpriced_calls = self.calls_without_price + self.broken
        if unpriced_calls and not self.cost_usd:
            return "cost unknown"
        unknown_part = (
            f" + {format_count(unpriced_calls, 'call')} of unknown cost" if unpriced_calls else ""
        )
        return format_dollars(self.cost_usd) + unknown_part

    def format_line(self) -> str:
        """Return calls, tokens and cost in one line of text."""
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        if self.calls_without_token_count:
            unknown = format_count(self.calls_without_token_count, "call")
            tokens += f" + {unknown} of unknown tokens"
        return f"{format_count(self.calls, 'call')} · {tokens} · {self.cost}"

    def to_json(self) -> dict[str, int | float | None]:
        """Return the values for `log.jsonl`. A sum is None if one of its numbers is unknown."""
        return {
            "calls": self.calls,
            "input_tokens": None if self.calls_without_token_count else self.input_tokens,
            "output_tokens": None if self.calls_without_token_count else self.output_tokens,
            "cost_usd": None if self.calls_without_price else round_cost(self.cost_usd),
        }


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run from which the manifest is made when the run ends."""

    # Times are ISO 8601, durations are in seconds.

    run_id: str
    study: str
    outcome: str
    seed: int
    # Roles that the embedded respondent answered.
    synthetic: Sequence[str]
    started_at: str
    finished_at: str
    wall_seconds: float
    # Number of seats in which a human answered.
    people: int = 0
    models: Mapping[str, ModelUsage] = field(default_factory=dict)
    # Roles of each model.
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    embedding_model: str = ""
    # The model that took every role (`--model`).
    model_override: str | None = None
    # True if the caller's provider answered and no model.
    scripted: bool = False
    # Path of the study file relative to the run folder.
    study_file: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict)
    journal_digest: str = ""
    record_digest: str = ""
    # Manifest of the previous process of this run.
    earlier_manifest: Mapping[str, Any] = field(default_factory=dict)
    # Usage of the calls that repeated a truncated reply with twice the limit.
    cut_retry_usage: ModelUsage = field(default_factory=ModelUsage)
    # Calls submitted in batches.
    batched_calls: int = 0
    # Replies that broke off or did not arrive, as (model, maximum cost in USD). They may have been
    # billed.
    broken: Sequence[tuple[str, float | None]] = ()
    # Calls of killed processes and workers that may have been billed, as (process or worker, calls,
    # maximum cost in USD).
    possibly_paid: Sequence[tuple[str, int, float | None]] = ()
    # True if this process is one of these, because a second Ctrl-C ended it.
    abandoned_calls: bool = False
    # The reason if a finished run has no usable results.
    unusable_reason: str = ""
    planted: Mapping[str, object] = field(default_factory=dict)
    # The source run of a fork and its differences.
    fork: Mapping[str, object] = field(default_factory=dict)


class RunTotals(NamedTuple):
    """The sums of a journal, over all processes of the run.

    Fields with the same name in `RunFacts` are documented there.
    """

    models: Mapping[str, ModelUsage]
    batched_calls: int = 0
    broken: Sequence[tuple[str, float | None]] = ()
    possibly_paid: Sequence[tuple[str, int, float | None]] = ()


def round_cost(usd: float) -> float:
    """Return a cost in USD, rounded to six decimals."""
    # So the order of addition has no effect.
    # A sum of prices per token is often exactly between two roundings. The last bits of the sum
    # depend on the order of the calls, so they are removed first.
    return round(round(usd, 10), 6)


def build_manifest(facts: RunFacts, tables: Mapping[str, Table]) -> dict[str, object]:
    """Return the manifest as JSON data."""
    answers = _answer_columns(tables.get("answers"))
    usages, earlier = facts.models.values(), facts.earlier_manifest
    totals = RunTotals(facts.models, facts.batched_calls, facts.broken, facts.possibly_paid)
    return {
        "run_id": facts.run_id,
        "study": facts.study,
        "outcome": facts.outcome,
        **({"unusable": facts.unusable_reason} if facts.unusable_reason else {}),
        "synthetic": bool(facts.synthetic),
        **_synthetic_section(facts, answers, tables.get(PROVENANCE)),
        **({"fork": dict(facts.fork)} if facts.fork else {}),
        "seed": facts.seed,
        "started_at": facts.started_at,
        "finished_at": facts.finished_at,
        # Durations, retries and failed attempts are not in the journal, so they are added to those
        # of the previous manifest. The other sums are those of the journal, for all processes.
        "wall_seconds": round(facts.wall_seconds + earlier.get("wall_seconds", 0.0), 3),
        "processes": 1 + earlier.get("processes", 0) + _killed_since(facts),
        "retries": sum(usage.retries for usage in usages) + earlier.get("retries", 0),
        "lost_tries": sum(usage.lost_calls for usage in usages) + earlier.get("lost_tries", 0),
        **summarise_totals(totals, facts.roles),
        "embedding_model": facts.embedding_model,
        "override": facts.model_override,
        "scripted": facts.scripted,
        "study_file": facts.study_file,
        "answers": {} if answers is None else parse_step_shares(answers),
        "cut_replies": {
            "calls": facts.cut_retry_usage.calls,
            "cost_usd": facts.cut_retry_usage.to_json()["cost_usd"],
            "kept": count_cut_replies(answers),
        },
        "hashes": dict(facts.hashes),
        "journal_digest": facts.journal_digest,
        "record_digest": facts.record_digest,
        # A run may be resumed after an amendment. Its record must survive the new manifest.
        **({AMENDMENTS_KEY: earlier[AMENDMENTS_KEY]} if AMENDMENTS_KEY in earlier else {}),
        "software": software_versions(),
    }


def summarise_totals(totals: RunTotals, roles: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the entries of a manifest with the calls, tokens and cost of a run.

    `roles`: the roles of each model.
    """
    usages = totals.models.values()
    unpriced = [name for name, usage in totals.models.items() if usage.calls_without_price]
    unpriced_models = list(dict.fromkeys([*unpriced, *(model for model, _ in totals.broken)]))
    # With calls of unknown cost, the sum of the known costs is a lower bound.
    known_usd = math.fsum(usage.cost_usd for usage in usages)
    has_uncounted = any(usage.calls_without_token_count for usage in usages)
    return {
        "calls": sum(usage.calls + usage.replayed for usage in usages),
        **({"handed_in_by_batches": totals.batched_calls} if totals.batched_calls else {}),
        "input_tokens": None if has_uncounted else sum(usage.input_tokens for usage in usages),
        "output_tokens": None if has_uncounted else sum(usage.output_tokens for usage in usages),
        "cost_usd": round_cost(known_usd) if known_usd or not unpriced_models else None,
        "cost_unknown_for": unpriced_models,
        **_summarise_broken(totals.broken),
        **_possibly_paid(totals.possibly_paid),
        "models": [
            _model_entry(name, usage, roles.get(name, ())) for name, usage in totals.models.items()
        ],
    }


def summarise_answers(answers: Table | None) -> dict[str, Any]:
    """Return the entries of a manifest that count answers and cut replies.

    `answers`: the table of answers recorded so far, or None if there is none.
    """
    columns = _answer_columns(answers)
    return {
        "answers": {} if columns is None else parse_step_shares(columns),
        "cut_replies": {"kept": count_cut_replies(columns)},
    }


def _summarise_broken(broken: Sequence[tuple[str, float | None]]) -> dict[str, object]:
    if not broken:
        return {}
    bounds = [usd for _, usd in broken if usd is not None]
    # A single unknown cost makes the maximum unknown.
    max_usd = round(math.fsum(bounds), 6) if len(bounds) == len(broken) else None
    return {"broken_replies": {"count": len(broken), "max_usd": max_usd}}


def _possibly_paid(loans: Sequence[tuple[str, int, float | None]]) -> dict[str, object]:
    # The calls of killed processes, which no sum of the manifest includes.
    if not loans:
        return {}
    prices = [usd for _, _, usd in loans if usd is not None]
    max_usd = round(math.fsum(prices), 6) if len(prices) == len(loans) else None
    killed_counts = {
        borrower_kind: sum(loan_kind == borrower_kind for loan_kind, _, _ in loans)
        for borrower_kind in ("process", "worker")
    }
    totals = {"calls": sum(calls for _, calls, _ in loans), "max_usd": max_usd}
    return {
        POSSIBLY_PAID: {
            **totals,
            "processes": killed_counts["process"],
            "workers": killed_counts["worker"],
        }
    }


def _killed_since(facts: RunFacts) -> int:
    killed_processes = sum(
        borrower_kind == "process" for borrower_kind, _, _ in facts.possibly_paid
    )
    known = int(facts.earlier_manifest.get(POSSIBLY_PAID, {}).get("processes", 0))
    return max(0, killed_processes - facts.abandoned_calls - known)


def describe_possibly_paid(calls: int, max_usd: float | None) -> str:
    """Return a phrase on calls of a killed process that the vendor may have billed.

    - `max_usd`: the maximum cost of the calls in USD, or None if unknown.

    Returns "" if there are no such calls.
    """
    # These are the calls of killed processes. `max_usd`: their highest cost.
    if not calls:
        return ""
    price_text = "at an unknown price" if max_usd is None else f"up to {format_dollars(max_usd)}"
    return (
        f"possibly paid {price_text} (at most {format_count(calls, 'call')} of processes that were "
        "killed or could not save the replies)"
    )


def describe_broken_replies(count: int, max_usd: float | None) -> str:
    """Return a phrase on lost replies that the vendor may have billed.

    - `max_usd`: their maximum cost in USD, or None if unknown.

    Returns "" if there are no such replies.
    """
    if not count:
        return ""
    bound_text = "" if max_usd is None else f", for at most {format_dollars(max_usd)}"
    return f"{format_broken_count(count)} may have been billed{bound_text}"


def format_broken_count(count: int) -> str:
    """Return the number of replies that a vendor wrote, or may have written, and that were lost."""
    ending = "that broke off or did not arrive"
    return format_count(count, f"reply {ending}", f"replies {ending}")


# Finish reasons of the embedded respondent that the note of a run counts, with their explanation.
_FORM_ONLY_FINISHES = {
    FINISH_UNREAD: "by form alone, without reading the material",
    FINISH_UNMOVED: "after texts in which it recognised no argument, so that these texts had no "
    "influence",
}


def describe_cost(manifest: Mapping[str, Any], *, is_short: bool = False) -> str:
    """Return the cost of a run in USD as text, such as "$1.50 plus the unknown cost of m".

    - `is_short`: True for a cell of a table: "$1.50 + unknown".
    """
    cost_usd, unpriced_models = manifest.get("cost_usd"), manifest.get("cost_unknown_for")
    # A manifest may come from an untrusted source.
    if not isinstance(cost_usd, (int, float)):
        return "unknown" if is_short else format_dollars(None)
    if not unpriced_models:
        return format_dollars(cost_usd)
    models = unpriced_models if isinstance(unpriced_models, list) else ["some models"]
    unknown = "+ unknown" if is_short else f"plus the unknown cost of {', '.join(map(str, models))}"
    return f"{format_dollars(cost_usd)} {unknown}"


class ProvenanceLabel(NamedTuple):
    """Who answered in a run. All fields are "" if only models answered."""

    # SYNTHETIC (the embedded respondent answered), HUMAN or MIXED (people and others answered).
    mark: str
    # The mark with its meaning. The study writes it into its files.
    sentence: str
    # Who answered in which role, for the readers of reports and pages.
    note: str


def label_answers(answerers: Collection[tuple[str, str]], *, has_people: bool) -> ProvenanceLabel:
    """Return the label that says who answered in a run.

    - `answerers`: pairs of role and answerer. An answerer is human, synthetic or model.
    - `has_people`: True if a human gave an answer.
    """
    if not has_people and not any(answered_by == SYNTHETIC_MODEL for _, answered_by in answerers):
        return ProvenanceLabel("", "", "")
    roles, hosted_roles = (
        ", ".join(sorted({role for role, answered_by in answerers if answered_by == kind}))
        for kind in (SYNTHETIC_MODEL, HOSTED)
    )
    hosted_note = f"models answered as {hosted_roles}"
    if not has_people:
        is_in_part = any(answered_by != SYNTHETIC_MODEL for _, answered_by in answerers)
        sentence = (
            f"{SYNTHETIC_MARK}{f' in part ({roles})' if is_in_part else ''}: the embedded "
            "respondent answered; no evidence about people"
        )
        note = f"{SYNTHETIC_NOTE} It answered as {roles}; {hosted_note}."
        return ProvenanceLabel(SYNTHETIC_MARK, sentence, note if hosted_roles else SYNTHETIC_NOTE)
    if all(answered_by == HUMAN_MODEL for _, answered_by in answerers):
        return ProvenanceLabel(HUMAN_MARK, HUMAN_MARK, "People answered.")
    parts = ["People answered"]
    parts += [f"the embedded respondent answered as {roles}"] if roles else []
    parts += [hosted_note] if hosted_roles else []
    note = f"{'; '.join(parts)}."
    return ProvenanceLabel(
        MIXED_MARK,
        f"{MIXED_MARK}: people and models answered",
        f"{note} {SYNTHETIC_PART_NOTE}" if roles else note,
    )


def _synthetic_section(
    facts: RunFacts, answers: pl.DataFrame | None, provenance: Table | None
) -> dict[str, object]:
    # The label (such as SYNTHETIC), a note, and the effects built into the respondent. Empty if
    # only models answered.
    if facts.people:
        return _human_section(facts)
    if not facts.synthetic:
        return {}
    note = SYNTHETIC_NOTE
    if hosted_models := _describe_hosted_models(facts):
        note = f"{note} It answered as {', '.join(facts.synthetic)}; {hosted_models}."
    for finish, description in _FORM_ONLY_FINISHES.items():
        if (
            answers is not None
            and (form_answers := answers.filter(pl.col("finish") == finish)).height
        ):
            count_text = format_count(form_answers.height, "answer was", "answers were")
            roles = ", ".join(sorted(set(form_answers["role"])))
            note = f"{note} {count_text} given {description} ({roles})."
    if count := _count_prompts_of_unknown_source(provenance):
        count_text = format_count(count, "prompt holds", "prompts hold")
        note = f"{note} {count_text} text without a recorded source, which it read as one text."
    return {
        "mark": _mark_of(facts),
        "note": note,
        "synthetic_roles": list(facts.synthetic),
        "planted": dict(facts.planted),
    }


def _count_prompts_of_unknown_source(provenance: Table | None) -> int:
    if provenance is None:
        return 0
    unknown = provenance.lazy().filter(kind=UNATTRIBUTED).select(pl.col("address").n_unique())
    return int(unknown.collect().item())


def _human_section(facts: RunFacts) -> dict[str, object]:
    answerers = [f"people in {format_count(facts.people, 'seat')}"]
    if facts.synthetic:
        answerers.append(f"the embedded respondent as {', '.join(facts.synthetic)}")
    if hosted_models := _describe_hosted_models(facts):
        answerers.append(hosted_models)
    section: dict[str, Any] = {
        "mark": _mark_of(facts),
        "note": f"Answers are by {'; '.join(answerers)}.",
    }
    if facts.synthetic:
        planted = {"synthetic_roles": list(facts.synthetic), "planted": dict(facts.planted)}
        section["note"] += f" {SYNTHETIC_PART_NOTE}"
        section |= planted
    return section


def _mark_of(facts: RunFacts) -> str:
    answerers = {(role, SYNTHETIC_MODEL) for role in facts.synthetic}
    answerers |= {(role, HOSTED) for roles in _hosted_roles(facts).values() for role in roles}
    return label_answers(answerers, has_people=bool(facts.people)).mark


def _describe_hosted_models(facts: RunFacts) -> str:
    # The caller's provider also answers for the model that is called "synthetic".
    return "; ".join(
        f"{'the provider of the caller' if is_synthetic(model) else model} as {', '.join(roles)}"
        for model, roles in _hosted_roles(facts).items()
    )


def _hosted_roles(facts: RunFacts) -> dict[str, Sequence[str]]:
    return {
        model: roles
        for model in facts.models
        if model != HUMAN_MODEL
        and (facts.scripted or not is_synthetic(model))
        and (roles := facts.roles.get(model))
    }


def parse_step_shares(answers: pl.DataFrame) -> dict[str, Any]:
    """Return the counts of answers, re-asked questions and missing answers, for the manifest."""
    # Also the shares of parse steps.
    count = answers.height
    if not count or "parse_step" not in answers.columns:
        return {"count": count}
    counts = dict(answers["parse_step"].drop_nulls().value_counts().iter_rows())
    # Ties are sorted by name, so that the manifest has the same bytes in each run.
    parse_steps = {
        key: round(counts[key] / count, 6)
        for key in sorted(counts, key=lambda step: (-counts[step], step))
    }
    reasks = int(answers["reasks"].sum()) if "reasks" in answers.columns else 0
    return {
        "count": count,
        "parse_steps": parse_steps,
        "reasks": reasks,
        "missing": _missing_reasons(answers),
    }


def _answer_columns(answers: Table | None) -> pl.DataFrame | None:
    if answers is None:
        return None
    known_columns = answers.collect_schema().names()
    wanted_columns = (
        *("parse_step", "reasks", "missing", "finish", "role"),
        *("answered_by", "speaker_id"),
    )
    columns = [column for column in wanted_columns if column in known_columns]
    return answers.lazy().select(columns).collect()


def count_cut_replies(answers: pl.DataFrame | None) -> int:
    """Return the number of answers that were cut off at the token limit."""
    if answers is None or "finish" not in answers.columns:
        return 0
    return int(answers["finish"].str.starts_with(FINISH_LENGTH).sum())


def describe_cut_replies(
    finishes: Iterable[str | None], *, repeated: int = 0, max_tokens: int | None = None
) -> str:
    """Return sentences with the number of replies that were cut, for each limit that cut them.

    - `finishes`: the finish reasons of the answers.
    - `repeated`: the number of cut replies that were requested again.
    - `max_tokens`: the token limit of the study file, or None.
    """
    cut = [finish for finish in finishes if finish and finish.startswith(FINISH_LENGTH)]
    # `length:model`: the context window of the model was full. A larger limit changes nothing.
    by_model = sum(finish != FINISH_LENGTH for finish in cut)
    limit = "the token limit" + (f" (max_tokens: {max_tokens})" if max_tokens else "")
    counts = {
        limit: max(len(cut) - by_model, repeated),
        "the context window of the model": by_model,
    }
    return " ".join(
        f"{format_count(count, 'reply was', 'replies were')} cut by {cause}."
        for cause, count in counts.items()
        if count
    )


@cache
def software_versions() -> dict[str, Any]:
    """Return the versions of Folkmoot, of its direct dependencies, of Python and of the system."""
    return {
        "folkmoot": _package_version("folkmoot"),
        "source": _source_hash(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: _package_version(name) for name in direct_dependencies("folkmoot")},
    }


def _source_hash() -> str:
    # Of code and prompts, to distinguish development versions with the same version number.
    root, hasher = str(files("folkmoot")), hashlib.sha256()
    # Not `Path.rglob`, which takes three times as long at the start of each run.
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        place = folder[len(root) :].replace(os.sep, "/")
        for name in sorted(names):
            content = Path(folder, name).read_bytes()
            hasher.update(f"{place}/{name}\0".encode() + content)
    return hasher.hexdigest()[:16]


def direct_dependencies(package: str) -> list[str]:
    """Return the names of the required dependencies of a package, sorted."""
    # Without those of extras.
    try:
        requirements = requires(package) or []
    except PackageNotFoundError:
        return []
    names = (re.match(r"[\w.-]+", text) for text in requirements if "extra ==" not in text)
    return sorted({name[0] for name in names if name})


def seal_manifest(data: Mapping[str, object]) -> dict[str, object]:
    """Return the manifest with a hash added. By this hash, `verify` detects later changes."""
    sealed = {name: value for name, value in data.items() if name not in (SEAL, AMENDMENTS_KEY)}
    # Hash the data as a reader parses it from the file: tuples become lists, keys become texts.
    text = json.dumps(json.loads(json.dumps(sealed)), sort_keys=True)
    return {**data, SEAL: hashlib.sha256(text.encode()).hexdigest()}


def file_hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return a map from file name to SHA-256 for `names`. Missing files are left out."""
    return {name: file_sha256(folder / name) for name in sorted(names) if (folder / name).is_file()}


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _model_entry(name: str, usage: ModelUsage, roles: Sequence[str]) -> dict[str, object]:
    usage_data = usage.to_json()
    return {
        "asked": name,
        "served": sorted(usage.served_models),
        "roles": list(roles),
        "calls": usage.calls + usage.replayed,
        "input_tokens": usage_data["input_tokens"],
        "output_tokens": usage_data["output_tokens"],
        "cached_tokens": None if usage.calls_without_token_count else usage.cached_tokens,
        "calls_without_usage": usage.calls_without_token_count,
        "cost_usd": usage_data["cost_usd"],
    }


def _missing_reasons(answers: pl.DataFrame) -> dict[str, int]:
    if "missing" not in answers.columns:
        return {}
    present = answers["missing"].drop_nulls()
    counts = dict(present.filter(present != "").value_counts().iter_rows())
    return {reason: counts[reason] for reason in sorted(counts)}


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
