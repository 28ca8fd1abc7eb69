"""Runs that a cluster does not support are refused before a cluster starts or a model is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.cluster import preconditions as refusals
from folkmoot.engine.run.execution import RunOptions, simulate_remote_execution
from folkmoot.engine.run.runner import run_study
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import registered_studies
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError, ProtocolError
from folkmoot.models.scripted import ScriptedProvider
from tests.contract.small import small_study
from tests.engine.cluster.runs import KEY, STUDY, run_two_stages, write_study_file
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def provoke_refusal(tmp_path: Path, settings: dict[str, Any], **options: Any) -> str:
    """Start a run that must be refused and return the message. Nothing is called or written."""
    with ServerThread(FaultPlan()) as server:
        study = write_study_file(tmp_path, server.openai, **settings)
        with pytest.raises((InputError, ProtocolError)) as error:
            run_two_stages(study, tmp_path / "run", **{"executor": "ray", **options})
        assert not server.model.log and not (tmp_path / "run").exists()
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "options", "expected_text"),
    [
        ({}, {"executor": "dask"}, "write ray"),
        ({"batch": True}, {}, "batches"),
        ({"batch": "auto"}, {}, "batches"),
        ({}, {"key": "sk-1234"}, "--key is not sent"),
        ({}, {"provider": ScriptedProvider(lambda request: "yes")}, "answers in this process"),
        ({}, {"model": "local"}, "one server per machine"),
    ],
)
def test_unsupported_setting_is_named(
    settings: dict[str, Any], options: dict[str, Any], expected_text: str, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    assert expected_text in provoke_refusal(tmp_path, settings, **options)


def test_humans_in_seats_are_refused_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    command = ["run", "examples/town_hall.yaml", "--model", "synthetic", "--executor", "ray"]
    result = CliRunner().invoke(
        app, [*command, "--seat", "set01_lv4/A01", "--out", str(tmp_path / "r")]
    )
    assert result.exit_code == 2 and not (tmp_path / "r").exists()
    assert "humans take part in this study" in result.output


def test_missing_ray_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "find_spec", lambda name: None)
    assert 'pip install "folkmoot[ray]"' in provoke_refusal(tmp_path, {})


def test_ray_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_import_error(name: str) -> None:
        raise ImportError(f"{name}: undefined symbol")

    monkeypatch.setattr(refusals, "find_spec", lambda name: object())
    monkeypatch.setattr(refusals, "import_module", raise_import_error)
    assert "cannot be loaded: ray: undefined symbol" in provoke_refusal(tmp_path, {})


def test_node_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def raise_timeout(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray raises it

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", raise_timeout)
    assert "Ray did not start: The current node timed out" in provoke_refusal(
        tmp_path, {}, workers=1
    )


def test_worker_that_dies_at_its_start_is_named(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = pytest.importorskip("folkmoot.engine.cluster.head")

    class DyingWorker:
        async def start(self, _setup: object) -> None:
            os._exit(1)

    monkeypatch.setattr(head, "Worker", DyingWorker)
    assert "a worker could not start" in provoke_refusal(tmp_path, {}, workers=1)


VOTE = "    async def vote(scope: Scope, who: Speaker) -> None:\n"


@pytest.mark.parametrize(
    ("before", "within", "expected_text"),
    [
        ("    lock = threading.Lock()\n", "        lock.locked()\n", "vote uses lock"),
        ("    seen = []\n", "        seen.append(who.id)\n", "changes seen"),
        ("    n = 0\n", "        nonlocal n\n        n += 1\n", "changes n"),
        ("", "        return threading.Lock()\n", "the result of map() at vote cannot be sent"),
    ],
)
def test_unsendable_object_is_named_with_its_line(
    before: str, within: str, expected_text: str, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    text = f"import threading\n{STUDY.read_text('utf-8')}".replace(VOTE, before + VOTE + within)
    study_path = tmp_path / "own.py"
    study_path.write_text(text)
    message = provoke_refusal(tmp_path, {"study": str(study_path)})
    assert expected_text in message, message


def test_study_file_missing_on_workers_is_refused(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = pytest.importorskip("folkmoot.engine.cluster.head")
    other_consent = Consent(versions={str(Path(STUDY).resolve()): "of another file"})
    monkeypatch.setattr(head, "agreement_for_workers", lambda _path: other_consent)
    assert f"{STUDY} differs from the file on the machine" in provoke_refusal(
        tmp_path, {}, workers=1
    )
    monkeypatch.setattr(head, "study_code_path", lambda *_: tmp_path / "elsewhere.py")
    assert "elsewhere.py, and this machine has no such file" in provoke_refusal(
        tmp_path, {}, workers=1
    )


@pytest.mark.parametrize(
    "study",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "town_hall"), part="sweeps"
    ),
)
def test_every_study_can_run_on_another_machine(study: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    study_file = load_study_file(small_study(study, tmp_path))
    run_study(
        study_file,
        RunOptions(
            model="synthetic", out=tmp_path / "run", fork_executor=simulate_remote_execution()
        ),
    )


def test_folder_with_modules_that_hide_installed_ones_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray puts the current folder first on the worker path, so a foreign module would run."""
    pytest.importorskip("ray")
    folder = tmp_path / "stranger"
    (folder / "polars").mkdir(parents=True)
    (folder / "polars" / "__init__.py").write_text("")
    (folder / "json.py").write_text("")
    (folder / "own_helper.py").write_text("")
    monkeypatch.chdir(folder)
    study = load_study_file(small_study("negotiation", tmp_path))
    with pytest.raises(InputError, match="json, polars in it would replace"):
        refusals.require_cluster_support(
            "ray", study.config, ["synthetic"], key=None, has_custom_provider=False
        )
    monkeypatch.chdir(tmp_path)
    refusals.require_cluster_support(
        "ray", study.config, ["synthetic"], key=None, has_custom_provider=False
    )
