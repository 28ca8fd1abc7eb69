"""The rules of a negotiation that are fixed in advance, as pure functions without model calls.

`strategies` defines topics, groups, conditions and the strategy of each group type for each topic.
`candidates` collects the options on the table, and `tally` scores them in texts and ballots.
`operators` decides from a tally. `vocabulary` holds the values that replies may name, and `replies`
the answer types and their parsers.
"""
