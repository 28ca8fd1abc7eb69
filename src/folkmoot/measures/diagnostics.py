"""Signs that a respondent is unfit: each check catches one known way for models to go wrong.

Used by the trust section of reports and tested against the embedded respondent with each of its
pathologies switched on. `answer_checks` look at the form of answers, `opinion_checks` at what
they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.conversation.spoken import looks_like_refusal
from folkmoot.measures.answer_checks import (
    Row,
    acquiescence,
    cut,
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
from folkmoot.measures.position import shown_in


def of_answers(answers: Sequence[Row]) -> list[Check]:
    """All checks that the `answers` table of any study type allows, each with its verdict.

    The effect of the place in the list is taken over all choices together; a study that asks the
    same choice again and again gives it few effective answers, which the clustering by person
    accounts for.
    """
    return [
        refusals(answers),
        malformed(answers),
        off_list(answers),
        over_length(answers),
        cut(answers),
        yes_share(answers),
        position_bias(shown_in(answers)),
    ]


__all__ = [
    "Check",
    "acquiescence",
    "cut",
    "instability",
    "looks_like_refusal",
    "malformed",
    "of_answers",
    "off_list",
    "over_length",
    "position_bias",
    "refusals",
    "shrinking_numbers",
    "shrinking_variance",
    "sycophancy",
    "yes_share",
]
