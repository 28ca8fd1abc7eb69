"""How often the interval of each estimator contains the truth, over simulated data sets.

A case draws one data set and returns the estimate with the true value. The seeds are fixed by the
names of the cases. `python -m tests.measures.coverage DRAWS` prints the table of docs/measures.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from folkmoot.measures.agreement import (
    correlation_with_oneself,
    kappa_of_possible,
    krippendorff_alpha,
    krippendorff_interval,
)
from folkmoot.measures.diversity import (
    effective_number,
    effective_ratio,
    evenness_estimate,
    spread_of_ratings,
)
from folkmoot.measures.inference.clustered import (
    clustered_difference,
    clustered_mean,
    clustered_share,
    paired_difference,
    skewed_mean,
)
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.factorial import factorial
from folkmoot.measures.inference.paired_votes import paired_shares
from folkmoot.measures.inference.proportions import between, mover, newcombe, wilson
from folkmoot.measures.inference.rectified import rectified_difference, rectified_mean
from folkmoot.measures.inference.regression import logistic
from folkmoot.measures.inference.specification_curve import _prediction_interval
from folkmoot.measures.position import Shown, position_effects
from folkmoot.randomness import generator

Floats = NDArray[np.float64]
DrawCase = Callable[[np.random.Generator], tuple[Estimate, float]]


# Why intervals of an estimator contain the truth in more than 97 of 100 data sets in some cases.
ABOVE_97 = {
    "Wilson": "few values that a share of few people can take",
    "Newcombe": "few values that shares of few people can take",
    "Tango and McNemar": "stretched to the exact interval of few moves, so that it agrees with the "
    "exact test",
    "CR2 share": "rare answers in few clusters: the scale of log odds is wide where it is not sure",
    "CR2 difference of shares": "rare answers in ten clusters: some data sets have hardly any",
    "Paired t": "ten differences of ratings, most of them zero",
    "Mean of one-sided ratings": "five to fifteen ratings, of which the skewness is not well known",
    "Rectified share": "few people with the rarer answer: Wilson's interval of the people alone",
    "κ of two answers": "the largest possible agreement is estimated too, and allowed for",
    "α of two coders": "few texts, of which Wilson's interval is cautious",
    "Evenness": "where all options are liked alike it cannot lie above its maximum; of few votes "
    "elsewhere the exact bounds hold for any distribution of them",
    "Effective options after over before": "few people moved, who alone tell how sure it is",
    "Spread of ratings": "the median over items varies less than each item does",
    "Odds ratio": "rare outcomes, for which Firth's interval is cautious",
}


@dataclass(frozen=True)
class Coverage:
    """`held` of `known` intervals contain the truth. The other data sets have no interval."""

    held: int
    known: int
    draws: int

    @property
    def share(self) -> float:
        return self.held / self.known if self.known else math.nan

    @property
    def refused(self) -> float:
        return 1 - self.known / self.draws


def find_estimator(name: str) -> str:
    """Return the estimator of a case."""
    return name.partition(",")[0]


def measure_coverage(name: str, draws: int) -> Coverage:
    """Draw data sets of a case and count the intervals that contain the truth."""
    rng = generator(20261125, ("coverage", name))
    held = known = 0
    for _ in range(draws):
        estimate, truth = CASES[name](rng)
        if estimate.has_interval:
            known += 1
            held += estimate.low <= truth + 1e-12 and truth - 1e-12 <= estimate.high
    return Coverage(held, known, draws)


# --- shares --------------------------------------------------------------------------------------

_wilson = lru_cache(maxsize=None)(wilson)
_newcombe = lru_cache(maxsize=None)(newcombe)
_tango = lru_cache(maxsize=None)(paired_shares)


def one_share(n: int, p: float) -> DrawCase:
    return lambda rng: (_wilson(int(rng.binomial(n, p)), n), p)


def two_shares(n1: int, n2: int, p1: float, p2: float) -> DrawCase:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        return _newcombe(int(rng.binomial(n1, p1)), n1, int(rng.binomial(n2, p2)), n2), p1 - p2

    return draw


def paired_share_difference(n: int, only_first: float, only_second: float) -> DrawCase:
    shares = [0.2, only_first, only_second, 0.8 - only_first - only_second]

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        counts = (int(count) for count in rng.multinomial(n, shares))
        return _tango(*counts), only_second - only_first

    return draw


def difference_of_differences(n: int, *p: float) -> DrawCase:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        a, b, c, d = (int(rng.binomial(n, share)) for share in p)

        def newcombe_without_p(first: int, second: int, level: float) -> Estimate:
            """Newcombe's interval, without the p that is not needed."""
            sides = _wilson(first, n, level), _wilson(second, n, level)
            return Estimate((first - second) / n, *mover(*sides), 2 * n)

        estimate = between(
            lambda level=0.95: newcombe_without_p(a, b, level),
            lambda level=0.95: newcombe_without_p(c, d, level),
        )
        return estimate, p[0] - p[1] - p[2] + p[3]

    return draw


# --- means ---------------------------------------------------------------------------------------


# Numbers of groups of 2 to 18 with enough degrees of freedom. Eight groups have 3.6.
UNEQUAL_CLUSTERS = (10, 12, 20)


def group_sizes(groups: int, equal: bool) -> NDArray[np.int64]:
    return np.full(groups, 8) if equal else 2 + 3 * np.arange(groups) % 17


def draw_clustered_values(
    rng: np.random.Generator, groups: int, icc: float, equal: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Values around zero with variance 1 (n,), and their groups (n,)."""
    group_of_unit = np.repeat(np.arange(groups), group_sizes(groups, equal))
    shared = rng.normal(size=groups)[group_of_unit]
    return math.sqrt(icc) * shared + math.sqrt(1 - icc) * rng.normal(
        size=len(group_of_unit)
    ), group_of_unit


def mean_of_clusters(groups: int, icc: float, equal: bool) -> DrawCase:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y, group_of_unit = draw_clustered_values(rng, groups, icc, equal)
        return clustered_mean(y, group_of_unit.tolist()), 0.0

    return draw


def difference_of_clusters(groups: int, icc: float, equal: bool) -> DrawCase:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y, group_of_unit = draw_clustered_values(rng, groups, icc, equal)
        return clustered_difference(y, group_of_unit % 2 == 0, group_of_unit.tolist()), 0.0

    return draw


def within_clusters(groups: int, icc: float) -> DrawCase:
    """Both arms within each group of 8."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y, group_of_unit = draw_clustered_values(rng, groups, icc, True)
        return clustered_difference(y, np.arange(len(y)) % 2 == 0, group_of_unit.tolist()), 0.0

    return draw


def draw_similar_answers(
    rng: np.random.Generator, group_of_unit: NDArray[np.int64], p: float, icc: float
) -> Floats:
    """Answers of 0 and 1 (n,) at a rate of p, alike within groups by a beta distribution."""
    groups = int(group_of_unit.max()) + 1
    if not icc:
        return (rng.random(len(group_of_unit)) < p).astype(float)
    rates = rng.beta(p * (1 / icc - 1), (1 - p) * (1 / icc - 1), groups)
    return (rng.random(len(group_of_unit)) < rates[group_of_unit]).astype(float)


def share_of_clusters(
    groups: int, p: float, icc: float, *, two: bool = False, equal: bool = True
) -> DrawCase:
    group_of_unit = np.repeat(np.arange(groups), group_sizes(groups, equal))

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y = draw_similar_answers(rng, group_of_unit, p, icc)
        if two:
            return clustered_difference(
                y, group_of_unit % 2 == 0, group_of_unit.tolist()
            ).clip_bounds(-1, 1), 0.0
        return clustered_share(y, group_of_unit.tolist()), p

    return draw


RATINGS = np.array([0.45, 0.25, 0.15, 0.1, 0.05])  # of 1 to 5: most at one end
MEAN_RATING = float(RATINGS @ np.arange(1, 6))


def draw_ratings(rng: np.random.Generator, n: int) -> Floats:
    return rng.choice(np.arange(1.0, 6.0), n, p=RATINGS)


def welch(n1: int, n2: int, *, spread: float = 1.0, ratings: bool = False) -> DrawCase:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        if ratings:
            y = draw_ratings(rng, n1 + n2)
        else:
            y = np.concatenate([rng.normal(size=n1), spread * rng.normal(size=n2)])
        treated = [True] * n1 + [False] * n2
        return clustered_difference(y, treated, list(range(n1 + n2))), 0.0

    return draw


def paired_t(n: int, *, ratings: bool = False) -> DrawCase:
    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        if ratings:
            return skewed_mean(draw_ratings(rng, n), list(range(n))), MEAN_RATING
        return clustered_mean(rng.normal(size=n), list(range(n))), 0.0

    return draw


def skewed_clusters(groups: int, icc: float, equal: bool) -> DrawCase:
    """Ratings in groups, some of which are the rating that a group has in common."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        group_of_unit = np.repeat(np.arange(groups), group_sizes(groups, equal))
        common, individual = (
            draw_ratings(rng, groups)[group_of_unit],
            draw_ratings(rng, len(group_of_unit)),
        )
        y = np.where(rng.random(len(group_of_unit)) < math.sqrt(icc), common, individual)
        return skewed_mean(y, group_of_unit.tolist()), MEAN_RATING

    return draw


def difference_of_skewed(groups: int, icc: float) -> DrawCase:
    """Ratings of two arms of unequal groups, one group in three in the first arm."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        group_of_unit = np.repeat(np.arange(groups), group_sizes(groups, False))
        common, individual = (
            draw_ratings(rng, groups)[group_of_unit],
            draw_ratings(rng, len(group_of_unit)),
        )
        y = np.where(rng.random(len(group_of_unit)) < math.sqrt(icc), common, individual)
        return clustered_difference(y, group_of_unit % 3 == 0, group_of_unit.tolist()), 0.0

    return draw


def paired_ordinal_differences(n: int) -> DrawCase:
    """Two ratings of the same people, of which the second is the first or a new draw."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        first, new_draw = draw_ratings(rng, n), draw_ratings(rng, n)
        last = np.where(rng.random(n) < 0.5, first, new_draw)
        return paired_difference(last, first, list(range(n))), 0.0

    return draw


# --- corrected by people -------------------------------------------------------------------------


def simulate_answers(
    rng: np.random.Generator, y: Floats, *, fit: float, bias: float, share: bool
) -> Floats:
    """Simulate answers of humans: correct in part, and biased on average."""
    if share:
        wrong = (rng.random(len(y)) < 0.5 + bias).astype(float)
        return np.where(rng.random(len(y)) < fit, y, wrong)
    return fit * y + math.sqrt(1 - fit**2) * rng.normal(size=len(y)) + bias


def rectified(
    people: int,
    others: int,
    *,
    p: float | None = None,
    icc: float = 0.0,
    two: bool = False,
    fit: float = 0.6,
) -> DrawCase:
    """Of a population, `people` answer and `others` are only simulated. Groups of 8 have an
    ICC. `p`: a share; else a mean. `two`: the difference of two such populations."""
    truth = 0.0 if p is None else p

    def rectify_sample(rng: np.random.Generator) -> object:
        group_of_unit = np.repeat(np.arange(math.ceil((people + others) / 8)), 8)[: people + others]
        if p is None:
            shared = rng.normal(size=int(group_of_unit.max()) + 1)[group_of_unit]
            y = math.sqrt(icc) * shared + math.sqrt(1 - icc) * rng.normal(size=len(group_of_unit))
        else:
            y = draw_similar_answers(rng, group_of_unit, p, icc)
        f = simulate_answers(rng, y, fit=fit, bias=0.3, share=p is not None)
        groups: list[Hashable] | None = group_of_unit[:people].tolist() if icc else None
        other_groups: list[Hashable] | None = group_of_unit[people:].tolist() if icc else None
        return rectified_mean(
            y[:people],
            f[:people],
            f[people:],
            clusters=groups,
            simulated_clusters=other_groups,
            share=p is not None,
        )

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        if two:
            return rectified_difference(rectify_sample(rng), rectify_sample(rng)), 0.0  # type: ignore[arg-type]
        return rectify_sample(rng).corrected, truth  # type: ignore[attr-defined]

    return draw


# --- agreement -----------------------------------------------------------------------------------


def retest_kappa(
    n: int, shares: list[float], kept: float, later: list[float] | None = None
) -> DrawCase:
    """κ of two votes: a share of people keep theirs, the others draw from the same distribution
    again, or from a `later` one."""
    p = np.array(shares)
    joint = kept * np.diag(p) + (1 - kept) * np.outer(p, p if later is None else later)
    last = joint.sum(axis=0)
    chance, most = p @ last, np.minimum(p, last).sum()
    truth = float((np.trace(joint) - chance) / (most - chance))

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        first, again = np.divmod(rng.choice(joint.size, n, p=joint.ravel()), len(joint))
        return kappa_of_possible(first.tolist(), again.tolist()), truth

    return draw


def kappa_of_several(people: int, questions: int, kept_share: float) -> DrawCase:
    """κ over several questions to each; some people keep their answers, others do not."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        participants = np.repeat(np.arange(people), questions)
        questions_asked = np.tile(np.arange(questions), people)
        first, new_draw = rng.integers(0, 4, (2, len(participants)))
        steady = np.clip(kept_share + rng.uniform(-0.25, 0.25, people), 0, 1)
        new_draw = np.where(rng.random(len(participants)) < steady[participants], first, new_draw)
        lists = (first.tolist(), new_draw.tolist(), questions_asked.tolist(), participants.tolist())
        return kappa_of_possible(*lists), kept_share

    return draw


def correlation_of_answers(
    people: int, questions: int, r: float, *, flat: bool = False
) -> DrawCase:
    """The correlation of a retest; `flat`: answers are drawn evenly from 1 to 10."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        participants = np.repeat(np.arange(people), questions)
        questions_asked = np.tile(np.arange(questions), people)
        x, y = rng.normal(size=(2, len(participants)))
        y = r * x + math.sqrt(1 - r**2) * y
        if flat:
            x, y = rng.integers(1, 11, (2, len(participants))).astype(float)
        return correlation_with_oneself(x, y, questions_asked.tolist(), participants.tolist()), r

    return draw


def retests_by_level(people: int, levels: int, icc: float) -> DrawCase:
    """The correlation over all pairs of several askings of the same people."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y = math.sqrt(icc) * rng.normal(size=people) + math.sqrt(1 - icc) * rng.normal(
            size=(levels, people)
        )
        pairs = [(a, b) for a in range(levels) for b in range(a)]
        first = np.concatenate([y[a] for a, _ in pairs])
        last = np.concatenate([y[b] for _, b in pairs])
        pair_numbers = np.repeat(np.arange(len(pairs)), people).tolist()
        return (
            correlation_with_oneself(
                first, last, pair_numbers, [*range(people)] * len(pairs), levels
            ),
            icc,
        )

    return draw


def alpha_of_codes(texts: int, shares: list[float], stable: float, per_text: int = 1) -> DrawCase:
    """Krippendorff's α of two coders; with several codes a text, alike within texts."""
    p = np.array(shares)
    joint = stable * np.diag(p) + (1 - stable) * np.outer(p, p)

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        at = rng.choice(joint.size, texts * per_text, p=joint.ravel())
        clusters: list[Hashable] = []
        if per_text > 1:
            # A text is easy or hard: half of its codes are those of its first.
            same = rng.random(len(at)) < 0.3
            at = np.where(same, np.repeat(at[::per_text], per_text), at)
            clusters = np.repeat(np.arange(texts), per_text).tolist()
        return krippendorff_interval(np.divmod(at, len(joint)), "nominal", clusters), stable

    return draw


def alpha_of_ratings(texts: int, r: float) -> DrawCase:
    """Ordinal α of two coders who rate 1 to 5; the truth is that of very many texts."""

    def code(rng: np.random.Generator, n: int) -> Floats:
        true = rng.normal(size=n)
        coders = math.sqrt(r) * true + math.sqrt(1 - r) * rng.normal(size=(2, n))
        return np.clip(np.round(1.2 * coders) + 3, 1, 5)

    @cache
    def truth() -> float:
        return krippendorff_alpha(code(np.random.default_rng(0), 400_000), "ordinal")

    return lambda rng: (krippendorff_interval(code(rng, texts), "ordinal"), truth())


# --- spread --------------------------------------------------------------------------------------


UNEQUAL = [0.5, 0.25, 0.15, 0.05, 0.05]


def entropy_of(shares: Floats) -> float:
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


def evenness(n: int, shares: list[float]) -> DrawCase:
    p = np.array(shares)
    truth = entropy_of(p) / math.log(len(p))
    return lambda rng: (evenness_estimate(rng.multinomial(n, p)), truth)


def spread_of_numbers(n: int, items: int) -> DrawCase:
    """Items of ratings 1 to 7 of one spread."""
    p = np.array([0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05])
    truth = math.sqrt(p @ (np.arange(7) - 3.0) ** 2) / 6
    return lambda rng: (spread_of_ratings(rng.choice(np.arange(1, 8), (n, items), p=p), 6), truth)


def effective_option_ratio(
    n: int, first: list[float], later: list[float], kept_share: float
) -> DrawCase:
    """Effective options after over before. A share of votes is kept, others are redrawn."""
    p = np.array(first)
    joint = kept_share * np.diag(p) + (1 - kept_share) * np.outer(p, later)
    truth = effective_number(joint.sum(axis=0)) / effective_number(p)

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        return effective_ratio(rng.multinomial(n, joint.ravel()).reshape(joint.shape)), truth

    return draw


# --- models --------------------------------------------------------------------------------------


def odds_ratio(n: int, base: float, effect: float) -> DrawCase:
    """The log odds ratio of one of three arms beside a number."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        arm, age = rng.integers(0, 3, n), rng.normal(size=n)
        log_odds = math.log(base / (1 - base)) + effect * (arm == 1) + 0.3 * age
        y = rng.random(n) < 1 / (1 + np.exp(-log_odds))
        columns = {"arm": [f"arm {number}" for number in arm], "age": age.tolist()}
        fitted = logistic(y.tolist(), columns, {"arm": "arm 0"})  # type: ignore[arg-type]
        matching_terms = [
            term for term in fitted.terms if (term.variable, term.level) == ("arm", "arm 1")
        ]
        if not matching_terms:
            return Estimate(math.nan, math.nan, math.nan, 0), effect
        ratio, low, high = (
            matching_terms[0].odds_ratio,
            matching_terms[0].low,
            matching_terms[0].high,
        )
        return Estimate(*np.log([ratio, max(low, 1e-300), high]), n), effect  # type: ignore[misc]

    return draw


def main_effect_of_switch(groups: int, icc: float) -> DrawCase:
    """The main effect of one of two switches over groups of 8 in four arms."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y, group_of_unit = draw_clustered_values(rng, groups, icc, True)
        factors = {
            "a": (group_of_unit % 2 == 0).tolist(),
            "b": (group_of_unit // 2 % 2 == 0).tolist(),
        }
        return factorial(y, factors, group_of_unit.tolist()).main["a"], 0.0

    return draw


def first_place_effect(n: int, k: int, bias: float) -> DrawCase:
    """The effect of the first place, of a list of k options in random order."""
    taste = np.linspace(1, 2, k) / np.linspace(1, 2, k).sum()
    truth = bias * (1 - 1 / k) + bias / k  # against the mean of the other places

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        answers = []
        for participant in range(n):
            order = tuple(f"o{i}" for i in rng.permutation(k))
            chosen = f"o{rng.choice(k, p=taste)}"
            answers.append(Shown(order, order[0] if rng.random() < bias else chosen, participant))
        first = position_effects(answers).first
        assert first is not None
        return first, truth

    return draw


def next_specification(k: int, spread: float) -> DrawCase:
    """The prediction interval for one more specification, of which the people are the same."""

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        shared = rng.normal()
        values = shared + spread * rng.normal(size=k + 1) + rng.normal(size=k + 1)
        low, high = _prediction_interval(values[:k])
        return Estimate(float(values[:k].mean()), low, high, 100), float(values[k])

    return draw


def grid_repeats(count: int, cells: int, share: float) -> DrawCase:
    """The mean over a grid, clustered by repeat: `share` of the variance is between repeats."""
    repeat_of_cell = np.repeat(np.arange(count), cells)

    def draw(rng: np.random.Generator) -> tuple[Estimate, float]:
        y = math.sqrt(share) * rng.normal(size=count)[repeat_of_cell]
        y = y + math.sqrt(1 - share) * rng.normal(size=len(repeat_of_cell))
        return clustered_mean(y, repeat_of_cell.tolist()), 0.0

    return draw


CASES: Mapping[str, DrawCase] = {
    **{f"Wilson, n = {n}, {p:.0%}": one_share(n, p) for n in (20, 50, 150) for p in (0.1, 0.5)},
    **{
        f"Newcombe, n = {a} and {b}, {p:.0%} and {q:.0%}": two_shares(a, b, p, q)
        for a, b, p, q in (
            (10, 10, 0.5, 0.5),
            (20, 20, 0.1, 0.1),
            (20, 20, 0.5, 0.2),
            (20, 100, 0.3, 0.1),
            (50, 50, 0.1, 0.3),
            (150, 150, 0.5, 0.5),
        )
    },
    **{
        f"Tango and McNemar, n = {n}, moves {p:.0%} and {q:.0%}": paired_share_difference(n, p, q)
        for n, p, q in (
            (20, 0.1, 0.1),
            (20, 0.1, 0.3),
            (50, 0.05, 0.15),
            (50, 0.3, 0.3),
            (150, 0.1, 0.1),
            (150, 0.05, 0.2),
        )
    },
    **{
        f"CR2 mean, {g} clusters{', unequal' * (not equal)}, ICC {icc}": mean_of_clusters(
            g, icc, equal
        )
        for equal, numbers in ((True, (5, 8, 20)), (False, UNEQUAL_CLUSTERS))
        for g in numbers
        for icc in (0.0, 0.1, 0.3)
    },
    **{
        f"CR2 difference, {g} clusters{', unequal' * (not equal)}, ICC {icc}": (
            difference_of_clusters(g, icc, equal)
        )
        for g in (6, 10, 20)
        for equal in (True, False)
        for icc in (0.0, 0.1, 0.3)
        if equal or g > 6  # three unequal clusters on a side have too few degrees of freedom
    },
    **{
        f"CR2 difference of one-sided ratings, {g} clusters, unequal, ICC {icc}": (
            difference_of_skewed(g, icc)
        )
        for g in (16, 24, 40)
        for icc in (0.0, 0.3)
    },
    **{
        f"CR2 difference within clusters, {g} clusters, ICC {icc}": within_clusters(g, icc)
        for g in (5, 10)
        for icc in (0.0, 0.3)
    },
    **{
        f"CR2 share, {g} clusters{', unequal' * (not equal)}, {p:.0%}, ICC {icc}": (
            share_of_clusters(g, p, icc, equal=equal)
        )
        for equal, numbers in ((True, (5, 10, 20, 40)), (False, (*UNEQUAL_CLUSTERS, 40)))
        for g in numbers
        for p in (0.05, 0.1, 0.5, 0.9)
        for icc in (0.0, 0.3)
    },
    **{
        f"CR2 difference of shares, {g} clusters{', unequal' * (not equal)}, {p:.0%}, ICC {icc}": (
            share_of_clusters(g, p, icc, two=True, equal=equal)
        )
        for equal in (True, False)
        for g in (10, 20)
        for p in (0.1, 0.5)
        for icc in (0.0, 0.3)
    },
    "Welch, n = 5 and 20, normal": welch(5, 20),
    "Welch, n = 10 and 10, spread 1 to 3": welch(10, 10, spread=3),
    "Welch, n = 5 and 30, spread 3 to 1": welch(5, 30, spread=1 / 3),
    "Welch, n = 15 and 15, ratings": welch(15, 15, ratings=True),
    "Welch, n = 50 and 50, ratings": welch(50, 50, ratings=True),
    **{f"Paired t, n = {n}, normal": paired_t(n) for n in (5, 10, 30)},
    **{
        f"Paired t, n = {n}, differences of ratings": paired_ordinal_differences(n)
        for n in (10, 30)
    },
    **{
        f"Mean of one-sided ratings, n = {n}": paired_t(n, ratings=True)
        for n in (5, 6, 8, 10, 15, 30, 100)
    },
    **{
        f"Mean of skewed clusters, {g} clusters{', unequal' * (not equal)}, ICC {icc}": (
            skewed_clusters(g, icc, equal)
        )
        for equal, numbers in ((True, (5, 8, 20)), (False, UNEQUAL_CLUSTERS))
        for g in numbers
        for icc in (0.0, 0.1, 0.3, 0.6)
    },
    **{f"Rectified mean, {n} people": rectified(n, 1000) for n in (20, 50, 200)},
    **{
        f"Rectified mean, {n} people in groups, ICC {icc}": rectified(n, 1000, icc=icc)
        for n in (80, 200)
        for icc in (0.1, 0.3)
    },
    **{
        f"Rectified share, {n} people, {p:.0%}": rectified(n, 1000, p=p)
        for n in (20, 50, 100, 200)
        for p in (0.1, 0.5)
    },
    **{
        f"Rectified share, {n} people in groups, {p:.0%}, ICC 0.3": rectified(n, 1000, p=p, icc=0.3)
        for n in (80, 200)
        for p in (0.1, 0.5)
    },
    "Rectified share, 50 people, 50%, 60 others": rectified(50, 60, p=0.5),
    "Rectified mean, 80 people in groups, 80 others in groups, ICC 0.3": rectified(
        80, 80, icc=0.3, fit=0.9
    ),
    "Rectified share, 80 people in groups, 80 others in groups, 50%, ICC 0.3": rectified(
        80, 80, p=0.5, icc=0.3, fit=0.9
    ),
    "Rectified difference of means, 20 people each": rectified(20, 1000, two=True),
    "Rectified difference of means, 50 people each": rectified(50, 1000, two=True),
    "Rectified difference of shares, 50 people each, 50%": rectified(50, 1000, p=0.5, two=True),
    "Rectified difference of shares, 100 people each, 10%": rectified(100, 1000, p=0.1, two=True),
    "Rectified difference of shares, 80 people each in groups, 50%, ICC 0.3": rectified(
        80, 1000, p=0.5, icc=0.3, two=True
    ),
    "MOVER, n = 50 each, 10% to 30%": difference_of_differences(50, 0.3, 0.1, 0.2, 0.1),
    "MOVER, n = 150 each, 50%": difference_of_differences(150, 0.5, 0.5, 0.5, 0.5),
    **{
        f"κ of two answers, {n} people, {len(shares)} options, κ = {k}": retest_kappa(n, shares, k)
        for n in (20, 50, 150)
        for shares in ([0.5, 0.3, 0.2], [0.2] * 5)
        for k in (0.0, 0.5, 0.9)
    },
    **{
        f"κ of two answers, {n} people, moved to one of 3 options, {k:.0%} keep": retest_kappa(
            n, [0.5, 0.3, 0.2], k, [0.1, 0.1, 0.8]
        )
        for n in (20, 50, 150)
        for k in (0.2, 0.5, 0.9)
    },
    "κ of two answers, 30 people with 5 questions each, κ = 0.25": kappa_of_several(30, 5, 0.25),
    "κ of two answers, 30 people with 5 questions each, κ = 0.5": kappa_of_several(30, 5, 0.5),
    **{
        f"r of two answers, {n} people, r = {r}": correlation_of_answers(n, 1, r)
        for n in (6, 10, 30, 100)
        for r in (0.0, 0.5, 0.9)
    },
    "r of two answers, 25 people with 20 questions each, r = 0.5": correlation_of_answers(
        25, 20, 0.5
    ),
    "r of two answers, 30 people, answers at random": correlation_of_answers(30, 1, 0.0, flat=True),
    **{
        f"ICC of several answers, {n} people asked 4 times, ICC = {icc}": retests_by_level(
            n, 4, icc
        )
        for n in (8, 20, 60)
        for icc in (0.0, 0.4, 0.8)
    },
    **{
        f"α of two coders, {n} texts, {len(shares)} codes, α = {a}": alpha_of_codes(n, shares, a)
        for n in (20, 50, 150)
        for shares in ([0.7, 0.3], [0.4, 0.3, 0.2, 0.1])
        for a in (0.3, 0.8)
    },
    "α of two coders, 30 texts with 4 codes each, α = 0.7": alpha_of_codes(
        30, [0.4, 0.3, 0.2, 0.1], 0.7, 4
    ),
    **{
        f"α of ratings 1 to 5, {n} texts, r = {r}": alpha_of_ratings(n, r)
        for n in (20, 50, 150)
        for r in (0.4, 0.8)
    },
    **{
        f"Evenness, n = {n}, {name}": evenness(n, shares)
        for n in (20, 50, 150, 500)
        for name, shares in (
            ("five options alike", [0.2] * 5),
            ("five unequal options", UNEQUAL),
            ("one in twenty elsewhere", [0.95, 0.02, 0.01, 0.01, 0.01]),
        )
    },
    **{
        f"Effective options after over before, n = {n}, {name}": effective_option_ratio(
            n, first, later, kept
        )
        for n in (20, 50, 150)
        for name, first, later, kept in (
            ("alike, half keep", [0.2] * 5, [0.2] * 5, 0.5),
            ("alike to one, half keep", [0.2] * 5, [0.6, 0.1, 0.1, 0.1, 0.1], 0.5),
            ("unequal, nine in ten keep", UNEQUAL, UNEQUAL[::-1], 0.9),
        )
    },
    **{
        f"Spread of ratings, n = {n}, {items} items": spread_of_numbers(n, items)
        for n in (20, 60)
        for items in (1, 8)
    },
    "Odds ratio, n = 90, 30%": odds_ratio(90, 0.3, 0.5),
    "Odds ratio, n = 300, 10%": odds_ratio(300, 0.1, 0.5),
    "Odds ratio, n = 90, 10%": odds_ratio(90, 0.1, 0.0),
    "Main effect of a switch, 12 clusters, ICC 0.3": main_effect_of_switch(12, 0.3),
    "Main effect of a switch, 40 clusters, ICC 0.1": main_effect_of_switch(40, 0.1),
    "First place, n = 60, 3 options": first_place_effect(60, 3, 0.0),
    "First place, n = 200, 5 options, bias": first_place_effect(200, 5, 0.2),
    **{
        f"Next specification, after {k}, spread {s}": next_specification(k, s)
        for k in (3, 6, 12)
        for s in (0.0, 1.0)
    },
    "Grid, 5 repeats of 4 cells, half between repeats": grid_repeats(5, 4, 0.5),
    "Grid, 10 repeats of 6 cells, none between repeats": grid_repeats(10, 6, 0.0),
}


def format_table(coverages: Mapping[str, Coverage]) -> str:
    """Format the rows of docs/measures.md: estimators with their lowest and highest coverage."""
    by_estimator: dict[str, list[Coverage]] = {}
    for name, covered in coverages.items():
        by_estimator.setdefault(find_estimator(name), []).append(covered)
    rows = []
    for name, estimator_coverages in by_estimator.items():
        shares = [round(coverage.share, 3) for coverage in estimator_coverages]
        most_refused = max(coverage.refused for coverage in estimator_coverages)
        refused = f"{most_refused:.0%}" if most_refused > 0.005 else ""
        why = ABOVE_97.get(name, "") if max(shares) > 0.97 else ""
        span = f"{min(shares):.3f} to {max(shares):.3f}".replace("0.", ".")
        rows.append(f"| {name} | {len(estimator_coverages)} | {span} | {refused} | {why} |")
    return "\n".join(rows)


if __name__ == "__main__":
    draws, wanted = int(sys.argv[1]), sys.argv[2:]
    results = {}
    for case in CASES:
        if not wanted or any(case.startswith(w) for w in wanted):
            results[case] = measure_coverage(case, draws)
            print(f"{results[case].share:.3f} {results[case].refused:.0%} {case}")
            sys.stdout.flush()
    print(format_table(results))
