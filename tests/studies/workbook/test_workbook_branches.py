"""Prompts that are empty for some participants, and what `check` reports before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.engine.run.grid import GRID_FILE
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.html import HTML, PDF
from folkmoot.storage import amendments, run_folder
from folkmoot.studies.workbook.answers import ListedOptions, read_options
from folkmoot.studies.workbook.language.placeholders import empty_branches
from folkmoot.studies.workbook.literals import NotALiteral
from folkmoot.studies.workbook.preparation import config_advisories
from tests.studies.workbook.test_workbook_play import (
    TASKS,
    read_rows,
    read_sessions,
    run_workbook,
    select_requests,
)
from tests.studies.workbook.workbook_builder import (
    find_mistakes,
    make_provider,
    make_task_row,
    make_workbook,
    read_config,
    with_cell,
    with_setting,
)

WHY = "{% if offer > 6 %}Why so much?{% endif %}"


def answer_with_offers(request: ModelRequest, address: str) -> str:
    """Answer 9 as a buyer and 3 as a seller, and other questions in words."""
    if "/o/" in address:
        return "9" if "You buy" in request.messages[0].content else "3"
    return "0.5" if request.schema else "yes" if "/m/" in address else "some words"


@pytest.mark.parametrize("kind", ["private_question", "public_question", "discussion"])
def test_empty_prompts_are_not_asked(tmp_path: Path, kind: str) -> None:
    book = make_workbook()
    book[TASKS].append(make_task_row("why", kind, 3, WHY, "why"))
    book["computed"].append(["words", "session", "count(why != '')"])
    provider = ScriptedProvider(answer_with_offers, keep_requests=True)
    run = run_workbook(book, tmp_path, provider)
    asked = select_requests(provider, "/why/")
    assert len(asked) == 4
    assert all("Why so much?" in str(r.messages) for r in asked)
    found = run.table("responses").filter(var_name="why")
    by_role = {row["role"]: (row["value"], row["missing"]) for row in found.to_dicts()}
    assert by_role == {"Buyer": ("some words", None), "Seller": (None, "empty_prompt")}
    for row in read_rows(run):
        assert row["why"] == ("some words" if row["role"] == "Buyer" else "")
        assert row["missing"] == "" and row["words"] == "2"
    assert not run.table("utterances").filter(text="").height
    quality = next(f for f in run.findings if f.key == "answer_quality")
    assert "0 are missing" in quality.says


def test_the_transcript_marks_a_question_of_which_others_may_not_see_the_words(
    tmp_path: Path,
) -> None:
    book = make_workbook()
    book[TASKS].append(make_task_row("why", "private_question", 3, WHY, "why"))
    provider = ScriptedProvider(answer_with_offers, keep_requests=True)
    run = run_workbook(book, tmp_path, provider)
    said = run.table("utterances").filter(task_id="why").drop_nulls("turn").sort("turn")
    for _, rows in said.group_by("session", maintain_order=True):
        assert rows["text"].to_list() == ["…", "some words", "some words"]
        assert rows["speaker_id"][0] == "Facilitator"
    # Sellers are not asked, and hear the answers after the question.
    (session, *_) = read_sessions(run)
    for person in session["participants"]:
        heard = [message["content"] for message in person["message_history"]]
        assert heard.count("…") == (person["role"] == "Seller")
    sources = run.table("provenance")
    assert not sources.filter(kind="unattributed").height


def test_nor_is_that_of_a_special_role(tmp_path: Path) -> None:
    text = '{"Buyer": "And?", "Summarizer": "{% if total > 1000 %}Sum up.{% endif %}"}'
    provider = ScriptedProvider(answer_with_offers, keep_requests=True)
    book = make_workbook()
    book[TASKS].append(make_task_row("z", "private_question", 9, text, "z"))
    run = run_workbook(book, tmp_path, provider)
    assert len(select_requests(provider, "/z/")) == 4 and not select_requests(
        provider, "/z/Summarizer"
    )
    summaries = run.table("responses").filter(var_name="z", role="Summarizer")
    assert set(summaries["missing"]) == {"empty_prompt"}


def test_a_round_without_questions_passes(tmp_path: Path) -> None:
    book = make_workbook()
    book[TASKS].append(
        make_task_row("why", "discussion", 3, "{% if offer > 99 %}Why?{% endif %}", "why")
    )
    run = run_workbook(book, tmp_path, make_provider())
    assert all(session["ended"] == "completed" for session in read_sessions(run))
    assert set(run.table("responses").filter(var_name="why")["missing"]) == {"empty_prompt"}


@pytest.mark.parametrize(
    ("text", "branches"),
    [
        (WHY, ["else"]),
        ("Why?", []),
        ("{{ offer }}", []),
        ("{% if a %}x{% else %}y{% endif %}", []),
        ("{% if a %}x{% endif %}!", []),
        ("{% if a %}x{% elif b > 2 %} {% else %}y{% endif %}", ["if b > 2"]),
        ("{%- if a -%}{% if b %}x{% endif %}{%- else -%}y{%- endif -%}", ["if a, else"]),
        ("{% if a %}x{% endif %}{% if b %}y{% endif %}", ["else", "else"]),
        ("{% if a %}{response_options}{% endif %}", ["else"]),
        ("{# nothing #}{% if a %}{% endif %}", ["if a", "else"]),
    ],
)
def test_branches_without_words_are_found(text: str, branches: list[str]) -> None:
    assert empty_branches(text) == branches


def test_check_lists_such_branches_and_settings_without_effect(tmp_path: Path) -> None:
    book = make_workbook()
    book[TASKS].append(make_task_row("why", "discussion", 5, WHY, "why"))
    more = {"randomize_response_order": 1}
    words = make_task_row(
        "w", "private_question", 6, "Well?", "w", response_options="As you like", **more
    )
    numbers = make_task_row(
        "n", "private_question", 7, "Well?", "n", response_options="(0, 9)", **more
    )
    book[TASKS] += [words, numbers]
    book["constants"] += [["tone", '["kind", "stern", "dry"]'], ["one", "[1]"]]
    book["constants"].append(["rate", "[1, 2]"])
    book["computed"].append(["cost", "session", "rate * total"])
    found = config_advisories(read_config(book, tmp_path))
    said = "\n".join(found)
    assert f"{TASKS}!F7: the prompt is empty in 1 branch (else)" in said
    assert "why asks nothing" in said and "empty_prompt" in said
    for cell in ("J8", "J9"):
        assert f"{TASKS}!{cell}: there is no list of options" in said
    assert "constants!A3: no text uses the constant tone; it adds 4 experiments" in said
    assert "constants!A4: no text uses the constant one" in said
    assert "rate" not in said and "goods" not in said
    assert not [
        note
        for note in config_advisories(read_config(make_workbook(), tmp_path))
        if "list of options" in note
    ]


# --- names, spellings, options -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["plan", "Manifest", "PERSONAS", "codebook", "grid", "people"])
def test_an_experiment_may_not_take_the_name_of_a_file_of_the_run(
    tmp_path: Path, name: str
) -> None:
    found = find_mistakes(with_setting(make_workbook(), "experiment_id", name), tmp_path)
    assert len(found) == 1 and f"would write {name}.json" in found[0], found
    assert "experimental_setting!B2" in found[0]


def test_all_files_of_the_program_are_known() -> None:
    constants = {
        value
        for name, value in vars(run_folder).items()
        if name.isupper() and isinstance(value, str) and "." in value and " " not in value
    }
    written = {*constants, amendments.AMENDMENTS_FILE, GRID_FILE, HTML, PDF}
    assert written <= set(run_folder.COMMON_FILES)


def test_names_that_only_begin_alike_are_fine(tmp_path: Path) -> None:
    assert find_mistakes(with_setting(make_workbook(), "experiment_id", "plan_b"), tmp_path) == []
    book = with_cell(
        with_setting(make_workbook(), "experiment_id", "plan"),
        "constants!B2",
        '["apples", "pears"]',
    )
    assert find_mistakes(book, tmp_path) == []  # plan_1.json and plan_2.json


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("range(11)", [*range(11)]),
        (" range( 1 , 4 ) ", [1, 2, 3]),
        ("list(range(0, 101, 25))", [0, 25, 50, 75, 100]),
        ("range(-1, 2)", [-1, 0, 1]),
    ],
)
def test_a_range_of_python_is_a_list(cell: str, options: list[int]) -> None:
    assert read_options(cell) == ListedOptions(tuple(map(str, options)))
    assert read_options(f'{{"Buyer": {cell}}}') == {
        "Buyer": ListedOptions(tuple(map(str, options)))
    }


@pytest.mark.parametrize(
    "cell", ["range(10**9)", "range(1000000000)", "range()", "range(5, 1)", "range(0, 5, 0)"]
)
def test_other_ranges_are_refused_or_words(cell: str) -> None:
    try:
        read = read_options(cell)
    except NotALiteral:
        return
    assert not isinstance(read, ListedOptions)


def test_the_british_spelling_of_the_summarizer_is_read(tmp_path: Path) -> None:
    book = with_cell(make_workbook(), "agent_roles!A3", "Summariser")
    book[TASKS][5][5] = book[TASKS][5][5].replace("Summarizer", "summariser")
    run = run_workbook(book, tmp_path)
    summaries = run.table("responses").filter(role="Summarizer")
    assert summaries.height == 2 and summaries["missing"].null_count() == 2
    assert "Summariser" not in (run.path / "market.json").read_text()
    assert [s["special_roles"].keys() for s in read_sessions(run)] == [
        {"Facilitator", "Summarizer"}
    ] * 2
    book["agent_roles"].append(["Summarizer", "You too."])
    assert any("duplicate role Summarizer" in m for m in find_mistakes(book, tmp_path))


# --- answers -----------------------------------------------------------------------------------


def test_no_try_of_a_structured_answer_is_constrained_to_the_options(tmp_path: Path) -> None:
    said = '{"response": "I would rather not choose between them", "speculation_score": 5}'
    book = with_cell(
        with_cell(make_workbook(), f"{TASKS}!M5", 1), f"{TASKS}!M4", 1
    )  # format_response

    def refuses(request: ModelRequest, address: str) -> str:
        return said if request.schema else "words"

    provider = ScriptedProvider(refuses, keep_requests=True)
    run = run_workbook(book, tmp_path, provider)
    for name, task_id in (("trade", "m"), ("offer", "o")):
        found = run.table("responses").filter(var_name=name)
        assert set(found["status"]) == {"invalid"} and set(found["reasks"]) == {5}
        assert set(found["value"]) == {"I would rather not choose between them"}
        sent = [r.schema for r in select_requests(provider, f"/{task_id}/")]
        assert len(sent) == 48 and all(sent)
        assert not any(word in str(sent) for word in ("enum", "minimum': 0, 'maximum': 20"))


@pytest.mark.parametrize("formatted", [0, 1])
@pytest.mark.parametrize("way_out", ["declined", "none_of_these"])
def test_a_way_out_is_recorded_as_missing_with_its_reason(
    tmp_path: Path, way_out: str, formatted: int
) -> None:
    book = with_cell(make_workbook(), f"{TASKS}!M5", formatted)

    def answer(request: ModelRequest, address: str) -> str:
        if "/m/" in address:
            return f'{{"response": "{way_out}"}}' if request.schema else way_out
        return answer_with_offers(request, address)

    run = run_workbook(book, tmp_path, ScriptedProvider(answer))
    found = run.table("responses").filter(var_name="trade")
    assert set(found["missing"]) == {way_out} and set(found["reasks"]) == {0}
    assert {row["trade"] for row in read_rows(run)} == {"NA"}


def test_the_answers_table_shows_how_an_answer_was_read(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> str:
        if "/m/" in address:
            return "yes" if address.endswith(".r1") else "I would say no, or perhaps yes"
        return answer_with_offers(request, address)

    run = run_workbook(make_workbook(), tmp_path, ScriptedProvider(answer))
    rows_of = [r for r in run.table("answers").to_dicts() if "/m/" in r["address"]]
    assert {(r["said"], r["recorded"], r["how"], r["agrees"]) for r in rows_of} == {
        ("I would say no, or perhaps yes", "yes", "clarified", "several")
    }
    offered = [r for r in run.table("answers").to_dicts() if "/o/" in r["address"]]
    assert {(r["said"], r["recorded"], r["how"], r["agrees"]) for r in offered} == {
        ("9", "9", "exact", "same"),
        ("3", "3", "exact", "same"),
    }
    talk = [r for r in run.table("answers").to_dicts() if "/t/" in r["address"]]
    assert {(r["said"], r["recorded"], r["how"], r["agrees"]) for r in talk} == {(None,) * 4}
