"""Output of a run before and after: notes, the estimate, findings, `show`, and repeating it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.settings import claims as claims_of_run
from folkmoot.engine.study.strict_answers import CLOSED_ANSWERS_KEY
from folkmoot.errors import InputError
from folkmoot.measures.inference.claims import without_result
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.html import write_report
from folkmoot.storage.findings import BarChart, Finding, IntervalChart, LineChart
from folkmoot.studies.workbook import findings
from folkmoot.studies.workbook.config import Measure, WorkbookConfig, declare_claims
from folkmoot.studies.workbook.findings import (
    PERSON,
    by_round,
    by_treatment,
    distribution_finding,
    option_shares,
)
from folkmoot.studies.workbook.preparation import config_advisories
from folkmoot.studies.workbook.tables import strict_tables
from tests.shown import render_run_text
from tests.studies.workbook.workbook_builder import (
    make_provider,
    make_script,
    make_task_row,
    make_workbook,
    read_config,
    save_workbook,
    with_cell,
    with_setting,
)

TASKS = "interview_prompts"


def make_workbook_with_rounds() -> Any:
    """Make a workbook with three rounds of one variable in ten sessions under two treatments."""
    book = with_setting(make_workbook(), "num_sessions", 10)
    head = book["agent_profiles"][:2]
    book["agent_profiles"] = [*head, *([f"p{i}", i, "x"] for i in range(40))]
    for n in (1, 2, 3):
        book[TASKS].append(
            make_task_row(
                f"g{n}",
                "private_question",
                5 + n,
                "Give? {response_options}",
                f"give_{n}",
                var_type="integer",
                response_options="(0, 10)",
                validate_response=1,
            )
        )
        book["computed"].append([f"kept_{n}", "participant", f"10 - give_{n}"])
    return book


def answer_generously(request: Any, address: str) -> str:
    """Give 8 in calm markets and 2 in others, one more per round, every fourth time one less."""
    found = re.search(r"/g(\d)/p(\d+)/", address)
    if found is None:
        return make_script()(request, address)
    calm = "The market is calm" in request.messages[0].content
    return str((6 if calm else 2) + int(found[1]) - int(int(found[2]) % 4 == 0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("findings")
    path = save_workbook(make_workbook_with_rounds(), folder / "book.xlsx")
    return folkmoot.run(path, out=folder / "out", provider=ScriptedProvider(answer_generously))


@pytest.mark.parametrize(("is_broken", "share"), [(False, "None of 4"), (True, "50 % of 4")])
def test_json_answers_of_a_workbook_are_checked_for_their_form(
    tmp_path: Path, is_broken: bool, share: str
) -> None:
    def answer(request: Any, address: str) -> str:
        # A Summarizer speaks plain text in a task with JSON answers.
        if is_broken and "/s/p" in address and int(address.split("/s/p")[1][0]) % 2:
            return "{broken"
        return make_script()(request, address)

    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(answer))
    checks = index_findings(run)["respondent_checks"]
    (row,) = [row for row in checks.grid.rows if "Malformed structured answers" in map(str, row)]
    assert share in str(row), row


def index_findings(run: Any) -> dict[str, Finding]:
    return {f.key: f for f in run.findings}


def test_rounds_are_recognised_and_drawn_as_lines(run: Any) -> None:
    found = index_findings(run)["rounds_give"]
    assert isinstance(found.chart, LineChart)
    points = {(s, x): y for s, x, y in found.chart.items}
    assert points["calm", 3] - points["calm", 1] == pytest.approx(2)
    assert points["calm", 1] - points["NONE", 1] == pytest.approx(4, abs=0.5)


def test_an_unclear_answer_removes_only_the_values_computed_from_it(tmp_path: Path) -> None:
    book = make_workbook_with_rounds()
    book[TASKS].append(
        make_task_row(
            "y",
            "private_question",
            9,
            "Sure? {response_options}",
            "yes_no",
            var_type="category",
            response_options='["yes", "no"]',
        )
    )
    book["computed"] += [
        ["agreed", "participant", '1 if yes_no == "yes" else 0'],
        ["twice", "participant", "2 * agreed"],
    ]

    def answer(request: Any, address: str) -> str:
        return "no, I do not" if "/y/" in address else answer_generously(request, address)

    path = save_workbook(book, tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(answer))
    answers = run.folder.read_table("answers")
    unclear = answers.filter(pl.col("address").str.contains("/y/"))
    computed = strict_tables(run.folder, unclear)["computed"].collect()
    before = run.table("computed")
    lost = {*before["name"]} - {*computed["name"]}
    assert lost == {"agreed", "twice"}
    assert computed.filter(name="kept_1").equals(before.filter(name="kept_1"))
    says = index_findings(run)["treatment_kept"].says
    assert "conclusion differs" not in says


def declare_labels(book: Any, folder: Path) -> set[str]:
    """Return the labels of the measures that a workbook compares."""
    return {claim.label for claim in declare_claims(read_config(book, folder))}


@pytest.mark.parametrize(
    ("options", "measures", "labels"),
    [
        (
            {"g2": "(0, 100)"},
            {},
            {"give_1, give_3 per participant and round", "give_2 per participant"},
        ),
        (
            {"g2": "(0, 100)"},
            {"g1": "give", "g2": "give", "g3": "give"},
            {"give per participant and round"},
        ),
        ({"g2": "(0,10)"}, {}, {"give per participant and round"}),
    ],
)
def test_questions_with_other_options_are_no_rounds_of_a_measure(
    options: dict[str, str], measures: dict[str, str], labels: set[str], tmp_path: Path
) -> None:
    book = make_workbook_with_rounds()
    head, *rows = book[TASKS]
    at = head.index("response_options")
    for row in rows:
        row[at] = options.get(row[0], row[at])
        row.append(measures.get(row[0]))
    book[TASKS] = [[*head, "measure"], *rows]
    found = {
        label.replace(" 1", "_1").replace(" 2", "_2").replace(" 3", "_3")
        for label in declare_labels(book, tmp_path)
        if label.startswith("give")
    }
    assert found == labels


def test_name_without_a_number_is_no_round(tmp_path: Path) -> None:
    book = make_workbook_with_rounds()
    book["computed"].append(["kept", "participant", "10 - give_1"])
    path = save_workbook(book, tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(answer_generously))
    found = index_findings(run)
    rounds = [finding for key, finding in found.items() if key.startswith("rounds_kept")]
    assert [{row[1] for row in finding.grid.rows} for finding in rounds] == [{1, 2, 3}]
    assert "treatment_kept" in found
    labels = declare_labels(book, tmp_path)
    assert {"kept per participant, in units of the workbook"} < labels


def test_missing_rounds_do_not_move_the_means_of_treatments(tmp_path: Path) -> None:
    def answer(request: Any, address: str) -> str:
        found = re.search(r"/g(\d)/p(\d+)/", address)
        if found is None:
            return make_script()(request, address)
        calm = "The market is calm" in request.messages[0].content
        number, person = int(found[1]), int(found[2])
        is_missing = calm and number == 1 and person % 2
        return "declined" if is_missing else str(4 * (number - 1) + person % 3 % 2)

    path = save_workbook(make_workbook_with_rounds(), tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(answer))
    rounds = index_findings(run)["rounds_give"].grid
    by_treatment_rows = index_findings(run)["treatment_give"].grid
    means: dict[object, list[float]] = {}
    for row in rounds.rows:
        means.setdefault(row[0], []).append(float(str(row[2])))
    for row in by_treatment_rows.rows:
        cells = dict(zip(by_treatment_rows.columns, row, strict=True))
        # The mean of a treatment is about that of its rounds.
        expected = sum(means[cells["treatment"]]) / 3
        assert cells["mean"] == pytest.approx(expected, abs=0.1), cells
    assert abs(sum(means["calm"]) - sum(means["NONE"])) / 3 < 0.5
    at = by_treatment_rows.columns.index("minus_first")
    (difference,) = (float(str(row[at])) for row in by_treatment_rows.rows if row[at] is not None)
    assert abs(difference) < 0.5
    tested = index_findings(run)["claims_tested"].grid
    at = tested.columns.index("missing_rounds_second")
    declined = run.table("responses").filter(missing="declined").height
    (counts,) = (row[at - 1 : at + 1] for row in tested.rows if str(row[0]).startswith("Give"))
    assert declined > 5 and sorted(map(int, counts)) == [0, declined]
    methods = write_report(run.folder).read_text("utf-8")
    assert f"none excluded, {declined} values of single rounds missing" in methods


def test_table_of_treatments_says_that_differences_leave_out_a_round(
    run: Any, tmp_path: Path
) -> None:
    def answer(request: Any, address: str) -> str:
        found = re.search(r"/g3/p", address)
        calm = "The market is calm" in request.messages[0].content
        return "declined" if found and calm else answer_generously(request, address)

    path = save_workbook(make_workbook_with_rounds(), tmp_path / "book.xlsx")
    partly = folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(answer))
    assert findings.ROUNDS_OF_BOTH in index_findings(partly)["treatment_give"].notes
    assert findings.ROUNDS_OF_BOTH not in index_findings(run)["treatment_give"].notes


def test_the_course_of_a_treatment_with_values_in_one_round_is_told_once() -> None:
    measure = Measure("give", ((1, "give_1"), (2, "give_2")), computed=False)
    cells = [
        ("s1", "calm", "give_2", 5.0),
        ("s2", "NONE", "give_1", 3.0),
        ("s2", "NONE", "give_2", 4.0),
    ]
    values = pl.DataFrame(cells, ["session", "treatment", "name", "number"], orient="row")
    sentence = by_round(measure, values, ["calm", "NONE"]).says
    assert sentence.endswith("calm: 5 in round 2; NONE: 3 in round 1, 4 in round 2.")


def test_figures_in_sentences_are_written_as_in_tables() -> None:
    """A mean in the middle is rounded as the table rounds it, and thousands have no exponent."""
    measure = Measure("earned", ((1, "earned_1"), (2, "earned_2")), computed=True)
    amounts = {"earned_1": (5.12, 5.13), "earned_2": (1_234.0, 1_235.0)}
    cells = [
        (session, "calm", name, number)
        for name, numbers in amounts.items()
        for session, number in zip(("s1", "s2"), numbers, strict=True)
    ]
    values = pl.DataFrame(cells, ["session", "treatment", "name", "number"], orient="row")
    sentence = by_round(measure, values, ["calm"]).says
    assert sentence.endswith("under calm: 5.13 in round 1, 1,235 in round 2.")
    says = distribution_finding(measure, values, ["calm"]).says
    assert "from 5.12 to 1,235" in says and "at or below 620" in says


def test_the_interval_of_a_mean_share_stays_between_0_and_1() -> None:
    measure = Measure("kept", ((0, "kept"),), computed=True, is_share=True)
    cells = [
        ("e", f"s{place}", "calm", f"p{place}", "kept", number)
        for place, number in enumerate((0.1, 0.9, 0.2, 0.05, 0.5))
    ]
    columns = [*PERSON, "name", "number"]
    values = pl.DataFrame(cells, columns, orient="row")
    found = by_treatment(measure, values, ["calm"], ()).grid
    row = dict(zip(found.columns, found.rows[0], strict=True))
    low, mean, high = (row[f"{name}_share"] for name in ("low", "mean", "high"))
    assert 0 < low < mean < high < 1 and mean == pytest.approx(0.35)


def test_treatments_are_compared_by_session(run: Any) -> None:
    found = index_findings(run)["treatment_give"]
    assert isinstance(found.chart, IntervalChart) and not found.headline
    assert index_findings(run)[
        "treatment_kept"
    ].headline  # what is computed is what the study is about
    assert [label for label, *_ in found.chart.items] == ["calm", "NONE"]
    grid = [dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows]
    assert {row["sessions"] for row in grid} == {5}
    means = {row["treatment"]: row["mean"] for row in grid}
    assert means["calm"] - means["NONE"] == pytest.approx(4, abs=0.5)
    assert found.independent == "Independent unit: session (10)."
    # A contrast of an uncomputed variable is secondary: only the table contains its p-value.
    assert re.search(r"without a conclusion: NONE − calm −4\.\d\d \(−.* to −[^,]*\)\.$", found.says)
    assert grid[1]["adjusted_p"] < 0.001
    kept = index_findings(run)["treatment_kept"].says
    assert re.search(r"NONE − calm \+4\.\d\d \(.*p < \.001\): a difference is shown", kept)


@pytest.mark.parametrize(
    ("var_type", "options", "is_compared"),
    [
        ("integer", None, True),
        (None, "(0, {{ goods }})", True),
        (None, "{{ goods }}", True),
        (None, "", False),
        (None, '["yes", "no"]', False),
        ("category", "(0, 5)", False),
    ],
)
def test_only_questions_for_a_number_are_compared(
    tmp_path: Path, var_type: str | None, options: str | None, is_compared: bool
) -> None:
    config = read_config(make_workbook(), tmp_path)
    asked = config.workbook.tasks[3]
    task = asked.model_copy(update={"var_type": var_type, "response_options": options})
    workbook = config.workbook.model_copy(update={"tasks": (task,), "computed": ()})
    claims = declare_claims(config.model_copy(update={"workbook": workbook}))
    assert bool(claims) == is_compared


def test_claims_without_data_are_counted_as_in_the_list_of_registered_claims(run: Any) -> None:
    claim = declare_claims(run.folder.read_settings(WorkbookConfig))[0]
    primary, lost = claim, replace(claim, family="secondary")
    results = [without_result(primary, "no data"), without_result(lost, "no data")]
    found = claims_of_run.tested_finding(results)
    assert "2 claims (1 primary, 1 secondary), of which 0 could be tested" in found.says
    assert len(found.grid.rows) == 1
    assert "Secondary and exploratory claims without data are not listed." in found.grid.caption


def test_what_people_of_few_sessions_do_is_an_illustration(tmp_path: Path) -> None:
    found = index_findings(
        folkmoot.run(
            save_workbook(make_workbook(), tmp_path / "b.xlsx"),
            out=tmp_path / "o",
            provider=make_provider(),
        )
    )
    about_people = [f for key, f in found.items() if key.startswith(("treatment_", "answers_"))]
    assert about_people
    for finding in about_people:
        assert finding.says.startswith("An illustration, not evidence: 2 sessions.")
        assert "interval" not in finding.says or "no interval" in finding.says


def test_participants_and_sessions_of_several_experiments_are_counted_once(tmp_path: Path) -> None:
    book = make_workbook()
    book["constants"] = [["name", "value"], ["goods", '["apples", "pears"]']]
    path = save_workbook(book, tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=make_provider())
    found = index_findings(run)
    assert "4 sessions of 2 experiments with 8 participants were played" in found["play"].says
    grid = found["play"].grid
    assert [row[grid.columns.index("participants")] for row in grid.rows] == [4, 4]
    # The replies of a participant are alike in all experiments.
    checks = str(found["respondent_checks"].grid.rows)
    assert "2 sessions" in checks and "4 sessions" not in checks


def test_computed_values_have_findings_of_their_own(run: Any) -> None:
    found = index_findings(run)
    assert isinstance(found["rounds_kept"].chart, LineChart)
    assert "treatment_share" in found


def test_answers_are_counted_in_shares(run: Any) -> None:
    chart = index_findings(run)["answers_trade"].chart
    assert isinstance(chart, BarChart)
    assert list(dict.fromkeys(o for o, _, _ in chart.items)) == ["yes", "no", "I don’t know"]
    for arm in ("calm", "NONE"):
        assert sum(v for _, a, v in chart.items if a == arm) == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ["no", "yes", "yes"],
            'Observed in this run, not tested: most often "yes" (67 % of 3 answers).',
        ),
        (
            ["no", "yes", "yes", "no"],
            'Observed in this run, not tested: most often "yes" and "no" (50 % of 4 answers each).',
        ),
    ],
)
def test_answers_given_equally_often_are_all_named(given: list[str], says: str) -> None:
    rows = [
        {"var_name": "fair", "options": "yes; no", "status": "valid", "number": None}
        | {"treatment": "calm", "session": n, "value": answer}
        for n, answer in enumerate(given)
    ]
    (found,) = option_shares(pl.DataFrame(rows), ["calm"], {"fair": ["yes", "no"]})
    assert found.says.endswith(says)


def test_a_treatment_without_answers_to_a_question_has_no_shares_of_answers() -> None:
    row = {"var_name": "fair", "options": "yes; no", "status": "valid", "number": None}
    chosen = pl.DataFrame([row | {"treatment": "calm", "session": "s1", "value": "yes"}])
    values = pl.DataFrame({"session": ["s1"], "treatment": ["calm"], "name": ["give"],
                           "number": [3.0]})  # fmt: skip
    measure = Measure("give", ((1, "give"),), computed=False)
    for finding in (
        *option_shares(chosen, ["calm", "NONE"], {"fair": ["yes", "no"]}),
        distribution_finding(measure, values, ["calm", "NONE"]),
    ):
        assert set(finding.grid.cells_of("treatment")) == {"calm"}


def test_figures_beyond_those_shown_are_counted(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert index_findings(run)["play"].notes == ()
    monkeypatch.setattr(findings, "MOST_MEASURES", 1)
    notes = index_findings(run)["play"].notes
    assert any("shows the first 1 of" in note and "figures" in note for note in notes)


def test_the_first_option_is_caught_when_it_is_always_chosen(run: Any) -> None:
    grid = index_findings(run)["respondent_checks"].grid
    rows = {row[0]: dict(zip(grid.columns, row, strict=True)) for row in grid.rows}
    checked = rows["Position bias"]  # the scripted player always takes the first of three
    assert checked["verdict"] == "failed" and checked["value"] == pytest.approx(1)


def test_invalid_answers_are_headlines(tmp_path: Path) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    run = folkmoot.run(path, out=tmp_path / "out", provider=make_provider(number="lots"))
    found = index_findings(run)["answer_quality"]
    assert found.headline and "8 did not fit their question" in found.says
    # The answers are kept, so no sentence of the report calls them missing.
    assert "0 are missing" in found.says
    page = write_report(run.folder).read_text("utf-8")
    assert " of answers have no valid value." in page
    assert not re.search(r"answers are missing|remained missing|issing: unparsed", page)
    rows = {row[0]: row[-1] for row in index_findings(run)["respondent_checks"].grid.rows}
    assert "were outside the allowed answers" in rows["Answers off the list"]


def test_open_answers_are_not_counted_as_closed(run: Any) -> None:
    # An open question has no list of options and no type.
    is_closed = pl.col("options").is_not_null() | pl.col("var_type").is_in(["integer", "float"])
    responses = run.table("responses").filter(pl.col("role").is_in(["Buyer", "Seller"]))
    closed, total = responses.filter(is_closed).height, responses.height
    found = index_findings(run)[CLOSED_ANSWERS_KEY]
    assert 0 < closed < total
    assert found.says.startswith(f"{closed} of {closed} closed answers (100 %)")
    answers = found.grid.columns.index("answers")
    assert sum(row[answers] for row in found.grid.rows) == closed


def test_constants_are_compared(tmp_path: Path) -> None:
    path = save_workbook(
        with_cell(make_workbook(), "constants!B2", '["apples", "pears"]'), tmp_path / "book.xlsx"
    )

    def answer(request: Any, address: str) -> str:
        if "/o/" in address:
            return "3" if "market for apples" in request.messages[0].content else "9"
        return make_script()(request, address)

    run = folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(answer))
    says = index_findings(run)["constants_offer"].says
    assert (
        "means of offer per participant go from 3 with goods = apples to 9 with goods = pears"
        in says
    )


def test_combinations_of_constants_seat_the_same_sessions(tmp_path: Path) -> None:
    """Three combinations of six sessions are six units, compared within participants."""
    book = with_cell(make_workbook(), "constants!B2", '["apples", "pears", "plums"]')
    book = with_setting(book, "num_sessions", 6)
    book["agent_profiles"] = [*book["agent_profiles"][:2], *([f"p{i}", i, "x"] for i in range(24))]

    def answer(request: Any, address: str) -> str:
        if "/o/" not in address:
            return make_script()(request, address)
        who = int(re.search(r"/p(\d+)/", address)[1])  # type: ignore[index]
        more = 1 + who % 2 if "market for pears" in request.messages[0].content else 0
        return str(who % 8 + more)

    run = folkmoot.run(
        save_workbook(book, tmp_path / "b.xlsx"),
        out=tmp_path / "o",
        provider=ScriptedProvider(answer),
    )
    found = index_findings(run)["constants_offer"]
    assert found.independent == "Independent unit: session (6)."
    rows = [dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows]
    assert [r["minus_first"] for r in rows] == [None, pytest.approx(1.5), 0]
    assert rows[1]["p"] < rows[1]["adjusted_p"] < 0.05 < rows[2]["p"]
    assert "goods = pears − goods = apples +1.50 (" in found.says
    assert index_findings(run)["treatment_offer"].units == 6


def test_show_lists_and_shows(run: Any) -> None:
    participant = run.table("assignment")["participant_id"][0]
    assert "market/1" in render_run_text(run.folder) and participant in render_run_text(run.folder)
    name = run.table("assignment")["name"][0]
    assert f"You are [V]{name}[/V]" in render_run_text(run.folder, participant, prompts=True)
    assert "What is a fair price?" in render_run_text(run.folder, "market/2")
    for unknown in ("nobody", "market/99"):
        with pytest.raises(InputError, match="is not in this run"):
            render_run_text(run.folder, unknown)


def test_a_conversation_that_will_be_cut_is_reported_beforehand(tmp_path: Path) -> None:
    config = read_config(with_setting(make_workbook(), "max_conversation_length", 6), tmp_path)
    assert any(
        "about 15 messages" in n and "will end early" in n for n in config_advisories(config)
    )


def test_a_run_folder_holds_all_that_its_repetition_needs(run: Any, tmp_path: Path) -> None:
    again = folkmoot.run(
        run.path / "study.yaml",
        out=tmp_path / "again",
        provider=ScriptedProvider(answer_generously),
    )
    for name in ("market.csv", "market.json"):
        assert (again.path / name).read_bytes() == (run.path / name).read_bytes()


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = save_workbook(make_workbook(), tmp_path / "book.xlsx")
    whole = folkmoot.run(path, out=tmp_path / "whole", provider=make_provider())

    def dies(request: Any, address: str) -> str:
        if "market.2/m/" in address:
            raise RuntimeError("power cut")
        return make_script()(request, address)

    with pytest.raises(RuntimeError):
        folkmoot.run(path, out=tmp_path / "out", provider=ScriptedProvider(dies))
    provider = make_provider()
    resumed = folkmoot.run(path, out=tmp_path / "out", provider=provider)
    assert 0 < provider.calls < 30
    for name in ("market.csv", "market.json"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_every_column_is_in_the_codebook(run: Any) -> None:
    blank = [
        f"{table}.{name}"
        for table, entry in run.folder.codebook().items()
        for name, column in entry["columns"].items()
        if not column["meaning"]
    ]
    assert blank == []
