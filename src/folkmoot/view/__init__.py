"""`folkmoot view`: the pages on which runs are watched and read.

`site` holds the parts that all pages share: look, headers and access control. `run_list` finds
runs. `people`, `talk`, `rooms` and `search` read a run, and `pages` shows it. `seat` (a folder) and
`forms` are the pages for human participants, who come through the link of `entry`. `connections` is
the HTTP server. Only the seats of a run in progress write into a run folder.
"""
