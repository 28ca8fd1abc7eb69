"""Make a workbook from a questionnaire in Qualtrics' export format (a .qsf file).

Start reading with `importing`, which writes the files of a study. `survey` reads the export. `flow`
visits the survey in the order in which participants see it. `questions` turns each question into
tasks. `logic` turns display and skip logic into the terms of `conditions`. `treatments` turns
randomizers into treatments. `texts` converts HTML to plain text. Only the workbook study imports
this package.
"""
