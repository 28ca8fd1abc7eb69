"""The answer types of a town hall.

- `turns`: thoughts, statements and reflections of residents. Start here.
- `outcome`: moderation, ballot, votes, closing text and satisfaction.
- `shared_replies`: replies for several residents.
- `records`: the base class of all answers.
- `options`: the options of fields that allow only listed values.
- `calls`: the record of each answer.
- `heard_statements`: the statements that a prompt shows, as the built-in rules read them.
- `repairs`: corrections of replies before validation.

No other study type imports this package.
"""

# The texts in `pin_schema` and in field descriptions are sent to models. This package imports no
# other module of the study.
