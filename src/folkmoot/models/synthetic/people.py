"""Personas made by the respondent: fitting demographics, and a fuller description."""

from __future__ import annotations

import json
import re

from folkmoot.models.synthetic.draws import Draws

_EDUCATION = ("High school", "Some college", "Bachelor's degree", "Master's degree", "Doctorate")
_INCOME = (
    "Low income",
    "Lower-middle income",
    "Middle income",
    "Upper-middle income",
    "High income",
)
_PLACE = ("urban", "suburban", "rural")
_LEANING = ("very liberal", "liberal", "moderate", "conservative", "very conservative")
_WOMAN = re.compile(
    r"\b(?:she|her|woman|female|mother|mom|wife|girl|daughter|sister|grandmother|actress|lady)\b",
    re.I,
)
_MAN = re.compile(
    r"\b(?:he|his|man|male|father|dad|husband|boy|son|brother|grandfather|gentleman)\b", re.I
)
_AGES = (
    (re.compile(r"\bretired|grand(?:mother|father|parent)|elderly|decades of\b", re.I), 56, 65),
    (re.compile(r"\bstudent|young|junior|aspiring|college|teen|intern\b", re.I), 18, 27),
    (re.compile(r"\bveteran|senior|experienced|highly accomplished|professor\b", re.I), 42, 63),
    (re.compile(r"\bparent|mother|father|mom|dad\b", re.I), 28, 48),
)
_LEVELS = (
    (re.compile(r"\bprofessor|scientist|ph\.?d|scholar|physician|chemist|physicist\b", re.I), 4),
    (re.compile(r"\blawyer|attorney|doctor|economist|architect|psycholog|researcher\b", re.I), 3),
    (
        re.compile(r"\bengineer|teacher|nurse|manager|journalist|analyst|developer|writer\b", re.I),
        2,
    ),
    (re.compile(r"\bstudent|artist|musician|blogger|technician|police\b", re.I), 1),
    (re.compile(r"\bfarmer|worker|driver|labou?rer|mechanic|waiter|cleaner|plumber\b", re.I), 0),
)
_KEY_LINE = re.compile(r"^\s*[-*]\s*[\"'`]?(\w+)[\"'`]?\s*:\s*(.+)$", re.MULTILINE)
_ENUM = re.compile(r"[\"“']([^\"“”]+?)[\"”'](?=\s*(?:,|\]|\)|or\b|$))")


# How some lines of persona-hub begin: "I'm a baker who …", "As a patient with …".
_LEAD = re.compile(
    r"^(?:i am|i['’]m|you are|you['’]re|as)\s+(?=(?:an?|the|one|another)\b)", re.IGNORECASE
)
_NAMED = re.compile(r"^(?:[A-Z][\w.'’-]*\s+[A-Z]|[A-Z]{2,}\b|(?:one|another|my)\b)")
_VOWEL = re.compile(r"^(?:[aeio]|u(?!ni|s|t[ei]|ro|k))(?!ne\b|nce\b|uro)", re.IGNORECASE)


def article(phrase: str) -> str:
    """`a` or `an`, by how the phrase begins."""
    return "an" if _VOWEL.match(phrase) else "a"


def base_persona(prompt: str) -> str:
    """The persona that a prompt quotes after "Persona:" or "Base persona:"."""
    found = re.search(r"persona:\s*(.+?)(?:\n\s*\n|$)", prompt, re.IGNORECASE | re.DOTALL)
    return " ".join(found[1].split()) if found else prompt[:300]


def demographics(persona: str, draws: Draws) -> dict[str, str | int]:
    """Plausible demographics for a persona description; ages 18–65."""
    low, high = next(((a, b) for rule, a, b in _AGES if rule.search(persona)), (24, 62))
    level = next((n for rule, n in _LEVELS if rule.search(persona)), None)
    if level is None:
        level = draws.weighted((0.24, 0.28, 0.3, 0.14, 0.04))
    earning = max(0, min(4, round(0.55 * level + 0.6 + draws.normal(0.0, 0.9))))
    rural = re.search(r"\b(?:farm|rural|village|small[- ]town|ranch|country)\w*", persona, re.I)
    place = "rural" if rural else _PLACE[draws.weighted((0.42, 0.4, 0.18))]
    tilt = 0.35 * (place == "rural") - 0.25 * (place == "urban") - 0.12 * (level - 2)
    leaning = max(0, min(4, round(2 + tilt + draws.normal(0.0, 0.95))))
    woman, man = len(_WOMAN.findall(persona)), len(_MAN.findall(persona))
    sex = "F" if woman > man else "M" if man > woman else draws.pick(("F", "M"))
    return {
        "age": draws.between(low, high),
        "sex": sex,
        "education": _EDUCATION[level],
        "income": _INCOME[earning],
        "location_type": place,
        "political_leaning": _LEANING[leaning],
        "occupation": occupation(persona),
    }


def occupation(persona: str) -> str:
    """What a description calls the person, as a job title."""
    text = re.sub(r"^(?:an?|the)\s+", "", _LEAD.sub("", persona.strip()), flags=re.IGNORECASE)
    text = re.split(
        r",|\.|;|\s(?:who|with|that|whose|from|at|for|and|in|to|trying|looking|working|applying)\b",
        text,
        maxsplit=1,
    )[0]
    words = text.split()[:5]
    title = " ".join(words)[:60]
    return title[:1].upper() + title[1:] if title else "Employee"


def demographics_object(prompt: str, draws: Draws) -> str:
    """The JSON object with the keys that the prompt lists, unknown ones with a listed value."""
    known = demographics(base_persona(prompt), draws)
    listed = _KEY_LINE.findall(prompt)
    out: dict[str, str | int] = {}
    for key, rule in listed:
        choices = _ENUM.findall(rule)
        value = known.get(key, known["occupation"] if not choices else draws.pick(choices))
        out[key] = value if not choices or value in choices else draws.pick(choices)
    return json.dumps(out or known, ensure_ascii=False)


_OPENINGS = (
    "{A}, {age} years old and {manner}",
    "{A} of {age}, {manner}",
    "{A}, aged {age} and {manner}",
)
_MANNERS = (
    "curious and open-minded",
    "blunt and a little stubborn",
    "quiet and reserved",
    "outgoing and talkative",
    "careful with words",
    "warm-hearted and easygoing",
    "practical and wary of big promises",
    "independent-minded",
    "patient and cooperative",
    "restless and full of plans",
    "formal and precise",
    "dry-humoured and sceptical",
)
_LIVES = (
    "lives on {income} in {place} area",
    "has settled in {place} area on {income}",
    "gets by in {place} area on {income}",
)
_SPARE = (
    "keeps an allotment",
    "sings in a choir",
    "coaches on weekends",
    "reads history late at night",
    "plays chess in the park",
    "looks after a sister's children",
    "cooks for the whole street",
    "restores old bicycles",
    "volunteers at the library",
    "watches every home match",
    "walks the dog before dawn",
    "collects old maps",
)
_PAST = (
    "has moved house more often than seemed wise",
    "grew up in a family that argued at dinner",
    "learnt early to make do with little",
    "once ran for the school board and lost",
    "worked abroad for some years",
    "has never lived far from the place of birth",
    "changed careers once and might again",
    "still keeps in touch with the first employer",
)


def enriched_persona(prompt: str, draws: Draws) -> str:
    """A paragraph of two or three sentences from a base persona and demographics in the prompt."""
    base = _in_third_person(base_persona(prompt))
    facts = {
        key.lower().replace(" ", "_"): value.strip()
        for key, value in re.findall(r"^\s*[-*]\s*([A-Za-z _]+?)\s*:\s*(.+)$", prompt, re.MULTILINE)
    }
    age = facts.get("age", str(draws.between(25, 60)))
    she = facts.get("sex", "").upper().startswith("F")
    income = (facts.get("income_level") or facts.get("income") or "middle income").lower()
    place = (facts.get("location_type") or facts.get("location") or "suburban").lower()
    leaning = (facts.get("political_leaning") or "moderate").lower()
    education = facts.get("education", "some college")
    pronoun = "She" if she else "He"
    body, manner = _as_opening(base), draws.pick(_MANNERS)
    opening = draws.pick(_OPENINGS).format(A=body, age=age, manner=manner)
    where = draws.pick(_LIVES).format(
        income=income if "income" in income else f"{income} income",
        place=f"{'an' if place[:1] in 'aeiou' else 'a'} {place}",
    )
    spare, past = draws.pick(_SPARE), draws.pick(_PAST)
    school = education[:1].lower() + education[1:]
    return (
        f"{opening}. {pronoun} {where}, holds {_degree(school)} and describes "
        f"{'herself' if she else 'himself'} as politically {leaning}. "
        f"{pronoun} {spare} and {past}."
    )


def _in_third_person(base: str) -> str:
    """The first sentence of a line, without the "I am" or "As" that some begin with."""
    first = re.split(r"(?<=[a-z]{2})\.\s+(?=[A-Z])", base, maxsplit=1)[0]
    return _LEAD.sub("", first).rstrip(". ")


def _as_opening(base: str) -> str:
    """A line as the beginning of "… who", with its article: "a baker", "Ann Smith, the CEO"."""
    if _NAMED.match(base):
        return base
    if re.match(r"^(?:an?|the)\s", base, re.IGNORECASE):
        return base[:1].lower() + base[1:]
    body = base[:1].lower() + base[1:] if base[1:2].islower() else base
    return f"{article(body)} {body}"


def _degree(school: str) -> str:
    if "degree" in school or school == "doctorate":
        return f"a {school}"
    if "high school" in school:
        return "a high school diploma"
    return "a record of some college" if "some college" in school else f"qualifications ({school})"
