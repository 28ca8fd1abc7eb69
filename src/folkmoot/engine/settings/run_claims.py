"""The claims of a run, as the run fixed them in `plan.json`, and the results of these claims.

A claim is a comparison of two conditions. Reports, pages and commands get all comparisons within a
run from this module.
"""

# The family of a claim, and so its adjusted p-value and its verdict, is what the sealed plan says.
# A version of Folkmoot or of a study type that declares other claims does not change it.

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from folkmoot.engine.settings.claimed_tables import Conditions, Tables
from folkmoot.engine.settings.claims import (
    add_claims,
    as_declared,
    evaluate_claims,
    join_claims,
    with_declared_unit,
)
from folkmoot.engine.settings.hypotheses import (
    NOT_SEALED,
    Hypothesis,
    is_seal_intact,
    read_restated,
    read_sealed,
)
from folkmoot.measures.inference.claims import Claim, Family, Result
from folkmoot.storage.run_folder import RunFolder

# The part of `plan.json` with the claims.
CLAIMS = "claims"


def registered_claims(run: RunFolder) -> list[Claim] | None:
    """Return the claims that a run fixed in `plan.json` before the run called a model.

    Returns None if the plan holds no claims.
    """
    part = run.plan.get("sealed", {}).get(CLAIMS)
    if part is None:
        return None
    return [_claim_from(stated) for stated in part["data"]]


def _claim_from(stated: Mapping[str, Any]) -> Claim:
    # A plan of another version may hold fields that this version does not know. They are ignored.
    known = {field.name for field in fields(Claim)}
    own = {name: value for name, value in stated.items() if name in known}
    for name in {"contrast", "subject", "repeated", "names"} & own.keys():
        own[name] = tuple(own[name])
    # The sentences of an earlier version name the rows in the outcome alone.
    own.setdefault("outcome_says_rows", True)
    # Claims are hashable, so the lists of the JSON file become tuples again.
    own["where"] = tuple((name, tuple(values)) for name, values in own.get("where", ()))
    return Claim(**own)


def restate_claims(
    run: RunFolder,
    declared: Sequence[Claim],
    tables: Tables,
    conditions: Conditions | None = None,
) -> list[Claim]:
    """Return the claims that a run would have if it were planned with the installed version.

    - `declared`: the claims of the study type in the installed version.
    - `tables`, `conditions`: as in `claims_of_run`.
    """
    own = [with_declared_unit(claim, tables) for claim in declared]
    return join_claims(_stated_claims(run, declared, tables, conditions), own)


def claims_of_run(
    run: RunFolder,
    declared: Sequence[Claim],
    tables: Tables | None = None,
    conditions: Conditions | None = None,
) -> list[Claim]:
    """Return the claims of a run: the claims in `plan.json`, then further claims as exploratory.

    - `declared`: the claims of the study type.
    - `tables`: the declared tables, each with the kinds of its columns.
    - `conditions`: the conditions of the run with their names.
    """
    # Claims that the plan lacks were perhaps made after the data, so they are exploratory.
    sealed = sealed_claims(run)
    if sealed is None:
        return restate_claims(run, declared, tables or {}, conditions)
    # Plans of earlier versions may lack names.
    named = [as_declared(claim, {}, declared) for claim in sealed]
    restated = [
        as_declared(hypothesis.as_claim(), tables or {}, declared, conditions)
        for hypothesis in read_restated(run)
    ]
    stated = _stated_claims(run, declared, tables or {}, conditions)
    own = [with_declared_unit(claim, tables or {}) for claim in declared]
    return add_claims(named, [*stated, *restated, *own])


def sealed_claims(run: RunFolder) -> list[Claim] | None:
    """Return the claims that a run fixed in `plan.json`, if the plan was not edited later.

    Returns None if the plan was edited, or if it holds no claims.
    """
    part = run.plan.get("sealed", {}).get(CLAIMS, {})
    is_edited = read_sealed(run)[1] == NOT_SEALED or not is_seal_intact(part)
    return None if is_edited else registered_claims(run)


def _stated_claims(
    run: RunFolder, declared: Sequence[Claim], tables: Tables, conditions: Conditions | None
) -> list[Claim]:
    # The hypotheses of a run. They are primary if `plan.json` proves them older than the data.
    hypotheses, doubt = read_sealed(run)
    family: Family = "exploratory" if doubt else "primary"
    return [
        as_declared(hypothesis.as_claim(family), tables, declared, conditions)
        for hypothesis in hypotheses
    ]


def find_result(claim: Claim, results: Sequence[Result]) -> Result | None:
    """Return the result of the comparison that `claim` makes, or None if there is no such result.

    The difference in the result is first minus second condition of `claim`.
    """
    # Several hypotheses may be about one contrast. The one with the same direction and margin comes
    # first.
    same = [result for result in results if claim.is_same_contrast(result.claim)]
    turned = [
        result if result.claim.contrast == claim.contrast else result.reverse() for result in same
    ]
    stated = (claim.direction, claim.margin)
    turned.sort(key=lambda result: (result.claim.direction, result.claim.margin) != stated)
    return next(iter(turned), None)


def results_of_hypotheses(
    hypotheses: Sequence[Hypothesis], results: Sequence[Result], declared: Sequence[Claim]
) -> list[Result]:
    """Return the results of hypotheses, selected from all results of a run."""
    found = []
    for hypothesis in hypotheses:
        stated = as_declared(hypothesis.as_claim(), {}, declared)
        result = find_result(stated, results)
        # Every hypothesis of a run is one of its claims, or about the contrast of one.
        assert result is not None
        # It was added after the run if the plan states the contrast otherwise. The p-values of the
        # plan's claim do not test another margin.
        if stated.margin != result.claim.margin:
            untested = replace(result.estimate, p=math.nan)
            result = replace(result, estimate=untested, adjusted_p=math.nan, margin_p=math.nan)
        own = replace(result.claim, direction=stated.direction, margin=stated.margin)
        found.append(replace(result, claim=own))
    return found


def evaluate_declared(run: RunFolder, declared: Sequence[Claim]) -> dict[Claim, Result]:
    """Return the result of each claim of the study type.

    - `declared`: the claims of the study type. Their results are corrected for the number of all
      claims of the run.
    """
    # A claim about the same contrast as a hypothesis gets the result of the hypothesis.
    # Only claims about the same column are compared, because a study type may declare hundreds.
    results_by_column: dict[str, list[Result]] = {}
    for evaluated in evaluate_claims(run, claims_of_run(run, declared)):
        column = evaluated.claim.column
        results_by_column.setdefault(column, []).append(evaluated)
    results_by_claim = {}
    for claim in declared:
        result = find_result(claim, results_by_column[claim.column])
        assert result is not None
        # Names and outcome stay its own, because the study type words them better. Conditions that
        # the claim does not name have the names of the run's plan.
        first, second = (
            name or planned for name, planned in zip(claim.names, result.claim.names, strict=True)
        )
        own = replace(
            result.claim,
            names=(first, second),
            outcome=claim.outcome,
            outcome_says_rows=claim.outcome_says_rows,
        )
        results_by_claim[claim] = replace(result, claim=own)
    return results_by_claim
