"""The embedded respondent as a provider: a reply follows from seed, address and request alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from folkmoot.models.local import hashed_embeddings
from folkmoot.models.request import (
    FINISH_LENGTH,
    Completion,
    FloatArray,
    ModelRequest,
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

MODEL_SERVED = "synthetic/5 SYNTHETIC"  # the version of its rules
PERSONS = frozenset({"", "participant"})  # roles that are persons; so is whoever has a persona


class Respondent:
    """A provider that answers from a documented opinion-dynamics model; text is all it sees."""

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
        self._meet = lru_cache(maxsize=2048)(lambda text: persona_from_text(text, settings.seed))

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        """The reply to a request. Raises nothing: refusals are replies, as a model's are."""
        return self.reply(request, address)

    def reply(self, request: ModelRequest, address: str) -> Completion:
        """`complete_request` without the await, for tests."""
        address = address.removesuffix(".long")  # asked again with more room, it says the same
        mind = self.build_mind(read_prompt(request), address)
        said = codes_of(request) if is_coding(request) else answer_as_text(mind, self._answers)
        text, finish = apply_pathologies(said, mind)
        limit = request.max_tokens
        if limit is not None and len(text) > 4 * limit:
            text, finish = text[: 4 * limit].rstrip(), FINISH_LENGTH
        sent = estimate_tokens(*(message.content for message in request.messages))
        usage = Usage(sent, estimate_tokens(text), 0)
        return Completion(text, usage, MODEL_SERVED, finish=finish)

    def build_mind(self, reading: PromptReading, address: str) -> SimulatedRespondent:
        """Who is asked: the persona that stands in the messages, else whom the system message
        describes, else the speaker."""
        person = bool(reading.persona) or reading.role in PERSONS
        at = ReplyContext(
            reading,
            self._names,
            self._lexicon,
            self._knobs,
            self._seed,
            address,
            self._meet,
        )
        who = reading.persona or reading.described or reading.speaker
        return SimulatedRespondent(at, self._meet(who), person=person)

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Hashed embeddings, shape (n, 512); see `folkmoot.models.local.hashed_embeddings`."""
        # Here and not in a thread: a batch is a few ms of plain Python, which would only fight for
        # the interpreter with those who wait for it.
        vectors = hashed_embeddings.embed_texts(texts)
        return vectors, Usage(estimate_tokens(*texts), 0, 0)

    async def close(self) -> None:
        """Nothing is held open."""
