"""`folkmoot view`: the web pages on which researchers watch and read runs."""
# `site` holds what all pages have in common: look, headers and access control. `run_list` finds
# runs. `people`, `talk`, `rooms` and `search` read a run, and `pages` shows it. `seat` (a folder),
# `forms` and `entry` are the pages for human participants. `connections` is the HTTP server. Pages
# do not write into the folder of a run, except those of the seats.
