"""Compare a run with other runs, with human data or with a plan.

- `compare`: compares runs with each other. Start here.
- `samples`: reads runs and files of human answers.
- `measured_claims`: reads the values of the measures that claims are about.
- `between_runs`: compares measures and effects of two runs.
- `people` and `bands`: compare a run with human answers.
- `mixed` and `seat_checks`: compare humans and models within one run.
- `pooled`, `figures` and `matrix`: combine the runs of a grid. A grid runs one study many times,
  with repeats and varied settings.
- `forks`: compares a fork with the run that it repeats.
- `power` and `simulated_power`: plan the size of a run.

The command line, the pages, the Python interface and `report.document` import this folder.
"""
