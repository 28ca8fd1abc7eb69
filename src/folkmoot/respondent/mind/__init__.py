"""How the rule-based embedded respondent reads a request and decides on one reply.

- `mind`: the person who answers. Start here.
- `passages`: the texts in a request with a known source, such as a statement or a persona.
- `reading`: the arguments in these texts.
- `persona`: the traits of the person.
- `draws`: random draws.
- `knobs`: the settings.
- `lexicon`, `speech`: the vocabulary and the sentences.
- `scales`: rating scales.
- `part`: the interface for study types.

The engine, `kit.controls` and study types import this folder.
"""
