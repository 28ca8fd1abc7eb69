"""A run beside other runs, beside human data or beside a plan.

Start with `compare`, which uses `between_runs` and `measured_claims` to compare two runs. `samples`
reads runs and files of human answers, and `people` compares both. `mixed` compares humans and
models within one run. `pooled` joins the runs of a grid, and `forks` compares a fork with its run.
`power` and `simulated_power` plan a run.
"""
