"""The engine: run a study, journal every model call, resume, replay and verify runs.

Start with `run.runner`. Each folder says in its `__init__` which folders it imports. The folders
import in one direction only, each only from those before it: limits, journal, seats, settings,
calls, session, study, cluster, run.
"""
