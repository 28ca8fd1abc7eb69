"""The rules of a negotiation that are fixed in advance, as pure functions without model calls.

- `strategies`: topics, groups, conditions, and the strategy of each group type for each topic.
- `candidates`: the options on the table.
- `tally`: the scores of options in texts and ballots.
- `operators`: decisions from a tally.
- `vocabulary`: the values that replies may name.
- `replies`: the answer types and their parsers.
"""
