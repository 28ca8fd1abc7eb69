"""Every text in the prompts of a workbook has a source, and is what that source recorded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import folkmoot
from folkmoot.errors import InputError
from folkmoot.kit.exposure import FOREIGN_WORDS, MISATTRIBUTED_WORDS, describe_deviations
from folkmoot.kit.sources import count_unattributed_characters
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import cell_id, concatenate_texts, quote_value
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook import STUDY, sessions
from folkmoot.studies.workbook.preparation import load_workbook_config
from folkmoot.studies.workbook.sessions import SessionState
from tests.helpers_provenance import assert_every_text_has_its_source, write_prompts_in_capitals
from tests.studies.workbook.test_workbook_images import make_workbook_with_images
from tests.studies.workbook.test_workbook_parts import make_manual_workbook
from tests.studies.workbook.test_workbook_reading import make_older_layout, make_short_layout
from tests.studies.workbook.workbook_builder import (
    make_provider,
    make_task_row,
    make_workbook,
    with_cell,
    with_setting,
    write_workbook,
)
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

EXAMPLE = Path(__file__).parents[3] / "examples" / "public_goods.xlsx"
TASKS = "interview_prompts"
Book = dict[str, list[list[Any]]]


def run_workbook(made: Book | Path, folder: Path, **options: Any) -> RunFolder:
    folder.mkdir(parents=True, exist_ok=True)
    path = made if isinstance(made, Path) else write_workbook(made, folder / "book.xlsx")
    if "model" not in options:
        options = {"provider": ScriptedProvider(answer_by_address), **options}
    return folkmoot.run(path, out=folder / "run", **options).folder


def answer_by_address(request: ModelRequest, address: str) -> str:
    """Answer differently at each address, so that an exchanged source is found."""
    drawn = int(hashlib.md5(address.encode(), usedforsecurity=False).hexdigest(), 16)
    asked = request.hints
    if asked.kind == "choice":
        said: Any = asked.offered[drawn % len(asked.offered)]
    elif asked.kind == "number":
        low, high = map(float, asked.offered if len(asked.offered) == 2 else (0, 20))
        said = low + drawn % 101 / 100 * (high - low)
        said = round(said) if high > 1 else said
    else:
        said = f"At {address.replace('/', ' ')} I would say {drawn % 97}."
    if request.schema is not None:
        return json.dumps({"response": said, "speculation_score": drawn % 100})
    return str(said)


# --- every feature of the sheets ------------------------------------------------------------------


def with_rows(*rows: list[Any]) -> Book:
    book = make_workbook()
    book[TASKS] += rows
    return book


def with_last_question(text: str) -> Book:
    """Make the workbook with another text of its last question."""
    return with_cell(make_workbook(), f"{TASKS}!F5", text)


def with_stories() -> Book:
    book = make_older_layout()
    book["experimental_setting"][-1][1] = True
    return book


def without_profiles() -> Book:
    book = make_short_layout()
    for row in book["settings"]:
        if row[0] == "build_profile_qna":
            row[1] = "FALSE"
    return book


ARITHMETIC = (
    "You got {{ offer - 1 }} {{ -offer }} {{ 10 / offer }} {{ offer + total }} {{ offer | int }} "
    "{{ share | round(1) }} {{ offer | upper }} {{ offer | float }} {{ total - offer - 1 }} "
    "{{ talk }} {{ talk | upper }} {{ offer * 2 ** 2 }} {{ talk | trim | lower }}. "
    "{response_options}"
)
OF_THE_DESIGN = (
    "{{ treatment.description }} {{ treatment.label }} as {{ role.label }}: {{ role.description }} "
    "of {{ constant.goods | title }}. Trade? {response_options}"
)
BRANCHES = "{% if offer > 5 %}Why so much of {{ constant.goods }}, namely {{ offer }}?{% endif %}"
ALL_SPEAK = (
    '{"Seller":"Sell!","Summarizer":"Note.","Facilitator":"Open.","Buyer":"Buy {{ goods }}"}'
)
BIDS = '{"Buyer": "What do you bid?", "Seller": "What do you ask?"}'
BY_ROLE = '{"Buyer": ["{{ goods }}", "nothing"], "Seller": "Enter a number between 0 and 5"}'


def with_counted_offers() -> dict[str, list[list[Any]]]:
    """Make a workbook that counts its offers, which may be words."""
    book = with_cell(make_workbook(), "computed!C2", "count(offer)")
    return with_cell(book, "computed!C3", "1 / total")


AGAIN = make_task_row(
    *("n", "public_question", 5, "Again? {response_options}", "again"),
    response_options='["yes", "no"]',
    validate_response=1,
    format_response=1,
    generate_speculation_score=1,
)
VARIANTS: Mapping[str, Callable[[], Book]] = {
    "every task type, roles, treatments, constants, computed": make_workbook,
    "assigned by hand": make_manual_workbook,
    "the older layout": make_older_layout,
    "the short layout, which reveals no private answer": make_short_layout,
    "backstories": with_stories,
    "no profiles shown": without_profiles,
    "four experiments": lambda: with_cell(make_workbook(), "constants!B2", "[True, 3, 0.5, 4.0]"),
    "special roles speak": lambda: with_cell(make_workbook(), f"{TASKS}!F3", ALL_SPEAK),
    "sums, filters and words in a text": lambda: with_last_question(ARITHMETIC),
    "treatment and role in a text": lambda: with_last_question(OF_THE_DESIGN),
    "treatment in a role": lambda: with_cell(
        make_workbook(), "agent_roles!B4", "Buy in {{ treatment.label }}."
    ),
    "branches, some empty": lambda: with_last_question(BRANCHES),
    "one role sits out": lambda: with_last_question(
        '{"Buyer": "You offered {{ offer }}. {response_options}"}'
    ),
    "speculation asked for by itself": lambda: with_cell(make_workbook(), f"{TASKS}!L4", 1),
    "options in words": lambda: with_cell(
        make_workbook(), f"{TASKS}!I4", "Enter a number between 0 and 5"
    ),
    "options by role, unchecked": lambda: with_cell(
        with_cell(with_cell(with_counted_offers(), f"{TASKS}!H4", None), f"{TASKS}!I4", BY_ROLE),
        f"{TASKS}!K4",
        0,
    ),
    "a number without bounds": lambda: with_cell(
        with_cell(make_workbook(), f"{TASKS}!F4", BIDS), f"{TASKS}!I4", None
    ),
    "options before the text": lambda: with_last_question(
        "{response_options} So: trade {{ goods }}?"
    ),
    "options beside the text": lambda: with_last_question("Trade {{ goods }}?"),
    "rounds in public, in JSON": lambda: with_rows(
        AGAIN, make_task_row("q", "discussion", 6, "And?", "more")
    ),
    "cut short": lambda: with_setting(make_workbook(), "max_conversation_length", 11),
    "another language": lambda: with_cell(
        with_last_question(
            "Sie boten {{ offer }}, alle {{ total }}. Handeln Sie? {response_options}"
        ),
        *(f"{TASKS}!I5", '["ja", "nein", "weiß nicht"]'),
    ),
    "images": make_workbook_with_images,
}


@pytest.mark.parametrize("name", sample_daily(VARIANTS, daily=9, part="sweeps"))
def test_every_text_in_a_prompt_is_what_its_source_recorded(name: str, tmp_path: Path) -> None:
    run = run_workbook(VARIANTS[name](), tmp_path)
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    assert run.read_table("provenance")["kind"].n_unique() >= 3


def test_every_text_has_its_source_with_placeholders_for_images(tmp_path: Path) -> None:
    run = run_workbook(make_workbook_with_images(), tmp_path, overrides=("images=placeholder",))
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []


@pytest.fixture(scope="module")
def example_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of the shipped example, for tests that only read it."""
    return run_workbook(EXAMPLE, tmp_path_factory.mktemp("example"), model="synthetic")


def test_every_text_has_its_source_in_the_example(example_run: RunFolder) -> None:
    run = example_run
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    spans = run.read_table("provenance")
    assert set(spans["kind"]) == {"utterance", "persona", "material", "option", "value"}
    columns = set(spans["source_id"].str.split("/").list.first()) - {"sessions"}
    assert columns == {
        *("assignment.name", "assignment.profile", "computed.value", "options.options"),
        *("permutations.value", "roles.description", "treatments.description"),
        "study.workbook.profiles.questions",
        *(f"study.workbook.tasks.{number}.llm_text" for number in range(9)),
    }


@pytest.mark.skipif("FOLKMOOT_WORKBOOKS" not in os.environ, reason="names no folder of workbooks")
def test_every_text_has_its_source_in_other_workbooks(tmp_path: Path) -> None:
    for number, path in enumerate(sorted(Path(os.environ["FOLKMOOT_WORKBOOKS"]).glob("*.xlsx"))):
        try:
            load_workbook_config(path)
        except InputError:
            continue  # blank templates, and what has to be converted
        run = run_workbook(path, tmp_path / str(number), model="synthetic", limit=2)
        assert_every_text_has_its_source(run, STUDY)
        assert describe_deviations(run) == []


# --- invalid replies ------------------------------------------------------------------------------

REPLIES = {
    "nothing": "",
    "what fits no question": "Well, 5 or 6; who knows? {{ goods }}",
    "a refusal": "declined",
    "braces": '{"response": "{{ offer }}", "speculation_score": "much"}',
    "characters that are reserved": "\ufdd0 well \ufdd1 said \ufdd2",
}


@pytest.mark.parametrize(
    "name",
    sample_daily(REPLIES, ("nothing", "braces", "characters that are reserved"), part="sweeps"),
)
def test_every_text_has_its_source_after_invalid_replies(name: str, tmp_path: Path) -> None:
    book = with_cell(with_cell(make_workbook(), f"{TASKS}!F5", ARITHMETIC), f"{TASKS}!L4", 1)
    run = run_workbook(book, tmp_path, provider=ScriptedProvider(lambda *_: REPLIES[name]))
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []


def test_every_text_has_its_source_after_a_reask(tmp_path: Path) -> None:
    def late(request: ModelRequest, address: str) -> str:
        return (
            answer_by_address(request, address) if address.endswith(".r2") else "Seven and a half."
        )

    run = run_workbook(make_workbook(), tmp_path, provider=ScriptedProvider(late))
    assert_every_text_has_its_source(run, STUDY)
    assert run.read_table("responses")["reasks"].sum() > 0
    again = run.read_table("provenance").filter(kind="reply")
    assert again.height and set(again["speaker"]) <= set(
        run.read_table("assignment")["participant_id"]
    )


def test_texts_that_custom_prompts_change_keep_their_source(tmp_path: Path) -> None:
    """Texts in capitals and in a table keep their sources."""
    names = {"treatment", "context", "role", "line.answer", "peer.text", "text", "options"}
    folder = write_prompts_in_capitals(tmp_path / "own", STUDY, names)
    run = run_workbook(make_workbook(), tmp_path, overrides=(f"prompts={folder}",))
    assert_every_text_has_its_source(run, STUDY)
    assert describe_deviations(run) == []
    altered = run.read_table("provenance").filter("altered")
    assert {"utterance", "persona", "material"} <= set(altered["kind"])


# --- what is said is recorded ---------------------------------------------------------------------


def test_every_utterance_is_recorded_once_with_its_reply(
    example_run: RunFolder,
) -> None:
    run = example_run
    said, answers = run.read_table("utterances"), run.read_table("answers")
    assert said["utterance_id"].is_unique().all()
    replies = said.filter(pl.col("address") != "")
    assert set(replies["address"]) == set(answers["address"])
    asked = dict(answers.select("address", "speaker_id").iter_rows())
    assert [asked[address] for address in replies["address"]] == replies["speaker_id"].to_list()
    # The Facilitator poses questions in the words of the sheet, which come from no reply.
    assert set(said.filter(speaker_id="Facilitator")["address"]) == {""}
    for _, session in said.filter(pl.col("turn").is_not_null()).group_by("session"):
        assert sorted(session["turn"]) == [*range(1, session.height + 1)]
    answered = run.read_table("responses").filter(pl.col("value").is_not_null())
    heard = replies.filter(pl.col("turn").is_not_null())
    key = ["session", "task_id", "participant_id"]
    both = answered.join(heard.rename({"speaker_id": "participant_id"}), on=key)
    assert both.height == answered.height and (both["value"] == both["text"]).all()


# --- planted mistakes -----------------------------------------------------------------------------


def test_a_leak_through_plain_text_is_counted_and_no_source_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: all participants see a private offer in a string without a source."""
    leak = "Buyer 2 would pay 19."
    told = sessions.render_system_texts

    def leaking(*args: Any) -> tuple[str, str, str]:
        role, treatment, context = told(*args)
        return role, treatment, concatenate_texts((context, f" {leak}"))

    monkeypatch.setattr(sessions, "render_system_texts", leaking)
    run = run_workbook(make_workbook(), tmp_path)
    counted = count_unattributed_characters(run)
    assert set(counted) == set(run.read_table("answers")["address"])
    assert set(counted.values()) == {len(leak) + 1}
    assert find_wrong_sources(run, STUDY.tables) == []


def test_all_characters_of_a_text_without_source_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = sessions.render_system_texts
    monkeypatch.setattr(
        sessions, "render_system_texts", lambda *a: (told(*a)[0], f"{told(*a)[1]}", told(*a)[2])
    )
    run = run_workbook(make_workbook(), tmp_path)
    treatments = set(run.read_table("treatments")["description"].str.len_chars())
    assert set(count_unattributed_characters(run).values()) == treatments
    assert any(
        "treatment: required by the design, missing from" in d for d in describe_deviations(run)
    )


def test_a_wrong_source_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the treatment is quoted as the description of a role."""
    told = sessions.render_system_texts

    def wrong(state: SessionState, *args: Any) -> tuple[str, str, str]:
        role, treatment, context = told(state, *args)
        recorded = cell_id("roles.description", state.experiment.id, "Seller")
        return role, quote_value(str(treatment), "material", recorded), context

    monkeypatch.setattr(sessions, "render_system_texts", wrong)
    run = run_workbook(make_workbook(), tmp_path)
    found = find_wrong_sources(run, STUDY.tables)
    assert {w.text for w in found} == set(run.read_table("treatments")["description"])
    assert {w.source_id for w in found} == {"roles.description/market/Seller"}
    assert {w.recorded for w in found} == {("You sell apples.",)}


SHORT = {"5": {"number": 5}, "No.": {"text": "No."}}


@pytest.mark.parametrize("words", SHORT)
def test_a_short_statement_of_another_session_that_leaks_is_found(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: all participants hear one word from another session."""
    book = make_workbook()
    assert (
        describe_deviations(
            run_workbook(book, tmp_path / "right", provider=make_provider(**SHORT[words]))
        )
        == []
    )
    tell, before = SessionState.add_to_history, dict[str, Any]()

    def leaking(state: SessionState, ids: Any, said: Any) -> None:
        if said.text == words and said.role == "participant":
            session = state.plan.label
            other = next((u for s, u in before.items() if s != session), None)
            before.setdefault(session, said)
            if other is not None:
                tell(state, [seat.id for seat in state.taken_seats], other)
        tell(state, ids, said)

    monkeypatch.setattr(SessionState, "add_to_history", leaking)
    run = run_workbook(book, tmp_path / "wrong", provider=make_provider(**SHORT[words]))
    found = run.read_table("exposure").filter(kind=FOREIGN_WORDS)
    said = dict(run.read_table("utterances").select("utterance_id", "text").iter_rows())
    assert {said[id] for ids in found["text_ids"] for id in json.loads(ids)} == {words}
    assert any(FOREIGN_WORDS in line for line in describe_deviations(run))


def test_a_leaked_short_private_answer_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: a layout that hides private answers shows them."""
    assert (
        describe_deviations(
            run_workbook(make_short_layout(), tmp_path / "right", provider=make_provider(number=5))
        )
        == []
    )
    monkeypatch.setattr(SessionState, "reveals_private", True)
    run = run_workbook(make_short_layout(), tmp_path / "wrong", provider=make_provider(number=5))
    found = run.read_table("exposure").filter(kind=FOREIGN_WORDS)
    said = {row["utterance_id"]: row for row in run.read_table("utterances").iter_rows(named=True)}
    leaked = [said[id] for ids in found["text_ids"] for id in json.loads(ids)]
    assert {(row["task_id"], row["text"]) for row in leaked} == {("o", "5")}


def test_a_short_answer_under_another_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = SessionState.add_to_history

    def swapped(state: SessionState, ids: Any, said: Any) -> None:
        ids_of_seats = [seat.id for seat in state.taken_seats]
        if said.text == "5" and said.speaker_id in ids_of_seats:
            other = state.taken_seats[ids_of_seats.index(said.speaker_id) - 1]
            said = said._replace(speaker_id=other.id, name=other.name)
        tell(state, ids, said)

    monkeypatch.setattr(SessionState, "add_to_history", swapped)
    run = run_workbook(make_workbook(), tmp_path, provider=make_provider(number=5))
    assert any(MISATTRIBUTED_WORDS in line for line in describe_deviations(run))
