"""Estimates with intervals and tests, and verdicts on claims.

Start with `claims`: a claim is one comparison with a verdict. `estimates` has the result type that
all measures share. `families` judges the claims of a report together. `differences` chooses the
method of a comparison. `proportions`, `paired_votes`, `clustered`, `factorial` and `regression`
hold estimators.

`storage` and every folder above `storage` may import this folder.
"""
