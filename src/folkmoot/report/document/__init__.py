"""The report of a run as a document: its first page, findings, charts and limits.

Start with `document`, the content of a report. `html` and `pdf` write this content. `front` is the
first page with the card of `validity`. `trust` holds the facts about the run, and `methods` the
text for a paper. `deviations` lists differences from the plan. `instructions` checks how well
models followed their instructions. `charts`, `alluvial` and `style` draw."""
