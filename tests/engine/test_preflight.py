"""The preflight: one real call of each kind, and a stop if the study cannot work."""

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

STUDY = """
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


def answer_correctly(messages: list[dict[str, str]], body: dict[str, Any]) -> dict[str, Any]:
    last = messages[-1]["content"]
    if "Parks" in last:
        return {"text": "Parks"}
    return {"text": "70" if "sure" in last else '{"reason": "so"}'}


def write_study(
    server: ServerThread, folder: Path, *, long: int = 0, embeds: bool = False, **more: Any
) -> None:
    """Write the study. `long`: tokens before each question. `embeds`: the declared value."""
    study_text = STUDY.replace('f"Parks or jobs', f'"x " * {2 * long} + f"Parks or jobs')
    study_text = study_text.replace("protocol=ask)", f"protocol=ask, uses_embeddings={embeds})")
    (folder / "own.py").write_text(study_text, "utf-8")
    values = {
        "study": "own.py",
        "model": "openai/gpt-4o",
        "endpoints": {"openai": server.openai},
        "temperature": 0.5,
        "max_api_retries": 0,
        **more,
    }
    (folder / "study.yaml").write_text(json.dumps(values), "utf-8")


def run_command(server: ServerThread, folder: Path, *arguments: str, **options: Any) -> Result:
    write_study(server, folder, **options)
    command = ["run", "study.yaml", "--out", "run", *arguments]
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, command, env=build_environment())


def build_environment() -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": "key", "COLUMNS": "250", "FOLKMOOT_TRUST": "1"}


def read_preflight_plan(folder: Path) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = json.loads((folder / "run/plan.json").read_text()).get(
        "preflight", []
    )
    return calls


def test_preflight_makes_one_call_of_each_kind_and_pays_once(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(schema="refuse", no_temperature=True)) as server:
        server.model.says = answer_correctly
        result = run_command(server, tmp_path, "--preflight")
        assert result.exit_code == 0, result.stderr
        answered = server.model.counts["answered"]
        resume_result = run_command(server, tmp_path, "--preflight", "--resume")
        assert resume_result.exit_code == 0, resume_result.stderr
        assert server.model.counts["answered"] == answered == 3 + 9
    rows = {(row["role"], row["answer"]): row for row in read_preflight_plan(tmp_path)}
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
    ("reply", "expected_output"),
    [
        ({"text": "", "finish": "content_filter"}, "refused (filtered)"),
        ({"text": "I cannot help with that.", "finish": "stop"}, "refused (I cannot"),
        ({"text": ""}, "an empty reply"),
        ({"text": "", "finish": "length"}, "used up before the first word"),
        ({"text": "Well, let me think", "finish": "length"}, "cut at the token limit"),
        ({"status": 400, "message": "bad thing"}, "rejected the request"),
    ],
)
def test_failed_preflight_stops_with_exit_code_2_and_pays_nothing_more(
    reply: dict[str, Any], expected_output: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = lambda messages, body: reply
        result = run_command(server, tmp_path, "--preflight", max_tokens=50)
        assert result.exit_code == 2, result.stderr
        assert expected_output in " ".join(result.stderr.split())
        assert server.model.counts["answered"] <= 3


def test_embedding_model_is_tested_before_other_calls_are_paid(tmp_path: Path) -> None:
    embedder = "openai/text-embedding-3-small"
    with (
        ServerThread(FaultPlan()) as server,
        ServerThread(FaultPlan(key="another")) as embedding_server,
    ):
        server.model.says = answer_correctly
        endpoints = {"openai": server.openai, embedder: embedding_server.openai}
        run_settings = {"endpoints": endpoints, "embedding_model": embedder}
        result = run_command(server, tmp_path, "--preflight", embeds=True, **run_settings)
        assert result.exit_code == 2 and "HTTP 401" in result.stderr, result.stderr
        assert server.model.counts["answered"] == 0
        embedding_server.model.plan = FaultPlan()
        result = run_command(
            server, tmp_path, "--preflight", "--resume", embeds=True, **run_settings
        )
        assert result.exit_code == 0, result.stderr
        assert (
            server.model.counts["answered"],
            embedding_server.model.counts["embedded_texts"],
        ) == (12, 1)
    assert [
        row["model"] for row in read_preflight_plan(tmp_path) if row["answer"] == "embedding"
    ] == [embedder]
    verified = CliRunner().invoke(app, ["verify", str(tmp_path / "run")])
    assert verified.exit_code == 0, verified.output


def test_missing_usage_stops_a_run_with_a_budget(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(usage="none")) as server:
        server.model.says = answer_correctly
        result = run_command(server, tmp_path, "--preflight", budget_usd=1.0)
        assert result.exit_code == 2, result.stderr
        assert server.model.counts["answered"] == 1
        (tmp_path / "free").mkdir()
        run_without_budget = run_command(server, tmp_path / "free", "--preflight")
        assert run_without_budget.exit_code == 0, run_without_budget.stderr
        assert {row["usage"] for row in read_preflight_plan(tmp_path / "free")} == {"not given"}


@pytest.mark.parametrize(
    ("words", "tokens", "calls"), [((), 24_000, 3), (("--no-preflight",), 24_000, 0), ((), 50, 0)]
)
def test_preflight_is_the_default_for_runs_above_5_dollars(
    words: tuple[str, ...], tokens: int, calls: int, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = answer_correctly
        result = run_command(server, tmp_path, *words, long=tokens, model="openai/gpt-4.5-preview")
    assert result.exit_code == 0, result.stderr
    assert len(read_preflight_plan(tmp_path)) == calls
    assert ("a preflight tests the models" in result.stderr) == bool(calls)


def test_preflight_of_a_batch_study_calls_the_model_directly(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        server.model.says = answer_correctly
        result = run_command(server, tmp_path, "--preflight", "--batch", batch_poll_seconds=0.001)
        assert result.exit_code == 0, result.stderr
        assert server.model.batches.calls == 9


class GridRunner:
    """A grid of two models in this process. The answers of gpt-4o-mini can be set."""

    def __init__(self, server: ServerThread, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self._folder = folder
        self.mini: dict[str, Any] = {}
        for name, value in build_environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        server.model.says = self.reply_to

    def reply_to(self, messages: list[dict[str, str]], body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] == "gpt-4o-mini":
            if self.mini:
                return self.mini
            if (body.get("response_format") or {}).get("type") == "json_schema":
                return {"status": 400, "message": "response_format json_schema: not supported"}
        return answer_correctly(messages, body)

    def run(self, *arguments: str, long: int = 0) -> Result:
        write_study(self.server, self._folder, long=long)
        return CliRunner().invoke(app, ["run", "study.yaml", "--out", "grid", *arguments])

    @property
    def answered(self) -> int:
        return self.server.model.counts["answered"]

    def read_preflight_calls(self) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = json.loads((self._folder / "grid/grid.json").read_text())[
            "preflight"
        ]
        return calls


@pytest.fixture
def grid_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GridRunner]:
    with ServerThread(FaultPlan()) as server:
        yield GridRunner(server, tmp_path, monkeypatch)


MODELS = ("--grid", "model=openai/gpt-4o,openai/gpt-4o-mini")


def test_grid_preflight_tests_each_model_once_before_any_cell(grid_runner: GridRunner) -> None:
    result = grid_runner.run(*MODELS, "--repeats", "2", "--preflight", "--set", "budget_calls=41")
    # The calls of the preflight count against the budget.
    assert result.exit_code == 75, result.output
    assert grid_runner.answered == 41
    resume_result = grid_runner.run("--resume", "--preflight", "--set", "budget_calls=100")
    assert resume_result.exit_code == 0, resume_result.output
    assert grid_runner.answered == 6 + 4 * 9  # no call was repeated
    for output in (result.output, resume_result.output):
        assert "Preflight" in output and "moderator" in output
    schemas = {
        (row["model"], row["answer"]): row["schema"] for row in grid_runner.read_preflight_calls()
    }
    assert len(grid_runner.read_preflight_calls()) == len(schemas) == 6
    assert schemas["openai/gpt-4o", "json"] == "taken"
    assert schemas["openai/gpt-4o-mini", "json"] == "JSON mode"
    wider = grid_runner.run("--resume", "--preflight", MODELS[0], f"{MODELS[1]},openai/gpt-4.1")
    assert wider.exit_code == 0, wider.output
    assert grid_runner.answered == 6 + 4 * 9 + 3 + 2 * 9
    assert {
        (row["model"], row["answer"]): row["schema"] for row in grid_runner.read_preflight_calls()
    }.items() >= schemas.items()


def test_grid_preflight_stops_with_exit_code_2_if_one_cell_cannot_work(
    grid_runner: GridRunner,
) -> None:
    grid_runner.mini = {"text": "", "finish": "content_filter"}
    result = grid_runner.run(*MODELS, "--preflight")
    output = " ".join(result.output.split())
    assert result.exit_code == 2, result.output
    assert "refused (filtered) (in the cell model openai/gpt-4o-mini)" in output
    assert grid_runner.answered == 6 and not Path("grid/cells").exists()
    assert [bool(row["problem"]) for row in grid_runner.read_preflight_calls()] == [False] * 3 + [
        True
    ] * 3
    grid_runner.mini = {"text": "Parks"}
    # A second preflight fails as well.
    assert grid_runner.run("--resume", "--preflight").exit_code == 2
    assert grid_runner.answered == 6
    assert grid_runner.run("--resume", "--no-preflight").exit_code == 0


def test_answer_type_of_a_single_cell_is_tested(grid_runner: GridRunner) -> None:
    cut_reply = {"text": "", "finish": "length"}
    original_answers, model = grid_runner.reply_to, grid_runner.server.model
    model.says = lambda messages, body: (
        cut_reply if body["max_tokens"] == 5 else original_answers(messages, body)
    )
    result = grid_runner.run("--grid", "max_tokens=50,5", "--preflight")
    assert result.exit_code == 2, result.output
    assert "(in the cell max_tokens 5)" in " ".join(result.output.split())
    assert grid_runner.answered == 6


@pytest.mark.parametrize(("words", "calls"), [((), 3), (("--no-preflight",), 0)])
def test_preflight_is_the_default_for_grids_above_5_dollars(
    words: tuple[str, ...], calls: int, grid_runner: GridRunner
) -> None:
    result = grid_runner.run("--repeats", "4", "--model", "openai/gpt-4", *words, long=20_000)
    assert result.exit_code == 0, result.output
    assert grid_runner.answered == 4 * 9 + calls == len(grid_runner.read_preflight_calls()) + 4 * 9


def test_plan_is_on_disk_before_the_first_call(grid_runner: GridRunner) -> None:
    """Without the plan, a run that is killed during its preflight could not be resumed."""
    planned: list[bool] = []

    async def between(request: Any, handler: Any) -> Any:
        planned.append(Path("grid/plan.json").exists())
        return await handler(request)

    grid_runner.server.model.between = between
    assert grid_runner.run("--preflight").exit_code == 0
    assert len(planned) == 3 + 9 and all(planned)
