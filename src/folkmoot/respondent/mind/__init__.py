"""The mind of the embedded respondent: what it reads and how it decides, for one reply.

Start with `mind`. `passages` finds the texts of known source in a request, and `reading` finds the
arguments in these texts. `persona` holds the traits of the person who answers. `draws` makes random
draws, `knobs` holds the settings, and `lexicon` and `speech` hold the vocabulary. `scales`
recognises rating scales. `part` is the interface for study types.
"""
