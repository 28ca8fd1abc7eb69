"""A study made of a Polis conversation: comments become statements, voters personas and people."""

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
    """Forty voters in two camps that disagree on the first, third and fourth comment. Of the
    first comment, whose sides are the most even, only every second voter has a vote."""
    found = ExportedConversation("The square", "What should become of it?")
    found.comments = [Comment(text) for text in [*STATEMENTS, *([SPAM] if spam else [])]]
    for n in range(40):
        who, camp = f"v{n}", n % 4 < 2
        found.people[who] = ""
        for k in range(len(found.comments)):
            vote = AGREE if k not in (0, 2, 3) or camp is (k != 3) else DISAGREE
            vote = -vote if (n, k) in ((0, 2), (4, 2), (8, 3)) else vote
            if k or n % 2:
                found.votes.append(CastVote(who, k, vote, 1000 * n + k))
    write_conversation(found, folder)
    if spam:
        path = folder / "comments.csv"
        lines = path.read_text("utf-8").splitlines()
        path.write_text("\n".join(li.replace(f",1,{SPAM}", f",-1,{SPAM}") for li in lines), "utf-8")
    return folder


def new(*words: str) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["new", *words], env={"COLUMNS": "300"})
    return shown.exit_code, shown.output


def test_comments_become_a_statement_and_voters_the_people_who_decide(tmp_path: Path) -> None:
    polis, out = write_export(tmp_path / "polis"), tmp_path / "study"
    code, said = new("cross_pollination", str(out), "--from-polis", str(polis), "--statement", "0")
    assert code == 0, said
    assert "folkmoot run" in said
    study = load_study_file(out / "cross_pollination.yaml").config
    assert STATEMENTS[0] in study.topic.description
    assert "What should become of it?" in study.topic.description
    assert study.topic.options == ("Agree", "Disagree", "Pass")
    assert study.participant_count == 40
    personas = list(csv.DictReader((out / "personas.csv").open(encoding="utf-8")))
    assert len(personas) == 40
    # Nobody is told what they voted on the comment that they are asked about.
    assert not any(STATEMENTS[0] in p["persona"] for p in personas)
    assert f"You agreed with: “{STATEMENTS[1]}”" in personas[5]["persona"]
    people = list(csv.DictReader((out / "people.csv").open(encoding="utf-8")))
    votes = {p["participant"]: p["first"] for p in people}
    assert votes == {f"polis_{n}": "Agree" if n % 4 < 2 else "Disagree" for n in range(40) if n % 2}
    assert len({p["polis_group"] for p in people}) == 2
    again, said = new("cross_pollination", str(out), "--from-polis", str(polis))
    assert (again, "already exists" in said) == (2, True)


def test_people_of_the_conversation_stand_beside_the_run_by_person_and_group(
    tmp_path: Path,
) -> None:
    files = from_polis(read_polis(write_export(tmp_path / "polis")), "0")
    for name, content in files.items():
        assert isinstance(content, str)
        (tmp_path / name).write_text(content, "utf-8")
    run = folkmoot.run(tmp_path / "cross_pollination.yaml", out=tmp_path / "run")
    found = {f.key: f for f in compare_runs([run.folder, tmp_path / "people.csv"])}
    rows = found["people_rectified"].grid
    at = {name: i for i, name in enumerate(rows.columns)}
    assert [r[at["people"]] for r in rows.rows] == [20] * len(rows.rows)  # matched by person
    people = {r[at["measure"]]: r[at["people_alone"]] for r in rows.rows}
    assert people["initial_choice: Agree"] == pytest.approx(0.5)
    groups = found["people_heterogeneity"].grid
    at = {name: i for i, name in enumerate(groups.columns)}
    agree = [r for r in groups.rows if r[at["outcome"]] == "initial choice: Agree"]
    assert sorted(r[at["people_rate"]] for r in agree) == [0.0, 1.0]
    simulated = sum(r[at["simulated_n"]] for r in agree)  # type: ignore[misc]
    assert simulated == 20


def test_the_most_divided_accepted_comment_is_taken_and_rejected_ones_are_not(
    tmp_path: Path,
) -> None:
    found = read_polis(write_export(tmp_path / "polis", spam=True))
    assert list(found.comments.values()) == STATEMENTS
    assert found.most_divisive_comment == "3"  # 21 against 19
    assert found.count("3", AGREE) == 21
    settings = yaml.safe_load(str(from_polis(found, None)["cross_pollination.yaml"]))
    assert STATEMENTS[3] in settings["topic"]["description"]
    with pytest.raises(InputError, match="no accepted comment 8"):
        from_polis(found, "8")


@pytest.mark.parametrize("kind", sorted(registered_studies().keys() - {"cross_pollination"}))
def test_other_study_types_are_refused_with_the_reason(tmp_path: Path, kind: str) -> None:
    code, said = new(kind, str(tmp_path / "x"), "--from-polis", str(write_export(tmp_path / "p")))
    assert code == 2
    assert "do not vote on given statements; use cross_pollination" in said
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_read_names_file_and_line(tmp_path: Path) -> None:
    polis = write_export(tmp_path / "polis")
    votes = polis / "participants-votes.csv"
    good = votes.read_text("utf-8")
    votes.write_text(good.replace(",1\n", ",maybe\n", 1), "utf-8")
    with pytest.raises(InputError, match="'maybe' is not a vote") as caught:
        read_polis(polis)
    (problem,) = caught.value.problems
    assert (problem.file, problem.where, problem.key) == (str(votes), "2", "7")
    head, *rows = (line.split(",") for line in good.splitlines())
    turned = {"1": "-1", "-1": "1"}
    lines = [head, *([*row[:6], *(turned.get(c, c) for c in row[6:])] for row in rows)]
    votes.write_text("\n".join(map(",".join, lines)), "utf-8")
    with pytest.raises(InputError, match="1 and -1 are swapped"):
        read_polis(polis)
    votes.unlink()
    with pytest.raises(InputError, match=r"there is no participants-votes\.csv"):
        read_polis(polis)
    (polis / "comments.csv").write_text("a,b\n1,2\n")
    votes.write_text(good, "utf-8")
    with pytest.raises(InputError, match="no column comment-id"):
        read_polis(polis)


def test_too_few_voters_are_no_pilot(tmp_path: Path) -> None:
    found = ExportedConversation("Small")
    found.comments = [Comment("One."), Comment("Two.")]
    found.people = {"a": ""}
    found.votes = [CastVote("a", 0, AGREE, 1)]
    write_conversation(found, tmp_path)
    with pytest.raises(InputError, match="0 voters agreed or disagreed with 5 other comments"):
        from_polis(read_polis(tmp_path), None)


def test_a_text_that_begins_with_an_equals_sign_stays_as_it_was_said(tmp_path: Path) -> None:
    polis = write_export(tmp_path / "polis")
    assert "=Buses are not cars" in pl.read_csv(polis / "comments.csv")["comment-body"]
    assert "=Buses are not cars" in read_polis(polis).comments.values()


@pytest.mark.skipif("FOLKMOOT_POLIS" not in os.environ, reason="FOLKMOOT_POLIS names no exports")
def test_real_conversations_become_pilots(tmp_path: Path) -> None:
    folders = [f for f in Path(os.environ["FOLKMOOT_POLIS"]).iterdir() if f.is_dir()]
    assert folders
    for folder in folders:
        out = tmp_path / folder.name
        code, said = new("cross_pollination", str(out), "--from-polis", str(folder))
        assert code == 0, said
        study = load_study_file(out / "cross_pollination.yaml")
        people = pl.read_csv(out / "people.csv")
        assert study.config.participant_count > 100
        assert people["polis_group"].drop_nulls().n_unique() == 2
        assert people["first"].is_in(["Agree", "Disagree", "Pass"]).all()
