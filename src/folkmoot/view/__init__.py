"""`folkmoot view`: the web pages on which researchers watch and read runs.

- `site`: the look, headers and access control of all pages.
- `run_list`: finds runs.
- `people`, `talk`, `rooms` and `search`: read a run.
- `pages`: shows a run.
- `seat`, `forms` and `entry`: the pages for human participants.
- `connections`: the HTTP server.

Start with `pages`. The command line and the studio import this package.
"""
# Pages do not write into the folder of a run, except those of the seats.
