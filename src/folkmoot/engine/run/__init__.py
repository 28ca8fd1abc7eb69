"""Runs: from a study file to a finished folder, once or many times.

Start with `runner` (what `folkmoot.run` calls), then `execution` (one process of a run, however it
ends). `preflight`, `dry_run` and `forecast` tell what a run needs before and while it spends;
`grid` repeats a study over seeds and settings; `verify` and `repair` check finished runs.

Imports everything in the engine; nothing in the engine imports it.
"""
