"""The provider of a dry run: it answers cheaply and counts calls and tokens."""

# It lengthens short replies of the embedded respondent to the usual length of a hosted model's
# replies (`extend_reply`). All added words are filler words, which show how many tokens the
# lengthening adds. So `dry_run` counts tokens with short replies and with long replies. An estimate
# therefore has a lower and an upper bound.

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.calls.batch_queue import wait_until_idle
from folkmoot.engine.seats.seats import Seat
from folkmoot.errors import FolkmootError
from folkmoot.models.catalog import HUMAN_MODEL, SYNTHETIC_MODEL, open_provider, resolve_model
from folkmoot.models.request import (
    NO_USAGE,
    Completion,
    FloatArray,
    ModelRequest,
    Provider,
    ProviderSettings,
    Usage,
    byte_count,
    estimate_tokens,
)
from folkmoot.randomness import digest

# The length in words of free texts in a dry run. Hosted models reply to the shipped prompts with
# more words than the embedded respondent.
ASSUMED_UTTERANCE_WORDS = 80
# The assumed lowest length of a free text in words: terse models write one short sentence. The
# highest length of a text within JSON is `ASSUMED_UTTERANCE_WORDS`. A reply that is a free text is
# longer at talkative models if neither the prompt nor `max_tokens` limits it.
MIN_UTTERANCE_WORDS = 10
MAX_UTTERANCE_WORDS = 200
# The words that lengthen a free text within JSON and a free reply. A dry run can find them again in
# later prompts, so one run counts tokens with and without them. With its space each has eight
# bytes, which `estimate_tokens` counts as two tokens.
FILLER = "andsoon"
REPLY_FILLER = "andmore"
FILLER_TOKENS = 2
_FILLER_RUN = re.compile(rf" ({FILLER}|{REPLY_FILLER})(?: \1)*")
# A word of the embedded respondent has about six bytes with its space.
WORD_TOKENS = 1.5
# A reply with fewer words is a vote, a number or a signal, which a hosted model gives as short.
MIN_FREE_TEXT_WORDS = 6
# A reply takes longer to make than its prompt, and its length varies little between participants.
# So a sampled dry run makes only this number of replies for each kind of request and reuses them.
REPLIES_OF_A_KIND = 12
REPLY_WORK = 1  # the work of making one byte of a reply, in bytes of prompts
# If the replies of a kind have more characters than this together, two of them are enough.
LONG_REPLIES = 24_000
# The caches of OpenAI and Anthropic hold no shorter beginning of a prompt.
MIN_CACHED_PREFIX_TOKENS = 1024
NOT_RUN_SUFFIX = " (not run)"  # follows the name of a stage in the table


@dataclass(slots=True)
class TokenUse:
    """Counted calls and tokens."""

    # The counts are fractions if the items of a sample were weighted.
    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def add_call(
        self, calls: float, input_tokens: float, output_tokens: float, weight: float = 1.0
    ) -> None:
        self.calls += calls * weight
        self.input_tokens += input_tokens * weight
        self.output_tokens += output_tokens * weight


class QuestionLog:
    """Counts, during a dry run, the questions that each human would get.

    `stages`: a map from seat to a list with one entry per question. An entry holds the names of the
    stages that contain the question.
    """

    # Re-asks are not counted.
    def __init__(self, seats: Sequence[Seat]) -> None:
        self.stages: dict[Seat, list[tuple[str, ...]]] = {}
        self._seats: dict[str, list[Seat]] = {}
        for seat in seats:
            self._seats.setdefault(seat.id, []).append(seat)
        self._addresses: set[str] = set()

    def note_request(self, request: ModelRequest, address: str) -> None:
        """Count a request if it is a new question to one of the seats."""
        # The address of a re-ask continues that of its question.
        if address.rpartition(".")[0] in self._addresses:
            return
        self._addresses.add(address)
        speaker = Speaker(request.hints.speaker, role=request.hints.role)
        path = address.split("/")[:-1]
        for seat in self._seats.get(speaker.id, ()):
            if seat.owns_call(speaker, path):
                self.stages.setdefault(seat, []).append(seat.stages_of(path))


class CountingProvider(Provider):
    """A provider for dry runs that answers by simple rules and counts calls and tokens.

    - `max_bytes`: the largest size of all prompts together.
    - `question_log`: counts the questions to participants whom humans could play.
    - `waves`: the number of calls in each wave. The calls of a wave are answered together.

    Raises DryRunLimitError if the prompts are larger than `max_bytes`.
    """

    # The provider collects calls until every task of the protocol waits, and then answers all of
    # them.
    def __init__(self, settings: ProviderSettings, embedding: str, max_bytes: int) -> None:
        self.stages: dict[str, TokenUse] = {}
        self.models: dict[str, TokenUse] = {}
        # The number of calls that one call of a sampled fork represents. Each task has its own
        # value, because the samples of several forks run side by side.
        self.weight: ContextVar[float] = ContextVar("weight", default=1.0)
        # The tokens by which the requests, and the replies, can be fewer or more than counted:
        # fewer input, more input, fewer output, more output. The counts contain half of the filler
        # words that lengthen replies (`extend_reply`).
        self.spread: list[float] = [0.0] * 4
        self.bytes = 0
        self.max_bytes = max_bytes
        self.repeats_replies = False
        # Replies by kind of request (`_kind_of`), and the number of requests of each kind.
        self.replies: dict[tuple[object, ...], list[Completion]] = {}
        self._met: Counter[tuple[object, ...]] = Counter()
        self.waves: list[int] = []
        self.question_log = QuestionLog(())
        # Input tokens by model that a vendor's cache may hold.
        self.repeated: Counter[str] = Counter()
        # Digests of all beginnings of earlier requests that end with a whole message.
        self._begun: set[bytes] = set()
        self.samples: dict[tuple[str, str, str], ModelRequest] = {}
        self._asks = 0.0
        self._embedding = embedding
        self._inner: Provider = open_provider(resolve_model(SYNTHETIC_MODEL), settings)
        self._waiting: list[asyncio.Future[None]] = []
        self._driver: asyncio.Task[None] | None = None

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        self._asks += self.weight.get()
        kind = (request.model, request.hints.role, request.hints.kind)
        self.samples.setdefault(kind, request)
        self.question_log.note_request(request, address)
        await self._wait_for_wave()
        prompt_texts = [message.content for message in request.messages]
        self.bytes += byte_count(*prompt_texts)
        if self.bytes > self.max_bytes:
            raise DryRunLimitError
        reply = await self._sampled_reply(request, address, prompt_texts)
        schema_texts = [json.dumps(request.schema)] if request.schema is not None else []
        in_prompts = TextSpread.of_texts(prompt_texts)
        in_reply = TextSpread.of_texts([reply.text])
        input_tokens = estimate_tokens(*prompt_texts, *schema_texts) - in_prompts.filler / 2
        output_tokens = estimate_tokens(reply.text) - in_reply.filler / 2
        self._add_usage(address, request.model, input_tokens, output_tokens)
        if request.model != HUMAN_MODEL:
            weight = self.weight.get()
            # Not every vendor bills the schema.
            fewer_input = in_prompts.fewer + estimate_tokens(*schema_texts)
            texts = [*prompt_texts, *schema_texts]
            fewer, more = _reply_spread(request, texts, reply.text, output_tokens, in_reply)
            spread = (fewer_input, in_prompts.more, fewer, more)
            self.spread = [
                total + added * weight for total, added in zip(self.spread, spread, strict=True)
            ]
            self.repeated[request.model] += round(self._cached_prefix_tokens(request) * weight)
        return reply

    async def _sampled_reply(
        self, request: ModelRequest, address: str, prompt_texts: Sequence[str]
    ) -> Completion:
        kind = _kind_of(request, address)
        replies = self.replies.setdefault(kind, [])
        self._met[kind] += 1
        are_long = len(replies) > 1 and sum(len(reply.text) for reply in replies) > LONG_REPLIES
        if self.repeats_replies and (len(replies) >= REPLIES_OF_A_KIND or are_long):
            return replies[self._met[kind] % len(replies)]
        reply = await self._inner.complete_request(request, address=address)
        text = extend_reply(reply.text, "\n".join(prompt_texts), request)
        self.bytes += REPLY_WORK * byte_count(reply.text)
        replies.append(reply._replace(text=text, usage=NO_USAGE))
        return replies[-1]

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        await self._wait_for_wave()
        self._add_usage(address, self._embedding, estimate_tokens(*texts), 0.0)
        return (await self._inner.embed_texts(SYNTHETIC_MODEL, texts, address=address))[0], NO_USAGE

    async def close(self) -> None:
        await self._inner.close()

    def state(self) -> CountsSnapshot:
        """Return a copy of the counts so far."""
        return CountsSnapshot(
            {name: replace(usage) for name, usage in self.models.items()},
            tuple(self.spread),
            len(self.waves),
            dict(self.repeated),
        )

    def add_unsampled(
        self, stage: str, before: CountsSnapshot, run_count: int, left_count: int
    ) -> None:
        """Add estimated calls and tokens for `left_count` items that were not run.

        - `before`: the counts before the first item was run.
        - `run_count`: the number of items that were run since then.
        """
        # Each item that was left out counts like the mean of those that were run.
        if not run_count or not left_count:
            return
        share = left_count / run_count
        unsampled = self.stages.setdefault(f"{stage}{NOT_RUN_SUFFIX}", TokenUse())
        for name, usage in self.models.items():
            usage_before = before.models.get(name, TokenUse())
            usage_of_run = (
                usage.calls - usage_before.calls,
                usage.input_tokens - usage_before.input_tokens,
                usage.output_tokens - usage_before.output_tokens,
            )
            unsampled.add_call(*usage_of_run, share)
            usage.add_call(*usage_of_run, share)
            repeated = self.repeated[name] - before.repeated.get(name, 0)
            self.repeated[name] += round(repeated * share)
        self.spread = [
            before_run + (after_run - before_run) * (1 + share)
            for after_run, before_run in zip(self.spread, before.spread, strict=True)
        ]

    def _cached_prefix_tokens(self, request: ModelRequest) -> float:
        # Returns 0 if no vendor would cache a beginning of this length.
        # Each digest covers the one before it, so the time is linear in the number of messages.
        prefix_digest, tokens, repeated_tokens = b"", 0.0, 0.0
        for message in request.messages:
            prefix_digest = digest(prefix_digest, request.model, *message)
            filler = TextSpread.of_texts([message.content]).filler
            tokens += estimate_tokens(message.content) - filler / 2
            if prefix_digest in self._begun:
                repeated_tokens = tokens
            self._begun.add(prefix_digest)
        return repeated_tokens if repeated_tokens >= MIN_CACHED_PREFIX_TOKENS else 0.0

    def _add_usage(
        self, address: str, model: str, input_tokens: float, output_tokens: float
    ) -> None:
        if model == HUMAN_MODEL:  # a human costs nothing
            return
        stage = address.partition("/")[0] if "/" in address else "run"
        for usage_by_name, key in ((self.stages, stage), (self.models, model)):
            usage_by_name.setdefault(key, TokenUse()).add_call(
                1.0, input_tokens, output_tokens, self.weight.get()
            )

    async def _wait_for_wave(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.ensure_future(self._answer_waves())
        await waiting

    async def _answer_waves(self) -> None:
        while self._waiting:
            await wait_until_idle(lambda: len(self._waiting))
            self.waves.append(round(self._asks))
            self._asks = 0.0
            current_wave, self._waiting = self._waiting, []
            for future in current_wave:
                if not future.done():
                    future.set_result(None)


class DryRunLimitError(FolkmootError):
    """The dry run has reached its limit of work."""


class CountsSnapshot(NamedTuple):
    """The counts of a dry run at one moment."""

    models: Mapping[str, TokenUse]
    spread: tuple[float, ...]
    waves: int
    repeated: Mapping[str, int]

    def calls(self) -> float:
        return math.fsum(usage.calls for usage in self.models.values())


class TextSpread(NamedTuple):
    """The filler tokens in texts, and by how many tokens the texts can be shorter or longer.

    `fewer` and `more` are relative to the texts with half of their filler tokens.
    """

    filler: float
    fewer: float
    more: float

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> TextSpread:
        """Return the sums over texts that contain lengthened replies."""
        filler = fewer = more = 0.0
        for run in (run for text in texts for run in _FILLER_RUN.finditer(text)):
            tokens = estimate_tokens(run[0])
            # A lengthened text has `ASSUMED_UTTERANCE_WORDS`, so the others are the respondent's.
            own_words = ASSUMED_UTTERANCE_WORDS - tokens / FILLER_TOKENS
            filler += tokens
            fewer += tokens / 2 + WORD_TOKENS * max(0.0, own_words - MIN_UTTERANCE_WORDS)
            more += tokens / 2
            if run[1] == REPLY_FILLER:
                more += FILLER_TOKENS * (MAX_UTTERANCE_WORDS - ASSUMED_UTTERANCE_WORDS)
        return cls(filler, fewer, more)


def _reply_spread(
    request: ModelRequest, shown: Sequence[str], text: str, tokens: float, spread: TextSpread
) -> tuple[float, float]:
    # Returns by how many tokens a reply can be shorter and longer. `shown`: the prompts and the
    # schema. `tokens`: the counted tokens of the reply.
    fewer, more = min(spread.fewer, tokens), spread.more
    if request.schema is not None:
        # Models also fill lists with fewer items than the embedded respondent.
        has_list = '"array"' in shown[-1]
        return (fewer + (tokens - fewer) / 2 if has_list else fewer), more
    if not spread.filler:
        if not _is_free_text(text, "\n".join(shown)):
            return 0.0, 0.0
        # A long text, and one that `max_tokens` keeps from being lengthened, varies as others do.
        words = len(text.split())
        fewer = WORD_TOKENS * max(0, words - MIN_UTTERANCE_WORDS)
        more = FILLER_TOKENS * max(0, MAX_UTTERANCE_WORDS - words)
    if request.max_tokens is not None:
        more = min(more, max(0.0, request.max_tokens - tokens))
    return min(fewer, tokens), more


def _is_free_text(text: str, prompt_text: str) -> bool:
    # A text that occurs in the prompt or the schema is one of the options, or quotes a text.
    return len(text.split()) >= MIN_FREE_TEXT_WORDS and text.strip() not in prompt_text


def _kind_of(request: ModelRequest, address: str) -> tuple[object, ...]:
    # The key is equal for requests with similar replies.
    hints = request.hints
    address_kind = re.sub(r"\d+", "", address.rpartition("/")[0]), address.rpartition("/")[2]
    schema = json.dumps(request.schema, sort_keys=True) if request.schema is not None else ""
    # A free reply depends on the length of the conversation so far: a late one may end it. For a
    # structured answer only the schema counts.
    message_count = 0 if schema else len(request.messages)
    return (*address_kind, hints.role, hints.kind, frozenset(hints.offered), schema, message_count)


def extend_reply(text: str, prompt_text: str, request: ModelRequest) -> str:
    """Return a reply in which each free text has about `ASSUMED_UTTERANCE_WORDS` words.

    `prompt_text`: the text of all messages of the request.
    """
    # A reply that the lengthening could make invalid is returned unchanged.
    if request.schema is None:
        return _extend_text(text, prompt_text, request.max_tokens, REPLY_FILLER)
    schema = json.dumps(request.schema)
    try:
        data = json.loads(text)
    except ValueError:
        return text
    # A longer text might no longer match the schema.
    if "maxLength" in schema or "pattern" in schema:
        return text
    return json.dumps(
        _extend_json_texts(data, prompt_text + schema, request.max_tokens), ensure_ascii=False
    )


def _extend_json_texts(data: object, prompt_text: str, limit: int | None) -> object:
    if isinstance(data, dict):
        return {key: _extend_json_texts(value, prompt_text, limit) for key, value in data.items()}
    if isinstance(data, list):
        return [_extend_json_texts(value, prompt_text, limit) for value in data]
    return _extend_text(data, prompt_text, limit) if isinstance(data, str) else data


def _extend_text(text: str, prompt_text: str, limit: int | None, filler: str = FILLER) -> str:
    added_words = ASSUMED_UTTERANCE_WORDS - len(text.split())
    if added_words <= 0 or not _is_free_text(text, prompt_text):
        return text
    longer = " ".join([text, *[filler] * added_words])
    return text if limit is not None and estimate_tokens(longer) > limit else longer
