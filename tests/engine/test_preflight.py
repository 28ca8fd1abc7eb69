"""Before money is spent: a real call of each kind, and a stop where the study cannot work."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from folkmoot.cli.app import app
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
        await scope.ask(who, f"Parks or jobs, {number}?", answer_type=Choice(("Parks", "Jobs")))
        await scope.ask(who, f"How sure are you, {number}?", answer_type=Number(0, 100))
        chair = Speaker("chair", role="moderator")
        await scope.ask(chair, f"Why, {number}?", answer_type=Json(Why))
    await session.map(range(3), one)

STUDY = Study(name="own", title="Own", config=StudyConfig, protocol=ask)
"""


def good(messages: list[dict[str, str]], body: dict[str, Any]) -> dict[str, Any]:
    last = messages[-1]["content"]
    if "Parks" in last:
        return {"text": "Parks"}
    return {"text": "70" if "sure" in last else '{"reason": "so"}'}


def study(
    server: ServerThread, folder: Path, *, long: int = 0, embeds: bool = False, **more: Any
) -> None:
    """`long`: tokens in front of each vote's question. `embeds`: the study says that it does."""
    asked = OWN.replace('f"Parks or jobs', f'"x " * {2 * long} + f"Parks or jobs')
    asked = asked.replace("protocol=ask)", f"protocol=ask, uses_embeddings={embeds})")
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


def command(server: ServerThread, folder: Path, *words: str, **how: Any) -> Result:
    study(server, folder, **how)
    line = ["run", "study.yaml", "--out", "run", *words]
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, line, env=environment())


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
        result = command(server, tmp_path, "--preflight")
        assert result.exit_code == 0, result.stderr
        answered = server.model.counts["answered"]
        again = command(server, tmp_path, "--preflight", "--resume")
        assert again.exit_code == 0, again.stderr
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
    table = result.stderr[result.stderr.index("Preflight") :]
    assert "JSON mode" in table
    assert "moderator" in table
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["calls"] == 12
    verified = CliRunner().invoke(app, ["verify", str(tmp_path / "run")])
    assert verified.exit_code == 0, verified.output


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
        result = command(server, tmp_path, "--preflight", max_tokens=50)
        assert result.exit_code == 2, result.stderr
        assert told in " ".join(result.stderr.split())
        assert server.model.counts["answered"] <= 3


def test_the_model_that_embeds_is_tried_before_anything_else_is_paid(tmp_path: Path) -> None:
    embedder = "openai/text-embedding-3-small"
    with ServerThread(FaultPlan()) as server, ServerThread(FaultPlan(key="another")) as other:
        server.model.says = good
        there = {"openai": server.openai, embedder: other.openai}
        run_settings = {"endpoints": there, "embedding_model": embedder}
        result = command(server, tmp_path, "--preflight", embeds=True, **run_settings)
        assert result.exit_code == 2 and "HTTP 401" in result.stderr, result.stderr
        assert server.model.counts["answered"] == 0
        other.model.plan = FaultPlan()
        result = command(server, tmp_path, "--preflight", "--resume", embeds=True, **run_settings)
        assert result.exit_code == 0, result.stderr
        assert (server.model.counts["answered"], other.model.counts["embedded_texts"]) == (12, 1)
    assert [row["model"] for row in plan(tmp_path) if row["answer"] == "embedding"] == [embedder]
    verified = CliRunner().invoke(app, ["verify", str(tmp_path / "run")])
    assert verified.exit_code == 0, verified.output


def test_usage_that_is_not_given_stops_a_run_with_a_budget(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(usage="none")) as server:
        server.model.says = good
        result = command(server, tmp_path, "--preflight", budget_usd=1.0)
        assert result.exit_code == 2, result.stderr
        assert server.model.counts["answered"] == 1
        (tmp_path / "free").mkdir()
        free = command(server, tmp_path / "free", "--preflight")
        assert free.exit_code == 0, free.stderr
        assert {row["usage"] for row in plan(tmp_path / "free")} == {"not given"}


@pytest.mark.parametrize(
    ("words", "tokens", "calls"), [((), 24_000, 3), (("--no-preflight",), 24_000, 0), ((), 50, 0)]
)
def test_it_is_the_default_where_the_run_costs_more_than_5_dollars(
    words: tuple[str, ...], tokens: int, calls: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = good
        result = command(server, tmp_path, *words, long=tokens, model="openai/gpt-4.5-preview")
    assert result.exit_code == 0, result.stderr
    assert len(plan(tmp_path)) == calls
    assert ("a preflight tests the models" in result.stderr) == bool(calls)


def test_it_is_asked_directly_where_the_study_goes_by_batches(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = good
        result = command(server, tmp_path, "--preflight", "--batch", batch_poll_seconds=0.001)
        assert result.exit_code == 0, result.stderr
        assert server.model.batches.calls == 9


class Gridded:
    """Two models, of which gpt-4o-mini answers as it is told to; run in this process."""

    def __init__(self, server: ServerThread, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self._folder = folder
        self.mini: dict[str, Any] = {}
        for name, value in environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        server.model.says = self.says

    def says(self, messages: list[dict[str, str]], body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] == "gpt-4o-mini":
            if self.mini:
                return self.mini
            if (body.get("response_format") or {}).get("type") == "json_schema":
                return {"status": 400, "message": "response_format json_schema: not supported"}
        return good(messages, body)

    def run(self, *words: str, long: int = 0) -> Result:
        study(self.server, self._folder, long=long)
        return CliRunner().invoke(app, ["run", "study.yaml", "--out", "grid", *words])

    @property
    def answered(self) -> int:
        return self.server.model.counts["answered"]

    def told(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self._folder / "grid/grid.json").read_text())[
            "preflight"
        ]
        return found


@pytest.fixture
def gridded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gridded]:
    with ServerThread(FaultPlan()) as server:
        yield Gridded(server, tmp_path, monkeypatch)


MODELS = ("--grid", "model=openai/gpt-4o,openai/gpt-4o-mini")


def test_a_grid_tries_each_model_once_before_any_cell_begins(gridded: Gridded) -> None:
    result = gridded.run(*MODELS, "--repeats", "2", "--preflight", "--set", "budget_calls=41")
    assert result.exit_code == 75, result.output  # the calls of the preflight count
    assert gridded.answered == 41
    again = gridded.run("--resume", "--preflight", "--set", "budget_calls=100")
    assert again.exit_code == 0, again.output
    assert gridded.answered == 6 + 4 * 9  # nothing was asked again
    for output in (result.output, again.output):
        assert "Preflight" in output and "moderator" in output
    schemas = {(row["model"], row["answer"]): row["schema"] for row in gridded.told()}
    assert len(gridded.told()) == len(schemas) == 6
    assert schemas["openai/gpt-4o", "json"] == "taken"
    assert schemas["openai/gpt-4o-mini", "json"] == "JSON mode"
    wider = gridded.run("--resume", "--preflight", MODELS[0], f"{MODELS[1]},openai/gpt-4.1")
    assert wider.exit_code == 0, wider.output
    assert gridded.answered == 6 + 4 * 9 + 3 + 2 * 9
    assert {
        (r["model"], r["answer"]): r["schema"] for r in gridded.told()
    }.items() >= schemas.items()


def test_a_grid_stops_with_2_where_one_cell_cannot_work(gridded: Gridded) -> None:
    gridded.mini = {"text": "", "finish": "content_filter"}
    result = gridded.run(*MODELS, "--preflight")
    output = " ".join(result.output.split())
    assert result.exit_code == 2, result.output
    assert "refused (filtered) (in the cell model openai/gpt-4o-mini)" in output
    assert gridded.answered == 6 and not Path("grid/cells").exists()
    assert [bool(row["problem"]) for row in gridded.told()] == [False] * 3 + [True] * 3
    gridded.mini = {"text": "Parks"}
    assert gridded.run("--resume", "--preflight").exit_code == 2  # nor a second time
    assert gridded.answered == 6
    assert gridded.run("--resume", "--no-preflight").exit_code == 0


def test_a_way_of_asking_that_one_cell_has_is_tried(gridded: Gridded) -> None:
    long = {"text": "", "finish": "length"}
    says, model = gridded.says, gridded.server.model
    model.says = lambda m, body: long if body["max_tokens"] == 5 else says(m, body)
    result = gridded.run("--grid", "max_tokens=50,5", "--preflight")
    assert result.exit_code == 2, result.output
    assert "(in the cell max_tokens 5)" in " ".join(result.output.split())
    assert gridded.answered == 6


@pytest.mark.parametrize(("words", "calls"), [((), 3), (("--no-preflight",), 0)])
def test_it_is_the_default_of_a_grid_that_costs_more_than_5_dollars(
    words: tuple[str, ...], calls: int, gridded: Gridded
) -> None:
    result = gridded.run("--repeats", "4", "--model", "openai/gpt-4", *words, long=20_000)
    assert result.exit_code == 0, result.output
    assert gridded.answered == 4 * 9 + calls == len(gridded.told()) + 4 * 9


def test_the_plan_is_on_the_disk_before_the_first_call(gridded: Gridded) -> None:
    """Without it a run that is killed in the middle of its preflight could not be resumed."""
    planned: list[bool] = []

    async def between(request: Any, handler: Any) -> Any:
        planned.append(Path("grid/plan.json").exists())
        return await handler(request)

    gridded.server.model.between = between
    assert gridded.run("--preflight").exit_code == 0
    assert len(planned) == 3 + 9 and all(planned)
