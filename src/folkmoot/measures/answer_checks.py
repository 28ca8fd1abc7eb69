"""Diagnostics of the form of answers: refused, malformed, off the list, too long, cut,
always yes.

Each reads rows of the `answers` table that every study type records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from folkmoot.conversation.spoken import looks_like_refusal
from folkmoot.measures.checks import Check, not_checked, share_check
from folkmoot.measures.clustered import clustered_mean
from folkmoot.measures.estimates import percent, plural
from folkmoot.measures.proportions import wilson

Row = Mapping[str, Any]

# Shares of replies above which a run is flagged. A well-behaved model stays far below.
REFUSALS = 0.02
REASKED = 0.05
OVER_LENGTH = 0.05
ALWAYS_YES = 0.90
ACQUIESCENCE = 0.10
_FEW = 10

CLEAN_RUNGS = frozenset({"exact", "normalised", "number", "named", "fenced"})


def refusals(answers: Sequence[Row], texts: Sequence[str] = ()) -> Check:
    """Replies that decline: filtered or refused by the provider, or text that begs off.

    `texts`: utterances and free answers, in which a refusal is no error of form.
    """
    outright = share_check(
        "refusals",
        "Refusals",
        sum(1 for r in answers if _refused(r)),
        len(answers),
        REFUSALS,
        "declined to answer",
    )
    in_words = share_check(
        "refusals",
        "Refusals",
        sum(1 for t in texts if looks_like_refusal(t)),
        len(texts),
        REFUSALS,
        "in free words declined to answer",
    )
    known = [c for c in (outright, in_words) if c.value is not None]
    return max(known, key=lambda c: c.value.value if c.value else 0.0, default=outright)


def _refused(row: Row) -> bool:
    reason = str(row.get("missing") or "")
    return any(word in reason for word in ("refus", "filter", "declin", "safety"))


def malformed(answers: Sequence[Row]) -> Check:
    """Structured answers (JSON) that had to be repaired, asked for again or given up."""
    asked = [r for r in answers if r.get("kind") == "json"]
    bad = sum(1 for r in asked if r.get("reasks") or r.get("rung") not in CLEAN_RUNGS)
    return share_check(
        "malformed", "Malformed structured answers", bad, len(asked), REASKED, "had to be mended"
    )


def cut(answers: Sequence[Row]) -> Check:
    """Replies that the token limit cut, also when asked once more with twice the limit.

    Flagged from the first: half a thought counts as a whole one. Not checked where no reply says
    how it ended.
    """
    said = [
        f for r in answers if not (f := str(r.get("finish") or "unknown")).startswith("unknown")
    ]
    if answers and not said:
        return not_checked("cut", "Cut replies", 0.0, "The model does not say how replies end.")
    bad = sum(1 for finish in said if finish.startswith("length"))
    found = share_check("cut", "Cut replies", bad, len(said), 0.0, "were cut by the token limit")
    return replace(found, flagged=bad > 0) if said else found


def off_list(answers: Sequence[Row]) -> Check:
    """Choices and numbers that were not on the list at the first reply."""
    asked = [r for r in answers if r.get("kind") in ("choice", "number")]
    bad = sum(1 for r in asked if r.get("reasks") or r.get("rung") == "missing")
    return share_check(
        "off_list", "Answers off the list", bad, len(asked), REASKED, "were not on the list"
    )


def over_length(answers: Sequence[Row]) -> Check:
    """Replies far longer than asked for.

    A choice: more than eight words beyond the longest option. Free text: more than three times
    the median of its stage and role (and at least 60 words more), bare signals of one or two words
    not counted in the median.
    """
    typical: dict[tuple[str, str], list[int]] = defaultdict(list)
    for r in answers:
        words = int(r.get("words") or 0)
        if words > 2:
            typical[str(r.get("stage")), str(r.get("role"))].append(words)
    middle = {key: median(counts) for key, counts in typical.items()}
    long = 0
    for r in answers:
        words = int(r.get("words") or 0)
        if r.get("options"):
            longest = max(len(o.split()) for o in json.loads(r["options"]))
            long += words > longest + 8
        else:
            usual = middle.get((str(r.get("stage")), str(r.get("role"))), 0)
            long += words > max(3 * usual, usual + 60)
    return share_check(
        "over_length", "Over-long replies", long, len(answers), OVER_LENGTH, "were far too long"
    )


def acquiescence(
    agrees: Sequence[bool], agrees_reversed: Sequence[bool], who: Sequence[Hashable]
) -> Check:
    """Yes-saying: agreeing both with a statement and with its opposite.

    For each person and pair of opposite statements, (agree) + (agree with the opposite) − 1:
    +1 both accepted, −1 both rejected, 0 consistent. The mean is clustered by person.
    """
    title = "Acquiescence"
    if not agrees:
        return not_checked("acquiescence", title, ACQUIESCENCE, "No pair of opposite statements.")
    both = np.asarray(agrees, float) + np.asarray(agrees_reversed, float) - 1
    mean = clustered_mean(both, who)
    flagged = bool(mean.has_interval and abs(mean.value) > ACQUIESCENCE and mean.excludes_zero)
    says = (
        f"Acceptance of opposite statements: {mean.value:+.2f} ({mean.low:+.2f} to "
        f"{mean.high:+.2f}; 0 is consistent, +1 says yes to everything)."
    )
    return Check("acquiescence", title, mean, ACQUIESCENCE, flagged, says)


def yes_share(answers: Sequence[Row]) -> Check:
    """The share of yes among yes/no answers, where no opposite statements were put.

    Flagged above 90 % or where all said the same: real groups rarely vote so on several items.
    """
    yes = {"yes", "agree", "support", "approve", "for"}
    no = {"no", "disagree", "oppose", "reject", "against"}
    asked = []
    for r in answers:
        options = [o.casefold() for o in json.loads(r["options"])] if r.get("options") else []
        if set(options) & yes and set(options) & no and r.get("value"):
            asked.append(str(r["value"]).casefold() in yes)
    title = "Yes-saying"
    if len(asked) < _FEW:
        return not_checked("acquiescence", title, ALWAYS_YES, "Too few yes/no answers to say.")
    share = wilson(sum(asked), len(asked))
    flagged = share.low > ALWAYS_YES
    says = f"{percent(share.value)} of {plural(len(asked), 'yes/no answer')} were yes."
    return Check("acquiescence", title, share, ALWAYS_YES, flagged, says)
