"""How far to trust a run: what was asked of whom, at which settings, and what differs from plan.

All of it is read from the run folder; nothing is typed in by anybody.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from folkmoot.engine.study import Study
from folkmoot.measures.diagnostics import of_answers
from folkmoot.records.findings import Grid
from folkmoot.records.run_folder import JOURNAL, RunFolder
from folkmoot.report.deviations import deviations, since

ANSWER_RUNGS = {
    "exact": "as asked for",
    "normalised": "after case, quotes and punctuation",
    "number": "by its number or letter in the list",
    "named": "alone in a phrase such as “I choose …”",
    "constrained": "asked for once more as one of an enumeration",
    "fenced": "JSON taken out of a code block",
    "repaired": "JSON repaired by a library",
    "minimal": "minimal structure in place of an unreadable reply",
    "missing": "no answer (never scored)",
}


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust section: grids of facts, deviations, and a paragraph for a methods section."""

    models: Grid
    run: Grid
    answers: Grid
    checks: Grid
    software: Grid
    hashes: Grid
    deviations: tuple[str, ...]
    since: tuple[str, ...]


def trust(run: RunFolder, study: Study) -> Trust:
    """Read the trust section from a run folder."""
    manifest = run.manifest
    return Trust(
        models=_models(manifest, _dates(run)),
        run=_run(run),
        answers=_answers(manifest),
        checks=_checks(run),
        software=_software(manifest),
        hashes=_hashes(run),
        deviations=tuple(deviations(run, study)),
        since=tuple(since(run, study)),
    )


def _dates(run: RunFolder) -> dict[str, tuple[str, str]]:
    """Model asked → when it was called first and last, by the journal (UTC)."""
    path = run.path / JOURNAL
    if not path.exists():
        return {}
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = db.execute(
            "SELECT model_asked, min(started_at), max(started_at) FROM entries "
            "WHERE kind != 'compute' GROUP BY model_asked"
        ).fetchall()
    except sqlite3.Error:
        return {}
    finally:
        db.close()
    return {str(name): (_moment(first), _moment(last)) for name, first, last in rows}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _models(manifest: Mapping[str, Any], dates: Mapping[str, tuple[str, str]]) -> Grid:
    rows = [
        {
            "model asked": m["asked"],
            "as served": ", ".join(m["served"]) or "not said",
            "first call (UTC)": dates.get(m["asked"], (None, None))[0],
            "last call (UTC)": dates.get(m["asked"], (None, None))[1],
            "calls": m["calls"],
            "tokens in": _known(m["input_tokens"]),
            "tokens out": _known(m["output_tokens"]),
            "cost (USD)": _known(m["cost_usd"]),
        }
        for m in manifest.get("models", [])
    ]
    return Grid.of(rows)


def _known(figure: float | None) -> float | str:
    return "unknown" if figure is None else figure


def _run(run: RunFolder) -> Grid:
    manifest, config = run.manifest, run.config
    unknown = ", ".join(manifest.get("cost_unknown_for") or [])
    facts: dict[str, Any] = {
        "run": run.id,
        "study type": run.study,
        "started": manifest.get("started_at", run.plan.get("started_at")),
        "finished": manifest.get("finished_at"),
        "wall time (s)": manifest.get("wall_seconds"),
        "calls": manifest.get("calls"),
        "retries after passing failures": manifest.get("retries"),
        "tries that failed on the way (the vendor may have billed them)": manifest.get(
            "lost_tries"
        ),
        "cost (USD)": _known(manifest.get("cost_usd")),
        "unknown, and not in this cost": unknown or "nothing",
        "random seed": manifest.get("seed"),
        "temperature": config.get("temperature", "the provider's default"),
        "longest reply (tokens)": config.get("max_tokens", "the provider's default"),
        "embedding model": manifest.get("embedding_model"),
        "prompts of the user's own": config.get("prompts", "none"),
    }
    return Grid(("fact", "value"), tuple((k, _cell(v)) for k, v in facts.items()))


def _answers(manifest: Mapping[str, Any]) -> Grid:
    answers = manifest.get("answers", {})
    rows = [
        {"read": ANSWER_RUNGS.get(rung, rung), "rung": rung, "answer_share": float(share)}
        for rung, share in answers.get("rungs", {}).items()
    ]
    count, reasks = answers.get("count", 0), answers.get("reasks", 0)
    why = "; ".join(f"{n} {reason}" for reason, n in answers.get("missing", {}).items())
    caption = f"{count:,} answers, {reasks:,} asked for again because of their form"
    return Grid.of(rows, caption + (f"; missing: {why}" if why else ""))


def _checks(run: RunFolder) -> Grid:
    """Signs that the model is unfit to answer, as far as the answers of any study show them."""
    if not run.has_table("answers"):
        return Grid((), ())
    found = of_answers(run.table("answers").to_dicts())
    verdict = {True: "flagged", False: "clear", None: "not checked"}
    rows = [{"check": c.title, "verdict": verdict[c.flagged], "says": c.says} for c in found]
    return Grid.of(rows, "Each check looks for one known way in which models answer unlike people.")


def _software(manifest: Mapping[str, Any]) -> Grid:
    software = manifest.get("software", {})
    packages = software.get("packages", {})
    single = {k: v for k, v in software.items() if k != "packages"}
    pairs = {**single, **packages}
    return Grid(("software", "version"), tuple((str(k), str(v)) for k, v in pairs.items()))


def _hashes(run: RunFolder) -> Grid:
    rows: list[tuple[str, str]] = [
        (f"plan: {name}", entry["hash"]) for name, entry in run.plan.get("sealed", {}).items()
    ]
    rows += [(name, str(value)) for name, value in run.manifest.get("hashes", {}).items()]
    if run.manifest.get("journal_digest"):
        rows.append(("journal (requests and replies)", run.manifest["journal_digest"]))
    return Grid(("what", "hash"), tuple(rows))


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
