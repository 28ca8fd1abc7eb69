"""Manage the seats of humans in a run, and wait until the humans have arrived."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from folkmoot.engine.calls.progress import Notice
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.seats.seats import Seat, entry_order
from folkmoot.engine.session.plan import LOBBY, Plan
from folkmoot.engine.session.run_context import RunContext
from folkmoot.engine.settings.config import StudyConfig


def create_seat_manager(
    config: StudyConfig, seats: Sequence[Seat], folder: Path, readers: tuple[str, ...], plan: Plan
) -> SeatManager:
    """Return the manager of `seats`."""
    # If the plan already names the humans who have arrived, the study starts with them at once.
    assert config.seats is not None
    ordered_seats = entry_order(seats, config.random_seed) if config.seats.open else seats
    seat_manager = SeatManager(ordered_seats, config.seats, folder, readers)
    if lobby_data := plan.sealed_part(LOBBY):
        seat_manager.go_on_with(cast("list[str]", lobby_data["seats"]))
    return seat_manager


async def seat_arrivals(context: RunContext) -> None:
    """Wait until people have joined by the shared link, and write their seats to `plan.json`."""
    # A resume and a replay use the seats in this file. A dry run has no pages, so models take all
    # seats.
    seat_manager, sealed = context.seat_manager, context.plan.sealed_part(LOBBY)
    if not sealed and seat_manager is not None and seat_manager.lobby is not None:
        context.progress(Notice(f"waiting for people: {len(context.seats)} seats are open"))
        await context.gateway.wait_until_set(seat_manager.lobby.started)
        sealed = {"seats": sorted(seat_manager.human_seats)}
        context.plan.seal_part(LOBBY, sealed)
        # Written at once: people must keep their seats if the process ends before the first call.
        context.plan.write_plan()
        context.progress(
            Notice(f"people have taken {len(seat_manager.human_seats)} of the open seats")
        )
    humans = cast("Sequence[str]", sealed.get("seats", ()))
    context.seat_humans([seat for seat in context.seats if seat.name in humans])
