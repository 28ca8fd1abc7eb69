"""What each model of a run was asked and cost so far; kept by the tally."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ModelUse:
    """Calls, tokens and money of one model in this process; replayed calls are none of it."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    uncounted: int = 0

    def add(
        self, input_tokens: int | None, output_tokens: int | None, cost_usd: float | None
    ) -> None:
        """One more call; None is unknown and never counts as zero."""
        self.calls += 1
        self.input_tokens += input_tokens or 0
        self.output_tokens += output_tokens or 0
        self.uncounted += input_tokens is None or output_tokens is None
        self.cost_usd += cost_usd or 0.0
        self.unpriced += cost_usd is None

    @property
    def cost(self) -> str:
        """The money in words, with what is unknown."""
        if self.unpriced and not self.cost_usd:
            return "cost unknown"
        known = f"${self.cost_usd:,.2f}" if self.cost_usd >= 0.01 else f"${self.cost_usd:.4f}"
        return ("$0" if not self.cost_usd else known) + (
            f" + {self.unpriced:,} calls of unknown cost" if self.unpriced else ""
        )

    def line(self) -> str:
        """The use in one line of plain text."""
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        if self.uncounted:
            tokens += f" + {self.uncounted:,} calls of unknown tokens"
        return f"{self.calls:,} calls · {tokens} · {self.cost}"

    def to_json(self) -> dict[str, int | float | None]:
        """For `log.jsonl`; what is unknown of a call makes the sum null."""
        return {
            "calls": self.calls,
            "input_tokens": None if self.uncounted else self.input_tokens,
            "output_tokens": None if self.uncounted else self.output_tokens,
            "cost_usd": None if self.unpriced else round(self.cost_usd, 6),
        }
