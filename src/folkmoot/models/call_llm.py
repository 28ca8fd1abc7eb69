"""Ask one question to one model from a script or notebook, and list the available models."""

# Studies use the gateway instead, because it journals each call.

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from folkmoot.errors import FolkmootError, InputError, ModelError, RefusedError, TransientError
from folkmoot.models.api_keys import find_key, load_environment, resolve_key
from folkmoot.models.catalog import (
    CALL_LLM_MODELS,
    LOCAL_MODEL,
    SYNTHETIC_MODEL,
    ModelSpec,
    open_provider,
    resolve_model,
)
from folkmoot.models.request import (
    FINISH_LENGTH,
    MAX_BACKOFF_SECONDS,
    Completion,
    Message,
    ModelRequest,
    ProviderSettings,
    backoff_seconds,
    reason_of_missing_reply,
    translate_finish_reason,
)
from folkmoot.models.urls import require_encryption
from folkmoot.randomness import digest

T = TypeVar("T")

# The models that `folkmoot models` lists and tries if none is named.
DEFAULT_LISTED_MODELS = (
    SYNTHETIC_MODEL,
    LOCAL_MODEL,
    *CALL_LLM_MODELS,
    "gpt-4o",
)
# The waits are at most 1, 2 and 4 s, unless the server asks for a longer one.
RETRIES = 3
BASE_BACKOFF_SECONDS = 1.0
# A usable model answers with one word long before.
TRIAL_TIMEOUT_SECONDS = 60.0
_log = logging.getLogger(__name__)


def call_llm(
    model: str,
    memory: Sequence[Mapping[str, str]] | None,
    question: str,
    *,
    system: str = "",
    temperature: float | None = None,
    max_tokens: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = 120.0,
) -> str:
    """Return the answer of a model to a question, in a script or a notebook.

        call_llm("gpt-4o", [{"question": "Who are you?", "answer": "Ann."}], "How old are you?")

    - `memory`: earlier questions and answers, oldest first.
    - `timeout`: in seconds.

    After a temporary error or an empty reply, the call is repeated up to three times.

    Raises InputError for an unknown model, a missing key or a key over plain HTTP. Raises
    FatalModelError for a rejected key. Raises QuotaError, RefusedError or TransientError for any
    other failed call.
    """
    spec = resolve_model(model, {model: base_url} if base_url else None)
    key = resolve_key(spec, api_key)
    require_encryption(key, spec.base_url, spec.name)
    request = ModelRequest(
        spec.wire_model, build_messages(memory, question, system), temperature, max_tokens
    )
    settings = ProviderSettings(spec.base_url, key, timeout)
    reply = _run_coroutine(lambda: _complete_with_retries(spec, settings, request))
    # A refusal arrives as a reply, and only the finish reason shows it.
    if reason := reason_of_missing_reply(reply.finish):
        raise RefusedError(f"{spec.name} refused: {reply.text or reason}", reason=reason)
    return reply.text


def build_messages(
    memory: Sequence[Mapping[str, str]] | None, question: str, system: str = ""
) -> tuple[Message, ...]:
    """Return the question and answer pairs in `memory` as messages, followed by the question.

    Raises InputError for an incomplete pair.
    """
    messages = [Message("system", system)] if system else []
    for number, pair in enumerate(memory or (), start=1):
        if set(pair) != {"question", "answer"}:
            raise InputError(
                f"memory entry {number} must have exactly the keys 'question' and 'answer'"
            )
        messages.append(Message("user", pair["question"]))
        messages.append(Message("assistant", pair["answer"]))
    return (*messages, Message("user", question))


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One line of `folkmoot models`: a model, its API key and its server."""

    name: str
    canonical: str
    wire_model: str
    base_url: str
    # The environment variable that holds the key, or that should hold the key if `key_set` is
    # False.
    key_variable: str
    key_set: bool
    # True if the model has the key and the files that it needs.
    usable: bool
    # True if the test call of `try_models` succeeded, or None before the call.
    ok: bool | None = None
    # Duration of the test call in seconds.
    latency_s: float | None = None
    # The error of the test call, or what a local model lacks (such as a missing file).
    error: str = ""


def list_models(
    names: Sequence[str] = DEFAULT_LISTED_MODELS,
    endpoints: Mapping[str, str] | None = None,
) -> list[ModelListing]:
    """Return one line of `folkmoot models` for each model, without calling a model."""
    environ = load_environment()
    listings = []
    for name in names:
        spec = resolve_model(name, endpoints, environ)
        variable_and_key = find_key(spec, environ)
        problem = _missing_requirement(spec)
        listings.append(
            ModelListing(
                name,
                spec.name,
                spec.wire_model,
                spec.base_url or _server_address(spec),
                variable_and_key[0]
                if variable_and_key
                else (spec.key_env[0] if spec.key_env else ""),
                variable_and_key is not None,
                not problem and (variable_and_key is not None or not spec.key_needed),
                error=problem,
            )
        )
    return listings


def _missing_requirement(spec: ModelSpec) -> str:
    # An empty result means that nothing is missing.
    if spec.provider == LOCAL_MODEL:
        try:
            # Opening a local model only checks its files. The server starts with the first call.
            open_provider(spec, ProviderSettings())
        except InputError as error:
            return str(error)
    return ""


def _server_address(spec: ModelSpec) -> str:
    return "in this process" if spec.local else "on this machine"


def try_models(
    names: Sequence[str] = DEFAULT_LISTED_MODELS,
    endpoints: Mapping[str, str] | None = None,
) -> list[ModelListing]:
    """Make one small call to each usable model and return the results.

    An error of a call is stored in the result and not raised.
    """
    listings = list_models(names, endpoints)
    return [_try_model(listing, endpoints) if listing.usable else listing for listing in listings]


def _try_model(listing: ModelListing, endpoints: Mapping[str, str] | None) -> ModelListing:
    started_at = time.perf_counter()
    error = ""
    try:
        base = (endpoints or {}).get(listing.name)
        call_llm(
            listing.name,
            [],
            "Reply with the word: yes",
            base_url=base,
            timeout=TRIAL_TIMEOUT_SECONDS,
        )
    except FolkmootError as problem:
        error = str(problem)
    return replace(listing, ok=not error, latency_s=time.perf_counter() - started_at, error=error)


async def _complete_with_retries(
    spec: ModelSpec, settings: ProviderSettings, request: ModelRequest
) -> Completion:
    # This is a second loop beside `engine.calls.retries`, because `models` must not import the
    # engine. A single call has no budget, shared rate limit, journal or run that could pause. Both
    # loops use the same classes of errors and the same rule for waiting.

    # A new provider for each call, because its connections belong to the event loop of this call.
    provider = open_provider(spec, settings)
    # The embedded respondent seeds its random draws with the address. A digest of the question
    # gives different questions different draws.
    prompt_digest = digest(
        *(part for message in request.messages for part in (message.role, message.content))
    ).hex()
    try:
        for attempt in range(RETRIES + 1):
            started_at = time.perf_counter()
            try:
                reply = await provider.complete_request(
                    request, address=f"call_llm/{prompt_digest}/{attempt}"
                )
                reply = reply._replace(finish=translate_finish_reason(reply.finish))
                if not reply.text.strip() and not reason_of_missing_reply(reply.finish):
                    raise TransientError(f"the reply was empty (finish reason {reply.finish!r})")
            except TransientError as error:
                if attempt == RETRIES:
                    raise
                # The draw follows from the question.
                draw = 0, request.messages[-1].content, attempt
                backoff = backoff_seconds(BASE_BACKOFF_SECONDS, attempt + 1, *draw)
                wait = min(MAX_BACKOFF_SECONDS, max(error.retry_after or 0.0, backoff))
                _log.warning("%s: %s; trying again in %.1f s", spec.name, error, wait)
                await asyncio.sleep(wait)
            except ModelError as error:
                _log.error("%s: %s", spec.name, error)
                raise
            else:
                _log.info(
                    "%s answered in %.2f s, %s tokens in, %s out",
                    spec.name,
                    time.perf_counter() - started_at,
                    *(
                        "unknown" if token_count is None else token_count
                        for token_count in reply.usage[:2]
                    ),
                )
                if reply.finish.startswith(FINISH_LENGTH):
                    _log.warning("%s: the reply was cut by the token limit", spec.name)
                return reply
        raise AssertionError("unreachable")
    finally:
        await provider.close()


def _run_coroutine(make: Callable[[], Coroutine[object, object, T]]) -> T:
    # `asyncio.run` cannot be nested, so a notebook with a running loop needs a separate thread.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    with ThreadPoolExecutor(1, thread_name_prefix="call_llm") as pool:
        return pool.submit(lambda: asyncio.run(make())).result()
