"""`folkmoot run`: load, run with live progress, then print what was found and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from folkmoot.cli.consent import consent
from folkmoot.cli.console import clean, end_now, err, out, warn
from folkmoot.cli.live import TerminalProgress
from folkmoot.cli.tables import finding_view, synthetic_panel
from folkmoot.engine.event_loop import Stopper
from folkmoot.engine.execution import RunOptions
from folkmoot.engine.progress import duration
from folkmoot.engine.runner import Run, load, run_study
from folkmoot.errors import InputError, NothingUsable, Problem
from folkmoot.measures.estimates import plural
from folkmoot.records.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PLAN,
    STUDY_FILE,
    RunFolder,
)

RECORD = (STUDY_FILE, PLAN, CODEBOOK, MANIFEST, JOURNAL, LOG)

KEY_WARNING = (
    "--key leaves the key in the history of your shell and in the list of processes; the "
    "environment (OPENAI_API_KEY, …) or a file .env is the safer place."
)


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags of `folkmoot run` as they were given."""

    study: Path | None = None
    config: Path | None = None
    model: str | None = None
    out: Path | None = None
    resume: bool = False
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    concurrency: int | None = None
    budget: float | None = None
    seed: int | None = None
    key: str | None = None
    accept_changes: bool = False
    trust: bool = False


def run_command(flags: RunFlags) -> None:
    """Run a study file and print its findings."""
    path = _study_path(flags)
    if flags.key:
        warn(KEY_WARNING)
    progress = TerminalProgress(err())
    options = RunOptions(
        model=flags.model,
        out=flags.out,
        resume=flags.resume,
        overrides=flags.overrides,
        limit=flags.limit,
        concurrency=flags.concurrency,
        budget=flags.budget,
        seed=flags.seed,
        key=flags.key,
        accept_changes=flags.accept_changes,
        progress=progress,
        consent=consent(path, flags.trust),
    )
    found = load(path, options)
    for note in found.study.notes(found.config):
        err().print(f"[cyan]Note:[/] {escape(clean(note))}", soft_wrap=True)
    with progress:
        done = run_study(found, options, Stopper(end_now))
    print_results(done, out())
    if done.unusable:
        raise NothingUsable(f"the run is done, but nothing in it is usable: {done.unusable}")


def print_results(run: Run, console: Console) -> None:
    """Headline findings, the mark of planted data, the cost, and where the files are."""
    if run.folder.synthetic:
        from folkmoot.models.synthetic import planted  # there already, if it answered

        effects = planted(run.folder.config.get("respondent") or {})
        console.print(synthetic_panel(effects, run.folder.synthetic_note))
    for finding in run.findings():
        if finding.headline:
            console.print(finding_view(finding))
    console.print(_summary(run.folder), soft_wrap=True)
    if told := _cut(run.folder):
        console.print(f"[yellow]{escape(told)}[/]", soft_wrap=True)
    console.print("\n".join(_files(run)), soft_wrap=True)


def _study_path(flags: RunFlags) -> Path:
    if flags.study is not None and flags.config is not None and flags.study != flags.config:
        raise InputError(f"two study files are named: {flags.study} and --config {flags.config}")
    path = flags.study or flags.config
    if path is None:
        raise InputError(
            Problem("no study file is named", mend="folkmoot run my_study.yaml; `folkmoot new`")
        )
    return path


def _summary(folder: RunFolder) -> str:
    facts = folder.manifest
    names = ", ".join(m["asked"] for m in facts.get("models", []) if _answered(m, facts))
    unknown = facts.get("cost_unknown_for") or []
    cost = facts.get("cost_usd")
    money = "cost unknown" if cost is None else f"${cost:,.2f}"
    if unknown and cost is not None:
        money += f" and the unknown cost of {', '.join(unknown)}"
    parts = [f"{facts.get('calls', 0):,} calls", names, money]
    parts.append(duration(float(facts.get("wall_seconds", 0.0))))
    return "[dim]" + escape(clean(" · ".join(p for p in parts if p))) + "[/]"


def _cut(folder: RunFolder) -> str:
    """Replies that the token limit cut and what asking for them again took; empty for none."""
    told = folder.manifest.get("cut_replies", {})
    cut, calls, cost = told.get("kept", 0), told.get("calls", 0), told.get("cost_usd")
    if not cut and not calls:
        return ""
    limit = folder.config.get("max_tokens")
    why = "the token limit" + (f" (max_tokens: {limit})" if limit else "")
    says = f"{plural(max(cut, calls), 'reply was', 'replies were')} cut by {why}."
    if calls:
        money = "cost unknown" if cost is None else f"${cost:,.2f}"
        says += f" {plural(calls, 'call')} ({money}) asked once more with twice the limit."
    if not cut:
        return f"{says} None stayed cut."
    return f"{says} {cut:,} stayed cut: `finish` says length in the table answers."


def _answered(model: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a model said something; one that only made embeddings did not."""
    only_embeds = model["asked"] == facts.get("embedding_model") and not model.get("output_tokens")
    return bool(model.get("calls")) and not only_embeds


def _files(run: Run) -> list[str]:
    folder = run.folder
    own = [p.name for p in sorted(folder.path.iterdir()) if p.suffix in (".json", ".jsonl", ".csv")]
    own = [name for name in own if name not in (*RECORD, LOG_LINES)]
    where = escape(str(folder.path))
    rows = {
        "tables/": ", ".join(folder.tables()) + " (.parquet and .csv)",
        "results": ", ".join(own),
        "record": ", ".join(RECORD),
    }
    lines = ["", f"[bold]{where}[/]"]
    lines += [f"  {name:<9}{escape(text)}" for name, text in rows.items() if text]
    lines += ["", f"Read a conversation   folkmoot show {where}"]
    lines += [f"Write the report      folkmoot report {where}"]
    return lines
