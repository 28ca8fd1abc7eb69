"""Read and write workbooks as spreadsheet files.

Start with `reading`, which makes the experiment from the sheets. `sheets` reads cells. `layouts`
knows the names of sheets and columns and writes new workbooks. `qualtrics` makes a workbook of a
questionnaire from another program. No other module of this study type opens a spreadsheet.
"""
