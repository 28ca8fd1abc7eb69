"""The pages of the seats, on which human participants read and answer.

A seat is the place of one participant in a study, which a human can take in place of a model.

- `pages`: where to start.
- `question_page`: shows a question and reads its form.
- `researcher`: the researcher's page on all seats.
- `serving`: runs the server.

Only the command line imports this folder.
"""
# The command line and programs in Python import this folder.

from folkmoot.view.seat.pages import create_seat_app
from folkmoot.view.seat.serving import build_seat_host

__all__ = ["build_seat_host", "create_seat_app"]
