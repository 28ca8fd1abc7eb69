"""Compare a run with other runs, with human data or with a plan.

Start with `compare`, which uses `between_runs` and `measured_claims` to compare two runs. `samples`
reads runs and files of human answers, and `people` compares a run with such a file. `mixed`
compares humans and models within one run. `pooled` joins the runs of a grid, and `forks` compares a
fork with its run. `power` and `simulated_power` plan a run."""
