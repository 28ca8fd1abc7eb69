"""The outcome of a diagnostic: what was looked at, what was found, whether it is a flag."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.measures.estimates import Estimate, percent, plural
from folkmoot.measures.proportions import wilson


@dataclass(frozen=True, slots=True)
class Check:
    """One diagnostic. `value` with its interval, `limit` from which it is flagged, in words.

    `flagged` is None where it could not be checked; `says` then tells why.
    """

    key: str
    title: str
    value: Estimate | None
    limit: float
    flagged: bool | None
    says: str


def share_check(key: str, title: str, bad: int, asked: int, limit: float, what: str) -> Check:
    if not asked:
        return not_checked(key, title, limit, "No such answers in this run.")
    share = wilson(min(bad, asked), asked)
    flagged = share.value > limit and bad > 1
    how_many = percent(share.value) if bad else "None"
    says = f"{how_many} of {plural(asked, 'reply', 'replies')} {what}."
    return Check(key, title, share, limit, flagged, says)


def not_checked(key: str, title: str, limit: float, why: str) -> Check:
    return Check(key, title, None, limit, None, why)
