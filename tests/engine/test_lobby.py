"""The lobby of an open entry: its clock starts with the first arrival."""

from __future__ import annotations

from folkmoot.engine.seats.lobby import Lobby

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
