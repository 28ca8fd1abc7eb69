"""Reading and deciding: how the embedded respondent reads a request and decides on one reply.

The embedded respondent answers by rules in place of a model.

- `mind`: the person who answers. Start here.
- `passages`: the texts of known source in a request, such as an utterance or a persona.
- `reading`: the arguments in these texts.
- `persona`: the traits of the person.
- `draws`: random draws.
- `knobs`: the settings.
- `lexicon`, `speech`: the vocabulary and the sentences.
- `scales`: rating scales.
- `part`: the interface for study types.

The engine, `kit.controls` and study types import this folder.
"""
