"""The whole pipeline on the embedded respondent: it recovers what was planted, and only that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.proportion import proportion_confint, proportions_ztest

import folkmoot
from folkmoot.engine.session.session import Scope
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination import files, interviews, opposition
from folkmoot.studies.cross_pollination.participants import Participant, State
from tests.conftest import SharedFolder
from tests.planted.audit import EXPOSED, Audit
from tests.sweeps import sample_daily

PROMPTS = Path(interviews.__file__).parent / "prompts"


def run_pilot(folder: Path, per: int, seed: int = 42, **changes: Any) -> RunFolder:
    settings = {
        "pilot_id": "planted",
        "topic": {
            "description": "Your city can fund one purpose this year. Which shall it be?",
            "options": ["Park improvements", "Youth job training", "Street safety"],
        },
        "participants_per_condition": per,
        "revote": True,
        "personas": {"source": "quota"},
        "random_seed": seed,
        **changes,
    }
    return folkmoot.run("cross_pollination", settings, model="synthetic", out=folder / "run").folder


@pytest.fixture(scope="session")
def healthy(shared_folder: SharedFolder) -> RunFolder:
    made = shared_folder("planted/healthy", lambda folder: run_pilot(folder, 300))
    return RunFolder(made / "run")


# Daily, a small pilot passes the same audit.
@pytest.mark.nightly(part="truths")
def test_planted_sizes_and_their_order_come_out(healthy: RunFolder) -> None:
    audit = Audit(healthy)
    assert audit.faults() == []
    truth = audit.truth()
    assert truth["acp"] > truth["clarified_passive"] > truth["simple_passive"]
    assert truth["simple_passive"] > truth["simple_voting"]


@pytest.mark.nightly(part="truths")
def test_camps_are_recovered_by_the_clusters(healthy: RunFolder) -> None:
    assert Audit(healthy).camps_recovered() >= 0.95


# Daily, test_doses has votes without persuasion, which do not change beyond noise.
@pytest.mark.nightly(part="truths")
def test_with_no_persuasion_arms_differ_as_rarely_as_they_should(tmp_path: Path) -> None:
    rejected = 0
    for seed in range(3):
        arms = ["simple_voting", "acp"]
        still = {"respondent": {"persuasion": 0}, "conditions": arms}
        run = run_pilot(tmp_path / str(seed), 60, seed, **still)
        rows = run.read_json("summary.json")["by_condition"]
        counts = [rows[arm]["position_changed"] for arm in arms]
        p = proportions_ztest(counts, [60, 60])[1] if any(counts) else 1.0
        rejected += p < 0.05
    # With a true rate of 5 % more than one of three happens in 0.7 % of cases.
    assert rejected <= 1


Miswiring = Callable[[pytest.MonkeyPatch, Path], dict[str, Any]]


def _own_prompt(folder: Path, name: str, change: Callable[[str], str]) -> dict[str, Any]:
    mine = folder / "prompts"
    mine.mkdir()
    old = (PROMPTS / f"{name}.md").read_text("utf-8")
    new = change(old)
    assert new != old
    (mine / f"{name}.md").write_text(new, "utf-8")
    return {"prompts": str(mine)}


def opponents_text_dropped(_patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """The final vote after the dialogue does not carry the dialogue."""

    def without_dialogue(text: str) -> str:
        return text[text.index("Now make") :]

    return _own_prompt(folder, "final_vote_after_dialogue", without_dialogue)


def summaries_dropped(_patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """The readers vote without what they were to read."""
    return _own_prompt(
        folder,
        "final_vote_after_summary",
        lambda text: text.replace("{{ cross_pollination_content }}", ""),
    )


def moderator_not_told(_patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """The moderator argues without having seen the summaries."""
    return _own_prompt(
        folder,
        "adversarial_moderator",
        lambda text: text.replace("{{ cross_pollination_content }}", ""),
    )


def wrong_cluster_shown(patch: pytest.MonkeyPatch, _folder: Path) -> dict[str, Any]:
    """Each option is the heading of the descriptions of another option."""
    right = State.clusters_of

    def wrong(state: Any, option: str) -> Any:
        options = sorted({c.option for c in state.clusters})
        return right(state, options[options.index(option) - 1])

    patch.setattr(State, "clusters_of", wrong)
    return {}


def summaries_swapped(patch: pytest.MonkeyPatch, _folder: Path) -> dict[str, Any]:
    """Each participant gets the summary of the interview that ended before."""
    right = interviews.summarise_interview
    before: list[Any] = []

    async def wrong(scope: Any, participant: Participant) -> Participant:
        before.append(participant.interview)
        other = before[-2] if len(before) > 1 else participant.interview
        done = await right(scope, participant.with_changes(interview=other))
        return done.with_changes(interview=participant.interview)

    patch.setattr(interviews, "summarise_interview", wrong)
    return {}


def arms_swapped(patch: pytest.MonkeyPatch, _folder: Path) -> dict[str, Any]:
    """Records of the adversarial arm are filed under simple voting and the other way round."""
    right, summary = files.participant_json, files.summarise_run
    swap = {"acp": "simple_voting", "simple_voting": "acp"}

    def filed(participant: Participant) -> dict[str, Any]:
        return {
            **right(participant),
            "condition": swap.get(participant.condition, participant.condition),
        }

    def counted(run: RunFolder) -> dict[str, Any]:
        found = summary(run)
        rows: Any = found["by_condition"]
        return {**found, "by_condition": {c: rows[swap.get(c, c)] for c in rows}}

    patch.setattr(files, "participant_json", filed)
    patch.setattr(files, "summarise_run", counted)
    return {}


def interview_forgotten(patch: pytest.MonkeyPatch, _folder: Path) -> dict[str, Any]:
    """Interviewed participants get neither their persona nor their first choice."""
    right = Scope.prompt

    def wrong(self: Scope, name: str, **variables: Any) -> str:
        if name == "clarification_participant":
            persona, _, rest = variables["base_system_prompt"].partition("\n\n")
            assert persona and variables["initial_choice"] in rest
            told = [x for x in rest.splitlines() if variables["initial_choice"] not in x]
            variables["base_system_prompt"] = "\n".join(["You are somebody else.", "", *told])
        return right(self, name, **variables)

    patch.setattr(Scope, "prompt", wrong)
    return {}


def assignment_ignored(patch: pytest.MonkeyPatch, _folder: Path) -> dict[str, Any]:
    """Opposition is the participant's own choice."""

    async def own(_scope: Scope, participant: Participant, _views: Any) -> str | None:
        return participant.initial_choice

    patch.setitem(opposition.METHODS, "cluster_embedding", own)
    patch.setattr(opposition, "most_voted_other", own)
    return {}


MISWIRINGS: tuple[Miswiring, ...] = (
    opponents_text_dropped,
    summaries_dropped,
    moderator_not_told,
    wrong_cluster_shown,
    summaries_swapped,
    arms_swapped,
    interview_forgotten,
    assignment_ignored,
)
# Daily rows in the wrong arm. test_exposure in tests/contract finds texts that are lost.
DAILY = (arms_swapped,)


@pytest.mark.parametrize("breaking", sample_daily(MISWIRINGS, DAILY, part="truths"))
def test_every_miswiring_is_caught(
    breaking: Miswiring, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes = breaking(monkeypatch, tmp_path)
    assert Audit(run_pilot(tmp_path, 40, **changes)).faults(tolerance=0.2) != []


@pytest.mark.nightly(part="truths")
def test_a_small_healthy_pilot_passes_the_same_audit(tmp_path: Path) -> None:
    """Control for the test above: a correct pilot has no fault."""
    run = run_pilot(tmp_path, 40)
    assert Audit(run).faults(tolerance=0.2) == []
    # No answer needed a second try.
    answers = run.read_table("answers")
    assert answers["reasks"].sum() == 0
    assert answers.filter(pl.col("kind") == "choice")["parse_step"].unique().to_list() == ["exact"]


@pytest.mark.nightly(part="truths")
def test_dropping_the_opponents_words_loses_the_effect(
    healthy: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes = opponents_text_dropped(monkeypatch, tmp_path)
    dropped = Audit(run_pilot(tmp_path, 100, **changes)).rates()
    assert dropped["acp"] < Audit(healthy).rates()["acp"] - 0.1


@pytest.mark.nightly(part="truths")
def test_bias_and_coverage_over_100_seeds(tmp_path: Path) -> None:
    """Estimates against the truth of their own people; intervals against that of the population.

    A Wilson interval is about another draw of people. The truth of the very people drawn lies
    inside it nearly always, because a mixture of sure and unsure people varies less than coins.
    """
    rates, truths, recovered = [], [], []
    for seed in range(100):
        folder = tmp_path / str(seed)
        audit = Audit(run_pilot(folder, 300, seed))
        rate, truth = audit.rates(), audit.truth()
        rates.append([rate[c] for c in EXPOSED])
        truths.append([truth[c] for c in EXPOSED])
        recovered.append(audit.camps_recovered())
        shutil.rmtree(folder)
    bias = (np.array(rates) - np.array(truths)).mean(axis=0)
    assert np.abs(bias).max() <= 0.006, dict(zip(EXPOSED, bias, strict=True))
    population = np.array(truths).mean(axis=0)
    low, high = proportion_confint(np.round(np.array(rates) * 300), 300, method="wilson")
    covered = ((low <= population) & (population <= high)).mean()
    assert 0.91 <= covered <= 0.99
    assert np.mean(recovered) >= 0.95
