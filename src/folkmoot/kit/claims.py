"""The results of claims as findings: every number about a comparison comes from here.

read_results(run, Config, claims)   the results of what a study type declares
claim_rows(results)                 the rows of a table: contrast, estimate, interval, p
result_cells(result, name)          the cells of one of them, for a table with columns of its own
claim_lines(results, axis)          the chart
say_claims(results)                 the sentence: primary claims with their conclusions; where
                                    there are none, the others as estimates, without a p
claims_finding(...)                 the whole finding
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from folkmoot.engine.settings.claims import read_declared
from folkmoot.engine.settings.hypotheses import evaluate_declared
from folkmoot.kit.findings import Row, estimate_cells, interval_chart, join_clauses
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.estimates import finite_or_none, format_count
from folkmoot.measures.wording import ESTIMATES, EXPLORATORY
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RunFolder

Config = TypeVar("Config", bound=BaseModel)
LEVELS = (
    "level share: the level of the interval. Those of primary claims hold together, so that the "
    "chance of even one that misses is at most 5 %. adjusted p: of primary claims p times their "
    "number, so that it is below .05 where the interval excludes zero; of all others adjusted for "
    "the claims of the same family by Holm's method."
)
SAID = 6  # estimates of claims that are not primary, in one sentence


def read_results(
    run: RunFolder, config: type[Config], declare: Callable[[Config], Sequence[Claim]]
) -> list[Result]:
    """The results of the claims that a study type declares, among all claims of the run."""
    return list(evaluate_declared(run, read_declared(run, config, declare)).values())


def claim_rows(results: Sequence[Result]) -> list[Row]:
    """The rows of a table of claims. Shares and means do not stand in one table."""
    rows: list[Row] = []
    for result in results:
        suffix = "_points" if result.claim.kind == "share" else ""
        first, second = result.claim.arm_labels
        about: Row = {"first": first, "second": second, "family": result.claim.family}
        rows.append(about | result_cells(result, f"difference{suffix}", suffix))
    return rows


def result_cells(result: Result, name: str, suffix: str = "") -> Row:
    """The cells of a result: the difference under `name`, its interval and level, and both p."""
    return {
        **estimate_cells(result.estimate, name, suffix),
        "level_share": result.level if result.estimate.has_interval else None,
        "p": finite_or_none(result.estimate.p),
        "adjusted_p": finite_or_none(result.p),
    }


def claim_lines(results: Sequence[Result], axis: str) -> IntervalChart | None:
    """The chart of claims, one line a contrast: of the primary ones, where there are some."""
    primary = [result for result in results if result.claim.family == "primary"]
    lines = {result.claim.contrast_label: result.estimate for result in primary or results}
    share = any(result.claim.kind == "share" for result in results)
    return interval_chart(lines, axis, zero=0.0, percent=share)


def say_claims(results: Sequence[Result], about: str = "") -> str:
    """Primary claims with what may be said of them, and how many others are in the table: beside a
    conclusion, an estimate without one would be taken for a result. Where none is primary, the
    estimates of the first `SAID`. `about`: what is compared, in words."""
    primary = [result for result in results if result.claim.family == "primary"]
    others = [result for result in results if result.claim.family != "primary"]
    if primary:
        counted = format_count(len(others), "exploratory estimate")
        more = f" The table also has {counted}, without a conclusion." if others else ""
        conclusions = join_clauses(result.describe_conclusion for result in primary)
        return f"{f'{about}: ' if about else ''}{conclusions}{more}"
    more = f" and {len(others) - SAID} more in the table" * (len(others) > SAID)
    told = f"{ESTIMATES} {'; '.join(result.describe_estimate for result in others[:SAID])}{more}."
    return f"{about}. {told}" if about else told


def claims_finding(
    key: str,
    title: str,
    results: Sequence[Result],
    *,
    axis: str,
    notes: Sequence[str] = (),
    **more: Any,
) -> Finding | None:
    """The finding of claims in one measure; None where the data hold none of them.

    `more`: the section, and the independent unit where it is not that of the claims.
    """
    held = [result for result in results if result.counts != (0, 0)]
    if not held:
        return None
    primary = any(result.claim.family == "primary" for result in held)
    basis: dict[str, Any] = {
        "unit": held[0].claim.unit,
        "units": max(result.estimate.unit_count for result in held),
    }
    return Finding(
        key,
        title,
        # The title is not beside it on a first page, so the sentence names the measure.
        say_claims(held, f"{axis[0].upper()}{axis[1:]}"),
        ResultTable.from_records(claim_rows(held), f"First minus second{_describe_methods(held)}."),
        claim_lines(held, axis),
        notes=(LEVELS, *([] if primary else [EXPLORATORY]), *notes),
        headline=primary,
        **(basis | more),
    )


def _describe_methods(results: Sequence[Result]) -> str:
    """The methods of the intervals in brackets, without degrees of freedom."""
    methods = [
        result.estimate.method.partition(",")[0]
        for result in results
        if result.estimate.has_interval
    ]
    return f"; intervals: {', '.join(dict.fromkeys(filter(None, methods)))}" if methods else ""
