"""Reports, comparisons and exports of finished runs, and preregistrations of planned runs.

- `document`: the report of a run. Start here.
- `comparison`: compares runs with other runs, human data or a plan.
- `preregistration`: describes a planned study.
- `study_check`: checks a study file before a run.
- `export` and `polis`: write the tables or the votes of a run to files.

The command line, the pages and the Python interface import this folder.
"""
