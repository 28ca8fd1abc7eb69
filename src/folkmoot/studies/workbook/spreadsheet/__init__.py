"""Workbooks as files, in and out.

`sheets` reads the cells safely, `layouts` knows how sheets and columns are called and writes new
workbooks, `reading` makes the experiment of them, `convert` brings earlier workbooks up to date.
Nothing else of this study type opens a spreadsheet.
"""
