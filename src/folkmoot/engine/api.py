"""What `import folkmoot` offers for running and loading: two functions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkmoot.engine import runner
from folkmoot.engine.consent import Consent
from folkmoot.engine.runner import Run, RunOptions, from_python, run_study
from folkmoot.engine.study import Study, find_study
from folkmoot.engine.verify import changed_since
from folkmoot.models.request import Provider
from folkmoot.records.run_folder import RunFolder


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
    trust: bool = False,
    **more: Any,
) -> Run:
    """Run a study to its end and return it.

    `study` is the path of a study file, or a `Study` (or the name of one) with its `settings`.
    `provider` answers every call instead of a model (for tests). `trust`: the study file may run
    the Python code and send data to the addresses that it names. Further keywords are fields of
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
        consent=Consent(trust),
        **more,
    )
    if settings is None and not isinstance(study, Study):
        return run_study(runner.load(study, options), options)
    kind = study if isinstance(study, Study) else find_study(str(study))
    return run_study(from_python(kind, settings or {}, options), options)


def load(folder: str | Path) -> RunFolder:
    """The folder of a run that has finished: `.table(name)`, `.json(name)`, `.manifest`.

    Warns of files that were changed since the run; `folkmoot verify` compares everything.
    """
    run = RunFolder(folder)
    for change in changed_since(run):
        warnings.warn(f"{run.path}: {change}", stacklevel=2)
    return run
