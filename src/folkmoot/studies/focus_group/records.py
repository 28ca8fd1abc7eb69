"""The rows of research data that a discussion leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from folkmoot.engine.session import Scope
from folkmoot.people.sources.grounded import TRAITS, Profile
from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.focus_group import objections
from folkmoot.studies.focus_group.discussion import INTENTS, DiscussionTranscript

CODEBOOK: dict[str, Any] = {
    "group": "group of recruits (replication)",
    "stimulus": "concept that was discussed",
    "persona_id": "person within the group",
    "name": "name of the person",
    "phase": "phase of the discussion",
    "question": "question of the moderator, counted from 1; a probe belongs to its question",
    "valence": "position on the concept, -1 (strongly against) to 1 (strongly in favor)",
    "personas": {
        "age": "age in years",
        "sex": "F or M",
        "education": "highest attainment",
        "income": "fifth of the household incomes of the country",
        "income_usd": "household income a year, dollars of 2022",
        "occupation": "occupation",
        "location": "where the person lives",
        "location_type": "urban, suburban or rural",
        "household": "with whom the person lives",
        "political_leaning": "political leaning",
        **{t: f"{t}, 0-100 (mean 50, sd 20 in the population)" for t in TRAITS},
        "vals": "VALS type, by our own reading of the framework",
        "engagement": "how much the category means, 0-100",
        "price_sensitivity": "price sensitivity, 0-100",
        "brand_loyalty": "brand loyalty, 0-100",
        "adoption": "stage of adoption (Rogers)",
        "source": "where the persona comes from",
    },
    "utterances": {
        "position": "place among the answers to the question, from 1; 0 for the moderator",
        "role": "moderator or participant",
        "speaker_id": "who spoke",
        "replied_to": "speaker who is answered to; empty for an answer to the question put to all",
        "replied_to_turn": "turn that is answered to",
        "sentiment": "tone of the message, -1 to 1",
        "sentiment_source": "who rated it: the lexicon with its version, or the model",
        "changed_mind": "whether the message moved the position last known",
        "stance": "agree or disagree with others, by cue words; empty for neither",
        "addressed": "whether the speaker was asked by name",
        "probe": "a follow-up to one answer, or the answer to it",
        "surprising": "change of mind, disagreement, or a tone against the position",
        "words": "words in the message",
    },
    "opinions": {
        "turn": "turn after which the position holds; 0 before anybody spoke",
        "changed": "whether the position moved at this turn",
    },
    "intents": {
        "answer": "purchase intent, asked in private at the end",
        "score": "1 (definitely not) to 5 (definitely)",
        "missing": "why there is no answer",
    },
    "objections": {
        "theme": "what the objection is about, by cue words",
        "turn": "turn in which it was said",
        "quote": "the sentence",
    },
    "silences": {"reason": "why an answer could not be had"},
}

TABLES = {
    "utterances": "group stimulus turn:int phase question:int position:int role speaker_id name "
    "text words:int replied_to replied_to_turn:int sentiment:float sentiment_source valence:float "
    "changed_mind:bool stance addressed:bool probe:bool surprising:bool finish",
    "intents": "group stimulus persona_id name answer score:int missing",
    "objections": "group stimulus theme persona_id name turn:int phase quote",
    "silences": "group stimulus question:int persona_id reason",
}


def unusable(run: RunFolder) -> str:
    """Why nothing in a run is of use: no participant said anything."""
    heard = (run.table("utterances")["role"] == "participant").any()
    return "" if heard else "no participant gave an answer"


def personas(scope: Scope, group: str, people: Sequence[Profile]) -> None:
    """A row for each recruit."""
    for p in people:
        scope.record(
            "personas",
            {
                "group": group,
                "persona_id": p.id,
                "name": p.name,
                "age": p.age,
                "sex": p.sex,
                "education": p.education,
                "income": p.income,
                "income_usd": p.income_usd,
                "occupation": p.occupation,
                "location": p.location,
                "location_type": p.location_type,
                "household": p.household,
                "political_leaning": p.political_leaning,
                **p.traits.model_dump(),
                "vals": p.vals,
                "engagement": p.consumer.engagement,
                "price_sensitivity": p.consumer.price_sensitivity,
                "brand_loyalty": p.consumer.brand_loyalty,
                "adoption": p.consumer.adoption,
                "source": p.source,
            },
        )


def discussion(scope: Scope, t: DiscussionTranscript) -> None:
    """All rows of one discussion."""
    where = {"group": t.group, "stimulus": t.stimulus}
    names = {p.id: p.name for p in t.personas}
    for p in t.personas:
        start = p.opinion.valence if p.opinion else 0.0
        scope.record(
            "opinions",
            {**where, "persona_id": p.id, "name": p.name, "turn": 0, "question": 0, "phase": "",
             "valence": start, "changed": False},
        )  # fmt: skip
    for m in t.messages:
        scope.record(
            "utterances",
            {
                **where,
                "turn": m.turn_number,
                "phase": m.phase.value,
                "question": m.question,
                "position": m.position,
                "role": m.role.value,
                "speaker_id": m.speaker_id,
                "name": m.speaker_name,
                "text": m.content,
                "words": m.words,
                "replied_to": m.replied_to,
                "replied_to_turn": m.replied_to_turn,
                "sentiment": m.sentiment,
                "sentiment_source": m.sentiment_source,
                "valence": m.valence,
                "changed_mind": m.changed_mind,
                "stance": m.stance,
                "addressed": m.addressed,
                "probe": m.probe,
                "surprising": m.surprising,
                "finish": m.finish,
            },
        )
        if m.by_participant:
            scope.record(
                "opinions",
                {**where, "persona_id": m.speaker_id, "name": names[m.speaker_id],
                 "turn": m.turn_number, "question": m.question, "phase": m.phase.value,
                 "valence": m.valence, "changed": m.changed_mind},
            )  # fmt: skip
    for intent in t.intents:
        score = None if intent.answer is None else INTENTS.index(intent.answer) + 1
        scope.record(
            "intents",
            {**where, "persona_id": intent.persona_id, "name": names[intent.persona_id],
             "answer": intent.answer, "score": score, "missing": intent.missing},
        )  # fmt: skip
    for o in objections.in_transcript(t):
        scope.record(
            "objections",
            {**where, "theme": o.theme, "persona_id": o.persona_id, "name": names[o.persona_id],
             "turn": o.turn, "phase": o.phase, "quote": o.quote},
        )  # fmt: skip
    for question, persona_id, reason in t.silences:
        scope.record(
            "silences",
            {**where, "question": question, "persona_id": persona_id, "reason": reason},
        )
