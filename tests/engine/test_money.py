"""Money is told truly: over HTTP, from the reply to the manifest and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot import Choice, Session, Speaker, Study, StudyConfig, run
from folkmoot.engine.execution import RunOptions
from folkmoot.engine.journal import Journal
from folkmoot.engine.runner import Run, from_python, run_study
from folkmoot.errors import BudgetReached, FatalModelError, InputError
from folkmoot.report.trust import methods, trust
from folkmoot.storage.run_folder import RunFolder
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-haiku-4-5"}
MODELS["google"] = "google/gemini-2.5-flash"

pytestmark = pytest.mark.usefixtures("keys")


async def votes(session: Session) -> None:
    async def vote(scope: Any, number: int) -> None:
        who = Speaker(f"p{number}", system="You are a cook.")
        await scope.ask(
            who, f"Parks or jobs, {number}?", answer=Choice(("Parks", "Jobs")), reasks=0
        )
        await scope.ask(who, f"Why, {number}?")

    await session.each(range(6), vote)


STUDY = Study(name="votes", title="Votes", config=StudyConfig, protocol=votes)


def settings(server: ServerThread, vendor: str = "openai", **more: Any) -> dict[str, Any]:
    url = server.openai if vendor == "openai" else server.url
    return {"model": MODELS[vendor], "endpoints": {vendor: url}, "concurrency": 8, **more}


def resumed(values: dict[str, Any], out: Path) -> Run:
    options = RunOptions(out=out, resume=True)
    return run_study(from_python(STUDY, values, options), options)


@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize("usage", ["none", "input"])
def test_without_usage_nothing_is_said_to_be_free(vendor: str, usage: str, tmp_path: Path) -> None:
    with ServerThread(FaultPlan(usage=usage)) as server:
        done = run(STUDY, settings(server, vendor), out=tmp_path / "run")
    manifest = done.manifest
    (model,) = manifest["models"]
    assert manifest["cost_usd"] is None and manifest["cost_unknown_for"] == [MODELS[vendor]]
    assert manifest["input_tokens"] is None and manifest["output_tokens"] is None
    assert (model["cost_usd"], model["calls_without_usage"]) == (None, model["calls"])
    assert "unknown price" in methods(done.folder, "t") and "unknown number" in methods(
        done.folder, "t"
    )
    shown = str(trust(done.folder, STUDY))
    assert "unknown" in shown and "$0.00" not in shown
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert '"cost_usd": null' in log.splitlines()[-1]


@pytest.mark.parametrize("vendor", MODELS)
def test_with_a_budget_in_money_the_first_reply_without_usage_ends_the_run(
    vendor: str, tmp_path: Path
) -> None:
    with ServerThread(FaultPlan(usage="none")) as server:
        named = settings(server, vendor, budget_usd=5.0, concurrency=1)
        with pytest.raises(FatalModelError, match="budget_calls"):
            run(STUDY, named, out=tmp_path / "run")
        assert server.model.counts["answered"] == 1
        told = RunFolder(tmp_path / "run").manifest
        assert (told["calls"], told["cost_usd"]) == (1, None)
        with pytest.raises(InputError, match="budget_calls"):  # and nothing is asked again
            resumed(named, tmp_path / "run")
        assert server.model.counts["answered"] == 1
        resumed(settings(server, vendor, budget_calls=50), tmp_path / "run")
        assert server.model.counts["answered"] == 12


def test_with_a_budget_in_money_a_model_of_unknown_price_is_not_asked(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        named = {"model": "openai/nobody-knows-it", "endpoints": {"openai": server.openai}}
        with pytest.raises(InputError, match="budget_calls"):
            run(STUDY, {**named, "budget_usd": 5.0}, out=tmp_path / "run")
        assert server.model.counts["received"] == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("usd", [0.03, 0.01])
@pytest.mark.parametrize("limit", [None, 40])
def test_a_budget_is_neither_passed_nor_left_unused(
    usd: float, limit: int | None, tmp_path: Path
) -> None:
    async def talk(session: Session) -> None:
        async def one(scope: Any, number: int) -> None:
            for turn in range(10):
                await scope.ask(Speaker(f"p{number}"), f"Question {turn} " + "so it is " * 60)

        await session.each(range(40), one)

    study = Study(name="talk", title="Talk", config=StudyConfig, protocol=talk)
    with ServerThread(FaultPlan()) as server:
        named = settings(server, budget_usd=usd, concurrency=32, max_tokens=limit)
        with pytest.raises(BudgetReached):
            run(study, named, out=tmp_path / "run")
    with Journal(tmp_path / "run" / "journal.sqlite") as journal:
        calls, spent, unknown = journal.spent()
        dearest = max(float(entry.cost_usd or 0) for entry in journal.entries())
    assert not unknown and calls > 5
    room = 0.0055 if limit is None else 0.0025  # what the next call might have cost
    assert usd - room < spent <= usd + (dearest if limit is None else 0)


def test_what_a_resume_spends_counts_against_the_same_budget(tmp_path: Path) -> None:
    with ServerThread(FaultPlan()) as server:
        named = settings(server, budget_usd=0.0005, max_tokens=10)
        with pytest.raises(BudgetReached):
            run(STUDY, named, out=tmp_path / "run")
        asked = server.model.counts["answered"]
        assert 0 < asked < 12
        with pytest.raises(BudgetReached):
            resumed(named, tmp_path / "run")
        assert server.model.counts["answered"] == asked
        done = resumed({**named, "budget_usd": 1.0}, tmp_path / "run")
    assert done.manifest["calls"] == 12


def test_tries_that_may_have_been_billed_are_told(tmp_path: Path) -> None:
    with ServerThread(FaultPlan(drop=0.3)) as server:
        named = settings(server, api_retry_base_seconds=0.001, max_api_retries=20)
        done = run(STUDY, named, out=tmp_path / "run")
        lost = server.model.counts["drop"]
    assert lost > 0 and done.manifest["lost_tries"] == lost
    assert "may have billed" in str(trust(done.folder, STUDY))
