"""What goes wrong before, between and after runs: nothing is left behind, nothing is lost."""

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


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


PILOT = """
pilot_id: trial
topic: {description: Who gets the money, options: [Parks, Jobs]}
participants_per_condition: 2
personas: {source: persona_hub, file: hub.jsonl}
"""


def test_models_that_nobody_knows_stand_in_the_list_of_mistakes(here: Path) -> None:
    (here / "bad.yaml").write_text(
        "study: ./my_study.py\nmodel: gpt-99\npeopel: 3\nmodels:\n  cook: nobody-7\n"
    )
    for verb in ("run", "check"):
        said = command(verb, "bad.yaml")
        assert said.exit_code == 2
        assert "No problems" not in said.output
        told = " ".join(said.stderr.split())
        assert "3 problems:" in told
        assert "bad.yaml:2: model: unknown model 'gpt-99'" in told
        assert "bad.yaml:5: models.cook: unknown model 'nobody-7'" in told
    good = (here / "bad.yaml").read_text().replace("peopel", "people")
    (here / "bad.yaml").write_text(good)
    other = command("run", "bad.yaml", "--model", "synthetic")  # takes every seat
    assert other.exit_code == 0, other.output
    unknown = command("check", "vote.yaml", "--model", "gpt-99")
    assert (unknown.exit_code, unknown.stdout) == (2, "")


def test_bad_input_that_only_shows_in_the_run_leaves_nothing_behind(here: Path) -> None:
    (here / "pilot.yaml").write_text(PILOT)
    (here / "hub.jsonl").write_text('{"persona": "A baker from a small town"}\n')
    few = command("run", "pilot.yaml")
    assert few.exit_code == 2
    assert "12 personas are needed" in " ".join(few.stderr.split())
    assert not (here / "outputs" / "trial").exists()
    lines = [f"A baker from street {k} who likes quiet mornings" for k in range(30)]
    (here / "hub.jsonl").write_text("".join(f'{{"persona": "{line}"}}\n' for line in lines))
    done = command("run", "pilot.yaml")  # the same line again, once it is mended
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("lost", ["gone", "empty"])
def test_a_run_whose_journal_is_lost_does_not_ask_all_again(here: Path, lost: str) -> None:
    assert command("run", "vote.yaml").exit_code == 0
    journal = here / "outputs" / "vote" / "journal.sqlite"
    kept = journal.read_bytes()
    journal.unlink()
    if lost == "empty":
        journal.touch()
    again = command("run", "vote.yaml", "--resume")
    assert again.exit_code == 2
    assert "missing or empty" in again.stderr
    journal.write_bytes(kept)
    assert command("run", "vote.yaml", "--resume").exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_before_the_first_question_promises_nothing_to_go_on_with(here: Path) -> None:
    (here / "slow.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    (here / "slow.yaml").write_text("study: ./slow.py\n")
    words = add_default_signals(sys.executable, "-m", "folkmoot", "run", "slow.yaml")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 130, said
    assert "Interrupted" in said
    assert "--resume" not in said
    assert not (here / "outputs").exists()


def test_a_run_in_a_notebook_says_what_it_is(here: Path) -> None:
    run = folkmoot.run(here / "vote.yaml")
    assert repr(run) == "Run('outputs/vote': small; tables answers, provenance, votes)"
    assert repr(folkmoot.load("outputs/vote")) == repr(run)
    assert run.manifest["calls"] == 6
    assert run.json("plan.json")["sealed"]


def test_a_run_that_asked_nothing_is_started_again_in_its_folder(here: Path) -> None:
    broken = command("run", "vote.yaml", "--set", "breaks=true", "--out", "first")
    assert broken.exit_code != 0
    assert (here / "first" / "journal.sqlite").exists()
    (here / "first" / "notes.txt").write_text("mine")
    again = command("run", "vote.yaml", "--out", "first", "--seed", "7")
    assert again.exit_code == 0, again.output
    assert (here / "first" / "notes.txt").read_text() == "mine"
    assert "breaks: false" in (here / "first" / "study.yaml").read_text()
    assert folkmoot.load(here / "first").manifest["processes"] == 1
    assert command("run", "vote.yaml", "--out", "first").exit_code == 2  # now it has asked


def test_a_reworded_prompt_says_how_to_keep_the_old_wording(here: Path) -> None:
    shipped = here / "shipped"
    shipped.mkdir()
    (shipped / "vote.md").write_text("Vote.")
    (here / "worded.py").write_text(
        "from pathlib import Path\n"
        "from folkmoot import Session, Speaker, Study, StudyConfig\n\n\n"
        "async def protocol(session: Session) -> None:\n"
        '    await session.ask(Speaker("ann"), session.prompt("vote"))\n\n\n'
        'STUDY = Study("worded", "Worded", StudyConfig, protocol, '
        'prompts=Path(__file__).parent / "shipped")\n'
    )
    (here / "worded.yaml").write_text("study: ./worded.py\nmodel: synthetic\n")
    assert command("run", "worded.yaml", "--trust").exit_code == 0
    (shipped / "vote.md").write_text("Please vote.")  # as an upgrade does
    said = command("run", "worded.yaml", "--trust", "--resume")
    told = " ".join(said.stderr.split())
    assert said.exit_code == 2
    assert "install the version of Folkmoot that started the run" in told
    assert "put its prompt vote.md into a folder and name the folder under `prompts:`" in told
    (here / "kept").mkdir()
    (here / "kept" / "vote.md").write_text("Vote.")
    again = command("run", "worded.yaml", "--trust", "--resume", "--set", "prompts=kept")
    assert again.exit_code == 0, again.output


def test_what_an_author_needs_is_there_without_a_search() -> None:
    (one,) = folkmoot.find_persona_source("quota")(1, np.random.default_rng(1))
    assert isinstance(one, folkmoot.Persona) and one.text
