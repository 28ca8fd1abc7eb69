"""Texts for messages (names, numbers, lists, commands, shortened texts), words and a sort key."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from rapidfuzz import fuzz, process

# The scorers with their minimum similarity in percent. `ratio` finds typing errors. `WRatio` also
# finds names that contain the other name, so its results come second.
_SCORERS = ((fuzz.ratio, 65), (fuzz.WRatio, 75))
# Letters of scripts that write words without spaces between them: Chinese and Japanese, Thai, Lao,
# Tibetan, Burmese and Khmer. Korean and Arabic have spaces.
_UNSPACED_LETTER = re.compile(
    r"(?=[^\W\d_])[\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    r"\uf900-\ufaff\uff66-\uff9d\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
# Longer numbers are compared in pieces, because Python limits the digits of an integer in a text.
_SORTED_NUMBER = re.compile(r"(\d{1,1000})")


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`. Returns None if no name is similar."""
    # Case is ignored, and spaces and hyphens count as underscores.
    return next(iter(_similar_names(name, known, 1)), None)


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str = "", *, max_guesses: int = 1
) -> str:
    """Return "did you mean …?" with similar names, or `otherwise` if no name is similar."""
    guesses = _similar_names(name, known, max_guesses)
    return f"did you mean {', '.join(guesses)}?" if guesses else otherwise


def command_line(*words: object) -> str:
    """Return a folkmoot command that can be pasted into a shell, whatever the paths contain."""
    return shlex.join(["folkmoot", *map(_format_word, words)])


def _format_word(word: object) -> str:
    # A path such as `-d/run` would be read as an option.
    text = str(word)
    return f"./{text}" if isinstance(word, Path) and text.startswith("-") else text


def join_words(items: Sequence[str]) -> str:
    """Join words as "a", "a and b" or "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def join_first(names: Sequence[str], max_names: int = 3) -> str:
    """Join names as "a, b and c". Of a longer list, count the others, as in "a, b and 4 more"."""
    more = [f"{len(names) - max_names:,} more"] if len(names) > max_names else []
    return join_words([*names[:max_names], *more])


def capitalise(text: str) -> str:
    """Return a text with a capital first letter. The other letters keep their case."""
    return text[:1].upper() + text[1:]


def number_text(value: float) -> str:
    """Return a number as text without rounding noise, such as `4` for 4.0."""
    # .1 + .2 becomes `0.3`. Twelve digits drop the errors of binary fractions and keep all digits
    # of usual data.
    return _decimal_text(value, ".12g")


def exact_number_text(value: float) -> str:
    """Return a number that was entered, not computed, as text with all its digits."""
    return _decimal_text(value, "")


def _decimal_text(value: float, number_format: str) -> str:
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    shown = format(value, number_format)
    # Expressions read no exponent, so a small number is written with all its decimals.
    return f"{Decimal(shown):f}" if "e-" in shown and abs(value) > 1e-15 else shown


def collapse_spaces(text: str) -> str:
    """Return a text with a single space in place of each run of white space."""
    return " ".join(text.split())


def has_unspaced_script(text: str) -> bool:
    """Return whether a text has letters of a script without spaces between words."""
    return _UNSPACED_LETTER.search(text) is not None


def count_words(text: str) -> int:
    """Return the number of words. In scripts without spaces each letter counts as a word."""
    letters = len(_UNSPACED_LETTER.findall(text))
    if not letters:
        return len(text.split())
    # Vowel signs and punctuation between these letters are no words.
    others = _UNSPACED_LETTER.sub(" ", text).split()
    return letters + sum(any(map(str.isalnum, other)) for other in others)


def natural_sort_key(text: str) -> list[tuple[int, str]]:
    """Return a sort key that places `traveler_2` before `traveler_10`."""
    parts = _SORTED_NUMBER.split(text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def shorten(text: str, max_characters: int = 80) -> str:
    """Return at most `max_characters` characters of the text. A cut text ends with "…"."""
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def _similar_names(name: str, known: Iterable[str], max_guesses: int) -> list[str]:
    names = list(dict.fromkeys(known))
    similar: list[str] = []
    for scorer, cutoff in _SCORERS:
        matches = process.extract(
            name,
            names,
            scorer=scorer,
            processor=_normalise_name,
            score_cutoff=cutoff,
            limit=max_guesses,
        )
        similar += [guess for guess, _, _ in matches]
    return list(dict.fromkeys(similar))[:max_guesses]


def _normalise_name(name: str) -> str:
    return name.strip().casefold().replace("-", "_").replace(" ", "_")


def lacks_extra(feature: str, extra: str, package: str) -> str:
    """Return the message that `feature` needs a package that is not installed."""
    return (
        f"{feature} needs {package}, which is not installed (the extra {extra}): "
        f'pip install "folkmoot[{extra}]"'
    )
