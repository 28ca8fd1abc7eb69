"""Controls of a simulated experiment: check that an effect has the assumed cause.

Some controls continue the conversation of a decision with a further question. Other controls ask
the decision again, unchanged or with parts of its prompt replaced. The controls are a separate run
in `RUN/controls/`. So study types need no code for controls, and controls can be added long after a
run.

Start with `asking`, which makes the calls, then read `findings`. `conversations` reads the
decisions from the run, `replacing` builds the versions of a prompt, and `effects` measures effects.
The key `controls:` of study files is in `engine.settings.controls`.
"""
