"""The mind of the embedded respondent: what it reads and thinks for one reply.

Start with `mind`. `passages` holds the texts of known source in a request, `reading` the arguments
in them, and `persona` the person who answers. `draws` are counter-based random draws. `knobs` holds
the planted effect sizes. `lexicon` and `speech` hold the vocabulary, and `scales` the rating
scales. `part` is the interface for study types.
"""
