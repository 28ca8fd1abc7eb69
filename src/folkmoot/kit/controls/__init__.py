"""Controls of a simulated experiment: does it answer for the reason we think?

A control continues the conversation of a decision that a run has made, or asks the decision again
as it was or with parts of its prompt replaced. The run stays as it is: controls are a run below it,
in `RUN/controls/`, with their own journal. So no study needs code for them, and a run can be
controlled long after its end.

Start with `asking` (what is asked, and when), then `findings`. `conversations` holds the decisions
and what was said there, `replacing` the versions of a prompt, `effects` what they say, `pricing`
what a study file's controls will cost. The key `controls:` is in `engine.settings.controls`.
Imports the engine, measures and the exposure of decisions; reports and the command line import it.
"""
