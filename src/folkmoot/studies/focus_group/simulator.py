"""A single discussion from Python, without a study file, and the clients that can answer it.

transcript = await DiscussionSimulator(DiscussionConfig(product_concept=…, category=…)).run()
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import folkmoot
from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.errors import InputError, RefusedError
from folkmoot.models.request import Request
from folkmoot.models.scripted import Scripted
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import DiscussionTranscript
from folkmoot.studies.focus_group.files import TranscriptFormatter
from folkmoot.studies.focus_group.protocol import protocol

TEMPERATURE = 0.9
MAX_TOKENS = 300


class LLMClient:
    """One system prompt, one user prompt, one reply, asked through a scope: journaled and priced.

    `model` is `provider/model`; None is the model of the run. A client of one's own is a subclass
    with another `complete`.
    """

    def __init__(self, scope: Scope, model: str | None = None) -> None:
        self._scope = scope
        self._model = model

    async def complete(
        self,
        system_prompt: str,
        user_prompt: str,
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
    ) -> str:
        """The text of one reply. Raises RefusedError where none can be had."""
        who = Speaker("assistant", "Assistant", system=system_prompt, model=self._model)
        said = await self._scope.ask(
            who, user_prompt, temperature=temperature, max_tokens=max_tokens
        )
        if isinstance(said, Missing):
            raise RefusedError(f"no reply could be had: {said.reason}", reason=said.reason)
        return said


class MockLLMClient(LLMClient):
    """The embedded respondent: no key, no network; the same prompts give the same words."""

    def __init__(self) -> None: ...

    async def complete(
        self,
        system_prompt: str,
        user_prompt: str,
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
    ) -> str:
        """The respondent's reply; never raises."""
        return await asyncio.to_thread(
            folkmoot.call_llm,
            "synthetic",
            None,
            user_prompt,
            system=system_prompt,
            temperature=temperature,
            max_tokens=max_tokens,
        )


@dataclass(frozen=True)
class DiscussionSimulator:
    """One group on one concept. Without personas they are recruited; without a client, or with a
    MockLLMClient, the embedded respondent answers.
    """

    config: DiscussionConfig
    llm_client: LLMClient | None = None
    personas: tuple[Profile, ...] = ()

    async def run(self) -> DiscussionTranscript:
        """Hold the discussion as a run whose folder is removed afterwards.

        Raises InputError for settings that do not fit together and for more than one group or
        concept, and whatever the client raises.
        """
        if self.config.replications > 1 or self.config.stimuli:
            raise InputError("a simulator holds one discussion; run the study for several")
        study = replace(STUDY, protocol=partial(protocol, invited=self.personas))
        settings = self.config.model_dump(mode="json", exclude_unset=True)
        client = self.llm_client
        if client is None or type(client) is MockLLMClient:
            answers: dict[str, object] = {"model": "synthetic"}
        else:
            answers = {"provider": Scripted(partial(_answer, client))}
        with tempfile.TemporaryDirectory() as folder:
            run = await folkmoot.arun(study, settings, out=Path(folder) / "run", **answers)
            return TranscriptFormatter.from_json(run.folder.text("transcript.json"))


async def _answer(client: LLMClient, request: Request, _address: str) -> str:
    """A request of the engine, put to a client: what was heard goes into the user prompt, the
    speaker's own turns after "You: "."""
    system = "\n\n".join(m.content for m in request.messages if m.role == "system")
    heard = "\n\n".join(
        f"You: {m.content}" if m.role == "assistant" else m.content
        for m in request.messages
        if m.role != "system"
    )
    return await client.complete(
        system,
        heard,
        TEMPERATURE if request.temperature is None else request.temperature,
        MAX_TOKENS if request.max_tokens is None else request.max_tokens,
    )
