"""The report of a run as a document: its first page, findings, charts and limits.

Start with `document`, the content of a report. `html` and `pdf` write it. `front` is the first page
with the card of `validity`. `trust` holds the record of the run, and `methods` the text for a
paper. `deviations` lists what differs from the plan, and `instructions` checks how well models
followed theirs. `charts`, `alluvial` and `style` draw.
"""
