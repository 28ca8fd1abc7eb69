"""Quantiles and p-values of the distributions that the measures use."""

# They come from `scipy.special`, because importing `scipy.stats` takes half a second of CPU. Every
# process that checks, runs or reports a study would pay for that.

from __future__ import annotations


def student_quantile(probability: float, df: float) -> float:
    """Return the quantile of Student's t distribution at a probability."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def student_p(statistic: float, df: float) -> float:
    """Return the two-sided p-value of a t statistic."""
    from scipy.special import stdtr

    return float(2 * stdtr(df, -abs(statistic)))


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution at a probability."""
    from scipy.special import ndtri

    return float(ndtri(probability))


def normal_cdf(x: float) -> float:
    """Return the probability that a standard normal value is at most `x`."""
    from scipy.special import ndtr

    return float(ndtr(x))


def normal_p(statistic: float) -> float:
    """Return the two-sided p-value of a standard normal statistic."""
    return 2 * normal_cdf(-abs(statistic))


def chi2_p(statistic: float, df: float) -> float:
    """Return the p-value of a χ² statistic."""
    from scipy.special import chdtrc

    return float(chdtrc(df, max(0.0, statistic)))


def sign_p(first: int, second: int) -> float:
    """Return the two-sided p-value of the exact sign test: are both counts equally likely?"""
    from scipy.special import bdtr

    return min(1.0, float(2 * bdtr(min(first, second), first + second, 0.5)))


def clopper_pearson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of the share hits / n.

    Source: Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404.
    """
    # From the quantiles of beta distributions.
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return low, high
