"""How much of a decision depends on the persona, and on which attribute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.hints import capitalise
from folkmoot.kit.controls.effects import SECTION
from folkmoot.kit.controls.tables import (
    RETEST,
    WHOLE_PERSONA,
    PersonaVarianceRow,
    expected_answers,
    given_answers,
    list_units,
    unit_name,
)
from folkmoot.kit.findings import estimate_cells, fewest_units, interval_chart, name_few_units
from folkmoot.measures.inference.estimates import Estimate, finite_or_none, format_percent
from folkmoot.measures.persona_variance import (
    FEWEST_PARTICIPANTS,
    FEWEST_PER_VALUE,
    explained_share,
    intraclass_correlation,
    quartile_groups,
)
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.storage.findings import Finding, ResultTable, TableCell

PERSONA_VARIANCE = "persona_variance"
# An attribute with more values than this is a name or free text, such as an occupation.
_MOST_VALUES = 12
# Why there is no share of variance. The values are data: they are in the column `missing`.
_TOO_FEW, _TOO_MANY_VALUES, _ONE_VALUE, _NO_VARIANCE = (
    "too_few",
    "too_many_values",
    "one_value",
    "no_variance",
)


def persona_variance_rows(
    answers: pl.DataFrame, attributes: pl.DataFrame | None
) -> list[PersonaVarianceRow]:
    """Return the rows of the table `persona_variance`, for each decision that was asked again.

    `attributes`: the stated attributes of the participants, or None.
    """
    rows = []
    for (question, field), own in _asked_again(answers).group_by(
        "question", "field", maintain_order=True
    ):
        decision = question if field is None else f"{question}: {field}"
        first, second = expected_answers(own), given_answers(own)
        units = list_units(own)
        whole = Estimate(math.nan, math.nan, math.nan, own.height, len(set(units)))
        reason = _TOO_FEW
        # In a workbook with constants, a participant makes a first decision in each experiment.
        people = [*zip(units, own["participant_id"].to_list(), strict=True)]
        if len(set(people)) >= FEWEST_PARTICIPANTS:
            whole, reason = intraclass_correlation(first, second, units), _NO_VARIANCE
        whole = replace(whole, n=len(set(people)))
        rows.append(_build_row(str(decision), WHOLE_PERSONA, "ICC(1)", whole, reason))
        if attributes is None:
            continue
        # Ids that occur once in each group need the group as well.
        keys = [key for key in ("unit", "participant_id") if key in attributes.columns]
        joined = own.join(attributes, on=keys, how="left", maintain_order="left")
        for name in attributes.columns:
            if name not in own.columns:
                share, reason = _share_of(joined[name], first, units, people)
                rows.append(_build_row(str(decision), name, "ε²", share, reason))
    return rows


def _asked_again(answers: pl.DataFrame) -> pl.DataFrame:
    # A leading role, such as a mediator, has no persona.
    return answers.filter(control=RETEST, role=PARTICIPANT_ROLE).filter(
        pl.col("missing").is_null() & pl.col("expected").is_not_null()
    )


def _build_row(
    decision: str, attribute: str, measure: str, share: Estimate, reason: str
) -> PersonaVarianceRow:
    return PersonaVarianceRow(
        decision=decision,
        attribute=attribute,
        measure=measure,
        variance_share=finite_or_none(share.value),
        low=finite_or_none(share.low),
        high=finite_or_none(share.high),
        participants=share.n,
        units=share.unit_count,
        missing=None if math.isfinite(share.value) else reason,
    )


def persona_variance_finding(
    answers: pl.DataFrame, attributes: pl.DataFrame | None
) -> Finding | None:
    """Return the finding on how much first decisions differ between participants.

    Returns None if this cannot be computed for any decision.
    """
    found = [row for row in persona_variance_rows(answers, attributes) if row.missing is None]
    if not found:
        return None
    lines = {f"{row.decision}: {row.attribute}": _estimate_in(row) for row in found}
    decisions = dict.fromkeys(row.decision for row in found)
    unit = unit_name(_asked_again(answers))
    said = [
        _in_words(
            decision,
            {row.attribute: _estimate_in(row) for row in found if row.decision == decision},
            lambda share: name_few_units(share, lines.values(), unit),
        )
        for decision in decisions
    ]
    cells: list[dict[str, TableCell]] = [
        {
            "decision": row.decision,
            "attribute": row.attribute,
            "measure": row.measure,
            # Not in percent, because ε² can be negative.
            **estimate_cells(_estimate_in(row), "variance"),
            "participants": row.participants,
            "units": row.units,
        }
        for row in found
    ]
    return Finding(
        PERSONA_VARIANCE,
        "Does the persona matter?",
        join_sentences(said),
        ResultTable.from_records(
            cells,
            "Whole persona: variance between participants as share of all variance of a first "
            "decision and its retest, ICC(1) (Shrout and Fleiss 1979). Attribute: share of the "
            "variance of first decisions that it explains, adjusted for the number of its values "
            "(ε², Kelley 1935; 0 on average without an effect, so it can be negative, which the "
            "sentence prints as 0). Choices are coded as indicators. Numbers are divided at their "
            "quartiles. 95 % intervals by jackknife over independent units. No figure for fewer "
            "than "
            f"{FEWEST_PARTICIPANTS} participants; values of fewer than {FEWEST_PER_VALUE} are "
            "left out.",
        ),
        interval_chart(lines, "share of variance (1 is all)"),
        notes=(
            "An ICC near 0 means that the answers of two participants differ no more than two "
            "answers of one. A large one has several possible causes: participants differ in their "
            "persona and in whatever else their prompts contain, such as the order of the options, "
            "which the retest repeats. An attribute that explains nothing may still matter "
            "together with others. The table persona_variance of the controls has each attribute, "
            "also those without a figure.",
        ),
        section=SECTION,
        unit=unit,
        units=fewest_units(lines.values()),
    )


def _estimate_in(row: PersonaVarianceRow) -> Estimate:
    share, low, high = (
        math.nan if value is None else value for value in (row.variance_share, row.low, row.high)
    )
    return Estimate(share, low, high, row.participants, row.units, method="jackknife")


def _share_of(
    column: pl.Series,
    answers: list[str | float],
    units: list[str],
    participants: list[tuple[str, str]],
) -> tuple[Estimate, str]:
    known = [n for n, value in enumerate(column.to_list()) if value is not None]
    own_units = [units[n] for n in known]
    people = [participants[n] for n in known]
    unknown = Estimate(math.nan, math.nan, math.nan, len(set(people)), len(set(own_units)))
    if unknown.n < FEWEST_PARTICIPANTS:
        return unknown, _TOO_FEW
    values = column.gather(known)
    # A number such as the age has too few participants for each value, but not for each quartile.
    if values.dtype.is_numeric() and values.n_unique() > _MOST_VALUES:
        groups = quartile_groups(values.to_numpy())
    else:
        groups = [str(value) for value in values.to_list()]
    if len(set(groups)) > _MOST_VALUES:
        return unknown, _TOO_MANY_VALUES
    share = explained_share([answers[n] for n in known], groups, own_units, people)
    counts = Counter(value for _, value in {*zip(people, groups, strict=True)})
    frequent = [value for value, count in counts.items() if count >= FEWEST_PER_VALUE]
    if len(frequent) < 2:
        return share, _ONE_VALUE
    return share, _TOO_FEW if share.n < FEWEST_PARTICIPANTS else _NO_VARIANCE


def _in_words(
    decision: str, shares: dict[str, Estimate], name_few: Callable[[Estimate], str]
) -> Sentence:
    whole = shares[WHOLE_PERSONA]
    named = [
        f"{name} {_percent(share, name_few(share))}"
        for name, share in shares.items()
        # An interval above 0 is one attribute's; several are looked at, so this is exploratory.
        if name != WHOLE_PERSONA and share.has_interval and share.low > 0
    ]
    if finite_or_none(whole.value) is None:
        return word("refusal", "no variance", decision=decision)
    lies = {"decision": capitalise(decision), "share": _percent(whole, name_few(whole))}
    if not named:
        return word("control", "variance", **lies)
    return word("control", "variance, attributes", attributes=", ".join(named), **lies)


def _percent(share: Estimate, aside: str) -> str:
    # Without an effect ε² can be slightly negative. A negative share would puzzle readers of a
    # sentence, and the table has the value.
    value = format_percent(max(0.0, share.value))
    if not share.has_interval:
        return f"{value} ({', '.join(filter(None, ('no interval', aside)))})"
    low, high = (
        format_percent(max(0.0, bound)).removesuffix(" %") for bound in (share.low, share.high)
    )
    return f"{value} ({low} to {high} %)"
