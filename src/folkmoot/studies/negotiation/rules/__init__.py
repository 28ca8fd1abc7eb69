"""What is fixed before anybody speaks, as pure functions: no model is asked, nothing is journaled.

`strategies` names the decisions, groups and conditions and gives each pair its strategy, `tally`
counts votes in texts, and `operators` decide on a tally. `vocabulary` holds the values that replies
may name, and `replies` their forms and how they are read.
"""
