"""One system prompt, one user prompt, one reply: clients for a discussion that is held from Python.

`DiscussionSimulator(config, llm_client)` takes them. A client of one's own is a subclass of
`LLMClient` with another `complete`.
"""

from __future__ import annotations

import re

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.errors import RefusedError
from folkmoot.models.catalog import open_provider, resolve
from folkmoot.models.request import Message, ProviderSettings, Request
from folkmoot.randomness import digest

TEMPERATURE = 0.9
MAX_TOKENS = 300
OWN = "You: "


class LLMClient:
    """Asks through a scope of the engine, so every call is journaled, limited and priced.

    `model` is `provider/model`; None is the model of the run.
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
    """The embedded respondent behind the same method: no key, no network, no chance.

    The reply follows from a hash of the inputs (and `seed`): the same prompts, the same words.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        # Found by entry point, as the engine does: this is a double for tests, no way round it.
        self._respondent = open_provider(resolve("synthetic"), ProviderSettings(seed=seed))

    async def complete(
        self,
        system_prompt: str,
        user_prompt: str,
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
    ) -> str:
        """The respondent's reply; never raises."""
        messages = (Message("system", system_prompt), *parted(user_prompt))
        request = Request("synthetic", messages, temperature, max_tokens, _schema(user_prompt))
        address = digest(system_prompt, user_prompt, repr(temperature), repr(max_tokens)).hex()
        return (await self._respondent.complete(request, address=address)).text


async def ask(client: LLMClient, request: Request) -> str:
    """A request of the engine, put to a client: what was heard goes into the user prompt."""
    system = "\n\n".join(m.content for m in request.messages if m.role == "system")
    return await client.complete(
        system,
        joined(tuple(m for m in request.messages if m.role != "system")),
        TEMPERATURE if request.temperature is None else request.temperature,
        MAX_TOKENS if request.max_tokens is None else request.max_tokens,
    )


def joined(messages: tuple[Message, ...]) -> str:
    """A conversation in one text; the speaker's own turns begin with "You: "."""
    return "\n\n".join(
        f"{OWN}{m.content}" if m.role == "assistant" else m.content for m in messages
    )


def parted(text: str) -> tuple[Message, ...]:
    """`joined` read back, for turns of one paragraph each."""
    messages: list[Message] = []
    for paragraph in text.split("\n\n"):
        own = paragraph.startswith(OWN)
        content = paragraph.removeprefix(OWN) if own else paragraph
        if messages and not own and messages[-1].role == "user":
            messages[-1] = Message("user", f"{messages[-1].content}\n\n{content}")
        else:
            messages.append(Message("assistant" if own else "user", content))
    return tuple(messages)


def _schema(prompt: str) -> dict[str, object] | None:
    """A stand-in for the schema where the words of a prompt ask for JSON: the keys it lists."""
    if "only a JSON object" not in prompt:
        return None
    return {"properties": {key: {} for key in re.findall(r"^- (\w+):", prompt, re.MULTILINE)}}
