"""Define study types, find a study type by name, and compute the findings of runs."""

# A study package defines `STUDY = Study(...)` and registers it under the entry-point group
# `folkmoot.studies`. A single Python file that defines STUDY works as well (`study:
# ./my_study.py`).

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Generic

from pydantic import ValidationError

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.questionnaire import PEOPLE_TABLES, excluded_parts
from folkmoot.engine.seats.seats import Seat, select_seats
from folkmoot.engine.seats.utterances import (
    PlaceInReply,
    SelfDescriptionRow,
    UtteranceInReply,
    UtteranceRow,
)
from folkmoot.engine.session.plan import sealed_data
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings import run_claims
from folkmoot.engine.settings.author_errors import find_author_error, locate_function
from folkmoot.engine.settings.claimed_tables import Conditions, name_conditions
from folkmoot.engine.settings.claims import (
    as_declared,
    evaluate_claims,
    join_claims,
    read_declared,
    tested_finding,
    with_declared_unit,
)
from folkmoot.engine.settings.config import ConfigT, StudyConfig
from folkmoot.engine.settings.hypotheses import build_hypotheses_finding, read_sealed
from folkmoot.engine.study.author_checks import (
    accepts_arguments,
    find_wrong_functions,
    find_wrong_values,
    is_kind_allowed,
    kinds_of_annotation,
)
from folkmoot.engine.study.consent import TRUST_ENV_VARIABLE, Consent
from folkmoot.engine.study.decision_design import DecisionDesign
from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.engine.study.imported_study import ImportedStudy
from folkmoot.engine.study.preview import Preview
from folkmoot.engine.study.return_values import functions_with_checks
from folkmoot.engine.study.strict_answers import (
    StrictTables,
    add_strict_findings,
    describe_exclusions,
)
from folkmoot.engine.study.study_code import load_study_code
from folkmoot.errors import EmptyJournalError, InputError, Problem, ProtocolError
from folkmoot.hints import command_line, did_you_mean
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.power import DesignSize
from folkmoot.measures.position import Shown
from folkmoot.measures.reply_checks import UnitOf
from folkmoot.measures.retest import Repeat
from folkmoot.registry import STUDIES, installed_entry_points
from folkmoot.respondent.mind.part import RespondentPart
from folkmoot.storage.findings import Finding, ResultTable, without_p_values
from folkmoot.storage.partial_run import PartialRun, Parts, PartsView, describe_parts, parts_of
from folkmoot.storage.provenance_table import ProvenanceRow
from folkmoot.storage.rows import AnswerRange, Row, column_meanings
from folkmoot.storage.rows import columns_of_class as declared_tables
from folkmoot.storage.run_folder import JOURNAL, RunFolder, RunSoFar, find_main_run
from folkmoot.storage.table_buffer import TableBuffer, TemporaryRowFile
from folkmoot.storage.tables import CONDITION_COLUMNS, Table, build_codebook


@dataclass(frozen=True, slots=True)
class Study(Generic[ConfigT]):
    """A study type.

        STUDY = Study("pairs", "Pairs of people", PairsConfig, protocol)

    Only the name, the title, the config class and the protocol are required.
    """

    # Functions of (config, folder) receive the settings and the folder of the study file.

    name: str
    title: str
    # The pydantic class of its study files.
    config: type[ConfigT]
    # The study itself, an async function of a `Session`.
    protocol: Callable[[Session[ConfigT]], Awaitable[None]]
    # What it answers, in one sentence, for a researcher who chooses a study type.
    question: str = ""
    # The folder of the prompts that a scope renders.
    prompts: Path | None = None
    # Receives the raw keys and values of a study file without the key `study`, and returns whether
    # the file is of this type. If several types match, the first by name is used.
    matches: Callable[[Mapping[str, object]], bool] = lambda _raw: False
    # Returns the name of the run folder below `outputs/`. Empty means the name of the study file.
    run_id: Callable[[ConfigT], str] = lambda _config: ""
    # (config, folder) returns problems that the class `config` cannot find. The `key` of a problem
    # is dotted. The loader adds file and line.
    check_config: Callable[[ConfigT, Path], list[Problem]] = lambda _config, _folder: []
    # (config, folder) returns advisories, which the researcher should know before a run.
    notes: Callable[[ConfigT, Path], list[str]] = lambda _config, _folder: []
    # Returns the configuration for a dry run, given a temporary folder. With this configuration the
    # study fetches nothing and changes no files outside of its run folder.
    dry_run_config: Callable[[ConfigT, Path], ConfigT] = lambda config, _folder: config
    # Returns cells or lines of prompts with images. A model without images is then rejected before
    # any cost.
    image_locations: Callable[[ConfigT], Sequence[str]] = lambda _config: ()
    # Returns the prompts that `folkmoot check --preview` prints.
    preview: Callable[[ConfigT, PromptLibrary], list[Preview]] | None = None
    # (config, folder) returns the size of the design for `folkmoot power`, or None if the settings
    # do not determine it.
    size: Callable[[ConfigT, Path], DesignSize | None] = lambda _config, _folder: None
    # Returns the comparisons of a study with these settings, stated without data. At most three of
    # them may be primary, for the main question of the study.
    claims: Callable[[ConfigT], Sequence[Claim]] = lambda _config: ()
    # Returns the sentence with the rule by which answers end a run with these settings early, or an
    # empty string if none does. None if the study type does not say. It is printed in the
    # preregistration.
    stopping_rule: Callable[[ConfigT], str] | None = None
    # Returns the conditions of a run with these settings, and their names for readers: the column
    # that holds the conditions → condition → name. A measure that only some conditions record is a
    # key as well (`table.column`). A hypothesis about any other condition is rejected before a run.
    conditions: Callable[[ConfigT], Conditions] = lambda _config: {}
    # Returns results from the tables of a finished run.
    findings: Callable[[RunFolder], list[Finding]] = lambda _run: []
    # Returns the questions that participants answered twice, with both answers. The report uses
    # them to detect models that answer at random.
    repeats: Callable[[RunFolder], Collection[Repeat]] = lambda _run: ()
    # Returns the choices that participants made inside larger answers, such as JSON. The table
    # `answers` does not hold these choices, but the study's own tables do. The checks of the model
    # read them beside the choices in `answers`. Tables of an unfinished run may be missing.
    choices: Callable[[RunFolder], Iterable[Shown]] = lambda _run: ()
    # Returns the answers that the study's own tables hold under names: address in `answers` → name
    # → option or number. The comparison of people and models in one run takes them in place of the
    # value or the JSON reply at that address.
    named_answers: Callable[[RunFolder], Mapping[str, Mapping[str, str | float]]] = lambda _run: {}
    # Returns the independent unit of a row of `answers`, see `reply_checks.py`. By default it is
    # the conversation in which the speaker heard others, see `kit.reply_units`.
    reply_unit: UnitOf | None = None
    # The noun for such a unit, such as "group". The report prints it.
    reply_unit_name: str = "independent unit"
    # Returns the tables without some rows of `answers`, see `strict_answers.py`. None if the study
    # type does not declare which tables are based on these answers. If the run asked for choices or
    # numbers, the report then says that findings were not computed a second time.
    strict_tables: StrictTables | None = None
    # Returns lines of rich markup that `folkmoot show RUN [ID]` adds, given the run and the key of
    # a conversation or participant. The key is empty for the whole run.
    render_run: Callable[[RunFolder, Sequence[str]], Iterable[str]] = lambda _run, _key: ()
    # Reads the configuration from files with one of the `file_suffixes`.
    load_config: Callable[[Path], ConfigT] | None = None
    file_suffixes: tuple[str, ...] = ()
    # The roles that `models` in a study file may name. Empty if the study type does not say: then
    # any role is accepted.
    roles: tuple[str, ...] = ()
    # Returns the models of single roles that are set neither by `model` nor by `models`, so that
    # they can be checked before the run. A model that is only a default of the study type is
    # included if the file names a hosted `model`.
    extra_models: Callable[[ConfigT], list[str]] = lambda _config: []
    # The default model of the program that the study type reproduces. Folkmoot suggests this model
    # to a researcher who names no model, and never calls it without their choice.
    source_model: str = ""
    # (config, folder) returns the participants that humans could play.
    seats: Callable[[ConfigT, Path], Sequence[Seat]] = lambda _config, _folder: ()
    # Returns the texts that describe the participants of a run and that its sealed parts lack, such
    # as stated preferences: key of a text → text. Two runs with other texts under the same key had
    # other participants.
    descriptions: Callable[[RunFolder], Mapping[tuple[str, ...], str]] = lambda _run: {}
    # Returns the numbers that answers of a run may have, if columns of `tables` do not declare them
    # (`between`): name of the answer → range. A table of human answers with another number is
    # refused.
    number_ranges: Callable[[RunFolder], Mapping[str, AnswerRange]] = lambda _run: {}
    # Returns the rows that the plan expects in tables, from its sealed parts by name.
    expected_rows: Callable[[Mapping[str, object]], list[ExpectedRows]] = lambda _sealed: []
    # Yields name and content of files that follow from the tables and the journal. Text is written
    # unchanged, other data as JSON. These files are written when a run ends or pauses, and with the
    # report of a run that was killed or is active.
    derived: Callable[[RunFolder, JournalReader], Iterable[tuple[str, object]]] = (
        lambda _run, _journal: ()
    )
    # The protocol needs embeddings. A run without an embedding model is then rejected before any
    # cost.
    uses_embeddings: bool = False
    # Returns the configuration with at most this number of participants or sessions (`--limit N`).
    # None if the study type cannot be reduced.
    with_limit: Callable[[ConfigT, int], ConfigT] | None = None
    # Returns the place of an utterance in its JSON reply, or None if the place is unknown. A fork
    # needs it if the reply holds the same words twice.
    utterance_place: Callable[[UtteranceInReply, object], PlaceInReply | None] = (
        lambda _utterance, _reply: None
    )
    # The row classes of the study's tables (`storage.rows.Row`). A table without rows is written as
    # well.
    tables: Sequence[type[Row]] = ()
    # The names of the tables whose numbers a comparison of runs shows beside the measures of the
    # claims. Empty means all `tables` but `exposure`.
    compared_tables: Sequence[str] = ()
    # Returns why a finished run is unusable as a whole (exit status 3), or an empty string. The
    # engine itself finds runs in which no answer could be parsed.
    unusable_reason: Callable[[RunFolder], str] = lambda _run: ""
    # Yields rows of tables that are made from the complete parts of a run, given its folder and its
    # journal. `tables` lists their classes. They may be made at any moment of a run, so they follow
    # from what the run has recorded and from nothing else.
    derived_tables: Callable[[RunFolder, JournalReader], Iterable[Row]] = lambda _run, _journal: ()
    # What controls need to know about the decisions in the table `exposure`.
    decision_design: DecisionDesign = field(default_factory=DecisionDesign)
    # The meaning of the study's columns: column → text, or table → {column → text}.
    codebook: Mapping[str, object] = field(default_factory=dict)
    # Returns name → content of the files that `folkmoot new` writes beside a new study file. A file
    # named `NAME.yaml` replaces the new study file.
    template_files: Callable[[], dict[str, str | bytes]] = dict
    # Answers and topics of this study for the embedded respondent. By default, the respondent
    # answers by the answer type alone.
    respondent_part: RespondentPart[ConfigT] = field(default_factory=RespondentPart)
    # (conversation, comment) returns the files of a new study about one comment of a conversation
    # on the platform Polis. If `comment` is None, the study type chooses one.
    from_polis: Callable[[Any, str | None], dict[str, str | bytes]] | None = None
    # File suffix of another program → function that converts such a file to a study. The function
    # raises InputError for a file that it cannot read.
    importers: Mapping[str, Callable[[Path], ImportedStudy]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Each function is called in several places, and any of them would fail in its own way.
        for name, function in functions_with_checks(self):
            object.__setattr__(self, name, function)


def registered_studies() -> dict[str, EntryPoint]:
    """Return a map from name to entry point for the installed study types."""
    # They are not imported.
    return installed_entry_points(STUDIES)


def find_study(name: str, folder: Path | None = None, consent: Consent | None = None) -> Study:
    """Return the study type that `name` refers to.

    `name`: the name of an installed study type, or the path of a Python file.

    Raises InputError if the type does not exist or cannot be loaded.
    """
    # A path is relative to `folder`. `consent` is None if a caller in Python names the type.
    code = study_code_path(name, folder)
    if code is not None:
        return load_study(code, consent)
    points = registered_studies()
    if name not in points:
        raise InputError(_unknown_study_problem(name, list(points)))
    # Importing a broken plug-in may raise anything, and the message must name the plug-in.
    try:
        study = points[name].load()
    except Exception as error:
        raise InputError(
            Problem(f"the study type {name} cannot be loaded: {error!r}", key="study")
        ) from error
    return _require_study(study, name)


def study_code_path(name: str, folder: Path | None = None) -> Path | None:
    """Return the Python file that a name refers to.

    Returns None if the name is not a path.
    """
    # A name with a slash is a path as well. Registered names never contain one.
    if name.endswith(".py") or "/" in name or "\\" in name:
        return (folder or Path()) / Path(name).expanduser()
    return None


def find_study_of_run(run: RunFolder) -> Study:
    """Return the study type of a run, for `folkmoot show` and `folkmoot report`.

    Raises InputError if the study type cannot be found.
    """
    # A Python file is looked for beside the study file, in the run folder and the two folders above
    # it, and in the current folder.
    study_name = str(run.config.get("study") or run.study)
    if study_code_path(study_name) is None:
        main_run = find_main_run(run.path)
        points = registered_studies()
        if study_name not in points and main_run is not None:
            hint = f"{command_line('report', main_run)} shows its results"
            raise InputError(
                Problem(f"{run.path}: this is a part of the run {main_run}", hint=hint)
            )
        if study_name not in points:
            problem = _unknown_study_problem(study_name, list(points))
            hint = f"{problem.hint}; for a Study of your own: folkmoot.load(…, study=STUDY)"
            raise InputError(replace(problem, hint=hint))
        return find_study(study_name)
    # A run that was killed has no manifest, but its plan was written at the start.
    study_file = run.manifest.get("study_file") or run.plan.get("study_file") or ""
    original_folder = (run.path / str(study_file)).parent
    folders = (original_folder, run.path, run.path.parent, run.path.parent.parent, Path())
    code_folder = next((folder for folder in folders if (folder / study_name).is_file()), Path())
    return find_study(
        study_name, code_folder, Consent(command_hint=f"{TRUST_ENV_VARIABLE}=1 in the environment")
    )


def select_study_seats(study: Study, config: StudyConfig, folder: Path) -> tuple[Seat, ...]:
    """Return the seats that humans take.

    Raises InputError if a seat does not exist or is closed to humans.
    """
    # They are drawn at random if the file gives only their number.
    if config.seats is None:
        return ()
    return select_seats(config.seats, study.seats(config, folder), config.random_seed)


def claims_of(study: Study, config: StudyConfig) -> list[Claim]:
    """Return the claims of a study before a run.

    The hypotheses of the study file come first, then the claims of the study type.
    """
    tables, conditions = declared_tables(study.tables), study.conditions(config)
    declared = [
        with_declared_unit(claim, tables)
        for claim in name_conditions(study.claims(config), conditions)
    ]
    stated = [
        as_declared(hypothesis.as_claim(), tables, declared, conditions)
        for hypothesis in config.hypotheses
    ]
    return join_claims(stated, declared)


def claims_of_run(study: Study, run: RunFolder) -> list[Claim]:
    """Return the claims of a run.

    The claims in the run's sealed plan come first, then further claims of the study type.
    """
    conditions = conditions_of_run(study, run)
    declared = name_conditions(read_declared(run, study.config, study.claims), conditions)
    return run_claims.claims_of_run(run, declared, declared_tables(study.tables), conditions)


def restate_claims(study: Study, run: RunFolder) -> list[Claim]:
    """Return the claims that this version of the study type states for a run."""
    conditions = conditions_of_run(study, run)
    declared = name_conditions(read_declared(run, study.config, study.claims), conditions)
    return run_claims.restate_claims(run, declared, declared_tables(study.tables), conditions)


# The key of the finding that is shown in place of findings that failed.
FAILED_FINDING_KEY = "failed"


def compute_findings(study: Study, run: RunFolder) -> list[Finding]:
    """Return the findings of a run, or one finding that says why there are none."""
    # An error in an installed study type becomes a finding, so that a paid run still ends well. An
    # error in the code of a study author is raised, so that the command line can name its line.
    run = analysed_parts(study, run)
    findings = []
    if isinstance(run, PartialRun):
        findings.append(describe_parts(run, _names_of_conditions(study, run)))
        if not run.parts.analysed:
            return findings
    findings += _compute_findings(study, run)
    if isinstance(run, PartsView) and run.parts.excluded:
        included = _compute_findings(study, run.with_excluded())
        findings.append(describe_exclusions(run, findings, included))
    return findings if run.is_finished else [without_p_values(finding) for finding in findings]


def conditions_of_run(study: Study, run: RunFolder) -> Conditions:
    """Return the conditions of a run: column → condition → name. Empty if they are not known."""
    try:
        return study.conditions(study.config.model_validate(run.config))
    # The settings are of a version that the present one cannot read.
    except ValidationError:
        return {}


def _names_of_conditions(study: Study, run: RunFolder) -> dict[str, str]:
    by_column = conditions_of_run(study, run)
    return {key: name for names in by_column.values() for key, name in names.items() if name}


def analysed_parts(study: Study, run: RunFolder) -> RunFolder:
    """Return a view of a run that contains only the parts that are analysed.

    A part is, for example, a session.
    """
    # The view leaves out incomplete parts of an unfinished run. It also leaves out parts in which a
    # human failed a check, if the check excludes the part.
    if isinstance(run, PartsView):
        return run
    if not run.is_finished:
        return take_complete_parts(study, with_derived_tables(run, study))
    excluded = excluded_parts(run)
    parts = _parts_of(study, run) if excluded else None
    return run if parts is None else PartsView(run, replace(parts, excluded=excluded))


def without_excluded_parts(run: RunFolder) -> RunFolder:
    """Return a view of a run that leaves out only the parts that a failed check excludes.

    A part is, for example, a session. The view has the incomplete parts of an unfinished run.
    """
    excluded = excluded_parts(run)
    parts = _parts_of(find_study_of_run(run), run) if excluded else None
    if parts is None:
        return run
    return PartsView(run, replace(parts, complete=parts.planned, excluded=excluded))


def take_complete_parts(study: Study, run: RunFolder) -> RunFolder:
    """Return a view of an unfinished run that contains only the complete parts.

    A part is, for example, a session.
    """
    # The manifest is not read, because an earlier process may have written it.
    parts = _parts_of(study, run)
    if parts is None:
        return run
    parts = replace(parts, excluded=excluded_parts(run))
    return PartialRun(run, parts, declared_tables(study.tables))


def derive_tables(
    study: Study, run: RunFolder, journal: Path, new_buffer: Callable[[str], TableBuffer]
) -> dict[str, TableBuffer]:
    """Compute the tables that a study type derives from the recorded rows of a run.

    Returns a map from table name to buffer.

    - `journal`: the path of the journal. In a replay, this is the journal of the original run.
    - `new_buffer`: returns an empty buffer for a table.
    """
    buffers: dict[str, TableBuffer] = {}
    with JournalReader(journal) as reader:
        for row in study.derived_tables(run, reader):
            if row.table not in buffers:
                buffers[row.table] = new_buffer(row.table)
            buffers[row.table].add_row(row.cells())
    return buffers


def with_derived_tables(
    run: RunFolder, study: Study | None = None, *, part_of: Mapping[str, object] | None = None
) -> RunFolder:
    """Return a run, finished or not, that has all tables of the study type.

    In a finished run all tables are files. In an unfinished run, derived tables are computed from
    the rows so far.

    - `study`: the study type. None means that the study type is looked up when needed.
    - `part_of`: the cells of a row. If given, derived tables cover only the part of the run, such
      as a session, that this row belongs to.
    """
    if not isinstance(run, RunSoFar):
        return run

    def derive_so_far(recorded: RunSoFar) -> dict[str, TableBuffer]:
        # A run is readable without the code of its study, and the rows so far may lack what this
        # code expects. A table with half of its rows would look complete, so it is empty then.
        try:
            known_study = study or find_study_of_run(recorded)
            columns = declared_tables(known_study.tables)
        except InputError as error:
            warnings.warn(f"{run.path}: tables made of others are missing: {error}", stacklevel=2)
            return {}

        # The run folder belongs to the process that writes the run, so the rows wait elsewhere.
        file = TemporaryRowFile()

        def new_buffer(table: str) -> TableBuffer:
            return TableBuffer(table, file, columns.get(table, {}))

        tables = {name: new_buffer(name) for name in columns}
        try:
            # A table without rows so far is empty, and not an error.
            covered = take_complete_parts(known_study, recorded.with_derived(lambda _: tables))
            if part_of is not None and isinstance(covered, PartialRun):
                covered = covered.with_only(str(part_of.get(covered.parts.column)))
                if not covered.parts.complete:
                    return tables
            derived = derive_tables(known_study, covered, recorded.path / JOURNAL, new_buffer)
            file.finish_writing(derived.values())
            return {**tables, **derived}
        # A run that was killed at its start has no answer yet.
        except EmptyJournalError:
            file.close()
            return tables
        except Exception as error:
            file.close()
            warnings.warn(f"{run.path}: tables made of others are empty: {error!r}", stacklevel=2)
            return tables

    return run.with_derived(derive_so_far)


# Classes of tables that the engine writes, besides `answers`. A study may list a subclass.
ENGINE_TABLES: tuple[type[Row], ...] = (
    ProvenanceRow,
    UtteranceRow,
    SelfDescriptionRow,
    *PEOPLE_TABLES,
)


def describe_tables(study: Study, tables: Mapping[str, Table]) -> dict[str, object]:
    """Return the codebook of tables of a study."""
    descriptions = dict(study.codebook)
    for table, meanings in column_meanings((*ENGINE_TABLES, *study.tables)).items():
        # A study may record further columns in a table of the engine, and describe them here.
        further = study.codebook.get(table)
        descriptions[table] = {**further, **meanings} if isinstance(further, Mapping) else meanings
    return build_codebook(tables, descriptions)


def codebook_of_run(run: RunFolder, study: Study | None = None) -> Mapping[str, Any]:
    """Return the codebook of a run: the meaning of each table and column.

    - `study`: the study type. None means that the study type is looked up when needed.
    """
    # A run that goes on or was killed has written none.
    if isinstance(run, RunSoFar):
        study = study or find_study_of_run(run)
        return describe_tables(study, {name: run.scan_table(name) for name in run.table_names()})
    return run.codebook()


def planned_parts(study: Study, run: RunFolder) -> frozenset[str]:
    """Return the names of all parts that a complete run has. A part is, for example, a session.

    The result is empty if the study type declares no parts.
    """
    parts = _parts_of(study, run)
    return frozenset() if parts is None else frozenset(parts.planned)


def _parts_of(study: Study, run: RunFolder) -> Parts | None:
    sealed = sealed_data(run.plan)
    planned_rows = (
        next(
            (candidate for candidate in study.expected_rows(sealed) if candidate.part),
            None,
        )
        if sealed
        else None
    )
    if planned_rows is None:
        return None
    keys = list(planned_rows.key)
    # The plan may name the condition of each row. The report then counts rows by condition.
    condition_column = next(
        (name for name in CONDITION_COLUMNS if planned_rows.rows and name in planned_rows.rows[0]),
        "",
    )
    recorded_keys: Iterable[tuple[object, ...]] = ()
    if run.has_table(planned_rows.table):
        recorded_keys = run.scan_table(planned_rows.table).select(keys).collect().iter_rows()
    return parts_of(
        planned_rows.part,
        (
            (
                str(row[planned_rows.part]),
                _join_key([row[key] for key in keys]),
                str(row.get(condition_column, "")),
            )
            for row in planned_rows.rows
        ),
        map(_join_key, recorded_keys),
    )


def _join_key(key: Iterable[object]) -> str:
    return " ".join(map(str, key))


def _compute_findings(study: Study, run: RunFolder) -> list[Finding]:
    hypotheses, doubt = read_sealed(run)
    declared = read_declared(run, study.config, study.claims)

    def compute_all_findings(run: RunFolder) -> list[Finding]:
        findings = _findings_of_author(study, run)
        results = evaluate_claims(run, claims_of_run(study, run))
        claims_finding = tested_finding(results)
        last_findings = [claims_finding] if claims_finding else []
        if not hypotheses:
            return [*findings, *last_findings]
        # Hypotheses come first, and everything else is exploratory beside them. A finding may hold
        # hypotheses among its comparisons, and its table says which.
        exploratory = (
            finding if finding.primary else replace(finding, title=f"{finding.title} (exploratory)")
            for finding in findings
        )
        return [
            build_hypotheses_finding(
                run_claims.results_of_hypotheses(hypotheses, results, declared), doubt=doubt
            ),
            *exploratory,
            *last_findings,
        ]

    try:
        return add_strict_findings(
            compute_all_findings(run), run, study.strict_tables, compute_all_findings
        )
    except Exception as error:
        reason = run.unusable_reason or f"they need data that the run does not have yet ({error})"
        key = "partial"
        # No answers are missing, so the error is in the code.
        if run.is_finished and not run.unusable_reason:
            if find_author_error(error) is not None:
                raise
            key = FAILED_FINDING_KEY
            reason = f"an error in the study type ({error!r}); the tables are complete"
        return [Finding(key, "No findings", f"Why: {reason}.", ResultTable((), ()), headline=True)]


def _findings_of_author(study: Study, run: RunFolder) -> list[Finding]:
    # No line of the study type raises an error if only its return value is wrong.
    returned: object = study.findings(run)
    members = returned if isinstance(returned, (list, tuple)) else ()
    wrong = [type(member).__name__ for member in members if not isinstance(member, Finding)]
    if wrong or members is not returned:
        what = f"a list with {wrong[0]}" if wrong else type(returned).__name__
        message = f"findings(run) returned {what}; return a list of Finding"
        raise ProtocolError(message, locate_function(study.findings))
    return [*members]


def load_installed_studies() -> tuple[list[Study], list[Problem]]:
    """Return the installed study types that can be loaded, and the problems of the others."""
    studies: list[Study] = []
    problems: list[Problem] = []
    # One broken plug-in must not hide the study types that work.
    for name in registered_studies():
        try:
            studies.append(find_study(name))
        except InputError as error:
            problems.extend(error.problems)
    return studies, problems


def load_study(path: Path, consent: Consent | None = None) -> Study:
    """Return the STUDY of a Python file.

    Raises InputError if the file cannot be executed or defines no valid STUDY.
    """
    # The same content is executed once per process. `consent` is None if a caller in Python names
    # the file.
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path.resolve()}", key="study"))
    module = load_study_code(path, consent)
    # Look in the module and not in the text of the file, because STUDY may be imported.
    if not hasattr(module, "STUDY"):
        raise InputError(
            Problem(
                "the file defines no STUDY",
                file=str(path.resolve()),
                key="study",
                hint="add `STUDY = Study(name=…, title=…, config=…, protocol=…)`",
            )
        )
    return _require_study(module.STUDY, str(path.resolve()))


def _require_study(study: object, name: str) -> Study:
    if not isinstance(study, Study):
        raise InputError(
            Problem(f"STUDY of {name} is a {type(study).__name__}, not a Study", key="study")
        )
    check_study(study, name)
    return study


def check_study(study: Study, name: str = "") -> None:
    """Raise InputError with all reasons why an object cannot be a study type.

    `name`: a file name. The error names this file if the file of the protocol is unknown.
    """
    # A protocol that is not async is such a reason.

    # Decorators hide the function itself, with its line and its signature.
    protocol = inspect.unwrap(study.protocol)
    location = locate_function(protocol)
    file, line = (location[0], str(location[1])) if location else (name, "")
    problems: list[Problem] = []

    def fail(message: str, hint: str, file: str = file, line: str = line) -> None:
        problems.append(Problem(message, file, line, hint=hint))

    if inspect.isasyncgenfunction(protocol):
        fail("the protocol has a `yield`", "a protocol returns nothing; record rows instead")
    elif inspect.isfunction(protocol) and not inspect.iscoroutinefunction(protocol):
        fail("the protocol is not async", f"write `async def {protocol.__name__}(session)`")
    elif not callable(protocol):
        fail("the protocol is not a function", "protocol=…: pass an `async def` function")
    elif inspect.isfunction(protocol) and not accepts_arguments(protocol, 1):
        fail("the protocol must take one argument", "write `async def protocol(session)`")
    for wrong in find_wrong_functions(study):
        own_file, own_line = wrong.location or (file, line)
        fail(wrong.message, wrong.hint, own_file, str(own_line))
    for message, hint in find_wrong_values(study):
        fail(message, hint)
    if not (isinstance(study.config, type) and issubclass(study.config, StudyConfig)):
        fail("config= is not a subclass of StudyConfig", "write `class Config(StudyConfig)`")
    else:
        for key, field_info in StudyConfig.model_fields.items():
            # A class variable in place of a field fixes the key.
            own_field = study.config.model_fields.get(key, field_info)
            allowed = kinds_of_annotation(field_info.annotation)
            if not all(
                is_kind_allowed(kind, allowed) for kind in kinds_of_annotation(own_field.annotation)
            ):
                message = f"config= gives {key}, a key of all studies, another type"
                fail(message, "choose another name for the key")
    if problems:
        raise InputError(problems)


def _unknown_study_problem(name: str, known: list[str]) -> Problem:
    hint = did_you_mean(name, known, "known are: " + ", ".join(known))
    return Problem(f"there is no study type {name!r}", key="study", hint=hint)
