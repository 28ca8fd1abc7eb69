"""What keeps memory bounded changes nothing: every study gives the same bytes through the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study import registered
from folkmoot.storage import recording
from tests.contract.test_every_study import Crash, digest, play, respondent


@pytest.mark.parametrize("study", sorted(registered()))
def test_rows_that_wait_on_the_disk_give_the_same_tables(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = play(study, tmp_path / "a" / "run", provider=respondent(study))
    monkeypatch.setattr(recording, "HELD", 3)
    spooled = play(study, tmp_path / "b" / "run", provider=respondent(study, jitter=3))
    assert digest(spooled) == digest(whole)
    assert not list(spooled.path.glob(".*.rows"))


def test_rows_of_a_process_that_was_killed_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Crash):
        play("cross_pollination", tmp_path, provider=respondent("cross_pollination", die_after=9))
    left = tmp_path / recording.Recording.file_of("answers")
    left.write_bytes(b"half a row")
    run: folkmoot.Run = play(
        "cross_pollination", tmp_path, resume=True, provider=respondent("cross_pollination")
    )
    assert run.table("answers").height > 9 and not left.exists()
