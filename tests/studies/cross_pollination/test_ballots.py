"""First votes as they come in: the study goes on early only when no vote to come can stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

import folkmoot
from folkmoot.conversation.answers import Missing
from folkmoot.engine.promises import Promise
from folkmoot.engine.session import Scope
from folkmoot.models.request import Request
from folkmoot.models.scripted import Scripted
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.state import COMPLETE, Participant, State
from folkmoot.studies.cross_pollination.voting import Ballots, threshold_check
from tests.studies.cross_pollination.test_protocol import (
    JOBS,
    OPTIONS,
    PARKS,
    SETTINGS,
    Cast,
    number,
)

VOTES = st.lists(st.sampled_from([*OPTIONS, None]), min_size=1, max_size=40)


class Desk:
    """What Ballots and the check need of a scope."""

    def promise(self) -> Promise[Any]:
        run: Any = SimpleNamespace(bell=asyncio.Event, check_halted=lambda: None)
        return Promise(run)

    def log(self, message: str) -> None:
        pass


def cast_all(
    votes: list[str | None], threshold: float, least: int
) -> tuple[list[bool], bool, Ballots]:
    """After each vote whether it was known that the study goes on; what the check then says."""
    settings = {**SETTINGS, "disagreement_threshold": threshold}
    config = CrossPollinationConfig(**{**settings, "min_responses_for_threshold": least})
    people = {f"p_{i}": Participant(f"p_{i}", "simple_voting") for i in range(len(votes))}
    desk, state = cast("Scope", Desk()), State(people)
    ballots = Ballots(desk, config, state)
    known = []
    for p, vote in zip(people.values(), votes, strict=True):
        voted = (
            p.failed("initial vote", Missing("refused"))
            if vote is None
            else p.with_(initial_choice=vote, status=COMPLETE)
        )
        ballots.cast(voted)
        state = state.updated([voted])
        known.append(ballots._goes_on.given)
    after = asyncio.run(_check(desk, config, state))
    ballots.close(after)
    return known, not after.terminated_early, ballots


async def _check(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    return await threshold_check(scope, config, state)


@given(VOTES, st.floats(0.34, 1.0), st.integers(1, 30))
def test_what_is_known_early_is_what_the_check_says(
    votes: list[str | None], threshold: float, least: int
) -> None:
    known, goes_on, ballots = cast_all(votes, threshold, least)
    assert goes_on or not any(known)
    assert asyncio.run(ballots.goes_on()) is goes_on


def test_it_is_known_as_soon_as_enough_disagree() -> None:
    votes = [PARKS, JOBS] * 5 + [PARKS] * 20
    known, goes_on, _ = cast_all(votes, 0.9, 10)
    # Of 30, four votes against parks keep it below 0.9, and as many against jobs.
    assert known == [False] * 7 + [True] * 23 and goes_on


def order_of_calls(
    out: Path, answer: Callable[[Request, str], str], slow: Callable[[str], bool]
) -> list[str]:
    """Addresses in the order in which they were answered, when some answers take their time."""
    asked: list[str] = []

    def noted(request: Request, address: str) -> str:
        asked.append(address)
        return answer(request, address)

    model = Scripted(noted, latency=lambda address: 0.05 if slow(address) else 0.0)
    folkmoot.run("cross_pollination", SETTINGS, out=out, provider=model)
    return asked


def test_interviews_begin_before_the_last_vote_is_in(tmp_path: Path) -> None:
    def slow(address: str) -> bool:
        return address.startswith("initial_vote") and number(address) > 12

    stages = [a.split("/")[0] for a in order_of_calls(tmp_path / "a", Cast(), slow)]
    last_vote = len(stages) - stages[::-1].index("initial_vote")
    assert stages.index("clarification") < last_vote
    # Whoever agrees is not interviewed, not even the first to have voted.
    agreed = order_of_calls(tmp_path / "b", lambda request, address: PARKS, slow)
    assert {a.split("/")[0] for a in agreed} == {"initial_vote"}


def test_reasons_for_one_option_do_not_wait_for_interviews_about_another(tmp_path: Path) -> None:
    def slow(address: str) -> bool:  # the interviews of those who chose parks (see Cast)
        return address.startswith("clarification") and number(address) % 3 == 0

    asked = order_of_calls(tmp_path / "a", Cast(), slow)
    described = [n for n, a in enumerate(asked) if a.startswith(f"summaries/{JOBS}/descriptions")]
    last_interview = max(n for n, a in enumerate(asked) if a.startswith("clarification"))
    assert described and max(described) < last_interview
    # Whatever takes its time, the same is asked.
    assert sorted(asked) == sorted(order_of_calls(tmp_path / "b", Cast(), lambda address: False))
