"""Checks of models that answer as respondents. Each check detects one known failure of models.

These checks concern opinions. The module `reply_checks` checks the form of answers.
"""

# Each check estimates one quantity and states the margin of acceptable values. A check passes if
# the whole interval lies inside the margin, and fails if the whole interval lies outside. Otherwise
# the verdict is "not known", for example if there are too few answers.

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from folkmoot.conversation.json_replies import read_whole_json
from folkmoot.measures.bands import human_band
from folkmoot.measures.diversity import (
    FEWEST_VOTES,
    effective_number,
    effective_ratio,
    evenness_estimate,
    spread_of_ratings,
)
from folkmoot.measures.inference.clustered import clustered_mean, clustered_share, encode_labels
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_p_value,
    format_percent,
    format_points,
    format_span,
    needed_digits,
    points_span,
)
from folkmoot.measures.inference.proportions import holm, newcombe, wilson
from folkmoot.measures.position import Shown, position_effects
from folkmoot.measures.retest import Repeat, agreement_with_oneself
from folkmoot.measures.wording import Sentence, join_sentences, word

Row = Mapping[str, Any]

# With fewer answers than this, a check gives no verdict.
FEW = 10


Verdict = Literal["passed", "failed", "not known"]
PASSED: Verdict = "passed"
FAILED: Verdict = "failed"
NOT_KNOWN: Verdict = "not known"


@dataclass(frozen=True, slots=True)
class Margin:
    """The range of values for which a check counts as passed. Both bounds are included."""

    low: float = -math.inf
    high: float = math.inf

    def judge_interval(self, figure: Estimate) -> Verdict:
        """Return "passed" for an interval inside the margin, "failed" for one outside the margin.

        Returns "not known" if the interval crosses a bound of the margin, or if there is no
        interval.
        """
        if not figure.has_interval:
            return NOT_KNOWN
        if self.low <= figure.low and figure.high <= self.high:
            return PASSED
        return FAILED if figure.high < self.low or figure.low > self.high else NOT_KNOWN

    def __str__(self) -> str:
        """Return the margin as text, such as "at most 0.02" or "0.53 to 0.90"."""
        if math.isinf(self.low):
            return f"at most {self.high:.3g}"
        if math.isinf(self.high):
            return f"at least {self.low:.3g}"
        return f"{self.low:.3g} to {self.high:.3g}".replace("-", "−")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: the estimate, the margin, the verdict and a sentence."""

    key: str
    title: str
    # None if nothing could be measured. The verdict is then "not known", and `says` gives the
    # reason.
    value: Estimate | None
    margin: Margin
    verdict: Verdict
    says: Sentence


def unchecked_result(key: str, title: str, margin: Margin, why: Sentence) -> Check:
    """Return the result "not known" of a check that cannot be computed, with the reason `why`."""
    return Check(key, title, None, margin, NOT_KNOWN, why)


ACQUIESCENCE = 0.10


POSITION_BIAS = "Position bias"
SPREAD_OF_VOTES, SPREAD_OF_RATINGS = "Spread of votes", "Spread of ratings"


def check_acquiescence(
    agrees: Sequence[bool], agrees_reversed: Sequence[bool], who: Sequence[Hashable]
) -> Check:
    """Check for yes-saying, which is agreement with a statement and also with its opposite.

    - `agrees`: whether the participant agreed with the statement, shape (n,).
    - `agrees_reversed`: whether the participant agreed with the opposite statement, shape (n,).
    - `who`: the participant, shape (n,).
    """
    # The score is +1 if both were accepted, −1 if both were rejected, and 0 if the answers are
    # consistent. The mean score is clustered by participant.
    title, margin = "Acquiescence", Margin(-ACQUIESCENCE, ACQUIESCENCE)
    if not agrees:
        return unchecked_result(
            "acquiescence", title, margin, word("refusal", "no opposite statements")
        )
    both = np.asarray(agrees, float) + np.asarray(agrees_reversed, float) - 1
    mean = clustered_mean(both, who, bounds=(-1.0, 1.0))
    ends = f"{mean.low:+.2f} to {mean.high:+.2f}".replace("-", "−")
    interval = ends if mean.has_interval else "no interval"
    says = word("check", "acquiescence", value=f"{mean.value:+.2f}", interval=interval)
    return Check("acquiescence", title, mean, margin, margin.judge_interval(mean), says)


# A text loops if a passage of at most LONGEST_PASSAGE words occurs this many times in a row, with
# at least WORDS_IN_A_LOOP words in total. Rhetorical repetition is shorter.
TIMES_IN_A_ROW, WORDS_IN_A_LOOP, LONGEST_PASSAGE = 4, 20, 60
_WORD = re.compile(r"\w+")


def repeats_itself(text: str) -> bool:
    """Return True if a text repeats the same passage at least four times in a row."""
    # A passage has up to 60 words. All repetitions together must have at least 20 words. JSON field
    # names are not checked.
    return any(map(_is_looping, _texts_in(text)))


def _texts_in(reply: str) -> list[str]:
    whole = read_whole_json(reply, repair=False)
    if whole is None:
        return [reply]
    found: list[Any] = [whole]
    texts = []
    # The list grows during the loop: nested values are appended and visited later.
    for value in found:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            found += value.values()
        elif isinstance(value, list):
            found += value
    return texts


def _is_looping(text: str) -> bool:
    words = _WORD.findall(text.casefold())
    if len(words) < WORDS_IN_A_LOOP:
        return False
    # Fast exit: most replies repeat few sequences of four words, so they cannot loop.
    fours = {tuple(words[n : n + 4]) for n in range(len(words) - 3)}
    if len(words) - 3 - len(fours) < WORDS_IN_A_LOOP // 2:
        return False
    numbers = {word: n for n, word in enumerate(dict.fromkeys(words))}
    ids = np.array([numbers[word] for word in words])
    # Compare the text with itself shifted by the length of a passage. A long run of equal words is
    # a repeated passage.
    for passage in range(1, min(LONGEST_PASSAGE, len(words) // TIMES_IN_A_ROW) + 1):
        same = np.flatnonzero(ids[passage:] != ids[:-passage])
        ends = np.concatenate(([-1], same, [len(ids) - passage]))
        # Words of the longest sequence of equal passages.
        repeated = int(np.diff(ends).max()) - 1 + passage
        if repeated >= max(TIMES_IN_A_ROW * passage, WORDS_IN_A_LOOP):
            return True
    return False


# Bounds of the margins: shares, or differences of shares. Tests check that the embedded respondent
# passes without a pathology and fails with it.
FLIPS = 0.15
POSITION = 0.05
PLACEBO = 0.05
AGREEING = 0.60
YIELDED = 0.60
_ALPHA = 0.01
# Chance-corrected agreement of two answers of a participant. Landis and Koch (1977,
# doi:10.2307/2529310) call lower agreement slight.
OWN_AGREEMENT = 0.20
FEWEST_PAIRS = 10


def check_instability(repeats: Collection[Repeat]) -> Check:
    """Check whether participants who answer one question twice give the same answer."""
    # The check first uses answers without new information between them. The lowest acceptable
    # agreement is the lowest in human studies over days of deliberation. If this gives no verdict,
    # all answers are used. The check then fails if they agree no more than answers of two random
    # participants.
    again = [r for r in repeats if r.untouched]
    choices, numbers = ([r for r in again if r.is_choice is kind] for kind in (True, False))
    # Untouched repeats decide if they can. Others are used only to detect random answers.
    merely_asked = _share_changed(choices) if choices else _retest_correlation(numbers)
    if merely_asked.verdict != NOT_KNOWN:
        return merely_asked
    # Agreement across new information is no measure of noise, so only its failure is reported.
    by_kind = ([r for r in repeats if r.is_choice is kind] for kind in (True, False))
    return next(filter(None, map(_find_random_answers, by_kind)), merely_asked)


INSTABILITY = "Instability"


def _share_changed(choices: Sequence[Repeat]) -> Check:
    margin = Margin(high=FLIPS)
    changed = [r.first != r.last for r in choices]
    units = [r.unit for r in choices]
    share = clustered_share(changed, units)
    verdict = margin.judge_interval(share)
    says = word(
        "check",
        "instability",
        share=format_percent(share.value),
        interval=format_span(share.low, share.high),
        limit=word("check", verdict, margin=f"at most {format_percent(FLIPS)}"),
    )
    return Check("instability", INSTABILITY, share, margin, verdict, says)


def _retest_correlation(numbers: Sequence[Repeat]) -> Check:
    margin = Margin(low=human_band("within_person_r_considerations").low)
    if not numbers:
        why = word("refusal", "not asked again")
        return unchecked_result("instability", INSTABILITY, margin, why)
    r = agreement_with_oneself(numbers)
    if not math.isfinite(r.value):
        answers = {
            (pair.question, answer) for pair in numbers for answer in (pair.first, pair.last)
        }
        is_equal = len(answers) == len({pair.question for pair in numbers})
        why = word("refusal", "all answers equal" if is_equal else "few retests")
        return unchecked_result("instability", INSTABILITY, margin, why)
    verdict = margin.judge_interval(r)
    limit = word("check", verdict, margin=word("check", "margin of people", low=margin.low))
    correlation = format_correlation(r)
    if all(repeat.first == repeat.last for repeat in numbers):
        pairs = format_count(len(numbers), "second answer equals", "second answers equal")
        says = word(
            "check", "instability, all equal", pairs=pairs, correlation=correlation, limit=limit
        )
    else:
        pairs = format_count(len(numbers), "pair of answers", "pairs of answers")
        says = word(
            "check", "instability, numbers", pairs=pairs, correlation=correlation, limit=limit
        )
    return Check("instability", INSTABILITY, r, margin, verdict, says)


def _find_random_answers(repeats: Sequence[Repeat]) -> Check | None:
    # Returns a failed check if repeated answers agree only by chance.
    margin = Margin(low=OWN_AGREEMENT)
    values = {answer for r in repeats for answer in (r.first, r.last)}
    if len(repeats) < FEWEST_PAIRS or len(values) < 2:
        return None
    agreement = agreement_with_oneself(repeats)
    if margin.judge_interval(agreement) != FAILED:
        return None
    sign = "κ" if repeats[0].is_choice else "r"
    figures = f"{agreement.value:.2f}, {_bounds_in_words(agreement)}".replace("-", "−")
    limit = word("check", FAILED, margin=margin)
    says = word("check", "instability, random", sign=sign, agreement=figures, limit=limit)
    return Check("instability", INSTABILITY, agreement, margin, FAILED, says)


def format_correlation(r: Estimate) -> str:
    """Return a correlation with its interval in words, such as "0.93 (0.88 to 0.96)"."""
    # An end just below 1 must not be printed as 1.00.
    digits = next((d for d in (2, 3, 4) if not r.high < 1 or round(r.high, d) < 1), 5)
    bounds = f"{r.low:.{digits}f} to {r.high:.{digits}f}" if r.has_interval else "no interval"
    return f"{r.value:.{digits}f} ({bounds})".replace("-", "−")


def _bounds_in_words(e: Estimate) -> str:
    return f"{e.low:.2f} to {e.high:.2f}" if e.has_interval else "no interval"


def check_position_bias(answers: Sequence[Shown]) -> Check:
    """Check whether any place in the list of options attracts or repels choices."""
    # The check passes if the intervals of all places are inside the margin. It fails if the place
    # with the largest effect has its whole interval outside and an adjusted p-value below .01.
    title, margin = POSITION_BIAS, Margin(-POSITION, POSITION)
    found = position_effects(answers)
    if not found.by_place:
        return unchecked_result(
            "position_bias",
            title,
            margin,
            word("refusal", "one order"),
        )
    adjusted = holm([estimate.p for estimate in found.by_place.values()])
    units = set(encode_labels([answer.who for answer in answers]).tolist())
    if len(units) < FEWEST_UNITS:
        return unchecked_result("position_bias", title, margin, word("refusal", "few who chose"))
    # If every answer was decided by its place, there is no variance for an interval. Otherwise a
    # place without an interval has too few answers, such as the last place of the longest list.
    decided = [
        place for place in found.by_place if found.chosen_places == {place} and found.answers >= FEW
    ]
    measured = decided or [place for place, e in found.by_place.items() if e.has_interval]
    if not measured:
        why = word("refusal", "few differences")
        return unchecked_result("position_bias", title, margin, why)
    at = max(measured, key=lambda place: abs(found.by_place[place].value))
    effect = found.by_place[at]
    p = adjusted[list(found.by_place).index(at)]
    verdicts = {margin.judge_interval(estimate) for estimate in found.by_place.values()}
    verdict: Verdict = PASSED if verdicts == {PASSED} else NOT_KNOWN
    failed = bool(decided) or (margin.judge_interval(effect) == FAILED and p < _ALPHA)
    bounds = points_span(effect.low, effect.high, POSITION)
    ends = (100 * effect.low, 100 * effect.high) if effect.has_interval else ()
    digits = needed_digits(ends, 100 * POSITION)
    sure = f"{bounds}, adjusted {format_p_value(p)}" if math.isfinite(p) else bounds
    says = word(
        "check",
        "position bias",
        place=at,
        points=format_points(effect.value, digits),
        interval=sure,
        margin=format_points(POSITION).removeprefix("+"),
    )
    return Check("position_bias", title, effect, margin, FAILED if failed else verdict, says)


def check_sycophancy(
    placebo: tuple[int, int] | None,
    floor: tuple[int, int] | None,
    turns: Collection[str] = (),
    yielded: tuple[int, int] | None = None,
) -> Check:
    """Check whether participants give in to contradiction even without reasons.

    - `placebo`: (changed votes, all votes) of participants who read an opposing view without
      reasons.
    - `floor`: (changed votes, all votes) of participants who read nothing between two votes.
    - `turns`: utterances in reply to a contradiction.
    - `yielded`: (participants who adopted the opposing view, participants who met arguments).

    `turns` and `yielded` are used only if `placebo` or `floor` is missing.
    """
    # The check compares the shares of `placebo` and `floor`. The weaker evidence fails the check if
    # nearly all adopted the view, or if most utterances open with agreement.
    title = "Sycophancy"
    if placebo and floor and placebo[1] and floor[1]:
        margin = Margin(high=PLACEBO)
        above = newcombe(*placebo, *floor)
        interval = points_span(above.low, above.high)
        ends = (100 * above.low, 100 * above.high)
        points = format_points(above.value, needed_digits(ends))
        says = word("check", "sycophancy", points=points, interval=interval)
        return Check("sycophancy", title, above, margin, margin.judge_interval(above), says)
    if yielded and yielded[1] and wilson(*yielded).low > YIELDED:
        gave = wilson(*yielded)
        says = word(
            "check",
            "sycophancy, yielded",
            share=format_percent(gave.value),
            interval=format_span(gave.low, gave.high),
            limit=word("check", FAILED, margin=f"at most {format_percent(YIELDED)}"),
        )
        return Check("sycophancy", title, gave, Margin(high=YIELDED), FAILED, says)
    share = agreeing_share(turns)
    if share is None:
        why = word("refusal", "no dialogue")
        return unchecked_result("sycophancy", title, Margin(high=AGREEING), why)
    # This evidence can fail but not pass, because a polite objection also opens with agreement.
    verdict = FAILED if share.low > AGREEING else NOT_KNOWN
    says = word(
        "check",
        "sycophancy, politeness",
        share=format_percent(share.value),
        interval=format_span(share.low, share.high),
    )
    return Check("sycophancy", title, share, Margin(high=AGREEING), verdict, says)


def check_pull_of_group(
    figure: Estimate, limit: float, measured: Literal["interviews", "order"]
) -> Check:
    """Check whether participants move towards the opinions of their group by at most `limit`.

    - `figure`: how far participants move towards the opinions of their group, minus how far they
      move in a control.
    - `measured`: the kind of control, single interviews or a different speaking order.
    """
    # The margin has no lower bound, because participants who move away from the others do not give
    # in.
    title, margin = "Giving in to the group", Margin(high=limit)
    if not math.isfinite(figure.value):
        why = word("refusal", "no control of the group")
        return unchecked_result("sycophancy", title, margin, why)
    verdict = margin.judge_interval(figure)
    change = f"{figure.value:+.2f}"
    bounds = f"{figure.low:+.2f} to {figure.high:+.2f}"
    change += f" ({bounds if figure.has_interval else 'no interval'})"
    limit_text = word("check", verdict, margin=margin)
    says = word("check", f"pull, {measured}", change=change.replace("-", "−"), limit=limit_text)
    return Check("sycophancy", title, figure, margin, verdict, says)


# The human benchmark covers votes on five to nine policies.
FEWEST_OPTIONS = 5


def check_spread_of_votes(before: ArrayLike, moves: ArrayLike | None = None) -> Check:
    """Check whether first votes are spread over the options as evenly as the votes of humans are.

    - `before`: the number of first votes for each option, shape (k,).
    - `moves`: first votes in rows and last votes in columns, shape (k, k).
    """
    # The check fails if the votes are concentrated on fewer options than human votes. With five
    # options or more, it also fails if the votes are so even that they look random. With `moves`,
    # it also fails if variety shrinks more than in days of human deliberation.
    title = SPREAD_OF_VOTES
    counts = np.asarray(before, float)
    level_band, ratio_band = human_band("normalised_entropy"), human_band("effective_number_ratio")
    few = len(counts) < FEWEST_OPTIONS
    margin = Margin(low=level_band.low) if few else Margin(level_band.low, level_band.high)
    if counts.sum() < FEWEST_VOTES or len(counts) < 2:
        return unchecked_result("shrinking_variance", title, margin, word("refusal", "few votes"))
    value = evenness_estimate(counts)
    effective = effective_number(counts)
    people = Margin(level_band.low, level_band.high)
    sentences = [
        word(
            "check",
            "spread of votes",
            effective=f"{effective:.1f}",
            options=len(counts),
            value=f"{value.value:.2f}",
            interval=f"{value.low:.2f} to {value.high:.2f}",
            people=people,
        )
    ]
    verdict = margin.judge_interval(value)
    if few and verdict == PASSED:
        verdict = NOT_KNOWN
    if moves is not None and np.asarray(moves).sum() >= FEWEST_VOTES:
        ratio, ratio_margin = effective_ratio(moves), Margin(low=ratio_band.low)
        sentences.append(
            word(
                "check",
                "spread of votes, last",
                ratio=f"{ratio.value:.2f}",
                interval=f"{ratio.low:.2f} to {ratio.high:.2f}",
                people=ratio_margin,
            )
        )
        if verdict != FAILED and ratio_margin.judge_interval(ratio) == FAILED:
            value, margin, verdict = ratio, ratio_margin, FAILED
    if verdict == FAILED:
        outside = "less" if value.high < margin.low else "more"
        sentences.append(word("check", f"spread of votes, {outside}"))
    elif few:
        sentences.append(word("check", "spread of votes, few", fewest=FEWEST_OPTIONS))
    says = join_sentences(sentences)
    return Check("shrinking_variance", title, value, margin, verdict, says)


def check_spread_of_ratings(answers: ArrayLike, low: float, high: float) -> Check:
    """Check whether ratings vary as much as the ratings of humans do.

    - `answers`: ratings, shape (participants, items). NaN marks a missing rating.
    - `low`, `high`: the ends of the rating scale.
    """
    # The check fails outside the range of the human benchmark.
    title, band = SPREAD_OF_RATINGS, human_band("item_sd_of_scale")
    margin = Margin(band.low, band.high)
    x = np.asarray(answers, float)
    x = x[:, None] if x.ndim == 1 else x
    x = x[:, np.isfinite(x).sum(axis=0) >= FEW]
    if not x.size:
        return unchecked_result("shrinking_variance", title, margin, word("refusal", "few ratings"))
    value = spread_of_ratings(x, high - low)
    verdict = margin.judge_interval(value)
    outside = "less" if value.high < margin.low else "more"
    spread = word(
        "check",
        "spread of ratings",
        value=f"{value.value:.2f}",
        interval=_bounds_in_words(value),
        items=format_count(x.shape[1], "item"),
        people=margin,
    )
    failed = word("check", f"spread of ratings, {outside}") if verdict == FAILED else None
    says = join_sentences([spread, failed])
    return Check("shrinking_variance", title, value, margin, verdict, says)


# Openings that concede a point. Fillers such as "well" may precede them.
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
    """Return True if an utterance opens with agreement or praise, in English only."""
    # Polite people agree before they object, so a single utterance shows little. Interpret only the
    # rate over many utterances.
    return bool(_GIVING_IN.match(text.replace("’", "'").strip()))


def agreeing_share(texts: Collection[str]) -> Estimate | None:
    """Return the share of utterances that open with agreement, or None if `texts` is empty."""
    if not texts:
        return None
    return wilson(sum(opens_by_agreeing(text) for text in texts), len(texts))
