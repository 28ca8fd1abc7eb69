"""Runs whose model server is at a wrong address, goes away, or sends far too much."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from folkmoot import Missing, Session, Speaker, Study, StudyConfig, run
from folkmoot.cli.app import app
from folkmoot.errors import FatalModelError, InputError, RunPausedError
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

ASKED = 3
EXAMPLE = Path(__file__).parents[2] / "examples" / "town_hall.yaml"


async def three_questions(session: Session) -> None:
    for i in range(ASKED):
        reply = await session.ask(Speaker("p1"), f"Well, {i}?")
        reason = reply.reason if isinstance(reply, Missing) else None
        session.record("said", {"i": i, "missing": reason})


STUDY = Study("trial", "Trial", StudyConfig, three_questions)


def settings_for(url: str, **more: object) -> dict[str, object]:
    return {
        "model": "openai/m",
        "endpoints": {"openai/m": url},
        "api_retry_base_seconds": 0.001,
        "max_api_retries": 2,
        **more,
    }


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_a_wrong_address_ends_the_run_at_once_and_names_the_host(host: str, tmp_path: Path) -> None:
    port = closed_port()
    with pytest.raises(FatalModelError, match=f"{host}:{port}"):
        run(STUDY, settings_for(f"http://{host}:{port}/v1"), out=tmp_path / "run")


def test_the_command_line_says_it_with_exit_code_2(tmp_path: Path) -> None:
    there = f"127.0.0.1:{closed_port()}"
    overrides = ("sets=1", "levels=['1']", f"endpoints={{openai/m: 'http://{there}/v1'}}")
    words = ["run", str(EXAMPLE), "--model", "openai/m", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*words, *(w for o in overrides for w in ("--set", o))])
    assert result.exit_code == 2
    assert there in result.stderr.replace("\n", "")


def test_a_server_that_goes_away_is_waited_for_and_pauses_the_run(tmp_path: Path) -> None:
    server = ServerThread(FaultPlan())

    async def protocol(session: Session) -> None:
        await session.ask(Speaker("p1"), "Are you there?")
        await asyncio.to_thread(server.__exit__)
        await three_questions(session)

    gone = Study("trial", "Trial", StudyConfig, protocol)
    settings = settings_for(server.openai)
    with pytest.raises(RunPausedError, match=r"in 3 attempts.*connection failed"):
        run(gone, settings, out=tmp_path / "run")


def test_one_models_answer_shows_that_the_server_of_another_is_no_mistake(tmp_path: Path) -> None:
    server = ServerThread(FaultPlan())

    async def protocol(session: Session) -> None:
        await session.ask(Speaker("p1", model="openai/a"), "Are you there?")
        await asyncio.to_thread(server.__exit__)
        await session.ask(Speaker("p2", model="openai/b"), "And you?")

    settings = settings_for(server.openai)
    settings["endpoints"] = {f"openai/{name}": server.openai for name in "mab"}
    with pytest.raises(RunPausedError, match="connection failed"):
        run(Study("trial", "Trial", StudyConfig, protocol), settings, out=tmp_path / "run")


class Long(ServerThread):
    """Its second answer is 100 MB long."""

    def __init__(self) -> None:
        self.received = 0
        super().__init__(FaultPlan())

    async def _serve(self) -> None:
        answered = self.model.chat

        async def chat(request: web.Request) -> web.StreamResponse:
            self.received += 1
            if self.received == 2:
                response = web.StreamResponse()
                await response.prepare(request)
                for _ in range(100):
                    await response.write(b" " * 1_000_000)
                return response
            return await answered(request)

        self.model.chat = chat  # type: ignore[method-assign]
        await super()._serve()


def test_an_answer_that_is_far_too_long_is_missing_and_not_asked_again(tmp_path: Path) -> None:
    with Long() as server:
        settings = settings_for(server.openai, max_reply_mb=0.5)
        finished_run = run(STUDY, settings, out=tmp_path / "run")
    assert finished_run.table("said")["missing"].to_list() == [None, "too_large", None]
    # It was written and billed, and nobody read at what.
    assert finished_run.manifest["cost_usd"] is None
    assert server.received == ASKED


def test_a_key_for_plain_http_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-mine")
    with pytest.raises(InputError, match=r"api\.example\.org") as caught:
        run(STUDY, settings_for("http://api.example.org/v1"), out=tmp_path / "run")
    assert "a-key-of-mine" not in str(caught.value) and not (tmp_path / "run").exists()
