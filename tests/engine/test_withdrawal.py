"""Withdrawal of a human: no text of the human remains, and verify names what was removed."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from filelock import FileLock

import folkmoot
from folkmoot import Choice, Session, Speaker, Study, StudyConfig, Transcript
from folkmoot.cli.results import (
    export_command,
    report_command,
    verify_command,
    withdraw_command,
)
from folkmoot.cli.show import show_command
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.seats.personal_texts import (
    DESCRIPTION,
    QUOTATION,
    SUMMARY,
    describe_texts,
    find_personal_texts,
)
from folkmoot.engine.seats.redaction import WITHDRAWAL_MARK, Words
from folkmoot.engine.seats.seat_manager import WITHDRAWN, PendingQuestion, SeatManager, SeatState
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.seats.withdrawal import (
    STAGING_FOLDER,
    finish_withdrawal,
    read_withdrawals,
    withdraw_texts,
)
from folkmoot.engine.study.strict_answers import CLOSED_ANSWERS_KEY
from folkmoot.errors import InputError
from folkmoot.files import csv_text
from folkmoot.kit.coding.post_hoc import code_finished_run, verify_codings
from folkmoot.kit.coding.sheet import write_sheet
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import SourcedText, concatenate_texts, join_texts
from folkmoot.report.document.document import build_document
from folkmoot.report.export import export_run
from folkmoot.storage.amendments import Amendment, append_amendments, read_amendments
from folkmoot.storage.run_folder import RunFolder, cache_folder
from folkmoot.view.run_list import read_run_status
from tests.engine.test_seats import build_seat_host
from tests.kit.test_coding import SECOND, code_by_words, make_coder
from tests.sweeps import sample_daily
from tests.wrong_sources import find_wrong_sources

FOCUS_GROUP_STUDY = """
study: focus_group
category: coffee
product_concept: A reusable cup that keeps coffee hot for six hours.
num_personas: 3
questions_per_phase: 1
max_responses_per_question: 3
"""
HUMAN_TEXT = (
    "My grandmother's porcelain would break her heart, frankly; so I'd never carry it around."
)
HIDDEN_WORDS = "grandmother", "porcelain"


def give_human_answer(seat_state: SeatState, question: PendingQuestion) -> str | None:
    """Answer with words that no other speaker would use, for any answer kind."""
    question_view = question.view
    if question_view.answer_kind == "choice":
        return question_view.options[0]
    if question_view.answer_kind == "json":
        return json.dumps({"position": 0.5, "opinion": HUMAN_TEXT})
    return HUMAN_TEXT


def write_study(folder: Path) -> Path:
    path = folder / "cup.yaml"
    path.write_text(FOCUS_GROUP_STUDY, "utf-8")
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path)


@pytest.fixture(scope="module")
def run_with_all_words(tmp_path_factory: pytest.TempPathFactory) -> folkmoot.Run:
    """Run the study with a human who does not withdraw. No test changes the run."""
    folder = tmp_path_factory.mktemp("all_words")
    return folkmoot.run(
        write_study(folder),
        out=folder / "run",
        seats=("p_0002",),
        seat_host=build_seat_host(give_human_answer),
    )


@pytest.fixture
def finished_run(run_with_all_words: folkmoot.Run, tmp_path: Path) -> folkmoot.Run:
    """Copy `run_with_all_words`, so that a test may change it."""
    return folkmoot.load(shutil.copytree(run_with_all_words.path, tmp_path / "a"))


@pytest.fixture(scope="module")
def run_without_words(tmp_path_factory: pytest.TempPathFactory) -> folkmoot.Run:
    """Run the study with a human who withdraws at the end. No test changes the run."""
    folder = tmp_path_factory.mktemp("without_words")
    return run_with_late_withdrawal(folder / "run", write_study(folder))


def find_files_containing(folder: Path, word: str) -> list[str]:
    """Return the files that contain a word, in their bytes, cells or journal texts."""
    files = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data = pl.read_parquet(path).write_json().encode()
        if word.encode() in data:
            files.append(path.relative_to(folder).as_posix())
    return files


def run_with_late_withdrawal(run: Path, study: Path) -> folkmoot.Run:
    """Run a study with a human who answers everything and withdraws at the end."""
    from contextlib import asynccontextmanager

    answering_host = build_seat_host(give_human_answer)

    @asynccontextmanager
    async def host(seat_manager: SeatManager):  # type: ignore[no-untyped-def]
        async with answering_host(seat_manager):
            yield
            for seat_state in seat_manager:
                seat_manager.close_seat(seat_state, WITHDRAWN)

    return folkmoot.run(study, out=run, seats=("p_0002",), seat_host=host)


def test_no_text_of_the_human_remains(
    run_with_all_words: folkmoot.Run, run_without_words: folkmoot.Run
) -> None:
    complete_run, withdrawn_run = run_with_all_words, run_without_words
    before = find_files_containing(complete_run.path, HIDDEN_WORDS[1])
    assert "journal.sqlite" in before and any(file.startswith("tables/") for file in before)
    with sqlite3.connect(complete_run.path / "journal.sqlite") as db:
        count_other_entries = "SELECT count(*) FROM entries WHERE model_asked != 'human'"
        assert db.execute(count_other_entries).fetchone()[0] > 10

    for word in HIDDEN_WORDS:
        assert find_files_containing(withdrawn_run.path, word) == []
    marks = find_files_containing(withdrawn_run.path, "[withdrawn ")
    assert set(before) - {"journal.sqlite"} <= set(marks) | {"run.log", "log.jsonl"}
    rows = withdrawn_run.table("answers").filter(pl.col("speaker_id") == "p_0002")
    assert rows["missing"].fill_null("").is_in(["withdrawn"]).all()
    (amendment,) = read_withdrawals(withdrawn_run.path)
    assert amendment.author == "participant" and amendment.data["seat"] == "group_001/p_0002"


def test_the_report_says_what_a_withdrawal_means_for_its_figures(
    run_with_all_words: folkmoot.Run, run_without_words: folkmoot.Run
) -> None:
    """Choices of the human stay in the tables of the study, so the report may not say that all
    figures rest on the answers that are left. It asks for more people, since one took a seat."""
    for run, is_withdrawn in ((run_with_all_words, False), (run_without_words, True)):
        document = build_document(run.folder)
        assert document.front is not None
        lights = [light for light in document.front.lights if " withdrew. " in light.reason]
        assert [light.colour for light in lights] == ["amber"] * is_withdrawn
        assert all(light.reason.startswith("1 person withdrew. ") for light in lights)
        counts = next(
            figure.finding
            for section in document.sections
            for figure in section.figures
            if figure.finding.key == CLOSED_ANSWERS_KEY
        )
        assert ("The findings use no other closed answers." in counts.says) != is_withdrawn
        assert ("stay in the findings." in counts.says) == is_withdrawn
        advice = [row.consequence for row in document.front.card if row.name == "Human benchmark"]
        assert "seats:" not in "".join(advice)


def test_counts_of_answers_in_a_report_are_those_of_the_table(
    run_without_words: folkmoot.Run,
) -> None:
    answers = run_without_words.table("answers")
    withdrawn = answers.filter(missing=WITHDRAWN).height
    assert withdrawn > 0
    parsed = build_document(run_without_words.folder).trust.answers
    assert parsed.caption.endswith(f"without a valid value: {withdrawn} withdrawn")
    shares = dict(zip(parsed.columns, zip(*parsed.rows, strict=True), strict=True))
    assert shares["parse_step"] == ("exact", "missing")
    exact, missing = shares["answer_share"]
    assert (exact, missing) == pytest.approx(
        (1 - withdrawn / answers.height, withdrawn / answers.height), abs=1e-6
    )
    # The manifest was written again, and its seal with it.
    assert verify_run(run_without_words.folder).differences == []


def test_texts_of_others_stay(
    run_with_all_words: folkmoot.Run, run_without_words: folkmoot.Run
) -> None:
    complete_run, withdrawn_run = run_with_all_words, run_without_words
    for name in complete_run.folder.table_names():
        if name not in ("answers", "exposure") and name in withdrawn_run.folder.table_names():
            was, now = complete_run.table(name), withdrawn_run.table(name)
            text_columns = [column for column, kind in was.schema.items() if kind == pl.String]
            for column in text_columns:
                pairs = zip(was[column], now[column], strict=True)
                changed_cells = [
                    (text_before, text_after)
                    for text_before, text_after in pairs
                    if text_before != text_after
                    and HIDDEN_WORDS[1] not in text_before
                    and text_before not in HUMAN_TEXT
                ]
                assert changed_cells == [], (name, column)


def test_verify_names_what_cannot_be_recomputed_and_nothing_else(
    run_without_words: folkmoot.Run,
) -> None:
    verification = verify_run(RunFolder(run_without_words.path))
    assert verification.differences == []
    assert not verification.is_consistent
    (reason,) = verification.not_compared
    assert "group_001/p_0002 withdrew" in reason and "cannot be recomputed" in reason
    assert verification.amendments == ["1 × withdrawal, by participant"]


def test_run_with_withdrawn_texts_cannot_be_resumed(
    study: Path, run_without_words: folkmoot.Run
) -> None:
    with pytest.raises(InputError, match="participants withdrew"):
        folkmoot.run(
            study,
            out=run_without_words.path,
            seats=("p_0002",),
            seat_host=build_seat_host(give_human_answer),
        )


TALK_REPLIES = {
    "bo/ask0": "The river path floods every spring, so nobody walks there.",
    "ann/ask0": "I sold my grandfather's boat. Bo says: the river path floods every spring.",
    "ann/ask1": "The river path floods every spring, so nobody walks there.",
    "lead/ask0": "Ann, you sold your boat: I sold my grandfather's boat, you said. And Bo told us "
    "that the river path floods every spring.",
    "notes/ask0": "Ann parted with an heirloom and regrets the wet meadow.",
    "overview/ask0": "Both speak of water. One of them sold my grandfather's boat.",
    "bo/ask1": "I never had a boat.",
}


async def hold_talk(session: Session[StudyConfig]) -> None:
    """Ann quotes Bo within a turn and repeats a turn of Bo. A moderator quotes both."""
    transcript = Transcript()
    speakers = {
        speaker_id: Speaker(speaker_id, name=speaker_id.title()) for speaker_id in ("ann", "bo")
    }
    speakers["lead"] = Speaker("lead", name="Lead", role="moderator")
    ann_texts: list[str] = []
    for speaker_id in ("bo", "ann", "ann", "lead", "bo"):
        scope = session.child(f"{speaker_id}{len(transcript)}").child(speaker_id)
        reply = await scope.ask(
            speakers[speaker_id], "What do you say?", history=transcript, shows=()
        )
        turn = scope.say(speakers[speaker_id], str(reply), address=scope.address)
        transcript += turn
        ann_texts += [turn.quoted_text] if speaker_id == "ann" else []
    notes, overview = session.child("notes"), session.child("overview")
    writer = Speaker("writer", role="summarizer")
    prompt = concatenate_texts(("Sum up: ", join_texts("\n", ann_texts)), plain=None)
    summary = await notes.ask(writer, prompt)
    notes.say(writer, str(summary), address=notes.address, public=False)
    text = await overview.ask(writer, "Sum up the talk.", history=transcript, shows=())
    overview.say(writer, str(text), address=overview.address, public=False)
    await session.child("vectors").embed([str(summary), str(text)])


TALK = Study("talk", "A talk", StudyConfig, hold_talk)
ANN = Seat("ann")


def reply_in_talk(request: object, address: str) -> str:
    counted = {"ann1": "ann/ask0", "ann2": "ann/ask1", "bo0": "bo/ask0", "bo4": "bo/ask1"}
    first_scope, *_ = address.split("/")
    return TALK_REPLIES[counted.get(first_scope, f"{first_scope.rstrip('0123456789')}/ask0")]


@pytest.fixture(scope="module")
def finished_talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of TALK. No test changes it."""
    settings = {"model": "openai/gpt-4o", "embedding_model": "openai/text-embedding-3-small"}
    out = tmp_path_factory.mktemp("talk") / "talk"
    return folkmoot.run(TALK, settings, provider=ScriptedProvider(reply_in_talk), out=out).path


@pytest.fixture
def changeable_talk(finished_talk: Path, tmp_path: Path) -> RunFolder:
    """Copy a run of TALK, so that a test may change it."""
    return RunFolder(shutil.copytree(finished_talk, tmp_path / "talk"))


def read_messages(run: RunFolder) -> dict[str, list[str]]:
    with JournalReader(run.path / "journal.sqlite") as journal:
        entries = journal.read_entries("ask")
        return {
            entry.address: [message["content"] for message in entry.request["messages"]]
            for entry in entries
        }


SALE = 'I sold my café on the "old" harbour.'


def run_talk_with_note(out: Path, note: object) -> RunFolder:
    """Run TALK. Ann speaks of her sale, and the moderator replies with JSON."""
    replies = {"ann1": SALE, "lead3": json.dumps(note), "notes": "Water."}

    def answer(request: object, address: str) -> str:
        return replies.get(address.split("/")[0]) or reply_in_talk(request, address)

    return folkmoot.run(
        TALK, {"model": "openai/x"}, provider=ScriptedProvider(answer), out=out
    ).folder


@pytest.mark.parametrize("note", [{"notes": {"all": [{"ann": SALE}]}}, {SALE: "regret"}])
def test_words_inside_the_json_of_a_later_reply_are_withdrawn(tmp_path: Path, note: object) -> None:
    run = run_talk_with_note(tmp_path / "run", note)
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    texts = dict(RunFolder(run.path).read_table("utterances").select("address", "text").iter_rows())
    assert "[withdrawn " in texts["lead3/lead/ask0"]
    for part in ("I sold my caf", "harbour"):
        assert find_files_containing(run.path, part) == []


def test_texts_of_others_that_the_human_quoted_or_repeated_stay(changeable_talk: RunFolder) -> None:
    """A search for words would erase the texts of other speakers in two cases: the human quotes
    another speaker within a turn, or says the same as another speaker."""
    before = read_messages(changeable_talk)
    withdraw_texts(changeable_talk, find_personal_texts(changeable_talk, ANN), "researcher")
    texts = dict(changeable_talk.read_table("utterances").select("address", "text").iter_rows())
    assert (
        texts["bo0/bo/ask0"] == TALK_REPLIES["bo/ask0"]
        and texts["bo4/bo/ask0"] == TALK_REPLIES["bo/ask1"]
    )
    assert texts["lead3/lead/ask0"].endswith("Bo told us that the river path floods every spring.")
    assert WITHDRAWAL_MARK.fullmatch(texts["ann1/ann/ask0"]) and WITHDRAWAL_MARK.fullmatch(
        texts["ann2/ann/ask0"]
    )
    after = read_messages(changeable_talk)
    assert TALK_REPLIES["bo/ask0"] in before["bo4/bo/ask0"][0]
    assert TALK_REPLIES["bo/ask0"] in after["bo4/bo/ask0"][0]
    assert "\n".join(after["bo4/bo/ask0"]).count("river path") == 2  # by Bo and by the moderator
    # Before the first utterance of the human.
    assert before["ann1/ann/ask0"] == after["ann1/ann/ask0"]


async def name_speakers(session: Session[StudyConfig]) -> None:
    """Ann answers with one word, which is also a role, a stage and an id."""
    lead = Speaker("lead", role="moderator")
    for number, speaker in enumerate((Speaker("ann"), lead, Speaker("bo"))):
        await session.child("opening", str(number)).ask(speaker, "Who should speak?")


def test_word_that_is_also_a_protocol_name_stays_in_rows_of_others(tmp_path: Path) -> None:
    study = Study("names", "Names", StudyConfig, name_speakers)
    replies = {"opening/0/ask0": "Moderator, opening\nmoderator.\nlead\nopening"}
    model = ScriptedProvider(lambda _, address: replies.get(address, "I do."))
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    before = run.read_table("answers")
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    after = RunFolder(run.path).read_table("answers")
    assert (
        find_files_containing(run.path, "Moderator, opening") == []
        and after["missing"][0] == WITHDRAWN
    )
    assert before.filter(pl.col("speaker_id") != "ann").equals(
        after.filter(pl.col("speaker_id") != "ann")
    )
    assert after["stage"].to_list() == ["opening"] * 3


REPEATED_REPLIES = {
    "1/ann/ask0": "We should wait for the new bridge.",
    "0/bo/ask0": "As I see it, we should wait for the new bridge.",
    "2/bo/ask0": "Once more: we should wait for the new bridge. My barn is full.",
    "3/lead/ask0": "Ann said: WE SHOULD WAIT FOR the new bridge. Who else has a barn?",
    "4/lead/ask0": "Who else has a barn? Nobody said more about bridges.",
}


async def say_the_same(session: Session[StudyConfig]) -> None:
    """Bo says the same as Ann, before and after reading it. A moderator quotes both."""
    transcript = Transcript()
    speakers = {speaker_id: Speaker(speaker_id) for speaker_id in ("bo", "ann")}
    speakers["lead"] = Speaker("lead", role="moderator")
    for number, speaker_id in enumerate(("bo", "ann", "bo", "lead", "lead")):
        scope = session.child(str(number), speaker_id)
        reply = await scope.ask(speakers[speaker_id], "Well?", history=transcript, shows=())
        if number:  # the first utterance is in no history
            transcript += scope.say(speakers[speaker_id], str(reply), address=scope.address)


def test_earlier_utterance_of_another_speaker_is_no_quotation(tmp_path: Path) -> None:
    study = Study("again", "Again", StudyConfig, say_the_same)
    model = ScriptedProvider(lambda _, address: REPEATED_REPLIES[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    before = dict(run.read_table("utterances").select("address", "text").iter_rows())
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    after = dict(RunFolder(run.path).read_table("utterances").select("address", "text").iter_rows())
    assert WITHDRAWAL_MARK.fullmatch(after.pop("1/ann/ask0"))
    assert after == {address: before[address] for address in after}


UNSPACED_REPLIES = {
    "0/bo/ask0": "树太少了。",
    "1/ann/ask0": "孩子们需要公园。我们的老人也需要电梯。",
    "2/bo/ask0": "她说孩子们需要公园，可是路太窄。",
    "3/lead/ask0": "安说过：“孩子们需要公园。”谁同意？",
    "4/lead/ask0": "路太窄，树太少了。",
}


def test_quotation_in_a_script_without_spaces_is_listed_and_removed(tmp_path: Path) -> None:
    study = Study("again", "Again", StudyConfig, say_the_same)
    model = ScriptedProvider(lambda _, address: UNSPACED_REPLIES[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    personal_texts = find_personal_texts(run, ANN)
    quoted = {reply.address: reply.words for reply in personal_texts.replies}
    assert quoted == {"2/bo/ask0": ("孩子们需要公园",), "3/lead/ask0": ("孩子们需要公园",)}
    withdraw_texts(run, personal_texts, "researcher")
    assert find_files_containing(run.path, "孩子") == []
    texts = dict(RunFolder(run.path).read_table("utterances").select("address", "text").iter_rows())
    remaining = {address: WITHDRAWAL_MARK.sub("#", text) for address, text in texts.items()}
    assert remaining["2/bo/ask0"] == "她说#，可是路太窄。"
    assert remaining["4/lead/ask0"] == UNSPACED_REPLIES["4/lead/ask0"]


PROPOSAL_REPLIES = {
    "propose/ann/ask0": "Plant porcelain trees.",
    "propose/bo/ask0": "Build a barn.",
    "vote/ann/ask0": "Either of them would please my godmother.",
    "vote/ann/ask0.r1": '{"stated": "Build a barn."}',
    "vote/bo/ask0": "Both.",
    "vote/bo/ask0.r1": '{"stated": "Build a barn."}',
    "vote/lead/ask0": "She wants: plant porcelain trees.\n\nOr a barn.",
    "vote/lead/ask0.r1": "",
    "vote/lead/ask0.r2": "Build a barn.",
}


async def ask_for_proposals(session: Session[StudyConfig]) -> list[SourcedText]:
    """Ask Ann and Bo for proposals and return them as options."""
    proposals = []
    for speaker_id in ("ann", "bo"):
        scope = session.child("propose", speaker_id)
        reply = await scope.ask(Speaker(speaker_id), SourcedText("Propose something."))
        proposals.append(
            scope.say(Speaker(speaker_id), str(reply), address=scope.address).quoted_text
        )
    return proposals


async def vote_on_proposals(session: Session[StudyConfig]) -> None:
    """All vote on the proposals of Ann and Bo, and no first reply can be read."""
    proposals = await ask_for_proposals(session)
    voters = (Speaker("ann"), Speaker("bo"), Speaker("lead", role="moderator"))
    for voter in voters:
        choice, scope = (
            Choice(proposals, clarify=voter.id != "lead"),
            session.child("vote", voter.id),
        )
        await scope.ask(voter, choice.formatted_options, answer_type=choice)


def test_re_asks_lose_the_texts_of_the_human_and_keep_those_of_others(tmp_path: Path) -> None:
    """A clarifying question lists the proposals again. After an empty reply, the question and the
    earlier reply are sent again."""
    study = Study("votes", "Votes", StudyConfig, vote_on_proposals)
    model = ScriptedProvider(lambda _, address: PROPOSAL_REPLIES[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    before = read_messages(run)
    assert [address for address in before if "porcelain" in "".join(before[address][-1])] == [
        *("vote/ann/ask0", "vote/ann/ask0.r1", "vote/bo/ask0", "vote/bo/ask0.r1"),
        *("vote/lead/ask0", "vote/lead/ask0.r1", "vote/lead/ask0.r2"),
    ]
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    assert (
        find_files_containing(run.path, "porcelain")
        == find_files_containing(run.path, "godmother")
        == []
    )
    after = read_messages(RunFolder(run.path))
    barns = {address: "".join(texts).count("Build a barn.") for address, texts in before.items()}
    assert {
        address: "".join(texts).count("Build a barn.") for address, texts in after.items()
    } == barns
    assert after["vote/bo/ask0.r1"][1] == "Both."
    assert after["vote/lead/ask0.r2"][1].endswith(".\n\nOr a barn.")
    levels = RunFolder(run.path).codebook()["answers"]["columns"]["said"]["levels"]
    assert levels["Both."] == 1 and sum(levels.values()) == 2
    wrong_sources = find_wrong_sources(RunFolder(run.path), ())
    assert [
        wrong_source
        for wrong_source in wrong_sources
        if not WITHDRAWAL_MARK.fullmatch(wrong_source.text)
    ] == []


MENTION_REPLIES = {
    "propose/ann/ask0": "Marmalade.",
    "propose/bo/ask0": "Barn",
    "discuss/ask0": "A barn is dear. Is Ann's MARMALADE cheaper? Marmalades are.",
    "vote/ann/ask0": "barn",
    "vote/bo/ask0": "**marmalade**",
    "count/ask0": '{"Marmalade": "yes, one is for marmalade", "Barn": 1}',
    "agree/ann/ask0": "yes",
    "agree/bo/ask0": "Yes",
}


async def mention_proposals(session: Session[StudyConfig]) -> None:
    """Others vote for a proposal of Ann and mention it in their sentences."""
    lead, speakers = Speaker("lead", role="moderator"), (Speaker("ann"), Speaker("bo"))
    proposals, votes = await ask_for_proposals(session), []
    await session.child("discuss").ask(lead, join_texts("\n", proposals))
    for speaker in speakers:
        choice, scope = Choice(proposals), session.child("vote", speaker.id)
        votes.append(await scope.ask(speaker, choice.formatted_options, answer_type=choice))
    await session.child("count").ask(lead, join_texts("\n", votes))
    for speaker in speakers:
        scope, agree = session.child("agree", speaker.id), Choice(("yes", "no"))
        await scope.ask(speaker, join_texts("\n", votes), answer_type=agree)


@pytest.mark.parametrize("proposal", ["Marmalade.", "Yes."])
def test_proposal_is_removed_from_votes_of_others_unless_the_study_offers_it(
    proposal: str, tmp_path: Path
) -> None:
    """A vote in another spelling or a sentence does not make a proposal a text of others. Options
    of the study stay."""
    study = Study("mentions", "Mentions", StudyConfig, mention_proposals)
    replies = MENTION_REPLIES | {"propose/ann/ask0": proposal}
    if proposal == "Yes.":
        replies["vote/bo/ask0"] = "**barn**"
    model = ScriptedProvider(lambda _, address: replies[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    answers_after = RunFolder(run.path).read_table("answers")
    value, options = (
        dict(answers_after.select("address", "value").iter_rows()),
        answers_after["options"].to_list(),
    )
    assert value["agree/bo/ask0"] == "yes" and '["yes", "no"]' in options
    if proposal == "Marmalade.":
        assert WITHDRAWAL_MARK.fullmatch(value["vote/bo/ask0"])
        assert not any("Marmalade" in option_text for option_text in options if option_text)
        assert "Marmalade" not in "".join(map("".join, read_messages(RunFolder(run.path)).values()))
        with JournalReader(run.path / "journal.sqlite") as journal:
            reply = {entry.address: entry.reply for entry in journal.read_entries("ask")}
        mark = reply["vote/bo/ask0"].strip("*")
        assert reply["discuss/ask0"] == f"A barn is dear. Is Ann's {mark} cheaper? Marmalades are."
        assert reply["count/ask0"] == f'{{"{mark}": "yes, one is for {mark}", "Barn": 1}}'


READ_PROPOSAL_REPLIES = {
    "0/bo/ask0": "We should build a library by the lake.",
    "1/ann/ask0": "Build a library",
    "2/lead/ask0": "Would a group without money build a library?",
    "3/bo/ask0": "Build a library",
}


async def propose_text_of_another(session: Session[StudyConfig]) -> None:
    """Ann proposes what Bo said before. A moderator, who reads only the proposal, names it."""
    quoted_texts: list[str] = []
    for number, speaker_id in enumerate(("bo", "ann", "lead")):
        role = "moderator" if speaker_id == "lead" else "participant"
        scope, speaker = session.child(str(number), speaker_id), Speaker(speaker_id, role=role)
        reply = await scope.ask(
            speaker, join_texts("\n", [SourcedText("Well?"), *quoted_texts[-1:]])
        )
        quoted_texts.append(scope.say(speaker, str(reply), address=scope.address).quoted_text)
    choice = Choice([quoted_texts[1]])
    await session.child("3", "bo").ask(Speaker("bo"), choice.formatted_options, answer_type=choice)


def test_proposal_that_the_human_had_read_before_is_no_quotation(tmp_path: Path) -> None:
    study = Study("received", "Received", StudyConfig, propose_text_of_another)
    model = ScriptedProvider(lambda _, address: READ_PROPOSAL_REPLIES[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    with JournalReader(run.path / "journal.sqlite") as journal:
        replies_after = {entry.address: entry.reply for entry in journal.read_entries("ask")}
    assert WITHDRAWAL_MARK.fullmatch(replies_after.pop("1/ann/ask0"))
    assert replies_after == {address: READ_PROPOSAL_REPLIES[address] for address in replies_after}


SHARED_WORD_REPLIES = {
    "propose/ann/ask0": "Marmalade",
    "propose/bo/ask0": "Jam tarts",
    "talk/ask0": "There was marmalade.",
    "vote/carl/ask0": "2",
    "vote/eve/ask0": "Marmalade",
    "count/ask0": "One is for jam tarts, one for marmalade.",
}


async def vote_on_a_shared_word(session: Session[StudyConfig]) -> None:
    """Dan has read no proposal and says a word that is also a proposal. Others vote on it."""
    proposals, votes = await ask_for_proposals(session), []
    await session.child("talk").ask(Speaker("dan"), SourcedText("How was breakfast?"))
    for speaker_id in ("carl", "eve"):
        choice, scope = Choice(proposals), session.child("vote", speaker_id)
        votes.append(
            await scope.ask(Speaker(speaker_id), choice.formatted_options, answer_type=choice)
        )
    lead = Speaker("lead", role="moderator")
    await session.child("count").ask(lead, join_texts("\n", votes))


def test_votes_for_a_proposal_are_removed_although_another_speaker_used_its_words(
    tmp_path: Path,
) -> None:
    """The vote is removed from the row and from later prompts, like the reply. The options of the
    question are still known as proposals when the next human withdraws."""
    study = Study("shared", "Shared", StudyConfig, vote_on_a_shared_word)
    model = ScriptedProvider(lambda _, address: SHARED_WORD_REPLIES[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    for speaker_id in ("ann", "bo"):
        withdraw_texts(
            run, find_personal_texts(RunFolder(run.path), Seat(speaker_id)), "researcher"
        )
        run_after = RunFolder(run.path)
        value = dict(run_after.read_table("answers").select("address", "value").iter_rows())
        assert WITHDRAWAL_MARK.fullmatch(value["vote/eve/ask0"])
        assert "Marmalade" not in "".join(read_messages(run_after)["count/ask0"])
    for spelled in ("Jam tarts", "jam tarts", "Marmalade"):
        assert find_files_containing(run.path, spelled) == []
    assert "journal.sqlite" in find_files_containing(run.path, SHARED_WORD_REPLIES["talk/ask0"])


async def quote_often(session: Session[StudyConfig]) -> None:
    """A moderator who speaks in many discussions names the proposal of Ann in each of them."""
    lead, scope = Speaker("lead", role="moderator"), session.child("propose", "ann")
    reply = await scope.ask(Speaker("ann"), SourcedText("Propose something."))
    proposal = scope.say(Speaker("ann"), str(reply), address=scope.address).quoted_text
    choice = Choice([proposal])
    await session.child("vote").ask(lead, choice.formatted_options, answer_type=choice)
    for number in range(session.config.max_tokens):
        discussion = session.child("discuss", str(number))
        text = await discussion.ask(lead, join_texts("\n", [proposal]))
        discussion.say(lead, str(text), address=discussion.address)


def test_work_grows_linearly_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the characters that are split into words and the searches for a text."""
    character_count, original_init, original_search = 0, Words.__init__, Words.find_word_sequence

    def count_characters(words: Words, text: str) -> None:
        nonlocal character_count
        character_count += len(text)
        original_init(words, text)

    def count_searches(words: Words, wanted: str) -> Iterator[int]:
        nonlocal character_count
        character_count += len(words.line)
        return original_search(words, wanted)

    def reply(_: object, address: str) -> str:
        if not address.startswith("discuss/"):
            return "Marmalade"
        return f"Discussion {address} is on marmalade, and on other things."

    study, work_by_size = Study("often", "Often", StudyConfig, quote_often), []
    for count in (40, 80):
        settings = {"model": "openai/x", "max_tokens": count}
        model, out = ScriptedProvider(reply), tmp_path / str(count)
        run = folkmoot.run(study, settings, provider=model, out=out).folder
        with monkeypatch.context() as patched:
            patched.setattr(Words, "__init__", count_characters)
            patched.setattr(Words, "find_word_sequence", count_searches)
            character_count = 0
            withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
            work_by_size.append(character_count)
        assert find_files_containing(run.path, "marmalade") == []
    assert work_by_size[1] < 2.2 * work_by_size[0]


def test_quotations_by_any_speaker_are_listed_and_removed(changeable_talk: RunFolder) -> None:
    personal_texts = find_personal_texts(changeable_talk, ANN)
    quoted = {
        reply.address: reply.words for reply in personal_texts.replies if reply.use == QUOTATION
    }
    assert quoted == {
        "lead3/lead/ask0": ("I sold my grandfather's boat",),
        "overview/ask0": ("sold my grandfather's boat",),
    }
    description = "\n".join(describe_texts(personal_texts))
    assert "unknown source" in description
    assert "lead3/lead/ask0 (moderator lead) “I sold my grandfather's boat”" in description
    withdraw_texts(changeable_talk, personal_texts, "researcher")
    assert find_files_containing(changeable_talk.path, "grandfather") == []
    texts = dict(changeable_talk.read_table("utterances").select("address", "text").iter_rows())
    assert texts["lead3/lead/ask0"].startswith("Ann, you sold your boat: [withdrawn ")
    assert texts["overview/ask0"].startswith("Both speak of water. One of them [withdrawn ")


def test_summary_of_the_human_alone_is_removed_with_its_embedding(
    changeable_talk: RunFolder,
) -> None:
    personal_texts = find_personal_texts(changeable_talk, ANN)
    uses = {reply.address: reply.use for reply in personal_texts.replies if reply.use != QUOTATION}
    assert uses == {"notes/ask0": SUMMARY, "overview/ask0": DESCRIPTION}
    withdraw_texts(changeable_talk, personal_texts, "researcher")
    assert find_files_containing(changeable_talk.path, "heirloom") == []
    with JournalReader(changeable_talk.path / "journal.sqlite") as journal:
        (vectors,) = (entry.blob for entry in journal.read_entries("embed"))
    summary, overview = np.frombuffer(vectors or b"", dtype=np.float32).reshape(2, -1)
    assert np.isnan(summary).all() and np.isnan(overview).all()


def test_withdrawn_run_has_the_digest_in_the_amendment(changeable_talk: RunFolder) -> None:
    withdraw_texts(changeable_talk, find_personal_texts(changeable_talk, ANN), "researcher")
    verification = verify_run(changeable_talk, TALK)
    (amendment,) = read_withdrawals(changeable_talk.path)
    assert verification.differences == [] and not verification.is_consistent
    assert verification.content_digest == amendment.data["journal_digest"]
    assert amendment.data["quotations"] == ["lead3/lead/ask0", "overview/ask0"]


class KilledError(BaseException):
    """Represents SIGKILL: no code of the withdrawal runs after it."""


@pytest.mark.parametrize("steps", sample_daily(range(9), daily=[0, 1, 3, 6, 8], part="kills"))
def test_interrupted_withdrawal_is_completed_by_the_next_command(
    steps: int, changeable_talk: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    remaining_steps, rename = steps, Path.replace

    def fail(path: Path, target: Path) -> Path:
        nonlocal remaining_steps
        remaining_steps -= 1
        if remaining_steps < 0:
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(KilledError):
            withdraw_texts(changeable_talk, find_personal_texts(changeable_talk, ANN), "researcher")
    run = RunFolder(changeable_talk.path)
    if not finish_withdrawal(run.path):
        assert "journal.sqlite" in find_files_containing(run.path, "grandfather")
        withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    assert (
        find_files_containing(run.path, "grandfather")
        == find_files_containing(run.path, "heirloom")
        == []
    )
    assert len(read_withdrawals(run.path)) == 1
    assert verify_run(run, TALK).differences == []


def test_withdrawal_of_a_killed_process_can_be_completed(changeable_talk: RunFolder) -> None:
    """A process kills itself after the first prepared file has replaced the original."""
    code = """
import os, signal, sys
from pathlib import Path
from folkmoot.engine.seats import withdrawal
from folkmoot.engine.seats.personal_texts import find_personal_texts
from folkmoot.engine.seats.seats import Seat
from folkmoot.storage.run_folder import RunFolder
run = RunFolder(Path(sys.argv[1]))
found = find_personal_texts(run, Seat("ann"))
withdrawal.replace_journal = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
withdrawal.withdraw_texts(run, found, "researcher")
"""
    result = subprocess.run([sys.executable, "-c", code, str(changeable_talk.path)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert finish_withdrawal(changeable_talk.path)
    assert find_files_containing(changeable_talk.path, "grandfather") == []
    assert verify_run(RunFolder(changeable_talk.path), TALK).differences == []


def test_unfinished_file_of_a_killed_process_is_removed_with_its_words(
    finished_run: folkmoot.Run,
) -> None:
    """A process kills itself after it has written a file and before the file has its name."""
    code = """
import os, signal, sys
from pathlib import Path
from folkmoot.storage.json_files import write_json
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_json(Path(sys.argv[1]), {"opinion": sys.argv[2]})
"""
    for folder in ("", "tables", "controls"):
        path = finished_run.path / folder / "opinions.json"
        path.parent.mkdir(exist_ok=True)
        arguments = [sys.executable, "-c", code, str(path), HUMAN_TEXT]
        assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    unfinished = [*finished_run.path.rglob("*.tmp")]
    assert len(unfinished) == 3
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert find_files_containing(finished_run.path, HIDDEN_WORDS[1]) == []
    assert [path for path in unfinished if path.exists()] == []


@pytest.mark.parametrize("completed_by_another", [True, False])
def test_process_that_completes_a_withdrawal_reports_it(
    completed_by_another: bool,
    tmp_path: Path,
    finished_run: folkmoot.Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another process holds the lock first, and completes the withdrawal or is killed."""
    staged, moved_folder = finished_run.path / STAGING_FOLDER, tmp_path / "aside"
    acquire = FileLock.acquire

    def fail(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("folkmoot.engine.seats.withdrawal.replace_journal", fail)
        with pytest.raises(KilledError):
            withdraw_command(str(finished_run.path), "p_0002", yes=True)
    if not completed_by_another:
        staged.rename(moved_folder)

    def acquire_after_another(lock: FileLock, timeout: float | None = None) -> object:
        if completed_by_another:
            finish_withdrawal(finished_run.path)
        elif moved_folder.exists():
            moved_folder.rename(staged)
        return acquire(lock, timeout)

    capsys.readouterr()
    monkeypatch.setattr(FileLock, "acquire", acquire_after_another)
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    output = capsys.readouterr().out
    assert ("interrupted is now complete" in output) is not completed_by_another
    assert "has withdrawn from this run already" in output
    assert find_files_containing(finished_run.path, HIDDEN_WORDS[0]) == []


def test_readers_of_a_run_say_that_a_withdrawal_is_not_carried_out(
    finished_run: folkmoot.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process was killed after the human left and before it deleted the words."""
    name, seats = str(finished_run.path), finished_run.path / "seats.json"
    texts = dict[str, str]()

    def read_all(case: str) -> None:
        export = tmp_path / case
        capsys.readouterr()
        readers: dict[str, Callable[[], None]] = {
            "report": lambda: report_command(name, pdf=False),
            "export": lambda: export_command(name, "csv", export),
            "show": lambda: show_command(name, None),
            "verify": lambda: verify_command(name, None),
        }
        for command, call in readers.items():
            with suppress(typer.Exit):
                call()
            printed = capsys.readouterr()
            texts[command] = printed.out + printed.err
        texts["page"] = (finished_run.path / "report.html").read_text("utf-8")
        texts["readme"] = (export / "README.txt").read_text("utf-8")
        texts["viewer"] = read_run_status(finished_run.path, "a").note

    def find_silent() -> list[str]:
        return [
            reader for reader, text in texts.items() if "still contains their words" not in text
        ]

    read_all("before")
    assert find_silent() == [*texts]
    state = json.loads(seats.read_text("utf-8"))
    state["seats"]["group_001/p_0002"]["ended"] = WITHDRAWN
    seats.write_text(json.dumps(state), "utf-8")
    read_all("killed")
    assert find_silent() == []
    withdraw_command(name, "p_0002", yes=True)
    read_all("withdrawn")
    assert find_silent() == [*texts]


def test_withdrawal_without_a_terminal_lists_texts_and_deletes_nothing(
    finished_run: folkmoot.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = find_files_containing(finished_run.path, HIDDEN_WORDS[0])
    with pytest.raises(typer.Exit):
        withdraw_command(str(finished_run.path), "p_0002", yes=False)
    assert find_files_containing(
        finished_run.path, HIDDEN_WORDS[0]
    ) == before and not read_withdrawals(finished_run.path)
    output = capsys.readouterr().out
    assert "answers of this participant" in output and "Add --yes" in output


def test_answers_outside_the_protocol_count_and_nothing_else_does(tmp_path: Path) -> None:
    """The number of answers is that of the addresses: with a check and its second try, a review
    and a question afterwards, but without a self-description that was never asked for."""
    path = write_study(tmp_path)
    checks = [{"question": "2 + 2?", "right": "4", "tries": 2}]
    run = folkmoot.run(
        path,
        out=tmp_path / "run",
        seats=("p_0002",),
        overrides=(
            "seats.review=true",
            f"seats.checks={json.dumps(checks)}",
            'seats.afterwards=["How was it?"]',
        ),
        seat_host=build_seat_host(give_human_answer),
    )
    withdraw_command(str(run.path), "p_0002", yes=True)
    (amendment,) = read_withdrawals(run.path)
    addresses = amendment.data["addresses"]
    outside = {address.partition("p_0002/")[2] for address in addresses if "seats/" in address}
    assert outside == {"check1", "check1/try2", "review", "afterwards1"}
    assert amendment.data["answers"] == len(addresses)
    (notes,) = (note for note in verify_run(run.folder).not_compared if "withdrew" in note)
    assert f"{len(addresses)} answers" in notes and f"and {len(addresses) - 3} more" in notes


def test_later_codings_are_deleted_and_can_be_repeated(study: Path) -> None:
    """The journal of a later coding contains the coded texts, also in re-asks."""
    study.write_text(f"{FOCUS_GROUP_STUDY}coding: off\n", "utf-8")
    run = folkmoot.run(
        study,
        out=study.parent / "a",
        seats=("p_0002",),
        seat_host=build_seat_host(give_human_answer),
    )
    options = RunOptions(custom_provider=make_coder(code_by_words))
    code_finished_run(run.folder, SECOND, options)
    assert any(
        name.startswith("codings/") for name in find_files_containing(run.path, HIDDEN_WORDS[0])
    )
    withdraw_command(str(run.path), "p_0002", yes=True)
    assert find_files_containing(run.path, HIDDEN_WORDS[0]) == []
    assert list(verify_codings(RunFolder(run.path))) == []
    code_finished_run(RunFolder(run.path), SECOND, options)
    assert find_files_containing(run.path, HIDDEN_WORDS[0]) == []
    assert [
        verification.differences for _, verification in verify_codings(RunFolder(run.path))
    ] == [[]]


def test_quotes_in_code_corrections_are_removed_with_the_text(finished_run: folkmoot.Run) -> None:
    """A coder corrects a code on a sheet, and the amendment quotes two words of the text."""
    texts = finished_run.table("texts").select("text_id", "text").rows()
    amendments = [
        Amendment("code", "Eva", "2026-01-01", {"text_id": text_id, "quote": " ".join(words[1:3])})
        for text_id, text in texts
        if len(words := text.split()) > 2
    ]
    append_amendments(finished_run.path, amendments)
    assert "amendments.jsonl" in find_files_containing(finished_run.path, "grandmother's porcelain")
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert find_files_containing(finished_run.path, HIDDEN_WORDS[0]) == []
    remaining_texts = {text_id: text for text_id, text in texts if HIDDEN_WORDS[0] not in text}
    quotes = {
        item.data["text_id"]: item.data["quote"] for item in read_amendments(finished_run.path)[:-1]
    }
    assert len(quotes) == len(amendments) > len(remaining_texts) > 0
    assert [
        text_id
        for text_id in remaining_texts
        if text_id in quotes and quotes[text_id] not in remaining_texts[text_id]
    ] == []
    assert verify_run(RunFolder(finished_run.path)).differences == []


def test_researcher_can_withdraw_a_human_later(
    tmp_path: Path,
    finished_run: folkmoot.Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("folkmoot.storage.run_folder.user_cache_dir", lambda: tmp_path / "cache")
    (finished_run.path / "report.html").write_text(HUMAN_TEXT)
    cached = cache_folder(finished_run.path) / "findings.html"  # the cache of `folkmoot view`
    cached.parent.mkdir(parents=True)
    cached.write_text(HUMAN_TEXT)
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert (
        find_files_containing(finished_run.path, HIDDEN_WORDS[0])
        == find_files_containing(tmp_path / "cache", HIDDEN_WORDS[0])
        == []
    )
    assert read_withdrawals(finished_run.path)[0].author == "researcher"
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert "has withdrawn from this run already" in capsys.readouterr().out
    with pytest.raises(InputError, match="there is no seat p_0001"):
        withdraw_command(str(finished_run.path), "p_0001", yes=True)


def test_cells_of_csv_files_are_replaced_as_a_whole(finished_run: folkmoot.Run) -> None:
    """Nothing of a text remains in its cell, and the other cells keep their columns."""
    cells = ["p_0002", HUMAN_TEXT, f'{HUMAN_TEXT}, "again".', "7"]
    path = finished_run.path / "words.csv"
    path.write_text(csv_text([cells]), "utf-8")
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    (row,) = csv.reader(path.read_text("utf-8").splitlines())
    assert [WITHDRAWAL_MARK.sub("#", cell) for cell in row] == ["p_0002", "#", '#, "again".', "7"]


def test_exports_and_sheets_of_any_name_are_listed_and_deleted(
    finished_run: folkmoot.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished_run.folder
    for export_format in ("csv", "parquet", "json"):
        export_run(run, export_format, run.path / f"{export_format}_for_bob")
    write_sheet(run, run.path / "checked.XLSX", blind=False)
    # A fork inside the folder is another run, which cannot be read without its tables.
    fork = shutil.copytree(run.path / "tables", run.path / "fork" / "tables").parent
    (fork / "manifest.json").write_text("{}")
    with pytest.raises(typer.Exit):
        withdraw_command(str(run.path), "p_0002", yes=False)
    listed = capsys.readouterr().out
    deleted, unsearched = listed.split("These files cannot be searched, and stay.")
    assert "  parquet_for_bob/texts.parquet\n" in deleted and "  checked.XLSX\n" in deleted
    assert "  fork/tables/texts.parquet\n" in unsearched and "  tables/" not in listed

    withdraw_command(str(run.path), "p_0002", yes=True)
    containing = find_files_containing(run.path, HIDDEN_WORDS[0])
    assert containing and all(name.startswith("fork/tables/") for name in containing)
    assert not (run.path / "checked.XLSX").exists()
    assert {path.name for path in (run.path / "csv_for_bob").iterdir()} > {"texts.csv"}
    assert verify_run(RunFolder(run.path)).differences == []


def test_files_that_cannot_be_searched_are_named_and_stay(
    finished_run: folkmoot.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = finished_run.path / ".git" / "objects"
    objects.mkdir(parents=True)
    packed = HUMAN_TEXT.encode("utf-16")
    paths = [finished_run.path / "letter.txt", objects / "one", objects / "two"]
    for path in paths:
        path.write_bytes(packed)
    # Neither of these has a byte that is invalid in UTF-8.
    without_mark, archive = finished_run.path / "letter2.txt", finished_run.path / "texts.tar"
    without_mark.write_bytes("Zoning is a word of hers".encode("utf-16-le"))
    archive.write_bytes(b"texts.csv" + bytes(91) + b"Zoning is a word of hers")
    (finished_run.path / ".notes").write_text(HUMAN_TEXT, "utf-8")
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    output = capsys.readouterr().out
    listed = output.partition("These files cannot be searched, and stay.")[2].splitlines()[1:5]
    assert listed == ["  .git", "  letter.txt", "  letter2.txt", "  texts.tar"]
    assert "The files listed as not searched are unchanged" in output
    assert {path.read_bytes() for path in paths} == {packed}
    assert find_files_containing(finished_run.path, HIDDEN_WORDS[0]) == []
    (note,) = (note for note in verify_run(finished_run.folder).not_compared if "withdrew" in note)
    assert "Not searched for their words: .git, letter.txt, letter2.txt and 1 more." in note
