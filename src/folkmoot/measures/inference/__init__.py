"""Estimates with intervals and tests, and the claims that choose among them.

Start with `claims` (one statement of a comparison and its verdict). `estimates` has the type that
all return; `proportions`, `paired_votes`, `clustered`, `factorial` and `regression` estimate;
`rectified` corrects by people, `power` plans, `specification_curve` joins many specifications.
"""
