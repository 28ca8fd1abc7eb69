"""The provider of the embedded respondent, which answers by rules in place of a model.

A reply depends only on the seed, the address of the call and the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from folkmoot.models.local import hashed_embeddings
from folkmoot.models.request import (
    FINISH_LENGTH,
    Completion,
    FloatArray,
    ModelRequest,
    Provider,
    ProviderSettings,
    Usage,
    estimate_tokens,
)
from folkmoot.respondent.mind.knobs import RespondentSettings
from folkmoot.respondent.mind.lexicon import general_lexicon
from folkmoot.respondent.mind.mind import ReplyContext, SimulatedRespondent
from folkmoot.respondent.mind.part import RespondentPart
from folkmoot.respondent.mind.persona import persona_from_text
from folkmoot.respondent.mind.reading import PromptReading, read_prompt
from folkmoot.respondent.replies import people
from folkmoot.respondent.replies.answering import answer_as_text
from folkmoot.respondent.replies.coder import codes_of, is_coding
from folkmoot.respondent.replies.pathologies import apply_pathologies

# The number is the version of the model's rules. Change it if the same request gets another reply.
MODEL_SERVED = "synthetic/5 SYNTHETIC"
# The roles with opinions. A speaker of another role has opinions only with a persona.
PERSONS = frozenset({"", "participant"})


class Respondent(Provider):
    """A provider that replies according to a documented model of opinion dynamics."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._seed = settings.seed
        self._knobs = RespondentSettings.from_mapping(settings.options)
        study = settings.study
        part = (
            study.part
            if study is not None and isinstance(study.part, RespondentPart)
            else RespondentPart()
        )
        self._lexicon = part.lexicon or general_lexicon()
        self._answers = {**people.ANSWERS, **part.answers}
        self._names = tuple(part.option_names(study.config)) if study is not None else ()
        # Traits follow from text and seed alone, so they can be cached. Each request of a speaker
        # needs them again.
        self._meet = lru_cache(maxsize=2048)(lambda text: persona_from_text(text, settings.seed))

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        """Return the reply to a request.

        A simulated refusal is a reply, so no error is raised.
        """
        return self.reply(request, address)

    def reply(self, request: ModelRequest, address: str) -> Completion:
        """Return the reply to a request. `complete_request` is the asynchronous form."""
        # A re-ask with a higher token limit has this suffix. It must get the same reply.
        address = address.removesuffix(".long")
        mind = self.build_mind(read_prompt(request), address)
        answer = codes_of(request) if is_coding(request) else answer_as_text(mind, self._answers)
        text, finish = apply_pathologies(answer, mind)
        limit = request.max_tokens
        # A token has about four characters, as in `estimate_tokens`.
        if limit is not None and len(text) > 4 * limit:
            text, finish = text[: 4 * limit].rstrip(), FINISH_LENGTH
        input_tokens = estimate_tokens(*(message.content for message in request.messages))
        usage = Usage(input_tokens, estimate_tokens(text), 0)
        return Completion(text, usage, MODEL_SERVED, finish=finish)

    def build_mind(self, reading: PromptReading, address: str) -> SimulatedRespondent:
        """Return the simulated speaker who answers a request."""
        # The first of these that exists determines the person: the persona in the messages, the
        # description in the system message, the speaker's id.
        is_participant = bool(reading.persona) or reading.role in PERSONS
        context = ReplyContext(
            reading,
            self._names,
            self._lexicon,
            self._knobs,
            self._seed,
            address,
            self._meet,
        )
        persona_text = reading.persona or reading.described or reading.speaker
        return SimulatedRespondent(context, self._meet(persona_text), is_participant=is_participant)

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Return hashed embeddings with shape (number of texts, 512)."""
        # Do not use a thread. A batch takes a few ms of pure Python, so a thread would only compete
        # for the interpreter lock with the coroutines that wait for the result.
        vectors = hashed_embeddings.embed_texts(texts)
        return vectors, Usage(estimate_tokens(*texts), 0, 0)
