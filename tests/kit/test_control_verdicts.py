"""The verdicts of controls for constructed answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from folkmoot.kit.controls.across import effect_and_drift_over_cells
from folkmoot.kit.controls.contrasts import contrasts_in, decision_contrasts
from folkmoot.kit.controls.effects import (
    MOST_MOVED,
    answers_again,
    measure_effects,
)
from folkmoot.kit.controls.findings import findings_in
from folkmoot.kit.controls.replacing import UNCHANGED
from folkmoot.kit.controls.tables import AS_DESIGNED, NEGATIVE, ORDER, RETEST, SAME_LENGTH
from folkmoot.kit.findings import respondent_checks_finding
from folkmoot.measures.diagnostics import INSTABILITY, POSITION_BIAS, Check, Margin, Verdict
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.wording import Sentence
from folkmoot.randomness import generator
from folkmoot.report.document.validity import CardRow, build_validity_card
from folkmoot.storage.findings import Finding, IntervalChart, TableCell
from folkmoot.storage.run_folder import RunFolder
from tests.sweeps import sample_daily

Answer = dict[str, object]


def make_answer(
    control: str,
    participant: str,
    value: object,
    *,
    question: str = "vote",
    moment: str = "final",
    expected: str | None = None,
    missing: str | None = None,
) -> Answer:
    """Make an answer. The first letter of the participant's name is the condition."""
    return {
        "control": control, "question": question, "field": None, "participant_id": participant,
        "speaker_id": participant, "role": "participant", "condition": participant[0],
        "unit": participant, "moment": moment, "decision_address": f"{participant}/{moment}",
        "value": value if isinstance(value, str) else None,
        "number": value if isinstance(value, float) else None,
        "expected": expected, "missing": missing,
        "address": "" if control == AS_DESIGNED else f"{control}/{question}/{participant}/{moment}",
    }  # fmt: skip


def list_participants(condition: str, number: int = 60) -> list[str]:
    return [f"{condition}{i}" for i in range(number)]


def make_votes(conditions: Iterable[str]) -> list[Answer]:
    return [
        make_answer(AS_DESIGNED, participant, "yes", expected="yes")
        for condition in conditions
        for participant in list_participants(condition)
    ]


def compute_findings(
    answers: list[Answer], margins: Mapping[str, float] | None = None, question: str = ""
) -> list[Finding]:
    """Compute the findings of answers to decisions.

    `question`: the question of all decisions. By default each name is a question of its own.
    """
    schema = dict.fromkeys(answers[0], pl.String()) | {"number": pl.Float64()}
    return findings_in(
        pl.DataFrame(answers, schema),
        {},
        margins or {},
        question_of=lambda name, _address: question or name,
    )


def read_rows(findings: list[Finding], key: str) -> list[dict[str, TableCell]]:
    grid = next(finding.grid for finding in findings if finding.key == key)
    return [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]


def read_statement(findings: list[Finding], key: str) -> str:
    return str(next(finding.says for finding in findings if finding.key == key))


def find_card_row(run_folder: Path, findings: list[Finding], name: str) -> CardRow:
    return next(
        row for row in build_validity_card(RunFolder(run_folder), findings) if row.name == name
    )


def test_a_condition_without_negative_control_answers_has_no_verdict(
    run_of_small_study: Callable[[str], Path],
) -> None:
    answers = make_votes("ABC") + [
        make_answer(NEGATIVE, participant, "right", question="hand")
        if condition != "B"
        else make_answer(NEGATIVE, participant, None, question="hand", missing="declined")
        for condition in "ABC"
        for participant in list_participants(condition)
    ]
    findings = compute_findings(answers)
    drift = "Drift is at most 10 points in 1 of 3 contrasts; not known in 2."
    assert read_statement(findings, "user_drift") == drift
    verdicts = {
        str(row["contrast"]): (row["verdict"], row["units"])
        for row in read_rows(findings, "user_drift")
    }
    assert verdicts == {
        "A against B": ("not known", 0),
        "A against C": ("passed", 60),
        "B against C": ("not known", 0),
    }
    row = find_card_row(run_of_small_study("cross_pollination"), findings, "User drift")
    assert row.verdict == "not known"
    # All declined. Replies that are refusals could be read.
    assert (
        "A against B: the control was asked, and no reply is an answer (refusals and replies that "
        "could not be read are under “Who was asked”)." in row.figures
    )


def test_a_retest_without_answers_has_no_verdict(
    run_of_small_study: Callable[[str], Path],
) -> None:
    answers = [
        make_answer(RETEST, participant, "yes", moment="first", expected="yes")
        for participant in list_participants("A")
    ]
    # A question that could not be asked again is not a missing answer.
    answers += [
        make_answer(
            RETEST,
            participant,
            None,
            question=question,
            moment="first",
            expected=expected,
            missing=missing,
        )
        for question, expected, missing in (("rank", "2", "declined"), ("wish", "", "open_answer"))
        for participant in list_participants("B")
    ]
    findings = compute_findings(make_votes("AB") + answers)
    assert (
        read_statement(findings, "reliability")
        == "Vote: 100 % (94 to 100 %) the same; rank: no answer."
    )
    assert {row["decision"]: row["verdict"] for row in read_rows(findings, "reliability")} == {
        "vote": "passed",
        "rank": "not known",
    }
    row = find_card_row(run_of_small_study("cross_pollination"), findings, "Reliability (retest)")
    assert row.verdict == "not known"


def test_a_retest_without_a_verdict_leaves_a_check_that_passed(
    run_of_small_study: Callable[[str], Path],
) -> None:
    def find_verdict(check_verdict: Verdict, given: str, participant_count: int) -> Verdict:
        answers = [
            make_answer(RETEST, participant, given, moment="first", expected="yes")
            for participant in list_participants("A", participant_count)
        ]
        agreement = Estimate(1.0, 0.9, 1.0, 144, 6)
        check = Check(
            "instability", INSTABILITY, agreement, Margin(low=0.4), check_verdict, Sentence("Same.")
        )
        findings = [
            *compute_findings(make_votes("A") + answers),
            respondent_checks_finding([check]),
        ]
        folder = run_of_small_study("cross_pollination")
        return find_card_row(folder, findings, "Reliability (retest)").verdict

    assert find_verdict("passed", "yes", 6) == "passed"
    assert find_verdict("not known", "yes", 6) == "not known"
    assert find_verdict("failed", "yes", 6) == "failed"
    # A control with a verdict replaces a check that did not fail.
    assert find_verdict("passed", "no", 60) == "failed"
    assert find_verdict("not known", "yes", 60) == "passed"
    assert find_verdict("failed", "yes", 60) == "failed"


def test_the_order_control_fails_only_with_an_alarm() -> None:
    # All six change their answer, twice. By permutation of six units p is about .03, by Holm .06.
    answers = [
        make_answer(ORDER, participant, "no", moment=moment, expected="yes")
        for moment in ("first", "final")
        for participant in list_participants("A", 6)
    ]
    findings = compute_findings(make_votes("A") + answers)
    finding_in_each_version = next(
        finding for finding in findings if finding.key == "answers_in_each_version"
    )
    assert not finding_in_each_version.alarms
    assert [row["verdict"] for row in read_rows(findings, finding_in_each_version.key)] == [
        "not known",
        "not known",
    ]


def ask_in_reversed_order(changes: int, changes_again: int, participant_count: int) -> list[Answer]:
    """Answers of participants who read the three options in orders that differ.

    So many change their answer in reversed order, and others when asked again. The shares of the
    options stay as they are.
    """
    answers = []
    for i, participant in enumerate(list_participants("A", participant_count)):
        designed, other = "abc"[i % 3], "abc"[(i + 1) % 3]
        again = other if participant_count - i <= changes_again else designed
        reversed_order = other if i < changes else designed
        for moment in ("first", "final"):
            answers.append(
                make_answer(ORDER, participant, reversed_order, moment=moment, expected=designed)
            )
        answers.append(make_answer(RETEST, participant, again, moment="first", expected=designed))
    return make_votes("A") + answers


def test_answers_that_no_participant_repeats_in_reversed_order_fail_with_equal_shares(
    run_of_small_study: Callable[[str], Path],
) -> None:
    findings = compute_findings(ask_in_reversed_order(60, 0, 60))
    rows = [row for row in read_rows(findings, "answers_in_each_version") if row["verdict"]]
    assert [(row["moment"], row["shift_share"], row["excess_share"]) for row in rows] == [
        ("first", 0.0, 1.0),
        ("final", 0.0, None),
    ]
    # The final decision was not asked again, so its changes may be noise.
    assert [row["verdict"] for row in rows] == ["failed", "not known"]
    card_row = find_card_row(run_of_small_study("cross_pollination"), findings, "Order effect")
    assert card_row.verdict == "failed"
    assert (
        "0 % of 60 (0 to 6 %) answer the same, 100 points (88 to 100) fewer than when asked "
        in (card_row.figures)
    )


def test_an_order_that_changes_answers_as_often_as_a_retest_passes(
    run_of_small_study: Callable[[str], Path],
) -> None:
    findings = compute_findings(ask_in_reversed_order(36, 36, 180))
    rows = [row for row in read_rows(findings, "answers_in_each_version") if row["verdict"]]
    assert [(row["same_share"], row["verdict"]) for row in rows] == [
        (0.8, "passed"),
        (0.8, "not known"),
    ]
    card_row = find_card_row(run_of_small_study("cross_pollination"), findings, "Order effect")
    assert card_row.consequence.endswith("because this decision was not asked again.")
    # Few changed answers need no retest.
    findings = compute_findings(ask_in_reversed_order(6, 6, 180))
    assert [row["verdict"] for row in read_rows(findings, "answers_in_each_version")][:2] == [
        "passed",
        "passed",
    ]


def test_an_excess_over_few_units_is_not_tested() -> None:
    findings = compute_findings(ask_in_reversed_order(1, 1, 3))
    rows = [row for row in read_rows(findings, "answers_in_each_version") if row["verdict"]]
    assert [(row["excess_share"], row["excess_p"]) for row in rows] == [(0.0, None), (None, None)]
    assert [row["verdict"] for row in rows] == ["not known", "not known"]


def test_changes_that_cancel_out_leave_the_cause_of_an_effect_open() -> None:
    """All participants of B change to the next option. The shares of the options stay equal."""
    answers = []
    for condition in "AB":
        for i, participant in enumerate(list_participants(condition)):
            first, following = "xyz"[i % 3], "xyz"[(i + 1) % 3]
            final = following if condition == "B" else first
            for moment, value in (("first", first), ("final", final)):
                as_designed = make_answer(
                    AS_DESIGNED, participant, value, moment=moment, expected=value
                )
                # Neutral texts replace those of the final decision, and all change again.
                is_replaced = condition == "B" and moment == "final"
                neutral = make_answer(
                    SAME_LENGTH,
                    participant,
                    value if is_replaced else None,
                    moment=moment,
                    expected=value,
                    missing=None if is_replaced else UNCHANGED,
                )
                answers += [as_designed, neutral]
    findings = compute_findings(answers)
    rows = read_rows(findings, "where_the_effect_comes_from")
    assert [
        (row["effect_share"], row["changed_share"], row["verdict"])
        for row in rows
        if row["contrast"] == "B: final against first decision"
    ] == [(0.0, 1.0, None), (0.0, 1.0, "not known")]
    says = read_statement(findings, "where_the_effect_comes_from")
    assert "neutral texts of equal length 0 points (0 to 22) with 100 % of answers changed" in says
    assert says.endswith(
        "Whether an effect comes from the length of the texts is not known in 2 of 2 contrasts, "
        "because shares of answers do not establish an effect as designed there (adjusted p of .05 "
        "or more in 2)."
    )


def test_a_card_row_with_a_check_and_no_control_names_the_control(
    run_of_small_study: Callable[[str], Path],
) -> None:
    bias = Check(
        "position", POSITION_BIAS, Estimate(0.1, -0.2, 0.4, 40, 40), Margin(-0.05, 0.05),
        "not known", Sentence("Ten points at place 2."),
    )  # fmt: skip
    findings = [*compute_findings(make_votes("A")), respondent_checks_finding([bias])]
    card_row = find_card_row(run_of_small_study("cross_pollination"), findings, "Order effect")
    assert card_row.figures == "Ten points at place 2."
    assert card_row.consequence == (
        "The order of options may have moved answers: to know it, run `folkmoot controls RUN "
        "--order`."
    )


def test_constant_numbers_that_differ_between_conditions_are_not_equal() -> None:
    answers = make_votes("AB") + [
        make_answer(NEGATIVE, participant, float(condition == "B"), question="languages")
        for condition in "AB"
        for participant in list_participants(condition)
    ]
    findings = compute_findings(answers, {"languages": 0.3})
    assert read_statement(findings, "negative_controls") == (
        "Of 1 comparison (1 question) 0 are equal within their margin, 1 differ by more, and of 0 "
        "it is not known."
    )
    assert read_rows(findings, "user_drift")[0]["verdict"] == "failed"


def draw_changes(
    rng: np.random.Generator, noise_share: float, excess: float, size: int
) -> list[Answer]:
    """Answers of 120 participants, of whom `excess` more change in reversed order than again.

    With a `size` above 1, participants belong to groups of this size. The participants of a group
    have the same probability of a change, which differs between groups.
    """
    answers = []
    for i in range(120):
        if i % size == 0:
            shift = rng.uniform(-0.1, 0.1) if size > 1 else 0.0
        for control, share in ((RETEST, noise_share), (ORDER, noise_share + excess)):
            value = "no" if rng.random() < share + shift else "yes"
            answer = make_answer(control, f"A{i}", value, moment="first", expected="yes")
            answers.append(answer | {"unit": f"g{i // size}"})
    return answers


@pytest.mark.parametrize(
    ("noise_share", "excess", "size"),
    sample_daily(
        [(0.2, 0.101, 1), (0.65, 0.12, 1), (0.4, 0.0, 1), (0.4, 0.12, 5), (0.8, -0.1, 5)],
        daily=[(0.65, 0.12, 1), (0.4, 0.12, 5)],
        part="truths",
    ),
)
def test_the_interval_of_the_excess_holds_the_true_excess(
    noise_share: float, excess: float, size: int
) -> None:
    tables, held, passes = 100, 0, 0
    rng = generator(1, ("excess", noise_share, excess, size))
    for _ in range(tables):
        answers = draw_changes(rng, noise_share, excess, size)
        schema = dict.fromkeys(answers[0], pl.String()) | {"number": pl.Float64()}
        finding = answers_again(pl.DataFrame(answers, schema))
        assert finding is not None
        row = next(
            dict(zip(finding.grid.columns, row, strict=True))
            for row in finding.grid.rows
            if row[-1] is not None
        )
        low, high = (float(str(row[f"excess_{end}_share"])) for end in ("low", "high"))
        held += low <= excess <= high
        passes += high <= MOST_MOVED.high
    assert held >= 0.91 * tables
    # An excess above the margin must not pass more often than the interval may be wrong.
    if excess > MOST_MOVED.high:
        assert passes <= 0.05 * tables


def test_fewer_changes_than_when_asked_again_are_below_zero_and_no_alarm(
    run_of_small_study: Callable[[str], Path],
) -> None:
    findings = compute_findings(ask_in_reversed_order(6, 120, 180))
    (row,) = (
        row
        for row in read_rows(findings, "answers_in_each_version")
        if row["verdict"] and row["moment"] == "first"
    )
    assert row["excess_share"] == pytest.approx(-114 / 180) and row["verdict"] == "passed"
    assert float(str(row["excess_low_share"])) < -0.5 > float(str(row["excess_high_share"]))
    card_row = find_card_row(run_of_small_study("cross_pollination"), findings, "Order effect")
    assert "63 points (55 to 71) more than when asked again" in card_row.figures


def test_a_version_without_answers_is_named_beside_the_others() -> None:
    # The last decision of all A in the run could not be read.
    answers = [
        make_answer(
            control,
            participant,
            None if moment == "final" else "yes",
            moment=moment,
            expected=None if moment == "final" else "yes",
            missing="unparsed" if moment == "final" else None,
        )
        for participant in list_participants("A", 12)
        for moment in ("first", "final")
        for control in (AS_DESIGNED, ORDER)
    ]
    findings = compute_findings(answers)
    says = read_statement(findings, "where_the_effect_comes_from")
    # Each contrast says something of each version.
    assert "as designed: no answer, order reversed: no answer." in says
    rows = read_rows(findings, "where_the_effect_comes_from")
    assert [row["answers"] for row in rows] == [0, 0]


@pytest.mark.parametrize("left", [0, 1, 20, 30, 40])
def test_the_decision_that_most_participants_have_made_is_compared(left: int) -> None:
    """The final decision of some participants is their first one, because they left after it.

    Controls record such a decision as the final one only.
    """
    participants = list_participants("A")
    answers = [
        make_answer(AS_DESIGNED, participant, "no", question="first vote", moment="first")
        for participant in participants[left:]
    ]
    final_answers = [
        make_answer(AS_DESIGNED, participant, "yes", question="last vote")
        if number >= left
        else make_answer(AS_DESIGNED, participant, "no", question="first vote")
        for number, participant in enumerate(participants)
    ]
    again = [
        {**answer, "control": SAME_LENGTH, "expected": answer["value"]} for answer in final_answers
    ]
    rows = read_rows(
        compute_findings(answers + final_answers + again, question="vote"),
        "where_the_effect_comes_from",
    )
    (row,) = [row for row in rows if row["version"] == "as designed"]
    assert row["decision"] == "last vote against first vote"
    assert (row["effect_share"], row["answers"]) == (1.0, 2 * (60 - left))


@pytest.mark.parametrize("values", [(3.0, 6.0), ("yes", "no")])
def test_answers_to_two_questions_are_no_effect(values: tuple[object, object]) -> None:
    """All participants answer both questions alike, whatever they have read."""
    answers = [
        make_answer(
            control,
            participant,
            value,
            question=question,
            moment=moment,
            expected=None if control == AS_DESIGNED else str(value),
        )
        for participant in [*list_participants("A"), *list_participants("B")]
        for question, moment, value in zip(
            ("siblings", "satisfaction"), ("first", "final"), values, strict=True
        )
        for control in (AS_DESIGNED, SAME_LENGTH)
    ]
    findings = compute_findings(answers)
    rows = read_rows(findings, "where_the_effect_comes_from")
    assert {row["contrast"] for row in rows} == {"A against B"}
    assert not any(finding.alarms for finding in findings)
    # They are compared if both are one question.
    rows = read_rows(compute_findings(answers, question="both"), "where_the_effect_comes_from")
    assert "A: final against first decision" in {row["contrast"] for row in rows}


def test_conditions_with_questions_in_random_order_are_compared_by_one_question() -> None:
    """Each question is the last one of some participants, and all of them have the same options."""
    last_questions = {"A": ("Q1", "Q1", "Q2"), "B": ("Q1", "Q2", "Q2")}
    answers = [
        make_answer(AS_DESIGNED, participant, value, question=question)
        for condition, questions in last_questions.items()
        for number, participant in enumerate(list_participants(condition))
        for question in [questions[number % 3]]
        # The answer depends on the question and not on the condition.
        for value in [{"Q1": "yes", "Q2": "no"}[question]]
    ]
    addresses = [str(answer["decision_address"]) for answer in answers]
    table = pl.DataFrame(answers, infer_schema_length=None)
    contrasts = decision_contrasts(table, dict.fromkeys(addresses, ("no", "yes")))
    (compared,) = contrasts.values()
    assert compared is not None and compared.first == compared.second
    (effects,) = measure_effects(table, contrasts).values()
    assert effects[AS_DESIGNED].estimate.value == 0


def test_decisions_on_another_topic_or_with_other_options_are_counted() -> None:
    """In a negotiation the last confirmation of some members is on another topic."""
    answers = [
        make_answer(control, participant, value, question="confirmation", expected=value)
        for condition, value in (("A", "no"), ("B", "yes"))
        for participant in list_participants(condition, 20)
        for control in (AS_DESIGNED, SAME_LENGTH)
    ]

    def find(
        lists: Mapping[str, tuple[str, ...]], topics: Mapping[str, str]
    ) -> tuple[list[Finding], Sequence[str]]:
        findings = findings_in(
            pl.DataFrame(answers, infer_schema_length=None),
            {str(answer["decision_address"]): ("no", "yes") for answer in answers} | lists,
            {},
            question_of=lambda _name, address: topics.get(address, "rules"),
        )
        keys = ("where_the_effect_comes_from", "answers_in_each_version")
        return findings, next(f for key in keys for f in findings if f.key == key).notes

    # The first answer of A has other options, and two answers of B are on rooms.
    lists = {"A0/final": ("no", "refused: pets", "yes")}
    findings, notes = find(lists, {"B0/final": "rooms", "B3/final": "rooms"})
    (row, _) = read_rows(findings, "where_the_effect_comes_from")
    assert (row["contrast"], row["effect_share"], row["answers"]) == ("A against B", 1, 38)
    left_out = "A against B (confirmation): left out, because on another question: "
    assert f"{left_out}2 of 40 decisions." in notes
    (note,) = (note for note in notes if "compared, although" in note)
    assert note.startswith("A against B (confirmation): compared, although no decision on the ")
    assert note.endswith("has the same options: 1 of 40 decisions.")
    # What no decision is, is not mentioned.
    _, notes = find({}, {"B0/final": "rooms"})
    assert f"{left_out}1 of 40 decisions." in notes
    assert not any("compared, although" in note for note in notes)
    # Without any common question, a note says so.
    findings, notes = find({}, {f"B{n}/final": "rooms" for n in range(20)})
    assert not any(finding.key == "where_the_effect_comes_from" for finding in findings)
    assert any(note.endswith("options: A against B.") for note in notes)


def test_eight_units_that_are_alike_do_not_show_that_drift_is_small() -> None:
    """In each of eight halls, one of twelve participants gives another answer under B."""
    answers = [
        make_answer(NEGATIVE, f"{condition}{hall}-{number}", value, question="animal")
        | {"unit": f"hall {hall}"}
        for condition in "AB"
        for hall in range(8)
        for number in range(12)
        for value in ["dog" if (condition, number) == ("B", 0) else "cat"]
    ]
    findings = compute_findings([*make_votes("AB"), *answers])
    (row,) = read_rows(findings, "user_drift")
    assert row["drift_share"] == pytest.approx(1 / 12) and row["units"] == 8
    assert row["verdict"] == "not known"
    # As without any drift, where the interval of eight units reaches 31 %.
    assert row["high_share"] == pytest.approx(0.42, abs=0.01)


def test_a_row_of_few_units_is_the_illustration_and_not_the_finding() -> None:
    """One moderator was asked again with neutral texts, and 40 participants in order reversed."""
    participants = list_participants("A", 40)
    moderator = make_answer(SAME_LENGTH, "A0", "no", expected="yes") | {"role": "moderator"}
    answers = [
        answer
        for participant in participants
        for answer in (
            make_answer(AS_DESIGNED, participant, "yes", moment="first", expected="yes"),
            make_answer(ORDER, participant, "no", expected="yes"),
            make_answer(RETEST, participant, "yes", moment="first", expected="yes"),
        )
    ]
    findings = compute_findings([*make_votes("A"), *answers, moderator])
    finding = next(found for found in findings if found.key == "answers_in_each_version")
    # What rests on 40 participants keeps its interval everywhere, and its verdict.
    assert not finding.illustrates and finding.units == 40
    assert finding.independent == "Independent unit: participant (numbers in the table)."
    assert finding.says == (
        "Order reversed, final decision: 0 % (0 to 9 %) the same; asked again, first decision: "
        "100 % (91 to 100 %) the same; moderator, neutral texts of equal length, final decision: "
        "0 % (no interval, an illustration of 1 participant) the same."
    )
    rows = read_rows(findings, finding.key)
    assert [
        (row["units"], row["low_share"] is None, row["p"] is None, row["verdict"]) for row in rows
    ] == [
        (40, False, False, "failed"),
        (40, False, False, None),
        (1, True, True, None),
    ]
    assert isinstance(finding.chart, IntervalChart)
    assert [low < high for _, _, low, high in finding.chart.items] == [True, True, False]
    assert finding.alarms == ("Answers depend on the order: order reversed, final decision.",)


def test_a_contrast_of_few_units_leaves_the_intervals_of_others() -> None:
    """Twelve participants took part in A and in B, and two in C."""
    sizes = {"A": 12, "B": 12, "C": 2}
    answers = [
        make_answer(control, participant, value, expected=value)
        for condition, size in sizes.items()
        for participant in list_participants(condition, size)
        for control, value in ((AS_DESIGNED, "yes" if condition == "A" else "no"), (ORDER, "no"))
    ] + [
        make_answer(NEGATIVE, participant, "right", question="hand")
        for condition, size in sizes.items()
        for participant in list_participants(condition, size)
    ]
    findings = compute_findings(answers)
    for key in ("where_the_effect_comes_from", "user_drift", "negative_controls"):
        finding = next(found for found in findings if found.key == key)
        assert not finding.illustrates, key
        for row in read_rows(findings, key):
            is_few = "C" in str(row["contrast"])
            assert (row["units"], row["p"] is None) == (2 if is_few else 12, is_few), (key, row)
    says = read_statement(findings, "where_the_effect_comes_from")
    assert "A against B (vote): as designed 100 points (" in says
    assert (
        "A against C (vote): as designed 100 points (no interval, an illustration of 2 "
        "participants)" in says
    )
    # If all rows are of few units, the label of the finding says so once.
    few = [answer for answer in answers if str(answer["participant_id"])[1:] in "01"]
    says = read_statement(compute_findings(few), "where_the_effect_comes_from")
    assert says.startswith("An illustration, not evidence: 2 participants. A against B (vote): ")
    assert says.count("illustration") == 1


@pytest.mark.parametrize("conditions", ["ABC", "CAB", "BCA"])
def test_a_contrast_has_one_name_however_participants_were_drawn(conditions: str) -> None:
    answers = [
        make_answer(control, participant, "yes", expected="yes")
        for condition in conditions
        for participant in list_participants(condition, 6)
        for control in (AS_DESIGNED, ORDER)
    ]
    table = pl.DataFrame(answers, infer_schema_length=None)

    def name_contrasts(*ordered: str) -> list[str]:
        return [contrast.says for contrast in contrasts_in(table, ordered)]

    assert name_contrasts() == ["A against B", "A against C", "B against C"]
    # Conditions that the study does not declare come first.
    assert name_contrasts("C", "B") == ["A against C", "A against B", "C against B"]


def test_a_grid_compares_contrasts_whatever_the_order_of_the_conditions() -> None:
    """One cell of the grid has another order of the conditions, as an axis may give it."""

    def list_cell_findings(order: Sequence[str], share: int) -> list[Finding]:
        answers = make_votes("ABC") + [
            make_answer(NEGATIVE, participant, "left" if is_moved else "right", question="hand")
            | {"role": role}
            for role in ("participant", "mediator")
            for condition in "ABC"
            for number, participant in enumerate(list_participants(condition))
            for is_moved in [condition == "A" and number < share]
        ]
        schema = dict.fromkeys(answers[0], pl.String()) | {"number": pl.Float64()}
        return findings_in(pl.DataFrame(answers, schema), {}, {}, conditions=order)

    cells = [
        ("plain", list_cell_findings("ABC", 30)),
        ("plain", list_cell_findings("CBA", 60)),
        ("stated", list_cell_findings("BCA", 0)),
    ]
    finding = effect_and_drift_over_cells(cells)
    assert finding is not None
    rows = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    named = [
        f"{role}{first} against {second}"
        for role in ("", "mediator, ")
        for first, second in ("AB", "AC", "BC")
    ]
    assert [(row["contrast"], row["specification"]) for row in rows] == [
        (name, specification) for name in named for specification in ("plain", "stated")
    ]
    # The first row is the mean over both repeats, of about 50 and 100 points.
    assert rows[0]["drift_share"] == pytest.approx(0.75, abs=0.02)
    assert rows[1]["drift_change"] == pytest.approx(-0.75, abs=0.02)


@pytest.mark.parametrize(
    ("halls", "why"), [(6, "adjusted p of .05 or more in 2"), (3, "too few units for a test in 2")]
)
def test_an_effect_of_few_units_is_not_called_absent(halls: int, why: str) -> None:
    """Each hall answers in A and in B. All change in B, and none with neutral texts."""
    answers = [
        make_answer(control, f"{condition}{hall}", value, moment=moment, expected=value)
        | {"unit": f"hall {hall}"}
        for condition in "AB"
        for hall in range(halls)
        for moment in ("first", "final")
        for control in (AS_DESIGNED, SAME_LENGTH)
        for is_changed in [condition == "B" and moment == "final" and control == AS_DESIGNED]
        for value in ["yes" if is_changed else "no"]
    ]
    answers = [
        answer for answer in answers if (answer["condition"], answer["moment"]) != ("A", "first")
    ]
    findings = compute_findings(answers)
    rows = read_rows(findings, "where_the_effect_comes_from")
    effects = [(row["version"], row["effect_share"]) for row in rows]
    assert effects[:2] == [("as designed", 1), ("neutral texts of equal length", 0)]
    # With six units, p is at least .03. Over two contrasts, the adjusted p is at least .06.
    assert read_statement(findings, "where_the_effect_comes_from").endswith(
        "Whether an effect comes from the length of the texts is not known in 2 of 2 contrasts, "
        f"because shares of answers do not establish an effect as designed there ({why})."
    )


def test_a_question_that_few_answered_is_judged_by_them() -> None:
    """Twelve on each side name their hand, and only three of B a number of languages."""
    answers = make_votes("AB") + [
        answer
        for condition in "AB"
        for number, participant in enumerate(list_participants(condition, 12))
        for answer in (
            make_answer(NEGATIVE, participant, "right", question="hand"),
            make_answer(NEGATIVE, participant, float(condition == "B"), question="languages"),
        )
        if condition == "A" or number < 3 or answer["question"] == "hand"
    ]
    margins = {"hand": 0.5, "languages": 0.5}
    rows = read_rows(compute_findings(answers, margins), "negative_controls")
    # Constants that differ have no finite difference in standard deviations.
    found = [
        (row["question"], row["units"], row["distance"], row["p"], row["equal"]) for row in rows
    ]
    assert found == [("hand", 12, 0, 1, "yes"), ("languages", 3, None, None, "not known")]


@pytest.mark.parametrize(("halls", "equal"), [(5, "not known"), (6, "no")])
def test_constants_that_differ_are_unequal_only_if_a_test_shows_it(halls: int, equal: str) -> None:
    """All halls answer 0 before and 1 after. With five halls, p is at least 2 in 32."""
    answers = [
        make_answer(control, f"A{hall}", value, question=question, moment=moment, expected="yes")
        for hall in range(halls)
        for moment in ("first", "final")
        for control, question, value in (
            (AS_DESIGNED, "vote", "yes"),
            (NEGATIVE, "languages", float(moment == "final")),
        )
    ]
    (row,) = read_rows(compute_findings(answers, {"languages": 0.5}), "negative_controls")
    assert row["p"] == 2 / 2**halls
    assert (row["units"], row["equal"]) == (halls, equal)


@pytest.mark.parametrize(("noise", "verdict"), [(1.0, "passed"), (60.0, "failed"), (0.0, "passed")])
def test_numbers_asked_again_are_judged_by_their_correlation(
    run_of_small_study: Callable[[str], Path], noise: float, verdict: str
) -> None:
    """Ratings from 0 to 100 with a standard deviation of 20, and noise of both answers beside."""
    rng = generator(3, ("ratings",))
    answers = [
        make_answer(
            RETEST,
            participant,
            round(rating + rng.normal(0, noise), 1),
            question="rating",
            moment="first",
            expected=str(round(rating + rng.normal(0, noise), 1)),
        )
        for participant, rating in zip(
            list_participants("A"), rng.normal(50, 20, 60).round().tolist(), strict=True
        )
    ]
    findings = compute_findings(make_votes("AB") + answers)
    (row,) = read_rows(findings, "reliability")
    assert row["verdict"] == verdict
    card = find_card_row(run_of_small_study("cross_pollination"), findings, "Reliability (retest)")
    assert card.verdict == verdict
    assert "the correlation of both numbers is" in card.figures
    assert "the same, correlation " in read_statement(findings, "reliability")


def test_equal_numbers_that_all_change_are_unreliable() -> None:
    """All answer 3 and then 5, so there is no correlation."""
    answers = [
        make_answer(RETEST, participant, 5.0, question="rating", moment="first", expected="3")
        for participant in list_participants("A")
    ]
    (row,) = read_rows(compute_findings(make_votes("AB") + answers), "reliability")
    assert (row["same_share"], row["kappa or r"], row["verdict"]) == (0, None, "failed")


def test_each_role_has_its_own_share_of_equal_decisions() -> None:
    answers = [
        make_answer(RETEST, participant, "yes" if role == "participant" else "no", expected="yes")
        | {"role": role}
        for role in ("participant", "mediator")
        for participant in list_participants("A", 20)
    ]
    findings = compute_findings([*make_votes("A"), *answers])
    assert read_statement(findings, "reliability") == (
        "Vote: 100 % (84 to 100 %) the same; mediator, vote: 0 % (0 to 16 %) the same."
    )


def test_an_effect_of_few_units_beside_drift_of_more_is_called_an_illustration() -> None:
    """Twelve on each side answer the control questions, and three of B decide."""
    answers = [
        make_answer(NEGATIVE, participant, "right", question="hand")
        for condition in "AB"
        for participant in list_participants(condition, 12)
    ] + [
        make_answer(control, participant, "yes", expected="yes")
        for condition, size in (("A", 12), ("B", 3))
        for participant in list_participants(condition, size)
        for control in (AS_DESIGNED, ORDER)
    ]
    findings = compute_findings(answers)
    finding = next(each for each in findings if each.key == "where_the_effect_comes_from")
    assert not finding.illustrates
    assert finding.says.count("an illustration of 3 participants") == 2


def test_a_grid_names_changes_from_few_units() -> None:
    def list_cell_findings(size: int) -> list[Finding]:
        return compute_findings(
            make_votes("AB")
            + [
                make_answer(NEGATIVE, participant, condition, question="hand")
                for condition in "AB"
                for participant in list_participants(condition, size)
            ]
        )

    def compare(*sizes: int) -> Finding:
        cells = ((f"cell {size}", list_cell_findings(size)) for size in sizes)
        finding = effect_and_drift_over_cells(cells)
        assert finding is not None
        return finding

    assert "illustration" not in compare(20, 10).says
    finding = compare(20, 4)
    assert finding.says.endswith("drift 100 % to 100 % (an illustration of 4 participants).")
    units = finding.grid.cells_of("units")
    assert units == [20, 4]
