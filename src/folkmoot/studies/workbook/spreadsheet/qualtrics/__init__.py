"""Make a workbook from a questionnaire that was exported from Qualtrics as a .qsf file.

Start reading with `importing`. Only the workbook study imports this package.

- `importing`: writes the files of a study.
- `survey`: reads the export.
- `flow`: visits the survey in the order in which participants see it.
- `questions`: turns each question into tasks.
- `logic` and `conditions`: turn display and skip logic into expressions.
- `treatments`: turns randomizers into treatments.
- `texts`: converts HTML to plain text.
"""
