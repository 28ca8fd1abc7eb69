"""The replies of the embedded respondent, by the kind of the answer.

Start with `answering` (options, numbers, text). `filling` writes JSON according to a schema.
`roles` writes for speakers other than participants, `coder` codes texts, and `people` writes
personas. `pathologies` adds typical faults of weak models if a setting asks for them.
"""
