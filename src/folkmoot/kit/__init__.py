"""Building blocks that study types share.

- `findings` and `claims`: turn estimates and planned comparisons into findings.
- `coding`: turns free text into data.
- `controls`: checks that an effect has the assumed cause.
- `named_controls`: runs a study and the controls that its file names.
- `exposure`: records which texts each prompt contained.
- `sources`: checks where the texts in prompts come from.
- `reply_units`: finds the conversations of a run, the units of its replies.
- `retest`: asks one question twice.
- `run_below`: runs a study about a finished run.
- `calls`: reads usage and cost of calls.
- `polis`: reads a Polis export.
- `base_personas`: the table of raw persona lines.

Start with `findings`. Study types, reports, pages and the command line import this folder.
"""
