"""Words for the keys and values of a study file, as its form shows them.

Descriptions name keys, which is right in a file and in its documentation. A person who fills in a
form never sees the file. So the form replaces a key by the label of its field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from folkmoot.engine.settings.yaml_tree import BOOLEAN_WORDS

# Parts of names that are no words.
WORDS = {
    "api": "API", "id": "ID", "llm": "LLM", "max": "maximum", "num": "number of", "var": "variable",
}  # fmt: skip
_SNAKE_CASE = r"[a-z0-9]+(?:_[a-z0-9]+)+"
# A name between backticks, or a name with underscores in a sentence. A name in braces or quotes is
# one that the researcher typed, or types as it is.
_NAME = re.compile(rf"`([^`]+)`|(?<![{{'\w])({_SNAKE_CASE})(?![\w}}])")


def words_of(name: str) -> str:
    """Return the words of a name such as `num_sessions`."""
    return " ".join(WORDS.get(part, part) for part in name.split("_"))


def _switch_words(word: str) -> str:
    # A study file has several words for a switch. The form has these two.
    return "yes" if BOOLEAN_WORDS[word] else "no"


def value_words(value: str) -> str:
    """Return a value that a form offers as the form shows it."""
    if value in ("true", "false"):
        return _switch_words(value)
    return words_of(value) if re.fullmatch(_SNAKE_CASE, value) else value


@dataclass(frozen=True, slots=True)
class FormWords:
    """The words of a form for names in the descriptions of its fields and in messages."""

    # Maps a key to the label of its field.
    labels: Mapping[str, str] = field(default_factory=dict)
    # The values that the form offers to choose from.
    values: Collection[str] = frozenset()

    def add_labels(self, labels: Mapping[str, str]) -> FormWords:
        """Return a copy with further labels, which take precedence over equal keys."""
        return FormWords({**self.labels, **labels}, self.values)

    def rewrite(self, text: str, choices: Iterable[str] = ()) -> str:
        """Replace keys by labels and values by words in a text, and return it.

        - `choices`: the values of the field that the text describes. A name among them is a value,
          even if a key has the same name.
        """
        own = set(choices)
        if "true" in own:
            own |= set(BOOLEAN_WORDS)

        def replace_name(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name not in own:
                key, _, value = name.partition(": ")
                if key in self.labels:
                    label = f"“{self.labels[key]}”"
                    return f"{label} set to `{value_words(value)}`" if value else label
                if name not in self.values:
                    return match[0]
            words = _switch_words(name) if name in BOOLEAN_WORDS else value_words(name)
            return f"`{words}`" if match[1] else words

        return _NAME.sub(replace_name, text)
