"""A person withdraws: nothing that they wrote is left in the run, and verify says what is gone."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.cli.results import withdraw_command
from folkmoot.engine.desk import WITHDRAWN, Chair, Desk, Question
from folkmoot.engine.verify import verify_run
from folkmoot.engine.withdrawal import Words, withdrawals
from folkmoot.errors import InputError
from folkmoot.storage.run_folder import RunFolder, cache_of
from tests.engine.test_seats import by_hand

FOCUS = """
study: focus_group
category: coffee
product_concept: A reusable cup that keeps coffee hot for six hours.
num_personas: 3
"""
SPOKEN = "My grandmother's porcelain would break her heart, frankly; so I'd never carry it around."
HIDDEN = "grandmother", "porcelain"


def speaks(chair: Chair, question: Question) -> str | None:
    """Free words that nobody else would say, whatever the form."""
    scene = question.scene
    if scene.form == "choice":
        return scene.offered[0]
    if scene.form == "json":
        return json.dumps({"position": 0.5, "opinion": SPOKEN})
    return SPOKEN


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "cup.yaml"
    path.write_text(FOCUS, "utf-8")
    return path


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
    async def host(desk: Desk):  # type: ignore[no-untyped-def]
        async with answering(desk):
            yield
            for chair in desk:
                desk.end(chair, WITHDRAWN)

    return folkmoot.run(study, out=run, seats=("p_0002",), host=host)


def test_nothing_that_the_person_wrote_is_left(study: Path) -> None:
    stays = folkmoot.run(study, out=study.parent / "a", seats=("p_0002",), host=by_hand(speaks))
    before = held(stays.path, HIDDEN[1])
    assert "journal.sqlite" in before and any(f.startswith("tables/") for f in before)
    with sqlite3.connect(stays.path / "journal.sqlite") as db:
        others = "SELECT count(*) FROM entries WHERE model_asked != 'human'"
        assert db.execute(others).fetchone()[0] > 10

    gone = leaving_last(study.parent / "b", study)
    for word in HIDDEN:
        assert held(gone.path, word) == []
    marks = held(gone.path, "[withdrawn ")
    assert set(before) - {"journal.sqlite"} <= set(marks) | {"run.log", "log.jsonl"}
    rows = gone.table("answers").filter(pl.col("speaker_id") == "p_0002")
    assert rows["missing"].fill_null("").is_in(["withdrawn"]).all()
    (amendment,) = withdrawals(gone.path)
    assert amendment.by == "participant" and amendment.data["seat"] == "group_001/p_0002"


def test_others_words_stay(study: Path) -> None:
    stays = folkmoot.run(study, out=study.parent / "a", seats=("p_0002",), host=by_hand(speaks))
    gone = leaving_last(study.parent / "b", study)
    for name in stays.folder.tables():
        if name not in ("answers", "exposure") and name in gone.folder.tables():
            was, now = stays.table(name), gone.table(name)
            texts = [c for c, kind in was.schema.items() if kind == pl.String]
            for column in texts:
                pairs = zip(was[column], now[column], strict=True)
                lost = [
                    (a, b) for a, b in pairs if a != b and HIDDEN[1] not in a and a not in SPOKEN
                ]
                assert lost == [], (name, column)


def test_verify_says_what_cannot_be_recomputed_and_finds_nothing_else(study: Path) -> None:
    gone = leaving_last(study.parent / "b", study)
    found = verify_run(RunFolder(gone.path))
    assert found.differences == []
    assert not found.consistent
    (said,) = found.not_compared
    assert "group_001/p_0002 withdrew" in said and "cannot be recomputed" in said
    assert found.amended == ["1 × withdrawal, by participant"]


def test_a_run_whose_words_are_gone_is_not_resumed(study: Path) -> None:
    gone = leaving_last(study.parent / "b", study)
    with pytest.raises(InputError, match="people withdrew from this run"):
        folkmoot.run(study, out=gone.path, resume=True, seats=("p_0002",), host=by_hand(speaks))


@pytest.mark.parametrize(
    "text",
    [
        SPOKEN,
        f"Maria: {SPOKEN}\n\nJo: I like it.",
        "Someone said “my grandmother’s porcelain would break her heart”, which moved me.",
        "My grandmother's porcelain would break…",
        "MY GRANDMOTHER'S  porcelain\nwould break her heart",
    ],
)
def test_their_words_are_found_however_they_are_quoted(text: str) -> None:
    words = Words(frozenset(), frozenset(), "")
    words.learn(SPOKEN)
    words.settle()
    left = words.redacted(text)
    assert "porcelain" not in left and "[withdrawn " in left
    assert ("I like it." in text) == ("I like it." in left)


def test_short_words_go_where_they_stand_alone_and_stay_elsewhere() -> None:
    words = Words(frozenset(), frozenset(), "")
    words.learn("No cars.")
    words.settle()
    assert "No cars" not in words.redacted("Maria: No cars.\nJo: Fine.")
    assert words.redacted("There would be no cars left.") == "There would be no cars left."


def test_words_of_the_study_are_nobodys() -> None:
    question = "Should the town close its centre to cars this year?"
    words = Words(frozenset(), frozenset(), question)
    words.learn(question)
    words.settle()
    assert words.redacted(question) == question


def test_a_researcher_can_take_a_persons_words_out_later(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "folkmoot.storage.run_folder.user_cache_dir", lambda: study.parent / "cache"
    )
    run = folkmoot.run(study, out=study.parent / "a", seats=("p_0002",), host=by_hand(speaks))
    (run.path / "report.html").write_text(SPOKEN)
    cached = cache_of(run.path) / "findings.html"  # what `folkmoot view` made
    cached.parent.mkdir(parents=True)
    cached.write_text(SPOKEN)
    withdraw_command(str(run.path), "p_0002")
    assert held(run.path, HIDDEN[0]) == held(study.parent / "cache", HIDDEN[0]) == []
    assert withdrawals(run.path)[0].by == "researcher"
    with pytest.raises(InputError, match="no seat is called p_0001"):
        withdraw_command(str(run.path), "p_0001")
