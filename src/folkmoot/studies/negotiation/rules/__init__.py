"""The rules of a negotiation that are fixed in advance, as pure functions without model calls.

`strategies` defines topics, groups and conditions and assigns a strategy to each pair of group type
and topic. `tally` scores the options in texts and ballots. `operators` decide from a tally.
`vocabulary` holds the values that replies may name, and `replies` the answer types and their
parsers.
"""
