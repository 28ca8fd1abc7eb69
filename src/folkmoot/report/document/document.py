"""The content of a report as data, which the HTML page and the PDF both show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from folkmoot.engine.run.grid import RunGrid
from folkmoot.engine.session.run_totals import describe_spending, spent_below
from folkmoot.engine.settings.claims import CLAIMS_TESTED, evaluate_claims
from folkmoot.engine.study.study import (
    Study,
    analysed_parts,
    claims_of_run,
    compute_findings,
    find_study_of_run,
)
from folkmoot.errors import StorageError
from folkmoot.kit import coding
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.findings import (
    RESPONDENT_CHECKS_KEY,
    Row,
    collect_findings,
    respondent_checks_finding,
)
from folkmoot.kit.reply_units import (
    CONVERSATION,
    ReplyUnit,
    check_replies,
    name_reply_units,
    reply_unit_of,
    scan_model_answers,
)
from folkmoot.kit.sources import report_unattributed
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, PASSED, check_instability
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.estimates import format_count
from folkmoot.measures.reply_checks import CODERS
from folkmoot.measures.wording import join_sentences, word
from folkmoot.report.comparison.mixed import people_and_models
from folkmoot.report.comparison.pooled import SECTION as POOLED
from folkmoot.report.comparison.pooled import CellFindings, pooled_findings
from folkmoot.report.comparison.seat_checks import checks_of_humans
from folkmoot.report.document.charts import render_svgs
from folkmoot.report.document.front import Front, build_front_page, main_answers
from folkmoot.report.document.instructions import REPLY_COLUMNS, check_instructions
from folkmoot.report.document.methods import Methods, build_methods
from folkmoot.report.document.trust import Trust, build_trust_section
from folkmoot.report.document.validity import (
    CardRow,
    build_validity_card,
    claims_over_wordings,
)
from folkmoot.report.preregistration import title_of
from folkmoot.storage.findings import CardBoard, Finding, ResultTable
from folkmoot.storage.partial_run import PartsView
from folkmoot.storage.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class DrawnFinding:
    """A finding together with the chart, which is drawn as SVG panels or as a board of cards."""

    # A chart is a list of SVG panels, or a board of cards.

    finding: Finding
    panels: tuple[str, ...]
    board: CardBoard | None


@dataclass(frozen=True, slots=True)
class Section:
    """Findings with the same section title, in the order of the study."""

    title: str
    figures: tuple[DrawnFinding, ...]

    @property
    def anchor(self) -> str:
        return "section-" + self.title.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Document:
    """Everything that a report shows."""

    title: str
    subtitle: str
    # A warning for an unfinished run or grid, otherwise empty.
    partial: str
    # The provenance label (SYNTHETIC, HUMAN or MIXED).
    mark: str
    # An explanation of the label.
    caution: str
    # The effects that are built into `--model synthetic`.
    planted: str
    # None for a grid, like `trust` and `methods`, because the report of each run has them.
    front: Front | None
    # The SVG drawing of the first page, or empty.
    answer: str
    headlines: tuple[DrawnFinding, ...]
    sections: tuple[Section, ...]
    trust: Trust | None
    methods: Methods | None


def build_document(
    run: RunFolder,
    known: Sequence[Finding] = (),
    over_grid: Finding | None = None,
    study: Study | None = None,
) -> Document:
    """Return the content of a run's report.

    - `known`: findings that the caller has already computed, with those of controls.
    - `over_grid`: the finding on claims under all wordings of the prompts, or None.
    - `study`: the study type of the run. None means that it is looked up.

    Raises StorageError if the run has not written its tables yet, or if a table is missing.
    """
    run.require_tables()
    study = study or find_study_of_run(run)
    # An unfinished run is reported by its complete parts only, so that all conditions are
    # comparable. Parts that a failed check excludes are left out as well.
    run = analysed_parts(study, run)
    findings = [*(known or compute_findings(study, run))]
    unit = reply_unit_of(study, run)
    # A study type may report these checks itself. The general ones are added only if it does not.
    if run.has_table("answers") and RESPONDENT_CHECKS_KEY not in {
        finding.key for finding in findings
    }:
        checks = check_replies(run, unit.of, unit.name, study.choices)
        checks.append(check_instability(study.repeats(run)))
        findings.append(respondent_checks_finding(checks))
    findings = [
        _name_shared_conversations(_name_reply_unit(finding, run, unit), run, unit)
        for finding in findings
    ]
    if "coding" not in {finding.key for finding in findings}:
        findings += collect_findings(coding.coding_finding(run))
    # Findings that the caller has computed contain those of controls.
    findings += [] if known else control_findings(run, study)
    findings += collect_findings(
        [
            people_and_models(run, study),
            checks_of_humans(run),
            check_instructions(run, unit.of),
            report_unattributed(run),
        ]
    )
    name = title_of(run.config) or study.title
    results = _claim_results(run, study, findings)
    # The plan is compared with all rows of a finished run, also with those that are left out.
    planned = run.whole if isinstance(run, PartsView) and run.is_finished else run
    trusted = build_trust_section(planned, study)
    card = build_validity_card(run, findings, over_grid or claims_over_wordings(run))
    front = build_front_page(run, study, findings, trusted.deviations, results, card)
    return Document(
        title=name,
        subtitle=f"{study.title} · {run.id}" if study.title != name else run.id,
        partial=run.partial,
        mark=run.mark,
        caution=run.caution,
        planted=_describe_planted_effects(run),
        front=front,
        answer=next(
            (
                drawn_finding.panels[0]
                for drawn_finding in map(_build_figure, main_answers(findings))
                if drawn_finding.panels
            ),
            "",
        ),
        headlines=tuple(_build_figure(finding) for finding in findings if finding.headline),
        sections=_build_sections([finding for finding in findings if not finding.headline]),
        trust=trusted,
        methods=build_methods(run, study, front, results),
    )


def _name_reply_unit(finding: Finding, run: RunFolder, unit: ReplyUnit) -> Finding:
    # The checks have other units where they do not concern replies, so a note names this one.
    if finding.key != RESPONDENT_CHECKS_KEY or not run.has_table("answers"):
        return finding
    model_units = _count_units(scan_model_answers(run), unit)
    units = format_count(model_units, name_reply_units(run, unit.name))
    note = word("check", "unit", units=units)
    notes = [note, word("check", "unit, unknown sources")] if unit.is_uncertain else [note]
    return replace(finding, notes=(*finding.notes, join_sentences(notes)))


def _name_shared_conversations(finding: Finding, run: RunFolder, unit: ReplyUnit) -> Finding:
    # The units of claims come from columns. The sources of texts show whether these are too small.
    if finding.key != CLAIMS_TESTED or unit.name != CONVERSATION:
        return finding
    column = finding.grid.columns.index("units")
    largest = max(int(row[column] or 0) for row in finding.grid.rows)
    conversations = _count_units(run.scan_table("answers"), unit)
    if largest <= conversations:
        return finding
    count = format_count(conversations, "conversation")
    case = "unit of claims, unknown sources" if unit.is_uncertain else "unit of claims"
    note = word("check", case, conversations=count, units=f"{largest:,}")
    return replace(finding, notes=(*finding.notes, note))


def _count_units(answers: pl.LazyFrame, unit: ReplyUnit) -> int:
    rows = answers.select(REPLY_COLUMNS).filter(~pl.col("role").is_in(CODERS))
    return len({unit.of(row) for row in rows.collect().iter_rows(named=True)})


def _claim_results(run: RunFolder, study: Study, findings: Sequence[Finding]) -> list[Result]:
    # The findings say why a run has no figures. Claims of the same tables would fail as they did.
    if CLAIMS_TESTED not in {finding.key for finding in findings}:
        return []
    return evaluate_claims(run, claims_of_run(study, run))


def grid_document(
    grid: RunGrid, cells: CellFindings, cards: Mapping[str, Sequence[CardRow]]
) -> Document:
    """Return the content of a grid's report.

    `cells`: a map from the name of a run of the grid to the findings of the run.
    `cards`: the validity cards of these runs.
    Raises InputError if no run has finished.
    """
    findings = collect_findings(pooled_findings(grid, cells), _list_cards(cards))
    runs = [run for _, run in grid.finished_cells().values()]
    study = find_study_of_run(runs[0])
    missing = len(grid.cells) - len(runs)
    return Document(
        title=title_of(runs[0].config) or study.title,
        subtitle=f"{study.title} · grid of {len(grid.cells)} runs · {grid.path.name} · all cells "
        f"together: {_describe_total(grid)}",
        partial=f"PARTIAL: {missing} of {len(grid.cells)} cells have not finished" * bool(missing),
        mark=next((run.mark for run in runs if run.mark), ""),
        caution=runs[0].caution,
        planted="",
        front=None,
        answer="",
        headlines=tuple(_build_figure(finding) for finding in findings if finding.headline),
        sections=_build_sections([finding for finding in findings if not finding.headline]),
        trust=None,
        methods=None,
    )


def _describe_total(grid: RunGrid) -> str:
    # The findings come from tables, so an unreadable journal is no reason to write no report.
    try:
        return describe_spending(spent_below(grid.path))
    except StorageError:
        return "cost not known, because a journal cannot be read"


def _list_cards(cards: Mapping[str, Sequence[CardRow]]) -> Finding | None:
    rows: list[Row] = []
    for name, card in cards.items():
        row: Row = {"run": name}
        for verdict in (FAILED, NOT_KNOWN, PASSED):
            row[verdict] = ", ".join(part.name for part in card if part.verdict == verdict) or None
        rows += [row] if card else []
    if not rows:
        return None
    failed = sum(row[FAILED] is not None for row in rows)
    return Finding(
        "grid_cards",
        "Validity cards of the runs",
        word("grid", "cards", failed=failed, runs=format_count(len(rows), "run")),
        ResultTable.from_records(rows, "Threats by verdict. The report of a run has its card."),
        section=POOLED,
    )


def _describe_planted_effects(run: RunFolder) -> str:
    planted = run.manifest.get("planted", {})
    if not planted:
        return ""
    strengths = ", ".join(
        f"{kind.replace('_', ' ')} κ = {value:g}" for kind, value in planted["kappa"].items()
    )
    wrong = ", ".join(f"{knob} {value}" for knob, value in planted.get("pathologies", {}).items())
    said = f"Planted effects, where a study has such texts: {strengths}."
    return f"{said} Planted pathologies: {wrong}." if wrong else said


def _build_sections(findings: Sequence[Finding]) -> tuple[Section, ...]:
    titles = dict.fromkeys(finding.section for finding in findings)
    return tuple(
        Section(
            title, tuple(_build_figure(finding) for finding in findings if finding.section == title)
        )
        for title in titles
    )


def _build_figure(finding: Finding) -> DrawnFinding:
    chart = finding.chart
    if isinstance(chart, CardBoard):
        return DrawnFinding(finding, (), chart)
    if chart is None or not getattr(chart, "items", getattr(chart, "links", ())):
        return DrawnFinding(finding, (), None)
    return DrawnFinding(
        finding, tuple(render_svgs(chart, f"{finding.title}. {finding.says}")), None
    )
