"""Estimates: prompts are rendered and counted for the model that is assigned to each seat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Choice, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.engine.run import dry_run as estimate
from folkmoot.engine.run.counting_provider import (
    ASSUMED_UTTERANCE_WORDS,
    MIN_UTTERANCE_WORDS,
    CountingProvider,
    CountsSnapshot,
)
from folkmoot.engine.run.dry_run import RunEstimate, StageEstimate, estimate_run
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import run_study, study_from_settings
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.models.catalog import resolve_model
from folkmoot.models.prices import estimate_cost, find_price
from folkmoot.models.request import Completion, ModelRequest, Usage, estimate_tokens
from folkmoot.models.scripted import ScriptedProvider
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

FOCUS_GROUP = """
study: focus_group
product_concept: {concept}
category: kitchen appliances
stimulus_material: Meet the oven that reads. 299 dollars.
num_personas: 4
questions_per_phase: 1
max_responses_per_question: 3
replications: {groups}
"""


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimate large studies from a smaller sample of calls than usual, which takes less time."""
    monkeypatch.setattr(estimate, "SUFFICIENT_SAMPLE_CALLS", 250)


def test_totals_add_up_and_duration_is_the_longest_bound() -> None:
    total = RunEstimate(
        (StageEstimate("a", 1000, 10_000, 1_000), StageEstimate("b", 20, 500, 50)), 30
    )
    assert (total.calls, total.input_tokens, total.output_tokens) == (1020, 10_500, 1_050)
    assert total.duration_seconds(concurrency=102, latency=2.0) == 60  # the chain
    assert total.duration_seconds(concurrency=10, latency=2.0) == 204  # the calls
    assert total.duration_seconds(concurrency=102, spacing=3.0) == 3060


def test_embedded_respondent_takes_longer_for_longer_prompts() -> None:
    # Measured: 1,900 calls of a town hall and 9,200 calls of a cross-pollination both took 15 s.
    short_prompts = RunEstimate((StageEstimate("a", 9_232, 7_700_000, 670_000),), 30)
    long_prompts = RunEstimate((StageEstimate("a", 1_878, 7_900_000, 1_400_000),), 30)
    assert 10 < short_prompts.processor_seconds < 25
    assert 10 < long_prompts.processor_seconds < 25


def test_token_is_four_bytes() -> None:
    assert estimate_tokens("four", "five") == 2 == estimate_tokens("\ud55c\uad6d") and (
        estimate_tokens("") == 0
    )


@pytest.mark.parametrize("groups", sample_daily([1, 30], daily=1, part="sweeps"))
@pytest.mark.usefixtures("small_sample")
def test_long_concept_is_counted_in_every_prompt_that_contains_it(
    groups: int, tmp_path: Path
) -> None:
    path = tmp_path / "study.yaml"
    concept = " ".join(f"oven{n}" for n in range(400))
    estimates = []
    for concept_text in (concept[:25], concept):
        path.write_text(FOCUS_GROUP.format(concept=concept_text, groups=groups))
        estimates.append(estimate_run(load_study_file(path), "openai/gpt-4o"))
    short_estimate, long_estimate = estimates
    assert long_estimate.calls == pytest.approx(short_estimate.calls, rel=0.2)
    added_tokens_share = (
        long_estimate.input_tokens - short_estimate.input_tokens
    ) / estimate_tokens(concept[25:])
    assert added_tokens_share > 0.5 * long_estimate.calls  # most prompts contain it


@pytest.mark.usefixtures("small_sample")
def test_partial_dry_run_is_scaled_to_the_whole_study(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    calls = []
    for groups in (1, 60):
        path.write_text(FOCUS_GROUP.format(concept="An oven", groups=groups))
        calls.append(estimate_run(load_study_file(path), None).calls)
    assert calls[1] == pytest.approx(60 * calls[0], rel=0.15)


def test_smallest_partial_run_has_all_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One participant in each of eight conditions is eight participants, whatever the limit is."""
    path = tmp_path / "study.yaml"
    path.write_text(
        "study: cross_pollination\npilot_id: eight\nparticipants_per_condition: 4\n"
        "topic: {description: A fund., options: [Parks, Jobs]}\npersonas: {source: quota}\n"
        "max_clarification_exchanges: 1\nmax_socratic_exchanges: 1\nsummary_draws: 1\n"
        "exposure: {a: {dialogue: true}, b: {interview: true},"
        " c: {summaries: true, dialogue: true}, d: {interview: true, dialogue: true}}\n"
    )
    call_count = estimate_run(load_study_file(path), "synthetic").calls
    monkeypatch.setattr(estimate, "SUFFICIENT_SAMPLE_CALLS", 1)
    assert estimate_run(load_study_file(path), "synthetic").calls == pytest.approx(
        call_count, rel=0.2
    )


async def ask_two_topics(session: Session) -> None:
    async def ask_participant(scope: Session, number: int) -> None:
        speaker = Speaker(
            f"p{number}",
            system="You are a cook.",
            model=f"openai/gpt-4o{'-mini' * (number % 4 > 0)}",
        )
        options_text = "\n".join(
            ("Options:", "1. Parks", "2. Jobs", "Reply with ONLY the text of one option.")
        )
        await scope.ask(speaker, options_text, answer_type=Choice(("Parks", "Jobs")))
        await scope.ask(speaker, "Why is that so important to you? Tell us at length.")

    await session.child("talk").map(range(8), ask_participant)


def test_prices_are_those_of_the_assigned_models() -> None:
    study = Study("talk", "Talk", StudyConfig, ask_two_topics)
    total = estimate_run(study_from_settings(study, {"model": "openai/o3"}, RunOptions()), None)
    assert total.calls == 16 and total.longest_chain == 2
    (dear, cheap) = total.models["openai/gpt-4o"], total.models["openai/gpt-4o-mini"]
    assert set(total.models) == {"openai/gpt-4o", "openai/gpt-4o-mini"}
    assert cheap[0] == pytest.approx(3 * dear[0], rel=0.1)
    assert (
        total.output_tokens > 8 * ASSUMED_UTTERANCE_WORDS
    )  # free talk at the length expected of a model


def test_check_prices_a_study_of_several_models_by_seat(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    text = FOCUS_GROUP.format(concept="An oven", groups=2)
    costs = {}
    for name, models in (("all", ""), ("seats", "models: {moderator: openai/gpt-4o-mini}\n")):
        path.write_text(f"{text}model: openai/gpt-4o\n{models}")
        result = CliRunner().invoke(app, ["check", str(path)])
        assert result.exit_code == 0, result.output
        costs[name] = result.stdout
    assert "openai/gpt-4o-mini $" in costs["seats"] and "(all " not in costs["seats"]
    assert "gpt-4o-mini" not in costs["all"]


def test_check_prices_many_short_calls_at_the_short_request_price(tmp_path: Path) -> None:
    """The model costs twice as much in requests of more than 200,000 tokens. The run has more."""
    path = tmp_path / "study.yaml"
    path.write_text(
        FOCUS_GROUP.format(concept="An oven", groups=3) + "model: google/gemini-2.5-pro\n"
    )
    result = CliRunner().invoke(app, ["check", str(path)]).stdout
    tokens = re.search(r"Tokens +about ([\d,]+) in .*about ([\d,]+) out", result)
    cost = re.search(r"Cost +about \$([\d.]+)", result)
    assert tokens is not None and cost is not None, result
    input_tokens, output_tokens = (int(count.replace(",", "")) for count in tokens.groups())
    assert input_tokens > 200_000
    price = find_price(resolve_model("gemini-2.5-pro"))
    assert price is not None
    expected_usd = input_tokens * price.input_usd + output_tokens * price.output_usd
    assert float(cost[1]) == pytest.approx(expected_usd, abs=0.006)


def test_check_refuses_a_money_budget_if_the_price_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(FOCUS_GROUP.format(concept="x", groups=1) + "model: ollama/tiny\n")
    result = CliRunner().invoke(app, ["check", str(path), "--set", "budget_usd=5"])
    assert result.exit_code == 2 and "budget_calls" in result.output


def test_dry_run_downloads_nothing_and_does_not_touch_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_on_fetch(*_: object, **__: object) -> None:
        raise AssertionError("a rehearsal must not use the network")

    monkeypatch.setattr("folkmoot.people.sources.persona_hub.fetch_file", fail_on_fetch)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pilot.yaml"
    path.write_text(
        "pilot_id: small\ntopic: {description: Money, options: [Parks, Jobs]}\n"
        "participants_per_condition: 5\nmodel: openai/gpt-4o\n"
    )
    total = estimate_run(load_study_file(path), None)
    assert {stage.stage: stage.calls for stage in total.stages}[
        "recruitment"
    ] == 2 * 30  # 1.5 x 20 lines
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pilot.yaml"]


def test_too_few_personas_are_reported_with_the_number_for_the_full_study(tmp_path: Path) -> None:
    rows = "".join(f"Person {n},{20 + n}\n" for n in range(24))
    (tmp_path / "people.csv").write_text(f"name,age\n{rows}")
    (tmp_path / "pilot.yaml").write_text(
        "pilot_id: small\ntopic: {description: Money, options: [Parks, Jobs]}\n"
        "participants_per_condition: 30\npersonas: {source: table, file: people.csv}\n"
    )
    # The dry run is of a part of the study.
    with pytest.raises(InputError, match="120 personas are needed, 24 exist"):
        estimate_run(load_study_file(tmp_path / "pilot.yaml"), "synthetic")


def test_check_reports_where_the_dry_run_stopped(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from folkmoot import Study, StudyConfig\n"
        "async def protocol(session):\n    raise KeyError('forgotten')\n"
        "STUDY = Study('mine', 'Mine', StudyConfig, protocol)\n"
    )
    (tmp_path / "mine.yaml").write_text("study: ./mine.py\n")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "mine.yaml"), "--trust"])
    assert result.exit_code == 2 and "forgotten" in result.output
    assert "mine.py:3" in result.output and "No problems" not in result.output


BIG_HALL = """
study: town_hall
topic: {{title: "Shall the quarter be rebuilt?", background: The city would pull it down.}}
sets: 1
rounds: {rounds}
levels: ["2-1", 4]
residents: {{general: {general}}}
model: synthetic
"""


@pytest.mark.nightly(part="scale")
def test_large_town_hall_is_estimated_from_a_sample_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is bounded, and the estimate is close to the count of the full dry run."""
    path = tmp_path / "hall.yaml"
    path.write_text(BIG_HALL.format(rounds=2, general=8))
    study_file = load_study_file(path)
    full_estimate = estimate_run(study_file, None)
    assert full_estimate.sampled is None and full_estimate.calls_range == (
        full_estimate.calls,
        full_estimate.calls,
    )
    work: list[int] = []
    count = CountingProvider.state

    def state(self: CountingProvider) -> CountsSnapshot:
        work.append(self.bytes)
        return count(self)

    monkeypatch.setattr(estimate, "MAX_DRY_RUN_BYTES", 600_000)
    monkeypatch.setattr(CountingProvider, "state", state)
    sampled = estimate_run(study_file, None)
    assert max(work) < 3 * 600_000
    assert sampled.sampled is not None and not sampled.incomplete
    assert sampled.calls == pytest.approx(full_estimate.calls, rel=0.15)
    assert sampled.input_tokens == pytest.approx(full_estimate.input_tokens, rel=0.25)
    assert sampled.output_tokens == pytest.approx(full_estimate.output_tokens, rel=0.25)
    low, high = sampled.calls_range or (0, 0)
    assert low <= sampled.calls <= high
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0 and "the maximum of a dry run" in " ".join(result.output.split())


def test_study_that_fails_on_copied_replies_is_estimated_as_far_as_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def require_distinct_names(session: Session) -> None:
        async def ask_for_name(scope: Session, number: int) -> int:
            await scope.ask(Speaker(f"p{number}"), "Who are you? " + "So it is. " * 100)
            return number

        names = await session.child("names").map(range(40), ask_for_name)
        if sorted(names.values()) != list(range(40)):
            raise ValueError("somebody is there twice")
        await session.child("last").ask(Speaker("p"), "Anything else?")

    study = Study("strict", "Strict", StudyConfig, require_distinct_names)
    study_file = study_from_settings(study, {"model": "synthetic"}, RunOptions())
    assert estimate_run(study_file, None).calls == 41
    monkeypatch.setattr(estimate, "MAX_DRY_RUN_BYTES", 5_000)
    partial_estimate = estimate_run(study_file, None)
    assert partial_estimate.incomplete and partial_estimate.calls == 40
    sampled = partial_estimate.sampled
    assert sampled is not None and sampled[0] < sampled[1] == 40


def test_ranges_cover_the_tokens_of_short_and_long_replies() -> None:
    study = Study("talk", "Talk", StudyConfig, ask_two_topics)
    study_file = study_from_settings(study, {"model": "openai/gpt-4o"}, RunOptions())
    total = estimate_run(study_file, None)
    assert total.output_range is not None and total.input_range is not None
    assert total.output_range.low < total.output_tokens < total.output_range.high
    # Eight free replies.
    assert total.output_range.low < 8 * 2 * ASSUMED_UTTERANCE_WORDS < total.output_range.high
    spec = resolve_model("openai/gpt-4o", environ={})
    cost, low, high = (total.model_cost(spec.name, spec, bound=bound) or 0.0 for bound in range(3))
    assert 0 < low < cost < high


async def hold_a_conversation(session: Session) -> None:
    heard = ""
    for number in range(12):
        speaker = Speaker(f"p{number % 3}", system="You are a cook who loves the sea.")
        prompt = f"So far the others said: {heard}\nWhat do you think of the new kitchen, and why?"
        reply = await session.child(f"turn{number}").ask(speaker, prompt)
        heard += f"\n{reply}"


@pytest.mark.parametrize("words", [12, 50, 180])
def test_bill_of_terse_and_of_talkative_models_lies_in_the_stated_range(
    words: int, tmp_path: Path
) -> None:
    study = Study("talk", "Talk", StudyConfig, hold_a_conversation)
    study_file = study_from_settings(study, {"model": "openai/gpt-4o"}, RunOptions())
    total = estimate_run(study_file, None)

    def reply_at_length(request: ModelRequest, _: str) -> Completion:
        text = " ".join(["kitchen", "and", "oven"] * (words // 3))
        sent = estimate_tokens(*(message.content for message in request.messages))
        return Completion(text, usage=Usage(round(sent), round(estimate_tokens(text))))

    options = RunOptions(out=tmp_path / "run", custom_provider=ScriptedProvider(reply_at_length))
    run = run_study(study_file, options)
    assert total.output_range is not None
    assert total.output_range.low < run.manifest["output_tokens"] < total.output_range.high
    spec = resolve_model("openai/gpt-4o", environ={})
    low, high = (total.model_cost(spec.name, spec, bound=bound) or 0.0 for bound in (1, 2))
    billed_usd = estimate_cost(spec, run.manifest["input_tokens"], run.manifest["output_tokens"])
    assert billed_usd is not None and low < billed_usd < high


@pytest.mark.parametrize("limit", [None, 10_000])
def test_votes_have_no_range(limit: int | None) -> None:
    options = ("We should build the new kitchen at once", "We should wait until the oven breaks")

    async def vote(session: Session) -> None:
        prompt = "\n".join(("Options:", *options, "Reply with ONLY the text of one option."))
        for number in range(4):
            speaker = Speaker(f"p{number}")
            await session.child(f"vote{number}").ask(speaker, prompt, answer_type=Choice(options))

    study = Study("vote", "Vote", StudyConfig, vote)
    settings = {"model": "openai/gpt-4o", "max_tokens": limit}
    total = estimate_run(study_from_settings(study, settings, RunOptions()), None)
    assert total.output_range == (total.output_tokens, total.output_tokens)


def test_range_of_replies_with_a_low_limit_holds_for_terse_models() -> None:
    study = Study("talk", "Talk", StudyConfig, hold_a_conversation)
    settings = {"model": "openai/gpt-4o", "max_tokens": 100}
    total = estimate_run(study_from_settings(study, settings, RunOptions()), None)
    assert total.output_range is not None
    # Twelve replies: of ten words, and at the limit.
    assert total.output_range.low <= 12 * 2 * MIN_UTTERANCE_WORDS
    assert total.output_range.high == 12 * 100


def test_check_says_what_the_range_of_the_cost_assumes(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(FOCUS_GROUP.format(concept="An oven", groups=1))
    for model, is_paid in (("openai/gpt-4o", True), ("synthetic", False)):
        result = CliRunner().invoke(app, ["check", str(path), "--model", model])
        text = " ".join(result.stdout.split())
        assert ("Assumes free texts of 10 to 200 words" in text) == is_paid
        assert ("Not included: reasoning tokens" in text) == is_paid


def test_usage_of_replies_as_short_as_the_respondents_is_within_the_range(
    tmp_path: Path,
) -> None:
    """The low bound is the usage of a server that answers like the embedded respondent."""
    path = tmp_path / "study.yaml"
    path.write_text(FOCUS_GROUP.format(concept="An oven", groups=1))
    total = estimate_run(load_study_file(path), None)
    with ServerThread(FaultPlan(), answers="respondent") as server:
        over = [f"endpoints.openai={server.openai}", "model=openai/gpt-4o"]
        run = folkmoot.run(path, out=tmp_path / "run", overrides=tuple(over), trust=True)
    input_tokens, output_tokens = run.manifest["input_tokens"], run.manifest["output_tokens"]
    assert total.output_range is not None and total.input_range is not None
    assert 0.8 * total.output_range.low < output_tokens < total.output_range.high
    assert 0.7 * total.input_range.low < input_tokens < total.input_range.high


def test_estimate_prices_many_short_calls_at_the_short_request_price() -> None:
    """Gemini 2.5 Pro charges more for a token of a long request. Its cached tokens cost less."""
    name = "gemini-2.5-pro"
    spec = resolve_model(name, environ={})
    rate = find_price(spec)
    assert rate is not None
    total = RunEstimate(
        (StageEstimate("talk", 100, 1_000_000, 100_000),),
        models={name: (1_000_000, 100_000)},
        model_calls={name: 100},
        cacheable_tokens_by_model={name: 400_000},
    )
    cost = rate.short_calls_cost(1_000_000, 100_000)
    assert total.model_cost(name, spec) == pytest.approx(cost)
    assert total.model_cost(name, spec, batch=True) == pytest.approx(cost / 2)
    cached = rate.short_calls_cost(1_000_000, 100_000, 400_000)
    assert 0 < total.cache_savings(name, spec) == pytest.approx(cost - cached)
