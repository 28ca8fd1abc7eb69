"""Estimate the cost of a study file's controls, one line for each control.

The study, or a part of it, runs in a temporary folder, followed by its controls. The
embedded respondent answers. The counted calls and tokens of a part are then scaled to the
size of the whole study.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import (
    DRY_RUN_OVERRIDES,
    SUFFICIENT_SAMPLE_CALLS,
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
from folkmoot.kit.controls.replacing import describe_left_out
from folkmoot.kit.controls.tables import AS_DESIGNED, FACT, NEGATIVE, REPLACING, RETEST, ControlRow
from folkmoot.storage.run_folder import JOURNAL, RunFolder

# Participants or sessions of the small run, unless the study has fewer.
ENOUGH = 12
# A sample size above the number of participants of any study.
EVERYONE = 10**9


def add_controls(total: RunEstimate, found: StudyFile, model: str | None) -> RunEstimate:
    """Return the cost estimate `total` with a line for each control that the study file names.

    A study with few calls runs as a whole, so its controls are counted exactly. Raises InputError
    for a study type that records no decisions.
    """
    settings = found.config.controls
    require_decisions(found)
    if settings is None or not settings.asks_anything:
        return total
    part, share = found, 1.0
    if total.calls > SUFFICIENT_SAMPLE_CALLS:
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
        asks = list(_count_asks(controls, settings, there, share))
        return total.plus(*_sum_up(asks), _bounds(asks, share), _describe_unasked(controls, share))


def _at_most(settings: ControlSettings) -> dict[str, int | bool]:
    names = ("retest", "no_persona", "same_length", "order")
    return {name: EVERYONE if settings.size_of(name) else False for name in names}


class _Asked(NamedTuple):
    """The calls that one control makes at one decision of the small run.

    `weight`: the number of decisions of the study that this decision represents. `tokens`: calls,
    input tokens and output tokens, by model.
    """

    control: str
    group: tuple[str, str]
    weight: float
    tokens: Mapping[str, tuple[int, int, int]]

    @property
    def calls(self) -> int:
        return sum(calls for calls, _, _ in self.tokens.values())


def _count_asks(
    controls: RunFolder,
    settings: ControlSettings,
    there: Mapping[tuple[str, str], int],
    share: float,
) -> Iterator[_Asked]:
    """Yield the calls of each control at each decision.

    `there`: the number of decisions in the small run, by (condition, moment). `share`: the factor
    by which the study is larger than the small run.
    """
    rows = (
        controls.read_table(ControlRow.table)
        # A decision that was not asked has no address. Neither it nor a decision as designed costs
        # a call.
        .filter((pl.col("control") != AS_DESIGNED) & (pl.col("address") != ""))
        .select("control", "condition", "moment", "address")
    )
    with JournalReader(controls.path / JOURNAL) as journal:
        for control, condition, moment, address in rows.iter_rows():
            # The question for the age is asked with the negative controls and has no size of its
            # own.
            size = settings.size_of(NEGATIVE if control == FACT else control)
            small = there[condition, moment]
            # A sample is limited by its size.
            weight = min(size, round(small * share)) / small if share != 1 else 1.0
            # Count re-asks as well, because they are billed. The scope of a control also holds the
            # replies that are asked again before the decision.
            scope = address.rpartition("/")[0]
            tokens: dict[str, tuple[int, int, int]] = {}
            for entry in map(journal.entry_at, journal.addresses_in_scope(scope)):
                if entry is not None:
                    calls, read, written = tokens.get(entry.model_asked, (0, 0, 0))
                    tokens[entry.model_asked] = (
                        calls + 1,
                        read + (entry.input_tokens or 0),
                        written + (entry.output_tokens or 0),
                    )
            yield _Asked(control, (condition, moment), weight, tokens)


def _sum_up(asks: Iterable[_Asked]) -> tuple[list[StageEstimate], dict[str, StageEstimate]]:
    lines: dict[str, list[float]] = {}
    models: dict[str, list[float]] = {}
    for asked in asks:
        for model, counts in asked.tokens.items():
            for sums, key in ((lines, f"controls: {asked.control}"), (models, model)):
                before = sums.setdefault(key, [0.0, 0.0, 0.0])
                sums[key] = [a + asked.weight * b for a, b in zip(before, counts, strict=True)]
    stages = [StageEstimate(name, *map(round, sums)) for name, sums in lines.items()]
    return stages, {name: StageEstimate(name, *map(round, sums)) for name, sums in models.items()}


def _bounds(asks: Iterable[_Asked], share: float) -> tuple[int, int]:
    """Return bounds of the number of calls of the controls.

    If the dry run is not the whole study, the calls of further decisions are only known within
    bounds.
    """
    groups: dict[tuple[str, str, str], list[_Asked]] = {}
    for asked in asks:
        groups.setdefault((asked.control, *asked.group), []).append(asked)
    low = high = 0.0
    for group in groups.values():
        calls = [asked.calls for asked in group]
        # A decision of the small run represents itself and `weight - 1` others.
        others = 0.0 if share == 1 else math.fsum(max(0.0, asked.weight - 1) for asked in group)
        known = math.fsum(min(1.0, asked.weight) * asked.calls for asked in group)
        low += known + others * min(calls)
        high += known + others * max(calls)
    return round(low), round(high)


def _describe_unasked(controls: RunFolder, share: float) -> list[str]:
    rows = controls.read_table(ControlRow.table).select("control", "moment", "missing")
    again = (row for row in rows.iter_rows() if row[0] in (RETEST, *REPLACING))
    return describe_left_out(again, "" if share == 1 else " of the dry run")
