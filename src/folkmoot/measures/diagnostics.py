"""Signs that a respondent is unfit: each check catches one known way for models to go wrong.

Used by the trust section of reports and tested against the embedded respondent with each of its
pathologies switched on. `answer_checks` look at the form of answers, `opinion_checks` at what
they say.
"""

from __future__ import annotations

from folkmoot.measures.answer_checks import (
    acquiescence,
    looks_like_refusal,
    malformed,
    off_list,
    over_length,
    refusals,
    yes_share,
)
from folkmoot.measures.checks import Check
from folkmoot.measures.opinion_checks import (
    instability,
    position_bias,
    shrinking_numbers,
    shrinking_variance,
    sycophancy,
)

__all__ = [
    "Check",
    "acquiescence",
    "instability",
    "looks_like_refusal",
    "malformed",
    "off_list",
    "over_length",
    "position_bias",
    "refusals",
    "shrinking_numbers",
    "shrinking_variance",
    "sycophancy",
    "yes_share",
]
