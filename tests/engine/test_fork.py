"""Forks: one reply is changed, what depends on it is asked, everything else is taken over."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import ReplyReplacement, fork_change
from folkmoot.engine.run.fork_repeats import pairs_of, repeat_fork, resume_repeats
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.study.study import registered_studies
from folkmoot.errors import DriftError, ForeignJournalError, InputError, StorageError
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.pooled import pooled_findings
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.contract.small import people_of, small_study
from tests.sweeps import sample_daily

SmallRun = Callable[[str], Path]
WORDS = "The costs are unfair, and my neighbours would have to leave."


class Crash(Exception):
    """Represents whatever ends a process before its run is finished."""


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def public_words(run: Path) -> tuple[str, str]:
    """The first public utterance that a later prompt quotes: its id and its text."""
    table = pl.read_parquet(run / "tables" / "utterances.parquet")
    quoted = pl.read_parquet(run / "tables" / "provenance.parquet")["source_id"].implode()
    heard = table.filter(
        (pl.col("address") != "") & (pl.col("text") != "") & pl.col("utterance_id").is_in(quoted)
    )
    said = heard.filter(pl.col("public")) if heard["public"].any() else heard
    return said["utterance_id"][0], said["text"][0]


def entries(run: Path) -> dict[str, tuple[bytes, str, int]]:
    with JournalReader(run / JOURNAL) as journal:
        return {e.address: (e.fingerprint, e.reply, e.attempts) for e in journal.read_entries()}


# Daily one type without a verification of its own below, and one with it.
@pytest.mark.parametrize(
    "study",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "workbook"), part="sweeps"
    ),
)
def test_only_what_depends_on_the_reply_is_asked(
    study: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study(study)
    before = hashes(base)
    name, text = public_words(base)
    words = ("no" if text == "yes" else "yes") if study == "workbook" else WORDS
    fork = folkmoot.fork(base, name, say=words, out=tmp_path / "fork")

    was, now = entries(base), entries(fork.path)
    told = fork.manifest["fork"]
    change = fork_change(fork.folder)
    assert change is not None and words in now[change.address][1]
    assert now[change.address][0] == was[change.address][0], "the question is the same"
    asked = {address for address, (_, _, attempts) in now.items() if attempts}
    assert asked, "something heard these words"
    for address, (fingerprint, reply, attempts) in now.items():
        if address not in asked and address != change.address:
            assert was[address][:2] == (fingerprint, reply)
        elif attempts:
            assert address not in was or was[address][0] != fingerprint, address
    assert told["asked"] == sum("compute" not in address for address in asked)
    assert 0 < told["asked"] < RunFolder(base).manifest["calls"] / 2
    assert (fork.path / "plan.json").read_text("utf-8").count(change.journal_digest) == 1
    assert hashes(base) == before
    if study in ("focus_group", "workbook"):  # a rebuilding takes as long as the fork
        verified = verify_run(fork.folder)
        assert verified.is_consistent, (verified.differences, verified.not_compared)


def test_the_same_words_change_nothing(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = run_of_small_study("focus_group")
    name, text = public_words(base)
    fork = folkmoot.fork(base, name, say=text, out=tmp_path / "fork")
    assert fork.manifest["fork"]["asked"] == 0
    for table in RunFolder(base).table_names():
        assert fork.folder.read_table(table).equals(RunFolder(base).read_table(table)), table


def test_compare_shows_both_talks_and_who_read_the_words(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study("focus_group")
    name, text = public_words(base)
    fork = folkmoot.fork(base, name, say=WORDS, out=tmp_path / "fork")
    found = next(f for f in compare_runs([RunFolder(base), fork.folder]) if f.key == "fork")
    assert WORDS in found.says and text in found.says
    rows = [dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows]
    spans = fork.table("provenance").filter(pl.col("source_id") == name)
    read = set(spans["address"])
    assert read and {r["address"] for r in rows if r["changed words in the prompt"] == "yes"} == {
        a for a in read if a in {r["address"] for r in rows}
    }
    assert f"were in {len(read)} later prompt" in found.says
    with JournalReader(fork.path / JOURNAL) as journal:
        for address in read:
            assert any(WORDS in m.content for m in journal.messages(address))


def test_a_reply_is_left_out(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = run_of_small_study("cross_pollination")
    votes = RunFolder(base).read_table("answers").filter(pl.col("kind") == "choice")
    address = votes["address"][-1]
    fork = folkmoot.fork(base, address, drop=True, out=tmp_path / "fork")
    answer = fork.table("answers").filter(pl.col("address") == address)
    assert answer["missing"].to_list() == ["dropped"]
    assert verify_run(fork.folder).is_consistent


def test_another_model_gives_the_reply(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> Completion | str:
        if request.model == "gpt-4o":
            return Completion("Something else entirely.", model_served="gpt-4o-2024-11-20")
        return inner.complete_request(request, address=address)  # type: ignore[return-value]

    inner = people_of("focus_group")
    source = small_study("focus_group", tmp_path)
    base = folkmoot.run(
        source,
        out=tmp_path / "run",
        provider=people_of("focus_group"),
        overrides=("replications=1", "phases=[warmup, reaction]"),
    )
    replies = base.table("utterances").filter(
        (pl.col("speaker_role") == "participant") & (pl.col("address") != "")
    )
    address = replies["address"][0]
    fork = folkmoot.fork(
        base, address, model="gpt-4o", out=tmp_path / "fork", provider=ScriptedProvider(answer)
    )
    with JournalReader(fork.path / JOURNAL) as journal:
        asked = {e.model_asked for e in journal.read_entries("ask") if e.address == address}
        others = {
            e.model_asked for e in journal.read_entries("ask") if not e.address.startswith(address)
        }
    assert asked == {"gpt-4o"} and "gpt-4o" not in others
    served = {m["asked"]: m["served"] for m in fork.manifest["models"]}
    assert served["gpt-4o"] == ["gpt-4o-2024-11-20"]
    row = fork.table("answers").filter(pl.col("address") == address)
    assert row["model_asked"].to_list() == ["gpt-4o"]
    assert verify_run(fork.folder).is_consistent


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a town hall with a provider of its own. A test reads it only."""
    folder = tmp_path_factory.mktemp("hall")
    source = small_study("town_hall", folder)
    text = source.read_text("utf-8").replace("levels: [1, 4]", "levels: [1]")
    source.write_text(text, "utf-8")
    return folkmoot.run(source, out=folder / "run", provider=people_of("town_hall")).path


def test_a_killed_fork_goes_on_where_it_was(hall: Path, tmp_path: Path) -> None:
    inner = people_of("town_hall")
    answered = 0

    async def answer(request: ModelRequest, address: str) -> Completion:
        nonlocal answered
        answered += 1
        if answered == 4:
            raise Crash
        return await inner.complete_request(request, address=address)

    name, _ = public_words(hall)
    whole = folkmoot.fork(
        hall, name, say=WORDS, out=tmp_path / "whole", provider=people_of("town_hall")
    )
    with pytest.raises(Crash):
        folkmoot.fork(
            hall, name, say=WORDS, out=tmp_path / "fork", provider=ScriptedProvider(answer)
        )
    fork = folkmoot.fork(
        hall, name, say=WORDS, out=tmp_path / "fork", provider=people_of("town_hall")
    )
    assert fork.manifest["journal_digest"] == whole.manifest["journal_digest"]
    assert fork.manifest["fork"]["asked"] == whole.manifest["fork"]["asked"] > 4
    with JournalReader(fork.path / JOURNAL) as journal:
        assert journal.count_calls() == fork.manifest["fork"]["asked"], "the budget counts no other"


def test_words_that_answer_no_question_are_refused(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study("cross_pollination")
    votes = RunFolder(base).read_table("answers").filter(pl.col("kind") == "choice")
    with pytest.raises(InputError, match="cannot be read"):
        folkmoot.fork(base, votes["address"][0], say="a holiday", out=tmp_path / "fork")
    assert not (tmp_path / "fork").exists()


def test_mistakes_are_told(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = run_of_small_study("town_hall")
    out = tmp_path / "fork"
    with pytest.raises(InputError, match="did you mean set01_lv1/round1/session/ask0"):
        folkmoot.fork(base, "set01_lv1/round1/session/ask9", say="…", out=out)
    with pytest.raises(InputError, match="contains utterances of several speakers"):
        folkmoot.fork(base, "set01_lv1/round1/session/ask0", say="…", out=out)
    with pytest.raises(InputError, match="one reply in one way"):
        folkmoot.fork(base, "set01_lv1/round1/session/ask0", say="…", drop=True, out=out)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(base, unfinished)
    (unfinished / "manifest.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        folkmoot.fork(unfinished, "set01_lv1/round1/session/ask0", drop=True, out=out)
    assert not out.exists()


def three_questions(first: str, second: str = "And then?") -> Study:
    async def protocol(session: Session) -> None:
        heard: list[str] = []
        for question in (first, second, "What follows?"):
            scope = session.child(f"q{len(heard)}")
            said = await scope.ask(Speaker("a", "A"), f"{question} {' '.join(heard)}")
            heard.append(str(said))
            scope.say(Speaker("a", "A"), said)

    return Study("three", "Three questions", StudyConfig, protocol, tables=())


def test_a_study_that_asks_otherwise_is_no_fork(tmp_path: Path) -> None:
    """What differs before the changed reply would be taken for its effect."""

    def echo() -> ScriptedProvider:
        return ScriptedProvider(
            lambda request, address: f"{len(request.messages[-1].content)} characters"
        )

    study = three_questions("How do you do?")
    base = folkmoot.run(study, {}, out=tmp_path / "run", provider=echo())
    options = {"say": "Well.", "out": tmp_path / "fork", "provider": echo()}
    with pytest.raises(DriftError, match="before the changed reply"):
        folkmoot.fork(base, "q1/ask0", study=three_questions("How are you?"), **options)
    fork = folkmoot.fork(base, "q1/ask0", study=study, **options)
    assert fork.manifest["fork"]["asked"] == 1, "the last question alone hears the second reply"
    assert fork.manifest["calls"] == 3


def test_a_fork_that_would_ask_otherwise_is_told_to_be_made_again(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> str:
        if address == "q2/ask0" and not is_resumed:
            raise Crash
        return f"{len(request.messages[-1].content)} characters"

    is_resumed = True
    study, out = three_questions("How do you do?"), tmp_path / "fork"
    base = folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(answer))
    options = {"say": "Well.", "out": out, "provider": ScriptedProvider(answer)}
    is_resumed = False
    with pytest.raises(Crash):
        folkmoot.fork(base, "q0/ask0", study=study, **options)
    is_resumed = True
    changed = three_questions("How do you do?", "And now?")
    with pytest.raises(DriftError, match="make it again in another folder") as refused:
        folkmoot.fork(base, "q0/ask0", study=changed, **options)
    assert "+" in str(refused.value) and "And now?" in str(refused.value)
    assert "accept-changes" not in str(refused.value)
    assert folkmoot.fork(base, "q0/ask0", study=study, **options).manifest["fork"]["asked"] == 2


def test_a_resumed_fork_wants_the_run_it_came_from(hall: Path, tmp_path: Path) -> None:
    base, out = Path(shutil.copytree(hall, tmp_path / "run")), tmp_path / "fork"
    name, _ = public_words(base)

    def die(_request: ModelRequest, _address: str) -> str:
        raise Crash

    with pytest.raises(Crash):
        folkmoot.fork(base, name, say=WORDS, out=out, provider=ScriptedProvider(die))
    source, people = hall.parent / "town_hall.yaml", people_of("town_hall")
    other = folkmoot.run(source, seed=7, out=tmp_path / "other", provider=people)
    shutil.copy(other.path / JOURNAL, base / JOURNAL)
    with pytest.raises((ForeignJournalError, InputError)):
        folkmoot.fork(base, name, say=WORDS, out=out, provider=people_of("town_hall"))


@pytest.mark.parametrize("out", ["file", "file/forks"])
def test_repeats_in_a_place_that_is_no_folder_are_refused(
    out: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = RunFolder(run_of_small_study("cross_pollination"))
    name, _ = public_words(base.path)
    (tmp_path / "file").write_text("")
    options = RunOptions(out=tmp_path / out)
    with pytest.raises(StorageError, match="a file is where a folder is needed"):
        repeat_fork(base, name, ReplyReplacement(say=WORDS), 2, options)


@pytest.mark.nightly(part="truths")
def test_repeats_tell_a_reply_from_chance(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = RunFolder(run_of_small_study("cross_pollination"))
    before = hashes(base.path)
    name, _ = public_words(base.path)
    options = RunOptions(out=tmp_path / "forks")
    grid = repeat_fork(base, name, ReplyReplacement(say=WORDS), 2, options)
    assert hashes(base.path) == before
    for changed, as_it_was in pairs_of(grid):
        first, second = grid.run(changed), grid.run(as_it_was)
        assert first is not None and second is not None
        change, same = fork_change(first), fork_change(second)
        assert change is not None and same is not None
        assert change.draw == same.draw == changed.repeat
        own, other, was = entries(first.path), entries(second.path), entries(base.path)
        assert other[same.address][1] == was[same.address][1]
        assert WORDS in own[change.address][1]
        # Both sides ask what follows from the reply, so that chance is alike in both.
        asked = {a for a, (_, _, n) in own.items() if n and "compute" not in a}
        again = {a for a, (_, _, attempts) in other.items() if attempts}
        assert set(same.asked_again) == asked and (asked & set(other)) <= again
        assert verify_run(second).is_consistent
    assert [cell.seed for cell in grid.cells if cell.repeat == 1] == [43, 43], "sent to models"
    (found,) = pooled_findings(
        grid
    )  # repeats have the same people, so no claim is judged over them
    assert found.key == "fork_effect"
    rows = [dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows]
    assert rows[0]["figure"] == "closed answers that differ from the run"
    assert rows[0]["difference"] == pytest.approx(rows[0]["changed"] - rows[0]["as it was"])
    assert all(row["low"] is None for row in rows), "two repeats give no interval"
    again_grid = resume_repeats(tmp_path / "forks", RunOptions())
    assert [c.name for c in again_grid.cells] == [c.name for c in grid.cells]
