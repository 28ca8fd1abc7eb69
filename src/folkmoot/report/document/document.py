"""A report as data: what HTML and PDF both show, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from folkmoot.engine.run.grid import RunGrid
from folkmoot.engine.study.study import complete_parts, findings_of, study_of_run
from folkmoot.kit import coding
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.findings import FITNESS, fitness, found
from folkmoot.kit.sources import report_unattributed
from folkmoot.measures.diagnostics import instability, of_answers
from folkmoot.report.comparison.mixed import people_and_models
from folkmoot.report.comparison.pooled import Found, pooled
from folkmoot.report.document.charts import svgs
from folkmoot.report.document.front import Front, answers, front
from folkmoot.report.document.instructions import check_instructions
from folkmoot.report.document.trust import Trust, trust
from folkmoot.report.preregistration import title_of
from folkmoot.storage.findings import Board, Finding
from folkmoot.storage.run_folder import RunFolder, Streamed


@dataclass(frozen=True, slots=True)
class Figure:
    """A finding with its drawing: SVG panels, or a board of cards."""

    finding: Finding
    panels: tuple[str, ...]
    board: Board | None


@dataclass(frozen=True, slots=True)
class Section:
    """Findings of one kind, in the study's own order."""

    title: str
    figures: tuple[Figure, ...]

    @property
    def anchor(self) -> str:
        return "section-" + self.title.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Document:
    """Everything that a report shows."""

    title: str
    subtitle: str
    partial: str
    mark: str
    caution: str  # what goes with the mark
    planted: str
    front: Front | None  # None for a grid
    answer: str  # the drawing of the first page; empty where no main finding has one
    headlines: tuple[Figure, ...]
    sections: tuple[Section, ...]
    trust: Trust | None  # None for a grid: each of its runs has its own


def document(run: RunFolder, known: Sequence[Finding] = ()) -> Document:
    """Make the report of a run, with its findings where they are `known` already.

    Raises StorageError when the run has no tables yet, or no longer all of them.
    """
    run.require_tables()
    study = study_of_run(run)
    run = complete_parts(study, run)
    findings = [*(known or findings_of(study, run))]
    if run.has_table("answers") and FITNESS not in {f.key for f in findings}:
        checks = of_answers(Streamed(run.lazy("answers")))
        findings.append(fitness([*checks, instability(study.repeats(run))]))
    if "coding" not in {f.key for f in findings}:
        findings += found(coding.finding(run))
    findings += control_findings(run)
    findings += found([people_and_models(run), check_instructions(run), report_unattributed(run)])
    name = title_of(run.config) or study.title
    trusted = trust(run, study)
    return Document(
        title=name,
        subtitle=f"{study.title} · {run.id}" if study.title != name else run.id,
        partial=run.partial,
        mark=run.mark,
        caution=run.caution,
        planted=_planted(run),
        front=front(run, study, name, findings, trusted.deviations),
        answer=next((f.panels[0] for f in map(_figure, answers(findings)) if f.panels), ""),
        headlines=tuple(_figure(f) for f in findings if f.headline),
        sections=_sections([f for f in findings if not f.headline]),
        trust=trusted,
    )


def grid_document(grid: RunGrid, cells: Found) -> Document:
    """The report of a grid: the pooled findings of its `cells`, which say what each found.

    Raises InputError before a cell has finished.
    """
    findings = pooled(grid, cells)
    runs = [run for _, run in grid.finished().values()]
    study = study_of_run(runs[0])
    missing = len(grid.cells) - len(runs)
    return Document(
        title=title_of(runs[0].config) or study.title,
        subtitle=f"{study.title} · grid of {len(grid.cells)} runs · {grid.path.name}",
        partial=f"PARTIAL: {missing} of {len(grid.cells)} cells have not finished" * bool(missing),
        mark=next((run.mark for run in runs if run.mark), ""),
        caution=runs[0].caution,
        planted="",
        front=None,
        answer="",
        headlines=tuple(_figure(f) for f in findings if f.headline),
        sections=_sections([f for f in findings if not f.headline]),
        trust=None,
    )


def _planted(run: RunFolder) -> str:
    """The effects that the embedded respondent was given, in a sentence or two."""
    planted = run.manifest.get("planted", {})
    if not planted:
        return ""
    strengths = ", ".join(
        f"{kind.replace('_', ' ')} κ = {value:g}" for kind, value in planted["kappa"].items()
    )
    wrong = ", ".join(f"{knob} {value}" for knob, value in planted.get("pathologies", {}).items())
    said = f"Planted effects, where people choose again after reading or talking: {strengths}."
    return f"{said} Planted pathologies: {wrong}." if wrong else said


def _sections(findings: Sequence[Finding]) -> tuple[Section, ...]:
    titles = dict.fromkeys(f.section for f in findings)
    return tuple(
        Section(title, tuple(_figure(f) for f in findings if f.section == title))
        for title in titles
    )


def _figure(finding: Finding) -> Figure:
    chart = finding.chart
    if isinstance(chart, Board):
        return Figure(finding, (), chart)
    if chart is None or not getattr(chart, "items", getattr(chart, "links", ())):
        return Figure(finding, (), None)
    return Figure(finding, tuple(svgs(chart, f"{finding.title}. {finding.says}")), None)
