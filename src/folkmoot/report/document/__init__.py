"""The report of a run as a document: its first page, findings, charts and limits.

Start with `document`, the content of a report. `html` and `pdf` write it. `front` is the first page
and `trust` holds the limits and methods. `deviations` lists what differs from the plan, and
`instructions` checks how well models followed theirs. `charts`, `alluvial` and `style` draw.
"""
