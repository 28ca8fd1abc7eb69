"""Commands: their output, their files and their exit status."""

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
from folkmoot.cli.console import NO_USD_BUDGET, clean_and_redact, resume_line
from tests.contract.small import small_study
from tests.default_signals import add_default_signals

SECRET = "sk-test-0123456789abcdefghij"


def run_folkmoot(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def read_tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def test_run_prints_findings_and_files_and_does_not_overwrite(study_folder: Path) -> None:
    result = run_folkmoot("run", "vote.yaml")
    assert result.exit_code == 0, result.output
    for text in ("The vote", "So many voted.", "SYNTHETIC", "outputs/vote", "6 calls", "votes"):
        assert text in result.stdout
    assert "Not a headline" not in result.stdout
    assert "a note to read" in result.stderr
    assert "(.parquet and .csv; provenance: .parquet alone)" in result.stdout
    first_tables = read_tables(study_folder / "outputs" / "vote")
    second = run_folkmoot("run", "vote.yaml")
    assert second.exit_code == 2
    assert "--resume" in second.stderr
    resumed = run_folkmoot("run", "--config", "vote.yaml", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert read_tables(study_folder / "outputs" / "vote") == first_tables


def test_printed_commands_can_be_pasted_into_a_shell(study_folder: Path) -> None:
    """The study is in a folder with special characters. Each printed command is executed."""
    folder = "Kosten & Nutzen"
    (study_folder / folder).mkdir()
    (study_folder / "vote.yaml").rename(study_folder / folder / "it's.yaml")
    (study_folder / "my_study.py").rename(study_folder / folder / "my_study.py")
    lines = [f'folkmoot run "{folder}/it\'s.yaml" --out "{folder}/a run"']
    for _ in range(3):
        arguments = shlex.split(lines.pop(0))
        result = run_folkmoot(*arguments[1:])
        assert result.exit_code == 0, result.output
        lines += [f"folkmoot {rest}" for rest in re.findall(r"folkmoot (.*)", result.stdout)]
    assert arguments[1] == "report" and (study_folder / folder / "a run" / "report.html").is_file()


@pytest.mark.parametrize("out", ["a file", "a file/run"])
def test_a_file_at_the_path_of_the_run_is_reported_and_kept(study_folder: Path, out: str) -> None:
    (study_folder / "a file").write_text("of mine")
    result = run_folkmoot("run", "vote.yaml", "--out", out)
    assert result.exit_code == 2
    assert f"{out}: a file is where a folder is needed" in result.stderr
    assert (study_folder / "a file").read_text() == "of mine"


def test_a_missing_table_is_reported_and_restored_by_resume(study_folder: Path) -> None:
    run_folkmoot("run", "vote.yaml")
    table = study_folder / "outputs" / "vote" / "tables" / "votes.parquet"
    content = table.read_bytes()
    table.unlink()
    for arguments in (("report",), ("export", "--to", "csv"), ("compare", "outputs/vote")):
        result = run_folkmoot(arguments[0], "outputs/vote", *arguments[1:])
        assert result.exit_code == 2
        assert "tables/votes.parquet is gone; --resume writes it again" in result.stderr
    assert run_folkmoot("run", "vote.yaml", "--resume").exit_code == 0
    assert table.read_bytes() == content


def test_options_apply_to_the_run(study_folder: Path) -> None:
    options = ("--set", "people=3", "--seed", "7", "--concurrency", "2", "--out", "elsewhere")
    result = run_folkmoot("run", "vote.yaml", *options)
    assert result.exit_code == 0, result.output
    manifest = json.loads((study_folder / "elsewhere" / "manifest.json").read_text())
    assert (manifest["calls"], manifest["seed"]) == (3, 7)
    assert not (study_folder / "outputs").exists()


def test_bad_input_lists_every_mistake_and_writes_nothing(study_folder: Path) -> None:
    (study_folder / "bad.yaml").write_text("study: ./my_study.py\npeopel: 3\ntemperature: hot\n")
    for command in ("run", "check"):
        result = run_folkmoot(command, "bad.yaml")
        assert result.exit_code == 2
        assert "2 problems:" in result.stderr
        assert "bad.yaml:2: peopel: unknown key (did you mean people?)" in result.stderr
        assert "bad.yaml:3: temperature: must be a number" in result.stderr
        assert "Traceback" not in result.output
    assert not (study_folder / "outputs").exists()
    assert run_folkmoot("run").exit_code == 2
    assert run_folkmoot("run", "vote.yaml", "--config", "bad.yaml").exit_code == 2
    assert run_folkmoot("run", "vote.yaml", "--limit", "0").exit_code == 2


def test_a_missing_key_is_reported_before_files_are_written(study_folder: Path) -> None:
    result = run_folkmoot("run", "vote.yaml", "--model", "openai/gpt-4o")
    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr
    assert not (study_folder / "outputs").exists()


def test_the_key_option_warns_and_the_key_is_not_stored(study_folder: Path) -> None:
    result = run_folkmoot("run", "vote.yaml", "--key", SECRET)
    assert result.exit_code == 0, result.output
    assert "is safer" in result.stderr
    assert SECRET not in result.output
    files = [path for path in (study_folder / "outputs").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_budget_pauses_the_run_and_a_larger_one_continues_it(study_folder: Path) -> None:
    result = run_folkmoot("run", "vote.yaml", "--set", "budget_calls=2")
    assert result.exit_code == 75
    assert "Paused" in result.stderr
    assert "--resume" not in result.stdout
    resumed = run_folkmoot("run", "vote.yaml", "--set", "budget_calls=100", "--resume")
    assert resumed.exit_code == 0, resumed.output
    run_folkmoot("run", "vote.yaml", "--out", "undisturbed")
    assert read_tables(study_folder / "outputs" / "vote") == read_tables(
        study_folder / "undisturbed"
    )


def test_an_internal_error_exits_with_1_and_writes_a_report(
    study_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_bug(*_: object) -> None:
        raise RuntimeError("a bug in the study")

    monkeypatch.setattr("folkmoot.engine.run.execution.write_table", raise_bug)
    result = run_folkmoot("run", "vote.yaml")
    assert result.exit_code == 1
    assert "Internal error" in result.stderr
    assert "Traceback" not in result.output
    log = Path(result.stderr.rsplit("with the file ", 1)[1].strip().rstrip("."))
    assert "a bug in the study" in log.read_text()
    log.unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_keeps_answers_and_prints_the_resume_command(study_folder: Path) -> None:
    command = [sys.executable, "-m", "folkmoot", "run", "vote.yaml", "--key", SECRET]
    endless_command = add_default_signals(*command, "--set", "endless=true")
    with subprocess.Popen(endless_command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "asking for ever" in line)
        process.send_signal(signal.SIGINT)
        output = process.stderr.read()
    assert process.returncode == 130, output
    assert "Interrupted" in output
    assert "folkmoot run vote.yaml --set endless=true --resume" in output
    assert SECRET not in output
    assert "Traceback" not in output
    resumed = run_folkmoot("run", "vote.yaml", "--resume")
    assert resumed.exit_code == 2
    assert "endless" in resumed.stderr


def test_characters_outside_the_output_encoding_are_question_marks(
    study_folder: Path,
) -> None:
    options_with_emoji = "--set=options=[\N{DECIDUOUS TREE} Parks, Jobs]"
    assert run_folkmoot("run", "vote.yaml", options_with_emoji).exit_code == 0
    command = [sys.executable, "-m", "folkmoot", "show", "outputs/vote", "p_0001", "--prompts"]
    process = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert process.returncode == 0, process.stderr
    assert b"1. ? Parks" in process.stdout


def test_no_key_is_ever_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    key_option, key_variable = "an odd key of mine", "another-odd-one-123"
    monkeypatch.setattr(
        sys, "argv", ["folkmoot", "run", "--key", key_option, f"--key={key_option}2"]
    )
    monkeypatch.setenv("OPENAI_API_KEY", key_variable)
    cleaned = clean_and_redact(
        f"401 for {key_option} and {key_option}2 and {key_variable} and {SECRET}\x1b[0m"
    )
    assert not any(key in cleaned for key in (key_option, key_variable, SECRET, "\x1b"))


def test_the_resume_command_contains_no_key() -> None:
    argv = ["run", "my study.yaml", "--key", "k1", "--key=k2", "--resume", "--set", "a=b c"]
    assert resume_line(argv) == "folkmoot run 'my study.yaml' --set 'a=b c' --resume"


def test_the_resume_command_replaces_the_budget() -> None:
    argv = ["run", "a.yaml", "--budget", "5", "--budget=5", "--key=k"]
    more_budget = ["--budget", "MORE"]
    assert resume_line(argv, more_budget) == "folkmoot run a.yaml --budget MORE --resume"
    assert resume_line(argv) == "folkmoot run a.yaml --budget 5 --budget=5 --resume"
    argv_with_keys = [
        "run",
        "a.yaml",
        "--set",
        "budget_usd=0.02",
        "--set=budget_usd=1",
        "--set",
        "n=2",
    ]
    assert (
        resume_line(argv_with_keys, more_budget)
        == "folkmoot run a.yaml --set n=2 --budget MORE --resume"
    )
    argv = ["run", "a.yaml", "--set", "budget_calls=5", "--set=budget_calls=6", "--set", "rounds=2"]
    more_budget = ["--set", "budget_calls=MORE"]
    assert resume_line(argv, more_budget) == (
        "folkmoot run a.yaml --set rounds=2 --set budget_calls=MORE --resume"
    )


def test_the_resume_command_leaves_out_a_budget_that_cannot_be_kept() -> None:
    budgets = ["--budget", "5", "--set", "budget_usd=1", "--set=budget_calls=3"]
    assert resume_line(["run", "a.yaml", *budgets, "--set", "n=2"], NO_USD_BUDGET) == (
        "folkmoot run a.yaml --set n=2 --set budget_usd=null --set budget_calls=MORE --resume"
    )
    # These commands have no option `--set`.
    assert resume_line(["fork", "a", "--budget=5"], NO_USD_BUDGET) == "folkmoot fork a --resume"


def test_check_estimates_calls_and_reports_missing_keys(study_folder: Path) -> None:
    result = run_folkmoot("check", "vote.yaml", "--model", "openai/gpt-4o", "--set", "people=50")
    assert result.exit_code == 0, result.output
    assert "Calls     about 50" in result.stdout
    assert "Cost      about $0.00" in result.stdout
    assert "OPENAI_API_KEY" in result.stdout
    assert "a note to read" in result.stdout
    assert not (study_folder / "outputs").exists()
    unknown = run_folkmoot("check", "vote.yaml", "--model", "ollama/tiny")
    assert "unknown (no price is known)" in unknown.stdout


def test_a_price_of_free_embeddings_alone_makes_no_cost(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    models = ("--model", "ollama/tiny", "--set", "embedding_model=wordllama")
    result = run_folkmoot("check", str(path), *models)
    assert "Cost      unknown (the price of ollama/tiny is unknown)" in result.stdout


def test_new_writes_template_files_and_does_not_overwrite(study_folder: Path) -> None:
    result = run_folkmoot("new", "./my_study.py", "begun")
    assert result.exit_code == 0, result.output
    assert (study_folder / "begun" / "small.yaml").read_text() == "study: ./my_study.py\n"
    assert (study_folder / "begun" / "small.txt").read_bytes() == b"words"
    assert "folkmoot check begun/small.yaml" in result.stdout
    assert run_folkmoot("new", "./my_study.py", "begun").exit_code == 2
    unknown_type = run_folkmoot("new", "cross_polination")
    assert unknown_type.exit_code == 2
    assert "did you mean cross_pollination?" in unknown_type.stderr
    assert "cross_pollination" in run_folkmoot("new").stdout
    for arguments in (("new", "town_hall", "mine.yaml"), ("schema", "town_hall", "mine.json")):
        result_with_file = run_folkmoot(*arguments)
        assert result_with_file.exit_code == 2
        assert (
            "a folder is needed" in result_with_file.stderr
            and "such as mine" in result_with_file.stderr
        )
        assert not (study_folder / arguments[-1]).exists()


def test_show_prints_conversations_without_control_characters(study_folder: Path) -> None:
    study = study_folder / "my_study.py"  # texts of the study code are not checked on input
    study.write_text(study.read_text().replace("a cook.", r"a cook.\x1b]0;owned\x07"))
    run_folkmoot("run", "vote.yaml")
    overview = run_folkmoot("show", "vote")
    assert overview.exit_code == 0, overview.output
    assert "p_0001" in overview.stdout
    conversation = run_folkmoot("show", "outputs/vote", "p_0002")
    assert "p_0002: " in conversation.stdout
    prompts = run_folkmoot("show", "outputs/vote", "p_0002", "--prompts")
    assert "Parks" in prompts.stdout
    assert "You are a cook." in prompts.stdout and "reply:" in prompts.stdout
    for text in (conversation.stdout, prompts.stdout):
        assert "\x1b" not in text and "\x07" not in text
    assert run_folkmoot("show", "outputs/vote", "--prompts").exit_code == 2
    unknown_id = run_folkmoot("show", "vote", "p_9999")
    assert unknown_id.exit_code == 2
    assert "ids: p_0001" in unknown_id.stderr
    assert run_folkmoot("show", "nothing").exit_code == 2
    assert run_folkmoot("show", "vote.yaml").exit_code == 2


def test_show_reads_an_unfinished_run(study_folder: Path) -> None:
    study = (study_folder / "my_study.py").read_text()
    custom_study = study.replace(
        "notes=", 'render_run=lambda run, key: [run.text("end.txt")],\n    notes='
    )
    custom_study = custom_study.replace(
        "def findings", '    session.write_text("end.txt", "the end")\n\ndef findings'
    )
    custom_study = custom_study.replace(
        "vote = await scope.ask(", 'vote = await scope.child("says").ask('
    )
    (study_folder / "own.py").write_text(custom_study)
    (study_folder / "own.yaml").write_text("study: ./own.py\nmodel: synthetic\n")
    assert run_folkmoot("run", "own.yaml", "--set", "budget_calls=3").exit_code == 75
    overview = run_folkmoot("show", "own")
    assert "not finished" in overview.stdout
    assert "\np_0001" in overview.stdout and "\np_0002" in overview.stdout
    assert "says" not in overview.stdout and "the end" not in overview.stdout
    assert "You are a cook." in run_folkmoot("show", "own", "p_0001", "--prompts").stdout
    assert run_folkmoot("run", "own.yaml", "--set", "budget_calls=99", "--resume").exit_code == 0
    assert "the end" in run_folkmoot("show", "own").stdout


def test_models_reports_which_keys_are_set(
    study_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    overview = run_folkmoot("models")
    assert overview.exit_code == 0, overview.output
    assert "OPENAI_API_KEY is set" in overview.stdout
    assert "ANTHROPIC_API_KEY is not set" in overview.stdout
    assert SECRET not in overview.output
    tested = run_folkmoot("models", "synthetic", "--try")
    assert tested.exit_code == 0, tested.output
    assert run_folkmoot("models", "gpt-99", "--try").exit_code == 2
    unreachable = run_folkmoot(
        "models", "openai/m", "claude-haiku-4.5", "--try", "--base-url", "http://[::1]:1"
    )
    assert unreachable.exit_code == 2
    assert "Connection refused" in " ".join(unreachable.stdout.split())


def test_personas_are_built_listed_and_migrated(study_folder: Path) -> None:
    assert "is empty" in run_folkmoot("personas", "list").stdout
    result = run_folkmoot("personas", "build", "12", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert "12 added" in result.stdout
    assert "0 added" in run_folkmoot("personas", "build", "12", "--seed", "3").stdout
    assert "12 in data/personas.json: 12 from quota" in run_folkmoot("personas", "list").stdout
    run = study_folder / "outputs" / "old"
    run.mkdir(parents=True)
    participant = {
        "base_persona": "A retired teacher",
        "enriched_persona": "Ann, 70.",
        "demographics": {},
    }
    (run / "participants.json").write_text(json.dumps({"participants": [participant, {}]}))
    migrated = run_folkmoot("personas", "migrate")
    assert "Runs read: 1." in migrated.stdout
    assert "personas.json: 1; already in it: 0; unusable records: 1" in migrated.stdout
    failed = run_folkmoot("personas", "migrate", "vote.yaml", "nowhere")
    assert failed.exit_code == 2
    assert "vote.yaml: cannot be read" in failed.stderr
    assert "nowhere: no participants.json here" in failed.stderr
    assert run_folkmoot("personas", "build", "3", "--source", "tabel").exit_code == 2
    assert run_folkmoot("personas", "build", "3", "--source", "table").exit_code == 2


def test_options_that_a_source_of_personas_ignores_are_told(study_folder: Path) -> None:
    words = ("personas", "build", "3", "--budget", "1")
    assert "--budget has no effect: the source quota asks no model" in run_folkmoot(*words).stderr
    (study_folder / "people.csv").write_text("name,age\nAnn,30\n")
    # Quota personas would be taken for the people of the file.
    refused = run_folkmoot("personas", "build", "3", "--file", "people.csv")
    assert refused.exit_code == 2 and "the source quota reads no file" in refused.stderr


def test_persons_with_equal_attributes_are_one_persona_of_the_pool(study_folder: Path) -> None:
    rows = ["person,item,before,after,sex", "p0,A.,1,1,M", "p1,A.,2,4,F", "p2,A.,3,3,F"]
    (study_folder / "people.csv").write_text("\n".join(rows))
    result = run_folkmoot("personas", "build", "3", "--source", "table", "--file", "people.csv")
    assert result.exit_code == 0, result.output
    # The pool was empty before.
    expected = "2 added to data/personas.json, 1 left out because the same persona is in it, 2 in"
    assert expected in result.stdout


def test_personas_from_base_lines_are_reproducible(study_folder: Path) -> None:
    lines = [f"A baker from street {i} who likes quiet mornings" for i in range(20)]
    (study_folder / "hub.jsonl").write_text(
        "".join(json.dumps({"persona": line}) + "\n" for line in lines)
    )
    arguments = ("personas", "build", "4", "--source", "persona_hub", "--file", "hub.jsonl")
    first = run_folkmoot(*arguments, "--model", "synthetic")
    assert first.exit_code == 0, first.output
    assert "4 added" in first.stdout
    (folder,) = Path("outputs").iterdir()
    # The calls and their cost, as after a run.
    calls = json.loads((folder / "manifest.json").read_text())["calls"]
    assert f"{folder}  {calls} calls · synthetic · $0" in first.stdout
    personas = json.loads((study_folder / "data" / "personas.json").read_text())["personas"]
    assert {persona["base_persona"] for persona in personas} <= set(lines)
    for persona in personas:  # the respondent builds the persona from this line
        assert persona["base_persona"].lower() in persona["enriched_persona"].lower()
        assert "aker" in persona["demographics"]["occupation"]
    (study_folder / "data" / "personas.json").unlink()
    second = run_folkmoot(*arguments, "--model", "synthetic")
    assert second.exit_code == 0, second.output
    assert json.loads((study_folder / "data" / "personas.json").read_text())["personas"] == personas


def test_base_lines_are_downloaded_once(
    study_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(study_folder / "cache"))
    server_folder = study_folder / "served"
    server_folder.mkdir()
    (server_folder / "persona.jsonl").write_text('{"persona": "A baker"}\n' * 500)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(server_folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/persona.jsonl"
        first = run_folkmoot("personas", "fetch", "--url", url)
        missing = run_folkmoot("personas", "fetch", "--url", url + "x")
        server.shutdown()
    second = run_folkmoot("personas", "fetch", "--url", url)
    assert first.exit_code == 0, first.output
    assert missing.exit_code == 2
    assert "quota" in missing.stderr
    assert "already downloaded" in second.stdout
    (cached_file,) = (study_folder / "cache").rglob("*.jsonl")
    assert cached_file.read_bytes() == (server_folder / "persona.jsonl").read_bytes()


def test_help_does_not_load_the_scientific_libraries() -> None:
    code = (
        "import sys; from folkmoot.cli.app import app\n"
        "try: app(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'polars', 'numpy', 'aiohttp', 'jinja2', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "--accept-changes" in process.stdout


def test_a_grid_is_run_shown_reported_verified_and_resumed(study_folder: Path) -> None:
    (study_folder / "vote.yaml").write_text(
        (study_folder / "vote.yaml").read_text() + "people: 2\n"
    )
    first = run_folkmoot(
        "run", "vote.yaml", "--repeats", "2", "--grid", "people=2,3", "temperature=0,1"
    )
    assert first.exit_code == 0, first.output
    assert "8 of 8 cells have finished" in first.stdout
    assert "an illustration" in " ".join(first.stdout.split())
    grid = study_folder / "outputs" / "vote"
    assert len(list((grid / "cells").iterdir())) == 8
    overview = run_folkmoot("show", "vote")
    assert overview.stdout.count("done") == 8 and "people=3_temperature=1_r2" in overview.stdout
    assert run_folkmoot("report", "vote").exit_code == 0
    assert (grid / "report.html").exists()
    assert run_folkmoot("report", "vote", "--pdf").exit_code == 2
    assert run_folkmoot("verify", "vote").exit_code == 0
    (grid / "cells" / "people=3_temperature=1_r2" / "tables" / "votes.csv").write_text("x")
    assert run_folkmoot("verify", "vote").exit_code == 4
    resumed = run_folkmoot("run", "vote.yaml", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert run_folkmoot("run", "vote.yaml", "people=2,3").exit_code == 2
    assert run_folkmoot("run", "vote.yaml", "--grid", "people").exit_code == 2
    shutil.rmtree(grid / "cells" / "people=3_temperature=1_r2")
    verify_output = " ".join(run_folkmoot("verify", "vote").stdout.split())
    assert "1 cell of 8 without a finished run; not verified" in verify_output
