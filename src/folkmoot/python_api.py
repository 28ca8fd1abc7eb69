"""The Python interface: `run`, `arun`, `fork` and `load`, which return a `Run`."""
# The methods of `Run` have the names of the commands and do the same as the commands.

from __future__ import annotations

import asyncio
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from folkmoot.cli.study_files import print_check
from folkmoot.cli.tables import print_findings
from folkmoot.engine.run import runner
from folkmoot.engine.run.dry_run import RunEstimate
from folkmoot.engine.run.event_loop import RunStopper, run_beside_loop
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import (
    ReplyReplacement,
    build_reply_change,
    fork_change,
    fork_run,
    resume_fork,
    study_for_fork,
)
from folkmoot.engine.run.model_choice import choose_models
from folkmoot.engine.run.verify import Verification, list_changes, verify_run
from folkmoot.engine.session.folder_access import IfExists, choose_folder, open_run
from folkmoot.engine.settings.option_kinds import check_option_kinds
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import (
    Study,
    analysed_parts,
    codebook_of_run,
    find_study,
    find_study_of_run,
    with_derived_tables,
)
from folkmoot.engine.study.study_file import StudyFile, validate_settings
from folkmoot.errors import DriftError, InputError, Problem
from folkmoot.hints import lacks_extra
from folkmoot.kit.named_controls import findings_with_controls, run_with_controls
from folkmoot.models.request import Provider
from folkmoot.report.comparison.power import power_of
from folkmoot.storage.findings import Finding
from folkmoot.storage.run_folder import PLAN, STUDY_FILE_NAME, RunFolder

_log = logging.getLogger(__name__)
# The width of printed text in characters, as notebooks show it.
PRINTED_WIDTH = 100
IN_PYTHON = (
    'In Python: if_exists="new" starts a new run beside it, out=… names another folder, '
    "accept_changes=True is --accept-changes."
)


class Run:
    """A run in the Python interface: tables, findings, and methods with the names of commands.

        run = folkmoot.load("outputs/pilot_001")
        run.findings, run.tables["participants"], run.report()

    The tables of an unfinished run hold the rows recorded until now. Findings and report cover its
    complete parts alone, as `partial` says.
    """

    def __init__(
        self,
        folder: RunFolder,
        study_file: StudyFile | None = None,
        study: Study | None = None,
    ) -> None:
        self.folder = folder
        self._loaded_file = study_file
        self._known_study = study_file.study if study_file is not None else study

    def __repr__(self) -> str:
        # Which parts are complete is not computed here: it reads the tables.
        partial = f"; {self.folder.partial}" if self.folder.partial else ""
        tables = ", ".join(self.folder.table_names()) or "none"
        return f"Run({str(self.path)!r}: {self.folder.study}; tables {tables}{partial})"

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def study(self) -> Study:
        """The study type of the run.

        Raises InputError if the study type cannot be found.
        """
        return self._known_study or find_study_of_run(self.folder)

    @property
    def tables(self) -> Tables:
        """All tables, as a map from table name to polars data frame."""
        # A table is read when it is accessed.
        return Tables(self.folder)

    @property
    def findings(self) -> Findings:
        """The findings of the study and of its controls."""
        return Findings(findings_with_controls(self.study, self.folder))

    @property
    def codebook(self) -> Mapping[str, Any]:
        """The meaning, type and range of each column, by table and column."""
        return codebook_of_run(self.folder, self._known_study)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The models, settings, versions and cost of the run. Of a killed run, what is known."""
        return self.folder.manifest

    @property
    def partial(self) -> str:
        """The caveat for all findings of an unfinished run. Empty for a finished run."""
        if not self.folder.partial:
            return ""
        # As in the report: only the study type knows which parts are complete. A study type that
        # is not registered has no findings either.
        try:
            return analysed_parts(self.study, self.folder).partial
        except InputError:
            return self.folder.partial

    @property
    def unusable(self) -> str:
        """The reason why the run has no usable results. Empty if there are usable results."""
        return self.folder.unusable_reason

    def table(self, name: str) -> pl.DataFrame:
        """Return one table as a polars data frame.

        Raises StorageError if there is no such table.
        """
        return self.folder.read_table(name)

    def to_pandas(self, name: str) -> Any:
        """Return one table as a pandas data frame.

        Raises InputError if pandas or pyarrow is not installed.
        """
        table = self.table(name)
        try:
            return table.to_pandas()
        except ModuleNotFoundError:
            raise InputError(lacks_extra("to_pandas", "pandas", "pandas and pyarrow")) from None

    def json(self, name: str) -> Any:
        """Return the content of one of the study's JSON files in the run folder."""
        return self.folder.read_json(name)

    def report(self, *, pdf: bool = False) -> Path:
        """Write the report into the run folder and return the path of the report.

        - `pdf`: if True, write `report.pdf` too and return the path of that file.
        """
        # Imports Altair, which takes half a second and which `run` does not need.
        from folkmoot.report.document.html import write_report

        # The run may have gone on or ended since this object was made.
        return write_report(open_run(self.path), pdf=pdf, study=self.study)

    def check(self, model: str | None = None) -> CheckResult:
        """Estimate what a new run with the same settings would need: calls, tokens, cost, time.

        - `model`: the model to assume. The default is the model of this run.

        No model is called, so the estimate costs nothing.
        """
        study_file = choose_models(
            self._study_file(), RunOptions(model=model, resume=True), self.path
        )
        console = _text_console()
        estimate = print_check(console, study_file, RunOptions(model=model))
        return CheckResult(estimate, _text_of(console))

    def power(self, *, iccs: Sequence[float] = ()) -> Findings:
        """Return findings on the smallest effects that the design of the run can detect.

        - `iccs`: the assumed intraclass correlations within groups.
        """
        return Findings(power_of(self._study_file(), iccs))

    def verify(self, *, published: str = "") -> Verification:
        """Rebuild the run from the journal and compare the result with the files of the run.

        - `published`: a digest of the run that was published elsewhere.
        """
        # The manifest that this object has read is out of date if the cell was run again since.
        return verify_run(open_run(self.path), self.study, published=published)

    def _study_file(self) -> StudyFile:
        if self._loaded_file is not None:
            return self._loaded_file
        recorded_path = self.folder.manifest.get("study_file") or self.folder.plan.get("study_file")
        path = self.path / str(recorded_path or STUDY_FILE_NAME)
        config = validate_settings(self.study, self.folder.config, folder=path.parent)
        return StudyFile(path, self.study, config, {})


class Tables(Mapping[str, pl.DataFrame]):
    """The tables of a run, as a map from name to table.

    A table is read from disk when it is accessed.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> pl.DataFrame:
        if not self._folder.has_table(name):
            raise KeyError(f"no table {name}; tables: {', '.join(self)}")
        return self._folder.read_table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._folder.table_names())

    def __len__(self) -> int:
        return len(self._folder.table_names())

    def __repr__(self) -> str:
        rows = {
            name: self._folder.scan_table(name).select(pl.len()).collect().item() for name in self
        }
        return "\n".join(f"{name}: {count:,} rows" for name, count in rows.items()) or "no tables"


class Findings(tuple[Finding, ...]):
    """The findings of a run in the order of the report. `print` shows them as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        console = _text_console()
        print_findings(console, self)
        return _text_of(console)


@dataclass(frozen=True, repr=False)
class CheckResult:
    """The estimated calls, tokens, cost and time of a run, as values and as text."""

    # The numbers.
    estimate: RunEstimate
    # The output of `folkmoot check`.
    text: str

    def __repr__(self) -> str:
        return self.text


def load(folder: str | Path, *, study: Study | None = None) -> Run:
    """Return the run in a folder, finished or not.

    - `study`: the study type, if it cannot be found by its name or beside the run.

    Issues a warning for each file that was changed after the run.
    """
    _check_study(study)
    run = open_run(Path(folder))
    for change in list_changes(run):
        warnings.warn(f"{run.path}: {change}", stacklevel=2)
    return Run(with_derived_tables(run, study), study=study)


def run(
    study: str | Path | Study,
    settings: Mapping[str, object] | None = None,
    *,
    model: str | None = None,
    out: str | Path | None = None,
    if_exists: IfExists = "resume",
    seed: int | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    budget: float | None = None,
    provider: Provider | None = None,
    trust: bool = False,
    stopper: RunStopper | None = None,
    **more: Any,
) -> Run:
    """Run a study to its end and return the run.

        run = folkmoot.run("study.yaml", model="synthetic", out="outputs/pilot_001")

    - `study`: the path of a study file, a `Study`, or the name of a study type.
    - `settings`: the settings of the study, if `study` is not a file.
    - `out`: the folder of the run.
    - `if_exists`: what happens if `out` already holds a run.
    - `limit`: the largest number of participants or sessions.
    - `concurrency`: the largest number of calls at the same time.
    - `budget`: the most that the run may cost, in USD.
    - `provider`: an object that answers every call instead of a model, for tests.
    - `trust`: True to allow the Python code and the network addresses that the study file names.
    - `stopper`: stops the run like Ctrl-C, from any thread.
    - other keywords: fields of `RunOptions`.

    The values of `if_exists` are:

    - `"resume"`: continue the run. Only missing answers are requested and paid for.
    - `"new"`: start a run in a new folder, such as `pilot_001_2`. All answers are paid for again.
    - `"error"`: raise RunExistsError.

    None of these values overwrites or deletes an answer.

    Raises DriftError if the study has changed since the run began. Raises RunPausedError if a
    budget or quota is used up. The same call then continues the run.
    """
    # `"resume"` is the default, because it lets a whole notebook be run again: a finished run
    # returns the same tables and costs nothing.
    if "resume" in more:
        raise TypeError("run() has no keyword resume; it is the default of if_exists")
    # In a notebook, blocking the event loop is harmless, because nothing else runs in it.
    if _loop_is_running() and "ipykernel" not in sys.modules:
        warnings.warn(
            "folkmoot.run blocks the event loop that is running here; write "
            "`await folkmoot.arun(…)` with the same arguments",
            stacklevel=2,
        )
    check_option_kinds({"out": out, "settings": settings, "trust": trust})
    options = RunOptions(
        model=model,
        out=None if out is None else Path(out),
        seed=seed,
        limit=limit,
        concurrency=concurrency,
        budget=budget,
        custom_provider=provider,
        consent=Consent(trust),
        **more,
    )
    load_study: Callable[[RunOptions], StudyFile]
    if isinstance(study, (str, Path)) and settings is not None:
        _refuse_study_file(Path(study))
    if not isinstance(study, (Study, str, Path)):
        kinds = "the path of a study file, the name of a study type, or a Study"
        raise InputError(f"the study is of type {type(study).__name__}; pass {kinds}")
    if settings is None and not isinstance(study, Study):
        load_study = partial(runner.load_study_with_options, study)
    else:
        study_type = study if isinstance(study, Study) else find_study(str(study))
        load_study = partial(runner.study_from_settings, study_type, settings or {})
    study_file = load_study(options)
    folder, resume = choose_folder(runner.run_folder_path(study_file, options), if_exists)
    options = replace(options, out=folder, resume=resume)
    # A resumed run uses the models of its sealed plan, so the study file is read again.
    if resume:
        study_file = load_study(options)
    if study_file.models_note:
        _log.warning(study_file.models_note)
    try:
        return Run(run_with_controls(study_file, options, stopper), study_file)
    except DriftError as error:
        error.add_note(IN_PYTHON)
        raise


def fork(
    source: str | Path | Run,
    address: str,
    *,
    say: str | None = None,
    drop: bool = False,
    model: str | None = None,
    out: str | Path | None = None,
    budget: float | None = None,
    provider: Provider | None = None,
    trust: bool = False,
    study: Study | None = None,
) -> Run:
    """Repeat a finished run with one reply changed, and return the new run.

        folkmoot.fork(run, address, say="I disagree.")

    - `address`: the `address` of an answer, or the `utterance_id` of an utterance.
    - `say`: the text of the new reply.
    - `drop`: if True, the reply is removed.
    - `model`: the model that gives the new reply.
    - `out`: the folder of the new run. An unfinished fork in this folder is continued.
    - `study`: the study type, if it cannot be found beside the run.

    The other parameters are those of `run`. Only answers that depend on the changed reply are
    requested again.
    """
    check_option_kinds({"say": say, "model": model, "out": out, "trust": trust})
    _check_study(study)
    base = source.folder if isinstance(source, Run) else RunFolder(source)
    replacement = ReplyReplacement(say, drop, model)
    folder = None if out is None else Path(out)
    options = RunOptions(
        out=folder, budget=budget, custom_provider=provider, consent=Consent(trust)
    )
    if folder is not None and (folder / PLAN).exists() and fork_change(RunFolder(folder)):
        study_type = study_for_fork(base, options, study).study
        change = build_reply_change(base, folder, study_type, address, replacement)
        # Another change in the same folder is a conflict, which `fork_run` reports.
        if fork_change(RunFolder(folder)) == change:
            return Run(resume_fork(RunFolder(folder), options, study=study), study=study)
    return Run(fork_run(base, address, replacement, options, study=study), study=study)


async def arun(
    study: str | Path | Study, settings: Mapping[str, object] | None = None, **options: Any
) -> Run:
    """Run a study from async code, without blocking the event loop.

        run = await folkmoot.arun("study.yaml", model="synthetic")

    The arguments are those of `run`. After a cancellation, the same call continues the run.
    """
    # If the task is cancelled, its running calls are completed and journaled.
    return await run_beside_loop(lambda stopper: run(study, settings, stopper=stopper, **options))


def _check_study(study: object) -> None:
    if study is not None and not isinstance(study, Study):
        raise InputError(f"study= is of type {type(study).__name__}; pass a Study")


def _refuse_study_file(path: Path) -> None:
    # Otherwise a study file would be executed as the code of a study type.
    if path.is_file() and path.suffix != ".py":
        hint = 'for a study file write overrides=["key=value"]'
        raise InputError(Problem(f"{path}: settings= goes with a study type", hint=hint))


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _text_console() -> Console:
    return Console(file=io.StringIO(), width=PRINTED_WIDTH, color_system=None)


def _text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip()
