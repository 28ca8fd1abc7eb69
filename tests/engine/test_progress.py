"""Progress: totals of events, console lines, and log files without keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from folkmoot.engine.calls.progress import (
    AnswerMissing,
    CallDone,
    CallRetried,
    ItemDone,
    Notice,
    ProgressTally,
    RunEnded,
    RunLog,
    StageStarted,
    combine_progress,
    format_duration,
    format_event,
    format_rate,
)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_slow_pace_is_printed_per_minute() -> None:
    rates = [format_rate(x) for x in (0.0, 0.33, 0.999, 1.0, 9.9, 9.96, 1234.5)]
    assert rates == ["0/min", "20/min", "60/min", "1/s", "9.9/s", "10/s", "1,234/s"]


def test_tally_counts_calls_cost_missing_answers_and_remaining_time() -> None:
    clock = Clock()
    tally = ProgressTally(clock)
    tally(StageStarted("vote", 10))
    clock.now = 4.0
    for _ in range(4):
        tally(CallDone("m", cost_usd=0.5, input_tokens=10, output_tokens=2))
        tally(ItemDone("vote"))
    tally(AnswerMissing("vote/p3/ask0"))
    tally(CallDone("m", replayed=True, cost_usd=9.0))
    tally(CallRetried("m", "429", 2.0))
    assert (tally.calls, tally.replayed, tally.retries, tally.missing) == (4, 1, 1, 1)
    assert (tally.cost_usd, tally.total.input_tokens, tally.rate) == (2.0, 40, 1.0)
    stage = tally.current_stage
    assert stage is not None
    assert stage.eta_seconds(clock()) == 6.0
    assert tally.format_line() == (
        "vote: 4 of 10 · 6 s left · 4 calls (1/s) · 1 replayed · $2.00 · 1 retry "
        "· 1 without an answer"
    )


def test_each_log_line_contains_the_progress_of_stages(tmp_path: Path) -> None:
    clock = Clock()
    log = RunLog(tmp_path, clock=clock)
    log(StageStarted("vote", 4))
    clock.now = 3.0
    for _ in range(3):
        log(CallDone("m"))
        log(ItemDone("vote"))
    log.close()
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["stages"] == [{"name": "vote", "done": 3, "total": 4, "seconds_left": 1.0}]
    assert (last["rate"], last["retries"]) == (1.0, 0)


@pytest.mark.parametrize("stage", ["talk", "run"])
def test_remaining_time_is_estimated_by_calls_because_items_run_concurrently(stage: str) -> None:
    """When the first of twenty groups is done, the others are nearly done as well."""
    clock = Clock()
    tally = ProgressTally(clock)
    tally(StageStarted(stage, 20))
    scope = "" if stage == "run" else f"{stage}/"
    for call in range(10):
        for group in range(20):
            if call < 9 or group == 0:
                clock.now += 1
                tally(CallDone("m", address=f"{scope}g{group}/turn{call}/ask0"))
    tally(ItemDone(stage))
    assert tally.stages[stage].done == 1
    eta_seconds = tally.stages[stage].eta_seconds(clock.now)
    assert eta_seconds == pytest.approx(19)  # one call for each other item, one each second


def test_replayed_calls_do_not_count_for_the_estimated_time() -> None:
    clock = Clock()
    tally = ProgressTally(clock)
    tally(StageStarted("talk", 2))
    for group in range(2):
        for call in range(5):
            tally(CallDone("m", replayed=True, address=f"talk/g{group}/ask{call}"))
    for call in range(5, 10):
        clock.now += 2
        tally(CallDone("m", address=f"talk/g0/ask{call}"))
    tally(ItemDone("talk"))
    assert tally.stages["talk"].eta_seconds(clock.now) == pytest.approx(10)  # five calls of 2 s


def test_remaining_time_of_a_stage_that_waits_for_a_human_is_unknown() -> None:
    """All items have had their calls, and the human in the last one reads or writes."""
    clock = Clock()
    tally = ProgressTally(clock)
    tally(StageStarted("interview", 3))
    for participant in range(3):
        for call in range(5):
            clock.now += 1
            tally(CallDone("m", address=f"interview/p{participant}/ask{call}"))
    for _ in range(2):
        tally(ItemDone("interview"))
    clock.now += 240
    assert tally.format_line().startswith("interview: 2 of 3 · 15 calls")
    (stage,) = tally.stage_snapshots()
    assert (stage["done"], stage["total"], stage["seconds_left"]) == (2, 3, None)


def test_stages_with_two_forks_add_up_and_end_with_the_next_stage() -> None:
    tally = ProgressTally(Clock())
    tally(StageStarted("a", 2))
    tally(StageStarted("a", 3))
    assert tally.stages["a"].total == 5
    tally(StageStarted("b", None))
    assert tally.current_stage is not None
    assert tally.current_stage.name == "a"


def test_last_active_stage_is_printed_for_concurrent_stages() -> None:
    clock = Clock()
    tally = ProgressTally(clock)
    for stage in ("vote", "talk", "vote_again"):
        tally(StageStarted(stage, 2))
    stages = []
    for stage in ("vote", "talk", "vote"):
        clock.now += 1
        tally(ItemDone(stage))
        stages.append(tally.current_stage and tally.current_stage.name)
    assert stages == ["vote", "talk", "talk"]  # the second vote was the last call


def test_unknown_price_is_printed_and_never_zero() -> None:
    tally = ProgressTally(Clock())
    assert tally.total.cost == "$0"
    tally(CallDone("m", cost_usd=None))
    assert tally.total.cost == "cost unknown"
    tally(CallDone("m", cost_usd=1.5))
    assert tally.total.cost == "$1.50 + 1 call of unknown cost"


def test_tokens_and_cost_are_kept_for_each_model(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log(CallDone("a", cost_usd=0.25, input_tokens=100, output_tokens=10))
    log(CallDone("a", cost_usd=0.5, input_tokens=1000, output_tokens=10))
    log(CallDone("b", cost_usd=None, input_tokens=5, output_tokens=5))
    log(CallDone("b", replayed=True, cost_usd=1.0, input_tokens=5, output_tokens=5))
    assert log.tally.models["a"].format_line() == "2 calls · 1,100 tokens in, 20 out · $0.75"
    assert log.tally.models["b"].format_line() == "1 call · 5 tokens in, 5 out · cost unknown"
    log(RunEnded("done"))
    log.close()
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["models"] == {
        "a": {"calls": 2, "input_tokens": 1100, "output_tokens": 20, "cost_usd": 0.75},
        "b": {"calls": 1, "input_tokens": 5, "output_tokens": 5, "cost_usd": None},
    }


@pytest.mark.parametrize("secret", ["1", '"quoted"'])
def test_a_removed_secret_leaves_each_line_of_the_log_readable(tmp_path: Path, secret: str) -> None:
    """A key may be one digit, and JSON spells a quotation mark in a key otherwise."""
    log = RunLog(tmp_path, make_scrub=lambda: lambda text: text.replace(secret, "[key]"))
    log(CallDone("m", cost_usd=0.0))
    log(Notice(f"refused {secret}", "warning"))
    log.close()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert (event["message"], event["calls"]) == ("refused [key]", 1)


def test_log_files_have_text_and_json_formats_and_contain_no_key(tmp_path: Path) -> None:
    clock = Clock()
    log = RunLog(
        tmp_path,
        make_scrub=lambda: lambda text: text.replace("sk-1", "[key]"),
        every=10.0,
        clock=clock,
    )
    progress = combine_progress(log)
    progress(StageStarted("vote", 1000))
    for _ in range(30):
        clock.now += 1.0
        progress(CallDone("m", cost_usd=0.0))
        progress(ItemDone("vote"))
    progress(Notice("refused sk-1", "warning"))
    progress(RunEnded("done"))
    log.close()
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert [log_line.split(maxsplit=3)[2] for log_line in lines] == ["INFO"] * 4 + [
        "WARNING",
        "INFO",
    ]
    assert sum(" calls" in log_line for log_line in lines) == 3
    events = [
        json.loads(log_line) for log_line in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert [event["event"] for event in events][-2:] == ["Notice", "RunEnded"]
    assert events[-1]["calls"] == 30
    assert "sk-1" not in (tmp_path / "run.log").read_text() + (tmp_path / "log.jsonl").read_text()
    RunLog(tmp_path).close()
    assert (tmp_path / "run.log").read_text().splitlines() == lines


def test_events_are_formatted_as_text() -> None:
    assert format_event(StageStarted("vote", 1200)) == ("vote: started (1,200 items)", "info")
    assert format_event(ItemDone("vote"))[0] == ""
    assert [format_duration(seconds) for seconds in (0.4, 59, 185, 7800)] == [
        "0 s",
        "59 s",
        "3 min 05 s",
        "2 h 10 min",
    ]
