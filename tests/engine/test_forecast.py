"""The cost forecast of a run moves from the estimate to the measured usage of replies."""

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

# 1,000 calls of 100 input and 200 output tokens, if replies have the estimated length.
ESTIMATE = RunEstimate(
    (StageEstimate("talk", 1000, 100_000, 200_000),),
    models={"m": (100_000, 200_000)},
    model_calls={"m": 1000},
    input_range=TokenRange(80_000, 120_000),
    output_range=TokenRange(100_000, 300_000),
)


def compute_price(_model: str, _calls: int, input_tokens: float, output_tokens: float) -> float:
    return input_tokens * 0.001 + output_tokens * 0.01


def build_reply(input_tokens: int = 100, output_tokens: int = 80) -> CallDone:
    return CallDone(
        "m", False, compute_price("m", 1, input_tokens, output_tokens), input_tokens, output_tokens
    )


def test_forecast_without_replies_is_the_estimate_with_its_range() -> None:
    cost = Forecast(ESTIMATE, compute_price).cost()
    assert cost == pytest.approx((2100, 1080, 3120))


def test_short_replies_lower_the_forecast_and_narrow_its_range() -> None:
    """Replies have 80 tokens instead of 200. The run costs 900 where 2,100 was estimated."""
    forecast = Forecast(ESTIMATE, compute_price)
    errors, widths = [], []
    for further_calls in (0, 10, 40, 150, 800):
        for _ in range(further_calls):
            forecast(build_reply())
        cost = forecast.cost()
        assert cost is not None and cost.low <= cost.middle <= cost.high
        errors.append(abs(cost.middle - 900))
        widths.append(cost.high - cost.low)
    assert errors == sorted(errors, reverse=True) and widths == sorted(widths, reverse=True)
    assert errors[2] < 0.35 * errors[0] and errors[-1] == pytest.approx(0, abs=1e-6)


def test_unknown_price_is_not_forecast() -> None:
    assert Forecast(ESTIMATE, lambda _model, _calls, _sent, _said: None).cost() is None


def test_preflight_prints_the_expected_cost_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(small_study("focus_group", tmp_path / "files"))
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        monkeypatch.setenv("OPENAI_API_KEY", "k" * 24)
        command = ["run", path, "--preflight", "--model", "gpt-4o"]
        # The forecast is printed before the run, so the run itself can be very short.
        short_run_settings = (
            "embedding_model=synthetic",
            "replications=1",
            "num_personas=3",
            "phases=[warmup]",
        )
        result = CliRunner().invoke(
            app, [*command, *(f"--set={setting}" for setting in short_run_settings)]
        )
    assert result.exit_code == 0, result.output
    assert "Forecast of the cost from these replies: about $" in " ".join(result.output.split())
