"""The user's budget in money and in calls: who may still be asked, and when to say stop.

It covers the whole run over all its resumptions: what earlier sittings spent counts, replayed
calls cost nothing again. Used by the gateway.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.errors import BudgetReached

WARN_AT = 0.8
SETTLED_ENOUGH = 5  # calls after which the mean cost of a call is a better guess than a price list


class Budget:
    """Counts what is spent and what is under way; refuses the call that would go over.

    `usd` and `calls` are the limits (None: none); `spent_usd` and `spent_calls` what earlier
    sittings of this run took; `warn` is told once, at 80 %.
    """

    def __init__(
        self,
        usd: float | None = None,
        calls: int | None = None,
        *,
        spent_usd: float = 0.0,
        spent_calls: int = 0,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.usd = usd
        self.calls = calls
        self.spent_usd = spent_usd
        self.spent_calls = spent_calls
        self.active = usd is not None or calls is not None
        self._warn = warn
        self._warned = False
        self._reserved_usd = 0.0
        self._under_way = 0
        self._here_usd = 0.0
        self._here_priced = 0

    def admit(self, estimate: float | None) -> float:
        """Reserve one call and return what was reserved (USD). Raises BudgetReached.

        `estimate` is a guess from the price list; None when the price is unknown.
        """
        if self.calls is not None and self.spent_calls + self._under_way >= self.calls:
            raise BudgetReached(
                f"The budget of {self.calls} calls (budget_calls) is used up. All work is kept; "
                "resume with a larger one."
            )
        guess = self._guess(estimate)
        if self.usd is not None and (
            self.spent_usd >= self.usd or self.spent_usd + self._reserved_usd + guess > self.usd
        ):
            raise BudgetReached(
                f"The budget of {self.usd:.2f} USD (budget_usd) is used up: "
                f"{self.spent_usd:.4f} USD spent, and the next call would go over. All work is "
                "kept; resume with a larger one."
            )
        self._under_way += 1
        self._reserved_usd += guess
        return guess

    def settle(self, reserved: float, cost: float | None) -> None:
        """The call was answered: what it cost replaces what was reserved."""
        self.release(reserved)
        self.spent_calls += 1
        if cost is not None:
            self.spent_usd += cost
            self._here_usd += cost
            self._here_priced += 1
        if not self._warned and (message := self._nearly_used()):
            self._warned = True
            self._warn(message)

    def release(self, reserved: float) -> None:
        """The call came to nothing: give back what was reserved."""
        self._under_way -= 1
        self._reserved_usd = max(0.0, self._reserved_usd - reserved)

    def _guess(self, estimate: float | None) -> float:
        if self._here_priced >= SETTLED_ENOUGH:
            return self._here_usd / self._here_priced
        return estimate or 0.0

    def _nearly_used(self) -> str:
        if self.usd is not None and self.spent_usd >= WARN_AT * self.usd:
            return f"{self.spent_usd:.2f} of {self.usd:.2f} USD (budget_usd) are spent."
        if self.calls is not None and self.spent_calls >= WARN_AT * self.calls:
            return f"{self.spent_calls} of {self.calls} calls (budget_calls) are made."
        return ""
