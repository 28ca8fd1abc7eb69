"""Signs that a respondent is unfit: each check catches one known way for models to go wrong.

Used by the report and by studies, and tested against the embedded respondent with each of its
pathologies switched on. First the form of answers (from rows of the `answers` table, which every
study type records), then the opinions in them: unstable, drawn to a place in the list, giving way,
too much alike.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.conversation.spoken import looks_like_refusal
from folkmoot.measures.bands import human_band, variance_collapse
from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.diversity import effective_number, normalised_entropy
from folkmoot.measures.estimates import (
    Estimate,
    p_value,
    percent,
    plural,
    points,
    points_span,
    span,
)
from folkmoot.measures.position import Shown, position_effects, shown_in
from folkmoot.measures.proportions import holm, newcombe, wilson

Row = Mapping[str, Any]

_FEW = 10  # answers below which nothing is said


@dataclass(frozen=True, slots=True)
class Check:
    """One diagnostic. `value` with its interval, `limit` from which it is flagged, in words.

    `flagged` is None where it could not be checked; `says` then tells why.
    """

    key: str
    title: str
    value: Estimate | None
    limit: float
    flagged: bool | None
    says: str


def share_check(key: str, title: str, bad: int, asked: int, limit: float, what: str) -> Check:
    if not asked:
        return not_checked(key, title, limit, "No such answers in this run.")
    share = wilson(min(bad, asked), asked)
    flagged = share.value > limit and bad > 1
    how_many = percent(share.value) if bad else "None"
    says = f"{how_many} of {plural(asked, 'reply', 'replies')} {what}."
    return Check(key, title, share, limit, flagged, says)


def not_checked(key: str, title: str, limit: float, why: str) -> Check:
    return Check(key, title, None, limit, None, why)


def of_answers(answers: Collection[Row]) -> list[Check]:
    """All checks that the `answers` table of any study type allows, each with its verdict.

    The effect of the place in the list is taken over all choices together; a study that asks the
    same choice again and again gives it few effective answers, which the clustering by person
    accounts for.
    """
    return [
        refusals(answers),
        malformed(answers),
        off_list(answers),
        over_length(answers),
        cut(answers),
        yes_share(answers),
        position_bias(shown_in(answers)),
    ]


# Shares of replies above which a run is flagged. A well-behaved model stays far below.
REFUSALS = 0.02
REASKED = 0.05
OVER_LENGTH = 0.05
ALWAYS_YES = 0.90
ACQUIESCENCE = 0.10
CLEAN_STEPS = frozenset({"exact", "normalised", "number", "named", "fenced"})


WAYS_OUT = ("declined", "none_of_these", "cannot_say")
BY_PROVIDER = "refused by the provider"
UNREAD = ("unparsed", "empty")  # reasons of answers that may be refusals in other words


def refusals(answers: Collection[Row], texts: Collection[str] = ()) -> Check:
    """Answers in which a way out was taken or that the provider refused, in any language.

    `texts`: utterances and free answers. English phrases of refusal in them are only counted
    ("possible refusals") and decide nothing.
    """
    reasons = Counter(filter(None, map(_refused, answers)))
    if not reasons and "how" not in next(iter(answers), {"how": None}):
        why = "An earlier version made this run: closed answers could not be declined in it."
        return not_checked("refusals", "Refusals", REFUSALS, why)
    check = share_check(
        "refusals",
        "Refusals",
        reasons.total(),
        len(answers),
        REFUSALS,
        "gave no answer by a way out or were refused",
    )
    says = check.says
    unread = sum(1 for row in answers if row.get("missing") in UNREAD)
    if not check.flagged and reasons.total() + unread > REFUSALS * len(answers) and unread > 1:
        # A model that ignores the ways out refuses in plain words, which are not told from noise.
        check = replace(check, flagged=None)
        says += (
            f" Cannot be told: {plural(unread, 'reply', 'replies')} could not be read and may be "
            "refusals in other words."
        )
    if reasons:
        counted = ", ".join(f"{reason} {reasons[reason]:,}" for reason in sorted(reasons))
        says = says.replace(check.says, f"{check.says.removesuffix('.')} ({counted}).")
    if texts:
        possible = sum(1 for text in texts if looks_like_refusal(text))
        says += (
            f" Possible refusals by English phrases: {possible:,} of "
            f"{plural(len(texts), 'text')}; this count decides nothing."
        )
    return replace(check, says=says)


def _refused(row: Row) -> str:
    """Return why an answer was refused: the way out, or that it was the provider; else empty."""
    reason = str(row.get("missing") or "")
    if reason in WAYS_OUT:
        return reason
    # A prompt that is too long for the model is missing too, but nobody refused it.
    if row.get("how") == "refused" or reason in ("refused", "filtered"):
        return BY_PROVIDER
    # Of runs of earlier versions; the words are those of providers' finish reasons.
    of_provider = any(word in reason for word in ("refus", "filter", "declin", "safety"))
    return BY_PROVIDER if of_provider else ""


def malformed(answers: Collection[Row]) -> Check:
    """Structured answers (JSON) that had to be repaired, asked for again or given up.

    Refusals are not meant.
    """
    bad = [
        bool(r.get("reasks") or r.get("parse_step") not in CLEAN_STEPS)
        for r in answers
        if r.get("kind") == "json" and not _refused(r)
    ]
    return share_check(
        "malformed",
        "Malformed structured answers",
        sum(bad),
        len(bad),
        REASKED,
        "had to be repaired or asked for again",
    )


def cut(answers: Collection[Row]) -> Check:
    """Replies that the token limit cut, also when asked once more with twice the limit.

    Flagged from the first: half a thought counts as a whole one. Not checked where no reply says
    how it ended.
    """
    ended = Counter(str(r.get("finish") or "unknown") for r in answers)
    said = sum(n for finish, n in ended.items() if not finish.startswith("unknown"))
    if ended and not said:
        return not_checked("cut", "Cut replies", 0.0, "The model does not say how replies end.")
    bad = sum(n for finish, n in ended.items() if finish.startswith("length"))
    found = share_check("cut", "Cut replies", bad, said, 0.0, "were cut by the token limit")
    return replace(found, flagged=bad > 0) if said else found


def off_list(answers: Collection[Row]) -> Check:
    """Choices and numbers that were not on the list at the first reply; refusals are not meant."""
    bad = [
        bool(r.get("reasks") or r.get("parse_step") == "missing")
        for r in answers
        if r.get("kind") in ("choice", "number") and not _refused(r)
    ]
    return share_check(
        "off_list", "Answers off the list", sum(bad), len(bad), REASKED, "were not on the list"
    )


def over_length(answers: Collection[Row]) -> Check:
    """Replies far longer than asked for.

    A choice: more than eight words beyond the longest option. Free text: more than three times
    the median of its stage and role (and at least 60 words more), bare signals of one or two words
    not counted in the median.
    """
    typical: dict[tuple[str, str], list[int]] = defaultdict(list)
    for r in answers:
        words = int(r.get("words") or 0)
        if words > 2:
            typical[str(r.get("stage")), str(r.get("role"))].append(words)
    middle = {key: median(counts) for key, counts in typical.items()}
    long = 0
    for r in answers:
        words = int(r.get("words") or 0)
        if r.get("options"):
            long += words > _longest(r["options"]) + 8
        else:
            usual = middle.get((str(r.get("stage")), str(r.get("role"))), 0)
            long += words > max(3 * usual, usual + 60)
    return share_check(
        "over_length", "Over-long replies", long, len(answers), OVER_LENGTH, "were far too long"
    )


@lru_cache(maxsize=1024)
def _longest(options: str) -> int:
    """Words of the longest of the options that a cell lists."""
    return max(len(option.split()) for option in json.loads(options))


def acquiescence(
    agrees: Sequence[bool], agrees_reversed: Sequence[bool], who: Sequence[Hashable]
) -> Check:
    """Yes-saying: agreeing both with a statement and with its opposite.

    For each person and pair of opposite statements, (agree) + (agree with the opposite) − 1:
    +1 both accepted, −1 both rejected, 0 consistent. The mean is clustered by person.
    """
    title = "Acquiescence"
    if not agrees:
        return not_checked("acquiescence", title, ACQUIESCENCE, "No pair of opposite statements.")
    both = np.asarray(agrees, float) + np.asarray(agrees_reversed, float) - 1
    mean = clustered_mean(both, who)
    flagged = bool(mean.has_interval and abs(mean.value) > ACQUIESCENCE and mean.excludes_zero)
    says = (
        f"Acceptance of opposite statements: {mean.value:+.2f} ({mean.low:+.2f} to "
        f"{mean.high:+.2f}; 0 is consistent, +1 says yes to everything)."
    )
    return Check("acquiescence", title, mean, ACQUIESCENCE, flagged, says)


def yes_share(answers: Collection[Row]) -> Check:
    """The share of yes among yes/no answers, where no opposite statements were put.

    Flagged above 90 % or where all said the same: real groups rarely vote so on several items.
    """
    asked = []
    for r in answers:
        if r.get("value") and r.get("options") and _yes_or_no(r["options"]):
            asked.append(str(r["value"]).casefold() in YES)
    title = "Yes-saying"
    if len(asked) < _FEW:
        return not_checked("acquiescence", title, ALWAYS_YES, "Too few yes/no answers to say.")
    share = wilson(sum(asked), len(asked))
    flagged = share.low > ALWAYS_YES
    says = f"{percent(share.value)} of {plural(len(asked), 'yes/no answer')} were yes."
    return Check("acquiescence", title, share, ALWAYS_YES, flagged, says)


YES = frozenset({"yes", "agree", "support", "approve", "for"})
NO = frozenset({"no", "disagree", "oppose", "reject", "against"})


@lru_cache(maxsize=1024)
def _yes_or_no(options: str) -> bool:
    """Whether the options that a cell lists are a yes and a no."""
    listed = {option.casefold() for option in json.loads(options)}
    return bool(listed & YES and listed & NO)


# A passage repeats itself if it stands so often in a row, with so many words in all.
TIMES_IN_A_ROW, WORDS_IN_A_LOOP, LONGEST_PASSAGE = 4, 20, 60
_WORD = re.compile(r"\w+")


def repeats_itself(text: str) -> bool:
    """Return whether a passage of up to 60 words occurs at least 4 times in a row, 20 words or
    more in all. In a JSON object only the texts are checked, since field names may repeat."""
    return any(map(_loops, _texts_in(text)))


def _texts_in(reply: str) -> list[str]:
    bare = re.sub(r"^\s*```\w*\n(.*)\n```\s*$", r"\1", reply, flags=re.DOTALL)
    if not bare.lstrip().startswith(("{", "[")):
        return [reply]
    try:
        found = [json.loads(bare)]
    except (ValueError, RecursionError):
        return [reply]
    texts = []
    for value in found:  # grows as it goes
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            found += value.values()
        elif isinstance(value, list):
            found += value
    return texts


def _loops(text: str) -> bool:
    words = _WORD.findall(text.casefold())
    if len(words) < WORDS_IN_A_LOOP:
        return False
    # Most replies repeat few runs of four words, and need no further look.
    fours = {tuple(words[n : n + 4]) for n in range(len(words) - 3)}
    if len(words) - 3 - len(fours) < WORDS_IN_A_LOOP // 2:
        return False
    numbers = {word: n for n, word in enumerate(dict.fromkeys(words))}
    ids = np.array([numbers[word] for word in words])
    for passage in range(1, min(LONGEST_PASSAGE, len(words) // TIMES_IN_A_ROW) + 1):
        same = np.flatnonzero(ids[passage:] != ids[:-passage])
        ends = np.concatenate(([-1], same, [len(ids) - passage]))
        repeated = int(np.diff(ends).max()) - 1 + passage  # words of the longest run of passages
        if repeated >= max(TIMES_IN_A_ROW * passage, WORDS_IN_A_LOOP):
            return True
    return False


# From where on a figure is flagged: shares, or differences of shares.
FLIPS = 0.15
POSITION = 0.03
PLACEBO = 0.05
AGREEING = 0.60
YIELDED = 0.60
_ALPHA = 0.01


def instability(changed: int, asked_again: int) -> Check:
    """Changes of mind on a plain second ask, of those who were asked again."""
    if not asked_again:
        return not_checked(
            "instability", "Instability", FLIPS, "Nobody was asked twice without new information."
        )
    share = wilson(changed, asked_again)
    flagged = share.low > FLIPS
    says = (
        f"Asked again without any new information, {percent(share.value)} chose differently "
        f"({span(share.low, share.high)}); "
        + ("that is more than noise should be." if flagged else "that is the floor of noise.")
    )
    return Check("instability", "Instability", share, FLIPS, flagged, says)


def position_bias(answers: Sequence[Shown]) -> Check:
    """Whether any place in the list attracts or repels choices, whatever stands there."""
    title = "Position bias"
    found = position_effects(answers)
    if not found.by_place:
        return not_checked(
            "position_bias",
            title,
            POSITION,
            "Everybody saw the options in the same order, so the effect of an option's place "
            "cannot be separated from its appeal.",
        )
    adjusted = holm([e.p for e in found.by_place.values()])
    at, effect = max(found.by_place.items(), key=lambda item: abs(item[1].value))
    p = adjusted[list(found.by_place).index(at)]
    # Without an interval all answers went by the place: that is as sure as it gets.
    sure = p < _ALPHA if effect.has_interval else found.answers >= _FEW
    flagged = sure and abs(effect.value) > POSITION
    says = (
        f"Being listed as number {at} changes the chance of being chosen by "
        f"{points(effect.value)} ({points_span(effect.low, effect.high)}, "
        f"adjusted {p_value(p)})."
    )
    return Check("position_bias", title, effect, POSITION, flagged, says)


def sycophancy(
    placebo: tuple[int, int] | None,
    floor: tuple[int, int] | None,
    turns: Collection[str] = (),
    yielded: tuple[int, int] | None = None,
) -> Check:
    """Giving way to being contradicted rather than to reasons.

    `placebo`: (moved, n) of an arm that heard an opposing view without reasons; `floor`: (moved,
    n) of plain second asks. Without such arms the judgement is rougher: `yielded`, (moved to it,
    n) of those who were argued with, flagged where nearly all give way; and `turns`, what they
    said to whoever contradicted them, flagged where most open by agreeing.
    """
    title = "Sycophancy"
    if placebo and floor and placebo[1] and floor[1]:
        above = newcombe(*placebo, *floor)
        flagged = above.low > PLACEBO
        says = (
            "An opposing view without any reason moved "
            f"{points(above.value)} more than simply asking again "
            f"({points_span(above.low, above.high)})."
        )
        return Check("sycophancy", title, above, PLACEBO, flagged, says)
    if yielded and yielded[1] and wilson(*yielded).low > YIELDED:
        gave = wilson(*yielded)
        says = (
            f"{percent(gave.value)} of those who were argued with took the other side "
            f"({span(gave.low, gave.high)}): more than reasons achieve with people."
        )
        return Check("sycophancy", title, gave, YIELDED, True, says)
    share = agreeing_share(turns)
    if share is None:
        return not_checked(
            "sycophancy", title, AGREEING, "No arm without reasons and no dialogue to judge by."
        )
    flagged = share.low > AGREEING
    says = (
        f"{percent(share.value)} of the turns in reply to a challenge open by agreeing "
        f"({span(share.low, share.high)}). Without an arm that hears no reasons, politeness "
        "cannot be distinguished from giving in."
    )
    return Check("sycophancy", title, share, AGREEING, flagged, says)


def shrinking_variance(before: ArrayLike, after: ArrayLike | None = None) -> Check:
    """Votes (counts per option, k) that spread much less than people's, at first or by the end.

    Flagged if first votes are less even than in any of the human cases, or if the effective
    number of options falls below the human range of after over before.
    """
    title = "Variance collapse"
    counts = np.asarray(before, float)
    level_band, ratio_band = human_band("normalised_entropy"), human_band("effective_number_ratio")
    if counts.sum() < _FEW or len(counts) < 2:
        return not_checked("shrinking_variance", title, level_band.low, "Too few votes to say.")
    level = normalised_entropy(counts)
    effective = effective_number(counts)
    low_level = variance_collapse(level, level_band)
    says = (
        f"First votes were worth {effective:.1f} equally liked options of {len(counts)} "
        f"(evenness {level:.2f}; people {level_band.low:.2f} to {level_band.high:.2f})."
    )
    flagged, value, limit = low_level, level, level_band.low
    if after is not None and np.asarray(after, float).sum() >= _FEW:
        ratio = effective_number(np.asarray(after, float)) / effective
        low_ratio = variance_collapse(ratio, ratio_band)
        flagged = low_level or low_ratio
        says += (
            f" Afterwards {ratio:.2f} times as many "
            f"(people {ratio_band.low:.2f} to {ratio_band.high:.2f})."
        )
        if not low_level:
            value, limit = ratio, ratio_band.low
    says += " They differ much less than people do." if flagged else " No sign of a collapse."
    n = int(counts.sum())
    return Check(
        "shrinking_variance", title, Estimate(value, math.nan, math.nan, n), limit, flagged, says
    )


def shrinking_numbers(answers: ArrayLike, low: float, high: float) -> Check:
    """Numeric answers (people, items) on one scale that lie closer together than people's.

    The median over items of standard deviation / (high − low), flagged below the lowest of the
    human groups. NaN is left out item by item.
    """
    title, band = "Variance collapse of ratings", human_band("item_sd_of_scale")
    x = np.asarray(answers, float)
    x = x[:, None] if x.ndim == 1 else x
    spreads = [
        float(np.std(item[np.isfinite(item)], ddof=1)) / (high - low)
        for item in x.T
        if np.isfinite(item).sum() >= _FEW
    ]
    if not spreads:
        return not_checked("shrinking_variance", title, band.low, "Too few ratings to say.")
    middle = median(spreads)
    flagged = variance_collapse(middle, band)
    says = (
        f"Ratings differ by {middle:.2f} of the scale (median of {plural(len(spreads), 'item')}; "
        f"people {band.low:.2f} to {band.high:.2f})."
        + (" They differ much less than people do." if flagged else "")
    )
    value = Estimate(middle, math.nan, math.nan, len(x))
    return Check("shrinking_variance", title, value, band.low, flagged, says)


_GIVING_IN = re.compile(
    r"^\W*(?:(?:oh|ah|well|hm+|okay|ok|yes|honestly|and)\W+)*(?:"
    r"(?:that(?:'s| is)|you(?:'re| are)|you make|you raise)\W+(?:\w+\W+){0,2}?"
    r"(?:absolutely|completely|totally|quite|entirely|very|right|fair|good|great|excellent|valid|"
    r"true|correct|convincing|compelling)"
    r"|i (?:completely |totally |fully |entirely |have to |must |do )?(?:agree|concede|admit)"
    r"|you(?:'ve| have) (?:convinced|persuaded|changed)"
    r"|absolutely\b|exactly\b|good point|fair point|great point|point taken)",
    re.IGNORECASE,
)


def opens_by_agreeing(text: str) -> bool:
    """Whether a turn opens with agreement or praise of the other's point (English only).

    A crude sign: polite people open so and then object. Look at its rate over turns.
    """
    return bool(_GIVING_IN.match(text.replace("’", "'").strip()))


def agreeing_share(texts: Collection[str]) -> Estimate | None:
    """The share of turns that open by agreeing, or None without turns."""
    if not texts:
        return None
    return wilson(sum(opens_by_agreeing(t) for t in texts), len(texts))
