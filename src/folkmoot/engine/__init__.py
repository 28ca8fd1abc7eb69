"""The engine: run a study, journal every model call, resume, replay and verify runs.

Start with `run.runner`. Each folder says in its `__init__` which folders it imports. A folder
imports only from folders that come before it in this list: limits, journal, seats, settings, calls,
session, study, cluster, run.
"""
