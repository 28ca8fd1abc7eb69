"""A person withdraws: nothing that they wrote is left in the run, and verify says what is gone."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from filelock import FileLock

import folkmoot
from folkmoot import Choice, Session, Speaker, Study, StudyConfig, Transcript
from folkmoot.cli.results import withdraw_command
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
from folkmoot.errors import InputError
from folkmoot.kit.coding.post_hoc import code_finished_run, verify_codings
from folkmoot.kit.sources import find_wrong_sources
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.provenance import SourcedText, concatenate_texts, join_texts
from folkmoot.storage.amendments import Amendment, append_amendments, read_amendments
from folkmoot.storage.run_folder import RunFolder, cache_folder
from tests.engine.test_seats import by_hand
from tests.kit.test_coding import SECOND, code_by_words, make_coder
from tests.sweeps import sample_daily

FOCUS = """
study: focus_group
category: coffee
product_concept: A reusable cup that keeps coffee hot for six hours.
num_personas: 3
questions_per_phase: 1
max_responses_per_question: 3
"""
SPOKEN = "My grandmother's porcelain would break her heart, frankly; so I'd never carry it around."
HIDDEN = "grandmother", "porcelain"


def speaks(chair: SeatState, question: PendingQuestion) -> str | None:
    """Free words that nobody else would say, whatever the form."""
    scene = question.view
    if scene.answer_kind == "choice":
        return scene.options[0]
    if scene.answer_kind == "json":
        return json.dumps({"position": 0.5, "opinion": SPOKEN})
    return SPOKEN


def write_study(folder: Path) -> Path:
    path = folder / "cup.yaml"
    path.write_text(FOCUS, "utf-8")
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path)


@pytest.fixture(scope="module")
def run_with_all_words(tmp_path_factory: pytest.TempPathFactory) -> folkmoot.Run:
    """The run of the study with a person who does not withdraw. No test changes it."""
    folder = tmp_path_factory.mktemp("all_words")
    return folkmoot.run(
        write_study(folder), out=folder / "run", seats=("p_0002",), seat_host=by_hand(speaks)
    )


@pytest.fixture
def finished_run(run_with_all_words: folkmoot.Run, tmp_path: Path) -> folkmoot.Run:
    """A copy of `run_with_all_words` that a test may change."""
    return folkmoot.load(shutil.copytree(run_with_all_words.path, tmp_path / "a"))


@pytest.fixture(scope="module")
def run_without_words(tmp_path_factory: pytest.TempPathFactory) -> folkmoot.Run:
    """The run of the study with a person who withdraws at the end. No test changes it."""
    folder = tmp_path_factory.mktemp("without_words")
    return leaving_last(folder / "run", write_study(folder))


def held(folder: Path, word: str) -> list[str]:
    """Files that hold a word, as bytes, as cells or as text of the journal."""
    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data = pl.read_parquet(path).write_json().encode()
        if word.encode() in data:
            found.append(path.relative_to(folder).as_posix())
    return found


def leaving_last(run: Path, study: Path) -> folkmoot.Run:
    """A run whose person answers everything and leaves at the end, before it is tidied up."""
    from contextlib import asynccontextmanager

    answering = by_hand(speaks)

    @asynccontextmanager
    async def host(desk: SeatManager):  # type: ignore[no-untyped-def]
        async with answering(desk):
            yield
            for chair in desk:
                desk.close_seat(chair, WITHDRAWN)

    return folkmoot.run(study, out=run, seats=("p_0002",), seat_host=host)


def test_nothing_that_the_person_wrote_is_left(
    run_with_all_words: folkmoot.Run, run_without_words: folkmoot.Run
) -> None:
    stays, gone = run_with_all_words, run_without_words
    before = held(stays.path, HIDDEN[1])
    assert "journal.sqlite" in before and any(f.startswith("tables/") for f in before)
    with sqlite3.connect(stays.path / "journal.sqlite") as db:
        others = "SELECT count(*) FROM entries WHERE model_asked != 'human'"
        assert db.execute(others).fetchone()[0] > 10

    for word in HIDDEN:
        assert held(gone.path, word) == []
    marks = held(gone.path, "[withdrawn ")
    assert set(before) - {"journal.sqlite"} <= set(marks) | {"run.log", "log.jsonl"}
    rows = gone.table("answers").filter(pl.col("speaker_id") == "p_0002")
    assert rows["missing"].fill_null("").is_in(["withdrawn"]).all()
    (amendment,) = read_withdrawals(gone.path)
    assert amendment.author == "participant" and amendment.data["seat"] == "group_001/p_0002"


def test_others_words_stay(
    run_with_all_words: folkmoot.Run, run_without_words: folkmoot.Run
) -> None:
    stays, gone = run_with_all_words, run_without_words
    for name in stays.folder.table_names():
        if name not in ("answers", "exposure") and name in gone.folder.table_names():
            was, now = stays.table(name), gone.table(name)
            texts = [c for c, kind in was.schema.items() if kind == pl.String]
            for column in texts:
                pairs = zip(was[column], now[column], strict=True)
                lost = [
                    (a, b) for a, b in pairs if a != b and HIDDEN[1] not in a and a not in SPOKEN
                ]
                assert lost == [], (name, column)


def test_verify_says_what_cannot_be_recomputed_and_finds_nothing_else(
    run_without_words: folkmoot.Run,
) -> None:
    found = verify_run(RunFolder(run_without_words.path))
    assert found.differences == []
    assert not found.is_consistent
    (said,) = found.not_compared
    assert "group_001/p_0002 withdrew" in said and "cannot be recomputed" in said
    assert found.amendments == ["1 × withdrawal, by participant"]


def test_a_run_whose_words_are_gone_is_not_resumed(
    study: Path, run_without_words: folkmoot.Run
) -> None:
    with pytest.raises(InputError, match="participants withdrew"):
        folkmoot.run(
            study, out=run_without_words.path, seats=("p_0002",), seat_host=by_hand(speaks)
        )


SAID = {
    "bo/ask0": "The river path floods every spring, so nobody walks there.",
    "ann/ask0": "I sold my grandfather's boat. Bo says: the river path floods every spring.",
    "ann/ask1": "The river path floods every spring, so nobody walks there.",
    "lead/ask0": "Ann, you sold your boat: I sold my grandfather's boat, you said. And Bo told us "
    "that the river path floods every spring.",
    "notes/ask0": "Ann parted with an heirloom and regrets the wet meadow.",
    "overview/ask0": "Both speak of water. One of them sold my grandfather's boat.",
    "bo/ask1": "I never had a boat.",
}


async def talk(session: Session[StudyConfig]) -> None:
    """Ann quotes Bo within a turn, then repeats a turn of his; a moderator quotes both of them."""
    heard = Transcript()
    speakers = {who: Speaker(who, name=who.title()) for who in ("ann", "bo")}
    speakers["lead"] = Speaker("lead", name="Lead", role="moderator")
    own: list[str] = []
    for who in ("bo", "ann", "ann", "lead", "bo"):
        scope = session.child(f"{who}{len(heard)}").child(who)
        said = await scope.ask(speakers[who], "What do you say?", history=heard, shows=())
        turn = scope.say(speakers[who], str(said), address=scope.address)
        heard += turn
        own += [turn.quoted_text] if who == "ann" else []
    notes, both = session.child("notes"), session.child("overview")
    writer = Speaker("writer", role="summarizer")
    prompt = concatenate_texts(("Sum up: ", join_texts("\n", own)), plain=None)
    summary = await notes.ask(writer, prompt)
    notes.say(writer, str(summary), address=notes.address, public=False)
    text = await both.ask(writer, "Sum up the talk.", history=heard, shows=())
    both.say(writer, str(text), address=both.address, public=False)
    await session.child("vectors").embed([str(summary), str(text)])


TALK = Study("talk", "A talk", StudyConfig, talk)
ANN = Seat("ann")


def give(request: object, address: str) -> str:
    counted = {"ann1": "ann/ask0", "ann2": "ann/ask1", "bo0": "bo/ask0", "bo4": "bo/ask1"}
    first, *_ = address.split("/")
    return SAID[counted.get(first, f"{first.rstrip('0123456789')}/ask0")]


@pytest.fixture(scope="module")
def finished_talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of TALK. No test changes it."""
    settings = {"model": "openai/gpt-4o", "embedding_model": "openai/text-embedding-3-small"}
    out = tmp_path_factory.mktemp("talk") / "talk"
    return folkmoot.run(TALK, settings, provider=ScriptedProvider(give), out=out).path


@pytest.fixture
def talked(finished_talk: Path, tmp_path: Path) -> RunFolder:
    """A run of TALK that a test may change."""
    return RunFolder(shutil.copytree(finished_talk, tmp_path / "talk"))


def messages(run: RunFolder) -> dict[str, list[str]]:
    with JournalReader(run.path / "journal.sqlite") as journal:
        asked = journal.read_entries("ask")
        return {
            entry.address: [message["content"] for message in entry.request["messages"]]
            for entry in asked
        }


def test_words_of_others_that_the_person_quoted_or_repeated_stay(talked: RunFolder) -> None:
    """Two cases in which a search for words erased those of everybody: the person quotes another
    speaker within a turn, or says the same as another speaker."""
    before = messages(talked)
    withdraw_texts(talked, find_personal_texts(talked, ANN), "researcher")
    said = dict(talked.read_table("utterances").select("address", "text").iter_rows())
    assert said["bo0/bo/ask0"] == SAID["bo/ask0"] and said["bo4/bo/ask0"] == SAID["bo/ask1"]
    assert said["lead3/lead/ask0"].endswith("Bo told us that the river path floods every spring.")
    assert WITHDRAWAL_MARK.fullmatch(said["ann1/ann/ask0"]) and WITHDRAWAL_MARK.fullmatch(
        said["ann2/ann/ask0"]
    )
    after = messages(talked)
    assert SAID["bo/ask0"] in before["bo4/bo/ask0"][0]
    assert SAID["bo/ask0"] in after["bo4/bo/ask0"][0]
    assert "\n".join(after["bo4/bo/ask0"]).count("river path") == 2  # of Bo, and of the moderator
    assert before["ann1/ann/ask0"] == after["ann1/ann/ask0"]  # before the person had said anything


async def name_speakers(session: Session[StudyConfig]) -> None:
    """Ann answers with one word, which is also a role, a stage and an id."""
    lead = Speaker("lead", role="moderator")
    for number, who in enumerate((Speaker("ann"), lead, Speaker("bo"))):
        await session.child("opening", str(number)).ask(who, "Who should speak?")


def test_a_word_that_is_also_a_name_of_the_protocol_stays_in_rows_of_others(tmp_path: Path) -> None:
    study = Study("names", "Names", StudyConfig, name_speakers)
    replies = {"opening/0/ask0": "Moderator, opening\nmoderator.\nlead\nopening"}
    model = ScriptedProvider(lambda _, address: replies.get(address, "I do."))
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    before = run.read_table("answers")
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    after = RunFolder(run.path).read_table("answers")
    assert held(run.path, "Moderator, opening") == [] and after["missing"][0] == WITHDRAWN
    assert before.filter(pl.col("speaker_id") != "ann").equals(
        after.filter(pl.col("speaker_id") != "ann")
    )
    assert after["stage"].to_list() == ["opening"] * 3


AGAIN = {
    "1/ann/ask0": "We should wait for the new bridge.",
    "0/bo/ask0": "As I see it, we should wait for the new bridge.",
    "2/bo/ask0": "Once more: we should wait for the new bridge. My barn is full.",
    "3/lead/ask0": "Ann said: WE SHOULD WAIT FOR the new bridge. Who else has a barn?",
    "4/lead/ask0": "Who else has a barn? Nobody said more about bridges.",
}


async def repeat(session: Session[StudyConfig]) -> None:
    """Bo says the same as Ann, before and after he has read it; a moderator quotes both."""
    heard = Transcript()
    speakers = {who: Speaker(who) for who in ("bo", "ann")}
    speakers["lead"] = Speaker("lead", role="moderator")
    for number, who in enumerate(("bo", "ann", "bo", "lead", "lead")):
        scope = session.child(str(number), who)
        said = await scope.ask(speakers[who], "Well?", history=heard, shows=())
        if number:  # nobody hears what is said first
            heard += scope.say(speakers[who], str(said), address=scope.address)


def test_what_a_speaker_had_said_before_is_no_quotation(tmp_path: Path) -> None:
    study = Study("again", "Again", StudyConfig, repeat)
    model = ScriptedProvider(lambda _, address: AGAIN[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    before = dict(run.read_table("utterances").select("address", "text").iter_rows())
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    after = dict(RunFolder(run.path).read_table("utterances").select("address", "text").iter_rows())
    assert WITHDRAWAL_MARK.fullmatch(after.pop("1/ann/ask0"))
    assert after == {address: before[address] for address in after}


PROPOSED = {
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
    """What Ann and Bo propose, as options."""
    proposals = []
    for who in ("ann", "bo"):
        scope = session.child("propose", who)
        said = await scope.ask(Speaker(who), SourcedText("Propose something."))
        proposals.append(scope.say(Speaker(who), str(said), address=scope.address).quoted_text)
    return proposals


async def vote_on_proposals(session: Session[StudyConfig]) -> None:
    """All vote on what Ann and Bo proposed, and no reply can be read at once."""
    proposals = await ask_for_proposals(session)
    voters = (Speaker("ann"), Speaker("bo"), Speaker("lead", role="moderator"))
    for voter in voters:
        choice, scope = (
            Choice(proposals, clarify=voter.id != "lead"),
            session.child("vote", voter.id),
        )
        await scope.ask(voter, choice.formatted_options, answer_type=choice)


def test_reasks_lose_the_words_of_the_person_and_keep_those_of_others(tmp_path: Path) -> None:
    """A clarifying question lists proposals again. After an empty reply, the question and the
    reply before it are sent again."""
    study = Study("votes", "Votes", StudyConfig, vote_on_proposals)
    model = ScriptedProvider(lambda _, address: PROPOSED[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    before = messages(run)
    assert [address for address in before if "porcelain" in "".join(before[address][-1])] == [
        *("vote/ann/ask0", "vote/ann/ask0.r1", "vote/bo/ask0", "vote/bo/ask0.r1"),
        *("vote/lead/ask0", "vote/lead/ask0.r1", "vote/lead/ask0.r2"),
    ]
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    assert held(run.path, "porcelain") == held(run.path, "godmother") == []
    after = messages(RunFolder(run.path))
    barns = {address: "".join(texts).count("Build a barn.") for address, texts in before.items()}
    assert {a: "".join(texts).count("Build a barn.") for a, texts in after.items()} == barns
    assert after["vote/bo/ask0.r1"][1] == "Both."
    assert after["vote/lead/ask0.r2"][1].endswith(".\n\nOr a barn.")
    levels = RunFolder(run.path).codebook()["answers"]["columns"]["said"]["levels"]
    assert levels["Both."] == 1 and sum(levels.values()) == 2
    wrong = find_wrong_sources(RunFolder(run.path), ())
    assert [found for found in wrong if not WITHDRAWAL_MARK.fullmatch(found.text)] == []


MENTIONED = {
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
    """Others vote for what Ann proposed, and name it in sentences of their own."""
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
def test_a_proposal_goes_from_votes_of_others_unless_the_study_offers_it(
    proposal: str, tmp_path: Path
) -> None:
    """A vote in other spelling and a sentence do not make a proposal a text of others. The
    options of the study stay."""
    study = Study("mentions", "Mentions", StudyConfig, mention_proposals)
    replies = MENTIONED | {"propose/ann/ask0": proposal}
    if proposal == "Yes.":
        replies["vote/bo/ask0"] = "**barn**"
    model = ScriptedProvider(lambda _, address: replies[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    left = RunFolder(run.path).read_table("answers")
    value, options = dict(left.select("address", "value").iter_rows()), left["options"].to_list()
    assert value["agree/bo/ask0"] == "yes" and '["yes", "no"]' in options
    if proposal == "Marmalade.":
        assert WITHDRAWAL_MARK.fullmatch(value["vote/bo/ask0"])
        assert not any("Marmalade" in listed for listed in options if listed)
        assert "Marmalade" not in "".join(map("".join, messages(RunFolder(run.path)).values()))
        with JournalReader(run.path / "journal.sqlite") as journal:
            reply = {entry.address: entry.reply for entry in journal.read_entries("ask")}
        mark = reply["vote/bo/ask0"].strip("*")
        assert reply["discuss/ask0"] == f"A barn is dear. Is Ann's {mark} cheaper? Marmalades are."
        assert reply["count/ask0"] == f'{{"{mark}": "yes, one is for {mark}", "Barn": 1}}'


RECEIVED = {
    "0/bo/ask0": "We should build a library by the lake.",
    "1/ann/ask0": "Build a library",
    "2/lead/ask0": "Would a group without money build a library?",
    "3/bo/ask0": "Build a library",
}


async def propose_what_was_read(session: Session[StudyConfig]) -> None:
    """Ann proposes what Bo had said before. A moderator, who reads the proposal alone, names it."""
    own: list[str] = []
    for number, who in enumerate(("bo", "ann", "lead")):
        role = "moderator" if who == "lead" else "participant"
        scope, speaker = session.child(str(number), who), Speaker(who, role=role)
        said = await scope.ask(speaker, join_texts("\n", [SourcedText("Well?"), *own[-1:]]))
        own.append(scope.say(speaker, str(said), address=scope.address).quoted_text)
    choice = Choice([own[1]])
    await session.child("3", "bo").ask(Speaker("bo"), choice.formatted_options, answer_type=choice)


def test_a_proposal_that_the_person_had_read_before_is_no_quotation(tmp_path: Path) -> None:
    study = Study("received", "Received", StudyConfig, propose_what_was_read)
    model = ScriptedProvider(lambda _, address: RECEIVED[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    with JournalReader(run.path / "journal.sqlite") as journal:
        left = {entry.address: entry.reply for entry in journal.read_entries("ask")}
    assert WITHDRAWAL_MARK.fullmatch(left.pop("1/ann/ask0"))
    assert left == {address: RECEIVED[address] for address in left}


SHARED = {
    "propose/ann/ask0": "Marmalade",
    "propose/bo/ask0": "Jam tarts",
    "talk/ask0": "There was marmalade.",
    "vote/carl/ask0": "2",
    "vote/eve/ask0": "Marmalade",
    "count/ask0": "One is for jam tarts, one for marmalade.",
}


async def vote_on_a_shared_word(session: Session[StudyConfig]) -> None:
    """Dan, who has read no proposal, says a word that is also a proposal. Others vote on it."""
    proposals, votes = await ask_for_proposals(session), []
    await session.child("talk").ask(Speaker("dan"), SourcedText("How was breakfast?"))
    for who in ("carl", "eve"):
        choice, scope = Choice(proposals), session.child("vote", who)
        votes.append(await scope.ask(Speaker(who), choice.formatted_options, answer_type=choice))
    lead = Speaker("lead", role="moderator")
    await session.child("count").ask(lead, join_texts("\n", votes))


def test_votes_for_a_proposal_go_also_if_another_speaker_used_its_words(tmp_path: Path) -> None:
    """The vote goes from the row and from later prompts, as from the reply. The options of the
    question are known as proposals also when the next human withdraws."""
    study = Study("shared", "Shared", StudyConfig, vote_on_a_shared_word)
    model = ScriptedProvider(lambda _, address: SHARED[address])
    run = folkmoot.run(study, {"model": "openai/x"}, provider=model, out=tmp_path / "run").folder
    for who in ("ann", "bo"):
        withdraw_texts(run, find_personal_texts(RunFolder(run.path), Seat(who)), "researcher")
        left = RunFolder(run.path)
        value = dict(left.read_table("answers").select("address", "value").iter_rows())
        assert WITHDRAWAL_MARK.fullmatch(value["vote/eve/ask0"])
        assert "Marmalade" not in "".join(messages(left)["count/ask0"])
    for spelled in ("Jam tarts", "jam tarts", "Marmalade"):
        assert held(run.path, spelled) == []
    assert "journal.sqlite" in held(run.path, SHARED["talk/ask0"])


async def quote_often(session: Session[StudyConfig]) -> None:
    """A moderator who speaks in many discussions names what Ann proposed in each of them."""
    lead, scope = Speaker("lead", role="moderator"), session.child("propose", "ann")
    said = await scope.ask(Speaker("ann"), SourcedText("Propose something."))
    proposal = scope.say(Speaker("ann"), str(said), address=scope.address).quoted_text
    choice = Choice([proposal])
    await session.child("vote").ask(lead, choice.formatted_options, answer_type=choice)
    for number in range(session.config.max_tokens):
        discussion = session.child("discuss", str(number))
        text = await discussion.ask(lead, join_texts("\n", [proposal]))
        discussion.say(lead, str(text), address=discussion.address)


def test_the_work_grows_with_the_run_and_not_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted are the characters that are split into words, and the searches for a text."""
    work, read, search = 0, Words.__init__, Words.find_word_sequence

    def count_characters(words: Words, text: str) -> None:
        nonlocal work
        work += len(text)
        read(words, text)

    def count_searches(words: Words, wanted: str) -> Iterator[int]:
        nonlocal work
        work += len(words.line)
        return search(words, wanted)

    def reply(_: object, address: str) -> str:
        if not address.startswith("discuss/"):
            return "Marmalade"
        return f"Discussion {address} is on marmalade, and on other things."

    study, done = Study("often", "Often", StudyConfig, quote_often), []
    for count in (40, 80):
        settings = {"model": "openai/x", "max_tokens": count}
        model, out = ScriptedProvider(reply), tmp_path / str(count)
        run = folkmoot.run(study, settings, provider=model, out=out).folder
        with monkeypatch.context() as patched:
            patched.setattr(Words, "__init__", count_characters)
            patched.setattr(Words, "find_word_sequence", count_searches)
            work = 0
            withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
            done.append(work)
        assert held(run.path, "marmalade") == []
    assert done[1] < 2.2 * done[0]


def test_quotations_by_any_speaker_are_listed_and_removed(talked: RunFolder) -> None:
    found = find_personal_texts(talked, ANN)
    quoted = {reply.address: reply.words for reply in found.replies if reply.use == QUOTATION}
    assert quoted == {
        "lead3/lead/ask0": ("I sold my grandfather's boat",),
        "overview/ask0": ("sold my grandfather's boat",),
    }
    listed = "\n".join(describe_texts(found))
    assert "unknown source" in listed
    assert "lead3/lead/ask0 (moderator lead) “I sold my grandfather's boat”" in listed
    withdraw_texts(talked, found, "researcher")
    assert held(talked.path, "grandfather") == []
    said = dict(talked.read_table("utterances").select("address", "text").iter_rows())
    assert said["lead3/lead/ask0"].startswith("Ann, you sold your boat: [withdrawn ")
    assert said["overview/ask0"].startswith("Both speak of water. One of them [withdrawn ")


def test_a_summary_of_this_person_alone_goes_with_its_embedding(talked: RunFolder) -> None:
    found = find_personal_texts(talked, ANN)
    uses = {reply.address: reply.use for reply in found.replies if reply.use != QUOTATION}
    assert uses == {"notes/ask0": SUMMARY, "overview/ask0": DESCRIPTION}
    withdraw_texts(talked, found, "researcher")
    assert held(talked.path, "heirloom") == []
    with JournalReader(talked.path / "journal.sqlite") as journal:
        (vectors,) = (entry.blob for entry in journal.read_entries("embed"))
    summary, overview = np.frombuffer(vectors or b"", dtype=np.float32).reshape(2, -1)
    assert np.isnan(summary).all() and np.isnan(overview).all()


def test_the_run_that_is_left_has_the_digest_that_the_amendment_names(talked: RunFolder) -> None:
    withdraw_texts(talked, find_personal_texts(talked, ANN), "researcher")
    found = verify_run(talked, TALK)
    (amendment,) = read_withdrawals(talked.path)
    assert found.differences == [] and not found.is_consistent
    assert found.content_digest == amendment.data["journal_digest"]
    assert amendment.data["quotations"] == ["lead3/lead/ask0", "overview/ask0"]


class KilledError(BaseException):
    """Represents SIGKILL: no code of the withdrawal runs after it."""


@pytest.mark.parametrize("steps", sample_daily(range(9), daily=[0, 1, 3, 6, 8], part="kills"))
def test_an_interrupted_withdrawal_is_completed_by_the_next(
    steps: int, talked: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, rename = steps, Path.replace

    def fail(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(KilledError):
            withdraw_texts(talked, find_personal_texts(talked, ANN), "researcher")
    run = RunFolder(talked.path)
    if not finish_withdrawal(run.path):
        assert "journal.sqlite" in held(run.path, "grandfather")
        withdraw_texts(run, find_personal_texts(run, ANN), "researcher")
    assert held(run.path, "grandfather") == held(run.path, "heirloom") == []
    assert len(read_withdrawals(run.path)) == 1
    assert verify_run(run, TALK).differences == []


def test_a_killed_process_leaves_a_withdrawal_that_can_be_done_again(talked: RunFolder) -> None:
    """A process that kills itself when the first prepared file has taken its place."""
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
    done = subprocess.run([sys.executable, "-c", code, str(talked.path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert finish_withdrawal(talked.path)
    assert held(talked.path, "grandfather") == []
    assert verify_run(RunFolder(talked.path), TALK).differences == []


@pytest.mark.parametrize("completed_by_another", [True, False])
def test_the_process_that_completes_an_interrupted_withdrawal_says_so(
    completed_by_another: bool,
    tmp_path: Path,
    finished_run: folkmoot.Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another process holds the lock before this one, and completes a withdrawal or is killed."""
    staged, aside = finished_run.path / STAGING_FOLDER, tmp_path / "aside"
    acquire = FileLock.acquire

    def fail(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("folkmoot.engine.seats.withdrawal.replace_journal", fail)
        with pytest.raises(KilledError):
            withdraw_command(str(finished_run.path), "p_0002", yes=True)
    if not completed_by_another:
        staged.rename(aside)

    def acquire_after_another(lock: FileLock, timeout: float | None = None) -> object:
        if completed_by_another:
            finish_withdrawal(finished_run.path)
        elif aside.exists():
            aside.rename(staged)
        return acquire(lock, timeout)

    capsys.readouterr()
    monkeypatch.setattr(FileLock, "acquire", acquire_after_another)
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    told = capsys.readouterr().out
    assert ("interrupted is now complete" in told) is not completed_by_another
    assert "has withdrawn from this run already" in told
    assert held(finished_run.path, HIDDEN[0]) == []


def test_without_a_terminal_the_texts_are_listed_and_nothing_is_deleted(
    finished_run: folkmoot.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = held(finished_run.path, HIDDEN[0])
    with pytest.raises(typer.Exit):
        withdraw_command(str(finished_run.path), "p_0002", yes=False)
    assert held(finished_run.path, HIDDEN[0]) == before and not read_withdrawals(finished_run.path)
    told = capsys.readouterr().out
    assert "answers of this participant" in told and "Add --yes" in told


def test_later_codings_are_deleted_and_can_be_made_again(study: Path) -> None:
    """The journal of a later coding holds the texts that were coded, also in re-asks."""
    study.write_text(f"{FOCUS}coding: off\n", "utf-8")
    run = folkmoot.run(study, out=study.parent / "a", seats=("p_0002",), seat_host=by_hand(speaks))
    options = RunOptions(custom_provider=make_coder(code_by_words))
    code_finished_run(run.folder, SECOND, options)
    assert any(name.startswith("codings/") for name in held(run.path, HIDDEN[0]))
    withdraw_command(str(run.path), "p_0002", yes=True)
    assert held(run.path, HIDDEN[0]) == []
    assert list(verify_codings(RunFolder(run.path))) == []
    code_finished_run(RunFolder(run.path), SECOND, options)
    assert held(run.path, HIDDEN[0]) == []
    assert [found.differences for _, found in verify_codings(RunFolder(run.path))] == [[]]


def test_quotes_in_corrections_of_codes_go_with_the_text(finished_run: folkmoot.Run) -> None:
    """A coder corrects a code on a sheet, and the amendment quotes two words of the text."""
    texts = finished_run.table("texts").select("text_id", "text").rows()
    amendments = [
        Amendment("code", "Eva", "2026-01-01", {"text_id": text_id, "quote": " ".join(words[1:3])})
        for text_id, text in texts
        if len(words := text.split()) > 2
    ]
    append_amendments(finished_run.path, amendments)
    assert "amendments.jsonl" in held(finished_run.path, "grandmother's porcelain")
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert held(finished_run.path, HIDDEN[0]) == []
    left = {text_id: text for text_id, text in texts if HIDDEN[0] not in text}
    quoted = {
        item.data["text_id"]: item.data["quote"] for item in read_amendments(finished_run.path)[:-1]
    }
    assert len(quoted) == len(amendments) > len(left) > 0
    assert [
        text_id for text_id in left if text_id in quoted and quoted[text_id] not in left[text_id]
    ] == []
    assert verify_run(RunFolder(finished_run.path)).differences == []


def test_a_researcher_can_take_a_persons_words_out_later(
    tmp_path: Path,
    finished_run: folkmoot.Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("folkmoot.storage.run_folder.user_cache_dir", lambda: tmp_path / "cache")
    (finished_run.path / "report.html").write_text(SPOKEN)
    cached = cache_folder(finished_run.path) / "findings.html"  # what `folkmoot view` made
    cached.parent.mkdir(parents=True)
    cached.write_text(SPOKEN)
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert held(finished_run.path, HIDDEN[0]) == held(tmp_path / "cache", HIDDEN[0]) == []
    assert read_withdrawals(finished_run.path)[0].author == "researcher"
    withdraw_command(str(finished_run.path), "p_0002", yes=True)
    assert "has withdrawn from this run already" in capsys.readouterr().out
    with pytest.raises(InputError, match="there is no seat p_0001"):
        withdraw_command(str(finished_run.path), "p_0001", yes=True)
