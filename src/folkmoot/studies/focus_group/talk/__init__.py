"""The parts of a discussion.

`moderator` asks and gives the floor, and `table` runs a question. `in_private` asks participants
without the others. `reading` codes the answers. `character` finds replies that are out of
character. `views` is what the embedded respondent reads in a prompt.
"""
