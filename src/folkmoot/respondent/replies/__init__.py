"""The replies of the rule-based embedded respondent, by the kind of the answer.

- `answering`: options, numbers and text. Start here.
- `filling`: JSON according to a schema.
- `roles`: texts of speakers other than participants.
- `coder`: codes of texts.
- `people`: personas.
- `pathologies`: typical faults of weak models, if a setting asks for them.

Only `respondent` and the workbook study import this folder.
"""
