"""The validity card on the first page: eight threats to a simulated study, each with a verdict.

All verdicts come from findings of the report, and this module computes none. A check passes if the
whole interval lies inside its margin. Without data the verdict is "not known", and the row gives
advice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from folkmoot.engine.run.grid import CELLS_FOLDER, is_grid, read_grid
from folkmoot.kit.controls.asking import open_controls
from folkmoot.kit.controls.attributes import read_ages
from folkmoot.kit.controls.effects import ANSWERS_AGAIN
from folkmoot.kit.controls.findings import (
    LEAST_KEPT,
    LEAST_RELIABLE,
    MOST_DRIFT,
    PERSONA_KEPT,
    RELIABILITY,
    UNFINISHED,
    USER_DRIFT,
)
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
    SPREAD_OF_RATINGS,
    SPREAD_OF_VOTES,
    Verdict,
)
from folkmoot.measures.inference.estimates import (
    format_count,
    format_percent,
    format_points,
    format_span,
)
from folkmoot.measures.reply_checks import REFUSALS_TITLE
from folkmoot.measures.wording import CARD_PHRASES
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
# What follows the share of participants, with the margin that the verdict compares it with.
_SAME = f"decide the same again; the margin is at least {format_percent(LEAST_RELIABLE.low)}"
_KEPT = f"give their age; the margin is at least {format_percent(LEAST_KEPT.low)}"
_WORST: tuple[Verdict, ...] = (FAILED, NOT_KNOWN, PASSED)
_OVER_GRID: Mapping[str, Verdict] = {"robust": PASSED, "fragile": FAILED}
_BESIDE_PEOPLE: Mapping[Verdict, str] = {
    PASSED: "people and models differ by at most the margin",
    # A number has no margin and fails by its test.
    FAILED: "people and models differ",
    NOT_KNOWN: "not known",
}

Row = Mapping[str, TableCell]


class Evidence(NamedTuple):
    """One verdict of a finding, with its figure in words.

    `distance`: how bad the figure is, larger for worse. The card shows the evidence with the worst
    verdict. If verdicts are equal, the largest distance decides.
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


def build_validity_card(
    run: RunFolder, findings: Sequence[Finding], over_grid: Finding | None = None
) -> tuple[CardRow, ...]:
    """Return the eight rows of the card, or an empty tuple if only people answered.

    `findings`: the findings of the report. `over_grid`: the verdict on each primary claim over all
    wordings of a grid, or None if the run is not part of such a grid.
    """
    models = {model["asked"] for model in run.manifest.get("models", [])}
    # People need no simulation to be checked.
    if not models - {HUMAN_MODEL}:
        return ()
    # Advice reads tables of the run, so it is computed only for rows without evidence.
    advise = partial(_advice, run, findings)
    return (
        _card_row(
            "Instructions followed", _instructions(findings), lambda: "the journal holds no reply"
        ),
        _card_row(
            "Refusals", _checks(findings, REFUSALS_TITLE), lambda: "the model was not checked"
        ),
        _card_row(
            "Reliability (retest)",
            _control_or_checks(
                _shares(findings, RELIABILITY, "decision", "same_share", _SAME, sign=-1),
                _checks(findings, INSTABILITY),
            ),
            partial(advise, RETEST),
        ),
        _card_row(
            "User drift",
            _drifts(findings),
            partial(advise, NEGATIVE),
            "contrast",
        ),
        _card_row(
            "Persona kept",
            _shares(findings, PERSONA_KEPT, "after", "kept_share", _KEPT, sign=-1),
            partial(advise, FACT),
            "group",
        ),
        _card_row(
            "Order effect",
            _control_or_checks(_orders(findings), _checks(findings, POSITION_BIAS)),
            partial(advise, ORDER),
        ),
        _card_row(
            "Wording",
            _wordings(over_grid),
            lambda: (
                "to know it, put reworded prompts into folders and run "
                f"`folkmoot run STUDY --grid {WORDING_AXIS}=FOLDER,FOLDER`"
            ),
            "claim",
        ),
        _card_row(
            "Human benchmark",
            _people(findings),
            lambda: (
                "to know it, let people take seats (`seats:` in the study file) or compare with "
                "`folkmoot compare RUN --people FILE`"
            ),
            "comparison",
        ),
    )


def claims_over_wordings(run: RunFolder) -> Finding | None:
    """Return the finding that judges the primary claims over all wordings of the run's grid.

    Returns None if the run is not a cell of a grid, or if the grid does not vary the wording.
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
    threat: str,
    evidence: Sequence[Evidence],
    advise: Callable[[], str],
    noun: str = "figure",
) -> CardRow:
    """Return the row of the validity card for a threat.

    `advise` is called only without evidence. It says how the researcher can obtain a verdict.
    `noun`: the word for one figure, such as "claim".
    """
    phrases = CARD_PHRASES[threat]
    if not evidence:
        return CardRow(threat, NOT_KNOWN, "", f"{phrases.unknown}: {advise()}.")
    ordered = sorted(evidence, key=lambda one: (_WORST.index(one.verdict), -one.distance))
    worst = ordered[0].verdict
    unknown = f"{phrases.unknown}: {phrases.more}."
    consequence = {PASSED: phrases.passed, FAILED: phrases.failed, NOT_KNOWN: unknown}
    return CardRow(threat, worst, _in_words(ordered, noun), consequence[worst])


def _in_words(ordered: Sequence[Evidence], noun: str) -> str:
    """Return the worst figure in words, followed by the number of figures with each verdict.

    `ordered`: the evidence with the worst figure first. `noun`: the word for one figure.
    """
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
            f"{_failures_in_words(row)} of "
            f"{format_count(int(_number(row['first_replies'])), 'first reply', 'first replies')} "
            f"failed; the margin is at most {format_percent(_number(row['limit_share']))}",
            _number(row["failed_share"]),
        )
        for row in _rows(findings, INSTRUCTIONS)
    ]


def _failures_in_words(row: Row) -> str:
    share = format_percent(_number(row["failed_share"]))
    # A share above the limit fails by itself, see `FirstReplies.judge`.
    return share if row["verdict"] == FAILED else f"{share} ({row['interval']})"


def _checks(findings: Sequence[Finding], *titles: str) -> list[Evidence]:
    return [
        Evidence("", _verdict(row["verdict"]), str(row["says"]))
        for row in _rows(findings, RESPONDENT_CHECKS_KEY)
        if row["check"] in titles
        and row.get("value") is not None
        and row["says"] != NOT_ASKED_AGAIN
    ]


def _control_or_checks(control: Sequence[Evidence], checks: Sequence[Evidence]) -> list[Evidence]:
    # A control is more direct than a check, so only failed checks are added to its evidence.
    return [*control, *(check for check in checks if not control or check.verdict == FAILED)]


def _shares(
    findings: Sequence[Finding], key: str, label: str, column: str, what: str, sign: int = 1
) -> list[Evidence]:
    """Return one piece of evidence for each row of a finding on controls.

    `label`, `column`: the columns with the name and the share. `what`: the words that follow the
    share. `sign`: 1 if a large share is bad, −1 if a small share is bad.
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


def _drifts(findings: Sequence[Finding]) -> list[Evidence]:
    return [
        Evidence(
            str(row["contrast"]),
            _verdict(row["verdict"]),
            f"shares of answers are {_distance_in_words(row, 'drift_share')} apart on average; "
            f"the margin is {format_points(MOST_DRIFT.high).removeprefix('+')}",
            _number(row["drift_share"]),
        )
        for row in _rows(findings, USER_DRIFT)
        if row["drift_share"] is not None
    ]


def _distance_in_words(row: Row, column: str) -> str:
    distance = format_points(_number(row[column])).lstrip("+−")
    low, high = row["low_share"], row["high_share"]
    if low is None or high is None:
        return f"{distance} (no interval)"
    span = format_span(_number(low), _number(high)).removesuffix(" %")
    return f"{distance} ({span})"


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
            f"{_share_in_words(row, 'same_share')} answer the same, and shares of answers move by "
            f"{format_points(_number(row['shift_share'])).lstrip('+−')}",
            _number(row["shift_share"]),
        )
        for row in _rows(findings, ANSWERS_AGAIN)
        if row["verdict"] is not None
    ]


def _wordings(over_grid: Finding | None) -> list[Evidence]:
    # If no cell supports a claim, there is no support that could depend on the wording: "not
    # known".
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
    # Published studies asked people different questions, so only a failed check is evidence.
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
    controls = open_controls(run)
    if controls is None:
        return None
    table = controls.scan_table(ControlRow.table)
    return set(table.select("control").collect()["control"])


def _advice(run: RunFolder, findings: Sequence[Finding], control: str) -> str:
    if not run.has_table(ExposureRow.table):
        return "this study type records no decisions that a control could continue"
    if control == FACT and not read_ages(run):
        return "the tables of this run hold no age of a persona that a control could ask for"
    if any(finding.key == UNFINISHED for finding in findings):
        return "the controls are not finished, and `folkmoot run STUDY --resume` asks the rest"
    asked = _controls_asked(run)
    if asked is None:
        when = "" if run.is_finished else " once the run has finished"
        return f"to know it, run {ASK_ALL}{when}"
    if control in asked:
        return "its control was asked, and too few answers could be read"
    # The age is asked together with the negative controls.
    control = NEGATIVE if control == FACT else control
    key = f"`{control}: true` under `controls:`"
    return f"its controls left it out, so write {key} in the study file of the next run"
