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
from folkmoot.engine.seats.seats import Playable
from folkmoot.engine.session.session import Scope, Session
from folkmoot.errors import InputError, Problem
from folkmoot.models.request import FloatArray
from folkmoot.people.assignment import assign_conditions
from folkmoot.people.enrichment import RECRUITER, enrich, key_of
from folkmoot.people.persona import Persona
from folkmoot.people.pool import Pool, pool_target, select
from folkmoot.people.sources import find_maker, persona_hub, quota, table
from folkmoot.people.sources.grounded import PersonaGenerator
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.provenance import quote, quote_all
from folkmoot.randomness import digest, generator
from folkmoot.storage.disk_store import Kept
from folkmoot.storage.run_folder import PERSONAS
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig

NOTHING = Kept("")
PENDING, COMPLETE, FAILED, SKIPPED = "pending", "complete", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Participant:
    """One participant's record; phases return changed copies. Long texts are kept out of memory."""

    participant_id: str
    condition: str
    profile: Kept[Persona]
    # From the first vote on: the options in this participant's order, and the system prompt on
    # which those of all phases build.
    options: tuple[str, ...] = ()
    told: Kept[str] = NOTHING
    initial_choice: str | None = None
    final_choice: str | None = None
    interview: Kept[Transcript] | None = None
    dialogue: Kept[Transcript] | None = None
    opposition_view: str | None = None
    summary_draw: int | None = None
    page: Kept[str] | None = None
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
    def clarification(self) -> Transcript | None:
        """The interview of phase 3."""
        return None if self.interview is None else self.interview.get()

    @property
    def adversarial(self) -> Transcript | None:
        """The dialogue of phase 7."""
        return None if self.dialogue is None else self.dialogue.get()

    @property
    def position_changed(self) -> bool | None:
        """Whether the final choice differs from the first; None without a final choice."""
        if self.final_choice is None or self.initial_choice is None:
            return None
        return self.final_choice != self.initial_choice

    @property
    def active(self) -> bool:
        """Still in the study."""
        return self.status in (PENDING, COMPLETE)

    @property
    def number(self) -> int:
        """Their place among all participants, from 0."""
        return int(self.id.removeprefix("p_")) - 1

    @property
    def reasons(self) -> Reasons:
        """The little of them that parts on other machines are sent of everybody."""
        return Reasons(self.id, self.initial_choice, self.individual_summary)

    @property
    def marks(self) -> dict[str, Any]:
        """The columns of the study that tell the participant's rows in `utterances` from others."""
        return {"participant_id": self.id, "condition": self.condition}

    def speaker(self, system: str) -> Speaker:
        """The participant as the models see it."""
        return Speaker(self.id, "Participant", "participant", system)

    def with_(self, **changes: Any) -> Participant:
        return replace(self, **changes)

    def with_answer(self, name: str, answer: object) -> Participant:
        """The participant with an answer under this name; where it is missing, with the reason."""
        if not isinstance(answer, Missing):
            return replace(self, **{name: answer})  # type: ignore[arg-type]
        return replace(self, missing_answers={**self.missing_answers, name: answer.reason})

    def without_vote(self, name: str, where: str, missing: Missing) -> Participant:
        """Out of the study without this vote: skipped if they declined it, else failed."""
        p = self.with_answer(name, missing)
        if missing.reason in WAYS_OUT:
            return p.skipped(f"{where}: {missing.reason}")
        return p.failed(where, missing)

    def failed(self, where: str, missing: Missing) -> Participant:
        """Out of the study, with the reason."""
        detail = f": {missing.detail}" if missing.detail else ""
        return self.with_(status=FAILED, error_message=f"{where}: {missing.reason}{detail}")

    def skipped(self, reason: str) -> Participant:
        return self.with_(status=SKIPPED, error_message=reason)


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
    def active(self) -> list[Participant]:
        """Those still in the study, in order."""
        return [p for p in self.people.values() if p.active]

    def chosen(self, conditions: Container[str]) -> list[Participant]:
        """Active participants of these conditions, in order."""
        return [p for p in self.active if p.condition in conditions]

    def updated(self, changed: Iterable[Participant]) -> State:
        """The state with these participants' records replaced."""
        return replace(self, people={**self.people, **{p.id: p for p in changed}})

    def clusters_of(self, option: str) -> list[Cluster]:
        """The described clusters of an option."""
        return [c for c in self.clusters if c.option == option]

    def votes(self) -> Counter[str]:
        """First votes per option."""
        return Counter(p.initial_choice for p in self.people.values() if p.initial_choice)


def quote_topic(config: CrossPollinationConfig) -> Any:
    """Return the topic for use in prompts."""
    return quote_all(config.topic, "material", "study.topic")


def quote_options(options: Iterable[str]) -> list[str]:
    """Return options in their order for use in prompts."""
    return [quote(option, "option", "study.topic.options") for option in options]


def places(config: CrossPollinationConfig, _folder: Path) -> list[Playable]:
    """The participants whom people could play, with their conditions."""
    arms = _arms(config, generator(config.random_seed, ("assignment",)))
    return [Playable(who, condition=arm) for who, arm in arms.items()]


def _arms(config: CrossPollinationConfig, rng: np.random.Generator) -> dict[str, str]:
    """`p_0001` … with their conditions."""
    ids = [f"p_{k:04d}" for k in range(1, config.n + 1)]
    return assign_conditions(ids, tuple(config.arms), rng)


async def recruit(session: Session[CrossPollinationConfig]) -> State:
    """Participants `p_0001` … with condition and persona."""
    config = session.config
    arms = _arms(config, session.at("assignment").rng)
    await session.seal("assignment", arms)
    draws = await _summary_draws(session, arms)
    personas = await _people(session)
    await session.seal("personas", {p.id: digest(p.text).hex() for p in personas})
    return State(
        {
            who: Participant(who, arms[who], session.keep(p), summary_draw=draws.get(who))
            for who, p in zip(arms, personas, strict=True)
        }
    )


async def _summary_draws(
    session: Session[CrossPollinationConfig], arms: Mapping[str, str]
) -> dict[str, int]:
    """Which draw of the summaries each reader is shown; even within each condition."""
    config, found = session.config, dict[str, int]()
    draws = [str(n) for n in range(1, config.summary_draws + 1)]
    for arm in config.those_with("summaries"):
        own = [who for who, condition in arms.items() if condition == arm]
        dealt = assign_conditions(own, draws, session.at("summary_draws", arm).rng)
        found |= {who: int(draw) for who, draw in dealt.items()}
    if config.summary_draws > 1:
        await session.seal("summary_draws", found)
    return found


async def _people(session: Session[CrossPollinationConfig]) -> list[Persona]:
    """The personas of this run: those written down when it started, or newly drawn."""
    saved = session.run_dir / PERSONAS
    if saved.exists():
        rows = json.loads(saved.read_text("utf-8"))["personas"]
        return [Persona.from_json(row) for row in rows]
    personas = await _drawn(session)
    session.write_json(PERSONAS, {"personas": (p.to_json() for p in personas)})
    return personas


async def _drawn(session: Session[CrossPollinationConfig]) -> list[Persona]:
    named, n = session.config.personas, session.config.n
    if named.source == "grounded" and named.file:
        people = PersonaGenerator(panel=read_panel(_file(session)))
        return people.personas(n, session.at("recruitment").rng)
    if named.made:
        return find_maker(named.source)(n, session.at("recruitment").rng)
    if named.source == "table":
        file = _file(session)
        rng = session.at("recruitment").rng
        rows = table.read(file)
        if any("first_vote" in person.extra for person in rows):
            hint = "rename or delete the column; folkmoot new --from-people replays known answers"
            message = "first votes are asked here, and never taken from a table"
            raise InputError(Problem(message, str(file), key="first_vote", hint=hint))
        return select(rows, n, rng, source=file)
    try:
        return await _from_persona_hub(session)
    except InputError as error:
        if named.source == "persona_hub" or named.file or not session.synthetic(RECRUITER.role):
            raise
        session.warn(f"{error} Personas are made from quotas instead (personas: source: quota).")
        return quota.make(n, session.at("quota").rng)


def _file(session: Session[CrossPollinationConfig]) -> Path:
    return session.study_dir / Path(session.config.personas.file or "").expanduser()


async def _from_persona_hub(session: Session[CrossPollinationConfig]) -> list[Persona]:
    """n personas from the pool, filled up first to 1.5 × n; or n fresh ones without a pool."""
    scope, n = session.at("recruitment"), session.config.n
    if not session.config.use_persona_storage:
        return (await _enriched(session, scope, n, ()))[:n]
    path = Path(session.config.personas.pool).expanduser()
    if session.synthetic(RECRUITER.role):  # its portraits get a pool of their own
        path = path.with_suffix(f".synthetic{path.suffix}")
    pool = Pool(path)
    lacking = pool.lacking(n)
    if lacking:
        scope.log(f"the pool {pool.path} lacks {lacking} of {pool_target(n)} personas")
        known = [p.key for p in pool.load()]
        pool.add(await _enriched(session, scope, lacking, known))
    return select(pool.load(), n, session.at("selection").rng)


async def _enriched(
    session: Session[CrossPollinationConfig], scope: Scope, n: int, known: Sequence[str]
) -> list[Persona]:
    """n raw lines, each with demographics and a portrait by the model."""
    config = session.config
    path = (
        _file(session)
        if config.personas.file is not None
        else await persona_hub.fetch(config.personas.url or persona_hub.URL)
    )
    lines, reading = persona_hub.sample(path, n, scope.rng, exclude=known)
    if reading.broken:
        scope.warn(f"{path}: skipped {reading.broken} broken lines of {reading.lines}")
    scope.log(f"{reading.not_english} of {reading.examined} lines examined are not in English")
    overrides = session.study_dir / config.prompts if config.prompts else None

    async def enrich_line(scope: Scope, line: str) -> Persona | Missing:
        return await enrich(line, scope, prompts=overrides)

    found = await scope.each(lines, enrich_line, key=key_of)
    personas = [p for p in found.values() if isinstance(p, Persona)]
    if len(personas) < n:
        lacking = n - len(personas)
        scope.warn(f"could not enrich {lacking} personas; drawing others in their place")
        rng = session.at("spare").rng
        spare, _ = persona_hub.sample(path, lacking, rng, exclude=[*known, *lines])
        found = await session.at("spare_recruitment").each(spare, enrich_line, key=key_of)
        personas += [p for p in found.values() if isinstance(p, Persona)]
    if len(personas) < n:
        raise InputError(
            f"personas: {n} are needed, only {len(personas)} could be enriched; see run.log"
        )
    return personas
