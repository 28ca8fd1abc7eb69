"""Compare the effect and the side effect of a treatment between the runs of a grid."""
# A typical grid varies `controls.confounders`: runs with and without stated attributes.

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.kit.controls.effects import SECTION
from folkmoot.kit.controls.findings import USER_DRIFT
from folkmoot.kit.controls.tables import name_role
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    difference_or_none,
    format_count,
    format_percent,
)
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.storage.findings import Finding, ResultTable, TableCell

# The role of the speakers and the two compared groups, in any order.
_Key = tuple[str, ...]


class _Pair(NamedTuple):
    # The effect of a treatment in one run, and its side effect. None means unknown. The side effect
    # (user drift) is a difference in answers that the treatment should not affect.
    effect: float | None
    drift: float | None
    # The number of independent units behind the side effect, or None.
    units: int | None = None


def effect_and_drift_over_cells(
    cells: Iterable[tuple[str, Sequence[Finding]]],
) -> Finding | None:
    """Return the finding that compares a treatment's effect and side effect between runs.

    - `cells`: the runs, each as a pair of a label and the run's findings. The label describes the
      settings of the run. The first run is the reference.

    Returns None if fewer than two different settings have answers to control questions.
    """
    found: dict[str, dict[_Key, list[_Pair]]] = {}
    # The name of each contrast, from the first run that has it.
    names: dict[_Key, str] = {}
    unit = ""
    for specification, findings in cells:
        # Effect and drift of a contrast are in the same row of the drift finding.
        drift = next((finding for finding in findings if finding.key == USER_DRIFT), None)
        if drift is None:
            continue
        unit = unit or drift.unit
        for row in drift.grid.rows:
            own = dict(zip(drift.grid.columns, row, strict=True))
            units = int(_number(own["units"]) or 0) or None
            pair = _Pair(_number(own["effect_share"]), _number(own["drift_share"]), units)
            by_contrast = found.setdefault(specification, {})
            # Repeats share a specification, so each contrast has a list of pairs.
            key = _key_of(own)
            names.setdefault(key, str(own["contrast"]))
            by_contrast.setdefault(key, []).append(pair)
    if len(found) < 2:
        return None
    # The first specification of the grid is the reference.
    first, *others = found
    rows: list[dict[str, TableCell]] = []
    said = []
    for key in found[first]:
        contrast, reference = names[key], _mean(found[first][key])
        rows.append(_row(contrast, first, reference, None))
        for name in others:
            if key in found[name]:
                pair = _mean(found[name][key])
                rows.append(_row(contrast, name, pair, reference))
                said.append(_in_words(contrast, name, pair, reference, unit))
    return Finding(
        "effect_and_drift",
        "Effect and user drift in each specification",
        word("control", "across", first=first, changes=join_sentences(said, "; ")),
        ResultTable.from_records(
            rows,
            "Total variation of the decision and mean total variation of the negative controls, "
            "both beyond chance; means over repeats. Changes are against the first specification. "
            "Units: the independent units of the repeat with the fewest. A row of fewer than "
            f"{FEWEST_UNITS} is an illustration.",
        ),
        notes=(
            "A negative control that is stated for all personas can hardly drift any more. Whether "
            "stated attributes hold the rest of the person is told by those that are not stated.",
        ),
        section=SECTION,
    )


def _key_of(row: Mapping[str, TableCell]) -> _Key:
    # Total variation has no direction, so A against B is the contrast B against A. Runs of a grid
    # may name it differently: an axis may change the order of the conditions.
    role = str(row.get("role", PARTICIPANT_ROLE))
    sides = str(row["contrast"]).removeprefix(name_role(role)).split(" against ")
    return role, *sorted(sides)


def _row(
    contrast: str, specification: str, pair: _Pair, reference: _Pair | None
) -> dict[str, TableCell]:
    changes = reference or _Pair(None, None)
    return {
        "contrast": contrast,
        "specification": specification,
        "effect_share": pair.effect,
        "drift_share": pair.drift,
        "effect_change": difference_or_none(pair.effect, changes.effect),
        "drift_change": difference_or_none(pair.drift, changes.drift),
        "units": pair.units,
    }


def _in_words(contrast: str, name: str, pair: _Pair, reference: _Pair, unit: str) -> Sentence:
    changes = [
        word(
            "control",
            "change",
            what=what,
            before=format_percent(before),
            after=format_percent(after),
        )
        for what, before, after in (
            ("effect", reference.effect, pair.effect),
            ("drift", reference.drift, pair.drift),
        )
        if before is not None and after is not None
    ]
    where = {"contrast": contrast, "specification": name}
    if not changes:
        return word("refusal", "change not known", **where)
    said = {"changes": join_sentences(changes, ", "), **where}
    # Both sides of a change need enough units.
    fewest = min((each.units for each in (pair, reference) if each.units), default=FEWEST_UNITS)
    if fewest >= FEWEST_UNITS:
        return word("control", "across, one", **said)
    few = word("description", "few units", units=format_count(fewest, unit))
    return word("control", "across, few", few=few, **said)


def _mean(pairs: Sequence[_Pair]) -> _Pair:
    effects, drifts = (
        [value for value in values if value is not None]
        for values in ([pair.effect for pair in pairs], [pair.drift for pair in pairs])
    )
    return _Pair(
        math.fsum(effects) / len(effects) if effects else None,
        math.fsum(drifts) / len(drifts) if drifts else None,
        min((pair.units for pair in pairs if pair.units), default=None),
    )


def _number(cell: TableCell) -> float | None:
    return float(cell) if isinstance(cell, (int, float)) else None
