"""The answer types of a town hall, from private thoughts to votes and the closing text.

Start with `turns`: thoughts, statements and reflections of residents. `outcome` holds moderation,
ballot, votes, closing text and satisfaction. `shared_replies` are replies for several residents.
`records` holds the base class of all answers, and `options` the options of closed fields. Fields
have the names of the source. `calls` holds the record of each answer, and `heard_statements` what
the embedded respondent reads before it answers.

The types are strict, and `repairs` corrects looser replies before they are validated. The
descriptions in `pin_schema` and in fields are sent to models as part of JSON schemas. The other
modules of the study import this package, and it imports none of them.
"""
