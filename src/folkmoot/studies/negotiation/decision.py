"""What one decision of one group under one condition consists of, from preferences to the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.studies.negotiation.operators import Outcome, Portion
from folkmoot.studies.negotiation.slots import slot_of
from folkmoot.studies.negotiation.strategies import Clamped, Strategy
from folkmoot.studies.negotiation.subgroups import NO_SPLIT, Flags, Split
from folkmoot.studies.negotiation.tally import Ballot

SYSTEM = "System"


@dataclass(frozen=True, slots=True)
class Line:
    """One turn of a dialogue: who says what, with which intent, in which phase and topic."""

    speaker: str
    intent: str
    text: str
    phase: str
    topic: str
    round: int | None = None
    finish: str | None = None  # how the reply ended that holds the words; None for ours

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "speaker": self.speaker,
            "intent": self.intent,
            "text": self.text,
        }
        if slot_of(self.topic) != self.topic:
            row["decision"] = self.topic
        return row


@dataclass(frozen=True, slots=True)
class FeedbackRound:
    """One round of feedback: who was asked, whether it settled the matter, what changed."""

    round: int
    target: str
    targeted: bool
    resolved: bool
    question: str
    updated_explanation: str
    revised_decision: str
    refused: tuple[str, ...] = ()
    parse_error: bool = False


@dataclass(frozen=True, slots=True)
class SlotDecision:
    """The whole audit trail of one decision.

    `source` says what settled it: single_user, preferences, synthesis, operator, vote or
    feedback. `rung` is where the synthesis reply was read (`minimal`: it was not, and the
    protocol's minimal structure stands). `outcome` is the operator's; `portions` what finally
    holds, after feedback.
    """

    topic: str
    source: str
    has_conflict: bool
    resolution_text: str
    conflict_description: str = ""
    proposal: str = ""
    strategy: Strategy | None = None
    clamped: Clamped | None = None
    options: tuple[str, ...] = ()
    outcome: Outcome | None = None
    portions: tuple[Portion, ...] = ()
    selected_option: str | None = None
    ballots: str = "none"
    cast: Mapping[str, Ballot] = field(default_factory=dict)
    vote_summary: Mapping[str, Any] | None = None
    coverage: Mapping[str, Any] | None = None
    flags: Flags = NO_SPLIT
    split: Split | None = None
    feedback: tuple[FeedbackRound, ...] = ()
    lines: tuple[Line, ...] = ()
    rung: str = ""
    dropped_lines: int = 0

    @property
    def slot(self) -> str:
        return slot_of(self.topic)

    @property
    def parse_error(self) -> bool:
        return self.rung == "minimal"

    @property
    def resolved(self) -> bool | None:
        """Whether feedback ended in agreement; None where there was none."""
        return self.feedback[-1].resolved if self.feedback else None

    @property
    def words(self) -> int:
        """Words spoken to come to this decision, stated preferences left out."""
        return sum(len(line.text.split()) for line in self.lines if line.phase != "preference")

    def with_lines(self, lines: Sequence[Line]) -> SlotDecision:
        return replace(self, lines=(*self.lines, *lines))
