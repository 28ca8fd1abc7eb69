"""The built-in respondent for a town hall: rules that answer in place of a model."""

# Residents speak about matters: nouns of the topic, such as "the crossing". One effect is built in:
# a resident who is named gets more responses and ends more satisfied. Naming by the moderator has
# the largest effect. The level makes no other difference. The respondent ignores instructions in
# prompts. It reads only the quoted texts (personas, statements and the like).

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, TypedDict

from folkmoot.files import packaged_yaml
from folkmoot.hints import capitalise, collapse_spaces, join_words, natural_sort_key
from folkmoot.respondent import (
    Draws,
    Lexicon,
    Passage,
    RespondentPart,
    SimulatedRespondent,
    of_kind,
)
from folkmoot.respondent.mind.draws import uniform_draw
from folkmoot.respondent.mind.passages import last_key, persona_of
from folkmoot.studies.town_hall.answers.heard_statements import (
    HeardStatements,
    saturating_share,
    split_sentences,
)
from folkmoot.studies.town_hall.answers.options import STANCES
from folkmoot.studies.town_hall.answers.turns import change_between
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.recording import (
    MODERATOR,
    PLANNER,
    QUESTION,
    THOUGHTS,
    part_of,
    round_of,
)

# The fields of a JSON answer.
Fields = dict[str, object]

WORDS: Mapping[str, Any] = packaged_yaml(__file__, "respondent.yaml")
# Maximum gain in the eagerness to answer a resident who has been named, …
NAMED_WEIGHT = 3.2
# … who speaks of a matter of the respondent's, …
SHARED_MATTER_WEIGHT = 0.8
# … or who has asked the respondent something.
ASKED_WEIGHT = 2.5
# Minimum eagerness at which a resident wishes to respond.
MIN_EAGERNESS = 1.05
# Maximum effect of being named on a stance (scale −1 … 1), …
HEARD_WEIGHT = 0.9
# … and on satisfaction (scale 1 … 10).
CONTENT_WEIGHT = 2.5
# Added liking of a matter in the resident's persona.
OWN_MATTER_WEIGHT = 1.0
# Maximum number of quiet residents whom the moderator invites in one round.
MAX_INVITED = 4

# --- the matters of a topic ---

_NOUN = re.compile(
    r"\b(?i:the|an?|its|their|his|her|your|no|new|more|some)\s+"
    r"(?=((?:[a-z][\w’'-]*\s+){0,2}[a-z][\w’'-]*))"
)
_ENDS, _NO_MATTER = (frozenset(WORDS[name].split()) for name in ("grammar", "no_matter"))
_WORD = re.compile(r"[^\W_]+")
_PLURAL = re.compile(r"(?<=\w{2}[^\Wius])s$")
_OWNERSHIP = re.compile(r"\b(owner|tenant)s?\b", re.IGNORECASE)


@lru_cache(maxsize=64)
def matters_in(text: str) -> tuple[str, ...]:
    """Return the distinct noun phrases in a text. An example is "the long crossing"."""
    # A matter is a noun after an article, with the adjectives before the noun.
    matters = []
    for phrase in _NOUN.findall(text):
        words = phrase.split()
        stop = next((n for n, word in enumerate(words) if word.casefold() in _ENDS), len(words))
        noun_words = words[:stop]
        if (
            noun_words
            and not {noun_words[-1], noun_words[0]} & _NO_MATTER
            and len(noun_words[-1]) > 2
        ):
            matters.append(" ".join(noun_words))
    return tuple(dict.fromkeys(matters))


def _item_names(config: TownHallConfig) -> Sequence[str]:
    topic = config.topic
    if topic.matters:
        return tuple(dict.fromkeys(topic.matters))
    texts = [topic.title, topic.background, *topic.contributions.values()]
    texts += [sentence for sentences in topic.stakes.values() for sentence in sentences]
    matters = dict.fromkeys(
        matter for text in texts for matter in matters_in(collapse_spaces(text))
    )
    long_words = [
        word for word in re.findall(r"[A-Za-z’'-]{5,}", topic.title) if word.casefold() not in _ENDS
    ]
    distinct = {_normalise_words(matter): matter for matter in reversed(matters)}
    return tuple(reversed(distinct.values())) or tuple(long_words)


def with_article(matter: str) -> str:
    return f"the {matter}"


def _normalise_words(text: str) -> str:
    # The result is surrounded by spaces.
    words = _WORD.findall(text.casefold())
    return f" {' '.join(_PLURAL.sub('', word) for word in words)} "


@lru_cache(maxsize=16384)
def _matters_in_text(
    names: tuple[str, ...], ignored_phrases: re.Pattern[str], text: str
) -> tuple[str, ...]:
    normalised = _normalise_words(ignored_phrases.sub(" ", text.lower()))
    present = [name for name in names if _normalise_words(name) in normalised]
    return tuple(
        matter
        for matter in present
        if not any(matter != longer and matter in longer for longer in present)
    )


def spoken_matters(mind: SimulatedRespondent, text: str) -> tuple[str, ...]:
    """Return the noun phrases in a statement. An example is "the crossing"."""
    # Argument phrases are ignored.
    return _matters_in_text(mind.mentioned_names, mind.at.lexicon.any_phrase, text)


def own_matters(mind: SimulatedRespondent) -> list[str]:
    """Return the three noun phrases that interest the resident most."""
    # The matters come from the persona and the topic. If a sentence of the topic speaks of tenants,
    # its matters count only for tenants. The same holds for owners.
    own_status = _OWNERSHIP.search(mind.who.key)
    told_matters = [
        matter
        for passage in of_kind(mind.reading.passages, "material")
        for sentence in split_sentences(collapse_spaces(passage.text))
        if not (sentence_status := _OWNERSHIP.search(sentence))
        or own_status is None
        or sentence_status[1].casefold() == own_status[1].casefold()
        for matter in spoken_matters(mind, sentence)
    ]
    persona_matters = spoken_matters(mind, mind.who.key)
    utilities = {
        matter: mind.who.option_taste(matter) + OWN_MATTER_WEIGHT * (matter in persona_matters)
        for matter in (*persona_matters, *told_matters)
    }
    return sorted(utilities, key=lambda matter: (-utilities[matter], matter))[:3]


# --- what is read ---

# The lookbehind keeps the time linear in a long text without signs.
_QUESTION = re.compile(r"(?<![^.!?])[^.!?]*\?")
LEADERS = (MODERATOR, PLANNER)


def shown_passages(mind: SimulatedRespondent, column: str) -> list[Passage]:
    """Return the passages of the prompt that quote a table column, in the order of the rows."""
    return sorted(mind.shown_passages(column), key=_row_order)


def _row_order(passage: Passage) -> list[tuple[int, str]]:
    return natural_sort_key(passage.source.id)


def public_statements(mind: SimulatedRespondent) -> list[Passage]:
    """Return the distinct public utterances, sorted by round."""
    passages = {
        passage.source.id: passage
        for passage in of_kind(mind.reading.passages, "utterance")
        if not passage.inner and not part_of(passage.source.id)
    }
    # Shuffle within a round. Sorted by id, residents with low ids, who are not vulnerable, would be
    # named first by the moderator in every round.
    return [
        passages[utterance_id]
        for utterance_id in sorted(
            passages,
            key=lambda utterance_id: (round_of(utterance_id), _draw_lot(mind, utterance_id)),
        )
    ]


def _draw_lot(mind: SimulatedRespondent, utterance_id: str) -> float:
    return uniform_draw(mind.at.seed, "order of speaking", utterance_id)


def read_hall(mind: SimulatedRespondent) -> HeardStatements:
    """Read from the prompt the public statements, the questions and the residents' names."""
    statements = [(passage.source.speaker, passage.text) for passage in public_statements(mind)]
    questions: dict[str, str] = {}
    for passage in sorted(of_kind(mind.reading.passages, "utterance"), key=_row_order):
        if part_of(passage.source.id) == QUESTION:
            speaker = passage.source.speaker
            questions[speaker] = " ".join(filter(None, (questions.get(speaker), passage.text)))
    return HeardStatements(
        [(speaker, text) for speaker, text in statements if speaker not in LEADERS],
        {last_key(passage): passage.text for passage in shown_passages(mind, "residents.name")},
        [text for speaker, text in statements if speaker in LEADERS],
        questions,
    )


def last_round(mind: SimulatedRespondent) -> dict[str, str]:
    """Return each resident's statement in the last round of the prompt.

    The text is "" for a resident without a statement.
    """
    statements = [
        passage for passage in public_statements(mind) if passage.source.speaker not in LEADERS
    ]
    last_number = max((round_of(passage.source.id) for passage in statements), default=0)
    empty_texts = {last_key(passage): "" for passage in shown_passages(mind, "residents.id")}
    last_statements = (
        passage for passage in statements if round_of(passage.source.id) == last_number
    )
    return empty_texts | {passage.source.speaker: passage.text for passage in last_statements}


def items_in(mind: SimulatedRespondent) -> dict[str, str]:
    """Return a map from item id to item text for the ballot items."""
    return {last_key(passage): passage.text for passage in shown_passages(mind, "items.text")}


def passed_in(mind: SimulatedRespondent) -> list[str]:
    """Return the texts of the items that got more yes than no votes."""
    yes, no = (
        {last_key(passage): int(passage.text) for passage in shown_passages(mind, column)}
        for column in ("items.yes", "items.no")
    )
    return [
        text for item_id, text in items_in(mind).items() if yes.get(item_id, 0) > no.get(item_id, 0)
    ]


def stance_before(mind: SimulatedRespondent, resident_id: str) -> str:
    """Return the earlier stance of a resident, as the prompt shows it.

    Returns "" if the prompt shows no earlier stance.
    """
    texts = (
        passage.text.casefold()
        for passage in of_kind(mind.reading.passages, "utterance")
        if passage.source.speaker == resident_id and part_of(passage.source.id) == THOUGHTS
    )
    return next((text for text in texts if text in STANCES), "")


# --- residents ---


class GeneratedStatement(TypedDict):
    """A public statement that built-in rules produce in place of a model."""

    references: list[dict[str, str]]
    new_points: list[str]
    questions: list[dict[str, str]]
    full_statement: str


class PlayedResident:
    """One resident during one request, played by built-in rules in place of a model."""

    def __init__(self, mind: SimulatedRespondent, me: str, hall: HeardStatements) -> None:
        self.mind, self.me, self.hall = mind, me, hall
        self.push = mind.knobs.persuasion
        self.matters = own_matters(mind)
        self.others = [other for other in hall.last if other != me]
        self._eager: dict[str, float] = {}

    def view_of_plan(self) -> float:
        """Return how much the resident supports the plan, from −1 to 1."""
        # Support is higher if other speakers named the resident.
        naming_effect, leaning = (
            saturating_share(self.hall.naming_weight(self.me)) * self.push,
            self.mind.stable_leaning("stance"),
        )
        return max(-1.0, min(1.0, leaning + HEARD_WEIGHT * naming_effect * (1 - leaning) / 2))

    @property
    def stance(self) -> str:
        return STANCES[2 - round(2 * self.view_of_plan() * 0.999)]

    def agreement_with_resident(self, other: str) -> float:
        return self.mind.agreement_with(self.hall.last[other], self.mind.mentioned_names)

    def eagerness(self, other: str) -> float:
        """Return how eager the resident is to respond to resident `other`."""
        # The resident wishes to respond above `MIN_EAGERNESS`.
        if other not in self._eager:
            statements, mind = self.hall.statements_by(other), self.mind
            self._eager[other] = (
                NAMED_WEIGHT * saturating_share(self.hall.naming_weight(other, self.me)) * self.push
                + SHARED_MATTER_WEIGHT
                * any(matter in self.matters for matter in spoken_matters(mind, statements))
                + ASKED_WEIGHT * bool(self.asked_by(other))
                + 0.6 * mind.draw_rating(f"{other} {self.hall.last[other][:60]}")
            )
        return self._eager[other]

    def asked_by(self, other: str) -> str:
        """Return the last question that `other` asked this resident.

        Returns "" if there is no such question.
        """
        questions = _QUESTION.findall(
            f"{self.hall.last[other]} {self.hall.questions.get(other, '')}"
        )
        return next(
            (
                question
                for question in reversed(questions)
                if self.me in self.hall.named_in(question)
            ),
            "",
        )

    def reference_type(self, other: str) -> str:
        """Return the type of the resident's reference to resident `other`, for example "agree"."""
        agreement = self.agreement_with_resident(other)
        if not spoken_matters(self.mind, self.hall.statements_by(other)):
            return "cite"
        if abs(agreement) < 0.12:
            return "question" if self.mind.draws.draw_chance(0.5) else "cite"
        return ("agree" if agreement > 0.3 else "partial_agree") if agreement > 0 else "disagree"

    def matter_to_mention(self, other: str) -> str:
        """Return a noun phrase from the statements of resident `other`, such as "the crossing".

        Returns "" if there is no such noun phrase.
        """
        # A matter that this resident also cares about comes first.
        their_matters = spoken_matters(self.mind, self.hall.last[other]) or spoken_matters(
            self.mind, self.hall.statements_by(other)
        )
        shared_matters = [matter for matter in their_matters if matter in self.matters]
        return (shared_matters or their_matters)[-1] if their_matters else ""

    def fill_frame(self, kind: str, **slots: str) -> str:
        return self.mind.speech.fill_frame(self.mind.speech.pick_unused(WORDS[kind]), **slots)

    def describe_matter(self, other: str) -> str:
        matter = self.matter_to_mention(other)
        return with_article(matter) if matter else "where they stand"

    def answer_thinking(self) -> Fields:
        matters = self.matters
        return {
            "reactions": [self._build_reaction(other) for other in self.others],
            "overall_stance": self.stance,
            "key_concerns": [with_article(matter) for matter in matters[:2]],
            "strategic_notes": f"I mean to speak of {with_article(matters[0])}."
            if matters
            else "I will listen.",
        }

    def _build_reaction(self, other: str) -> Fields:
        level, matter = (
            3 + round(2 * self.agreement_with_resident(other)),
            self.describe_matter(other),
        )
        mood = "high" if level > 3 else "low" if level < 3 else "middle"
        return {
            "target_agent": other,
            "target_summary": matter,
            "my_feeling": self.mind.draws.pick_item(WORDS["feelings"][mood]),
            "agree_level": level,
            "reason": f"On {matter} I see it {WORDS['sees'][mood]}.",
            "want_to_respond": self.eagerness(other) > MIN_EAGERNESS,
        }

    def answer_speaking(self) -> GeneratedStatement:
        """Return a statement, which is sometimes empty."""
        draws = self.mind.draws
        is_terse = self.mind.who.voice == "terse"
        statement: GeneratedStatement = {
            "references": [], "new_points": [], "questions": [], "full_statement": "",
        }  # fmt: skip
        if draws.draw_chance(0.2 if is_terse else 0.05):
            return statement
        ranked = sorted(self.others, key=lambda other: -self.eagerness(other))
        for other in ranked[: 1 if is_terse else 3]:
            if self.eagerness(other) > MIN_EAGERNESS:
                kind, words = self._answer_resident(other)
                reference = {"target_agent": other, "interaction_type": kind, "content": words}
                statement["references"].append(reference)
                if kind == "question":
                    statement["questions"].append({"target": other, "content": words})
        points = self._fresh_matters()[: 1 if is_terse else draws.draw_integer(1, 2)]
        statement["new_points"] = [self._argument_on(point) for point in points]
        sentences = [*(row["content"] for row in statement["references"]), *statement["new_points"]]
        if not self.hall.statements or draws.draw_chance(0.35):
            sentences.append(draws.pick_item(WORDS["stands"][self.stance]))
        if draws.draw_chance(0.2) and self.matters:
            question = draws.pick_item(WORDS["public_questions"]).format(
                M=with_article(self.matters[-1])
            )
            statement["questions"].append(
                {"target": draws.pick_item(["all", "planner"]), "content": question}
            )
            sentences.append(question)
        statement["full_statement"] = " ".join(sentences)
        return statement

    def _answer_resident(self, other: str) -> tuple[str, str]:
        kind, taken_up = self.reference_type(other), self.matter_to_mention(other)
        matter = with_article(taken_up) if taken_up else "where we stand"
        words = self.fill_frame(kind, T=self.hall.name(other), M=matter)
        if asked_matters := spoken_matters(self.mind, self.asked_by(other)):
            return "cite", self.fill_frame(
                "replies", T=self.hall.name(other), M=with_article(asked_matters[-1])
            )
        return kind, words

    def _fresh_matters(self) -> list[str]:
        # Matters that the resident mentioned least come first.
        earlier_counts = Counter(spoken_matters(self.mind, self.hall.statements_by(self.me)))
        return sorted(self.matters, key=lambda matter: earlier_counts[matter])

    def _argument_on(self, matter: str) -> str:
        kind = "hopes" if self.view_of_plan() > 0.2 else "worries"
        return self.fill_frame(kind, M=with_article(matter), N=self.mind.speech.draw_noun())

    def reflection(self, before: str = "") -> Fields:
        """Return a reflection.

        `before`: the stance before the round.
        """
        by_agreement = sorted(
            self.others,
            key=lambda other: -(self.agreement_with_resident(other) + 0.2 * self.eagerness(other)),
        )
        stance_now, matters = self.stance, self.matters
        previous = before or stance_before(self.mind, self.me) or stance_now
        reason = (
            "because I was answered" if stance_now != previous else "nothing has changed my mind"
        )
        close, far = "It is close to what I live with.", "It is not how I see it."
        return {
            "most_compelling": self._opinion_of(by_agreement[0], why_compelling=close)
            if by_agreement
            else None,
            "most_disagreed": self._opinion_of(by_agreement[-1], why_disagree=far)
            if len(by_agreement) > 1
            else None,
            "stance_evolution": {
                "previous_stance": previous,
                "current_stance": stance_now,
                "change_type": change_between(previous, stance_now),
                "change_reason": f"So I stand now, {reason}.",
            },
            "next_round_strategy": f"I will come back to {with_article(matters[-1])}."
            if matters
            else "I listen.",
        }

    def _opinion_of(self, other: str, **reason: str) -> Fields:
        return {"agent_id": other, "opinion_summary": self.describe_matter(other), **reason}

    def answer_satisfaction(self) -> Fields:
        """Return a satisfaction rating."""
        # It is higher if the resident was named, or if an item on the resident's matters passed.
        mind = self.mind
        level = (
            5.5
            + 2.0 * mind.stable_leaning("how things are dealt with")
            + 0.8 * mind.stable_leaning("say")
        )
        # Before a meeting no other resident has spoken, and there are no items.
        if not (self.others or items_in(mind)):
            return {"satisfaction": _clip_level(level), "reason": "That is how things stand."}
        naming_weight = self.hall.naming_weight(self.me)
        passed_matters = {
            matter for text in passed_in(mind) for matter in spoken_matters(mind, text)
        }
        own_passed = [matter for matter in self.matters if matter in passed_matters]
        level += (
            CONTENT_WEIGHT * saturating_share(naming_weight) * self.push
            + 0.6 * bool(own_passed)
            - 0.5
        )
        level += mind.knobs.noise * mind.draws.draw_normal()
        reason = "Others took up what I said." if naming_weight else "Nobody took up what I said."
        if own_passed:
            reason = f"{capitalise(with_article(own_passed[0]))} will be dealt with."
        return {"satisfaction": _clip_level(level), "reason": reason}

    def answer_ballot(self) -> Fields:
        return {item: self._vote_on(text) for item, text in items_in(self.mind).items()}

    def _vote_on(self, text: str) -> Fields:
        matters = spoken_matters(self.mind, text)
        own = [matter for matter in matters if matter in self.matters]
        matter = with_article((own or matters)[0]) if matters else "it"
        if 0.7 * bool(own) + self.mind.draw_rating(f"vote {text}") + 0.15 <= 0:
            return {"vote": "no", "reason": f"This is not how I would deal with {matter}."}
        reason = f"It does no harm to {matter}." if matters else "I can agree to it."
        return {"vote": "yes", "reason": f"I care about {matter}." if own else reason}


def _clip_level(level: float) -> int:
    return max(1, min(10, round(level)))


def _played_residents(
    mind: SimulatedRespondent, ids: Iterable[str], hall: HeardStatements
) -> dict[str, PlayedResident]:
    personas = {
        resident_id: "\n".join(persona_of(mind.reading.passages, resident_id)) or resident_id
        for resident_id in ids
    }
    return {
        resident_id: PlayedResident(mind.mind_of(text), resident_id, hall)
        for resident_id, text in personas.items()
    }


_PARTS: Mapping[str, Callable[[PlayedResident], Fields]] = {
    "Turn": lambda resident: {
        "thinking": resident.answer_thinking(),
        "speaking": resident.answer_speaking(),
    },
    "Reflection": PlayedResident.reflection,
    "Ballot": PlayedResident.answer_ballot,
    "Satisfaction": PlayedResident.answer_satisfaction,
}


def _answer_for_residents(mind: SimulatedRespondent) -> Fields | None:
    parts = mind.schema.get("properties", {})
    first: Mapping[str, str] = next(iter(parts.values()), {})
    answer = _PARTS.get(first.get("title") or first.get("$ref", "").rsplit("/", 1)[-1])
    hall = read_hall(mind)
    return answer and {
        resident_id: answer(resident)
        for resident_id, resident in _played_residents(mind, parts, hall).items()
    }


def _answer_round(mind: SimulatedRespondent) -> Fields:
    ids = list(mind.schema["properties"]["turns"]["properties"])
    hall = read_hall(mind)
    residents = _played_residents(mind, ids, hall)
    thoughts, statements = {}, {}
    for resident_id, resident in residents.items():
        thoughts[resident_id], statements[resident_id] = (
            resident.answer_thinking(),
            resident.answer_speaking(),
        )
    turns = {
        resident_id: {"thinking": thoughts[resident_id], "speaking": statements[resident_id]}
        for resident_id in ids
    }
    if "reflections" not in mind.schema["properties"]:
        return {"turns": turns}
    new_statements = [
        (resident_id, words)
        for resident_id in ids
        if (words := statements[resident_id]["full_statement"])
    ]
    later_residents = _played_residents(mind, ids, hall.with_statements(new_statements))
    reflections = {
        resident_id: resident.reflection(residents[resident_id].stance)
        for resident_id, resident in later_residents.items()
    }
    return {"turns": turns, "reflections": reflections}


# --- moderator and planner ---


_MINE = re.compile(r"\b(?:I|me|my|mine)\b", re.IGNORECASE)


def _raised_matters(mind: SimulatedRespondent, hall: HeardStatements) -> dict[str, list[str]]:
    # Matter → residents who mention it in the first person. Frequent matters come first.
    residents_by_matter: dict[str, list[str]] = {}
    for speaker, text in hall.statements:
        for sentence in split_sentences(text):
            if sentence.endswith("?") or not _MINE.search(sentence):
                continue
            for matter in spoken_matters(mind, sentence):
                if speaker not in residents_by_matter.setdefault(matter, []):
                    residents_by_matter[matter].append(speaker)
    return dict(sorted(residents_by_matter.items(), key=lambda item: (-len(item[1]), item[0])))


def _addressed_residents(hall: HeardStatements, ids: Sequence[str]) -> str:
    return join_words(list(map(hall.name, ids)))


def _describe_count(hall: HeardStatements, matter: str, resident_ids: Sequence[str]) -> str:
    if len(resident_ids) < 4:
        return f"{_addressed_residents(hall, resident_ids)} spoke of {with_article(matter)}."
    return (
        f"{len(resident_ids)} residents spoke of {with_article(matter)}, "
        f"{_addressed_residents(hall, resident_ids[:2])} among them."
    )


def answer_moderation(mind: SimulatedRespondent) -> Fields:
    """Return the moderator's answer after a round."""
    # Concerns of residents on the moderator's list of the vulnerable come first.
    hall = read_hall(mind)
    last = hall.last
    raised = _raised_matters(mind, HeardStatements(tuple(last.items()), hall.names))
    summaries = [
        _describe_count(hall, matter, resident_ids)
        for matter, resident_ids in list(raised.items())[:3]
    ]
    word_counts = {resident_id: len(text.split()) for resident_id, text in last_round(mind).items()}
    middle = median(word_counts.values()) if word_counts else 0
    quiet = [
        resident_id
        for resident_id, count in word_counts.items()
        if count == 0 or count < middle / 2
    ]
    # Draw the invited residents if there are too many, since those with the last ids are
    # vulnerable.
    invited = sorted(
        quiet, key=lambda resident_id: _draw_lot(mind, f"{mind.at.address}/{resident_id}")
    )[:MAX_INVITED]
    quiet = [resident_id for resident_id in quiet if resident_id in invited]
    listed_ids = [
        resident_id
        for passage in shown_passages(mind, "portraits.label")
        if (resident_id := last_key(passage)) in last
    ]
    single_speakers = [
        resident_ids[0] for resident_ids in reversed(raised.values()) if len(resident_ids) == 1
    ]
    overlooked = [
        {"resident": resident_id, "concern": with_article(raised_matters[0])}
        for resident_id in (listed_ids or single_speakers[:2])
        if (
            raised_matters := [
                matter for matter, resident_ids in raised.items() if resident_id in resident_ids
            ]
            or spoken_matters(mind, last[resident_id])
        )
    ]
    summary = " ".join(summaries) or "Nobody has named a matter of their own yet."
    asks = [
        f"{_addressed_residents(hall, [concern['resident']])} spoke of "
        f"{concern['concern']}: who answers?"
        for concern in overlooked
    ]
    invites = [f"{_addressed_residents(hall, quiet)}, how do you see it?"] if quiet else []
    rare_matters = [matter for matter, resident_ids in raised.items() if len(resident_ids) == 1][:3]
    return {
        "summary": summary,
        "underrepresented_opinions": [
            f"what is to become of {with_article(matter)}" for matter in rare_matters
        ],
        "invited_residents": quiet,
        "overlooked_concerns": overlooked,
        "spoken": " ".join(["Thank you all.", summary, *asks, *invites]),
    }


def answer_planning(mind: SimulatedRespondent) -> Fields:
    """Return the planner's ballot, with one proposal for each frequent concern."""
    hall = read_hall(mind)
    raised = _raised_matters(mind, hall)
    ranked = list(raised)
    # The last of six items is for the rarest matter.
    chosen = ranked if len(ranked) <= 6 else [*ranked[:5], ranked[-1]]
    # Draw by address alone, so that the wordings do not depend on the prompt.
    draws = Draws(mind.at.seed, mind.at.address, PLANNER)
    wordings = draws.shuffled_copy(WORDS["proposals"])
    speakers = [_addressed_residents(hall, raised[matter][:3]) for matter in chosen]
    items = [
        {
            "proposal": wordings[n % len(wordings)].format(M=with_article(matter)),
            "reasoning": f"{speakers[n]} spoke of {with_article(matter)}.",
            "originating_residents": raised[matter],
        }
        for n, matter in enumerate(chosen)
    ]
    further_meeting = "Hold a further meeting before deciding"
    fallback_item = {
        "proposal": further_meeting,
        "reasoning": "No matter was named.",
        "originating_residents": [],
    }
    return {"items": items or [fallback_item]}


def answer_closing(mind: SimulatedRespondent) -> Fields:
    """Return the planner's closing text."""
    hall = read_hall(mind)
    passed = passed_in(mind)
    if not passed:
        text = "The hall could not agree on any proposal and asks for new ones."
        return {"consensus": text, "concerns_reflected": []}
    proposals = "; ".join(proposal[:1].lower() + proposal[1:] for proposal in passed)
    passed_matters = {matter for proposal in passed for matter in spoken_matters(mind, proposal)}
    return {
        "consensus": f"The hall wants this to be done: {proposals}.",
        "concerns_reflected": [
            {"resident": resident_id, "concern": with_article(matter)}
            for matter, resident_ids in _raised_matters(mind, hall).items()
            if matter in passed_matters
            for resident_id in resident_ids
        ],
    }


def _for_own_resident(
    answer: Callable[[PlayedResident], Mapping[str, object]],
) -> Callable[[SimulatedRespondent], object]:
    return lambda mind: answer(PlayedResident(mind, mind.reading.speaker, read_hall(mind)))


PART: RespondentPart[TownHallConfig] = RespondentPart(
    option_names=_item_names,
    answers={
        "Thinking": _for_own_resident(PlayedResident.answer_thinking),
        "Speaking": _for_own_resident(PlayedResident.answer_speaking),
        "Reflection": _for_own_resident(PlayedResident.reflection),
        "Ballot": _for_own_resident(PlayedResident.answer_ballot),
        "Satisfaction": _for_own_resident(PlayedResident.answer_satisfaction),
        "Residents": _answer_for_residents,
        "Round": _answer_round,
        "Moderating": answer_moderation,
        "Planned": answer_planning,
        "Closing": answer_closing,
    },
    lexicon=Lexicon.from_data(WORDS["lexicon"]),
)
