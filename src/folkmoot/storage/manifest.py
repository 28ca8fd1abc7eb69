"""The manifest of a run: what was run with what, what it cost, and which bytes came out.

Pure functions of the data they are given; the runner writes what they return.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from folkmoot.measures.inference.estimates import format_count, format_dollars
from folkmoot.models.catalog import HUMAN_MODEL, is_synthetic
from folkmoot.models.request import FINISH_UNMOVED, FINISH_UNREAD
from folkmoot.provenance import UNATTRIBUTED
from folkmoot.storage.provenance_table import PROVENANCE

SYNTHETIC_MARK, HUMAN_MARK, MIXED_MARK = "SYNTHETIC", "HUMAN", "MIXED"
NO_FINDINGS = "These are not findings about people."
SEAL = "seal"  # SHA-256 of the manifest without this key and without AMENDED
POSSIBLY_PAID = "possibly_paid"
AMENDMENTS_KEY = "amendments"  # count and digest of what people changed since (amendments.py)
SYNTHETIC_NOTE = (
    "The embedded respondent answered: a model of opinion dynamics with planted effects. "
    "It is no evidence about people."
)


@dataclass(slots=True)
class ModelUsage:
    """What a model was asked and what it cost; the one account, for gateway, progress and manifest.

    `calls` went to the model, `replayed` came from the journal. `calls_without_token_count` replies
    came without the number of their tokens, `calls_without_price` ones have an unknown cost: sums
    over them are lower bounds, and unknown as JSON. `lost_calls` attempts failed on the way: the
    vendor may have billed them. `broken` counts those of them in which a reply had begun.
    """

    calls: int = 0
    replayed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    calls_without_token_count: int = 0
    calls_without_price: int = 0
    retries: int = 0
    lost_calls: int = 0
    broken: int = 0
    served_models: set[str] = field(default_factory=set)

    def add_reply(
        self, input_tokens: int | None, output_tokens: int | None, cost_usd: float | None
    ) -> None:
        """Add the tokens and the cost of a reply; None is unknown and never counts as zero."""
        self.input_tokens += input_tokens or 0
        self.output_tokens += output_tokens or 0
        self.calls_without_token_count += input_tokens is None or output_tokens is None
        self.cost_usd += cost_usd or 0.0
        self.calls_without_price += cost_usd is None

    @property
    def answered(self) -> bool:
        """Whether the model ever answered."""
        return bool(self.calls or self.replayed)

    @property
    def cost(self) -> str:
        """The money in words, with what is unknown."""
        unknown = self.calls_without_price + self.broken
        if unknown and not self.cost_usd:
            return "cost unknown"
        told = f" + {format_count(unknown, 'call')} of unknown cost" if unknown else ""
        return format_dollars(self.cost_usd) + told

    def format_line(self) -> str:
        """The use in one line of plain text."""
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        if self.calls_without_token_count:
            tokens += f" + {self.calls_without_token_count:,} calls of unknown tokens"
        return f"{self.calls:,} calls · {tokens} · {self.cost}"

    def to_json(self) -> dict[str, int | float | None]:
        """For `log.jsonl`; what is unknown of a call makes the sum null."""
        return {
            "calls": self.calls,
            "input_tokens": None if self.calls_without_token_count else self.input_tokens,
            "output_tokens": None if self.calls_without_token_count else self.output_tokens,
            "cost_usd": None if self.calls_without_price else round(self.cost_usd, 6),
        }


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the runner knows at the end of a run. Times are ISO 8601, durations in seconds.

    `synthetic`: the roles that the embedded respondent answered; `people`: the seats in which
    somebody gave an answer; `unusable_reason`: why nothing in a run
    that is done is of use.
    """

    run_id: str
    study: str
    outcome: str
    seed: int
    synthetic: Sequence[str]
    started_at: str
    finished_at: str
    wall_seconds: float
    people: int = 0
    models: Mapping[str, ModelUsage] = field(default_factory=dict)
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of each model
    embedding_model: str = ""
    model_override: str | None = None  # the model that took every seat (--model)
    scripted: bool = False  # the caller's own provider answered
    study_file: str = ""  # as seen from the run folder
    hashes: Mapping[str, str] = field(default_factory=dict)
    journal_digest: str = ""
    record_digest: str = ""
    earlier_manifest: Mapping[str, Any] = field(
        default_factory=dict
    )  # the manifest of the process before
    # Calls that asked once more for a cut reply, with twice the limit.
    cut_retry_usage: ModelUsage = field(default_factory=ModelUsage)
    batched_calls: int = 0  # calls handed in by batches
    # Replies that broke off and may have been billed: model, most that each may have cost (USD).
    broken: Sequence[tuple[str, float | None]] = ()
    # What killed processes and workers may have paid: who, calls, their cost at most (USD).
    possibly_paid: Sequence[tuple[str, int, float | None]] = ()
    unusable_reason: str = ""
    planted: Mapping[str, object] = field(default_factory=dict)
    fork: Mapping[str, object] = field(default_factory=dict)  # of which run, and how it differs


def build_manifest(facts: RunFacts, tables: Mapping[str, pl.LazyFrame]) -> dict[str, object]:
    """The manifest as JSON data."""
    answers = _answer_columns(tables.get("answers"))
    uses, earlier = facts.models.values(), facts.earlier_manifest
    unpriced = [name for name, use in facts.models.items() if use.calls_without_price]
    unknown = list(dict.fromkeys([*unpriced, *(model for model, _ in facts.broken)]))
    known = [use.cost_usd for use in uses if not use.calls_without_price]
    uncounted = any(use.calls_without_token_count for use in uses)
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
        "wall_seconds": round(facts.wall_seconds + earlier.get("wall_seconds", 0.0), 3),
        "processes": 1 + earlier.get("processes", 0) + _killed_since(facts),
        "calls": sum(use.calls + use.replayed for use in uses),
        **({"handed_in_by_batches": facts.batched_calls} if facts.batched_calls else {}),
        "retries": sum(use.retries for use in uses) + earlier.get("retries", 0),
        "lost_tries": sum(use.lost_calls for use in uses) + earlier.get("lost_tries", 0),
        "input_tokens": None if uncounted else sum(use.input_tokens for use in uses),
        "output_tokens": None if uncounted else sum(use.output_tokens for use in uses),
        "cost_usd": round(sum(known), 6) if known or not unknown else None,
        "cost_unknown_for": unknown,
        **_summarise_broken(facts.broken),
        **_possibly_paid(facts.possibly_paid),
        "models": [
            _model_entry(name, use, facts.roles.get(name, ())) for name, use in facts.models.items()
        ],
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
        **({AMENDMENTS_KEY: earlier[AMENDMENTS_KEY]} if AMENDMENTS_KEY in earlier else {}),
        "software": software_versions(),
    }


def _summarise_broken(broken: Sequence[tuple[str, float | None]]) -> dict[str, object]:
    """How many replies broke off after they had begun, and the most that they may have cost."""
    if not broken:
        return {}
    bounds = [usd for _, usd in broken if usd is not None]
    most = round(sum(bounds), 6) if len(bounds) == len(broken) else None
    return {"broken_replies": {"count": len(broken), "max_usd": most}}


def _possibly_paid(loans: Sequence[tuple[str, int, float | None]]) -> dict[str, object]:
    """What killed processes and workers had out: it is in no other sum."""
    if not loans:
        return {}
    prices = [usd for _, _, usd in loans if usd is not None]
    most = round(sum(prices), 6) if len(prices) == len(loans) else None
    killed = {who: sum(of == who for of, _, _ in loans) for who in ("process", "worker")}
    told = {"calls": sum(calls for _, calls, _ in loans), "max_usd": most}
    return {POSSIBLY_PAID: {**told, "processes": killed["process"], "workers": killed["worker"]}}


def _killed_since(facts: RunFacts) -> int:
    """Processes that were killed with calls out since the manifest before."""
    now = sum(who == "process" for who, _, _ in facts.possibly_paid)
    return max(0, now - int(facts.earlier_manifest.get(POSSIBLY_PAID, {}).get("processes", 0)))


def describe_possibly_paid(calls: int, max_usd: float | None) -> str:
    """What was possibly paid, in words; empty for nothing."""
    if not calls:
        return ""
    most = "at an unknown price" if max_usd is None else f"up to {format_dollars(max_usd)}"
    return f"possibly paid {most} ({format_count(calls, 'call')} of a process that was killed)"


# What the note of a run counts of the embedded respondent's answers.
_FORM_ONLY_FINISHES = {
    FINISH_UNREAD: "by form alone, without reading the material",
    FINISH_UNMOVED: "after texts in which it knows no argument, so that nothing in them moved "
    "anybody",
}


def describe_mark(who: Collection[tuple[str, str]], *, has_people: bool) -> str:
    """The mark on files that people or the embedded respondent had a part in; else empty.

    `who`: roles and who answered as them (human, synthetic, model). `has_people`: a person gave an
    answer.
    """
    if has_people:
        others = any(by != HUMAN_MODEL for _, by in who)
        return f"{MIXED_MARK}: people and models answered" if others else HUMAN_MARK
    roles = sorted({role for role, by in who if by == "synthetic"})
    if not roles:
        return ""
    part = f" in part ({', '.join(roles)})" if any(by != "synthetic" for _, by in who) else ""
    return f"SYNTHETIC{part}: the embedded respondent answered; no evidence about people"


def _synthetic_section(
    facts: RunFacts, answers: pl.DataFrame | None, provenance: pl.LazyFrame | None
) -> dict[str, object]:
    """The mark of a run in which people or the embedded respondent answered; the effects that were
    planted in it."""
    if facts.people:
        return _human_section(facts)
    if not facts.synthetic:
        return {}
    note = SYNTHETIC_NOTE
    if real := _describe_hosted_models(facts):
        note = f"{note} It answered as {', '.join(facts.synthetic)}; {real}."
    for finish, how in _FORM_ONLY_FINISHES.items():
        if answers is not None and (some := answers.filter(pl.col("finish") == finish)).height:
            given = format_count(some.height, "answer was", "answers were")
            roles = ", ".join(sorted(set(some["role"])))
            note = f"{note} {given} given {how} ({roles})."
    if count := _count_prompts_of_unknown_source(provenance):
        held = format_count(count, "prompt holds", "prompts hold")
        note = f"{note} {held} text without a recorded source, which it read as one text."
    return {
        "mark": SYNTHETIC_MARK,
        "note": note,
        "synthetic_roles": list(facts.synthetic),
        "planted": dict(facts.planted),
    }


def _count_prompts_of_unknown_source(provenance: pl.LazyFrame | None) -> int:
    if provenance is None:
        return 0
    unknown = provenance.filter(kind=UNATTRIBUTED).select(pl.col("address").n_unique())
    return int(unknown.collect().item())


def _human_section(facts: RunFacts) -> dict[str, object]:
    """The mark of a run in which people answered, alone or beside models."""
    told = [f"people in {format_count(facts.people, 'seat')}"]
    if facts.synthetic:
        told.append(f"the embedded respondent as {', '.join(facts.synthetic)}")
    if real := _describe_hosted_models(facts):
        told.append(real)
    marked: dict[str, Any] = {
        "mark": HUMAN_MARK if len(told) == 1 else MIXED_MARK,
        "note": f"Answers are by {'; '.join(told)}.",
    }
    if facts.synthetic:
        planted = {"synthetic_roles": list(facts.synthetic), "planted": dict(facts.planted)}
        marked["note"] += " What the embedded respondent says is no evidence about people."
        marked |= planted
    return marked


def _describe_hosted_models(facts: RunFacts) -> str:
    """Which hosted models answered as whom; empty for none."""
    roles = {
        model: r for model in facts.models if model != HUMAN_MODEL and (r := facts.roles.get(model))
    }
    return "; ".join(
        f"{m} as {', '.join(role)}" for m, role in roles.items() if not is_synthetic(m)
    )


def parse_step_shares(answers: pl.DataFrame) -> dict[str, Any]:
    """How answers were read: count, share per parse step, share missing, re-asks."""
    count = answers.height
    if not count or "parse_step" not in answers.columns:
        return {"count": count}
    counts = dict(answers["parse_step"].drop_nulls().value_counts().iter_rows())
    parse_steps = {
        key: round(counts[key] / count, 6) for key in sorted(counts, key=lambda r: (-counts[r], r))
    }
    reasks = int(answers["reasks"].sum()) if "reasks" in answers.columns else 0
    return {
        "count": count,
        "parse_steps": parse_steps,
        "reasks": reasks,
        "missing": _missing_reasons(answers),
    }


def _answer_columns(answers: pl.LazyFrame | None) -> pl.DataFrame | None:
    """The columns of the answers that the manifest needs."""
    if answers is None:
        return None
    known = answers.collect_schema().names()
    wanted = (
        *("parse_step", "reasks", "missing", "finish", "role"),
        *("answered_by", "speaker_id"),
    )
    return answers.select(column for column in wanted if column in known).collect()


def count_cut_replies(answers: pl.DataFrame | None) -> int:
    """How many answers were kept as the token limit cut them."""
    if answers is None or "finish" not in answers.columns:
        return 0
    return int(answers["finish"].str.starts_with("length").sum())


@lru_cache(maxsize=4)
def software_versions(package: str = "folkmoot") -> dict[str, Any]:
    """Versions of this package, of all that it depends on directly, of Python and the system."""
    return {
        package: _package_version(package),
        "source": _source_hash(package),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: _package_version(name) for name in direct_dependencies(package)},
    }


def _source_hash(package: str) -> str:
    """A hash of the package's own code and prompts: two versions of one number are told apart."""
    try:
        root = Path(str(files(package)))
    except ModuleNotFoundError:
        return "unknown"
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            whole.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def direct_dependencies(package: str) -> list[str]:
    """Names of the packages that `package` needs, extras aside, in order of name."""
    try:
        listed = requires(package) or []
    except PackageNotFoundError:
        return []
    names = (re.match(r"[\w.-]+", text) for text in listed if "extra ==" not in text)
    return sorted({name[0] for name in names if name})


def seal_manifest(data: Mapping[str, object]) -> dict[str, object]:
    """The manifest with its seal, by which `verify` sees that it is as it was written."""
    sealed = {name: value for name, value in data.items() if name not in (SEAL, AMENDMENTS_KEY)}
    # What is hashed is what a reader of the file gets.
    text = json.dumps(json.loads(json.dumps(sealed)), sort_keys=True)
    return {**data, SEAL: hashlib.sha256(text.encode()).hexdigest()}


def file_hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name → SHA-256 of those files of a folder that exist, in order of name."""
    return {name: file_sha256(folder / name) for name in sorted(names) if (folder / name).is_file()}


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _model_entry(name: str, use: ModelUsage, roles: Sequence[str]) -> dict[str, object]:
    known = use.to_json()
    return {
        "asked": name,
        "served": sorted(use.served_models),
        "roles": list(roles),
        "calls": use.calls + use.replayed,
        "input_tokens": known["input_tokens"],
        "output_tokens": known["output_tokens"],
        "cached_tokens": None if use.calls_without_token_count else use.cached_tokens,
        "calls_without_usage": use.calls_without_token_count,
        "cost_usd": known["cost_usd"],
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
