"""A single discussion from Python, without a study file, and the clients that can answer it.

transcript = await DiscussionSimulator(DiscussionConfig(product_concept=…, category=…)).run()
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.run.event_loop import run_beside_loop
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import run_study, study_from_settings
from folkmoot.engine.session.session import Scope
from folkmoot.errors import InputError, RefusedError
from folkmoot.models.catalog import SYNTHETIC_MODEL
from folkmoot.models.request import (
    Message,
    ModelRequest,
    ProviderSettings,
    RespondentHints,
    StudyPart,
)
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.people.sources.grounded import Profile
from folkmoot.provenance import Source, Span, quote_value, source_of
from folkmoot.randomness import digest
from folkmoot.respondent import Respondent
from folkmoot.studies.focus_group import STUDY
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import INTENTS, DiscussionTranscript
from folkmoot.studies.focus_group.files import TranscriptFormatter
from folkmoot.studies.focus_group.participants import PRIVATE_OPINION
from folkmoot.studies.focus_group.protocol import run_protocol
from folkmoot.studies.focus_group.respondent import PART
from folkmoot.studies.focus_group.talk.moderator import NEXT_QUESTION, PHASE_GUIDE
from folkmoot.studies.focus_group.talk.reading import OPINION_READING
from folkmoot.studies.focus_group.texts import DiscussionTexts

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


class _Asked(NamedTuple):
    """A request that a client answers in a simulator, and the respondent that it may ask."""

    request: ModelRequest
    address: str
    respondent: Respondent


# A client gets two texts. What else the engine knows of a request (the answer type, the speaker)
# goes past it here, so that a client which asks the embedded respondent gets the same reply.
_ASKED: ContextVar[_Asked | None] = ContextVar("asked", default=None)


class MockLLMClient(LLMClient):
    """The embedded respondent: no key, no network; the same prompts give the same words.

    In a simulator it answers like `--model synthetic`, also from a subclass that calls
    `super().complete`. Called by itself it goes by the texts: `config` tells it which words are the
    concept, the material and the price.
    """

    config: DiscussionConfig | None = None

    def __init__(self, config: DiscussionConfig | None = None) -> None:
        self.config = config

    async def complete(
        self,
        system_prompt: str,
        user_prompt: str,
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
    ) -> str:
        """The respondent's reply; never raises."""
        asked = _ASKED.get()
        if asked is None:
            texts = (system_prompt, user_prompt)
            request = infer_request(*texts, temperature, max_tokens, self.config)
            address = digest(system_prompt, user_prompt).hex()
            asked = _Asked(request, address, make_respondent(self.config))
        else:
            request = asked.request
            if (system_prompt, user_prompt) != flatten_messages(request.messages):
                request = change_messages(request, system_prompt, user_prompt)
            request = replace(request, temperature=temperature, max_tokens=max_tokens)
        reply = await asked.respondent.complete_request(request, address=asked.address)
        return reply.text


def make_respondent(config: DiscussionConfig | None) -> Respondent:
    """The embedded respondent of a focus group."""
    study = StudyPart(PART, config)
    if config is None:
        return Respondent(ProviderSettings(study=study))
    settings = ProviderSettings(seed=config.random_seed, options=config.respondent, study=study)
    return Respondent(settings)


# The answers of a focus group in JSON, and who gives them.
_ANSWERS = (
    ("participant", PRIVATE_OPINION),
    ("moderator", NEXT_QUESTION),
    ("moderator", PHASE_GUIDE),
    ("coder", OPINION_READING),
)
_MODERATES = re.compile(r"\byou are (?:the|a) moderator\b", re.IGNORECASE)


def infer_request(
    system_prompt: str,
    user_prompt: str,
    temperature: float,
    max_tokens: int,
    config: DiscussionConfig | None = None,
) -> ModelRequest:
    """A request from two texts alone.

    The answer type is the one with all options, or all field names, in the prompt. The system
    prompt is the persona; the words of `config` are the product, as far as they stand there.
    """
    messages = (Message("system", system_prompt), Message("user", user_prompt))
    role = "moderator" if _MODERATES.search(system_prompt) else "participant"
    kind, offered, schema = "text", tuple[str, ...](), None
    if all(option in user_prompt for option in INTENTS):
        kind, offered = "choice", INTENTS
    elif "JSON" in user_prompt:
        for speaker, answer in _ANSWERS:
            required = answer.model.model_json_schema()["required"]
            if all(re.search(rf"\b{name}\b", user_prompt) for name in required):
                role, kind, schema = speaker, "json", answer.schema
                break
    persona = system_prompt if role == "participant" else ""
    asked = RespondentHints(role, kind, offered, about=user_prompt, speaker=role)
    product = DiscussionTexts(config) if config is not None else None
    known = [quote_value(persona, "persona", "", role)]
    if product is not None:
        known += filter(None, (product.category, product.concept, product.material))
        known += filter(None, (product.price, *product.ladder))
    spans = find_texts(messages, ((text, source_of(text)) for text in known))
    return ModelRequest(
        "synthetic", messages, temperature, max_tokens, schema, asked=asked, spans=spans
    )


def change_messages(request: ModelRequest, system_prompt: str, user_prompt: str) -> ModelRequest:
    """A request with the texts that a client has made of its messages; what they still hold of the
    texts of known source keeps its source."""
    messages = (Message("system", system_prompt), Message("user", user_prompt))
    known = (
        (request.messages[span.message].content[span.start : span.end], span.source)
        for span in request.spans
    )
    return replace(request, messages=messages, spans=find_texts(messages, known))


def find_texts(
    messages: Sequence[Message], known: Iterable[tuple[str, Source | None]]
) -> tuple[Span, ...]:
    """The spans of texts in messages of which only the words are known, each where it stands
    first."""
    found = []
    for text, source in known:
        places = (
            (number, message.content.find(text)) for number, message in enumerate(messages) if text
        )
        number, start = next(((n, at) for n, at in places if at >= 0), (0, -1))
        if source is not None and start >= 0:
            found.append(Span(start, start + len(text), source, number))
    return tuple(found)


@dataclass(frozen=True)
class DiscussionSimulator:
    """One group on one concept. Without personas they are recruited; without a client, or with a
    MockLLMClient, the embedded respondent answers. A `complete` of one's own is always asked.
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
        study = replace(STUDY, protocol=partial(run_protocol, invited=self.personas))
        settings = self.config.model_dump(mode="json", exclude_unset=True)
        client = self.llm_client
        if client is None or _is_plain_mock(client):
            options = RunOptions(model=SYNTHETIC_MODEL)
        else:
            respondent = make_respondent(self.config)
            options = RunOptions(
                custom_provider=ScriptedProvider(partial(_answer_request, client, respondent))
            )
        with tempfile.TemporaryDirectory() as folder:
            options = replace(options, out=Path(folder) / "run")
            run = await run_beside_loop(
                lambda stopper: run_study(
                    study_from_settings(study, settings, options), options, stopper
                )
            )
            return TranscriptFormatter.from_json(run.text("transcript.json"))


def _is_plain_mock(client: LLMClient) -> bool:
    """Whether a client answers as the embedded respondent does: `complete` is not replaced."""
    return type(client).complete is MockLLMClient.complete and "complete" not in vars(client)


async def _answer_request(
    client: LLMClient, respondent: Respondent, request: ModelRequest, address: str
) -> str:
    """Put a request of the engine to a client."""
    token = _ASKED.set(_Asked(request, address, respondent))
    try:
        return await client.complete(
            *flatten_messages(request.messages),
            TEMPERATURE if request.temperature is None else request.temperature,
            MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        )
    finally:
        _ASKED.reset(token)


def flatten_messages(messages: Sequence[Message]) -> tuple[str, str]:
    """The system prompt, and all other messages as one user prompt: what was heard, with the
    speaker's own turns after "You: "."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    heard = "\n\n".join(
        f"You: {message.content}" if message.role == "assistant" else message.content
        for message in messages
        if message.role != "system"
    )
    return system, heard
