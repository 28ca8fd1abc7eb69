"""The journal stores every effect once and in order, and refuses foreign files."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.engine.journal.journal import MAX_QUEUED_ENTRIES, Journal, JournalEntry
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import DriftError, ForeignJournalError, StorageError

LONG = "A long prompt that is stored once however often it is sent. " * 20


def build_entry(address: str, text: str = LONG, fingerprint: bytes = b"f" * 16) -> JournalEntry:
    request = {"messages": [{"role": "user", "content": text}]}
    return JournalEntry(address, "ask", fingerprint, request, f"reply to {address}", input_tokens=3)


def test_stored_entries_are_found_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        for i in range(500):
            journal.append(build_entry(f"stage/p_{i:04d}/ask0"))
    with Journal(path) as journal:
        stored_entry = journal.lookup_entry("stage/p_0007/ask0", b"f" * 16, dict)
        assert stored_entry is not None and stored_entry.reply == "reply to stage/p_0007/ask0"
        assert journal.lookup_entry("stage/p_0007/ask1", b"f" * 16, dict) is None
        spent = journal.spent()  # the cost is reported as unknown
        assert (spent.calls, spent.usd, spent.unpriced) == (500, 0.0, ("",))
        assert [entry.address for entry in journal.read_entries()][0] == "stage/p_0000/ask0"
        assert next(iter(journal.read_entries())).request["messages"][0]["content"] == LONG


def test_replies_faster_than_the_disk_do_not_accumulate_in_memory(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        for i in range(4 * MAX_QUEUED_ENTRIES):
            journal.append(build_entry(f"a/{i}"))
            assert journal._queue.qsize() < MAX_QUEUED_ENTRIES
    with JournalReader(tmp_path / "j.sqlite") as reader:
        assert reader.count_calls() == 4 * MAX_QUEUED_ENTRIES


def test_copied_file_is_complete_while_a_reader_is_open(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.append(build_entry("a/0"))
        with JournalReader(tmp_path / "j.sqlite") as reader:
            assert len(reader) <= 1
            journal.close()
            (tmp_path / "copy.sqlite").write_bytes((tmp_path / "j.sqlite").read_bytes())
            assert len(reader) == 1
    with JournalReader(tmp_path / "copy.sqlite") as copied:
        assert len(copied) == 1


async def test_failed_write_raises_an_error_for_every_waiting_call(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.append(build_entry("a/0"))
    journal.append(build_entry("a/1")._replace(input_tokens=2**63))
    journal.append(build_entry("a/2"))
    with pytest.raises(StorageError, match="cannot be written"):
        await asyncio.wait_for(journal.flush(), 30)
    with pytest.raises(StorageError, match="cannot be written"):
        journal.close()


def test_long_texts_are_stored_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        for i in range(50):
            journal.append(build_entry(f"a/{i}"))
    db = sqlite3.connect(tmp_path / "j.sqlite")
    assert db.execute("SELECT count(*) FROM texts").fetchone() == (1,)


async def test_different_request_at_an_address_is_drift_and_the_diff_is_shown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.append(build_entry("a", "You chose the park."))
    with Journal(path) as journal, pytest.raises(DriftError) as caught:
        journal.lookup_entry(
            "a", b"g" * 16, lambda: {"messages": [{"content": "You chose the bridge."}]}
        )
    assert "-" in str(caught.value) and "the park" in str(caught.value)
    assert "the bridge" in str(caught.value) and "--accept-changes" in str(caught.value)


def test_accepted_changes_keep_the_old_entry(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.append(build_entry("a"))
    with Journal(path, accept_changes=True) as journal:
        assert journal.lookup_entry("a", b"g" * 16, dict) is None
        journal.append(build_entry("a", "new", b"g" * 16))
    with Journal(path) as journal:
        assert journal.lookup_entry("a", b"g" * 16, dict) is not None
    db = sqlite3.connect(path)
    assert db.execute("SELECT address, fingerprint FROM superseded").fetchall() == [
        ("a", b"f" * 16)
    ]


@pytest.mark.parametrize("content", [b"this is no database at all, but text" * 40, b"\x00" * 4096])
def test_foreign_or_corrupt_file_is_refused_and_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j.sqlite"
    path.write_bytes(content)
    with pytest.raises(ForeignJournalError):
        Journal(path)
    assert path.read_bytes() == content


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs(x)")
    db.close()
    with pytest.raises(ForeignJournalError, match="not a Folkmoot journal"):
        Journal(path)


def test_missing_folder_gives_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        Journal(tmp_path / "no" / "such" / "j.sqlite")


WRITE_ENDLESSLY = """
import sys
from contextlib import closing
from pathlib import Path
from folkmoot.engine.journal.journal import JournalEntry, Journal
journal = Journal(Path(sys.argv[1]))
i = 0
while True:
    for _ in range(200):
        journal.append(JournalEntry(f"{i:09d}", "ask", b"f", {}, "x" * 500))
        i += 1
    print(len(journal), flush=True)
"""


def test_killed_writer_leaves_a_prefix_of_the_entries(tmp_path: Path) -> None:
    """An entry is present only if all earlier entries are."""
    path = tmp_path / "j.sqlite"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_ENDLESSLY, str(path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 5000:  # committed
        pass
    writer.kill()
    writer.wait()
    with Journal(path) as journal:
        addresses = [entry.address for entry in journal.read_entries()]
    assert len(addresses) >= 5000
    assert addresses == [f"{i:09d}" for i in range(len(addresses))]


def execute_statement(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@pytest.fixture
def closed_journal(tmp_path: Path) -> Path:
    """Create a closed journal of three entries."""
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        for name in "abc":
            journal.append(build_entry(name))
    return path


@pytest.mark.parametrize(
    ("statement", "expected_message"),
    [
        ("UPDATE entries SET reply = 'never said' WHERE address = 'b'", "b: changed since"),
        ("UPDATE entries SET finish = 'length' WHERE address = 'c'", "c: changed since"),
        ("UPDATE entries SET address = 'z' WHERE address = 'c'", "z: changed since"),
        ("DELETE FROM entries WHERE address = 'b'", "added or removed"),
        (
            "INSERT INTO entries SELECT 4, 'd', kind, fingerprint, request, 'x', blob, finish, 0, "
            "0, 0, 0, 0, 1, '', '', '', 0, content, seal FROM entries WHERE address = 'a'",
            "d: changed since",
        ),
    ],
)
def test_changed_journal_is_not_resumed(
    closed_journal: Path, statement: str, expected_message: str
) -> None:
    execute_statement(closed_journal, statement)
    before = closed_journal.read_bytes()
    with pytest.raises(ForeignJournalError, match=expected_message) as caught:
        Journal(closed_journal)
    assert "verify --repair" in str(caught.value)
    assert closed_journal.read_bytes() == before


def test_reader_names_changes_and_modifies_nothing(closed_journal: Path) -> None:
    with JournalReader(closed_journal) as journal:
        assert journal.find_damage() == []
        digest = journal.content_digest()
    # The cost is not in the digest.
    execute_statement(closed_journal, "UPDATE entries SET cost_usd = 0.5 WHERE address = 'b'")
    execute_statement(closed_journal, "UPDATE texts SET text = 'another prompt'")
    before = sorted((p.name, p.read_bytes()) for p in closed_journal.parent.iterdir())
    with JournalReader(closed_journal) as journal:
        damaged = [str(damage) for damage in journal.find_damage()]
        assert "b: changed since it was written" in damaged
        assert [damage for damage in damaged if "a long text" in damage] == [
            f"{address}: a long text of the request changed since it was written or is missing"
            for address in "abc"
        ]
        assert journal.content_digest() == digest
    assert sorted((p.name, p.read_bytes()) for p in closed_journal.parent.iterdir()) == before


def convert_to_earlier_format(path: Path, form: int) -> None:
    """Convert a journal to an earlier format: no seals, no digest, tokens in every row."""
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("entries", "superseded"):
            for column in ("seal", "content"):
                db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        db.execute("DELETE FROM meta WHERE key != 'format'")
        db.execute("UPDATE meta SET value = ?", (str(form),))


@pytest.mark.parametrize("form", [1, 2])
def test_journal_of_an_earlier_format_is_readable_but_not_resumable(
    closed_journal: Path, form: int
) -> None:
    convert_to_earlier_format(closed_journal, form)
    with JournalReader(closed_journal) as journal:
        assert [entry.address for entry in journal.read_entries()] == ["a", "b", "c"]
    before = closed_journal.read_bytes()
    message = rf"format {form}.*install the version of Folkmoot that started it"
    with pytest.raises(ForeignJournalError, match=message):
        Journal(closed_journal)
    assert closed_journal.read_bytes() == before


def test_journal_of_a_future_format_names_the_version_that_reads_it(closed_journal: Path) -> None:
    execute_statement(closed_journal, "UPDATE meta SET value = '9' WHERE key = 'format'")
    execute_statement(closed_journal, "UPDATE meta SET value = '7.5' WHERE key = 'software'")
    for open_it in (Journal, JournalReader):
        with pytest.raises(ForeignJournalError, match=r"format 9, written by Folkmoot 7\.5"):
            open_it(closed_journal)


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    reply=texts,
    blob=st.none() | st.binary(),
    cost=st.none() | st.integers(0, 9) | st.floats(0, 1e9),
    latency=st.integers(0, 9) | st.floats(0, 1e6),
    request=st.dictionaries(texts, texts | st.integers(-(2**60), 2**60) | st.floats(-1, 1)),
)
def test_seal_of_any_written_entry_is_valid(
    reply: str, blob: bytes | None, cost: float | None, latency: float, request: dict[str, object]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "j.sqlite"
        with Journal(path) as journal:
            journal_entry = JournalEntry(
                "a", "ask", b"f", request, reply, blob, cost_usd=cost, latency_s=latency
            )
            journal.append(journal_entry)
            journal.close()
            digest = journal.content_digest()
        with JournalReader(path) as reader:
            assert reader.find_damage() == [] and reader.content_digest() == digest
        Journal(path).close()
