"""Runs are compared within participants only if what is stated of the participants is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml
from openpyxl import load_workbook

import folkmoot
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies import town_hall
from folkmoot.studies.negotiation.rules.strategies import TOPICS
from folkmoot.studies.replay.writing import files_of_replay
from tests.contract.small import small_study
from tests.studies.town_hall.hall_script import PROFILE
from tests.sweeps import sample_daily

# Writes a study file into a folder and returns its path. The argument is an attribute of one
# participant.
Writer = Callable[[Path, str], Path]


def write_groups(folder: Path, cuisine: str) -> Path:
    path = small_study("negotiation", folder)
    members = [
        {
            "role": "spouse",
            "preferences": dict.fromkeys(TOPICS, "I want a park.") | {"cuisine": wish},
        }
        for wish in (cuisine, "I want noodles.")
    ]
    settings = yaml.safe_load(path.read_text("utf-8"))
    settings |= {"conditions": ["C1", "C2"], "group_types": ["spouses"], "sizes": {}}
    settings["groups"] = [{"id": "pair", "type": "spouses", "members": members}]
    path.write_text(yaml.safe_dump(settings), "utf-8")
    return path


def write_file_of_groups(folder: Path, cuisine: str) -> Path:
    path = write_groups(folder, cuisine)
    settings = yaml.safe_load(path.read_text("utf-8"))
    (folder / "groups.yaml").write_text(yaml.safe_dump(settings["groups"]), "utf-8")
    path.write_text(yaml.safe_dump(settings | {"groups": "groups.yaml"}), "utf-8")
    return path


def write_hall(folder: Path, story: str) -> Path:
    path = small_study("town_hall", folder)
    profile = PROFILE.format(label="mine", kind="housing")
    (folder / "mine.md").write_text(f"{profile}\n{story}\n", "utf-8")
    settings = yaml.safe_load(path.read_text("utf-8"))
    settings |= {"levels": ["1"], "vulnerable": ["mine.md"]}
    path.write_text(yaml.safe_dump(settings), "utf-8")
    return path


def write_sheet(folder: Path, answer: str) -> Path:
    path = small_study("workbook", folder)
    book = load_workbook(path)
    sheet = book["agent_profiles"]
    ids = [cell.value for cell in sheet[1]]
    sheet.cell(3, 1 + next(i for i, name in enumerate(ids) if name != "ID")).value = answer
    book.save(path)
    return path


def write_replay(folder: Path, lives_in: str) -> Path:
    folder.mkdir()
    people = pl.DataFrame(
        {
            "person": ["a", "b", "c", "d"],
            "item": ["Buses should be free."] * 4,
            "before": [30.0, 40.0, 50.0, 60.0],
            "after": [40.0, 40.0, 60.0, 60.0],
            "arm": ["read", "control"] * 2,
            "text_shown": ["They cost little.", ""] * 2,
            "lives in": [lives_in, "town", "village", "town"],
        }
    )
    people.write_csv(folder / "people.csv")
    for name, content in files_of_replay(folder / "people.csv").items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "replay.yaml"


WRITERS = {
    "negotiation": write_groups,
    "negotiation, file": write_file_of_groups,
    "town_hall": write_hall,
    "workbook": write_sheet,
    "replay": write_replay,
}


def run_study(folder: Path, source: Path) -> Path:
    """Run a study with the embedded respondent, or with the same answer to all questions."""
    if source.stem == "replay":
        provider = ScriptedProvider(lambda *_: "50")
        folkmoot.run(source, out=folder, provider=provider, trust=True)
    else:
        folkmoot.run(source, model="synthetic", out=folder)
    return folder


def describe_designs(*runs: Path) -> str:
    return next(finding.says for finding in compare_runs(runs) if finding.key == "designs")


@pytest.mark.parametrize(
    "study", sample_daily(WRITERS, daily=("negotiation", "workbook"), part="sweeps")
)
def test_people_of_whom_something_else_is_stated_are_not_the_same(
    study: str, tmp_path: Path
) -> None:
    write: Writer = WRITERS[study]
    first, again, other = (
        run_study(tmp_path / name, write(tmp_path / f"study_{name}", text))
        for name, text in (
            ("first", "I want soup."),
            ("again", "I want soup."),
            ("other", "I want no soup."),
        )
    )
    assert "again drew the same people as first." in describe_designs(first, again)
    assert "same people" not in describe_designs(first, other)


def test_residents_are_the_same_with_another_prompt_and_another_topic(tmp_path: Path) -> None:
    first = run_study(tmp_path / "first", write_hall(tmp_path / "study_first", "I like tea."))
    path = write_hall(tmp_path / "study_other", "I like tea.")
    prompt = (Path(town_hall.__file__).parent / "prompts" / "portrait.md").read_text("utf-8")
    (path.parent / "prompts").mkdir()
    (path.parent / "prompts" / "portrait.md").write_text(f"{prompt}\nBe brief.\n", "utf-8")
    settings = yaml.safe_load(path.read_text("utf-8"))
    settings["topic"]["stakes"] = {"all": ["The bus will take another way."]}
    path.write_text(yaml.safe_dump(settings | {"prompts": "prompts"}), "utf-8")
    other = run_study(tmp_path / "other", path)
    texts = [RunFolder(run).read_table("portraits")["portrait"].to_list() for run in (first, other)]
    assert texts[0] != texts[1]
    assert "other drew the same people as first." in describe_designs(first, other)
