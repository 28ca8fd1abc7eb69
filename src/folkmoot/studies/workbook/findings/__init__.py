"""What a workbook run found: play, trajectories over rounds, treatments, constants, quality.

Everything starts from the tables of the run. Intervals cluster by session, because those who talk
to each other are not independent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from folkmoot.measures.estimates import plural
from folkmoot.records.findings import Finding, Grid
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.workbook.findings.answers import distribution, shares
from folkmoot.studies.workbook.findings.data import measures_of, of_participants, values_of
from folkmoot.studies.workbook.findings.numbers import by_constants, by_round, by_treatment
from folkmoot.studies.workbook.findings.people import beside_people
from folkmoot.studies.workbook.findings.quality import quality
from folkmoot.studies.workbook.literals import NotALiteral
from folkmoot.studies.workbook.response_options import Listed, read_options


def findings(run: RunFolder) -> list[Finding]:
    """All findings of a finished run."""
    if not run.has_table("sessions"):
        return []
    sessions = run.table("sessions")
    responses = of_participants(run)
    values = values_of(run, responses)
    measures = measures_of(values)
    design = run.config.get("workbook", {})
    arms = _arms(design, sessions)
    headlines = any(m.computed for m in measures)
    found = [_play(sessions, arms)]
    for measure in measures:
        data = values.filter(pl.col("name").is_in(measure.variables))
        if len(measure.rounds) > 1:
            found.append(by_round(measure, data, arms))
        main = measure.computed or not headlines
        found.append(by_treatment(measure, data, arms, main=main))
    found += [distribution(m, values, arms) for m in measures if not m.computed]
    found += shares(responses, arms, _listed(design))
    found += by_constants(run, measures, values)
    found += beside_people(measures, values, arms)
    found += quality(responses)
    return found


def _arms(design: Mapping[str, Any], sessions: pl.DataFrame) -> list[str]:
    """The treatments that were played, in the order of the sheet: the first is compared against."""
    played = list(dict.fromkeys(sessions["treatment"].to_list()))
    ordered = [t["label"] for t in design.get("treatments", ()) if t["label"] in played]
    return [*ordered, *(arm for arm in played if arm not in ordered)]


def _listed(design: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Variable → its options in the order of the sheet, where they are one plain list."""
    found: dict[str, tuple[str, ...]] = {}
    for task in design.get("tasks", ()):
        with contextlib.suppress(NotALiteral):
            options = read_options(task.get("response_options") or "")
            if isinstance(options, Listed):
                found[task["var_name"]] = options.options
    return found


def _play(sessions: pl.DataFrame, arms: Sequence[str]) -> Finding:
    rows: list[dict[str, str | int]] = []
    for arm in arms:
        mine = sessions.filter(treatment=arm)
        rows.append(
            {
                "treatment": arm,
                "sessions": mine.height,
                "participants": int(mine["participants"].sum()),
                "messages": int(mine["messages"].sum()),
                "cut short": mine.filter(pl.col("ended") != "completed").height,
            }
        )
    cut = sessions.filter(pl.col("ended") != "completed").height
    ended = f"{plural(cut, 'session')} reached a limit and ended there" if cut else "all to the end"
    many = sessions["experiment_id"].n_unique()
    across = f" of {plural(many, 'experiment')}" if many > 1 else ""
    return Finding(
        key="play",
        title="What was played",
        says=f"{plural(sessions.height, 'session')}{across} with "
        f"{plural(int(sessions['participants'].sum()), 'participant')} were played, {ended}.",
        grid=Grid.of(rows),
        section="Play",
        headline=True,
    )
