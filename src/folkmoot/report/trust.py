"""How far to trust a run: what was asked of whom, at which settings, and what differs from plan.

All of it is read from the run folder; nothing is typed in by anybody.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from folkmoot.measures.diagnostics import of_answers
from folkmoot.records.findings import Grid
from folkmoot.records.run_folder import RunFolder

ANSWER_RUNGS = {
    "exact": "as asked for",
    "normalised": "after case, quotes and punctuation",
    "number": "by its number in the list",
    "named": "only option or number named in the reply",
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


def trust(run: RunFolder) -> Trust:
    """Read the trust section from a run folder."""
    manifest = run.manifest
    return Trust(
        models=_models(manifest, run.config),
        run=_run(run),
        answers=_answers(manifest),
        checks=_checks(run),
        software=_software(manifest),
        hashes=_hashes(run),
        deviations=tuple(deviations(run)),
    )


def deviations(run: RunFolder) -> list[str]:
    """Where the run differs from what was sealed before its first call, in plain words."""
    found = [
        f"The sealed part “{change['name']}” was changed on purpose (--accept-changes)."
        for change in run.plan.get("changes", [])
    ]
    replaced = _superseded(run)
    if replaced:
        found.append(
            f"{replaced} journaled answers were asked for again after a change of the request "
            "(--accept-changes); the old ones are kept in the journal."
        )
    served = {
        f"{m['asked']} was answered by {', '.join(m['served'])}"
        for m in run.manifest.get("models", [])
        if len(m.get("served", [])) > 1
    }
    found += [f"More than one version answered: {text}." for text in sorted(served)]
    outcome = run.manifest.get("outcome", "unfinished")
    if outcome != "done":
        found.append(f"The run is not finished (it is {outcome}): figures cover what there is.")
    return found


def _superseded(run: RunFolder) -> int:
    path = run.path / "journal.sqlite"
    if not path.exists():
        return 0
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return int(db.execute("SELECT count(*) FROM superseded").fetchone()[0])
    except sqlite3.Error:
        return 0
    finally:
        db.close()


def _models(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Grid:
    rows = [
        {
            "model asked": m["asked"],
            "as served": ", ".join(m["served"]) or "not said",
            "calls": m["calls"],
            "tokens in": m["input_tokens"],
            "tokens out": m["output_tokens"],
            "cost (USD)": m["cost_usd"] if m["cost_usd"] is not None else "unknown",
        }
        for m in manifest.get("models", [])
    ]
    return Grid.of(rows)


def _run(run: RunFolder) -> Grid:
    manifest, config = run.manifest, run.config
    cost = manifest.get("cost_usd")
    facts: dict[str, Any] = {
        "run": run.id,
        "study type": run.study,
        "started": manifest.get("started_at", run.plan.get("started_at")),
        "finished": manifest.get("finished_at"),
        "wall time (s)": manifest.get("wall_seconds"),
        "calls": manifest.get("calls"),
        "retries after passing failures": manifest.get("retries"),
        "cost (USD)": "unknown" if cost is None else cost,
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
