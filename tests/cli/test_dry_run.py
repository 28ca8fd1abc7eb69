"""The dry run: a study that would fail is stopped before the first paid call."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from folkmoot.cli.app import app
from folkmoot.models.api_keys import _KEY_NAME
from tests.contract.small import small_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

KEY = "k" * 24
# Its second stage fails after 40 calls, which a real run would pay for.
STUDY_CODE = """
from pathlib import Path
from folkmoot import Speaker, Study, StudyConfig

async def protocol(session):
    Path("rehearsed").touch()
    async def greet(scope, number):
        await scope.ask(Speaker(f"p{number}"), "Good day. " + "So it is. " * 2000)
    await session.map(range(40), greet)
    raise ValueError("the second part was never written")

STUDY = Study("mine", "Mine", StudyConfig, protocol)
"""


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ServerThread]:
    for name in list(os.environ):
        if _KEY_NAME.search(name) or name.endswith("_BASE_URL") or name == "DEFAULT_MODEL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(STUDY_CODE)
    Path("mine.yaml").write_text("study: ./mine.py\nmodel: gpt-4o\n")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield server


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], terminal_width=300)


@pytest.mark.parametrize(
    "words",
    [("check",), ("run",), ("run", "--preflight"), ("run", "--repeats", "2")],
    ids=" ".join,
)
def test_a_study_that_fails_in_its_dry_run_makes_no_calls(
    words: tuple[str, ...], vendor: ServerThread
) -> None:
    result = run_command(words[0], "mine.yaml", *words[1:])
    assert result.exit_code == 2, result.output
    assert "mine.py:10" in result.output and "never written" in result.output
    assert "No problems" not in result.output and "1 problem" in result.output
    assert vendor.model.counts["received"] == 0


def test_without_a_dry_run_the_failing_study_makes_its_calls(vendor: ServerThread) -> None:
    result = run_command("run", "mine.yaml", "--no-preflight")
    assert result.exit_code == 2 and vendor.model.counts["answered"] == 40


@pytest.mark.parametrize("command_name", ["check", "run"])
def test_a_missing_key_is_reported_before_the_dry_run(
    command_name: str, vendor: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    result = run_command(command_name, "mine.yaml")
    assert result.exit_code == 2 and "OPENAI_API_KEY" in result.output
    if command_name == "run":
        assert not Path("rehearsed").exists()
    else:
        assert result.output.index("OPENAI_API_KEY") < result.output.index("never written")


def test_check_prints_no_problems_only_without_problems(vendor: ServerThread) -> None:
    path = str(small_study("focus_group", Path("files")))
    result = run_command("check", path, "--preview", "--trust")
    assert ("No problems" in result.output) != ("1 problem" in result.output), result.output
    second_result = run_command("check", path)
    assert second_result.exit_code == 0 and "No problems" in second_result.output


def test_a_study_without_controls_has_no_problem(vendor: ServerThread) -> None:
    file = Path("off.yaml")
    text = small_study("focus_group", Path("files")).read_text("utf-8")
    kept_lines = [line for line in text.splitlines() if not line.startswith("controls:")]
    file.write_text("\n".join([*kept_lines, "controls: {negative: false, retest: false}"]), "utf-8")
    result = run_command("check", str(file))
    assert result.exit_code == 0 and "No problems" in result.output, result.output


TOPIC = "topic: {description: Money, options: [Parks, Jobs]}\n"
CONCEPT = """
product_concept: An oven that reads
category: kitchen appliances
stimulus_material: Meet the oven that reads. 299 dollars.
num_personas: 6
questions_per_phase: 2
"""
# The first 23 groups can be drawn from these quotas, and so can a small part of the study.
RARE_QUOTAS = """
quotas:
  age: {"18-24": 1, "35-44": 5}
  education: {Doctorate: 1, Some college: 1}
"""
TOWN_HALL = "topic: {title: New blocks, background: The city plans to build.}\n"
# Its tickets suffice for a part of the rooms. They are counted before the first call.
ROOMS = """
from folkmoot import Speaker, Study, StudyConfig
from folkmoot.errors import InputError, Problem

class Rooms(StudyConfig):
    rooms: int = 1

def with_limit(config, limit):
    return config.model_copy(update={"rooms": min(config.rooms, limit)})

async def protocol(session):
    rooms = session.config.rooms
    if rooms > 90:
        raise InputError(Problem(f"{rooms} tickets are needed, 90 exist", key="rooms"))
    async def greet(scope, number):
        await scope.ask(Speaker(f"p{number}"), "Good day. " + "So it is. " * 2000)
    await session.map(range(rooms), greet)

STUDY = Study("rooms", "Rooms", Rooms, protocol, with_limit=with_limit)
"""
# Studies with too few resources: study file, other files, error message. A part would run.
INCOMPLETE_STUDIES = {
    "people of a table": (
        f"study: cross_pollination\npilot_id: t\n{TOPIC}participants_per_condition: 300\n"
        "personas: {source: table, file: people.csv}\n",
        {"people.csv": "name,age\n" + "".join(f"P {n},{20 + n % 50}\n" for n in range(1100))},
        "1200 personas are needed, 1100 exist",
    ),
    "lines of a file": (
        f"study: cross_pollination\npilot_id: h\n{TOPIC}participants_per_condition: 40\n"
        "personas: {source: persona_hub, file: lines.jsonl, pool: pool.json}\n",
        {
            "lines.jsonl": "".join(
                json.dumps({"persona": f"a teacher of class {n} who likes long walks"}) + "\n"
                for n in range(200)
            )
        },
        "240 personas are needed, 200 are usable",
    ),
    "quotas": (
        f"study: focus_group\nrandom_seed: 3\nreplications: 25\n{CONCEPT}{RARE_QUOTAS}",
        {},
        "no person fits the remaining quotas",
    ),
    "profiles": (
        f"study: focus_group\nreplications: 40\npersonas: few.csv\n{CONCEPT}",
        {"few.csv": "name,age\nAda,30\nBen,40\nCleo,50\n"},
        "6 people are needed; the file has 3",
    ),
    "members": (
        "study: negotiation\ngroup_types: [spouses]\ngroups_per_type: 40\npersonas: few.csv\n",
        {"few.csv": "name,age\n" + "".join(f"P {n},{20 + n % 50}\n" for n in range(70))},
        "few.csv has 70 personas and the groups have 80 members",
    ),
    "a profile": (f"study: town_hall\nsets: 40\n{TOWN_HALL}vulnerable: [gone.md]\n", {}, "no file"),
    "seats": (
        f"study: town_hall\nsets: 3\n{TOWN_HALL}seats: {{count: 5000}}\n",
        {},
        "5,?000",
    ),
    "tickets": ("study: ./rooms.py\nrooms: 100\n", {"rooms.py": ROOMS}, "100 tickets are needed"),
}


# The search for personas with rare quotas takes some seconds before it ends.
@pytest.mark.parametrize(
    "missing_part",
    sample_daily(INCOMPLETE_STUDIES, daily=INCOMPLETE_STUDIES.keys() - {"quotas"}, part="scale"),
)
def test_check_and_run_refuse_with_the_same_message(
    missing_part: str, vendor: ServerThread
) -> None:
    """A dry run of a part would need less than the study and would find no problem."""
    study, files, refusal = INCOMPLETE_STUDIES[missing_part]
    for name, text in {"lacking.yaml": f"{study}model: gpt-4o\n", **files}.items():
        Path(name).write_text(text, "utf-8")
    messages = []
    for words in (["check", "--trust"], ["run", "--trust", "--no-preflight"]):
        result = run_command(words[0], "lacking.yaml", *words[1:])
        assert result.exit_code == 2, result.output
        messages.append(result.output.partition("problem")[2])
    assert re.search(refusal, messages[0])
    assert messages[0] == messages[1]
    assert vendor.model.counts["received"] == 0
    assert not list(Path("outputs").glob("*/*"))
