"""The structured replies that the mediator and the members are asked for, as JSON models, and how a
stated decision is read: who gets which option, when, and what is dropped.

The statement has one form under C3, C4 and C5, so that no decision is read from prose. A null is an
empty text or list. The request's schema lists the names or options that there are; a reply that
spells one otherwise is still read, and matched afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from folkmoot.conversation.answers import pin_schema
from folkmoot.studies.negotiation.rules.operators import WHOLE_TRIP, Portion
from folkmoot.studies.negotiation.rules.strategies import RESERVED, Group, role_id
from folkmoot.studies.negotiation.rules.tally import Ballot, adopted, clean, mentions


def _text(value: object) -> object:
    return "" if value is None else value


def _list(value: object) -> object:
    return [] if value in (None, "") else [value] if isinstance(value, (str, dict)) else value


Words = Annotated[str, BeforeValidator(_text)]


class _Reply(BaseModel):
    # The prompts say what the objects are for, so the schemas have no descriptions.
    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)


class Spoken(_Reply):
    """One line of dialogue."""

    model_config = pin_schema("Spoken")

    speaker: Words = Field(description="who speaks")
    text: Words = Field(description="what this speaker says, one or two sentences")


Lines = Annotated[list[Spoken], BeforeValidator(_list)]
Texts = Annotated[list[str], BeforeValidator(_list)]


class Share(_Reply):
    """Who gets one option, and when."""

    model_config = pin_schema("Share")

    option: Words = Field(description="one option, by the name it has in the list")
    members: Texts = Field(
        default_factory=list, description="names of the members who get it; empty for everyone"
    )
    when: Words = Field("", description="its days or time; empty for the whole trip")


class Decided(_Reply):
    """A decision as data: the same part of every reply of the mediator."""

    model_config = pin_schema("Decided")

    decision: Annotated[list[Share], BeforeValidator(_list)] = Field(
        description="the whole decision: who gets which option, and when"
    )
    dropped: Texts = Field(
        default_factory=list, description="options that were named and that nobody gets"
    )


class PlainSynthesis(Decided):
    """A proposal by plain reasoning."""

    model_config = pin_schema("PlainSynthesis")

    has_conflict: bool = Field(description="whether the stated preferences conflict")
    conflict_description: Words = Field(description="what they disagree on, in one sentence")
    resolution_explanation: Words = Field(description="the proposal to the group, in plain words")
    dialogue: Lines = Field(
        default_factory=list, description="the System's proposal, then each member's response"
    )


class GuidedSynthesis(PlainSynthesis):
    """A proposal under the canonical strategy."""

    model_config = pin_schema("GuidedSynthesis")

    resolution_strategy: Words = Field("", description="the strategy_id that the proposal follows")


class BallotForm(_Reply):
    """One member's ballot."""

    model_config = pin_schema("BallotForm")

    top_choice: Words = Field(description="the option you want most")
    acceptable: Texts = Field(
        default_factory=list, description="other options that you could accept"
    )
    hard_no: Texts = Field(default_factory=list, description="options that you reject; often none")

    def ballot(self, member_id: str) -> Ballot | None:
        """A ballot without blanks and repeats; None for one that says nothing at all."""
        top = clean(self.top_choice)
        hard_no = dict.fromkeys(o for e in self.hard_no if (o := clean(e)))
        acceptable = dict.fromkeys(o for e in self.acceptable if (o := clean(e)) and o != top)
        if not (top or acceptable or hard_no):
            return None
        return Ballot(member_id, top, tuple(acceptable), tuple(hard_no))


class Score(_Reply):
    """What a member gives one option."""

    model_config = pin_schema("Score")

    option: Words = Field(description="an option on the table")
    score: int = Field(ge=-4, le=4, description="from -4 (against it) to 4 (all for it)")


class ScoreForm(_Reply):
    """One member's scores of all options."""

    model_config = pin_schema("ScoreForm")

    scores: list[Score] = Field(description="one entry for every option on the table")
    hard_no: Texts = Field(default_factory=list, description="options that you reject; often none")

    def ballot(self, member_id: str) -> Ballot | None:
        """The ballot that these scores make; None for one that says nothing at all.

        Its other fields are what the member would have written in the source's form: the option
        with the highest score, the others above zero, and the firm rejections.
        """
        given = {o: s.score for s in self.scores if (o := clean(s.option))}
        hard_no = tuple(dict.fromkeys(o for e in self.hard_no if (o := clean(e))))
        if not given and not hard_no:
            return None
        liked = sorted(
            (o for o, score in given.items() if score > 0 and o not in hard_no),
            key=lambda o: -given[o],
        )
        return Ballot(member_id, "".join(liked[:1]), tuple(liked[1:]), hard_no, given)


class FeedbackReply(Decided):
    """One round of feedback."""

    model_config = pin_schema("FeedbackReply")

    resolved: bool = Field(description="whether the member asked can accept the decision")
    updated_resolution_explanation: Words = Field(
        "", description="what was adjusted, in one sentence; empty if nothing"
    )
    targeted_feedback_question: Words = Field(
        "", description="the question put to the member asked"
    )
    final_revised_decision: Words = Field(
        "", description="the whole decision as it stands now, naming each option"
    )
    hard_no: Texts = Field(
        default_factory=list,
        description="options that the member asked firmly rejects; often none",
    )
    dialogue: Lines = Field(
        default_factory=list, description="the member's reaction, then the System's answer"
    )


def sort_lines(
    dialogue: Sequence[Spoken], names: Sequence[str]
) -> tuple[str, list[tuple[str, str]], int]:
    """The System's first words, the members' lines by their listed names, and how many lines had
    an unknown speaker or no words."""
    by_key = {name_key(n): n for n in names}
    opening = ""
    said: list[tuple[str, str]] = []
    dropped = 0
    for line in dialogue:
        text, key = line.text, name_key(line.speaker)
        if text and key in by_key:
            said.append((by_key[key], text))
        elif text and key in RESERVED:
            opening = opening or text
        else:
            dropped += 1
    return opening, said, dropped


def name_key(name: str) -> str:
    """A name for comparing: case and spacing aside."""
    return " ".join(name.replace("_", " ").casefold().split())


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


def same(a: Sequence[Portion], b: Sequence[Portion]) -> bool:
    """Whether two decisions give the same members the same options, times aside."""
    return _who_gets(a) == _who_gets(b)


def _who_gets(portions: Sequence[Portion]) -> Mapping[str, frozenset[str]]:
    got: dict[str, frozenset[str]] = {}
    for p in portions:
        got[p.option] = got.get(p.option, frozenset()) | frozenset(p.members)
    return got
