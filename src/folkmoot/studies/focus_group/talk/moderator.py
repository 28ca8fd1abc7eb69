"""The moderator: plans the guide, keeps notes, asks questions and probes, and chooses who answers.

The functions below the class choose who answers a question. They are pure.
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

# About one in five surprising answers is to be probed. The probability is higher, because about one
# in four surprising answers is the last for which its question has room.
PROBE_SHARE = 0.27
# Maximum length of a question with its notes, in tokens.
MODERATOR_TOKENS = 700
# Number of the latest messages that the moderator is shown.
REMEMBERED = 12
# A participant with this many missing answers in a row is no longer drawn out or called on.
MUTE_AFTER = 2


class PhaseGuide(BaseModel):
    """The questions that the moderator plans for one phase."""

    model_config = pin_schema(
        "PhaseGuide",
        "The questions planned for one phase.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    questions: tuple[str, ...] = Field(
        min_length=1, description="the questions in their order, each as it is spoken"
    )


class Remark(BaseModel):
    """A participant's remark, named by some of its words."""

    model_config = pin_schema(
        "Remark",
        "A remark of somebody, by a few of its words.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    name: str = Field(description="the first name of who made it")
    words: str = Field(description="a few of its words, copied exactly")


class NextQuestion(BaseModel):
    """The moderator's next question, with notes.

    Everything except the question may be empty, because a model that leaves out its notes has still
    asked.
    """

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
    """A question as the moderator asks it.

    `asks` holds the ids of the participants whom it addresses by name. `takes_up` is the message
    that it refers to. `planned` is True if it has exactly the words of the guide.
    """

    text: str
    asks: tuple[str, ...] = ()
    takes_up: DiscussionMessage | None = None
    planned: bool = False


@dataclass
class Moderator:
    """The moderator of one discussion (`group`, `stimulus`).

    `names` maps participant ids to first names. `summary` and `unanswered` are the notes up to the
    last question, which has the number `asked`. `silent_times` counts by participant id the missing
    answers in a row.
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
        """Return the moderator as a speaker of `folkmoot.conversation`."""
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
        """Plan the questions of every phase before the discussion, and return all of them in order.

        The researcher's own questions are used unchanged. A phase without a usable plan gets the
        packaged questions (`STOCK`).
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
        """Record exactly as many questions as wanted. Packaged questions replace missing ones."""
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
        """Return the next question: the planned one, adapted to the discussion so far.

        The moderator is told which quiet participants to draw out. If the reply is missing, or
        changes the words of the researcher's own question, the question is asked as planned.
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
        """Return the ids of the participants who are listed in `asks` and named in the question."""
        listed = {name.casefold() for name in said.asks}
        return tuple(
            who
            for who, name in self.names.items()
            if name.casefold() in listed and re.search(rf"\b{re.escape(name)}\b", said.question)
        )

    async def generate_followup(
        self, scope: Scope, response: DiscussionMessage, so_far: Sequence[DiscussionMessage]
    ) -> str | None:
        """Return a probe of one answer, or None.

        The first probe asks for the reason, the second for why that matters. About one in five
        surprising answers is probed, by a draw from the scope's generator.
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
        """Return the participants who answer a question, in their order (`choose_respondents`).

        `called` holds the ids of the participants whom the question addresses by name.
        """
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
            # The control needs an order that does not depend on who was addressed.
            order = [order[int(item_id)] for item_id in rng.permutation(len(order))]
        by_id = {participant.id: participant for participant in participants}
        return [by_id[who] for who in order]

    def speaking_shares(
        self, so_far: Sequence[DiscussionMessage], questions_left: int = 0
    ) -> SpeakingShares:
        """Return how often and how much each participant has spoken."""
        spoken = dict.fromkeys(self.names, 0)
        words = dict.fromkeys(self.names, 0)
        for message in so_far:
            if message.by_participant:
                spoken[message.speaker_id] += 1
                words[message.speaker_id] += message.words
        mute = frozenset(who for who, times in self.silent_times.items() if times >= MUTE_AFTER)
        return SpeakingShares(spoken, words, questions_left, mute)

    def note_answer(self, who: str, answered: bool) -> None:
        """Count missing answers in a row of a participant who was asked."""
        self.silent_times[who] = 0 if answered else self.silent_times.get(who, 0) + 1


_NUMBERING = re.compile(
    r"^\s*(?:\**(?:moderator|interviewer)\**\s*:\**\s*)?"
    r"(?:(?:question|q)\s*(?:\d+\s*[.:)\-–]|:)\s*|\(?\d{1,2}[.)]\s+|[-*•]\s+)?",
    re.IGNORECASE,
)


def find_remark(
    taken: Remark | None, so_far: Sequence[DiscussionMessage]
) -> DiscussionMessage | None:
    """Return the latest message of a participant that contains the remark's words, or None."""
    words = _normalise_text(taken.words) if taken else ""
    own = (
        discussion_message
        for discussion_message in reversed(so_far)
        if discussion_message.by_participant
        and words in _normalise_text(discussion_message.content)
    )
    return next(own, None) if words else None


def _normalise_text(text: str) -> str:
    """Return a text without differences of case, spaces, quotation marks and final punctuation."""
    return " ".join(re.sub("[“”\"‘’']", "", text).casefold().split()).rstrip(".?!…")


def strip_numbering(text: str) -> str:
    """Return a question without "Moderator:", number, bullet or surrounding quotation marks."""
    bare = _NUMBERING.sub("", text.strip(), count=1).strip()
    if len(bare) > 1 and (bare[0], bare[-1]) in {('"', '"'), ("“", "”")}:
        bare = bare[1:-1]
    return " ".join(bare.split())


# --- choice of respondents ---------------------------------------------------------------------


def respondent_limits(people: int, cap: int) -> tuple[int, int]:
    """Return the minimum and maximum number of participants who answer one question.

    They are 3 and 6 for eight participants, scaled to `people` and limited by `cap`.
    """
    # `floor(x + 0.5)` rounds halves up. `round` would round them to even numbers.
    most = max(1, min(cap, math.floor(6 * people / 8 + 0.5)))
    fewest = max(1, min(most, math.floor(3 * people / 8 + 0.5)))
    return fewest, most


@dataclass(frozen=True, slots=True)
class SpeakingShares:
    """How often and how much each participant has spoken, by id in the order of seats.

    `mute` holds the participants who gave no answer the last times they were asked.
    """

    spoken: Mapping[str, int]
    words: Mapping[str, int]
    questions_left: int
    mute: frozenset[str] = frozenset()

    def silent_participants(self) -> list[str]:
        """Return the participants who have not spoken yet, without the mute ones."""
        return [who for who, n in self.spoken.items() if n == 0 and who not in self.mute]

    def quietest_participants(self, most: int = 2) -> list[str]:
        """Return up to `most` participants who spoke less than average, the quietest first."""
        if not sum(self.spoken.values()):
            return []
        mean = sum(self.spoken.values()) / len(self.spoken)
        # The margin of half an answer keeps participants who are about average out of the list.
        below = [who for who, n in self.spoken.items() if n < mean - 0.5 and who not in self.mute]
        return sorted(below, key=lambda who: (self.spoken[who], self.words[who]))[:most]


def choose_respondents(
    willing: Sequence[str],
    called: Sequence[str],
    floor: SpeakingShares,
    limits: tuple[int, int],
    rng: np.random.Generator,
) -> list[str]:
    """Return the ids of the participants who answer, in their order.

    `willing` are those who drew the floor, `called` those who were addressed by name. Addressed
    participants always answer, and they answer first. Next are participants who never spoke, as
    many as needed for each of them to get a turn. Then the willing follow in random order. If these
    are too few, the quietest of the rest are added.
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
    """Return the silent participants who must answer now.

    There are as many as the remaining questions could not take, and at least one once about two
    questions have been answered in full.
    """
    waiting = [who for who in floor.silent_participants() if who not in chosen]
    if not waiting:
        return []
    needed = max(0, len(waiting) - floor.questions_left * most)
    if sum(floor.spoken.values()) >= 2 * most:
        needed = max(needed, 1)
    return waiting[: min(needed, most - len(chosen))]


# Packaged questions of each phase, for a phase without a usable plan. `{category}` is filled in.
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
