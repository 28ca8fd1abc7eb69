"""A run beside something else: another run, people, many runs, a run that is not made yet.

Start with `compare` (two runs, by `between_runs` and `measured_claims`). `people` and `samples` set
a run beside data of people, `mixed` corrects it by them, `pooled` joins the runs of a grid, `power`
and `simulated_power` plan one.
"""
