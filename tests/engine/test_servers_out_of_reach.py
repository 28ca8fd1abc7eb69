"""Runs with a model server that has a wrong address, disappears or sends too much data."""

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

QUESTION_COUNT = 3
EXAMPLE = Path(__file__).parents[2] / "examples" / "town_hall.yaml"


async def ask_three_questions(session: Session) -> None:
    for i in range(QUESTION_COUNT):
        reply = await session.ask(Speaker("p1"), f"Well, {i}?")
        reason = reply.reason if isinstance(reply, Missing) else None
        session.record("said", {"i": i, "missing": reason})


STUDY = Study("trial", "Trial", StudyConfig, ask_three_questions)


def build_settings(url: str, **more: object) -> dict[str, object]:
    return {
        "model": "openai/m",
        "endpoints": {"openai/m": url},
        "api_retry_base_seconds": 0.001,
        "max_api_retries": 2,
        **more,
    }


def find_closed_port() -> int:
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        return int(free_socket.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_wrong_address_ends_the_run_at_once_and_names_the_host(host: str, tmp_path: Path) -> None:
    port = find_closed_port()
    with pytest.raises(FatalModelError, match=f"{host}:{port}"):
        run(STUDY, build_settings(f"http://{host}:{port}/v1"), out=tmp_path / "run")


def test_command_line_reports_it_with_exit_code_2(tmp_path: Path) -> None:
    address = f"127.0.0.1:{find_closed_port()}"
    overrides = ("sets=1", "levels=['1']", f"endpoints={{openai/m: 'http://{address}/v1'}}")
    command = ["run", str(EXAMPLE), "--model", "openai/m", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(
        app, [*command, *(word for override in overrides for word in ("--set", override))]
    )
    assert result.exit_code == 2
    assert address in result.stderr.replace("\n", "")


def test_run_waits_for_a_lost_server_and_pauses(tmp_path: Path) -> None:
    server = ServerThread(FaultPlan())

    async def protocol(session: Session) -> None:
        await session.ask(Speaker("p1"), "Are you there?")
        await asyncio.to_thread(server.__exit__)
        await ask_three_questions(session)

    study_with_shutdown = Study("trial", "Trial", StudyConfig, protocol)
    settings = build_settings(server.openai)
    with pytest.raises(RunPausedError, match=r"in 3 attempts.*connection failed"):
        run(study_with_shutdown, settings, out=tmp_path / "run")


def test_answer_of_one_model_shows_that_the_server_of_another_is_reachable(tmp_path: Path) -> None:
    server = ServerThread(FaultPlan())

    async def protocol(session: Session) -> None:
        await session.ask(Speaker("p1", model="openai/a"), "Are you there?")
        await asyncio.to_thread(server.__exit__)
        await session.ask(Speaker("p2", model="openai/b"), "And you?")

    settings = build_settings(server.openai)
    settings["endpoints"] = {f"openai/{name}": server.openai for name in "mab"}
    with pytest.raises(RunPausedError, match="connection failed"):
        run(Study("trial", "Trial", StudyConfig, protocol), settings, out=tmp_path / "run")


class ServerWithLongReply(ServerThread):
    """A server with a second answer of 100 MB."""

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


def test_answer_above_the_size_limit_is_missing_and_not_retried(tmp_path: Path) -> None:
    with ServerWithLongReply() as server:
        settings = build_settings(server.openai, max_reply_mb=0.5)
        finished_run = run(STUDY, settings, out=tmp_path / "run")
    assert finished_run.table("said")["missing"].to_list() == [None, "too_large", None]
    # The reply was billed, but its usage was not read.
    assert finished_run.manifest["cost_usd"] is None
    assert server.received == QUESTION_COUNT


def test_key_for_plain_http_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-mine")
    with pytest.raises(InputError, match=r"api\.example\.org") as caught:
        run(STUDY, build_settings("http://api.example.org/v1"), out=tmp_path / "run")
    assert "a-key-of-mine" not in str(caught.value) and not (tmp_path / "run").exists()


def test_key_that_a_server_repeats_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, encoded_key = "my+own/key&of=mine", "my%2Bown%2Fkey%26of%3Dmine"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    received: list[str] = []

    async def repeat_key(request: web.Request, handler: object) -> web.StreamResponse:
        received.append(request.headers["Authorization"])
        if len(received) == 2:
            return web.Response(status=500, text=f"<p>Bad gateway: {encoded_key}</p>")
        message = {"role": "assistant", "content": f"Your key is {key}."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"id": f"id-{key}", "model": f"m-{key}", "choices": [choice]})

    with ServerThread(FaultPlan()) as server:
        server.model.between = repeat_key
        run(STUDY, build_settings(server.openai), out=tmp_path / "run")
    assert received == [f"Bearer {key}"] * (QUESTION_COUNT + 1)
    contents = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Your key is [key removed]." in contents and b"Bad gateway" in contents
    assert key.encode() not in contents and encoded_key.encode() not in contents


@pytest.mark.parametrize("key", ["anything", "not-needed"])
def test_a_key_that_is_a_word_changes_no_reply(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with ServerThread(FaultPlan()) as server:
        server.model.says = lambda messages, body: {"text": f"I would try {key}."}
        finished_run = run(STUDY, build_settings(server.openai), out=tmp_path / "run")
    replies = finished_run.table("answers")["words"].to_list()
    assert replies == [4] * QUESTION_COUNT
    assert f"I would try {key}.".encode() in (tmp_path / "run" / "journal.sqlite").read_bytes()
