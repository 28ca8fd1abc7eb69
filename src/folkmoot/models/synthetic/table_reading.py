"""What a focus group's request holds, for the embedded respondent: who said what, how it leans."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from folkmoot.models.synthetic.reading import Reading

_TURN = re.compile(r"^([A-Z][\w'’-]+): ", re.MULTILINE)
_INSTRUCTIONS = re.compile(
    r"^(?:This has been passed around|The moderator asks:|Ask the group the next|The talk is over"
    r"|\w[\w'’-]* has just said:)",
    re.MULTILINE,
)
_CONCEPT = re.compile(r"(?:The idea (?:on the table|that they discuss) is this|Concept): (.+)")
_CATEGORY = re.compile(r"focus group about (.+?)\.(?:\s|$)|^Category: (.+)$", re.MULTILINE)
_FOR = re.compile(
    r"\b(?:i'?d (?:buy|get|want(?! to (?:see|hear)| a )|pay|enjoy|use(?! it twice))|count me in|"
    r"i like(?! the idea less)|i liked|trying new|thought about how|would'?ve loved|borrow it|"
    r"love|useful|handy|worth|"
    r"pays? for itself|half an hour back|made me smile|sold on|that'?s for me|finally|easier|"
    r"onto something|in favor|go ahead|not worried|good with me|i would, yes|fits right|warming|"
    r"coming around|talked me halfway|like it better|keep it sturdy|in use every day|solves)\b",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    r"\b(?:don'?t need|wouldn'?t(?! (?:fight|go that far))|not for me|no(?=[,.])|not in a good|"
    r"left me cold|who asked|nobody asked|gimmick|"
    r"lost me|not a dime|too much|don'?t trust|breaks?|broke|burned|in the way|stand around|"
    r"no sense|on the shelf|keep my money|come down a lot|bothers|worries me|oh no|yard sale|"
    r"commercial|less sure|"
    r"cooling|doubt|like it less|wear off|come and go|promise|one more thing|already own|"
    r"came in against|"
    r"not tomorrow and not|weekend gone|feel the price|somebody else'?s life|not going away)\b",
    re.IGNORECASE,
)
WARMED = re.compile(
    r"\b(?:coming around|warming up|like it better than i did|talked me halfway)", re.IGNORECASE
)
COOLED = re.compile(
    r"\b(?:less sure|cooling off|put a doubt|like it less than i did)", re.IGNORECASE
)


@lru_cache(maxsize=1)
def bank() -> dict[str, Any]:
    path = Path(__file__).with_name("discussing.yaml")
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


@dataclass(frozen=True, slots=True)
class Heard:
    """One message of somebody else at the table."""

    name: str
    text: str

    @property
    def lean(self) -> float:
        """For or against the idea, all alike: who argues with more words does not pull more."""
        shown = lean_of(self.text)
        return 0.0 if abs(shown) < 0.2 else math.copysign(0.55, shown)


@lru_cache(maxsize=4096)
def lean_of(text: str) -> float:
    """How far a text speaks for (to 1) or against (to −1) the idea, by its words."""
    plain = text.replace("’", "'")
    ahead, back = len(_FOR.findall(plain)), len(_AGAINST.findall(plain))
    total = ahead + back
    return 0.0 if not total else (ahead - back) / (total + 1)


def heard_in(reading: Reading) -> list[Heard]:
    """Everything that the others said, the moderator included, in order."""
    out: list[Heard] = []
    # The latest messages stand at the head of the prompt itself, before the instructions.
    latest = _INSTRUCTIONS.split(reading.prompt, maxsplit=1)[0]
    for text in [*(m.content for m in reading.before if m.role == "user"), latest]:
        parts = _TURN.split(text)
        out += [Heard(parts[k], parts[k + 1].strip()) for k in range(1, len(parts) - 1, 2)]
    return out


def names_in(reading: Reading) -> dict[str, str]:
    """How the matter is called: category, and the thing by its head noun."""
    everything = f"{reading.system}\n{reading.prompt}"
    category = _CATEGORY.search(everything)
    concept = _CONCEPT.search(everything)
    noun = _noun(concept[1]) if concept else ""
    return {
        "category": (category[1] or category[2]).strip() if category else "such things",
        "thing": f"the {noun}" if noun else "it",
        "a_thing": f"{article(noun)} {noun} like that" if noun else "something like that",
    }


def _noun(concept: str) -> str:
    """The last word of what a concept begins with: "A countertop oven that …" → "oven"."""
    head = re.split(
        r"\b(?:that|which|who|with|for|to|of|in|on|from|where|you)\b|[,.:;(]", concept, maxsplit=1
    )[0]
    words = re.findall(r"[A-Za-z][\w-]*", head)
    return words[-1] if words and len(words) <= 6 and words[-1].islower() else ""


def concept_in(reading: Reading) -> str:
    found = _CONCEPT.search(f"{reading.system}\n{reading.prompt}")
    return found[1].strip().rstrip(".") if found else "what you see here"


def lowered(text: str) -> str:
    """A concept inside a sentence: "a countertop oven …"."""
    return text[:1].lower() + text[1:] if re.match(r"(?:An?|The) ", text) else text


def fixed_words(frame: str) -> str:
    """The longest stretch of a frame between its slots, in lower case."""
    parts = re.split(r"\{\w+\}", frame)
    return max(parts, key=len).strip(" .,;:!?").lower()


def article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeio" else "a"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
