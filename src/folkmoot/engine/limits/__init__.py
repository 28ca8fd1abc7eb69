"""Limits that admit a call: the budget, the record on disk, and the rate limit.

Start with `budget`, which holds for all processes of a run.
"""

# Imports nothing of the engine. Every other folder may import this folder.
