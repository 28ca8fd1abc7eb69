"""The journal: the result of every paid call and computation of a run, under its address.

Start with `journal`, then `journal_file` and `journal_reader`.
"""

# Imports limits, models and storage. Every other folder of the engine may import this folder.
