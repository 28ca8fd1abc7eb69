"""The moderator: plans the guide, asks, draws out the quiet, probes, and gives the floor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from folkmoot.conversation.answers import Json, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.focus_group import speaking
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import MODERATOR, DiscussionMessage, heard
from folkmoot.studies.focus_group.participant import ANSWER_TOKENS, Participant

Guide = Mapping[DiscussionPhase, tuple[str, ...]]
# Of surprising answers about one in five is followed up. The draw is somewhat likelier, because
# about every fourth surprising answer is the last that its question has room for.
PROBE_SHARE = 0.27
# How much of the talk the moderator has in mind when asking.
REMEMBERED = 12
_NUMBERING = re.compile(
    r"^\s*(?:\**(?:moderator|interviewer)\**\s*:\**\s*)?"
    r"(?:(?:question|q)\s*\d+\s*[.:)\-–]\s*|\(?\d{1,2}[.)]\s+|[-*•]\s+)?",
    re.IGNORECASE,
)


class PhaseGuide(BaseModel):
    """The questions planned for one phase."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    questions: tuple[str, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Moderator:
    """Runs the discussion. `names` maps the ids of those at the table to their first names."""

    config: DiscussionConfig
    names: Mapping[str, str]
    system: str = ""
    discussion_guide: Guide = field(default_factory=dict)

    @property
    def speaker(self) -> Speaker:
        """The moderator as the engine's conversations know it."""
        return Speaker(
            MODERATOR,
            "Moderator",
            role="moderator",
            system=self.system,
            max_tokens=self.config.max_tokens or ANSWER_TOKENS,
        )

    async def prepared(self, scope: Scope) -> Moderator:
        """This moderator with the guide in hand."""
        system = scope.prompt(
            "moderator_system",
            category=self.config.category,
            concept=self.config.product_concept,
            names=list(self.names.values()),
        )
        ready = Moderator(self.config, self.names, system)
        guide = await ready.generate_discussion_guide(scope)
        return Moderator(self.config, self.names, system, guide)

    async def generate_discussion_guide(self, scope: Scope) -> Guide:
        """The questions of every phase, planned before anybody has spoken.

        A phase for which no usable plan comes gets the packaged questions of its style.
        """
        guide: dict[DiscussionPhase, tuple[str, ...]] = {}
        for phase in self.config.phases:
            prompt = scope.prompt(
                "moderator_guide",
                phase=phase.value,
                number=self.config.questions_per_phase,
                concept=self.config.product_concept,
                category=self.config.category,
                stimulus=self.config.stimulus_material,
            )
            plan = await scope.at(phase.value).ask(self.speaker, prompt, answer=Json(PhaseGuide))
            planned = () if isinstance(plan, Missing) else plan.questions
            guide[phase] = self._filled(phase, [unnumbered(q) for q in planned])
        return guide

    def _filled(self, phase: DiscussionPhase, planned: Sequence[str]) -> tuple[str, ...]:
        """Exactly as many questions as wanted; the packaged ones stand in for missing ones."""
        usable = list(dict.fromkeys(q for q in planned if q))
        spare = [q.format(category=self.config.category) for q in STOCK[phase] if q not in usable]
        while len(usable) < self.config.questions_per_phase:
            usable.append(spare.pop(0) if spare else STOCK[phase][-1])
        return tuple(usable[: self.config.questions_per_phase])

    async def generate_question(
        self,
        scope: Scope,
        phase: DiscussionPhase,
        index: int,
        so_far: Sequence[DiscussionMessage],
        quiet: Sequence[str],
    ) -> str:
        """The next question: the guide's, taken up in the light of what was said, with the names
        of quiet people who should be drawn out. Falls back on the guide's own words.
        """
        planned = self.discussion_guide[phase][index]
        prompt = scope.prompt(
            "moderator_question",
            phase=phase.value,
            opening=not so_far,
            phase_begins=index == 0,
            planned=planned,
            concept=self.config.product_concept,
            category=self.config.category,
            stimulus=self.config.stimulus_material
            if phase is DiscussionPhase.REACTION and index == 0
            else None,
            quiet=list(quiet),
            last_phase=phase is self.config.phases[-1],
        )
        said = await scope.ask(self.speaker, prompt, heard=heard(tuple(so_far), REMEMBERED))
        question = "" if isinstance(said, Missing) else unnumbered(said)
        return question or planned

    async def generate_followup(
        self,
        scope: Scope,
        response: DiscussionMessage,
        so_far: Sequence[DiscussionMessage],
    ) -> str | None:
        """A probe of one answer, or None: after one in five surprising answers, seeded."""
        drawn = scope.rng.random() < PROBE_SHARE
        if not (response.surprising and drawn):
            return None
        prompt = scope.prompt(
            "moderator_followup",
            who=response.speaker_name,
            answer=response.content,
            phase=response.phase.value,
        )
        said = await scope.ask(self.speaker, prompt, heard=heard(tuple(so_far), REMEMBERED))
        return None if isinstance(said, Missing) else unnumbered(said) or None

    def quiet(self, so_far: Sequence[DiscussionMessage], questions_left: int = 0) -> list[str]:
        """First names of those who should be drawn out, the quietest first."""
        return [self.names[who] for who in self.floor(so_far, questions_left).quiet()]

    def floor(self, so_far: Sequence[DiscussionMessage], questions_left: int) -> speaking.Floor:
        """Who has said how much."""
        spoken = dict.fromkeys(self.names, 0)
        words = dict.fromkeys(self.names, 0)
        for message in so_far:
            if message.by_participant:
                spoken[message.speaker_id] += 1
                words[message.speaker_id] += message.words
        return speaking.Floor(spoken, words, questions_left)

    def select_respondents(
        self,
        participants: Sequence[Participant],
        question: str,
        so_far: Sequence[DiscussionMessage],
        questions_left: int,
        rng: np.random.Generator,
    ) -> list[Participant]:
        """Those who answer a question, in their order: see `speaking.choose`."""
        called = speaking.addressed(question, self.names)
        willing = [p.id for p in participants if p.should_speak(rng, addressed=p.id in called)]
        limits = speaking.room(len(participants), self.config.responses_cap)
        order = speaking.choose(willing, called, self.floor(so_far, questions_left), limits, rng)
        by_id = {p.id: p for p in participants}
        return [by_id[who] for who in order]


def unnumbered(text: str) -> str:
    """A question without "Moderator:", number, bullet or quotation marks around it."""
    bare = _NUMBERING.sub("", text.strip(), count=1).strip()
    if len(bare) > 1 and (bare[0], bare[-1]) in {('"', '"'), ("“", "”")}:
        bare = bare[1:-1]
    return " ".join(bare.split())


# Questions in the style of each phase, for when no plan can be had. `{category}` is filled in.
STOCK: dict[DiscussionPhase, tuple[str, ...]] = {
    DiscussionPhase.WARMUP: (
        "Tell us a little about yourself, and about your experience with {category}.",
        "When did you last buy something in this area, and how did it go?",
    ),
    DiscussionPhase.EXPLORATION: (
        "What comes to mind when you hear about this idea?",
        "Who do you picture using it, and when?",
    ),
    DiscussionPhase.DEEP_DIVE: (
        "Which part of it matters most to you, and which part worries you?",
        "What would be a fair price, and what would be too much?",
    ),
    DiscussionPhase.REACTION: (
        "Now that you have seen it, would you want it for yourself?",
        "What, if anything, would have to change before you took it seriously?",
    ),
    DiscussionPhase.SYNTHESIS: (
        "If it were available tomorrow, would you buy it? Why, or why not?",
        "What is the one thing that we should take away from today?",
    ),
}
