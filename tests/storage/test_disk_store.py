"""What was put away comes back, also in another process, and leaves nothing behind."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from folkmoot.conversation.transcript import Transcript, Utterance
from folkmoot.errors import StorageError
from folkmoot.storage.disk_store import DiskStore, StoredValue

TALK = Transcript((Utterance("p_1", "Parks ☃"), Utterance("m", "", missing="refused")))


def test_what_is_kept_comes_back_in_any_order(tmp_path: Path) -> None:
    disk_store = DiskStore(tmp_path)
    values = [TALK, "", "é" * 5000, {"n": 1}, TALK + Utterance("p_2", "No")]
    kept = [StoredValue(value, disk_store) for value in values]
    assert [k.load() for k in reversed(kept)] == values[::-1]
    assert [k.load() for k in kept] == values
    assert not list(tmp_path.iterdir()), "the file has no name, so a killed process leaves none"


def test_what_is_kept_goes_to_another_process_as_itself(tmp_path: Path) -> None:
    sent = pickle.dumps(StoredValue(TALK, DiskStore(tmp_path)))
    assert pickle.loads(sent).load() == TALK


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        StoredValue("x", DiskStore(tmp_path / "missing"))
