"""Participants, recruitment, clusters of participants, and the state that phases pass on.

The personas of a run are written to `personas.json`. A resumed run reads this file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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

# Placeholder of the system prompt until the first vote renders it.
EMPTY_VALUE = StoredValue("")
PENDING, COMPLETE, FAILED, SKIPPED = "pending", "complete", "failed", "skipped"
# How the reason of participants begins whom the end of the study skipped.
TERMINATED_EARLY = "terminated early: "


class VoteRecord(Protocol):
    """The attributes of a participant's record that are needed to count votes."""

    @property
    def status(self) -> str: ...
    @property
    def position_changed(self) -> bool | None: ...


def has_voted_twice(person: VoteRecord) -> bool:
    """Return whether a participant voted twice and did not drop out."""
    # Rates of change count only these participants.
    return person.position_changed is not None and person.status == COMPLETE


def count_changes(people: Iterable[VoteRecord]) -> tuple[int, int]:
    """Return two numbers: the participants who changed their choice, and those who voted twice."""
    changes = [bool(person.position_changed) for person in people if has_voted_twice(person)]
    return sum(changes), len(changes)


@dataclass(frozen=True, slots=True)
class Participant:
    """The record of one participant.

    A field is None until a phase sets it.
    """

    # Each phase returns a changed copy. Long texts stay on disk (`StoredValue`) until they are
    # read.

    participant_id: str
    condition: str
    profile: StoredValue[Persona]
    # `options` and `stored_system_prompt` are set by the first vote. `options` has the
    # participant's own order. The system prompts of all later phases extend the stored one.
    options: tuple[str, ...] = ()
    stored_system_prompt: StoredValue[str] = EMPTY_VALUE
    initial_choice: str | None = None
    final_choice: str | None = None
    interview: StoredValue[Transcript] | None = None
    dialogue: StoredValue[Transcript] | None = None
    opposition_view: str | None = None
    summary_draw: int | None = None
    page: StoredValue[str] | None = None
    individual_summary: str | None = None
    # A one-dimensional array.
    embedding: FloatArray | None = None
    cluster_id: str | None = None
    status: str = PENDING
    error_message: str | None = None
    # Answers that `findings/decision_quality.py` reads. The study file decides which are asked.
    confidence_before: float | None = None
    confidence_after: float | None = None
    ranking_before: list[str] | None = None
    ranking_after: list[str] | None = None
    restated_option: str | None = None
    restatement: str | None = None
    delayed_choice: str | None = None
    # True after the row of this participant was recorded. Its columns must not change any more.
    is_recorded: bool = False
    # Maps a field to the reason of its missing answer: a way out that the participant took, or a
    # parse failure.
    missing_answers: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.participant_id

    @property
    def persona(self) -> Persona:
        return self.profile.load()

    @property
    def system(self) -> str:
        """The system prompt that tells the model to play this participant."""
        return self.stored_system_prompt.load()

    @property
    def cross_pollination_content(self) -> str | None:
        """Return the page of summaries that this participant is shown, or None."""
        return None if self.page is None else self.page.load()

    @property
    def clarification_transcript(self) -> Transcript | None:
        """Return the transcript of the interview, or None if there was none."""
        return None if self.interview is None else self.interview.load()

    @property
    def adversarial_transcript(self) -> Transcript | None:
        """Return the transcript of the adversarial dialogue, or None if there was none."""
        return None if self.dialogue is None else self.dialogue.load()

    @property
    def position_changed(self) -> bool | None:
        """Return whether the final choice differs from the first.

        Returns None if a vote is missing.
        """
        if self.final_choice is None or self.initial_choice is None:
            return None
        return self.final_choice != self.initial_choice

    @property
    def is_active(self) -> bool:
        """Return True while the participant is in the study."""
        return self.status in (PENDING, COMPLETE)

    @property
    def place_in_order(self) -> int:
        """Return the index of this participant among all participants, from 0."""
        return int(self.id.removeprefix("p_")) - 1

    @property
    def stated_reasons(self) -> Reasons:
        """Return this participant's first choice and the summary of the reasons for this choice."""
        return Reasons(self.id, self.initial_choice, self.individual_summary)

    @property
    def utterance_columns(self) -> dict[str, Any]:
        """Return the columns that this study adds to this participant's rows of `utterances`."""
        return {"participant_id": self.id, "condition": self.condition}

    def speaker(self, system: str) -> Speaker:
        """Return the participant as a speaker with this system prompt."""
        return Speaker(self.id, "Participant", "participant", system)

    def with_changes(self, **changes: Any) -> Participant:
        return replace(self, **changes)

    def with_answer(self, name: str, answer: object) -> Participant:
        """Return a copy of the record in which the field `name` holds `answer`."""
        # If the answer is missing, the copy holds its reason in `missing_answers`.
        if not isinstance(answer, Missing):
            return replace(self, **{name: answer})  # type: ignore[arg-type]
        return replace(self, missing_answers={**self.missing_answers, name: answer.reason})

    def without_vote(self, name: str, stage: str, missing: Missing) -> Participant:
        """Return a copy of the record with a missing vote, and with the status skipped or failed.

        - `name`: the field of the vote.
        - `stage`: the stage of the vote, for the error message.
        - `missing`: the missing answer, which gives the reason.
        """
        # The status is skipped if the participant declined to vote, and failed otherwise.
        participant = self.with_answer(name, missing)
        if missing.reason in WAYS_OUT:
            return participant.with_skip(f"{stage}: {missing.reason}")
        return participant.with_failure(stage, missing)

    def with_failure(self, stage: str, missing: Missing) -> Participant:
        """Return a copy of the record with the status failed, and with the reason."""
        detail = f": {missing.detail}" if missing.detail else ""
        return self.with_changes(status=FAILED, error_message=f"{stage}: {missing.reason}{detail}")

    def with_skip(self, reason: str) -> Participant:
        """Return a copy of the record with the status skipped, and with the reason."""
        return self.with_changes(status=SKIPPED, error_message=reason)


class Reasons(NamedTuple):
    """The first choice of one participant, and a summary of the reasons for this choice."""

    # Small, because it is sent to worker machines.

    id: str
    choice: str | None
    summary: str | None


@dataclass(frozen=True)
class Cluster:
    """A group of participants who chose the same option for similar reasons."""

    id: str
    option: str
    # One for each draw of the summaries. Empty if the model gave none. A description combines words
    # of several participants, so its source is the summarizer.
    descriptions: tuple[str, ...]
    # The embedding of the first description, a one-dimensional array.
    embedding: FloatArray | None
    member_ids: tuple[str, ...]

    @property
    def description(self) -> str:
        """Return the description of the cluster in the first version of the summaries."""
        return self.descriptions[0]


@dataclass(frozen=True)
class State:
    """All data that one phase passes to the next."""

    # The participants by id.
    people: Mapping[str, Participant]
    clusters: tuple[Cluster, ...] = ()
    # The reason for an early end of the study, or None.
    termination_reason: str | None = None

    @property
    def terminated_early(self) -> bool:
        return self.termination_reason is not None

    @property
    def active_participants(self) -> list[Participant]:
        """Return the participants who are still in the study, in order."""
        return [participant for participant in self.people.values() if participant.is_active]

    def participants_in(self, conditions: Container[str]) -> list[Participant]:
        """Return the participants of `conditions` who are still in the study, in order."""
        return [
            participant
            for participant in self.active_participants
            if participant.condition in conditions
        ]

    def with_updates(self, changed: Iterable[Participant]) -> State:
        """Return a copy of the state in which `changed` replaces the records with equal ids."""
        return replace(
            self, people={**self.people, **{participant.id: participant for participant in changed}}
        )

    def clusters_of(self, option: str) -> list[Cluster]:
        """Return the clusters of the participants who chose an option."""
        return [cluster for cluster in self.clusters if cluster.option == option]

    def votes(self) -> Counter[str]:
        """Return how many participants chose each option in their first vote."""
        return Counter(
            participant.initial_choice
            for participant in self.people.values()
            if participant.initial_choice
        )


def quote_topic(config: CrossPollinationConfig) -> Any:
    """Return the topic for use in prompts, made of `SourcedText` (strings with a known source)."""
    return quote_all(config.topic, "material", "study.topic")


def quote_options(options: Iterable[str]) -> list[str]:
    """Return the options in order, each as a `SourcedText` (a string with a known source)."""
    return [quote_value(option, "option", "study.topic.options") for option in options]


def available_seats(config: CrossPollinationConfig, _folder: Path) -> list[Seat]:
    """Return one seat, a place that a human can take, for each participant."""
    assignment = _draw_assignment(config, generator(config.random_seed, ("assignment",)))
    return [
        Seat(participant_id, condition=condition)
        for participant_id, condition in assignment.items()
    ]


def _draw_assignment(config: CrossPollinationConfig, rng: np.random.Generator) -> dict[str, str]:
    ids = [f"p_{number:04d}" for number in range(1, config.participant_count + 1)]
    return assign_conditions(ids, tuple(config.condition_designs), rng)


async def recruit_participants(session: Session[CrossPollinationConfig]) -> State:
    """Assign conditions, load personas, and return the state with which the first phase starts."""
    # Assignment and personas are stored with hashes, so that a later change is noticed.
    config = session.config
    assignment = _draw_assignment(config, session.child("assignment").rng)
    await session.seal("assignment", assignment)
    draws = await _summary_draws(session, assignment)
    personas = await _load_personas(session)
    await session.seal("personas", {persona.id: digest(persona.text).hex() for persona in personas})
    return State(
        {
            participant_id: Participant(
                participant_id,
                assignment[participant_id],
                session.store(persona),
                summary_draw=draws.get(participant_id),
            )
            for participant_id, persona in zip(assignment, personas, strict=True)
        }
    )


async def _summary_draws(
    session: Session[CrossPollinationConfig], assignment: Mapping[str, str]
) -> dict[str, int]:
    # Each draw has the same number of readers in each condition. Draws are numbered from 1.
    config, draw_of = session.config, dict[str, int]()
    draws = [str(n) for n in range(1, config.summary_draws + 1)]
    for condition in config.conditions_with("summaries"):
        ids = [
            participant_id
            for participant_id, assigned in assignment.items()
            if assigned == condition
        ]
        drawn = assign_conditions(ids, draws, session.child("summary_draws", condition).rng)
        draw_of |= {participant_id: int(draw) for participant_id, draw in drawn.items()}
    if config.summary_draws > 1:
        await session.seal("summary_draws", draw_of)
    return draw_of


async def _load_personas(session: Session[CrossPollinationConfig]) -> list[Persona]:
    # A resumed run reads the file, because a second draw could give other personas.
    saved = session.run_folder / PERSONAS
    if saved.exists():
        rows = json.loads(saved.read_text("utf-8"))["personas"]
        return [Persona.from_json(row) for row in rows]
    personas = await _draw_personas(session)
    session.write_json(PERSONAS, {"personas": (persona.to_json() for persona in personas)})
    return personas


async def _draw_personas(session: Session[CrossPollinationConfig]) -> list[Persona]:
    source_config, n = session.config.personas, session.config.participant_count
    if source_config.source == "grounded" and source_config.file:
        persona_generator = PersonaGenerator(panel=read_panel(_personas_file(session)))
        return persona_generator.personas(n, session.child("recruitment").rng)
    if source_config.are_generated:
        return find_persona_source(source_config.source)(n, session.child("recruitment").rng)
    if source_config.source == "table":
        file = _personas_file(session)
        rng = session.child("recruitment").rng
        rows = table.read_personas(file, with_first_answers=source_config.first_answers)
        if any("first_vote" in person.extra for person in rows):
            # A recorded first vote would be ignored in silence, and the researcher would take the
            # simulated vote for it.
            hint = "rename or delete it; folkmoot new --from-people makes a study of known answers"
            message = "the column would be ignored, because every participant is asked for a vote"
            raise InputError(Problem(message, str(file), key="first_vote", hint=hint))
        if weights := table.describe_unused_weights(rows, file):
            session.warn(weights)
        return draw_personas(rows, n, rng, source=file)
    try:
        return await _from_persona_hub(session)
    except InputError as error:
        if (
            source_config.source == "persona_hub"
            or source_config.file
            or not session.is_synthetic(RECRUITER.role)
        ):
            raise
        # Only `auto` in a synthetic run falls back to quotas. Where the study file names
        # `persona_hub` or a file, or a paid model would be asked, a substitute would be a different
        # study.
        session.warn(f"{error} Personas are made from quotas instead (personas: source: quota).")
        return quota.make(n, session.child("quota").rng)


def _personas_file(session: Session[CrossPollinationConfig]) -> Path:
    return session.study_folder / Path(session.config.personas.file or "").expanduser()


async def _from_persona_hub(session: Session[CrossPollinationConfig]) -> list[Persona]:
    scope, n = session.child("recruitment"), session.config.participant_count
    if not session.config.use_persona_storage:
        return (await _enrich_lines(session, scope, n, ()))[:n]
    path = Path(session.config.personas.pool).expanduser()
    # The portraits of the embedded respondent must not reach runs with a real model, so they have a
    # pool of their own.
    if session.is_synthetic(RECRUITER.role):
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
    # One model call for each raw line of Persona Hub. Lines in `known` are not used.
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

    enriched = await scope.map(lines, enrich_line, key=key_of)
    personas = [persona for persona in enriched.values() if isinstance(persona, Persona)]
    if len(personas) < count:
        lacking = count - len(personas)
        scope.warn(f"{lacking} personas could not be enriched; others are drawn in their place")
        rng = session.child("spare").rng
        spare, _ = persona_hub.sample_lines(path, lacking, rng, exclude=[*known, *lines])
        enriched = await session.child("spare_recruitment").map(spare, enrich_line, key=key_of)
        personas += [persona for persona in enriched.values() if isinstance(persona, Persona)]
    if len(personas) < count:
        raise InputError(
            f"personas: {count} are needed, only {len(personas)} could be enriched; see run.log"
        )
    return personas
