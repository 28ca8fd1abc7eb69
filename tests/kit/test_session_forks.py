"""Controls that need the code of a study: its sessions run again, and its answer types are read."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import SUFFICIENT_SAMPLE_CALLS
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.engine.seats.seat_manager import PendingQuestion, SeatState
from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.kit.controls.asking import run_controls, verify_controls
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.tables import NO_PERSONA, ORDER, RETEST, SAME_LENGTH, ControlRow
from folkmoot.kit.named_controls import describe_humans
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.document import build_document
from folkmoot.report.study_check import run_dry_run
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, PLAN, RunFolder
from tests.contract.small import SMALL, people_of, small_study
from tests.engine.test_seats import by_hand
from tests.studies.workbook.workbook_builder import make_task_row, make_workbook, save_workbook
from tests.sweeps import sample_daily

SmallRun = Callable[[str], Path]
REPEATED = {"negative": False, "retest": False, "no_persona": True}
TOTAL = re.compile(r"Together the group put (\d+) tokens into the pot. You put in (\d+)")


@pytest.fixture(scope="module")
def games(run_of_small_study: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with sessions of a public goods game, and its controls."""
    folder = tmp_path_factory.mktemp("games") / "run"
    run = RunFolder(shutil.copytree(run_of_small_study("workbook"), folder))
    run_controls(run, {**REPEATED, "same_length": True}, RunOptions())
    return run


def requests(folder: Path) -> dict[str, list[dict[str, str]]]:
    with JournalReader(folder / JOURNAL) as journal:
        entries = journal.read_entries()
        return {
            entry.address: entry.request["messages"] for entry in entries if entry.kind == "ask"
        }


@pytest.mark.parametrize("control", [NO_PERSONA, SAME_LENGTH])
def test_the_result_of_a_game_follows_from_the_new_replies(games: RunFolder, control: str) -> None:
    answers = games.path / CONTROLS / "tables" / "answers.parquet"
    given: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for address, recorded in pl.read_parquet(answers).select("address", "recorded").iter_rows():
        if address.startswith(f"decision-{control}/") and recorded and recorded.isdigit():
            _, _, session, task, participant, _ = address.split("/")
            given[session, task][participant] = int(recorded)
    results = 0
    for address, messages in requests(games.path / CONTROLS).items():
        parts = address.split("/")
        if parts[0] != f"decision-{control}" or parts[3] not in ("5", "6"):
            continue
        # Tasks 4 to 6 are the rounds. The prompt of a round ends with the result of the last one.
        total, own = TOTAL.findall(messages[-1]["content"])[-1]
        before = given[parts[2], str(int(parts[3]) - 1)]
        assert len(before) == 4
        assert (int(total), int(own)) == (sum(before.values()), before[parts[4]])
        results += 1
    # Two rounds with a result in four sessions of four.
    assert results == 32
    rows = RunFolder(games.path / CONTROLS).read_table(ControlRow.table).filter(control=control)
    assert rows.height == 32 and not rows["missing"].drop_nulls().to_list()


def test_no_participant_of_a_session_that_is_run_again_has_a_persona(games: RunFolder) -> None:
    sources = games.read_table("provenance").filter(kind="persona")
    asked = requests(games.path)
    stated: dict[str, set[str]] = defaultdict(set)
    for row in sources.iter_rows(named=True):
        text = asked[row["address"]][row["message"]]["content"][row["start"] : row["end"]]
        if len(text) > 20:
            stated[row["speaker"]].add(text)
    seen = 0
    for address, messages in requests(games.path / CONTROLS).items():
        if address.startswith(f"decision-{NO_PERSONA}/") and stated[address.split("/")[-2]]:
            whole = "\n".join(message["content"] for message in messages)
            assert not [text for text in stated[address.split("/")[-2]] if text in whole]
            seen += 1
    assert seen > 100


def test_sessions_that_are_run_again_are_sealed_verified_and_named_in_the_report(
    games: RunFolder,
) -> None:
    below = games.path / CONTROLS
    sealed = json.loads((below / PLAN).read_text())["sealed"]["controls"]["data"]["run_again"]
    assert set(sealed) == {NO_PERSONA, SAME_LENGTH}
    scopes = [f"decision-{control}/{scope}/" for control in sealed for scope in sealed[control]]
    for address in requests(below):
        assert address.startswith((*scopes, "first-"))
    ((_, verification),) = verify_controls(games)
    assert not verification.differences
    notes = [note for finding in control_findings(games) for note in finding.notes]
    assert any(note.startswith("Sessions were run again") for note in notes)
    methods = build_document(games).methods
    assert methods is not None
    assert "with texts replaced for all participants: 32 answers." in str(methods)


def test_only_the_sessions_of_the_sample_are_run_again(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study("workbook"), tmp_path / "run"))
    done = run_controls(run, {**REPEATED, "participants": 1}, RunOptions())
    rows = done.read_table(ControlRow.table).filter(control=NO_PERSONA, moment="final")
    sessions = {address.split("/")[2] for address in rows["address"]}
    made = [address.split("/")[2] for address in requests(done.path) if "/sessions/" in address]
    assert set(made) == sessions and len(sessions) == rows.height < 4


@pytest.mark.parametrize("name", sample_daily(["town_hall", "negotiation"], daily=1, part="sweeps"))
def test_stages_after_the_session_are_not_asked_again(
    name: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study(name), tmp_path / "run"))
    done = run_controls(run, REPEATED, RunOptions())
    made = [address for address in requests(done.path) if address.startswith("decision-")]
    # Codings are made of what was said. They decide nothing in the session.
    assert made and any("/coding/" in f"/{address}" for address in requests(run.path))
    assert not any("/coding/" in address for address in made)
    # The replies of the repetition have their own addresses, which its prompts name as sources.
    quoted = done.read_table("provenance").filter(pl.col("address").is_in(made), kind="utterance")
    ids = set(quoted["source_id"]) - set(run.read_table(UTTERANCES)["utterance_id"])
    assert ids and all(id.startswith("decision-") for id in ids)


def test_options_of_all_rounds_of_a_game_are_listed_in_reversed_order(tmp_path: Path) -> None:
    book = make_workbook()
    rounds = [
        make_task_row(
            f"r{n}",
            "private_question",
            3 + n,
            f"{said} {{response_options}}",
            f"trade{n}",
            var_type="category",
            response_options='["yes", "no"]',
            validate_response=1,
        )
        for n, said in ((0, "Trade?"), (1, "All offers add up to {{ total }}. Trade again?"))
    ]
    book["interview_prompts"] = [*book["interview_prompts"][:4], *rounds]
    path = save_workbook(book, tmp_path / "market.xlsx")
    listed = re.compile(r"one of these options:\n- (.*)\n- (.*)")

    def take_the_first(request: ModelRequest, _address: str) -> str:
        lists = listed.findall(request.messages[-1].content)
        return str(lists[-1][0]) if lists else "5"

    provider = ScriptedProvider(take_the_first)
    run = folkmoot.run(path, provider=provider, out=tmp_path / "run").folder
    done = run_controls(
        run,
        {"negative": False, "retest": False, "order": True},
        RunOptions(custom_provider=provider),
    )
    final = done.read_table(ControlRow.table).filter(control=ORDER, moment="final")
    assert final.height == 8 and not final["missing"].drop_nulls().to_list()
    # Who takes the first option takes the other one in reversed order.
    assert set(final["value"]) == {"no"} and set(final["expected"]) == {"yes"}
    for address, messages in requests(done.path).items():
        if address.startswith(f"decision-{ORDER}/"):
            whole = "\n".join(message["content"] for message in messages)
            assert set(listed.findall(whole)) <= {("no", "yes")}
    rows = done.read_table("answers").filter(pl.col("address").str.starts_with("decision-"))
    assert set(rows["options"].drop_nulls()) == {'["no", "yes"]'}
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_a_session_with_a_human_is_not_run_again(tmp_path: Path) -> None:
    people = people_of("town_hall")

    def answer(_seat: SeatState, question: PendingQuestion) -> str:
        return people.reply(question.request, question.address).text

    path = small_study("town_hall", tmp_path)
    seat = ("seats.count=1", "seats.as=persona", "rounds=1")
    run = folkmoot.run(
        path, out=tmp_path / "run", model="synthetic", overrides=seat, seat_host=by_hand(answer)
    ).folder
    done = run_controls(run, REPEATED, RunOptions())
    final = done.read_table(ControlRow.table).filter(control=NO_PERSONA, moment="final")
    assert final.height and set(final["missing"]) == {"humans_took_part"}
    assert not any(address.startswith("decision-") for address in requests(done.path))
    # It is said before the run, before the first control, and in the report.
    keys = tuple(f"controls.{key}={json.dumps(value)}" for key, value in REPEATED.items())
    options = RunOptions(model="synthetic", overrides=(*seat, *keys))
    seated = load_study_with_options(path, options)
    notes = run_dry_run(seated, None).notes
    # `folkmoot run --seat` prints this one, which needs no dry run.
    assert set(describe_humans(seated)) < set(notes)
    reason = "a session with humans is not run again"
    assert any("no persona (12 of 12 final" in note and reason in note for note in notes)
    assert reason in (done.path / "run.log").read_text()
    assert any(reason in note for finding in control_findings(run) for note in finding.notes)


@pytest.mark.parametrize("participants", [10, 200])
@pytest.mark.nightly(part="truths")
def test_the_price_of_sessions_has_bounds_that_hold(participants: int, tmp_path: Path) -> None:
    keys = f"{{negative: false, retest: false, no_persona: true, participants: {participants}}}"
    settings = SMALL["town_hall"].replace("sets: 1", "sets: 24")
    path = tmp_path / "halls.yaml"
    path.write_text(f"study: town_hall\n{settings}controls: {keys}\n")
    total = run_dry_run(load_study_file(path), "synthetic")
    # Too many calls to run as a whole in a dry run.
    assert total.calls > SUFFICIENT_SAMPLE_CALLS and total.calls_range is not None
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    made = sum(int(folder.manifest["calls"]) for folder in (run, RunFolder(run.path / CONTROLS)))
    low, high = total.calls_range
    assert low <= made <= high and low < total.calls < high


def test_a_number_is_asked_again_with_the_bounds_of_its_study(tmp_path: Path) -> None:
    book = make_workbook()
    # Without the task that offers options, the first decision is the offer: a number from 0 to 20.
    book["interview_prompts"] = [row for row in book["interview_prompts"] if row[0] != "m"]
    path = save_workbook(book, tmp_path / "market.xlsx")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    done = run_controls(run, {"negative": False, "no_persona": True, "order": True}, RunOptions())
    rows = done.read_table(ControlRow.table)
    offers = run.read_table("answers").filter(pl.col("address").str.contains("/o/"))
    recorded = dict(offers.select("address", "recorded").iter_rows())
    for control in (RETEST, NO_PERSONA):
        own = rows.filter(control=control, moment="first")
        assert own.height == 8 and own["number"].is_between(0, 20).all()
        assert all(
            float(expected) == float(recorded[address])
            for expected, address in own.select("expected", "decision_address").iter_rows()
        )
    for address, messages in requests(done.path).items():
        if "/decision-retest/" in address:
            assert "0 to 20" in messages[-1]["content"].replace("between 0 and 20", "0 to 20")
    ((_, verification),) = verify_controls(run)
    assert not verification.differences
