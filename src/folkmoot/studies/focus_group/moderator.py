"""The moderator: plans the guide, asks, draws out the quiet, probes, and gives the floor.

Below the class: who is asked by name, and who answers a question, as pure functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from folkmoot.conversation.answers import Json, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import MODERATOR, DiscussionMessage, heard
from folkmoot.studies.focus_group.participants import ANSWER_TOKENS, Participant

# About one in five surprising answers is followed up. The draw is somewhat likelier, because
# about every fourth surprising answer is the last that its question has room for.
PROBE_SHARE = 0.27
# How many of the latest messages the moderator has in mind when asking.
REMEMBERED = 12


class PhaseGuide(BaseModel):
    """The questions planned for one phase."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    questions: tuple[str, ...] = Field(min_length=1)


@dataclass
class Moderator:
    """Runs the discussion. `names` maps the ids of those at the table to their first names."""

    config: DiscussionConfig
    names: Mapping[str, str]
    discussion_guide: dict[DiscussionPhase, tuple[str, ...]] = field(default_factory=dict)

    def speaker(self, scope: Scope) -> Speaker:
        """The moderator as the engine's conversations know it."""
        system = scope.prompt(
            "moderator_system",
            category=self.config.category,
            concept=self.config.product_concept,
            names=list(self.names.values()),
        )
        tokens = self.config.max_tokens or ANSWER_TOKENS
        return Speaker(MODERATOR, "Moderator", role="moderator", system=system, max_tokens=tokens)

    async def generate_discussion_guide(self, scope: Scope) -> None:
        """Plan the questions of every phase, before anybody has spoken.

        A phase for which no usable plan comes gets the packaged questions of its style.
        """
        for phase in self.config.phases:
            prompt = scope.prompt(
                "moderator_guide",
                phase=phase.value,
                number=self.config.questions_per_phase,
                concept=self.config.product_concept,
                category=self.config.category,
                stimulus=self.config.stimulus_material,
            )
            at = scope.at(phase.value)
            plan = await at.ask(self.speaker(at), prompt, answer=Json(PhaseGuide))
            planned = () if isinstance(plan, Missing) else plan.questions
            self.discussion_guide[phase] = self._completed(phase, planned)

    def _completed(self, phase: DiscussionPhase, planned: Sequence[str]) -> tuple[str, ...]:
        """Exactly as many questions as wanted; packaged ones stand in for missing ones."""
        usable = list(dict.fromkeys(q for q in map(unnumbered, planned) if q))
        spare = [q.format(category=self.config.category) for q in STOCK[phase] if q not in usable]
        while len(usable) < self.config.questions_per_phase:
            usable.append(spare.pop(0) if spare else STOCK[phase][-1])
        return tuple(usable[: self.config.questions_per_phase])

    async def generate_question(
        self, scope: Scope, phase: DiscussionPhase, index: int, so_far: Sequence[DiscussionMessage]
    ) -> str:
        """The next question: the guide's, taken up in the light of what was said, with the names
        of quiet people to draw out. Falls back on the guide's own words.
        """
        planned = self.discussion_guide[phase][index]
        shown = phase is DiscussionPhase.REACTION and index == 0
        prompt = scope.prompt(
            "moderator_question",
            phase=phase.value,
            opening=not so_far,
            phase_begins=index == 0,
            planned=planned,
            concept=self.config.product_concept,
            category=self.config.category,
            stimulus=self.config.stimulus_material if shown else None,
            quiet=[self.names[who] for who in self.floor(so_far).quiet()],
            last_phase=phase is self.config.phases[-1],
        )
        said = await scope.ask(self.speaker(scope), prompt, heard=heard(so_far, REMEMBERED))
        question = "" if isinstance(said, Missing) else unnumbered(said)
        return question or planned

    async def generate_followup(
        self, scope: Scope, response: DiscussionMessage, so_far: Sequence[DiscussionMessage]
    ) -> str | None:
        """A probe of one answer, or None. About one in five surprising answers is probed, drawn
        from the scope's generator."""
        drawn = scope.rng.random() < PROBE_SHARE
        if not (response.surprising and drawn):
            return None
        prompt = scope.prompt(
            "moderator_followup",
            who=response.speaker_name,
            answer=response.content,
            phase=response.phase.value,
        )
        said = await scope.ask(self.speaker(scope), prompt, heard=heard(so_far, REMEMBERED))
        return None if isinstance(said, Missing) else unnumbered(said) or None

    def select_respondents(
        self,
        participants: Sequence[Participant],
        question: str,
        so_far: Sequence[DiscussionMessage],
        questions_left: int,
        rng: np.random.Generator,
    ) -> list[Participant]:
        """Those who answer a question, in their order: see `choose`."""
        called = addressed(question, self.names)
        willing = [p.id for p in participants if p.should_speak(rng, addressed=p.id in called)]
        limits = room(len(participants), self.config.responses_cap)
        order = choose(willing, called, self.floor(so_far, questions_left), limits, rng)
        by_id = {p.id: p for p in participants}
        return [by_id[who] for who in order]

    def floor(self, so_far: Sequence[DiscussionMessage], questions_left: int = 0) -> Floor:
        """Who has said how much."""
        spoken = dict.fromkeys(self.names, 0)
        words = dict.fromkeys(self.names, 0)
        for message in so_far:
            if message.by_participant:
                spoken[message.speaker_id] += 1
                words[message.speaker_id] += message.words
        return Floor(spoken, words, questions_left)


_NUMBERING = re.compile(
    r"^\s*(?:\**(?:moderator|interviewer)\**\s*:\**\s*)?"
    r"(?:(?:question|q)\s*(?:\d+\s*[.:)\-–]|:)\s*|\(?\d{1,2}[.)]\s+|[-*•]\s+)?",
    re.IGNORECASE,
)


def unnumbered(text: str) -> str:
    """A question without "Moderator:", number, bullet or quotation marks around it."""
    bare = _NUMBERING.sub("", text.strip(), count=1).strip()
    if len(bare) > 1 and (bare[0], bare[-1]) in {('"', '"'), ("“", "”")}:
        bare = bare[1:-1]
    return " ".join(bare.split())


# --- who is asked by name ----------------------------------------------------------------------

_SPOKEN_OF = re.compile(
    r"(?:['’]s\b|(?: just| also| has| have| and \w+)* (?:said|says|mentioned|brought|told|asked|"
    r"asks|put|raised|noted|likes?|thinks?|feels?|has|had|is|was|talked|spoke|described|pointed|"
    r"suggested|made|sees|saw|seem(?:s|ed)|called|worried|worries|wants|wanted|would|shared|gave)\b)"
)
_BEFORE = re.compile(
    r"\b(?:like|as|unlike|than|what|when|that|agree with|to what)\s+$", re.IGNORECASE
)
_A_VERB = re.compile(  # "Will you buy it?", "May I ask …"
    r"\s+(?:i|you|we|he|she|it|they|any\w+|every\w+|some\w+|this|that|these|those|the|there)\b",
    re.IGNORECASE,
)
_THANKED = re.compile(
    r"\b(?:thank|thanks|appreciate|interesting|helpful|good point|fair point|i hear you|got it|"
    r"okay|ok|great|lovely|right|noted|i see|true|wonderful|good)\b",
    re.IGNORECASE,
)


def named(text: str, names: Mapping[str, str]) -> list[str]:
    """Ids of those whose first name a text uses, in the order of the text. `names`: id → name."""
    return [who for who, _ in _mentions(text, names)]


def addressed(text: str, names: Mapping[str, str]) -> list[str]:
    """Ids of those whom a text asks by name, in the order of the text.

    Not those who are only thanked ("Thank you, Ann.") or spoken of ("as Ann said").
    """
    called = []
    for who, hit in _mentions(text, names):
        before, after = text[max(0, hit.start() - 60) : hit.start()], text[hit.end() :]
        sentence = re.split(r"[.!?]\s+", before)[-1]
        if _SPOKEN_OF.match(after) or _BEFORE.search(sentence):
            continue
        if _THANKED.search(sentence) and re.match(r"\s*(?:[.!;–—]|,(?! what|  how))", after):
            continue
        called.append(who)
    return list(dict.fromkeys(called))


def _mentions(text: str, names: Mapping[str, str]) -> list[tuple[str, re.Match[str]]]:
    hits = [
        (who, hit)
        for who, name in names.items()
        for hit in re.finditer(rf"(?<![\w'’]){re.escape(name)}(?!\w)", text)
        if not (name in ("Will", "May") and _A_VERB.match(text, hit.end()))
    ]
    return sorted(hits, key=lambda item: item[1].start())


# --- who gets the floor ------------------------------------------------------------------------


def room(people: int, cap: int) -> tuple[int, int]:
    """(fewest, most) who answer one question: 3–6 of eight, scaled, never more than `cap`."""
    most = max(1, min(cap, math.floor(6 * people / 8 + 0.5)))
    fewest = max(1, min(most, math.floor(3 * people / 8 + 0.5)))
    return fewest, most


@dataclass(frozen=True, slots=True)
class Floor:
    """What has been said so far, as far as it decides who speaks. All by id, in seating order."""

    spoken: Mapping[str, int]
    words: Mapping[str, int]
    questions_left: int

    def never(self) -> list[str]:
        """Those who have not spoken yet."""
        return [who for who, n in self.spoken.items() if n == 0]

    def quiet(self, most: int = 2) -> list[str]:
        """Up to `most` who have said clearly less than the others, the quietest first."""
        if not sum(self.spoken.values()):
            return []
        mean = sum(self.spoken.values()) / len(self.spoken)
        below = [who for who, n in self.spoken.items() if n < mean - 0.5]
        return sorted(below, key=lambda who: (self.spoken[who], self.words[who]))[:most]


def choose(
    willing: Sequence[str],
    called: Sequence[str],
    floor: Floor,
    limits: tuple[int, int],
    rng: np.random.Generator,
) -> list[str]:
    """Ids of those who answer, in the order in which they do.

    `willing` drew the floor, `called` were addressed by name. Those called always speak; of those
    who never spoke, as many as needed for all to get a turn; then the willing in random order; if
    they are too few, the quietest of the rest. Those called answer first.
    """
    fewest, most = limits
    chosen = list(dict.fromkeys(called))[:most]
    chosen += _overdue(floor, chosen, most)
    others = [who for who in willing if who not in chosen]
    shuffled = [others[int(i)] for i in rng.permutation(len(others))]
    chosen += shuffled[: max(0, most - len(chosen))]
    if len(chosen) < fewest:
        rest = [who for who in floor.spoken if who not in chosen]
        rest.sort(key=lambda who: (floor.spoken[who], rng.random()))
        chosen += rest[: fewest - len(chosen)]
    first = [who for who in called if who in chosen]
    later = [who for who in chosen if who not in first]
    return first + [later[int(i)] for i in rng.permutation(len(later))]


def _overdue(floor: Floor, chosen: Sequence[str], most: int) -> list[str]:
    """Of those who never spoke, those who must speak now: at least one from the third question
    on, and always as many as the remaining questions could not take.
    """
    waiting = [who for who in floor.never() if who not in chosen]
    if not waiting:
        return []
    needed = max(0, len(waiting) - floor.questions_left * most)
    if sum(floor.spoken.values()) >= 2 * most:
        needed = max(needed, 1)
    return waiting[: min(needed, most - len(chosen))]


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
