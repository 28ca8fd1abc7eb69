"""Find the sentences by which a prompt template describes the fields of a JSON reply.

Small models give such a sentence back in place of an answer (`"reason": "why, in one sentence"`).
It would count as something that a participant said. `drop_template_sentences` takes it out of a
reply, field by field, and keeps the rest. Used by the JSON answer types.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# Field → patterns of the folded sentences that templates say of it.
FieldSentences = Mapping[str, tuple[re.Pattern[str], ...]]

# A shorter sentence ("why", "yes") may be an honest answer.
MIN_WORDS = 3
MAX_CHARACTERS = 500

# What stands for a part of a template that is filled in: a character that no text may hold.
_FILLED_IN = "\ufdd1"
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
# `{"reason": "why, in one sentence"}`
_IN_FORM = re.compile(r'"(\w+)"\s*:\s*\[?\s*"((?:[^"\\]|\\.)+)"')
# `- reason: why, in one sentence`, with any bullet, number, quotation marks and dash.
_IN_LIST = re.compile(
    r"""^\s*(?:(?:[-*•+]|\(?[ivxlc\d]{1,4}[.)])\s+)?["'`*“]*(\w+)["'`*”]*\s*(?::|=|—|–)\s*(.+)$""",
    re.MULTILINE,
)


class DroppedSentence(NamedTuple):
    """A sentence of the template that a reply repeated in the field at `path`."""

    path: str
    text: str


def read_field_sentences(templates: Iterable[str]) -> FieldSentences:
    """Return what templates say of each field that they ask for."""
    found: dict[str, dict[str, None]] = {}
    for template in templates:
        text = _EXPRESSION.sub(_FILLED_IN, template)
        for name, sentence in (*_IN_FORM.findall(text), *_IN_LIST.findall(text)):
            parts = [fold(part) for part in sentence.split(_FILLED_IN)]
            if sum(len(part.split()) for part in parts) >= MIN_WORDS:
                # An expression may have left nothing, not even the space around it.
                pattern = " ?.*".join(re.escape(part) for part in parts)
                found.setdefault(name, {})[pattern] = None
    return {name: tuple(map(re.compile, patterns)) for name, patterns in found.items()}


def fold(text: str) -> str:
    """Return the words of a text in lower case, without marks."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def drop_template_sentences(
    value: object, sentences: FieldSentences
) -> tuple[object, tuple[DroppedSentence, ...]]:
    """Return a JSON value without fields that hold the template's own sentence for that field.

    An entry of a list is dropped alone. A list of nothing else is dropped with its field.
    """
    dropped: list[DroppedSentence] = []
    if not sentences:
        return value, ()
    kept = _drop(value, "", sentences, dropped)
    return (kept if dropped else value), tuple(dropped)


def _drop(
    value: object, path: str, sentences: FieldSentences, dropped: list[DroppedSentence]
) -> object:
    if isinstance(value, list):
        return [_drop(v, f"{path}.{i}", sentences, dropped) for i, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept: dict[object, object] = {}
    for name, entry in value.items():
        where = f"{path}.{name}".removeprefix(".")
        patterns = sentences.get(str(name), ())
        entries = entry if isinstance(entry, list) else [entry]
        own = [e for e in entries if not _is_template_sentence(e, patterns)]
        if len(own) < len(entries):
            said = "; ".join(str(e) for e in entries if e not in own)
            dropped.append(DroppedSentence(where, said))
            if own:
                kept[name] = _drop(own, where, sentences, dropped)
        else:
            kept[name] = _drop(entry, where, sentences, dropped)
    return kept


def _is_template_sentence(said: object, patterns: tuple[re.Pattern[str], ...]) -> bool:
    if not patterns or not isinstance(said, str) or len(said) > MAX_CHARACTERS:
        return False
    folded = fold(said)
    return any(pattern.fullmatch(folded) for pattern in patterns)
