"""Turn the results of planned comparisons into rows, charts, sentences or a whole finding.

Start with `read_results` and `claims_finding`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from folkmoot.engine.settings.claims import read_declared
from folkmoot.engine.settings.run_claims import evaluate_declared
from folkmoot.hints import capitalise, join_first, join_words
from folkmoot.kit.findings import Row, estimate_cells, interval_chart
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.inference.estimates import finite_or_none, format_count
from folkmoot.measures.wording import EXPLORATORY, Sentence, join_sentences, word
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RunFolder

Config = TypeVar("Config", bound=BaseModel)
LEVELS = (
    "low, high: the 95 % interval of this comparison by itself. adjusted p: by Holm's method "
    "within the family (for several primary claims, in each direction). It is of the margin if the "
    "claim has one, otherwise of no difference. p: always of no difference."
)
# Explains the joint intervals of several primary claims.
JOINT_LEVELS = (
    "joint low, joint high: the intervals of the primary claims that hold together. The chance "
    "that one or more of them miss the true value is at most 5 %. Adjusted p is below .05 exactly "
    "if the joint interval excludes zero (or the margin, if the claim has one). A joint bound at "
    "zero or at the margin is then excluded itself: only the side is shown, and the interval of "
    "the single comparison says more about the size."
)
# At most this many estimates in one sentence. The table has the rest.
MAX_LISTED_ESTIMATES = 6


def read_results(
    run: RunFolder, config: type[Config], declare: Callable[[Config], Sequence[Claim]]
) -> list[Result]:
    """Return the results of the comparisons that a study type plans."""
    # All claims of the run are evaluated together, because adjusted p-values depend on their
    # number.
    return list(evaluate_declared(run, read_declared(run, config, declare)).values())


def claim_rows(results: Sequence[Result]) -> list[Row]:
    """Return one table row for each planned comparison: estimate, interval and p-values.

    Shares and means have separate columns, because their units differ. If the claims are about
    several measures, the first column names them.
    """
    # The table has columns for joint intervals if any claim has one.
    rows: list[Row] = []
    has_joint_intervals = any(result.joint is not None for result in results)
    has_measures = _has_several_measures(results)
    for result in results:
        # The suffix tells the report that the cells are percentage points.
        suffix = "_points" if result.claim.in_points else ""
        first, second = result.claim.arm_labels
        labels: Row = {"measure": capitalise(result.claim.label)} if has_measures else {}
        labels |= {"first": first, "second": second, "family": result.claim.family}
        cells = result_cells(result, f"difference{suffix}", suffix)
        joint = joint_cells(result, suffix) if has_joint_intervals else {}
        rows.append(labels | cells | joint)
    return rows


def result_cells(result: Result, name: str, suffix: str = "") -> Row:
    """Return the cells of one result: a difference, its bounds, `p` and `adjusted_p`.

    - `name`: the column of the difference.
    - `suffix`: added to the names of the bounds.
    """
    return {
        **estimate_cells(result.estimate, name, suffix),
        "p": finite_or_none(result.estimate.p),
        "adjusted_p": finite_or_none(result.p),
    }


def joint_cells(result: Result, suffix: str) -> Row:
    """Return the cells with the bounds of a result's joint interval."""
    names = (f"joint_low{suffix}", f"joint_high{suffix}")
    if result.joint is None:
        return dict.fromkeys(names)
    return dict(zip(names, result.joint[:2], strict=True))


def claims_chart(results: Sequence[Result], axis: str) -> IntervalChart | None:
    """Return the chart of planned comparisons, with one line each.

    Returns None if no estimate is known.
    If any comparison is primary, the chart shows only the primary ones.
    """
    return _draw_claims(results, axis, has_measures=_has_several_measures(results))


def _draw_claims(
    results: Sequence[Result], axis: str, *, has_measures: bool
) -> IntervalChart | None:
    # The chart must show the claims of the statement, not the others in the table.
    primary = [result for result in results if result.claim.family == "primary"]
    drawn = primary or results
    # Shares and means have different units, so an axis in points holds shares alone.
    are_shares = all(result.claim.in_points for result in drawn)
    lines = {
        f"{f'{capitalise(result.claim.label)}: ' * has_measures}"
        f"{result.claim.contrast_label}": result.estimate
        for result in drawn
    }
    return interval_chart(lines, axis, zero=0.0, percent=are_shares)


def _has_several_measures(results: Sequence[Result]) -> bool:
    return len({result.claim.label for result in results}) > 1


def describe_claims(results: Sequence[Result], about: str = "") -> Sentence:
    """Return the sentence about the results of planned comparisons.

    `about`: the name of the measure that is compared.
    """
    # If any claim is primary, the sentence gives the conclusions of the primary claims and the
    # number of exploratory estimates. Otherwise it lists the first `MAX_LISTED_ESTIMATES`
    # estimates.
    primary = [result for result in results if result.claim.family == "primary"]
    others = [result for result in results if result.claim.family != "primary"]
    has_measures = _has_several_measures(results)

    def name_measure(result: Result, text: Sentence) -> Sentence:
        return _name_measure(capitalise(result.claim.label), text) if has_measures else text

    # Do not print other estimates next to a conclusion: a reader would take them for results.
    if primary:
        conclusions = join_sentences(
            (name_measure(result, result.conclusion_text) for result in primary), "; "
        )
        families = Counter(result.claim.family for result in others)
        counted = join_words(
            [format_count(n, f"{family} estimate") for family, n in sorted(families.items())]
        )
        said = [
            word("comparison", "several", conclusions=conclusions),
            word("comparison", "also in the table", estimates=counted) if others else None,
        ]
        whole = join_sentences(said)
        return _name_measure(about, whole) if about else whole
    estimates = list_estimates([name_measure(result, result.estimate_text) for result in others])
    if about:
        return word("estimate", "listed of a measure", about=about, estimates=estimates)
    return word("estimate", "listed", estimates=estimates)


def _name_measure(about: str, text: Sentence) -> Sentence:
    return word("estimate", "of a measure", about=about, estimate=text)


def list_estimates(estimates: Sequence[Sentence]) -> Sentence:
    """Return the first `MAX_LISTED_ESTIMATES` estimates, and the number of the remaining ones."""
    listed = join_sentences(estimates[:MAX_LISTED_ESTIMATES], "; ")
    more = len(estimates) - MAX_LISTED_ESTIMATES
    return word("estimate", "more", estimates=listed, number=more) if more > 0 else listed


def claims_finding(
    key: str,
    title: str,
    results: Sequence[Result],
    *,
    axis: str,
    notes: Sequence[str] = (),
    **more: Any,
) -> Finding:
    """Return the finding on all comparisons in one measure. Without any data, it says why.

    `more`: further fields of the `Finding`, such as its section.
    """
    # By default, the fields `unit` and `units` come from the claims.

    # The run has no observation for other claims, for example if it did not use a condition, or
    # if a column cannot be compared.
    observed = [result for result in results if result.counts != (0, 0)]
    primary = any(result.claim.family == "primary" for result in results)
    if not observed:
        reasons = list(dict.fromkeys(result.why for result in results))
        why = join_first(reasons) or "no comparison is planned"
        says = word("refusal", "no data", about=capitalise(axis), why=why)
        nothing = ResultTable((), ())
        return Finding(key, title, says, nothing, headline=primary, primary=primary, **more)
    # The statement gives the reason for a primary claim, and a note for the other claims.
    stated = [result for result in results if result in observed or result.is_primary]
    unobserved = [result.conclusion_text for result in results if result not in stated]
    first = max(observed, key=lambda result: result.estimate.unit_count)
    basis: dict[str, Any] = {"unit": first.claim.unit, "units": first.estimate.unit_count}
    return Finding(
        key,
        title,
        # The first page of a report shows the statement without the title, so the statement names
        # the measure.
        describe_claims(stated, capitalise(axis)),
        ResultTable.from_records(
            claim_rows(observed), f"First minus second{_describe_methods(observed)}."
        ),
        # The lines of all cells of a grid have the same names, also if some claims lack data there.
        _draw_claims(observed, axis, has_measures=_has_several_measures(results)),
        notes=(
            LEVELS,
            *([JOINT_LEVELS] if any(result.joint is not None for result in observed) else []),
            *([] if primary else [EXPLORATORY]),
            *(
                [word("comparison", "several", conclusions=join_sentences(unobserved, "; "))]
                if unobserved
                else []
            ),
            *notes,
        ),
        headline=primary,
        primary=primary,
        **(basis | more),
    )


def _describe_methods(results: Sequence[Result]) -> str:
    # Degrees of freedom differ between rows, so they are left out.
    methods = [
        result.estimate.method.partition(",")[0]
        for result in results
        if result.estimate.has_interval
    ]
    return f"; intervals: {', '.join(dict.fromkeys(filter(None, methods)))}" if methods else ""
