"""The pages of the seats, on which human participants read and answer."""
# Start with `pages`. `question_page` shows a question and reads its form. `serving` runs the
# server. The command line and programs in Python import this folder.

from folkmoot.view.seat.pages import create_seat_app
from folkmoot.view.seat.serving import build_seat_host

__all__ = ["build_seat_host", "create_seat_app"]
