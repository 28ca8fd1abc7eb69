"""Estimates with intervals and tests, and verdicts on claims.

Start with `claims`: a claim is one comparison with a verdict. `estimates` has the common result
type.
`families` judges the claims of a report together. `differences` chooses the method of a comparison.
`proportions`, `paired_votes`, `clustered`, `factorial` and `regression` hold estimators.

`storage` and every folder above it may import this folder.
"""
