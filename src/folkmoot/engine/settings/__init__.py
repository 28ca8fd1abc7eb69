"""Settings of study files: keys, hypotheses, controls, and problems with file, line and key.

- `config`: the keys that every study file may have. Start here.
- `yaml_tree`: reads YAML and keeps the location of every value.
- `config_problems`: turns pydantic's errors into plain words.
- `author_errors`: locates errors in a study author's code.
- `claims`: compares the conditions of a run as the study planned.
- `hypotheses`: checks hypotheses before a run, and makes the finding on those in `plan.json`.
- `run_claims`: the claims that the plan of a run sealed, and their results.
- `controls`: declares the control questions.

This folder imports `seats` and `storage`. The folders `calls`, `session`, `study`, `cluster` and
`run` may import it.
"""
