"""Who a persona is for the respondent: reason camp, tastes, susceptibility, voice.

Everything here follows from the persona's text and the run's seed, never from the address, so
that one person stays one person through all stages of a study.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from folkmoot.models.synthetic.draws import normal, unit
from folkmoot.models.synthetic.knobs import BETA, TASTE_SD
from folkmoot.models.synthetic.people import article

_TOKEN = re.compile(r"[a-z]+")
_STOP_WORDS = """
about after also been with from have that this they their them there these those would could
into over than then what when where which while will your yours are and the for who you
improvements improvement services service programs programme programmes program grants
"""
_STOP = frozenset(_STOP_WORDS.split())
# What people of a kind tend to favour: stems of an option against stems of a persona.
_THEMES: tuple[tuple[str, str], ...] = (
    ("park garden green tree nature", "garden nature runner dog environment biolog climb outdoor"),
    ("youth school educat child training job", "teacher student young coach parent professor"),
    ("senior elder retire care health", "retired elder nurse grand doctor carer pension widow"),
    ("safety street traffic polic light", "parent police cyclist driver commut mother father"),
    ("business econom shop market grant tax", "entrepreneur owner business sales manager invest"),
    ("librar museum art cultur music", "writer artist musician historian librarian reader actress"),
    ("transit bus rail bike transport", "commut student cyclist engineer planner urban"),
    ("housing rent home shelter", "tenant renter young social low-income student"),
)
_OPEN = (
    "open-minded",
    "curious",
    "agreeable",
    "cooperative",
    "easygoing",
    "easy-going",
    "open to",
    "listens",
    "flexible",
    "empath",
    "accommodating",
    "novel",
    "warm-hearted",
    "trusting",
)
_CLOSED = (
    "stubborn",
    "skeptic",
    "sceptic",
    "independent-minded",
    "traditional",
    "blunt",
    "set in",
    "suspicious",
    "headstrong",
    "opinionated",
    "don't go along",
    "wary",
)
_FORMAL = (
    "professor",
    "lawyer",
    "attorney",
    "scientist",
    "scholar",
    "doctor",
    "phd",
    "formal",
    "academic",
    "judge",
    "executive",
    "economist",
    "diplomat",
    "researcher",
    "polished",
)
_TERSE = (
    "farmer",
    "mechanic",
    "reserved",
    "quiet",
    "introvert",
    "shy",
    "few words",
    "terse",
    "brief",
    "plumber",
    "soldier",
    "concise",
    "passive",
    "speak up only",
)
_CHATTY = (
    "outgoing",
    "extravert",
    "extrovert",
    "talkative",
    "sociable",
    "chatty",
    "social media",
    "influencer",
    "host",
    "storytell",
    "gregarious",
    "long-winded",
    "assertive",
    "blogger",
)
VOICES = ("terse", "plain", "chatty", "formal")


@dataclass(frozen=True, slots=True)
class Persona:
    """The latents of one persona. `camp` indexes the reason camps, `susceptibility` is in (0, 1).

    `warmth` in (−1, 1) is a general leaning to agree; `calling` is how the person names
    themselves ("a retired teacher") or empty.
    """

    key: str
    seed: int
    camp: int
    susceptibility: float
    warmth: float
    voice: str
    calling: str
    name: str
    words: frozenset[str]

    def taste(self, option: str, spread: float = 1.0) -> float:
        """u(0) of one option: N(μ(persona), 1.3²), fixed for this persona and option."""
        text = " ".join(option.lower().split())
        mean = _affinity(self.words, text)
        return mean + spread * TASTE_SD * normal(self.seed, self.key, "taste", text)

    def tastes(self, options: Sequence[str]) -> list[float]:
        return [self.taste(o) for o in options]

    def lean(self, about: str) -> float:
        """A fixed leaning in (−1, 1) on any question, for answers that are no listed option."""
        return 2.0 * unit(self.seed, self.key, "lean", about) - 1.0


def persona_text(system: str) -> str:
    """The part of a system prompt that says who the person is: its first paragraph."""
    return " ".join(system.strip().split("\n\n", 1)[0].split())


def meet(text: str, seed: int, manner: str = "") -> Persona:
    """The latents of the persona that a text describes.

    `manner` is further text that may tell of the way of speaking (the whole system prompt); it
    moves voice alone, so that a stage's instructions never change who somebody is.
    """
    key = " ".join(text.split())
    low = key.lower()
    camp = int(3 * unit(seed, key, "camp"))
    shift = 0.4 * (_hits(low, _OPEN) - _hits(low, _CLOSED))
    standard = NormalDist()
    at = standard.cdf(standard.inv_cdf(unit(seed, key, "susceptibility")) + shift)
    warmth = 0.5 * (2 * unit(seed, key, "warmth") - 1) + 0.4 * max(-1, min(1, shift))
    return Persona(
        key=key,
        seed=seed,
        camp=camp,
        susceptibility=beta_quantile(at),
        warmth=max(-1.0, min(1.0, warmth)),
        voice=_voice(low + " " + manner.lower(), unit(seed, key, "voice")),
        calling=_calling(key),
        name=_name(key),
        words=frozenset(w for w in _TOKEN.findall(low) if len(w) > 3 and w not in _STOP),
    )


def beta_quantile(p: float) -> float:
    """The quantile of Beta(4, 3), by bisection of its distribution function (a binomial tail)."""
    low, high = 0.0, 1.0
    a, n = int(BETA[0]), int(BETA[0] + BETA[1]) - 1
    for _ in range(40):
        x = (low + high) / 2
        below = sum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
        low, high = (x, high) if below < p else (low, x)
    return (low + high) / 2


def _hits(low: str, words: Sequence[str]) -> int:
    return max(-1, min(2, sum(w in low for w in words)))


def _voice(low: str, draw: float) -> str:
    for voice, words in (("formal", _FORMAL), ("terse", _TERSE), ("chatty", _CHATTY)):
        if sum(w in low for w in words) >= 1 and draw < 0.9:
            return voice
    return VOICES[int(len(VOICES) * draw) % len(VOICES)]


_WORK = re.compile(
    r"\b(?:works?|worked|working|a living|employed|serves?|makes? money) (?:\w+ )?as "
    r"(?:an? )?([a-z][a-z' -]{2,40}?)(?=\s+(?:and|who|in|at|for|with|from|on|near|by)\b|[,.;]|$)"
)
_CALLING = re.compile(
    r"^(?:[Yy]ou are |[Yy]ou're |I am )?(?:[A-Z][\w'’-]+(?: [A-Z][\w'’.-]+){0,3},\s*)?"
    r"(?:[Aa]n? )(?:\d{1,3}[- ]years?[- ]old )?([A-Za-z][\w'’ -]{3,60})"
)
_TAIL = re.compile(
    r"\s+(?:who|with|living|and|that|whose|from|in|at|for|to|of|on|trying|looking|working|"
    r"applying|seeking|based|specializ\w+|specialis\w+|"
    r"advocating|known|interested|admiring|famous|dedicated)\b.*$"
)
_NOT_A_CALLING = re.compile(
    r"\b(?:participat\w*|resident|respond\w*|person|man|woman|you|years?|aged?|male|female|group"
    r"|team|moderator|planner|facilitator|assistant|neutral|analy\w+)\b",
    re.IGNORECASE,
)


def _calling(text: str) -> str:
    """What the person would call themselves, with its article; empty where the text is unclear."""
    found = _WORK.search(text) or _CALLING.match(text)
    if not found:
        return ""
    bare = _TAIL.sub("", found[1]).strip(" -'’")
    if (
        not bare
        or len(bare.split()) > 5
        or _NOT_A_CALLING.search(bare)
        or re.search(r"[^s]s$", bare)
    ):
        return ""
    return f"{article(bare)} {bare}"


_NAME = re.compile(r"^(?:you are|you're)\s+([A-Z][\w'’-]+(?: [A-Z][\w'’.-]+){0,2})[,.( ]")


def _name(text: str) -> str:
    found = _NAME.match(text) or re.match(r"^You are ([A-Z][\w'’-]+)", text)
    return found[1] if found and found[1] not in {"A", "An", "The"} else ""


@lru_cache(maxsize=1024)
def _option_stems(option: str) -> tuple[frozenset[str], tuple[str, ...]]:
    words = frozenset(w for w in _TOKEN.findall(option) if len(w) > 3 and w not in _STOP)
    kin = tuple(
        stem
        for about, people in _THEMES
        if any(w.startswith(s) for w in words for s in about.split())
        for stem in people.split()
    )
    return words, kin


def _affinity(persona: frozenset[str], option: str) -> float:
    """μ(persona) for an option: .8 for a shared word, .5 for a theme of people of this kind."""
    words, kin = _option_stems(option)
    shared = 0.8 if words & persona else 0.0
    themed = 0.5 if any(w.startswith(stem) for w in persona for stem in kin) else 0.0
    return shared + themed
