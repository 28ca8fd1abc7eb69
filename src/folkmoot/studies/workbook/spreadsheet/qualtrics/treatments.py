"""Turn the randomizers of a survey into treatments."""
# A randomizer that shows only some of its elements has several possible draws. Each combination of
# the draws of all randomizers is a treatment.

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from folkmoot.studies.workbook.spreadsheet.qualtrics.conditions import (
    Condition,
    InTreatments,
    any_of,
    text_literal,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import (
    Block,
    ImportNote,
    Survey,
    as_mapping,
    as_number,
    as_text,
    in_order,
    nested_list,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import make_plain

# More treatments than this have too few participants each. Randomizers that would make more show
# all participants the same elements.
MAX_TREATMENTS = 64
# Names that Qualtrics gives to elements without a name.
_UNNAMED = ("", "new branch", "untitled group", "show block")
_JOINED = " + "

ArmKey = tuple[str, ...]
Combinations = list[tuple[ArmKey, ...]]


def shown_count(element: Mapping[str, Any]) -> int:
    """Return the number of elements that a randomizer shows."""
    count = len(nested_list(element.get("Flow")))
    shown = as_number(element.get("SubSet"))
    return count if shown is None or shown < 1 else min(count, int(shown))


def hidden_questions(block: Block) -> set[str]:
    """Return the ids of the questions that the random order of a block never shows."""
    if as_text(block.options.get("RandomizeQuestions")) != "Advanced":
        return set()
    options = as_mapping(as_mapping(block.options.get("Randomization")).get("Advanced"))
    return {as_text(id) for _, id in in_order(options.get("Undisplayed"))}


def drawn_questions(block: Block) -> tuple[int, list[str]]:
    """Return how many questions a block draws, and the ids of the questions to draw from.

    Returns (0, []) if the block draws no questions.
    """
    options = as_mapping(as_mapping(block.options.get("Randomization")).get("Advanced"))
    count = int(as_number(options.get("TotalRandSubset")) or 0)
    listed = [as_text(id) for _, id in in_order(options.get("RandomSubSet"))]
    if as_text(block.options.get("RandomizeQuestions")) == "RandomWithOnlyX":
        fixed = {as_text(id) for _, id in in_order(options.get("FixedOrder"))}
        listed = [id for id in block.question_ids if id not in fixed]
    return (count, listed) if 0 < count < len(listed) else (0, [])


class Treatments:
    """All treatments of a survey."""

    # A randomizer shows some of its elements (its arms) to each participant. Each combination of
    # arms is a treatment.

    def __init__(self, survey: Survey, notes: list[ImportNote]) -> None:
        self._survey, self._notes = survey, notes
        self._names: dict[ArmKey, str] = {}
        self._combinations = self._combine(survey.flow, ())
        self._sets = {
            key: frozenset(i for i, arms in enumerate(self._combinations) if key in arms)
            for key in self._names
        }
        self._varying = [
            key for key, numbers in self._sets.items() if 0 < len(numbers) < len(self._combinations)
        ]
        self._make_names_distinct()
        # The names of the treatments, in order.
        self.labels = [self._label_of_arms(arms) for arms in self._combinations]

    def condition_of(self, key: ArmKey) -> Condition:
        """Return the condition that is true if a randomizer has drawn the element `key`.

        If no randomizer decides about the element, the condition is True.
        """
        if key not in self._names:
            return True
        return any_of(InTreatments(self._sets[key], len(self._combinations)))

    # --- combinations --------------------------------------------------------------------------

    def _combine(self, elements: Sequence[Mapping[str, Any]], place: ArmKey) -> Combinations:
        # Ids may occur more than once in a flow, so the key of an arm is its position.
        found: Combinations = [()]
        for number, element in enumerate(elements):
            found = self._multiply(found, element, (*place, str(number)))
        return found

    def _multiply(
        self, found: Combinations, element: Mapping[str, Any], key: ArmKey
    ) -> Combinations:
        own = self._combine_element(element, key)
        if len(found) * len(own) > MAX_TREATMENTS:
            self._note_fixed(element, len(found) * len(own))
            own = own[:1]
        return [(*before, *more) for before in found for more in own]

    def _combine_element(self, element: Mapping[str, Any], key: ArmKey) -> Combinations:
        children = nested_list(element.get("Flow"))
        kind = as_text(element.get("Type"))
        if kind in ("Block", "Standard"):
            return self._combine_block(as_text(element.get("ID")))
        count = shown_count(element)
        if kind != "BlockRandomizer" or count == len(children):
            return self._combine(children, key)
        for number, child in enumerate(children):
            self._names[*key, str(number)] = self._arm_name(child)
        drawn: Combinations = []
        for numbers in self._drawn_arms(element, len(children), count):
            arms: Combinations = [()]
            for number in numbers:
                child_key = (*key, str(number))
                inner = self._multiply(arms, children[number], child_key)
                arms = [(*each, child_key) for each in inner]
            drawn += arms
        return drawn

    def _combine_block(self, id: str) -> Combinations:
        block = self._survey.blocks.get(id)
        count, ids = drawn_questions(block) if block else (0, [])
        if block is None or not count or ("block", id, ids[0]) in self._names:
            return [()]
        for question in ids:
            known = self._survey.questions.get(question)
            self._names["block", id, question] = known.name if known else question
        where = {"FlowID": id}
        return [
            tuple(("block", id, ids[number]) for number in numbers)
            for numbers in self._drawn_arms(where, len(ids), count)
        ]

    def _drawn_arms(
        self, element: Mapping[str, Any], count: int, shown: int
    ) -> Iterator[tuple[int, ...]]:
        draws = math.comb(count, shown)
        if draws > MAX_TREATMENTS:
            self._note_fixed(element, draws)
        return itertools.islice(
            itertools.combinations(range(count), shown), 1 if draws > MAX_TREATMENTS else None
        )

    def _note_fixed(self, element: Mapping[str, Any], count: int) -> None:
        where = as_text(element.get("FlowID")) or as_text(element.get("ID")) or "?"
        what = (
            f"its random choice, because it would make {count:,} treatments and a workbook has at "
            f"most {MAX_TREATMENTS}; all participants are shown the elements that it names first"
        )
        self._notes.append(ImportNote(where, what))

    # --- names ---------------------------------------------------------------------------------

    def _arm_name(self, element: Mapping[str, Any]) -> str:
        for name in self._names_of(element):
            text = make_plain(name, in_one_line=True).text
            text = text.replace("{", "(").replace("}", ")").replace(_JOINED, " and ")[:60].strip()
            if text.casefold() not in _UNNAMED:
                return text
        return as_text(element.get("FlowID")) or "arm"

    def _names_of(self, element: Mapping[str, Any]) -> Iterator[str]:
        kind = as_text(element.get("Type"))
        if kind in ("Block", "Standard"):
            block = self._survey.blocks.get(as_text(element.get("ID")))
            yield block.title if block else ""
        elif kind == "EmbeddedData":
            fields = nested_list(element.get("EmbeddedData"))
            given = [field for field in fields if as_text(field.get("Value"))]
            yield ", ".join(
                f"{as_text(f.get('Field'))} {as_text(f.get('Value'))}" for f in given[:3]
            )
        else:
            yield as_text(element.get("Description"))
            for child in nested_list(element.get("Flow")):
                yield from self._names_of(child)

    def _make_names_distinct(self) -> None:
        taken: set[str] = set()
        for key in self._varying:
            name = self._names[key]
            numbers = (f"{self._names[key]} ({n})" for n in itertools.count(2))
            while name.casefold() in taken:
                name = next(numbers)
            taken.add(name.casefold())
            self._names[key] = name
        # `"Warm" in treatment.label` must not hold for the treatment "Warmer".
        for number, key in enumerate(self._varying, 1):
            others = [self._names[other] for other in self._varying if other != key]
            if any(self._names[key] in other for other in others):
                self._names[key] = f"[{number}] {self._names[key]}"

    def _label_of_arms(self, arms: Sequence[ArmKey]) -> str:
        # In the order of the flow: an outer arm before those within it.
        drawn = [key for key in self._varying if key in arms]
        return _JOINED.join(self._names[key] for key in drawn) or "all"

    # --- conditions ----------------------------------------------------------------------------

    def write_numbers(self, numbers: frozenset[int]) -> str:
        """Return an expression that is true only in the treatments with the given numbers."""
        chosen: list[ArmKey] = []
        within = [key for key in self._varying if self._sets[key] <= numbers]
        covered: frozenset[int] = frozenset()
        for key in sorted(within, key=lambda key: -len(self._sets[key])):
            if not self._sets[key] <= covered:
                chosen.append(key)
                covered |= self._sets[key]
        if covered == numbers and len(chosen) <= len(numbers):
            return " or ".join(map(self._write_arm, chosen))
        return " or ".join(
            f"treatment.label == {text_literal(self.labels[n])}" for n in sorted(numbers)
        )

    def _write_arm(self, key: ArmKey) -> str:
        name, numbers = self._names[key], self._sets[key]
        if [self.labels[number] for number in numbers] == [name]:
            return f"treatment.label == {text_literal(name)}"
        return f"{text_literal(name)} in treatment.label"
