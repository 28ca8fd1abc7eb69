"""Which kind of answer a request wants, judged from its text and schema alone."""

from __future__ import annotations

import re
from enum import Enum, auto

from folkmoot.models.request import Request
from folkmoot.models.synthetic.reading import Reading


class Task(Enum):
    """Kinds of answer that the respondent gives."""

    JSON = auto()
    DEMOGRAPHICS = auto()
    ENRICH = auto()
    SUMMARY = auto()
    CLUSTER = auto()
    JUDGE = auto()
    PREFER = auto()
    CHOICE = auto()
    NUMBER = auto()
    MODERATE = auto()
    CHALLENGED = auto()
    INTERVIEW = auto()
    SPEAK = auto()


_DIALOGUE_SUMMARY = re.compile(
    r"(?:summar\w*|sum up)[^.\n]{0,60}\b(?:participant|their|person)'?s?\b[^.\n]{0,40}\b"
    r"(?:position|stance|view|argument|reason)",
    re.IGNORECASE,
)
_CLUSTER = re.compile(
    r"(?:unified|shared|joint|single) (?:\w+ )?description"
    r"|describe[^.\n]{0,40}(?:cluster|group|position|share)"
    r"|description of (?:this|the) (?:cluster|group)",
    re.IGNORECASE,
)
_POSITIONS = re.compile(
    r"^\s*(?:[-*]\s*)?(?:Position|Summary)\s*1\s*:", re.IGNORECASE | re.MULTILINE
)
_JUDGE = re.compile(
    r"most opposed|most opposing|opposes? (?:it|them|this) most|furthest from", re.I
)
_ENRICH = re.compile(
    r"persona description|describe (?:the|this) person|base persona", re.IGNORECASE
)
_DEMOGRAPHIC = re.compile(r"demographic", re.IGNORECASE)
_WANTS_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
_EXACT = re.compile(
    r"exact (?:text|name|wording|label)|only the (?:option|text|label|name)|final choice"
    r"|make your choice|exactly one (?:of|option)"
    r"|which (?:one )?(?:of these )?(?:option|do you choose)"
    r"|(?:choose|pick|select|answer with|reply with|respond with) (?:exactly )?one\b"
    r"|response options|exactly one of these",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?:single|whole|only (?:a|the|one)|enter an?|give an?|reply with an?|respond with an?"
    r"|as an?|an?) (?:\w+ )?(?:number|integer|percentage|amount)\b|how (?:many|much)\b"
    r"|number (?:between|from)|integer (?:between|from)|on a scale (?:of|from)|rate \w+ from \d"
    r"|between -?\d[\d.,]* and -?\d|from -?\d[\d.,]* to -?\d|speculat\w+ score",
    re.IGNORECASE,
)
_INTERVIEWED = re.compile(
    r"clarif|(?:moderator|interviewer) is asking"
    r"|understand your (?:position|reasoning|view|choice)",
    re.IGNORECASE,
)
_CHALLENGED = re.compile(
    r"oppos(?:ing|ite|ed)|challeng|socratic|counter-?argument|devil", re.IGNORECASE
)
_WISH = re.compile(
    r"\b(?:preference|would you (?:like|prefer)|do you (?:want|prefer|wish)|often named)\b", re.I
)
_SATISFIED = re.compile(r"\bSATISFIED\b")


def task_of(request: Request, reading: Reading) -> Task:
    """The kind of answer wanted. Signals of format come first, then those of the situation."""
    if request.schema is not None and not _asks_for_a_person(reading.prompt):
        return Task.JSON
    if _SATISFIED.search(reading.system) or _SATISFIED.search(reading.prompt):
        return Task.MODERATE
    if reading.options and _EXACT.search(reading.prompt[-300:]):
        return Task.JUDGE if _JUDGE.search(reading.prompt) else Task.CHOICE
    return _of_text(reading.prompt) or _of_form(reading)


def _asks_for_a_person(prompt: str) -> bool:
    return bool(_DEMOGRAPHIC.search(prompt) and _WANTS_JSON.search(prompt))


def _of_text(prompt: str) -> Task | None:
    """Tasks on a text that the prompt brings along."""
    if _CLUSTER.search(prompt) and _POSITIONS.search(prompt):
        return Task.CLUSTER
    if _JUDGE.search(prompt):
        return Task.JUDGE
    if _DIALOGUE_SUMMARY.search(prompt):
        return Task.SUMMARY
    if _asks_for_a_person(prompt):
        return Task.DEMOGRAPHICS
    return Task.ENRICH if _ENRICH.search(prompt) and _DEMOGRAPHIC.search(prompt) else None


def _of_form(reading: Reading) -> Task:
    """Tasks told by the form of the answer, then by the situation that the system describes."""
    prompt = reading.prompt
    tail = prompt[-1500:]
    if _WANTS_JSON.search(tail) and "{" in prompt:
        return Task.JSON
    if reading.options and (_EXACT.search(tail) or reading.reminder):
        return Task.CHOICE
    if reading.options and _WISH.search(prompt):
        return Task.PREFER
    if _NUMBER.search(tail) or "number" in reading.reminder.lower():
        return Task.NUMBER
    if reading.system and _CHALLENGED.search(reading.system[-700:]):
        return Task.CHALLENGED
    if _INTERVIEWED.search(reading.system[-700:]) or reading.held:
        return Task.INTERVIEW
    return Task.SPEAK
