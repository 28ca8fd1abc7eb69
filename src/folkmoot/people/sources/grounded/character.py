"""Describe a profile in plain words, without scores."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from folkmoot.files import packaged_yaml
from folkmoot.hints import join_words
from folkmoot.people.persona import indefinite_article
from folkmoot.people.sources.grounded.profile import TRAITS, Profile, Traits, VoiceProfile


def score_band(score: int) -> int:
    """Return the number of the fifth to which a score from 0 to 100 belongs: 0 to 4."""
    return min(4, score // 20)


@lru_cache(maxsize=1)
def load_wordings() -> dict[str, Any]:
    """Return the packaged sentences that describe a profile, by attribute."""
    data: dict[str, Any] = packaged_yaml(__file__, "character.yaml")
    return data


def trait_sentence(trait: str, score: int) -> str:
    """Return the sentence that describes a trait with this score."""
    return str(load_wordings()[trait][score_band(score)])


def describe_temperament(traits: Traits) -> str:
    """Return one sentence for each of the five traits."""
    # The most extreme trait comes first, because readers remember the first sentence best.
    order = sorted(TRAITS, key=lambda trait: -abs(getattr(traits, trait) - 50))
    return " ".join(trait_sentence(trait, getattr(traits, trait)) for trait in order)


def describe_manner(voice: VoiceProfile) -> str:
    """Return a description of the participant's way of talking."""
    scales = ("verbosity", "formality", "directness", "vocabulary")
    manner = " ".join(str(load_wordings()[scale][getattr(voice, scale)]) for scale in scales)
    habits = " and ".join(_second_person(habit) for habit in voice.habits)
    return f"{manner} When you talk, you {habits}." if habits else manner


def describe_buying(profile: Profile) -> str:
    """Return a description of how the participant buys."""
    consumer = profile.consumer
    channels = join_words(consumer.channels)
    parts = [
        load_wordings()["vals"][profile.vals],
        load_wordings()["price_sensitivity"][score_band(consumer.price_sensitivity)],
        load_wordings()["brand_loyalty"][score_band(consumer.brand_loyalty)],
        load_wordings()["adoption"][consumer.adoption],
        f"You mostly shop at or through {channels}.",
    ]
    return " ".join(parts)


def category_engagement(profile: Profile, category: str) -> str:
    """Return a sentence on how much a product category matters to the participant."""
    return str(load_wordings()["engagement"][score_band(profile.consumer.engagement)]).format(
        category=category
    )


def describe_introduction(profile: Profile) -> str:
    """Return name, age, occupation, household and location as a text that completes "You are …"."""
    age = f"{profile.age}-year-old"
    return (
        f"{profile.name}, {indefinite_article(age)} {age} {profile.occupation} who lives "
        f"{profile.household}"
        f"{f' in {profile.location}' if profile.location else ''}."
    )


def describe_circumstances(profile: Profile) -> str:
    """Return sex, race, education, income and politics in one sentence."""
    in_words = {
        key: load_wordings()["circumstances"][key][getattr(profile, key)]
        for key in ("sex", "education", "income", "political_leaning")
    }
    race = load_wordings()["circumstances"]["race"].get(profile.race)
    if race:
        sex = in_words["sex"].split(" ", 1)[1]
        in_words["sex"] = f"{indefinite_article(race)} {race} {sex}"
    return (
        "You are {sex} with {education}, your household's income is {income} for this country, "
        "and politically you are {political_leaning}."
    ).format(**in_words)


def describe_profile(profile: Profile) -> str:
    """Return the whole profile as one paragraph that completes "You are …"."""
    return " ".join(
        (
            describe_introduction(profile),
            describe_temperament(profile.traits),
            describe_buying(profile),
        )
    )


def _second_person(habit: str) -> str:
    # "says little" becomes "say little".
    verb, _, rest = habit.partition(" ")
    base = {"loses": "lose", "apologizes": "apologize", "pauses": "pause"}.get(
        verb, verb[:-1] if verb.endswith("s") else verb
    )
    return f"{base} {rest}".strip()
