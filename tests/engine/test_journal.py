"""The journal keeps every effect once, in order, and refuses what is not its own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from folkmoot.engine.journal import Entry, Journal
from folkmoot.errors import DriftError, ForeignJournal, StorageError

LONG = "A long prompt that is stored once however often it is sent. " * 20


def entry(address: str, text: str = LONG, fingerprint: bytes = b"f" * 16) -> Entry:
    request = {"messages": [{"role": "user", "content": text}]}
    return Entry(address, "ask", fingerprint, request, f"reply to {address}", input_tokens=3)


def test_what_is_put_is_found_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        for i in range(500):
            journal.put(entry(f"stage/p_{i:04d}/ask0"))
    with Journal(path) as journal:
        found = journal.lookup("stage/p_0007/ask0", b"f" * 16, dict)
        assert found is not None and found.reply == "reply to stage/p_0007/ask0"
        assert journal.lookup("stage/p_0007/ask1", b"f" * 16, dict) is None
        assert journal.spent() == (500, 0.0)
        assert [e.address for e in journal.entries()][0] == "stage/p_0000/ask0"
        assert next(iter(journal.entries())).request["messages"][0]["content"] == LONG


def test_long_texts_are_stored_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        for i in range(50):
            journal.put(entry(f"a/{i}"))
    db = sqlite3.connect(tmp_path / "j.sqlite")
    assert db.execute("SELECT count(*) FROM texts").fetchone() == (1,)


async def test_another_request_at_an_address_is_drift_and_shows_the_difference(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.put(entry("a", "You chose the park."))
    with Journal(path) as journal, pytest.raises(DriftError) as caught:
        journal.lookup("a", b"g" * 16, lambda: {"messages": [{"content": "You chose the bridge."}]})
    assert "-" in str(caught.value) and "the park" in str(caught.value)
    assert "the bridge" in str(caught.value) and "--accept-changes" in str(caught.value)


def test_accepted_changes_keep_the_old_entry(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path) as journal:
        journal.put(entry("a"))
    with Journal(path, accept_changes=True) as journal:
        assert journal.lookup("a", b"g" * 16, dict) is None
        journal.put(entry("a", "new", b"g" * 16))
    with Journal(path) as journal:
        assert journal.lookup("a", b"g" * 16, dict) is not None
    db = sqlite3.connect(path)
    assert db.execute("SELECT address, fingerprint FROM superseded").fetchall() == [
        ("a", b"f" * 16)
    ]


@pytest.mark.parametrize("content", [b"this is no database at all, but text" * 40, b"\x00" * 4096])
def test_a_foreign_or_corrupt_file_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "j.sqlite"
    path.write_bytes(content)
    with pytest.raises(ForeignJournal):
        Journal(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs(x)")
    db.close()
    with pytest.raises(ForeignJournal, match="not a Folkmoot journal"):
        Journal(path)


def test_a_folder_that_is_not_there_is_an_error_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        Journal(tmp_path / "no" / "such" / "j.sqlite")


WRITE_FOR_EVER = """
import sys
from pathlib import Path
from folkmoot.engine.journal import Entry, Journal
journal = Journal(Path(sys.argv[1]))
i = 0
while True:
    journal.put(Entry(f"{i:09d}", "ask", b"f", {}, "x" * 500))
    i += 1
    if i % 200 == 0:
        import time; time.sleep(0.002)
        print(i, flush=True)
"""


def test_after_kill_the_journal_holds_a_prefix(tmp_path: Path) -> None:
    """No entry is there without all that were put before it."""
    path = tmp_path / "j.sqlite"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    for _ in range(100):  # each after at least 2 ms
        writer.stdout.readline()
    writer.kill()
    writer.wait()
    with Journal(path) as journal:
        addresses = [e.address for e in journal.entries()]
    assert len(addresses) > 0
    assert addresses == [f"{i:09d}" for i in range(len(addresses))]
