"""Who takes part: participants and their clusters with the source's fields, and their recruitment.

The people of a run are written to `personas.json` in its folder and sealed; a resume reads them
there, so that a pool that has grown since cannot change a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from folkmoot.conversation.answer_types import WAYS_OUT, Missing
from folkmoot.conversation.transcript import Speaker, Transcript
from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.session import Scope, Session
from folkmoot.errors import InputError, Problem
from folkmoot.models.request import FloatArray
from folkmoot.people.assignment import assign_conditions
from folkmoot.people.enrichment import RECRUITER, enrich_persona, key_of
from folkmoot.people.persona import Persona
from folkmoot.people.pool import Pool, draw_personas, target_pool_size
from folkmoot.people.sources import find_persona_source, persona_hub, quota, table
from folkmoot.people.sources.grounded import PersonaGenerator
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.provenance import quote_all, quote_value
from folkmoot.randomness import digest, generator
from folkmoot.storage.disk_store import StoredValue
from folkmoot.storage.run_folder import PERSONAS
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig

NOTHING = StoredValue("")
PENDING, COMPLETE, FAILED, SKIPPED = "pending", "complete", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Participant:
    """One participant's record; phases return changed copies. Long texts are kept out of memory."""

    participant_id: str
    condition: str
    profile: StoredValue[Persona]
    # From the first vote on: the options in this participant's order, and the system prompt on
    # which those of all phases build.
    options: tuple[str, ...] = ()
    told: StoredValue[str] = NOTHING
    initial_choice: str | None = None
    final_choice: str | None = None
    interview: StoredValue[Transcript] | None = None
    dialogue: StoredValue[Transcript] | None = None
    opposition_view: str | None = None
    summary_draw: int | None = None
    page: StoredValue[str] | None = None
    individual_summary: str | None = None
    embedding: FloatArray | None = None
    cluster_id: str | None = None
    status: str = PENDING
    error_message: str | None = None
    # What `decision_quality.py` asks.
    confidence_before: float | None = None
    confidence_after: float | None = None
    ranking_before: list[str] | None = None
    ranking_after: list[str] | None = None
    restated_option: str | None = None
    restatement: str | None = None
    delayed_choice: str | None = None
    is_recorded: bool = False  # their row is: nothing of it changes any more
    # Field → why there is no answer to it: a way out that was taken, or that it was unreadable.
    missing_answers: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.participant_id

    @property
    def persona(self) -> Persona:
        return self.profile.get()

    @property
    def system(self) -> str:
        return self.told.get()

    @property
    def cross_pollination_content(self) -> str | None:
        """The page of summaries that this participant is shown (phase 6)."""
        return None if self.page is None else self.page.get()

    @property
    def clarification_transcript(self) -> Transcript | None:
        """The interview of phase 3."""
        return None if self.interview is None else self.interview.get()

    @property
    def adversarial_transcript(self) -> Transcript | None:
        """The dialogue of phase 7."""
        return None if self.dialogue is None else self.dialogue.get()

    @property
    def position_changed(self) -> bool | None:
        """Whether the final choice differs from the first; None without a final choice."""
        if self.final_choice is None or self.initial_choice is None:
            return None
        return self.final_choice != self.initial_choice

    @property
    def is_active(self) -> bool:
        """Still in the study."""
        return self.status in (PENDING, COMPLETE)

    @property
    def place_in_order(self) -> int:
        """Their place among all participants, from 0."""
        return int(self.id.removeprefix("p_")) - 1

    @property
    def stated_reasons(self) -> Reasons:
        """The little of them that parts on other machines are sent of everybody."""
        return Reasons(self.id, self.initial_choice, self.individual_summary)

    @property
    def utterance_columns(self) -> dict[str, Any]:
        """The columns of the study that tell the participant's rows in `utterances` from others."""
        return {"participant_id": self.id, "condition": self.condition}

    def speaker(self, system: str) -> Speaker:
        """The participant as the models see it."""
        return Speaker(self.id, "Participant", "participant", system)

    def with_changes(self, **changes: Any) -> Participant:
        return replace(self, **changes)

    def with_answer(self, name: str, answer: object) -> Participant:
        """The participant with an answer under this name; where it is missing, with the reason."""
        if not isinstance(answer, Missing):
            return replace(self, **{name: answer})  # type: ignore[arg-type]
        return replace(self, missing_answers={**self.missing_answers, name: answer.reason})

    def without_vote(self, name: str, where: str, missing: Missing) -> Participant:
        """Out of the study without this vote: skipped if they declined it, else failed."""
        participant = self.with_answer(name, missing)
        if missing.reason in WAYS_OUT:
            return participant.with_skip(f"{where}: {missing.reason}")
        return participant.with_failure(where, missing)

    def with_failure(self, where: str, missing: Missing) -> Participant:
        """Out of the study, with the reason."""
        detail = f": {missing.detail}" if missing.detail else ""
        return self.with_changes(status=FAILED, error_message=f"{where}: {missing.reason}{detail}")

    def with_skip(self, reason: str) -> Participant:
        return self.with_changes(status=SKIPPED, error_message=reason)


class Reasons(NamedTuple):
    """What others may learn of a participant: whose, for which option, and the reasons in brief."""

    id: str
    choice: str | None
    summary: str | None


@dataclass(frozen=True)
class Cluster:
    """A group of like-minded participants of one option, described by a model: once for every
    draw of the summaries, empty where it gave no description. The embedding is the first one's.

    A description is made from the words of several people, so as a source it is the summarizer's
    (`summaries.description/draw/cluster`). The summary of one interview is made from one person's
    words, and is the participant's.
    """

    id: str
    option: str
    descriptions: tuple[str, ...]
    embedding: FloatArray | None
    member_ids: tuple[str, ...]

    @property
    def description(self) -> str:
        return self.descriptions[0]


@dataclass(frozen=True)
class State:
    """What the phases hand on to each other."""

    people: Mapping[str, Participant]
    clusters: tuple[Cluster, ...] = ()
    termination_reason: str | None = None

    @property
    def terminated_early(self) -> bool:
        return self.termination_reason is not None

    @property
    def active_participants(self) -> list[Participant]:
        """Those still in the study, in order."""
        return [participant for participant in self.people.values() if participant.is_active]

    def participants_in(self, conditions: Container[str]) -> list[Participant]:
        """Active participants of these conditions, in order."""
        return [
            participant
            for participant in self.active_participants
            if participant.condition in conditions
        ]

    def with_updates(self, changed: Iterable[Participant]) -> State:
        """The state with these participants' records replaced."""
        return replace(
            self, people={**self.people, **{participant.id: participant for participant in changed}}
        )

    def clusters_of(self, option: str) -> list[Cluster]:
        """The described clusters of an option."""
        return [cluster for cluster in self.clusters if cluster.option == option]

    def votes(self) -> Counter[str]:
        """First votes per option."""
        return Counter(
            participant.initial_choice
            for participant in self.people.values()
            if participant.initial_choice
        )


def quote_topic(config: CrossPollinationConfig) -> Any:
    """Return the topic for use in prompts."""
    return quote_all(config.topic, "material", "study.topic")


def quote_options(options: Iterable[str]) -> list[str]:
    """Return options in their order for use in prompts."""
    return [quote_value(option, "option", "study.topic.options") for option in options]


def available_seats(config: CrossPollinationConfig, _folder: Path) -> list[Seat]:
    """The participants whom people could play, with their conditions."""
    arms = _assign_arms(config, generator(config.random_seed, ("assignment",)))
    return [Seat(who, condition=arm) for who, arm in arms.items()]


def _assign_arms(config: CrossPollinationConfig, rng: np.random.Generator) -> dict[str, str]:
    """`p_0001` … with their conditions."""
    ids = [f"p_{key:04d}" for key in range(1, config.participant_count + 1)]
    return assign_conditions(ids, tuple(config.condition_designs), rng)


async def recruit_participants(session: Session[CrossPollinationConfig]) -> State:
    """Participants `p_0001` … with condition and persona."""
    config = session.config
    arms = _assign_arms(config, session.child("assignment").rng)
    await session.seal("assignment", arms)
    draws = await _summary_draws(session, arms)
    personas = await _load_personas(session)
    await session.seal("personas", {persona.id: digest(persona.text).hex() for persona in personas})
    return State(
        {
            who: Participant(who, arms[who], session.store(persona), summary_draw=draws.get(who))
            for who, persona in zip(arms, personas, strict=True)
        }
    )


async def _summary_draws(
    session: Session[CrossPollinationConfig], arms: Mapping[str, str]
) -> dict[str, int]:
    """Which draw of the summaries each reader is shown; even within each condition."""
    config, found = session.config, dict[str, int]()
    draws = [str(n) for n in range(1, config.summary_draws + 1)]
    for arm in config.conditions_with("summaries"):
        own = [who for who, condition in arms.items() if condition == arm]
        dealt = assign_conditions(own, draws, session.child("summary_draws", arm).rng)
        found |= {who: int(draw) for who, draw in dealt.items()}
    if config.summary_draws > 1:
        await session.seal("summary_draws", found)
    return found


async def _load_personas(session: Session[CrossPollinationConfig]) -> list[Persona]:
    """The personas of this run: those written down when it started, or newly drawn."""
    saved = session.run_folder / PERSONAS
    if saved.exists():
        rows = json.loads(saved.read_text("utf-8"))["personas"]
        return [Persona.from_json(row) for row in rows]
    personas = await _draw_personas(session)
    session.write_json(PERSONAS, {"personas": (persona.to_json() for persona in personas)})
    return personas


async def _draw_personas(session: Session[CrossPollinationConfig]) -> list[Persona]:
    named, n = session.config.personas, session.config.participant_count
    if named.source == "grounded" and named.file:
        people = PersonaGenerator(panel=read_panel(_personas_file(session)))
        return people.personas(n, session.child("recruitment").rng)
    if named.are_generated:
        return find_persona_source(named.source)(n, session.child("recruitment").rng)
    if named.source == "table":
        file = _personas_file(session)
        rng = session.child("recruitment").rng
        rows = table.read_personas(file)
        if any("first_vote" in person.extra for person in rows):
            hint = "rename or delete the column; folkmoot new --from-people replays known answers"
            message = "first votes are asked here, and never taken from a table"
            raise InputError(Problem(message, str(file), key="first_vote", hint=hint))
        return draw_personas(rows, n, rng, source=file)
    try:
        return await _from_persona_hub(session)
    except InputError as error:
        if named.source == "persona_hub" or named.file or not session.is_synthetic(RECRUITER.role):
            raise
        session.warn(f"{error} Personas are made from quotas instead (personas: source: quota).")
        return quota.make(n, session.child("quota").rng)


def _personas_file(session: Session[CrossPollinationConfig]) -> Path:
    return session.study_folder / Path(session.config.personas.file or "").expanduser()


async def _from_persona_hub(session: Session[CrossPollinationConfig]) -> list[Persona]:
    """n personas from the pool, filled up first to 1.5 × n; or n fresh ones without a pool."""
    scope, n = session.child("recruitment"), session.config.participant_count
    if not session.config.use_persona_storage:
        return (await _enrich_lines(session, scope, n, ()))[:n]
    path = Path(session.config.personas.pool).expanduser()
    if session.is_synthetic(RECRUITER.role):  # its portraits get a pool of their own
        path = path.with_suffix(f".synthetic{path.suffix}")
    pool = Pool(path)
    lacking = pool.missing_count(n)
    if lacking:
        scope.log(f"the pool {pool.path} lacks {lacking} of {target_pool_size(n)} personas")
        known = [persona.key for persona in pool.load_personas()]
        pool.add_personas(await _enrich_lines(session, scope, lacking, known))
    return draw_personas(pool.load_personas(), n, session.child("selection").rng)


async def _enrich_lines(
    session: Session[CrossPollinationConfig], scope: Scope, count: int, known: Sequence[str]
) -> list[Persona]:
    """n raw lines, each with demographics and a portrait by the model."""
    config = session.config
    path = (
        _personas_file(session)
        if config.personas.file is not None
        else await persona_hub.fetch_file(config.personas.url or persona_hub.URL)
    )
    lines, reading = persona_hub.sample_lines(path, count, scope.rng, exclude=known)
    if reading.broken:
        scope.warn(f"{path}: skipped {reading.broken} broken lines of {reading.lines}")
    scope.log(f"{reading.not_english} of {reading.examined} lines examined are not in English")
    overrides = session.study_folder / config.prompts if config.prompts else None

    async def enrich_line(scope: Scope, line: str) -> Persona | Missing:
        return await enrich_persona(line, scope, prompts=overrides)

    found = await scope.map(lines, enrich_line, key=key_of)
    personas = [p for p in found.values() if isinstance(p, Persona)]
    if len(personas) < count:
        lacking = count - len(personas)
        scope.warn(f"could not enrich {lacking} personas; drawing others in their place")
        rng = session.child("spare").rng
        spare, _ = persona_hub.sample_lines(path, lacking, rng, exclude=[*known, *lines])
        found = await session.child("spare_recruitment").map(spare, enrich_line, key=key_of)
        personas += [p for p in found.values() if isinstance(p, Persona)]
    if len(personas) < count:
        raise InputError(
            f"personas: {count} are needed, only {len(personas)} could be enriched; see run.log"
        )
    return personas
