"""The answers of the embedded respondent at a town hall.

Residents speak of the matters that the topic names. One effect is built in: a resident whom others
name, above all the moderator, is answered more often and ends more satisfied. No other effect
depends on the level.

Passages of a request are found by their sources: a statement by speaker and reply, a persona by
resident, an item by its table row. Instructions are not read. Only matters, names and questions are
searched for in statements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, TypedDict

from folkmoot.files import packaged_yaml
from folkmoot.hints import join_words
from folkmoot.respondent import (
    Draws,
    Lexicon,
    Passage,
    RespondentPart,
    SimulatedRespondent,
    of_kind,
)
from folkmoot.respondent.mind.draws import uniform_draw
from folkmoot.respondent.mind.passages import persona_of
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
NAMED = 3.2
# … who speaks of a matter of the respondent's, …
SHARED = 0.8
# … or who has asked the respondent something.
ASKED = 2.5
# Minimum eagerness at which a resident wishes to respond.
EAGER = 1.05
# Maximum effect of being named on a stance (scale −1 … 1), …
HEARD = 0.9
# … and on satisfaction (scale 1 … 10).
CONTENT = 2.5
# Added liking of a matter in the resident's persona.
OWN = 1.0
# Weight of being named by a resident. The weight of a leader is 1.
ASIDE = 0.25
# Maximum number of residents named in a sentence before it is a list.
FEW = 4
# Maximum number of quiet residents whom the moderator invites in one round.
MAX_INVITED = 4
# Weighted number of sentences at which being named has half of its maximum effect.
HALF = 2.0

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
    """Return the matters in a text: nouns after an article, with the words before them."""
    found = []
    for run in _NOUN.findall(text):
        words = run.split()
        stop = next((n for n, word in enumerate(words) if word.casefold() in _ENDS), len(words))
        kept = words[:stop]
        if kept and not {kept[-1], kept[0]} & _NO_MATTER and len(kept[-1]) > 2:
            found.append(" ".join(kept))
    return tuple(dict.fromkeys(found))


def _item_names(config: TownHallConfig) -> Sequence[str]:
    topic = config.topic
    if topic.matters:
        return tuple(dict.fromkeys(topic.matters))
    said = [topic.title, topic.background, *topic.contributions.values()]
    said += [sentence for sentences in topic.stakes.values() for sentence in sentences]
    found = dict.fromkeys(matter for text in said for matter in matters_in(" ".join(text.split())))
    long = [w for w in re.findall(r"[A-Za-z’'-]{5,}", topic.title) if w.casefold() not in _ENDS]
    once = {_normalise_words(matter): matter for matter in reversed(found)}
    return tuple(reversed(once.values())) or tuple(long)


def with_article(matter: str) -> str:
    return f"the {matter}"


def _normalise_words(text: str) -> str:
    """Return the words of a text in lower case and in the singular, with spaces around them."""
    words = _WORD.findall(text.casefold())
    return f" {' '.join(_PLURAL.sub('', word) for word in words)} "


@lru_cache(maxsize=16384)
def _matters_in_text(names: tuple[str, ...], text: str) -> tuple[str, ...]:
    low = _normalise_words(text)
    there = [name for name in names if _normalise_words(name) in low]
    return tuple(
        matter
        for matter in there
        if not any(matter != option and matter in option for option in there)
    )


def spoken_matters(mind: SimulatedRespondent, text: str) -> tuple[str, ...]:
    """Return the matters that a text mentions outside its wishes ("a street that …")."""
    return _matters_in_text(mind.mentioned_names, mind.at.lexicon.any_phrase.sub(" ", text.lower()))


def own_matters(mind: SimulatedRespondent) -> list[str]:
    """Return a resident's three best-liked matters, without sentences on other ownerships."""
    mine = _OWNERSHIP.search(mind.who.key)
    told = [
        matter
        for passage in of_kind(mind.reading.passages, "material")
        for sentence in _SENTENCE.split(" ".join(passage.text.split()))
        if not (whose := _OWNERSHIP.search(sentence))
        or mine is None
        or whose[1].casefold() == mine[1].casefold()
        for matter in spoken_matters(mind, sentence)
    ]
    own = spoken_matters(mind, mind.who.key)
    liking = {
        matter: mind.who.option_taste(matter) + OWN * (matter in own) for matter in (*own, *told)
    }
    return sorted(liking, key=lambda matter: (-liking[matter], matter))[:3]


# --- what is read ---

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_QUESTION = re.compile(r"[^.!?]*\?")
_NUMBER = re.compile(r"(\d+)")
# The moderator and the planner together, as those who name residents.
LEADER = ""
LEADERS = (MODERATOR, PLANNER)


def shown_passages(mind: SimulatedRespondent, column: str) -> list[Passage]:
    """Return the passages from a column of a table, in the order of their rows."""
    found = (
        passage for passage in mind.reading.passages if passage.source.id.startswith(f"{column}/")
    )
    return sorted(found, key=_row_order)


def _row_order(passage: Passage) -> list[tuple[int, str]]:
    """Return a key that sorts `round10` after `round9`."""
    parts = _NUMBER.split(passage.source.id)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _last_key(passage: Passage) -> str:
    """Return the last key of the table row from which a text was taken."""
    return passage.source.id.rpartition("/")[2]


@lru_cache(maxsize=256)
def _any_name(called: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(called, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b")


class HeardStatements:
    """The statements of a meeting in a request.

    `said`: (resident id, words) in order. `asked`: resident id → questions asked. `led`: words of
    the leaders. `names`: resident id → name.
    """

    def __init__(
        self,
        said: Sequence[tuple[str, str]],
        names: Mapping[str, str],
        led: Sequence[str] = (),
        asked: Mapping[str, str] | None = None,
    ) -> None:
        self.said, self.names, self.led, self.asked = tuple(said), names, led, asked or {}
        self.last = dict(self.said)
        self._called = {resident_id: resident_id for resident_id in (*names, *self.last)}
        for resident_id, name in names.items():
            # A prompt may write names in capitals, and a statement may not.
            self._called |= dict.fromkeys((name, name.title(), name.upper()), resident_id)
        self._naming: list[tuple[str, set[str]]] = []
        for who, text in (*self.said, *((LEADER, words) for words in led)):
            for sentence in _SENTENCE.split(text):
                found = self.named_in(sentence)
                # A list of residents addresses none of them in particular.
                if 0 < len(found) <= FEW:
                    self._naming.append((who, found))

    def with_statements(self, said: Sequence[tuple[str, str]]) -> HeardStatements:
        """Return a copy with further statements."""
        return HeardStatements((*self.said, *said), self.names, self.led, self.asked)

    def named_in(self, text: str) -> set[str]:
        """Return the ids of the residents whom a text names by id or name."""
        if not self._called:
            return set()
        return {self._called[name] for name in _any_name(tuple(self._called)).findall(text)}

    def statements_by(self, who: str) -> str:
        """Return all statements of a resident as one text."""
        return " ".join(words for resident_id, words in self.said if resident_id == who)

    def name(self, who: str) -> str:
        return self.names.get(who, who)

    def naming_weight(self, who: str, but: str = LEADER) -> float:
        """Return the weighted number of sentences of others than `but` that name a resident.

        By default leaders are left out, because being called upon is not yet being answered.
        """
        return sum(
            1.0 if by == LEADER else ASIDE
            for by, found in self._naming
            if who in found and by not in (who, but)
        )


def public_statements(mind: SimulatedRespondent) -> list[Passage]:
    """Return the public utterances, round by round, each once."""
    found = {
        passage.source.id: passage
        for passage in of_kind(mind.reading.passages, "utterance")
        if not passage.inner and not part_of(passage.source.id)
    }
    # Shuffle within a round. Sorted by id, residents with low ids, who are not vulnerable, would be
    # named first by the moderator in every round.
    return [found[id] for id in sorted(found, key=lambda id: (round_of(id), _draw_lot(mind, id)))]


def _draw_lot(mind: SimulatedRespondent, id: str) -> float:
    return uniform_draw(mind.at.seed, "order of speaking", id)


def read_hall(mind: SimulatedRespondent) -> HeardStatements:
    """Return the public statements, the questions in them and the names of residents."""
    by = [(passage.source.speaker, passage.text) for passage in public_statements(mind)]
    asked: dict[str, str] = {}
    for passage in sorted(of_kind(mind.reading.passages, "utterance"), key=_row_order):
        if part_of(passage.source.id) == QUESTION:
            who = passage.source.speaker
            asked[who] = " ".join(filter(None, (asked.get(who), passage.text)))
    return HeardStatements(
        [(who, words) for who, words in by if who not in LEADERS],
        {_last_key(passage): passage.text for passage in shown_passages(mind, "residents.name")},
        [words for who, words in by if who in LEADERS],
        asked,
    )


def last_round(mind: SimulatedRespondent) -> dict[str, str]:
    """Return resident id → statement of the last round shown, "" for residents without one."""
    said = [passage for passage in public_statements(mind) if passage.source.speaker not in LEADERS]
    last = max((round_of(passage.source.id) for passage in said), default=0)
    there = {_last_key(passage): "" for passage in shown_passages(mind, "residents.id")}
    now = (passage for passage in said if round_of(passage.source.id) == last)
    return there | {passage.source.speaker: passage.text for passage in now}


def items_in(mind: SimulatedRespondent) -> dict[str, str]:
    """Return item id → text of the ballot."""
    return {_last_key(passage): passage.text for passage in shown_passages(mind, "items.text")}


def passed_in(mind: SimulatedRespondent) -> list[str]:
    """Return the texts of the items with more yes than no votes."""
    yes, no = (
        {_last_key(passage): int(passage.text) for passage in shown_passages(mind, column)}
        for column in ("items.yes", "items.no")
    )
    return [
        text
        for resident_id, text in items_in(mind).items()
        if yes.get(resident_id, 0) > no.get(resident_id, 0)
    ]


def stance_before(mind: SimulatedRespondent, who: str) -> str:
    """Return the earlier stance that a resident is shown, or ""."""
    own = (
        passage.text.casefold()
        for passage in of_kind(mind.reading.passages, "utterance")
        if passage.source.speaker == who and part_of(passage.source.id) == THOUGHTS
    )
    return next((text for text in own if text in STANCES), "")


def saturating_share(amount: float) -> float:
    """Return the share (0 … 1) of the maximum effect that `amount` sentences have."""
    return amount / (amount + HALF)


# --- residents ---


class Statement(TypedDict):
    """The answer of SPEAK."""

    references: list[dict[str, str]]
    new_points: list[str]
    questions: list[dict[str, str]]
    full_statement: str


class Resident:
    """One resident in one reply."""

    def __init__(self, mind: SimulatedRespondent, me: str, hall: HeardStatements) -> None:
        self.mind, self.me, self.hall = mind, me, hall
        self.push = mind.knobs.persuasion
        self.matters = own_matters(mind)
        self.others = [resident_id for resident_id in hall.last if resident_id != me]
        self._eager: dict[str, float] = {}

    def view_of_plan(self, title: str = "stance") -> float:
        """Return the view of the plan, −1 … 1: the leaning plus the effect of being named."""
        named, leaning = (
            saturating_share(self.hall.naming_weight(self.me)) * self.push,
            self.mind.stable_leaning(title),
        )
        return max(-1.0, min(1.0, leaning + HEARD * named * (1 - leaning) / 2))

    @property
    def stance(self) -> str:
        return STANCES[2 - round(2 * self.view_of_plan() * 0.999)]

    def agreement_with_resident(self, who: str) -> float:
        return self.mind.agreement_with(self.hall.last[who], self.mind.mentioned_names)

    def eagerness(self, who: str) -> float:
        """Return how eager the resident is to respond to `who`."""
        if who not in self._eager:
            said, mind = self.hall.statements_by(who), self.mind
            self._eager[who] = (
                NAMED * saturating_share(self.hall.naming_weight(who, self.me)) * self.push
                + SHARED * any(matter in self.matters for matter in spoken_matters(mind, said))
                + ASKED * bool(self.asked_by(who))
                + 0.6 * mind.draw_rating(f"{who} {self.hall.last[who][:60]}")
            )
        return self._eager[who]

    def asked_by(self, who: str) -> str:
        """Return the last question of `who` to this resident, or ""."""
        asked = _QUESTION.findall(f"{self.hall.last[who]} {self.hall.asked.get(who, '')}")
        return next((q for q in reversed(asked) if self.me in self.hall.named_in(q)), "")

    def kind(self, who: str) -> str:
        """Return the type of the reference to `who`: "cite" if there is no matter to oppose."""
        liked = self.agreement_with_resident(who)
        if not spoken_matters(self.mind, self.hall.statements_by(who)):
            return "cite"
        if abs(liked) < 0.12:
            return "question" if self.mind.draws.draw_chance(0.5) else "cite"
        return ("agree" if liked > 0.3 else "partial_agree") if liked > 0 else "disagree"

    def matter_taken_up(self, who: str) -> str:
        """Return the matter of `who` to respond to: a shared one if possible, or the last."""
        theirs = spoken_matters(self.mind, self.hall.last[who]) or spoken_matters(
            self.mind, self.hall.statements_by(who)
        )
        mine = [matter for matter in theirs if matter in self.matters]
        return (mine or theirs)[-1] if theirs else ""

    def fill_frame(self, kind: str, **slots: str) -> str:
        return self.mind.tongue.fill_frame(self.mind.tongue.pick_unused(WORDS[kind]), **slots)

    def describe_matter(self, who: str) -> str:
        about = self.matter_taken_up(who)
        return with_article(about) if about else "where they stand"

    def answer_thinking(self) -> Fields:
        mine = self.matters
        return {
            "reactions": [self._build_reaction(other) for other in self.others],
            "overall_stance": self.stance,
            "key_concerns": [with_article(matter) for matter in mine[:2]],
            "strategic_notes": f"I mean to speak of {with_article(mine[0])}."
            if mine
            else "I will listen.",
        }

    def _build_reaction(self, who: str) -> Fields:
        level, matter = 3 + round(2 * self.agreement_with_resident(who)), self.describe_matter(who)
        mood = "high" if level > 3 else "low" if level < 3 else "middle"
        return {
            "target_agent": who,
            "target_summary": matter,
            "my_feeling": self.mind.draws.pick_item(WORDS["feelings"][mood]),
            "agree_level": level,
            "reason": f"On {matter} I see it {WORDS['sees'][mood]}.",
            "want_to_respond": self.eagerness(who) > EAGER,
        }

    def answer_speaking(self) -> Statement:
        """Return a statement: responses and own matters, or sometimes silence."""
        draws = self.mind.draws
        terse = self.mind.who.voice == "terse"
        said: Statement = {
            "references": [], "new_points": [], "questions": [], "full_statement": "",
        }  # fmt: skip
        if draws.draw_chance(0.2 if terse else 0.05):
            return said
        ranked = sorted(self.others, key=lambda resident_id: -self.eagerness(resident_id))
        for who in ranked[: 1 if terse else 3]:
            if self.eagerness(who) > EAGER:
                kind, words = self._answer_resident(who)
                reference = {"target_agent": who, "interaction_type": kind, "content": words}
                said["references"].append(reference)
                if kind == "question":
                    said["questions"].append({"target": who, "content": words})
        points = self._fresh_matters()[: 1 if terse else draws.draw_integer(1, 2)]
        said["new_points"] = [self._argument_on(point) for point in points]
        aloud = [*(row["content"] for row in said["references"]), *said["new_points"]]
        if not self.hall.said or draws.draw_chance(0.35):
            aloud.append(draws.pick_item(WORDS["stands"][self.stance]))
        if draws.draw_chance(0.2) and self.matters:
            asked = draws.pick_item(WORDS["public_questions"]).format(
                M=with_article(self.matters[-1])
            )
            said["questions"].append(
                {"target": draws.pick_item(["all", "planner"]), "content": asked}
            )
            aloud.append(asked)
        said["full_statement"] = " ".join(aloud)
        return said

    def _answer_resident(self, who: str) -> tuple[str, str]:
        """Return type and words of the response to `who`, who may have asked a question."""
        kind, about = self.kind(who), self.matter_taken_up(who)
        matter = with_article(about) if about else "where we stand"
        words = self.fill_frame(kind, T=self.hall.name(who), M=matter)
        if put := spoken_matters(self.mind, self.asked_by(who)):
            return "cite", self.fill_frame(
                "replies", T=self.hall.name(who), M=with_article(put[-1])
            )
        return kind, words

    def _fresh_matters(self) -> list[str]:
        """Return the resident's matters, with those they have mentioned least first."""
        before = Counter(spoken_matters(self.mind, self.hall.statements_by(self.me)))
        return sorted(self.matters, key=lambda matter: before[matter])

    def _argument_on(self, matter: str) -> str:
        kind = "hopes" if self.view_of_plan() > 0.2 else "worries"
        return self.fill_frame(kind, M=with_article(matter), N=self.mind.tongue.draw_noun())

    def reflection(self, before: str = "") -> Fields:
        """Return the liked and disliked opinions, and the change since the stance `before`."""
        others = sorted(
            self.others,
            key=lambda resident_id: (
                -(self.agreement_with_resident(resident_id) + 0.2 * self.eagerness(resident_id))
            ),
        )
        now, mine = self.stance, self.matters
        told = before or stance_before(self.mind, self.me) or now
        moved = "because I was answered" if now != told else "nothing has changed my mind"
        close, far = "It is close to what I live with.", "It is not how I see it."
        return {
            "most_compelling": self._opinion_of(others[0], why_compelling=close)
            if others
            else None,
            "most_disagreed": self._opinion_of(others[-1], why_disagree=far)
            if len(others) > 1
            else None,
            "stance_evolution": {
                "previous_stance": told,
                "current_stance": now,
                "change_type": change_between(told, now),
                "change_reason": f"So I stand now, {moved}.",
            },
            "next_round_strategy": f"I will come back to {with_article(mine[-1])}."
            if mine
            else "I listen.",
        }

    def _opinion_of(self, who: str, **why: str) -> Fields:
        return {"agent_id": who, "opinion_summary": self.describe_matter(who), **why}

    def answer_satisfaction(self) -> Fields:
        """Return a stable level, plus the effects of being named and of passed items."""
        mind = self.mind
        level = (
            5.5
            + 2.0 * mind.stable_leaning("how things are dealt with")
            + 0.8 * mind.stable_leaning("say")
        )
        # Before a meeting no other resident has spoken, and there are no items.
        if not (self.others or items_in(mind)):
            return {"satisfaction": _clip_level(level), "reason": "That is how things stand."}
        named = self.hall.naming_weight(self.me)
        passed = {matter for text in passed_in(mind) for matter in spoken_matters(mind, text)}
        mine = [matter for matter in self.matters if matter in passed]
        level += CONTENT * saturating_share(named) * self.push + 0.6 * bool(mine) - 0.5
        level += mind.knobs.noise * mind.draws.draw_normal()
        reason = "Others took up what I said." if named else "Nobody took up what I said."
        if mine:
            reason = f"{with_article(mine[0]).capitalize()} will be dealt with."
        return {"satisfaction": _clip_level(level), "reason": reason}

    def answer_ballot(self) -> Fields:
        return {item: self._vote_on(text) for item, text in items_in(self.mind).items()}

    def _vote_on(self, text: str) -> Fields:
        about = spoken_matters(self.mind, text)
        mine = [matter for matter in about if matter in self.matters]
        matter = with_article((mine or about)[0]) if about else "it"
        if 0.7 * bool(mine) + self.mind.draw_rating(f"vote {text}") + 0.15 <= 0:
            return {"vote": "no", "reason": f"This is not how I would deal with {matter}."}
        reason = f"It does no harm to {matter}." if about else "I can agree to it."
        return {"vote": "yes", "reason": f"I care about {matter}." if mine else reason}


def _clip_level(level: float) -> int:
    return max(1, min(10, round(level)))


def _played_residents(
    mind: SimulatedRespondent, ids: Iterable[str], hall: HeardStatements
) -> dict[str, Resident]:
    """Return the residents whom one session plays, by id."""
    told = {
        resident_id: "\n".join(persona_of(mind.reading.passages, resident_id)) or resident_id
        for resident_id in ids
    }
    return {
        resident_id: Resident(mind.mind_of(text), resident_id, hall)
        for resident_id, text in told.items()
    }


_PARTS: Mapping[str, Callable[[Resident], Fields]] = {
    "Turn": lambda who: {"thinking": who.answer_thinking(), "speaking": who.answer_speaking()},
    "Reflection": Resident.reflection,
    "Ballot": Resident.answer_ballot,
    "Satisfaction": Resident.answer_satisfaction,
}


def _answer_for_residents(mind: SimulatedRespondent) -> Fields | None:
    """Return the parts of several residents. The schema says which residents and which part."""
    parts = mind.schema.get("properties", {})
    first: Mapping[str, str] = next(iter(parts.values()), {})
    part = _PARTS.get(first.get("title") or first.get("$ref", "").rsplit("/", 1)[-1])
    hall = read_hall(mind)
    return part and {
        resident_id: part(who) for resident_id, who in _played_residents(mind, parts, hall).items()
    }


def _answer_round(mind: SimulatedRespondent) -> Fields:
    """Return a whole round of a shared session: turns, then reflections on them."""
    ids = list(mind.schema["properties"]["turns"]["properties"])
    hall = read_hall(mind)
    people = _played_residents(mind, ids, hall)
    thoughts, spoken = {}, {}
    for resident_id, who in people.items():
        thoughts[resident_id], spoken[resident_id] = who.answer_thinking(), who.answer_speaking()
    turns = {
        resident_id: {"thinking": thoughts[resident_id], "speaking": spoken[resident_id]}
        for resident_id in ids
    }
    if "reflections" not in mind.schema["properties"]:
        return {"turns": turns}
    said = [
        (resident_id, words)
        for resident_id in ids
        if (words := spoken[resident_id]["full_statement"])
    ]
    later = _played_residents(mind, ids, hall.with_statements(said))
    back = {
        resident_id: who.reflection(people[resident_id].stance)
        for resident_id, who in later.items()
    }
    return {"turns": turns, "reflections": back}


# --- moderator and planner ---


_MINE = re.compile(r"\b(?:I|me|my|mine)\b", re.IGNORECASE)


def _raised_matters(mind: SimulatedRespondent, hall: HeardStatements) -> dict[str, list[str]]:
    """Return matter → residents who mention it in the first person, the most frequent first."""
    found: dict[str, list[str]] = {}
    for who, words in hall.said:
        for sentence in _SENTENCE.split(words):
            if sentence.endswith("?") or not _MINE.search(sentence):
                continue
            for matter in spoken_matters(mind, sentence):
                if who not in found.setdefault(matter, []):
                    found[matter].append(who)
    return dict(sorted(found.items(), key=lambda kv: (-len(kv[1]), kv[0])))


def _addressed_residents(hall: HeardStatements, ids: Sequence[str]) -> str:
    return join_words(list(map(hall.name, ids)))


def _describe_count(hall: HeardStatements, matter: str, who: Sequence[str]) -> str:
    if len(who) < 4:
        return f"{_addressed_residents(hall, who)} spoke of {with_article(matter)}."
    return (
        f"{len(who)} residents spoke of {with_article(matter)}, "
        f"{_addressed_residents(hall, who[:2])} among them."
    )


def answer_moderation(mind: SimulatedRespondent) -> Fields:
    """Return the moderation: matters, quiet residents and concerns that others left unanswered.

    Concerns of residents on the list of the vulnerable come first.
    """
    hall = read_hall(mind)
    last = hall.last
    raised = _raised_matters(mind, HeardStatements(tuple(last.items()), hall.names))
    told = [_describe_count(hall, matter, who) for matter, who in list(raised.items())[:3]]
    words = {resident_id: len(text.split()) for resident_id, text in last_round(mind).items()}
    middle = median(words.values()) if words else 0
    quiet = [resident_id for resident_id, n in words.items() if n == 0 or n < middle / 2]
    # Draw the invited residents if there are too many, since those with the last ids are
    # vulnerable.
    invited = sorted(
        quiet, key=lambda resident_id: _draw_lot(mind, f"{mind.at.address}/{resident_id}")
    )[:MAX_INVITED]
    quiet = [resident_id for resident_id in quiet if resident_id in invited]
    listed = [
        resident_id
        for passage in shown_passages(mind, "portraits.label")
        if (resident_id := _last_key(passage)) in last
    ]
    rare = [who[0] for who in reversed(raised.values()) if len(who) == 1]
    overlooked = [
        {"resident": resident_id, "concern": with_article(own[0])}
        for resident_id in (listed or rare[:2])
        if (
            own := [matter for matter, who in raised.items() if resident_id in who]
            or spoken_matters(mind, last[resident_id])
        )
    ]
    summary = " ".join(told) or "Nobody has named a matter of their own yet."
    asks = [
        f"{_addressed_residents(hall, [c['resident']])} spoke of {c['concern']}: who answers?"
        for c in overlooked
    ]
    invites = [f"{_addressed_residents(hall, quiet)}, how do you see it?"] if quiet else []
    rarely = [matter for matter, who in raised.items() if len(who) == 1][:3]
    return {
        "summary": summary,
        "underrepresented_opinions": [
            f"what is to become of {with_article(matter)}" for matter in rarely
        ],
        "invited_residents": quiet,
        "overlooked_concerns": overlooked,
        "spoken": " ".join(["Thank you all.", summary, *asks, *invites]),
    }


def answer_planning(mind: SimulatedRespondent) -> Fields:
    """Return a proposal on each of the most frequent matters, with the residents who raised it."""
    hall = read_hall(mind)
    raised = _raised_matters(mind, hall)
    ranked = list(raised)
    # The last of six items is for the rarest matter.
    kept = ranked if len(ranked) <= 6 else [*ranked[:5], ranked[-1]]
    # Draw by address alone, so that the wordings do not depend on the prompt.
    draws = Draws(mind.at.seed, mind.at.address, PLANNER)
    wordings = draws.shuffled_copy(WORDS["proposals"])
    speakers = [_addressed_residents(hall, raised[matter][:3]) for matter in kept]
    items = [
        {
            "proposal": wordings[n % len(wordings)].format(M=with_article(matter)),
            "reasoning": f"{speakers[n]} spoke of {with_article(matter)}.",
            "originating_residents": raised[matter],
        }
        for n, matter in enumerate(kept)
    ]
    further = "Hold a further meeting before deciding"
    none = {"proposal": further, "reasoning": "No matter was named.", "originating_residents": []}
    return {"items": items or [none]}


def answer_closing(mind: SimulatedRespondent) -> Fields:
    """Return the closing text: the items that passed, and the residents with matters in them."""
    hall = read_hall(mind)
    passed = passed_in(mind)
    if not passed:
        text = "The hall could not agree on any proposal and asks for new ones."
        return {"consensus": text, "concerns_reflected": []}
    wants = "; ".join(part[:1].lower() + part[1:] for part in passed)
    of = {matter for part in passed for matter in spoken_matters(mind, part)}
    return {
        "consensus": f"The hall wants this to be done: {wants}.",
        "concerns_reflected": [
            {"resident": who, "concern": with_article(matter)}
            for matter, people in _raised_matters(mind, hall).items()
            if matter in of
            for who in people
        ],
    }


def _for_own_resident(
    part: Callable[[Resident], Mapping[str, object]],
) -> Callable[[SimulatedRespondent], object]:
    return lambda mind: part(Resident(mind, mind.reading.speaker, read_hall(mind)))


PART: RespondentPart[TownHallConfig] = RespondentPart(
    option_names=_item_names,
    answers={
        "Thinking": _for_own_resident(Resident.answer_thinking),
        "Speaking": _for_own_resident(Resident.answer_speaking),
        "Reflection": _for_own_resident(Resident.reflection),
        "Ballot": _for_own_resident(Resident.answer_ballot),
        "Satisfaction": _for_own_resident(Resident.answer_satisfaction),
        "Residents": _answer_for_residents,
        "Round": _answer_round,
        "Moderating": answer_moderation,
        "Planned": answer_planning,
        "Closing": answer_closing,
    },
    lexicon=Lexicon.from_data(WORDS["lexicon"]),
)
