"""Controls of a simulated experiment: check that an effect has the assumed cause.

A control continues the conversation of a decision, or asks the decision again, unchanged or with
parts of its prompt replaced. Controls are a run below the finished run, in `RUN/controls/`, with a
separate journal. So no study type needs code for them, and controls can be added long after a run.

Start with `asking`, which makes the calls, then read `findings`. `conversations` reads the
decisions and their conversations from the run. `replacing` builds the versions of a prompt, and
`effects` measures their effects. `pricing` estimates the cost for a study file. The key `controls:`
is in `engine.settings.controls`. Imports the engine, measures and the exposure of decisions.
Reports and the command line import it.
"""
