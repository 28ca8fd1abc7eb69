"""The report of a run as a document: its first page, findings, figures and limits.

Start with `document` (what a report contains), drawn by `html` and `pdf`. `front` is the first
page, `trust` the limits and methods, `deviations` what differs from the plan, `instructions` how
well models followed them; `charts`, `alluvial` and `style` are the figures.
"""
