"""What is measured: pure functions from plain arrays to numbers, one subject a file.

Studies and the report call these; none of them reads a file, a clock or a global generator.
scipy and scikit-learn take seconds to import, so they are imported inside the functions that need
them: a run that only talks, or a replay, never pays for them.
"""
