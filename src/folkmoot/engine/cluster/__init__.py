"""A run on several machines, by Ray: workers run shares of the parts of `map`, each of them the
same engine with a loop, connections and a journal shard of its own (docs/decisions/0057)."""
