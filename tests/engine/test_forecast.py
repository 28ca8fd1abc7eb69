"""The forecast of a run's cost moves from the estimate to what replies were counted to take."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.calls.progress import CallDone
from folkmoot.engine.run.dry_run import RunEstimate, StageEstimate, TokenRange
from folkmoot.engine.run.forecast import Forecast
from tests.contract.small import small_study
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

# 1,000 calls of 100 tokens in and 200 out, if replies are as long as the estimate has them.
ESTIMATE = RunEstimate(
    (StageEstimate("talk", 1000, 100_000, 200_000),),
    models={"m": (100_000, 200_000)},
    model_calls={"m": 1000},
    input_range=TokenRange(80_000, 120_000),
    output_range=TokenRange(100_000, 300_000),
)


def price(_model: str, _calls: int, sent: float, said: float) -> float:
    return sent * 0.001 + said * 0.01


def reply(sent: int = 100, said: int = 80) -> CallDone:
    return CallDone("m", False, price("m", 1, sent, said), sent, said)


def test_without_replies_it_is_the_estimate_with_its_range() -> None:
    cost = Forecast(ESTIMATE, price).cost()
    assert cost == pytest.approx((2100, 1080, 3120))


def test_short_replies_bring_it_down_and_narrow_its_range() -> None:
    """Replies of 80 tokens in place of 200: the run costs 900, and 2,100 was estimated."""
    forecast = Forecast(ESTIMATE, price)
    errors, widths = [], []
    for further_calls in (0, 10, 40, 150, 800):
        for _ in range(further_calls):
            forecast(reply())
        cost = forecast.cost()
        assert cost is not None and cost.low <= cost.middle <= cost.high
        errors.append(abs(cost.middle - 900))
        widths.append(cost.high - cost.low)
    assert errors == sorted(errors, reverse=True) and widths == sorted(widths, reverse=True)
    assert errors[2] < 0.35 * errors[0] and errors[-1] == pytest.approx(0, abs=1e-6)


def test_a_price_that_nobody_knows_is_not_forecast() -> None:
    assert Forecast(ESTIMATE, lambda _model, _calls, _sent, _said: None).cost() is None


def test_the_preflight_says_what_the_run_will_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(small_study("focus_group", tmp_path / "files"))
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        monkeypatch.setenv("OPENAI_API_KEY", "k" * 24)
        words = ["run", path, "--preflight", "--model", "gpt-4o"]
        # The forecast comes before the run, which may be as short as it gets.
        short = ("embedding_model=synthetic", "replications=1", "num_personas=3", "phases=[warmup]")
        result = CliRunner().invoke(app, [*words, *(f"--set={setting}" for setting in short)])
    assert result.exit_code == 0, result.output
    assert "Forecast of the cost from these replies: about $" in " ".join(result.output.split())
