"""Measures: pure functions from arrays to numbers, one subject per file.

Studies and reports call these functions. None of them reads a file, a clock or a global random
generator.
"""

# scipy and scikit-learn take seconds to import, so each function imports them when it needs them. A
# run without such measures, or a replay, does not pay for the import.
