"""Compare two or more runs with each other, or runs with human data.

The first run is the reference. The runs may differ in models or prompts, for example.
"""
# The module works on the tables of any study type. If designs differ, the first finding lists the
# differences.

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from folkmoot.engine.settings.config import CALL_KEYS
from folkmoot.errors import InputError, Problem
from folkmoot.hints import capitalise, join_first
from folkmoot.kit.findings import (
    Row,
    collect_findings,
    condition_name,
    finite_or_none,
)
from folkmoot.measures.bands import Band, human_band, sentence
from folkmoot.measures.computed_bands import AnswerTable, compute_bands
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.clustered import clustered_share, wider_interval
from folkmoot.measures.inference.estimates import (
    Estimate,
    format_count,
    format_span,
)
from folkmoot.measures.inference.proportions import wilson
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.people.sources.missing_answers import MISSING_HINT, list_missing_codes
from folkmoot.people.sources.table_files import POINT_HINT, has_decimal_comma
from folkmoot.randomness import digest
from folkmoot.report.comparison.between_runs import (
    SECTION,
    compare_effects,
    compare_measures,
    measures_finding,
)
from folkmoot.report.comparison.forks import forks_among
from folkmoot.report.comparison.measured_claims import (
    NO_ARMS,
    compared_arms,
    measures_of,
    missing_rounds,
    name_measure,
    read_measure,
    unclaimed_measure,
    with_shared_rounds,
)
from folkmoot.report.comparison.people import against_people
from folkmoot.report.comparison.samples import (
    CHOICES,
    EVERYBODY,
    MAX_LISTED,
    NAMES_IN_FILES,
    TEXTS,
    Sample,
    answer_columns,
    arms_of,
    cell_location,
    columns_of_runs,
    count_draws,
    describe_respelled,
    describe_weights,
    known_choices,
    load_samples,
    people_in,
    same_people,
    split_by_condition,
)
from folkmoot.report.comparison.votes import compare_votes
from folkmoot.storage.findings import Finding, ResultTable, RunName
from folkmoot.storage.rows import AnswerRange
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    CONDITION_COLUMNS,
    DRAW,
    FEWEST_DRAWS,
    PARTICIPANT_COLUMNS,
    cluster_column,
    condition_column,
)

# A difference of shares within ± this value is called equivalent.
MARGIN = 0.05
# Settings that do not affect the results: how calls are made, and what the study is called.
HANDLING_KEYS = CALL_KEYS | {"pilot_id", "pilot_name", "title", "study"}
# Settings that name models. The manifest names the models that were asked.
MODEL_KEYS = frozenset({"model", "models", "embedding_model"})
# Last parts of column names that mark ids and counters.
NOT_MEASURES = frozenset(
    ("id", "no", "number", "seed", "turn", "question", "round", "place", "row", "x", "y", "age")
)
# A longer list of further measures would hide those of the claims.
MAX_MEASURES = 25


def compare_runs(
    sources: Sequence[RunFolder | Path | str], margin: float = MARGIN
) -> list[Finding]:
    """Return findings on the differences between runs and files of human answers.

    - `sources`: run folders or paths of files. `samples.people_file` describes the files.
    - `margin`: the largest difference of two shares that are called equivalent.

    Raises InputError for fewer than two sources.
    """
    # The whole interval of the difference must lie within ± `margin`. Runs that drew the same
    # participants are compared person by person.
    samples = load_samples(sources)
    if len(samples) < 2:
        raise InputError("a comparison needs two or more runs")
    for sample in samples:
        if sample.is_human:
            _require_shared(sample, [other for other in samples if not other.is_human])
    if not 0 < margin < 1:
        raise InputError(f"--margin {margin}: must be a share between 0 and 1, such as 0.05")
    claims = claimed_measures(samples)
    # Effects of all samples are in one table, so they are about the same rounds.
    shared_claims = with_shared_rounds(claims, [sample for sample in samples if sample.is_human])
    comparison_findings = collect_findings(
        measures_finding(
            "compare_claims",
            "Measures of the claims, run by run",
            compare_measures(samples, claims),
            samples[0].name,
            margin,
        ),
        compare_effects(samples, shared_claims),
        compare_votes(samples),
        compare_figures(samples, claims, margin),
    )
    runs = [sample for sample in samples if not sample.is_human]
    # Humans are compared with a run of models alone if there is one.
    model_samples = [sample for sample in runs if not sample.seated]
    human_samples = [sample for sample in samples if sample.is_human] + [
        seated_people for sample in runs if (seated_people := people_in(sample)) is not None
    ]
    human_findings = [
        finding
        for sample in human_samples
        for run in (model_samples or runs)[:1]
        for finding in against_people(run, sample)
    ]
    fork_findings = forks_among(_folders(sources))
    own_findings = collect_findings(
        comparison_findings or _nothing_shared(samples), human_findings, beside_people(samples)
    )
    if human_samples:
        caveats = tuple(_few_draws_caveats(runs))
        own_findings = [
            replace(finding, notes=(*finding.notes, *caveats)) for finding in own_findings
        ]
    return collect_findings(describe_designs(samples), fork_findings, own_findings)


def _few_draws_caveats(runs: Sequence[Sample]) -> Iterator[Sentence]:
    # With at least `FEWEST_DRAWS` draws, these are the units of the run.
    for sample in runs:
        if 0 < (draw_count := count_draws(sample)) < FEWEST_DRAWS:
            draws = format_count(draw_count, "draw")
            yield word("runs", "people, few draws", run=sample.name, draws=draws)


def _folders(sources: Sequence[RunFolder | Path | str]) -> list[RunFolder]:
    runs = (
        source for source in sources if isinstance(source, RunFolder) or not Path(source).is_file()
    )
    return [run if isinstance(run, RunFolder) else RunFolder(run) for run in runs]


def describe_designs(runs: Sequence[Sample]) -> Finding:
    """Return the finding on how the runs differ in settings, model versions and study types."""
    settings_by_run = {sample.name: _flatten_settings(sample) for sample in runs}
    run_names = [sample.name for sample in runs if not sample.is_human]
    human_names = [sample.name for sample in runs if sample.is_human]
    kinds = sorted({sample.kind for sample in runs if not sample.is_human})
    keys = dict.fromkeys(key for name in run_names for key in settings_by_run[name])
    differing = [
        key for key in keys if len({settings_by_run[name].get(key, "—") for name in run_names}) > 1
    ]
    parts = []
    if len(kinds) > 1:
        parts.append(word("runs", "types", types=", ".join(kinds)))
    if differing:
        parts.append(
            word(
                "runs", "designs", settings=join_first([*map(_setting_name, differing)], MAX_LISTED)
            )
        )
        # If several settings differ, a difference in results has no single cause.
        if len(differing) > 1:
            parts.append(word("runs", "several settings"))
    elif len(run_names) > 1:
        parts.append(word("runs", "same settings"))
    same_people_runs = [sample.name for sample in runs[1:] if same_people(runs[0], sample)]
    if same_people_runs:
        names = join_first(same_people_runs, MAX_LISTED)
        parts.append(word("runs", "same people", runs=names, first=runs[0].name))
    parts += [
        word(
            "runs", "unfinished", run=sample.name, partial=sample.partial.removeprefix("PARTIAL: ")
        )
        for sample in runs
        if sample.partial
    ]
    if human_names:
        parts.append(word("runs", "people", files=join_first(human_names, MAX_LISTED)))
        if any(count_draws(sample) for sample in runs):
            parts.append(word("runs", "people, texts"))
        parts += [
            sentence_text
            for sample in runs
            if sample.is_human
            for sentence_text in _describe_file(sample, runs)
        ]
    return Finding(
        "designs",
        "Settings that differ",
        join_sentences(parts),
        ResultTable.from_records(
            [
                {
                    "setting": key,
                    **{
                        RunName(name): run_settings.get(key, "—")
                        for name, run_settings in settings_by_run.items()
                    },
                }
                for key in differing
            ],
            "Settings that differ; how calls were made is left out.",
        ),
        section=SECTION,
    )


def _require_shared(people: Sample, runs: Sequence[Sample]) -> None:
    human_table = people.tables["participants"]
    run_tables = [
        sample.tables["participants"] for sample in runs if "participants" in sample.tables
    ]
    arms = {*split_by_condition(human_table)}
    known_arms = {arm for run in runs for arm in arms_of(run)}
    if not {EVERYBODY} & (arms | known_arms):
        _require_shared_arm(people, arms, known_arms)
    for compared in compared_arms(people, runs):
        _require_shared_arm(people, compared.in_file, compared.in_runs)
    path = str(people.config["file"])
    numbers = _numbers_in(runs)
    for column in (
        column
        for column in human_table.columns
        if human_table.schema[column] == pl.String and column not in TEXTS
    ):
        if column in numbers and not column.startswith("demographic_"):
            wrong_rows = (
                human_table[column].is_not_null()
                & human_table[column].cast(pl.Float64, strict=False).is_null()
            ).arg_true()
            if len(wrong_rows):
                location, value = (
                    cell_location(path, column, wrong_rows[0]),
                    human_table[column][wrong_rows[0]],
                )
                problem = f"{location}: {column} is a number in the run, and {value!r} is not"
                hint = POINT_HINT if has_decimal_comma(value) else MISSING_HINT
                raise InputError(Problem(problem, hint=hint))
    declared = _declared_numbers(runs)
    _require_no_codes(human_table, path, numbers, declared)
    _require_declared_numbers(human_table, path, declared)
    measures = measures_of(claim for run in runs for claim in run.claims)
    _require_told_apart(people, path, [*measures])
    shared = any(
        column in table.columns
        for table in run_tables
        for column in human_table.columns
        if column not in (*CONDITION_COLUMNS, *PARTICIPANT_COLUMNS)
    )
    # A file without any measure of the run is probably one of another study.
    if measures and not shared and all(read_measure(people, claim) is None for claim in measures):
        names = dict.fromkeys(f"{claim.column} ({name_measure(claim)})" for claim in measures)
        hint = f"the run measures {join_first([*names], MAX_LISTED)}"
        raise InputError(Problem(f"{path}: no column is a measure of the run", hint=hint))


def _require_shared_arm(people: Sample, arms: Collection[str], known_arms: Collection[str]) -> None:
    if known_arms and not {*arms} & {*known_arms}:
        own, others = (join_first(sorted(names), MAX_LISTED) for names in (arms, known_arms))
        message = f"{people.name}: none of its arms ({own}) is one of a run's"
        hint = (
            f"these are {others}; write them like this, or leave the column out to compare with all"
        )
        raise InputError(Problem(message, hint=hint))


def _require_told_apart(people: Sample, path: str, measures: Sequence[Claim]) -> None:
    # Rows of different measures may hold their values in the same column. A second column must then
    # name the measure of each row.
    columns = people.tables["participants"].columns
    for measure in measures:
        same_column = [claim for claim in measures if claim.measure == measure.measure]
        for name in (name for name, _ in measure.where if name not in columns):
            if (
                measure.column in columns
                and len({dict(claim.where).get(name) for claim in same_column}) > 1
            ):
                names = join_first([name_measure(claim) for claim in same_column], MAX_LISTED)
                hint = f"it tells apart {names}"
                raise InputError(
                    Problem(f"{path}: {measure.column} needs a column {name}", hint=hint)
                )


def _numbers_in(runs: Sequence[Sample]) -> dict[str, list[pl.Series]]:
    # The values of each numeric column. They include columns that hold one variable of a claim
    # each, without values.
    variables = (
        value
        for run in runs
        for claim in run.claims
        for _, values in claim.where
        for value in values
        if isinstance(value, str)
    )
    return {variable: [] for variable in variables} | columns_of_runs(runs, pl.Float64())


def _require_declared_numbers(
    human_table: pl.DataFrame, path: str, ranges: Mapping[str, AnswerRange]
) -> None:
    # A value outside the range that a study type declares would move each mean.
    for column, declared in ranges.items():
        if column not in human_table.columns or not human_table.schema[column].is_numeric():
            continue
        value = human_table[column].cast(pl.Float64).fill_nan(None)
        is_outside = ((value < declared.low) | (value > declared.high)).fill_null(False)
        is_broken = (value != value.round()).fill_null(False) & declared.is_integer
        for wrong_row in (is_outside | is_broken).arg_true().head(1):
            location, number = cell_location(path, column, wrong_row), f"{value[wrong_row]:g}"
            bounds = f"{declared.low:g} to {declared.high:g}"
            taken = bounds if is_outside[wrong_row] else "whole numbers"
            problem = f"{location}: {number} is no answer to {column}, which takes {taken}"
            raise InputError(Problem(problem, hint=MISSING_HINT))


def _declared_numbers(runs: Sequence[Sample]) -> dict[str, AnswerRange]:
    # Column → the widest range in any run. A run of another study type may have the column without
    # a range, so that any number is an answer.
    declared: dict[str, AnswerRange] = {}
    without_range = {
        column
        for run in runs
        for column in columns_of_runs([run], pl.Float64())
        if column not in run.number_ranges
    }
    for run in runs:
        for column, own in run.number_ranges.items():
            if column not in without_range:
                declared[column] = own.widened(declared.get(column, own))
    return declared


def _require_no_codes(
    human_table: pl.DataFrame,
    path: str,
    numbers: Mapping[str, Sequence[pl.Series]],
    declared: Mapping[str, AnswerRange],
) -> None:
    # A code such as -99 would count as an answer in each mean. The bounds of a declared range are
    # answers, so -7 is none on a scale from -10 to 10.
    others = (*CONDITION_COLUMNS, *CLUSTER_COLUMNS, *PARTICIPANT_COLUMNS)
    codes = [
        problem
        for column in human_table.columns
        if column in numbers and column not in others and human_table.schema[column].is_numeric()
        for problem in list_missing_codes(
            human_table[column],
            Path(path),
            known=[
                *(answer for values in numbers[column] for answer in values.drop_nulls()),
                *(declared[column].finite_bounds() if column in declared else ()),
            ],
        )
    ]
    if codes:
        raise InputError(codes)


def _describe_file(people: Sample, runs: Sequence[Sample]) -> list[Sentence]:
    run_tables = [
        sample.tables["participants"]
        for sample in runs
        if not sample.is_human and "participants" in sample.tables
    ]
    sentences = []
    columns = compared_arms(people, [sample for sample in runs if not sample.is_human])
    unmatched_arms = [*people.unmatched_arms, *(arm for each in columns for arm in each.unmatched)]
    if unmatched_arms:
        arms = join_first([*dict.fromkeys(unmatched_arms)], MAX_LISTED)
        sentences.append(word("runs", "unmatched arms", file=people.name, arms=arms))
    claims = measures_of(claim for run in runs for claim in run.claims)
    if lacking := dict.fromkeys(missing_rounds(people, claims)):
        rounds = join_first([*lacking], MAX_LISTED)
        sentences.append(word("runs", "missing rounds", file=people.name, rounds=rounds))
    table = people.tables["participants"]
    sentences += [
        word(
            "runs",
            "missing answers",
            file=people.name,
            rows=f"{missing} of {format_count(table.height, 'row')}",
            column=NAMES_IN_FILES.get(column, column),
        )
        for column in answer_columns(table)
        if (missing := table[column].null_count())
        and (column in CHOICES or any(column in run_table.columns for run_table in run_tables))
        and not (column == "position_changed" and {*CHOICES} <= {*table.columns})
    ]
    if weights := describe_weights(people.name, table):
        sentences.append(weights)
    if people.respelled:
        sentences.append(describe_respelled(people.name, people.respelled))
    # Options in other words match no choice of the run.
    run_choices = {
        choice for sample in runs if not sample.is_human for choice in known_choices(sample)
    }
    unmatched = {
        choice: count
        for choice, count in known_choices(people).items()
        if run_choices and choice not in run_choices
    }
    if unmatched:
        sentences.append(
            word(
                "runs",
                "unmatched choices",
                file=people.name,
                answers=format_count(sum(unmatched.values()), "answer"),
                choices=join_first([f"“{choice}”" for choice in unmatched], MAX_LISTED),
            )
        )
    return sentences


def _flatten_settings(sample: Sample) -> dict[str, str]:
    settings: dict[str, str] = {"study type": sample.kind}
    models = _models_asked(sample)
    for key, value in sample.config.items():
        if key not in HANDLING_KEYS and not (models and key in MODEL_KEYS):
            _flatten_into(key, value, settings)
    settings |= models
    for key, text in sample.sealed_settings.items():
        _flatten_into(key, text, settings)
    served = sorted(
        {
            model
            for model_entry in sample.manifest.get("models", [])
            for model in model_entry.get("served", [])
        }
    )
    if served:
        settings["models as served"] = ", ".join(served)
    return settings


def _models_asked(sample: Sample) -> dict[str, str]:
    # The study file may name no model, or others than the command line or a script did. Models
    # without a role are those of embeddings. Empty for a run that asked no model yet.
    roles_by_model = {
        str(entry["asked"]): entry["roles"]
        for entry in sample.manifest.get("models", [])
        if entry.get("roles")
    }
    if not roles_by_model:
        return {}
    names = [
        name if len(roles_by_model) == 1 else f"{name} ({', '.join(roles)})"
        for name, roles in roles_by_model.items()
    ]
    embedding = sample.manifest.get("embedding_model")
    return {"model": ", ".join(names), "embedding_model": _setting_text(embedding)}


def _flatten_into(key: str, value: object, settings: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _flatten_into(f"{key}.{name}", inner, settings)
    elif isinstance(value, list) and any(isinstance(inner, (list, Mapping)) for inner in value):
        for number, inner in enumerate(value, 1):
            _flatten_into(f"{key}.{number}", inner, settings)
    else:
        # As in a study file, and not as Python writes it.
        text = ", ".join(map(_setting_text, value if isinstance(value, list) else [value]))
        # A long text is cut for display. The digest keeps different texts distinct.
        settings[key] = text if len(text) <= 80 else f"{text[:70]}… #{digest(text, size=3).hex()}"


def _setting_name(key: str) -> str:
    # The table has the key itself.
    return key.replace("_", " ").replace(".", ": ")


def _setting_text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def claimed_measures(runs: Sequence[Sample]) -> dict[Claim, list[Claim]]:
    """Return the measures to compare and the claims on each, from the first run with claims."""
    # Without claims in any run, each condition is compared with the first condition of
    # `split_by_condition`, in the share of participants who change their choice. With a single
    # condition there is no effect, and the runs are compared in this measure alone.
    if stated := next((sample.claims for sample in runs if sample.claims), ()):
        return measures_of(stated)
    run_tables = [
        sample.tables["participants"]
        for sample in runs
        if "participants" in sample.tables and not sample.is_human
    ]
    table = next((table for table in run_tables if "position_changed" in table.columns), None)
    by = None if table is None else condition_column(table)
    if table is None or by is None:
        return {}
    baseline, *other_arms = split_by_condition(table)
    measure = Claim("participants.position_changed", NO_ARMS, by=by, outcome="changed their choice")
    effects = [
        replace(
            measure,
            contrast=(arm, baseline),
            names=(condition_name(arm), condition_name(baseline)),
        )
        for arm in other_arms
    ]
    return measures_of(effects) or {measure: []}


def compare_figures(
    runs: Sequence[Sample], claims: Mapping[Claim, Sequence[Claim]], margin: float
) -> Finding | None:
    """Compare the runs in the numeric columns that all runs record.

    Columns that a claim uses are left out. Returns None if no column is left.
    """
    claimed_measures = {measure.measure for measure in claims}
    columns = [
        (table_name, column)
        for table_name, column in _shared_figures(runs)
        if f"{table_name}.{column}" not in claimed_measures
    ]
    measures: dict[Claim, list[Claim]] = {
        unclaimed_measure(runs, table_name, column): []
        for table_name, column in columns[:MAX_MEASURES]
    }
    comparisons = compare_measures(runs, measures)
    varying = [
        comparison
        for comparison in comparisons
        if comparison.result.estimate.value or comparison.result.estimate.has_interval
    ]
    title = "Further measures, run by run"
    finding = measures_finding("compare_figures", title, varying, runs[0].name, margin)
    if finding is None:
        return None
    cut = f"Only the first {MAX_MEASURES} of {len(columns):,} columns are compared."
    notes = (*finding.notes, *([cut] if len(columns) > MAX_MEASURES else []))
    return replace(finding, headline=False, notes=notes)


def _shared_figures(runs: Sequence[Sample]) -> list[tuple[str, str]]:
    declared = next((sample.compared_tables for sample in runs if not sample.is_human), ())
    pairs = [
        (table_name, column)
        for table_name in dict.fromkeys(declared)
        if all(table_name in sample.tables for sample in runs)
        for column in runs[0].tables[table_name].columns
        if column
        not in (
            condition_column(runs[0].tables[table_name]),
            cluster_column(runs[0].tables[table_name]),
        )
        and not any(column in sample.design_of(table_name).columns for sample in runs)
        and column.split("_")[-1] not in NOT_MEASURES
        and column != DRAW
        and not column.startswith("demographic_")
        and all(
            column in sample.tables[table_name].columns
            and sample.tables[table_name].schema[column].is_numeric()
            for sample in runs
        )
    ]
    # A gap between groups says more than either of its sides, so gaps come first.
    pairs.sort(key=lambda pair: not pair[1].startswith("gap_"))
    return pairs


def beside_people(runs: Sequence[Sample]) -> Finding | None:
    """Return the finding that compares how often people and models change their answers.

    Returns None if no run has rates of change, or if too few humans answered twice.
    """
    # The human rates come from a table of human answers if one is among the runs, otherwise from
    # the published benchmark.
    rates_by_run = {
        sample.name: own_rates
        for sample in runs
        if not sample.is_human and (own_rates := _change_rates(sample))
    }
    people = next((sample for sample in runs if sample.is_human), None)
    band = human_band("debate_choice_changed") if people is None else _band_of_people(people)
    if not rates_by_run or band is None:
        return None
    rows: list[Row] = []
    values = {
        f"{name}:": {condition_name(arm): rate.value for arm, rate in own_rates.items()}
        for name, own_rates in rates_by_run.items()
    }
    for name, own_rates in rates_by_run.items():
        for condition, rate in own_rates.items():
            rows.append(
                {
                    "run": name,
                    "condition": condition_name(condition),
                    "changed_rate": rate.value,
                    "interval": format_span(rate.low, rate.high) if rate.has_interval else None,
                    "people_low_rate": finite_or_none(band.low),
                    "people_centre_rate": band.centre,
                    "people_high_rate": finite_or_none(band.high),
                }
            )
    notes = (f"{capitalise(band.range)}.", band.caveat, f"Source: {band.source}.")
    return Finding(
        "compare_people",
        "Compared with people",
        sentence(values, band),
        ResultTable.from_records(rows, "Share who changed, in each condition of each run."),
        notes=(" ".join(filter(None, notes)),),
        section=SECTION,
    )


def _band_of_people(people: Sample) -> Band | None:
    # From the lowest to the highest share of a condition.
    table = people.tables["participants"]
    if not {"initial_choice", "final_choice"} <= {*table.columns}:
        return None
    pairs = table.drop_nulls(["initial_choice", "final_choice"])

    def read_column(name: str | None) -> list[str]:
        if name is None or name not in pairs.columns:
            return [""] * pairs.height
        return pairs[name].cast(pl.String).fill_null("").to_list()

    answers = AnswerTable(
        read_column("participant_id"),
        read_column(None),
        read_column(condition_column(pairs)),
        read_column("initial_choice"),
        read_column("final_choice"),
    )
    bands = compute_bands(answers, f"file {people.name}", f"computed from {people.name}")
    return next((band for band in bands if band.key == "choice_changed"), None)


def _change_rates(sample: Sample) -> dict[str, Estimate]:
    measured = read_measure(sample, unclaimed_measure([sample], "participants", "position_changed"))
    if measured is None:
        return {}
    known_rows = {arm: rows.drop_nulls("value") for arm, rows in measured.arms.items()}
    return {
        # The interval is that of the run's own report.
        arm: wider_interval(
            wilson(int(rows["value"].sum()), rows.height),
            clustered_share(rows["value"].to_list(), rows["unit"].to_list()),
        )
        for arm, rows in known_rows.items()
    }


def _nothing_shared(runs: Sequence[Sample]) -> Finding:
    names = ", ".join(sorted({table for sample in runs for table in sample.tables}))
    return Finding(
        "compare_nothing",
        "Nothing to compare",
        word("runs", "nothing"),
        ResultTable((), ()),
        notes=(f"Tables found: {names}.",),
        section=SECTION,
    )
