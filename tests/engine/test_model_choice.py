"""Which models a run asks: no vendor is paid unless the user named its model.

One server stands in for every vendor and counts what reaches it; every key is set.
"""

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
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if _KEY_NAME.search(name) or name.endswith("_BASE_URL") or name == "DEFAULT_MODEL":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def vendors(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """One server in the place of every vendor, with every key set."""
    with ServerThread(FaultPlan(), answers="respondent") as started:
        for vendor in VENDORS.values():
            path = "/v1beta" if vendor.wire == "gemini" else "/v1"
            monkeypatch.setenv(vendor.base_url_env, started.url + path)
            monkeypatch.setenv(vendor.key_env[0], KEY)
        yield started


def write_study(study: str) -> Path:
    """Write the small study file of a type, with one round of a town hall."""
    path = small_study(study, Path("files"))
    path.write_text(path.read_text("utf-8").replace("rounds: 2", "rounds: 1"), "utf-8")
    return path


def received(server: ServerThread) -> int:
    return server.model.counts["received"]


def command(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], terminal_width=400)


def first_words(shown: Result) -> str:
    return next(line for line in shown.output.splitlines() if line.strip())


@pytest.mark.parametrize(
    "study", sample_daily(SMALL, daily=("cross_pollination", "town_hall"), part="sweeps")
)
def test_a_file_without_a_model_pays_nobody_and_names_the_source_s_default(
    study: str, vendors: ServerThread
) -> None:
    path = str(write_study(study))
    runs = study == "town_hall"  # whose levels name models; what is said is the same for all
    for words in (("check", path), *([("run", path, "--out", "run")] if runs else [])):
        result = command(*words)
        assert result.exit_code == 0, result.output
        first = first_words(result)
        assert "No model is named, so the embedded respondent answers" in first
        source = SOURCE_MODELS[study]
        assert (f"default is {source}" in first) if source else "default" not in first
        wanted = f"folkmoot run {path} --"
        assert wanted in first and (source or "openai/gpt-4o") in first
    assert received(vendors) == 0
    if not runs:
        return
    manifest = RunFolder("run").manifest
    assert manifest["synthetic"] is True and manifest["cost_usd"] == 0
    assert {model["asked"] for model in manifest["models"]} <= {
        "synthetic",
        "wordllama/l2_supercat_256",
    }


def test_the_named_command_asks_the_models_of_the_source(vendors: ServerThread) -> None:
    path = str(write_study("town_hall"))
    first = first_words(command("check", path))
    for name in ("gpt-5-mini", "claude-haiku-4.5", "kimi-k2", "exaone-4.0"):
        assert name in first
    assert "--set model=gemini-3-flash" in first
    result = command("run", path, "--out", "run", "--set", "model=gemini-3-flash")
    assert result.exit_code == 0, result.output
    asked = {model["asked"] for model in RunFolder("run").manifest["models"]}
    assert len(asked) >= 5 and "synthetic" not in asked and received(vendors) > 0


@pytest.mark.parametrize("model", ["synthetic", "local"])
def test_a_model_of_this_machine_brings_no_vendor_along(model: str, vendors: ServerThread) -> None:
    path = write_study("town_hall")
    path.write_text(f"{path.read_text()}model: {model}\n")
    result = command("check", str(path))
    assert "No key" not in result.output
    for name in ("gpt-5-mini", "claude-haiku-4.5", "kimi-k2"):
        assert name not in result.output, result.output
    if model == "synthetic":
        assert command("run", str(path), "--out", "run").exit_code == 0
    assert received(vendors) == 0


def test_personas_coding_and_embeddings_pay_nobody_unasked(vendors: ServerThread) -> None:
    Path("lines.jsonl").write_text(
        "\n".join(json.dumps({"persona": f"A baker of {n} cakes"}) for n in range(40))
    )
    Path("pilot.yaml").write_text(
        "study: cross_pollination\npilot_id: p\nparticipants_per_condition: 3\n"
        "topic: {description: Money, options: [Parks, Jobs]}\nmin_responses_for_threshold: 50\n"
        "personas: {source: persona_hub, file: lines.jsonl}\n"
    )
    result = command("run", "pilot.yaml", "--out", "pilot")
    assert result.exit_code == 0, result.output
    group = small_study("focus_group", Path("files"))
    result = command("run", str(group), "--out", "group", "--set", "coding.second_coder=0.5")
    assert received(vendors) == 0
    built = command("personas", "build", "2", "--source", "persona_hub", "--file", "lines.jsonl")
    assert built.exit_code == 0, built.output
    assert "No model is named" in built.output and received(vendors) == 0


async def speak(session: Session) -> None:
    for name, model in (("ann", "gpt-4o"), ("bob", None)):
        await session.child(name).ask(Speaker(name, role=name, model=model), "Hello?")


SPOKEN = Study("spoken", "Spoken", StudyConfig, speak)


def test_a_notebook_pays_nobody_unasked_and_is_told(
    vendors: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where the code of the study names a model for a seat."""
    with caplog.at_level(logging.WARNING):
        run = folkmoot.run(SPOKEN, {}, out="own")
    assert received(vendors) == 0 and run.manifest["synthetic_roles"] == ["ann", "bob"]
    assert "No model is named" in caplog.text and 'model="openai/gpt-4o"' in caplog.text
    assert "the study names gpt-4o for a participant" in (run.path / "run.log").read_text()
    caplog.clear()
    folkmoot.run(find_study("focus_group"), _group(), out="group")
    assert received(vendors) == 0
    assert 'model="anthropic/claude-sonnet-4-20250514"' in caplog.text


def _group() -> dict[str, Any]:
    return {
        "product_concept": "An oven",
        "category": "ovens",
        "num_personas": 2,
        "phases": ["warmup"],
        "questions_per_phase": 1,
        "max_responses_per_question": 2,
    }


@pytest.mark.nightly(part="sweeps")
def test_the_source_s_own_setting_names_the_model(
    vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file `.env` or in the environment, which counts first."""
    path = str(small_study("negotiation", Path("files")))
    Path(".env").write_text("DEFAULT_MODEL=gpt-4o-mini\n")
    assert "DEFAULT_MODEL sets the model: gpt-4o-mini" in first_words(command("check", path))
    monkeypatch.setenv("DEFAULT_MODEL", "gpt-4.1-mini")
    assert "gpt-4.1-mini" in command("check", path).output
    Path(".env").unlink()
    small = ("--set", "conditions=[C1]", "--limit", "1", "--no-preflight")
    result = command("run", path, "--out", "run", *small)
    assert result.exit_code == 0, result.output
    assert "DEFAULT_MODEL sets the model: gpt-4.1-mini" in first_words(result)
    assert {m["asked"] for m in RunFolder("run").manifest["models"]} == {"gpt-4.1-mini"}
    named = folkmoot.run(SPOKEN, {"model": "gpt-4.1-nano"}, out="own")
    assert "gpt-4.1-mini" not in {m["asked"] for m in named.manifest["models"]}


def test_a_source_s_setting_that_names_no_model_is_a_mistake(
    vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_MODEL", "gpt-nonsense")
    result = command("run", str(small_study("focus_group", Path("files"))))
    assert result.exit_code == 2 and "DEFAULT_MODEL" in result.output
    assert "gpt-nonsense" in result.output and not Path("outputs").exists()


@pytest.mark.parametrize("study", SMALL)
def test_a_key_without_a_model_stops(study: str, vendors: ServerThread) -> None:
    path = str(write_study(study))
    result = command("run", path, "--key", KEY)
    assert result.exit_code == 2 and "--key" in result.output
    assert (SOURCE_MODELS[study] or "openai/gpt-4o") in result.output
    assert received(vendors) == 0 and not Path("outputs").exists()
    with pytest.raises(InputError, match="no named model uses it"):
        folkmoot.run(path, key=KEY)


@pytest.mark.parametrize(
    ("study", "how"),
    sample_daily(
        [
            *(("town_hall", how) for how in ("--model", "--set", "DEFAULT_MODEL")),
            ("focus_group", "--model"),  # which names one model for all
        ],
        daily=2,
        part="sweeps",
    ),
)
def test_a_resume_asks_the_models_of_the_sealed_plan(
    how: str, study: str, vendors: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write_study(study))
    first = {"--model": ["--model", "gpt-4o"], "--set": ["--set", "model=gpt-4o"]}.get(how, [])
    if how == "DEFAULT_MODEL":
        monkeypatch.setenv("DEFAULT_MODEL", "gpt-4o")
    common = ("run", path, "--out", "run", "--no-preflight", "--set", "embedding_model=synthetic")
    paused = command(*common, *first, "--set", "budget_calls=7")
    assert paused.exit_code == 75, paused.output
    asked = received(vendors)
    Path("run/manifest.json").unlink()  # as after a kill
    monkeypatch.setenv("DEFAULT_MODEL", "gpt-4.1-nano")
    result = command(*common, "--resume")
    assert result.exit_code == 0, result.output
    assert received(vendors) > asked
    models = {model["asked"] for model in RunFolder("run").manifest["models"]}
    assert "gpt-4o" in models and not models & {"synthetic", "gpt-4.1-nano"}
    if study == "town_hall":  # `--model` takes every seat, `--set model` leaves the levels theirs
        assert ("kimi-k2" in models) == (how != "--model")


def spoken_file(settings: str) -> Path:
    """A study file of the study above."""
    Path("own.py").write_text(
        "from folkmoot import Study, StudyConfig\n"
        "from tests.engine.test_model_choice import speak\n"
        "STUDY = Study('spoken', 'Spoken', StudyConfig, speak)\n"
    )
    path = Path("spoken.yaml")
    path.write_text(f"study: ./own.py\n{settings}")
    return path


def test_a_resume_says_that_the_file_names_another_model_now(vendors: ServerThread) -> None:
    settings = {"model": "gpt-4o", "budget_calls": 1}
    with pytest.raises(BudgetReachedError):
        folkmoot.run(SPOKEN, settings, out="own")
    path = spoken_file("model: gpt-4.1-nano\n")
    plan = json.loads(Path("own/plan.json").read_text())
    assert plan["sealed"]["design"]["data"]["model"] == "gpt-4o"
    result = command("run", str(path), "--out", "own", "--resume", "--trust")
    assert "sealed plan, gpt-4o, although the study file now names gpt-4.1-nano" in " ".join(
        result.output.split()
    )


def test_new_cells_of_a_grid_ask_the_model_of_the_cells_that_began(
    vendors: ServerThread,
) -> None:
    path = str(spoken_file(""))
    common = ("run", path, "--out", "grid", "--no-preflight", "--trust")
    began = command(*common, "--model", "gpt-4o", "--repeats", "1")
    assert began.exit_code == 0, began.output
    more = command(*common, "--repeats", "2", "--resume")
    assert more.exit_code == 0, more.output
    for cell in sorted(Path("grid/cells").iterdir()):
        models = {model["asked"] for model in RunFolder(cell).manifest["models"]}
        assert "gpt-4o" in models and "synthetic" not in {
            m["asked"] for m in RunFolder(cell).manifest["models"] if m["roles"]
        }
