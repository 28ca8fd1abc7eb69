"""The tables of a focus group: column definitions, and functions that record the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats import utterances
from folkmoot.engine.session.session import Scope
from folkmoot.hints import count_words
from folkmoot.kit import coding
from folkmoot.people.sources.grounded import Profile
from folkmoot.provenance import Quoted
from folkmoot.storage.rows import ComputedWords, Row, column
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    MODERATOR,
    DiscussionMessage,
    DiscussionTranscript,
    InterviewTime,
    Statement,
)
from folkmoot.studies.focus_group.positions import describe_position
from folkmoot.studies.focus_group.texts import DiscussionTexts, Where

GROUP = "group of recruits (replication)"
PERSON = "id of the participant within the group"
NAME = "name of the participant"
TALK = ("group", "stimulus")
PHASE = "phase of the discussion"
QUESTION = "number of the moderator's question, from 1; a probe has that of its question"
SCALE = "0-100 (mean 50, sd 20 in the population)"
VALENCE = "position on the concept, -1 (strongly against) to 1 (strongly in favour)"
LEANING = "the same position in words, as prompts show it"


class ConceptRow(Row, table="concepts", key=("stimulus",)):
    """One concept as prompts show it.

    The study's own value is recorded if the concept sets none.
    """

    stimulus: str = column("short name of the concept")
    product_concept: str | None = column("the concept to discuss")
    category: str = column("product category")
    stimulus_material: str | None = column("the material that participants read")
    price: str | None = column("price of the product")


class PersonaRow(Row, table="personas", key=("group", "persona_id")):
    """The persona of one participant."""

    group: str = column(GROUP)
    persona_id: str = column(PERSON)
    name: str = column(NAME)
    first_name: str = column("the name by which the others address the participant")
    age: int = column("age in years")
    sex: str = column("F, M, or X (nonbinary)")
    education: str = column("highest education")
    income: str = column("fifth of the country's household incomes")
    income_usd: int = column("yearly household income in dollars of 2022")
    occupation: str = column("occupation")
    location: str = column("where the participant lives")
    location_type: str = column("urban, suburban or rural")
    household: str = column("with whom the participant lives")
    political_leaning: str = column("political leaning")
    race: str | None = column("race or ethnicity, if drawn or known")
    openness: int = column(f"openness, {SCALE}")
    conscientiousness: int = column(f"conscientiousness, {SCALE}")
    extraversion: int = column(f"extraversion, {SCALE}")
    agreeableness: int = column(f"agreeableness, {SCALE}")
    neuroticism: int = column(f"neuroticism, {SCALE}")
    vals: str = column("VALS type, by Folkmoot's reading of the framework")
    engagement: int = column("engagement with the product category, 0-100")
    price_sensitivity: int = column("price sensitivity, 0-100")
    brand_loyalty: int = column("brand loyalty, 0-100")
    adoption: str = column("stage of adoption (Rogers)")
    source: str = column("source of the persona")


class InDiscussion(Row):
    """Base class of the rows about one discussion, with columns for group and concept."""

    group: str = column(GROUP)
    stimulus: str = column("concept that was discussed")


class DescriptionRow(InDiscussion, table="descriptions", key=(*TALK, "persona_id", "part")):
    """One part of the persona's description, as the participant's prompts contain it."""

    persona_id: str = column(PERSON)
    part: int = column("number of the part in the description, from 1")
    about: str = column("kind of part: introduction, circumstances, background, personality, …")
    text: str = column("the words; empty if the prompts have no such part")


class UtteranceRow(utterances.UtteranceRow, InDiscussion):
    """One utterance in the discussion (public), in an interview, or in private.

    `replied_to` and the columns that the coder fills have values only for answers in the
    discussion.
    """

    persona_id: str | None = column(
        "the participant who is interviewed alone or asked in private; empty for the discussion "
        "and for the moderator's guide"
    )
    turn: int | None
    phase: str | None = column(PHASE)
    question: int | None = column(QUESTION)
    position: int | None = column(
        "place among the answers to the question and to its probes, from 1; 0 for the moderator"
    )
    words: int = column(
        "number of words in the message; in scripts without spaces, such as Chinese, of letters"
    )
    replied_to: str | None = column(
        "speaker to whom the message responds; empty for an answer to a question put to all"
    )
    replied_to_turn: int | None = column("turn to which the message responds")
    sentiment: float | None = column(
        "tone of the message, -1 to 1; the lexicon rates messages in English only"
    )
    sentiment_source: str | None = column(
        "what rated the tone: the lexicon with its version, or the model"
    )
    valence: float | None = column(VALENCE, between=(-1, 1))
    changed_mind: bool | None = column("whether the message changed the last known position")
    stance: str | None = column(
        "agree or disagree with others, as the coder reads it; empty for neither"
    )
    asks: list[str] | None = column("ids of the participants whom a question addresses by name")
    addressed: bool | None = column("whether the question addressed the speaker by name")
    probe: bool | None = column("whether it is a follow-up to one answer, or the reply to it")
    rung: int | None = column(
        "1: probe for the reason, or its answer; 2: probe for why the reason matters, or its "
        "answer; 0: no probe"
    )
    surprising: bool | None = column(
        "whether it is a change of mind, a disagreement, or has a tone against the position"
    )
    reading_missing: str | None = column(
        "why the coder gave no position (declined, cannot_say, unparsed, …); valence is then the "
        "last known position"
    )
    out_of_character: bool | None = column(
        "whether the message may be out of character, by typical English phrases: it speaks as an "
        "assistant, as the player of a role, or in headings of a script (Question 3:); counted only"
    )


WHEN = (
    "time of the private question: before the discussion, after it, alone (after an interview "
    "without the others) or retest (before the discussion, in a second conversation)"
)


class StatementRow(InDiscussion, table="statements", key=(*TALK, "persona_id", "when")):
    """One private statement of a participant about the concept."""

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    when: str = column(WHEN)
    position: float | None = column(VALENCE, between=(-1, 1))
    leaning: str | None = column(LEANING, computed=ComputedWords("position", describe_position))
    words: str = column("the opinion in the participant's own words")
    planted: bool = column(
        "whether the opinion was drawn with the persona (first_opinion: seeded), not asked for"
    )
    missing: str | None = column("why there is no answer")
    utterance_id: str | None = column("id of the words in the table utterances")


class OpinionRow(InDiscussion, table="opinions", key=(*TALK, "persona_id", "turn")):
    """The position of a participant after one answer, as the coder reads the answer.

    Turn 0 holds the private opinion before the discussion.
    """

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    turn: int = column("turn after which the position holds; 0: before the discussion")
    question: int = column(QUESTION)
    phase: str = column(PHASE)
    valence: float | None = column(VALENCE, between=(-1, 1))
    leaning: str | None = column(LEANING)
    changed: bool = column("whether the position changed at this turn")


class IntentRow(InDiscussion, table="intents"):
    """One private answer about buying the product."""

    persona_id: str = column(PERSON)
    name: str = column(NAME)
    when: str = column(WHEN)
    price: str | None = column("price in the prompt; empty if only the material names a price")
    ladder: bool = column("whether it is a price of the ladder, not the product's own")
    answer: str | None = column("purchase intent, asked in private")
    score: int | None = column(
        "1 (definitely would not buy) to 5 (definitely would buy)", between=(1, 5)
    )
    missing: str | None = column("why there is no answer")


class NoteRow(InDiscussion, table="notes", key=(*TALK, "question")):
    """The notes of the moderator after planning one question."""

    question: int = column(QUESTION)
    summary: str = column("the discussion so far, summarised by the moderator")
    unanswered: list[str] = column("what is still unanswered, in the moderator's words")


class SilenceRow(InDiscussion, table="silences"):
    """One missing answer in the discussion."""

    question: int = column(QUESTION)
    persona_id: str = column(PERSON)
    reason: str = column("why there is no answer")


TABLES = (
    *(ConceptRow, PersonaRow, DescriptionRow, UtteranceRow, StatementRow, OpinionRow),
    *(IntentRow, SilenceRow, NoteRow, *coding.TABLES),
)
# Maps the names of the engine's columns in runs of earlier versions to the present names.
EARLIER_NAMES = {"role": "speaker_role", "name": "speaker_name"}


def read_talk(run: RunFolder) -> pl.DataFrame:
    """Return the utterances of the discussions, without interviews and private statements."""
    utterances = run.read_table("utterances").rename(EARLIER_NAMES, strict=False)
    return utterances.filter("public") if "public" in utterances.columns else utterances


def unusable_reason(run: RunFolder) -> str:
    """Return the reason why a run has no usable result.

    Returns "" for a usable run.
    """
    # A run is unusable if no participant said anything.
    has_answers = (read_talk(run)["speaker_role"] == "participant").any()
    return "" if has_answers else "no participant gave an answer"


def record_personas(scope: Scope, group: str, people: Sequence[Profile]) -> None:
    """Record one row for each participant of a group."""
    for profile in people:
        scope.record(
            PersonaRow.from_source(
                profile,
                group=group,
                persona_id=profile.id,
                **{"race": None, **profile.shared_demographics()},
                **profile.traits.model_dump(),
                **profile.consumer.model_dump(exclude={"channels"}),
            )
        )


def record_concept(scope: Scope, stimulus: str, config: DiscussionConfig) -> None:
    """Record a concept."""
    # `config` holds the settings for this concept (`DiscussionConfig.for_stimulus`).
    keys = ("product_concept", "category", "stimulus_material", "price")
    scope.record(ConceptRow(stimulus=stimulus, **{key: getattr(config, key) for key in keys}))


def record_description(
    scope: Scope, texts: DiscussionTexts, persona_id: str, parts: Mapping[str, str]
) -> None:
    """Record the parts of a persona's description."""
    for number, (about, text) in enumerate(parts.items(), 1):
        scope.record(
            DescriptionRow(
                **texts.where, persona_id=persona_id, part=number, about=about, text=text
            )
        )


def say_message(
    scope: Scope,
    texts: DiscussionTexts,
    message: DiscussionMessage,
    *,
    address: str | None = None,
    interviewed_id: str | None = None,
) -> DiscussionMessage:
    """Record a message and return a copy of the message with an utterance id.

    - `address`: the journal address of the reply. By default, the address of the question to which
      `ask` returned the text.
    - `interviewed_id`: in an interview, the interviewed participant. None in a discussion.
    """
    # An interview is not public: the other participants must not have heard it.
    utterance = scope.say(
        Speaker(message.speaker_id, message.speaker_name, message.role.value),
        message.content,
        address=address,
        public=interviewed_id is None,
        round=message.question,
        **texts.where,
        persona_id=interviewed_id,
        turn=message.turn_number,
        words=message.words,
        **message.model_dump(mode="json", include=set(OWN_COLUMNS)),
    )
    return message.model_copy(update={"utterance_id": utterance.id})


# The columns of `UtteranceRow` that are fields of a message.
OWN_COLUMNS = tuple(
    name for name in UtteranceRow.columns() if name in DiscussionMessage.model_fields
)


def say_planned(
    scope: Scope,
    texts: DiscussionTexts,
    phase: DiscussionPhase,
    number: int,
    question: str,
    address: str,
) -> Quoted:
    """Record a question of the moderator's guide, and return the recorded text."""
    # `address` is the journal address of the reply with the question. It is empty for a question
    # from the package.
    utterance = scope.say(
        Speaker(MODERATOR, "Moderator", MODERATOR),
        question,
        address=address,
        part=f"{number}" if address else "",
        public=False,
        **texts.where,
        phase=phase.value,
        words=count_words(question),
    )
    return utterance.quoted_text


def say_statement(
    scope: Scope, texts: DiscussionTexts, statement: Statement, name: str, address: str
) -> Statement:
    """Record the words of a private statement. Return a copy that has an utterance id."""
    if not statement.words:
        return statement
    utterance = scope.say(
        Speaker(statement.persona_id, name),
        statement.words,
        address=address,
        part="opinion" if address else "",
        public=False,
        **texts.where,
        persona_id=statement.persona_id,
        words=count_words(statement.words),
    )
    return statement.model_copy(update={"utterance_id": utterance.id})


def _leaning_or_none(position: float | None) -> str | None:
    return None if position is None else describe_position(position)


def record_discussion(scope: Scope, transcript: DiscussionTranscript) -> None:
    """Record all rows of one discussion except the utterances."""
    # `say_message` records each utterance at once, because later prompts refer to it.
    where: Where = {
        "group": transcript.group,
        "stimulus": transcript.stimulus,
    }
    names = {profile.id: profile.name for profile in transcript.personas}

    for statement in transcript.statements:
        name = names[statement.persona_id]
        cells = statement.model_dump(mode="json", exclude={"utterance_id"})
        utterance_id = statement.utterance_id or None
        leaning = _leaning_or_none(statement.position)
        scope.record(
            StatementRow(**where, name=name, leaning=leaning, utterance_id=utterance_id, **cells)
        )
        if statement.when is InterviewTime.BEFORE:
            opinion_before = OpinionRow(
                **where, persona_id=statement.persona_id, name=name, turn=0, question=0, phase="",
                valence=statement.position, leaning=leaning, changed=False,
            )  # fmt: skip
            scope.record(opinion_before)
    for message in transcript.by_participants():
        opinion_after = OpinionRow(
            **where, persona_id=message.speaker_id, name=names[message.speaker_id],
            turn=message.turn_number, question=message.question, phase=message.phase.value,
            valence=message.valence, leaning=_leaning_or_none(message.valence),
            changed=message.changed_mind,
        )  # fmt: skip
        scope.record(opinion_after)
    for intent in transcript.intents:
        score = None if intent.answer is None else INTENTS.index(intent.answer) + 1
        name = names[intent.persona_id]
        scope.record(IntentRow(**where, name=name, score=score, **intent.model_dump(mode="json")))
    for note in transcript.notes:
        scope.record(NoteRow(**where, **note.model_dump(mode="json")))
    for question, persona_id, reason in transcript.silences:
        scope.record(SilenceRow(**where, question=question, persona_id=persona_id, reason=reason))
