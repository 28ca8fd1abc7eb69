"""What a study type declares about its decisions, so that controls can compare their answers."""
# The table `exposure` (`kit.exposure`) lists the decisions themselves. These declarations hold for
# every run with the same settings, whatever was answered in it.

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from folkmoot.provenance import Source
from folkmoot.storage.run_folder import RunFolder

# (name of a decision, its address) → the question that it answers.
QuestionOf = Callable[[str, str], str]


def name_as_question(name: str, _address: str) -> str:
    """Return the name of a decision as the question that it answers."""
    return name


@dataclass(frozen=True, slots=True)
class DecisionDesign:
    """The design behind the decisions of a study type, as `Study.decision_design` declares it."""

    # Returns the independent unit of a unit in the table `exposure`. The two differ if the same
    # participants pass through several units, such as the same session in several experiments.
    independent_unit: Callable[[str], str] = lambda unit: unit
    # Decisions that participants make apart from the treatment, such as after an interview without
    # the group: name of the decision → the word for it in the column `moment` of control answers.
    # They are neither the first nor the final decision of a condition.
    apart: Mapping[str, str] = field(default_factory=dict)
    # Returns, for the settings of a run, the kinds of text in the table `exposure` that all
    # conditions show alike. They are no treatment, also if some prompts of a condition were never
    # sent because of what was answered before.
    alike: Callable[[Any], Collection[str]] = lambda _config: ()
    # Returns the kind of a text in the table `exposure`, or "" for a text that it does not count. A
    # session that is run again may take another path and show texts that the run did not have.
    kind_of_text: Callable[[Source], str] = lambda _source: ""
    # Returns a function of the name and the address of a decision in the table `exposure`, which
    # returns the question that the decision answers. Controls compare a participant's first
    # decision with the final one only if both answer one question.
    questions: Callable[[RunFolder], QuestionOf] = lambda _run: name_as_question
