"""A damaged journal is refused or its damage is named; nothing crashes, and no damaged value is
shown or used."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Scope, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal import BrokenReply, Journal
from folkmoot.engine.journal.journal_file import BatchRecord
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import ForeignJournalError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from tests.sweeps import sample_daily

ANN = Speaker(
    "p_0001", "Ann", "participant", "You are Ann. " * 30
)  # long enough to be stored apart


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every table that a journal can have, and a row in each."""
    folder = tmp_path_factory.mktemp("whole")

    def study(question: str) -> Study:
        async def protocol(session: Session) -> None:
            async def ask_one(scope: Scope, number: int) -> None:
                scope.record("said", {"text": str(await scope.ask(ANN, f"{question} {number}?"))})

            await session.child("first").map(range(3), ask_one)
            await session.child("vectors").embed(["a tree", "a river"])
            await session.child("sum").compute(sum, [1, 2], name="sum")

        return Study("own", "Own", StudyConfig, protocol)

    model = ScriptedProvider(lambda _request, address: f"said at {address}")
    for question, changed in (("What", False), ("Why", True)):
        folkmoot.run(
            study(question),
            {},
            out=folder / "run",
            provider=model,
            accept_changes=changed,
        )
    with Journal(folder / "run" / JOURNAL) as journal:
        journal.note(BatchRecord("b1", "m/x", "id", 2, 1.0, 2.0), ["k1", "k2"]).result()
        journal.put_broken(BrokenReply(5.0, "first/1/ask0", "m/x", 0.25)).result()
    return folder / "run"


def tables_of(db: sqlite3.Connection) -> list[str]:
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [row[0] for row in found.fetchall()]


def columns_of(db: sqlite3.Connection, table: str) -> tuple[list[str], str]:
    """The columns of a table, and the one by which a row is found."""
    info = db.execute(f"PRAGMA table_info({table})").fetchall()
    keys = [row[1] for row in info if row[5]]
    return [row[1] for row in info], keys[0] if keys else "rowid"


def changes_of(value: object) -> list[object]:
    """The value with one bit changed, in several places, and as another type."""
    if value is None:
        return [0, 1.5, "x"]
    if isinstance(value, int):
        return [value ^ 1, value ^ 64]
    if isinstance(value, float):
        return [value + 1.0, -value or 1.0]
    raw = value.encode() if isinstance(value, str) else value
    assert isinstance(raw, bytes)
    places = sorted({0, len(raw) // 2, len(raw) - 1}) if raw else []
    flipped = [
        raw[:place] + bytes([raw[place] ^ bit]) + raw[place + 1 :]
        for place in places
        for bit in (1, 128)
    ]
    return [*flipped, raw + b"x"]


def changed_copies(whole: Path, path: Path) -> Iterator[tuple[str, str, str, object]]:
    """Copies of a journal at `path` with one value changed: table, column, row, and its new
    value."""
    with closing(sqlite3.connect(whole)) as db:
        tables = [(table, *columns_of(db, table)) for table in tables_of(db)]
        for table, columns, key in tables:
            rows = db.execute(f"SELECT {key} FROM {table}").fetchall()
            assert rows, f"{table} is empty"
            for (row,), column in product(rows, columns):
                cell = f"SELECT {column} FROM {table} WHERE {key} = ?"
                value = db.execute(cell, (row,)).fetchone()[0]
                kept = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
                for changed in changes_of(value):
                    shutil.copy(whole, path)
                    with closing(sqlite3.connect(path)) as copy, copy:
                        # Hundreds of copies would each wait for the disk.
                        copy.execute("PRAGMA synchronous = OFF")
                        change = f"UPDATE OR IGNORE {table} SET {column} = {kept} WHERE {key} = ?"
                        if not copy.execute(change, (changed, row)).rowcount:
                            continue
                    yield table, column, str(row), changed


def test_every_change_of_a_value_is_named_and_no_run_goes_on_from_it(
    whole: Path, tmp_path: Path
) -> None:
    """Each value of each table: what belongs to an entry is named with an address, the rest by its
    table. A run is refused for each twentieth."""
    path, count, missed = tmp_path / JOURNAL, 0, []
    for table, column, row, changed in changed_copies(whole / JOURNAL, path):
        if table == "meta" and row == "software":
            continue  # named in the error for a format of times to come, and nowhere else
        count += 1
        if count % 20 == 0:
            before = path.read_bytes()
            with pytest.raises(ForeignJournalError):
                Journal(path)
            assert path.read_bytes() == before
        try:
            with JournalReader(path) as journal:
                damage = journal.find_damage()
        except ForeignJournalError:
            continue  # no journal of a known format any more
        of_entry = table in ("entries", "superseded")
        if not damage or (of_entry and not any(d.address for d in damage)):
            missed.append((table, column, row, changed))
    assert count > 500 and missed == []


def commands(run: Path) -> list[list[str]]:
    return [
        ["verify", str(run)],
        ["show", str(run), "p_0001"],
        ["show", str(run)],
        ["report", str(run)],
    ]


# Two named parts of the file and another place; all others in the nightly tests.
PLACES = sample_daily(range(24), daily=(0, 2, 5), part="mutations")


@pytest.mark.parametrize("place", PLACES)
def test_no_flipped_bit_of_the_file_crashes_a_command(
    place: int, small_pilot: Path, tmp_path: Path
) -> None:
    """Bits all over the file: its header, its pages, its cells. What is printed is a result, or an
    error in words; a damaged journal never counts as verified."""
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    shutil.copy(small_pilot.parent / "study" / "cross_pollination.yaml", tmp_path)
    path = run / JOURNAL
    raw = bytearray(path.read_bytes())
    named = (18, 100, 105, 4096)  # parts of the header, of the first page and of the second
    at = named[place] if place < len(named) else place * 7919 * 104_729 % len(raw)
    raw[at] ^= 1 << (place % 8)
    path.write_bytes(raw)
    for command in commands(run):
        done = CliRunner().invoke(app, command)
        assert done.exit_code in (0, 2, 4), (at, command, done.output, done.exception)
        assert "Internal error" not in done.output


# --- repair -------------------------------------------------------------------------------------


def invoke(*command: str, code: int = 0, answer: str | None = None) -> str:
    done = CliRunner().invoke(app, list(command), input=answer)
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture
def damaged(small_pilot: Path, tmp_path: Path) -> Path:
    """A finished run in which the first vote of one participant was changed, and another's cost."""
    shutil.copy(small_pilot.parent / "study" / "cross_pollination.yaml", tmp_path)
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    with closing(sqlite3.connect(run / JOURNAL)) as db, db:
        first = "number = (SELECT min(number) FROM entries WHERE kind = 'ask')"
        assert db.execute(f"UPDATE entries SET reply = 'x' WHERE {first}").rowcount == 1
        assert db.execute("UPDATE entries SET cost_usd = 3 WHERE number = 30").rowcount == 1
    return run


def test_a_repair_tells_first_and_changes_nothing_without_consent(damaged: Path) -> None:
    before = {p: p.read_bytes() for p in damaged.rglob("*") if p.is_file() and p.name != ".lock"}
    said = invoke("verify", str(damaged), "--repair", code=4, answer="n\n")
    assert "2 answers would be set aside and asked again: about $0" in said
    calls = RunFolder(damaged).manifest["calls"]
    assert f"at most {calls - 2} calls" in said and "changed since it was written" in said
    after = {p: p.read_bytes() for p in damaged.rglob("*") if p.is_file() and p.name != ".lock"}
    assert after == before


def test_a_repaired_run_asks_again_and_is_what_it_was(damaged: Path, small_pilot: Path) -> None:
    study = str(damaged.parent / "cross_pollination.yaml")
    resume = ("run", study, "--out", str(damaged), "--resume", "--model", "synthetic")
    assert "--repair" in invoke(*resume, code=2)
    old = (damaged / JOURNAL).read_bytes()
    said = invoke("verify", str(damaged), "--repair", "--yes")
    assert "journal-damaged-1.sqlite keeps the old journal" in said
    assert (damaged / "journal-damaged-1.sqlite").read_bytes() == old
    assert RunFolder(damaged).partial
    with JournalReader(damaged / JOURNAL) as journal, JournalReader(small_pilot / JOURNAL) as was:
        assert journal.find_damage() == [] and len(journal) == len(was) - 2
    invoke(*resume)
    assert RunFolder(damaged).is_finished
    with JournalReader(damaged / JOURNAL) as journal, JournalReader(small_pilot / JOURNAL) as was:
        assert journal.content_digest() == was.content_digest()
    said = invoke("verify", str(damaged))
    assert "Consistent" in said and "1 × repair, by researcher" in said


def test_later_requests_that_differ_are_asked_again_after_a_repair(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        first = await session.ask(ANN, "A word?")
        second = await session.ask(ANN, f"Another word than {first}?")
        session.record("words", {"first": str(first), "second": str(second)})

    study = Study("words", "Words", StudyConfig, protocol)

    def run_with(word: str) -> folkmoot.Run:
        model = ScriptedProvider(lambda _request, _address: word)
        return folkmoot.run(study, {}, out=tmp_path / "run", provider=model)

    run_with("oak")
    path = tmp_path / "run" / JOURNAL
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entries SET reply = 'ash' WHERE number = 1")
    invoke("verify", str(tmp_path / "run"), "--repair", "--yes")
    done = run_with("elm")
    assert done.table("words").row(0) == ("elm", "elm")
    with JournalReader(path) as journal:
        assert [e.reply for e, _ in journal.all_rows("superseded")] == ["oak"]
    # Once it is repaired, a request that differs is refused again.
    with Journal(path) as journal:
        assert not journal.accept_changes


def test_an_undamaged_journal_needs_no_repair(small_pilot: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    assert "nothing in journal.sqlite is damaged" in invoke("verify", str(run), "--repair")


def test_a_damaged_index_is_repaired_without_asking_again(
    small_pilot: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    with closing(sqlite3.connect(run / JOURNAL)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE "
            "name = 'sqlite_autoindex_meta_1') WHERE name = 'sqlite_autoindex_entries_1'"
        )
    invoke("verify", str(run), code=4)
    assert "0 answers would be set aside" in invoke("verify", str(run), "--repair", "--yes")
    with JournalReader(run / JOURNAL) as journal, JournalReader(small_pilot / JOURNAL) as was:
        assert journal.find_damage() == [] and journal.content_digest() == was.content_digest()
