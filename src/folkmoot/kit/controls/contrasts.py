"""Find the decisions of two groups that answer one question, so that controls can compare them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.study.decision_design import QuestionOf, name_as_question
from folkmoot.kit.controls.conversations import FINAL, FIRST
from folkmoot.kit.controls.tables import AS_DESIGNED, count_decisions, name_role
from folkmoot.kit.findings import condition_name
from folkmoot.measures.inference.estimates import format_count

# Compare all pairs of at most this many conditions: six conditions make 15 pairs.
_MOST_CONDITIONS = 6


class Contrast(NamedTuple):
    """Two groups of answers to compare.

    Each group is a pair of condition and time, such as ("control", "final").
    """

    first: tuple[str, str]
    second: tuple[str, str]
    # Both groups have speakers of this role.
    role: str = PARTICIPANT_ROLE

    @property
    def says(self) -> str:
        """The contrast in words for tables and charts."""
        by = name_role(self.role)
        if self.is_before_and_after:
            name = condition_name(self.first[0])
            return f"{by}{name}: {self.second[1]} against {self.first[1]} decision"
        return f"{by}{condition_name(self.first[0])} against {condition_name(self.second[0])}"

    @property
    def is_before_and_after(self) -> bool:
        """True if the groups are decisions of the same participants at two moments."""
        return self.first[0] == self.second[0]

    @property
    def seed(self) -> tuple[str, ...]:
        """The path from which the seed of this contrast's random draws is derived."""
        # Contrasts of participants keep the draws that they had before other roles were asked.
        return (*self.first, *self.second, *([] if self.role == PARTICIPANT_ROLE else [self.role]))


def contrasts_in(answers: pl.DataFrame, conditions: Sequence[str]) -> Iterator[Contrast]:
    """Yield the pairs of groups to compare in a table of answers to control questions.

    - `conditions`: the conditions in the order of the study. Others come first, by name.
    """
    # All pairs of conditions at the final decision, and in each condition the final decision with
    # the first one and with those apart from the treatment. Participants come first, and speakers
    # of different roles are not compared.
    # The table has the conditions in the order of a random draw. The name of a contrast must not
    # depend on it, because repeats of one study are compared by that name.
    ranks = {condition: rank for rank, condition in enumerate(conditions)}
    roles = answers["role"].unique(maintain_order=True).to_list()
    for role in sorted(roles, key=lambda role: role != PARTICIPANT_ROLE):
        own = answers.filter(role=role)
        groups = own.select("condition", "moment").unique(maintain_order=True).rows()
        final = sorted(
            (group for group in groups if group[1] == FINAL),
            key=lambda group: (ranks.get(group[0], -1), group[0]),
        )
        yield from (
            Contrast(*pair, role) for pair in itertools.combinations(final[:_MOST_CONDITIONS], 2)
        )
        others = dict.fromkeys(moment for _, moment in groups if moment not in (FIRST, FINAL))
        yield from (
            Contrast((condition, moment), (condition, FINAL), role)
            for moment in (FIRST, *others)
            for condition, _ in final
            if (condition, moment) in groups
        )


class ComparedDecisions(NamedTuple):
    """The two decisions that a contrast compares, on one question."""

    # The names of the decisions.
    first: str
    second: str
    # The addresses of the decisions of both groups whose answers are compared.
    addresses: frozenset[str]
    # The decisions with these names: all of them, those on another question, which are left out,
    # and those whose list of options no decision of the other group has.
    total: int
    on_others: int
    with_other_options: int


def decision_contrasts(
    table: pl.DataFrame,
    options: Mapping[str, tuple[str, ...]],
    conditions: Sequence[str] = (),
    question_of: QuestionOf = name_as_question,
) -> dict[Contrast, ComparedDecisions | None]:
    """Return, for each pair of groups, the two decisions to compare.

    - `options`: a map from the address of a decision to the options of the decision.
    - `conditions`: the conditions in the order of the study.
    - `question_of`: returns the question of a decision, see `DecisionDesign.questions`.

    Groups without two decisions on one question have None, because a difference between answers to
    two questions is no effect.
    """
    made = table.filter(control=AS_DESIGNED)
    found: dict[Contrast, ComparedDecisions | None] = {}
    for contrast in contrasts_in(made, conditions):
        own = made.filter(role=contrast.role)
        groups = (contrast.first, contrast.second)
        decisions = [_list_decisions(own, group, options, question_of) for group in groups]
        pairs = [
            _DecisionPair(first, second)
            for first in decisions[0]
            for second in decisions[1]
            if first.question == second.question
            and first.has_options_of(second)
            # Decisions of one name may be on several questions, such as the topics of a
            # negotiation. A participant's first one need not be on the question of the final one.
            and ((first.is_whole and second.is_whole) or not contrast.is_before_and_after)
        ]
        if contrast.is_before_and_after:
            pairs = [pair for pair in pairs if not pair.is_of_different_participants]
        found[contrast] = None
        if pairs:
            # The final decision of participants who left is an earlier one. It must not replace
            # that of all others.
            select = _select_before_and_after if contrast.is_before_and_after else _select_frequent
            found[contrast] = select(pairs).compare(decisions)
    return found


class _Decided(NamedTuple):
    # Unit and id of a participant, the address of the decision, and whether it was answered.
    who: tuple[str, str]
    address: str
    is_answered: bool


class _NamedDecision(NamedTuple):
    name: str
    question: str
    # True if all decisions of this name in the group are on this question.
    is_whole: bool
    # By the list of options.
    by_list: Mapping[tuple[str, ...], Sequence[_Decided]]

    def has_options_of(self, other: _NamedDecision) -> bool:
        """Return whether the answers can be compared by their options.

        A list that is the same for all participants belongs to the question, and has to be that of
        the other decision. Lists that differ, such as the parts of a decision that a member may
        refuse, belong to the participants. One common option is enough there.
        """
        if len(self.by_list) == len(other.by_list) == 1:
            return self.by_list.keys() == other.by_list.keys()
        own, others = ({*itertools.chain(*each.by_list)} for each in (self, other))
        return not own.isdisjoint(others)

    @property
    def all(self) -> list[_Decided]:
        """The decisions with any list of options."""
        return [decided for own in self.by_list.values() for decided in own]

    @property
    def answered_by(self) -> frozenset[tuple[str, str]]:
        """Unit and id of each participant who has answered the decision."""
        return frozenset(decided.who for decided in self.all if decided.is_answered)


class _DecisionPair(NamedTuple):
    first: _NamedDecision
    second: _NamedDecision

    @property
    def answers(self) -> int:
        """The number of answers that both groups have at least."""
        return min(len(self.first.answered_by), len(self.second.answered_by))

    @property
    def is_of_different_participants(self) -> bool:
        """True if both decisions have answers, but no participant has answered both."""
        first, second = self.first.answered_by, self.second.answered_by
        return bool(first and second) and first.isdisjoint(second)

    @property
    def has_one_name(self) -> bool:
        """True if both decisions have one name."""
        return self.first.name == self.second.name

    def compare(self, decisions: Sequence[Sequence[_NamedDecision]]) -> ComparedDecisions:
        """Return the two decisions. `decisions`: all decisions of the two groups."""
        total = sum(
            len(other.all)
            for own, others in zip(self, decisions, strict=True)
            for other in others
            if other.name == own.name
        )
        compared = [decided for own in self for decided in own.all]
        common = self.first.by_list.keys() & self.second.by_list.keys()
        apart = sum(len(own.by_list[key]) for own in self for key in own.by_list.keys() - common)
        addresses = frozenset(decided.address for decided in compared)
        names = self.first.name, self.second.name
        return ComparedDecisions(*names, addresses, total, total - len(compared), apart)


def _select_before_and_after(pairs: Sequence[_DecisionPair]) -> _DecisionPair:
    # Those who left made one decision only, so they have no answer to both.
    return max(
        pairs,
        key=lambda pair: (
            len(pair.first.answered_by & pair.second.answered_by),
            pair.answers,
            pair.has_one_name,
        ),
    )


def _select_frequent(pairs: Sequence[_DecisionPair]) -> _DecisionPair:
    # Answers of two conditions to one question are compared, unless they are few beside another
    # pair. With questions in random order, several are the last one about equally often.
    most = max(pair.answers for pair in pairs)
    return max(
        pairs,
        key=lambda pair: (pair.has_one_name and 2 * pair.answers >= most, pair.answers),
    )


def _list_decisions(
    made: pl.DataFrame,
    group: tuple[str, str],
    options: Mapping[str, tuple[str, ...]],
    question_of: QuestionOf,
) -> list[_NamedDecision]:
    # The most frequent decision first.
    rows = made.filter(condition=group[0], moment=group[1])
    # A form is answered if any of its fields is.
    is_answered = pl.col("value").is_not_null() | pl.col("number").is_not_null()
    place = ("question", "unit", "participant_id", "decision_address")
    answered = set(rows.filter(is_answered).select(place).iter_rows())
    found: dict[str, dict[str, dict[tuple[str, ...], list[_Decided]]]] = {}
    for name, unit, who, address in count_decisions(rows).select(place).iter_rows():
        by_list = found.setdefault(name, {}).setdefault(question_of(name, address), {})
        decided = _Decided((unit, who), address, (name, unit, who, address) in answered)
        by_list.setdefault(options.get(address, ()), []).append(decided)
    named = (
        _NamedDecision(name, question, len(questions) == 1, by_list)
        for name, questions in found.items()
        for question, by_list in questions.items()
    )
    return sorted(named, key=lambda decision: -len(decision.all))


def describe_uncompared(decisions: Mapping[Contrast, ComparedDecisions | None]) -> Iterator[str]:
    """Yield sentences on each contrast of unlike decisions, and one on those without a pair."""
    for contrast, compared in decisions.items():
        if compared is None:
            continue
        name = f"{contrast.says} ({name_decisions(contrast, decisions)})"
        of_all = f"of {format_count(compared.total, 'decision')}"
        if compared.on_others:
            yield f"{name}: left out, because on another question: {compared.on_others:,} {of_all}."
        if compared.with_other_options:
            yield (
                f"{name}: compared, although no decision on the other side has the same options: "
                f"{compared.with_other_options:,} {of_all}."
            )
    if none := [contrast.says for contrast, compared in decisions.items() if compared is None]:
        yield (
            "Not compared, because no decisions of both sides are on one question with the same "
            f"options: {'; '.join(none)}."
        )


def name_decisions(
    contrast: Contrast, decisions: Mapping[Contrast, ComparedDecisions | None]
) -> str:
    """Return the names of the compared decisions, as one text if they differ."""
    compared = decisions[contrast]
    assert compared is not None
    first, second = compared[:2]
    if first == second:
        return first
    # The label of such a contrast names the final decision before the first one.
    first, second = (second, first) if contrast.is_before_and_after else (first, second)
    return f"{first} against {second}"
