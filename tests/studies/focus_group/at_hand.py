"""A scope in memory and a fast model, for tests with many discussions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from folkmoot.conversation.answer_types import Json, Missing, ParseFailure, Text
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
from folkmoot.engine.session.asking import AskResult
from folkmoot.models.request import NO_USAGE, Completion
from folkmoot.people.sources.grounded import PersonaGenerator, Profile
from folkmoot.randomness import generator, uniform_values
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.participants import with_own_opinions
from folkmoot.studies.focus_group.protocol import run_discussion

ReplyFunction = Callable[["AskedQuestion"], str | Missing]
PROMPTS = PromptLibrary(STUDY.prompts)
SETTINGS: dict[str, Any] = {
    "product_concept": "An oven that scans ready meals and cooks them by itself",
    "category": "kitchen appliances",
    "stimulus_material": "Meet the oven that reads. 299 dollars.",
}


class AskedQuestion:
    """One call: path, speaker, prompt, history and answer type."""

    def __init__(
        self, path: tuple[str, ...], who: Speaker, prompt: str, heard: Transcript, answer: Any
    ) -> None:
        self.path, self.who, self.prompt, self.heard, self.answer = path, who, prompt, heard, answer

    @property
    def kind(self) -> str:
        """The kind of call: guide, question, probe, coder, opinion, intent or answer."""
        if self.who.role == "coder":
            return "coder"
        if self.who.role == "moderator":
            if self.path[-1].startswith("probe"):
                return "probe"
            return "question" if self.path[-1] == "moderator" else "guide"
        if isinstance(self.answer, Json):
            return "opinion"
        return "intent" if isinstance(self.answer, Choice) else "answer"


class MemoryScope:
    """The part of the engine's `Scope` that a study needs, without journal, gateway or folder."""

    def __init__(self, seed: int, says: ReplyFunction, path: tuple[str, ...] = ()) -> None:
        self.seed, self.says, self.path = seed, says, path
        self.address = ""
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        self._rng = self._rng or generator(self.seed, self.path)
        return self._rng

    def child(self, *names: str) -> MemoryScope:
        return MemoryScope(self.seed, self.says, (*self.path, *names))

    def prompt(self, name: str, **variables: Any) -> str:
        return PROMPTS.render_prompt(name, **variables)

    async def ask(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        history: Transcript = EMPTY_TRANSCRIPT,
        answer_type: Any = None,
        temperature: float | None = None,
        about: str = "",
    ) -> Any:
        wanted = answer_type or Text()
        self.address = "/".join((*self.path, "ask0"))
        said = self.says(AskedQuestion(self.path, speaker, prompt, history, wanted))
        if isinstance(said, Missing):
            return said
        read = wanted.parse_reply(said)
        if isinstance(read, Missing):
            return read
        return Missing("unparsed") if isinstance(read, ParseFailure) else read.value

    async def ask_detailed(self, speaker: Speaker, prompt: str, **asked: Any) -> AskResult[Any]:
        value = await self.ask(speaker, prompt, **asked)
        reply = Completion("", NO_USAGE, "scripted", "", "stop")
        return AskResult(value, "", "exact", 0, "scripted", (), reply)

    def say(
        self, who: Speaker, text: str, *, address: str | None = None, part: str = "", **_: Any
    ) -> Utterance:
        id = "/".join((*self.path, "said0")) if not address else f"{address}#{part}"
        return Utterance(who.id, text, who.name, who.role, id=id)

    def record(self, _row: object) -> None: ...

    def is_human(self, _id: str) -> bool:
        return False

    async def map(self, items: Iterable[Any], fn: Any) -> dict[str, Any]:
        return {item.id: await fn(self.child(item.id), item) for item in items}


def write_question(text: str, **more: Any) -> str:
    """Return a moderator's reply with this question."""
    return json.dumps({"summary": "They talk.", "question": text, **more})


def write_codes(**read: Any) -> str:
    """Return a coder's reply with these codes."""
    return json.dumps({"changed": False, "valence": None, **read})


ANSWER_TEXTS = (
    "I like it, it would save me time.",
    "I don't need that, my old one works fine.",
    "I'm with Ann on that, the price is too high.",
    "I see it differently, I would buy it tomorrow.",
    "It depends on what it costs.",
)


def answer_plainly(asked: AskedQuestion) -> str:
    """Return a reply of a simple model, which names no one and sometimes changes a position."""
    draw = uniform_values(7, "plain", *asked.path, asked.who.id)
    return {
        "guide": '{"questions": ["What do you make of it?", "And what would you change?"]}',
        "question": write_question("So, what do you all make of that?"),
        "probe": "What makes you say that?",
        "coder": f'{{"changed": {"true" if draw < 0.1 else "false"}, "valence": {draw - 0.5:.2f}}}',
        "opinion": f'{{"opinion": "It has its points.", "position": {draw - 0.5:.2f}}}',
        "intent": "Might or might not buy",
        "answer": ANSWER_TEXTS[int(draw * len(ANSWER_TEXTS))],
    }[asked.kind]


def make_config(**changes: Any) -> DiscussionConfig:
    return DiscussionConfig(**{**SETTINGS, **changes})


def draw_profiles(seed: int = 1, count: int = 8, **changes: Any) -> tuple[Profile, ...]:
    drawn = PersonaGenerator().generate_profiles(count, generator(seed, ("people",)))
    return tuple(with_own_opinions(drawn, make_config(**changes)))


async def discuss(
    seed: int = 1, says: ReplyFunction = answer_plainly, config: DiscussionConfig | None = None
) -> DiscussionTranscript:
    """Run one discussion in memory."""
    config = config or make_config()
    scope: Any = MemoryScope(seed, says)
    at_table = draw_profiles(seed, config.num_personas, first_opinion=config.first_opinion)
    return await run_discussion(scope, config, at_table, "group_001", "concept")
