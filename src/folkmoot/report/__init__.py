"""Reports, comparisons and exports of finished runs, and preregistrations of planned runs.

Start with `document` for the report of a run, and with `comparison` for several runs.
"""
