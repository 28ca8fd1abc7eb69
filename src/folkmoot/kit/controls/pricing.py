"""Estimate the cost of a study file's controls."""
# The study, or a part of it, runs in a temporary folder, followed by its controls. The embedded
# respondent answers. The counted calls and tokens of a part are then scaled to the size of the
# whole study.

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from folkmoot.kit.controls.asking import run_controls, study_of
from folkmoot.kit.controls.conversations import find_decisions
from folkmoot.kit.controls.replacing import NOT_REACHED, describe_left_out, read_treatments
from folkmoot.kit.controls.respondent import decision_scope
from folkmoot.kit.controls.session_forks import SessionParts, read_sessions
from folkmoot.kit.controls.tables import (
    ANSWER_KEYS,
    AS_DESIGNED,
    FACT,
    NEGATIVE,
    REPLACING,
    RETEST,
    ControlRow,
    count_decisions,
)
from folkmoot.storage.run_folder import JOURNAL, RunFolder

# Participants or sessions of the small run, unless the study has fewer.
ENOUGH = 12
# A sample size above the number of participants of any study.
EVERYONE = 10**9


def add_controls(
    total: RunEstimate,
    found: StudyFile,
    settings: ControlSettings,
    model: str | None,
    notes: Sequence[str],
) -> RunEstimate:
    """Return the cost estimate `total` with a line for each control of the study file.

    `notes`: sentences on these controls, for the notes of the estimate.
    """
    # The calls of a small study are counted exactly, and those of a large study are estimated.
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
        decisions = find_decisions(run, found.study.decision_design.apart)
        # A small run that is the whole study gets the sample of the study. Decisions differ in
        # price if replies before them have to be asked again, so a mean would not be exact.
        asked = settings
        if share != 1:
            asked = settings.model_copy(update={"participants": EVERYONE, **_at_most(settings)})
        # Leave `confounders` out here. The conversations that the controls continue already contain
        # them.
        given = asked.model_dump(mode="json", exclude_defaults=True, exclude={"confounders"})
        answering = embedded_provider(replace(small, study=study_of(run)))
        # Sessions with humans are not run again, so the dry run must not price that.
        has_seats = found.config.seats is not None
        asking = replace(options, out=None, custom_provider=answering)
        controls = run_controls(run, given, asking, with_humans=has_seats)
        there = Counter(
            (decision.condition, decision.moment, decision.role) for decision in decisions
        )
        sessions = read_sessions(run, read_treatments(run))
        asks = list(_count_asks(controls, settings, there, sessions, share))
        notes = [*notes, *_describe_unasked(controls, share)]
        return total.plus(*_sum_up(asks), _bounds(asks, share), notes)


def _at_most(settings: ControlSettings) -> dict[str, int | bool]:
    names = ("retest", "no_persona", "same_length", "order")
    return {name: EVERYONE if settings.size_of(name) else False for name in names}


# The condition, the moment and the role of the speaker.
_Group = tuple[str, str, str]


class _Asked(NamedTuple):
    # The calls that one control makes at one decision, or in one session, of the small run.
    control: str
    group: _Group
    # The number of decisions (sessions) of the study that this one represents. `bounds`: a
    # range for this number.
    weight: float
    # Calls, input tokens and output tokens, by model.
    tokens: Mapping[str, tuple[int, int, int]]
    bounds: tuple[float, float]

    @property
    def calls(self) -> int:
        return sum(calls for calls, _, _ in self.tokens.values())


def _count_asks(
    controls: RunFolder,
    settings: ControlSettings,
    there: Mapping[_Group, int],
    sessions: Mapping[str, SessionParts],
    share: float,
) -> Iterator[_Asked]:
    # `there` is the number of decisions in the small run, by group. `share` is the
    # factor by which the study is larger than the small run.
    rows = (
        controls.read_table(ControlRow.table)
        # A decision as designed costs no call, and a decision that was not asked costs none either.
        # The session of a decision that was not reached was still run.
        .filter(pl.col("control") != AS_DESIGNED)
        .filter((pl.col("address") != "") | (pl.col("missing") == NOT_REACHED))
        # A form has a row for each of its closed fields.
        .unique(ANSWER_KEYS, maintain_order=True)
        .select("control", "condition", "moment", "role", "unit", "address")
    )
    # Decisions by control and session, of sessions that were run again.
    in_sessions: dict[tuple[str, str], Counter[_Group]] = {}
    with JournalReader(controls.path / JOURNAL) as journal:
        for control, *group, unit, address in rows.iter_rows():
            condition, moment, role = group
            if not address or address.startswith(f"{decision_scope(control)}/"):
                in_sessions.setdefault((control, unit), Counter())[condition, moment, role] += 1
                continue
            # The question for the age is asked with the negative controls and has no size of its
            # own.
            size = settings.size_of(NEGATIVE if control == FACT else control)
            small = there[condition, moment, role]
            # A sample is limited by its size.
            weight = min(size, round(small * share)) / small if share != 1 else 1.0
            # Count re-asks as well, because they are billed. The scope of a control also holds the
            # replies that are asked again before the decision.
            tokens = _tokens_in(journal, [address.rpartition("/")[0]])
            yield _Asked(control, (condition, moment, role), weight, tokens, (weight, weight))
        for (control, unit), decided in in_sessions.items():
            scopes = sessions[unit].scopes
            tokens = _tokens_in(journal, [f"{decision_scope(control)}/{scope}" for scope in scopes])
            weights = (share, share)
            if share != 1:
                # Assume that sessions with decisions in the same conditions use as many tokens.
                units = sum(
                    1
                    for (name, _), other in in_sessions.items()
                    if name == control and other.keys() == decided.keys()
                )
                weights = _session_weights(settings.size_of(control), decided, there, share, units)
            yield _Asked(control, ("", "", ""), math.fsum(weights) / 2, tokens, weights)


def _session_weights(
    size: int,
    decided: Mapping[_Group, int],
    there: Mapping[_Group, int],
    share: float,
    units: int,
) -> tuple[float, float]:
    # (lowest, highest) number of sessions that one session of the small run represents. `size`: the
    # participants of each condition whom a control asks. `decided` and `there`: the decisions in
    # the session and in the small run, by group. `share`: the size of the study relative to the
    # small run. `units`: the sessions of the small run.
    whole = round(units * share)
    # The condition with the largest part of its decisions in the sample decides.
    drawn = max(min(1.0, size / round(there[group] * share)) for group in decided)
    most = min(whole, math.fsum(min(size, round(there[group] * share)) for group in decided))
    return max(1.0, drawn * whole) / units, max(drawn * whole, most) / units


def _tokens_in(journal: JournalReader, scopes: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    # (calls, input tokens, output tokens) by model.
    tokens: dict[str, tuple[int, int, int]] = {}
    for scope in scopes:
        for entry in journal.entries_in_scope(scope):
            if entry.kind == "ask":
                calls, read, written = tokens.get(entry.model_asked, (0, 0, 0))
                tokens[entry.model_asked] = (
                    calls + 1,
                    read + (entry.input_tokens or 0),
                    written + (entry.output_tokens or 0),
                )
    return tokens


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
    # The bounds differ if the dry run is only a part of the study.
    groups: dict[tuple[str, ...], list[_Asked]] = {}
    for asked in asks:
        groups.setdefault((asked.control, *asked.group), []).append(asked)
    low = high = 0.0
    for (_, *decided), group in groups.items():
        calls = [asked.calls for asked in group]
        # Sessions of many calls rarely take the same number, even if all in the small run did.
        spread = 0 if any(decided) else 1
        low += _bound(group, [asked.bounds[0] for asked in group], min(calls) - spread, share)
        high += _bound(group, [asked.bounds[1] for asked in group], max(calls) + spread, share)
    return round(low), round(high)


def _bound(group: Sequence[_Asked], weights: Sequence[float], extreme: int, share: float) -> float:
    # Each decision outside the small run takes `extreme` calls.

    # A decision of the small run represents itself and `weight - 1` others.
    others = 0.0 if share == 1 else math.fsum(max(0.0, weight - 1) for weight in weights)
    known = math.fsum(
        min(1.0, weight) * asked.calls for asked, weight in zip(group, weights, strict=True)
    )
    return known + others * extreme


def _describe_unasked(controls: RunFolder, share: float) -> list[str]:
    rows = count_decisions(controls.read_table(ControlRow.table))
    rows = rows.select("control", "moment", "missing")
    again = (row for row in rows.iter_rows() if row[0] in (RETEST, *REPLACING))
    return describe_left_out(again, "" if share == 1 else " of the dry run")
