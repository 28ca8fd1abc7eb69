"""The steps with which parsers read replies, and what each step says about the reply."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# The step of a reply that is not in the form of its question and is kept as it is.
UNFORMATTED = "unformatted"
# The step of a JSON answer if only some of its fields could be read.
PARTIAL = "partial"
# The protocol has filled in a value, which says nothing about the reply.
MINIMAL = "minimal"
# There is no value.
MISSING = "missing"


class ParseStep(NamedTuple):
    """The meaning of a parse step."""

    # Words for reports.
    meaning: str
    # A JSON reply that needed this step was well formed.
    is_clean: bool = False
    # The step finds the answer inside a longer text, or in JSON that is not valid as it is.
    is_stated: bool = False
    # The reply was no option or number of its question.
    is_off_list: bool = False


# Steps of earlier versions stay here, so that reports of older runs can be made. Study types may
# have further steps.
PARSE_STEPS: Mapping[str, ParseStep] = MappingProxyType(
    {
        "exact": ParseStep("in the requested form", is_clean=True),
        "normalised": ParseStep(
            "after ignoring case, quotation marks and punctuation", is_clean=True
        ),
        "number": ParseStep("by number or letter in the list", is_clean=True, is_stated=True),
        "named": ParseStep(
            "the only option in a phrase such as “I choose …”, or in quotation marks",
            is_clean=True,
            is_stated=True,
        ),
        "clarified": ParseStep("by asking the speaker which option the first reply stated"),
        "constrained": ParseStep(
            "by a second question that allowed only the options (runs of earlier versions)"
        ),
        "fenced": ParseStep("JSON in a code block", is_clean=True, is_stated=True),
        "repaired": ParseStep("JSON repaired by a library", is_stated=True),
        PARTIAL: ParseStep("only some fields of a JSON reply", is_stated=True),
        "own_words": ParseStep("without the lines in the names of other speakers"),
        MINIMAL: ParseStep("minimal structure in place of an unreadable reply"),
        UNFORMATTED: ParseStep(
            "not in the requested form, and kept as it is (no validation requested)",
            is_off_list=True,
        ),
        MISSING: ParseStep("no valid value (never scored)", is_off_list=True),
    }
)
