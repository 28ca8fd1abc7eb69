"""Compute power by simulation: run the study many times with `--model synthetic`.

The result is no evidence about people or models.
"""
# The effects of this simulated respondent are built in. So the power is right only if people react
# as it does.

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import get_args

from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options, run_study
from folkmoot.engine.settings.claims import evaluate_claims
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import InputError, Problem
from folkmoot.kit.findings import Row, estimate_cells, finite_or_none
from folkmoot.measures.inference.claims import Claim, ClaimVerdict
from folkmoot.measures.inference.estimates import format_count, format_percent, format_span
from folkmoot.measures.inference.proportions import wilson
from folkmoot.measures.wording import join_sentences, word
from folkmoot.models.catalog import SYNTHETIC_MODEL
from folkmoot.report.comparison.power import primary_claims
from folkmoot.storage.findings import Finding, ResultTable

# Multiples of the size in the study file, used if the command names no sizes.
SIZES = (0.5, 1, 2)
LEAST_SIZE = 1


@dataclass(frozen=True, slots=True)
class Job:
    """One simulated run: study file, changed settings, size and random seed."""

    path: Path
    overrides: tuple[str, ...]
    size: str
    seed: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The result of one simulated run."""

    size: str
    # One entry for each claim. An unknown difference is None (`verdicts`, `differences`).
    verdicts: tuple[str, ...]
    differences: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Trials:
    """All runs of a simulation, grouped by size."""

    claims: tuple[Claim, ...]
    # The expected difference of each claim.
    expected: tuple[float | None, ...]
    # The setting that decides the size.
    key: str
    jobs: tuple[Job, ...]

    @classmethod
    def from_study_file(
        cls,
        path: Path,
        overrides: tuple[str, ...],
        sizes: str | None,
        runs: int,
        consent: Consent,
    ) -> Trials:
        """Return the simulated runs of a study file.

        - `overrides`: changed settings, as in `--set`.
        - `sizes`: the sizes as text, such as "experts=12,24". By default, multiples of the study's
          size.
        - `runs`: the number of runs of each size.

        Raises InputError if the file is invalid at any size.
        """
        found = _load_study_file(path, overrides, None, consent)
        claims, expected = primary_claims(found)
        if not claims:
            hint = "write hypotheses: with measure, contrast and direction (docs/study_files.md)"
            raise InputError(Problem("has no primary claims to simulate", str(path), hint=hint))
        key, values = _size_values(found, sizes)
        settings = [(*overrides, f"{key}={n}") for n in values] if values else [overrides]
        # All sizes are checked before the first run, because a run may take minutes.
        for each in settings:
            _load_study_file(path, each, None, consent)
        first = found.config.random_seed
        jobs = (
            # Run i has the same seed at every size, so that sizes are compared with equal draws.
            Job(path, own, str(n), first + run)
            for own, n in zip(settings, values or ("as in the file",), strict=True)
            for run in range(runs)
        )
        return cls(tuple(claims), tuple(expected), key, tuple(jobs))

    def run_trials(self, workers: int | None = None) -> Iterator[TrialOutcome]:
        """Yield the outcome of each run in order.

        `workers`: the largest number of processes at once.
        """
        workers = min(workers or os.cpu_count() or 1, len(self.jobs))
        if workers == 1:
            yield from map(run_trial, self.jobs)
            return
        # Spawned processes do not inherit locks and open files of this process, as forked ones
        # would.
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        try:
            yield from pool.map(run_trial, self.jobs)
        finally:
            pool.shutdown(cancel_futures=True)


def run_trial(job: Job) -> TrialOutcome:
    """Run a study once in a temporary folder and test the primary claims."""
    found = _load_study_file(job.path, job.overrides, job.seed, Consent(granted=True))
    with tempfile.TemporaryDirectory(prefix="folkmoot-power-") as folder:
        config = found.study.dry_run_config(found.config, Path(folder))
        options = RunOptions(model=SYNTHETIC_MODEL, out=Path(folder) / "run")
        run = run_study(replace(found, config=config), options)
        results = evaluate_claims(run, primary_claims(found)[0])
    differences = tuple(finite_or_none(result.estimate.value) for result in results)
    return TrialOutcome(job.size, tuple(result.verdict for result in results), differences)


def _load_study_file(
    path: Path, overrides: tuple[str, ...], seed: int | None, consent: Consent
) -> StudyFile:
    options = RunOptions(model=SYNTHETIC_MODEL, overrides=overrides, seed=seed, consent=consent)
    found = load_study_with_options(path, options)
    # Simulated calls cost nothing, so a budget for real models must not stop these runs.
    config = found.config.model_copy(update={"budget_usd": None, "budget_calls": None})
    return replace(found, config=config)


def _size_values(found: StudyFile, given: str | None) -> tuple[str, Sequence[int]]:
    # (setting that decides the size, its values in ascending order). The values are empty if no
    # single setting decides the size.
    design = found.study.size(found.config, found.study_folder)
    key, own = design.setting if design else ("", 0)
    if given is None:
        return key, sorted({max(LEAST_SIZE, round(own * times)) for times in SIZES}) if key else ()
    named, equals, listed = given.rpartition("=")
    key = named or key
    if not key:
        hint = "name the key that sets it: --sizes experts=12,24"
        raise InputError(Problem("--sizes: no single key sets the size of this study", hint=hint))
    values = [text.strip() for text in listed.split(",")]
    if (equals and not named) or not all(
        value.isdecimal() and int(value) >= LEAST_SIZE for value in values
    ):
        raise InputError(f"--sizes: {given!r} is not a list of whole numbers such as 50,100,200")
    return key, sorted({int(value) for value in values})


def simulated_power(trials: Trials, outcomes: Iterable[TrialOutcome]) -> Finding:
    """Return the finding on the power of each primary claim at each size.

    Power is the share of runs that support the claim.
    """
    by: dict[str, list[TrialOutcome]] = {}
    for each in outcomes:
        by.setdefault(each.size, []).append(each)
    rows: list[Row] = []
    said = []
    for at, (claim, aim) in enumerate(zip(trials.claims, trials.expected, strict=True)):
        told = []
        untested: dict[str, None] = {}
        for size, runs in by.items():
            verdicts = [run.verdicts[at] for run in runs]
            differences = [
                distance for run in runs if (distance := run.differences[at]) is not None
            ]
            power = wilson(verdicts.count("supported"), len(runs))
            share, interval = format_percent(power.value), format_span(power.low, power.high)
            told.append(word("power", "simulated share", share=share, interval=interval, size=size))
            # A dictionary keeps the order of the reasons and holds each reason once.
            untested |= dict.fromkeys(verdict for verdict in verdicts if verdict not in VERDICTS)
            rows.append(
                {
                    "claim": str(at + 1),
                    trials.key or "size": size,
                    **estimate_cells(power, "power_rate", "_rate"),
                    "contradicted_rate": verdicts.count("contradicted") / len(runs),
                    "mean_difference": fmean(differences) if differences else None,
                }
            )
        expected = ""
        if aim is not None:
            expected = word("power", "expected", difference=claim.format_signed(aim))
        said.append(
            word(
                "power",
                "simulated",
                number=at + 1,
                claim=claim.says,
                expected=expected,
                shares=join_sentences(told, ", "),
            )
        )
        said += [word("power", "simulated, why", why=why) for why in untested]
    # Every size has the same number of runs.
    seeds = len(next(iter(by.values())))
    return Finding(
        "power_simulated",
        "Power by simulation",
        join_sentences(said),
        ResultTable.from_records(
            rows, f"{format_count(seeds, 'run')} of each size; 95 % Wilson (Monte-Carlo) intervals."
        ),
        notes=(
            "The effects of the embedded respondent are built in. This is the power of the design "
            "and its test if people were moved as the respondent is; it is no evidence about "
            "people or models. Compare the mean difference with the one that you expect, and plant "
            "that: `--set respondent.persuasion=0.5` halves what moves people, 0 gives the rate of "
            "false positives.",
        ),
        section="Power",
        headline=True,
        unit="simulated run",
        units=seeds,
    )


VERDICTS = get_args(ClaimVerdict)
