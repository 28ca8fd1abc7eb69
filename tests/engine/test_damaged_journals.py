"""Damaged journals are refused or the damage is named. No command crashes or uses such values."""

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
from folkmoot.errors import ForeignJournalError, InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.deviations import list_deviations
from folkmoot.storage.run_folder import JOURNAL, MANIFEST, RunFolder
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

# Long enough to be stored in its own table.
ANN = Speaker("p_0001", "Ann", "participant", "You are Ann. " * 30)


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that has every journal table, with a row in each."""
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
    for question, changed_value in (("What", False), ("Why", True)):
        folkmoot.run(
            study(question),
            {},
            out=folder / "run",
            provider=model,
            accept_changes=changed_value,
        )
    with Journal(folder / "run" / JOURNAL) as journal:
        journal.note(BatchRecord("b1", "m/x", "id", 2, 1.0, 2.0), ["k1", "k2"]).result()
        journal.put_broken(BrokenReply(5.0, "first/1/ask0", "m/x", 0.25)).result()
    return folder / "run"


def list_table_names(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [row[0] for row in rows.fetchall()]


def read_columns(db: sqlite3.Connection, table: str) -> tuple[list[str], str]:
    """Return the columns of a table and the column that identifies a row."""
    info = db.execute(f"PRAGMA table_info({table})").fetchall()
    keys = [row[1] for row in info if row[5]]
    return [row[1] for row in info], keys[0] if keys else "rowid"


def change_value(value: object) -> list[object]:
    """Return the value with one bit changed in several places, and as another type."""
    if value is None:
        return [0, 1.5, "x"]
    if isinstance(value, int):
        return [value ^ 1, value ^ 64]
    if isinstance(value, float):
        return [value + 1.0, -value or 1.0]
    raw = value.encode() if isinstance(value, str) else value
    assert isinstance(raw, bytes)
    positions = sorted({0, len(raw) // 2, len(raw) - 1}) if raw else []
    flipped = [
        raw[:position] + bytes([raw[position] ^ bit]) + raw[position + 1 :]
        for position in positions
        for bit in (1, 128)
    ]
    return [*flipped, raw + b"x"]


def iterate_changed_copies(
    complete_run: Path, path: Path
) -> Iterator[tuple[str, str, str, object]]:
    """Yield table, column, row and new value of each copy of the journal with one change."""
    with closing(sqlite3.connect(complete_run)) as db:
        tables = [(table, *read_columns(db, table)) for table in list_table_names(db)]
        for table, columns, key in tables:
            rows = db.execute(f"SELECT {key} FROM {table}").fetchall()
            assert rows, f"{table} is empty"
            for (row,), column in product(rows, columns):
                cell = f"SELECT {column} FROM {table} WHERE {key} = ?"
                value = db.execute(cell, (row,)).fetchone()[0]
                placeholder = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
                for changed_value in change_value(value):
                    shutil.copy(complete_run, path)
                    with closing(sqlite3.connect(path)) as copy, copy:
                        # Without this, each of hundreds of copies would wait for the disk.
                        copy.execute("PRAGMA synchronous = OFF")
                        change = (
                            f"UPDATE OR IGNORE {table} SET {column} = {placeholder} WHERE {key} = ?"
                        )
                        if not copy.execute(change, (changed_value, row)).rowcount:
                            continue
                    yield table, column, str(row), changed_value


def test_every_changed_value_is_reported_and_the_run_cannot_be_resumed(
    complete_run: Path, tmp_path: Path
) -> None:
    """Change each value of each table. Damage of an entry is reported with its address, other
    damage with its table. Each twentieth change also checks that a resume is refused."""
    path, count, missed = tmp_path / JOURNAL, 0, []
    for table, column, row, changed_value in iterate_changed_copies(complete_run / JOURNAL, path):
        if table == "meta" and row == "software":
            continue  # the name of a future format occurs only in the error message
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
            continue  # no longer a journal of a known format
        of_entry = table in ("entries", "superseded")
        if not damage or (of_entry and not any(damage_entry.address for damage_entry in damage)):
            missed.append((table, column, row, changed_value))
    assert count > 500 and missed == []


def build_commands(run: Path) -> list[list[str]]:
    return [
        ["verify", str(run)],
        ["show", str(run), "p_0001"],
        ["show", str(run)],
        ["report", str(run)],
    ]


# Two named positions and a third one daily. All others in the nightly tests.
POSITIONS = sample_daily(range(24), daily=(0, 2, 5), part="mutations")


@pytest.mark.parametrize("position", POSITIONS)
def test_flipped_bits_crash_no_command(position: int, small_pilot: Path, tmp_path: Path) -> None:
    """Flip bits in the header, the pages and the cells. The output is a result or an error message,
    and a damaged journal never counts as verified."""
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    shutil.copy(small_pilot.parent / "study" / "cross_pollination.yaml", tmp_path)
    path = run / JOURNAL
    raw = bytearray(path.read_bytes())
    # Parts of the header, of the first page and of the second.
    named_positions = (18, 100, 105, 4096)
    offset = (
        named_positions[position]
        if position < len(named_positions)
        else position * 7919 * 104_729 % len(raw)
    )
    raw[offset] ^= 1 << (position % 8)
    path.write_bytes(raw)
    for command in build_commands(run):
        result = CliRunner().invoke(app, command)
        assert result.exit_code in (0, 2, 4), (offset, command, result.output, result.exception)
        assert "Internal error" not in result.output


# --- repair -------------------------------------------------------------------------------------


def run_command(*command: str, code: int = 0, answer: str | None = None) -> str:
    result = CliRunner().invoke(app, list(command), input=answer)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture
def damaged_run(small_pilot: Path, tmp_path: Path) -> Path:
    """Return a finished run with a changed vote and, for another participant, a changed cost."""
    shutil.copy(small_pilot.parent / "study" / "cross_pollination.yaml", tmp_path)
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    with closing(sqlite3.connect(run / JOURNAL)) as db, db:
        first = "number = (SELECT min(number) FROM entries WHERE kind = 'ask')"
        assert db.execute(f"UPDATE entries SET reply = 'x' WHERE {first}").rowcount == 1
        assert db.execute("UPDATE entries SET cost_usd = 3 WHERE number = 30").rowcount == 1
    return run


def test_repair_lists_damage_first_and_changes_nothing_without_consent(damaged_run: Path) -> None:
    before = {
        path: path.read_bytes()
        for path in damaged_run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    output = run_command("verify", str(damaged_run), "--repair", code=4, answer="n\n")
    assert "2 answers would be set aside and asked again: about $0" in output
    calls = RunFolder(damaged_run).manifest["calls"]
    assert f"at most {calls - 2} calls" in output and "changed since it was written" in output
    after = {
        path: path.read_bytes()
        for path in damaged_run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    assert after == before


def test_repaired_run_asks_again_and_gives_the_same_tables(
    damaged_run: Path, small_pilot: Path
) -> None:
    study = str(damaged_run.parent / "cross_pollination.yaml")
    resume = ("run", study, "--out", str(damaged_run), "--resume", "--model", "synthetic")
    assert "--repair" in run_command(*resume, code=2)
    bytes_before = (damaged_run / JOURNAL).read_bytes()
    output = run_command("verify", str(damaged_run), "--repair", "--yes")
    assert "journal-damaged-1.sqlite keeps the old journal" in output
    assert "--model synthetic --resume. Add the other options of the command" in output
    assert (damaged_run / "journal-damaged-1.sqlite").read_bytes() == bytes_before
    assert RunFolder(damaged_run).partial
    with (
        JournalReader(damaged_run / JOURNAL) as journal,
        JournalReader(small_pilot / JOURNAL) as was,
    ):
        assert journal.find_damage() == [] and len(journal) == len(was) - 2
    run_command(*resume)
    assert RunFolder(damaged_run).is_finished
    with (
        JournalReader(damaged_run / JOURNAL) as journal,
        JournalReader(small_pilot / JOURNAL) as was,
    ):
        assert journal.content_digest() == was.content_digest()
    output = run_command("verify", str(damaged_run))
    assert "Consistent" in output and "1 × repair, by researcher" in output


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
    run_command("verify", str(tmp_path / "run"), "--repair", "--yes")
    finished_run = run_with("elm")
    assert finished_run.table("words").row(0) == ("elm", "elm")
    with JournalReader(path) as journal:
        # The damaged answer has lost its text. Only its call is kept.
        assert [entry.reply for entry, _ in journal.all_rows("superseded")] == ["", "oak"]
    # After the repair, a different request is refused again.
    with Journal(path) as journal:
        assert not journal.accept_changes


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET reply = 'x' WHERE number = 1",
        "UPDATE entries SET cost_usd = 9 WHERE number = 1",
        "DELETE FROM entries WHERE number = 1",
        "DELETE FROM entries WHERE number = 1 -- and the run was killed",
    ],
    ids=["reply", "cost", "whole entry", "whole entry of a killed run"],
)
def test_what_was_paid_for_damaged_answers_stays_in_the_sums(damage: str, tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        await session.map(range(3), ask_participant)

    async def ask_participant(scope: Scope, number: int) -> None:
        await scope.ask(Speaker(f"p{number}"), "Why?")

    study = Study("why", "Why", StudyConfig, protocol)
    with ServerThread(FaultPlan()) as server:
        settings = {"model": "openai/gpt-4o", "endpoints": {"openai": server.openai}}
        first = folkmoot.run(study, settings, out=tmp_path / "run").manifest
        for _ in range(2):
            with closing(sqlite3.connect(tmp_path / "run" / JOURNAL)) as db, db:
                # Numbers differ after a repair.
                first_entry = "(SELECT number FROM entries ORDER BY address LIMIT 1)"
                assert db.execute(damage.replace("number = 1", f"number = {first_entry}")).rowcount
            if "killed" in damage:
                (tmp_path / "run" / MANIFEST).unlink()
            run_command("verify", str(tmp_path / "run"), "--repair", "--yes")
            folkmoot.run(study, settings, out=tmp_path / "run")
        assert server.model.counts["answered"] == 5
    manifest = RunFolder(tmp_path / "run").manifest
    with JournalReader(tmp_path / "run" / JOURNAL) as journal:
        spent = journal.spent()
        costs = [float(entry.cost_usd or 0) for entry in journal.read_entries()]
    # The report names no requests that --accept-changes has sent again.
    assert "sent again" not in str(list_deviations(RunFolder(tmp_path / "run"), study))
    if "DELETE" in damage:
        assert (manifest["calls"], manifest["cost_usd"]) == (3, first["cost_usd"])
        lost_usd = manifest["possibly_paid"].pop("max_usd")
        assert manifest["possibly_paid"] == {"calls": 2, "processes": 0, "workers": 0}
        assert spent.total.calls == 5
        budget = {"budget_usd": 1.0}
        if "killed" not in damage:
            # What the manifest counts beyond the entries that can be read was paid for the others.
            assert 2 * costs[0] <= lost_usd == pytest.approx(2 * costs[0], abs=5e-6)
            folkmoot.run(study, settings | budget, out=tmp_path / "run")
            return
        assert lost_usd is None and spent.is_possible_unpriced
        with pytest.raises(InputError, match="earlier calls without a saved reply is unknown"):
            folkmoot.run(study, settings | budget, out=tmp_path / "run")
        return
    is_known = "reply" in damage
    known_usd = sum(costs) + (2 * costs[0] if is_known else 0)
    assert (manifest["calls"], manifest["cost_usd"]) == (5, pytest.approx(known_usd, abs=1e-6))
    assert manifest["cost_unknown_for"] == ([] if is_known else ["openai/gpt-4o"])
    assert spent.calls == 5 and spent.unpriced == (() if is_known else ("openai/gpt-4o",))


def test_run_with_only_damaged_answers_can_be_repaired_and_resumed(
    damaged_run: Path, small_pilot: Path
) -> None:
    with closing(sqlite3.connect(damaged_run / JOURNAL)) as db, db:
        db.execute("UPDATE entries SET reply = reply || 'x'")
    run_command("verify", str(damaged_run), "--repair", "--yes")
    study = str(damaged_run.parent / "cross_pollination.yaml")
    run_command("run", study, "--out", str(damaged_run), "--resume", "--model", "synthetic")
    with (
        JournalReader(damaged_run / JOURNAL) as journal,
        JournalReader(small_pilot / JOURNAL) as was,
    ):
        assert journal.content_digest() == was.content_digest()


def test_undamaged_journal_needs_no_repair(small_pilot: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    assert "nothing in journal.sqlite is damaged" in run_command("verify", str(run), "--repair")


def test_damaged_index_is_repaired_without_calls(small_pilot: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(small_pilot, tmp_path / "run"))
    with closing(sqlite3.connect(run / JOURNAL)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE "
            "name = 'sqlite_autoindex_meta_1') WHERE name = 'sqlite_autoindex_entries_1'"
        )
    run_command("verify", str(run), code=4)
    assert "0 answers would be set aside" in run_command("verify", str(run), "--repair", "--yes")
    with JournalReader(run / JOURNAL) as journal, JournalReader(small_pilot / JOURNAL) as was:
        assert journal.find_damage() == [] and journal.content_digest() == was.content_digest()
