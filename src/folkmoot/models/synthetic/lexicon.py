"""The argument words of the three reason camps, and how a text's reasons are counted.

Three ways of justifying a public choice: caring for people, prudence with means, and enterprise.
The grammar speaks in these phrases and exposure is read off these words, so that an argument
exists for the respondent only where its words stand in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache

CAMPS = ("care", "prudence", "enterprise")
# Share of each camp's words in the speech of a member of the camp (rows sum to 1).
MIXTURES = ((0.86, 0.12, 0.02), (0.12, 0.76, 0.12), (0.02, 0.12, 0.86))

# Noun phrases: they fit after "about", "of", "for", "is".
NOUNS: tuple[tuple[str, ...], ...] = (
    (
        "dignity for people who are struggling",
        "a sense of belonging among neighbours",
        "kindness towards families in hardship",
        "fairness for those who were overlooked",
        "company for lonely households",
        "trust and friendship between neighbours",
        "compassion for vulnerable people",
        "solidarity when someone falls on hardship",
        "a welcome for everyone who feels excluded",
        "togetherness instead of loneliness",
        "warmth and shelter for the needy",
        "the inclusion of overlooked voices",
        "some rest for tired carers",
        "fairness and dignity in equal measure",
        "caring for vulnerable families",
        "the wellbeing of lonely neighbours",
    ),
    (
        "evidence that it works",
        "costs that stay predictable",
        "upkeep we can afford",
        "repairs before they grow expensive",
        "books that balance",
        "measurable results on schedule",
        "savings over the long run",
        "less waste and less duplication",
        "reliable delivery within the means",
        "accountability to taxpayers",
        "careful maintenance of what exists",
        "proven methods over promises",
        "a realistic timetable",
        "efficiency and reliable upkeep",
        "evidence on costs and savings",
        "an affordable plan with measurable steps",
    ),
    (
        "growth that lifts wages",
        "ambition and initiative",
        "know-how that employers hire for",
        "independence through honest earnings",
        "room for entrepreneurs",
        "investment that multiplies",
        "innovation and fresh ventures",
        "prosperity that spreads",
        "momentum for new enterprise",
        "self-reliance and ambition",
        "freedom to build a career",
        "customers and lively commerce",
        "opportunity for talented newcomers",
        "rewards for effort and initiative",
        "competition that rewards talent",
        "a thriving economy with rising wages",
    ),
)

# Verb phrases: they fit after "would", "could", "to".
VERBS: tuple[tuple[str, ...], ...] = (
    (
        "bring lonely neighbours together",
        "give vulnerable families some dignity",
        "reach the people who are usually overlooked",
        "ease the hardship that families carry in silence",
        "show the excluded that they are welcome",
        "restore trust and belonging",
        "put fairness and compassion first",
        "give tired carers and the needy some relief",
    ),
    (
        "keep costs predictable",
        "show measurable results within a year",
        "cut waste and duplication",
        "spare taxpayers expensive repairs later",
        "stay affordable once upkeep is counted",
        "rest on evidence and proven methods",
        "deliver reliable savings",
        "hold everyone to account on schedule",
    ),
    (
        "raise wages and earnings",
        "reward ambition and initiative",
        "open doors for entrepreneurs",
        "draw investment and customers",
        "spark innovation and new ventures",
        "give talented people independence",
        "build momentum for commerce and enterprise",
        "turn talent into prosperity",
    ),
)

_WORDS: tuple[str, ...] = (
    "dignity struggling belonging neighbours neighbour kindness hardship fairness overlooked "
    "lonely loneliness trust friendship compassion vulnerable solidarity welcome excluded "
    "togetherness warmth shelter needy inclusion carers caring wellbeing relief",
    "evidence costs predictable upkeep afford affordable repairs expensive balance measurable "
    "schedule savings waste duplication reliable accountability taxpayers careful maintenance "
    "proven realistic timetable efficiency methods means account",
    "growth wages ambition initiative employers hire independence earnings entrepreneurs "
    "investment multiplies innovation ventures prosperity momentum enterprise reliance career "
    "customers commerce opportunity talented talent rewards reward competition thriving economy",
)
CAMP_OF: dict[str, int] = {w: camp for camp, words in enumerate(_WORDS) for w in words.split()}
_PHRASES: dict[str, int] = {
    phrase: camp for camp in range(3) for phrase in (*NOUNS[camp], *VERBS[camp])
}
VERB_PHRASES = frozenset(v for camp in VERBS for v in camp)
_TOKEN = re.compile(r"[a-z]+")
_ANY_PHRASE = re.compile("|".join(re.escape(p) for p in sorted(_PHRASES, key=len, reverse=True)))


@lru_cache(maxsize=4096)
def reasons(text: str) -> tuple[int, int, int]:
    """Argument words of each camp in a text."""
    counts = [0, 0, 0]
    for token in _TOKEN.findall(text.lower()):
        camp = CAMP_OF.get(token)
        if camp is not None:
            counts[camp] += 1
    return counts[0], counts[1], counts[2]


@lru_cache(maxsize=4096)
def phrases_in(text: str) -> tuple[tuple[str, int], ...]:
    """The argument phrases of a text in order, each once, with its camp."""
    found = dict.fromkeys(_ANY_PHRASE.findall(text.lower()))
    return tuple((p, _PHRASES[p]) for p in found)


def match(counts: tuple[float, float, float], camp: int) -> float:
    """How well a text's reasons fit a listener of `camp`: 1 for a text of the listener's own mix.

    The text's shares weighted by the listener's mixture, relative to that mixture itself, at
    most 1; 0 for a text without argument words.
    """
    total = sum(counts)
    if not total:
        return 0.0
    own = MIXTURES[camp]
    fit = sum(n * w for n, w in zip(counts, own, strict=True)) / total
    return min(1.0, fit / sum(w * w for w in own))
