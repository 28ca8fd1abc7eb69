"""What the embedded respondent should know of this study: its options are what opinions are about.

The shared part does the rest: votes, interviews, challenges, summaries."""

from __future__ import annotations

from folkmoot.respondent import Part
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig


def _options(config: CrossPollinationConfig) -> tuple[str, ...]:
    return config.topic.options


PART = Part(names=_options)
