"""Who is still to answer the question on the table; the simulator takes the next from here."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.studies.focus_group.participant import Participant


@dataclass
class Queue:
    """Those who are still to answer a question, within its limits."""

    waiting: list[Participant]
    most: int
    fewest: int
    must: set[str]
    answers: int = 0
    taken: int = 0
    probed: bool = False

    def next(self) -> Participant | None:
        """The next to speak, if anybody is waiting."""
        if not self.waiting:
            return None
        self.taken += 1
        return self.waiting.pop(0)

    def room_for_probe(self) -> bool:
        """Whether a further answer of the same person fits in: one probe a question, the most
        answers not passed, the fewest people still heard.
        """
        if self.probed:
            return False
        full = self.answers + len(self.waiting) >= self.most
        return not full or self._droppable() is not None

    def make_room(self) -> None:
        """Take out the last who can wait where the probe would make too many answers."""
        self.probed = True
        if self.answers + len(self.waiting) >= self.most:
            who = self._droppable()
            if who is not None:
                self.waiting.remove(who)

    def _droppable(self) -> Participant | None:
        if self.taken + len(self.waiting) <= self.fewest:
            return None
        free = [p for p in self.waiting if p.id not in self.must]
        return free[-1] if free else None
