"""What the human in a seat does now: wait, read, write, or nothing. The researcher sees this."""

# The page of a seat reports only times, never the text. The reports are kept in memory only.

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
    """The activity on the page of one seat, as the list of seats shows it to the researcher.

    All times are seconds. A time that the page has not reported is None.
    """

    # Seconds of the seat manager's clock, reported in this process.

    # The time of the page's last report.
    asked_at: float | None = None
    # The time at which the human last used pointer or keyboard or scrolled.
    moved_at: float | None = None
    # The time of the last change of the answer.
    typed_at: float | None = None

    def note(self, now: float, idle: float | None, typed: float | None) -> None:
        """Record when the human in the seat was last active and last typed.

        `idle` and `typed` are seconds before `now`, or None if unknown.
        """
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
