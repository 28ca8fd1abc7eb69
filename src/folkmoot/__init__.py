"""Folkmoot: a laboratory for simulated deliberation.

    import folkmoot
    run = folkmoot.run("study.yaml", model="synthetic")
    run.table("participants")                # a polars data frame
    folkmoot.load("outputs/pilot_001").table("participants")

A study of one's own is an async function over a `Session`; see docs/writing_a_study.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.conversation.answers import Choice, Json, Missing, Number, Text
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript, Utterance
from folkmoot.engine.config import StudyConfig
from folkmoot.engine.runner import Run, RunOptions, from_python, run_study
from folkmoot.engine.runner import load as _load_study
from folkmoot.engine.session import Exchange, Scope, Session
from folkmoot.engine.study import Study, find_study
from folkmoot.models.request import Provider
from folkmoot.models.simple_call import call_llm
from folkmoot.records.findings import Finding, Grid
from folkmoot.records.run_folder import RunFolder

__version__ = "0.1.0"

__all__ = [
    "EMPTY",
    "Choice",
    "Exchange",
    "Finding",
    "Grid",
    "Json",
    "Missing",
    "Number",
    "Run",
    "RunFolder",
    "RunOptions",
    "Scope",
    "Session",
    "Speaker",
    "Study",
    "StudyConfig",
    "Text",
    "Transcript",
    "Utterance",
    "call_llm",
    "load",
    "run",
]


def run(
    study: str | Path | Study,
    settings: Mapping[str, Any] | None = None,
    *,
    model: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    budget: float | None = None,
    provider: Provider | None = None,
    **more: Any,
) -> Run:
    """Run a study to its end and return it.

    `study` is the path of a study file, or a `Study` (or the name of one) with its `settings`.
    `provider` answers every call instead of a model (for tests). Further keywords are fields of
    `RunOptions`. Raises the errors of `folkmoot.errors`; a run that paused goes on with
    `resume=True`.
    """
    options = RunOptions(
        model=model,
        out=None if out is None else Path(out),
        resume=resume,
        seed=seed,
        limit=limit,
        concurrency=concurrency,
        budget=budget,
        provider=provider,
        **more,
    )
    if settings is not None:
        kind = study if isinstance(study, Study) else find_study(str(study))
        return run_study(from_python(kind, settings, options), options)
    if isinstance(study, Study):
        return run_study(from_python(study, {}, options), options)
    return run_study(_load_study(study, options), options)


def load(folder: str | Path) -> RunFolder:
    """The folder of a run that has finished: `.table(name)`, `.json(name)`, `.manifest`."""
    return RunFolder(folder)
