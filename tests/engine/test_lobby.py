"""The lobby of an open entry: its clock starts with the first arrival."""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.seats.lobby import Lobby
from folkmoot.engine.seats.seat_manager import SeatManager
from folkmoot.engine.seats.seats import Seat, SeatSettings
from folkmoot.storage.run_folder import SEATS as SEATS_FILE

SEATS = ("talk/p_0001", "talk/p_0002")


def test_clock_starts_with_the_first_arrival_and_pauses_in_an_empty_lobby() -> None:
    lobby = Lobby("token", SEATS, seconds=3.0)
    lobby.advance_clock(4.0)
    assert lobby.is_open and lobby.left is None
    lobby.admit(SEATS[0], "cookie", "CODE")
    lobby.advance_clock(2.0)
    assert lobby.is_open and lobby.left == 1.0
    lobby.admit(SEATS[1], "another cookie", "OTHER")
    assert lobby.left == 1.0  # a later arrival adds no time
    lobby.release(SEATS[0])
    lobby.release(SEATS[1])
    lobby.advance_clock(4.0)
    assert lobby.is_open and lobby.left is None
    lobby.admit(SEATS[0], "cookie", "CODE")
    lobby.advance_clock(3.0)
    assert not lobby.is_open and lobby.left is None
    assert lobby.next_free_seat(()) == ""


def test_messages_to_a_human_who_leaves_the_lobby_are_not_shown_to_the_next(
    tmp_path: Path,
) -> None:
    manager = SeatManager([Seat("p_1"), Seat("p_2")], SeatSettings(open=True), tmp_path)
    first = manager.admit("cookie", {"name": "Kim"})
    assert first is not None
    manager.announce("Kim, please wait.", first.seat.name)
    manager.announce("Welcome, all.")
    manager.release_seat(first)
    following = manager.admit("another cookie", {"name": "Lee"})
    assert following is first
    manager.save_state()
    assert [given["text"] for given in manager.announcements_for(following)] == ["Welcome, all."]
    assert "Kim" not in (tmp_path / SEATS_FILE).read_text("utf-8")
