"""Controls that use the code of a study: they repeat sessions and use its answer types."""

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
from tests.earlier_controls import plan_controls_without
from tests.engine.test_seats import build_seat_host
from tests.studies.workbook.workbook_builder import make_task_row, make_workbook, save_workbook
from tests.sweeps import sample_daily

SmallRun = Callable[[str], Path]
REPEATING_CONTROLS = {"negative": False, "retest": False, "no_persona": True}
ROUND_RESULT = re.compile(r"Together the group put (\d+) tokens into the pot. You put in (\d+)")


@pytest.fixture(scope="module")
def games_run(run_of_small_study: SmallRun, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Make a run with sessions of a public goods game, and its controls."""
    folder = tmp_path_factory.mktemp("games") / "run"
    run = RunFolder(shutil.copytree(run_of_small_study("workbook"), folder))
    run_controls(run, {**REPEATING_CONTROLS, "same_length": True}, RunOptions())
    return run


def read_requests(folder: Path) -> dict[str, list[dict[str, str]]]:
    with JournalReader(folder / JOURNAL) as journal:
        entries = journal.read_entries()
        return {
            entry.address: entry.request["messages"] for entry in entries if entry.kind == "ask"
        }


@pytest.mark.parametrize("control", [NO_PERSONA, SAME_LENGTH])
def test_the_result_of_a_game_follows_from_the_new_replies(
    games_run: RunFolder, control: str
) -> None:
    answers = games_run.path / CONTROLS / "tables" / "answers.parquet"
    contributions: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for address, recorded in pl.read_parquet(answers).select("address", "recorded").iter_rows():
        if address.startswith(f"decision-{control}/") and recorded and recorded.isdigit():
            _, _, session, task, participant, _ = address.split("/")
            contributions[session, task][participant] = int(recorded)
    results = 0
    for address, messages in read_requests(games_run.path / CONTROLS).items():
        parts = address.split("/")
        if parts[0] != f"decision-{control}" or parts[3] not in ("5", "6"):
            continue
        # Tasks 4 to 6 are the rounds. The prompt of a round ends with the result of the last one.
        total, own_contribution = ROUND_RESULT.findall(messages[-1]["content"])[-1]
        last_round = contributions[parts[2], str(int(parts[3]) - 1)]
        assert len(last_round) == 4
        assert (int(total), int(own_contribution)) == (
            sum(last_round.values()),
            last_round[parts[4]],
        )
        results += 1
    # Two rounds with a result in four sessions of four.
    assert results == 32
    rows = RunFolder(games_run.path / CONTROLS).read_table(ControlRow.table).filter(control=control)
    assert rows.height == 32 and not rows["missing"].drop_nulls().to_list()


def test_repeated_sessions_have_no_personas(games_run: RunFolder) -> None:
    sources = games_run.read_table("provenance").filter(kind="persona")
    requests = read_requests(games_run.path)
    persona_texts: dict[str, set[str]] = defaultdict(set)
    for row in sources.iter_rows(named=True):
        text = requests[row["address"]][row["message"]]["content"][row["start"] : row["end"]]
        if len(text) > 20:
            persona_texts[row["speaker"]].add(text)
    checked_prompts = 0
    for address, messages in read_requests(games_run.path / CONTROLS).items():
        if address.startswith(f"decision-{NO_PERSONA}/") and persona_texts[address.split("/")[-2]]:
            prompt = "\n".join(message["content"] for message in messages)
            assert not [text for text in persona_texts[address.split("/")[-2]] if text in prompt]
            checked_prompts += 1
    assert checked_prompts > 100


def test_repeated_sessions_are_sealed_verified_and_reported(
    games_run: RunFolder,
) -> None:
    controls_folder = games_run.path / CONTROLS
    sealed = json.loads((controls_folder / PLAN).read_text())["sealed"]["controls"]["data"][
        "run_again"
    ]
    assert set(sealed) == {NO_PERSONA, SAME_LENGTH}
    scopes = [f"decision-{control}/{scope}/" for control in sealed for scope in sealed[control]]
    for address in read_requests(controls_folder):
        assert address.startswith((*scopes, "first-"))
    ((_, verification),) = verify_controls(games_run)
    assert not verification.differences
    notes = [note for finding in control_findings(games_run) for note in finding.notes]
    assert any(note.startswith("Sessions were run again") for note in notes)
    methods = build_document(games_run).methods
    assert methods is not None
    assert "with texts replaced for all participants: 32 answers." in str(methods)


def test_only_sessions_of_the_sample_are_repeated(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study("workbook"), tmp_path / "run"))
    control_run = run_controls(run, {**REPEATING_CONTROLS, "participants": 1}, RunOptions())
    rows = control_run.read_table(ControlRow.table).filter(control=NO_PERSONA, moment="final")
    sessions = {address.split("/")[2] for address in rows["address"]}
    repeated_sessions = [
        address.split("/")[2]
        for address in read_requests(control_run.path)
        if "/sessions/" in address
    ]
    assert set(repeated_sessions) == sessions and len(sessions) == rows.height < 4


@pytest.mark.parametrize("name", sample_daily(["town_hall", "negotiation"], daily=1, part="sweeps"))
def test_stages_after_the_session_are_not_repeated(
    name: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(run_of_small_study(name), tmp_path / "run"))
    control_run = run_controls(run, REPEATING_CONTROLS, RunOptions())
    addresses = [
        address for address in read_requests(control_run.path) if address.startswith("decision-")
    ]
    # Codings follow the session and do not affect it.
    assert addresses and any("/coding/" in f"/{address}" for address in read_requests(run.path))
    assert not any("/coding/" in address for address in addresses)
    # The replies of the repetition have their own addresses, which its prompts name as sources.
    sources = control_run.read_table("provenance").filter(
        pl.col("address").is_in(addresses), kind="utterance"
    )
    ids = set(sources["source_id"]) - set(run.read_table(UTTERANCES)["utterance_id"])
    assert ids and all(id.startswith("decision-") for id in ids)


def test_the_order_control_reverses_options_in_all_rounds_of_a_game(tmp_path: Path) -> None:
    book = make_workbook()
    rounds = [
        make_task_row(
            f"r{n}",
            "private_question",
            3 + n,
            f"{question} {{response_options}}",
            f"trade{n}",
            var_type="category",
            response_options='["yes", "no"]',
            validate_response=1,
        )
        for n, question in ((0, "Trade?"), (1, "All offers add up to {{ total }}. Trade again?"))
    ]
    book["interview_prompts"] = [*book["interview_prompts"][:4], *rounds]
    path = save_workbook(book, tmp_path / "market.xlsx")
    option_lists = re.compile(r"one of these options:\n- (.*)\n- (.*)")

    def choose_first_option(request: ModelRequest, _address: str) -> str:
        lists = option_lists.findall(request.messages[-1].content)
        return str(lists[-1][0]) if lists else "5"

    provider = ScriptedProvider(choose_first_option)
    run = folkmoot.run(path, provider=provider, out=tmp_path / "run").folder
    control_run = run_controls(
        run,
        {"negative": False, "retest": False, "order": True},
        RunOptions(custom_provider=provider),
    )
    final = control_run.read_table(ControlRow.table).filter(control=ORDER, moment="final")
    assert final.height == 8 and not final["missing"].drop_nulls().to_list()
    # A participant who always takes the first option takes the other one in reversed order.
    assert set(final["value"]) == {"no"} and set(final["expected"]) == {"yes"}
    for address, messages in read_requests(control_run.path).items():
        if address.startswith(f"decision-{ORDER}/"):
            prompt = "\n".join(message["content"] for message in messages)
            assert set(option_lists.findall(prompt)) <= {("no", "yes")}
    rows = control_run.read_table("answers").filter(pl.col("address").str.starts_with("decision-"))
    assert set(rows["options"].drop_nulls()) == {'["no", "yes"]'}
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_a_session_with_a_human_is_not_repeated(tmp_path: Path) -> None:
    respondent = people_of("town_hall")

    def answer(_seat: SeatState, question: PendingQuestion) -> str:
        return respondent.reply(question.request, question.address).text

    path = small_study("town_hall", tmp_path)
    seat = ("seats.count=1", "seats.as=persona", "rounds=1")
    run = folkmoot.run(
        path,
        out=tmp_path / "run",
        model="synthetic",
        overrides=seat,
        seat_host=build_seat_host(answer),
    ).folder
    control_run = run_controls(run, REPEATING_CONTROLS, RunOptions())
    final = control_run.read_table(ControlRow.table).filter(control=NO_PERSONA, moment="final")
    assert final.height and set(final["missing"]) == {"humans_took_part"}
    assert not any(address.startswith("decision-") for address in read_requests(control_run.path))
    # This is reported before the run, before the first control, and in the report.
    keys = tuple(f"controls.{key}={json.dumps(value)}" for key, value in REPEATING_CONTROLS.items())
    options = RunOptions(model="synthetic", overrides=(*seat, *keys))
    study_with_seat = load_study_with_options(path, options)
    notes = run_dry_run(study_with_seat, None).notes
    # `folkmoot run --seat` prints this one, which needs no dry run.
    assert set(describe_humans(study_with_seat)) < set(notes)
    reason = "a session with humans is not run again"
    assert any("no persona (12 of 12 final" in note and reason in note for note in notes)
    assert reason in (control_run.path / "run.log").read_text()
    assert any(reason in note for finding in control_findings(run) for note in finding.notes)


@pytest.mark.parametrize("participants", [10, 200])
@pytest.mark.nightly(part="truths")
def test_the_calls_of_repeated_sessions_are_within_the_estimated_range(
    participants: int, tmp_path: Path
) -> None:
    keys = f"{{negative: false, retest: false, no_persona: true, participants: {participants}}}"
    settings = SMALL["town_hall"].replace("sets: 1", "sets: 24")
    path = tmp_path / "halls.yaml"
    path.write_text(f"study: town_hall\n{settings}controls: {keys}\n")
    total = run_dry_run(load_study_file(path), "synthetic")
    # Too many calls to run as a whole in a dry run.
    assert total.calls > SUFFICIENT_SAMPLE_CALLS and total.calls_range is not None
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    calls = sum(int(folder.manifest["calls"]) for folder in (run, RunFolder(run.path / CONTROLS)))
    low, high = total.calls_range
    assert low <= calls <= high and low < total.calls < high


def test_a_repeated_number_question_has_the_bounds_of_its_study(tmp_path: Path) -> None:
    book = make_workbook()
    # Without the task that offers options, the first decision is the offer: a number from 0 to 20.
    book["interview_prompts"] = [row for row in book["interview_prompts"] if row[0] != "m"]
    path = save_workbook(book, tmp_path / "market.xlsx")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    control_run = run_controls(
        run, {"negative": False, "no_persona": True, "order": True}, RunOptions()
    )
    rows = control_run.read_table(ControlRow.table)
    offers = run.read_table("answers").filter(pl.col("address").str.contains("/o/"))
    recorded = dict(offers.select("address", "recorded").iter_rows())
    for control in (RETEST, NO_PERSONA):
        control_rows = rows.filter(pl.col("decision_address").str.contains("/o/"), control=control)
        # Sellers make one offer and no other decision, which is asked again once.
        assert control_rows.height == 8 and control_rows["number"].is_between(0, 20).all()
        assert all(
            float(expected) == float(recorded[address])
            for expected, address in control_rows.select("expected", "decision_address").iter_rows()
        )
    for address, messages in read_requests(control_run.path).items():
        if "/decision-retest/" in address:
            assert "0 to 20" in messages[-1]["content"].replace("between 0 and 20", "0 to 20")
    ((_, verification),) = verify_controls(run)
    assert not verification.differences


def test_the_only_decision_of_a_participant_is_asked_once(tmp_path: Path) -> None:
    book = make_workbook()
    book["interview_prompts"] = [row for row in book["interview_prompts"] if row[0] not in "ms"]
    path = save_workbook(book, tmp_path / "market.xlsx")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    control_run = run_controls(run, {"no_persona": True}, RunOptions())
    rows = control_run.read_table(ControlRow.table)
    keys = ["control", "question", "participant_id", "unit", "decision_address"]
    assert not rows.select(keys).is_duplicated().any()
    assert rows.filter(control="negative").height == 8 * 12
    assert {*rows.filter(control=RETEST)["moment"]} == {"first"}
    findings = {finding.key: finding for finding in control_findings(run)}
    effects = findings["where_the_effect_comes_from"]
    assert {row[:2] for row in effects.grid.rows if row[2] == "as designed"} == {
        ("Calm against NONE", "task o")
    }
    assert "Calm against NONE (task o): as designed" in effects.says
    assert [verified.differences for _, verified in verify_controls(run)] == [[]]


@pytest.mark.parametrize(
    ("second_question", "measure", "is_compared"),
    [
        ("How satisfied are you with your town?", "", False),
        ("You gave {{ q1 }} before.\n\nTask 2: how many do you buy?", "", True),
        ("How many do you buy after the talk?", "buys", True),
    ],
)
def test_a_workbook_says_which_decisions_are_one_question(
    second_question: str, measure: str, *, is_compared: bool, tmp_path: Path
) -> None:
    """Both questions have names that differ in the number alone, and the same range."""
    book = make_workbook()
    header, context, *_ = book["interview_prompts"]
    questions = [
        make_task_row(
            f"t{number}",
            "private_question",
            number,
            f"{text} {{response_options}}",
            f"q{number}",
            var_type="integer",
            response_options="(0, 10)",
            validate_response=1,
        )
        for number, text in enumerate(("Task 1: How many do you buy?", second_question), 1)
    ]
    book["interview_prompts"] = [[*header, "measure"], [*context, ""]]
    book["interview_prompts"] += [[*question, measure] for question in questions]
    book["computed"] = book["computed"][:1]
    path = save_workbook(book, tmp_path / "survey.xlsx")

    def answer(_request: ModelRequest, address: str) -> str:
        # The answer depends on the question, and not on the treatment.
        return "6" if "/t2/" in address or address.startswith("final-") else "3"

    run = folkmoot.run(path, provider=ScriptedProvider(answer), out=tmp_path / "run").folder
    run_controls(
        run,
        {"negative": False, "retest": False, "same_length": True},
        RunOptions(custom_provider=ScriptedProvider(answer)),
    )
    findings = {finding.key: finding for finding in control_findings(run)}
    contrasts = {row[0] for row in findings["where_the_effect_comes_from"].grid.rows}
    assert ("Calm: final against first decision" in contrasts) == is_compared


VOTES = """
from pathlib import Path

from folkmoot import Choice, Session, Speaker, Study, StudyConfig
from folkmoot.kit.exposure import Decision, ExposureRow, ExposureTable

TOPIC = Path(__file__).parent / "topic.txt"


async def protocol(session: Session) -> None:
    for name in ("ann", "ben", "cem"):
        await session.ask(Speaker(name), TOPIC.read_text(), answer_type=Choice(["red", "blue"]))


def decisions(run):
    for speaker, address in run.rows("answers", "speaker_id", "address"):
        yield Decision(address, speaker, "all", "vote", {"material": ()})


STUDY = Study(
    "own",
    "Own",
    StudyConfig,
    protocol,
    tables=(ExposureRow,),
    derived_tables=ExposureTable(decisions, lambda source: source.kind),
)
"""


def test_a_plain_choice_is_asked_again_although_the_code_of_the_study_fails(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(VOTES)
    (tmp_path / "topic.txt").write_text("Which colour?\n- red\n- blue")
    settings = tmp_path / "own.yaml"
    settings.write_text("study: ./own.py\nmodel: synthetic\n")
    run = folkmoot.run(settings, out=tmp_path / "run", trust=True).folder
    (tmp_path / "topic.txt").unlink()
    controls = run_controls(run, {"negative": False}, RunOptions())
    answers = controls.read_table(ControlRow.table).filter(control=RETEST)
    assert answers["value"].is_in(["red", "blue"]).to_list() == [True] * 3


def _fork_pot(folder: Path, task: str, **change: object) -> tuple[RunFolder, str]:
    """Fork a run of two pots of four participants at the first reply to a task.

    Returns the fork and the address. Participants give 8 of 10 tokens, and are satisfied with a
    pot of 32.
    """
    book = make_workbook()
    header, context, *_ = book["interview_prompts"]
    give = make_task_row(
        "g", "private_question", 1, "How many tokens do you give? {response_options}", "offer",
        var_type="integer", response_options="(0, 10)", validate_response=1,
    )  # fmt: skip
    satisfied = make_task_row(
        "s", "private_question", 2, "The pot holds {{ total }}. Are you satisfied? "
        "{response_options}", "satisfied", var_type="category",
        response_options='["yes", "no"]', validate_response=1,
    )  # fmt: skip
    book["interview_prompts"] = [header, context, give, satisfied]
    book["computed"] = book["computed"][:2]
    path = save_workbook(book, folder / "pot.xlsx")
    run = folkmoot.run(path, provider=POT_PROVIDER, out=folder / "run")
    addresses = run.table("answers")["address"].to_list()
    address = next(address for address in addresses if f"/{task}/" in address)
    fork = folkmoot.fork(run, address, provider=POT_PROVIDER, out=folder / "fork", **change)  # type: ignore[arg-type]
    return fork.folder, address


def _answer_about_pot(request: ModelRequest, _address: str) -> str:
    question = request.messages[-1].content
    if "How many tokens" in question:
        return "8"
    return "yes" if "The pot holds 32" in question else "no"


POT_PROVIDER = ScriptedProvider(_answer_about_pot)


@pytest.mark.parametrize("change", [{"say": "3"}, {"drop": True}])
def test_a_reply_that_a_researcher_changed_stays_in_a_repeated_session(
    change: dict[str, object], tmp_path: Path
) -> None:
    fork, address = _fork_pot(tmp_path, "g", **change)
    control_run = run_controls(
        fork, {**REPEATING_CONTROLS, "same_length": True}, RunOptions(custom_provider=POT_PROVIDER)
    )
    rows = control_run.read_table(ControlRow.table).filter(control=NO_PERSONA, moment="final")
    # Nobody's answer depends on the persona. Those of the changed session are not satisfied.
    assert rows["value"].to_list() == rows["expected"].to_list()
    assert sorted(rows["value"]) == ["no"] * 4 + ["yes"] * 4
    requests = read_requests(control_run.path)
    assert any(f"/{address.split('/')[1]}/" in asked for asked in requests)
    assert not any(asked.endswith(address) for asked in requests)
    ((_, verification),) = verify_controls(fork)
    assert not verification.differences


def test_a_decision_that_a_researcher_changed_is_not_asked_again(tmp_path: Path) -> None:
    fork, address = _fork_pot(tmp_path, "s", say="no")
    control_run = run_controls(
        fork,
        {**REPEATING_CONTROLS, "retest": True},
        RunOptions(custom_provider=POT_PROVIDER),
    )
    rows = control_run.read_table(ControlRow.table)
    asked = rows.filter(pl.col("control").is_in([RETEST, NO_PERSONA]))
    own = asked.filter(pl.col("decision_address") == address)
    assert set(own["control"]) == {RETEST, NO_PERSONA}
    assert set(own["missing"]) == {"given_by_researcher"}
    others = asked.filter(pl.col("decision_address") != address)
    assert others.height and not others["missing"].drop_nulls().to_list()
    assert others["value"].to_list() == others["expected"].to_list()
    said = "The researcher changed this answer in the fork"
    assert said in (control_run.path / "run.log").read_text()
    assert any(said in note for finding in control_findings(fork) for note in finding.notes)


def test_earlier_controls_of_a_fork_are_verified_as_they_were_asked(tmp_path: Path) -> None:
    """Earlier versions asked a model in place of the reply that the researcher gave."""
    fork, address = _fork_pot(tmp_path, "g", say="3")
    with plan_controls_without("given_replies_stay"):
        control_run = run_controls(
            fork, REPEATING_CONTROLS, RunOptions(custom_provider=POT_PROVIDER)
        )
    assert any(asked.endswith(address) for asked in read_requests(control_run.path))
    ((_, verification),) = verify_controls(fork)
    assert not verification.differences
