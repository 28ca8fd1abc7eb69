"""Read and write workbooks as spreadsheet files.

Start with `reading`, which makes a workbook from the sheets.
"""
