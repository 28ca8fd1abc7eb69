"""Controls of a simulated experiment: check that an effect has the assumed cause.

- `asking`: makes the calls. Start here.
- `conversations`: reads the decisions from the run.
- `replacing`: changes the prompt of a decision.
- `forking`, `reply_graph` and `session_forks`: repeat the questions that depend on a change.
- `forms`: the answer types for repeated questions that ask for a JSON form.
- `respondent`: answers controls without a model.
- `pricing`: estimates the cost.
- `attributes`: reads what personas state.
- `tables`: the table of answers to control questions.
- `effects`, `persona_findings` and `across`: measure effects and side effects.
- `findings`: the findings of all controls.

Reports, the command line and the Python interface import this folder. No study type imports it.
"""
# Some controls continue the conversation of a decision with a further question. Other controls ask
# the decision again, unchanged or with parts of its prompt replaced. The controls are a separate
# run in `RUN/controls/`. So study types need no code for controls, and controls can be added long
# after a run.
