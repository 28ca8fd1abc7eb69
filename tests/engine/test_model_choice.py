"""Which models a run asks: no vendor is paid unless the user named its model.

One server replaces every vendor and counts the requests. Every key is set."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.engine.study.study import find_study
from folkmoot.errors import BudgetReachedError, InputError
from folkmoot.models.api_keys import _KEY_NAME
from folkmoot.models.catalog import VENDORS
from folkmoot.storage.run_folder import RunFolder
from tests.contract.small import SMALL, small_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

KEY = "k" * 24
SOURCE_MODELS = {
    "cross_pollination": "gpt-4o",
    "focus_group": "anthropic/claude-sonnet-4-20250514",
    "town_hall": "gemini-3-flash",
    "negotiation": "",
}


@pytest.fixture(autouse=True)
def isolate_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if _KEY_NAME.search(name) or name.endswith("_BASE_URL") or name == "DEFAULT_MODEL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def vendors(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """Replace every vendor by one server, with every key set."""
    with ServerThread(FaultPlan(), answers="respondent") as server:
        for vendor in VENDORS.values():
            path = "/v1beta" if vendor.wire == "gemini" else "/v1"
            monkeypatch.setenv(vendor.base_url_env, server.url + path)
            monkeypatch.setenv(vendor.key_env[0], KEY)
        yield server


def write_study(study: str) -> Path:
    """Write the small study file of a type, with one round of a town hall."""
    path = small_study(study, Path("files"))
    path.write_text(path.read_text("utf-8").replace("rounds: 2", "rounds: 1"), "utf-8")
    return path


def count_received(server: ServerThread) -> int:
    return server.model.counts["received"]


def run_command(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], terminal_width=400)


def read_first_output_line(result: Result) -> str:
    return next(output_line for output_line in result.output.splitlines() if output_line.strip())


@pytest.mark.parametrize(
    "study", sample_daily(SMALL, daily=("cross_pollination", "town_hall"), part="sweeps")
)
def test_file_without_a_model_pays_no_vendor_and_names_the_default_model(
    study: str, vendors: ServerThread
) -> None:
    path = str(write_study(study))
    runs = study == "town_hall"  # its levels name models, and the message is the same for all
    for arguments in (("check", path), *([("run", path, "--out", "run")] if runs else [])):
        result = run_command(*arguments)
        assert result.exit_code == 0, result.output
        first_line = read_first_output_line(result)
        assert "No model is named, so the embedded respondent answers" in first_line
        source = SOURCE_MODELS[study]
        assert (f"default is {source}" in first_line) if source else "default" not in first_line
        proposed_command = f"folkmoot run {path} --"
        assert proposed_command in first_line and (source or "openai/gpt-4o") in first_line
    assert count_received(vendors) == 0
    if not runs:
        return
    manifest = RunFolder("run").manifest
    assert manifest["synthetic"] is True and manifest["cost_usd"] == 0
    assert {model["asked"] for model in manifest["models"]} <= {
        "synthetic",
        "wordllama/l2_supercat_256",
    }


def test_proposed_command_asks_the_default_models(vendors: ServerThread) -> None:
    path = str(write_study("town_hall"))
    first_line = read_first_output_line(run_command("check", path))
    for name in ("gpt-5-mini", "claude-haiku-4.5", "kimi-k2", "exaone-4.0"):
        assert name in first_line
    assert "--set model=gemini-3-flash" in first_line
    result = run_command("run", path, "--out", "run", "--set", "model=gemini-3-flash")
    assert result.exit_code == 0, result.output
    asked_models = {model["asked"] for model in RunFolder("run").manifest["models"]}
    assert (
        len(asked_models) >= 5 and "synthetic" not in asked_models and count_received(vendors) > 0
    )


@pytest.mark.parametrize("model", ["synthetic", "local"])
def test_local_model_uses_no_vendor_for_other_roles(model: str, vendors: ServerThread) -> None:
    path = write_study("town_hall")
    path.write_text(f"{path.read_text()}model: {model}\n")
    result = run_command("check", str(path))
    assert "No key" not in result.output
    for name in ("gpt-5-mini", "claude-haiku-4.5", "kimi-k2"):
        assert name not in result.output, result.output
    if model == "synthetic":
        assert run_command("run", str(path), "--out", "run").exit_code == 0
    assert count_received(vendors) == 0


def test_personas_coding_and_embeddings_pay_no_vendor_without_a_named_model(
    vendors: ServerThread,
) -> None:
    Path("lines.jsonl").write_text(
        "\n".join(json.dumps({"persona": f"A baker of {n} cakes"}) for n in range(40))
    )
    Path("pilot.yaml").write_text(
        "study: cross_pollination\npilot_id: p\nparticipants_per_condition: 3\n"
        "topic: {description: Money, options: [Parks, Jobs]}\nmin_responses_for_threshold: 50\n"
        "personas: {source: persona_hub, file: lines.jsonl}\n"
    )
    result = run_command("run", "pilot.yaml", "--out", "pilot")
    assert result.exit_code == 0, result.output
    group = small_study("focus_group", Path("files"))
    result = run_command("run", str(group), "--out", "group", "--set", "coding.second_coder=0.5")
    assert count_received(vendors) == 0
    built = run_command(
        "personas", "build", "2", "--source", "persona_hub", "--file", "lines.jsonl"
    )
    assert built.exit_code == 0, built.output
    assert "No model is named" in built.output and count_received(vendors) == 0


def test_personas_are_made_within_a_budget_and_the_same_command_continues(
    vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lines.jsonl").write_text(
        "\n".join(json.dumps({"persona": f"A baker of {n} cakes"}) for n in range(40))
    )
    words = ["personas", "build", "6", "--source", "persona_hub", "--file", "lines.jsonl"]
    words += ["--model", "openai/gpt-4o-mini", "--budget"]
    monkeypatch.setattr("sys.argv", ["folkmoot", *words, "0.001"])
    paused = run_command(*words, "0.001")
    assert paused.exit_code == 75, paused.output
    assert "folkmoot personas build 6" in paused.output and "--budget MORE" in paused.output
    (folder,) = Path("outputs").iterdir()
    assert count_received(vendors) == RunFolder(folder).manifest["calls"] < 12
    assert not Path("data/personas.json").exists()
    built = run_command(*words, "1")
    assert built.exit_code == 0 and "6 added" in built.output, built.output
    assert "12 calls · openai/gpt-4o-mini · $" in built.output
    assert count_received(vendors) == 12


async def ask_once(session: Session) -> None:
    for name, model in (("ann", "gpt-4o"), ("bob", None)):
        await session.child(name).ask(Speaker(name, role=name, model=model), "Hello?")


STUDY = Study("spoken", "Spoken", StudyConfig, ask_once)


def test_notebook_run_pays_no_vendor_without_a_named_model_and_says_so(
    vendors: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Even a model that the code of the study names for a seat is not asked."""
    with caplog.at_level(logging.WARNING):
        run = folkmoot.run(STUDY, {}, out="own")
    assert count_received(vendors) == 0 and run.manifest["synthetic_roles"] == ["ann", "bob"]
    assert "No model is named" in caplog.text and 'model="openai/gpt-4o"' in caplog.text
    assert "the study names gpt-4o for a participant" in (run.path / "run.log").read_text()
    caplog.clear()
    folkmoot.run(find_study("focus_group"), write_group_study(), out="group")
    assert count_received(vendors) == 0
    assert 'model="anthropic/claude-sonnet-4-20250514"' in caplog.text


def write_group_study() -> dict[str, Any]:
    return {
        "product_concept": "An oven",
        "category": "ovens",
        "num_personas": 2,
        "phases": ["warmup"],
        "questions_per_phase": 1,
        "max_responses_per_question": 2,
    }


@pytest.mark.nightly(part="sweeps")
def test_model_setting_of_the_original_program_is_used(
    vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is in a file `.env` or in the environment, which has priority."""
    path = str(small_study("negotiation", Path("files")))
    Path(".env").write_text("DEFAULT_MODEL=gpt-4o-mini\n")
    assert "DEFAULT_MODEL sets the model: gpt-4o-mini" in read_first_output_line(
        run_command("check", path)
    )
    monkeypatch.setenv("DEFAULT_MODEL", "gpt-4.1-mini")
    assert "gpt-4.1-mini" in run_command("check", path).output
    Path(".env").unlink()
    small_run_options = ("--set", "conditions=[C1]", "--limit", "1", "--no-preflight")
    result = run_command("run", path, "--out", "run", *small_run_options)
    assert result.exit_code == 0, result.output
    assert "DEFAULT_MODEL sets the model: gpt-4.1-mini" in read_first_output_line(result)
    assert {model["asked"] for model in RunFolder("run").manifest["models"]} == {"gpt-4.1-mini"}
    run_with_named_model = folkmoot.run(STUDY, {"model": "gpt-4.1-nano"}, out="own")
    assert "gpt-4.1-mini" not in {
        model["asked"] for model in run_with_named_model.manifest["models"]
    }


def test_model_setting_that_names_no_model_is_a_mistake(
    vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_MODEL", "gpt-nonsense")
    result = run_command("run", str(small_study("focus_group", Path("files"))))
    assert result.exit_code == 2 and "DEFAULT_MODEL" in result.output
    assert "gpt-nonsense" in result.output and not Path("outputs").exists()


@pytest.mark.parametrize("study", SMALL)
def test_key_without_a_model_stops_the_run(study: str, vendors: ServerThread) -> None:
    path = str(write_study(study))
    result = run_command("run", path, "--key", KEY)
    assert result.exit_code == 2 and "--key" in result.output
    assert (SOURCE_MODELS[study] or "openai/gpt-4o") in result.output
    assert count_received(vendors) == 0 and not Path("outputs").exists()
    with pytest.raises(InputError, match="no named model uses it"):
        folkmoot.run(path, key=KEY)


@pytest.mark.parametrize(
    ("study", "model_setting"),
    sample_daily(
        [
            *(
                ("town_hall", model_setting)
                for model_setting in ("--model", "--set", "DEFAULT_MODEL")
            ),
            ("focus_group", "--model"),  # `--model` sets one model for all roles
        ],
        daily=2,
        part="sweeps",
    ),
)
def test_resume_asks_the_models_of_the_sealed_plan(
    model_setting: str, study: str, vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write_study(study))
    first_arguments = {"--model": ["--model", "gpt-4o"], "--set": ["--set", "model=gpt-4o"]}.get(
        model_setting, []
    )
    if model_setting == "DEFAULT_MODEL":
        monkeypatch.setenv("DEFAULT_MODEL", "gpt-4o")
    common = ("run", path, "--out", "run", "--no-preflight", "--set", "embedding_model=synthetic")
    paused = run_command(*common, *first_arguments, "--set", "budget_calls=7")
    assert paused.exit_code == 75, paused.output
    received_before = count_received(vendors)
    Path("run/manifest.json").unlink()  # like after a kill
    monkeypatch.setenv("DEFAULT_MODEL", "gpt-4.1-nano")
    result = run_command(*common, "--resume")
    assert result.exit_code == 0, result.output
    assert count_received(vendors) > received_before
    models = {model["asked"] for model in RunFolder("run").manifest["models"]}
    assert "gpt-4o" in models and not models & {"synthetic", "gpt-4.1-nano"}
    # `--model` overrides every seat, `--set model` keeps the models of the levels.
    if study == "town_hall":
        assert ("kimi-k2" in models) == (model_setting != "--model")


def write_study_file(settings: str) -> Path:
    """Write a study file of the study above."""
    Path("own.py").write_text(
        "from folkmoot import Study, StudyConfig\n"
        "from tests.engine.test_model_choice import ask_once\n"
        "STUDY = Study('spoken', 'Spoken', StudyConfig, ask_once)\n"
    )
    path = Path("spoken.yaml")
    path.write_text(f"study: ./own.py\n{settings}")
    return path


def test_resume_reports_a_different_model_in_the_file(vendors: ServerThread) -> None:
    settings = {"model": "gpt-4o", "budget_calls": 1}
    with pytest.raises(BudgetReachedError):
        folkmoot.run(STUDY, settings, out="own")
    path = write_study_file("model: gpt-4.1-nano\n")
    plan = json.loads(Path("own/plan.json").read_text())
    assert plan["sealed"]["design"]["data"]["model"] == "gpt-4o"
    result = run_command("run", str(path), "--out", "own", "--resume", "--trust")
    assert "sealed plan, gpt-4o, although the study file now names gpt-4.1-nano" in " ".join(
        result.output.split()
    )


def test_new_grid_cells_ask_the_model_of_the_first_cells(
    vendors: ServerThread,
) -> None:
    path = str(write_study_file(""))
    common = ("run", path, "--out", "grid", "--no-preflight", "--trust")
    began = run_command(*common, "--model", "gpt-4o", "--repeats", "1")
    assert began.exit_code == 0, began.output
    more_repeats = run_command(*common, "--repeats", "2", "--resume")
    assert more_repeats.exit_code == 0, more_repeats.output
    for cell in sorted(Path("grid/cells").iterdir()):
        models = {model["asked"] for model in RunFolder(cell).manifest["models"]}
        assert "gpt-4o" in models and "synthetic" not in {
            model["asked"] for model in RunFolder(cell).manifest["models"] if model["roles"]
        }
