"""The gateway over HTTP in all three wire formats, with many faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel

from folkmoot import Choice, Json, Missing, Session, Speaker, Study, StudyConfig, run
from folkmoot.engine.calls.gateway import Gateway
from folkmoot.engine.journal.journal import Journal
from folkmoot.models.catalog import ModelSpec, open_provider, resolve_model
from folkmoot.models.request import Message, ModelRequest, Provider, ProviderSettings
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

BAD = FaultPlan(
    rate_limit=0.10,
    server_error=0.05,
    drop=0.05,
    malformed=0.05,
    retry_after=0.02,
)
SETTINGS = StudyConfig(
    concurrency=16, max_api_retries=10, api_retry_base_seconds=0.01, quota_wait_seconds=0.05
)


def build_provider_factory(server: ServerThread) -> object:
    def build_provider(name: str) -> tuple[Provider, ModelSpec]:
        url = server.openai if name.startswith("openai") else server.url
        spec = resolve_model(name, {name: url}, {})
        settings = ProviderSettings(base_url=spec.base_url, api_key="key", timeout=60)
        return open_provider(spec, settings), spec

    return build_provider


@pytest.mark.parametrize("model", ["openai/m", "anthropic/m", "google/m"])
async def test_every_request_is_answered_and_journaled_once(model: str, tmp_path: Path) -> None:
    with ServerThread(BAD) as server, Journal(tmp_path / "journal.sqlite") as journal:
        gateway = Gateway(journal, build_provider_factory(server), SETTINGS)  # type: ignore[arg-type]
        requests = [ModelRequest(model, (Message("user", f"Question {i}"),)) for i in range(80)]
        replies = await asyncio.gather(
            *(gateway.complete_request(f"a/{i}", request) for i, request in enumerate(requests))
        )
        await gateway.wait_for_calls_in_flight()
        await gateway.close()
        counts, stats = server.model.counts, gateway.usage_by_model[model]
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert len(journal) == 80
    assert len({request.text for request in replies}) == 80
    assert set(Counter(server.model.log).values()) == {1}  # no answered request was repeated
    for fault in ("rate_limit", "server_error", "drop", "malformed"):
        assert counts[fault] > 0
    assert stats.calls == 80
    assert stats.retries == counts["received"] - 80
    assert counts["most_in_flight"] <= 16


class Vote(BaseModel):
    choice: str
    strength: int


async def ask_for_json(session: Session) -> None:
    reply = await session.ask(Speaker("p1"), "Vote, please.", answer_type=Json(Vote))
    if isinstance(reply, Missing):
        session.record("votes", {"choice": None, "missing": reply.reason})
    else:
        session.record("votes", {"choice": reply.choice, "missing": None})


STUDY = Study(name="votes", title="Votes", config=StudyConfig, protocol=ask_for_json)


@pytest.mark.parametrize(
    ("schema", "choice", "missing"),
    [
        ("obey", "some text", None),
        ("ignore", None, "unparsed"),  # status 200 with prose: never counted as an answer
        ("refuse", None, "unparsed"),
        ("none", None, "unparsed"),
    ],
)
def test_schema_support_claimed_by_a_server_is_never_trusted(
    schema: str, choice: str | None, missing: str | None, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(schema=schema)) as server:
        settings = {"model": "openai/m", "endpoints": {"openai/m": server.openai}}
        finished_run = run(STUDY, settings, out=tmp_path / "run")
        refused = server.model.counts["format_refused"]
    (row,) = finished_run.table("votes").to_dicts()
    assert (row["choice"], row["missing"]) == (choice, missing)
    # Each schema mode is tried once.
    assert refused == {"obey": 0, "ignore": 0, "refuse": 1, "none": 2}[schema]


@pytest.mark.parametrize(
    ("schema", "parse_step", "refused"),
    [("obey", "clarified", 0), ("ignore", "missing", 0), ("none", "missing", 2)],
)
def test_choice_hidden_in_prose_is_clarified(
    schema: str, parse_step: str, refused: int, tmp_path: Path
) -> None:
    async def vote(session: Session) -> None:
        await session.ask(Speaker("p1"), "Which?", answer_type=Choice(["Park", "Mall"]))

    study = Study(name="votes", title="Votes", config=StudyConfig, protocol=vote)
    with ServerThread(FaultPlan(schema=schema)) as server:
        settings = {"model": "openai/m", "endpoints": {"openai/m": server.openai}}
        finished_run = run(study, settings, out=tmp_path / "run")
        assert server.model.counts["format_refused"] == refused
    (row,) = finished_run.table("answers").to_dicts()
    assert (row["parse_step"], row["value"]) == (
        parse_step,
        "Park" if parse_step == "clarified" else None,
    )
    assert row["missing"] == (None if parse_step == "clarified" else "unparsed")
