"""What the embedded respondent knows and thinks, for one reply.

Start with `mind`. `passages` are the texts of known source in a request, `reading` the arguments
in them, `persona` who answers. `draws` are counter-based, `knobs` the planted sizes, `lexicon` and
`speech` the words, `scales` the rating scales, `part` what a study type tells the respondent.
"""
