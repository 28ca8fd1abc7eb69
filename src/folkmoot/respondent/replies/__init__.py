"""The replies of the embedded respondent, which answers by rules in place of a model.

- `answering`: replies that are an option, a number or a text. Start here.
- `filling`: JSON objects that follow a schema.
- `roles`: texts of speakers who are not participants, such as moderators.
- `coder`: the codes of texts.
- `people`: personas.
- `pathologies`: simulated faults of weak models. They are off unless a setting switches them on.

Only `respondent` and the workbook study import this folder.
"""
