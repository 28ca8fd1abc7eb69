"""The findings of the controls of a run."""
# They answer four questions. Do answers differ that no treatment should affect (user drift)? How do
# effects change with the prompts? Do participants keep their persona? Do they decide the same way
# when asked again?

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import polars as pl

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.settings.controls import ControlSettings
from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf, name_as_question
from folkmoot.engine.study.study import Study, conditions_of_run, find_study_of_run
from folkmoot.errors import StorageError
from folkmoot.kit.controls.asking import ControlsConfig
from folkmoot.kit.controls.contrasts import (
    Contrast,
    contrasts_in,
    decision_contrasts,
    describe_uncompared,
)
from folkmoot.kit.controls.conversations import read_attributes
from folkmoot.kit.controls.effects import (
    SECTION,
    Effect,
    answers_again,
    decisions_again,
    effects_finding,
    list_shares,
    measure_effects,
)
from folkmoot.kit.controls.persona_findings import persona_variance_finding
from folkmoot.kit.controls.tables import (
    ANSWER_KEYS,
    AS_DESIGNED,
    FACT,
    INDEPENDENT_UNIT,
    NEGATIVE,
    RETEST,
    ControlRow,
    are_controls_missing,
    expected_answers,
    given_answers,
    list_units,
    name_role,
    open_controls,
    unit_name,
    with_independent_units,
    without_single_role,
)
from folkmoot.kit.findings import (
    collect_findings,
    condition_name,
    estimate_cells,
    fewest_units,
    interval_chart,
    p_value_cell,
)
from folkmoot.measures.diagnostics import (
    FAILED,
    NOT_KNOWN,
    PASSED,
    Margin,
    Verdict,
    format_correlation,
)
from folkmoot.measures.drift import ConditionAnswers, Drift, measure_drift
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import (
    ALPHA,
    Estimate,
    finite_or_none,
    format_count,
    format_points,
)
from folkmoot.measures.retest import Repeat, agreement_with_oneself
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.randomness import generator
from folkmoot.storage.findings import Finding, ResultTable, TableCell
from folkmoot.storage.run_folder import RunFolder

BY_QUESTION, DISTRIBUTIONS = "negative_controls", "negative_distributions"
USER_DRIFT, PERSONA_KEPT, RELIABILITY = "user_drift", "persona_kept", "reliability"
UNFINISHED = "controls_unfinished"
ASKED = "who_was_asked"
# Keys of findings with long tables. The report has them, and the command line does not print them.
LONG = (BY_QUESTION, DISTRIBUTIONS)
# The mean distance may be at most a tenth of the answers.
MOST_DRIFT = Margin(high=0.1)
# At least 90 % of participants must state the age of their persona.
LEAST_KEPT = Margin(low=0.9)
# A second asking must repeat at least 80 % of decisions, or numbers that correlate by 0.8.
LEAST_RELIABLE = Margin(low=0.8)
FROM_WORST: tuple[Verdict, ...] = (FAILED, NOT_KNOWN, PASSED)


def control_findings(run: RunFolder, study: Study | None = None) -> list[Finding]:
    """Return the findings of the controls of a run, or an empty list without controls.

    `study`: the study type of the run. None means that it is looked up.

    If the controls are unfinished, or their folder is missing, returns one finding that says so.
    """
    controls = open_controls(run)
    if controls is None:
        if are_controls_missing(run):
            return [_not_known("Controls are missing", "controls missing")]
        # A finished run without the requested controls must not look like one that passed them.
        if requested_controls(run) is None or not run.is_finished:
            return []
        # A run without a usable result asks no controls, and a resume would not ask them either.
        if run.unusable_reason:
            title, key = "Controls were not asked", "controls, unusable"
            return [_not_known(title, key, reason=run.unusable_reason)]
        return [_not_known("Controls are not finished", "controls unfinished")]
    study = study or find_study_of_run(run)
    return findings_in(
        controls.read_table(ControlRow.table),
        _options_in(run),
        _margins(controls),
        read_attributes(run),
        study.decision_design,
        _conditions_in_order(run, study),
        question_of=_questions_of(run, study),
    )


def _questions_of(run: RunFolder, study: Study) -> QuestionOf:
    try:
        return study.decision_design.questions(run)
    # The settings are of a version that the present one cannot read.
    except StorageError:
        return name_as_question


def _conditions_in_order(run: RunFolder, study: Study) -> list[str]:
    # The conditions as the study declares them.
    by_column = conditions_of_run(study, run).values()
    return list(dict.fromkeys(condition for column in by_column for condition in column))


def requested_controls(run: RunFolder) -> ControlSettings | None:
    """Return the controls that the study file of a run names, or None if it names none."""
    # A fork has the settings of its source run, and asks no controls by itself.
    named = None if "fork" in run.manifest else run.config.get("controls")
    settings = ControlSettings.model_validate(named) if named else None
    return settings if settings is not None and settings.asks_anything else None


def findings_in(
    table: pl.DataFrame,
    options: Mapping[str, tuple[str, ...]],
    margins: Mapping[str, float],
    attributes: pl.DataFrame | None = None,
    design: DecisionDesign | None = None,
    conditions: Sequence[str] = (),
    *,
    question_of: QuestionOf = name_as_question,
) -> list[Finding]:
    """Return the findings of a table of answers to control questions.

    - `options`: a map from the address of a decision to the options of the decision.
    - `margins`: for each question, the largest difference that counts as no difference.
    - `attributes`: the stated attributes of the participants, or None.
    - `design`: what the study type declares about its decisions, or None for the defaults.
    - `conditions`: the conditions in the order of the study.
    - `question_of`: returns the question of a decision, see `DecisionDesign.questions`.
    """
    # The options have one order for all participants.
    design = design or DecisionDesign()
    table = with_independent_units(with_roles(table), design.independent_unit)
    contrasts = decision_contrasts(table, options, conditions, question_of)
    # Drift findings show the effect next to the drift, so effects are measured first.
    effects = measure_effects(table, contrasts)
    drifts, drift_findings = _drift_findings(table, effects, margins, conditions)
    means = {contrast: drift.mean for contrast, drift in drifts.items()}
    compared = effects_finding(effects, means, table, contrasts)
    # Without any comparison, the finding on the same answers says why there is none.
    notes = tuple(describe_uncompared(contrasts)) if compared is None else ()
    return collect_findings(
        _asked_finding(table),
        compared,
        answers_again(table, notes),
        drift_findings,
        _persona_kept_finding(table),
        _reliability_finding(table),
        persona_variance_finding(table, attributes),
    )


def with_roles(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table of control answers with all columns of the present version.

    Columns that an earlier version of Folkmoot did not record are filled in.
    """
    # Earlier versions asked participants alone, and compared no forms with several fields.
    for name in ("role", "speaker_id", "field"):
        if name not in table.columns:
            table = table.with_columns(pl.lit(None, pl.String).alias(name))
    return table.with_columns(
        pl.col("role").fill_null(PARTICIPANT_ROLE),
        pl.col("speaker_id").fill_null(pl.col("participant_id")),
    )


def _asked_finding(table: pl.DataFrame) -> Finding | None:
    # Who was asked control questions, and how many of their answers are missing.
    asked = table.filter(pl.col("control") != AS_DESIGNED, pl.col("address") != "")
    if asked.is_empty():
        return None
    is_shared = pl.col("speaker_id") != pl.col("participant_id")
    rows: list[dict[str, TableCell]] = []
    said = []
    who = pl.struct(INDEPENDENT_UNIT, "participant_id").n_unique()
    groups = asked.with_columns(shared=is_shared).group_by("role", "shared", maintain_order=True)
    for (role, shared), own in groups:
        # A form has a row for each of its fields, but it is one answer.
        answers = own.unique(ANSWER_KEYS)
        missing = answers["missing"].drop_nulls()
        kind = (
            "asked, shared" if shared else "asked" if role == PARTICIPANT_ROLE else "asked, leading"
        )
        speakers = own.select(who).item()
        said.append(
            word(
                "control",
                kind,
                speakers=format_count(speakers, str(role)),
                answers=format_count(answers.height, "question"),
                missing=f"{missing.len():,}",
            )
        )
        reasons = missing.value_counts(sort=True).sort("missing").rows()
        rows.append(
            {
                "role": str(role),
                "asked in": "a reply for several" if shared else "their own conversation",
                "speakers": speakers,
                "decisions": own.select(
                    pl.struct("decision_address", "participant_id").n_unique()
                ).item(),
                "questions": answers.height,
                "missing": missing.len(),
                "reasons": ", ".join(f"{reason} {count:,}" for reason, count in reasons) or None,
            }
        )
    return Finding(
        ASKED,
        "Who was asked",
        word("description", "list", values=join_sentences(said, "; ")),
        ResultTable.from_records(
            rows,
            "Control questions by who answered. Missing: replies that are a refusal or a way out, "
            "or that could not be read.",
        ),
        section=SECTION,
    )


def _options_in(run: RunFolder) -> dict[str, tuple[str, ...]]:
    listed = run.rows("answers", "address", "options")
    # Each participant sees the options in a random order, so they are sorted to be comparable.
    return {address: tuple(sorted(json.loads(text or "[]"))) for address, text in listed}


def _margins(controls: RunFolder) -> dict[str, float]:
    settings = controls.read_settings(ControlsConfig).requested_controls
    return {question.id: question.equivalence_margin for question in settings.questions}


def _not_known(title: str, key: str, **values: str) -> Finding:
    # `key`: the refusal that says why the results of the controls are not known.
    return Finding(
        UNFINISHED,
        title,
        word("refusal", key, **values),
        ResultTable((), ()),
        section=SECTION,
        headline=True,
    )


def _drift_findings(
    table: pl.DataFrame,
    effects: Mapping[Contrast, Mapping[str, Effect]],
    margins: Mapping[str, float],
    conditions: Sequence[str],
) -> tuple[dict[Contrast, Drift], list[Finding]]:
    asked = table.filter(control=NEGATIVE)
    negative = asked.filter(pl.col("missing").is_null())
    if negative.is_empty():
        return {}, []
    questions = negative["question"].unique(maintain_order=True).to_list()
    # A condition in which all declined has contrasts too. Its drift is not known.
    drifts = {
        contrast: _measure_contrast_drift(negative, contrast, questions)
        for contrast in contrasts_in(asked, conditions)
    }
    if not drifts:
        return {}, []
    # Judge by the whole interval: a small point estimate with a wide interval shows no equality.
    verdicts = {
        contrast: MOST_DRIFT.judge_interval(drift.mean) for contrast, drift in drifts.items()
    }
    # The drift is compared with the effect as designed: an effect not larger than the drift may be
    # due to different participants.
    designed = {contrast: versions[AS_DESIGNED].estimate for contrast, versions in effects.items()}
    rows: list[dict[str, TableCell]] = [
        {
            "contrast": contrast.says,
            "role": contrast.role,
            **estimate_cells(drift.mean, "drift_share", "_share"),
            "p": p_value_cell(drift.mean),
            "effect_share": finite_or_none(designed[contrast].value)
            if contrast in designed
            else None,
            "units": fewest_units([drift.mean]),
            "verdict": verdicts[contrast],
        }
        for contrast, drift in drifts.items()
    ]
    failed = [contrast.says for contrast, verdict in verdicts.items() if verdict == FAILED]
    lines = {}
    for contrast, drift in drifts.items():
        lines[f"{contrast.says}: user drift"] = drift.mean
        if contrast in designed:
            lines[f"{contrast.says}: effect"] = designed[contrast]
    drift_finding = Finding(
        USER_DRIFT,
        "Does the treatment change who answers?",
        _describe_drift(list(verdicts.values()), failed),
        ResultTable.from_records(
            without_single_role(rows),
            "Drift: the mean total variation of the negative controls beyond chance. Effect: the "
            "same figure of the decision itself. 95 % intervals by bootstrap over independent "
            "units, p by exchanging them.",
        ),
        interval_chart(lines, "distance of answers", percent=True),
        notes=(
            "Negative controls are questions that no treatment can change. If their answers "
            "differ between conditions, the model plays other people than before, and an effect "
            'may come from this change ("The Illusion of Intervention", arXiv 2605.20767).',
        ),
        section=SECTION,
        headline=bool(failed),
        alarms=tuple(word("control", "drift, alarm", name=name) for name in failed),
        unit=unit_name(negative),
        units=fewest_units(drift.mean for drift in drifts.values()),
    )
    return drifts, [
        drift_finding,
        _question_finding(drifts, questions, margins, negative),
        _distributions(negative, questions, asked),
    ]


def _describe_drift(verdicts: Sequence[str], failed: Sequence[str]) -> Sentence:
    passed, unknown = verdicts.count(PASSED), verdicts.count(NOT_KNOWN)
    clauses = [
        word(
            "control",
            "drift",
            margin=format_points(MOST_DRIFT.high).removeprefix("+"),
            passed=passed,
            contrasts=format_count(len(verdicts), "contrast"),
        ),
        word("control", "drift, failed", names=", ".join(failed)) if failed else None,
        word("control", "drift, not known", number=unknown) if unknown else None,
    ]
    return word("description", "list", values=join_sentences(clauses, "; "))


def _question_finding(
    drifts: Mapping[Contrast, Drift],
    questions: Sequence[str],
    margins: Mapping[str, float],
    negative: pl.DataFrame,
) -> Finding:
    rows: list[dict[str, TableCell]] = []
    for contrast, drift in drifts.items():
        for name, question in zip(questions, drift.questions, strict=True):
            margin = margins.get(name)
            verdict = NOT_KNOWN
            if margin is not None:
                # A difference of means has a sign, so it has bounds on both sides. A total
                # variation has none.
                low = -margin if question.is_numeric else -math.inf
                verdict = Margin(low, margin).judge_interval(question.difference)
                # Answers that are equal within each condition and differ between them.
                if math.isinf(question.difference.value) and question.p < ALPHA:
                    verdict = FAILED
            rows.append(
                {
                    "contrast": contrast.says,
                    "question": name,
                    "measure": "difference of means" if question.is_numeric else "total variation",
                    **estimate_cells(question.difference, "distance"),
                    "p": p_value_cell(question.difference),
                    "margin": margin,
                    "units": fewest_units([question.difference]),
                    "equal": word("control", verdict),
                }
            )
    equal, other = (
        sum(row["equal"] == word("control", verdict) for row in rows)
        for verdict in (PASSED, FAILED)
    )
    return Finding(
        BY_QUESTION,
        "Negative controls, question by question",
        word(
            "control",
            "questions",
            comparisons=format_count(len(rows), "comparison"),
            questions=format_count(len(questions), "question"),
            equal=f"{equal:,}",
            other=f"{other:,}",
            unknown=f"{len(rows) - equal - other:,}",
        ),
        ResultTable.from_records(
            rows,
            "Total variation: half the sum of the absolute differences of shares, beyond chance. "
            "Difference of means: in standard deviations, second minus first. 95 % intervals by "
            "bootstrap over independent units, p by exchanging them, not adjusted. Equal: the "
            "interval lies within the margin; a difference that no test shows may "
            "still exist.",
        ),
        section=SECTION,
        unit=unit_name(negative),
        units=fewest_units(drift.mean for drift in drifts.values()),
    )


def _distributions(
    negative: pl.DataFrame, questions: Sequence[str], asked: pl.DataFrame
) -> Finding:
    keys = ("role", "condition", "moment")
    groups = asked.select(keys).unique(maintain_order=True).rows()
    rows: list[dict[str, TableCell]] = []
    for name in questions:
        own = negative.filter(question=name)
        parts = {
            (role, condition, moment): own.filter(role=role, condition=condition, moment=moment)
            for role, condition, moment in groups
        }
        if own["value"].is_null().all():
            # Questions with numbers have many different answers, so the table gives mean and
            # standard deviation.
            for what, take in (("mean", pl.Series.mean), ("standard deviation", pl.Series.std)):
                figures = {
                    _column(g): _rounded_number(take(part["number"])) for g, part in parts.items()
                }
                rows.append({"question": name, "answer": what, **figures})
            continue
        for answer in own["value"].unique(maintain_order=True).drop_nulls().to_list():
            figures = {
                _column(g): _rounded_number((part["value"] == answer).mean())
                for g, part in parts.items()
            }
            rows.append({"question": name, "answer": answer, **figures})
    return Finding(
        DISTRIBUTIONS,
        "Answers to the negative controls",
        word("control", "distributions", groups=format_count(len(groups), "group")),
        ResultTable.from_records(
            rows, "Shares of those who gave an answer; numbers as they were given."
        ),
        section=SECTION,
    )


def _column(group: tuple[str, str, str]) -> str:
    role, condition, moment = group
    return f"{name_role(role)}{condition_name(condition)}, {moment}"


def _rounded_number(value: object) -> float | None:
    return round(float(value), 3) if isinstance(value, (int, float)) else None


def _measure_contrast_drift(
    negative: pl.DataFrame, contrast: Contrast, questions: Sequence[str]
) -> Drift:
    own = negative.filter(role=contrast.role)
    arms = [
        own.filter(condition=condition, moment=moment)
        for condition, moment in (contrast.first, contrast.second)
    ]
    pairs = [(_answers_of_arm(arms[0], name), _answers_of_arm(arms[1], name)) for name in questions]
    return measure_drift(pairs, generator(0, ("drift", *contrast.seed)))


def _answers_of_arm(arm: pl.DataFrame, question: str) -> ConditionAnswers:
    rows = arm.filter(question=question)
    values = [
        value if value is not None else name
        for value, name in rows.select("value", "number").iter_rows()
    ]
    return ConditionAnswers(tuple(values), tuple(list_units(rows)))


def _persona_kept_finding(table: pl.DataFrame) -> Finding | None:
    facts = table.filter(control=FACT)
    if facts.is_empty():
        return None
    shares: dict[str, Estimate] = {}
    for (condition, moment), rows in facts.group_by("condition", "moment", maintain_order=True):
        # A refusal or another missing answer counts as a miss.
        hits = [
            number is not None and float(expected) == number
            for number, expected in rows.select("number", "expected").iter_rows()
        ]
        shares[f"{condition_name(str(condition))}, {moment} decision"] = clustered_share(
            hits, list_units(rows)
        )
    failed = [
        name for name, estimate in shares.items() if LEAST_KEPT.judge_interval(estimate) == FAILED
    ]
    return Finding(
        PERSONA_KEPT,
        "Is the persona kept?",
        list_shares("share", shares, unit_name(facts)),
        ResultTable.from_records(
            [
                {
                    "after": name,
                    **estimate_cells(estimate, "kept_share", "_share"),
                    "answers": estimate.n,
                    "units": fewest_units([estimate]),
                    "verdict": LEAST_KEPT.judge_interval(estimate),
                }
                for name, estimate in shares.items()
            ],
            "Share of participants who give the age that their persona states. A refusal counts as "
            "not kept.",
        ),
        interval_chart(shares, "share who give the persona's age", percent=True),
        section=SECTION,
        headline=bool(failed),
        alarms=tuple(word("control", "kept, alarm", name=name) for name in failed),
        unit=unit_name(facts),
        units=fewest_units(shares.values()),
    )


def _reliability_finding(table: pl.DataFrame) -> Finding | None:
    again = decisions_again(table, [RETEST])
    if again["missing"].is_not_null().all():
        return None
    rows: list[dict[str, TableCell]] = []
    verdicts = []
    correlations: dict[str, str] = {}
    for (decision, role), asked_rows in again.group_by("question", "role", maintain_order=True):
        own = asked_rows.filter(pl.col("missing").is_null())
        own_units = list_units(own)
        first, second = expected_answers(own), given_answers(own)
        hits = [a == b for a, b in zip(first, second, strict=True)]
        same = clustered_share(hits, own_units)
        asked = [f"{decision} {field}" for field in own["field"].to_list()]
        # A form may have fields with options and with numbers. Then all are compared as options.
        if len({isinstance(answer, str) for answer in (*first, *second)}) > 1:
            first, second = [*map(str, first)], [*map(str, second)]
        repeats = map(Repeat, own_units, asked, first, second)
        # The share of equal answers is high if nearly all participants choose one option. Agreement
        # beyond chance corrects for that.
        agreement = agreement_with_oneself(list(repeats)) if hits else same
        verdict = LEAST_RELIABLE.judge_interval(same)
        name = f"{name_role(str(role))}{decision}"
        correlation = None
        # Few people repeat a number of a long scale exactly, however reliable it is. If all numbers
        # are equal there is no correlation, and the share of equal answers decides alone.
        if hits and not isinstance(first[0], str) and agreement.has_interval:
            correlation = correlations[name] = format_correlation(agreement)
            verdict = max(verdict, LEAST_RELIABLE.judge_interval(agreement), key=FROM_WORST.index)
        verdicts.append((name, same, verdict))
        rows.append(
            {
                "decision": str(decision),
                "role": str(role),
                **estimate_cells(same, "same_share", "_share"),
                "kappa or r": finite_or_none(agreement.value),
                **({"r of numbers": correlation} if correlation else {}),
                "answers": same.n,
                "units": fewest_units([same]),
                "verdict": verdict,
            }
        )
    failed = [name for name, _, verdict in verdicts if verdict == FAILED]
    return Finding(
        RELIABILITY,
        "Would the same people decide the same again?",
        list_shares(
            "share the same",
            {name: estimate for name, estimate, _ in verdicts},
            unit_name(again),
            correlations,
        ),
        ResultTable.from_records(
            without_single_role(rows),
            "The decision asked again in a fresh conversation. Share of equal answers with its "
            "95 % interval, and agreement beyond chance: kappa of choices, as a share of the "
            "largest possible one apart from sampling error, and the correlation of numbers. A "
            "number is judged by the better of both figures.",
        ),
        section=SECTION,
        headline=bool(failed),
        alarms=tuple(word("control", "reliability, alarm", name=name) for name in failed),
        unit=unit_name(again),
        units=fewest_units(estimate for _, estimate, _ in verdicts),
    )
