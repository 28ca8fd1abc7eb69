"""Estimates with intervals and tests, and verdicts on claims.

Start with `claims`: a claim is one comparison with a verdict. `estimates` has the common result
type.
`proportions`, `paired_votes`, `clustered`, `factorial` and `regression` hold estimators.

`storage` and every folder above it may import this folder.
"""
