"""Measure whether an effect changes if a part of the prompt is replaced."""
# An effect is the distance between the answers of two groups to one question. If it disappears, it
# depends on the replaced part. User drift (a difference in answers that no treatment should affect)
# is measured in the same way (`measures.drift`), so both can be compared.

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.hints import capitalise
from folkmoot.kit.controls.contrasts import (
    ComparedDecisions,
    Contrast,
    describe_uncompared,
    name_decisions,
)
from folkmoot.kit.controls.replacing import (
    NOT_ASKED,
    UNCHANGED,
    ReplacedFor,
    count_replaced,
    describe_left_out,
    from_session_run_again,
)
from folkmoot.kit.controls.tables import (
    AS_DESIGNED,
    NAMES,
    ORDER,
    REPLACING,
    RETEST,
    SAME_LENGTH,
    closed_value,
    count_decisions,
    expected_answers,
    given_answers,
    list_units,
    name_role,
    unit_name,
    without_single_role,
)
from folkmoot.kit.findings import (
    estimate_cells,
    fewest_units,
    format_points,
    format_share,
    interval_chart,
    name_few_units,
    p_value_cell,
    with_adjusted_p,
)
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, PASSED, Margin, Verdict
from folkmoot.measures.drift import ConditionAnswers, measure_drift
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.differences import Side, estimate_difference
from folkmoot.measures.inference.estimates import (
    ALPHA,
    Estimate,
    format_count,
    format_percent,
)
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding, ResultTable, TableCell

SECTION = "Controls"
USER_DRIFT = "user drift"
ANSWERS_AGAIN = "answers_in_each_version"
# The reversed order may move at most a tenth of the answers, as much as is allowed for user drift.
MOST_MOVED = Margin(high=0.1)
# Identifies one answer to a decision, however often it is asked. A form has several answers.
_ANSWER_OF_DECISION = ["unit", "participant_id", "decision_address", "field"]


class Version(NamedTuple):
    """The answers of one group to one decision with one version of the prompt."""

    # By field of a form with several closed fields. The key of any other answer is None.
    answers: Mapping[str | None, ConditionAnswers]
    # By unit, participant and field.
    by_participant: Mapping[tuple[str, str, str | None], str | float]
    # The number of decisions that could not be asked, because the participant had already replied
    # to a replaced text.
    replied: int
    # True if the version changed any prompt.
    is_changed: bool
    # The number of answered decisions with a changed prompt, by the speakers of the replaced texts.
    replaced: ReplacedFor


class Effect(NamedTuple):
    """The effect of a treatment, measured with one version of the prompts.

    `refused`: how many decisions could not be asked in this version.
    """

    estimate: Estimate
    # The number of decisions, of both groups together, that could not be asked in this version.
    refused: int
    # Whose texts were replaced, in both groups together.
    replaced: ReplacedFor = ReplacedFor()
    # The share of answers that differ between the two decisions of a participant.
    # None in contrasts of two conditions, and if no participant has both answers.
    changed: float | None = None


def measure_effects(
    table: pl.DataFrame, contrasts: Mapping[Contrast, ComparedDecisions | None]
) -> dict[Contrast, dict[str, Effect]]:
    """Return the effects of each contrast under the original and under each changed prompt.

    The inner key is the name of the version of the prompt.
    """
    # A change that left all prompts of the two groups as they were is left out.
    made = [name for name in REPLACING if name in set(table["control"])]
    found: dict[Contrast, dict[str, Effect]] = {}
    for contrast, compared in contrasts.items():
        if compared is None:
            continue
        own = table.filter(
            pl.col("decision_address").is_in(list(compared.addresses)), role=contrast.role
        )
        for name in (AS_DESIGNED, *made):
            groups = (contrast.first, contrast.second)
            arms = [
                _version(own, name, group, decision)
                for group, decision in zip(groups, compared[:2], strict=True)
            ]
            # A version that changed no prompt would show the original effect again.
            if name != AS_DESIGNED and not any(arm.is_changed or arm.replied for arm in arms):
                continue
            # A fixed seed per estimate: the same table must always give the same report.
            rng = generator(0, ("effect", name, *contrast.seed))
            # The effect on a form is the mean effect on its closed fields.
            first, second = (arm.answers for arm in arms)
            nothing = ConditionAnswers((), ())
            pairs = [(first[field], second[field]) for field in first if field in second]
            drift = measure_drift(pairs or [(nothing, nothing)], rng)
            refused = sum(arm.replied for arm in arms)
            replaced = arms[0].replaced.plus(arms[1].replaced)
            changed = _share_changed(*arms) if contrast.is_before_and_after else None
            effect = Effect(drift.mean, refused, replaced, changed)
            found.setdefault(contrast, {})[name] = effect
    return found


def _version(table: pl.DataFrame, name: str, group: tuple[str, str], decision: str) -> Version:
    # `name` is the kind of change, such as `placebo`, and `group` is (condition, moment). If the
    # change leaves the prompt as it was, the answer in the run counts.
    rows = table.filter(control=name, condition=group[0], moment=group[1], question=decision)
    decided = count_decisions(rows)["missing"].to_list()
    answers: dict[str | None, tuple[list[str | float], list[str]]] = {}
    by_participant: dict[tuple[str, str, str | None], str | float] = {}
    for row, unit in zip(rows.iter_rows(named=True), list_units(rows), strict=True):
        # Nothing to replace means that the prompt is as designed, so the original answer counts.
        value = row["expected"] if row["missing"] == UNCHANGED else None
        if value is None and row["missing"] is None:
            value = row["value"] if row["value"] is not None else row["number"]
        if value is not None:
            values, units = answers.setdefault(row["field"], ([], []))
            # Convert numbers, so that 3 and 3.0 are the same answer.
            values.append(closed_value(value))
            units.append(unit)
            by_participant[row["unit"], row["participant_id"], row["field"]] = values[-1]
    return Version(
        {
            field: ConditionAnswers(tuple(own), tuple(units))
            for field, (own, units) in answers.items()
        },
        by_participant,
        sum(reason in NOT_ASKED for reason in decided),
        any(reason not in (*NOT_ASKED, UNCHANGED) for reason in decided),
        count_replaced(rows),
    )


def _share_changed(first: Version, final: Version) -> float | None:
    both = [key for key in first.by_participant if key in final.by_participant]
    hits = [first.by_participant[key] != final.by_participant[key] for key in both]
    return sum(hits) / len(hits) if hits else None


def effects_finding(
    effects: Mapping[Contrast, Mapping[str, Effect]],
    drifts: Mapping[Contrast, Estimate],
    table: pl.DataFrame,
    decisions: Mapping[Contrast, ComparedDecisions | None],
) -> Finding | None:
    """Return the finding on how effects and side effects change if prompts are changed.

    - `decisions`: the two decisions that each contrast compares.

    Returns None if no prompt was changed.
    """
    # A side effect (user drift) is a difference in answers that the treatment should not affect.
    if not any(len(versions) > 1 for versions in effects.values()):
        return None
    rows: list[dict[str, TableCell]] = []
    lines: dict[str, Estimate] = {}
    for contrast, versions in effects.items():
        for name, effect in versions.items():
            lines[f"{contrast.says}: {effect.replaced.name_version(name)}"] = effect.estimate
            rows.append(_row(contrast, name, effect, name_decisions(contrast, decisions)))
        if contrast in drifts:
            lines[f"{contrast.says}: {USER_DRIFT}"] = drifts[contrast]
            rows.append(
                _row(contrast, USER_DRIFT, Effect(drifts[contrast], 0), "control questions")
            )
    remains, undecided = _judge_lengths(effects)
    # Without neutral texts there is no such column.
    for row in rows if any(SAME_LENGTH in versions for versions in effects.values()) else ():
        # Changes that cancel out may remain unseen, so no contrast passes.
        verdict = FAILED if row["contrast"] in remains else NOT_KNOWN
        row["verdict"] = verdict if row["version"] == NAMES[SAME_LENGTH] else None
    asked = table.filter(pl.col("control").is_in([RETEST, *REPLACING]))
    alarms = [word("control", "length, alarm", name=name) for name in remains]
    return Finding(
        "where_the_effect_comes_from",
        "Where the effect comes from",
        _describe_effects(effects, undecided, decisions, unit_name(table), [*lines.values()]),
        ResultTable.from_records(
            rows,
            "Effect: the distance (total variation) of the answers beyond chance, measured as user "
            "drift is. 95 % intervals by bootstrap over independent units, p by exchanging them. "
            "Changed: answers of a participant that differ between the two decisions, noise "
            "included. Refused: decisions that could not be asked, or were not reached, in this "
            "version. Replaced for: whether the texts are replaced in the prompts of one "
            "participant, or of all participants of a session that was run again. Verdict on the "
            f"length of the texts: failed if Holm's p with neutral texts is below {ALPHA}. It is "
            "not known otherwise, because changes that cancel out remain unseen.",
        ),
        interval_chart(lines, "distance of answers", percent=True),
        notes=(
            "The effect is that on the decision that is named. A primary claim of the study may be "
            "about another decision.",
            "The effect compares the shares of answers, in which changes in opposite directions "
            "cancel out. It may be 0 although all participants changed, and it may be larger "
            "without a persona only because all participants then change alike.",
            "An effect that remains with neutral texts of equal length comes from their length, or "
            "from being asked again.",
            *describe_uncompared(decisions),
            *_describe_sessions(asked),
            *describe_left_out(
                count_decisions(asked).select("control", "moment", "missing").iter_rows()
            ),
        ),
        section=SECTION,
        headline=bool(alarms),
        alarms=tuple(alarms),
        unit=unit_name(table),
        units=fewest_units(lines.values()),
    )


def _judge_lengths(
    effects: Mapping[Contrast, Mapping[str, Effect]],
) -> tuple[list[str], list[float]]:
    # The contrasts with an effect that remains with neutral texts, and the p-values as designed of
    # those in which shares of answers establish no effect, so that they cannot show its cause
    # either. An effect may be large there: of few units, the smallest possible p-value can be above
    # the limit once it is adjusted.
    # Several contrasts are tested, so the p-values are adjusted.
    remaining, designed = (
        with_adjusted_p(
            {
                contrast.says: versions[name].estimate
                for contrast, versions in effects.items()
                if SAME_LENGTH in versions
            }
        )
        for name in (SAME_LENGTH, AS_DESIGNED)
    )
    remains = [name for name, holm in remaining.items() if holm < ALPHA]
    return remains, [
        holm for name, holm in designed.items() if name not in remains and not holm < ALPHA
    ]


def _describe_undecided(p_values: Sequence[float]) -> Sentence:
    # Why no effect as designed is established. A p-value is NaN without a test.
    untested = sum(map(math.isnan, p_values))
    cases = {
        "effect not established": len(p_values) - untested,
        "effect not tested": untested,
    }
    return join_sentences(
        (word("control", case, number=number) for case, number in cases.items() if number), ", "
    )


def _describe_sessions(asked: pl.DataFrame) -> Iterator[str]:
    in_sessions = count_decisions(asked.filter(from_session_run_again()))
    if in_sessions.height:
        names = ", ".join(NAMES[name] for name in REPLACING if name in in_sessions["control"])
        yield (
            f"Sessions were run again for {in_sessions.height:,} answers ({names}), because their "
            "prompts hold values that the study computes from several replies. In these sessions "
            "the texts are replaced for all participants."
        )


def _row(contrast: Contrast, version: str, effect: Effect, decision: str) -> dict[str, TableCell]:
    return {
        "contrast": contrast.says,
        "decision": decision,
        "version": NAMES.get(version, version),
        "replaced for": effect.replaced.says if version in REPLACING else None,
        **estimate_cells(effect.estimate, "effect_share", "_share"),
        "p": p_value_cell(effect.estimate),
        "changed_share": effect.changed,
        "answers": effect.estimate.n,
        "units": fewest_units([effect.estimate]),
        "refused": effect.refused,
    }


def _describe_effects(
    effects: Mapping[Contrast, Mapping[str, Effect]],
    undecided: Sequence[float],
    decisions: Mapping[Contrast, ComparedDecisions | None],
    unit: str,
    all_rows: Sequence[Estimate],
) -> Sentence:
    clauses = []
    for contrast, versions in effects.items():
        if len(versions) > 1:
            parts = (
                word(
                    "control",
                    "version" if effect.changed is None else "version, changed",
                    version=effect.replaced.name_version(name),
                    # A distance is a difference of shares and has no sign.
                    share=format_points(
                        effect.estimate, name_few_units(effect.estimate, all_rows, unit)
                    ).replace("+", ""),
                    changed=None if effect.changed is None else format_percent(effect.changed),
                )
                if math.isfinite(effect.estimate.value)
                else word("control", "no answer", name=effect.replaced.name_version(name))
                for name, effect in versions.items()
            )
            versions_text = join_sentences(parts, ", ")
            clauses.append(
                word(
                    "control",
                    "effect",
                    contrast=contrast.says,
                    decision=name_decisions(contrast, decisions),
                    versions=versions_text,
                )
            )
    contrasts = format_count(
        sum(SAME_LENGTH in versions for versions in effects.values()), "contrast"
    )
    return join_sentences(
        [
            word("description", "list", values=join_sentences(clauses, "; ")),
            word(
                "control",
                "length, not known",
                number=len(undecided),
                over=contrasts,
                why=_describe_undecided(undecided),
            )
            if undecided
            else None,
        ]
    )


def list_shares(
    case: Literal["share", "share the same"],
    shares: Mapping[str, Estimate],
    unit: str,
    correlations: Mapping[str, str] = MappingProxyType({}),
) -> Sentence:
    """Return the sentence that lists each share with its interval.

    - `case`: the wording of each share, "share" or "share the same".
    - `unit`: the noun of the independent unit.
    - `correlations`: for decisions that are numbers, the correlation of both answers in words.
    """
    clauses = (
        word(
            "control",
            "numbers the same" if name in correlations else case,
            name=name,
            share=format_share(estimate, name_few_units(estimate, shares.values(), unit)),
            correlation=correlations.get(name),
        )
        if math.isfinite(estimate.value)
        else word("control", "no answer", name=name)
        for name, estimate in shares.items()
    )
    return word("description", "list", values=capitalise(join_sentences(clauses, "; ")))


def answers_again(table: pl.DataFrame, notes: tuple[str, ...] = ()) -> Finding | None:
    """Return the finding on how many answers stay the same when the prompt changes.

    - `notes`: sentences on contrasts that are not compared.

    Returns None if no prompt was changed.
    """
    rows: list[dict[str, TableCell]] = []
    shares: dict[str, Estimate] = {}
    # For each row: how far answers move in reversed order, by two figures. Other rows have none.
    moves: list[dict[str, Estimate]] = []
    asked = decisions_again(table, [RETEST, *REPLACING])
    if asked["missing"].is_not_null().all():
        return None
    # The reliability finding already covers the retest.
    if set(asked["control"]) <= {RETEST}:
        return None
    retest = asked.filter(pl.col("missing").is_null(), control=RETEST)
    for key, asked_rows in asked.group_by("control", "moment", "role", maintain_order=True):
        control, moment, role = map(str, key)
        own = asked_rows.filter(pl.col("missing").is_null())
        same = clustered_share(_are_same(own), list_units(own))
        by = [] if role == PARTICIPANT_ROLE else [role]
        shift = measure_drift(
            [*_before_and_after(own)], generator(0, ("again", control, moment, *by))
        )
        excess = None
        if control in REPLACING:
            excess = _changes_beyond_retest(own, retest.filter(role=role))
        replaced = count_replaced(own)
        name = f"{name_role(role)}{replaced.name_version(control)}, {moment} decision"
        shares[name] = same
        figures = {"shift": shift.mean, "excess": excess} if control == ORDER else {}
        moves.append({figure: found for figure, found in figures.items() if found is not None})
        rows.append(
            {
                "version": f"{name_role(role)}{NAMES[control]}",
                "role": role,
                "moment": moment,
                "replaced for": replaced.says if control in REPLACING else None,
                **estimate_cells(same, "same_share", "_share"),
                **_move_cells("shift_", "p", shift.mean),
                # Without a retest there are no such columns.
                **(_move_cells("excess_", "excess_p", excess) if retest.height else {}),
                "answers": same.n,
                "units": fewest_units([same]),
            }
        )
    tested = {
        (name, figure): estimate
        for name, figures in zip(shares, moves, strict=True)
        for figure, estimate in figures.items()
    }
    # Fewer changes than when asked again (an excess below zero) are no effect of the order.
    moved = list(
        dict.fromkeys(
            key[0]
            for key, holm in with_adjusted_p(tested).items()
            if holm < ALPHA and not tested[key].value < 0
        )
    )
    for row, (name, same), own_moves in zip(rows, shares.items(), moves, strict=True):
        row["verdict"] = _judge_order(own_moves, same, name in moved) if own_moves else None
    return Finding(
        ANSWERS_AGAIN,
        "Do the same people answer the same?",
        list_shares("share the same", shares, unit_name(asked)),
        ResultTable.from_records(
            without_single_role(rows),
            "Share of decisions that come out as designed. Shift: how far the distribution of "
            "answers moves (total variation beyond chance), which answers that change in opposite "
            "directions do not show. Excess: how many more answers change than when the same "
            "participants were asked the same decision again, below zero if fewer do; not known "
            "for decisions that were not asked again. p of the shift by exchanging the two answers "
            "of whole independent units. Interval and p of the excess by differences within "
            "participants (Tango and McNemar; with several answers per independent unit, "
            "clustered by unit). Verdict of an order: failed if answers shift, or if more of them "
            f"change, with Holm's p below {ALPHA}; passed if the whole intervals of the shift and "
            "of the excess (or of all changed answers) are at most "
            f"{format_percent(MOST_MOVED.high)}.",
        ),
        interval_chart(shares, "share who answer as designed", percent=True),
        notes=notes,
        section=SECTION,
        headline=bool(moved),
        alarms=tuple(word("control", "order, alarm", name=name) for name in moved),
        unit=unit_name(asked),
        units=fewest_units(shares.values()),
    )


def _move_cells(figure: str, p_column: str, estimate: Estimate | None) -> dict[str, TableCell]:
    cells = estimate_cells(estimate, "share", "_share")
    return {figure + name: cell for name, cell in cells.items()} | {
        p_column: p_value_cell(estimate) if estimate else None
    }


def _judge_order(figures: Mapping[str, Estimate], same: Estimate, has_moved: bool) -> Verdict:
    # A decision must not depend on the order. If options are listed in a random order, the shares
    # of answers stay as they are even if no participant gives the same answer. So both figures have
    # to be small. The share of all changed answers is an upper bound of the excess.
    if has_moved:
        return FAILED
    changed = replace(same, value=1 - same.value, low=1 - same.high, high=1 - same.low)
    is_passed = MOST_MOVED.judge_interval(figures["shift"]) == PASSED and PASSED in map(
        MOST_MOVED.judge_interval, (changed, figures.get("excess", changed))
    )
    # The verdict on a larger figure is "not known" if no test shows that answers move.
    return PASSED if is_passed else NOT_KNOWN


def _changes_beyond_retest(own: pl.DataFrame, retest: pl.DataFrame) -> Estimate | None:
    # How many more answers change in a version than when the decision is only asked again, among
    # the answers that have both. None if no decision of the version was asked again.
    key = _ANSWER_OF_DECISION
    both = own.join(retest, on=key, how="semi", nulls_equal=True).sort(key)
    again = retest.join(own, on=key, how="semi", nulls_equal=True).sort(key)
    if both.is_empty():
        return None
    # Both answers are compared with the same answer of the run, so the two shares of changed
    # answers are dependent. Their difference is therefore taken within participants.
    units, subjects = tuple(list_units(both)), tuple(both.select(key).rows())
    changed, noise = (
        Side(np.array([not hit for hit in _are_same(rows)], float), units, subjects=subjects)
        for rows in (both, again)
    )
    return estimate_difference(changed, noise, "share")


def _are_same(rows: pl.DataFrame) -> list[bool]:
    return [a == b for a, b in zip(expected_answers(rows), given_answers(rows), strict=True)]


def decisions_again(table: pl.DataFrame, controls: Sequence[str]) -> pl.DataFrame:
    """Return the rows of decisions that these controls asked again, answered or not."""
    # A decision that was not asked has a reason. A refusal counts as asked.
    reason = pl.col("missing")
    return table.filter(
        pl.col("control").is_in(controls)
        & pl.col("expected").is_not_null()
        & (reason.is_null() | ~reason.is_in([*NOT_ASKED, UNCHANGED]))
    )


def _before_and_after(rows: pl.DataFrame) -> Iterator[tuple[ConditionAnswers, ConditionAnswers]]:
    # The answers in the run and again. Each field of a form is a question.
    for _, own in rows.group_by("field", maintain_order=True):
        units = tuple(list_units(own))
        yield (
            ConditionAnswers(tuple(expected_answers(own)), units),
            ConditionAnswers(tuple(given_answers(own)), units),
        )
