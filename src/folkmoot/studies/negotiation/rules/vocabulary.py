"""The options, members and times that ballots and stated decisions may name."""

# An entry matches a listed value only if both are equal after folding. Folding removes differences
# of case, accents, width, simple plurals and closing marks. The parser never searches for a value
# inside an entry, because "anything but sushi" does not mean sushi.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from folkmoot.conversation.json_replies import CUT_MARK
from folkmoot.conversation.lenient_fields import NONE_WORDS
from folkmoot.conversation.reply_forms import is_only_refusal
from folkmoot.hints import capitalise, collapse_spaces, join_words
from folkmoot.provenance import SourcedText, concatenate_texts, enumerate_texts, join_texts
from folkmoot.studies.negotiation.rules.candidates import (
    names_no_option,
    normalise_entry,
)
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP
from folkmoot.studies.negotiation.rules.strategies import Group
from folkmoot.studies.negotiation.rules.tally import (
    all_named,
    content_words,
    match_option,
    words_of,
)

EVERYONE = "everyone"
# Words that refer to an option without naming another one, as in "all except diner".
_AROUND = frozenset(
    {"all", "anything", "but", "else", "every", "everything", "except", "instead", "other", "than"}
)
# Words that name no option beside the words for "none", as in "no new option, thanks", "I'd rather
# not say" and "not sure".
_NAMES_NOTHING = frozenset(word for word in NONE_WORDS if " " not in word) | frozenset(
    words_of(
        "above abstain add addition additional again am answer applicable available blank "
        "can't cannot choose comment complete decide decided decision decline declined empty "
        "enough extra fine further good idea know leave left list listed miss missed missing "
        "needed new ok okay open opinion option other pending preference provide provided reply "
        "required respond respondent same satisfied say sorry specified state stated suggest "
        "suggestion sure tba tbd thank think undecided unresolved unsure vote won't"
    )
)
# Without other words, these are options: "Leave" and not "leave blank".
_OPTIONS_ALONE = frozenset({("leave",), ("vote",)})
_EVERYONE = frozenset({EVERYONE, "everybody", "all", "all members", "all of us", "the whole group"})
_WHOLE_TRIP = frozenset({"", WHOLE_TRIP, "the whole trip", "entire trip", "all days", "every day"})


def new_option_of(entry: str, options: Iterable[str]) -> str | None:
    """Return the option that a member enters as a new option.

    If the entry names a listed option, the listed option is returned. If the entry names no option,
    None is returned.
    """
    # An empty entry names none, and so does one that only refers to listed options ("anything but
    # sushi"), refuses to answer or was cut off.
    known = tuple(options)
    if option := match_option(entry, known):
        return option
    is_letter = re.fullmatch(r"\W*[a-z]\W*", entry, re.IGNORECASE)
    if is_empty(entry) or is_letter or entry.rstrip().endswith(CUT_MARK):
        return None
    named_options = all_named(entry, known)
    option_words = {word for option in named_options for word in words_of(option)}
    if len(named_options) > 1 or (
        named_options and not content_words(entry) - option_words - _AROUND
    ):
        return None
    return normalise_entry(entry) or None


def is_empty(entry: str) -> bool:
    """Return True if an entry is blank, says that there is no option, or refuses to answer."""
    is_refusal = is_only_refusal(entry, may_state_reason=True)
    is_option = words_of(entry) in _OPTIONS_ALONE
    names_nothing = not is_option and not content_words(entry) - _NAMES_NOTHING
    return names_no_option(entry) or is_refusal or names_nothing


def fold_name(name: str) -> str:
    """Return a member's name in a form for comparisons: in lower case, with single spaces."""
    return collapse_spaces(name.replace("_", " ").casefold())


def groups_of_members(group: Group) -> dict[str, tuple[str, ...]]:
    """Return the phrases that mean several members, such as "the parents".

    The result maps each phrase to the ids of these members.
    """
    # There is one phrase for all members, and one for each role with several (but not all) members.
    values = {EVERYONE: tuple(member.id for member in group.members)}
    for role in group.type.roles:
        ids = tuple(member.id for member in group.members if member.role == role.id)
        if 1 < len(ids) < len(group.members):
            values[f"the {_plural_form(role.name.casefold())}"] = ids
    return values


def _plural_form(noun: str) -> str:
    return "children" if noun == "child" else f"{noun}s"


def names_everyone(entry: str) -> bool:
    """Return True if an entry is a word for the whole group, such as "everyone"."""
    return fold_name(entry.strip(" .,;:!")) in _EVERYONE


def match_members(entry: str, group: Group) -> tuple[str, ...]:
    """Return the ids of the members whom an entry names.

    `entry`: the name of a member, or a phrase for several members, such as "everyone".

    The result is empty if the entry names no member.
    """
    folded = fold_name(entry.strip(" .,;:!"))
    if names_everyone(entry):
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

# All words that a time may contain. The planner receives times unchanged, so no other word may
# pass: it could carry a wish or a word of theory.
_TIMES = """
a after afternoon all an and another as at before breakfast brunch day days dinner during each early
end entire evening every first for from half in last late later lunch midday morning night noon of
on one only or other phase rest second start starting the third through time to trip two until
weekend whole with
"""
_TIME_WORDS = frozenset(_TIMES.split())
# Longer numbers are not days of a trip.
_MAX_DAY_DIGITS = 4
_TIME_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DAY_RANGE = re.compile(r"(\d+)\s*(?:[-–—−]|to|through)\s*(?:days?\s*)?(\d+)")


def parse_time(text: str, days: int, in_force: Iterable[str] = ()) -> str | None:
    """Return a time in its standard spelling.

    - `days`: the length of the trip in days.
    - `in_force`: the times of the current decision, which are accepted in any wording.

    Returns None if the text is not a time of the trip.
    """
    # "Day 1…" may be the beginning of "Day 12".
    if text.rstrip().endswith(CUT_MARK):
        return None
    # A revision may repeat the times of the current decision unchanged.
    time_text = collapse_spaces(text.strip(" .;,()"))
    folded = time_text.casefold()
    if folded in _WHOLE_TRIP:
        return WHOLE_TRIP
    for known_time in in_force:
        if folded == known_time.casefold():
            return known_time
    tokens = _TIME_TOKEN.findall(folded)
    words = [token for token in tokens if not token.isdecimal()]
    number_texts = [token for token in tokens if token.isdecimal()]
    if not set(words) <= _TIME_WORDS or any(len(text) > _MAX_DAY_DIGITS for text in number_texts):
        return None
    numbers = list(map(int, number_texts))
    if any(not 1 <= number <= days for number in numbers):
        return None
    if numbers and set(words) <= {"day", "days", "and", "to", "through", "on"}:
        return format_days(_listed_days(folded, numbers), days)
    # Only "Day" gets a capital, as in the times that `format_days` returns.
    return capitalise(time_text) if folded.startswith("day") else time_text


def _listed_days(text: str, numbers: Sequence[int]) -> set[int]:
    days_listed = set(numbers)
    for first, last in _DAY_RANGE.findall(text):
        days_listed |= set(range(int(first), int(last) + 1))
    return days_listed


def format_days(day_numbers: Iterable[int], days: int) -> str:
    """Return a time in words, such as "Day 1 and Day 3".

    - `day_numbers`: the days.
    - `days`: the length of the trip in days.
    """
    # All days together are the whole trip.
    sorted_days = sorted(set(day_numbers))
    if days > 1 and sorted_days == list(range(1, days + 1)):
        return WHOLE_TRIP
    return join_words([f"Day {day}" for day in sorted_days])


def describe_members(group: Group) -> str:
    """Return one text that lists the phrases for several members, such as "the parents"."""
    return join_words(list(groups_of_members(group)))


def describe_mismatches(unmatched: Mapping[str, Sequence[str]]) -> SourcedText:
    """Return sentences for a re-ask that list the entries of a reply which match no allowed value.

    `unmatched`: a map from expected kind of value to the entries that match no value of this kind.
    """
    return join_texts(
        " ", (_describe_mismatch(what, entries) for what, entries in unmatched.items())
    )


def _describe_mismatch(what: str, entries: Sequence[str]) -> SourcedText:
    entry_list = enumerate_texts(
        [
            concatenate_texts(("“", entry, "”") if entry else ("an empty entry",), plain=None)
            for entry in entries
        ]
    )
    verb = "is" if len(entries) == 1 else "are"
    return concatenate_texts((entry_list, f" {verb} none of the {what}."), plain=None)
