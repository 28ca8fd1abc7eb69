"""Controls of a simulated experiment: does it answer for the reason we think?

A control continues the conversation of a decision that a run has made, or repeats it, by requests
of its own. The run stays as it is: controls are a run below it, in `RUN/controls/`, with their own
journal. So no study needs code for them, and a run can be controlled long after its end.

Start with `asking` (what is asked, and where), then `findings`. `questions` are the negative
controls, `conversations` the decisions and what was said there. Imports the engine, measures and
the exposure of decisions; reports and the command line import it.
"""
