"""Measures: pure functions from arrays to numbers, one subject per file.

Start with the folder `inference`: estimates, tests and claims. `wording` makes the sentences that
report results. `bands` holds published results of human studies. None of the functions reads a file
of a run, a clock or a global random generator.

`storage` and every folder above `storage` may import this folder.
"""

# scipy and scikit-learn take seconds to import, so each function imports them when it needs them. A
# run without such measures, or a replay, does not pay for the import.
