"""Read runs and files of human answers into one form, `Sample`, for comparisons."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from folkmoot.conversation.choices import match_spellings
from folkmoot.engine.run.fork import fork_change
from folkmoot.engine.session.folder_access import open_run
from folkmoot.engine.session.plan import CLAIMS, DESIGN, FORK, sealed_data
from folkmoot.engine.settings import run_claims
from folkmoot.engine.settings.claimed_tables import (
    NOT_MEASURED,
    TableDesign,
    column_kinds,
    design_of,
    find_table,
)
from folkmoot.engine.settings.claims import evaluate_claims
from folkmoot.engine.settings.yaml_tree import BOOLEAN_WORDS
from folkmoot.engine.study.study import (
    ENGINE_TABLES,
    Study,
    analysed_parts,
    claims_of_run,
    find_study_of_run,
)
from folkmoot.errors import FolkmootError, InputError, Problem, StorageError
from folkmoot.hints import join_first
from folkmoot.kit.exposure import ExposureRow
from folkmoot.kit.reply_units import find_humans_who_replied
from folkmoot.measures.inference.claims import Claim, Result
from folkmoot.measures.wording import Sentence, word
from folkmoot.people.sources.missing_answers import is_answer
from folkmoot.people.sources.people_table import (
    AFTER,
    ARM,
    BEFORE,
    ITEM,
    PERSON,
    TEXT_SHOWN,
    list_unclear_arms,
    read_people,
)
from folkmoot.people.sources.table_files import is_weight_column, name_line
from folkmoot.randomness import digest
from folkmoot.storage.partial_run import PartsView
from folkmoot.storage.rows import AnswerRange, column_ranges
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import (
    CLUSTER_COLUMNS,
    COMPLETE,
    CONDITION_COLUMNS,
    DRAW,
    FEWEST_DRAWS,
    PARTICIPANT_COLUMNS,
    condition_column,
    is_ending_status,
)

# Columns that identify a subject. A file of human answers may name it `seat`.
UNITS = (*PARTICIPANT_COLUMNS, "seat")
# The columns of a table of human answers, and their names in the tables of a run.
NAMES_IN_RUNS = {
    PERSON: "participant_id",
    ARM: "condition",
    BEFORE: "initial_choice",
    AFTER: "final_choice",
}
NAMES_IN_FILES = {name: ours for ours, name in NAMES_IN_RUNS.items()}
TEXTS = tuple(NAMES_IN_RUNS.values())
CHOICES = ("initial_choice", "final_choice")
CHANGES = (*CHOICES, "position_changed")
EVERYBODY = "everybody"
# A sentence about runs or files names this many things and counts the rest.
MAX_LISTED = 6
# First words of the sealed parts that do not say who takes part in which condition. The sample that
# is coded depends on what was said, so it differs between runs of the same participants.
PARTS_WITHOUT_PARTICIPANTS = (DESIGN, CLAIMS, FORK, "controls", "codebook", "coding")
CONDITION = "condition"
# Conditions that serve as a baseline in the built-in study types, the plainest first.
PLAINER = ("control", "baseline", "simple_voting", "simple_passive", "clarified_passive")


@dataclass(frozen=True)
class Sample:
    """A run or a file of human answers, in the form that comparisons read."""

    name: str
    # The study type, or "people" for a file.
    kind: str
    tables: Mapping[str, pl.DataFrame]
    # The settings of a run.
    config: Mapping[str, object]
    manifest: Mapping[str, Any]
    # The hashes of the sealed parts of the plan.
    sealed: Mapping[str, str] = field(default_factory=dict)
    # What the sealed plan adds to the settings: the changed reply of a fork, and a digest of the
    # prompts in place of their folder.
    sealed_settings: Mapping[str, str] = field(default_factory=dict)
    # Texts that describe the participants and that the sealed parts lack: key of a text → text.
    descriptions: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    # The numbers that answers may have: name of the answer → range.
    number_ranges: Mapping[str, AnswerRange] = field(default_factory=dict)
    # The tables with further numbers to compare. Empty for a file.
    compared_tables: tuple[str, ...] = ()
    # The ids of participants that humans played.
    seated: frozenset[str] = frozenset()
    # Why the run is unfinished and what is covered, or empty.
    partial: str = ""
    # The results of the claims of a run, as its report gives them.
    results: tuple[Result, ...] = ()
    # The choices of a file that were written otherwise, and the choices that they are read as.
    respelled: Mapping[str, str] = field(default_factory=dict)
    # The conditions of a file that no run has. Their rows are left out.
    unmatched_arms: tuple[str, ...] = ()

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(result.claim for result in self.results)

    def result_of(self, claim: Claim) -> Result | None:
        """Return the result of `claim` in this run, or None if the run does not state the claim."""
        return run_claims.find_result(claim, self.results)

    @property
    def is_human(self) -> bool:
        return self.kind == "people"

    def find_table(self, claim: Claim) -> str:
        """Return the name of the table that holds the measure of a claim, or "" without one."""

        def kinds_of(name: str) -> Mapping[str, str]:
            return column_kinds(self.tables[name]) if name in self.tables else {}

        # Studies without conditions are compared as well.
        return find_table(claim, sorted(self.tables), kinds_of, needs_arms=False)

    def design_of(self, table: str) -> TableDesign:
        """Return what the claims of a run say about the columns of one of its tables."""
        columns = self.tables[table].columns if table in self.tables else ()
        return design_of(columns, self._claims_by_table.get(table, []))

    @cached_property
    def _claims_by_table(self) -> Mapping[str, list[Claim]]:
        # Found once, because a comparison asks for the design of a table at each of its measures.
        by_table: dict[str, list[Claim]] = {}
        for claim in self.claims:
            by_table.setdefault(self.find_table(claim), []).append(claim)
        return by_table


def load_samples(sources: Sequence[RunFolder | Path | str]) -> list[Sample]:
    """Read runs and files as samples, each with a unique name.

    Raises InputError if a source cannot be read.
    """
    loaded = [None if _is_file(source) else _load_run(source) for source in sources]
    # Choices in files are read as a run reads replies: as one of its options.
    runs = [run for run in loaded if run is not None]
    options = {choice for run in runs for choice in known_choices(run)}
    truth_columns = columns_of_runs(runs, pl.Boolean())
    arm_columns = {claim.by for run in runs for claim in run.claims}

    def read_file(path: Path) -> Sample:
        people = people_file(path, options, truth_columns, arm_columns)
        return without_unmatched_arms(people, runs)

    samples = [
        read_file(Path(str(source))) if run is None else run
        for source, run in zip(sources, loaded, strict=True)
    ]
    counts: dict[str, int] = {}
    named_samples = []
    for sample in samples:
        counts[sample.name] = counts.get(sample.name, 0) + 1
        is_repeated = counts[sample.name] > 1
        name = f"{sample.name} ({counts[sample.name]})" if is_repeated else sample.name
        named_samples.append(replace(sample, name=name))
    return named_samples


def _is_file(source: RunFolder | Path | str) -> bool:
    return isinstance(source, (str, Path)) and Path(source).is_file()


def columns_of_runs(runs: Sequence[Sample], kind: pl.DataType) -> dict[str, list[pl.Series]]:
    """Return the columns of one kind in the tables of participants and measures of runs.

    - `kind`: `pl.Boolean`, or `pl.Float64` for all numbers.
    """
    columns: dict[str, list[pl.Series]] = {}
    for run in runs:
        measured = (claim.named_table for claim in run.claims)
        for name in dict.fromkeys(("participants", *measured)):
            for column in run.tables.get(name, pl.DataFrame()):
                if column.dtype == kind or (kind.is_numeric() and column.dtype.is_numeric()):
                    columns.setdefault(column.name, []).append(column)
    return columns


def known_choices(sample: Sample) -> dict[str, int]:
    """Return how often each option was chosen, in first and last votes together."""
    table = sample.tables.get("participants", pl.DataFrame())
    votes = [table[column].cast(pl.String) for column in CHOICES if column in table.columns]
    if not votes:
        return {}
    counts = pl.concat([column.alias("choice") for column in votes]).drop_nulls().value_counts()
    return dict(counts.sort("choice").iter_rows())


def _load_run(source: RunFolder | Path | str) -> Sample:
    run = source if isinstance(source, RunFolder) else open_run(Path(source))
    run.require_tables()
    study = _find_study(run)
    # As in the report of the run: only complete parts, without those that a failed check excludes.
    run = run if study is None else analysed_parts(study, run)
    if isinstance(run, PartsView) and not run.parts.analysed:
        raise InputError(f"{run.path}: no part of the run can be analysed yet, so none is compared")
    # Comparisons scan these two large tables when they need them and do not hold them in memory.
    table_names = [name for name in run.table_names() if name not in NOT_MEASURED]
    tables = {name: run.read_table(name) for name in table_names}
    # A run that has recorded nothing has no tables either.
    if not tables:
        RunFolder(run.path).require_tables()
    sealed = {name: str(part.get("hash")) for name, part in run.plan.get("sealed", {}).items()}
    seated = find_humans_who_replied(run)
    kind = run.study or "run"
    claims = run_claims.claims_of_run(run, ()) if study is None else claims_of_run(study, run)
    results = tuple(evaluate_claims(run, claims))
    settings = _effective_settings(run, study)
    facts = (run.id, kind, tables, settings, run.manifest, sealed, _sealed_settings(run))
    return Sample(
        *facts,
        descriptions={} if study is None else study.descriptions(run),
        number_ranges={} if study is None else _number_ranges(study, run, claims),
        compared_tables=_compared_tables(study, tables),
        seated=seated,
        partial=run.partial,
        results=results,
    )


def _compared_tables(study: Study | None, tables: Iterable[str]) -> tuple[str, ...]:
    # Neither these tables nor those of the texts in prompts have outcomes.
    not_compared = {ExposureRow.table, *(row.table for row in ENGINE_TABLES)}
    declared = tables if study is None else study.compared_tables
    if study is not None and not declared:
        declared = [row.table for row in study.tables]
    return tuple(name for name in declared if name not in not_compared)


def _number_ranges(study: Study, run: RunFolder, claims: Sequence[Claim]) -> dict[str, AnswerRange]:
    # The columns that a table of people may have. A column of another table may have another range.
    tables = {"participants", *(claim.named_table for claim in claims)}
    declared = column_ranges(row for row in study.tables if row.table in tables)
    return {**declared, **study.number_ranges(run)}


def _effective_settings(run: RunFolder, study: Study | None) -> Mapping[str, object]:
    # Keys that an earlier version did not have get their defaults. The settings of an old run may
    # not be valid any more.
    try:
        return (
            run.config if study is None else run.read_settings(study.config).model_dump(mode="json")
        )
    except StorageError:
        return run.config


def _sealed_settings(run: RunFolder) -> dict[str, str]:
    settings = {}
    if prompts := sealed_data(run.plan).get(DESIGN, {}).get("prompts"):
        settings["prompts"] = f"#{digest(json.dumps(prompts, sort_keys=True), size=3).hex()}"
    if (change := fork_change(run)) is not None:
        reply = "unchanged" if change.reply is None else f"“{change.reply}”"
        reply = "left out" if change.dropped else f"by {change.model}" if change.model else reply
        settings["changed reply"] = f"{change.address}: {reply}"
    return settings


def _find_study(run: RunFolder) -> Study | None:
    # The study type of an old run may not be available any more.
    try:
        return find_study_of_run(run)
    except (FolkmootError, ValueError):
        return None


def people_in(run: Sample) -> Sample | None:
    """Return the humans in a run as a separate sample.

    Returns None if no human took part, or if the table of participants has no ids.
    """
    # Attributes drawn for their seats are left out.
    table = run.tables.get("participants")
    if table is None or not run.seated or "participant_id" not in table.columns:
        return None
    theirs = table.filter(pl.col("participant_id").is_in(run.seated))
    # These columns describe the persona of the seat and not the human.
    drawn = pl.selectors.starts_with("demographic_", "persona", "base_persona", "summary_draw")
    counted = pl.selectors.ends_with("_exchanges")
    theirs = theirs.select(~(drawn | counted))
    theirs = theirs.select(
        column for column in theirs.columns if theirs[column].null_count() < theirs.height
    )
    return Sample(f"people in {run.name}", "people", {"participants": theirs}, {}, {})


def same_people(first: Sample, second: Sample) -> bool:
    """Return whether two runs drew the same participants in the same conditions."""
    # The parts of both sealed plans are compared, except for those that do not name participants.
    parts = {
        part
        for part in first.sealed.keys() & second.sealed.keys()
        if part.partition(" ")[0] not in PARTS_WITHOUT_PARTICIPANTS
    }
    if not parts or any(first.sealed[part] != second.sealed[part] for part in parts):
        return False
    # An unfinished run lacks the descriptions of some participants.
    return all(
        second.descriptions.get(key, text) == text for key, text in first.descriptions.items()
    )


# The column that numbers the draws in a table of texts that a run drew.
DRAW_OF_TEXT = "draw"


def read_same_draws(first: Sample, second: Sample) -> bool:
    """Return whether participants of both runs read the same texts.

    Only texts that each run draws for itself are compared. Two runs without such texts give True.
    """
    # Each run draws its own texts, such as summaries that a model writes. A fork may keep them. The
    # texts that humans of a file read are unknown, so a comparison holds for these texts alone.
    if first.is_human or second.is_human:
        return True
    if not any(count_draws(sample) for sample in (first, second)):
        return True
    drawn = [
        {name: table for name, table in sample.tables.items() if DRAW_OF_TEXT in table.columns}
        for sample in (first, second)
    ]
    return (
        bool(drawn[0])
        and {*drawn[0]} == {*drawn[1]}
        and all(table.equals(drawn[1][name]) for name, table in drawn[0].items())
    )


def count_draws(sample: Sample) -> int:
    """Return how many draws of its texts the participants of a run read, or 0 without texts."""
    drawn = (table[DRAW] for table in sample.tables.values() if DRAW in table.columns)
    return max((column.drop_nulls().n_unique() for column in drawn), default=0)


def matched_units(first: pl.DataFrame, second: pl.DataFrame, column: str) -> pl.DataFrame:
    """Join two tables on the units for which `column` is known in both.

    The columns `first` and `second` of the result hold the two values. The result is empty if ids
    repeat within a table, or if the tables share no ids.
    """
    keys = [
        column
        for column in (*CONDITION_COLUMNS, *CLUSTER_COLUMNS, *UNITS)
        if column in first.columns and column in second.columns
    ]
    one, two = (
        table.filter(pl.col(column).is_not_null()).select(*keys, pl.col(column).alias(name))
        for table, name in ((first, "first"), (second, "second"))
    )
    unique = keys and not any(table.select(keys).is_duplicated().any() for table in (one, two))
    return one.join(two, on=keys) if unique else one.clear()


def people_file(
    path: Path,
    options: Collection[str] = (),
    truth_columns: Collection[str] = (),
    arm_columns: Collection[str] = (),
) -> Sample:
    """Read a table of human answers from a file.

    - `options`: the options of the runs that the file is compared with.
    - `truth_columns`: the columns that hold true or false in these runs.
    - `arm_columns`: the columns of the conditions in the claims of these runs, such as `when`.

    Each row holds one person, or another unit of observation of the run, in one condition. Columns:

    - `before` and `after`: the choices. `position_changed` can replace the two columns.
    - `arm`, or the run's condition column: the condition, if there are several.
    - `person`: an id, if people can be matched with simulated participants.
    - Any other measure, with the column name of the run.

    Raises InputError with the column and line of a problem.
    """
    data = read_people(path).drop(TEXT_SHOWN, strict=False)
    if ITEM in data.columns:
        items = data[ITEM].drop_nulls().unique(maintain_order=True)
        if len(items) > 1:
            hint = "a run asks about one item; keep the rows of that item"
            raise InputError(Problem(f"{len(items)} items", str(path), key=ITEM, hint=hint))
        data = data.drop(ITEM)
    # A file may name the column of the conditions as the run does.
    arm_column = ARM if ARM in data.columns else condition_column(data) or ARM
    columns = dict.fromkeys((arm_column, *sorted(arm_columns)))
    if problems := [
        problem for column in columns for problem in list_unclear_arms(data, path, column)
    ]:
        raise InputError(problems)
    data = data.rename({ours: name for ours, name in NAMES_IN_RUNS.items() if ours in data.columns})
    if "position_changed" in data.columns and data["position_changed"].is_null().all():
        # The column is empty in all rows.
        data = data.drop("position_changed")
    if CONDITION in data.columns and data[CONDITION].is_null().all():
        data = data.drop(CONDITION)
    data = _without_unfinished_changes(data).drop("status", strict=False)
    _require_answers(data, path)
    data, respelled = respell_choices(data, CHOICES, options)
    data = data.with_columns(
        _parse_truth_values(data[column], path)
        for column in data.columns
        if column == "position_changed"
        or (column in truth_columns and data.schema[column] == pl.String)
    )
    if {*CHOICES} <= {*data.columns}:
        data = _with_changes(data, path)
    tables = {"participants": data}
    return Sample(path.stem, "people", tables, {"file": str(path)}, {}, respelled=respelled)


def _without_unfinished_changes(data: pl.DataFrame) -> pl.DataFrame:
    # The table of a run gives participants who did not finish as unchanged. Other words in a column
    # `status` have no meaning.
    if "position_changed" not in data.columns or not is_ending_status(data):
        return data
    is_unfinished = (data["status"] != COMPLETE).fill_null(False)
    changed = pl.when(~is_unfinished).then(pl.col("position_changed"))
    return data.with_columns(changed.alias("position_changed"))


def _with_changes(data: pl.DataFrame, path: Path) -> pl.DataFrame:
    # The column `position_changed` is computed where both choices are known. It must not contradict
    # them, because figures come from either.
    changed = data["initial_choice"] != data["final_choice"]
    stated = data["position_changed"] if "position_changed" in data.columns else changed
    wrong_rows = (stated != changed).fill_null(False).arg_true()
    if len(wrong_rows):
        row = data.row(wrong_rows[0], named=True)
        problem = (
            f"{cell_location(path, 'position_changed', wrong_rows[0])}: "
            f"{str(row['position_changed']).lower()} contradicts {BEFORE} "
            f"({row['initial_choice']}) and {AFTER} ({row['final_choice']})"
        )
        raise InputError(Problem(problem, hint="correct the row, or remove the column"))
    return data.with_columns(stated.fill_null(changed).alias("position_changed"))


def respell_choices(
    table: pl.DataFrame, columns: Sequence[str], options: Collection[str] = ()
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the table with one spelling of each choice, and the choices that were respelled.

    - `options`: the spellings to use. Other choices get their first spelling in the table.
    """
    columns = [column for column in columns if column in table.columns]
    texts = [text for column in columns for text in table[column].drop_nulls()]
    spellings = match_spellings(texts, options)
    respelled = {
        text: choice for text, choice in spellings.items() if choice is not None and choice != text
    }
    return table.with_columns(
        pl.col(column).replace_strict(spellings, return_dtype=pl.String) for column in columns
    ), respelled


def cell_location(path: Path | str, column: str, row: int) -> str:
    """Return the location of a cell for a message, such as "people.csv, line 3, before".

    - `column`: the name in the tables of a run. The message gives that of a file.
    - `row`: counts from 0.
    """
    return f"{path}, {name_line(Path(path), row)}, {NAMES_IN_FILES.get(column, column)}"


def answer_columns(table: pl.DataFrame) -> list[str]:
    """Return the columns of a table of human answers that hold choices, changes or numbers."""
    return [
        column
        for column, kind in table.schema.items()
        if column in CHANGES or (column not in TEXTS and (kind.is_numeric() or kind == pl.Boolean))
    ]


def _require_answers(data: pl.DataFrame, path: Path) -> None:
    if not answer_columns(data):
        hint = (
            f"{BEFORE} and {AFTER}, position_changed, or a number under the name that it has in a "
            "run"
        )
        raise InputError(Problem(f"{path}: no column holds answers", hint=hint))
    told = (*CONDITION_COLUMNS, *CLUSTER_COLUMNS, "when")
    who = [column for column in ("participant_id", *told) if column in data.columns]
    if "participant_id" in who:
        again = (data.select(who).is_duplicated() & data["participant_id"].is_not_null()).arg_true()
        if len(again) > 1:
            first = data["participant_id"][again[0]]
            rows = (r for r in again.to_list()[1:] if data["participant_id"][r] == first)
            where = cell_location(path, "participant_id", next(rows, again[1]))
            hint = "write one row for each person in each arm"
            raise InputError(Problem(f"{where}: {first} has several rows", hint=hint))
    # NaN and infinity would make every mean of the column useless.
    for column in (column for column, kind in data.schema.items() if kind.is_float()):
        wrong = (data[column].is_not_null() & ~data[column].is_finite().fill_null(True)).arg_true()
        if len(wrong):
            raise InputError(
                f"{cell_location(path, column, wrong[0])}: {column} has values that are no finite "
                "numbers"
            )


def _parse_truth_values(column: pl.Series, path: Path) -> pl.Series:
    if column.dtype == pl.Boolean:
        return column
    words = BOOLEAN_WORDS | {"1": True, "0": False}
    values = [str(value).strip().casefold() if is_answer(value) else "" for value in column]
    strange = next((n for n, value in enumerate(values) if value and value not in words), None)
    if strange is not None:
        raise InputError(
            f"{cell_location(path, column.name, strange)}: {column[strange]!r} is neither true nor "
            "false (write true or false, yes or no, or 1 or 0)"
        )
    return pl.Series(
        column.name, [words.get(value) if value else None for value in values], dtype=pl.Boolean
    )


def split_by_condition(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the rows of each condition, with baselines first.

    The only key is EVERYBODY if the table has no conditions.
    """
    by = condition_column(table)
    if by is None:
        return {EVERYBODY: table}
    keys = table[by].unique(maintain_order=True).drop_nulls().to_list()
    keys.sort(key=lambda key: PLAINER.index(key) if key in PLAINER else len(PLAINER))
    return {str(key): table.filter(pl.col(by) == key) for key in keys}


def arms_of(run: Sample) -> set[str]:
    """Return the conditions of a run, or the key of all rows if its participants have none."""
    if "participants" in run.tables:
        return {*split_by_condition(run.tables["participants"])}
    # A workbook, for example, has no table of participants.
    tables = (table for table in run.tables.values() if condition_column(table) is not None)
    return {arm for table in tables for arm in split_by_condition(table)}


def without_unmatched_arms(people: Sample, runs: Sequence[Sample]) -> Sample:
    """Return a file of human answers without the rows of conditions that no run has.

    All rows are kept if a run has no conditions, or if none of the conditions is one of a run's.
    """
    table, known = people.tables["participants"], {arm for run in runs for arm in arms_of(run)}
    arms, by = split_by_condition(table), condition_column(table)
    unmatched = tuple(arm for arm in arms if arm not in known)
    if by is None or not known or EVERYBODY in known or len(unmatched) == len(arms):
        return people
    # Tables of participants are compared condition by condition, so their rows need not be removed.
    if not any("participants" in run.tables for run in runs):
        table = table.filter(~pl.col(by).cast(pl.String).is_in(unmatched))
    return replace(people, tables={"participants": table}, unmatched_arms=unmatched)


def shared_arms(
    first: pl.DataFrame, second: pl.DataFrame
) -> dict[str, tuple[pl.DataFrame, pl.DataFrame]]:
    """Return the rows of both tables in each condition that both have.

    If one of the tables has no conditions, all rows of both are one pair.
    """
    if condition_column(first) is None or condition_column(second) is None:
        return {EVERYBODY: (first, second)}
    first_arms, second_arms = split_by_condition(first), split_by_condition(second)
    return {arm: (rows, second_arms[arm]) for arm, rows in first_arms.items() if arm in second_arms}


def are_independent(
    table: pl.DataFrame, column: str, design: TableDesign, fewest_draws: int = FEWEST_DRAWS
) -> bool:
    """Return whether each vote of the column is independent of the others.

    - `design`: what the claims of the run say about its table.
    - `fewest_draws`: the smallest number of draws of a text that are units.
    """
    # Initial votes are made before participants talk or read. A person who votes in two conditions
    # gives two votes that are alike.
    if column == "initial_choice":
        table = table.drop(DRAW, *CLUSTER_COLUMNS, strict=False)
        design = design._replace(unit_column="")
    voted = table.drop_nulls(column)
    return design.units_of(voted, fewest_draws).of.n_unique() == voted.height


def describe_respelled(name: str, respelled: Mapping[str, str]) -> Sentence:
    """Return the sentence that names the choices of a file that were respelled."""
    spellings = [f"“{text}” as “{choice}”" for text, choice in respelled.items()]
    return word("runs", "respelled", file=name, spellings=join_first(spellings, MAX_LISTED))


def describe_weights(name: str, table: pl.DataFrame) -> Sentence | None:
    """Return the sentence that weights are not applied, or None for a table without weights."""
    columns = [column for column in table.columns if is_weight_column(column)]
    return word("runs", "weights", file=name, column=columns[0]) if columns else None
