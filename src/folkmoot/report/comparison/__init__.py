"""Compare a run with other runs, with human data or with a plan.

Start with `compare`. `pooled` joins the runs of a grid, and `power` plans the size of a run.
"""
