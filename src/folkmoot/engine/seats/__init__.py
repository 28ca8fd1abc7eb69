"""Humans in a run: seats, tables of what humans say, and the withdrawal of a human.

A seat is a participant that a human can play in place of a model.

- `seats`: the participants that humans can play. Start here.
- `seat_manager`: delivers questions to humans and collects the answers.
- `lobby`: gives seats to people who come by one shared link.
- `activity`: what the human in a seat does now.
- `question_view`: the content of one page.
- `questionnaire`: the checks, and the questions after the protocol.
- `utterances`: the tables of utterances and self-descriptions.
- `withdrawal`: deletes a human's texts from a run.
- `personal_texts`: finds a human's texts in the journal.
- `redaction`: finds and replaces a human's texts in tables and files.
- `json_texts`: reads and changes the texts in JSON data.

This folder imports `journal`. The pages in `folkmoot.view` and the rest of the engine import this
folder.
"""
