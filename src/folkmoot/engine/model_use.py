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

    def add(self, input_tokens: int, output_tokens: int, cost_usd: float | None) -> None:
        """One more call; a cost of None is an unknown price and never counts as zero."""
        self.calls += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cost_usd += cost_usd or 0.0
        self.unpriced += cost_usd is None

    @property
    def cost(self) -> str:
        """The money in words, with what is unknown."""
        if self.unpriced and not self.cost_usd:
            return "cost unknown"
        known = f"${self.cost_usd:,.2f}" if self.cost_usd >= 0.01 else f"${self.cost_usd:.4f}"
        return ("$0" if not self.cost_usd else known) + (
            f" + {self.unpriced:,} calls of unknown price" if self.unpriced else ""
        )

    def line(self) -> str:
        """The use in one line of plain text."""
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        return f"{self.calls:,} calls · {tokens} · {self.cost}"

    def to_json(self) -> dict[str, int | float | None]:
        """For `log.jsonl`; the cost is null where a price is unknown."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": None if self.unpriced else round(self.cost_usd, 6),
        }
