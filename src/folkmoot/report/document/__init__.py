"""The report of a run: first page, findings, charts, methods and limits.

Start with `document`, the content of a report. `html` and `pdf` write it to files.
"""
