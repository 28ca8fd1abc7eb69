"""What `import folkmoot` offers for running and loading: three functions."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from folkmoot.engine import runner
from folkmoot.engine.event_loop import Stopper
from folkmoot.engine.runner import Run, RunOptions, from_python, run_study
from folkmoot.engine.study import Study, find_study
from folkmoot.engine.trust import Consent
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
    stopper: Stopper | None = None,
    **more: Any,
) -> Run:
    """Run a study to its end and return it.

    `study` is the path of a study file, or a `Study` (or the name of one) with its `settings`.
    `provider` answers every call instead of a model (for tests). `trust`: the study file may run
    the Python code and send data to the addresses that it names. `stopper`, called from any thread,
    stops the run as Ctrl-C does. Further keywords are fields of
    `RunOptions`. Raises the errors of `folkmoot.errors`; a run that paused goes on with
    `resume=True`.
    """
    if _loop_is_running() and "ipykernel" not in sys.modules:  # a notebook has nothing else to do
        warnings.warn(
            "folkmoot.run blocks the event loop that is running here; write "
            "`await folkmoot.arun(…)` with the same arguments",
            stacklevel=2,
        )
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
        return run_study(runner.load(study, options), options, stopper)
    kind = study if isinstance(study, Study) else find_study(str(study))
    return run_study(from_python(kind, settings or {}, options), options, stopper)


async def arun(
    study: str | Path | Study, settings: Mapping[str, Any] | None = None, **options: Any
) -> Run:
    """`run` for async code: the same arguments, and the caller's event loop goes on.

    When it is cancelled, replies in flight are awaited and kept; `resume=True` goes on.
    """
    stopper = Stopper()
    with ThreadPoolExecutor(1, "folkmoot") as pool:
        call = partial(run, study, settings, stopper=stopper, **options)
        done = asyncio.get_running_loop().run_in_executor(pool, call)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            stopper()
            await asyncio.wait([done])
            with suppress(BaseException):  # what came of it is no longer wanted
                done.result()
            raise


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def load(folder: str | Path) -> RunFolder:
    """The folder of a run that has finished: `.table(name)`, `.json(name)`, `.manifest`.

    Warns of files that were changed since the run; `folkmoot verify` compares everything.
    """
    run = RunFolder(folder)
    for change in changed_since(run):
        warnings.warn(f"{run.path}: {change}", stacklevel=2)
    return run
