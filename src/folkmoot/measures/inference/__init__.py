"""Estimates with intervals and tests, and the claims that choose among them.

Start with `claims` (one comparison and its verdict). `estimates` has the common result type.
`proportions`, `paired_votes`, `clustered`, `factorial` and `regression` hold estimators.
`distributions` has quantiles and p-values. `rectified` corrects simulated answers by human answers.
`power` plans sample sizes, and `specification_curve` tests a claim over many specifications.
"""
