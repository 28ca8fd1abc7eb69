"""Run studies: from a study file to a finished run folder, once or many times.

Start with `runner`, which `folkmoot.run` calls. Then read `execution`, which is one process of a
run. `dry_run` estimates calls and tokens with the `counting_provider`. `preflight` checks the
models of a run. `forecast` predicts its cost while it runs. `grid` runs a study over seeds
and settings. `fork` repeats a run with one reply changed. `verify` and `repair` check finished
runs.

This folder imports everything in the engine. Nothing in the engine imports this folder.
"""
