"""The journal: the result of every paid call and computation of a run, stored under its address.

Start with `journal` (writing and lookup), then `journal_file` (the SQLite schema) and
`journal_reader` (all queries). `integrity` holds the hashes and their check. `journal_loans`
records how many calls may be billed but have no entry yet. `earlier_replies` serves forks.
`journal_copy` copies entries for repairs and withdrawals. `shards` are the journals of cluster
workers until they are merged.

Imports limits, models and storage. Every other folder of the engine may import this folder.
"""
