"""Controls of a simulated experiment: check that an effect has the assumed cause.

Start with `asking`, which makes the calls, then read `findings`.
"""
# Some controls continue the conversation of a decision with a further question. Other controls ask
# the decision again, unchanged or with parts of its prompt replaced. The controls are a separate
# run in `RUN/controls/`. So study types need no code for controls, and controls can be added long
# after a run.
