"""Estimates with intervals and tests, and the claims that are judged by them.

Start with `claims`, one comparison and its verdict. `estimates` has the common result type.
`proportions`, `paired_votes`, `clustered`, `factorial` and `regression` hold estimators.
"""
