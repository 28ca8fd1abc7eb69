"""The embedded respondent as a provider: reads a request, decides what is wanted, answers.

Registered as `synthetic`. Each reply follows from (seed, address, messages) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from folkmoot.models import embedded_coder, hashed_embeddings
from folkmoot.models.request import (
    FloatArray,
    ProviderSettings,
    Reply,
    Request,
    Usage,
    estimated_tokens,
)
from folkmoot.models.synthetic import discussing, pathologies, summing_up, talking
from folkmoot.models.synthetic.choosing import choose
from folkmoot.models.synthetic.draws import VERSION, Draws
from folkmoot.models.synthetic.grammar import Tongue
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona, meet, persona_text
from folkmoot.models.synthetic.objects import json_reply
from folkmoot.models.synthetic.people import demographics_object, enriched_persona
from folkmoot.models.synthetic.reading import Reading, read
from folkmoot.models.synthetic.tasks import Task, task_of
from folkmoot.models.synthetic.values import number_reply
from folkmoot.models.synthetic.wishes import preference

MODEL_SERVED = f"synthetic/{VERSION} SYNTHETIC"
_WITHOUT_A_PERSON: Mapping[Task, Callable[[Reading, Draws], str]] = {
    Task.SUMMARY: summing_up.individual_summary,
    Task.CLUSTER: summing_up.cluster_description,
    Task.JUDGE: summing_up.judged,
    Task.ENRICH: lambda reading, draws: enriched_persona(reading.prompt, draws),
    Task.DEMOGRAPHICS: lambda reading, draws: demographics_object(reading.prompt, draws),
}
_BY_TONGUE: Mapping[Task, Callable[[Reading, Tongue, Knobs], str]] = {
    Task.MODERATE: talking.moderator_turn,
    Task.CHALLENGED: talking.challenged_answer,
    Task.INTERVIEW: talking.interview_answer,
    Task.SPEAK: talking.free_answer,
}


class Respondent:
    """A provider that answers from a documented opinion-dynamics model; text is all it sees."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._seed = settings.seed
        self._knobs = Knobs.of(settings.options)
        self._meet = lru_cache(maxsize=8192)(meet)

    async def complete(self, request: Request, *, address: str) -> Reply:
        """The reply to a request. Raises nothing: refusals are replies, as a model's are."""
        return self.reply(request, address)

    def reply(self, request: Request, address: str) -> Reply:
        """`complete` without the await, for tests and the mirror of the mechanism."""
        reading = read(request)
        address = address.removesuffix(".long")  # asked again with more room, it says the same
        text, finish = self._text(request, reading, address), "stop"
        text, finish = pathologies.spoil(text, reading, self._knobs, self._seed, address)
        limit = request.max_tokens
        if limit is not None and len(text) > 4 * limit:
            text, finish = text[: 4 * limit].rstrip(), "length"
        return Reply(
            text=text,
            usage=Usage(
                estimated_tokens(*(m.content for m in request.messages)), estimated_tokens(text), 0
            ),
            model_served=MODEL_SERVED,
            finish=finish,
        )

    def persona(self, reading: Reading) -> Persona:
        """The persona of a request: the first paragraph of its system prompt."""
        text = persona_text(reading.system) or persona_text(reading.prompt)
        return self._meet(text, self._seed, reading.system[:4000])

    def _text(self, request: Request, reading: Reading, address: str) -> str:
        if embedded_coder.is_coding(request):
            return embedded_coder.codes_of(request)
        draws = Draws(self._seed, address, "reply")
        in_group = discussing.reply(request, reading, draws, self._knobs)
        if in_group is not None:
            return in_group
        task = task_of(request, reading)
        if task in _WITHOUT_A_PERSON:
            return _WITHOUT_A_PERSON[task](reading, draws)
        who = self.persona(reading)
        tongue = Tongue(who, draws, " ".join(reading.own_turns[-6:]))
        if task in _BY_TONGUE:
            return _BY_TONGUE[task](reading, tongue, self._knobs)
        return self._decided(task, request, reading, who, draws, address)

    def _decided(
        self,
        task: Task,
        request: Request,
        reading: Reading,
        who: Persona,
        draws: Draws,
        address: str,
    ) -> str:
        """Answers that are a choice, a number or an object."""
        if task is Task.CHOICE:
            return choose(who, reading, reading.options, self._knobs, self._seed, address)
        if task is Task.NUMBER:
            return number_reply(who, reading, self._knobs, self._seed, address)
        if task is Task.PREFER:
            return preference(reading, who, draws)
        return json_reply(request, reading, who, self._meet, self._knobs, self._seed, address)

    async def embed(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        """Hashed embeddings, shape (n, 512); see `folkmoot.models.hashed_embeddings`."""
        # Here and not in a thread: a batch is a few ms of plain Python, which would only fight for
        # the interpreter with those who wait for it.
        vectors = hashed_embeddings.embed(texts)
        return vectors, Usage(estimated_tokens(*texts), 0, 0)

    async def close(self) -> None:
        """Nothing is held open."""
