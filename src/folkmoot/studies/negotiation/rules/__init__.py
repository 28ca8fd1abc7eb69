"""The rules of a negotiation that are fixed in advance, as pure functions without model calls.

`strategies` defines topics, groups and conditions and assigns a strategy to each pair of group type
and topic. `candidates` collects the options on the table, and `tally` scores them in texts and
ballots. `operators` decide from a tally. `vocabulary` holds the values that replies may name, and
`replies` the answer types and their parsers.
"""
