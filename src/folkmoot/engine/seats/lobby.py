"""The lobby: who gets which seat, how people return, and when the study starts.

A seat is a participant that a human can play. One shared link leads all humans to the lobby. Models
play the seats that stay free.
"""

# A person who returns is recognised by a cookie, by a return code, or by the id that a recruitment
# site puts into the link. Cookies and codes are kept as hashes only. A name is no proof, because
# two people may have the same name.

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from folkmoot.randomness import digest

# Letters and digits that are hard to confuse when copied from a screen or a blackboard.
CODE_LETTERS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
# Ten of 31 letters are 49 bits: too many to guess over the network, few enough to write down.
CODE_LENGTH = 10
# 192 bits, like the tokens of links.
VISIT_BYTES = 24
MAX_NAME_CHARACTERS = 100
# What recruitment sites use as ids. A placeholder that the site did not fill in, such as
# {{%PROLIFIC_PID%}}, is the same for all and must not count as an id.
_PLATFORM_ID = re.compile(r"[\w.@+-]{1,200}")


def make_code() -> str:
    """Return a random code that people can copy by hand."""
    return "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))


def is_platform_id(given: str) -> bool:
    """Return whether a text looks like an id of a recruitment site."""
    return _PLATFORM_ID.fullmatch(given) is not None


def digest_code(code: str) -> str:
    """Return the hash of the code with which a person can return to their seat.

    Spaces, hyphens and case in the code are ignored.
    """
    return digest("code", "".join(char for char in code.upper() if char.isalnum())).hex()


def digest_visit(visit: str) -> str:
    """Return the hash of the secret in a person's cookie."""
    return digest("visit", visit).hex()


@dataclass(frozen=True, slots=True)
class Occupant:
    """The person in a seat.

    The secret in the person's cookie and the code for returning to the seat are stored as hashes.
    """

    visit: str
    code: str = ""


@dataclass(eq=False)
class Lobby:
    """The seats that people can enter by the shared link of a run, until the study starts."""

    # The secret part of the entry link, short enough to be copied by hand. A person who guesses the
    # token can only take a free seat.
    token: str
    # The seats in the order in which they are given out.
    order: Sequence[str]
    # The time from the first arrival to the start.
    seconds: float
    # The people in the seats.
    occupants: dict[str, Occupant] = field(default_factory=dict)
    # Set when no more people can enter.
    started: asyncio.Event = field(default_factory=asyncio.Event)
    # Seconds until the start. None while the lobby is empty, and after the start.
    left: float | None = None

    def __post_init__(self) -> None:
        self._update_clock()

    @property
    def is_open(self) -> bool:
        """True until the study starts."""
        return not self.started.is_set()

    def find_visit(self, visit: str) -> str:
        """Return the seat of the person with this cookie, or an empty string."""
        wanted = digest_visit(visit) if visit else ""
        return next((name for name, who in self.occupants.items() if who.visit == wanted), "")

    def find_code(self, code: str) -> str:
        """Return the seat of the person who was given this code, or an empty string."""
        wanted = digest_code(code)
        return next((name for name, who in self.occupants.items() if who.code == wanted), "")

    def next_free_seat(self, closed: Collection[str]) -> str:
        """Return the seat for the next person, or an empty string if none is free."""
        if not self.is_open:
            return ""
        free = (name for name in self.order if name not in self.occupants and name not in closed)
        return next(free, "")

    def admit(self, name: str, visit: str, code: str) -> None:
        """Give a free seat to a person.

        - `visit`: the secret in the person's cookie.
        - `code`: the code with which the person can return to the seat.
        """
        self.occupants[name] = Occupant(digest_visit(visit), digest_code(code))
        self._update_clock()

    def release(self, name: str) -> None:
        """Free the seat of a person who leaves before the study starts."""
        self.occupants.pop(name, None)
        self._update_clock()

    def start(self) -> None:
        """Start the study, so that no one can enter any more."""
        self.left = None
        self.started.set()

    def advance_clock(self, seconds: float) -> None:
        """Subtract the time that has passed, and start the study when no time is left."""
        if self.left is not None:
            self.left -= seconds
            if self.left <= 0:
                self.start()

    def _update_clock(self) -> None:
        # A researcher may start a run long before the lesson, so the first arrival starts the
        # clock. When all have left again, it waits for the next arrival.
        if not self.is_open or not self.occupants:
            self.left = None
        elif self.left is None:
            self.left = self.seconds


def restore_occupants(seats: Mapping[str, Mapping[str, str]]) -> dict[str, Occupant]:
    """Return the people in the seats, as recorded by an earlier process of the run."""
    return {
        name: Occupant(seat["visit"], seat.get("code", ""))
        for name, seat in seats.items()
        if seat.get("visit")
    }
