"""Workbooks as files, in and out.

`sheets` reads the cells, `layouts` knows how sheets and columns are called and writes new
workbooks, `reading` makes the experiment of them.

Nothing else of this study type opens a spreadsheet.
"""
