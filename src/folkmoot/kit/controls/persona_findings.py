"""The finding on how much of a decision depends on the persona, and on which attribute."""

from __future__ import annotations

import math

import polars as pl

from folkmoot.kit.controls.contrasts import unit_name
from folkmoot.kit.controls.effects import SECTION, expected_answers, given_answers
from folkmoot.kit.controls.tables import RETEST
from folkmoot.kit.findings import estimate_cells, interval_chart
from folkmoot.measures.inference.estimates import Estimate, finite_or_none, format_percent
from folkmoot.measures.persona_variance import (
    FEWEST_PARTICIPANTS,
    FEWEST_PER_VALUE,
    explained_share,
    intraclass_correlation,
    quartile_groups,
)
from folkmoot.storage.findings import Finding, ResultTable, TableCell
from folkmoot.storage.run_folder import RunFolder

PERSONA_VARIANCE = "persona_variance"
WHOLE_PERSONA = "the whole persona"
# Studies with personas from a source have these columns in the table of their participants.
_PREFIX = "demographic_"
# Columns of the table `personas` that identify a participant or the source.
_NO_ATTRIBUTE = ("group", "persona_id", "name", "first_name", "source", "participant_id")
# An attribute with more values than this is a name or free text, such as an occupation.
_MOST_VALUES = 12


def read_attributes(run: RunFolder) -> pl.DataFrame | None:
    """Return the stated attributes of the participants, with the column `participant_id`.

    Returns None if no table of the run has one row of attributes for each participant.
    """
    for name in run.table_names():
        columns = run.scan_table(name).collect_schema().names()
        who = next((c for c in ("participant_id", "persona_id") if c in columns), None)
        stated = [column for column in columns if column.startswith(_PREFIX)]
        if name == "personas":
            stated = [column for column in columns if column not in _NO_ATTRIBUTE]
        if who is None or not stated:
            continue
        table = run.scan_table(name).select(who, *stated).collect()
        if table[who].is_unique().all():
            names = {column: column.removeprefix(_PREFIX) for column in stated}
            return table.rename({who: "participant_id", **names})
    return None


def persona_variance_finding(
    table: pl.DataFrame, attributes: pl.DataFrame | None
) -> Finding | None:
    """Return the finding on how much first decisions differ between personas.

    The finding also gives the share of the variance that each attribute explains. Returns None if
    every decision was asked again of fewer than `FEWEST_PARTICIPANTS` participants.
    """
    again = table.filter(control=RETEST).filter(
        pl.col("missing").is_null() & pl.col("expected").is_not_null()
    )
    rows: list[dict[str, TableCell]] = []
    lines: dict[str, Estimate] = {}
    said: list[str] = []
    for (decision,), own in again.group_by("question", maintain_order=True):
        if own.height < FEWEST_PARTICIPANTS:
            continue
        first, second = expected_answers(own), given_answers(own)
        units = own["unit"].to_list()
        whole = intraclass_correlation(first, second, units)
        shares = {WHOLE_PERSONA: whole}
        if attributes is not None:
            joined = own.join(attributes, on="participant_id", how="left", maintain_order="left")
            for name in attributes.columns:
                if name != "participant_id" and name not in own.columns:
                    shares[name] = _share_of(joined[name], first, units)
        for name, share in shares.items():
            if not math.isfinite(share.value):
                continue
            lines[f"{decision}: {name}"] = share
            rows.append(
                {
                    "decision": str(decision),
                    "attribute": name,
                    "measure": "ICC(1)" if name == WHOLE_PERSONA else "ε²",
                    **estimate_cells(share, "variance_share", "_share"),
                    "participants": share.n,
                }
            )
        said.append(_in_words(str(decision), shares))
    if not rows:
        return None
    return Finding(
        PERSONA_VARIANCE,
        "Does the persona matter?",
        " ".join(said),
        ResultTable.from_records(
            rows,
            "Whole persona: variance between participants as share of all variance of a first "
            "decision and its retest, ICC(1) (Shrout and Fleiss 1979). Attribute: share of the "
            "variance of first decisions that it explains, adjusted for the number of its values "
            "(ε², Kelley 1935; 0 on average without an effect, so it can be negative). Choices "
            "are coded as indicators. Numbers are divided at their quartiles. 95 % intervals by "
            "jackknife over independent units. No figure for fewer than "
            f"{FEWEST_PARTICIPANTS} participants; values of fewer than {FEWEST_PER_VALUE} are "
            "left out.",
        ),
        interval_chart(lines, "share of variance", percent=True),
        notes=(
            "An ICC near 0 means that the answers of two personas differ no more than two answers "
            "of one persona. An attribute that explains nothing may still matter together with "
            "others.",
        ),
        section=SECTION,
        unit=unit_name(again),
        units=min(estimate.unit_count for estimate in lines.values()),
    )


def _share_of(column: pl.Series, answers: list[str | float], units: list[str]) -> Estimate:
    """Return the share of variance that one attribute explains."""
    known = [n for n, value in enumerate(column.to_list()) if value is not None]
    values = column.gather(known)
    if values.dtype.is_numeric() and values.n_unique() > _MOST_VALUES:
        groups = quartile_groups(values.to_numpy())
    else:
        groups = [str(value) for value in values.to_list()]
    if len(set(groups)) > _MOST_VALUES:
        return Estimate(math.nan, math.nan, math.nan, 0)
    return explained_share([answers[n] for n in known], groups, [units[n] for n in known])


def _in_words(decision: str, shares: dict[str, Estimate]) -> str:
    whole = shares[WHOLE_PERSONA]
    named = [
        f"{name} {_percent(share)}"
        for name, share in shares.items()
        # An interval above 0 is one attribute's; several are looked at, so this is exploratory.
        if name != WHOLE_PERSONA and share.has_interval and share.low > 0
    ]
    if finite_or_none(whole.value) is None:
        return f"{decision}: all answers are equal, so that no variance can be divided."
    text = f"{decision}: {_percent(whole)} of the variance lies between personas"
    return f"{text}; of single attributes, {', '.join(named)}." if named else f"{text}."


def _percent(share: Estimate) -> str:
    value = format_percent(max(0.0, share.value))
    if not share.has_interval:
        return f"{value} (no interval)"
    low, high = (
        format_percent(max(0.0, bound)).removesuffix(" %") for bound in (share.low, share.high)
    )
    return f"{value} ({low} to {high} %)"
