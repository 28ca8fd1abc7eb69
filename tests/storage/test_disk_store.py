"""Stored values can be loaded in any order and process, and leave no files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from folkmoot.conversation.transcript import Transcript, Utterance
from folkmoot.errors import StorageError
from folkmoot.storage.disk_store import DiskStore, StoredValue

TALK = Transcript((Utterance("p_1", "Parks ☃"), Utterance("m", "", missing="refused")))


def test_stored_values_are_loaded_in_any_order(tmp_path: Path) -> None:
    disk_store = DiskStore(tmp_path)
    values = [TALK, "", "é" * 5000, {"n": 1}, TALK + Utterance("p_2", "No")]
    handles = [StoredValue(value, disk_store) for value in values]
    assert [handle.load() for handle in reversed(handles)] == values[::-1]
    assert [handle.load() for handle in handles] == values
    assert not list(tmp_path.iterdir()), "the file has no name, so a killed process leaves none"


def test_stored_value_can_be_pickled_for_another_process(tmp_path: Path) -> None:
    pickled = pickle.dumps(StoredValue(TALK, DiskStore(tmp_path)))
    assert pickle.loads(pickled).load() == TALK


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        StoredValue("x", DiskStore(tmp_path / "missing"))
