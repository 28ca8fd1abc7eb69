"""Personas that the respondent writes from a one-line description."""
# They consist of demographics and a description in sentences.

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from folkmoot.files import packaged_yaml
from folkmoot.hints import capitalise
from folkmoot.people.enrichment import SCALES
from folkmoot.respondent.mind.draws import Draws
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.part import Answering
from folkmoot.respondent.mind.passages import of_kind
from folkmoot.respondent.mind.persona import with_article

_RURAL = re.compile(r"\b(?:farm|rural|village|small[- ]town|ranch|country)\w*", re.I)
_LEAD = re.compile(r"^(?:i am|i['’]m|you are|you['’]re|as)\s+", re.I)
_NAMED = re.compile(r"^(?:[A-Z][\w.'’-]*\s+[A-Z]|[A-Z]{2,}\b|(?i:an?|the|one|another|my)\b)")
_TAIL = re.compile(r",|\.|;|\s(?:who|with|that|whose|from|at|for|and|in|to|trying|working)\b")


@cache
def _load_words() -> Mapping[str, Any]:
    words: Mapping[str, Any] = packaged_yaml(__file__, "people.yaml")
    return words


def _count_matches(words: str, text: str) -> int:
    return len(re.findall(rf"\b(?:{words})\b", text, re.I))


def answer_demographics(mind: SimulatedRespondent) -> dict[str, str | int]:
    """Return plausible demographics of the person whom one line of the prompt describes."""
    line, draws = mind.who.key, mind.draws
    wordings = _load_words()
    low, high = next(
        ((low, high) for words, low, high in wordings["ages"] if _count_matches(words, line)),
        (24, 62),
    )
    level = next((name for words, name in wordings["levels"] if _count_matches(words, line)), None)
    if level is None:
        level = draws.draw_weighted_index((0.24, 0.28, 0.3, 0.14, 0.04))
    # Income rises with education. All weights here are plausible and not taken from a survey.
    earning = round(0.55 * level + 0.6 + draws.draw_normal(0.0, 0.9))
    place = 2 if _RURAL.search(line) else draws.draw_weighted_index((0.42, 0.4, 0.18))
    # Plausible tendencies only: rural people lean right, urban and educated people left.
    tilt = 0.35 * (place == 2) - 0.25 * (place == 0) - 0.12 * (level - 2)
    leaning = round(2 + tilt + draws.draw_normal(0.0, 0.95))
    woman, man = _count_matches(wordings["woman"], line), _count_matches(wordings["man"], line)
    title = " ".join(_TAIL.split(_strip_opening(line), maxsplit=1)[0].split()[:5])[:60]
    return {
        "age": draws.draw_integer(low, high),
        "sex": "F" if woman > man else "M" if man > woman else draws.pick_item(("F", "M")),
        "education": SCALES["education"][level],
        "income": SCALES["income"][max(0, min(4, earning))],
        "location_type": SCALES["location_type"][place],
        "political_leaning": SCALES["political_leaning"][max(0, min(4, leaning))],
        "occupation": capitalise(title) if len(title) > 1 else "Employee",
    }


def answer_portrait(mind: SimulatedRespondent) -> str:
    """Return two or three sentences that portray the person whom the prompt describes."""
    draws, values = mind.draws, of_kind(mind.reading.passages, "value")
    value_of = {
        passage.source.id.partition("/")[0].rpartition(".")[2]: passage.text for passage in values
    }
    facts = {name: value_of.get(name) or draws.pick_item(values) for name, values in SCALES.items()}
    return _describe_person(
        mind.who.key, facts, value_of.get("age", "40"), value_of.get("sex") == "F", draws
    )


def _describe_person(
    line: str, facts: Mapping[str, str], age: str, is_woman: bool, draws: Draws
) -> str:
    description = _strip_opening(
        re.split(r"(?<=[a-z]{2})\.\s+(?=[A-Z])", line, maxsplit=1)[0]
    ).rstrip(". ")
    subject = (
        description
        if _NAMED.match(description)
        else f"{with_article(description)} {description[:1].lower()}{description[1:]}"
    )
    pronoun, reflexive = ("She", "herself") if is_woman else ("He", "himself")
    school = facts["education"][:1].lower() + facts["education"][1:]
    income, place = facts["income"].lower(), facts["location_type"]
    return (
        f"{subject}, {age} years old and {draws.pick_item(_load_words()['manners'])}. "
        f"{pronoun} lives "
        "on "
        f"{income} in {with_article(place)} {place} area, has an education of the level “{school}” "
        f"and describes {reflexive} as politically {facts['political_leaning']}. {pronoun} "
        f"{draws.pick_item(_load_words()['spare'])} and {draws.pick_item(_load_words()['past'])}."
    )


def _strip_opening(line: str) -> str:
    # Openings such as "I am a" or "As the".
    return re.sub(r"^(?:an?|the)\s+", "", _LEAD.sub("", line.strip()), flags=re.I)


ANSWERS: Mapping[str, Answering] = {
    "Demographics": answer_demographics,
    "recruiter text": answer_portrait,
}
