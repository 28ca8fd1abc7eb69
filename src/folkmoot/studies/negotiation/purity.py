"""Purity of C3: no strategy id, operator or theory word in any text that a member or the planner
sees. The words stand in lexicon.yaml, each with the plain words that take its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from folkmoot.files import packaged_yaml
from folkmoot.studies.negotiation.strategies import table


@cache
def lexicon() -> Mapping[str, str]:
    """Term → plain words. Every strategy id and operator of the table must be among the terms.

    Raises ValueError for one that is not, and for plain words that hold a term themselves.
    """
    terms = {str(k): str(v) for k, v in packaged_yaml(__file__, "lexicon.yaml").items()}
    pattern = _pattern(tuple(terms))
    labels = sorted(
        {s.strategy_id for s in table().values()} | {s.operator for s in table().values()}
    )
    faults = [f"{label} is not in the lexicon" for label in labels if not pattern.fullmatch(label)]
    faults += [f"{k}: {v!r} holds a term" for k, v in terms.items() if pattern.search(v)]
    if faults:
        raise ValueError("lexicon.yaml: " + "; ".join(faults))
    return terms


def found_in(text: str) -> tuple[str, ...]:
    """The lexicon's terms that a text holds, in any case and spelling, as they are written."""
    return tuple(m[0] for m in _pattern(tuple(lexicon())).finditer(text))


def purify(text: str) -> str:
    """The text with every term in plain words; a text without terms comes back as it is."""
    terms = _by_key()

    def plain(match: re.Match[str]) -> str:
        words = terms.get(_key(match[0])) or terms[_key(match[0].removesuffix("s"))]
        return words[:1].upper() + words[1:] if match[0][:1].isupper() else words

    return _pattern(tuple(lexicon())).sub(plain, text)


def purify_json(data: Any) -> Any:
    """JSON data with every text value purified; keys are kept."""
    if isinstance(data, str):
        return purify(data)
    if isinstance(data, Mapping):
        return {k: purify_json(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [purify_json(v) for v in data]
    return data


@cache
def _by_key() -> Mapping[str, str]:
    return {_key(term): plain for term, plain in lexicon().items()}


def _key(term: str) -> str:
    return " ".join(re.split(r"[\s_\-‐‑–]+", term.casefold().strip())).replace("’", "'")


@cache
def _pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Longest terms first; a space stands for any of space, hyphen, underscore or none at all."""
    gap = r"[\s_\-‐‑–]*"
    parts = []
    for term in sorted(terms, key=lambda t: (-len(t), t)):
        words = (re.escape(w).replace("'", "['’]") for w in _key(term).split())
        parts.append(gap.join(words))
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(parts)})s?(?![^\W_])", re.IGNORECASE)
