"""The findings of a workbook run: sessions, rounds, treatments, answers, constants and quality.

The session is the independent unit, because its participants influence each other.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from folkmoot.engine.settings.claims import average_rounds
from folkmoot.hints import capitalise, join_words, number_text
from folkmoot.kit import findings as kit
from folkmoot.kit.claims import JOINT_LEVELS, LEVELS, describe_claims, read_results
from folkmoot.kit.exposure import exposure_finding
from folkmoot.kit.reply_units import check_replies, drop_humans
from folkmoot.kit.retest import pair_answers
from folkmoot.measures.diagnostics import Row, check_instability
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.clustered import clustered_share, skewed_mean
from folkmoot.measures.inference.estimates import Estimate, format_count, format_percent
from folkmoot.measures.position import Shown, shown_in
from folkmoot.measures.reply_checks import part_of_stage
from folkmoot.measures.retest import Repeat
from folkmoot.measures.wording import EXPLORATORY, join_sentences, word
from folkmoot.storage.findings import BarChart, Finding, LineChart, ResultTable, format_number
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook.answers import ANSWER_KIND, ListedOptions, read_options
from folkmoot.studies.workbook.config import (
    NUMBERS,
    Measure,
    Workbook,
    WorkbookConfig,
    declare_claims,
    measures_of,
)
from folkmoot.studies.workbook.literals import NotALiteral
from folkmoot.studies.workbook.sessions import EMPTY_PROMPT
from folkmoot.studies.workbook.tables import ComputedValue, SessionPlayed

# Limits that keep a report readable: findings per kind, bars of a distribution, lines of a chart.
MOST_MEASURES = 12
MOST_BARS = 12
MOST_LINES = 40
PERSON = ("experiment_id", "session", "treatment", "participant_id")
CLUSTERED = "95 % intervals, clustered by session"
# A note of a table that holds the mean of each condition beside the results of claims.
ROUNDS_OF_BOTH = (
    "A difference leaves out rounds without a value in one of its two conditions. So it may depart "
    "from the difference of the means in this table."
)


def compute_findings(run: RunFolder) -> list[Finding]:
    """Return all findings of a finished run."""
    sessions = run.read_rows(SessionPlayed)
    if sessions.is_empty():
        return []
    assignment = run.read_table("assignment")
    seated = assignment["participant_id"].unique().to_list()
    # Leave out the Facilitator and the Summarizer, who are no participants.
    responses = run.read_table("responses").filter(pl.col("participant_id").is_in(seated))
    values = values_of(run, responses)
    design = run.read_settings(WorkbookConfig).workbook
    results_alone = values.filter(
        pl.col("number").is_not_null(), ~pl.col("name").is_in(design.helper_names)
    )
    names = results_alone.select("name", "computed").unique(maintain_order=True).iter_rows()
    # The first measures in the order of the data, so that a large workbook has a readable report.
    all_measures = measures_of(names, design)
    measures = all_measures[:MOST_MEASURES]
    choices = _closed_answers(responses)["var_name"].n_unique()
    results = read_results(run, WorkbookConfig, declare_claims)
    treatments = _played_treatments(design, sessions)
    some_computed = any(measure.computed for measure in measures)
    return kit.collect_findings(
        replace(
            session_finding(sessions, assignment, treatments),
            notes=_name_left_out(len(all_measures), choices),
        ),
        *(
            [
                by_round(measure, values, treatments) if len(measure.rounds) > 1 else None,
                by_treatment(
                    measure,
                    values,
                    treatments,
                    _measure_results(measure, results, "treatment"),
                    main=measure.computed or not some_computed,
                ),
            ]
            for measure in measures
        ),
        [
            distribution_finding(measure, values, treatments)
            for measure in measures
            if not measure.computed
        ],
        option_shares(responses, treatments, _closed_options(design)),
        by_constants(run, measures, values, results),
        quality_finding(responses),
        fitness_finding(run),
        exposure_finding(run),
    )


def _name_left_out(measures: int, choices: int) -> tuple[str, ...]:
    counts = {"figures": measures, "choices": choices}
    return tuple(
        f"The report shows the first {MOST_MEASURES} of {count:,} {noun}. The tables have all."
        for noun, count in counts.items()
        if count > MOST_MEASURES
    )


def _closed_answers(responses: pl.DataFrame) -> pl.DataFrame:
    # Valid choices from lists of options that are no numbers.
    return responses.filter(
        pl.col("options").is_not_null() & (pl.col("status") == "valid") & pl.col("number").is_null()
    )


def _played_treatments(design: Workbook, sessions: pl.DataFrame) -> list[str]:
    played_labels = list(dict.fromkeys(sessions["treatment"].to_list()))
    ordered = [
        treatment.label for treatment in design.treatments if treatment.label in played_labels
    ]
    return [*ordered, *(treatment for treatment in played_labels if treatment not in ordered)]


def _closed_options(design: Workbook) -> dict[str, tuple[str, ...]]:
    # Roles may have different options for one task. Such a task is left out.
    options_by_variable: dict[str, tuple[str, ...]] = {}
    for task in design.tasks:
        with contextlib.suppress(NotALiteral):
            options = read_options(task.response_options or "")
            if isinstance(options, ListedOptions):
                options_by_variable[task.var_name] = options.options
    return options_by_variable


def values_of(run: RunFolder, responses: pl.DataFrame) -> pl.DataFrame:
    """Return all numeric answers and computed values of participants, one number per row.

    The number of a missing or invalid value is null.
    """
    # Columns: name, experiment, session, treatment, participant, number, computed.
    number = pl.col("number").cast(pl.Float64)
    # Invalid numbers are in the files, but do not count.
    valid = pl.when(pl.col("status") != "invalid").then(number)
    asked = responses.select(*PERSON, name="var_name", number=valid, computed=pl.lit(False))
    personal = run.read_rows(ComputedValue).filter(pl.col("participant_id").is_not_null())
    return pl.concat([asked, personal.select(*PERSON, "name", number, computed=pl.lit(True))])


def rows_of(measure: Measure, values: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `values` with a number that belong to a measure."""
    return _asked_rows(measure, values).filter(pl.col("number").is_not_null())


def _asked_rows(measure: Measure, values: pl.DataFrame) -> pl.DataFrame:
    return values.filter(pl.col("name").is_in(measure.variable_names))


def per_participant(measure: Measure, values: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return the mean of a measure over its rounds, one row per participant and experiment.

    - `by`: the column with the conditions, `treatment` or `experiment_id`.
    """
    # As in the claims about the measure, a mean does not depend on which rounds are missing.
    asked = _asked_rows(measure, values).with_columns(
        arm=pl.col(by), unit="session", value="number"
    )
    means = average_rounds(asked, PERSON, ("experiment_id", "name"), are_shares=measure.is_share)
    return means.filter(pl.col("value").is_not_null()).rename({"value": "number"})


def _mean_of_people(measure: Measure, people: pl.DataFrame) -> Estimate:
    # The interval of a share stays between 0 and 1.
    estimate_mean = clustered_share if measure.is_share else skewed_mean
    return estimate_mean(people["number"].to_numpy(), people["session"].to_list())


def _session_count(data: pl.DataFrame) -> int:
    return data["session"].n_unique()


def session_finding(
    sessions: pl.DataFrame, assignment: pl.DataFrame, treatments: Sequence[str]
) -> Finding:
    """Build the finding that counts the sessions."""
    # It also counts the sessions that a limit ended. All experiments of a workbook have the same
    # participants, who count once.
    played = assignment.join(sessions, on=["experiment_id", "session"], how="semi")
    rows: list[kit.Row] = []
    for treatment in treatments:
        treatment_sessions = sessions.filter(treatment=treatment)
        rows.append(
            {
                "treatment": treatment,
                "sessions": treatment_sessions.height,
                "participants": played.filter(treatment=treatment)["participant_id"].n_unique(),
                "messages": int(treatment_sessions["messages"].sum()),
                "cut short": treatment_sessions.filter(pl.col("ended") != "completed").height,
            }
        )
    cut_count = sessions.filter(pl.col("ended") != "completed").height
    ending_text = (
        f"{format_count(cut_count, 'session')} ended at a limit"
        if cut_count
        else "all of them completed"
    )
    experiment_count = sessions["experiment_id"].n_unique()
    experiment_text = (
        f" of {format_count(experiment_count, 'experiment')}" if experiment_count > 1 else ""
    )
    participant_text = format_count(played["participant_id"].n_unique(), "participant")
    return Finding(
        "play",
        "What was played",
        f"{format_count(sessions.height, 'session')}{experiment_text} with "
        f"{participant_text} were played, {ending_text}.",
        ResultTable.from_records(rows),
        section="Play",
        headline=True,
    )


# --- numbers -----------------------------------------------------------------------------------


def by_round(measure: Measure, values: pl.DataFrame, treatments: Sequence[str]) -> Finding:
    """Build the finding on the mean of a measure in each round and treatment."""
    means = (
        rows_of(measure, values)
        .group_by("treatment", "name", maintain_order=True)
        .agg(pl.col("number").mean(), pl.len())
    )
    means_by_round = {
        (treatment, name): (mean, n) for treatment, name, mean, n in means.iter_rows()
    }
    rows = [
        {
            "treatment": treatment,
            "round": number,
            f"mean{_share_suffix(measure)}": means_by_round[treatment, name][0],
            "n": means_by_round[treatment, name][1],
        }
        for treatment in treatments
        for number, name in measure.rounds
        if (treatment, name) in means_by_round
    ]
    courses = "; ".join(
        _describe_course(measure, treatment, [row for row in rows if row["treatment"] == treatment])
        for treatment in treatments
    )
    return Finding(
        f"rounds_{measure.name}",
        f"{measure.words}, round by round",
        word("description", "courses", what=measure.words, values=courses),
        ResultTable.from_records(rows),
        LineChart(
            tuple(
                (row["treatment"], float(row["round"]), row[f"mean{_share_suffix(measure)}"])
                for row in rows
            ),
            x="round",
            y=measure.name,
        ),
        section="Rounds",
        headline=measure.computed,
        unit="session",
        units=_session_count(rows_of(measure, values)),
    )


def _share_suffix(measure: Measure) -> str:
    # The report shows a column with this ending in per cent.
    return "_share" if measure.is_share else ""


def _format_mean(measure: Measure, mean: float) -> str:
    return format_percent(mean) if measure.is_share else _format_figure(mean)


def _format_figure(value: float) -> str:
    # As in a table, but a whole number has no decimals.
    text = f"{value:,.0f}" if value.is_integer() else format_number(value)
    return text.replace("-", "−")


def _describe_course(measure: Measure, treatment: str, rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return f"{treatment}: no values"
    first, last = (
        f"{_format_mean(measure, row[f'mean{_share_suffix(measure)}'])} in round {row['round']}"
        for row in (rows[0], rows[-1])
    )
    return f"{treatment}: {first}, {last}" if len(rows) > 1 else f"{treatment}: {first}"


def _measure_results(measure: Measure, results: Sequence[Result], by: str) -> list[Result]:
    matching = (result for result in results if result.claim.by == by and result.counts != (0, 0))
    table = NUMBERS[measure.computed]
    # Plans that were sealed earlier name no units.
    outcomes = (measure.label, measure.outcome)
    return [
        result
        for result in matching
        if result.claim.measure == table and result.claim.outcome in outcomes
    ]


def by_treatment(
    measure: Measure,
    values: pl.DataFrame,
    treatments: Sequence[str],
    results: Sequence[Result],
    *,
    main: bool = True,
) -> Finding:
    """Build the finding that compares a measure between treatments.

    `main`: True if the finding can be a headline.
    """
    participants = per_participant(measure, values, "treatment")
    estimates = {
        treatment: _mean_of_people(measure, participants.filter(treatment=treatment))
        for treatment in treatments
    }
    # An treatment without values has no row.
    estimates = {treatment: estimate for treatment, estimate in estimates.items() if estimate.n}
    results_by_treatment = {result.claim.contrast[0]: result for result in results}
    has_joint_intervals = any(result.joint is not None for result in results)
    rows: list[kit.Row] = [
        {
            "treatment": treatment,
            **_mean_cells(measure, estimate),
            "participants": estimate.n,
            "sessions": estimate.clusters,
            **(
                _minus_first(measure, results_by_treatment.get(treatment), has_joint_intervals)
                if results_by_treatment
                else {}
            ),
        }
        for treatment, estimate in estimates.items()
    ]
    if results_by_treatment:
        statement = describe_claims(results, capitalise(measure.label))
    else:
        means = (
            word(
                "description",
                "under",
                value=_format_mean(measure, estimate.value),
                condition=treatment,
            )
            for treatment, estimate in estimates.items()
        )
        statement = word(
            "description",
            "means",
            what=measure.label,
            values=join_sentences(means, ", "),
            number=format_count(participants.height, "participant"),
        )
    return Finding(
        f"treatment_{measure.name}",
        f"{measure.words}, by treatment",
        statement,
        ResultTable.from_records(rows, CLUSTERED),
        kit.interval_chart(estimates, measure.label, percent=measure.is_share)
        if len(estimates) > 1
        else None,
        notes=(
            *([LEVELS] if results_by_treatment else []),
            *([JOINT_LEVELS] if has_joint_intervals else []),
            *([ROUNDS_OF_BOTH] if _leave_out_rounds(results, estimates) else []),
        ),
        section="Treatments",
        headline=main and len(estimates) > 1,
        primary=any(result.claim.family == "primary" for result in results),
        unit="session",
        units=_session_count(participants),
    )


def _leave_out_rounds(results: Iterable[Result], means: Mapping[str, Estimate]) -> bool:
    # Whether a condition has another mean in a comparison than in the table. Paired comparisons
    # have others as well if they exclude subjects, which reports say elsewhere.
    return any(
        not math.isclose(of_claim, means[condition].value, rel_tol=1e-6, abs_tol=1e-9)
        for result in results
        for condition, of_claim in zip(result.claim.contrast, result.means, strict=True)
        if condition in means and math.isfinite(of_claim) and not result.claim.paired
    )


def _mean_cells(measure: Measure, estimate: Estimate) -> kit.Row:
    suffix = _share_suffix(measure)
    return kit.estimate_cells(estimate, f"mean{suffix}", suffix)


def _minus_first(
    measure: Measure, result: Result | None, has_joint_intervals: bool = False
) -> kit.Row:
    # All cells are None if there is no result.
    suffix = "_points" if measure.is_share else ""
    differences = (f"{name}{suffix}" for name in ("minus_first", "minus_low", "minus_high"))
    joint_names = [f"minus_joint_low{suffix}", f"minus_joint_high{suffix}"]
    names = (*differences, "p", "adjusted_p", *(joint_names if has_joint_intervals else ()))
    if result is None:
        return dict.fromkeys(names)
    estimate = result.estimate
    bounds = (estimate.low, estimate.high) if estimate.has_interval else (math.nan, math.nan)
    joint_bounds = result.joint[:2] if result.joint is not None else (math.nan, math.nan)
    values = (estimate.value, *bounds, estimate.p, result.p, *joint_bounds)
    # Without names for them, the joint bounds are left out.
    return dict(zip(names, map(kit.finite_or_none, values), strict=False))


def by_constants(
    run: RunFolder,
    measures: Sequence[Measure],
    values: pl.DataFrame,
    results: Sequence[Result],
) -> list[Finding | None]:
    """Compare experiments with different constants, and return one finding per measure.

    An entry is None if fewer than two experiments have values of the measure.
    """
    if not run.has_table("permutations"):
        return []
    constants: dict[str, list[str]] = {}
    for row in run.read_table("permutations").to_dicts():
        assignment = f"{row['constant']} = {row['value']}"
        constants.setdefault(row["experiment_id"], []).append(assignment)
    return [
        _between_constants(
            measure,
            per_participant(measure, values, "experiment_id"),
            constants,
            _measure_results(measure, results, "experiment_id"),
        )
        for measure in measures
    ]


def _between_constants(
    measure: Measure,
    people: pl.DataFrame,
    constants: Mapping[str, Sequence[str]],
    results: Sequence[Result],
) -> Finding | None:
    labels = {experiment: ", ".join(assignments) for experiment, assignments in constants.items()}
    people_by_experiment = {
        experiment: people.filter(experiment_id=experiment) for experiment in labels
    }
    means = {
        experiment: _mean_of_people(measure, people_rows)
        for experiment, people_rows in people_by_experiment.items()
        if not people_rows.is_empty()
    }
    # A single combination with values leaves nothing to compare.
    if len(means) < 2:
        return None
    results_by_experiment = {result.claim.contrast[0]: result for result in results}
    ordered = sorted(means, key=lambda experiment: means[experiment].value)
    low, high = (
        f"{_format_mean(measure, means[experiment].value)} with {labels[experiment]}"
        for experiment in (ordered[0], ordered[-1])
    )
    observed = f"means of {measure.label} go from {low} to {high}"
    statement = join_sentences(
        [
            word("description", "observed", what=observed),
            describe_claims(results) if results else None,
        ]
    )
    rows: list[kit.Row] = [
        {
            "experiment": labels[experiment],
            **_mean_cells(measure, mean),
            **_minus_first(measure, results_by_experiment.get(experiment)),
        }
        for experiment, mean in means.items()
    ]
    means_by_label = {labels[experiment]: mean for experiment, mean in means.items()}
    return Finding(
        f"constants_{measure.name}",
        f"{measure.words}, by constants",
        statement,
        ResultTable.from_records(
            rows, f"{CLUSTERED}. Each value minus the first, paired by participant."
        ),
        kit.interval_chart(
            dict(itertools.islice(means_by_label.items(), MOST_LINES)),
            measure.name,
            percent=measure.is_share,
        ),
        notes=(LEVELS, EXPLORATORY),
        section="Constants",
        headline=True,
        unit="session",
        units=_session_count(people),
    )


# --- answers -----------------------------------------------------------------------------------


def distribution_finding(
    measure: Measure, values: pl.DataFrame, treatments: Sequence[str]
) -> Finding:
    """Build the finding on the distribution of numbers in each treatment."""
    # With up to `MOST_BARS` distinct numbers, each number gets one bar. With more distinct numbers,
    # the bars are equal intervals.
    data = rows_of(measure, values)
    numbers = data["number"].to_numpy()
    distinct = np.unique(numbers)
    if len(distinct) <= MOST_BARS:
        names = [number_text(value) for value in distinct]
        bins = np.searchsorted(distinct, numbers)
    else:
        edges = np.linspace(distinct[0], distinct[-1], MOST_BARS // 2 + 1)
        names = [f"{low}–{high}" for low, high in itertools.pairwise(map(_format_figure, edges))]
        # The last edge belongs to the last interval.
        bins = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(names) - 1)
    answers = data.select("treatment", answer=pl.Series([names[bin_index] for bin_index in bins]))
    table, chart = _answers_by_treatment(answers, treatments, names, measure.name)
    return Finding(
        f"distribution_{measure.name}",
        f"{measure.words}, distribution of answers",
        word(
            "description",
            "distribution",
            least=_format_figure(numbers.min()),
            most=_format_figure(numbers.max()),
            median=_format_figure(float(np.median(numbers))),
            answers=format_count(len(numbers), "answer"),
        ),
        table,
        chart,
        section="Answers",
        unit="session",
        units=_session_count(data),
    )


def option_shares(
    responses: pl.DataFrame,
    treatments: Sequence[str],
    options_by_variable: Mapping[str, Sequence[str]],
) -> list[Finding]:
    """Build a finding for each variable: how often each option was chosen in each treatment."""
    chosen = _closed_answers(responses)
    findings = []
    for name in chosen["var_name"].unique(maintain_order=True).to_list()[:MOST_MEASURES]:
        answers = chosen.filter(var_name=name).select("treatment", "session", answer="value")
        # Answers outside the sheet's list, as after a change of constants, come last.
        options = list(dict.fromkeys([*options_by_variable.get(name, ()), *answers["answer"]]))
        counts = Counter(answers["answer"])
        top = kit.all_largest(options, counts.__getitem__)
        top_options = join_words([f'"{option}"' for option in top])
        each_text = " each" if len(top) > 1 else ""
        table, chart = _answers_by_treatment(answers, treatments, options, "answer")
        findings.append(
            Finding(
                f"answers_{name}",
                f"{name}, by treatment",
                word(
                    "description",
                    "observed",
                    what=f"most often {top_options} "
                    f"({format_percent(counts[top[0]] / answers.height)} of "
                    f"{format_count(answers.height, 'answer')}{each_text})",
                ),
                table,
                chart,
                section="Answers",
                unit="session",
                units=_session_count(answers),
                conclusion=f"most often {top_options}",
            )
        )
    return findings


def _answers_by_treatment(
    answers: pl.DataFrame, treatments: Sequence[str], names: Sequence[str], title: str
) -> tuple[ResultTable, BarChart]:
    shares: list[tuple[str, str, float]] = []
    for treatment in treatments:
        treatment_answers = answers.filter(treatment=treatment)["answer"].to_list()
        # A treatment that was not asked the question has no shares, and not shares of 0 %.
        shares += [
            (name, treatment, treatment_answers.count(name) / len(treatment_answers))
            for name in (names if treatment_answers else ())
        ]
    table = ResultTable.from_records(
        [
            {"treatment": treatment, title: name, "answers_share": share}
            for name, treatment, share in shares
        ]
    )
    return table, BarChart(tuple(shares), unit="share of answers", percent=True)


def quality_finding(responses: pl.DataFrame) -> Finding:
    """Build the finding on invalid, missing and speculative answers."""
    # An empty prompt asked no question, so its answer is not missing.
    responses = responses.filter(pl.col("missing").ne_missing(EMPTY_PROMPT))
    rows = []
    for name in responses["var_name"].unique(maintain_order=True).to_list():
        variable_rows = responses.filter(var_name=name)
        status = variable_rows["status"].to_list()
        rows.append(
            {
                "variable": name,
                "answers": variable_rows.height,
                "invalid_rate": status.count("invalid") / variable_rows.height,
                "missing_rate": status.count(None) / variable_rows.height,
                "re-asks per answer": variable_rows["reasks"].mean(),
                "speculation": variable_rows["speculation_score"].mean(),
            }
        )
    invalid_count = (responses["status"] == "invalid").sum()
    missing_count = responses["status"].null_count()
    return Finding(
        "answer_quality",
        "How the answers were obtained",
        f"Of {format_count(responses.height, 'answer')}, {invalid_count} did not fit their "
        f"question on the last try and were kept, marked invalid; {missing_count} "
        f"{'is' if missing_count == 1 else 'are'} missing.",
        ResultTable.from_records(rows),
        notes=(
            "Invalid answers stay in the files but do not enter computed values.",
            "Speculation: 0 not speculative at all, 100 entirely, as the model rates itself.",
        ),
        section="Noise",
        headline=bool(invalid_count or missing_count),
    )


def fitness_finding(run: RunFolder) -> Finding:
    """Build the finding on the quality checks that all studies share."""
    # Rows of the table `answers` have one kind for JSON and plain text.
    json_tasks = {
        task.task_id
        for task in run.read_settings(WorkbookConfig).workbook.tasks
        if task.format_response
    }

    def asks_for_json(row: Row) -> bool:
        is_task = row["kind"] == ANSWER_KIND
        return is_task and kit.split_address(str(row["scope"]))[2] in json_tasks

    checks = check_replies(run, session_of_answer, "session", listed_choices, asks_for_json)
    return kit.respondent_checks_finding([*checks, check_instability(repeated_answers(run))])


def session_of_answer(row: Row) -> str:
    """Return the session to which a row of `answers` belongs."""
    # All experiments have the same participants in the same sessions, so a session is one
    # independent unit, in however many experiments it is played: `market_1.3` and `market_2.3`.
    return str(part_of_stage(row)).rpartition(".")[2]


def listed_choices(run: RunFolder) -> list[Shown]:
    """Return the valid choices of participants from lists of options, in the order shown."""
    if not run.has_table("responses"):
        return []
    # The position is known only for closed lists and valid choices. Participants of a session
    # answer each other, so the session is the independent unit.
    responses = _responses_of_models(run, "position", "options", "value")
    closed_answers = responses.filter(pl.col("position").is_not_null())
    rows = closed_answers.select("options", "value", speaker_id="session")
    return shown_in(rows.iter_rows(named=True))


def _responses_of_models(run: RunFolder, *columns: str) -> pl.DataFrame:
    # A participant plays all experiments. A human may have taken part in one session only.
    played = ("experiment_id", "session", "participant_id")
    session = pl.concat_str(["experiment_id", "session"], separator=".")
    # The table may hold long texts of many thousand participants.
    responses = run.scan_table("responses").select(*columns, *played, session_id=session).collect()
    return drop_humans(run, responses, "session_id", "participant_id", unit_of=part_of_stage)


def repeated_answers(run: RunFolder) -> list[Repeat]:
    """Return pairs of answers that a participant gave to the same question in different tasks."""
    # The rounds of a game are the usual case.
    if not run.has_table("variables"):
        return []
    # Invalid and missing answers cannot be compared.
    responses = _responses_of_models(run, "var_name", "value", "number", "status", "role")
    usable = responses.filter(pl.col("status").is_in(["valid", "unchecked"]))
    variables_by_question: dict[tuple[str | None, str | None, str], list[str]] = {}
    for row in (
        run.read_table("variables").filter(pl.col("task_id").is_not_null()).iter_rows(named=True)
    ):
        key = row["var_type"], row["response_options"], _question_wording(row["question"])
        variables_by_question.setdefault(key, []).append(row["var_name"])
    repeats = []
    for (kind, _, _), names in variables_by_question.items():
        if kind in ("category", "integer", "float") and len(names) > 1:
            answer = "value" if kind == "category" else "number"
            repeats += pair_answers(
                usable.with_columns(answer=answer, occasion="var_name"),
                itertools.combinations(names, 2),
                ["experiment_id", "participant_id"],
                unit=["session"],
                question=["role"],
            )
    return repeats


# Rounds of a game differ in their numbers, which are masked before questions are compared.
_NUMBERS = re.compile(r"\d+")
_PLACEHOLDER = re.compile(r"\{.*\}")


def _question_wording(question: str) -> str:
    # Earlier paragraphs often describe previous rounds, so only the last one is kept. Numbers are
    # masked.
    paragraphs = [part.strip() for part in question.split("\n\n")]
    question_parts = [part for part in paragraphs if part and not _PLACEHOLDER.fullmatch(part)]
    question_text = (
        question if question.startswith("{") else question_parts[-1] if question_parts else ""
    )
    return _NUMBERS.sub("#", question_text).casefold()
