"""The built-in study types, one folder each. No study type imports another.

- `cross_pollination`: does arguing with the opposing view improve a decision?
- `focus_group`: a moderated discussion of product concepts.
- `negotiation`: groups of travellers plan a trip.
- `town_hall`: twenty residents discuss a local issue.
- `workbook`: an experiment that a spreadsheet defines.
- `replay`: a human experiment repeated with a model.

Start with the module `protocol` of a study type. The engine finds study types by entry points, so
no folder imports a study type. The exception is `replay`, which the command line imports for
`folkmoot new --from-people`.
"""
