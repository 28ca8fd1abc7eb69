"""The rules of a negotiation, as pure functions without model calls.

- `strategies`: topics, groups, conditions, and strategies.
- `candidates`: finds the options among which a group can decide.
- `tally`: scores these options by the members' texts and ballots.
- `operators`: makes decisions from the scores.
- `vocabulary`: the options, members and times that replies may name.
- `replies`: the answer types and their parsers.

Only the modules of the negotiation study type import this folder.
"""
