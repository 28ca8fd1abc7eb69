"""The conversation contract: the five parts of every System turn under C4 and C5."""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("Conflict", "Strategy", "Decision", "Reason", "Next step")


@dataclass(frozen=True, slots=True)
class Contract:
    """The five parts. `text` is how the System says them, one part a line."""

    conflict: str
    strategy: str
    decision: str
    reason: str
    next_step: str

    @property
    def text(self) -> str:
        values = (self.conflict, self.strategy, self.decision, self.reason, self.next_step)
        return "\n".join(f"{p}: {_sentence(v)}" for p, v in zip(PARTS, values, strict=True))


def conflict_part(topic: str, has_conflict: bool) -> str:
    """The conflict part for a topic: "Conflict is present in cuisine preferences"."""
    where = f"{topic.removesuffix('_preference').replace('_', ' ')} preferences"
    return f"Conflict is present in {where}" if has_conflict else f"No conflict in {where}"


def _sentence(text: str) -> str:
    """One line that ends like a sentence; empty parts say so."""
    line = " ".join(text.split()) or "None stated"
    return line if line[-1] in ".!?" else f"{line}."


def follows_contract(text: str) -> bool:
    """Whether a System turn has the five parts, each with words, in order."""
    lines = text.split("\n")
    return len(lines) == len(PARTS) and all(
        line.startswith(f"{part}: ") and line[len(part) + 2 :].strip()
        for part, line in zip(PARTS, lines, strict=True)
    )
