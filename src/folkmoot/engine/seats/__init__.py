"""People in a run: the seats that they take, what was said, and how a person withdraws.

Start with `seats` (who can be played by a person); `seat_manager` is where questions to people
wait for an answer. `utterances` are the tables of what was said. `withdrawal` deletes a person's
words from a run, with the replacements that `redaction` makes.

Imports the journal; the pages in `folkmoot.view` and the rest of the engine import it.
"""
