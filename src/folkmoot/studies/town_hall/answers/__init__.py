"""The answer types of a town hall, from private thoughts to votes and the closing text.

Start with `turns`: thoughts, statements and reflections of residents. `outcome` holds moderation,
ballot, votes, closing text and satisfaction. `shared_replies` holds replies for several residents.
`records` has the base class of all answers, and `options` the options of closed fields. `calls` has
the record of each answer. `heard_statements` has the statements that the embedded respondent reads.

The types are strict, and `repairs` corrects looser replies before they are validated. The texts in
`pin_schema` and in field descriptions are sent to models. This package imports no other module of
the study.
"""
