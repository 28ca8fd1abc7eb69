"""What the respondent says in words: interviews, dialogues, moderating, summaries, personas."""

from __future__ import annotations

import re
from functools import lru_cache

from folkmoot.models.synthetic import games
from folkmoot.models.synthetic.choosing import by_option, utilities
from folkmoot.models.synthetic.grammar import (
    ASKS_FIRST,
    ASKS_MORE,
    CHALLENGES,
    CHALLENGES_BARE,
    GIVES,
    HOLDS,
    REASONS,
    SELF,
    WEIGHED,
    Tongue,
    capital,
)
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.lexicon import VERB_PHRASES, phrases_in
from folkmoot.models.synthetic.reading import Reading, same_option

SATISFIED = "SATISFIED"
_LENGTH = {"terse": (2, 2), "plain": (2, 3), "chatty": (3, 4), "formal": (2, 3)}
_OPPOSED = re.compile(
    r"(?:opposing (?:view|option|position|side)|present|argue (?:for|in favou?r of)|defend)"
    r"[^\"“\n]{0,80}[\"“]([^\"”\n]+)[\"”]",
    re.IGNORECASE,
)


def interview_answer(reading: Reading, tongue: Tongue, knobs: Knobs) -> str:
    """A participant explains a choice to a neutral moderator, in voice and camp."""
    options = reading.options
    who = tongue.who
    tastes = who.tastes(options) if options else []
    best = options[max(range(len(tastes)), key=tastes.__getitem__)] if options else ""
    about = reading.held or best or "this"
    rivals = sorted((o for o in options if o != about), key=lambda o: -who.taste(o))
    parts = []
    if who.calling and not reading.own_turns:
        parts.append(tongue.say(SELF[who.voice]))
    low, high = _LENGTH[who.voice]
    parts += [tongue.reason(about) for _ in range(tongue.draws.between(low, high))]
    if rivals and tongue.draws.chance(0.35):
        parts.append(tongue.say(WEIGHED[who.voice], O=about, B=rivals[0]))
    return " ".join(parts)


def challenged_answer(reading: Reading, tongue: Tongue, knobs: Knobs) -> str:
    """A participant meets an opposing argument: gives way in the measure that it moves them."""
    options = reading.options
    who = tongue.who
    about = reading.held or (options[0] if options else "my choice")
    heard = reading.opponents_words or (reading.prompt,)
    heard = (*heard, reading.prompt) if reading.prompt not in heard else heard
    gap, rival = _closest(reading, heard, tongue, knobs, about)
    gives = tongue.draws.chance(0.65 if gap < 0 else 0.12 + 0.3 * who.susceptibility / (1 + gap))
    frames = GIVES[who.voice] if gives else HOLDS[who.voice]
    parts = [tongue.say(frames, O=about, B=rival or "the other side")]
    low, high = _LENGTH[who.voice]
    for _ in range(max(1, tongue.draws.between(low, high) - 1)):
        parts.append(tongue.reason(about))
    return " ".join(parts)


def _closest(
    reading: Reading, heard: tuple[str, ...], tongue: Tongue, knobs: Knobs, held: str
) -> tuple[float, str]:
    """How far the held option still leads, and over which, after what was heard."""
    options = reading.options
    if len(options) < 2:
        return 1.0, ""
    u = dict(zip(options, utilities(tongue.who, reading, options, knobs), strict=True))
    counts = by_option(heard, options, held)
    spoken = [o for o in options if o != held and any(counts[o])]
    rivals = spoken or [o for o in options if o != held]
    if not rivals or held not in u:
        return 1.0, rivals[0] if rivals else ""
    rival = max(rivals, key=lambda o: (sum(counts[o]), u[o]))
    return u[held] - u[rival], rival


def moderator_turn(reading: Reading, tongue: Tongue, _knobs: Knobs) -> str:
    """A question of a neutral moderator, a challenge of an opposing one, or SATISFIED."""
    draws = tongue.draws
    asked = len(reading.own_turns)
    opposed = opposed_option(reading)
    least, chances = (3, (0.3, 0.5, 0.7)) if opposed else (2, (0.35, 0.55, 0.75))
    if asked >= least and draws.chance(chances[min(asked - least, 2)]):
        return SATISFIED
    chosen = reading.held or "this"
    if opposed:
        return _challenge(reading, tongue, chosen, opposed)
    rivals = [o for o in reading.options if o != chosen]
    names = {"O": chosen, "B": draws.pick(rivals) if rivals else "the alternatives"}
    if not asked:
        return tongue.say(ASKS_FIRST, **names)
    nouns = [p for p, _ in phrases_in(reading.prompt) if p not in VERB_PHRASES]
    if nouns:
        names["Q"] = draws.pick(nouns)
    frames = [f for f in ASKS_MORE if nouns or "{Q}" not in f]
    return tongue.say(frames, **names)


def opposed_option(reading: Reading) -> str:
    """The option that a moderator's instructions tell it to argue for, or empty."""
    for text in (reading.system, reading.prompt):
        for found in reversed(_told_to_oppose(text)):
            option = same_option(found, reading.options)
            if option and option != reading.held:
                return option
    return ""


@lru_cache(maxsize=1024)
def _told_to_oppose(text: str) -> tuple[str, ...]:
    return tuple(_OPPOSED.findall(text))


def _challenge(reading: Reading, tongue: Tongue, chosen: str, opposed: str) -> str:
    """Two Socratic questions with the arguments that were shown for the opposed option."""
    shown = phrases_in(reading.sections.get(opposed, ""))
    said = " ".join(reading.own_turns).lower()
    fresh = [p for p, _ in shown if p not in said] or [p for p, _ in shown]
    if not fresh:
        return tongue.say(CHALLENGES_BARE, O=chosen, X=opposed)
    order = tongue.draws.shuffled(fresh)
    nouns = [p for p in order if p not in VERB_PHRASES]
    verbs = [p for p in order if p in VERB_PHRASES]
    turns = []
    for _ in range(2):
        frames = [
            f
            for f in CHALLENGES
            if len(nouns) >= ("{N}" in f) + ("{M}" in f)
            and len(verbs) >= ("{V}" in f) + ("{W}" in f)
        ]
        if not frames:
            break
        frame = tongue.frame(frames)
        names = {"O": chosen, "X": opposed}
        for slot, stock in (("N", nouns), ("M", nouns), ("V", verbs), ("W", verbs)):
            if f"{{{slot}}}" in frame:
                names[slot] = stock.pop(0)
        turns.append(capital(frame.format(**names)))
    return " ".join(turns) or tongue.say(CHALLENGES_BARE, O=chosen, X=opposed)


def opinion(reading: Reading, tongue: Tongue, about: str, sentences: int) -> str:
    """Free speech on a matter: a few reasons in the speaker's voice."""
    parts = []
    if tongue.who.calling and tongue.draws.chance(0.3):
        parts.append(tongue.say(SELF[tongue.who.voice]))
    frames = REASONS[tongue.who.voice]
    while len(parts) < sentences:
        parts.append(tongue.fill(tongue.frame(frames), O=about))
    return " ".join(parts[:sentences])


_ABOUT = re.compile(
    r"(?:topic|issue|question|concept|product|proposal|matter|about)\s*(?:is|:)?\s*"
    r"[\"“:]?\s*([A-Z0-9][^\n\"”.?!]{3,80})"
)


_SUMMARIZER = re.compile(r"\bsummari[sz]er\b", re.IGNORECASE)
_SPOKEN = re.compile(r"^([A-Z0-9][\w'’. -]{0,24}): (.+)$", re.MULTILINE)


def _recap(reading: Reading) -> str:
    """What has been said, for those whose part it is to sum up: the last words of each."""
    texts = [m.content for m in reading.before if m.role == "user"] + [reading.prompt]
    last = {
        name: words
        for text in texts
        for name, words in _SPOKEN.findall(text)
        if name not in {"Facilitator", "Summarizer"}
    }
    if not last:
        return "Nothing has been said yet that could be summed up."
    said = [f"{name}: {words.split('. ')[0].rstrip('.')}" for name, words in last.items()]
    return f"So far: {'; '.join(said[-8:])}."


def matter(reading: Reading) -> str:
    """What free speech is about, in a few words: the named topic, or "this"."""
    for text in (reading.prompt, reading.system):
        found = _ABOUT.search(text)
        if found and len(found[1].split()) <= 9:
            return found[1].strip(" ,;:")
    return "this"


def free_answer(reading: Reading, tongue: Tongue, knobs: Knobs) -> str:
    """Speech where no special task was recognised: a few sentences of the person's own."""
    if _SUMMARIZER.search(reading.system[:200]):
        return _recap(reading)
    if games.is_game(reading):
        return games.talk(reading, tongue, knobs)
    low, high = _LENGTH[tongue.who.voice]
    return opinion(reading, tongue, matter(reading), tongue.draws.between(low, high))
