"""Compare several runs: the measures in each condition, and the effects.

Runs that drew the same participants are compared within subjects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

import polars as pl

from folkmoot.engine.settings.claims import pair_sides, side_of
from folkmoot.hints import capitalise
from folkmoot.kit.findings import HOLM_NOTE, Row
from folkmoot.measures.inference.claims import (
    SUPPORTED,
    Claim,
    Result,
    evaluate,
    judge,
    refuse_few_units,
    without_result,
)
from folkmoot.measures.inference.differences import Side, arm_means, estimate_difference
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    Estimate,
    finite_or_none,
    format_count,
)
from folkmoot.measures.inference.families import adjust_families
from folkmoot.measures.inference.proportions import between
from folkmoot.measures.wording import NOT_TESTED, Sentence, join_sentences, word
from folkmoot.report.comparison.measured_claims import (
    Measured,
    name_arm,
    name_measure,
    paired_differences,
    read_measure,
    sides_between,
    with_shared_rounds,
)
from folkmoot.report.comparison.samples import EVERYBODY, Sample, read_same_draws, same_people
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable, cell_in_points
from folkmoot.storage.tables import DRAWS, join_unit_names

SECTION = "Comparison"
# More sentences than this would not be read. The table holds all results.
MAX_STATED = 8


class Basis(TypedDict):
    """The independent unit of a finding and the number of units."""

    unit: str
    units: int


@dataclass(frozen=True, slots=True)
class MeasureComparison:
    """The difference between a further run and the first run, in one measure and condition."""

    measure: str
    arm: str
    # (other run, first run), of the rows that the difference is about.
    means: tuple[float, float]
    result: Result
    # True if the comparison is within subjects.
    paired: bool


def compare_measures(
    runs: Sequence[Sample], claims: Mapping[Claim, Sequence[Claim]]
) -> list[MeasureComparison]:
    """Compare each further run with the first run, in each measure and each condition.

    - `claims`: the claims on each measure. Only the conditions in these claims are compared.
    """
    # A measure without claims is compared in all conditions. The p-values are adjusted for the
    # number of comparisons.
    base, *others = runs
    comparisons: list[MeasureComparison] = []
    for measure, measure_claims in claims.items():
        for sample in others:
            # Two runs are compared in all rounds, also beside a file that lacks some of them.
            people = [side for side in (base, sample) if side.is_human]
            [shared] = with_shared_rounds({measure: measure_claims}, people)
            first, second = _read_between(base, sample, shared)
            if first is None or second is None:
                continue
            claimed_arms = {arm for claim in measure_claims for arm in claim.contrast}
            for arm in _shared_arms(first, second):
                if measure_claims and arm not in claimed_arms:
                    continue
                arm_name = "everybody" if arm == EVERYBODY else name_arm(arm, measure_claims)
                comparisons.append(_compare_arm((sample, second), (base, first), arm, arm_name))
    # Holm's adjustment needs all results, so verdicts are decided after the loop.
    results = _judge_between([comparison.result for comparison in comparisons], runs)
    return [
        replace(comparison, result=result)
        for comparison, result in zip(comparisons, results, strict=True)
    ]


def _judge_between(results: Sequence[Result], runs: Sequence[Sample]) -> list[Result]:
    # All comparisons are one family, which is tested when all runs are complete.
    adjusted = adjust_families(results)
    is_interim = any(sample.partial for sample in runs)
    return [result.as_interim() for result in adjusted] if is_interim else adjusted


def _read_between(
    base: Sample, sample: Sample, measure: Claim
) -> tuple[Measured | None, Measured | None]:
    between_draws = not read_same_draws(base, sample)
    first = read_measure(base, measure, between_draws=between_draws)
    if first is None:
        return None, None
    return first, read_measure(sample, measure, between_draws=between_draws)


def _shared_arms(first: Measured, second: Measured) -> list[str]:
    # If one measure has no conditions, those of the other count.
    if {*first.arms} == {EVERYBODY}:
        return [*second.arms]
    if {*second.arms} == {EVERYBODY}:
        return [*first.arms]
    return [arm for arm in first.arms if arm in second.arms]


def _compare_arm(
    own: tuple[Sample, Measured], base: tuple[Sample, Measured], arm: str, arm_name: str
) -> MeasureComparison:
    (sample, second), (reference, first) = own, base
    own_rows, base_rows = (measured.rows(arm) for measured in (second, first))
    assert own_rows is not None and base_rows is not None
    # The subject columns that both samples have.
    subject = tuple(column for column in first.claim.subject if column in second.claim.subject)
    paired = same_people(reference, sample) and bool(subject)
    names = (sample.name, reference.name)
    name = name_measure(first.claim)
    unit = next(measured.unit_of(arm) for measured in (second, first))
    sides = sides_between(own_rows, base_rows, names)
    if paired:
        matched = pair_sides(own_rows, base_rows, subject)
        # Runs that drew different numbers of texts have no common units.
        paired = all(side.units for side in matched) or not all(side.units for side in sides)
        sides = matched if paired else sides
    claim = replace(
        first.claim,
        contrast=names,
        names=names,
        kind=second.claim.kind,
        unit=unit,
        outcome=f"{name} in {arm_name}",
        paired=paired and bool(first.claim.subject),
        estimand=f"The {first.claim.kind} of {name} in {arm_name}, {names[0]} minus {names[1]}.",
    )
    if not all(side.units for side in sides):
        result = without_result(claim, "no subject is known in both")
    else:
        result = evaluate(claim, *sides)
        if result.why and unit == DRAWS:
            why = word("refusal", "few draws", draws=result.estimate.unit_count)
            result = replace(result, verdict=why, why=why)
    return MeasureComparison(name, arm_name, arm_means(*sides), result, paired)


def is_equivalent(result: Result, margin: float) -> bool:
    """Return whether the whole interval of a difference of shares lies within ± `margin`."""
    estimate, claim = result.estimate, result.claim
    return claim.in_points and judge("equivalent", margin, estimate) == SUPPORTED


def measures_finding(
    key: str, title: str, comparisons: Sequence[MeasureComparison], base: str, margin: float
) -> Finding | None:
    """Return the finding on compared measures, or None if no measure was compared."""
    if not comparisons:
        return None
    results = [comparison.result for comparison in comparisons]
    rows: list[Row] = [
        {
            "measure": capitalise(comparison.measure),
            "condition": comparison.arm,
            "runs": comparison.result.claim.contrast_label,
            "first": finite_or_none(comparison.means[0]),
            "second": finite_or_none(comparison.means[1]),
            **result_cells(comparison.result),
            "paired": comparison.paired,
            # The margin is a difference of shares, so it fits no other measure.
            "equivalent": is_equivalent(comparison.result, margin)
            if comparison.result.claim.in_points and not comparison.result.why
            else None,
        }
        for comparison in comparisons
    ]
    return Finding(
        key,
        title,
        _describe_results(results, margin),
        ResultTable.from_records(
            rows,
            "First minus second run; 95 % intervals one by one, verdicts by Holm's p. Paired: runs "
            "that drew the same people are compared within subjects. All figures of such a row are "
            "about the subjects that are known in both runs.",
        ),
        draw_differences(results, f"difference to {base}"),
        notes=(
            "“Equivalent: yes”: the whole interval of a difference of shares lies within "
            f"±{100 * margin:g} points (`--margin`). It is judged one by one. “No” says that "
            "this is not shown, and not that the runs differ. Undecided is not the same as equal: "
            "look at the width of the interval.",
            HOLM_NOTE,
        ),
        section=SECTION,
        headline=True,
        **basis_of(results),
    )


def basis_of(results: Sequence[Result]) -> Basis:
    """Return the independent unit of a finding and the number of units."""
    # Those of the tests count. If conditions have different units, both are named, and the table
    # gives the number of each comparison.
    tested = [result for result in results if not result.why] or results
    return {
        "unit": join_unit_names(result.claim.unit for result in tested),
        "units": max(result.estimate.unit_count for result in tested),
    }


def result_cells(result: Result) -> Row:
    """Return the table cells of a result."""
    # The cells are difference, interval, p, unit, method, verdict, and the result in words.
    estimate = result.estimate
    has_interval, in_points = estimate.has_interval, result.claim.in_points
    return {
        "difference": cell_in_points(finite_or_none(estimate.value), in_points),
        "low": cell_in_points(finite_or_none(estimate.low), in_points) if has_interval else None,
        "high": cell_in_points(finite_or_none(estimate.high), in_points) if has_interval else None,
        "in_words": result.numbers_text.strip(" ()") or None,
        "p": finite_or_none(estimate.p) if has_interval else None,
        "holm_p": finite_or_none(result.p) if has_interval else None,
        "units": estimate.unit_count,
        "unit": result.claim.unit,
        "method": estimate.method or None,
        "verdict": result.verdict,
    }


def _describe_results(results: Sequence[Result], margin: float) -> Sentence:
    tested = [result for result in results if not result.why]
    untested = [result for result in results if result.why]
    if not tested and len(untested) > MAX_STATED:
        comparisons = format_count(len(untested), "comparison")
        return word("runs", "none tested", comparisons=comparisons)
    clear = [
        result for result in tested if result.verdict == SUPPORTED or is_equivalent(result, margin)
    ]
    stated = tested if len(results) <= MAX_STATED else clear[:MAX_STATED]
    if not stated and tested:
        comparisons = format_count(len(tested), "comparison")
        return word("runs", "none shown", comparisons=comparisons)
    sentences = [tell_result(result, margin) for result in stated]
    # Comparisons without a test for the same reason share a sentence.
    reasons = dict.fromkeys(result.why for result in untested)
    shown = len(results) <= MAX_STATED
    for why in reasons if shown else ():
        listed = [_name_untested(result) for result in untested if result.why == why]
        sentences.append(word("runs", "without a test", comparisons="; ".join(listed), why=why))
    if further := len(results) - len(stated) - (len(untested) if shown else 0):
        comparisons = format_count(further, "further comparison")
        sentences.append(word("runs", "further", comparisons=comparisons))
    return join_sentences(sentences)


def _name_untested(result: Result) -> str:
    claim = result.claim
    return f"{capitalise(claim.outcome)}, {claim.contrast_label}{result.numbers_text}"


def tell_result(result: Result, margin: float) -> Sentence:
    """Return a result as a sentence.

    - `margin`: the largest difference of shares that the sentence calls equivalent.
    """
    equivalent = None
    if is_equivalent(result, margin):
        equivalent = word("runs", "equivalent", margin=result.claim.size(margin))
    says = word(
        "runs",
        "difference",
        measure=capitalise(result.claim.outcome),
        contrast=result.claim.contrast_label,
        difference=result.difference_text,
    )
    return join_sentences([says, equivalent])


def draw_differences(results: Sequence[Result], unit: str) -> IntervalChart | None:
    """Return the chart of differences of shares, or of means if there are no shares.

    Returns None if no difference is known.
    """
    # Shares and means have different units, so one chart cannot show both.
    shares = [result for result in results if result.claim.in_points]
    drawn_results, size = (shares, 100.0) if shares else (results, 1.0)
    lines = tuple(
        (
            f"{result.claim.outcome}: {result.claim.contrast_label}",
            size * result.estimate.value,
            size * (result.estimate.low if result.estimate.has_interval else result.estimate.value),
            size
            * (result.estimate.high if result.estimate.has_interval else result.estimate.value),
        )
        for result in drawn_results
        if math.isfinite(result.estimate.value)
    )
    return IntervalChart(lines, f"{unit} (points)" if shares else unit, 0.0) if lines else None


# --- effects -------------------------------------------------------------------------------------


def compare_effects(
    runs: Sequence[Sample], claims: Mapping[Claim, Sequence[Claim]]
) -> Finding | None:
    """Return the finding on the effect of each claim in each run.

    The finding also compares the effects of the runs. Returns None if no claim has data in every
    run.
    """
    base, *others = runs
    # The effect in a run is the result that the report of the run gives, with the adjusted p-value
    # of its family there. All others are one family here: differences between runs, and effects in
    # a run that no claim of it is about.
    known: dict[tuple[Claim, str], Result] = {}
    tests: dict[tuple[Claim, str], Result] = {}
    for measure, measure_claims in claims.items():
        measured_by_run = {sample.name: read_measure(sample, measure) for sample in runs}
        for claim in _confirmatory_claims(measure_claims):
            effects = {
                sample.name: effect
                for sample in runs
                if (effect := _effect_in(sample, measured_by_run[sample.name], claim)) is not None
            }
            # An effect that one run lacks cannot be compared.
            if len(effects) < len(runs):
                continue
            for name, effect in effects.items():
                (known if effect.is_of_report else tests)[claim, name] = effect.result
            for sample in others:
                own, reference = effects[sample.name], effects[base.name]
                drawn = not read_same_draws(base, sample)
                if drawn:
                    read = _read_between(sample, base, measure)
                    own, reference = (
                        _effect_in(run, measured, claim) or effects[run.name]
                        for run, measured in zip((sample, base), read, strict=True)
                    )
                gap = _difference_between_runs(own, reference, same_people(base, sample))
                if drawn:
                    gap = _between_draws(gap, [measured for measured in read if measured])
                tests[claim, f"{sample.name} − {base.name}"] = gap
    if not tests:
        return None
    known |= dict(zip(tests, _judge_between([*tests.values()], runs), strict=True))
    by_claim: dict[Claim, dict[str, Result]] = {}
    for (claim, name), result in known.items():
        by_claim.setdefault(claim, {})[name] = result
    run_names = [sample.name for sample in runs]
    gap_names = [f"{sample.name} − {base.name}" for sample in others]
    named_results = [
        (name, results[name]) for results in by_claim.values() for name in (*run_names, *gap_names)
    ]
    # If the first run has primary or secondary claims, the sentences are about these.
    told = _confirmatory_claims([*by_claim])
    sentences = [
        _tell_effect(by_claim[claim], sample.name, base.name) for claim in told for sample in others
    ]
    if further := len(by_claim) - len(told):
        comparisons = format_count(further, "further comparison")
        sentences.append(word("runs", "further", comparisons=comparisons))
    rows: list[Row] = [
        {
            "claim": f"{capitalise(name_measure(result.claim))}: {result.claim.contrast_label}",
            "run": name,
            "family": result.claim.family if name in run_names else "between runs",
            **result_cells(result),
            # Within a run, only primary claims have a verdict.
            "verdict": result.conclusion if name in run_names else result.verdict,
        }
        for name, result in named_results
    ]
    run_results = [
        replace(
            result, claim=replace(result.claim, outcome=f"{name}, {name_measure(result.claim)}")
        )
        for name, result in named_results
        if name in run_names
    ]
    return Finding(
        "compare_effects",
        "Effects, run by run",
        join_sentences(sentences),
        ResultTable.from_records(
            rows,
            "Within a run the first condition minus the second. Between runs the difference of "
            "these: within subjects that are known in both runs if these drew the same people, "
            "otherwise by MOVER. Subjects known in one run only can make it unequal to the "
            "difference of the effects above it.",
        ),
        draw_differences(run_results, "effect"),
        notes=(
            "Adjusted p: by Holm's method, which limits the chance of even one false alarm in "
            "a family to 5 %. Within a run, the family is that of its sealed plan, as in its "
            "report, and only primary claims have a verdict. All other rows of this table are one "
            "family. p and 95 % intervals are not adjusted.",
        ),
        section=SECTION,
        **basis_of([result for _, result in named_results]),
    )


def _confirmatory_claims(claims: Sequence[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.family != "exploratory"] or [*claims]


@dataclass(frozen=True, slots=True)
class _Effect:
    # The comparison that a claim makes, evaluated in one run.

    # The difference of the two conditions and its verdict.
    result: Result
    # The rows of both conditions.
    arms: tuple[pl.DataFrame, pl.DataFrame]
    # The values and units of both conditions.
    sides: tuple[Side, Side]
    # The columns that identify a subject.
    subject: tuple[str, ...]
    # True if each subject is observed in both conditions.
    paired: bool
    # True if the result is that of the run's report.
    is_of_report: bool

    def estimate_effect(self, level: float = 0.95) -> Estimate:
        return estimate_difference(*self.sides, self.result.claim.kind, level)


def effects_by_claim(
    runs: Sequence[Sample], claims: Mapping[Claim, Sequence[Claim]]
) -> dict[str, dict[str, Result]]:
    """Return the effect of each claim in each run, as nested dicts.

    The outer keys are claims in words. The inner keys are names of runs.
    """
    # A run that lacks a condition of the claim has no entry for this claim.
    found: dict[str, dict[str, Result]] = {}
    samples = {sample.name: sample for sample in runs}
    for measure, measure_claims in claims.items():
        measured_by_run = {sample.name: read_measure(sample, measure) for sample in runs}
        for claim in _confirmatory_claims(measure_claims):
            label = f"{capitalise(name_measure(claim))}: {claim.contrast_label}"
            for name, measured in measured_by_run.items():
                effect = _effect_in(samples[name], measured, claim)
                if effect is not None:
                    found.setdefault(label, {})[name] = effect.result
    return found


def _effect_in(sample: Sample, measured: Measured | None, claim: Claim) -> _Effect | None:
    arms = [] if measured is None else [measured.arms.get(arm) for arm in claim.contrast]
    if measured is None or any(arm is None for arm in arms):
        return None
    first, second = (arm for arm in arms if arm is not None)
    subject = measured.claim.subject
    paired = claim.paired and bool(subject)
    # A subject passes through both conditions, so the condition does not belong to its key.
    keys = tuple(column for column in subject if column != claim.by)
    sides = pair_sides(first, second, keys) if paired else (side_of(first), side_of(second))
    if not all(side.units for side in sides):
        return None
    own_result = sample.result_of(claim)
    if own_result is not None and math.isfinite(own_result.estimate.value):
        return _Effect(own_result, (first, second), sides, keys, paired, True)
    # The run states no such comparison, so it is exploratory.
    exploratory = replace(
        claim, family="exploratory", kind=measured.claim.kind, unit=measured.claim.unit
    )
    result = evaluate(exploratory, *sides)
    return _Effect(result, (first, second), sides, keys, paired, False)


def _difference_between_runs(own: _Effect, base: _Effect, same_people: bool) -> Result:
    # Uses the first method that the data allow:
    # - Each subject is observed in both conditions: the difference of paired effects.
    # - Both runs drew the same participants: differences between the runs within each subject.
    # - Independent effects: MOVER (method of variance estimates recovery).
    subject = tuple(column for column in own.subject if column in base.subject)
    claim = replace(base.result.claim, direction="different", margin=0.0, family="exploratory")
    names = ("own", "base")
    if own.paired and base.paired:
        own_differences, base_differences = (
            paired_differences(*effect.arms, subject) for effect in (own, base)
        )
        sides = (
            pair_sides(own_differences, base_differences, subject)
            if same_people
            else sides_between(own_differences, base_differences, names)
        )
        estimate = estimate_difference(*sides, "mean")
    elif same_people and subject:
        first, second = (
            paired_differences(own_arm, base_arm, subject)
            for own_arm, base_arm in zip(own.arms, base.arms, strict=True)
        )
        estimate = estimate_difference(side_of(first), side_of(second), "mean")
    elif own.result.estimate.has_interval and base.result.estimate.has_interval:
        estimate = between(partial(own.estimate_effect), partial(base.estimate_effect))
    else:
        own_estimate, base_estimate = own.result.estimate, base.result.estimate
        few_units = min(own_estimate.unit_count, base_estimate.unit_count)
        estimate = Estimate(
            own_estimate.value - base_estimate.value,
            math.nan,
            math.nan,
            own_estimate.n + base_estimate.n,
            few_units,
        )
    # The reasons are those of the report of a single run.
    reason = ""
    if estimate.unit_count < FEWEST_UNITS:
        reason = refuse_few_units(estimate.unit_count)
    elif estimate.why:
        reason = word("refusal", "not tested because", why=estimate.why)
    return Result(
        claim,
        estimate,
        reason or judge(claim.direction, claim.margin, estimate),
        reason,
    )


def _between_draws(gap: Result, read: Sequence[Measured]) -> Result:
    # The independent units of runs that drew different texts are not those of the reports.
    units = [measured.unit_of(arm) for measured in read for arm in gap.claim.contrast]
    if units:
        gap = replace(gap, claim=replace(gap.claim, unit=join_unit_names(units)))
    if not gap.why:
        return gap
    why = word("refusal", "few draws", draws=gap.estimate.unit_count)
    return replace(gap, verdict=why, why=why)


def _tell_effect(results: Mapping[str, Result], run: str, base: str) -> Sentence:
    gap, claim = results[f"{run} − {base}"], results[base].claim
    base_estimate, run_estimate = (results[name].estimate for name in (base, run))
    # Readers subtract the effects, so they are printed with as many digits as their difference.
    more = gap.more_digits
    effects = word(
        "runs",
        "effects",
        measure=capitalise(name_measure(claim)),
        contrast=claim.contrast_label,
        first=claim.format_signed(base_estimate.value, more),
        first_run=base,
        second=claim.format_signed(run_estimate.value, more),
        second_run=run,
    )
    # Equal runs have a p-value and no interval, because no difference varies.
    if not gap.is_tested:
        return word(
            "runs",
            "effects not compared",
            effects=effects,
            numbers=gap.numbers_text,
            why=gap.why or NOT_TESTED,
        )
    differ = gap.verdict == SUPPORTED
    case = "effects differ" if differ else "effects not shown to differ"
    return word("runs", case, effects=effects, numbers=gap.numbers_text)
