"""The journal: every paid-for effect of a run, once, at its structural address.

Start with `journal` (what is kept and read back), then `journal_file` (the SQLite schema).
`integrity` holds the hashes and the one check of them; `journal_loans` says what may be out;
`journal_copy` copies entry by entry for repairs and withdrawals; `shards` are the journals of a
cluster's workers until they are merged.

Imports limits, models and storage; every other folder of the engine may import it.
"""
