"""Replies of the embedded respondent by the form that is asked for.

Start with `answering` (options, numbers, text); `filling` writes JSON by its schema. `roles` are
those who are no participants, `coder` codes texts, `people` writes personas, and `pathologies`
spoil replies in the ways of bad models, where a knob asks for it.
"""
