"""A discussion held from Python: the clients, and the simulator without a study file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ConfigDict

import folkmoot
from folkmoot.engine.session.session import Session
from folkmoot.engine.study.study import Study
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import FatalModelError, InputError, RefusedError
from folkmoot.models.request import Completion, Message, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.focus_group.discussion import INTENTS
from folkmoot.studies.focus_group.participants import PRIVATE_OPINION, with_own_opinions
from folkmoot.studies.focus_group.simulator import (
    DiscussionSimulator,
    LLMClient,
    MockLLMClient,
)
from folkmoot.studies.focus_group.talk.views import sentence_views, split_sentences
from tests.studies.focus_group.at_hand import PROMPTS, draw_profiles, make_config

SYSTEM = "You are Ann, a 40-year-old nurse. You like to save money."


class Recording(LLMClient):
    """An own client: the embedded respondent, which keeps all requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, float, int]] = []
        self.inner = MockLLMClient()

    async def complete(
        self,
        system_prompt: str,
        user_prompt: str,
        temperature: float = 0.9,
        max_tokens: int = 300,
    ) -> str:
        self.seen.append((system_prompt, user_prompt, temperature, max_tokens))
        return await self.inner.complete(system_prompt, user_prompt, temperature, max_tokens)


async def test_the_mock_follows_from_its_inputs_and_varies_with_each() -> None:
    ask = MockLLMClient().complete
    first = await ask(SYSTEM, "What do you think of a new oven?")
    assert first == await MockLLMClient().complete(SYSTEM, "What do you think of a new oven?")
    others = [
        await ask(SYSTEM.replace("Ann", name), f"What do you think of a new {thing}?")
        for name in ("Bob", "Carla", "Dan")
        for thing in ("oven", "car", "park")
    ]
    assert first.strip()
    assert len({first, *others}) > 5


async def test_without_a_client_the_mock_answers_and_all_participants_speak() -> None:
    config = make_config(random_seed=3)
    transcript = await DiscussionSimulator(config).run()
    assert 40 <= len(transcript.messages) <= 65
    assert {m.phase for m in transcript.messages} == set(config.phases)
    spoke = {m.speaker_id for m in transcript.by_participants()}
    assert spoke == {p.id for p in transcript.personas}
    assert transcript == await DiscussionSimulator(config, MockLLMClient()).run()
    other = await DiscussionSimulator(make_config(random_seed=4, phases=["exploration"])).run()
    assert [p.name for p in other.personas] != [p.name for p in transcript.personas]


async def test_an_own_client_gets_all_prompts_with_the_history() -> None:
    client, at_table = Recording(), draw_profiles(2, 4)
    config = make_config(
        num_personas=4, max_responses_per_question=3, temperature=0.4, phases=["exploration"]
    )
    transcript = await DiscussionSimulator(config, client, at_table).run()
    assert tuple(with_own_opinions(transcript.personas, config)) == at_table
    assert all(person.opinion for person in transcript.personas)  # each was asked for their own
    said = [m.content for m in transcript.messages]
    answers = [s for s in client.seen if "The moderator asks:" in s[1]]
    assert len(answers) == sum(m.by_participant for m in transcript.messages)
    assert {s[2] for s in answers} == {0.4}
    assert all(line in answers[-1][1] for line in said[:-1])
    assert said[-1] not in answers[-1][1]


class Passing(MockLLMClient):
    """A subclass that keeps the prompts and lets the embedded respondent reply."""

    def __init__(self) -> None:  # without the parent's
        self.seen: list[str] = []

    async def complete(
        self,
        system_prompt: str,
        user_prompt: str,
        temperature: float = 0.9,
        max_tokens: int = 300,
    ) -> str:
        self.seen.append(user_prompt)
        return await super().complete(system_prompt, user_prompt, temperature, max_tokens)


class Idle(MockLLMClient):
    """A subclass that overrides nothing."""


async def test_the_mock_answers_alike_by_itself_in_a_subclass_and_in_another_client() -> None:
    config = make_config(
        random_seed=3,
        num_personas=4,
        max_responses_per_question=3,
        phases=["exploration", "reaction"],
    )
    expected = await DiscussionSimulator(config).run()
    passing, recording = Passing(), Recording()
    assert expected == await DiscussionSimulator(config, Idle()).run()
    for client in (passing, recording):
        found = await DiscussionSimulator(config, client).run()
        assert [m.content for m in found.messages] == [m.content for m in expected.messages]
        assert found.statements == expected.statements and found.intents == expected.intents
        assert client.seen


async def test_an_overridden_complete_is_always_asked() -> None:
    class Own(MockLLMClient):
        async def complete(self, *_: object, **__: object) -> str:
            return "Mine."

    config = make_config(num_personas=3, max_responses_per_question=3, phases=["exploration"])
    on_instance = MockLLMClient()
    on_instance.complete = Own().complete  # type: ignore[method-assign]
    for client in (Own(), on_instance):
        found = await DiscussionSimulator(config, client).run()
        assert {m.content for m in found.by_participants()} == {"Mine."}


async def test_called_by_itself_the_mock_gives_the_answer_that_is_asked_for() -> None:
    config = make_config()
    mock = MockLLMClient(config)
    view = {
        "concept": config.product_concept,
        "stimulus": config.stimulus_material,
        "price": "299 dollars",
    }
    answer_format = PRIVATE_OPINION.describe_format()
    asked = PROMPTS.render_prompt(
        "private_opinion", talked=False, alone=False, **view, answer_format=answer_format
    )
    opinion = json.loads(await mock.complete(SYSTEM, asked))
    assert -1 <= opinion["position"] <= 1 and opinion["opinion"]
    intent = PROMPTS.render_prompt("purchase_intent", options=INTENTS, **view)
    assert await mock.complete(SYSTEM, intent) in INTENTS
    said = await mock.complete(SYSTEM, 'The moderator asks: "What comes to mind with the oven?"')
    assert any(sentence_views(sentence) for sentence in split_sentences(said)), said


async def test_an_error_of_the_client_ends_the_discussion() -> None:
    class Broken(LLMClient):
        def __init__(self) -> None: ...

        async def complete(self, *_: object, **__: object) -> str:
            raise FatalModelError("the key is wrong")

    with pytest.raises(FatalModelError, match="the key is wrong"):
        await DiscussionSimulator(make_config(), Broken()).run()


async def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match="6 answers, but only 4 people"):
        await DiscussionSimulator(make_config(num_personas=4, max_responses_per_question=6)).run()
    with pytest.raises(InputError, match="one discussion"):
        await DiscussionSimulator(make_config(replications=2)).run()


def test_the_study_file_of_a_run_of_two_people_is_valid(tmp_path: Path) -> None:
    """It states every default, also the number of answers to a question, which is larger."""
    settings = {"product_concept": "An oven", "category": "ovens", "num_personas": 2}
    settings |= {"phases": ["warmup"], "questions_per_phase": 1}
    run = folkmoot.run("focus_group", settings, model="synthetic", out=tmp_path / "run")
    assert load_study_file(run.path / "study.yaml").config.max_responses_per_question == 5


def test_the_client_of_a_scope_asks_through_the_engine(tmp_path: Path) -> None:
    seen: list[ModelRequest] = []

    def reply(request: ModelRequest, address: str) -> Completion:
        seen.append(request)
        if "forbidden" in request.messages[-1].content:
            raise RefusedError("no", reason="refused:policy")
        return Completion("Gladly.")

    class Config(folkmoot.StudyConfig):
        model_config = ConfigDict(extra="forbid", frozen=True)

    async def protocol(session: Session) -> None:
        client = LLMClient(session.child("talk"))
        assert await client.complete("You are Ann.", "Would you?", 0.2, 50) == "Gladly."
        with pytest.raises(RefusedError) as refused:
            await client.complete("You are Ann.", "Something forbidden")
        assert refused.value.reason

    study = Study("small", "Small", Config, protocol)
    run = folkmoot.run(study, {}, provider=ScriptedProvider(reply), out=tmp_path / "run")
    first = seen[0]
    assert first.messages == (Message("system", "You are Ann."), Message("user", "Would you?"))
    assert (first.temperature, first.max_tokens) == (0.2, 50)
    assert run.table("answers").height == 2
