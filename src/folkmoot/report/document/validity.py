"""The validity card on the first page: eight threats to a simulated study, each with a verdict.

All verdicts come from findings of the report.
"""
# A check passes if the whole interval lies inside its margin. Without data the verdict is "not
# known", and the row gives advice.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from folkmoot.engine.run.grid import CELLS_FOLDER, is_grid, read_grid
from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.session.folder_access import has_calls
from folkmoot.hints import capitalise
from folkmoot.kit.controls.conversations import may_have_ages
from folkmoot.kit.controls.effects import ANSWERS_AGAIN, MOST_MOVED
from folkmoot.kit.controls.findings import (
    LEAST_KEPT,
    LEAST_RELIABLE,
    MOST_DRIFT,
    PERSONA_KEPT,
    RELIABILITY,
    UNFINISHED,
    USER_DRIFT,
    requested_controls,
    with_roles,
)
from folkmoot.kit.controls.replacing import NOT_ASKED, UNCHANGED
from folkmoot.kit.controls.tables import (
    FACT,
    NEGATIVE,
    ORDER,
    RETEST,
    ControlRow,
    are_controls_missing,
    open_controls,
)
from folkmoot.kit.exposure import ExposureRow
from folkmoot.kit.findings import HUMAN_BENCHMARK_SECTION, RESPONDENT_CHECKS_KEY
from folkmoot.measures.diagnostics import (
    FAILED,
    INSTABILITY,
    NOT_KNOWN,
    PASSED,
    POSITION_BIAS,
    SPREAD_OF_RATINGS,
    SPREAD_OF_VOTES,
    Margin,
    Verdict,
)
from folkmoot.measures.inference.estimates import (
    format_count,
    format_percent,
    format_points,
    format_span,
)
from folkmoot.measures.inference.specification_curve import FEWEST_SPECIFICATIONS
from folkmoot.measures.reply_checks import REFUSALS_TITLE
from folkmoot.measures.wording import Sentence, join_sentences, word
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.report.comparison.pooled import GRID_CLAIMS, judge_claims
from folkmoot.report.document.instructions import KEY as INSTRUCTIONS
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import CONTROLS, RunFolder

# Checks of the model that the card shows. The other lights of the first page leave them out.
SPREADS = (SPREAD_OF_VOTES, SPREAD_OF_RATINGS)
CHECKS_ON_CARD = (REFUSALS_TITLE, INSTABILITY, POSITION_BIAS, *SPREADS)
# The card shows the alarms of these findings.
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
# Threat → advice where it is not known although there are figures.
_MORE: Mapping[str, str] = {"Wording": "more wordings", "Human benchmark": "more people"}

Row = Mapping[str, TableCell]


class Evidence(NamedTuple):
    """A verdict that a finding states, and the judged value in words."""

    label: str
    verdict: Verdict
    figure: Sentence
    # How bad the figure is, larger for worse. The card shows the evidence with the worst verdict.
    # If verdicts are equal, the largest distance decides.
    distance: float = 0.0
    # The advice if the verdict is "not known". None: ask the control of the threat, which was not
    # asked.
    advice: str | None = "more units"


class CardRow(NamedTuple):
    """One row of the validity card."""

    name: str
    verdict: Verdict
    figures: Sentence
    consequence: Sentence


def build_validity_card(
    run: RunFolder, findings: Sequence[Finding], over_grid: Finding | None = None
) -> tuple[CardRow, ...]:
    """Return the eight rows of the card, or an empty tuple if only people answered.

    `over_grid`: the finding on claims under all wordings of the prompts, or None.
    """
    models = {model["asked"] for model in run.manifest.get("models", [])}
    # People need no simulation to be checked.
    if not models - {HUMAN_MODEL}:
        return ()
    # Advice reads tables of the run, so it is computed only for rows without evidence.
    advise = partial(_advice, run, findings)
    return (
        _card_row(
            "Instructions followed", _instructions(findings), lambda: word("advice", "no reply")
        ),
        _card_row(
            "Refusals",
            _checks(findings, REFUSALS_TITLE),
            lambda: word("advice", "not checked"),
        ),
        _card_row(
            "Reliability (retest)",
            _control_or_checks(
                _shares(findings, RELIABILITY, "decision", "same", LEAST_RELIABLE),
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
            _shares(findings, PERSONA_KEPT, "after", "kept", LEAST_KEPT),
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
            lambda: word("advice", "wordings", axis=WORDING_AXIS, fewest=FEWEST_SPECIFICATIONS),
            "claim",
        ),
        _card_row(
            "Human benchmark",
            _people(findings),
            lambda: word("advice", "more people" if HUMAN_MODEL in models else "people"),
            "comparison",
        ),
    )


def claims_over_wordings(run: RunFolder) -> Finding | None:
    """Return the finding on whether primary claims hold under all wordings of the prompts.

    Returns None if the run does not belong to a grid that varies the wording.
    """
    folder = run.path.parent
    if folder.name != CELLS_FOLDER or not is_grid(folder.parent):
        return None
    grid = read_grid(folder.parent)
    if len(grid.axes.get(WORDING_AXIS, ())) < 2:
        return None
    cells = grid.finished_cells()
    return judge_claims(
        {name: cell for name, cell in cells.items() if not cell[1].unusable_reason},
        is_complete=len(cells) == len(grid.cells),
    )


def _card_row(
    threat: str,
    evidence: Sequence[Evidence],
    advise: Callable[[], Sentence],
    noun: str = "figure",
) -> CardRow:
    # `noun` is the word for one figure, such as "claim". `advise` is called only without evidence
    # of a control.
    ordered = sorted(evidence, key=lambda one: (_WORST.index(one.verdict), -one.distance))
    worst = ordered[0].verdict if ordered else NOT_KNOWN
    key = _MORE.get(threat, ordered[0].advice) if ordered else None
    advice = word("advice", key) if key else advise()
    figures = _in_words(ordered, noun) if ordered else join_sentences([])
    return CardRow(threat, worst, figures, word("card", f"{threat}, {worst}", advice=advice))


def _in_words(ordered: Sequence[Evidence], noun: str) -> Sentence:
    # `ordered` has the worst figure first.
    label = ordered[0].label
    # Figures of checks are whole sentences.
    figure_text = ordered[0].figure.removesuffix(".")
    case = "labelled" if label else "one"
    worst = word("figure", case, label=label, figure=figure_text)
    if len(ordered) == 1:
        return worst
    counts = join_sentences(
        (
            word("figure", "count", number=number, verdict=verdict)
            for verdict in (PASSED, NOT_KNOWN, FAILED)
            if (number := sum(one.verdict == verdict for one in ordered))
        ),
        ", ",
    )
    number_text = format_count(len(ordered), noun)
    return word("figure", "of several", figure=worst, number=number_text, counts=counts)


def _rows(findings: Sequence[Finding], key: str) -> Iterator[Row]:
    for finding in findings:
        if finding.key == key:
            for row in finding.grid.rows:
                yield dict(zip(finding.grid.columns, row, strict=True))


def _control_rows(findings: Sequence[Finding], key: str) -> Iterator[Row]:
    # The card is about participants. Controls of leading roles, such as a mediator, are in the
    # section on controls.
    for row in _rows(findings, key):
        if row.get("role", PARTICIPANT_ROLE) == PARTICIPANT_ROLE:
            yield row


def _verdict(cell: TableCell) -> Verdict:
    # A finding of an earlier version may hold another word, which decides nothing here.
    return next((verdict for verdict in _WORST if verdict == cell), NOT_KNOWN)


def _instructions(findings: Sequence[Finding]) -> list[Evidence]:
    return [
        Evidence(
            str(row["model"]),
            _verdict(row["verdict"]),
            word(
                "figure",
                "instructions",
                share=f"{format_percent(_number(row['failed_share']))} ({row['interval']})",
                replies=format_count(
                    int(_number(row["first_replies"])), "first reply", "first replies"
                ),
                margin=format_percent(_number(row["limit_share"])),
            ),
            _number(row["failed_share"]),
        )
        for row in _rows(findings, INSTRUCTIONS)
    ]


def _checks(findings: Sequence[Finding], *titles: str) -> list[Evidence]:
    return [
        Evidence("", _verdict(row["verdict"]), word("figure", "check", says=row["says"]))
        for row in _rows(findings, RESPONDENT_CHECKS_KEY)
        if row["check"] in titles and row.get("value") is not None
    ]


def _control_or_checks(control: Sequence[Evidence], checks: Sequence[Evidence]) -> list[Evidence]:
    # A control is more direct than a check, so only failed checks are added to its verdicts. A
    # control without a verdict, often of few answers, contradicts no check that passed.
    if any(check.verdict == PASSED for check in checks):
        control = [evidence for evidence in control if evidence.verdict != NOT_KNOWN]
    kept = (check for check in checks if not control or check.verdict == FAILED)
    return [*control, *(check._replace(advice=None) for check in kept)]


def _shares(
    findings: Sequence[Finding], key: str, label: str, case: Literal["same", "kept"], margin: Margin
) -> list[Evidence]:
    # `margin` is the lowest acceptable share.
    column = f"{case}_share"
    return [
        Evidence(
            capitalise(str(row[label])),
            _verdict(row["verdict"]),
            word(
                "figure",
                "same, numbers",
                share=_share_in_words(row, column),
                correlation=str(row["r of numbers"]),
                margin=format_percent(margin.low),
                least=f"{margin.low:g}",
            )
            if row.get("r of numbers")
            else word(
                "figure",
                case,
                share=_share_in_words(row, column),
                margin=format_percent(margin.low),
            ),
            -_number(row[column]),
        )
        if row[column] is not None
        else _no_answers(capitalise(str(row[label])))
        for row in _control_rows(findings, key)
    ]


def _drifts(findings: Sequence[Finding]) -> list[Evidence]:
    return [
        Evidence(
            str(row["contrast"]),
            _verdict(row["verdict"]),
            word(
                "figure",
                "drift",
                distance=_distance_in_words(row, "drift_share"),
                margin=format_points(MOST_DRIFT.high).removeprefix("+"),
            ),
            _number(row["drift_share"]),
        )
        if row["drift_share"] is not None
        else _no_answers(str(row["contrast"]))
        for row in _control_rows(findings, USER_DRIFT)
    ]


def _no_answers(label: str) -> Evidence:
    # The control was asked, but none of its answers could be read.
    return Evidence(label, NOT_KNOWN, word("figure", "no answers"))


def _distance_in_words(row: Row, column: str) -> str:
    distance = format_points(_number(row[column])).lstrip("+−")
    low, high = row["low_share"], row["high_share"]
    if low is None or high is None:
        return f"{distance} (no interval)"
    span = format_span(_number(low), _number(high)).removesuffix(" %").replace("-", "−")
    return f"{distance} ({span})"


def _moved_in_words(row: Row, figure: Literal["shift", "excess"]) -> str:
    low, high = row.get(f"{figure}_low_share"), row.get(f"{figure}_high_share")
    # An excess below zero is told as "more that are the same", so its interval changes sides.
    if figure == "excess" and _number(row.get("excess_share")) < 0 and None not in (low, high):
        low, high = -_number(high), -_number(low)
    bounds = {"low_share": low, "high_share": high}
    return _distance_in_words({**row, **bounds}, f"{figure}_share")


def _share_in_words(row: Row, column: str) -> str:
    low, high = row["low_share"], row["high_share"]
    span = (
        "no interval" if low is None or high is None else format_span(_number(low), _number(high))
    )
    of_answers = f" of {row['answers']:,}" if isinstance(row.get("answers"), int) else ""
    return f"{format_percent(_number(row[column]))}{of_answers} ({span})"


def _orders(findings: Sequence[Finding]) -> list[Evidence]:
    found = []
    for row in _control_rows(findings, ANSWERS_AGAIN):
        if row["verdict"] is None:
            continue
        label = capitalise(f"{row['version']}, {row['moment']} decision")
        if row["same_share"] is None:
            found.append(_no_answers(label))
            continue
        is_asked_again = row.get("excess_share") is not None
        figure = word(
            "figure",
            "order" if is_asked_again else "order, not asked again",
            share=_share_in_words(row, "same_share"),
            shift=_moved_in_words(row, "shift"),
            direction="more" if _number(row.get("excess_share")) < 0 else "fewer",
            excess=_moved_in_words(row, "excess"),
            margin=format_points(MOST_MOVED.high).lstrip("+"),
        )
        # More participants do not tell noise from a change by the order.
        advice = "more units" if is_asked_again else "noise"
        moved = max(_number(row["shift_share"]), _number(row.get("excess_share")))
        found.append(Evidence(label, _verdict(row["verdict"]), figure, moved, advice))
    return found


def _wordings(over_grid: Finding | None) -> list[Evidence]:
    # If no cell supports a claim, there is no support that could depend on the wording: "not
    # known".
    return [
        Evidence(
            str(row["claim"]),
            _OVER_GRID.get(str(row["over_the_grid"]), NOT_KNOWN)
            if row["cells_supporting"]
            else NOT_KNOWN,
            word(
                "grid",
                str(row["over_the_grid"]),
                over=format_count(int(_number(row["specifications"])), "specification"),
                fewest=FEWEST_SPECIFICATIONS,
            ),
        )
        for row in _rows([over_grid] if over_grid else [], GRID_CLAIMS)
    ]


def _people(findings: Sequence[Finding]) -> list[Evidence]:
    # Published studies asked people different questions, so only a failed check is evidence.
    found = [
        Evidence(
            str(row[finding.grid.columns[0]]),
            _verdict(row["verdict"]),
            word("figure", f"people, {_verdict(row['verdict'])}"),
        )
        for finding in findings
        if finding.section == HUMAN_BENCHMARK_SECTION and "verdict" in finding.grid.columns
        for row in _rows([finding], finding.key)
    ]
    spread = _checks(findings, *SPREADS)
    return found + [one for one in spread if one.verdict == FAILED]


def _number(cell: TableCell) -> float:
    return float(cell) if isinstance(cell, (int, float)) else 0.0


def _controls_asked(run: RunFolder) -> Mapping[str, set[str | None]] | None:
    # For each control the reasons why answers of participants are missing. None stands for an
    # answer.
    controls = open_controls(run)
    if controls is None:
        return None
    table = with_roles(controls.read_table(ControlRow.table))
    reasons: dict[str, set[str | None]] = {control: set() for control in table["control"].unique()}
    for control, reason in (
        table.filter(role=PARTICIPANT_ROLE).select("control", "missing").iter_rows()
    ):
        reasons[control].add(reason)
    return reasons


def _advice(run: RunFolder, findings: Sequence[Finding], control: str) -> Sentence:
    # An unfinished run may still record decisions.
    if run.is_finished and not run.has_table(ExposureRow.table):
        return word("advice", "no decisions")
    if control == FACT and not may_have_ages(run):
        return word("advice", "no ages")
    if are_controls_missing(run):
        return word("advice", "missing")
    if any(finding.key == UNFINISHED for finding in findings):
        # A resume asks no controls of such a run.
        if run.unusable_reason and not has_calls(run.path / CONTROLS):
            return word("advice", "unusable", command=ASK_ALL)
        return word("advice", "unfinished")
    asked = _controls_asked(run)
    if asked is None and has_calls(run.path / CONTROLS):
        return word("advice", "begun")
    requested = requested_controls(run)
    if asked is None and requested is not None and not run.is_finished:
        # The age is asked together with the negative controls.
        name = NEGATIVE if control == FACT else control
        if requested.size_of(name):
            return word("advice", "resume")
        return word("advice", "left out", control=name)
    if asked is None:
        return word("advice", "ask" if run.is_finished else "ask later", command=ASK_ALL)
    if control in asked:
        if not asked[control]:
            return word("advice", "leading roles only")
        # Without a call there is no reply that could be a refusal.
        if asked[control] <= {UNCHANGED}:
            return word("advice", "nothing to reverse")
        is_left_out = asked[control] <= {UNCHANGED, *NOT_ASKED}
        return word("advice", "not asked again" if is_left_out else "too few")
    # The age is asked together with the negative controls.
    control = NEGATIVE if control == FACT else control
    return word("advice", "left out", control=control)
