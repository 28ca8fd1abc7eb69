"""The tone of a text by a lexicon: of what is said in a focus group, and for the embedded coder."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer


def sentiment_score(text: str) -> float:
    """VADER's compound score, from −1 (negative) to 1, to three places.

    Hutto & Gilbert (2014), VADER: a parsimonious rule-based model for sentiment analysis of social
    media text. ICWSM 8.
    """
    return round(float(_sentiment_analyzer().polarity_scores(text)["compound"]), 3)


@cache
def lexicon_version() -> str:
    """Name and version of the lexicon behind `sentiment_score`."""
    return f"vader {version('vaderSentiment')}"


@cache
def _sentiment_analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()
