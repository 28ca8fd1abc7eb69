"""Count how many questions a participant is likely to get, for the pages of human participants.

A dry run of a small part of the study counts the questions.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.run.dry_run import embedded_provider, small_part
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import open_dry_run, run_study
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.errors import FolkmootError
from folkmoot.models.request import Completion, FloatArray, ModelRequest, Provider, Usage

# Bounds the work before a run to a few seconds. A larger study has no expected number of questions.
MAX_CALLS = 250
# Participants or sessions of the part that is run.
MIN_UNITS = 2


class _QuestionCounter:
    """A provider that counts the questions to each participant and lets `inner` answer them."""

    def __init__(self, inner: Provider, seats: Sequence[Seat]) -> None:
        self._inner = inner
        self._seats: dict[str, list[Seat]] = {}
        for seat in seats:
            self._seats.setdefault(seat.id, []).append(seat)
        self._addresses: set[str] = set()
        self.questions: Counter[str] = Counter()

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        who = Speaker(request.hints.speaker, role=request.hints.role)
        path = address.split("/")[:-1]
        # The address of a re-ask continues that of its question.
        if address.rpartition(".")[0] not in self._addresses:
            self._addresses.add(address)
            for seat in self._seats.get(who.id, ()):
                self.questions[seat.name] += seat.owns_call(who, path)
        return await self._inner.complete_request(request, address=address)

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        return await self._inner.embed_texts(model, texts, address=address)

    async def close(self) -> None:
        await self._inner.close()


def count_questions(study_file: StudyFile) -> int | None:
    """Return the median number of questions to a participant, or None if counting fails."""
    part, _ = small_part(study_file, MIN_UNITS)
    changes = {"seats": None, "budget_usd": None, "budget_calls": MAX_CALLS, "batch": False}
    with open_dry_run(part, changes) as (dry_file, folder):
        seats = part.study.seats(dry_file.config, part.study_folder)
        counter = _QuestionCounter(embedded_provider(part), seats)
        options = RunOptions(out=folder, custom_provider=counter, is_dry_run=True)
        try:
            run_study(dry_file, options)
        # A study that cannot be run dry, or is too large for that, has no expected number. The run
        # itself reports its errors.
        except FolkmootError:
            return None
    counts = [count for count in counter.questions.values() if count]
    if not counts:
        return None
    speaks_as_self = study_file.config.seats is not None and study_file.config.seats.as_ == "self"
    return round(statistics.median(counts)) + speaks_as_self
