"""The validity card on the first page: eight threats to a simulated study, each with a verdict.

All verdicts come from findings of the report, and this module computes none. A check passes if the
whole interval lies inside its margin. Without data the verdict is "not known", and the row gives
advice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from folkmoot.engine.run.grid import CELLS_FOLDER, is_grid, read_grid
from folkmoot.kit.controls.asking import open_controls
from folkmoot.kit.controls.conversations import ages_by_participant
from folkmoot.kit.controls.effects import ANSWERS_AGAIN
from folkmoot.kit.controls.findings import PERSONA_KEPT, RELIABILITY, UNFINISHED, USER_DRIFT
from folkmoot.kit.controls.tables import FACT, NEGATIVE, ORDER, RETEST, ControlRow
from folkmoot.kit.exposure import ExposureRow
from folkmoot.kit.findings import HUMAN_BENCHMARK_SECTION, RESPONDENT_CHECKS_KEY
from folkmoot.measures.diagnostics import (
    FAILED,
    INSTABILITY,
    NOT_ASKED_AGAIN,
    NOT_KNOWN,
    PASSED,
    POSITION_BIAS,
    REFUSALS_TITLE,
    SPREAD_OF_RATINGS,
    SPREAD_OF_VOTES,
    Verdict,
)
from folkmoot.measures.inference.estimates import format_count, format_percent, format_span
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.report.comparison.pooled import GRID_CLAIMS, judge_claims
from folkmoot.report.document.instructions import KEY as INSTRUCTIONS
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import RunFolder

# Checks of the model that the card shows. The other lights of the first page leave them out.
CHECKS_ON_CARD = (REFUSALS_TITLE, INSTABILITY, POSITION_BIAS, SPREAD_OF_VOTES, SPREAD_OF_RATINGS)
# Findings of which the card shows the alarms.
FINDINGS_ON_CARD = (INSTRUCTIONS, USER_DRIFT, PERSONA_KEPT, RELIABILITY, ANSWERS_AGAIN)
# The axis of a grid that varies the wording.
WORDING_AXIS = "prompts"
# Controls can be asked once, so the advice names the command that answers all rows.
ASK_ALL = f"`folkmoot controls RUN --{ORDER}`"
CARD_NOTE = (
    "Verdicts are those of the findings below. Passed: the whole interval lies within a stated "
    "margin. RUN is the folder of this run, STUDY its study file."
)
_WORST: tuple[Verdict, ...] = (FAILED, NOT_KNOWN, PASSED)
_OVER_GRID: Mapping[str, Verdict] = {"robust": PASSED, "fragile": FAILED}
_BESIDE_PEOPLE: Mapping[Verdict, str] = {
    PASSED: "people are near",
    FAILED: "people differ",
    NOT_KNOWN: "open",
}

Row = Mapping[str, TableCell]


class Evidence(NamedTuple):
    """One verdict of a finding, with its figure in words.

    `distance`: how far the figure lies on the bad side. Evidence with the same verdict is sorted by
    it.
    """

    label: str
    verdict: Verdict
    figure: str
    distance: float = 0.0


class CardRow(NamedTuple):
    """One row of the validity card: verdict, figures in words, and consequence."""

    name: str
    verdict: Verdict
    figures: str
    consequence: str


class Threat(NamedTuple):
    """The subject of one row of the card, with the consequence of each verdict.

    `unknown`: a clause that `more` or another advice completes. `more`: the advice if there are too
    few data.
    """

    name: str
    passed: str
    failed: str
    unknown: str
    more: str


INSTRUCTIONS_FOLLOWED = Threat(
    "Instructions followed",
    "The replies do what was asked, so answers can be read as answers.",
    "Many replies do not do what was asked, so answers may not mean what they say.",
    "Answers may not mean what they say",
    "there are too few replies to tell",
)
REFUSALS = Threat(
    "Refusals",
    "Few answers are missing by refusal, so they hardly move any figure.",
    "The figures describe those who were willing to answer, who may think otherwise than the rest.",
    "Those who refused may think otherwise than the rest",
    "these answers do not tell how many did",
)
RELIABLE = Threat(
    "Reliability (retest)",
    "Decisions hardly change by themselves, so a change has a cause.",
    "Decisions change by themselves, so a part of every change in this report is noise.",
    "Noise may be as large as the changes reported",
    "more participants or groups are needed",
)
DRIFT = Threat(
    "User drift",
    "Answers that no treatment can change stay where they were, so the same people answer in all "
    "conditions.",
    "The model plays other people in another condition, so an effect may be theirs and not that of "
    "the treatment.",
    "An effect may be one of other people in another condition",
    "more participants or groups are needed",
)
PERSONA = Threat(
    "Persona kept",
    "Participants still give the age of their persona, so the sample is the one that was drawn.",
    "Participants forget who they are, so subgroups and the sample as a whole mean little.",
    "Participants may forget who they are",
    "more participants or groups are needed",
)
ORDER_EFFECT = Threat(
    "Order effect",
    "Another order gives nearly the same answers, so shares are not those of places in a list.",
    "Another order gives other answers, so shares are partly those of places in a list.",
    "Shares may partly be those of places in a list",
    "more participants or groups are needed",
)
WORDING = Threat(
    "Wording",
    "The primary claims hold in all wordings that were tried.",
    "The primary claims depend on the wording, so no single wording may be reported alone.",
    "The primary claims may depend on the wording",
    "try more wordings or more participants",
)
HUMAN_BENCHMARK = Threat(
    "Human benchmark",
    "People who answered the same questions answered much alike.",
    "People answer otherwise, so these figures are no estimate of people's.",
    "People may answer otherwise",
    "more people have to answer",
)


def build_validity_card(
    run: RunFolder, findings: Sequence[Finding], over_grid: Finding | None = None
) -> tuple[CardRow, ...]:
    """Return the eight rows of the card, or an empty tuple if only people answered.

    `findings`: those of the report. `over_grid`: the judgement of the primary claims over the
    wordings of the grid to which this run belongs, if there are several wordings.
    """
    models = {model["asked"] for model in run.manifest.get("models", [])}
    # People need no simulation to be checked.
    if not models - {HUMAN_MODEL}:
        return ()
    asked = _controls_asked(run)
    return (
        _card_row(INSTRUCTIONS_FOLLOWED, _instructions(findings), "the journal holds no reply"),
        _card_row(REFUSALS, _checks(findings, REFUSALS_TITLE), "the model was not checked"),
        _card_row(
            RELIABLE,
            _control_or_checks(
                _shares(findings, RELIABILITY, "decision", "same_share", "the same", sign=-1),
                _checks(findings, INSTABILITY),
            ),
            _advice(run, findings, asked, RETEST),
        ),
        _card_row(
            DRIFT,
            _shares(findings, USER_DRIFT, "contrast", "drift_share", "of answers differ"),
            _advice(run, findings, asked, NEGATIVE),
            "contrast",
        ),
        _card_row(
            PERSONA,
            _shares(findings, PERSONA_KEPT, "after", "kept_share", "give it", sign=-1),
            _advice(run, findings, asked, FACT),
            "group",
        ),
        _card_row(
            ORDER_EFFECT,
            _control_or_checks(_orders(findings), _checks(findings, POSITION_BIAS)),
            _advice(run, findings, asked, ORDER),
        ),
        _card_row(
            WORDING,
            _wordings(over_grid),
            "to know it, put reworded prompts into folders and run "
            f"`folkmoot run STUDY --grid {WORDING_AXIS}=FOLDER,FOLDER`",
            "claim",
        ),
        _card_row(
            HUMAN_BENCHMARK,
            _people(findings),
            "to know it, let people take seats (`seats:` in the study file) or compare with "
            "`folkmoot compare RUN --people FILE`",
            "comparison",
        ),
    )


def claims_over_wordings(run: RunFolder) -> Finding | None:
    """Return the judgement of the primary claims over the grid of a run, or None.

    Returns None if the run is no cell of a grid, or if the grid does not vary the wording.
    """
    folder = run.path.parent
    if folder.name != CELLS_FOLDER or not is_grid(folder.parent):
        return None
    grid = read_grid(folder.parent)
    if len(grid.axes.get(WORDING_AXIS, ())) < 2:
        return None
    cells = grid.finished_cells()
    return judge_claims({name: cell for name, cell in cells.items() if not cell[1].unusable_reason})


def _card_row(
    threat: Threat, evidence: Sequence[Evidence], advice: str, noun: str = "figure"
) -> CardRow:
    """Return the row of a threat.

    `advice`: how the researcher can obtain a verdict if there are no data.
    """
    if not evidence:
        return CardRow(threat.name, NOT_KNOWN, "", f"{threat.unknown}: {advice}.")
    ordered = sorted(evidence, key=lambda one: (_WORST.index(one.verdict), -one.distance))
    worst = ordered[0].verdict
    unknown = f"{threat.unknown}: {threat.more}."
    consequence = {PASSED: threat.passed, FAILED: threat.failed, NOT_KNOWN: unknown}
    return CardRow(threat.name, worst, _in_words(ordered, noun), consequence[worst])


def _in_words(ordered: Sequence[Evidence], noun: str) -> str:
    """Return the worst figure in words, followed by the number of figures with each verdict."""
    label, _, figure, _ = ordered[0]
    told = f"{label}: {figure.removesuffix('.')}" if label else figure.removesuffix(".")
    if len(ordered) == 1:
        return f"{told}."
    counts = ", ".join(
        f"{number} {verdict}"
        for verdict in (PASSED, NOT_KNOWN, FAILED)
        if (number := sum(one.verdict == verdict for one in ordered))
    )
    return f"{told}. Of {format_count(len(ordered), noun)}: {counts}."


def _rows(findings: Sequence[Finding], key: str) -> Iterator[Row]:
    for finding in findings:
        if finding.key == key:
            for row in finding.grid.rows:
                yield dict(zip(finding.grid.columns, row, strict=True))


def _verdict(cell: TableCell) -> Verdict:
    # A finding of an earlier version may hold another word, which decides nothing here.
    return next((verdict for verdict in _WORST if verdict == cell), NOT_KNOWN)


def _instructions(findings: Sequence[Finding]) -> list[Evidence]:
    return [
        Evidence(
            str(row["model"]),
            _verdict(row["verdict"]),
            f"{format_percent(_number(row['failed_share']))} of "
            f"{format_count(int(_number(row['first_replies'])), 'first reply', 'first replies')} "
            "failed",
            _number(row["failed_share"]),
        )
        for row in _rows(findings, INSTRUCTIONS)
    ]


def _checks(findings: Sequence[Finding], *titles: str) -> list[Evidence]:
    """Return the checks of the model with these titles, if they measured a value."""
    return [
        Evidence("", _verdict(row["verdict"]), str(row["says"]))
        for row in _rows(findings, RESPONDENT_CHECKS_KEY)
        if row["check"] in titles
        and row.get("value") is not None
        and row["says"] != NOT_ASKED_AGAIN
    ]


def _control_or_checks(control: Sequence[Evidence], checks: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence of a control and of the checks of the model that count beside it.

    If the control was asked, only failed checks count, because a control is more direct. Otherwise
    all checks count.
    """
    return [*control, *(check for check in checks if not control or check.verdict == FAILED)]


def _shares(
    findings: Sequence[Finding], key: str, label: str, column: str, what: str, sign: int = 1
) -> list[Evidence]:
    """Return the evidence in the rows of a finding of controls that measured a share.

    `what`: the words that follow the share. `sign`: −1 if a small share is bad.
    """
    return [
        Evidence(
            str(row[label]),
            _verdict(row["verdict"]),
            f"{_share_in_words(row, column)} {what}",
            sign * _number(row[column]),
        )
        for row in _rows(findings, key)
        if row[column] is not None
    ]


def _share_in_words(row: Row, column: str) -> str:
    low, high = row["low_share"], row["high_share"]
    span = (
        "no interval" if low is None or high is None else format_span(_number(low), _number(high))
    )
    return f"{format_percent(_number(row[column]))} ({span})"


def _orders(findings: Sequence[Finding]) -> list[Evidence]:
    return [
        Evidence(
            f"{row['version']}, {row['moment']} decision",
            _verdict(row["verdict"]),
            f"{_share_in_words(row, 'same_share')} answer as designed",
            _number(row["shift_share"]),
        )
        for row in _rows(findings, ANSWERS_AGAIN)
        if row["verdict"] is not None
    ]


def _wordings(over_grid: Finding | None) -> list[Evidence]:
    """Return evidence for the claims over a grid of wordings.

    A claim that no cell supports is left undecided, because it depends on no wording yet.
    """
    return [
        Evidence(
            str(row["claim"]),
            _OVER_GRID.get(str(row["over_the_grid"]), NOT_KNOWN)
            if row["cells_supporting"]
            else NOT_KNOWN,
            f"{row['over_the_grid']} over "
            f"{format_count(int(_number(row['specifications'])), 'specification')}",
        )
        for row in _rows([over_grid] if over_grid else [], GRID_CLAIMS)
    ]


def _people(findings: Sequence[Finding]) -> list[Evidence]:
    """Return evidence for how the run compares with people.

    A published range of answers can only fail a run and not pass it, because these people were
    asked other questions.
    """
    found = [
        Evidence(
            str(row[finding.grid.columns[0]]),
            _verdict(row["verdict"]),
            _BESIDE_PEOPLE[_verdict(row["verdict"])],
        )
        for finding in findings
        if finding.section == HUMAN_BENCHMARK_SECTION and "verdict" in finding.grid.columns
        for row in _rows([finding], finding.key)
    ]
    spread = _checks(findings, SPREAD_OF_VOTES, SPREAD_OF_RATINGS)
    return found + [one for one in spread if one.verdict == FAILED]


def _number(cell: TableCell) -> float:
    return float(cell) if isinstance(cell, (int, float)) else 0.0


def _controls_asked(run: RunFolder) -> Collection[str] | None:
    """Return the controls that were asked of a run, or None if no controls are finished."""
    controls = open_controls(run)
    if controls is None:
        return None
    table = controls.scan_table(ControlRow.table)
    return set(table.select("control").collect()["control"])


def _advice(
    run: RunFolder, findings: Sequence[Finding], asked: Collection[str] | None, control: str
) -> str:
    """Return the advice how to obtain the verdict that a control would give."""
    if not run.has_table(ExposureRow.table):
        return "this study type records no decisions that a control could continue"
    if control == FACT and not ages_by_participant(run):
        return "the tables of this run hold no age of a persona that a control could ask for"
    if any(finding.key == UNFINISHED for finding in findings):
        return "the controls are not finished, and `folkmoot run STUDY --resume` asks the rest"
    if asked is None:
        when = "" if run.is_finished else " once the run has finished"
        return f"to know it, run {ASK_ALL}{when}"
    if control in asked:
        return "its control was asked, and too few answers could be read"
    # The age is asked together with the negative controls.
    control = NEGATIVE if control == FACT else control
    key = f"`{control}: true` under `controls:`"
    return f"its controls left it out, so write {key} in the study file of the next run"
