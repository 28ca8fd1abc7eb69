"""The sentiment of a text by a lexicon, for focus groups and for the embedded coder."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer


def sentiment_score(text: str) -> float:
    """Return VADER's compound score from −1 (negative) to 1 (positive), rounded to three decimals.

    Source: Hutto & Gilbert (2014), VADER: a parsimonious rule-based model for sentiment analysis of
    social media text. ICWSM 8.
    """
    return round(float(_sentiment_analyzer().polarity_scores(text)["compound"]), 3)


@cache
def lexicon_version() -> str:
    """Return the name and version of the lexicon behind `sentiment_score`."""
    return f"vader {version('vaderSentiment')}"


# The analyzer reads its lexicon from a file when it is created, so one is kept.
@cache
def _sentiment_analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()
