"""Base URLs in the forms that users write: with a query, without a version, with an extra slash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from folkmoot.models.catalog import HUGGING_FACE_VENDOR, resolve_model
from folkmoot.models.request import Message, ModelRequest, Provider, ProviderSettings
from folkmoot.models.urls import ensure_version, join_url
from folkmoot.models.wire import anthropic_messages, gemini, openai_chat
from tests.servers.faults import FaultPlan
from tests.servers.model_server import ModelServer


@pytest.mark.parametrize(
    ("base", "full_url"),
    [
        ("http://h/v1", "http://h/v1/chat"),
        ("http://h:8/v1/", "http://h:8/v1/chat"),
        ("http://h/v1?api-version=2024-10-21", "http://h/v1/chat?api-version=2024-10-21"),
        ("http://h/v1/?a=b&c=/d/", "http://h/v1/chat?a=b&c=/d/"),
        ("http://h?a=b", "http://h/chat?a=b"),
        ("http://h/v1#part", "http://h/v1/chat"),
    ],
)
def test_path_is_inserted_before_the_query(base: str, full_url: str) -> None:
    assert join_url(base, "/chat") == full_url


def test_missing_version_is_added() -> None:
    assert ensure_version("https://h/?a=b", "/v1") == "https://h/v1?a=b"
    assert ensure_version("https://h/v1beta/?a=b", "/v1") == "https://h/v1beta/?a=b"
    assert ensure_version("https://h/v4", "/v1") == "https://h/v4"
    assert ensure_version("http://[::1", "/v1") == "http://[::1"
    spec = resolve_model(HUGGING_FACE_VENDOR, {HUGGING_FACE_VENDOR: "https://h.example/x?a=b"}, {})
    assert spec.base_url == "https://h.example/x/v1?a=b"


@pytest.mark.parametrize(
    ("provider", "tail"),
    [
        (openai_chat.provider, "/v1/?api-version=2024-10-21"),
        (openai_chat.provider, "/v1?api-version=2024-10-21"),
        (anthropic_messages.provider, "?api-version=2024-10-21"),
        (gemini.provider, "?api-version=2024-10-21"),
    ],
)
async def test_every_format_works_with_a_query(
    provider: Callable[[ProviderSettings], Provider], tail: str
) -> None:
    paths: list[str] = []

    @web.middleware
    async def record_path(request: web.Request, handler: Callable[..., object]) -> object:
        paths.append(request.query.get("api-version", ""))
        return await handler(request)  # type: ignore[misc]

    app = ModelServer(FaultPlan(), 0.0, "hash").app()
    app.middlewares.append(record_path)  # type: ignore[arg-type]
    async with TestServer(app) as running:
        model = provider(ProviderSettings(str(running.make_url("")).rstrip("/") + tail))
        reply = await model.complete_request(
            ModelRequest("m", (Message("user", "Hello"),), max_tokens=9), address="a"
        )
        await model.close()
    assert reply.text.startswith("reply-") and paths == ["2024-10-21"]
