"""The trust section of a report: models, settings, answers, and deviations from the plan.

All facts come from the run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from folkmoot.conversation.parse_steps import PARSE_STEPS
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.run_totals import describe_later_spending
from folkmoot.engine.study.study import Study
from folkmoot.errors import StorageError
from folkmoot.measures.inference.estimates import format_percent
from folkmoot.report.document.deviations import both_versions, changes_since_run, list_deviations
from folkmoot.report.preregistration import describe_setting, registration_of_run
from folkmoot.storage.findings import ResultTable
from folkmoot.storage.run_folder import JOURNAL, RunFolder


@dataclass(frozen=True, slots=True)
class Trust:
    """Facts of a run, and deviations from the plan."""

    models: ResultTable
    run: ResultTable
    answers: ResultTable
    software: ResultTable
    hashes: ResultTable
    # What the plan sealed before the first call, as sentences.
    registered: tuple[str, ...]
    claims: ResultTable
    deviations: tuple[str, ...]
    # The registered and the actual version of each deviation in full.
    versions: ResultTable
    # The changes after the run.
    since: tuple[str, ...]


def build_trust_section(run: RunFolder, study: Study) -> Trust:
    """Return the trust section of a run's report."""
    manifest = run.manifest
    registered, claims = registration_of_run(run)
    return Trust(
        models=_models_table(manifest, call_times(run)),
        run=_run_facts_table(run),
        answers=_answers_table(manifest),
        software=_software_table(manifest),
        hashes=_hashes_table(run),
        registered=registered,
        claims=claims,
        deviations=tuple(list_deviations(run, study)),
        versions=both_versions(run, study),
        since=tuple(changes_since_run(run, study)),
    )


def call_times(run: RunFolder) -> dict[str, tuple[str, str]]:
    """Return when each model was called first and last, in UTC."""
    try:
        with JournalReader(run.path / JOURNAL) as journal:
            called = journal.call_times_by_model()
    # An unreadable journal is no reason to fail: the list of deviations reports it.
    except StorageError:
        return {}
    return {
        name: (_format_moment(first), _format_moment(last))
        for name, (first, last) in called.items()
    }


def _format_moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _models_table(manifest: Mapping[str, Any], dates: Mapping[str, tuple[str, str]]) -> ResultTable:
    rows = [
        {
            "model requested": model["asked"],
            "model served": ", ".join(model["served"]) or "not reported",
            "first call (UTC)": dates.get(model["asked"], (None, None))[0],
            "last call (UTC)": dates.get(model["asked"], (None, None))[1],
            "calls": model["calls"],
            "input tokens": _value_or_unknown(model["input_tokens"]),
            **_cached_share(model),
            "output tokens": _value_or_unknown(model["output_tokens"]),
            "cost (USD)": _value_or_unknown(model["cost_usd"]),
        }
        for model in manifest.get("models", [])
    ]
    return ResultTable.from_records(rows)


def _cached_share(model: Mapping[str, Any]) -> dict[str, str]:
    cached, asked = model.get("cached_tokens"), model.get("input_tokens")
    return {"cached share of input": format_percent(cached / asked)} if cached and asked else {}


def _value_or_unknown(figure: float | None) -> float | str:
    return "unknown" if figure is None else figure


def _run_facts_table(run: RunFolder) -> ResultTable:
    manifest, config = run.manifest, run.config
    unknown = ", ".join(manifest.get("cost_unknown_for") or [])
    handed_in = manifest.get("handed_in_by_batches")
    facts: dict[str, object] = {
        "run": run.id,
        "study type": run.study,
        "started": manifest.get("started_at", run.plan.get("started_at")),
        "finished": manifest.get("finished_at"),
        "wall time (s)": manifest.get("wall_seconds"),
        "calls": manifest.get("calls"),
        **({"submitted through the batch API (half price)": handed_in} if handed_in else {}),
        "retries after transient errors": manifest.get("retries"),
        "attempts that failed with a transient error": manifest.get("lost_tries"),
        **_broken_reply_facts(manifest.get("broken_replies")),
        **_possibly_paid(manifest.get("possibly_paid")),
        "cost (USD)": _value_or_unknown(manifest.get("cost_usd")),
        "models with calls of unknown cost, not included": unknown or "none",
        **_later_spending(run),
        "random seed": manifest.get("seed"),
        "temperature": describe_setting(config, "temperature"),
        "reply limit (tokens)": describe_setting(config, "max_tokens"),
        "embedding model": manifest.get("embedding_model"),
        "custom prompts": config.get("prompts", "none"),
    }
    return ResultTable(
        ("fact", "value"), tuple((key, _display_cell(fact)) for key, fact in facts.items())
    )


def _later_spending(run: RunFolder) -> dict[str, object]:
    spending = later_spending(run)
    return {"calls and cost after the protocol": spending} if spending else {}


def later_spending(run: RunFolder) -> str:
    """Return sentences on what controls and codings have cost, or "" if there are none."""
    try:
        return describe_later_spending(run.path)
    # An unreadable journal is no reason to fail: the list of deviations reports it.
    except StorageError:
        return ""


def _broken_reply_facts(broken: Mapping[str, Any] | None) -> dict[str, object]:
    if not broken:
        return {}
    label = "interrupted replies and replies that did not arrive (the vendor may have billed them)"
    return {
        label: broken["count"],
        "maximum cost of these replies (USD), not in the cost": _value_or_unknown(
            broken["max_usd"]
        ),
    }


def _possibly_paid(possibly_paid: Mapping[str, Any] | None) -> dict[str, object]:
    # A killed process had recorded these calls in advance, or a repair removed their entries. The
    # vendor may have billed them, so the cost of the run does not include them.
    if not possibly_paid:
        return {}
    calls = "calls without a saved reply that may have been sent (possibly paid, not in the cost)"
    return {
        calls: possibly_paid["calls"],
        "maximum cost of these calls (USD)": _value_or_unknown(possibly_paid["max_usd"]),
    }


def _answers_table(manifest: Mapping[str, Any]) -> ResultTable:
    answers = manifest.get("answers", {})
    rows = [
        {
            "how_it_was_parsed": PARSE_STEPS[parse_step].meaning
            if parse_step in PARSE_STEPS
            else parse_step,
            "parse_step": parse_step,
            "answer_share": float(share),
        }
        for parse_step, share in answers.get("parse_steps", {}).items()
    ]
    count, reasks = answers.get("count", 0), answers.get("reasks", 0)
    why = "; ".join(f"{name} {reason}" for reason, name in answers.get("missing", {}).items())
    caption = f"{count:,} answers; {reasks:,} re-asks because a reply could not be parsed"
    return ResultTable.from_records(
        rows, caption + (f"; without a valid value: {why}" if why else "")
    )


def _software_table(manifest: Mapping[str, Any]) -> ResultTable:
    software = manifest.get("software", {})
    packages = software.get("packages", {})
    single = {key: value for key, value in software.items() if key != "packages"}
    pairs = {**single, **packages}
    return ResultTable(
        ("software", "version"), tuple((str(key), str(pair)) for key, pair in pairs.items())
    )


def _hashes_table(run: RunFolder) -> ResultTable:
    rows: list[tuple[str, str]] = [
        (f"plan: {name}", entry["hash"]) for name, entry in run.plan.get("sealed", {}).items()
    ]
    rows += [(name, str(value)) for name, value in run.manifest.get("hashes", {}).items()]
    if run.manifest.get("journal_digest"):
        rows.append(("content digest: requests and replies only", run.manifest["journal_digest"]))
    if run.manifest.get("record_digest"):
        rows.append(
            ("record digest: the whole record (cite this digest)", run.manifest["record_digest"])
        )
    return ResultTable(("what", "hash"), tuple(rows))


def _display_cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
