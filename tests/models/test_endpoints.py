"""Servers of a user's own: headers and queries with keys in them, and several for one model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from folkmoot import Session, Speaker, Study, StudyConfig, run
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import create_router, study_from_settings
from folkmoot.engine.study.consent import describe_destinations
from folkmoot.errors import FatalModelError, FolkmootError, InputError, TransientError
from folkmoot.models.endpoints import parse_servers, resolve_server
from folkmoot.models.load_balancer import LoadBalancer
from folkmoot.models.request import Completion, Message, ModelRequest, Provider
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

SECRET = "azure-s3cret-value"


async def ask(session: Session) -> None:
    async def one(scope: Any, number: int) -> None:
        await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

    await session.map(range(12), one)


STUDY = Study(name="ask", title="Ask", config=StudyConfig, protocol=ask)


@pytest.fixture
def gate() -> Iterator[tuple[ServerThread, list[web.Request]]]:
    """A server that keeps every request, and passes any path that ends in a known one."""
    seen: list[web.Request] = []
    with ServerThread(FaultPlan()) as server:
        known = server.model.chat

        async def elsewhere(request: web.Request, handler: Any) -> web.StreamResponse:
            seen.append(request)
            found = request.path.endswith("/chat/completions")
            return await (known(request) if found else handler(request))

        server.model.between = elsewhere
        yield server, seen


# (how the study file has it, the path that is asked, the headers that go along)
DOORS = {
    "azure deployment": (
        {
            "url": "{base}/openai/deployments/mine",
            "query": {"api-version": "2024-10-21"},
            "headers": {"api-key": "${DOOR_KEY}"},
        },
        "/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        {"api-key": SECRET},
    ),
    "azure v1": (
        {"url": "{base}/openai/v1", "headers": {"api-key": "${DOOR_KEY}"}},
        "/openai/v1/chat/completions",
        {"api-key": SECRET},
    ),
    "bedrock": (
        {"url": "{base}/openai/v1", "headers": {"Authorization": "Bearer ${DOOR_KEY}"}},
        "/openai/v1/chat/completions",
        {"Authorization": f"Bearer {SECRET}"},
    ),
    "vertex": (
        {
            "url": "{base}/v1/projects/p/locations/eu/endpoints/openapi",
            "headers": {"Authorization": "Bearer ${DOOR_KEY}"},
        },
        "/v1/projects/p/locations/eu/endpoints/openapi/chat/completions",
        {"Authorization": f"Bearer {SECRET}"},
    ),
    "key in the query": (
        {"url": "{base}/v1", "query": {"key": "${DOOR_KEY}"}},
        f"/v1/chat/completions?key={SECRET}",
        {},
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fails", [False, True])
def test_doors_of_other_clouds_are_asked_as_they_want_and_keys_stay_out_of_the_folder(
    door: str, fails: bool, gate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, seen = gate
    monkeypatch.setenv("DOOR_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-others")
    address, path, headers = DOORS[door]
    address = {**address, "url": str(address["url"]).format(base=server.url)}
    if fails:  # a server that repeats what it was sent
        said = {"status": 401, "message": f"bad key {SECRET}"}
        server.model.says = lambda messages, body: said
    values = {"model": "openai/mine", "endpoints": {"openai/mine": address}}
    error = ""
    try:
        run(STUDY, values, out=tmp_path / "run")
    except FolkmootError as problem:
        error = str(problem)
    assert bool(error) == fails
    assert SECRET not in error
    assert {request.path_qs for request in seen} == {path}
    for request in seen:
        assert {name: request.headers.get(name) for name in headers} == headers
        assert "not-for-others" not in str(request.headers)
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in repr(
        create_router(study_from_settings(STUDY, values, RunOptions()), RunOptions())
    )


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ({"url": "https://h", "headers": {"api-key": "abc"}}, "headers: api-key holds a key"),
        ({"url": "https://h", "headers": {"Authorization": "Bearer abc"}}, "holds a key"),
        ({"url": "https://h", "headers": {"X-Trace": "sk-" + "a" * 24}}, "X-Trace holds a key"),
        ({"url": "https://h", "query": {"token": "abc"}}, "query: token holds a key"),
        ({"url": "https://h?api_key=abc"}, "the URL holds a key"),
        ({"url": "https://h", "header": {}}, "unknown key 'header'. did you mean headers?"),
        ({"headers": {}}, "url is missing"),
        ({"url": "https://h", "headers": {"a b": "c"}}, "'a b' is not a valid header name"),
        ([], "the list of servers is empty"),
        (3, "must be a base URL"),
    ],
)
def test_a_mistake_in_an_address_is_named(address: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        study_from_settings(STUDY, {"endpoints": {"openai/m": address}}, RunOptions())
    assert message in str(caught.value)


def test_a_variable_that_is_not_set_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    address = {"url": "https://h.example", "headers": {"api-key": "${NOBODY_SET_THIS}"}}
    values = {"model": "openai/m", "endpoints": {"openai": address}}
    with pytest.raises(InputError, match="needs NOBODY_SET_THIS, which is not set"):
        run(STUDY, values, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_key_in_a_header_does_not_travel_unencrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_KEY", SECRET)
    address = {"url": "http://h.example/v1", "headers": {"api-key": "${DOOR_KEY}"}}
    values = {"model": "openai/m", "endpoints": {"openai/m": [address]}}
    with pytest.raises(InputError, match="unencrypted"):
        run(STUDY, values, out=tmp_path / "run")


def test_every_server_and_every_key_that_goes_there_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOOR_KEY", SECRET)
    there = {"url": "https://two.example/v1", "headers": {"api-key": "${DOOR_KEY}"}}
    values = {"model": "openai/m", "endpoints": {"openai/m": ["https://one.example/v1", there]}}
    study_file = study_from_settings(STUDY, values, RunOptions())
    wishes = describe_destinations(
        study_file.config, create_router(study_file, RunOptions(key="k"))
    )
    assert wishes == [
        "sends your profiles and the key given with --key to https://one.example/v1",
        "sends your profiles and the key DOOR_KEY to https://two.example/v1",
    ]


def test_variables_are_filled_in_where_they_stand() -> None:
    address = {
        "url": "https://h/v1",
        "query": {"v": "a b", "k": "${K}&"},
        "headers": {"x": "-${K}-"},
    }
    (server,) = parse_servers(address)
    there = resolve_server(server, {"K": "long/secret"})
    assert there.url == "https://h/v1?v=a%20b&k=long/secret%26"
    assert there.headers == {"x": "-long/secret-"}
    assert "long/secret" in there.secrets


def test_calls_are_spread_over_the_servers_of_a_list(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as one, ServerThread(FaultPlan()) as two:
        values = {"model": "openai/m", "endpoints": {"openai/m": [one.openai, two.openai]}}
        run(STUDY, {**values, "concurrency": 6}, out=tmp_path / "run")
        counts = [server.model.counts["answered"] for server in (one, two)]
    assert sum(counts) == 12
    assert min(counts) > 0


class Server(Provider):
    """A provider that answers when it is told to."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error = name, error
        self.go = asyncio.Event()

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        if self.error is not None:
            raise self.error
        await self.go.wait()
        return Completion(self.name)


QUESTION = ModelRequest("m", (Message("user", "?"),))


async def test_the_server_with_the_least_to_do_is_asked_next() -> None:
    servers = [Server("a"), Server("b"), Server("c")]
    spread = LoadBalancer(servers)
    calls = [asyncio.ensure_future(spread.complete_request(QUESTION, address="")) for _ in range(9)]
    await asyncio.sleep(0)
    servers[1].go.set()  # b is quick: all further calls are its own
    assert [(await call).text for call in calls[1::3]] == ["b", "b", "b"]
    for _ in range(20):
        more = await spread.complete_request(QUESTION, address="")
        assert more.text == "b"
    for server in servers:
        server.go.set()
    assert Counter([(await call).text for call in calls]) == {"a": 3, "b": 3, "c": 3}


async def test_a_dead_server_is_left_alone_and_does_not_end_the_run() -> None:
    dead, alive = Server("dead", FatalModelError("no model server was reached")), Server("alive")
    alive.go.set()
    spread = LoadBalancer([dead, alive])
    failed = 0
    for _ in range(200):
        try:
            await spread.complete_request(QUESTION, address="")
        except TransientError:
            failed += 1
    assert 0 < failed < 12  # tried again now and then
    dead.error = None
    dead.go.set()
    said = [(await spread.complete_request(QUESTION, address="")).text for _ in range(1_000)]
    assert "dead" in said  # it is back


async def test_where_no_server_can_be_reached_the_run_stops() -> None:
    servers = [Server(name, FatalModelError("no model server was reached")) for name in "ab"]
    spread = LoadBalancer(servers)
    with pytest.raises(TransientError):
        await spread.complete_request(QUESTION, address="")
    with pytest.raises(FatalModelError):
        await spread.complete_request(QUESTION, address="")


def test_a_provider_of_another_class_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="provider= is no provider: object"):
        run(STUDY, {}, provider=object(), out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "journal.sqlite").exists()
