"""What is thought, said, written and voted at a meeting: typed answers with the source's fields.

Start with `turns`: what residents think, say and look back on. `outcome` has moderation, ballot,
votes, closing text and satisfaction, `records` the base of all answers, `options` those of closed
fields. The types are strict. What a model writes more loosely is repaired on the way in
(`repairs`). The descriptions in `pin_schema` and of fields are part of the JSON schemas that go
with the requests. The modules of the study import these, and they import none of them.
"""
