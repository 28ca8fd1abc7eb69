"""The built-in respondent for workbooks: rules that answer the study author's questions.

If participants give money, the amount depends on arguments and on the gifts of others.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from folkmoot.respondent import Passage, RespondentPart, SimulatedRespondent, of_kind
from folkmoot.respondent.mind.draws import normal_draw
from folkmoot.respondent.mind.scales import scale_of
from folkmoot.respondent.replies.answering import answer_choice, answer_number
from folkmoot.studies.workbook.answers import ListedOptions, read_options
from folkmoot.studies.workbook.config import SPECIAL_ROLES, WorkbookConfig
from folkmoot.studies.workbook.literals import NotALiteral
from folkmoot.studies.workbook.participants import QUESTIONS

# Words that argue for giving, and words that argue against it.
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
NAMES = "assignment.name"
_AMOUNT = re.compile(r"-?\d+(?:\.\d+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?？؟])\s+|\n+")
_QUESTION_MARKS = ("?", "？", "؟")
_UNITS = re.compile(r"\b(\d+(?:\.\d+)?) ([^\W\d_]{3,}s)\b")
# Surplus of words for one side at which arguments have their maximum effect.
_MAX_BALANCE = 8.0
# Maximum effect of arguments on the share, as a multiple of `kappa_read`.
_STRENGTH = 0.8
# How far others' mean gift attracts a participant with a susceptibility of 1 (0: not, 1: fully).
_PULL_TO_OTHERS = 0.35
# Factor by which the share declines per round.
_DECAY_PER_ROUND = 0.93
# Standard deviation of one answer around the share.
_NOISE = 0.07


def _answer_names(config: WorkbookConfig) -> tuple[str, ...]:
    names: list[str] = []
    for task in config.workbook.tasks:
        try:
            options = read_options(task.response_options or "")
        # Placeholders may make a literal of the text only in an experiment.
        except NotALiteral:
            continue
        option_sets = options.values() if isinstance(options, dict) else [options]
        for option_set in option_sets:
            if isinstance(option_set, ListedOptions) and not scale_of(option_set.options):
                names += option_set.options
    return tuple(dict.fromkeys(names))


# --- what is read -------------------------------------------------------------------------------


def _readable_passages(mind: SimulatedRespondent) -> list[Passage]:
    # The Facilitator repeats texts of the workbook, and questions of the profiles hold no
    # arguments.
    texts = of_kind(mind.reading.passages, "material", "utterance", "summary", own=False)
    return [
        passage
        for passage in texts
        if passage.source.id != QUESTIONS
        and (passage.source.kind != "utterance" or passage.source.address)
    ]


def _said_by_others(mind: SimulatedRespondent) -> list[Passage]:
    passages: dict[str, Passage] = {}
    for passage in of_kind(mind.reading.passages, "utterance", own=False):
        if passage.source.address and passage.source.speaker not in SPECIAL_ROLES:
            passages.setdefault(passage.source.id, passage)
    return list(passages.values())


def _question_text(mind: SimulatedRespondent) -> str:
    # Text about earlier rounds is ignored.
    about = mind.reading.about
    sentences = _SENTENCE_END.split(about)
    return (
        " ".join(sentence for sentence in sentences if sentence.rstrip().endswith(_QUESTION_MARKS))
        or about
    )


# --- answers ------------------------------------------------------------------------------------


def _answer_choice(mind: SimulatedRespondent) -> str:
    if not mind.person or len(mind.options) < 2:
        return answer_choice(mind)
    return mind.choose_on_scale(mind.options, _question_text(mind)) or mind.choose_option()


def _answer_number(mind: SimulatedRespondent) -> str:
    bounds = mind.reading.number_bounds
    if bounds is None or not mind.person:
        return answer_number(mind)
    low, high, is_whole = bounds
    question, stake = _question_text(mind), _stake_amount(mind)
    # "How much of your 20 coins" asks for a gift whatever the word for giving is.
    asks_for_whole_stake = (
        stake is not None and (low, high) == (0, stake.high) and stake.unit in question
    )
    is_gift = bool(_GIVING.search(question)) or asks_for_whole_stake
    share = given_share(mind, low, high) if is_gift else (mind.draw_rating(question) + 1) / 2
    value = low + (high - low) * share
    return str(round(value)) if is_whole and high - low > 1 else f"{value:.2f}"


def _answer_object(mind: SimulatedRespondent) -> object:
    kind = mind.reading.kind
    if kind == "choice":
        return _answer_choice(mind)
    text = _answer_number(mind) if kind == "number" else _answer_statement(mind)
    field_schema: Mapping[str, Any] = mind.schema.get("properties", {}).get("response", {})
    types = {part.get("type") for part in field_schema.get("anyOf", ())}
    if "integer" in types:
        return {"response": round(float(text))}
    return {"response": float(text) if "number" in types else text}


# --- giving -------------------------------------------------------------------------------------


def giving_inclination(mind: SimulatedRespondent) -> float:
    """Return how much of an amount a participant would give before any argument.

    The result is a share from 0 to 1.
    """
    # The share of round 1. It falls in later rounds.
    lean = mind.who.question_lean("giving to others") * (1 - mind.knobs.shrinking_variance)
    return 0.48 + 0.38 * lean + 0.08 * mind.who.warmth + 0.3 * mind.knobs.acquiescence


def argument_push(mind: SimulatedRespondent) -> float:
    """Return how much arguments add to the share that a participant gives.

    The result is negative if arguments lower the share.
    """
    # The change is positive if the texts hold more distinct words for giving than against it.
    texts = [passage.text for passage in _readable_passages(mind)]
    give, keep = (
        {match.casefold() for text in texts for match in pattern.findall(text)}
        for pattern in (_FOR, _AGAINST)
    )
    balance = max(-1.0, min(1.0, (len(give) - len(keep)) / _MAX_BALANCE))
    # The change is strength × susceptibility × balance (−1 to 1).
    kappa = _STRENGTH * mind.knobs.kappa_read * mind.knobs.persuasion
    return kappa * mind.who.susceptibility * balance


def given_share(mind: SimulatedRespondent, low: float, high: float) -> float:
    """Return how much a participant gives.

    The result is a share of the allowed range: 0 for `low`, 1 for `high`.
    """
    # The share falls with each round that the participant has played, and noise is added. The last
    # amounts of others pull it towards their mean.
    own_passages = of_kind(mind.reading.passages, "utterance", own=True)
    rounds = len(
        {passage.source.id for passage in own_passages if _AMOUNT.fullmatch(passage.text.strip())}
    )
    share = (giving_inclination(mind) + argument_push(mind)) * _DECAY_PER_ROUND**rounds
    # The last amount of each other participant.
    others = {
        passage.source.speaker: float(passage.text)
        for passage in _said_by_others(mind)
        if _AMOUNT.fullmatch(passage.text.strip()) and low <= float(passage.text) <= high
    }
    if others and high > low:
        others_share = (math.fsum(others.values()) / len(others) - low) / (high - low)
        pull = (_PULL_TO_OTHERS + mind.knobs.sycophancy) * mind.who.susceptibility
        share += min(1.0, pull) * (others_share - share)
    noise = _NOISE + mind.knobs.instability
    share += noise * normal_draw(mind.at.seed, mind.at.address, "gives")
    return max(0.0, min(1.0, share))


# --- words --------------------------------------------------------------------------------------

# Statements for giving much, for a middle course, and for holding back.
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


def _stake_amount(mind: SimulatedRespondent) -> _Stake | None:
    # The amount that can be given is the number with a unit that the texts mention most often, such
    # as "10 tokens".
    texts = [passage.text for passage in _readable_passages(mind)]
    if not any(_GIVING.search(text) for text in texts):
        return None
    amounts = (amount for text in texts for amount in _UNITS.findall(text))
    units = Counter((float(amount), unit.casefold()) for amount, unit in amounts)
    # Counted nouns in instructions that are no tokens.
    non_money_units = {
        "people",
        "members",
        "rounds",
        "others",
        "groups",
        "sessions",
        "years",
        "sentences",
    }
    counted_units = [
        (n, amount_and_unit)
        for amount_and_unit, n in units.items()
        if amount_and_unit[1] not in non_money_units
    ]
    return _Stake(*max(counted_units)[1]) if counted_units else None


def _side_of_words(words: str) -> int | None:
    # 0 for giving, 2 for keeping, None for neither.
    give, keep = len(_FOR.findall(words)), len(_AGAINST.findall(words))
    return None if give == keep else 0 if give > keep else 2


def _answer_statement(mind: SimulatedRespondent) -> str:
    stake = _stake_amount(mind)
    if stake is not None and mind.person:
        return _state_gift(mind, stake)
    if mind.mentioned_names:
        option = (
            mind.current_option
            if mind.current_option in mind.mentioned_names
            else max(mind.mentioned_names, key=mind.who.option_taste)
        )
        return mind.compose_reasons(option)
    if not mind.talked_about_matters:
        mind.mark_unread()
    return mind.speech.talk(mind.talked_about_matters or ("this",))


def _state_gift(mind: SimulatedRespondent, stake: _Stake) -> str:
    share = max(0.0, min(1.0, giving_inclination(mind) + argument_push(mind)))
    own_side = 0 if share > 0.6 else 2 if share < 0.35 else 1
    slots = {"n": f"{round(share * stake.high):g}", "high": f"{stake.high:g}", "unit": stake.unit}
    sentences = []
    if (statements := _last_statements(mind)) and mind.draws.draw_chance(0.6):
        speaker, text = [*statements.items()][-1]
        name, their_side = _names_of(mind).get(speaker), _side_of_words(text)
        if name and their_side is not None and own_side != 1:
            frames = _WITH if their_side == own_side else _UNLIKE
            sentences.append(mind.speech.pick_unused(frames).format(who=name))
    # Avoid sentences that another participant has used already.
    said_text = "\n".join(passage.text for passage in _said_by_others(mind))
    unused_frames = [
        frame for frame in _SIDES[own_side] if _frame_opening(frame) not in said_text
    ] or _SIDES[own_side]
    sentences.append(mind.speech.pick_unused(unused_frames).format(**slots))
    return " ".join(sentences)


def _frame_opening(frame: str) -> str:
    return frame.partition("{")[0] or frame.partition("}")[2]


def _names_of(mind: SimulatedRespondent) -> Mapping[str, str]:
    # The names that other participants use, by participant id.
    names = {passage.source.speaker: passage.text for passage in mind.shown_passages(NAMES)}
    return {**mind.reading.names, **names}


def _last_statements(mind: SimulatedRespondent) -> dict[str, str]:
    statements: dict[str, str] = {}
    for passage in _said_by_others(mind):
        if len(passage.text.split()) > 3 and "?" not in passage.text:
            # Insert again at the end, so that the order is that of the last statements.
            statements.pop(passage.source.speaker, None)
            statements[passage.source.speaker] = passage.text
    return statements


def _summarise_minutes(mind: SimulatedRespondent) -> str | None:
    # Each participant counts once, by the last statement.
    last = _last_statements(mind)
    if not last or _stake_amount(mind) is None:
        return None
    sides = Counter(map(_side_of_words, last.values()))
    return (
        f"Of {len(last)} who spoke about it, {sides[0]} spoke for giving much, "
        f"{sides[2]} for holding back, and {sides[None]} for neither."
    )


def _answer_story(mind: SimulatedRespondent) -> str:
    lines = of_kind(mind.reading.passages, "persona")
    if not lines:
        mind.mark_unread()
    return f"This is me: {'; '.join(line.text.strip().rstrip('.') for line in lines)}."


PART = RespondentPart(
    option_names=_answer_names,
    answers={
        "participant choice": _answer_choice,
        "participant number": _answer_number,
        "participant text": _answer_statement,
        "WorkbookResponse": _answer_object,
        "summarizer text": _summarise_minutes,
        "biographer text": _answer_story,
    },
)
