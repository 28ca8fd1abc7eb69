"""The rules of a negotiation, as pure functions without model calls.

- `strategies`: topics, groups, conditions, and strategies.
- `candidates`: the options that can be decided.
- `tally`: the scores of options in texts and ballots.
- `operators`: decisions from these scores.
- `vocabulary`: the values that replies may name.
- `replies`: the answer types and their parsers.

Only this study type imports it.
"""
