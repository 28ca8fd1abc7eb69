"""`folkmoot view`: the pages on which runs are watched and read.

`site.py` holds what every page shares (look, headers, who may ask); `shelf.py` finds runs;
`people.py`, `talk.py` and `search.py` read one; `pages.py` puts them on pages. Nothing here writes
into a run folder.
"""
