"""Estimate the cost of a study file's controls, one line for each control.

A small part of the study and its controls run in a temporary folder with the embedded respondent.
The counted calls and tokens are then scaled to the size of the whole study.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import (
    DRY_RUN_OVERRIDES,
    RunEstimate,
    StageEstimate,
    embedded_provider,
    small_part,
)
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import run_study
from folkmoot.engine.settings.controls import ControlSettings
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.kit.controls.asking import require_decisions, run_controls, study_of
from folkmoot.kit.controls.conversations import find_decisions
from folkmoot.kit.controls.tables import AS_DESIGNED, FACT, NEGATIVE, ControlRow
from folkmoot.storage.run_folder import JOURNAL, RunFolder

# Participants or sessions of the small run, unless the study has fewer.
ENOUGH = 12
# A sample size above the number of participants of any study.
EVERYONE = 10**9


def add_controls(total: RunEstimate, found: StudyFile, model: str | None) -> RunEstimate:
    """Return the cost estimate `total` with a line for each control that the study file names.

    Raises InputError for a study type that records no decisions.
    """
    settings = found.config.controls
    require_decisions(found)
    if settings is None:
        return total
    part, share = small_part(found, ENOUGH)
    # The small run costs nothing and must leave no trace.
    with tempfile.TemporaryDirectory(prefix="folkmoot-controls-") as folder:
        # Keep `controls.confounders`: stated attributes make every prompt of the run longer.
        config = part.config.model_copy(update={**DRY_RUN_OVERRIDES, "seats": None})
        config = part.study.dry_run_config(config, Path(folder))
        small = replace(part, config=config)
        provider = embedded_provider(small)
        options = RunOptions(model=model, custom_provider=provider, out=Path(folder) / "run")
        run = run_study(small, options)
        decisions = find_decisions(run)
        # A small run that is the whole study gets the sample of the study. Decisions differ in
        # price if replies before them have to be asked again, so a mean would not be exact.
        asked = settings
        if share != 1:
            asked = settings.model_copy(update={"participants": EVERYONE, **_at_most(settings)})
        # Leave `confounders` out here. The conversations that the controls continue already contain
        # them.
        given = asked.model_dump(mode="json", exclude_defaults=True, exclude={"confounders"})
        answering = embedded_provider(replace(small, study=study_of(run)))
        controls = run_controls(run, given, replace(options, out=None, custom_provider=answering))
        there = Counter(
            (controlled_decision.condition, controlled_decision.moment)
            for controlled_decision in decisions
        )
        return total.plus(*_scaled(controls, settings, there, share))


def _at_most(settings: ControlSettings) -> dict[str, int | bool]:
    """Return settings for the small run, with each requested control asked of every participant."""
    names = ("retest", "no_persona", "same_length", "order")
    return {name: EVERYONE if settings.size_of(name) else False for name in names}


def _scaled(
    controls: RunFolder,
    settings: ControlSettings,
    there: Mapping[tuple[str, str], int],
    share: float,
) -> tuple[list[StageEstimate], dict[str, StageEstimate]]:
    """Return the calls and tokens of the controls, by control and by model.

    The controls of a small run are counted and scaled up to the whole study. `there` maps
    (condition, moment) to the number of decisions in the small run. A moment is `first` or `final`.
    `share` is the factor by which the study is larger than the small run.
    """
    rows = (
        controls.read_table(ControlRow.table)
        .filter((pl.col("control") != AS_DESIGNED) & (pl.col("address") != ""))
        .select("control", "condition", "moment", "address")
    )
    lines: dict[str, list[float]] = {}
    models: dict[str, list[float]] = {}
    with JournalReader(controls.path / JOURNAL) as journal:
        for control, condition, moment, address in rows.iter_rows():
            size = settings.size_of(NEGATIVE if control == FACT else control)
            small = there[condition, moment]
            # Each decision of the small run represents `weight` decisions of the study, limited by
            # the sample size.
            weight = min(size, round(small * share)) / small if share != 1 else 1.0
            # Count re-asks as well, because they are billed. The scope of a control also holds the
            # replies that are asked again before the decision.
            scope = address.rpartition("/")[0]
            for entry in map(journal.entry_at, journal.addresses_in_scope(scope)):
                if entry is None:
                    continue
                tokens = (entry.input_tokens or 0, entry.output_tokens or 0)
                own = (weight, weight * tokens[0], weight * tokens[1])
                for sums, key in ((lines, f"controls: {control}"), (models, entry.model_asked)):
                    before = sums.setdefault(key, [0.0, 0.0, 0.0])
                    sums[key] = [a + b for a, b in zip(before, own, strict=True)]
    stages = [StageEstimate(name, *map(round, sums)) for name, sums in lines.items()]
    return stages, {name: StageEstimate(name, *map(round, sums)) for name, sums in models.items()}
