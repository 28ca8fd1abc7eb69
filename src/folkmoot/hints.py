"""Words for messages: guesses at the name that was meant, lists, texts cut short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rapidfuzz import fuzz, process

# A slip of the pen first, else a name that holds the other; nearness in percent.
_SCORERS = ((fuzz.ratio, 65), (fuzz.WRatio, 75))


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was likely meant, or None. Case, spaces and hyphens count for nothing."""
    return next(iter(_similar_names(name, known, 1)), None)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, most: int = 1) -> str:
    """`did you mean …?` with the `most` nearest known names, or `otherwise` where none is near."""
    guesses = _similar_names(name, known, most)
    return f"did you mean {', '.join(guesses)}?" if guesses else otherwise


def join_words(items: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def join_first(names: Sequence[str], most: int = 3) -> str:
    """ "a, b, c and 4 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shorten(text: str, most: int = 80) -> str:
    """A text of at most so many characters; where it is cut, the last is an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _similar_names(name: str, known: Iterable[str], most: int) -> list[str]:
    names = list(dict.fromkeys(known))
    found: list[str] = []
    for scorer, cutoff in _SCORERS:
        near = process.extract(
            name, names, scorer=scorer, processor=_normalise_name, score_cutoff=cutoff, limit=most
        )
        found += [guess for guess, _, _ in near]
    return list(dict.fromkeys(found))[:most]


def _normalise_name(name: str) -> str:
    return name.strip().casefold().replace("-", "_").replace(" ", "_")


def lacks_extra(what: str, extra: str, package: str) -> str:
    """Say that `what` needs an extra whose package is not installed, and how to install it."""
    return (
        f"{what} needs {package}, which is not installed (the extra {extra}): "
        f'pip install "folkmoot[{extra}]"'
    )
