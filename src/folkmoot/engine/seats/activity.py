"""What the researcher sees of a seat: whether its human waits, reads, writes, or has been idle.

The page of the seat says how many seconds ago its human moved and typed, never what. It is kept in
memory only.
"""

from __future__ import annotations

from dataclasses import dataclass

# An open page asks for news every second, every five seconds in a hidden tab, and browsers slow
# down timers of hidden tabs to one a minute.
AWAY_SECONDS = 75.0
WRITING_SECONDS = 20.0
# People read a long history without touching anything.
IDLE_SECONDS = 120.0


@dataclass(slots=True)
class PageActivity:
    """The moments at which the page of a seat last asked, and its human last moved and typed.

    All are seconds of the seat manager's clock, and None if it has not happened in this process.
    """

    asked_at: float | None = None
    moved_at: float | None = None
    typed_at: float | None = None

    def note(self, now: float, idle: float | None, typed: float | None) -> None:
        """Note that the page has asked. `idle` and `typed` are seconds ago, None if unknown."""
        self.asked_at = now
        if idle is not None:
            self.moved_at = now - idle
        self.typed_at = None if typed is None else now - typed

    def describe(self, now: float, *, has_question: bool) -> str:
        """Describe what the human in the seat does now."""
        if self.asked_at is None:
            return "page is closed"
        if now - self.asked_at > AWAY_SECONDS:
            return f"page is closed since {_format_minutes(now - self.asked_at)}"
        if not has_question:
            return "waiting"
        if self.typed_at is not None and now - self.typed_at <= WRITING_SECONDS:
            return "writing"
        idle = now - (self.asked_at if self.moved_at is None else self.moved_at)
        return "reading" if idle <= IDLE_SECONDS else f"idle since {_format_minutes(idle)}"


def _format_minutes(seconds: float) -> str:
    minutes = max(1, int(seconds // 60))
    return f"{minutes} minute{'s' * (minutes > 1)}"
