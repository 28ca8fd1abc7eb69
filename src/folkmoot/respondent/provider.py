"""The embedded respondent as a provider: a reply follows from seed, address and request alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from folkmoot.models.local import hashed_embeddings
from folkmoot.models.request import (
    CUT,
    FloatArray,
    ProviderSettings,
    Reply,
    Request,
    Usage,
    estimated_tokens,
)
from folkmoot.respondent.mind.knobs import Knobs
from folkmoot.respondent.mind.lexicon import general
from folkmoot.respondent.mind.mind import Mind, Situation
from folkmoot.respondent.mind.part import Part
from folkmoot.respondent.mind.persona import meet
from folkmoot.respondent.mind.reading import Reading, read
from folkmoot.respondent.replies import people
from folkmoot.respondent.replies.answering import answered
from folkmoot.respondent.replies.coder import codes_of, is_coding
from folkmoot.respondent.replies.pathologies import spoiled

MODEL_SERVED = "synthetic/5 SYNTHETIC"  # the version of its rules
PERSONS = frozenset({"", "participant"})  # roles that are persons; so is whoever has a persona


class Respondent:
    """A provider that answers from a documented opinion-dynamics model; text is all it sees."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._seed = settings.seed
        self._knobs = Knobs.of(settings.options)
        study = settings.study
        part = study.part if study is not None and isinstance(study.part, Part) else Part()
        self._lexicon = part.lexicon or general()
        self._answers = {**people.ANSWERS, **part.answers}
        self._names = tuple(part.names(study.config)) if study is not None else ()
        self._meet = lru_cache(maxsize=2048)(lambda text: meet(text, settings.seed))

    async def complete(self, request: Request, *, address: str) -> Reply:
        """The reply to a request. Raises nothing: refusals are replies, as a model's are."""
        return self.reply(request, address)

    def reply(self, request: Request, address: str) -> Reply:
        """`complete` without the await, for tests."""
        address = address.removesuffix(".long")  # asked again with more room, it says the same
        mind = self.mind(read(request), address)
        said = codes_of(request) if is_coding(request) else answered(mind, self._answers)
        text, finish = spoiled(said, mind)
        limit = request.max_tokens
        if limit is not None and len(text) > 4 * limit:
            text, finish = text[: 4 * limit].rstrip(), CUT
        sent = estimated_tokens(*(m.content for m in request.messages))
        usage = Usage(sent, estimated_tokens(text), 0)
        return Reply(text, usage, MODEL_SERVED, finish=finish)

    def mind(self, reading: Reading, address: str) -> Mind:
        """Who is asked: the persona that stands in the messages, else whom the system message
        describes, else the speaker."""
        person = bool(reading.persona) or reading.role in PERSONS
        at = Situation(
            reading,
            self._names,
            self._lexicon,
            self._knobs,
            self._seed,
            address,
            self._meet,
        )
        who = reading.persona or reading.described or reading.speaker
        return Mind(at, self._meet(who), person=person)

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Hashed embeddings, shape (n, 512); see `folkmoot.models.local.hashed_embeddings`."""
        # Here and not in a thread: a batch is a few ms of plain Python, which would only fight for
        # the interpreter with those who wait for it.
        vectors = hashed_embeddings.embed(texts)
        return vectors, Usage(estimated_tokens(*texts), 0, 0)

    async def close(self) -> None:
        """Nothing is held open."""
