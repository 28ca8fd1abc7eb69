"""Whether a study is written in English, the only language of the embedded respondent.

Asked once at the start of a run that it answers, and by `check`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from folkmoot.engine.calls.model_routing import ModelRouter
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.models.catalog import is_synthetic

MAX_CHARACTERS = 4_000  # of a study's own texts; more say nothing new about the language
# Frequent in English and in no other language that is written with its letters.
_ENGLISH_WORDS = frozenset(
    {"the", "and", "that", "with", "should", "your", "what", "which", "would", "this", "how"}
)
# Keys that hold no words of the study: names of models, paths, settings of the engine.
_NO_WORDS = frozenset(StudyConfig.model_fields) | {"personas", "vulnerable", "groups", "coding"}


def describe_language(found: StudyFile, providers: ModelRouter) -> str:
    """What to say where the embedded respondent answers a study that is not in English; empty
    where there is nothing to say."""
    if providers.has_custom_provider or not any(map(is_synthetic, providers.list_models())):
        return ""
    texts = " ".join(_texts_of(found.raw_settings))[:MAX_CHARACTERS]
    if not texts or is_english(texts):
        return ""
    return (
        "The question and the options are not in English. The embedded respondent speaks English "
        "only: it answers in English, and what it reads in another language moves it in no way. "
        "Name a model with --model."
    )


def is_english(text: str) -> bool:
    """Whether a text is English, in doubt yes."""
    words = re.findall(r"\w+", text.lower())
    known = [word for word in words if word in _ENGLISH_WORDS]
    if len(set(known)) > 1 and len(known) > 0.05 * len(words):
        return True  # without the identifier, which takes a quarter of a second to load
    from folkmoot.people.sources import persona_hub

    return persona_hub.is_english(text)


def _texts_of(value: object) -> Iterator[str]:
    """Yield the texts of a study file that show its language: longer texts and listed options."""
    if isinstance(value, str):
        if " " in value.strip() or not value.isascii():
            yield value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            if key not in _NO_WORDS:
                yield from _texts_of(below)
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from _texts_of(below)
