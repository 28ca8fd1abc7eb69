"""What the embedded respondent should know of a workbook: its questions are the user's own.

Most of them are answered by their form. Where one gives to others (games with tokens, donations),
the amount is a stable inclination, moved by the words for giving or for holding back that one has
read or heard, drawn to what others gave, and worn down from round to round.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from folkmoot.respondent import Mind, Part
from folkmoot.respondent.answering import bounds_of, choice, number
from folkmoot.respondent.draws import normal
from folkmoot.respondent.reading import standing
from folkmoot.respondent.scales import scale_of
from folkmoot.studies.workbook.answers import Listed, NotALiteral, read_options
from folkmoot.studies.workbook.config import WorkbookConfig

# Words by which a text speaks for giving, and for holding back.
_FOR = re.compile(
    r"\b(best|better off|help\w*|together|trust\w*|cooperat\w+|co-operat\w+|generous\w*|fair\w*|"
    r"solidar\w+|responsib\w+|promis\w+|proud|kind(?:ness|ly)?|honest\w*|worst|wait(?:ed|ing)|"
    r"every(?:body|one)|all of us|each other|common good|good of (?:all|the group)|example|"
    r"thank\w*|gratef\w+|communit\w+|charit\w+|need(?:y|ed)?)\b",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    r"\b(selfish\w*|careful\w*|cautious\w*|risk\w*|los(?:e|es|ing|t|s|ses)|cheat\w*|"
    r"free[- ]?rid\w+|exploit\w*|sucker\w*|compet\w+|win|wins|winn\w+|rival\w*|"
    r"own (?:gain|interest|good|sake)|"
    r"your(?:self|selves)|nobody|distrust\w*|greed\w*|betray\w*|strangers?|for oneself|"
    r"look(?:s|ing)? after (?:number one|themselves|yourself))\b",
    re.IGNORECASE,
)
_GIVING = re.compile(
    r"\b(?:giv(?:e|es|en|ing)|gave|contribut\w+|donat\w+|shar(?:e|es|ed|ing)|send(?:s|ing)?|sent|"
    r"transfer\w*|invest\w*|pay (?:in|into)|put (?:in|into)|hand over|pass on|allocat\w+|chip in|"
    r"pots?|pools?|funds?|common account|group account|public account)\b",
    re.IGNORECASE,
)
_SAID = re.compile(r"^(?:[^\w\n]*\d+[^\w\n]+)?([^:\n]{1,60}): (.+)$", re.MULTILINE)
_LISTED = re.compile(r"^[-*•] (.*?[?:.]):? (.+)$", re.MULTILINE)
_AMOUNT = re.compile(r"-?\d+(?:\.\d+)?")
_UNITS = re.compile(r"\b(\d+(?:\.\d+)?) ([^\W\d_]{3,}s)\b")
_MOST = 8.0  # more words for one side than for the other at which words have done what they can
_STRENGTH = 0.8  # of κ_read, in shares of what one has
_DRAWN = 0.35  # to what others gave, for somebody of the greatest susceptibility
_WEAR = 0.93  # a round
_NOISE = 0.07


def _names(config: WorkbookConfig) -> tuple[str, ...]:
    """The answers that the workbook lists, but for rating scales and numbers."""
    found: list[str] = []
    for task in config.workbook.tasks:
        try:
            options = read_options(task.response_options or "")
        except NotALiteral:  # placeholders that only a permutation fills in
            continue
        each = options.values() if isinstance(options, dict) else [options]
        for one in each:
            if isinstance(one, Listed) and not scale_of(one.options):
                found += one.options
    return tuple(dict.fromkeys(found))


# --- answers ------------------------------------------------------------------------------------


def _choice(mind: Mind) -> str:
    if not mind.person or len(mind.options) < 2:
        return choice(mind)
    return mind.placed(mind.options, mind.reading.question) or mind.choose()


def _number(mind: Mind) -> str:
    bounds = bounds_of(mind.reading)
    if bounds is None or not mind.person:
        return number(mind)
    low, high, whole = bounds
    asked, stake = mind.reading.question, _stake(mind)
    # "How much of your 20 coins" asks for a gift whatever the word for giving is.
    whole_stake = stake is not None and (low, high) == (0, stake.high) and stake.unit in asked
    gives = bool(_GIVING.search(asked)) or whole_stake
    share = given_share(mind, low, high) if gives else (mind.rating(asked) + 1) / 2
    value = low + (high - low) * share
    return str(round(value)) if whole and high - low > 1 else f"{value:.2f}"


def _object(mind: Mind) -> object:
    """The answer in JSON: the field of the answer is known, the others are filled by form."""
    kind = mind.reading.kind
    if kind == "choice":
        return _choice(mind)
    text = _number(mind) if kind == "number" else _talk(mind)
    field: Mapping[str, Any] = mind.schema.get("properties", {}).get("response", {})
    types = {part.get("type") for part in field.get("anyOf", ())}
    if "integer" in types:
        return {"response": round(float(text))}
    return {"response": float(text) if "number" in types else text}


# --- giving -------------------------------------------------------------------------------------


def inclination(mind: Mind) -> float:
    """The share that somebody would give in a first round if nobody said anything, 0 to 1."""
    lean = mind.who.lean("giving to others") * (1 - mind.knobs.shrinking_variance)
    return 0.48 + 0.38 * lean + 0.08 * mind.who.warmth + 0.3 * mind.knobs.acquiescence


def push(mind: Mind) -> float:
    """How far what was read and heard moves the share: distinct words for giving less those for
    holding back, at most `_MOST`, times strength and susceptibility. Words that all read move all
    alike, so that other instructions leave the difference between treatments as it is."""
    own = mind.reading.persona.splitlines()
    told = mind.reading.system
    for line in own:  # what one says of oneself moves nobody
        told = told.replace(line, " ")
    texts = [told, *(p.text for p in mind.reading.said if not p.own)]
    give, keep = (
        {m.casefold() for text in texts for m in words.findall(text)} for words in (_FOR, _AGAINST)
    )
    balance = max(-1.0, min(1.0, (len(give) - len(keep)) / _MOST))
    kappa = _STRENGTH * mind.knobs.kappa_read * mind.knobs.persuasion
    return kappa * mind.who.susceptibility * balance


def given_share(mind: Mind, low: float, high: float) -> float:
    """The share of what one may give, 0 to 1."""
    rounds = sum(bool(_AMOUNT.fullmatch(words.strip())) for words in mind.reading.own_words)
    share = (inclination(mind) + push(mind)) * _WEAR**rounds
    others = {  # the last amount of each
        who: float(said)
        for passage in mind.reading.said
        if not passage.own
        for who, said in _SAID.findall(passage.text)
        if _AMOUNT.fullmatch(said.strip()) and low <= float(said) <= high
    }
    if others and high > low:
        theirs = (sum(others.values()) / len(others) - low) / (high - low)
        drawn = (_DRAWN + mind.knobs.sycophancy) * mind.who.susceptibility
        share += min(1.0, drawn) * (theirs - share)
    noise = _NOISE + mind.knobs.instability
    share += noise * normal(mind.at.seed, mind.at.address, "gives")
    return max(0.0, min(1.0, share))


# --- words --------------------------------------------------------------------------------------

_SIDES = (
    (
        "I'd put in {n} of my {high} {unit}, and I hope that everybody does the same.",
        "If we help each other we are all better off, so let's start high.",
        "Somebody has to set an example, and I don't mind if it's me: {n} of {high}.",
        "I trust you with {n} of my {unit}; it works best if nobody sits it out.",
    ),
    (
        "I'd start with about {n} of my {high} {unit} and see what comes back.",
        "I go along as long as the others do; say {n} of {high}.",
        "Let's agree on one amount, the same for each of us. {n} {unit} sounds right to me.",
        "Not everything and not nothing: {n} of {high} is what I have in mind.",
    ),
    (
        "I'd be careful at first: {n} of my {high} {unit}, not more.",
        "Who gives first often loses, so I'd begin with {n}.",
        "Talk costs nothing. I'd risk {n} of my {unit} until I see the numbers.",
        "I'd rather look after my own gain, and that means {n} of {high}.",
    ),
)
_WITH = ("I'm with {who} on that.", "I see it as {who} does.", "{who} has a point.")
_UNLIKE = ("I heard {who}, but that isn't how I see it.", "I see it differently from {who}.")


class _Stake(NamedTuple):
    high: float
    unit: str


def _stake(mind: Mind) -> _Stake | None:
    """What there is to give: the amount with its unit that the text names most often."""
    text = "\n".join((mind.reading.system, *(p.text for p in mind.reading.said if not p.own)))
    if not _GIVING.search(text):
        return None
    units = Counter((float(n), unit.casefold()) for n, unit in _UNITS.findall(text))
    people = {"people", "members", "rounds", "others", "groups", "sessions", "years", "sentences"}
    named = [(n, at) for at, n in units.items() if at[1] not in people]
    return _Stake(*max(named)[1]) if named else None


def _side(words: str) -> int | None:
    """Which of the sides a text takes, by its words: 0 gives, 2 holds back; None: neither."""
    give, keep = len(_FOR.findall(words)), len(_AGAINST.findall(words))
    return None if give == keep else 0 if give > keep else 2


def _talk(mind: Mind) -> str:
    """What somebody says: of giving an amount as they would give it; reasons for an answer that the
    workbook lists; else words about what was asked."""
    stake = _stake(mind)
    if stake is not None and mind.person:
        return _of_giving(mind, stake)
    if mind.reading.options or standing(mind.at.names, mind.text):
        return mind.say()
    if not mind.matters:
        mind.unread()
    return mind.tongue.talk(mind.matters or ("this",))


def _of_giving(mind: Mind, stake: _Stake) -> str:
    """An amount as one would give it; and of what another said, if they said it."""
    share = max(0.0, min(1.0, inclination(mind) + push(mind)))
    mine = 0 if share > 0.6 else 2 if share < 0.35 else 1
    slots = {"n": f"{round(share * stake.high):g}", "high": f"{stake.high:g}", "unit": stake.unit}
    sentences = []
    heard = _statements(mind)
    if heard and mind.draws.chance(0.6):
        who, words = heard[-1]
        theirs = _side(words)
        if theirs is not None and mine != 1:
            frames = _WITH if theirs == mine else _UNLIKE
            sentences.append(mind.tongue.fresh(frames).format(who=who))
    # What somebody else has said word for word is said in other words.
    known = [f for f in _SIDES[mine] if _opening(f) not in mind.text] or _SIDES[mine]
    sentences.append(mind.tongue.fresh(known).format(**slots))
    return " ".join(sentences)


def _opening(frame: str) -> str:
    return frame.partition("{")[0] or frame.partition("}")[2]


_NO_PERSON = re.compile(
    r"facilitator|summarizer|instruction|(?:round|task|part) \d+", re.IGNORECASE
)


def _statements(mind: Mind) -> list[tuple[str, str]]:
    """Who said what in words, as it stands in the messages: lines with a speaker's name."""
    heard = (_SAID.findall(p.text) for p in mind.reading.said if not p.own)
    return [
        (who, words)
        for who, words in chain(*heard)
        if len(words.split()) > 3 and "?" not in words and not _NO_PERSON.fullmatch(who)
    ]


def _minutes(mind: Mind) -> str | None:
    """Who would give and who would hold back, counted by what each said last."""
    if _stake(mind) is None:
        return None
    last = {who: _side(words) for who, words in _statements(mind)}
    sides = Counter(last.values())
    if not last:
        return None
    return (
        f"Of {len(last)} who spoke about it, {sides[0]} spoke for giving much, "
        f"{sides[2]} for holding back, and {sides[None]} for neither."
    )


def _story(mind: Mind) -> str:
    """Somebody's answers about themselves as a paragraph, in their order."""
    prompt = mind.reading.prompt
    lines = _LISTED.findall(prompt) or _SAID.findall(prompt)
    if not lines:
        mind.unread()
    told = [answer.strip().rstrip(".") for _, answer in lines]
    return f"This is me: {'; '.join(told)}."


PART = Part(
    names=_names,
    answers={
        "participant choice": _choice,
        "participant number": _number,
        "participant text": _talk,
        "WorkbookResponse": _object,
        "summarizer text": _minutes,
        "biographer text": _story,
    },
)
