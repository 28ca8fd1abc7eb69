"""Read and write workbooks as spreadsheet files.

Start with `reading`. No other module of this study type opens a spreadsheet.

- `reading`: makes a `Workbook` object from the sheets.
- `sheets`: reads cells.
- `layouts`: knows the names of sheets and columns and writes new workbooks.
- `qualtrics`: converts a Qualtrics survey into a workbook.

Only this study type imports this folder.
"""
