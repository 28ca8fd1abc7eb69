"""Before money is spent: a real call of each kind, and a stop where the study cannot work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

OWN = """
from pydantic import BaseModel
from folkmoot import Choice, Json, Number, Session, Speaker, Study, StudyConfig

class Why(BaseModel):
    reason: str

async def ask(session: Session) -> None:
    async def one(scope, number):
        who = Speaker(f"p{number}", system="You are a cook.")
        await scope.ask(who, f"Parks or jobs, {number}?", answer=Choice(("Parks", "Jobs")))
        await scope.ask(who, f"How sure are you, {number}?", answer=Number(0, 100))
        await scope.ask(Speaker("chair", role="moderator"), f"Why, {number}?", answer=Json(Why))
    await session.each(range(3), one)

STUDY = Study(name="own", title="Own", config=StudyConfig, protocol=ask)
"""


def good(messages: list[dict[str, str]], body: dict[str, Any]) -> dict[str, Any]:
    last = messages[-1]["content"]
    if "Parks" in last:
        return {"text": "Parks"}
    return {"text": "70" if "sure" in last else '{"reason": "so"}'}


def command(
    server: ServerThread,
    folder: Path,
    *words: str,
    long: int = 0,
    embeds: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """`long`: tokens in front of each vote's question. `embeds`: the study says that it does."""
    asked = OWN.replace('f"Parks or jobs', f'"x " * {2 * long} + f"Parks or jobs')
    asked = asked.replace("protocol=ask)", f"protocol=ask, embeds={embeds})")
    (folder / "own.py").write_text(asked, "utf-8")
    values = {
        "study": "own.py",
        "model": "openai/gpt-4o",
        "endpoints": {"openai": server.openai},
        "temperature": 0.5,
        "max_api_retries": 0,
        **more,
    }
    (folder / "study.yaml").write_text(json.dumps(values), "utf-8")
    line = [sys.executable, "-m", "folkmoot", "run", "study.yaml", "--out", "run", *words]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": "key", "COLUMNS": "250", "FOLKMOOT_TRUST": "1"}


def plan(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "run/plan.json").read_text()).get(
        "preflight", []
    )
    return found


def test_one_call_of_each_kind_comes_first_and_is_paid_for_once(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(schema="refuse", no_temperature=True)) as server:
        server.model.says = good
        done = command(server, tmp_path, "--preflight")
        assert done.returncode == 0, done.stderr
        answered = server.model.counts["answered"]
        again = command(server, tmp_path, "--preflight", "--resume")
        assert again.returncode == 0, again.stderr
        assert server.model.counts["answered"] == answered == 3 + 9
    rows = {(row["role"], row["answer"]): row for row in plan(tmp_path)}
    assert set(rows) == {
        ("participant", "choice"),
        ("participant", "number"),
        ("moderator", "json"),
    }
    json_row, choice = rows["moderator", "json"], rows["participant", "choice"]
    assert (json_row["schema"], json_row["system"]) == ("JSON mode", "not needed")
    assert (choice["schema"], choice["system"]) == ("not needed", "taken")
    assert {row["temperature"] for row in rows.values()} == {"not taken"}
    assert {row["usage"] for row in rows.values()} == {"given"}
    assert {row["read"] for row in rows.values()} == {"yes"}
    assert {row["ended"] for row in rows.values()} == {"stop"}
    table = done.stderr[done.stderr.index("Preflight") :]
    assert "JSON mode" in table
    assert "moderator" in table
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["calls"] == 12
    line = [sys.executable, "-m", "folkmoot", "verify", "run"]
    verified = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env=environment())
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"text": "", "finish": "content_filter"}, "refused (filtered)"),
        ({"text": "I cannot help with that.", "finish": "stop"}, "refused (I cannot"),
        ({"text": ""}, "an empty reply"),
        ({"text": "", "finish": "length"}, "used up before the first word"),
        ({"text": "Well, let me think", "finish": "length"}, "cut at the token limit"),
        ({"status": 400, "message": "bad thing"}, "rejected the request"),
    ],
)
def test_where_the_study_cannot_work_it_stops_with_2_and_nothing_else_is_paid(
    said: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = lambda messages, body: said
        done = command(server, tmp_path, "--preflight", max_tokens=50)
        assert done.returncode == 2, done.stderr
        assert told in " ".join(done.stderr.split())
        assert server.model.counts["answered"] <= 3


def test_the_model_that_embeds_is_tried_before_anything_else_is_paid(tmp_path: Path) -> None:
    embedder = "openai/text-embedding-3-small"
    with ServerThread(FaultPlan()) as server, ServerThread(FaultPlan(key="another")) as other:
        server.model.says = good
        there = {"openai": server.openai, embedder: other.openai}
        named = {"endpoints": there, "embedding_model": embedder}
        done = command(server, tmp_path, "--preflight", embeds=True, **named)
        assert done.returncode == 2 and "HTTP 401" in done.stderr, done.stderr
        assert server.model.counts["answered"] == 0
        other.model.plan = FaultPlan()
        done = command(server, tmp_path, "--preflight", "--resume", embeds=True, **named)
        assert done.returncode == 0, done.stderr
        assert (server.model.counts["answered"], other.model.counts["embedded_texts"]) == (12, 1)
    assert [row["model"] for row in plan(tmp_path) if row["answer"] == "embedding"] == [embedder]
    line = [sys.executable, "-m", "folkmoot", "verify", "run"]
    verified = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env=environment())
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_usage_that_is_not_given_stops_a_run_with_a_budget(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(usage="none")) as server:
        server.model.says = good
        done = command(server, tmp_path, "--preflight", budget_usd=1.0)
        assert done.returncode == 2, done.stderr
        assert server.model.counts["answered"] == 1
        (tmp_path / "free").mkdir()
        free = command(server, tmp_path / "free", "--preflight")
        assert free.returncode == 0, free.stderr
        assert {row["usage"] for row in plan(tmp_path / "free")} == {"not given"}


@pytest.mark.parametrize(
    ("words", "tokens", "calls"), [((), 700_000, 3), (("--no-preflight",), 700_000, 0), ((), 50, 0)]
)
def test_it_is_the_default_where_the_run_costs_more_than_5_dollars(
    words: tuple[str, ...], tokens: int, calls: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = good
        done = command(server, tmp_path, *words, long=tokens)
    assert done.returncode == 0, done.stderr
    assert len(plan(tmp_path)) == calls
    assert ("a preflight comes first" in done.stderr) == bool(calls)


def test_it_is_asked_directly_where_the_study_goes_by_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = good
        done = command(server, tmp_path, "--preflight", "--batch", batch_poll_seconds=0.001)
        assert done.returncode == 0, done.stderr
        assert server.model.batches.calls == 9
