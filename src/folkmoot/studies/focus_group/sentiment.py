"""Sentiment of a message in −1 … 1, by the VADER lexicon (English, offline)."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

MODEL = "model"


@lru_cache(maxsize=1)
def lexicon_source() -> str:
    """What is recorded as the source of a lexicon's rating."""
    return f"vader {version('vaderSentiment')}"


def rate(text: str) -> float:
    """VADER's compound score in −1 … 1, rounded to three digits.

    Hutto & Gilbert (2014), ICWSM. A lexicon reads words, not irony; stance comes from the
    position after each message, not from this.
    """
    return round(float(_analyzer().polarity_scores(text)["compound"]), 3)


@lru_cache(maxsize=1)
def _analyzer() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()
