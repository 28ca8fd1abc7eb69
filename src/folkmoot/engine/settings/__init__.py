"""What authors of studies write: keys, hypotheses, and mistakes told with file, line and key.

Start with `config` (the keys that every study file may have). `yaml_tree` reads YAML with the
place of every value; `config_problems` turns what pydantic found into plain words;
`author_errors` does so for a user's own code. `claims` reads both sides of a claim from the tables
of a run, `hypotheses` those of the sealed plan.

Imports seats and storage; the folders below may import it: calls, session, study, cluster, run.
"""
