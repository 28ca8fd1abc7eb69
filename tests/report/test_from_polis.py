"""Studies from Polis conversations: comments become statements, and voters become personas."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.study.study import registered_studies
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.kit.polis import AGREE, DISAGREE, read_polis
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.polis import CastVote, Comment, ExportedConversation, write_conversation
from folkmoot.studies.cross_pollination.preparation import from_polis

STATEMENTS = [
    "The square should be closed to cars.",
    "Deliveries must stay possible.",
    "Trees come before parking.",
    "Shops will lose customers.",
    "The bus needs the square.",
    "=Buses are not cars",
    "Children should play there.",
    "Benches cost little.",
]
SPAM = "Buy my book"


def write_export(folder: Path, spam: bool = False) -> Path:
    """Write forty voters in two camps that disagree on the first, third and fourth comment. For the
    first comment, which divides them most evenly, only every second voter has a vote."""
    conversation = ExportedConversation("The square", "What should become of it?")
    conversation.comments = [Comment(text) for text in [*STATEMENTS, *([SPAM] if spam else [])]]
    for n in range(40):
        voter, is_first_camp = f"v{n}", n % 4 < 2
        conversation.people[voter] = ""
        for comment_index in range(len(conversation.comments)):
            vote = (
                AGREE
                if comment_index not in (0, 2, 3) or is_first_camp is (comment_index != 3)
                else DISAGREE
            )
            vote = -vote if (n, comment_index) in ((0, 2), (4, 2), (8, 3)) else vote
            if comment_index or n % 2:
                conversation.votes.append(
                    CastVote(voter, comment_index, vote, 1000 * n + comment_index)
                )
    write_conversation(conversation, folder)
    if spam:
        path = folder / "comments.csv"
        lines = path.read_text("utf-8").splitlines()
        path.write_text(
            "\n".join(line.replace(f",1,{SPAM}", f",-1,{SPAM}") for line in lines), "utf-8"
        )
    return folder


def run_new(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["new", *arguments], env={"COLUMNS": "300"})
    return result.exit_code, result.output


def test_a_comment_becomes_the_statement_and_voters_become_personas(tmp_path: Path) -> None:
    polis, study_folder = write_export(tmp_path / "polis"), tmp_path / "study"
    exit_code, output = run_new(
        "cross_pollination", str(study_folder), "--from-polis", str(polis), "--statement", "0"
    )
    assert exit_code == 0, output
    assert "folkmoot run" in output
    study = load_study_file(study_folder / "cross_pollination.yaml").config
    assert STATEMENTS[0] in study.topic.description
    assert "What should become of it?" in study.topic.description
    assert study.topic.options == ("Agree", "Disagree", "Pass")
    assert study.participant_count == 40
    personas = list(csv.DictReader((study_folder / "personas.csv").open(encoding="utf-8")))
    assert len(personas) == 40
    # The persona does not contain the vote on the comment of the question.
    assert not any(STATEMENTS[0] in row["persona"] for row in personas)
    assert f"You agreed with: “{STATEMENTS[1]}”" in personas[5]["persona"]
    human_rows = list(csv.DictReader((study_folder / "people.csv").open(encoding="utf-8")))
    votes = {row["participant"]: row["first"] for row in human_rows}
    assert votes == {f"polis_{n}": "Agree" if n % 4 < 2 else "Disagree" for n in range(40) if n % 2}
    assert len({row["polis_group"] for row in human_rows}) == 2
    second_exit_code, output = run_new(
        "cross_pollination", str(study_folder), "--from-polis", str(polis)
    )
    assert (second_exit_code, "already exists" in output) == (2, True)


def test_voters_are_compared_with_the_run_by_participant_and_group(
    tmp_path: Path,
) -> None:
    files = from_polis(read_polis(write_export(tmp_path / "polis")), "0")
    for name, content in files.items():
        assert isinstance(content, str)
        (tmp_path / name).write_text(content, "utf-8")
    run = folkmoot.run(tmp_path / "cross_pollination.yaml", out=tmp_path / "run")
    findings = {
        finding.key: finding for finding in compare_runs([run.folder, tmp_path / "people.csv"])
    }
    rows = findings["people_rectified"].grid
    column_index = {name: i for i, name in enumerate(rows.columns)}
    assert [row[column_index["people"]] for row in rows.rows] == [20] * len(
        rows.rows
    )  # matched by participant
    people = {row[column_index["measure"]]: row[column_index["people_alone"]] for row in rows.rows}
    assert people["initial_choice: Agree"] == pytest.approx(0.5)
    groups = findings["people_heterogeneity"].grid
    column_index = {name: i for i, name in enumerate(groups.columns)}
    agree = [row for row in groups.rows if row[column_index["outcome"]] == "initial choice: Agree"]
    assert sorted(row[column_index["people_rate"]] for row in agree) == [0.0, 1.0]
    simulated = sum(row[column_index["simulated_n"]] for row in agree)  # type: ignore[misc]
    assert simulated == 20


def test_the_most_divisive_accepted_comment_is_the_default(
    tmp_path: Path,
) -> None:
    conversation = read_polis(write_export(tmp_path / "polis", spam=True))
    assert list(conversation.comments.values()) == STATEMENTS
    assert conversation.most_divisive_comment == "3"  # 21 against 19
    assert conversation.count("3", AGREE) == 21
    settings = yaml.safe_load(str(from_polis(conversation, None)["cross_pollination.yaml"]))
    assert STATEMENTS[3] in settings["topic"]["description"]
    with pytest.raises(InputError, match="no accepted comment 8"):
        from_polis(conversation, "8")


@pytest.mark.parametrize("kind", sorted(registered_studies().keys() - {"cross_pollination"}))
def test_other_study_types_are_refused_with_the_reason(tmp_path: Path, kind: str) -> None:
    exit_code, output = run_new(
        kind, str(tmp_path / "x"), "--from-polis", str(write_export(tmp_path / "p"))
    )
    assert exit_code == 2
    assert "do not vote on given statements; use cross_pollination" in output
    assert not (tmp_path / "x").exists()


def test_invalid_exports_are_reported_with_file_and_line(tmp_path: Path) -> None:
    polis = write_export(tmp_path / "polis")
    votes = polis / "participants-votes.csv"
    valid_text = votes.read_text("utf-8")
    votes.write_text(valid_text.replace(",1\n", ",maybe\n", 1), "utf-8")
    with pytest.raises(InputError, match="'maybe' is not a vote") as caught:
        read_polis(polis)
    (problem,) = caught.value.problems
    assert (problem.file, problem.where, problem.key) == (str(votes), "2", "7")
    head, *rows = (line.split(",") for line in valid_text.splitlines())
    swapped_votes = {"1": "-1", "-1": "1"}
    lines = [
        head,
        *([*row[:6], *(swapped_votes.get(cell, cell) for cell in row[6:])] for row in rows),
    ]
    votes.write_text("\n".join(map(",".join, lines)), "utf-8")
    with pytest.raises(InputError, match="1 and -1 are swapped"):
        read_polis(polis)
    votes.unlink()
    with pytest.raises(InputError, match=r"there is no participants-votes\.csv"):
        read_polis(polis)
    (polis / "comments.csv").write_text("a,b\n1,2\n")
    votes.write_text(valid_text, "utf-8")
    with pytest.raises(InputError, match="no column comment-id"):
        read_polis(polis)


def test_too_few_voters_are_refused(tmp_path: Path) -> None:
    conversation = ExportedConversation("Small")
    conversation.comments = [Comment("One."), Comment("Two.")]
    conversation.people = {"a": ""}
    conversation.votes = [CastVote("a", 0, AGREE, 1)]
    write_conversation(conversation, tmp_path)
    with pytest.raises(InputError, match="0 voters agreed or disagreed with 5 other comments"):
        from_polis(read_polis(tmp_path), None)


def test_a_text_that_begins_with_an_equals_sign_is_unchanged(tmp_path: Path) -> None:
    polis = write_export(tmp_path / "polis")
    assert "=Buses are not cars" in pl.read_csv(polis / "comments.csv")["comment-body"]
    assert "=Buses are not cars" in read_polis(polis).comments.values()


@pytest.mark.skipif("FOLKMOOT_POLIS" not in os.environ, reason="FOLKMOOT_POLIS names no exports")
def test_real_conversations_become_pilots(tmp_path: Path) -> None:
    folders = [path for path in Path(os.environ["FOLKMOOT_POLIS"]).iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        study_folder = tmp_path / folder.name
        exit_code, output = run_new(
            "cross_pollination", str(study_folder), "--from-polis", str(folder)
        )
        assert exit_code == 0, output
        study = load_study_file(study_folder / "cross_pollination.yaml")
        humans = pl.read_csv(study_folder / "people.csv")
        assert study.config.participant_count > 100
        assert humans["polis_group"].drop_nulls().n_unique() == 2
        assert humans["first"].is_in(["Agree", "Disagree", "Pass"]).all()
