"""Errors before, between and after runs leave no files behind and lose no answers."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import folkmoot
from folkmoot.cli.app import app
from tests.default_signals import add_default_signals


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


PILOT = """
pilot_id: trial
topic: {description: Who gets the money, options: [Parks, Jobs]}
participants_per_condition: 2
personas: {source: persona_hub, file: hub.jsonl}
"""


def test_unknown_models_are_in_the_list_of_problems(study_folder: Path) -> None:
    (study_folder / "bad.yaml").write_text(
        "study: ./my_study.py\nmodel: gpt-99\npeopel: 3\nmodels:\n  cook: nobody-7\n"
    )
    for name in ("run", "check"):
        result = run_command(name, "bad.yaml")
        assert result.exit_code == 2
        assert "No problems" not in result.output
        error_text = " ".join(result.stderr.split())
        assert "3 problems:" in error_text
        assert "bad.yaml:2: model: unknown model 'gpt-99'" in error_text
        assert "bad.yaml:5: models.cook: unknown model 'nobody-7'" in error_text
    corrected = (study_folder / "bad.yaml").read_text().replace("peopel", "people")
    (study_folder / "bad.yaml").write_text(corrected)
    overridden = run_command("run", "bad.yaml", "--model", "synthetic")  # overrides all models
    assert overridden.exit_code == 0, overridden.output
    unknown = run_command("check", "vote.yaml", "--model", "gpt-99")
    assert (unknown.exit_code, unknown.stdout) == (2, "")


def test_bad_input_found_in_the_run_leaves_no_folder(study_folder: Path) -> None:
    (study_folder / "pilot.yaml").write_text(PILOT)
    (study_folder / "hub.jsonl").write_text('{"persona": "A baker from a small town"}\n')
    failed = run_command("run", "pilot.yaml")
    assert failed.exit_code == 2
    assert "12 personas are needed" in " ".join(failed.stderr.split())
    assert not (study_folder / "outputs" / "trial").exists()
    lines = [f"A baker from street {i} who likes quiet mornings" for i in range(30)]
    (study_folder / "hub.jsonl").write_text("".join(f'{{"persona": "{line}"}}\n' for line in lines))
    result = run_command("run", "pilot.yaml")  # the same command after the correction
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("loss", ["gone", "empty"])
def test_a_run_without_its_journal_is_not_resumed(study_folder: Path, loss: str) -> None:
    assert run_command("run", "vote.yaml").exit_code == 0
    journal = study_folder / "outputs" / "vote" / "journal.sqlite"
    content = journal.read_bytes()
    journal.unlink()
    if loss == "empty":
        journal.touch()
    result = run_command("run", "vote.yaml", "--resume")
    assert result.exit_code == 2
    assert "missing or empty" in result.stderr
    journal.write_bytes(content)
    assert run_command("run", "vote.yaml", "--resume").exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_before_the_first_call_offers_no_resume(study_folder: Path) -> None:
    (study_folder / "slow.py").write_text(
        "import time\nprint('here', flush=True)\ntime.sleep(60)\n"
    )
    (study_folder / "slow.yaml").write_text("study: ./slow.py\n")
    arguments = add_default_signals(sys.executable, "-m", "folkmoot", "run", "slow.yaml")
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
    assert process.returncode == 130, output
    assert "Interrupted" in output
    assert "--resume" not in output
    assert not (study_folder / "outputs").exists()


def test_the_repr_of_a_run_has_folder_study_and_tables(study_folder: Path) -> None:
    run = folkmoot.run(study_folder / "vote.yaml")
    assert repr(run) == "Run('outputs/vote': small; tables answers, provenance, votes)"
    assert repr(folkmoot.load("outputs/vote")) == repr(run)
    assert run.manifest["calls"] == 6
    assert run.json("plan.json")["sealed"]


def test_a_run_without_calls_is_started_again_in_its_folder(study_folder: Path) -> None:
    failed = run_command("run", "vote.yaml", "--set", "breaks=true", "--out", "first")
    assert failed.exit_code != 0
    assert (study_folder / "first" / "journal.sqlite").exists()
    (study_folder / "first" / "notes.txt").write_text("mine")
    second = run_command("run", "vote.yaml", "--out", "first", "--seed", "7")
    assert second.exit_code == 0, second.output
    assert (study_folder / "first" / "notes.txt").read_text() == "mine"
    assert "breaks: false" in (study_folder / "first" / "study.yaml").read_text()
    assert folkmoot.load(study_folder / "first").manifest["processes"] == 1
    assert run_command("run", "vote.yaml", "--out", "first").exit_code == 2  # now the run has calls


def test_a_changed_prompt_is_reported_with_a_way_to_keep_the_old_one(study_folder: Path) -> None:
    prompts_folder = study_folder / "shipped"
    prompts_folder.mkdir()
    (prompts_folder / "vote.md").write_text("Vote.")
    (study_folder / "worded.py").write_text(
        "from pathlib import Path\n"
        "from folkmoot import Session, Speaker, Study, StudyConfig\n\n\n"
        "async def protocol(session: Session) -> None:\n"
        '    await session.ask(Speaker("ann"), session.prompt("vote"))\n\n\n'
        'STUDY = Study("worded", "Worded", StudyConfig, protocol, '
        'prompts=Path(__file__).parent / "shipped")\n'
    )
    (study_folder / "worded.yaml").write_text("study: ./worded.py\nmodel: synthetic\n")
    assert run_command("run", "worded.yaml", "--trust").exit_code == 0
    (prompts_folder / "vote.md").write_text("Please vote.")  # as an upgrade does
    result = run_command("run", "worded.yaml", "--trust", "--resume")
    error_text = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert "install the version of Folkmoot that started the run" in error_text
    assert "put its prompt vote.md into a folder and name the folder under `prompts:`" in error_text
    (study_folder / "kept").mkdir()
    (study_folder / "kept" / "vote.md").write_text("Vote.")
    resumed = run_command("run", "worded.yaml", "--trust", "--resume", "--set", "prompts=kept")
    assert resumed.exit_code == 0, resumed.output


def test_persona_sources_are_available_from_the_package() -> None:
    (persona,) = folkmoot.find_persona_source("quota")(1, np.random.default_rng(1))
    assert isinstance(persona, folkmoot.Persona) and persona.text
