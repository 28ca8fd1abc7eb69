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
from folkmoot.kit.findings import Row, cells, intervals, listed
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.estimates import known, plural
from folkmoot.measures.wording import ESTIMATES, EXPLORATORY
from folkmoot.storage.findings import Finding, Grid, Intervals
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
    for r in results:
        suffix = "_points" if r.claim.kind == "share" else ""
        first, second = r.claim.arms
        about: Row = {"first": first, "second": second, "family": r.claim.family}
        rows.append(about | result_cells(r, f"difference{suffix}", suffix))
    return rows


def result_cells(result: Result, name: str, suffix: str = "") -> Row:
    """The cells of a result: the difference under `name`, its interval and level, and both p."""
    return {
        **cells(result.estimate, name, suffix),
        "level_share": result.level if result.estimate.has_interval else None,
        "p": known(result.estimate.p),
        "adjusted_p": known(result.p),
    }


def claim_lines(results: Sequence[Result], axis: str) -> Intervals | None:
    """The chart of claims, one line a contrast: of the primary ones, where there are some."""
    primary = [r for r in results if r.claim.family == "primary"]
    lines = {r.claim.line: r.estimate for r in primary or results}
    share = any(r.claim.kind == "share" for r in results)
    return intervals(lines, axis, zero=0.0, percent=share)


def say_claims(results: Sequence[Result], about: str = "") -> str:
    """Primary claims with what may be said of them, and how many others are in the table: beside a
    conclusion, an estimate without one would be taken for a result. Where none is primary, the
    estimates of the first `SAID`. `about`: what is compared, in words."""
    primary = [r for r in results if r.claim.family == "primary"]
    others = [r for r in results if r.claim.family != "primary"]
    if primary:
        counted = plural(len(others), "exploratory estimate")
        more = f" The table also has {counted}, without a conclusion." if others else ""
        return f"{f'{about}: ' if about else ''}{listed(r.concluded for r in primary)}{more}"
    more = f" and {len(others) - SAID} more in the table" * (len(others) > SAID)
    told = f"{ESTIMATES} {'; '.join(r.estimated for r in others[:SAID])}{more}."
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
    held = [r for r in results if r.counts != (0, 0)]
    if not held:
        return None
    primary = any(r.claim.family == "primary" for r in held)
    basis: dict[str, Any] = {
        "unit": held[0].claim.unit,
        "units": max(r.estimate.units for r in held),
    }
    return Finding(
        key,
        title,
        # The title is not beside it on a first page, so the sentence names the measure.
        say_claims(held, f"{axis[0].upper()}{axis[1:]}"),
        Grid.of(claim_rows(held), f"First minus second{_methods(held)}."),
        claim_lines(held, axis),
        notes=(LEVELS, *([] if primary else [EXPLORATORY]), *notes),
        headline=primary,
        **(basis | more),
    )


def _methods(results: Sequence[Result]) -> str:
    """The methods of the intervals in brackets, without degrees of freedom."""
    methods = [r.estimate.method.partition(",")[0] for r in results if r.estimate.has_interval]
    return f"; intervals: {', '.join(dict.fromkeys(filter(None, methods)))}" if methods else ""
