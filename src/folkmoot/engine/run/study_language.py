"""Check whether a study is in English, the only language of the embedded rule-based respondent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.models.catalog import is_synthetic

# Only the first characters of a study's texts are read: more say nothing new about its language.
MAX_CHARACTERS = 4_000
# Words that are frequent in English and in no other language with the same letters.
_ENGLISH_WORDS = frozenset(
    {"the", "and", "that", "with", "should", "your", "what", "which", "would", "this", "how"}
)
# Keys without text of the study: they hold names of models, paths, and settings of the engine.
_NO_WORDS = frozenset(StudyConfig.model_fields) | {"personas", "vulnerable", "groups", "coding"}


def describe_language(study_file: StudyFile, providers: ModelRouter) -> str:
    """Return a warning if the embedded rule-based respondent answers a study that is not English.

    Returns an empty string in all other cases.
    """
    if providers.has_custom_provider or not any(map(is_synthetic, providers.list_models())):
        return ""
    texts = " ".join(_texts_of(study_file.raw_settings))[:MAX_CHARACTERS]
    if not texts or is_english(texts):
        return ""
    return (
        "The question and the options are not in English. The embedded respondent speaks "
        "English only: it answers in English, and texts in another language do not influence "
        "it. Name a model with --model."
    )


def is_english(text: str) -> bool:
    """Return whether a text is English, and True in case of doubt."""
    words = re.findall(r"\w+", text.lower())
    english_words = [word for word in words if word in _ENGLISH_WORDS]
    # Two frequent words with a share of 5 % are proof enough. This avoids the language identifier,
    # which takes a quarter of a second to load.
    if len(set(english_words)) > 1 and len(english_words) > 0.05 * len(words):
        return True
    from folkmoot.people.sources import persona_hub

    return persona_hub.is_english(text)


def _texts_of(value: object) -> Iterator[str]:
    if isinstance(value, str):
        # A single ASCII word is more often an identifier than a text.
        if " " in value.strip() or not value.isascii():
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _NO_WORDS:
                yield from _texts_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts_of(item)
