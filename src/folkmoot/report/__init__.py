"""Reports, comparisons and exports of finished runs. Preregistrations and power of planned runs.

Start with `document` for the report of a run. `comparison` compares runs with other runs, human
data or a plan. `preregistration`, `export` and `polis` write single files. The command line, the
pages and the Python interface import this package."""
