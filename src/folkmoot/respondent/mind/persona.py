"""The traits of a persona, such as tastes, voice and susceptibility to arguments.

The traits follow from the text of the persona, so they are the same in all stages of a study.
"""
# Traits depend only on the text of the persona and the seed of the run.

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from folkmoot.hints import collapse_spaces
from folkmoot.respondent.mind.draws import normal_draw, uniform_draw
from folkmoot.respondent.mind.knobs import BETA, TASTE_SD

VOICES = ("terse", "plain", "chatty", "formal")
_STANDARD = NormalDist()
_TOKEN = re.compile(r"[^\W\d_]+")
# Words that do not say what a question is about: function words, and words about answering.
_STOP_WORDS = """
about after again against age ago all alone also among and another any anybody anything are aren
been before being best between both but can cannot choice choose could couldn dear did didn does
doesn don down due each earlier either else every everybody everything exact exactly far few first
for from get give given got had has hasn have haven heard her here him his how into isn its job
json just last later let like lot many may more most mrs much must need new none nor not nothing
now number off old one only option options other others our out over own per please previous put
question rather read reason reasons reply respond round same saw say scale see seen self sentence
sentences sex shall she should some speak speaks still such sure take tell ten text than that the
them then there these they this those too two use very want was wasn way well were what when where
which while who whole whose why will with without won would wouldn write yes yet you your yours
"""
_STOP = frozenset(_STOP_WORDS.split())
_OPEN = re.compile(
    r"open[- ]minded|curious|agreeable|cooperative|easy-?going|open to|listens|flexible|empath"
    r"|accommodating|warm-hearted|trusting"
)
_CLOSED = re.compile(
    r"stubborn|s[ck]eptic|independent-minded|traditional|blunt|set in|suspicious|headstrong"
    r"|opinionated|wary"
)
# A clause with a number ("3 in openness", "open to new things: 1") names a rating scale. Its words
# do not describe the person.
# The first lookbehind keeps the time linear in a long text without signs.
_MARKED = re.compile(r"(?<![^.,;\n])[^.,;\n]*(?<![\w.,$€£-])\d(?![\w,.-]*\w)[^.,;\n]*")
_VOICED = {
    "formal": re.compile(
        r"professor|lawyer|attorney|scientist|scholar|doctor|ph\.?d|formal|academic|judge|executive"
        r"|economist|diplomat|researcher|polished"
    ),
    "terse": re.compile(
        r"farmer|mechanic|reserved|quiet|introvert|shy|few words|terse|brief|plumber|soldier"
        r"|concise|passive"
    ),
    "chatty": re.compile(
        r"outgoing|extra?vert|extrovert|talkative|sociable|chatty|social media|influencer|storytell"
        r"|gregarious|long-winded|assertive|blogger"
    ),
}


@dataclass(frozen=True, slots=True)
class PersonaTraits:
    """The traits of one persona."""

    # The text of the persona.
    key: str
    seed: int
    # 0 to 2, the persona's way to justify choices, as an index into the lexicon.
    camp: int
    # In (0, 1).
    susceptibility: float
    # In (−1, 1), a general tendency to agree.
    warmth: float
    voice: str
    # The self-description ("a retired teacher") or "".
    calling: str
    words: frozenset[str]

    def option_taste(self, option: str, spread: float = 1.0) -> float:
        """Return how much the person likes one option before any persuasion.

        - `spread`: a factor for the standard deviation of tastes.
        """
        # The same persona and option always give the same random draw. It tends to be higher if
        # option and persona share a word.
        text = collapse_spaces(option.casefold())
        # The draw comes from N(μ, 1.3²).
        mean = 0.8 if content_words(text) & self.words else 0.0
        return mean + spread * TASTE_SD * normal_draw(self.seed, self.key, "taste", text)

    def question_lean(self, about: str, answer: str = "", part: str = "") -> float:
        """Return the person's tendency on a question, from −1 (against) to 1 (in favour).

        - `about`: the question.
        - `answer`: the possible answer that is rated, if the question has several answers.
        - `part`: the part of the question that is rated, if the question has several parts.
        """
        # Questions that share words get similar tendencies.
        return _question_lean(self.seed, self.key, about, answer, part)


# In a discussion, a person comes back to the same questions in every turn.
@lru_cache(maxsize=4096)
def _question_lean(seed: int, key: str, about: str, answer: str, part: str) -> float:
    words = sorted(content_words(about))
    if not words:
        return 2.0 * uniform_draw(seed, key, "lean", about, f"{answer}{part}") - 1.0

    def draw_lean(suffix: str) -> float:
        word_draws = (_draw_for_word(seed, key, word, suffix) for word in words)
        return math.fsum(word_draws) / math.sqrt(len(words))

    total = draw_lean(answer)
    if part:
        # The shared draw has weight 1 and the draw of the part √2, so two parts correlate by 1/3.
        total = (total + math.sqrt(2) * draw_lean(f"{answer} {part}")) / math.sqrt(3)
    return 2.0 * _STANDARD.cdf(total) - 1.0


# Different questions share most of their words.
@lru_cache(maxsize=32_768)
def _draw_for_word(seed: int, key: str, word: str, suffix: str) -> float:
    return normal_draw(seed, key, "word", word, suffix)


@lru_cache(maxsize=4096)
def content_words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, without function words such as "the"."""
    # Function words are left out.
    tokens = _TOKEN.findall(text.casefold())
    return frozenset(word for word in tokens if len(word) > 2 and word not in _STOP)


# Words for dealing with a topic or for asking about it. They are no topics.
_ASKING_WORDS = """
agree agreement answer answers applies apply approve believe below brief briefly cent certain
character confident describe describes digit digits disagree extent favor favour feel figure figures
following form format group honest honestly importance important integer know likely line lines
object opinion oppose paragraph percent percentage persona person position prefer rate rating
rounded short something stance stand statement stay staying strongly support task thank thanks think
true turn view voice word words yourself
"""
ASKING = frozenset(_ASKING_WORDS.split())
# Words that are too general to be topics.
_VAGUE_WORDS = """
around bad better day days example explain freely friend friends good half hour hours included kind
little matter minute minutes month months next openly others people somewhat sort story thing things
time today week weeks worse worst year years
"""
_NUMBER_WORDS = """
eight eighteen eighty eleven fifteen fifty five forty four fourteen hundred nine nineteen ninety
nought seven seventeen seventy six sixteen sixty thirteen thirty thousand three twelve twenty zero
"""
_VAGUE = frozenset(f"{_VAGUE_WORDS} {_NUMBER_WORDS}".split())
_BEFORE_VERBS = """
can could did do does he i may might must not she should they to we who will would you I You We
"""
_VERB_AFTER = frozenset(_BEFORE_VERBS.split())
_VERB_BEFORE = frozenset(["it", "him", "me", "them", "us", "you"])
_PAST = re.compile(r"[a-z]{2,}[^e\W]ed")


def extract_topics(text: str) -> tuple[str, ...]:
    """Return the topics of a text in order, each with one to three words."""
    # Only content words. Verbs ("you look", "worries you") are left out.
    runs: list[list[str]] = [[]]
    tokens = re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|[^\s\w]|\d+", text)
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        # "robots" is a topic in "Should robots …". "work" is a verb in "robots should work".
        is_verb = after.lower() in _VERB_BEFORE or before in _VERB_AFTER
        is_verb = is_verb or bool(_PAST.fullmatch(token) and not content_words(after))
        if content_words(token) - ASKING - _VAGUE and len(runs[-1]) < 3 and not is_verb:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return tuple(dict.fromkeys(" ".join(run) for run in runs if run))


def persona_from_text(text: str, seed: int) -> PersonaTraits:
    """Return the traits of the persona that a text describes."""
    # Differences in white space are ignored.
    key = collapse_spaces(text)
    unmarked_text = _MARKED.sub("", key.casefold())
    shift = 0.4 * (_count_hits(unmarked_text, _OPEN) - _count_hits(unmarked_text, _CLOSED))
    quantile = _STANDARD.cdf(_STANDARD.inv_cdf(uniform_draw(seed, key, "susceptibility")) + shift)
    warmth = 0.5 * (2 * uniform_draw(seed, key, "warmth") - 1) + 0.4 * max(-1, min(1, shift))
    return PersonaTraits(
        key=key,
        seed=seed,
        camp=int(3 * uniform_draw(seed, key, "camp")),
        susceptibility=beta_quantile(quantile),
        warmth=max(-1.0, min(1.0, warmth)),
        voice=_draw_voice(unmarked_text, uniform_draw(seed, key, "voice")),
        calling=_self_description(key),
        words=content_words(key),
    )


def beta_quantile(probability: float) -> float:
    """Return the quantile of the distribution Beta(4, 3)."""
    # Computed by bisection.
    low, high = 0.0, 1.0
    a, n = int(BETA[0]), int(BETA[0] + BETA[1]) - 1
    # 40 bisections give a precision of 2⁻⁴⁰, far below any effect.
    for _ in range(40):
        x = (low + high) / 2
        below = math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
        low, high = (x, high) if below < probability else (low, x)
    return (low + high) / 2


def _count_hits(lower_text: str, pattern: re.Pattern[str]) -> int:
    # At most two, so that a long description does not make an extreme person.
    return min(2, len(pattern.findall(lower_text)))


def _draw_voice(lower_text: str, draw: float) -> str:
    # For one persona in ten the words do not decide the voice.
    for voice, pattern in _VOICED.items():
        if draw < 0.9 and pattern.search(lower_text):
            return voice
    return VOICES[int(len(VOICES) * draw)]


# The occupation after an opening such as "You are Ann Lee, a", after "works as a", or after
# "Occupation:", as descriptions of people in a table have it ("father occupation" is another one).
_CALLING = re.compile(
    r"(?:^(?:[Yy]ou are |I am |I'm )?(?:[A-Z][\w'’-]+(?: [A-Z][\w'’.-]+){0,3},\s*)?"
    r"|\b(?:works?|worked|working|a living|employed) (?:\w+ )?as |(?<!\w )\b[Oo]ccupation: )"
    r"(?:[Aa]n? )(?:\d{1,3}[- ]years?[- ]old )?([A-Za-z][\w' -]{2,60})"
)
# The lookbehind keeps the time linear in a long run of spaces.
_TAIL = re.compile(
    r"(?<!\s)\s+(?:who|with|living|and|that|whose|from|in|at|for|to|of|on|by|near|trying|looking|"
    r"working|aged|born)\b.*$"
)
_NOT_A_CALLING = re.compile(
    r"\b(?:participa\w+|resident|respond\w+|person|people|man|woman|you|years?|member|group|team)\b"
    r"|[^s]s$",
    re.IGNORECASE,
)
# "a" or "an" follows the sound: "a university", "a user", "a European", but "an umbrella".
_VOWEL = re.compile(r"^(?:[aeio]|u(?!ni|s|t[ei]|ro|k))(?!ne\b|nce\b|uro)", re.IGNORECASE)


def with_article(phrase: str) -> str:
    return "an" if _VOWEL.match(phrase) else "a"


def _self_description(text: str) -> str:
    # The occupation or role ("a nurse"), or "" if the text states none.
    for match in _CALLING.finditer(text):
        description = _TAIL.sub("", match[1]).strip(" -'’")
        if len(description.split()) <= 5 and not _NOT_A_CALLING.search(description):
            return f"{with_article(description)} {description}"
    return ""
