"""The journal of a run: the result of every paid call and computation, each under its address.

- `journal`: writes and looks up entries. Start here.
- `journal_file`: the SQLite file.
- `journal_reader`: all queries.
- `integrity`: the hashes and their check.
- `journal_loans`: counts calls that may be billed but have no entry yet.
- `earlier_replies`: the entries that a fork copies from the run that the fork repeats.
- `journal_copy`: copies entries for repairs and withdrawals.
- `shards`: the journals of cluster workers until they are merged.

This folder imports `limits`, `models` and `storage`. The rest of the engine may import it.
"""
