"""Who answered and who embedded: no model is replaced silently.

The embedding model of a real run belongs to the vendor or is named by the user. The label SYNTHETIC
is set for answers of the embedded respondent and for nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Run, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import verify_run
from folkmoot.errors import InputError, Problem
from folkmoot.models.api_keys import _KEY_NAME
from folkmoot.models.catalog import VENDORS, WORD_VECTOR_MODEL, embedding_for, resolve_model
from folkmoot.models.local import word_vectors
from folkmoot.models.scripted import ScriptedProvider
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

KEY = "k" * 24
PILOT: dict[str, Any] = {
    "study": "cross_pollination",
    "pilot_id": "small",
    "topic": {"description": "Where shall the money go?", "options": ["Parks", "Jobs", "Streets"]},
    "conditions": ["simple_voting", "acp"],
    "participants_per_condition": 2,
    "personas": {"source": "quota"},
    "min_responses_for_threshold": 100,
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if _KEY_NAME.search(name) or name.endswith("_BASE_URL"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """Start one server in the place of three vendors."""
    with ServerThread(FaultPlan(), answers="respondent") as thread:
        for vendor, key in (("OPENAI", "OPENAI"), ("ANTHROPIC", "ANTHROPIC"), ("GOOGLE", "GOOGLE")):
            path = "/v1beta" if vendor == "GOOGLE" else "/v1"
            monkeypatch.setenv(f"{vendor}_BASE_URL", thread.url + path)
            monkeypatch.setenv(f"{key}_API_KEY", KEY)
        yield thread


def write_study_file(**settings: Any) -> Path:
    path = Path("pilot.yaml")
    path.write_text(json.dumps({**PILOT, **settings}))  # JSON is YAML
    return path


def run_pilot(**settings: Any) -> Run:
    return folkmoot.run(write_study_file(**settings), out="run", seed=1)


def list_embedding_models(run: Run) -> set[str]:
    return {model["asked"] for model in run.manifest["models"] if not model["roles"]}


@pytest.mark.parametrize(
    ("model", "embeds"),
    (
        ("gpt-4o", "openai/text-embedding-3-small"),
        ("openai/gpt-5-mini", "openai/text-embedding-3-small"),
        ("gemini-3-flash", "google/gemini-embedding-001"),
        ("gemini/gemini-2.5-pro", "gemini/gemini-embedding-001"),
        ("mistral/mistral-large-latest", "mistral/mistral-embed"),
        ("synthetic", WORD_VECTOR_MODEL),
        ("local", WORD_VECTOR_MODEL),
        ("claude-haiku-4.5", None),
        ("kimi-k2", None),
        ("exaone-4.0", None),
        ("openrouter/some/model", None),
    ),
)
def test_documented_embedding_model_of_the_vendor_is_used(model: str, embeds: str | None) -> None:
    assert embedding_for(model) == embeds
    if embeds not in (None, WORD_VECTOR_MODEL):
        assert resolve_model(embeds).provider == resolve_model(model).provider


def test_texts_for_a_custom_server_are_not_sent_to_the_vendor() -> None:
    box = "http://gpu-box:8000/v1"
    assert embedding_for("openai/my-llama", {"openai/my-llama": box}) is None
    assert embedding_for("hf-inference", {"hf-inference": box}) is None
    endpoints = {"openai": box}  # the whole vendor has this address, so its embeddings as well
    assert embedding_for("openai/my-llama", endpoints) == "openai/text-embedding-3-small"


def test_every_vendor_has_its_embedding_model_or_none() -> None:
    for name, vendor in VENDORS.items():
        model = embedding_for(f"{name}/any-model")
        assert model == (f"{name}/{vendor.embedding}" if vendor.embedding else None)


@pytest.mark.parametrize(
    ("model", "embeds"),
    (
        ("gpt-4o", "openai/text-embedding-3-small"),
        ("gemini-3-flash", "google/gemini-embedding-001"),
    ),
)
def test_real_run_embeds_with_its_vendor_and_the_plan_says_so(
    server: ServerThread, model: str, embeds: str
) -> None:
    run = run_pilot(model=model)
    assert run.folder.plan["sealed"]["design"]["data"]["embedding_model"] == embeds
    assert run.manifest["embedding_model"] == embeds and list_embedding_models(run) == {embeds}
    printed = CliRunner().invoke(app, ["check", "pilot.yaml"])
    assert embeds in printed.output, printed.output


@pytest.mark.parametrize("command", ("check", "run"))
@pytest.mark.parametrize("option", ("named", "--model", "role"))
def test_missing_embedding_model_stops_the_run_and_names_two_solutions(
    server: ServerThread, command: str, option: str
) -> None:
    options: dict[str, Any] = {
        "named": {"model": "claude-haiku-4.5"},
        "--model": {},
        "role": {"models": {"participant": "claude-haiku-4.5"}},
    }[option]
    flags = ["--model", "claude-haiku-4.5"] if option == "--model" else []
    result = CliRunner().invoke(app, [command, str(write_study_file(**options)), *flags])
    output = " ".join(result.output.split())
    assert result.exit_code == 2, output
    assert "pilot.yaml" in output and "embedding_model" in output and "claude-haiku-4.5" in output
    assert "openai/text-embedding-3-small" in output and "embedding_model: wordllama" in output
    assert not server.model.counts["received"] and not Path("outputs").exists()


def test_both_solutions_work(server: ServerThread) -> None:
    model_name = "openai/text-embedding-3-small"
    run = run_pilot(model="claude-haiku-4.5", embedding_model=model_name)
    assert list_embedding_models(run) == {model_name} and not run.folder.is_synthetic
    for name, model in (("wordllama", WORD_VECTOR_MODEL), ("synthetic", "synthetic")):
        write_study_file(model="claude-haiku-4.5", embedding_model=name)
        local_run = folkmoot.run("pilot.yaml", out=name, seed=1)
        assert (
            list_embedding_models(local_run) == {model} == {local_run.manifest["embedding_model"]}
        )
        assert not local_run.folder.is_synthetic  # the respondent answered no question
        assert all(
            model_entry["cost_usd"] == 0
            for model_entry in local_run.manifest["models"]
            if not model_entry["roles"]
        )


def test_local_embedding_model_is_sealed_and_the_hash_is_used_when_named() -> None:
    run = run_pilot()
    assert run.folder.plan["sealed"]["design"]["data"]["embedding_model"] == WORD_VECTOR_MODEL
    assert list_embedding_models(run) == {WORD_VECTOR_MODEL} and run.folder.is_synthetic
    assert verify_run(run.folder).is_consistent
    with JournalReader(run.path / "journal.sqlite") as journal:
        assert {len(entry.blob or b"") % 1024 for entry in journal.read_entries("embed")} == {0}
    write_study_file(embedding_model="synthetic")
    rehearsed = folkmoot.run("pilot.yaml", model="synthetic", out="hashed")
    assert rehearsed.manifest["embedding_model"] == "synthetic"


@pytest.mark.parametrize("command", ("check", "run"))
def test_missing_word_vectors_stop_the_run_and_name_the_install_command(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_not_installed(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(word_vectors, "distribution", raise_not_installed)
    result = CliRunner().invoke(app, [command, str(write_study_file())])
    output = " ".join(result.output.split())
    assert result.exit_code == 2 and f"pip install {word_vectors.PACKAGE}" in output, output
    assert not Path("outputs").exists()


def test_run_from_before_word_vectors_is_resumed_and_verified_with_its_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ModelRouter, "embedding_choice", "synthetic")
        run = run_pilot()
    assert run.manifest["embedding_model"] == "synthetic" and verify_run(run.folder).is_consistent
    (run.path / "manifest.json").unlink()
    resumed_run = folkmoot.run("pilot.yaml", out="run", seed=1)
    assert resumed_run.manifest["embedding_model"] == "synthetic"
    assert resumed_run.manifest["journal_digest"] == run.manifest["journal_digest"]


def test_named_embedding_model_is_used_for_every_answering_model(server: ServerThread) -> None:
    run = run_pilot(model="synthetic", embedding_model="text-embedding-3-small")
    assert run.manifest["embedding_model"] == "text-embedding-3-small"
    assert list_embedding_models(run) == {"text-embedding-3-small"} and run.folder.is_synthetic


def test_dry_run_calls_no_vendor(server: ServerThread) -> None:
    write_study_file(model="claude-haiku-4.5", embedding_model="text-embedding-3-small")
    run = folkmoot.run("pilot.yaml", model="synthetic", out="run")
    assert not server.model.counts["received"] and run.folder.is_synthetic


def test_study_without_embeddings_needs_no_embedding_model(server: ServerThread) -> None:
    Path("hall.yaml").write_text(
        "study: town_hall\nmodel: claude-haiku-4.5\nsets: 1\nrounds: 1\nlevels: [1]\n"
        "residents: {general: 2}\ntopic: {title: A quarter, background: Old blocks.}\n"
    )
    assert CliRunner().invoke(app, ["check", "hall.yaml"]).exit_code == 0
    run = folkmoot.run("hall.yaml", out="hall")
    assert run.manifest["embedding_model"] == "" and not run.folder.is_synthetic


class UndeclaredConfig(StudyConfig):
    """A custom study. Its type does not declare the use of embeddings."""


async def embed_undeclared(session: Session) -> None:
    await session.embed(["some words"])


def test_undeclared_embedding_stops_the_study_at_its_first_embedding(
    server: ServerThread,
) -> None:
    study = Study("own", "Own", UndeclaredConfig, embed_undeclared)
    with pytest.raises(InputError, match="embedding_model"):
        folkmoot.run(study, {"model": "claude-haiku-4.5"}, out="own")
    assert not server.model.counts["received"]


ROLES = ("participant", "moderator", "summarizer", "judge", "recruiter")


def test_run_with_real_models_for_all_roles_is_not_synthetic(server: ServerThread) -> None:
    run = run_pilot(models=dict.fromkeys(ROLES, "gpt-4o"))
    assert run.manifest["synthetic"] is False and "mark" not in run.manifest
    assert "evidence" not in run.json("summary.json")
    log = (run.path / "run.log").read_text()
    assert "SYNTHETIC" not in log and "no model is named" not in log
    assert "participant gpt-4o" in log


def test_mixed_run_names_the_model_of_each_role(server: ServerThread) -> None:
    run = run_pilot(models={"participant": "gpt-4o", "summarizer": "gpt-4o"})
    assert run.manifest["synthetic_roles"] == ["moderator"]
    assert "moderator" in run.manifest["note"] and "gpt-4o as participant" in run.manifest["note"]
    assert "moderator" in run.json("summary.json")["evidence"]
    log = (run.path / "run.log").read_text()
    assert "no model is named for the role moderator" in log
    assert "role participant" not in log
    folkmoot.run("pilot.yaml", out="run", seed=1)  # a replay has the same models
    assert folkmoot.load("run").manifest["synthetic_roles"] == ["moderator"]
    result = CliRunner().invoke(app, ["report", "run"])
    assert result.exit_code == 0, result.output
    assert "gpt-4o as participant" in (run.path / "report.html").read_text()


def test_synthetic_run_needs_no_list_of_roles() -> None:
    run = run_pilot()
    assert run.manifest["mark"] == "SYNTHETIC" and "gpt" not in run.manifest["note"]
    assert run.json("summary.json")["evidence"].startswith("SYNTHETIC: ")
    assert "(SYNTHETIC" in (run.path / "run.log").read_text()


async def ask_two_seats(session: Session) -> None:
    for name, model in (("ann", "gpt-4o"), ("bob", None)):
        await session.child(name).ask(Speaker(name, role=name, model=model), "Hello?")


def test_seats_with_separate_models_count_by_seat(server: ServerThread) -> None:
    run = folkmoot.run(
        Study("own", "Own", UndeclaredConfig, ask_two_seats),
        {"models": {"ann": "gpt-4o"}},
        out="own",
    )
    assert run.manifest["synthetic_roles"] == ["bob"]
    assert "gpt-4o as ann" in run.manifest["note"]


def test_custom_provider_gets_no_label() -> None:
    provider = ScriptedProvider(lambda request, address: "yes")
    providers = ModelRouter(StudyConfig(study="x"), None, provider=provider)
    assert not providers.is_synthetic_only and not isinstance(providers.embedding_choice, Problem)
