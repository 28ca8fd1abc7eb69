"""Humans in a run: their seats, the tables of their utterances, and their withdrawal.

Start with `seats`, which says which participants humans can play. `seat_manager` delivers questions
to humans and collects their answers. `lobby` gives seats to people who come by one shared link.
`activity` says what the human in a seat does. `question_view` is the content of one page.
`questionnaire` declares the checks and the questions afterwards. `utterances` declares the tables
of utterances and self-descriptions. `withdrawal` deletes a human's texts from a run.
`personal_texts` finds the texts, and `redaction` finds the replacements.

This folder imports the journal. The pages in `folkmoot.view` and the rest of the engine import this
folder.
"""
