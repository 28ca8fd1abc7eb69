"""The modules that run a discussion.

- `table`: runs a question.
- `moderator`: asks questions and chooses who answers.
- `in_private`: asks participants without the others.
- `reading`: codes the answers.
- `character`: finds replies that are out of character.
- `views`: finds the product and the views in a prompt, for the embedded respondent.
"""
