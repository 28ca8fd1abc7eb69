"""Exports: the same data in other formats, and the Polis files in the columns of pol.is."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import folkmoot
from folkmoot.errors import InputError, RunExists
from folkmoot.records.run_folder import RunFolder
from folkmoot.report.export import FORMATS, export
from tests.contract.small import small_study


def test_csv_parquet_and_json_hold_the_same_rows(pilot: RunFolder, tmp_path: Path) -> None:
    for kind in ("csv", "parquet", "json"):
        export(pilot, kind, tmp_path / kind)
        assert (tmp_path / kind / "codebook.json").exists()
    table = pilot.table("participants")
    assert pl.read_parquet(tmp_path / "parquet" / "participants.parquet").equals(table)
    assert pl.read_csv(tmp_path / "csv" / "participants.csv").height == table.height
    rows = json.loads((tmp_path / "json" / "participants.json").read_text("utf-8"))
    assert rows == table.to_dicts()


def test_polis_files_have_the_columns_of_the_real_ones(pilot: RunFolder, tmp_path: Path) -> None:
    export(pilot, "polis", tmp_path / "polis")
    comments = pl.read_csv(tmp_path / "polis" / "comments.csv")
    assert comments.columns == [
        *("timestamp", "datetime", "comment-id", "author-id", "agrees", "disagrees"),
        *("moderated", "comment-body"),
    ]
    votes = pl.read_csv(tmp_path / "polis" / "participants-votes.csv")
    assert votes.columns[:6] == [
        *("participant", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree")
    ]
    assert votes.columns[6:] == [str(i) for i in range(comments.height)]
    # Everybody's last choice is one agreement, and agreements add up on both sides.
    people = pilot.table("participants").filter(pl.col("initial_choice").is_not_null())
    assert votes["n-agree"].to_list() == [1] * people.height
    assert comments["agrees"].sum() == people.height
    for option, agrees in comments.select("comment-body", "agrees").iter_rows():
        last = pl.coalesce("final_choice", "initial_choice")
        assert people.filter(last == option).height == agrees
    # Polis forgets who they were and what they chose at first: a file of its own keeps it.
    known = pl.read_csv(tmp_path / "polis" / "participants.csv")
    assert known["participant"].to_list() == votes["participant"].to_list()
    assert known["participant_id"].to_list() == people["participant_id"].to_list()
    assert known["first_choice"].to_list() == people["initial_choice"].to_list()


def test_every_export_of_a_synthetic_run_says_so(pilot: RunFolder, tmp_path: Path) -> None:
    for kind in FORMATS:
        export(pilot, kind, tmp_path / kind)
        text = (tmp_path / kind / "README.txt").read_text("utf-8")
        assert text.startswith("SYNTHETIC") and "not findings about people" in text
        assert pilot.id in text and pilot.manifest["models"][0]["served"][0] in text


def test_a_town_halls_items_are_the_comments_of_polis(tmp_path: Path) -> None:
    held = folkmoot.run(small_study("town_hall", tmp_path), model="synthetic", out=tmp_path / "run")
    export(held.folder, "polis", tmp_path / "polis")
    comments = pl.read_csv(tmp_path / "polis" / "comments.csv")
    items = held.table("items")
    said = items["discussion_id"] + ": " + items["text"]
    assert comments["comment-body"].to_list() == said.to_list()
    assert comments["agrees"].to_list() == items["yes"].to_list()
    assert comments["disagrees"].to_list() == items["no"].to_list()
    votes = pl.read_csv(tmp_path / "polis" / "participants-votes.csv")
    assert votes["n-votes"].sum() == (items["yes"] + items["no"]).sum()
    summary = dict(pl.read_csv(tmp_path / "polis" / "summary.csv").iter_rows())
    assert summary["topic"] == held.folder.config["topic"]["title"]


def test_an_export_never_overwrites(pilot: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(RunExists):
        export(pilot, "csv", tmp_path)
    with pytest.raises(InputError, match="formats are"):
        export(pilot, "xls", tmp_path / "new")
