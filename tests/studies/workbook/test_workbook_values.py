"""Computed values are calculated once, in order and with bounded work, from answers and design."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import Missing
from folkmoot.studies.workbook.checks import design_problems
from folkmoot.studies.workbook.config import Computed
from folkmoot.studies.workbook.language.expressions import (
    EvaluationContext,
    ExpressionProblem,
    evaluate_for,
    in_order,
    parse_expression,
)
from folkmoot.studies.workbook.language.placeholders import render_text
from folkmoot.studies.workbook.preparation import config_advisories
from tests.studies.workbook.test_workbook_play import (
    TASKS,
    read_rows,
    run_workbook,
    select_requests,
)
from tests.studies.workbook.workbook_builder import (
    evaluate_expression,
    find_mistakes,
    make_provider,
    make_task_row,
    make_workbook,
    read_config,
    with_cell,
)


def make_computed_workbook(*items: tuple[str, str, str]) -> dict[str, list[list[Any]]]:
    """Make a workbook with these computed values and a question after the offers."""
    book = make_workbook()
    book["computed"] += [list(item) for item in items]
    return book


def test_results_from_whole_answers_are_shown_as_whole_numbers(tmp_path: Path) -> None:
    text = "Keep {{ 10 - offer }}, half {{ offer / 2 }}, twice {{ 2 * offer }}, {{ offer }}."
    provider = make_provider(number=7)
    run_workbook(with_cell(make_workbook(), f"{TASKS}!F5", text), tmp_path, provider, limit=1)
    shown = [r.messages[-1].content for r in select_requests(provider, "market.1/m/")]
    assert shown and all("Keep 3, half 3.5, twice 14, 7." in prompt for prompt in shown)


@pytest.mark.nightly(part="sweeps")
def test_a_long_chain_in_any_order_is_the_same_in_the_prompt_and_in_the_table(
    tmp_path: Path,
) -> None:
    n = 1_500  # more than Python's limit of recursion
    chain = [(f"c{k}", "participant", f"c{k - 1} + 1") for k in range(n, 0, -1)]
    book = with_cell(
        make_computed_workbook(*chain, ("c0", "participant", "offer")),
        f"{TASKS}!F5",
        "It is {{ c1500 }}",
    )
    provider = make_provider(number=7)
    run = run_workbook(book, tmp_path, provider, limit=1)
    shown = [r.messages[-1].content for r in select_requests(provider, "market.1/m/")]
    stored = run.table("computed").filter(name="c1500")["number"].to_list()
    assert shown and all("It is 1507" in text for text in shown)
    assert stored == [1507.0] * 4
    assert {row["c1500"] for row in read_rows(run)} == {"1507"}


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("-x ** 2", -9, "-9"),  # Python's precedence; templates have (-3) ** 2
        ("2 ** 3 ** 2", 512, "512"),  # … and (2 ** 3) ** 2
        ("-x | abs", 3, "3"),
        ("10 - (x | round)", 7, "7"),
        ("(x / 2) | round | int", 2, "2"),
        ("(x / 2) | round(1) > 1", 1, "True"),
        ("max(x, 7) // 2 % 2", 1, "1"),
        ("0 < x < 5 and 'a' in 'cat'", 1, "True"),
        ("upper('yes') if x else 'no'", "YES", "YES"),
    ],
)
def test_placeholders_and_computed_values_are_one_language(
    text: str, value: Any, shown: str
) -> None:
    scene = EvaluationContext(["a"], frozenset({"x"}), frozenset(), {}, lambda _name, _who: 3)
    assert evaluate_expression(text, scene, "a") == value
    text = f"{{{{ {text} }}}}{{% if ({text}) == {value!r} %}}!{{% endif %}}"
    assert render_text(text, {"x": 3}) == f"{shown}!"


@pytest.mark.parametrize(
    "text",
    [
        "x + 1  # the endowment\n+ 10",
        "(x  # what was given\n + 11)",
        '11 + x  # it\'s "all"',
        "# a remark above\n11 + x",
        "11 + x if 'a # b' != \"a ' # \" else 0  # 'no'",
    ],
)
def test_a_comment_ends_at_the_end_of_its_line(text: str) -> None:
    scene = EvaluationContext(["a"], frozenset({"x"}), frozenset(), {}, lambda _name, _who: 3)
    assert evaluate_expression(text, scene, "a") == 14


@pytest.mark.parametrize(
    "text", ["x + 1 | round", "10 - x | abs", "x ** 2 | int", "x | 5", "x | round + 1", "x | y.z"]
)
def test_what_templates_and_python_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ExpressionProblem, match=r"read in two ways|a function must follow \|"):
        parse_expression(text)
    with pytest.raises(ExpressionProblem, match="cannot be read"):
        render_text(f"{{{{ {text} }}}}", {"x": 3})


@pytest.mark.parametrize(
    ("text", "says", "remedy"),
    [
        ("x ^ 2", "^ is not allowed", "write ** for a power"),
        ("x = 5", "", "write == to compare"),
        ("1 if x = 'a && b' else 2", "", "write == to compare"),
        ("x > 1 && x < 3", "", "write and"),
        ("x > 1 || x < 3", "", "write or"),
        ("x[0]", "x[0] is not allowed", "use numbers"),
        ("1 / 0", "1 / 0 has no value: division by zero", "divide by another number"),
        ("sum(x) / (2 - 2) + 1", "division by zero", "divide by another number"),
        ("x % 0", "x % 0 has no value: division by zero", "divide by another number"),
        ("'a' + 'b'", "only numbers", "texts are written side by side"),
        ("9 ** 9 ** 9", "has no value", "use smaller numbers"),
    ],
)
def test_a_refused_expression_names_the_remedy(text: str, says: str, remedy: str) -> None:
    with pytest.raises(ExpressionProblem) as caught:
        parse_expression(text)
    assert says in str(caught.value) and remedy in caught.value.hint


def test_a_name_that_no_expression_can_hold_is_not_suggested(tmp_path: Path) -> None:
    book = make_computed_workbook(("x", "session", "sum(give1)"))
    text = "Again? {{ give1 }}"
    book[TASKS] += [
        make_task_row("g", "private_question", 5, "How much?", "give 1", var_type="integer"),
        make_task_row("h", "private_question", 6, text, "again"),
    ]
    found = find_mistakes(book, tmp_path)
    assert len(found) == 2 and not any("give 1" in problem for problem in found), found


def test_a_long_circle_is_named() -> None:
    items = [
        Computed(name=f"c{k}", scope="session", expression=f"c{(k + 1) % 3000}")
        for k in range(3000)
    ]
    with pytest.raises(ExpressionProblem, match=r"circle: c\d+ → c\d+"):
        in_order(items)
    with pytest.raises(ExpressionProblem, match=r"circle: (a → b → a|b → a → b)"):
        in_order(
            [
                Computed(name="a", scope="session", expression="b"),
                Computed(name="b", scope="session", expression="a"),
            ]
        )


class Asked(Counter[str]):
    """Answers of many participants that count how often each is looked up."""

    def __call__(self, name: str, who: str | None) -> Any:
        self[str(who)] += 1
        return int(str(who))


NESTED = "sum(sum(give)) + mean(others(sum(others(give)))) + max(others(give)) + give"


@pytest.mark.parametrize("text", ["sum(sum(give))", "sum(others(give))", NESTED])
def test_the_work_of_an_expression_grows_with_the_people_and_no_faster(text: str) -> None:
    people = [str(n) for n in range(400)]
    asked = Asked()
    scene = EvaluationContext(people, frozenset({"give"}), frozenset(), {}, asked)
    values = evaluate_for(text, scene, people)
    assert all(isinstance(value, (int, float)) for value in values)
    assert max(asked.values()) <= 2 * text.count("give") + 2
    total = sum(range(400))
    if text == "sum(sum(give))":
        assert set(values) == {400 * total}


class Coins(int):
    """A number that counts how often it is added to others."""

    added = 0

    def __radd__(self, other: int) -> int:
        type(self).added += 1
        return int(self) + other


@pytest.mark.parametrize("text", ["sum(x) / 2 + sum(x) - sum(x)", "sum(others(x)) + x"])
def test_a_sum_is_computed_once(text: str) -> None:
    people = [str(n) for n in range(300)]
    scene = EvaluationContext(
        people, frozenset({"x"}), frozenset(), {}, lambda _name, who: Coins(who or 0)
    )
    Coins.added = 0
    assert len(set(evaluate_for(text, scene, people))) == 1
    assert Coins.added <= 4 * len(people)


numbers = st.one_of(
    st.integers(-(10**14), 10**14),  # so that the sum of all is not too large
    st.floats(-1e14, 1e14, allow_nan=False),
    st.booleans(),
)


@given(st.lists(numbers, min_size=1, max_size=8), st.sampled_from(["sum", "mean", "min", "max"]))
def test_others_are_combined_as_if_each_were_looked_up(values: list[Any], name: str) -> None:
    people = [str(n) for n in range(len(values))]
    scene = EvaluationContext(
        people, frozenset({"x"}), frozenset(), {}, lambda _name, who: values[int(who or 0)]
    )
    plain = {
        "sum": lambda v: math.fsum(v) if any(isinstance(x, float) for x in v) else sum(v),
        "mean": lambda v: math.fsum(v) / len(v),
        "min": min,
        "max": max,
    }[name]
    for n, person in enumerate(people):
        rest = values[:n] + values[n + 1 :]
        found = evaluate_expression(f"{name}(others(x))", scene, person)
        if rest or name == "sum":
            expected = plain(rest)
            assert found == expected and (
                isinstance(expected, bool) or type(found) is type(expected)
            )
        else:
            assert isinstance(found, Missing)


def test_a_participant_without_a_value_makes_it_missing_for_the_others() -> None:
    given = {"a": 4, "b": Missing("invalid"), "c": 10}
    scene = EvaluationContext(
        [*given], frozenset({"x"}), frozenset(), {}, lambda _n, who: given[who or ""]
    )
    assert evaluate_expression("sum(others(x))", scene, "b") == 14
    others = evaluate_expression("sum(others(x))", scene, "a")
    assert isinstance(others, Missing) and others.detail == "x of b: invalid"


def test_the_design_and_the_profiles_may_be_used(tmp_path: Path) -> None:
    book = make_computed_workbook(
        ("buys", "participant", "role == 'Buyer'"),
        ("buyers", "session", "count(role == 'Buyer')"),
        ("calm", "session", "treatment == 'calm'"),
        ("second", "session", "session == 2"),
        ("people", "session", "members"),
        ("older", "participant", "age - mean(age)"),
        ("lives", "participant", "town"),
        ("weighted", "participant", "offer * age if role == 'Buyer' else 0"),
        ("unknown", "participant", "income + 1"),
        ("anybody", "session", "sum(income)"),
    )
    for row, extra in zip(book["agent_profiles"], ["income", "What?", *[None] * 8], strict=True):
        row.append(extra)
    run = run_workbook(book, tmp_path)
    seats = {r["participant_id"]: r for r in run.table("assignment").to_dicts()}
    for row in read_rows(run):
        seat = seats[row["ID"]]
        buyer = seat["role"] == "Buyer"
        assert row["buys"] == str(int(buyer)) and row["buyers"] == "2" and row["people"] == "4"
        assert row["calm"] == str(int(seat["treatment"] == "calm"))
        assert row["second"] == str(int(seat["session"] == "2"))
        own = [int(p[1:]) for p, s in seats.items() if s["session"] == seat["session"]]
        assert float(row["older"]) == pytest.approx(int(row["ID"][1:]) - sum(own) / 4)
        assert row["lives"] == f"Town {row['ID'][1:]}"
        assert row["weighted"] == str(5 * (20 + int(row["ID"][1:])) if buyer else 0)
        assert row["unknown"] == row["anybody"] == "NA"


def test_a_share_that_is_not_from_0_to_1_is_missing_and_logged(tmp_path: Path) -> None:
    book = make_computed_workbook(
        ("part", "participant", "offer / 4"),
        ("sum", "session", "0.1 + 0.2 + 0.7 + 0 * sum(offer)"),
        ("twice", "participant", "part * 2"),
    )
    for row in book["computed"]:
        row.append({"name": "kind", "part": "share", "sum": "share"}.get(row[0]))
    run = run_workbook(book, tmp_path, make_provider(number=5), limit=1)
    for row in read_rows(run):
        assert row["part"] == row["twice"] == "NA" and float(row["sum"]) == pytest.approx(1)
    log = (run.path / "log.jsonl").read_text()
    assert log.count("computed share part is not from 0 to 1 (1.25, 1.25, 1.25, 1.25)") == 1
    assert "computed share sum" not in log
    assert not any("part" in finding.key for finding in run.findings)


def test_the_workbooks_own_names_go_before_those_of_the_design(tmp_path: Path) -> None:
    book = make_computed_workbook(("size", "session", "members"), ("years", "participant", "age"))
    book["constants"].append(["members", "[7]"])
    book["computed"].append(["age", "participant", "offer"])
    run = run_workbook(book, tmp_path)
    assert {(row["size"], row["years"]) for row in read_rows(run)} == {("7", "5")}


@pytest.mark.parametrize(
    ("expression", "says"),
    [("age", "age differs between"), ("role", "role differs between"), ("agee", "mean age?")],
)
def test_values_that_differ_between_participants_are_no_session_values(
    tmp_path: Path, expression: str, says: str
) -> None:
    found = find_mistakes(make_computed_workbook(("x", "session", expression)), tmp_path)
    assert len(found) == 1 and says in found[0], found


def count_calls_of_check(tasks: int, folder: Path) -> int:
    """Count the Python function calls of a check with this number of tasks and computed values."""
    book = make_workbook()
    for k in range(tasks):
        text = f"You gave {{{{ c{k - 1} }}}}. And now?" if k else "And now?"
        number = make_task_row(
            f"x{k}", "private_question", 10 + k, text, f"v{k}", var_type="integer"
        )
        book[TASKS].append(number)
        book["computed"].append([f"c{k}", "participant", f"c{k - 1} + v{k}" if k else "v0"])
    workbook = read_config(book, folder).workbook
    counted = Counter[str]()

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        counted[event] += 1

    sys.setprofile(count)
    try:
        assert design_problems(workbook) == []
    finally:
        sys.setprofile(None)
    return counted["call"]


def test_a_check_takes_time_in_proportion_to_the_tasks(tmp_path: Path) -> None:
    few, many = (count_calls_of_check(n, tmp_path) for n in (50, 200))
    assert many < 5 * few


@pytest.mark.parametrize(
    ("expression", "options", "is_named"),
    [
        ("sum(offer) / count(offer)", "(0, 20)", True),
        ("count(others(offer))", "(0, 20)", True),
        ("count(offer)", "A number, please", True),
        ("count(offer)", "(1, 20)", False),
        ("count(offer > 5)", "(0, 20)", False),
        ("count(offer == offer)", "(0, 20)", False),
        ("count(trade)", "(0, 20)", False),
    ],
)
def test_check_names_a_count_that_leaves_out_answers_of_0(
    expression: str, options: str, is_named: bool, tmp_path: Path
) -> None:
    book = with_cell(make_workbook(), "computed!C3", expression)
    book = with_cell(book, "interview_prompts!I4", options)
    config = read_config(book, tmp_path)
    notes = [note for note in config_advisories(config) if "is not 0" in note]
    assert [note.startswith("computed!C3: count(offer)") for note in notes] == [True] * is_named
    # The plan of a run is the same as before, so that earlier runs can be resumed.
    assert "is not 0" not in config.model_dump_json()


def test_a_count_of_values_equal_to_themselves_counts_answers_of_0() -> None:
    answers = {"a": {"x": 0}, "b": {"x": 3}}
    context = EvaluationContext(
        ("a", "b"), frozenset({"x"}), frozenset(), {}, lambda name, who: answers[who or ""][name]
    )
    assert [evaluate_for(text, context, [None]) for text in ("count(x)", "count(x == x)")] == [
        [1],
        [2],
    ]
