"""Run studies: from a study file to a finished run folder, once or many times.

Start with `runner`, then `execution`, which is one process of a run.
"""

# This folder imports everything in the engine. Nothing in the engine imports this folder.
