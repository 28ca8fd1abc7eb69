"""A profile in plain words: five bands per trait, never a score.

Used for the description of a grounded persona and by the focus group's system prompts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from folkmoot.files import packaged_yaml
from folkmoot.hints import enumerated
from folkmoot.people.persona import article
from folkmoot.people.sources.grounded.profile import TRAITS, Profile, Traits, VoiceProfile


def band(score: int) -> int:
    """0 to 4: the fifth of the scale in which a score of 0–100 lies."""
    return min(4, score // 20)


@lru_cache(maxsize=1)
def words() -> dict[str, Any]:
    """The wordings, from `character.yaml`."""
    data: dict[str, Any] = packaged_yaml(__file__, "character.yaml")
    return data


def trait_sentence(trait: str, score: int) -> str:
    """What a score means, in one sentence for its band."""
    return str(words()[trait][band(score)])


def temperament(traits: Traits) -> str:
    """All five traits, the most marked first (it is what a reader remembers)."""
    order = sorted(TRAITS, key=lambda t: -abs(getattr(traits, t) - 50))
    return " ".join(trait_sentence(t, getattr(traits, t)) for t in order)


def manner(voice: VoiceProfile) -> str:
    """How somebody talks, with habits of speech."""
    scales = ("verbosity", "formality", "directness", "vocabulary")
    said = " ".join(str(words()[s][getattr(voice, s)]) for s in scales)
    habits = " and ".join(_second_person(h) for h in voice.habits)
    return f"{said} When you talk, you {habits}." if habits else said


def buying(profile: Profile) -> str:
    """How somebody buys, without the category."""
    consumer = profile.consumer
    where = enumerated(consumer.channels)
    parts = [
        words()["vals"][profile.vals],
        words()["price_sensitivity"][band(consumer.price_sensitivity)],
        words()["brand_loyalty"][band(consumer.brand_loyalty)],
        words()["adoption"][consumer.adoption],
        f"You mostly shop at or through {where}.",
    ]
    return " ".join(parts)


def category_engagement(profile: Profile, category: str) -> str:
    """How much a category of products means to somebody."""
    return str(words()["engagement"][band(profile.consumer.engagement)]).format(category=category)


def introduction(profile: Profile) -> str:
    """The first paragraph after "You are": name, age, work, home. One sentence."""
    age = f"{profile.age}-year-old"
    return (
        f"{profile.name}, {article(age)} {age} {profile.occupation} who lives {profile.household}"
        f"{f' in {profile.location}' if profile.location else ''}."
    )


def circumstances(profile: Profile) -> str:
    """Sex, schooling, income and politics in one sentence."""
    in_words = {
        key: words()["circumstances"][key][getattr(profile, key)]
        for key in ("sex", "education", "income", "political_leaning")
    }
    race = words()["circumstances"]["race"].get(profile.race)
    if race:
        sex = in_words["sex"].split(" ", 1)[1]
        in_words["sex"] = f"{article(race)} {race} {sex}"
    return (
        "You are {sex} with {education}, your household's income is {income} for this country, "
        "and politically you are {political_leaning}."
    ).format(**in_words)


def description(profile: Profile) -> str:
    """The whole person as one paragraph that completes "You are …"."""
    return " ".join((introduction(profile), temperament(profile.traits), buying(profile)))


def _second_person(habit: str) -> str:
    """ "says …" → "say …": the first verb of a habit, for "you"."""
    verb, _, rest = habit.partition(" ")
    base = {"loses": "lose", "apologizes": "apologize", "pauses": "pause"}.get(
        verb, verb[:-1] if verb.endswith("s") else verb
    )
    return f"{base} {rest}".strip()
