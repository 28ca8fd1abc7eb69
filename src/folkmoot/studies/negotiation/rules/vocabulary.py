"""The closed vocabularies of ballots and decision statements: options, members, times.

An entry means a listed value only if it equals that value after folding (case, accents, width,
simple plurals, closing marks). Nothing is searched for inside an entry, so that "anything but
sushi" is not sushi.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from folkmoot.conversation.answer_types import parse_way_out
from folkmoot.hints import join_words
from folkmoot.provenance import SourcedText, concatenate_texts, enumerate_texts, join_texts
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP
from folkmoot.studies.negotiation.rules.strategies import Group
from folkmoot.studies.negotiation.rules.tally import (
    NOTHING,
    all_named,
    content_words,
    match_option,
    normalise_entry,
    words_of,
)

EVERYONE = "everyone"
# Words around an option that make no other option of it: "all except diner".
_AROUND = frozenset(
    {"all", "anything", "but", "else", "every", "everything", "except", "instead", "other", "than"}
)
_EVERYONE = frozenset({EVERYONE, "everybody", "all", "all members", "all of us", "the whole group"})
_WHOLE_TRIP = frozenset({"", WHOLE_TRIP, "the whole trip", "entire trip", "all days", "every day"})


def new_option_of(entry: str, options: Iterable[str]) -> str | None:
    """Return the option that a field `new_option` names: a listed one under its own name, else the
    entry as an option.

    None if it names nothing, or only takes up listed options: several of them, or one among words
    without content ("anything but sushi", "sushi or diner").
    """
    known = tuple(options)
    if option := match_option(entry, known):
        return option
    if is_empty(entry) or re.fullmatch(r"\W*[a-z]\W*", entry, re.IGNORECASE):
        return None
    named = all_named(entry, known)
    taken_up = {word for option in named for word in words_of(option)}
    if len(named) > 1 or (named and not content_words(entry) - taken_up - _AROUND):
        return None
    return normalise_entry(entry) or None


def is_empty(entry: str) -> bool:
    """Return whether a field `new_option` was left empty, also in words."""
    return not entry.strip() or parse_way_out(entry) is not None or words_of(entry) in NOTHING


def fold_name(name: str) -> str:
    """Fold a member's name: case, spacing and underscores are ignored."""
    return " ".join(name.replace("_", " ").casefold().split())


def groups_of_members(group: Group) -> dict[str, tuple[str, ...]]:
    """Return the values that mean several members ("everyone", "the parents") with ids.

    A role that only one member has, or all have, gets no separate value.
    """
    values = {EVERYONE: tuple(member.id for member in group.members)}
    for role in group.type.roles:
        ids = tuple(member.id for member in group.members if member.role == role.id)
        if 1 < len(ids) < len(group.members):
            values[f"the {_plural_form(role.name.casefold())}"] = ids
    return values


def _plural_form(noun: str) -> str:
    return "children" if noun == "child" else f"{noun}s"


def match_members(entry: str, group: Group) -> tuple[str, ...]:
    """Return the ids of the member or group of members that an entry names, or ()."""
    folded = fold_name(entry.strip(" .,;:!"))
    if folded in _EVERYONE:
        return tuple(member.id for member in group.members)
    for value, ids in groups_of_members(group).items():
        if folded in (value, value.removeprefix("the "), f"both {value.removeprefix('the ')}"):
            return ids
    return tuple(
        member.id
        for member in group.members
        if folded in (fold_name(member.name), fold_name(member.id))
    )


# --- times -------------------------------------------------------------------------------------

# All words that a time may be made of. Another word would carry more than a time to the planner.
_TIMES = """
a after afternoon all an and another as at before breakfast brunch day days dinner during each early
end entire evening every first for from half in last late later lunch midday morning night noon of
on one only or other phase rest second start starting the third through time to trip two until
weekend whole with
"""
_TIME_WORDS = frozenset(_TIMES.split())
_TIME_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DAY_RANGE = re.compile(r"(\d+)\s*(?:-|–|to|through)\s*(\d+)")


def parse_time(text: str, days: int, in_force: Iterable[str] = ()) -> str | None:
    """Return a time in one spelling, or None for words that are no time.

    `in_force` holds the times of the current decision, which may be repeated as they are.
    """
    said = " ".join(text.strip(" .;,()").split())
    folded = said.casefold()
    if folded in _WHOLE_TRIP:
        return WHOLE_TRIP
    for known in in_force:
        if folded == known.casefold():
            return known
    tokens = _TIME_TOKEN.findall(folded)
    words = [token for token in tokens if not token.isdigit()]
    numbers = [int(token) for token in tokens if token.isdigit()]
    if not set(words) <= _TIME_WORDS or any(not 1 <= number <= days for number in numbers):
        return None
    if numbers and set(words) <= {"day", "days", "and", "to", "through", "on"}:
        return format_days(_listed_days(folded, numbers), days)
    return said[:1].upper() + said[1:] if folded.startswith("day") else said


def _listed_days(text: str, numbers: Sequence[int]) -> set[int]:
    listed = set(numbers)
    for first, last in _DAY_RANGE.findall(text):
        listed |= set(range(int(first), int(last) + 1))
    return listed


def format_days(listed: Iterable[int], days: int) -> str:
    """Return days as a time: "Day 1 and Day 3", or the whole trip for all of them."""
    chosen = sorted(set(listed))
    if days > 1 and chosen == list(range(1, days + 1)):
        return WHOLE_TRIP
    return join_words([f"Day {day}" for day in chosen])


def describe_members(group: Group) -> str:
    """Return the values for several members as a prompt lists them."""
    return join_words(list(groups_of_members(group)))


def describe_mismatches(unmatched: Mapping[str, Sequence[str]]) -> SourcedText:
    """Say which entries named nothing that there is, by what they should have named."""
    return join_texts(
        " ", (_describe_mismatch(what, entries) for what, entries in unmatched.items())
    )


def _describe_mismatch(what: str, entries: Sequence[str]) -> SourcedText:
    listed = enumerate_texts(
        [
            concatenate_texts(("“", entry, "”") if entry else ("an empty entry",), plain=None)
            for entry in entries
        ]
    )
    verb = "is" if len(entries) == 1 else "are"
    return concatenate_texts((listed, f" {verb} none of the {what}."), plain=None)
