"""The report of a run: first page, findings, charts, methods and limits.

- `document`: the content of a report. Start here.
- `html` and `pdf`: write the content to files.
- `front`: the first page.
- `validity`: the card of threats on the first page.
- `trust`: models, settings and answers of the run.
- `deviations`: differences from the plan.
- `instructions`: checks how well models followed their instructions.
- `methods`: the text for a paper.
- `charts`, `alluvial` and `style`: draw the charts.
- `saved_figures`: saves the charts as files.

The command line, the pages and the Python interface import this folder.
"""
