"""The manifest of a run: what was run with what, what it cost, and which bytes came out.

Pure functions of the data they are given; the runner writes what they return.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from folkmoot.models.catalog import is_local

SYNTHETIC_MARK = "SYNTHETIC"
SYNTHETIC_NOTE = (
    "The embedded respondent answered: a model of opinion dynamics with planted effects. "
    "It is no evidence about people."
)


@dataclass(frozen=True, slots=True)
class ModelUse:
    """What one model did in a run. None: unknown, never zero. `uncounted` calls came back without
    the number of their tokens."""

    asked: str
    served: tuple[str, ...] = ()
    calls: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cached_tokens: int | None = 0
    cost_usd: float | None = None
    roles: tuple[str, ...] = ()
    uncounted: int = 0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the runner knows at the end of a run. Times are ISO 8601, durations in seconds.

    `synthetic`: the roles that the embedded respondent answered; `unusable`: why nothing in a run
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
    sessions: int = 1
    models: Sequence[ModelUse] = ()
    embedding_model: str = ""
    override: str | None = None  # the model that took every seat (--model)
    scripted: bool = False  # the caller's own provider answered
    study_file: str = ""  # as seen from the run folder
    hashes: Mapping[str, str] = field(default_factory=dict)
    journal_digest: str = ""
    retries: int = 0
    lost: int = 0  # tries that failed on the way, which the vendor may have billed
    # Calls that asked once more for a cut reply, with twice the limit, and what they cost.
    asked_longer: Mapping[str, Any] = field(default_factory=dict)
    unusable: str = ""
    planted: Mapping[str, Any] = field(default_factory=dict)


def manifest(facts: RunFacts, tables: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """The manifest as JSON data."""
    known = [m.cost_usd for m in facts.models if m.cost_usd is not None]
    unknown = [m.asked for m in facts.models if m.cost_usd is None and m.calls]
    return {
        "run_id": facts.run_id,
        "study": facts.study,
        "outcome": facts.outcome,
        **({"unusable": facts.unusable} if facts.unusable else {}),
        "synthetic": bool(facts.synthetic),
        **_synthetic(facts),
        "seed": facts.seed,
        "started_at": facts.started_at,
        "finished_at": facts.finished_at,
        "wall_seconds": round(facts.wall_seconds, 3),
        "processes": facts.sessions,
        "calls": sum(m.calls for m in facts.models),
        "retries": facts.retries,
        "lost_tries": facts.lost,
        "input_tokens": _total(m.input_tokens for m in facts.models),
        "output_tokens": _total(m.output_tokens for m in facts.models),
        "cost_usd": round(sum(known), 6) if known or not unknown else None,
        "cost_unknown_for": unknown,
        "models": [_model(m) for m in facts.models],
        "embedding_model": facts.embedding_model,
        "override": facts.override,
        "scripted": facts.scripted,
        "study_file": facts.study_file,
        "answers": rung_shares(tables["answers"]) if "answers" in tables else {},
        "cut_replies": {**facts.asked_longer, "kept": cut_replies(tables)},
        "hashes": dict(facts.hashes),
        "journal_digest": facts.journal_digest,
        "software": software(),
    }


def _synthetic(facts: RunFacts) -> dict[str, Any]:
    """The mark of a synthetic run, with the effects that were planted in it."""
    if not facts.synthetic:
        return {}
    real = [m for m in facts.models if m.roles and not is_local(m.asked)]
    note = SYNTHETIC_NOTE
    if real:
        others = "; ".join(f"{m.asked} as {', '.join(m.roles)}" for m in real)
        note = f"{note} It answered as {', '.join(facts.synthetic)}; {others}."
    return {
        "mark": SYNTHETIC_MARK,
        "note": note,
        "synthetic_roles": list(facts.synthetic),
        "planted": dict(facts.planted),
    }


def rung_shares(answers: pl.DataFrame) -> dict[str, Any]:
    """How answers were read: count, share per rung of the ladder, share missing, re-asks."""
    count = answers.height
    if not count or "rung" not in answers.columns:
        return {"count": count}
    counts = dict(answers["rung"].drop_nulls().value_counts().iter_rows())
    rungs = {k: round(counts[k] / count, 6) for k in sorted(counts, key=lambda r: (-counts[r], r))}
    reasks = int(answers["reasks"].sum()) if "reasks" in answers.columns else 0
    return {"count": count, "rungs": rungs, "reasks": reasks, "missing": _reasons(answers)}


def cut_replies(tables: Mapping[str, pl.DataFrame]) -> int:
    """How many answers stand as the token limit cut them."""
    answers = tables.get("answers")
    if answers is None or "finish" not in answers.columns:
        return 0
    return int(answers["finish"].str.starts_with("length").sum())


@lru_cache(maxsize=4)
def software(package: str = "folkmoot") -> dict[str, Any]:
    """Versions of this package, of all that it depends on directly, of Python and the system."""
    return {
        package: _version(package),
        "source": _source(package),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: _version(name) for name in direct_dependencies(package)},
    }


def _source(package: str) -> str:
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


def file_hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Name → SHA-256 of those files of a folder that exist, in order of name."""
    return {name: sha256(folder / name) for name in sorted(names) if (folder / name).is_file()}


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _total(counts: Iterable[int | None]) -> int | None:
    """A sum with an unknown in it is unknown."""
    listed = list(counts)
    known = [n for n in listed if n is not None]
    return sum(known) if len(known) == len(listed) else None


def _model(use: ModelUse) -> dict[str, Any]:
    return {
        "asked": use.asked,
        "served": list(use.served),
        "roles": list(use.roles),
        "calls": use.calls,
        "input_tokens": use.input_tokens,
        "output_tokens": use.output_tokens,
        "cached_tokens": use.cached_tokens,
        "calls_without_usage": use.uncounted,
        "cost_usd": None if use.cost_usd is None else round(use.cost_usd, 6),
    }


def _reasons(answers: pl.DataFrame) -> dict[str, int]:
    if "missing" not in answers.columns:
        return {}
    present = answers["missing"].drop_nulls()
    counts = dict(present.filter(present != "").value_counts().iter_rows())
    return {reason: counts[reason] for reason in sorted(counts)}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
