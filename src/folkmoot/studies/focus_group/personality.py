"""Personality in natural language, for the system prompt: never a score, never a trait's name.

The wordings of the five bands are those of the persona engine; what they mean for taking part in
a discussion is said here.
"""

from __future__ import annotations

from folkmoot.people.sources.grounded import Profile, VoiceProfile, character
from folkmoot.people.sources.grounded.opinion import label

_LENGTH = (
    "Keep it to one short sentence, two at most; you leave most of the talking to others.",
    "Keep it short: one or two sentences.",
    "Say it in two or three sentences.",
    "Say it in two to four sentences; you do not mind having the floor.",
    "Take three or four sentences; you enjoy having the floor and you are sure of yourself.",
)
_OTHERS = (
    "You tend to find the weak spot in what others said, and you say so; you do not agree in order "
    "to be nice.",
    "You take issue readily where you see things differently, even if you are the only one.",
    "You agree where you agree, and you object where you do not.",
    "You like to pick up what was good in what others said before you add your own; you still say "
    "it when you cannot go along.",
    "You look for common ground first and disagree gently and seldom; you do not give up what you "
    "really think for the sake of peace.",
)
_LEANINGS = {
    "very negative": "strongly against it",
    "negative": "rather against it",
    "neutral": "undecided",
    "positive": "rather in favor of it",
    "very positive": "strongly in favor of it",
}


def describe(profile: Profile) -> str:
    """All five traits in words, the most marked first."""
    return character.temperament(profile.traits)


def voice(voice_profile: VoiceProfile) -> str:
    """How somebody talks."""
    return character.manner(voice_profile)


def leaning(valence: float) -> str:
    """A position in words: `rather in favor of it`."""
    return _LEANINGS[label(valence)]


def length_advice(profile: Profile) -> str:
    """How long somebody's answers are, by extraversion."""
    return _LENGTH[character.band(profile.traits.extraversion)]


def company_advice(profile: Profile) -> str:
    """How somebody takes up what others say, by agreeableness."""
    return _OTHERS[character.band(profile.traits.agreeableness)]
