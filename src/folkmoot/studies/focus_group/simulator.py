"""Run a single discussion from Python code, without a study file.

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

# The defaults of a run: `DiscussionConfig.temperature` and `ANSWER_TOKENS`.
TEMPERATURE = 0.9
MAX_TOKENS = 300


class LLMClient:
    """A client that sends a system prompt and a user prompt to a model.

    - `model`: `provider/model`, or None for the model of the run.

    Subclasses override `complete`. Calls are journaled and their cost is counted.
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
        """Return the text of one reply.

        Raises RefusedError if the model gives no reply.
        """
        speaker = Speaker("assistant", "Assistant", system=system_prompt, model=self._model)
        reply = await self._scope.ask(
            speaker, user_prompt, temperature=temperature, max_tokens=max_tokens
        )
        if isinstance(reply, Missing):
            raise RefusedError(f"the model gave no reply: {reply.reason}", reason=reply.reason)
        return reply


class _PendingRequest(NamedTuple):
    request: ModelRequest
    address: str
    respondent: Respondent


# A client receives two texts. Everything else that the engine knows of a request (answer type,
# speaker) bypasses the client in this variable. So a client that asks the embedded respondent gets
# the same reply as a run would.
_PENDING_REQUEST: ContextVar[_PendingRequest | None] = ContextVar("asked", default=None)


class MockLLMClient(LLMClient):
    """A client that needs no API key and no network, because fixed rules compute the replies.

    - `config`: the settings with the concept and the price. Only needed outside a
      `DiscussionSimulator`.

    Equal prompts give equal replies.
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
        """Return the reply that the fixed rules compute."""
        pending = _PENDING_REQUEST.get()
        if pending is None:
            texts = (system_prompt, user_prompt)
            request = infer_request(*texts, temperature, max_tokens, self.config)
            address = digest(system_prompt, user_prompt).hex()
            pending = _PendingRequest(request, address, make_respondent(self.config))
        else:
            request = pending.request
            if (system_prompt, user_prompt) != flatten_messages(request.messages):
                request = change_messages(request, system_prompt, user_prompt)
            request = replace(request, temperature=temperature, max_tokens=max_tokens)
        reply = await pending.respondent.complete_request(request, address=pending.address)
        return reply.text


def make_respondent(config: DiscussionConfig | None) -> Respondent:
    """Return the built-in respondent of a focus group: rules that answer in place of a model."""
    study = StudyPart(PART, config)
    if config is None:
        return Respondent(ProviderSettings(study=study))
    settings = ProviderSettings(seed=config.random_seed, options=config.respondent, study=study)
    return Respondent(settings)


# The JSON answer types of a focus group with the role that gives each answer.
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
    """Build a request from a system prompt and a user prompt."""
    # The answer type is inferred: all its options or fields occur in the user prompt. The system
    # prompt is read as the persona. Texts of `config` that occur in the prompts are read as the
    # product.
    messages = (Message("system", system_prompt), Message("user", user_prompt))
    role = "moderator" if _MODERATES.search(system_prompt) else "participant"
    kind, offered, schema = "text", tuple[str, ...](), None
    if all(option in user_prompt for option in INTENTS):
        kind, offered = "choice", INTENTS
    elif "JSON" in user_prompt:
        for speaker, answer_type in _ANSWERS:
            required = answer_type.model.model_json_schema()["required"]
            if all(re.search(rf"\b{name}\b", user_prompt) for name in required):
                role, kind, schema = speaker, "json", answer_type.schema
                break
    persona = system_prompt if role == "participant" else ""
    hints = RespondentHints(role, kind, offered, about=user_prompt, speaker=role)
    product = DiscussionTexts(config) if config is not None else None
    quoted_texts = [quote_value(persona, "persona", "", role)]
    if product is not None:
        quoted_texts += filter(None, (product.category, product.concept, product.material))
        quoted_texts += filter(None, (product.price, *product.ladder))
    spans = find_texts(messages, ((text, source_of(text)) for text in quoted_texts))
    return ModelRequest(
        "synthetic", messages, temperature, max_tokens, schema, hints=hints, spans=spans
    )


def change_messages(request: ModelRequest, system_prompt: str, user_prompt: str) -> ModelRequest:
    """Return the request with the two prompts in place of the messages."""
    # Passages that still occur in the prompts keep their sources.
    messages = (Message("system", system_prompt), Message("user", user_prompt))
    sourced_texts = (
        (request.messages[span.message].content[span.start : span.end], span.source)
        for span in request.spans
    )
    return replace(request, messages=messages, spans=find_texts(messages, sourced_texts))


def find_texts(
    messages: Sequence[Message], texts: Iterable[tuple[str, Source | None]]
) -> tuple[Span, ...]:
    """Return where each text first occurs in the messages."""
    # Texts without a source, and texts that do not occur, are left out.
    spans = []
    for text, source in texts:
        matches = (
            (number, message.content.find(text)) for number, message in enumerate(messages) if text
        )
        number, start = next(((index, offset) for index, offset in matches if offset >= 0), (0, -1))
        if source is not None and start >= 0:
            spans.append(Span(start, start + len(text), source, number))
    return tuple(spans)


@dataclass(frozen=True)
class DiscussionSimulator:
    """One discussion of one group on one concept.

    - `personas`: the participants. If the tuple is empty, participants are recruited.
    - `llm_client`: the client that answers. None means that built-in rules answer in place of a
      model.
    """

    config: DiscussionConfig
    llm_client: LLMClient | None = None
    personas: tuple[Profile, ...] = ()

    async def run(self) -> DiscussionTranscript:
        """Hold the discussion as a run in a temporary folder and return its transcript.

        Raises InputError for contradictory settings and for more than one group or concept.
        Exceptions of the client reach the caller.
        """
        if self.config.replications > 1 or self.config.stimuli:
            raise InputError("a simulator holds one discussion; run the study for more")
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
            # The run needs an event loop of its own, and the caller's loop is busy with this
            # coroutine.
            run = await run_beside_loop(
                lambda stopper: run_study(
                    study_from_settings(study, settings, options), options, stopper
                )
            )
            return TranscriptFormatter.from_json(run.text("transcript.json"))


def _is_plain_mock(client: LLMClient) -> bool:
    return type(client).complete is MockLLMClient.complete and "complete" not in vars(client)


async def _answer_request(
    client: LLMClient, respondent: Respondent, request: ModelRequest, address: str
) -> str:
    token = _PENDING_REQUEST.set(_PendingRequest(request, address, respondent))
    try:
        return await client.complete(
            *flatten_messages(request.messages),
            TEMPERATURE if request.temperature is None else request.temperature,
            MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        )
    finally:
        _PENDING_REQUEST.reset(token)


def flatten_messages(messages: Sequence[Message]) -> tuple[str, str]:
    """Return the system prompt, and all other messages joined to one user prompt."""
    # The speaker's own messages begin with "You: " in the user prompt.
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    conversation = "\n\n".join(
        f"You: {message.content}" if message.role == "assistant" else message.content
        for message in messages
        if message.role != "system"
    )
    return system, conversation
