"""What a mediator states to be decided: who gets which option, when, and what is dropped.

It is asked for as data, in one form under C3, C4 and C5, so that no decision is read from prose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from folkmoot.studies.negotiation.operators import WHOLE_TRIP, Portion
from folkmoot.studies.negotiation.replies import Decided, Share, name_key
from folkmoot.studies.negotiation.strategies import Group, role_id
from folkmoot.studies.negotiation.tally import Tally, adopted, clean, mentions

_EVERYONE = frozenset(("everyone", "everybody", "all", "the whole group", "all members", "group"))
_WHOLE = frozenset(("", "whole trip", "the whole trip", "entire trip", "always", "all days"))


@dataclass(frozen=True, slots=True)
class Settlement:
    """A decision as stated. `unread` entries named no option or no member of the group."""

    portions: tuple[Portion, ...] = ()
    dropped: tuple[str, ...] = ()
    unread: int = 0


def settlement(group: Group, topic: str, options: Sequence[str], said: Decided) -> Settlement:
    """A mediator's statement with options and members by their own names.

    An option that is not on the table keeps the name it was given. Entries that differ in the times
    or in the members alone are one; what somebody gets is not dropped. House rules hold together,
    other options for the same members share the trip.
    """
    times: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    unread = 0
    for share in said.decision:
        members, named = _members(group, share), _options(share.option, options)
        unread += not members or not named
        when = "" if name_key(share.when) in _WHOLE else " ".join(share.when.split())
        for option in named if members else ():
            times.setdefault((option, members), []).append(when or WHOLE_TRIP)
    served: dict[tuple[str, str], set[str]] = {}
    for (option, members), whens in times.items():
        when = WHOLE_TRIP if WHOLE_TRIP in whens else " and ".join(dict.fromkeys(whens))
        served.setdefault((option, when), set()).update(members)
    portions = tuple(
        Portion(option, tuple(m.id for m in group.members if m.id in who), when)
        for (option, when), who in served.items()
    )
    given = {p.option for p in portions}
    dropped = dict.fromkeys(o for e in said.dropped for o in _options(e, options))
    if topic != "house_rule":
        portions = _side_by_side(portions)
    return Settlement(portions, tuple(o for o in dropped if o not in given), unread)


def _side_by_side(portions: tuple[Portion, ...]) -> tuple[Portion, ...]:
    """Options that somebody gets beside others for the whole trip share it: each has a part of its
    own, so that they do not count as in force at once."""
    whole = [set(p.members) for p in portions if p.when == WHOLE_TRIP]

    def shares(p: Portion) -> bool:
        return p.when == WHOLE_TRIP and sum(bool(set(p.members) & m) for m in whole) > 1

    return tuple(replace(p, when=f"part with {p.option}") if shares(p) else p for p in portions)


def _members(group: Group, share: Share) -> tuple[str, ...]:
    """Ids of the members that an entry names, by name or role; all for none or "everyone"; () if
    it names others."""
    said, roles = {name_key(n) for n in share.members}, {role_id(n) for n in share.members}
    everyone = not said or bool(said & _EVERYONE)
    return tuple(
        m.id
        for m in group.members
        if everyone or m.role in roles or said & {name_key(m.name), name_key(m.id)}
    )


def _options(entry: str, options: Sequence[str]) -> tuple[str, ...]:
    """The options on the table that an entry names; its own words if it names none of them."""
    own = clean(entry)
    return adopted(entry, options) if mentions(entry, options) else (own,) if own else ()


def summed_up(portions: Sequence[Portion]) -> str | None:
    """The one option that sums up a decision: what most members get; the first of equals."""
    got = _who_gets(portions)
    return max(got, key=lambda option: len(got[option]), default=None)


def overridden(portions: Sequence[Portion], tally: Tally) -> dict[str, tuple[str, ...]]:
    """Option → the members who get it although they strongly reject it."""
    found: dict[str, tuple[str, ...]] = {}
    for option in dict.fromkeys(p.option for p in portions if p.option in tally.options):
        gets = {m for p in portions if p.option == option for m in p.members}
        if against := tuple(m for m in tally.rejections(option) if m in gets):
            found[option] = against
    return found


def same(a: Sequence[Portion], b: Sequence[Portion]) -> bool:
    """Whether two decisions give the same members the same options, times aside."""
    return _who_gets(a) == _who_gets(b)


def _who_gets(portions: Sequence[Portion]) -> Mapping[str, frozenset[str]]:
    got: dict[str, frozenset[str]] = {}
    for p in portions:
        got[p.option] = got.get(p.option, frozenset()) | frozenset(p.members)
    return got
