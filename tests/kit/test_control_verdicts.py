"""What controls conclude from answers that are given here, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import polars as pl

from folkmoot.kit.controls.findings import findings_in
from folkmoot.kit.controls.tables import AS_DESIGNED, NEGATIVE, ORDER, RETEST
from folkmoot.report.document.validity import CardRow, build_validity_card
from folkmoot.storage.findings import Finding, TableCell
from folkmoot.storage.run_folder import RunFolder

Answer = dict[str, object]


def answer(
    control: str,
    participant: str,
    value: object,
    *,
    question: str = "vote",
    moment: str = "final",
    expected: str | None = None,
    missing: str | None = None,
) -> Answer:
    """An answer of a participant, who is in the condition of the first letter of the name."""
    return {
        "control": control, "question": question, "field": None, "participant_id": participant,
        "speaker_id": participant, "role": "participant", "condition": participant[0],
        "unit": participant, "moment": moment, "decision_address": f"{participant}/{moment}",
        "value": value if isinstance(value, str) else None,
        "number": value if isinstance(value, float) else None,
        "expected": expected, "missing": missing,
        "address": "" if control == AS_DESIGNED else f"{control}/{question}/{participant}/{moment}",
    }  # fmt: skip


def people(condition: str, number: int = 60) -> list[str]:
    return [f"{condition}{i}" for i in range(number)]


def votes(conditions: Iterable[str]) -> list[Answer]:
    return [
        answer(AS_DESIGNED, person, "yes", expected="yes")
        for condition in conditions
        for person in people(condition)
    ]


def conclude(answers: list[Answer], margins: Mapping[str, float] | None = None) -> list[Finding]:
    schema = dict.fromkeys(answers[0], pl.String()) | {"number": pl.Float64()}
    return findings_in(pl.DataFrame(answers, schema), {}, margins or {})


def rows(findings: list[Finding], key: str) -> list[dict[str, TableCell]]:
    grid = next(finding.grid for finding in findings if finding.key == key)
    return [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]


def statement(findings: list[Finding], key: str) -> str:
    return str(next(finding.says for finding in findings if finding.key == key))


def card_row(run: Path, findings: list[Finding], name: str) -> CardRow:
    return next(row for row in build_validity_card(RunFolder(run), findings) if row.name == name)


def test_a_condition_that_declined_every_negative_control_is_not_passed(
    run_of_small_study: Callable[[str], Path],
) -> None:
    answers = votes("ABC") + [
        answer(NEGATIVE, person, "right", question="hand")
        if condition != "B"
        else answer(NEGATIVE, person, None, question="hand", missing="declined")
        for condition in "ABC"
        for person in people(condition)
    ]
    findings = conclude(answers)
    drift = "Drift is at most 10 points in 1 of 3 contrasts; not known in 2."
    assert statement(findings, "user_drift") == drift
    found = {
        str(row["contrast"]): (row["verdict"], row["units"]) for row in rows(findings, "user_drift")
    }
    assert found == {
        "A against B": ("not known", 0),
        "A against C": ("passed", 60),
        "B against C": ("not known", 0),
    }
    row = card_row(run_of_small_study("cross_pollination"), findings, "User drift")
    assert row.verdict == "not known"
    assert "A against B: the control was asked, and no answer could be read." in row.figures


def test_a_retest_that_all_declined_is_not_passed(
    run_of_small_study: Callable[[str], Path],
) -> None:
    answers = [
        answer(RETEST, person, "yes", moment="first", expected="yes") for person in people("A")
    ]
    answers += [
        answer(
            RETEST, person, None, question="rank", moment="first", expected="2", missing="declined"
        )
        for person in people("B")
    ]
    # What could not be asked is no answer that is missing.
    answers += [
        answer(
            RETEST,
            person,
            None,
            question="wish",
            moment="first",
            expected="",
            missing="open_answer",
        )
        for person in people("B")
    ]
    findings = conclude(votes("AB") + answers)
    assert (
        statement(findings, "reliability") == "Vote: 100 % (94 to 100 %) the same; rank: no answer."
    )
    assert {row["decision"]: row["verdict"] for row in rows(findings, "reliability")} == {
        "vote": "passed",
        "rank": "not known",
    }
    row = card_row(run_of_small_study("cross_pollination"), findings, "Reliability (retest)")
    assert row.verdict == "not known"


def test_an_order_fails_only_where_its_alarm_is_raised() -> None:
    # All six answer otherwise, twice. By exchanging six units p is about .03, and by Holm .06.
    answers = [
        answer(ORDER, person, "no", moment=moment, expected="yes")
        for moment in ("first", "final")
        for person in people("A", 6)
    ]
    findings = conclude(votes("A") + answers)
    again = next(finding for finding in findings if finding.key == "answers_in_each_version")
    assert not again.alarms
    assert [row["verdict"] for row in rows(findings, again.key)] == ["not known", "not known"]


def test_numbers_that_are_equal_in_each_condition_and_differ_between_them_are_not_equal() -> None:
    answers = votes("AB") + [
        answer(NEGATIVE, person, float(condition == "B"), question="languages")
        for condition in "AB"
        for person in people(condition)
    ]
    findings = conclude(answers, {"languages": 0.3})
    assert statement(findings, "negative_controls") == (
        "Of 1 comparison (1 question) 0 are equal within their margin, 1 differ by more, and of 0 "
        "it is not known."
    )
    assert rows(findings, "user_drift")[0]["verdict"] == "failed"
