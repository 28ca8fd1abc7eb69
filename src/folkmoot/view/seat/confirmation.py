"""Ask for confirmation of a final step."""
# A form holds a box to tick and a digest of the state on the page.

from __future__ import annotations

from collections.abc import Mapping, Sequence

from folkmoot.engine.seats.seat_manager import (
    SeatState,
)
from folkmoot.randomness import digest
from folkmoot.view import forms

GONE_ON = "Something has changed since that page was opened. Please read it again."
NOT_TICKED = "Tick the box if you mean it."


def state_of(seat_state: SeatState) -> str:
    """Return a digest that changes when the participant joins or answers."""
    # A confirmation form sends the digest back. If it has changed, the page asks again.
    return digest(
        seat_state.seat.name, str(seat_state.has_agreed), str(seat_state.answers), size=9
    ).hex()


def problem_with_consent(sent: Mapping[str, Sequence[str]], state: str) -> str:
    """Return the reason why a submitted form does not confirm a final step.

    Returns "" if the form confirms the step.
    """
    if forms.first_of(sent, "state") != state:
        return GONE_ON
    return "" if forms.first_of(sent, "sure") == "yes" else NOT_TICKED
