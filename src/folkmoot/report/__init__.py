"""Reports, comparisons and exports of finished runs, and preregistrations and power of planned
ones.

Start with `document` for the report of a run. `comparison` sets runs beside other runs, human data
or a plan. `preregistration`, `export` and `polis` write single files. The command line, the pages
and the Python interface import this package.
"""
