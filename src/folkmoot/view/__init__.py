"""`folkmoot view`: the pages on which runs are watched and read.

`site` holds what every page shares: look, headers and access. `run_list` finds runs. `people`,
`talk`, `rooms` and `search` read one run, and `pages` shows it. `seat` and `forms` are the pages of
human participants, and `entry` is the one link by which they come. `connections` serves the pages.
Nothing here writes into a run folder, except through the seats of a run that is in progress.
"""
