"""The deterministic vote: what each member's words (and ballot) say of each option, added up.

The only input is text. Operators decide on a `Tally`; the audit trail is its `summary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.studies.negotiation import polarity
from folkmoot.studies.negotiation.groups import Group, Member, natural
from folkmoot.studies.negotiation.polarity import STRONG_REJECTION


@dataclass(frozen=True, slots=True)
class Ballot:
    """One member's ballot, options as the member wrote them."""

    member_id: str
    top_choice: str = ""
    acceptable: tuple[str, ...] = ()
    hard_no: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Voter:
    """A member as an operator sees one."""

    id: str
    name: str
    role: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Scores of every member for every option; `top` is what a voter put first. Options are in
    alphabetical order, voters by id, so that neither the order of members nor that of options can
    matter."""

    options: tuple[str, ...]
    voters: tuple[Voter, ...]
    scores: Mapping[str, Mapping[str, float]]
    top: Mapping[str, str] = field(default_factory=dict)
    threshold: float = STRONG_REJECTION

    def score(self, voter: str, option: str) -> float:
        return self.scores[voter][option]

    def total(self, option: str, voters: Sequence[Voter] | None = None) -> float:
        return sum(self.score(v.id, option) for v in self._some(voters))

    def rejections(self, option: str, voters: Sequence[Voter] | None = None) -> tuple[str, ...]:
        """Ids of the voters who strongly reject the option."""
        some = self._some(voters)
        return tuple(v.id for v in some if self.score(v.id, option) <= self.threshold)

    def lowest(self, option: str, voters: Sequence[Voter] | None = None) -> float:
        return min(self.score(v.id, option) for v in self._some(voters))

    def supporters(self, option: str, voters: Sequence[Voter] | None = None) -> tuple[str, ...]:
        """Ids of the voters who approve: a score above zero."""
        return tuple(v.id for v in self._some(voters) if self.score(v.id, option) > 0)

    def primary(self, voter: str) -> str | None:
        """The option a voter wants most: the ballot's top choice, else the highest score (ties:
        what the text names first, then the group's score, then alphabetical). Only what scores
        above zero is wanted; else None."""
        wanted = [o for o in self.options if self.score(voter, o) > 0]
        top = self.top.get(voter)
        if top in wanted or not wanted:
            return top if wanted else None
        return min(wanted, key=lambda o: (-self.score(voter, o), -self.total(o), o))

    def ranked(self, voters: Sequence[Voter] | None = None) -> tuple[str, ...]:
        """Options by total score, then alphabetical."""
        return tuple(sorted(self.options, key=lambda o: (-self.total(o, voters), o)))

    def of_role(self, role: str) -> tuple[Voter, ...]:
        """The voters of a role; of everybody for `all` and ``."""
        return self.voters if role in ("all", "") else self._with(role)

    def _with(self, role: str) -> tuple[Voter, ...]:
        return tuple(v for v in self.voters if v.role == role)

    def _some(self, voters: Sequence[Voter] | None) -> Sequence[Voter]:
        return self.voters if voters is None else voters


def count(
    group: Group,
    texts: Mapping[str, str],
    options: Sequence[str],
    ballots: Mapping[str, Ballot] | None = None,
) -> Tally:
    """The tally of a group. `texts` maps member ids to preference texts (none: no words)."""
    ordered = tuple(sorted(options))
    members = sorted(group.members, key=lambda m: natural(m.id))
    ballots = ballots or {}
    scored: dict[str, Mapping[str, float]] = {}
    top: dict[str, str] = {}
    for member in members:
        ballot = ballots.get(member.id)
        scored[member.id] = member_scores(texts.get(member.id, ""), ordered, ballot)
        choice = named_option(ballot.top_choice, ordered) if ballot else None
        choice = choice or _first_named(texts.get(member.id, ""), scored[member.id])
        if choice:
            top[member.id] = choice
    return Tally(ordered, tuple(_voter(m) for m in members), scored, top)


def member_scores(text: str, options: Sequence[str], ballot: Ballot | None) -> dict[str, float]:
    """One member's scores: the text's, then the ballot's say on top.

    `acceptable` is weak support (+1); a top choice that the text does not name counts as named
    (+2); `hard_no` is a strong rejection, whatever else was said.
    """
    result: dict[str, float] = dict(polarity.scores(text, options))
    if ballot is None:
        return result
    refused = {o for entry in ballot.hard_no for o in _all_named(entry, options)}
    acceptable = {o for entry in ballot.acceptable for o in polarity.adopted(entry, options)}
    for option in acceptable - refused:
        result[option] += polarity.WEAK
    top = named_option(ballot.top_choice, options)
    named = {m.option for m in polarity.mentions(text, options)}
    if top and top not in refused and top not in named:
        result[top] = max(result[top], polarity.NAMED)
    for option in refused:
        result[option] = min(result[option], STRONG_REJECTION)
    return result


def named_option(entry: str, options: Sequence[str]) -> str | None:
    """The one option that a ballot's entry names and does not turn down; else None."""
    named = polarity.adopted(entry, options)
    return named[0] if len(named) == 1 else None


def _first_named(text: str, scores: Mapping[str, float]) -> str | None:
    """Of the options with the highest score, the one that the text names first."""
    most = max(scores.values(), default=0)
    named = _all_named(text, tuple(scores))
    return next((o for o in named if scores[o] == most), None)


def _all_named(entry: str, options: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(m.option for m in polarity.mentions(entry, options)))


def summary(tally: Tally, strategy_id: str, selected: str | None, ballots: str) -> dict[str, Any]:
    """The vote's audit trail as the planner gets it; `ballots` says whether there were any."""
    minority = [v.id for v in tally.voters if tally.primary(v.id) not in (None, selected)]
    return {
        "method": "deterministic_vote_parser",
        "strategy_id": strategy_id,
        "selected_option": selected,
        "tie_break": "score_then_lexicographic",
        "ballots": ballots,
        "option_details": [
            {
                "option": option,
                "total_score": tally.total(option),
                "member_scores": {v.id: tally.score(v.id, option) for v in tally.voters},
                "strong_rejections": list(tally.rejections(option)),
            }
            for option in tally.ranked()
        ],
        "minority_members": minority,
        "member_primary_option": {v.id: tally.primary(v.id) for v in tally.voters},
    }


def _voter(member: Member) -> Voter:
    return Voter(member.id, member.name, member.role, member.weight)
