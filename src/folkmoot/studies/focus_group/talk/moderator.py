"""The moderator: plans the guide, keeps notes, asks questions, and chooses who answers."""
# The functions below the class choose who answers. They call no model.

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
)

from folkmoot.conversation.answer_types import Json, Missing, Text, pin_schema
from folkmoot.conversation.lenient_fields import require_entry, require_text
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session.session import Scope
from folkmoot.hints import collapse_spaces
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
MAX_HISTORY_MESSAGES = 12
# After this many missing answers in a row, a participant is no longer chosen or addressed.
MAX_SILENCES_IN_A_ROW = 2
# The moderator is told of at most this many participants who spoke little.
MAX_QUIETEST = 2


class PhaseGuide(BaseModel):
    """The questions that the moderator plans for one phase."""

    model_config = pin_schema(
        "PhaseGuide",
        "The questions planned for one phase.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    questions: tuple[Annotated[str, AfterValidator(require_entry)], ...] = Field(
        min_length=1, description="the questions in their order, each as it is spoken"
    )


class Remark(BaseModel):
    """A reference to a participant's remark: the participant's name and some of the words."""

    model_config = pin_schema(
        "Remark",
        "A remark of somebody, by a few of its words.",
        ConfigDict(frozen=True, extra="ignore"),
    )

    name: str = Field(description="the first name of who made it")
    words: str = Field(description="a few of its words, copied exactly")


class NextQuestion(BaseModel):
    """The moderator's next question, with notes.

    Only `question` is required, because the discussion can continue without the notes.
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
    unanswered: tuple[Annotated[str, AfterValidator(require_entry)], ...] = Field(
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
        return require_text(strip_numbering(value))


PHASE_GUIDE = Json(PhaseGuide)
NEXT_QUESTION = Json(NextQuestion)


@dataclass(frozen=True, slots=True)
class ModeratorQuestion:
    """A question that the moderator asks."""

    text: str
    # The ids of the participants whom the question addresses by name.
    asks: tuple[str, ...] = ()
    # The message to which the question refers.
    takes_up: DiscussionMessage | None = None
    # True if the question has exactly the words of the guide.
    planned: bool = False


@dataclass
class Moderator:
    """The moderator of one discussion."""

    config: DiscussionConfig
    # First names by participant id.
    names: Mapping[str, str]
    group: str = ""
    stimulus: str = ""
    discussion_guide: dict[DiscussionPhase, tuple[str, ...]] = field(default_factory=dict)
    # The notes up to the last question: a summary, and what is still unanswered.
    summary: str = ""
    unanswered: tuple[str, ...] = ()
    # The number of questions so far.
    asked: int = 0
    # The missing answers since a participant's last answer, by participant id.
    silent_times: dict[str, int] = field(default_factory=dict)

    @property
    def texts(self) -> DiscussionTexts:
        """The object that builds texts for the prompts of this discussion."""
        return DiscussionTexts(self.config, self.group, self.stimulus)

    def speaker(self, scope: Scope) -> Speaker:
        """Return the moderator as a speaker with a system prompt."""
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
        """Plan the questions of all phases and return them in order."""
        # This is done before the discussion.
        # The researcher's own questions are used unchanged. A phase without a usable plan gets the
        # packaged questions (`STOCK_QUESTIONS`).
        for phase in self.config.phases:
            if researcher_questions := self.texts.researcher_questions(phase):
                self.discussion_guide[phase] = tuple(researcher_questions)
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
            phase_scope = scope.child(phase.value)
            about = f"questions of the {phase.heading} about {self.config.product_concept}"
            plan = await phase_scope.ask(
                self.speaker(phase_scope), prompt, answer_type=PHASE_GUIDE, about=about
            )
            planned = () if isinstance(plan, Missing) else plan.questions
            self.discussion_guide[phase] = self._complete_guide(phase_scope, phase, planned)
        return [question for questions in self.discussion_guide.values() for question in questions]

    def _complete_guide(
        self, scope: Scope, phase: DiscussionPhase, planned: Sequence[str]
    ) -> tuple[str, ...]:
        count = self.config.questions_per_phase
        usable = list(
            dict.fromkeys(question for question in map(strip_numbering, planned) if question)
        )[:count]
        sourced_questions = [(question, scope.address) for question in usable]
        stock_questions = [
            question.format(category=self.config.category) for question in STOCK_QUESTIONS[phase]
        ]
        unused_questions = [question for question in stock_questions if question not in usable]
        while len(sourced_questions) < count:
            question = unused_questions.pop(0) if unused_questions else stock_questions[-1]
            sourced_questions.append((question, ""))
        return tuple(
            say_planned(scope, self.texts, phase, number, *question_and_address)
            for number, question_and_address in enumerate(sourced_questions, 1)
        )

    async def generate_question(
        self, scope: Scope, phase: DiscussionPhase, index: int, so_far: Sequence[DiscussionMessage]
    ) -> ModeratorQuestion:
        """Return the planned question, adapted to the discussion so far.

        `index` counts the questions of the phase from 0.
        """
        # The planned question is asked unchanged if the moderator's reply is missing. The same
        # holds if the reply changes the wording of a question that the researcher gave.
        planned = self.discussion_guide[phase][index]
        is_fixed = bool(self.texts.researcher_questions(phase))
        shows_material = phase is DiscussionPhase.REACTION and index == 0
        prompt = scope.prompt(
            "moderator_question",
            phase=quote_phase(phase),
            opening=not so_far,
            phase_begins=index == 0,
            planned=planned,
            fixed=is_fixed,
            concept=self.texts.concept,
            category=self.texts.category,
            stimulus=self.texts.material if shows_material else None,
            read_before=self.config.first_opinion == "asked",
            summary=self.texts.quote_summary(self.asked, self.summary, MODERATOR),
            unanswered=self.texts.unanswered(self.asked, self.unanswered, MODERATOR),
            quiet=self.texts.quote_names(
                self.names, self.speaking_shares(so_far).quietest_participants()
            ),
            last_phase=phase is self.config.phases[-1],
            answer_format=NEXT_QUESTION.describe_format(),
        )
        recent = recent_transcript(so_far, MAX_HISTORY_MESSAGES)
        answer = await scope.ask(
            self.speaker(scope), prompt, history=recent, answer_type=NEXT_QUESTION, about=planned
        )
        self.asked += 1
        if isinstance(answer, Missing):
            return ModeratorQuestion(planned, planned=True)
        self.summary, self.unanswered = answer.summary or self.summary, answer.unanswered
        if is_fixed and _normalise_text(planned) not in _normalise_text(answer.question):
            return ModeratorQuestion(planned, planned=True)
        return ModeratorQuestion(
            answer.question,
            self._addressed_ids(answer),
            find_remark(answer.takes_up, so_far),
            answer.question == planned,
        )

    def _addressed_ids(self, question: NextQuestion) -> tuple[str, ...]:
        # The reply must list the first name in its field `asks` and use it in the question's text.
        addressed_names = {name.casefold() for name in question.asks}
        return tuple(
            persona_id
            for persona_id, name in self.names.items()
            if name.casefold() in addressed_names
            and re.search(rf"\b{re.escape(name)}\b", question.question)
        )

    async def generate_followup(
        self, scope: Scope, response: DiscussionMessage, so_far: Sequence[DiscussionMessage]
    ) -> str | None:
        """Return a follow-up question to one answer.

        Returns None if the moderator asks no follow-up question.
        """
        # A first follow-up asks for the reason. It is asked only after some of the surprising
        # answers, chosen at random. A second one asks why the reason matters.
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
        latest = recent_transcript(so_far, MAX_HISTORY_MESSAGES)
        about = f"the reasons of {response.speaker_name}"
        speaker = self.speaker(scope)
        answer_type = Text(own_names=(speaker.name,), other_names=tuple(self.names.values()))
        reply = await scope.ask(
            speaker, prompt, history=latest, answer_type=answer_type, about=about
        )
        return None if isinstance(reply, Missing) else strip_numbering(reply) or None

    def select_respondents(
        self,
        participants: Sequence[Participant],
        called: Sequence[str],
        so_far: Sequence[DiscussionMessage],
        questions_left: int,
        rng: np.random.Generator,
    ) -> list[Participant]:
        """Return the participants who answer a question, in speaking order."""
        # `called` holds the ids of those whom the question addresses by name. `questions_left` is
        # the number of questions that follow.
        shares = self.speaking_shares(so_far, questions_left)
        willing = [
            participant.id
            for participant in participants
            if participant.should_speak(rng, addressed=participant.id in called)
        ]
        willing = [
            persona_id
            for persona_id in willing
            if persona_id in called or persona_id not in shares.mute
        ]
        limits = respondent_limits(len(participants), self.config.responses_cap)
        order = choose_respondents(willing, called, shares, limits, rng)
        if self.config.control == "order":
            # The control needs an order that does not depend on who was addressed.
            order = [order[int(index)] for index in rng.permutation(len(order))]
        by_id = {participant.id: participant for participant in participants}
        return [by_id[persona_id] for persona_id in order]

    def speaking_shares(
        self, so_far: Sequence[DiscussionMessage], questions_left: int = 0
    ) -> SpeakingShares:
        """Return how often and how much each participant has spoken.

        `questions_left`: the number of questions still to come. It is copied to the result.
        """
        answer_counts = dict.fromkeys(self.names, 0)
        word_counts = dict.fromkeys(self.names, 0)
        for message in so_far:
            if message.by_participant:
                answer_counts[message.speaker_id] += 1
                word_counts[message.speaker_id] += message.words
        mute = frozenset(
            persona_id
            for persona_id, count in self.silent_times.items()
            if count >= MAX_SILENCES_IN_A_ROW
        )
        return SpeakingShares(answer_counts, word_counts, questions_left, mute)

    def note_answer(self, persona_id: str, has_answered: bool) -> None:
        """Count how many questions in a row a participant has left unanswered.

        An answer resets the count to 0.
        """
        self.silent_times[persona_id] = (
            0 if has_answered else self.silent_times.get(persona_id, 0) + 1
        )


_NUMBERING = re.compile(
    r"^\s*(?:\**(?:moderator|interviewer)\**\s*:\**\s*)?"
    r"(?:(?:question|q)\s*(?:\d+\s*[.:)\-–]|:)\s*|\(?\d{1,2}[.)]\s+|[-*•]\s+)?",
    re.IGNORECASE,
)


def find_remark(
    remark: Remark | None, so_far: Sequence[DiscussionMessage]
) -> DiscussionMessage | None:
    """Return the latest message of a participant that contains the remark's words.

    Returns None if there is no such message.
    """
    remark_words = _normalise_text(remark.words) if remark else ""
    matches = (
        message
        for message in reversed(so_far)
        if message.by_participant and remark_words in _normalise_text(message.content)
    )
    return next(matches, None) if remark_words else None


def _normalise_text(text: str) -> str:
    return collapse_spaces(re.sub("[“”\"‘’']", "", text).casefold()).rstrip(".?!…")


def strip_numbering(text: str) -> str:
    """Return a question without leading number or bullet, and without enclosing quotation marks."""
    # A leading "Moderator:" is removed too.
    stripped = _NUMBERING.sub("", text.strip(), count=1).strip()
    if len(stripped) > 1 and (stripped[0], stripped[-1]) in {('"', '"'), ("“", "”")}:
        stripped = stripped[1:-1]
    return collapse_spaces(stripped)


# --- choice of respondents ---------------------------------------------------------------------


def respondent_limits(participant_count: int, cap: int) -> tuple[int, int]:
    """Return the minimum and maximum number of participants who answer one question."""
    # The limits are 3 and 6 for a group of eight. For other groups the limits are proportional to
    # the size. Neither limit is above `cap`.
    # `floor(x + 0.5)` rounds halves up. `round` would round them to even numbers.
    max_count = max(1, min(cap, math.floor(6 * participant_count / 8 + 0.5)))
    min_count = max(1, min(max_count, math.floor(3 * participant_count / 8 + 0.5)))
    return min_count, max_count


@dataclass(frozen=True, slots=True)
class SpeakingShares:
    """Counts of the answers and words of each participant so far."""

    # The number of answers by participant id.
    spoken: Mapping[str, int]
    # The number of words by participant id.
    words: Mapping[str, int]
    # The number of questions that follow.
    questions_left: int
    # Participants without an answer to the last MAX_SILENCES_IN_A_ROW questions that they were
    # asked.
    mute: frozenset[str] = frozenset()

    def silent_participants(self) -> list[str]:
        """Return the participants who have given no answer so far."""
        # Participants who left their last questions unanswered (`mute`) are left out.
        return [
            persona_id
            for persona_id, count in self.spoken.items()
            if count == 0 and persona_id not in self.mute
        ]

    def quietest_participants(self) -> list[str]:
        """Return up to two participants who spoke less than average, the quietest first."""
        if not sum(self.spoken.values()):
            return []
        mean = sum(self.spoken.values()) / len(self.spoken)
        # The margin of half an answer keeps participants who are about average out of the list.
        quiet = [
            persona_id
            for persona_id, count in self.spoken.items()
            if count < mean - 0.5 and persona_id not in self.mute
        ]
        return sorted(
            quiet, key=lambda persona_id: (self.spoken[persona_id], self.words[persona_id])
        )[:MAX_QUIETEST]


def choose_respondents(
    willing: Sequence[str],
    called: Sequence[str],
    shares: SpeakingShares,
    limits: tuple[int, int],
    rng: np.random.Generator,
) -> list[str]:
    """Return the ids of the participants who answer, in speaking order.

    `limits` is (minimum, maximum).
    """
    # Participants in `called` (addressed by name) answer first, all others in random order. Places
    # go to participants who would otherwise speak too rarely, then to those in `willing`. The
    # quietest participants fill the places up to the minimum.
    min_count, max_count = limits
    chosen = list(dict.fromkeys(called))[:max_count]
    chosen += _overdue_participants(shares, chosen, max_count)
    others = [persona_id for persona_id in willing if persona_id not in chosen]
    shuffled = [others[int(index)] for index in rng.permutation(len(others))]
    chosen += shuffled[: max(0, max_count - len(chosen))]
    if len(chosen) < min_count:
        rest = [persona_id for persona_id in shares.spoken if persona_id not in chosen]
        rest.sort(
            key=lambda persona_id: (
                persona_id in shares.mute,
                shares.spoken[persona_id],
                rng.random(),
            )
        )
        chosen += rest[: min_count - len(chosen)]
    first = [persona_id for persona_id in called if persona_id in chosen]
    later = [persona_id for persona_id in chosen if persona_id not in first]
    return first + [later[int(index)] for index in rng.permutation(len(later))]


def _overdue_participants(
    shares: SpeakingShares, chosen: Sequence[str], max_count: int
) -> list[str]:
    # Silent participants must answer now if the remaining questions have too few places for all of
    # them. One must answer in any case after as many answers as two questions can have.
    waiting = [
        persona_id for persona_id in shares.silent_participants() if persona_id not in chosen
    ]
    if not waiting:
        return []
    needed = max(0, len(waiting) - shares.questions_left * max_count)
    if sum(shares.spoken.values()) >= 2 * max_count:
        needed = max(needed, 1)
    return waiting[: min(needed, max_count - len(chosen))]


# Packaged questions of each phase, for a phase without a usable plan. `{category}` is filled in.
STOCK_QUESTIONS: dict[DiscussionPhase, tuple[str, ...]] = {
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
