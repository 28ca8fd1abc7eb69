"""The tables of a focus group: their columns with what they mean, and the rows of a discussion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from folkmoot.engine.session import Scope
from folkmoot.kit import coding
from folkmoot.people.sources.grounded import Profile
from folkmoot.storage.rows import Row, column
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.discussion import INTENTS, DiscussionTranscript, When

GROUP = "group of recruits (replication)"
PERSON = "person within the group"
NAME = "name of the person"
PHASE = "phase of the discussion"
QUESTION = "question of the moderator, counted from 1; a probe belongs to its question"
SCALE = "0-100 (mean 50, sd 20 in the population)"
VALENCE = "position on the concept, -1 (strongly against) to 1 (strongly in favor)"


class PersonaRow(Row, table="personas"):
    """A recruit."""

    group: str = column(GROUP)
    persona_id: str = column(PERSON)
    name: str = column(NAME)
    age: int = column("age in years")
    sex: str = column("F, M, or X (nonbinary)")
    education: str = column("highest attainment")
    income: str = column("fifth of the household incomes of the country")
    income_usd: int = column("household income a year, dollars of 2022")
    occupation: str = column("occupation")
    location: str = column("where the person lives")
    location_type: str = column("urban, suburban or rural")
    household: str = column("with whom the person lives")
    political_leaning: str = column("political leaning")
    race: str | None = column("race or ethnicity, where it is drawn or known")
    openness: int = column(f"openness, {SCALE}")
    conscientiousness: int = column(f"conscientiousness, {SCALE}")
    extraversion: int = column(f"extraversion, {SCALE}")
    agreeableness: int = column(f"agreeableness, {SCALE}")
    neuroticism: int = column(f"neuroticism, {SCALE}")
    vals: str = column("VALS type, by our own reading of the framework")
    engagement: int = column("how much the category means, 0-100")
    price_sensitivity: int = column("price sensitivity, 0-100")
    brand_loyalty: int = column("brand loyalty, 0-100")
    adoption: str = column("stage of adoption (Rogers)")
    source: str = column("where the persona comes from")


class InDiscussion(Row):
    """What rows about a discussion share: which group discussed which concept."""

    group: str = column(GROUP)
    stimulus: str = column("concept that was discussed")


class UtteranceRow(InDiscussion, table="utterances"):
    """One thing said."""

    turn: int
    phase: str = column(PHASE)
    question: int = column(QUESTION)
    position: int = column("place among the answers to the question, from 1; 0 for the moderator")
    role: str = column("moderator or participant")
    speaker_id: str = column("who spoke")
    name: str = column(NAME)
    text: str
    words: int = column("words in the message")
    replied_to: str | None = column(
        "speaker who is answered to; empty for an answer to the question put to all"
    )
    replied_to_turn: int | None = column("turn that is answered to")
    sentiment: float | None = column("tone of the message, -1 to 1")
    sentiment_source: str | None = column(
        "who rated it: the lexicon with its version, or the model"
    )
    valence: float | None = column(VALENCE)
    changed_mind: bool = column("whether the message moved the position last known")
    stance: str | None = column("agree or disagree with others, by the coder; empty for neither")
    asks: list[str] = column("ids of those whom a question asks by name")
    addressed: bool = column("whether the speaker was asked by name")
    probe: bool = column("a follow-up to one answer, or the answer to it")
    rung: int = column("1: a probe for the reason, or its answer; 2: for why that matters; else 0")
    surprising: bool = column("change of mind, disagreement, or a tone against the position")
    reading_missing: str | None = column(
        "why the coder's reading of the position is not known (declined, cannot_say, unparsed, …); "
        "the valence is then the one known before"
    )
    out_of_character: bool = column(
        "possibly not in character, by English signs: speaks as an assistant, as the player of a "
        "role, or in headings of a script (Question 3:); counted only"
    )
    finish: str | None


WHEN = (
    "asked in private before the talk, after it, after being interviewed alone, or (retest) before "
    "the talk in a second conversation"
)


class StatementRow(InDiscussion, table="statements"):
    """What a person says in private of the concept."""

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    when: str = column(WHEN)
    position: float | None = column(VALENCE)
    words: str = column("the opinion in the person's own words")
    planted: bool = column("drawn by what the person is like (first_opinion: seeded), not asked")
    missing: str | None = column("why there is no answer")


class OpinionRow(InDiscussion, table="opinions"):
    """Where a person stands after each answer, as a coder reads it; turn 0 is the private
    opinion."""

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    turn: int = column("turn after which the position holds; 0 before anybody spoke")
    question: int = column(QUESTION)
    phase: str = column(PHASE)
    valence: float | None = column(VALENCE)
    changed: bool = column("whether the position moved at this turn")


class IntentRow(InDiscussion, table="intents"):
    """What a person would buy, asked in private."""

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    when: str = column(WHEN)
    price: str | None = column("price in view; empty where only the material says it")
    ladder: bool = column("a price of the ladder, not the product's own")
    answer: str | None = column("purchase intent, asked in private")
    score: int | None = column("1 (definitely not) to 5 (definitely)")
    missing: str | None = column("why there is no answer")


class NoteRow(InDiscussion, table="notes"):
    """What the moderator had noted when it asked a question."""

    question: int = column(QUESTION)
    summary: str = column("what was said so far, in the moderator's words")
    unanswered: list[str] = column("what was still unanswered, in the moderator's words")


class InterviewRow(InDiscussion, table="interviews"):
    """What was said in an interview without the others (control: alone)."""

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    turn: int
    phase: str = column(PHASE)
    question: int = column(QUESTION)
    role: str = column("moderator or participant")
    text: str
    finish: str | None


class SilenceRow(InDiscussion, table="silences"):
    """An answer that could not be had."""

    question: int = column(QUESTION)
    persona_id: str = column(PERSON)
    reason: str = column("why an answer could not be had")


TABLES = (
    *(PersonaRow, UtteranceRow, StatementRow, OpinionRow, IntentRow, SilenceRow),
    *(NoteRow, InterviewRow, *coding.TABLES),
)


class Where(TypedDict):
    """The columns of `InDiscussion`."""

    group: str
    stimulus: str


def unusable(run: RunFolder) -> str:
    """Why nothing in a run is of use: no participant said anything."""
    heard = (run.table("utterances")["role"] == "participant").any()
    return "" if heard else "no participant gave an answer"


def record_personas(scope: Scope, group: str, people: Sequence[Profile]) -> None:
    """A row for each recruit."""
    for p in people:
        scope.record(
            PersonaRow(
                group=group,
                persona_id=p.id,
                name=p.name,
                income_usd=p.income_usd,
                vals=p.vals,
                source=p.source,
                **{"race": None, **p.demographics()},
                **p.traits.model_dump(),
                **p.consumer.model_dump(exclude={"channels"}),
            )
        )


def record_discussion(scope: Scope, t: DiscussionTranscript) -> None:
    """All rows of one discussion."""
    where: Where = {"group": t.group, "stimulus": t.stimulus}
    names = {p.id: p.name for p in t.personas}

    for said in t.statements:
        name = names[said.persona_id]
        scope.record(StatementRow(**where, name=name, **said.model_dump(mode="json")))
        if said.when is When.BEFORE:
            stood = OpinionRow(
                **where, persona_id=said.persona_id, name=name, turn=0, question=0, phase="",
                valence=said.position, changed=False,
            )  # fmt: skip
            scope.record(stood)
    for m in t.messages:
        rest = m.model_dump(mode="json", exclude={"turn_number", "speaker_name", "content"})
        scope.record(
            UtteranceRow(
                **where, turn=m.turn_number, name=m.speaker_name, text=m.content, words=m.words,
                **rest,
            )
        )  # fmt: skip
        if m.by_participant:
            stands = OpinionRow(
                **where, persona_id=m.speaker_id, name=names[m.speaker_id], turn=m.turn_number,
                question=m.question, phase=m.phase.value, valence=m.valence, changed=m.changed_mind,
            )  # fmt: skip
            scope.record(stands)
    for intent in t.intents:
        score = None if intent.answer is None else INTENTS.index(intent.answer) + 1
        name = names[intent.persona_id]
        scope.record(IntentRow(**where, name=name, score=score, **intent.model_dump(mode="json")))
    for note in t.notes:
        scope.record(NoteRow(**where, **note.model_dump(mode="json")))
    for who, talk in t.interviews.items():
        for m in talk:
            scope.record(
                InterviewRow(
                    **where, persona_id=who, name=names[who], turn=m.turn_number,
                    phase=m.phase.value, question=m.question, role=m.role.value, text=m.content,
                    finish=m.finish,
                )
            )  # fmt: skip
    for question, who, reason in t.silences:
        scope.record(SilenceRow(**where, question=question, persona_id=who, reason=reason))
