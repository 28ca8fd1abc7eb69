"""What a study type is, and the registry by which the engine finds them.

A study package exposes `STUDY = Study(...)` and registers it under the entry-point group
`folkmoot.studies`; a single Python file that defines STUDY works too (`study: ./my_study.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Generic

from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.seats.seats import Seat, select_seats
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.author_errors import find_author_error
from folkmoot.engine.settings.claims import (
    as_declared,
    evaluate_claims,
    join_claims,
    read_declared,
    tested_finding,
)
from folkmoot.engine.settings.config import ConfigT, StudyConfig
from folkmoot.engine.settings.hypotheses import Hypothesis, build_hypotheses_finding, read_sealed
from folkmoot.engine.study.consent import TRUST_ENV_VARIABLE, Consent
from folkmoot.engine.study.strict_answers import StrictTables, add_strict_findings
from folkmoot.engine.study.study_code import load_study_code
from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.power import DesignSize
from folkmoot.measures.retest import Repeat
from folkmoot.models.request import Message
from folkmoot.registry import STUDIES, installed_entry_points
from folkmoot.respondent.mind.part import RespondentPart
from folkmoot.storage.findings import Finding, ResultTable
from folkmoot.storage.partial_run import PartialRun, describe_parts, parts_of
from folkmoot.storage.rows import Row
from folkmoot.storage.rows import columns_of_class as declared_tables
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import CONDITION_COLUMNS


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What a sealed plan foresees of one table, for the report to compare with what happened.

    `key` columns name a row, the other columns of `rows` were fixed beforehand. `done` is the
    column, and its value, that says that a row came to its end (no column: not known). `part` is
    the column of the parts that a report of an unfinished run counts and covers ("2 of 6 sets"):
    all rows of a part are recorded when it ends, those of this table included, and a part is
    complete when all its planned rows are there.
    """

    table: str
    key: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    unit: str = "participant"
    done: tuple[str, str] = ("", "")
    part: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """One prompt as it would be sent: whose it is, in words, and the request."""

    title: str
    messages: tuple[Message, ...]
    images: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Study(Generic[ConfigT]):
    """A study type. Only name, title, config and protocol are needed; the rest has defaults.

    protocol    the study itself, an async function over a `Session`
    prompts     folder of the prompts that `scope.prompt` renders
    matches     does a study file without `study:` mean this type? Gets the raw keys and values;
                of several types that say yes the first by name is meant
    run_id      name of the folder under `outputs/`; empty means the study file's own name
    check_config deeper checks than the config's own (config, folder of the study file); the
                `key` of each problem is dotted, the loader adds file and line
    notes       what the user should know before a run that is no mistake
    dry_run_config the config for a rehearsal (`dry_run.py`), from the config and a folder that
                is thrown away: what the study keeps outside of its run folder must stay untouched,
                nothing is fetched
    image_locations where its prompts show images (cells, lines), so that a model that takes none is
                refused before anything is spent
    preview     what `folkmoot check --preview` prints: prompts as they would be sent
    size        how large the design is (config, folder of the study file), for `folkmoot power`;
                None where the settings don't say
    claims      what a study with these settings compares, stated without data (config): at most
                three primary claims, which answer its main question, and all others
    findings    results from the tables of a finished run
    repeats     what participants were asked twice, from the tables of a run, with both answers: by
                it the report tells a model that answers at random
    strict_tables  its tables without some answers, from the run and the rows of `answers` to leave
                out: findings are also computed from these (`strict_answers.py`). None: no
                finding rests on a single choice or number
    render_run  lines of rich markup that `folkmoot show RUN [ID]` adds to its own: from the run and
                the key of a conversation or participant, which is empty for the whole run
    load_config reader for file types of its own (`file_suffixes`), gives the config
    extra_models models that seats of the study name by themselves and that are asked, so that they
                can be checked: those that the file names, and where the file names a hosted `model`
                for the run, those that the study type itself names
    source_model the model that the study's source uses by default; it is named to a user who names
                none, and never asked unless the user says so
    seats       the participants whom people could play (config, folder of the study file)
    expected_rows from the sealed parts (name → data) to the rows of tables that they foresee
    derived     files that follow from the tables (and the journal), from a run or the complete
                parts of an unfinished one: the name of each, and what is written as JSON, or text
                as it is. They are written when a run ends or pauses, and with the report of a run
                that was killed or goes on
    uses_embeddings whether the protocol asks for embeddings, so that a study without an
                embedding model is refused before anything is spent
    with_limit  the same config with at most so many participants or sessions (`--limit N`)
    tables      the rows of its tables (`storage.rows.Row`): columns, kinds and meanings; they are
                written without rows too
    unusable_reason why nothing in a run that came to its end is of use (exit status 3); empty when
                something is. That no answer at all could be read need not be found here
    derived_tables rows of further tables, made of what the run left: its folder, its journal, and
                the wording of its prompts (name → text). Their classes stand in `tables`
    codebook    what the study's own columns mean: column → words, or table → {column → words}
    template_files file name → content of the files that `folkmoot new` writes beside a study file
                with all keys; a study file of this name (`NAME.yaml`) takes its place
    respondent_part what the embedded respondent should know of this study's answers and topics
                (`folkmoot.respondent`); without it everything is answered by its form
    from_polis  a Polis conversation, and a comment of it or None → the files of a study made of it
    """

    name: str
    title: str
    config: type[ConfigT]
    protocol: Callable[[Session[ConfigT]], Awaitable[None]]
    prompts: Path | None = None
    matches: Callable[[Mapping[str, object]], bool] = lambda _raw: False
    run_id: Callable[[ConfigT], str] = lambda _config: ""
    check_config: Callable[[ConfigT, Path], list[Problem]] = lambda _config, _folder: []
    notes: Callable[[ConfigT], list[str]] = lambda _config: []
    dry_run_config: Callable[[ConfigT, Path], ConfigT] = lambda config, _folder: config
    image_locations: Callable[[ConfigT], Sequence[str]] = lambda _config: ()
    preview: Callable[[ConfigT, PromptLibrary], list[Preview]] | None = None
    size: Callable[[ConfigT, Path], DesignSize | None] = lambda _config, _folder: None
    claims: Callable[[ConfigT], Sequence[Claim]] = lambda _config: ()
    findings: Callable[[RunFolder], list[Finding]] = lambda _run: []
    repeats: Callable[[RunFolder], Collection[Repeat]] = lambda _run: ()
    strict_tables: StrictTables | None = None
    render_run: Callable[[RunFolder, Sequence[str]], Iterable[str]] = lambda _run, _key: ()
    load_config: Callable[[Path], ConfigT] | None = None
    file_suffixes: tuple[str, ...] = ()
    extra_models: Callable[[ConfigT], list[str]] = lambda _config: []
    source_model: str = ""
    seats: Callable[[ConfigT, Path], Sequence[Seat]] = lambda _config, _folder: ()
    expected_rows: Callable[[Mapping[str, object]], list[ExpectedRows]] = lambda _sealed: []
    derived: Callable[[RunFolder, JournalReader], Iterable[tuple[str, object]]] = (
        lambda _run, _journal: ()
    )
    uses_embeddings: bool = False
    with_limit: Callable[[ConfigT, int], ConfigT] | None = None
    tables: Sequence[type[Row]] = ()
    unusable_reason: Callable[[RunFolder], str] = lambda _run: ""
    derived_tables: Callable[[RunFolder, JournalReader, Mapping[str, str]], Iterable[Row]] = (
        lambda _run, _journal, _prompts: ()
    )
    codebook: Mapping[str, object] = field(default_factory=dict)
    template_files: Callable[[], dict[str, str | bytes]] = dict
    respondent_part: RespondentPart[ConfigT] = field(default_factory=RespondentPart)
    from_polis: Callable[[Any, str | None], dict[str, str | bytes]] | None = None


def registered_studies() -> dict[str, EntryPoint]:
    """The study types that are installed, by name, none of them imported yet."""
    return installed_entry_points(STUDIES)


def find_study(name: str, folder: Path | None = None, consent: Consent | None = None) -> Study:
    """The study type of that name, or of that Python file (relative to `folder`).

    `consent` is None where the caller names the type in Python. Raises InputError, which names the
    likely meant type, or why the type cannot be loaded.
    """
    code = study_code_path(name, folder)
    if code is not None:
        return load_study(code, consent)
    points = registered_studies()
    if name not in points:
        raise InputError(_unknown_study_problem(name, list(points)))
    try:
        found = points[name].load()
    except Exception as error:  # a broken plug-in must be named, whatever broke in it
        raise InputError(
            Problem(f"the study type {name} cannot be loaded: {error!r}", key="study")
        ) from error
    return _require_study(found, name)


def study_code_path(name: str, folder: Path | None = None) -> Path | None:
    """The Python file that a study type's name means (relative to `folder`), if it means one."""
    if name.endswith(".py") or "/" in name or "\\" in name:
        return (folder or Path()) / Path(name).expanduser()
    return None


def find_study_of_run(run: RunFolder) -> Study:
    """The study type of a run, for `show` and `report`.

    A study in a file of the user's own is looked for where the study file lay, beside the run,
    above `outputs/`, and here.
    Raises InputError when it cannot be found any more.
    """
    named = str(run.config.get("study") or run.study)
    if study_code_path(named) is None:
        return find_study(named)
    # A run that was killed before its end has no manifest.
    study_file = run.manifest.get("study_file") or run.plan.get("study_file") or ""
    lay = (run.path / str(study_file)).parent
    folders = (lay, run.path, run.path.parent, run.path.parent.parent, Path())
    beside = next((folder for folder in folders if (folder / named).is_file()), Path())
    return find_study(
        named, beside, Consent(command_hint=f"{TRUST_ENV_VARIABLE}=1 in the environment")
    )


def select_study_seats(study: Study, config: StudyConfig, folder: Path) -> tuple[Seat, ...]:
    """The participants whom people play, drawn where the file only says how many.

    Raises InputError where it names nobody, or somebody whom nobody can play.
    """
    if config.seats is None:
        return ()
    return select_seats(config.seats, study.seats(config, folder), config.random_seed)


def claims_of(study: Study, config: StudyConfig) -> list[Claim]:
    """What a study with these settings compares: the hypotheses of its file, then the claims of its
    type; see `join_claims`."""
    return _join_declared_claims(study, config.hypotheses, study.claims(config))


def claims_of_run(study: Study, run: RunFolder) -> list[Claim]:
    """What a run compares: the hypotheses of its sealed plan, then the claims of its study type."""
    return _join_declared_claims(
        study, read_sealed(run)[0], read_declared(run, study.config, study.claims)
    )


def _join_declared_claims(
    study: Study, hypotheses: Sequence[Hypothesis], declared: Sequence[Claim]
) -> list[Claim]:
    tables = declared_tables(study.tables)
    stated = [as_declared(hypothesis.as_claim(), tables, declared) for hypothesis in hypotheses]
    return join_claims(stated, declared)


FAILED_FINDING_KEY = "failed"  # the key of the finding that says that a study's findings failed


def compute_findings(study: Study, run: RunFolder) -> list[Finding]:
    """What the study finds in a run.

    A finding may fail in any way: in a run that has not ended, or with nothing usable in it,
    whatever it counts may be missing; in others it is a fault of the study, which must not take the
    end of a paid run with it. Then a finding says so, and the rest can be shown. A mistake in a
    study of the user's own is raised, so that its line can be named: the tables are written.
    """
    run = complete_parts(study, run)
    if isinstance(run, PartialRun):
        what = describe_parts(run)
        return [what, *_compute_findings(study, run)] if run.parts.complete else [what]
    return _compute_findings(study, run)


def complete_parts(study: Study, run: RunFolder) -> RunFolder:
    """The complete parts of an unfinished run; a finished one, and one of a study type that names
    no parts, as it is."""
    if run.is_finished or isinstance(run, PartialRun):
        return run
    return take_complete_parts(study, run)


def take_complete_parts(study: Study, run: RunFolder) -> RunFolder:
    """The same of a run that is known to be unfinished, whatever its manifest says."""
    sealed = {name: part.get("data") for name, part in run.plan.get("sealed", {}).items()}
    planned = (
        next(
            (expected_rows for expected_rows in study.expected_rows(sealed) if expected_rows.part),
            None,
        )
        if sealed
        else None
    )
    if planned is None:
        return run
    keys = list(planned.key)
    arm = next((name for name in CONDITION_COLUMNS if planned.rows and name in planned.rows[0]), "")
    recorded: Iterable[tuple[object, ...]] = ()
    if run.has_table(planned.table):
        recorded = run.scan_table(planned.table).select(keys).collect().iter_rows()
    parts = parts_of(
        planned.part,
        (
            (str(row[planned.part]), _join_key([row[key] for key in keys]), str(row.get(arm, "")))
            for row in planned.rows
        ),
        map(_join_key, recorded),
    )
    return PartialRun(run, parts, declared_tables(study.tables))


def _join_key(key: Iterable[object]) -> str:
    return " ".join(map(str, key))


def _compute_findings(study: Study, run: RunFolder) -> list[Finding]:
    stated, sealed = read_sealed(run)

    def compute_all_findings(run: RunFolder) -> list[Finding]:
        found = study.findings(run)
        claims = claims_of_run(study, run)
        tested = tested_finding(evaluate_claims(run, claims)) if claims else None
        last = [tested] if tested else []
        if not stated:
            return [*found, *last]
        others = (replace(finding, title=f"{finding.title} (exploratory)") for finding in found)
        return [build_hypotheses_finding(run, stated, sealed=sealed), *others, *last]

    try:
        return add_strict_findings(
            compute_all_findings(run), run, study.strict_tables, compute_all_findings
        )
    except Exception as error:
        lack = run.unusable_reason or f"they need more than the run has so far ({error})"
        key = "partial"
        if run.is_finished and not run.unusable_reason:
            if find_author_error(error) is not None:
                raise
            key = FAILED_FINDING_KEY
            lack = f"a fault of the study type ({error!r}); the tables are whole"
        return [Finding(key, "No findings", f"Why: {lack}.", ResultTable((), ()), headline=True)]


def load_installed_studies() -> tuple[list[Study], list[Problem]]:
    """All study types that load, in order of name, and why the others do not."""
    studies: list[Study] = []
    problems: list[Problem] = []
    for name in registered_studies():
        try:
            studies.append(find_study(name))
        except InputError as error:
            problems.extend(error.problems)
    return studies, problems


def load_study(path: Path, consent: Consent | None = None) -> Study:
    """The STUDY of a Python file. The same content is executed once per process.

    `consent` is None where the caller names the file in Python. Raises InputError.
    """
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path.resolve()}", key="study"))
    module = load_study_code(path, consent)
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


def _require_study(found: object, name: str) -> Study:
    if not isinstance(found, Study):
        raise InputError(
            Problem(f"STUDY of {name} is a {type(found).__name__}, not a Study", key="study")
        )
    check_study(found, name)
    return found


def check_study(study: Study, name: str = "") -> None:
    """Raise InputError for what can't be a study: a protocol that is not async, and the like."""
    protocol = inspect.unwrap(study.protocol)
    code = getattr(protocol, "__code__", None)
    file, line = (code.co_filename, str(code.co_firstlineno)) if code else (name, "")
    problems: list[Problem] = []

    def fail(what: str, hint: str, file: str = file, line: str = line) -> None:
        problems.append(Problem(what, file, line, hint=hint))

    if inspect.isasyncgenfunction(protocol):
        fail("the protocol has a `yield`", "a protocol returns nothing; record rows instead")
    elif inspect.isfunction(protocol) and not inspect.iscoroutinefunction(protocol):
        fail("the protocol is not async", f"write `async def {protocol.__name__}(session)`")
    elif not callable(protocol):
        fail("the protocol is not a function", "protocol=…: an `async def` of one's own")
    elif inspect.isfunction(protocol) and not _accepts_one_argument(protocol):
        fail("the protocol must take one argument", "write `async def protocol(session)`")
    if not (isinstance(study.config, type) and issubclass(study.config, StudyConfig)):
        fail("config= is not a subclass of StudyConfig", "write `class Config(StudyConfig)`")
    if not isinstance(study.prompts, (Path, type(None))):
        fail("prompts= is not a path", 'write `prompts=Path(__file__).parent / "prompts"`')
    if problems:
        raise InputError(problems)


def _accepts_one_argument(protocol: Callable[..., object]) -> bool:
    try:
        inspect.signature(protocol).bind(None)
    except TypeError:
        return False
    return True


def _unknown_study_problem(name: str, known: list[str]) -> Problem:
    hint = did_you_mean(name, known, "known are: " + ", ".join(known))
    return Problem(f"there is no study type {name!r}", key="study", hint=hint)
