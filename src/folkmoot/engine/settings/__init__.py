"""Settings of study files: keys, hypotheses, controls, and the problems in a study file.

- `config`: the keys that every study file may have. Start here.
- `yaml_tree`: reads YAML and keeps the location of every value.
- `config_problems`: turns pydantic's errors into plain words.
- `author_errors`: locates errors in a study author's code.
- `option_kinds`: checks the options that a caller in Python gives.
- `claims`: evaluates claims, which are planned comparisons of two conditions.
- `hypotheses`: checks hypotheses before a run, and makes the finding on hypotheses after the run.
- `run_claims`: the claims that a run fixed in `plan.json` before its first call, and their results.
- `controls`: declares the control questions.

This folder imports `seats` and `storage`. The folders `calls`, `session`, `study`, `cluster` and
`run` may import it.
"""
