"""Run a study and the controls that its study file names.

Studies without controls do not import `kit.controls`, so that their commands start faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from folkmoot.engine.run.dry_run import RunEstimate, estimate_run
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.grid import Axes, RunGrid, Samples, run_grid
from folkmoot.engine.run.runner import load_study_with_options, run_study
from folkmoot.engine.session.run_totals import spent_in
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.settings.controls import ControlSettings
from folkmoot.engine.study.study import Study, compute_findings, find_study_of_run
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import BudgetReachedError, InputError, Problem
from folkmoot.kit.controls.tables import finished_controls
from folkmoot.kit.exposure import ExposureRow
from folkmoot.measures.inference.estimates import format_count
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import CONTROLS, RunFolder


def run_with_controls(
    found: StudyFile, options: RunOptions, stopper: RunStopper | None = None
) -> RunFolder:
    """Run or resume a study and then the controls that its file names, within one budget.

    Raises the errors of `run_study`, and InputError if the study type records no decisions.
    """
    # If the run pauses during its controls, a resume asks the remaining controls.
    require_decisions(found)
    run = run_study(found, options, stopper)
    ask_named_controls(run, found.config.controls, found.config, options, stopper)
    return run


def estimate_with_controls(
    found: StudyFile, model: str | None, embedding_model: str
) -> RunEstimate:
    """Make a dry run of a study and its controls, and return the estimate of both.

    Raises the errors of `estimate_run`, and InputError if the study type records no decisions.
    """
    require_decisions(found)
    total = estimate_run(found, model, embedding_model)
    controls = found.config.controls
    if controls is None or not controls.asks_anything:
        return total
    from folkmoot.kit.controls.pricing import add_controls

    return add_controls(total, found, controls, model, describe_humans(found))


def describe_humans(found: StudyFile) -> list[str]:
    """Return sentences on what the controls cannot ask because humans take part.

    The list is empty if the study lacks controls, or if only models take part.
    """
    controls = found.config.controls
    if found.config.seats is None or controls is None or not controls.asks_anything:
        return []
    return [
        "Humans in seats are not asked control questions, so the controls may cost less than "
        "estimated. No session is run again for a control, because humans cannot answer again."
    ]


def findings_with_controls(study: Study[Any], run: RunFolder) -> list[Finding]:
    """Return the findings of a run and of its controls.

    Raises the errors of `compute_findings`.
    """
    findings = compute_findings(study, run)
    if run.config.get("controls") is None and finished_controls(run) is None:
        return findings
    from folkmoot.kit.controls.findings import control_findings

    return [*findings, *control_findings(run, study)]


def require_decisions(found: StudyFile) -> None:
    """Raise InputError if a study file names controls but its study type records no decisions."""
    if found.config.controls is not None and ExposureRow not in found.study.tables:
        raise InputError(
            Problem(
                f"the study type {found.study.name} records no decisions that could be controlled",
                file=str(found.path),
                key="controls",
                hint="leave the key out, or let the study declare its decisions "
                "with an ExposureTable (docs/tutorials/study_type.md)",
            )
        )


def run_grid_with_controls(
    source: Path,
    options: RunOptions,
    axes: Axes,
    repeats: int | None,
    stopper: RunStopper | None = None,
    samples: Samples = lambda runs, repeats, new: [],
) -> RunGrid:
    """Run or resume a grid and then the controls of its cells, within one budget.

    Raises the errors of `run_grid`.
    """
    # `samples` returns the requests of the preflight.

    # Check before the grid, because it may run for hours.
    first = load_study_with_options(source, options)
    require_decisions(first)
    grid = run_grid(source, options, axes, repeats, stopper, samples)
    limits = first.config
    # A cell that is not finished has no controls yet. A resume of the grid asks them later.
    cells = [run for _, run in grid.finished_cells().values()]
    for run in cells:
        # Read the key from each cell, because a grid may vary it, such as `controls.confounders`.
        settings = run.read_settings(find_study_of_run(run).config).controls
        # The budget of the grid covers its preflight and all cells, so their cost counts as spent.
        others = [folder for folder in grid.journal_folders() if folder != run.path]
        others += [folder / CONTROLS for folder in others]
        ask_named_controls(run, settings, limits, options, stopper, others)
    return grid


def ask_named_controls(
    run: RunFolder,
    settings: ControlSettings | None,
    limits: StudyConfig,
    options: RunOptions,
    stopper: RunStopper | None,
    others: Sequence[Path] = (),
) -> None:
    """Ask the control questions that a study file names, unless they were asked already.

    - `settings`: the controls, or None for no controls.
    - `limits`: the budget of the whole grid.
    - `others`: the folders of other runs, for a grid. Their cost counts against the budget, too.
    """
    if settings is None or not settings.asks_anything or run.unusable_reason:
        return
    if finished_controls(run) is not None:
        return
    # Leave out the controls of this run: when they are resumed, the calls in their journal count
    # towards their budget anyway.
    spent = spent_in([run.path, *others])
    spent.require_known_cost(limits.budget_usd)
    calling: dict[str, Any] = {}
    if limits.budget_usd is not None:
        calling["budget_usd"] = max(0.0, limits.budget_usd - spent.total.usd)
    if limits.budget_calls is not None:
        calling["budget_calls"] = max(0, limits.budget_calls - spent.total.calls)
    # Reset the options that apply to the study alone: its budget object, overrides, seats and
    # workers.
    below = replace(
        options,
        budget=None,
        overrides=(),
        limit=None,
        preflight_requests=(),
        seats=(),
        seat_host=None,
        executor=None,
        fork_executor=None,
    )
    # Leave `confounders` out: the conversations that the controls continue already contain the
    # stated attributes.
    given = settings.model_dump(mode="json", exclude_defaults=True, exclude={"confounders"})
    from folkmoot.kit.controls.asking import run_controls

    try:
        run_controls(run, given, below, stopper, **calling)
    except BudgetReachedError as error:
        # The message names the rest of the budget that the run has left.
        whole = (
            format_count(limits.budget_calls or 0, "call")
            if error.is_of_calls
            else f"{limits.budget_usd:g} USD"
        )
        sharing = "All cells and their controls" if others else "The run and its controls"
        raise error.with_sentence(f"{sharing} share a budget of {whole}.") from error
