"""The replies of the embedded respondent, by the form of the answer.

Start with `answering` (options, numbers, text). `filling` writes JSON by its schema. `roles` writes
for speakers who are no participants, `coder` codes texts and `people` writes personas.
`pathologies` damages replies in the ways of bad models, if a setting asks for it.
"""
