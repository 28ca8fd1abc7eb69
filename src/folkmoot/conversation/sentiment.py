"""The sentiment of a text."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer


def sentiment_score(text: str) -> float:
    """Return the sentiment of a text from −1 for negative to 1 for positive.

    Source: Hutto & Gilbert (2014), VADER: a parsimonious rule-based model for sentiment analysis of
    social media text. ICWSM 8.
    """
    # VADER's compound score.
    return round(float(_sentiment_analyzer().polarity_scores(text)["compound"]), 3)


@cache
def lexicon_version() -> str:
    """Return the name and version of the word list behind `sentiment_score`."""
    return f"vader {version('vaderSentiment')}"


# The analyzer reads its lexicon from a file when it is created, so one is kept.
@cache
def _sentiment_analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()
