"""Custom servers: headers and queries with keys, and several servers for one model."""

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

SECRET_KEY = "azure-s3cret-value"


async def ask_questions(session: Session) -> None:
    async def ask_question(scope: Any, number: int) -> None:
        await scope.ask(Speaker(f"p{number}"), f"Question {number}?")

    await session.map(range(12), ask_question)


STUDY = Study(name="ask", title="Ask", config=StudyConfig, protocol=ask_questions)


@pytest.fixture
def recording_server() -> Iterator[tuple[ServerThread, list[web.Request]]]:
    """Start a server that records requests and accepts every path that ends in a known path."""
    requests: list[web.Request] = []
    with ServerThread(FaultPlan()) as server:
        answer_chat = server.model.chat

        async def route_request(request: web.Request, handler: Any) -> web.StreamResponse:
            requests.append(request)
            is_chat = request.path.endswith("/chat/completions")
            return await (answer_chat(request) if is_chat else handler(request))

        server.model.between = route_request
        yield server, requests


# (address in the study file, expected path, expected headers)
CLOUD_ENDPOINTS = {
    "azure deployment": (
        {
            "url": "{base}/openai/deployments/mine",
            "query": {"api-version": "2024-10-21"},
            "headers": {"api-key": "${DOOR_KEY}"},
        },
        "/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        {"api-key": SECRET_KEY},
    ),
    "azure v1": (
        {"url": "{base}/openai/v1", "headers": {"api-key": "${DOOR_KEY}"}},
        "/openai/v1/chat/completions",
        {"api-key": SECRET_KEY},
    ),
    "bedrock": (
        {"url": "{base}/openai/v1", "headers": {"Authorization": "Bearer ${DOOR_KEY}"}},
        "/openai/v1/chat/completions",
        {"Authorization": f"Bearer {SECRET_KEY}"},
    ),
    "vertex": (
        {
            "url": "{base}/v1/projects/p/locations/eu/endpoints/openapi",
            "headers": {"Authorization": "Bearer ${DOOR_KEY}"},
        },
        "/v1/projects/p/locations/eu/endpoints/openapi/chat/completions",
        {"Authorization": f"Bearer {SECRET_KEY}"},
    ),
    "key in the query": (
        {"url": "{base}/v1", "query": {"key": "${DOOR_KEY}"}},
        f"/v1/chat/completions?key={SECRET_KEY}",
        {},
    ),
}


@pytest.mark.parametrize("endpoint", CLOUD_ENDPOINTS)
@pytest.mark.parametrize("fails", [False, True])
def test_cloud_endpoints_get_their_format_and_keys_stay_out_of_the_folder(
    endpoint: str,
    fails: bool,
    recording_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, requests = recording_server
    monkeypatch.setenv("DOOR_KEY", SECRET_KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-others")
    address, path, headers = CLOUD_ENDPOINTS[endpoint]
    address = {**address, "url": str(address["url"]).format(base=server.url)}
    if fails:  # a server that repeats the request in its error
        error_reply = {"status": 401, "message": f"bad key {SECRET_KEY}"}
        server.model.says = lambda messages, body: error_reply
    values = {"model": "openai/mine", "endpoints": {"openai/mine": address}}
    error = ""
    try:
        run(STUDY, values, out=tmp_path / "run")
    except FolkmootError as problem:
        error = str(problem)
    assert bool(error) == fails
    assert SECRET_KEY not in error
    assert {request.path_qs for request in requests} == {path}
    for request in requests:
        assert {name: request.headers.get(name) for name in headers} == headers
        assert "not-for-others" not in str(request.headers)
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or SECRET_KEY.encode() not in file.read_bytes(), file
    assert SECRET_KEY not in repr(
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
def test_mistake_in_an_address_is_named(address: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        study_from_settings(STUDY, {"endpoints": {"openai/m": address}}, RunOptions())
    assert message in str(caught.value)


def test_unset_variable_is_named_before_any_request(tmp_path: Path) -> None:
    address = {"url": "https://h.example", "headers": {"api-key": "${NOBODY_SET_THIS}"}}
    values = {"model": "openai/m", "endpoints": {"openai": address}}
    with pytest.raises(InputError, match="needs NOBODY_SET_THIS, which is not set"):
        run(STUDY, values, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_key_in_a_header_is_not_sent_unencrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_KEY", SECRET_KEY)
    address = {"url": "http://h.example/v1", "headers": {"api-key": "${DOOR_KEY}"}}
    values = {"model": "openai/m", "endpoints": {"openai/m": [address]}}
    with pytest.raises(InputError, match="unencrypted"):
        run(STUDY, values, out=tmp_path / "run")


def test_consent_names_every_server_and_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOOR_KEY", SECRET_KEY)
    second_endpoint = {"url": "https://two.example/v1", "headers": {"api-key": "${DOOR_KEY}"}}
    values = {
        "model": "openai/m",
        "endpoints": {"openai/m": ["https://one.example/v1", second_endpoint]},
    }
    study_file = study_from_settings(STUDY, values, RunOptions())
    wishes = describe_destinations(
        study_file.config, create_router(study_file, RunOptions(key="k"))
    )
    assert wishes == [
        "sends your profiles and the key given with --key to https://one.example/v1",
        "sends your profiles and the key DOOR_KEY to https://two.example/v1",
    ]


def test_variables_are_replaced_in_place() -> None:
    address = {
        "url": "https://h/v1",
        "query": {"v": "a b", "k": "${K}&"},
        "headers": {"x": "-${K}-"},
    }
    (server,) = parse_servers(address)
    resolved_server = resolve_server(server, {"K": "long/secret"})
    assert resolved_server.url == "https://h/v1?v=a%20b&k=long/secret%26"
    assert resolved_server.headers == {"x": "-long/secret-"}
    assert "long/secret" in resolved_server.secrets


def test_calls_are_spread_over_the_servers_of_a_list(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as first_server, ServerThread(FaultPlan()) as second_server:
        values = {
            "model": "openai/m",
            "endpoints": {"openai/m": [first_server.openai, second_server.openai]},
        }
        run(STUDY, {**values, "concurrency": 6}, out=tmp_path / "run")
        counts = [server.model.counts["answered"] for server in (first_server, second_server)]
    assert sum(counts) == 12
    assert min(counts) > 0


class ControlledServer(Provider):
    """A provider that answers when the test sets its event."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error = name, error
        self.go = asyncio.Event()

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        if self.error is not None:
            raise self.error
        await self.go.wait()
        return Completion(self.name)


QUESTION = ModelRequest("m", (Message("user", "?"),))


async def test_least_loaded_server_gets_the_next_call() -> None:
    servers = [ControlledServer("a"), ControlledServer("b"), ControlledServer("c")]
    spread = LoadBalancer(servers)
    calls = [asyncio.ensure_future(spread.complete_request(QUESTION, address="")) for _ in range(9)]
    await asyncio.sleep(0)
    servers[1].go.set()  # b answers at once, so it gets all further calls
    assert [(await call).text for call in calls[1::3]] == ["b", "b", "b"]
    for _ in range(20):
        completion = await spread.complete_request(QUESTION, address="")
        assert completion.text == "b"
    for server in servers:
        server.go.set()
    assert Counter([(await call).text for call in calls]) == {"a": 3, "b": 3, "c": 3}


async def test_dead_server_is_avoided_and_does_not_end_the_run() -> None:
    dead, alive = (
        ControlledServer("dead", FatalModelError("no model server was reached")),
        ControlledServer("alive"),
    )
    alive.go.set()
    spread = LoadBalancer([dead, alive])
    failed = 0
    for _ in range(200):
        try:
            await spread.complete_request(QUESTION, address="")
        except TransientError:
            failed += 1
    assert 0 < failed < 12  # retried occasionally
    dead.error = None
    dead.go.set()
    reply_texts = [(await spread.complete_request(QUESTION, address="")).text for _ in range(1_000)]
    assert "dead" in reply_texts  # the server is available again


async def test_run_stops_if_no_server_can_be_reached() -> None:
    servers = [
        ControlledServer(name, FatalModelError("no model server was reached")) for name in "ab"
    ]
    spread = LoadBalancer(servers)
    with pytest.raises(TransientError):
        await spread.complete_request(QUESTION, address="")
    with pytest.raises(FatalModelError):
        await spread.complete_request(QUESTION, address="")


async def test_error_that_may_be_billed_stays_so_if_another_server_is_asked() -> None:
    billed = FatalModelError("a stream of events")
    billed.may_be_billed = True
    spread = LoadBalancer([ControlledServer("a", billed), ControlledServer("b", billed)])
    with pytest.raises(TransientError) as caught:
        await spread.complete_request(QUESTION, address="")
    assert caught.value.may_be_billed


def test_unknown_provider_class_is_refused_before_any_request(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="provider= is no provider: object"):
        run(STUDY, {}, provider=object(), out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "journal.sqlite").exists()
