"""The modules that run a discussion.

- `table`: asks one question and collects the answers.
- `moderator`: asks questions and chooses who answers.
- `in_private`: asks each participant in private.
- `reading`: codes the answers.
- `character`: finds replies that are out of character.
- `views`: finds the product and the participants' views in a prompt, for the built-in rules that
  answer in place of a model.

No other study type imports this package.
"""
