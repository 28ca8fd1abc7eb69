"""Who and what a prompt names: ids, members, items, earlier statements. For filled-in objects."""

from __future__ import annotations

import re
from functools import lru_cache

_ID = re.compile(r"\b([A-Z]{1,2}\d{2,3})\b")
_SELF = re.compile(
    r"(?:you are|your (?:id|resident id|agent id|name) is|as)\s+(?:resident\s+|agent\s+)?"
    r"[\"“(\[]?([A-Z]{1,2}\d{2,3})\b|\(([A-Z]{1,2}\d{2,3})\)"
    r"|(?:yourself|thought|hall), ([A-Z]\d{2,3})\b",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"^\s*(?:[-*•]\s*|#{1,6}\s*)?[\"\[(*]{0,3}([A-Z]{1,2}\d{2,3})[\"\])*]{0,3}"
    r"(?:,? (?:said|says)|[ \t]*\([^)\n]{0,60}\))?:\**[ \t]*(.*)$"
)
_NAMED = re.compile(
    r"^\s*(?:[-*•]\s*)?\**([A-Z][\w'’.-]*(?: [A-Z0-9][\w'’.-]*){0,3})\**"
    r"(?:\s*\(([^)\n]{1,60})\))?\s*:\**[ \t]*(\S.*)$"
)
_ITEM = re.compile(
    r"^\s*(?:[-*•]\s*)?[\"\[(*]{0,3}((?:item_?|vote_?|V|I|D|P|Q)[ _-]?\d{1,2}|\d{1,2})"
    r"[\"\])*.]{0,3}\s*[:.)–—-]\s*(\S.*)$",
    re.IGNORECASE,
)
_LABELS = """
Moderator Topic Options Option Conflict Strategy Decision Reason Next Step Respond Reply Note
Round Position Context Question Answer Rules Rule Format Example Statement Statements Phase
Concept Category System Planner You Your Group Slot Members Preferences Items Item Persona Style
Directive Task Resolution Type Return Fields Keys JSON Age Sex Summary Discussion Operator
Important Remember Instructions Guide Stimulus Now Here Current Each
"""
_NOT_NAMES = frozenset(_LABELS.split())


@lru_cache(maxsize=512)
def ids_in(text: str) -> tuple[str, ...]:
    """Ids such as A07, each once, in order of first mention."""
    return tuple(dict.fromkeys(_ID.findall(text)))


def own_id(system: str, prompt: str) -> str:
    """The asked person's own id, if the text tells it."""
    for text in (system[:1500], prompt[:1500]):
        for found in _SELF.finditer(text):
            said = found[1] or found[2] or found[3]
            if said and said.isupper():
                return said
    return ""


@lru_cache(maxsize=256)
def all_statements(text: str) -> tuple[tuple[str, str], ...]:
    """(id, words) for each line that opens with an id, in order."""
    found = (_SAID.match(line) for line in text.splitlines())
    return tuple((m[1], m[2].strip()) for m in found if m and m[2].strip())


@lru_cache(maxsize=256)
def statements(text: str) -> dict[str, str]:
    """What each id said last, from lines that open with the id."""
    return dict(all_statements(text))


_PORTRAIT = re.compile(
    r"^(?:#{1,6}\s*|[-*]\s*|\*\*)?(?:You are\s+|Resident\s+)?"
    r"([A-Z]{1,2}\d{2,3})\b[,:.)*\s—–-]+(?=\S)"
)


@lru_cache(maxsize=256)
def portraits(text: str) -> dict[str, str]:
    """Descriptions of people by id: paragraphs that open with "You are A07, …" or "A07: …"."""
    out: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [paragraph] if paragraph.startswith("You are") else paragraph.splitlines()
        for line in lines:
            found = _PORTRAIT.match(line.strip())
            if found and len(line) > 60 and found[1] not in out:
                out[found[1]] = " ".join(line.split())
    return out


@lru_cache(maxsize=256)
def members(text: str) -> dict[str, str]:
    """Named persons and what stands behind their name, from lines such as "Partner 1: …"."""
    out: dict[str, str] = {}
    for line in text.splitlines():
        found = _NAMED.match(line)
        if found and found[1].split()[0] not in _NOT_NAMES and found[1] not in _NOT_NAMES:
            said = found[3].strip()
            out[found[1]] = f"{out[found[1]]} {said}" if found[1] in out else said
    return out


@lru_cache(maxsize=256)
def items(text: str) -> dict[str, str]:
    """Numbered or labelled items to vote on: label → wording."""
    out: dict[str, str] = {}
    for line in text.splitlines():
        found = _ITEM.match(line)
        if found and len(found[2]) > 8 and not found[2].startswith("{"):
            out.setdefault(found[1], found[2].strip())
    return out
