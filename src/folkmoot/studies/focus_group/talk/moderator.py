"""The moderator: plans the guide, keeps notes, asks, draws out the quiet, probes, gives the floor.

Below the class: who answers a question, as pure functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
)

from folkmoot.conversation.answer_types import Json, Missing, pin_schema
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import MODERATOR, DiscussionMessage, recent_transcript
from folkmoot.studies.focus_group.participants import Participant
from folkmoot.studies.focus_group.tables import say_planned
from folkmoot.studies.focus_group.texts import DiscussionTexts, quote_phase

# About one in five surprising answers is followed up. The draw is somewhat likelier, because
# about every fourth surprising answer is the last that its question has room for.
PROBE_SHARE = 0.27
MODERATOR_TOKENS = 700  # a question with its notes
# How many of the latest messages the moderator has in mind when asking.
REMEMBERED = 12
# Who gave no answer so many times in a row is drawn out and called on no longer.
MUTE_AFTER = 2


class PhaseGuide(BaseModel):
    """The questions planned for one phase."""

    model_config = pin_schema(
        "PhaseGuide",
        "The questions planned for one phase.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    questions: tuple[str, ...] = Field(
        min_length=1, description="the questions in their order, each as it is spoken"
    )


class Remark(BaseModel):
    """A remark of somebody, by a few of its words."""

    model_config = pin_schema(
        "Remark",
        "A remark of somebody, by a few of its words.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    name: str = Field(description="the first name of who made it")
    words: str = Field(description="a few of its words, copied exactly")


class NextQuestion(BaseModel):
    """What the moderator says next, with what it keeps in mind. All but the question may be empty:
    a model that leaves its notes out has still asked."""

    model_config = pin_schema(
        "NextQuestion",
        "What the moderator says next, with what it keeps in mind. All but the question may be "
        "empty:\na model that leaves its notes out has still asked.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    summary: str = Field(
        "",
        description="your notes, brought up to date with what you have just heard: who thinks "
        "what, and why, in at most five sentences",
    )
    unanswered: tuple[str, ...] = Field(
        (),
        description="what was asked and has not been answered, or was hinted at and not explained; "
        "empty if there is nothing",
    )
    takes_up: Remark | None = Field(
        None, description="the one remark that you take up; null if you take up none"
    )
    asks: tuple[str, ...] = Field(
        (),
        description="the first names of those whom you ask directly, empty if you ask everybody; "
        "each of them must be named in your question",
    )
    question: str = Field(
        description="what you say aloud, in one to three sentences, without a number or a heading"
    )

    @field_validator("question")
    @classmethod
    def _strip_question(cls, value: str) -> str:
        if not (bare := strip_numbering(value)):
            raise ValueError("the question is empty")
        return bare


PHASE_GUIDE = Json(PhaseGuide)
NEXT_QUESTION = Json(NextQuestion)


@dataclass(frozen=True, slots=True)
class Question:
    """A question as it is asked: to whom by name (ids), and the message that it takes up.

    `planned`: in the guide's own words, with nothing of a model's.
    """

    text: str
    asks: tuple[str, ...] = ()
    takes_up: DiscussionMessage | None = None
    planned: bool = False


@dataclass
class Moderator:
    """Runs the discussion of one concept (`stimulus`) in one group. `names` maps the ids of those
    at the table to their first names.

    `summary` and `unanswered` are the moderator's own notes up to the last question, the question
    number `asked`; `silent_times` counts by id how often in a row a participant gave no answer when
    asked.
    """

    config: DiscussionConfig
    names: Mapping[str, str]
    group: str = ""
    stimulus: str = ""
    discussion_guide: dict[DiscussionPhase, tuple[str, ...]] = field(default_factory=dict)
    summary: str = ""
    unanswered: tuple[str, ...] = ()
    asked: int = 0
    silent_times: dict[str, int] = field(default_factory=dict)

    @property
    def texts(self) -> DiscussionTexts:
        """The texts of this discussion with their sources."""
        return DiscussionTexts(self.config, self.group, self.stimulus)

    def speaker(self, scope: Scope) -> Speaker:
        """The moderator as the engine's conversations know it."""
        system = scope.prompt(
            "moderator_system",
            category=self.texts.category,
            concept=self.texts.concept,
            names=self.texts.quote_names(self.names, self.names),
        )
        tokens = self.config.max_tokens or MODERATOR_TOKENS
        return Speaker(
            MODERATOR,
            "Moderator",
            role="moderator",
            system=system,
            max_tokens=tokens,
            images=self.config.images,
        )

    async def generate_discussion_guide(self, scope: Scope) -> list[str]:
        """Plan the questions of every phase, before anybody has spoken; all of them, in order.

        The researcher's own questions stand as they are. A phase for which no usable plan comes
        gets the packaged questions of its style.
        """
        for phase in self.config.phases:
            if own := self.texts.researcher_questions(phase):
                self.discussion_guide[phase] = tuple(own)
                continue
            prompt = scope.prompt(
                "moderator_guide",
                phase=quote_phase(phase),
                number=self.texts.questions_per_phase,
                concept=self.texts.concept,
                category=self.texts.category,
                stimulus=self.texts.material,
                answer_format=PHASE_GUIDE.describe_format(),
            )
            at = scope.child(phase.value)
            about = f"questions of the {phase.heading} about {self.config.product_concept}"
            plan = await at.ask(self.speaker(at), prompt, answer_type=PHASE_GUIDE, about=about)
            planned = () if isinstance(plan, Missing) else plan.questions
            self.discussion_guide[phase] = self._complete_guide(at, phase, planned)
        return [question for questions in self.discussion_guide.values() for question in questions]

    def _complete_guide(
        self, scope: Scope, phase: DiscussionPhase, planned: Sequence[str]
    ) -> tuple[str, ...]:
        """Record exactly as many questions as wanted; packaged ones stand in for missing ones."""
        wanted = self.config.questions_per_phase
        usable = list(dict.fromkeys(q for q in map(strip_numbering, planned) if q))[:wanted]
        known = [(question, scope.address) for question in usable]
        spare = [q.format(category=self.config.category) for q in STOCK[phase] if q not in usable]
        while len(known) < wanted:
            known.append((spare.pop(0) if spare else STOCK[phase][-1], ""))
        return tuple(
            say_planned(scope, self.texts, phase, number, *question)
            for number, question in enumerate(known, 1)
        )

    async def generate_question(
        self, scope: Scope, phase: DiscussionPhase, index: int, so_far: Sequence[DiscussionMessage]
    ) -> Question:
        """The next question: the guide's, taken up in the light of what was said, with the names
        of quiet people to draw out. Falls back on the guide's own words, as it does where the
        researcher's own question was not asked in its words.
        """
        planned = self.discussion_guide[phase][index]
        own = bool(self.texts.researcher_questions(phase))
        shown = phase is DiscussionPhase.REACTION and index == 0
        prompt = scope.prompt(
            "moderator_question",
            phase=quote_phase(phase),
            opening=not so_far,
            phase_begins=index == 0,
            planned=planned,
            fixed=own,
            concept=self.texts.concept,
            category=self.texts.category,
            stimulus=self.texts.material if shown else None,
            read_before=self.config.first_opinion == "asked",
            summary=self.texts.quote_summary(self.asked, self.summary, MODERATOR),
            unanswered=self.texts.unanswered(self.asked, self.unanswered, MODERATOR),
            quiet=self.texts.quote_names(
                self.names, self.speaking_shares(so_far).quietest_participants()
            ),
            last_phase=phase is self.config.phases[-1],
            answer_format=NEXT_QUESTION.describe_format(),
        )
        latest = recent_transcript(so_far, REMEMBERED)
        said = await scope.ask(
            self.speaker(scope), prompt, history=latest, answer_type=NEXT_QUESTION, about=planned
        )
        self.asked += 1
        if isinstance(said, Missing):
            return Question(planned, planned=True)
        self.summary, self.unanswered = said.summary or self.summary, said.unanswered
        if own and _normalise_text(planned) not in _normalise_text(said.question):
            return Question(planned, planned=True)
        return Question(
            said.question,
            self._addressed_ids(said),
            find_remark(said.takes_up, so_far),
            said.question == planned,
        )

    def _addressed_ids(self, said: NextQuestion) -> tuple[str, ...]:
        """Ids of those whom a question asks by name: listed as asked, and named aloud."""
        listed = {name.casefold() for name in said.asks}
        return tuple(
            who
            for who, name in self.names.items()
            if name.casefold() in listed and re.search(rf"\b{re.escape(name)}\b", said.question)
        )

    async def generate_followup(
        self, scope: Scope, response: DiscussionMessage, so_far: Sequence[DiscussionMessage]
    ) -> str | None:
        """A probe of one answer, or None: why that is so, and of the answer to such a probe, why
        it matters. About one in five surprising answers is probed, drawn from the scope's
        generator.
        """
        if response.rung == 0 and not (response.surprising and scope.rng.random() < PROBE_SHARE):
            return None
        prompt = scope.prompt(
            "moderator_followup",
            who=self.texts.name(response.speaker_id, response.speaker_name),
            answer=response.quoted_text,
            phase=quote_phase(response.phase),
            rung=response.rung + 1,
            probes=self.texts.researcher_probes(response.phase),
        )
        latest = recent_transcript(so_far, REMEMBERED)
        about = f"the reasons of {response.speaker_name}"
        said = await scope.ask(self.speaker(scope), prompt, history=latest, about=about)
        return None if isinstance(said, Missing) else strip_numbering(said) or None

    def select_respondents(
        self,
        participants: Sequence[Participant],
        called: Sequence[str],
        so_far: Sequence[DiscussionMessage],
        questions_left: int,
        rng: np.random.Generator,
    ) -> list[Participant]:
        """Those who answer a question, in their order: see `choose_respondents`. `called`: ids of
        those whom it asks by name."""
        floor = self.speaking_shares(so_far, questions_left)
        willing = [
            participant.id
            for participant in participants
            if participant.should_speak(rng, addressed=participant.id in called)
        ]
        willing = [who for who in willing if who in called or who not in floor.mute]
        limits = respondent_limits(len(participants), self.config.responses_cap)
        order = choose_respondents(willing, called, floor, limits, rng)
        if self.config.control == "order":
            order = [order[int(item_id)] for item_id in rng.permutation(len(order))]
        by_id = {participant.id: participant for participant in participants}
        return [by_id[who] for who in order]

    def speaking_shares(
        self, so_far: Sequence[DiscussionMessage], questions_left: int = 0
    ) -> SpeakingShares:
        """Who has said how much."""
        spoken = dict.fromkeys(self.names, 0)
        words = dict.fromkeys(self.names, 0)
        for message in so_far:
            if message.by_participant:
                spoken[message.speaker_id] += 1
                words[message.speaker_id] += message.words
        mute = frozenset(who for who, times in self.silent_times.items() if times >= MUTE_AFTER)
        return SpeakingShares(spoken, words, questions_left, mute)

    def note_answer(self, who: str, answered: bool) -> None:
        """Note whether a participant who was asked gave an answer."""
        self.silent_times[who] = 0 if answered else self.silent_times.get(who, 0) + 1


_NUMBERING = re.compile(
    r"^\s*(?:\**(?:moderator|interviewer)\**\s*:\**\s*)?"
    r"(?:(?:question|q)\s*(?:\d+\s*[.:)\-–]|:)\s*|\(?\d{1,2}[.)]\s+|[-*•]\s+)?",
    re.IGNORECASE,
)


def find_remark(
    taken: Remark | None, so_far: Sequence[DiscussionMessage]
) -> DiscussionMessage | None:
    """The latest message of a participant that holds a remark's words; None where none does."""
    words = _normalise_text(taken.words) if taken else ""
    own = (
        discussion_message
        for discussion_message in reversed(so_far)
        if discussion_message.by_participant
        and words in _normalise_text(discussion_message.content)
    )
    return next(own, None) if words else None


def _normalise_text(text: str) -> str:
    """Text without differences of case, space, quotation marks and a stop at the end."""
    return " ".join(re.sub("[“”\"‘’']", "", text).casefold().split()).rstrip(".?!…")


def strip_numbering(text: str) -> str:
    """A question without "Moderator:", number, bullet or quotation marks around it."""
    bare = _NUMBERING.sub("", text.strip(), count=1).strip()
    if len(bare) > 1 and (bare[0], bare[-1]) in {('"', '"'), ("“", "”")}:
        bare = bare[1:-1]
    return " ".join(bare.split())


# --- who gets the floor ------------------------------------------------------------------------


def respondent_limits(people: int, cap: int) -> tuple[int, int]:
    """(fewest, most) who answer one question: 3–6 of eight, scaled, never more than `cap`."""
    most = max(1, min(cap, math.floor(6 * people / 8 + 0.5)))
    fewest = max(1, min(most, math.floor(3 * people / 8 + 0.5)))
    return fewest, most


@dataclass(frozen=True, slots=True)
class SpeakingShares:
    """What has been said so far, as far as it decides who speaks. All by id, in seating order.
    `mute`: those who gave no answer the last times they were asked."""

    spoken: Mapping[str, int]
    words: Mapping[str, int]
    questions_left: int
    mute: frozenset[str] = frozenset()

    def silent_participants(self) -> list[str]:
        """Those who have not spoken yet, but for the mute."""
        return [who for who, n in self.spoken.items() if n == 0 and who not in self.mute]

    def quietest_participants(self, most: int = 2) -> list[str]:
        """Up to `most` who have said clearly less than the others, the quietest first."""
        if not sum(self.spoken.values()):
            return []
        mean = sum(self.spoken.values()) / len(self.spoken)
        below = [who for who, n in self.spoken.items() if n < mean - 0.5 and who not in self.mute]
        return sorted(below, key=lambda who: (self.spoken[who], self.words[who]))[:most]


def choose_respondents(
    willing: Sequence[str],
    called: Sequence[str],
    floor: SpeakingShares,
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
    chosen += _overdue_participants(floor, chosen, most)
    others = [who for who in willing if who not in chosen]
    shuffled = [others[int(item_id)] for item_id in rng.permutation(len(others))]
    chosen += shuffled[: max(0, most - len(chosen))]
    if len(chosen) < fewest:
        rest = [who for who in floor.spoken if who not in chosen]
        rest.sort(key=lambda who: (who in floor.mute, floor.spoken[who], rng.random()))
        chosen += rest[: fewest - len(chosen)]
    first = [who for who in called if who in chosen]
    later = [who for who in chosen if who not in first]
    return first + [later[int(item_id)] for item_id in rng.permutation(len(later))]


def _overdue_participants(floor: SpeakingShares, chosen: Sequence[str], most: int) -> list[str]:
    """Of those who never spoke, those who must speak now: at least one from the third question
    on, and always as many as the remaining questions could not take.
    """
    waiting = [who for who in floor.silent_participants() if who not in chosen]
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
