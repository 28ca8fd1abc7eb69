"""Commands as a user meets them: what is printed, what is written, how they end."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from folkmoot.cli.app import app
from folkmoot.cli.console import clean_and_redact, resume_line
from tests.default_signals import add_default_signals

SECRET = "sk-test-0123456789abcdefghij"


def folkmoot(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def tables(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((folder / "tables").iterdir())}


def test_run_prints_headlines_the_mark_and_the_files_and_is_never_overwritten(here: Path) -> None:
    result = folkmoot("run", "vote.yaml")
    assert result.exit_code == 0, result.output
    for said in ("The vote", "So many voted.", "SYNTHETIC", "outputs/vote", "6 calls", "votes"):
        assert said in result.stdout
    assert "Not a headline" not in result.stdout
    assert "a note to read" in result.stderr
    assert "(.parquet and .csv; provenance: .parquet alone)" in result.stdout
    before = tables(here / "outputs" / "vote")
    again = folkmoot("run", "vote.yaml")
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    resumed = folkmoot("run", "--config", "vote.yaml", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert tables(here / "outputs" / "vote") == before


def test_printed_commands_can_be_pasted_into_a_shell(here: Path) -> None:
    """A user makes a study from a template in a folder of any name, and follows what is printed."""
    folder = "Kosten & Nutzen"
    (here / folder).mkdir()
    (here / "vote.yaml").rename(here / folder / "it's.yaml")
    (here / "my_study.py").rename(here / folder / "my_study.py")
    lines = [f'folkmoot run "{folder}/it\'s.yaml" --out "{folder}/a run"']
    for _ in range(3):
        words = shlex.split(lines.pop(0))
        result = folkmoot(*words[1:])
        assert result.exit_code == 0, result.output
        lines += [f"folkmoot {part}" for part in re.findall(r"folkmoot (.*)", result.stdout)]
    assert words[1] == "report" and (here / folder / "a run" / "report.html").is_file()


@pytest.mark.parametrize("out", ["a file", "a file/run"])
def test_a_file_where_the_run_should_lie_is_said_and_left(here: Path, out: str) -> None:
    (here / "a file").write_text("of mine")
    result = folkmoot("run", "vote.yaml", "--out", out)
    assert result.exit_code == 2
    assert f"{out}: a file is where a folder is needed" in result.stderr
    assert (here / "a file").read_text() == "of mine"


def test_a_table_that_is_gone_is_no_empty_table(here: Path) -> None:
    folkmoot("run", "vote.yaml")
    table = here / "outputs" / "vote" / "tables" / "votes.parquet"
    was = table.read_bytes()
    table.unlink()
    for words in (("report",), ("export", "--to", "csv"), ("compare", "outputs/vote")):
        result = folkmoot(words[0], "outputs/vote", *words[1:])
        assert result.exit_code == 2
        assert "tables/votes.parquet is gone; --resume writes it again" in result.stderr
    assert folkmoot("run", "vote.yaml", "--resume").exit_code == 0
    assert table.read_bytes() == was


def test_flags_reach_the_run(here: Path) -> None:
    words = ("--set", "people=3", "--seed", "7", "--concurrency", "2", "--out", "elsewhere")
    result = folkmoot("run", "vote.yaml", *words)
    assert result.exit_code == 0, result.output
    manifest = json.loads((here / "elsewhere" / "manifest.json").read_text())
    assert (manifest["calls"], manifest["seed"]) == (3, 7)
    assert not (here / "outputs").exists()


def test_bad_input_lists_every_mistake_and_writes_nothing(here: Path) -> None:
    (here / "bad.yaml").write_text("study: ./my_study.py\npeopel: 3\ntemperature: hot\n")
    for command in ("run", "check"):
        result = folkmoot(command, "bad.yaml")
        assert result.exit_code == 2
        assert "2 problems:" in result.stderr
        assert "bad.yaml:2: peopel: unknown key (did you mean people?)" in result.stderr
        assert "bad.yaml:3: temperature: must be a number" in result.stderr
        assert "Traceback" not in result.output
    assert not (here / "outputs").exists()
    assert folkmoot("run").exit_code == 2
    assert folkmoot("run", "vote.yaml", "--config", "bad.yaml").exit_code == 2
    assert folkmoot("run", "vote.yaml", "--limit", "0").exit_code == 2


def test_a_missing_key_is_one_line_before_anything_is_written(here: Path) -> None:
    result = folkmoot("run", "vote.yaml", "--model", "openai/gpt-4o")
    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr
    assert not (here / "outputs").exists()


def test_key_warns_and_is_written_nowhere(here: Path) -> None:
    result = folkmoot("run", "vote.yaml", "--key", SECRET)
    assert result.exit_code == 0, result.output
    assert "is safer" in result.stderr
    assert SECRET not in result.output
    files = [p for p in (here / "outputs").rglob("*") if p.is_file()]
    assert files
    assert not [p for p in files if SECRET.encode() in p.read_bytes()]


def test_a_used_up_budget_pauses_and_more_of_it_goes_on(here: Path) -> None:
    result = folkmoot("run", "vote.yaml", "--set", "budget_calls=2")
    assert result.exit_code == 75
    assert "Paused" in result.stderr
    assert "--resume" not in result.stdout
    resumed = folkmoot("run", "vote.yaml", "--set", "budget_calls=100", "--resume")
    assert resumed.exit_code == 0, resumed.output
    folkmoot("run", "vote.yaml", "--out", "undisturbed")
    assert tables(here / "outputs" / "vote") == tables(here / "undisturbed")


def test_a_bug_of_ours_ends_with_1_and_a_file_to_report(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug in the study")

    monkeypatch.setattr("folkmoot.engine.run.execution.write_table", broken)
    result = folkmoot("run", "vote.yaml")
    assert result.exit_code == 1
    assert "Internal error" in result.stderr
    assert "Traceback" not in result.output
    log = Path(result.stderr.rsplit("with the file ", 1)[1].strip().rstrip("."))
    assert "a bug in the study" in log.read_text()
    log.unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_keeps_all_and_prints_how_to_go_on(here: Path) -> None:
    command = [sys.executable, "-m", "folkmoot", "run", "vote.yaml", "--key", SECRET]
    endless = add_default_signals(*command, "--set", "endless=true")
    with subprocess.Popen(endless, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "asking for ever" in line)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert "Interrupted" in said
    assert "folkmoot run vote.yaml --set endless=true --resume" in said
    assert SECRET not in said
    assert "Traceback" not in said
    resumed = folkmoot("run", "vote.yaml", "--resume")
    assert resumed.exit_code == 2
    assert "endless" in resumed.stderr


def test_an_output_that_knows_few_characters_shows_the_others_as_question_marks(
    here: Path,
) -> None:
    emoji = "--set=options=[\N{DECIDUOUS TREE} Parks, Jobs]"
    assert folkmoot("run", "vote.yaml", emoji).exit_code == 0
    command = [sys.executable, "-m", "folkmoot", "show", "outputs/vote", "p_0001", "--prompts"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"1. ? Parks" in done.stdout


def test_no_key_is_ever_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    odd, set_ = "an odd key of mine", "another-odd-one-123"
    monkeypatch.setattr(sys, "argv", ["folkmoot", "run", "--key", odd, f"--key={odd}2"])
    monkeypatch.setenv("OPENAI_API_KEY", set_)
    said = clean_and_redact(f"401 for {odd} and {odd}2 and {set_} and {SECRET}\x1b[0m")
    assert not any(key in said for key in (odd, set_, SECRET, "\x1b"))


def test_the_line_to_go_on_repeats_no_key() -> None:
    argv = ["run", "my study.yaml", "--key", "k1", "--key=k2", "--resume", "--set", "a=b c"]
    assert resume_line(argv) == "folkmoot run 'my study.yaml' --set 'a=b c' --resume"


def test_a_used_up_budget_is_not_repeated() -> None:
    argv = ["run", "a.yaml", "--budget", "5", "--budget=5", "--key=k"]
    more = ["--budget", "MORE"]
    assert resume_line(argv, more) == "folkmoot run a.yaml --budget MORE --resume"
    assert resume_line(argv) == "folkmoot run a.yaml --budget 5 --budget=5 --resume"
    as_keys = ["run", "a.yaml", "--set", "budget_usd=0.02", "--set=budget_usd=1", "--set", "n=2"]
    assert resume_line(as_keys, more) == "folkmoot run a.yaml --set n=2 --budget MORE --resume"
    argv = ["run", "a.yaml", "--set", "budget_calls=5", "--set=budget_calls=6", "--set", "rounds=2"]
    more = ["--set", "budget_calls=MORE"]
    assert resume_line(argv, more) == (
        "folkmoot run a.yaml --set rounds=2 --set budget_calls=MORE --resume"
    )


def test_check_counts_calls_and_says_what_is_missing(here: Path) -> None:
    result = folkmoot("check", "vote.yaml", "--model", "openai/gpt-4o", "--set", "people=50")
    assert result.exit_code == 0, result.output
    assert "Calls     about 50" in result.stdout
    assert "Cost      about $0.00" in result.stdout
    assert "OPENAI_API_KEY" in result.stdout
    assert "a note to read" in result.stdout
    assert not (here / "outputs").exists()
    unknown = folkmoot("check", "vote.yaml", "--model", "ollama/tiny")
    assert "unknown (no price is known)" in unknown.stdout


def test_new_writes_a_beginning_and_never_overwrites(here: Path) -> None:
    result = folkmoot("new", "./my_study.py", "begun")
    assert result.exit_code == 0, result.output
    assert (here / "begun" / "small.yaml").read_text() == "study: ./my_study.py\n"
    assert (here / "begun" / "small.txt").read_bytes() == b"words"
    assert "folkmoot check begun/small.yaml" in result.stdout
    assert folkmoot("new", "./my_study.py", "begun").exit_code == 2
    wrong = folkmoot("new", "cross_polination")
    assert wrong.exit_code == 2
    assert "did you mean cross_pollination?" in wrong.stderr
    assert "cross_pollination" in folkmoot("new").stdout
    for words in (("new", "town_hall", "mine.yaml"), ("schema", "town_hall", "mine.json")):
        refused = folkmoot(*words)
        assert refused.exit_code == 2
        assert "a folder is needed" in refused.stderr and "such as mine" in refused.stderr
        assert not (here / words[-1]).exists()


def test_show_lists_and_reads_conversations_without_control_characters(here: Path) -> None:
    study = here / "my_study.py"  # texts of a study's own, which nobody looked at before
    study.write_text(study.read_text().replace("a cook.", r"a cook.\x1b]0;owned\x07"))
    folkmoot("run", "vote.yaml")
    listed = folkmoot("show", "vote")
    assert listed.exit_code == 0, listed.output
    assert "p_0001" in listed.stdout
    one = folkmoot("show", "outputs/vote", "p_0002")
    assert "p_0002: " in one.stdout
    prompts = folkmoot("show", "outputs/vote", "p_0002", "--prompts")
    assert "Parks" in prompts.stdout
    assert "You are a cook." in prompts.stdout and "reply:" in prompts.stdout
    for said in (one.stdout, prompts.stdout):
        assert "\x1b" not in said and "\x07" not in said
    assert folkmoot("show", "outputs/vote", "--prompts").exit_code == 2
    gone = folkmoot("show", "vote", "p_9999")
    assert gone.exit_code == 2
    assert "ids: p_0001" in gone.stderr
    assert folkmoot("show", "nothing").exit_code == 2
    assert folkmoot("show", "vote.yaml").exit_code == 2


def test_show_reads_a_run_that_stopped_half_way(here: Path) -> None:
    study = (here / "my_study.py").read_text()
    own = study.replace("notes=", 'render_run=lambda run, key: [run.text("end.txt")],\n    notes=')
    own = own.replace(
        "def findings", '    session.write_text("end.txt", "the end")\n\ndef findings'
    )
    own = own.replace("vote = await scope.ask(", 'vote = await scope.child("says").ask(')
    (here / "own.py").write_text(own)
    (here / "own.yaml").write_text("study: ./own.py\nmodel: synthetic\n")
    assert folkmoot("run", "own.yaml", "--set", "budget_calls=3").exit_code == 75
    listed = folkmoot("show", "own")
    assert "not finished" in listed.stdout
    assert "\np_0001" in listed.stdout and "\np_0002" in listed.stdout
    assert "says" not in listed.stdout and "the end" not in listed.stdout
    assert "You are a cook." in folkmoot("show", "own", "p_0001", "--prompts").stdout
    assert folkmoot("run", "own.yaml", "--set", "budget_calls=99", "--resume").exit_code == 0
    assert "the end" in folkmoot("show", "own").stdout


def test_models_says_which_keys_are_set(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    listed = folkmoot("models")
    assert listed.exit_code == 0, listed.output
    assert "OPENAI_API_KEY is set" in listed.stdout
    assert "ANTHROPIC_API_KEY is not set" in listed.stdout
    assert SECRET not in listed.output
    tried = folkmoot("models", "synthetic", "--try")
    assert tried.exit_code == 0, tried.output
    assert folkmoot("models", "gpt-99", "--try").exit_code == 2
    dead = folkmoot(
        "models", "openai/m", "claude-haiku-4.5", "--try", "--base-url", "http://[::1]:1"
    )
    assert dead.exit_code == 2
    assert "Connection refused" in " ".join(dead.stdout.split())


def test_personas_are_built_listed_and_migrated(here: Path) -> None:
    assert "is empty" in folkmoot("personas", "list").stdout
    built = folkmoot("personas", "build", "12", "--seed", "3")
    assert built.exit_code == 0, built.output
    assert "12 added" in built.stdout
    assert "0 added" in folkmoot("personas", "build", "12", "--seed", "3").stdout
    assert "12 in data/personas.json: 12 from quota" in folkmoot("personas", "list").stdout
    run = here / "outputs" / "old"
    run.mkdir(parents=True)
    person = {
        "base_persona": "A retired teacher",
        "enriched_persona": "Ann, 70.",
        "demographics": {},
    }
    (run / "participants.json").write_text(json.dumps({"participants": [person, {}]}))
    moved = folkmoot("personas", "migrate")
    assert "Runs read: 1." in moved.stdout
    assert "personas.json: 1; already in it: 0; unusable records: 1" in moved.stdout
    nothing = folkmoot("personas", "migrate", "vote.yaml", "nowhere")
    assert nothing.exit_code == 2
    assert "vote.yaml: cannot be read" in nothing.stderr
    assert "nowhere: no participants.json here" in nothing.stderr
    assert folkmoot("personas", "build", "3", "--source", "tabel").exit_code == 2
    assert folkmoot("personas", "build", "3", "--source", "table").exit_code == 2


def test_personas_from_base_lines_are_a_run_that_can_be_repeated(here: Path) -> None:
    lines = [f"A baker from street {k} who likes quiet mornings" for k in range(20)]
    (here / "hub.jsonl").write_text("".join(json.dumps({"persona": x}) + "\n" for x in lines))
    words = ("personas", "build", "4", "--source", "persona_hub", "--file", "hub.jsonl")
    built = folkmoot(*words, "--model", "synthetic")
    assert built.exit_code == 0, built.output
    assert "4 added" in built.stdout
    people = json.loads((here / "data" / "personas.json").read_text())["personas"]
    assert {p["base_persona"] for p in people} <= set(lines)
    for p in people:  # the portrait is of this line, by whoever answers
        assert p["base_persona"].lower() in p["enriched_persona"].lower()
        assert "aker" in p["demographics"]["occupation"]
    (here / "data" / "personas.json").unlink()
    again = folkmoot(*words, "--model", "synthetic")
    assert again.exit_code == 0, again.output
    assert json.loads((here / "data" / "personas.json").read_text())["personas"] == people


def test_base_lines_are_fetched_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    served = here / "served"
    served.mkdir()
    (served / "persona.jsonl").write_text('{"persona": "A baker"}\n' * 500)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/persona.jsonl"
        first = folkmoot("personas", "fetch", "--url", url)
        gone = folkmoot("personas", "fetch", "--url", url + "x")
        server.shutdown()
    again = folkmoot("personas", "fetch", "--url", url)
    assert first.exit_code == 0, first.output
    assert gone.exit_code == 2
    assert "quota" in gone.stderr
    assert "already downloaded" in again.stdout
    (copy,) = (here / "cache").rglob("*.jsonl")
    assert copy.read_bytes() == (served / "persona.jsonl").read_bytes()


def test_help_is_there_without_the_scientific_libraries() -> None:
    code = (
        "import sys; from folkmoot.cli.app import app\n"
        "try: app(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'polars', 'numpy', 'aiohttp', 'jinja2', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--accept-changes" in done.stdout


def test_a_grid_is_run_shown_reported_verified_and_resumed(here: Path) -> None:
    (here / "vote.yaml").write_text((here / "vote.yaml").read_text() + "people: 2\n")
    made = folkmoot("run", "vote.yaml", "--repeats", "2", "--grid", "people=2,3", "temperature=0,1")
    assert made.exit_code == 0, made.output
    assert "8 of 8 cells have finished" in made.stdout
    assert "an illustration" in " ".join(made.stdout.split())
    grid = here / "outputs" / "vote"
    assert len(list((grid / "cells").iterdir())) == 8
    shown = folkmoot("show", "vote")
    assert shown.stdout.count("done") == 8 and "people=3_temperature=1_r2" in shown.stdout
    assert folkmoot("report", "vote").exit_code == 0
    assert (grid / "report.html").exists()
    assert folkmoot("report", "vote", "--pdf").exit_code == 2
    assert folkmoot("verify", "vote").exit_code == 0
    (grid / "cells" / "people=3_temperature=1_r2" / "tables" / "votes.csv").write_text("x")
    assert folkmoot("verify", "vote").exit_code == 4
    again = folkmoot("run", "vote.yaml", "--resume")
    assert again.exit_code == 0, again.output
    assert folkmoot("run", "vote.yaml", "people=2,3").exit_code == 2
    assert folkmoot("run", "vote.yaml", "--grid", "people").exit_code == 2
    shutil.rmtree(grid / "cells" / "people=3_temperature=1_r2")
    left = " ".join(folkmoot("verify", "vote").stdout.split())
    assert "1 cell of 8 without a finished run; not verified" in left
